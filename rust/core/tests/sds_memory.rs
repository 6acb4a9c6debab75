//! Memory that a participant holds for each message that it keeps, counted by the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use shardwire_core::sds::{Config, Event, Kinds, Machine, Now, Octets, Randomness};
use shardwire_core::wire::sds::{HistoryEntry, Message, WireFormat};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

/// What the usual allocators take of memory for an allocation: 8 bytes more, in steps of 16.
fn taken(layout: Layout) -> usize {
    (layout.size() + 8).next_multiple_of(16).max(32)
}

// SAFETY: every call goes to the system allocator unchanged; only a counter is kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(taken(layout), Ordering::Relaxed);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(taken(layout), Ordering::Relaxed);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Half;

impl Randomness for Half {
    fn unit(&mut self) -> f64 {
        0.5
    }

    fn bits(&mut self) -> u64 {
        0
    }
}

const CONTENT_BYTES: usize = 100;
/// What is kept lies in pages, of which neither the first nor the last is full.
const PAGE_BYTES: usize = 65_536;
/// What is remembered of each message that left the log.
const GONE_BYTES: usize = 16;
const EPOCH_MS: i64 = 1_760_000_000_000;

fn at(monotonic_ms: i64) -> Now {
    Now {
        monotonic_ms,
        epoch_ms: EPOCH_MS + monotonic_ms,
    }
}

/// The defaults of a channel.
fn machine(log_messages_max: usize) -> Machine {
    let config = Config {
        log_messages_max,
        members_make_parity: false,
        ..Config::example()
    };
    Machine::new("rooms", "bobby", config, at(0), Box::new(Half)).expect("ids and header are valid")
}

/// Receives `count` messages of `CONTENT_BYTES`, each of which follows two, and says what is due.
fn receive(mut machine: Machine, count: u32, is_stored: bool) -> Machine {
    let mut history: Vec<HistoryEntry> = Vec::new();
    for number in 0..count {
        let now = at(i64::from(number) * 10);
        let message = Message {
            sender_id: "alice".into(),
            message_id: format!("{number:032x}.0"),
            channel_id: "rooms".into(),
            lamport_timestamp: Some(now.epoch_ms as u64),
            causal_history: history.clone(),
            content: Some(vec![b'x'; CONTENT_BYTES]),
            ..Message::default()
        };
        let wire = message.encode(WireFormat::Spec).expect("it is valid");
        history.push(HistoryEntry {
            message_id: message.message_id,
            retrieval_hint: Some(vec![0; 32]),
            sender_id: Some(message.sender_id),
        });
        if history.len() > 2 {
            history.remove(0);
        }
        machine.handle_message(&Octets::from(wire), None, false, now);
        while let Some(event) = machine.poll_event() {
            if let Event::ContentReceived {
                sender_id,
                send_id: Some(send_id),
                ..
            } = event
            {
                machine.handle_send_reconstructed(None, &sender_id, &send_id, 1, &[], now);
            }
        }
        if number % 20 == 19 {
            while let Some(transmit) = machine.poll_transmit(now, Kinds::ALL) {
                machine.handle_transmitted(transmit.transmit_id, None, now);
            }
            match is_stored {
                true => drop(machine.poll_persist()),
                false => machine.drop_changes(),
            }
        }
    }
    machine
}

#[test]
fn a_message_takes_at_most_400_bytes_beyond_its_content() {
    const COUNT: u32 = 20_000;
    // All messages stay, or most of them went again; their records are wanted or not.
    for (log_messages_max, is_stored) in [(100_000, true), (100_000, false), (7_000, true)] {
        let before = HELD.load(Ordering::Relaxed);
        let machine = receive(machine(log_messages_max), COUNT, is_stored);
        let held = HELD.load(Ordering::Relaxed) - before;
        let kept = log_messages_max.min(COUNT as usize);
        let gone = COUNT as usize - kept;
        let limit = kept * (400 + CONTENT_BYTES) + gone * GONE_BYTES + PAGE_BYTES;
        assert!(
            held <= limit,
            "{kept} messages, and {gone} that left the log, take {held} bytes, at most {limit}"
        );
        drop(machine);
    }
}
