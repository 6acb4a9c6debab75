//! Which sends the next message asks about.

use std::sync::Arc;

use hashlink::LinkedHashMap;

use super::quorum::Quorum;
use super::sends::Sends;
use crate::sds::name::Name;

/// A send whose receivers are asked what they lack.
#[derive(Debug)]
pub struct Asked {
    /// Which.
    pub send_id: Name,
    /// Who is asked: nobody in particular where it is not known who is to have it.
    pub names: Vec<Arc<str>>,
    /// Whether a number is enough of an answer; else what came is to be named.
    pub by_number: bool,
}

/// Sends whose receivers are to be asked what they lack, and since when.
#[derive(Debug, Default)]
pub struct Inquiries {
    since_ms: LinkedHashMap<Name, i64>,
}

impl Inquiries {
    /// The next message asks for a send.
    pub fn add(&mut self, send_id: Name, monotonic_ms: i64) {
        self.since_ms.entry(send_id).or_insert(monotonic_ms);
    }

    /// Since when a message is to ask.
    pub fn due_ms(&self) -> Option<i64> {
        self.since_ms.front().map(|(_, since_ms)| *since_ms)
    }

    /// What the message that leaves now asks. Who names what came within `gap_ms` after a content left may
    /// have done so in the middle of its burst.
    pub fn take(&mut self, quorum: &Quorum, sends: &Sends, gap_ms: i64) -> Vec<Asked> {
        let asked = std::mem::take(&mut self.since_ms).into_iter();
        let still_open = |(send_id, _): (Name, i64)| {
            let send = sends.get(sends.find(&send_id)?)?;
            let names = quorum.silent(send, gap_ms);
            let by_number = send.demand.is_some();
            let is_answered = quorum.is_named() && names.is_empty() && !by_number;
            (!send.finished && !is_answered).then_some(Asked {
                send_id,
                names,
                by_number,
            })
        };
        asked.filter_map(still_open).collect()
    }
}
