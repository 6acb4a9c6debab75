//! What a receiver should hold and know, kept beside the real one in the plainest way.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use shardwire_core::erasure;
use shardwire_core::reassemble::{Limits, Reconstructed};
use shardwire_core::wire::segment::{HASH_LENGTH, Header, Segment, Slot};

use crate::message::Message;
use crate::scenario::Forgery;

/// What tells messages apart.
pub type Name = (Option<Vec<u8>>, [u8; HASH_LENGTH]);

/// Random corruption of fewer bytes may by chance not be independent.
const SHARD_LEN_MIN: usize = 16;

/// Lengths of forged segments beyond which nothing is promised.
const ODD_LENGTHS_MAX: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quality {
    Genuine,
    /// Random bytes of the right length.
    Random,
    /// Wrong in a way that somebody chose.
    Crafted,
    /// Neither right nor wrong: zeros more or fewer at its end, which the payload may have.
    Open,
}

#[derive(Clone)]
struct Held {
    content: Vec<u8>,
    quality: Quality,
    sender: Option<String>,
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sender = self.sender.as_deref().unwrap_or("-");
        write!(
            formatter,
            "{:?}({}, {sender})",
            self.quality,
            self.content.len()
        )
    }
}

/// What is held of one genuine message.
#[derive(Debug, Clone, Default)]
pub struct Group {
    candidates_max: usize,
    slots: BTreeMap<usize, Vec<Held>>,
    /// Something happened to it that the model does not follow, such as forged counts.
    pub disturbed: bool,
}

/// The state beside the receiver's.
#[derive(Debug, Clone, Default)]
pub struct Model {
    groups: BTreeMap<Name, Group>,
    completed: VecDeque<Name>,
    completed_max: usize,
    candidates_max: usize,
}

impl Model {
    pub fn new(limits: &Limits) -> Self {
        Model {
            completed_max: limits.completed_remembered_max,
            candidates_max: limits.candidates_per_slot_max,
            ..Model::default()
        }
    }

    /// What is held of a message.
    pub fn group(&mut self, name: &Name) -> &mut Group {
        let candidates_max = self.candidates_max;
        self.groups.entry(name.clone()).or_insert_with(|| Group {
            candidates_max,
            ..Group::default()
        })
    }

    pub fn is_completed(&self, name: &Name) -> bool {
        self.completed.contains(name)
    }

    pub fn complete(&mut self, name: Name) {
        self.groups.remove(&name);
        self.completed.push_back(name);
        while self.completed.len() > self.completed_max {
            self.completed.pop_front();
        }
    }

    /// A set is gone: what comes later begins anew.
    pub fn forget(&mut self, name: &Name) {
        if let Some(group) = self.groups.get_mut(name) {
            group.slots.clear();
        }
    }

    pub fn disturb(&mut self, name: &Name) {
        self.group(name).disturbed = true;
    }

    /// Segments went for room, of which nothing says of what message.
    pub fn disturb_all(&mut self) {
        for group in self.groups.values_mut() {
            group.disturbed = true;
        }
    }
}

impl Group {
    pub fn slots_held(&self) -> usize {
        self.slots.len()
    }

    pub fn holds(&self, message: &Message, segment: &Segment<'_>) -> bool {
        self.slots
            .get(&message.ordinal_of(segment.header.slot))
            .is_some_and(|held| held.iter().any(|held| held.content == segment.payload))
    }

    pub fn store(
        &mut self,
        message: &Message,
        segment: &Segment<'_>,
        forgery: Forgery,
        sender: Option<&str>,
    ) {
        let ordinal = message.ordinal_of(segment.header.slot);
        let rivals = self.slots.entry(ordinal).or_default();
        rivals.push(Held {
            content: segment.payload.to_vec(),
            quality: quality_of(message, ordinal, segment.payload, forgery),
            sender: sender.map(str::to_owned),
        });
        // One that a sender had too many of went for it; which is the receiver's business.
        self.disturbed |= rivals.len() > self.candidates_max;
    }

