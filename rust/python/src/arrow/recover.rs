//! The slow path of one message: lost, contested, padded or poisoned segments go through the
//! Reassembler of the core, the same one that receives from a network.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use shardwire_core::reassemble::{Limits, Outcome, Reassembler, Receipt, Reconstructed};
use shardwire_core::segment::Parameters;
use shardwire_core::wire::segment::Header;

use super::candidate::Candidate;
use super::group::{Group, GroupLimits};

/// Different statements of a message's counts that are believed in turn.
const COUNTS_TRIED_MAX: usize = 4;

/// What the slow path found.
pub enum Recovery {
    /// A payload with the right hash.
    Payload(Box<Reconstructed>),
    /// Too few segments are there.
    Incomplete,
    /// Enough are there and none of what they give has the hash.
    Invalid,
}

/// How many data and parity segments a segment says there are.
type Counts = (Option<u16>, Option<u16>);

/// Tries what the segments of `group` give. What most of them say of their number is believed
/// first: a single forged header must not decide the geometry.
pub fn recover(
    group: &Group,
    parameters: &Parameters,
    limits: GroupLimits,
    work_budget: u64,
) -> Recovery {
    let candidates: Vec<&Candidate> = group.places.values().flatten().collect();
    if candidates.is_empty() {
        return if group.is_unsegmented() || group.unreadable > 0 || group.key.hash.is_none() {
            Recovery::Invalid
        } else {
            Recovery::Incomplete
        };
    }
    let mut mismatched = false;
    for believed in believable_counts(&candidates) {
        let mut ordered = candidates.clone();
        // A stable sort: data stays before parity, so that as little as possible is decoded.
        ordered.sort_by_key(|one| !agree(believed, counts_of(&one.header)));
        match attempt(&ordered, parameters, limits, work_budget) {
            Attempt::Payload(found) => return Recovery::Payload(found),
            Attempt::Mismatch => mismatched = true,
            Attempt::TooFew => {}
        }
    }
    if mismatched {
        Recovery::Invalid
    } else {
        Recovery::Incomplete
    }
}

enum Attempt {
    Payload(Box<Reconstructed>),
    Mismatch,
    TooFew,
}

fn attempt(
    candidates: &[&Candidate],
    parameters: &Parameters,
    limits: GroupLimits,
    work_budget: u64,
) -> Attempt {
    // The group's own limits were applied when its rows came.
    let limits = Limits::of_one_payload(limits.candidates_per_slot_max, work_budget);
    let mut reassembler = Reassembler::new(*parameters, limits);
    let mut mismatched = false;
    for candidate in candidates {
        let receipt = Receipt {
            sender: candidate.sender.as_deref(),
            ..Receipt::default()
        };
        match reassembler.receive(candidate.segment(), &receipt) {
            Outcome::Reconstructed(found) => return Attempt::Payload(found),
            // What is all of its message waits in no set: the next one is tried by itself.
            Outcome::Dropped(_) if candidate.header.data_segment_count == Some(1) => {
                mismatched = true;
            }
            Outcome::Dropped(_) => return Attempt::Mismatch,
            Outcome::Stored { hash_mismatch, .. } => mismatched |= hash_mismatch,
            Outcome::Discarded { .. } => {}
        }
    }
    if mismatched {
        Attempt::Mismatch
    } else {
        Attempt::TooFew
    }
}

fn counts_of(header: &Header) -> Counts {
    (header.data_segment_count, header.parity_segment_count)
}

/// Whether two statements can be of one message: on draft each class states its own count only.
fn agree(one: Counts, other: Counts) -> bool {
    let same = |one: Option<u16>, other: Option<u16>| match (one, other) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    };
    same(one.0, other.0) && same(one.1, other.1)
}

/// The counts that the segments state, those of most places first.
fn believable_counts(candidates: &[&Candidate]) -> Vec<Counts> {
    let mut stated: BTreeMap<Counts, usize> = BTreeMap::new();
    for candidate in candidates {
        *stated.entry(counts_of(&candidate.header)).or_default() += 1;
    }
    // On draft a statement covers one class: those of the data segments name the message.
    let any_data = stated.keys().any(|counts| counts.0.is_some());
    let mut ordered: Vec<(Counts, usize)> = stated
        .into_iter()
        .filter(|(counts, _)| counts.0.is_some() || !any_data)
        .collect();
    ordered.sort_by_key(|(counts, times)| (Reverse(*times), *counts));
    ordered
        .into_iter()
        .map(|(counts, _)| counts)
        .take(COUNTS_TRIED_MAX)
        .collect()
}
