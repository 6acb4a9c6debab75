//! The limits of what a machine holds, by name: what a peer may make it keep or do.

use super::{ids, incoming, log, outgoing, participants, reception, repair, sync};

/// Names and values; `docs/guide/sds.md` says what each bounds.
pub const LIMITS: [(&str, usize); 17] = [
    ("ASKERS_MAX", sync::lacking::ASKERS_MAX),
    ("CONTENTS_PER_SEND_MAX", ids::CONTENTS_PER_SEND_MAX as usize),
    (
        "FILTERS_REMEMBERED_MAX",
        sync::filter_request::FILTERS_REMEMBERED_MAX,
    ),
    ("FINISHED_CONTENTS_MAX", outgoing::FINISHED_CONTENTS_MAX),
    ("HEADS_MAX", log::HEADS_MAX),
    ("MESSAGE_ID_BYTES_MAX", ids::MESSAGE_ID_BYTES_MAX),
    ("PARTICIPANTS_MAX", participants::PARTICIPANTS_MAX),
    (
        "PARTICIPANTS_PER_SEND_MAX",
        outgoing::PARTICIPANTS_PER_SEND_MAX,
    ),
    ("REPAIR_BUFFER_MAX", repair::REPAIR_BUFFER_MAX),
    ("REPEATED_MAX", sync::acknowledgements::REPEATED_MAX),
    ("REQUESTS_HEARD_MAX", reception::REQUESTS_HEARD_MAX),
    ("REVIEWED_MAX", sync::anti_entropy::REVIEWED_MAX),
    ("SENDER_ID_BYTES_MAX", ids::SENDER_ID_BYTES_MAX),
    ("STATEMENTS_MAX", sync::lacking::STATEMENTS_MAX),
    ("TOGETHER_MAX", sync::acknowledgements::TOGETHER_MAX),
    (
        "UNKNOWN_PER_MESSAGE_MAX",
        reception::UNKNOWN_PER_MESSAGE_MAX,
    ),
    ("WAITING_PAIRS_MAX", incoming::WAITING_PAIRS_MAX),
];