    /// Whether the specification promises the payload from what is held: k slots without rivals
    /// are genuine, and of the r slots without rivals beyond k fewer than r are wrong at random, or
    /// at most half of r in any way.
    pub fn promises(&self, message: &Message) -> bool {
        let (k, m) = (message.data_count, message.parity_count);
        let knows_count = message.segments[k..]
            .iter()
            .all(|(header, _)| header.data_segment_count.is_some())
            || self.slots.keys().any(|ordinal| *ordinal < k);
        if self.disturbed || !knows_count {
            return false;
        }
        let (mut genuine, mut random, mut crafted) = (0, 0, 0);
        let mut odd_lengths = Vec::new();
        for (ordinal, rivals) in &self.slots {
            for held in rivals {
                let length = held.content.len();
                let fits = length == message.shard_len
                    || (ordinal + 1 == k && length <= message.shard_len);
                if !fits && !odd_lengths.contains(&length) {
                    odd_lengths.push(length);
                }
                if held.quality == Quality::Open {
                    return false;
                }
                if rivals.len() > 1 || (!fits && held.quality != Quality::Genuine) {
                    continue;
                }
                match held.quality {
                    Quality::Genuine => genuine += 1,
                    Quality::Random if !self.repeats(*ordinal, held) => random += 1,
                    Quality::Random | Quality::Crafted | Quality::Open => crafted += 1,
                }
            }
        }
        let wrong = random + crafted;
        if genuine < k || odd_lengths.len() > ODD_LENGTHS_MAX {
            return false;
        }
        if wrong == 0 {
            return true;
        }
        let surplus = genuine + wrong - k;
        let locatable = erasure::supports(message.code, k, m) && wrong < surplus;
        match crafted {
            0 => locatable && message.shard_len >= SHARD_LEN_MIN,
            // A single data shard is repeated, not coded; a full field leaves no point to shift by.
            _ => locatable && 2 * wrong <= surplus && k >= 2 && k + m < 255,
        }
    }

    /// Whether another slot has the same bytes: random ones would not be independent then.
    fn repeats(&self, ordinal: usize, held: &Held) -> bool {
        let others = self.slots.iter().filter(|(other, _)| **other != ordinal);
        others
            .flat_map(|(_, rivals)| rivals)
            .any(|other| other.content == held.content)
    }

    /// Holds what the receiver says of bad segments against what was wrong.
    pub fn check_named(&self, message: &Message, found: &Reconstructed) {
        let mut named = found.bad_segments.clone();
        let mut wrong: Vec<(usize, Option<String>)> = Vec::new();
        for (ordinal, rivals) in &self.slots {
            for held in rivals {
                match held.quality {
                    Quality::Genuine => {}
                    Quality::Open => return,
                    Quality::Random | Quality::Crafted => {
                        wrong.push((*ordinal, held.sender.clone()));
                    }
                }
            }
        }
        named.sort();
        wrong.sort();
        let only_wrong = named.iter().all(|one| wrong.contains(one));
        assert!(only_wrong, "named as bad: {named:?}, wrong: {wrong:?}");
        // Parity in the larger field is not made again, so nothing wrong in it is seen.
        let k = message.data_count;
        if !erasure::supports(message.code, k, message.parity_count) {
            named.retain(|(ordinal, _)| *ordinal < k);
            wrong.retain(|(ordinal, _)| *ordinal < k);
        }
        // Where no more is held than needed, what is wrong did no harm and is not looked for.
        let held: usize = self.slots.values().map(Vec::len).sum();
        assert!(
            held == k || named == wrong,
            "named as bad: {named:?}, wrong: {wrong:?}"
        );
    }
}

fn quality_of(message: &Message, ordinal: usize, content: &[u8], forgery: Forgery) -> Quality {
    let (header, genuine) = &message.segments[ordinal];
    if content == genuine {
        return Quality::Genuine;
    }
    let zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let common = genuine.len().min(content.len());
    let same = content[..common] == genuine[..common];
    let same = same && zero(&content[common..]) && zero(&genuine[common..]);
    let is_last = header.slot == Slot::Data((message.data_count - 1) as u8);
    if is_last {
        let start = (message.data_count - 1) * message.shard_len;
        let tail = &message.payload[start..];
        let common = tail.len().min(content.len());
        if content[..common] == tail[..common] && zero(&content[common..]) {
            // Without parity nobody pads, but draft does not tell its receiver.
            let may_pad = message.parity_count > 0;
            return match zero(&tail[common..]) {
                true if !may_pad && content.len() > tail.len() => Quality::Open,
                true if content.len() >= tail.len() && content.len() <= message.shard_len => {
                    Quality::Genuine
                }
                true => Quality::Open,
                false => Quality::Crafted,
            };
        }
    }
    if same || message.is_parity_of_the_other_code(ordinal, content) {
        return Quality::Open;
    }
    match forgery {
        Forgery::Replaced if content.len() == genuine.len() => Quality::Random,
        _ => Quality::Crafted,
    }
}

/// Whether a segment says of its message what the genuine ones say.
pub fn agrees(message: &Message, header: &Header) -> bool {
    let genuine = message
        .segments
        .iter()
        .find(|(genuine, _)| genuine.slot == header.slot);
    genuine.is_some_and(|(genuine, _)| genuine == header)
}
