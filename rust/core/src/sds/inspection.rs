//! What a machine holds, piece by piece: for tests, and for who looks for the cause of something.

use std::sync::Arc;

use super::config::Now;
use super::log::Entry;
use super::machine::Machine;
use super::name::Name;

/// Everything that a machine holds, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Message ids of the log, in the order in which they came.
    pub log: Vec<Name>,
    /// Message ids of contents that no other content of the log follows.
    pub heads: Vec<Name>,
    /// Message ids of contents of others that wait for the rest of their send, or for causes.
    pub incoming: Vec<Name>,
    /// Contents of ours that are not acknowledged.
    pub unacknowledged: Vec<Unacknowledged>,
    /// Sends of ours that are not finished, with who acknowledged how many contents of each.
    pub acknowledged: Vec<(Name, Shares)>,
    /// What is asked for, and when next.
    pub repair_requests: Vec<(Name, i64)>,
    /// What is answered, and when.
    pub repair_answers: Vec<(Name, i64)>,
    /// Message ids of messages kept to repair others with.
    pub originals: Vec<Name>,
    /// Message ids that were not acknowledged so far.
    pub unsaid: Vec<Name>,
    /// Our filter, as a sync would carry it.
    pub bloom_filter: Vec<u8>,
    /// When a sync is due, on the monotonic clock.
    pub sync_due_ms: Option<i64>,
}

/// By participant, how many contents of a send it acknowledged.
pub type Shares = Vec<(Arc<str>, u32)>;

/// A content of ours that is not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unacknowledged {
    /// Its message id.
    pub message_id: Name,
    /// How many filters hold it.
    pub possible: usize,
}

impl Machine {
    /// The filter that the next sync would carry.
    fn filter_now(&self) -> Vec<u8> {
        let withholds = |entry: &Entry| {
            self.given_up
                .withholds(entry.send.and_then(|send| self.incoming.get(send)))
        };
        let now = Now {
            monotonic_ms: 0,
            epoch_ms: 0,
        };
        self.filter.clone().take(now, false, &self.log, &withholds)
    }

    /// Everything that is held.
    pub fn inspect(&self) -> Inspection {
        let name = |entry| self.log.get(entry).map(|held| held.message_id.clone());
        let unacknowledged = self.outgoing.unacknowledged().filter_map(|place| {
            let content = self.outgoing.content(place)?;
            Some(Unacknowledged {
                message_id: content.message_id.clone(),
                possible: content.filter_hits(),
            })
        });
        let acknowledged = self
            .outgoing
            .iter()
            .filter(|send| !send.finished)
            .map(|send| {
                let by = send
                    .acknowledged
                    .iter()
                    .map(|(by, held)| (Arc::clone(by), held.count()));
                (send.send_id.clone(), by.collect())
            });
        let unsaid = self
            .acknowledgements
            .delivered()
            .chain(self.acknowledgements.incomplete());
        let waiting = self.log.arrivals().filter(|(_, held)| held.send.is_some());
        Inspection {
            log: self
                .log
                .arrivals()
                .map(|(_, held)| held.message_id.clone())
                .collect(),
            heads: self.heads.entries().filter_map(name).collect(),
            incoming: waiting.map(|(_, held)| held.message_id.clone()).collect(),
            unacknowledged: unacknowledged.collect(),
            acknowledged: acknowledged.collect(),
            repair_requests: self
                .asking
                .requests()
                .map(|(name, at_ms)| (name.clone(), at_ms))
                .collect(),
            repair_answers: self
                .answering
                .answers()
                .map(|(name, at_ms)| (name.clone(), at_ms))
                .collect(),
            originals: self.log.originals().cloned().collect(),
            unsaid: unsaid.filter_map(name).collect(),
            bloom_filter: self.filter_now(),
            sync_due_ms: self.sync_schedule.due_ms,
        }
    }

    /// The senders and names of whole messages that wait for what they follow.
    #[cfg(debug_assertions)]
    pub(crate) fn reconstructed(&self) -> impl Iterator<Item = (&str, &str)> {
        let whole = self.incoming.sends().filter(|send| send.reconstructed);
        whole.map(|send| (&*send.sender_id, &*send.send_id))
    }

    /// The senders and names of messages that are here in part.
    #[cfg(debug_assertions)]
    pub(crate) fn partial(&self) -> impl Iterator<Item = (&str, &str)> {
        let partial = self.incoming.sends().filter(|send| send.is_partial());
        partial.map(|send| (&*send.sender_id, &*send.send_id))
    }

    /// What the parts count is what they hold: every test that stores something looks.
    #[cfg(debug_assertions)]
    pub(super) fn audit(&self) {
        self.log.audit();
        self.incoming.audit();
        self.given_up.audit();
        self.rivals.audit();
        self.outgoing.audit();
        self.acknowledgements.audit(&self.log);
        let missing = self.incoming.missing().iter().map(|(name, _)| name);
        self.asking
            .audit(&missing.collect(), self.config.missing_messages_max);
        self.answering.audit();
        let held = self
            .log
            .originals()
            .filter_map(|id| self.log.original(id.as_bytes()));
        assert_eq!(
            self.log.original_bytes(),
            held.map(|message| message.len()).sum::<usize>()
        );
    }
}
