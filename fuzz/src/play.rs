//! Plays a scenario against a receiver and holds it to its promises, step by step.

use std::collections::BTreeMap;

use shardwire_core::keccak::keccak256;
use shardwire_core::reassemble::{
    Change, Discard, Drop, Dropped, Outcome, Reassembler, Receipt, Reconstructed, Stats,
};
use shardwire_core::wire::segment::{self, Received, Segment};

use crate::memory;
use crate::message::Message;
use crate::model::{Model, Name, agrees};
use crate::scenario::{Arrival, Forgery, Scenario, Step};

/// How far what was sent came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transport messages.
    pub arrivals: u64,
    /// Those that were altered.
    pub altered: u64,
    /// Altered ones that were kept.
    pub altered_stored: u64,
    /// Payloads that parity was decoded for.
    pub decoded: u64,
    /// Payloads that came out.
    pub delivered: u64,
    /// Attempts whose result did not have the hash.
    pub mismatches: u64,
}

/// Runs a scenario to its end.
///
/// # Panics
/// Where the receiver breaks a promise.
pub fn play(scenario: &Scenario) -> Counts {
    let mut player = Player::new(scenario);
    if player.tells {
        let messages = scenario.messages.iter().map(ToString::to_string);
        let messages: Vec<String> = messages.collect();
        eprintln!(
            "{:?}\n{:?}\n{messages:#?}",
            scenario.parameters, scenario.limits
        );
    }
    for step in &scenario.steps {
        player.step(step);
    }
    player.counts
}

type Stored = BTreeMap<(bool, Vec<u8>), Vec<u8>>;

struct Player<'a> {
    scenario: &'a Scenario,
    reassembler: Reassembler,
    model: Model,
    now_ms: i64,
    /// The records of a persistence, by kind and key, and what they stand for.
    stored: Stored,
    saved: (Model, Stats),
    counts: Counts,
    held_before: Option<isize>,
    /// Whether to print what happens, for whoever reads a found case.
    tells: bool,
}

