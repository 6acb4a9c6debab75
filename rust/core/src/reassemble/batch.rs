//! Many payloads at once, each from all the segments there are of it: their hashes are computed
//! side by side. What is contested, or does not have its hash, goes through a [`Reassembler`].

use std::borrow::Cow;

use super::set::Geometry;
use super::{Limits, Outcome, Reassembler, Receipt};
use crate::erasure;
use crate::keccak::{DIGEST_LEN, keccak256_many_pieces};
use crate::segment::Parameters;
use crate::sink::Sink;
use crate::wire::segment::{HASH_LENGTH, Received, Slot, decode};

/// More than a caller holds already.
const UNLIMITED: u64 = 1 << 48;

/// Different counts that segments of one payload are kept under: looking for the right ones takes
/// time with each segment.
const SETS_MAX: u64 = 1 << 10;

impl Limits {
    /// For a caller that holds all segments of a payload already: only the search is bounded.
    pub fn of_one_payload(candidates_per_slot_max: usize, work_budget: u64) -> Self {
        Limits {
            sets_max: SETS_MAX,
            sets_per_sender_max: SETS_MAX,
            buffered_bytes_max: UNLIMITED,
            buffered_bytes_per_sender_max: UNLIMITED,
            unauthenticated_share: 1.0,
            candidates_per_slot_max,
            completed_remembered_max: 0,
            timeout_ms: i64::MAX,
            work_budget,
        }
    }
}

/// A payload that has its hash, in pieces that lie in its segments or were recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined<'a> {
    pieces: Vec<Cow<'a, [u8]>>,
    length: usize,
}

impl<'a> Joined<'a> {
    fn new(pieces: Vec<Cow<'a, [u8]>>) -> Self {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        Joined { pieces, length }
    }

    /// Length of the payload in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Writes the payload into `out`.
    pub fn write_to(&self, out: &mut impl Sink) {
        self.pieces.iter().for_each(|piece| out.put(piece));
    }
}

/// The payload of each set of segments; `None` where they do not give one that has its hash.
///
/// A set holds segments of one payload, in any order, with repeats and losses. `work_budget` and
/// `candidates_per_slot_max` are those of [`Limits`]; there are no others, as the caller holds
/// everything already.
pub fn reassemble_many<'a>(
    sets: &[Vec<&'a [u8]>],
    parameters: &Parameters,
    candidates_per_slot_max: usize,
    work_budget: u64,
) -> Vec<Option<Joined<'a>>> {
    let likely: Vec<Likely<'a>> = sets.iter().map(|set| Likely::of(set, parameters)).collect();
    let pieces: Vec<Vec<&[u8]>> = likely
        .iter()
        .filter_map(|likely| match likely {
            Likely::Hashed(_, joined) => Some(joined.pieces.iter().map(|p| &**p).collect()),
            _ => None,
        })
        .collect();
    let inputs: Vec<&[&[u8]]> = pieces.iter().map(Vec::as_slice).collect();
    let mut digests = vec![[0; DIGEST_LEN]; inputs.len()];
    keccak256_many_pieces(&inputs, &mut digests);
    let mut digests = digests.into_iter();
    drop(pieces);
    likely
        .into_iter()
        .zip(sets)
        .map(|(likely, set)| match likely {
            Likely::Unsegmented(joined) => Some(joined),
            Likely::TooFew => None,
            Likely::Hashed(hash, joined) if digests.next() == Some(hash) => Some(joined),
            Likely::Hashed(..) | Likely::Contested => {
                one_by_one(set, parameters, candidates_per_slot_max, work_budget)
            }
        })
        .collect()
}

