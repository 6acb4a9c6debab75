//! Requests, as far as a message has room for them.

use crate::sds::ids::entry_bytes_max;
use crate::wire::sds::HistoryEntry;

/// Those of the requests that have room, the first ones first.
pub fn fitting(mut requests: Vec<HistoryEntry>, budget_bytes: usize) -> Vec<HistoryEntry> {
    let mut left = budget_bytes;
    requests.retain(|request| match left.checked_sub(entry_bytes_max(request)) {
        Some(after) => {
            left = after;
            true
        }
        None => false,
    });
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sds::sync::lacking::statement;

    #[test]
    fn requests_go_as_far_as_there_is_room_for_them() {
        let requests: Vec<HistoryEntry> = (0..3)
            .map(|number| statement(&format!("{number:032x}"), 1, "alice"))
            .collect();
        let bytes = entry_bytes_max(&requests[0]);
        for (budget_bytes, count) in [
            (0, 0),
            (bytes - 1, 0),
            (bytes, 1),
            (3 * bytes - 1, 2),
            (3 * bytes, 3),
        ] {
            let taken = fitting(requests.clone(), budget_bytes);
            assert_eq!(taken, requests[..count]);
        }
    }
}
