//! What a hostile peer takes for ids, senders and hints: spellings that are taken for another's.

use shardwire_core::bloom::BloomFilter;
use shardwire_core::keccak::keccak256;
use shardwire_core::sds::{Config, Octets, rival_name, sha256_id};
use shardwire_core::wire::sds::{HistoryEntry, Message};

use crate::draws::Draws;
use crate::parties::NAMES;

/// The newest of these are taken more often than others.
const NEWEST: usize = 8;
/// Of one message.
const ENTRIES_MAX: usize = 6;

/// What was seen of others, to be spelled like it.
#[derive(Default)]
pub(super) struct Spellings {
    /// Ids of messages.
    ids: Vec<String>,
    contents: Vec<Vec<u8>>,
    hints: Vec<Vec<u8>>,
}

impl Spellings {
    /// A message was on the wire.
    pub fn see(&mut self, bytes: &[u8], config: &Config) {
        let Ok(message) = Message::decode(bytes, config.wire_format) else {
            return;
        };
        let entries = message.causal_history.iter().chain(&message.repair_request);
        self.hints
            .extend(entries.filter_map(|entry| entry.retrieval_hint.clone()));
        self.ids.push(message.message_id);
        self.contents.extend(message.content);
    }

    /// An id that came, or that one of these may send next.
    fn known_id(&self, draws: &mut Draws) -> String {
        if self.ids.is_empty() || draws.chance(30) {
            let number = 1_003 + draws.below(24);
            return format!("{number:032x}.{}", draws.below(3));
        }
        newest(&self.ids, draws).clone()
    }

    /// A content that came, or a short one.
    pub fn content(&self, draws: &mut Draws) -> Vec<u8> {
        if self.contents.is_empty() || draws.chance(10) {
            return vec![draws.below(3) as u8; 1 + draws.below(4)];
        }
        newest(&self.contents, draws).clone()
    }

    /// A sender.
    pub fn sender(&self, draws: &mut Draws) -> String {
        match draws.below(14) {
            0..6 => NAMES[draws.below(NAMES.len())].to_owned(),
            6 => "mallory".to_owned(),
            7 => format!("{}\0", NAMES[draws.below(NAMES.len())]),
            8 => format!("\0{}", NAMES[draws.below(NAMES.len())]),
            9 => "Alice".to_owned(),
            10 => String::new(),
            11 => "room".to_owned(),
            12 => self.known_id(draws),
            _ => self.send_id(draws),
        }
    }

    fn send_id(&self, draws: &mut Draws) -> String {
        let id = self.known_id(draws);
        id.split_once('.')
            .map_or(id.clone(), |(send_id, _)| send_id.to_owned())
    }

    /// An id.
    pub fn id(&self, draws: &mut Draws) -> String {
        let send_id = self.send_id(draws);
        match draws.below(32) {
            0..8 => send_id,
            8..14 => format!("{send_id}.{}", draws.below(5)),
            14 => format!("{send_id}.00"),
            15 => format!("{send_id}.4294967296"),
            16 => format!("{send_id}.-1"),
            17 => format!("{send_id}."),
            18 => format!("{send_id}.{}", 9_999 - draws.below(3)),
            19 => format!("{}.0", send_id.to_uppercase()),
            20 => send_id.to_uppercase(),
            21 => self.sender(draws),
            22 => "room".to_owned(),
            23 => String::new(),
            24 => "\0".to_owned(),
            25 => format!("{send_id}\0{}", self.sender(draws)),
            26 => {
                let (id, sender) = (self.known_id(draws), self.sender(draws));
                rival_name(&id, &sender, &self.content(draws)).to_string()
            }
            27 => {
                let hash = keccak256(&self.content(draws));
                hash.iter().map(|byte| format!("{byte:02x}")).collect()
            }
            28 | 29 => sha256_id(&self.content(draws)).to_string(),
            30 => format!("{}.0", self.sender(draws)),
            _ => self.known_id(draws),
        }
    }

    fn hint(&self, draws: &mut Draws) -> Option<Vec<u8>> {
        match draws.below(6) {
            0 => Some(vec![b'*', draws.below(3) as u8]),
            1 => Some(self.sender(draws).into_bytes()),
            2 if !self.hints.is_empty() => Some(newest(&self.hints, draws).clone()),
            3 => Some(Vec::new()),
            _ => None,
        }
    }

    fn entries(&self, draws: &mut Draws) -> Vec<HistoryEntry> {
        let count = draws.below(ENTRIES_MAX);
        let entry = |_| HistoryEntry {
            message_id: self.id(draws),
            retrieval_hint: self.hint(draws),
            sender_id: draws.chance(60).then(|| self.sender(draws)),
        };
        (0..count).map(entry).collect()
    }

    fn filter(&self, config: &Config, draws: &mut Draws) -> Option<Vec<u8>> {
        let (capacity, rate) = (config.bloom_filter_capacity, config.bloom_filter_error_rate);
        let filter = BloomFilter::new(capacity, rate, config.wire_format);
        let mut filter = filter.expect("it is that of a legal configuration");
        for _ in 0..draws.below(2 * ENTRIES_MAX) {
            filter.insert(self.id(draws).as_bytes());
        }
        Some(filter.to_bytes())
    }

    /// What names others, of a message with some content; `None` for what no peer could send.
    pub fn message(
        &self,
        content: Option<Vec<u8>>,
        lamport: u64,
        config: &Config,
        draws: &mut Draws,
    ) -> Option<Vec<u8>> {
        let filter = match draws.below(4) {
            0 => self.filter(config, draws),
            _ => None,
        };
        let message = Message {
            sender_id: self.sender(draws),
            message_id: self.id(draws),
            channel_id: "room".to_owned(),
            lamport_timestamp: draws.chance(95).then_some(lamport),
            causal_history: self.entries(draws),
            bloom_filter: filter,
            repair_request: self.entries(draws),
            content,
        };
        message.encode(config.wire_format).ok()
    }

    /// What was on the wire, under another name.
    pub fn signed_anew(
        &self,
        bytes: &Octets,
        config: &Config,
        draws: &mut Draws,
    ) -> Option<Vec<u8>> {
        let mut message = Message::decode(bytes, config.wire_format).ok()?;
        match draws.below(6) {
            0 => message.message_id = self.id(draws),
            1 => message.content = Some(self.content(draws)),
            2 => message.causal_history = self.entries(draws),
            3 => message.repair_request = self.entries(draws),
            4 => message.bloom_filter = self.filter(config, draws),
            _ => {}
        }
        if draws.chance(60) {
            message.sender_id = self.sender(draws);
        }
        message.encode(config.wire_format).ok()
    }
}

fn newest<'a, T>(all: &'a [T], draws: &mut Draws) -> &'a T {
    let among = all
        .len()
        .min(if draws.chance(70) { NEWEST } else { all.len() });
    &all[all.len() - 1 - draws.below(among)]
}