impl<'a> Player<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let held_before = memory::held();
        let model = Model::new(&scenario.limits);
        Player {
            scenario,
            reassembler: Reassembler::new(scenario.parameters, scenario.limits),
            model: model.clone(),
            now_ms: 0,
            stored: Stored::new(),
            saved: (model, Stats::default()),
            counts: Counts::default(),
            held_before,
            tells: std::env::var_os("SHARDWIRE_FUZZ_TELL").is_some(),
        }
    }

    fn step(&mut self, step: &Step) {
        if self.tells && !matches!(step, Step::Receive(_)) {
            eprintln!("{step:?}");
        }
        match step {
            Step::Receive(arrival) => self.receive(arrival),
            Step::Wait(ms) => self.now_ms += ms,
            Step::Expire => {
                for dropped in self.reassembler.expire(self.now_ms) {
                    assert_eq!(dropped.reason, Drop::Expired);
                    self.model.forget(&name_of(&dropped));
                }
                let next = self.reassembler.next_expiry_ms();
                assert!(
                    next.is_none_or(|next| next > self.now_ms),
                    "overdue sets stay"
                );
            }
            Step::Persist => self.persist(),
            Step::Restart => self.restart(),
        }
        self.check_limits();
    }

    fn receive(&mut self, arrival: &Arrival) {
        let receipt = Receipt {
            now_ms: self.now_ms,
            sender: arrival.sender,
            authenticated: arrival.authenticated,
            message_key: arrival.key.as_deref(),
        };
        let before = self.reassembler.stats();
        let (outcome, peak) =
            memory::peak_of(|| self.reassembler.receive(&arrival.bytes, &receipt));
        // A reconstruction may hold the payload and its parity some times over, and Leopard's
        // larger field its tables, never what a header claims.
        let whole = before.bytes_held as usize + arrival.bytes.len();
        let peak_max = 16 * whole + (4 << 20);
        assert!(peak <= peak_max as isize, "{peak} bytes for {whole} held");
        if self.tells {
            eprintln!("{arrival} -> {}", summary_of(&outcome));
        }
        self.count(arrival, &outcome);
        self.check_counted(&before, &outcome);
        for dropped in self.reassembler.poll_dropped() {
            assert_eq!(dropped.reason, Drop::Evicted);
            self.model.forget(&name_of(&dropped));
        }
        let wire_format = self.scenario.parameters.settings().wire_format;
        if self.reassembler.stats().displaced > before.displaced {
            self.model.disturb_all();
        }
        match segment::decode(&arrival.bytes, wire_format, 256) {
            Err(error) => {
                let expected = match error.is_undecodable() {
                    true => Discard::Undecodable,
                    false => Discard::Invalid,
                };
                assert_eq!(reason_of(&outcome), Some(expected));
            }
            Ok(Received::WholeMessage(payload)) => {
                let name = (arrival.key.clone(), keccak256(payload));
                match outcome {
                    Outcome::Reconstructed(found) => {
                        assert_eq!(found.payload.to_vec(), payload);
                        self.deliver(name, &found);
                    }
                    other => self.check_late(&name, &other),
                }
            }
            Ok(Received::Segment(segment)) => self.follow(arrival, &segment, outcome),
        }
    }

    /// Holds the outcome of a valid segment to what the model knows of its message.
    fn follow(&mut self, arrival: &Arrival, segment: &Segment<'_>, outcome: Outcome) {
        let name = (arrival.key.clone(), segment.header.entire_message_hash);
        let message = self
            .scenario
            .messages
            .iter()
            .find(|message| (&message.key, &message.hash) == (&name.0, &name.1));
        if let Outcome::Reconstructed(found) = &outcome {
            if let Some(message) = message {
                self.follow_delivery(&name, message, arrival, segment, found);
            }
            return self.deliver(name, found);
        }
        if self.model.is_completed(&name) || reason_of(&outcome) == Some(Discard::AlreadyCompleted)
        {
            return self.check_late(&name, &outcome);
        }
        let Some(message) = message else { return };
        if !agrees(message, &segment.header) {
            return self.model.disturb(&name);
        }
        let group = self.model.group(&name);
        match outcome {
            Outcome::Stored {
                segments_held,
                segments_needed,
                ..
            } => {
                group.store(message, segment, arrival.forgery, arrival.sender);
                if !group.disturbed {
                    assert_eq!(segments_held, group.slots_held());
                    let missing = message.data_count.saturating_sub(segments_held);
                    assert!(segments_needed.is_none_or(|needed| needed == missing.max(1)));
                    let ends = self.scenario.parameters.settings().max_tail_candidates >= 256;
                    let affords = message.affords_its_tail(self.scenario.limits.work_budget);
                    assert!(
                        !(ends && affords && group.promises(message)),
                        "the payload is promised and does not come: {message} holds {group:?}, \
                         the last is {:?}",
                        segment.header.slot
                    );
                }
            }
            Outcome::Discarded { reason, .. } => match reason {
                Discard::Duplicate if !group.disturbed => {
                    assert!(group.holds(message, segment), "a duplicate of nothing");
                }
                _ => group.disturbed = true,
            },
            Outcome::Dropped(dropped) => {
                assert_eq!(dropped.reason, Drop::HashMismatch);
                self.model.forget(&name);
            }
            Outcome::Reconstructed(_) => unreachable!("it was told above"),
        }
    }

    fn follow_delivery(
        &mut self,
        name: &Name,
        message: &Message,
        arrival: &Arrival,
        segment: &Segment<'_>,
        found: &Reconstructed,
    ) {
        assert_eq!(found.payload.to_vec(), message.payload);
        let group = self.model.group(name);
        if !group.disturbed && agrees(message, &segment.header) && found.data_segment_count > 1 {
            group.store(message, segment, arrival.forgery, arrival.sender);
            if !group.disturbed {
                group.check_named(message, found);
            }
            assert_eq!(found.data_segment_count, message.data_count);
            let lost = &found.data_segments_recovered;
            assert_eq!(found.erasure_code.is_some(), !lost.is_empty());
        }
    }

    fn deliver(&mut self, name: Name, found: &Reconstructed) {
        let payload = found.payload.to_vec();
        assert_eq!(found.payload.len(), payload.len());
        assert_eq!(
            keccak256(&payload),
            name.1,
            "what is delivered has its hash"
        );
        assert_eq!(found.entire_message_hash, name.1);
        assert!(!self.model.is_completed(&name), "delivered twice");
        self.model.complete(name);
    }

    fn check_late(&self, name: &Name, outcome: &Outcome) {
        assert_eq!(reason_of(outcome), Some(Discard::AlreadyCompleted));
        assert!(
            self.model.is_completed(name),
            "{name:?} was never completed"
        );
    }

    fn count(&mut self, arrival: &Arrival, outcome: &Outcome) {
        let altered = arrival.forgery != Forgery::None;
        let counts = &mut self.counts;
        counts.arrivals += 1;
        counts.altered += u64::from(altered);
        match outcome {
            Outcome::Stored { hash_mismatch, .. } => {
                counts.altered_stored += u64::from(altered);
                counts.mismatches += u64::from(*hash_mismatch);
            }
            Outcome::Reconstructed(found) => {
                counts.decoded += u64::from(found.erasure_code.is_some());
                counts.delivered += 1;
            }
            Outcome::Dropped(_) => counts.mismatches += 1,
            Outcome::Discarded { .. } => {}
        }
    }

    /// Every outcome is counted under its own name.
    fn check_counted(&self, before: &Stats, outcome: &Outcome) {
        let after = self.reassembler.stats();
        assert_eq!(after.received, before.received + 1);
        let of = |counts: &[u64; 7]| counts.iter().sum::<u64>();
        let discarded = matches!(outcome, Outcome::Discarded { .. });
        assert_eq!(
            of(&after.discarded),
            of(&before.discarded) + u64::from(discarded)
        );
        if let Some(reason) = reason_of(outcome) {
            let index = reason as usize;
            assert_eq!(after.discarded[index], before.discarded[index] + 1);
        }
        let delivered = matches!(outcome, Outcome::Reconstructed(_));
        assert_eq!(
            after.reconstructed,
            before.reconstructed + u64::from(delivered)
        );
    }

    fn check_limits(&self) {
        let (stats, limits) = (self.reassembler.stats(), &self.scenario.limits);
        assert!(stats.sets_held <= limits.sets_max, "{stats:?}");
        assert!(stats.bytes_held <= limits.buffered_bytes_max, "{stats:?}");
        assert!(stats.completed_remembered as usize <= limits.completed_remembered_max);
        assert!(
            (stats.sets_held == 0) == (stats.bytes_held == 0),
            "{stats:?}"
        );
        if let (Some(before), Some(now)) = (self.held_before, memory::held()) {
            // The model and the records of the persistence are counted too, at a few copies of
            // everything; a header's claim would show as megabytes.
            let sent: usize = self.scenario.steps.iter().map(size_of_step).sum();
            let limit = 64 * sent + (1 << 20);
            assert!(
                now - before <= limit as isize,
                "{} bytes held",
                now - before
            );
        }
    }

    fn persist(&mut self) {
        for record in self.reassembler.poll_persist() {
            match record.change {
                Change::PutSegment => {
                    self.stored.insert((false, record.key), record.value);
                }
                Change::PutCompleted => {
                    self.stored.insert((true, record.key), record.value);
                }
                Change::DeleteSet => {
                    let is_of_set = |(completed, key): &(bool, Vec<u8>)| {
                        !completed && key.starts_with(&record.key)
                    };
                    self.stored.retain(|name, _| !is_of_set(name));
                }
                Change::DeleteCompleted => {
                    self.stored.remove(&(true, record.key));
                }
            }
        }
        assert_eq!(self.reassembler.poll_persist(), []);
        self.saved = (self.model.clone(), self.reassembler.stats());
    }

    fn restart(&mut self) {
        let mut reassembler = Reassembler::new(self.scenario.parameters, self.scenario.limits);
        reassembler.restore(self.stored.iter().map(|((completed, key), value)| {
            let change = match completed {
                true => Change::PutCompleted,
                false => Change::PutSegment,
            };
            (change, key.as_slice(), value.as_slice())
        }));
        let (was, is) = (&self.saved.1, reassembler.stats());
        assert_eq!(is.restore_ignored, 0, "every stored record comes back");
        assert_eq!(reassembler.poll_dropped(), [], "a restart evicts nothing");
        assert_eq!(
            (is.sets_held, is.bytes_held, is.completed_remembered),
            (was.sets_held, was.bytes_held, was.completed_remembered),
        );
        assert_eq!(is.senders_held, was.senders_held);
        self.reassembler = reassembler;
        self.model = self.saved.0.clone();
    }
}

fn name_of(dropped: &Dropped) -> Name {
    (dropped.message_key.clone(), dropped.entire_message_hash)
}

fn reason_of(outcome: &Outcome) -> Option<Discard> {
    match outcome {
        Outcome::Discarded { reason, .. } => Some(*reason),
        _ => None,
    }
}

fn summary_of(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Reconstructed(found) => format!(
            "Reconstructed {} bytes, recovered {:?}, bad {:?}",
            found.payload.len(),
            found.data_segments_recovered,
            found.bad_segments
        ),
        other => format!("{other:?}"),
    }
}

fn size_of_step(step: &Step) -> usize {
    match step {
        Step::Receive(arrival) => arrival.bytes.len() + 100,
        _ => 0,
    }
}
