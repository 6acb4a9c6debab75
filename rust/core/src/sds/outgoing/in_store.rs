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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sds::name::Name;
    use crate::sds::outgoing::OutgoingSend;
    use crate::sds::slab::Slab;

    const PERIOD_MS: i64 = 1_000;

    /// Contents of one send.
    fn places(count: u32) -> Vec<ContentRef> {
        let send = Slab::default().insert(OutgoingSend::new(Name::new("send"), 1, 1));
        (0..count).map(|ordinal| (send, ordinal)).collect()
    }

    #[test]
    fn the_store_comes_first_for_two_timeouts_after_somebody_is_heard() {
        let mut store = InStore::new(5);
        let places = places(2);
        for place in &places {
            assert!(
                !store.holds_back(*place, true, 0, PERIOD_MS),
                "it did not wait"
            );
            assert!(store.holds_back(*place, false, 0, PERIOD_MS));
        }
        assert_eq!(store.iter().collect::<Vec<_>>(), places);
        for (place, monotonic_ms, waits) in [
            (places[0], 10, true),
            (places[0], 2_009, true),
            (places[0], 2_010, false),
            (places[1], 2_010, false),
        ] {
            assert_eq!(
                store.holds_back(place, true, monotonic_ms, PERIOD_MS),
                waits
            );
            assert_eq!(store.contains(place), waits);
        }
    }

    #[test]
    fn the_store_is_given_two_timeouts_anew_by_each_acknowledgement_and_for_what_comes_later() {
        let mut store = InStore::new(5);
        let places = places(3);
        let wait = |store: &mut InStore, places: &[ContentRef], monotonic_ms| {
            for place in places {
                store.holds_back(*place, false, monotonic_ms, PERIOD_MS);
            }
        };
        let waits = |store: &mut InStore, place, monotonic_ms| {
            store.holds_back(place, true, monotonic_ms, PERIOD_MS)
        };
        wait(&mut store, &places, 0);
        assert!(waits(&mut store, places[0], 10));
        store.discard(places[2]);
        assert!(waits(&mut store, places[0], 1_500));
        assert!(waits(&mut store, places[0], 3_499));
        assert!(!waits(&mut store, places[0], 3_500));
        // What goes for want of help was not acknowledged.
        assert!(!waits(&mut store, places[1], 3_500));
        wait(&mut store, &places[..1], 5_000);
        assert!(waits(&mut store, places[0], 5_010));
        // More that waits meanwhile is no help either.
        wait(&mut store, &places[1..], 5_020);
        assert!(waits(&mut store, places[0], 7_009));
        assert!(!waits(&mut store, places[0], 7_010));
        let mut store = InStore::new(5);
        wait(&mut store, &places, 0);
        assert!(waits(&mut store, places[0], 10));
        assert!(!waits(&mut store, places[0], 2_010));
        store.discard(places[2]);
        assert!(waits(&mut store, places[1], 2_010));
    }

    #[test]
    fn while_nobody_is_heard_so_many_probes_go_and_then_nobody_is_there() {
        let mut store = InStore::new(3);
        let places = places(3);
        // When contents are due, whether a probe goes, and how many sends wait in vain.
        for (monotonic_ms, goes, silent) in [
            (0, true, 0),
            (PERIOD_MS - 1, false, 0),
            (PERIOD_MS, true, 0),
            (2 * PERIOD_MS, true, 1),
            (3 * PERIOD_MS, false, 1),
            (4 * PERIOD_MS, false, 1),
        ] {
            for place in &places[1..] {
                store.holds_back(*place, false, monotonic_ms, PERIOD_MS);
            }
            let probe = goes.then_some(places[1]);
            assert_eq!(
                store.take_probe(monotonic_ms, PERIOD_MS),
                probe,
                "{monotonic_ms}"
            );
            assert_eq!(store.take_probe(monotonic_ms, PERIOD_MS), None);
            assert_eq!(store.silent_sends(), silent);
        }
        store.holds_back(places[1], true, 4 * PERIOD_MS, PERIOD_MS);
        assert_eq!(store.silent_sends(), 0);
        // As many go when nobody is heard again.
        for (round, goes, silent) in [(5, true, 0), (6, true, 0), (7, true, 1), (8, false, 1)] {
            let monotonic_ms = round * PERIOD_MS;
            store.holds_back(places[2], false, monotonic_ms, PERIOD_MS);
            let probe = goes.then_some(places[1]);
            assert_eq!(store.take_probe(monotonic_ms, PERIOD_MS), probe);
            assert_eq!(store.silent_sends(), silent);
        }
    }

    #[test]
    fn beyond_the_limit_what_waits_longest_is_given_up() {
        let mut store = InStore::new(5);
        let places = places(WAITING_CONTENTS_MAX as u32 + 1);
        for place in &places {
            assert_eq!(store.overflow(), None);
            store.holds_back(*place, false, 0, PERIOD_MS);
        }
        assert_eq!(store.overflow(), Some(places[0]));
    }
}
