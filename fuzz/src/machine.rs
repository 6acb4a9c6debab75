//! Whole machines under any sequence of operations: three participants with small limits, a network that
//! loses, repeats, reorders and damages, an owner that says of contents whatever it likes, strangers'
//! messages, failures and restarts. Nothing panics, every limit holds, nothing is due again at once when
//! all that was due is done, and a restart keeps what was stored.

use std::collections::{BTreeMap, BTreeSet};

use shardwire_core::sds::{
    Config, Event, Kinds, Machine, Name, Now, Octets, Place, Transmit, TransmitKind,
};
use shardwire_core::wire::sds::{HistoryEntry, Message, MessageView};

use crate::draws::Draws;
use crate::parties::{
    CONTENTS_MAX, EPOCH_MS, LOG_MAX, MISSING_MAX, NAMES, OUTGOING_MAX, at, config,
};
use crate::spelled::Spellings;

/// A send has at most so many contents here.
const CONTENTS_PER_SEND: u32 = 4;

type Records = BTreeMap<(String, Name), Octets>;

struct Party {
    name: &'static str,
    config: Config,
    machine: Machine,
    records: Records,
    sends: u64,
    in_flight: Vec<u64>,
    seed: u64,
}

impl Party {
    fn new(name: &'static str, config: Config, now: Now, seed: u64) -> Self {
        let machine = Machine::new(
            "room",
            name,
            config.clone(),
            now,
            Box::new(Draws::from_seed(seed)),
        );
        Party {
            name,
            config,
            machine: machine.expect("a legal configuration"),
            records: Records::new(),
            sends: 0,
            in_flight: Vec::new(),
            seed,
        }
    }

    fn store(&mut self) {
        for record in self.machine.poll_persist() {
            let name = (record.kind.to_owned(), record.key);
            match record.value {
                Some(bytes) => self.records.insert(name, bytes),
                None => self.records.remove(&name),
            };
        }
    }

    /// Goes on from what is stored.
    fn restart(&mut self, now: Now) {
        let records = self.records.iter();
        let records =
            records.map(|((kind, key), value)| (kind.as_str(), key.clone(), value.clone()));
        self.seed += 1;
        let rng = Box::new(Draws::from_seed(self.seed));
        let config = self.config.clone();
        let machine = Machine::new("room", self.name, config, now, rng);
        let machine = machine.expect("ids and limits of before");
        let restored = machine.restore(records, now);
        self.machine = restored.expect("records of this release");
        self.in_flight.clear();
    }

    fn sizes(&self) -> BTreeMap<&'static str, usize> {
        self.machine.stats().into_iter().collect()
    }

    fn check_limits(&self) {
        let sizes = self.sizes();
        let per_send = CONTENTS_PER_SEND as usize;
        for (what, limit) in [
            ("missing", MISSING_MAX),
            ("lost", MISSING_MAX),
            ("repair_requests", MISSING_MAX),
            ("incoming_contents", CONTENTS_MAX + per_send),
            ("incoming_sends", CONTENTS_MAX + MISSING_MAX),
            ("log", LOG_MAX + CONTENTS_MAX + OUTGOING_MAX + per_send),
        ] {
            assert!(
                sizes[what] <= limit,
                "{} holds {} {what}, {limit} are allowed",
                self.name,
                sizes[what]
            );
        }
    }
}

/// `<send>/<ordinal>/<needed>/<count>`, as text.
fn content(send: u64, ordinal: u32, needed: u32, count: u32) -> Octets {
    format!("{send}/{ordinal}/{needed}/{count}")
        .into_bytes()
        .into()
}

