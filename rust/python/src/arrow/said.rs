//! What a row says beside its segment, in the column `error`: to people why it is none, and between two
//! passes over an archive what one knows of a message and the other has to.

use std::borrow::Cow;

const TIMES: &str = "times ";
const WHOLE: &str = "whole";
const SEEN: &str = "seen";
const OVER_LIMIT: &str = "over the limit";

/// What a row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said<'a> {
    /// Its segment came so often.
    Times(u32),
    /// The message is whole in the partition of this row, which tells what it lacks there.
    Whole,
    /// A segment of the message came again then, and from there.
    Seen,
    /// Segments of the message were let go.
    OverLimit,
    /// Why it is no segment.
    Unread(Option<&'a str>),
}

impl<'a> Said<'a> {
    /// What the column `error` says of a row with a payload or without one.
    pub fn of(error: Option<&'a str>, has_payload: bool) -> Self {
        match (error, has_payload) {
            (Some(WHOLE), true) => Said::Whole,
            (error, true) => {
                let times = error.and_then(|error| error.strip_prefix(TIMES)?.parse().ok());
                Said::Times(times.unwrap_or(1).max(1))
            }
            (Some(SEEN), false) => Said::Seen,
            (Some(OVER_LIMIT), false) => Said::OverLimit,
            (error, false) => Said::Unread(error),
        }
    }

    /// What [`Said::of`] reads.
    pub fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Said::Times(1) => None,
            Said::Times(times) => Some(format!("{TIMES}{times}").into()),
            Said::Whole => Some(WHOLE.into()),
            Said::Seen => Some(SEEN.into()),
            Said::OverLimit => Some(OVER_LIMIT.into()),
            Said::Unread(error) => error.map(Cow::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Said;

    #[test]
    fn what_a_row_says_is_read_back() {
        for (said, has_payload) in [
            (Said::Times(1), true),
            (Said::Times(u32::MAX), true),
            (Said::Whole, true),
            (Said::Seen, false),
            (Said::OverLimit, false),
            (Said::Unread(None), false),
            (Said::Unread(Some("the payload is empty")), false),
        ] {
            assert_eq!(Said::of(said.text().as_deref(), has_payload), said);
        }
        // A segment came once at least, whatever its row says.
        for text in ["times 0", "times -1", "times", "seen"] {
            assert_eq!(Said::of(Some(text), true), Said::Times(1));
        }
    }
}
