//! How much one input releases.

/// Sends that one step releases, and pairs of a send and a cause that it unties; the rest goes in further steps.
pub const RELEASED_AT_ONCE_MAX: usize = 512;
pub const UNTIED_AT_ONCE_MAX: usize = 16_384;

/// What one input may release, whatever frees it.
#[derive(Debug)]
pub struct Step {
    sends_left: usize,
    pairs_min: usize,
}

impl Step {
    /// One that begins with so many pairs.
    pub fn new(pairs: usize) -> Self {
        Step {
            sends_left: RELEASED_AT_ONCE_MAX,
            pairs_min: pairs.saturating_sub(UNTIED_AT_ONCE_MAX),
        }
    }

    /// Whether more may go, where so many pairs are left.
    pub fn has_room(&self, pairs: usize) -> bool {
        self.sends_left > 0 && pairs >= self.pairs_min
    }

    /// A send was released.
    pub fn on_released(&mut self) {
        self.sends_left = self.sends_left.saturating_sub(1);
    }
}
