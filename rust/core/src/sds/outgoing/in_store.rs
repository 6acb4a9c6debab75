//! Contents of ours that a store holds: whoever is away finds them there, so they are not sent again
//! meanwhile.

use std::collections::HashSet;

use hashlink::LinkedHashSet;

use super::send::ContentRef;

/// Nobody is taken to be there when so many probes went unanswered.
const SILENT_PROBES: u32 = 2;
/// So many acknowledgement timeouts without an acknowledgement show that the store does not help.
const PATIENCE_PERIODS: i64 = 2;
/// What may wait so: beyond it the send that waits longest is given up.
const WAITING_CONTENTS_MAX: usize = 2_048;

/// Contents that a store has and that wait until somebody who lacks them is heard, and on while the
/// store helps him. They count against no room in the outgoing buffer and use up no retransmission.
///
/// While nobody is heard contents of the newest send go as probes all the same, as often as one would
/// go again without a store: a participant that is there, and only lost what was sent, learns from a
/// probe's history what else it lacks.
#[derive(Debug, Default)]
pub struct InStore {
    waiting: LinkedHashSet<ContentRef>,
    /// How many probes went since somebody was heard, and how many may.
    probes: u32,
    probes_max: u32,
    probe_at_ms: i64,
    wants_probe: bool,
    /// Whether nobody answered the first probes either.
    silent: bool,
    /// How long the store is given since somebody was heard, and how many waited when that was said.
    patient_until_ms: Option<i64>,
    last_count: usize,
}

impl InStore {
    /// Nothing waits; `probes_max` probes go while nobody is heard.
    pub fn new(probes_max: u32) -> Self {
        InStore {
            probes_max,
            ..InStore::default()
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// What waits, the longest first.
    pub fn iter(&self) -> impl Iterator<Item = ContentRef> {
        self.waiting.iter().copied()
    }

    /// Whether a content waits.
    pub fn contains(&self, place: ContentRef) -> bool {
        self.waiting.contains(&place)
    }

    /// Sends that wait for somebody who is not heard and answers no probe.
    pub fn silent_sends(&self) -> usize {
        if !self.silent {
            return 0;
        }
        let sends: HashSet<_> = self.waiting.iter().map(|(send, _)| *send).collect();
        sends.len()
    }

    /// Nobody waits for the acknowledgement of a content any longer.
    pub fn discard(&mut self, place: ContentRef) {
        self.waiting.remove(&place);
    }

    /// Whether a content that is due and in a store waits on. When somebody who lacks it `is_heard`,
    /// the store comes first: what waited waits on for as long as acknowledgements keep coming.
    pub fn holds_back(
        &mut self,
        place: ContentRef,
        is_heard: bool,
        monotonic_ms: i64,
        period_ms: i64,
    ) -> bool {
        if !is_heard {
            if self.waiting.is_empty() {
                self.patient_until_ms = None;
            }
            self.waiting.replace(place);
            self.wants_probe = true;
            return true;
        }
        self.probes = 0;
        self.silent = false;
        if !self.waiting.contains(&place) {
            return false;
        }
        let until_ms = match self.patient_until_ms {
            Some(until_ms) if self.waiting.len() >= self.last_count => until_ms,
            _ => {
                self.last_count = self.waiting.len();
                *self
                    .patient_until_ms
                    .insert(monotonic_ms + PATIENCE_PERIODS * period_ms)
            }
        };
        if monotonic_ms < until_ms {
            return true;
        }
        self.discard(place);
        self.last_count = self.last_count.saturating_sub(1);
        false
    }

    /// The newest content that waits, when something of its send is to go out though nobody is heard;
    /// asked for when all that was due was looked at.
    pub fn take_probe(&mut self, monotonic_ms: i64, period_ms: i64) -> Option<ContentRef> {
        if !std::mem::take(&mut self.wants_probe) || monotonic_ms < self.probe_at_ms {
            return None;
        }
        let newest = *self.waiting.back()?;
        self.silent |= self.probes >= SILENT_PROBES.min(self.probes_max);
        if self.probes >= self.probes_max {
            return None;
        }
        self.probes += 1;
        self.probe_at_ms = monotonic_ms + period_ms;
        // Of its send the first, which is data: parity alone may not even tell how large the send is.
        let (send, last) = newest;
        let first = (0..last).find(|ordinal| self.waiting.contains(&(send, *ordinal)));
        Some((send, first.unwrap_or(last)))
    }

    /// What waits longest, where more waits than may.
    pub fn overflow(&self) -> Option<ContentRef> {
        let oldest = self
            .waiting
            .front()
            .filter(|_| self.waiting.len() > WAITING_CONTENTS_MAX);
        oldest.copied()
    }
}
