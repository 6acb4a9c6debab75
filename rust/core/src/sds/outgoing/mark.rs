//! What one content knows of its record.

/// What is known of the record of one content.
#[derive(Debug, Default)]
pub struct Mark {
    /// Whether its state is to be written.
    pub(super) is_changed: bool,
    /// Whether its state has a record of its own.
    pub has_record: bool,
    /// Where its bytes stand that are to be stored, and before which poll.
    pub(super) new_content: Option<(u32, u32)>,
}