fn read(content: &[u8]) -> Option<[u32; 4]> {
    let text = std::str::from_utf8(content).ok()?;
    let numbers: Option<Vec<u32>> = text.split('/').map(|part| part.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// Three participants and what is between them.
pub struct World {
    draws: Draws,
    now_ms: i64,
    parties: Vec<Party>,
    /// Everything that was ever on the wire, the newest last.
    wire: Vec<Octets>,
    /// Ids of sends of which something was on the wire: nobody knows one before.
    seen: Vec<String>,
    /// What strangers' messages are spelled like, where they are.
    spellings: Option<Spellings>,
}

impl World {
    /// The world of a seed, with strangers whose messages are spelled like others.
    pub fn spelled(seed: u64) -> Self {
        World {
            spellings: Some(Spellings::default()),
            ..World::from_seed(seed)
        }
    }

    /// The world of a seed.
    pub fn from_seed(seed: u64) -> Self {
        World::new(Draws::from_seed(seed))
    }

    /// The world that bytes describe.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        World::new(Draws::from_bytes(bytes))
    }

    /// Whether bytes are left to describe what happens next.
    pub fn goes_on(&self) -> bool {
        self.draws.goes_on()
    }

    fn new(mut draws: Draws) -> Self {
        let config = config(&mut draws);
        let now = at(0);
        let parties = NAMES
            .iter()
            .map(|name| Party::new(name, config.clone(), now, draws.next()));
        let parties = parties.collect();
        World {
            draws,
            now_ms: 0,
            parties,
            wire: Vec::new(),
            seen: Vec::new(),
            spellings: None,
        }
    }

    /// One of them does something, or something happens to it.
    pub fn step(&mut self) {
        let which = self.draws.below(self.parties.len());
        let now = at(self.now_ms);
        match self.draws.below(100) {
            0..15 => self.send(which),
            15..45 => self.deliver(which),
            45..55 => self.stranger(which),
            55..60 => self.say_something(which),
            60..80 => {
                self.now_ms += [10, 500, 3_000, 25_000][self.draws.below(4)];
                let now = at(self.now_ms);
                self.parties
                    .iter_mut()
                    .for_each(|party| party.machine.handle_timeout(now));
            }
            80..83 => {
                self.settle(which);
                self.parties[which].restart(now);
            }
            _ => self.settle(which),
        }
        self.take_events(which);
        self.parties[which].check_limits();
    }

    /// Everybody goes on from what is stored, and has kept it.
    pub fn restart_all(&mut self) {
        let now = at(self.now_ms);
        for party in &mut self.parties {
            party.store();
            let sends: Vec<_> = party.machine.sends().cloned().collect();
            let pending: BTreeSet<_> = party.machine.pending_sends().cloned().collect();
            let ordered: Vec<_> = party.machine.ordered_ids().cloned().collect();
            let sizes = party.sizes();
            party.restart(now);
            assert!(party.machine.sends().eq(&sends));
            let pending_again: BTreeSet<_> = party.machine.pending_sends().cloned().collect();
            assert_eq!(pending_again, pending);
            // What waited may go at once, where a full table forgets what it waited for.
            let again: BTreeSet<_> = party.machine.ordered_ids().cloned().collect();
            assert!(ordered.iter().all(|message_id| again.contains(message_id)));
            let restored = party.sizes();
            for what in [
                "log",
                "outgoing_queued",
                "outgoing_queued_bytes",
                "participants",
            ] {
                assert_eq!(restored[what], sizes[what], "{what}");
            }
        }
    }

    fn send(&mut self, which: usize) {
        let needed = 1 + self.draws.below(2) as u32;
        let count = needed + self.draws.below((CONTENTS_PER_SEND - needed + 1) as usize) as u32;
        let party = &mut self.parties[which];
        party.sends += 1;
        let number = 1_000 + party.sends * 3 + which as u64;
        let contents = (0..count)
            .map(|ordinal| content(number, ordinal, needed, count))
            .collect();
        if party.machine.has_room() {
            // Refused where a stranger was first with one of its ids.
            let _ = party
                .machine
                .send(&format!("{number:032x}"), contents, needed);
        }
        if self.draws.chance(10) {
            let _ = self.parties[which]
                .machine
                .send_ephemeral(&format!("{number:031x}e"), content(number, 0, 1, 1));
        }
        if self.draws.chance(10) {
            self.parties[which]
                .machine
                .cancel(&format!("{number:032x}"));
        }
    }

    /// Something that was on the wire comes, perhaps again, perhaps damaged.
    fn deliver(&mut self, which: usize) {
        if self.wire.is_empty() {
            return;
        }
        let newest = self.wire.len().min(if self.draws.chance(80) {
            10
        } else {
            usize::MAX
        });
        let at_place = self.wire.len() - 1 - self.draws.below(newest);
        let mut data = self.wire[at_place].clone();
        if self.draws.chance(5) {
            let mut bytes = data.to_vec();
            let place = self.draws.below(bytes.len());
            bytes[place] ^= 1 << self.draws.below(8);
            data = bytes.into();
        }
        let from_store = self.draws.chance(20);
        let hint = [7; 32];
        let now = at(self.now_ms);
        self.parties[which]
            .machine
            .handle_message(&data, Some(&hint), from_store, now);
    }

    /// A well-formed message that lies about anything.
    fn stranger(&mut self, which: usize) {
        if self.draws_spelled(which) {
            return;
        }
        let sender = [NAMES[0], NAMES[1], NAMES[2], "mallory", "trudy"][self.draws.below(5)];
        let seen = &self.seen;
        let entries = |draws: &mut Draws, most: usize| -> Vec<HistoryEntry> {
            let count = draws.below(most);
            let entry = |_| HistoryEntry {
                message_id: some_id(draws, seen),
                retrieval_hint: None,
                sender_id: draws.chance(50).then(|| "mallory".to_owned()),
            };
            (0..count).map(entry).collect()
        };
        let message = Message {
            sender_id: sender.to_owned(),
            message_id: some_id(&mut self.draws, &self.seen),
            channel_id: "room".to_owned(),
            lamport_timestamp: self
                .draws
                .chance(90)
                .then(|| EPOCH_MS as u64 + self.draws.next() % 1_000_000),
            causal_history: entries(&mut self.draws, 40),
            bloom_filter: self.draws.chance(30).then(|| {
                let bits = self.draws.next() as u8;
                vec![bits; 40]
            }),
            repair_request: entries(&mut self.draws, 8),
            content: self
                .draws
                .chance(60)
                .then(|| content(self.draws.next() % 9, 0, 1, 1).to_vec()),
        };
        let wire_format = self.parties[which].config.wire_format;
        if let Ok(data) = message.encode(wire_format) {
            let now = at(self.now_ms);
            self.parties[which].machine.handle_message(
                &data.into(),
                None,
                self.draws.chance(20),
                now,
            );
        }
    }

    /// A message that is spelled like others; false where none is.
    fn draws_spelled(&mut self, which: usize) -> bool {
        let Some(spellings) = &self.spellings else {
            return false;
        };
        let (draws, party) = (&mut self.draws, &mut self.parties[which]);
        let now = at(self.now_ms);
        for _ in 0..1 + draws.below(4) {
            let data = if self.wire.is_empty() || draws.chance(70) {
                let of = content(draws.next() % 4, draws.below(3) as u32, 2, 3).to_vec();
                let any = if draws.chance(70) {
                    of
                } else {
                    spellings.content(draws)
                };
                let lamport = now.epoch_ms as u64 + draws.next() % 1_000;
                let held = draws.chance(80).then_some(any);
                spellings.message(held, lamport, &party.config, draws)
            } else {
                let place = draws.below(self.wire.len());
                spellings.signed_anew(&self.wire[place], &party.config, draws)
            };
            if let Some(data) = data {
                let data = Octets::from(data);
                let from_store = draws.chance(20);
                party.machine.handle_message(&data, None, from_store, now);
                // It may come again, to others too.
                self.wire.push(data);
            }
        }
        true
    }

    /// The owner says something that it might at any time.
    fn say_something(&mut self, which: usize) {
        let now = at(self.now_ms);
        let (id, other) = (
            some_id(&mut self.draws, &self.seen),
            some_id(&mut self.draws, &self.seen),
        );
        let keep = self.draws.chance(50);
        let kind = self.draws.below(8);
        let machine = &mut self.parties[which].machine;
        let send_id = &id[..id.len().min(32)];
        match kind {
            0 => machine.handle_irretrievable([id.as_str(), other.as_str()]),
            1 => machine.handle_caught_up(),
            2 => machine.handle_stored(send_id, 0, now),
            3 => machine.stop(send_id),
            4 => machine.leave_out(&id),
            5 => machine.handle_content_surplus(&id),
            6 => drop(machine.handle_send_abandoned(None, "mallory", send_id, keep, now)),
            _ => machine.handle_send_reconstructed(
                None,
                "bob",
                send_id,
                1,
                &[Name::new(&other)],
                now,
            ),
        }
        let stored: Vec<_> = machine.sends().cloned().collect();
        if let Some(send_id) = stored.get(self.draws.below(stored.len())) {
            self.parties[which].machine.handle_stored(send_id, 0, now);
        }
    }

    /// Answers what came as an owner would, now and then as none would.
    fn take_events(&mut self, which: usize) {
        let now = at(self.now_ms);
        while let Some(event) = self.parties[which].machine.poll_event() {
            let Event::ContentReceived {
                message_id,
                sender_id,
                content,
                send_id,
                ..
            } = event
            else {
                continue;
            };
            let machine = &mut self.parties[which].machine;
            let numbers = read(&content);
            let Some([send, ordinal, needed, count]) = numbers.filter(|_| !self.draws.chance(5))
            else {
                machine.handle_content_refused(&message_id, &content.whole, self.draws.chance(50));
                continue;
            };
            let read_id = format!("{send:032x}");
            let send_id = send_id.as_deref().unwrap_or(&read_id);
            let place = Place {
                send_id,
                ordinal: Some(ordinal),
                content_count: Some(count),
                contents_needed: Some(needed),
            };
            machine.handle_content_placed(&message_id, place, now);
            match self.draws.below(10) {
                0..6 => machine.handle_send_reconstructed(
                    Some(&message_id),
                    &sender_id,
                    send_id,
                    count,
                    &[],
                    now,
                ),
                6 => machine.handle_content_surplus(&message_id),
                7 => machine.handle_content_doubted(&message_id, &sender_id, send_id),
                8 => drop(machine.handle_send_abandoned(
                    Some(&message_id),
                    &sender_id,
                    send_id,
                    self.draws.chance(50),
                    now,
                )),
                _ => {}
            }
        }
        let _ = self.parties[which].machine.poll_reopened();
    }

    /// What is due leaves, and the network takes it or does not; then nothing is due at this moment.
    fn settle(&mut self, which: usize) {
        let now = at(self.now_ms);
        self.parties[which].machine.handle_timeout(now);
        let mut refused = false;
        for _ in 0..1_000 {
            let Some(transmit) = self.parties[which].machine.poll_transmit(now, Kinds::ALL) else {
                break;
            };
            refused |= self.leave(which, &transmit, now);
        }
        let party = &mut self.parties[which];
        party.store();
        let idle = party.machine.poll_transmit(now, Kinds::ALL).is_none();
        assert!(idle || refused, "{} sends without an end", party.name);
        if !refused && party.machine.poll_event().is_none() {
            party.machine.handle_timeout(now);
            let due_ms = party.machine.poll_timeout();
            let still = party.machine.poll_transmit(now, Kinds::ALL);
            assert!(
                still.is_some() || due_ms.is_none_or(|due_ms| due_ms > self.now_ms),
                "{} has nothing to do at {} and is due at {due_ms:?}",
                party.name,
                self.now_ms
            );
            if let Some(transmit) = still {
                self.leave(which, &transmit, now);
            }
        }
    }

    fn leave(&mut self, which: usize, transmit: &Transmit, now: Now) -> bool {
        self.wire.push(transmit.payload.clone());
        if let Some(spellings) = &mut self.spellings {
            spellings.see(&transmit.payload, &self.parties[which].config);
        }
        if let Some(send_id) = &transmit.send_id {
            self.seen.push(send_id.to_string());
        }
        let Party {
            machine, config, ..
        } = &mut self.parties[which];
        let message = MessageView::decode(&transmit.payload, config.wire_format);
        let content = message.expect("what leaves can be read").content;
        let header_bytes = transmit.payload.len() - content.map_or(0, <[u8]>::len);
        assert!(
            header_bytes <= config.header_bytes_max || transmit.kind == TransmitKind::Repair,
            "{header_bytes} bytes beside the content"
        );
        let fails = self.draws.chance(10);
        if fails {
            machine.handle_transmit_failed(transmit.transmit_id, now);
        } else {
            machine.handle_transmitted(transmit.transmit_id, Some(&[3; 32]), now);
        }
        fails
    }
}

/// An id that some party knows, or nobody.
fn some_id(draws: &mut Draws, seen: &[String]) -> String {
    let ordinal = draws.below(5);
    match draws.below(10) {
        0 => format!("made-up-{}", draws.below(200)),
        1 => format!("{:064x}", draws.below(50)),
        2 => "\u{7f}".repeat(1 + draws.below(4)),
        3 | 4 => format!("{:032x}.{ordinal}", draws.below(60)),
        _ => match seen.get(draws.below(seen.len())) {
            Some(send_id) => format!("{send_id}.{ordinal}"),
            None => "nothing-was-sent".to_owned(),
        },
    }
}