/// What a set gives where nothing is wrong with it.
enum Likely<'a> {
    /// draft: the payload travelled unmodified.
    Unsegmented(Joined<'a>),
    /// A payload, and the hash that it should have.
    Hashed([u8; HASH_LENGTH], Joined<'a>),
    /// Segments contradict each other, or cannot be read.
    Contested,
    TooFew,
}

impl<'a> Likely<'a> {
    fn of(set: &[&'a [u8]], parameters: &Parameters) -> Self {
        let settings = parameters.settings();
        let mut found: Option<([u8; HASH_LENGTH], Geometry)> = None;
        let mut held: Vec<(Slot, &'a [u8])> = Vec::with_capacity(set.len());
        for bytes in set {
            match decode(bytes, settings.wire_format, settings.max_total_segments) {
                Ok(Received::Segment(segment)) => {
                    let hash = segment.header.entire_message_hash;
                    let geometry = Geometry::of(&segment.header);
                    let merged = match &found {
                        None => Some(geometry),
                        Some((known, before)) if *known == hash => before.merge(&geometry),
                        Some(_) => None,
                    };
                    let Some(merged) = merged else {
                        return Likely::Contested;
                    };
                    found = Some((hash, merged));
                    held.push((segment.header.slot, segment.payload));
                }
                Ok(Received::WholeMessage(bytes)) if set.len() == 1 => {
                    return Likely::Unsegmented(Joined::new(vec![Cow::Borrowed(bytes)]));
                }
                Ok(Received::WholeMessage(_)) | Err(_) => return Likely::Contested,
            }
        }
        let Some((hash, geometry)) = found else {
            return Likely::TooFew;
        };
        held.sort_unstable();
        held.dedup();
        if held.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Likely::Contested;
        }
        let Some(data) = geometry.data.map(usize::from) else {
            return Likely::TooFew;
        };
        if held.len() < data {
            return Likely::TooFew;
        }
        join(&held, data, &geometry, parameters)
            .map_or(Likely::Contested, |joined| Likely::Hashed(hash, joined))
    }
}

/// Puts data segments in order and makes the lost ones with the configured code. `held` has at
/// least k places, sorted and none twice.
fn join<'a>(
    held: &[(Slot, &'a [u8])],
    data: usize,
    geometry: &Geometry,
    parameters: &Parameters,
) -> Option<Joined<'a>> {
    let parity = usize::from(geometry.parity.unwrap_or(0));
    let mut shards: Vec<Option<&'a [u8]>> = vec![None; data + parity];
    for (slot, payload) in held {
        let ordinal = match slot {
            Slot::Data(index) => usize::from(*index),
            Slot::Parity(index) => data + usize::from(*index),
        };
        *shards.get_mut(ordinal)? = Some(payload);
    }
    let shard_len = held.iter().map(|(_, payload)| payload.len()).max()?;
    let code = parameters.settings().erasure_code;
    let recovered = erasure::reconstruct(code, &shards, data, parity, shard_len).ok()?;
    let mut recovered = recovered.into_iter();
    let mut pieces: Vec<Cow<'a, [u8]>> = shards[..data]
        .iter()
        .map(|shard| match shard {
            Some(shard) => Some(Cow::Borrowed(*shard)),
            None => recovered.next().map(|(_, shard)| Cow::Owned(shard)),
        })
        .collect::<Option<_>>()?;
    let head: usize = pieces[..data - 1].iter().map(|piece| piece.len()).sum();
    let last = pieces.last_mut()?;
    let length = match (geometry.payload_length, &*last) {
        (Some(length), _) => usize::try_from(length).ok()?.checked_sub(head)?,
        (None, Cow::Borrowed(held)) => held.len(),
        // The padding of a recovered segment is most likely all that it ends with.
        (None, Cow::Owned(made)) => made
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1),
    };
    match last {
        Cow::Borrowed(held) => *held = held.get(..length)?,
        Cow::Owned(made) if length <= made.len() => made.truncate(length),
        Cow::Owned(_) => return None,
    }
    Some(Joined::new(pieces))
}

/// The payload of a set that something is wrong with.
fn one_by_one<'a>(
    set: &[&'a [u8]],
    parameters: &Parameters,
    candidates_per_slot_max: usize,
    work_budget: u64,
) -> Option<Joined<'a>> {
    let limits = Limits::of_one_payload(candidates_per_slot_max, work_budget);
    let mut reassembler = Reassembler::new(*parameters, limits);
    set.iter().find_map(|bytes| {
        let outcome = reassembler.receive(bytes, &Receipt::default());
        let Outcome::Reconstructed(found) = outcome else {
            return None;
        };
        let pieces = found.payload.pieces().map(|piece| Cow::Owned(piece.into()));
        Some(Joined::new(pieces.collect()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{CODES, parameters_of};
    use super::*;
    use crate::segment::segment;
    use crate::wire::segment::WireFormat;

    fn payloads_of(sets: &[Vec<Vec<u8>>], parameters: &Parameters) -> Vec<Option<Vec<u8>>> {
        let sets: Vec<Vec<&[u8]>> = sets
            .iter()
            .map(|set| set.iter().map(Vec::as_slice).collect())
            .collect();
        let joined = reassemble_many(&sets, parameters, 4, 32);
        joined
            .iter()
            .map(|joined| {
                joined.as_ref().map(|joined| {
                    let mut payload = Vec::new();
                    joined.write_to(&mut payload);
                    assert_eq!(payload.len(), joined.len());
                    payload
                })
            })
            .collect()
    }

    proptest! {
        /// Sets that are whole, that lost segments, that lost too many, and that were tampered with.
        #[test]
        fn every_set_gives_its_payload_as_alone(
            wire_format in prop::sample::select(
                vec![WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243]
            ),
            sent in prop::sample::select(CODES.to_vec()),
            sets in prop::collection::vec((1usize..900, 0usize..70, 0usize..6, any::<u64>()), 0..12),
        ) {
            let sending = parameters_of(wire_format, sent, 0.5);
            let configured = parameters_of(wire_format, CODES[0], 0.5);
            let (mut wires, mut expected) = (Vec::new(), Vec::new());
            for (length, zeros, fate, seed) in sets {
                let mut payload: Vec<u8> = (0..length).map(|at| (at as u64 ^ seed) as u8 | 1).collect();
                payload.resize(length + zeros, 0);
                let mut wire = segment(&payload, &sending).unwrap().to_vecs();
                let counts = sending.counts(payload.len()).unwrap();
                let lost = match fate {
                    0 => 0,
                    1 => counts.parity + 1,
                    _ => counts.parity,
                };
                let turn = seed as usize % wire.len();
                wire.rotate_left(turn);
                if fate == 2 {
                    // The first is also there with other bytes at the end of its payload.
                    let mut other = wire[0].clone();
                    let middle = other.len() / 2;
                    other[middle] ^= 1;
                    wire.push(other);
                }
                let is_draft = wire_format == WireFormat::Draft;
                if counts.data > 0 && fate != 2 {
                    let left = wire.len() - lost;
                    wire.truncate(left);
                }
                let told = !is_draft || counts.data == 0 || wire.iter().any(|bytes| {
                    matches!(decode(bytes, wire_format, 256), Ok(Received::Segment(segment))
                        if segment.header.data_segment_count.is_some())
                });
                let enough = counts.data == 0 || wire.len() >= counts.data;
                let whole = told && enough;
                // An unsegmented payload stands alone; two claims of one are not decided here.
                if fate != 2 {
                    expected.push(whole.then_some(payload));
                    wires.push(wire);
                } else if counts.data > 1 && counts.parity > 0 {
                    expected.push(Some(payload));
                    wires.push(wire);
                }
            }
            let found = payloads_of(&wires, &configured);
            prop_assert!(found == expected, "{:?}", found.iter().map(Option::is_some).collect::<Vec<_>>());
        }
    }

    #[test]
    fn sets_without_a_payload_give_none() {
        let parameters = parameters_of(WireFormat::Raw, CODES[0], 0.5);
        let mut wire = segment(&[7; 500], &parameters).unwrap().to_vecs();
        let mixed = segment(&[8; 500], &parameters).unwrap().to_vecs();
        wire.truncate(4);
        wire.extend(mixed.into_iter().take(4));
        let sets = [vec![], vec![b"no segment".to_vec()], wire];
        assert_eq!(payloads_of(&sets, &parameters), [None, None, None]);
    }
}
