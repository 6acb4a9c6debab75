//! Memory that a receiver holds between calls, counted by the allocator: at most 1.1 times the wire
//! bytes held, 64 bytes a segment, 512 a set and 128 a remembered completion.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shardwire_core::erasure::ErasureCode;
use shardwire_core::reassemble::{Lent, Limits, Outcome, Reassembler, Receipt};
use shardwire_core::segment::{Parameters, Settings, segment};
use shardwire_core::wire::segment::{Header, Slot, WireFormat};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator unchanged; only a counter is kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn reassembler() -> Reassembler {
    let parameters = Parameters::new(Settings {
        segment_size_bytes: 10_240,
        enable_reed_solomon: true,
        parity_rate: 0.125,
        parity_for_single_segment: false,
        erasure_code: ErasureCode::Leopard,
        wire_format: WireFormat::Raw,
        max_total_segments: 256,
        max_tail_candidates: 10_240,
    });
    let limits = Limits {
        sets_max: 4_000,
        sets_per_sender_max: 4_000,
        buffered_bytes_max: 256 << 20,
        buffered_bytes_per_sender_max: 64 << 20,
        unauthenticated_share: 1.0,
        candidates_per_slot_max: 4,
        completed_remembered_max: 100_000,
        timeout_ms: 300_000,
        work_budget: 32,
    };
    Reassembler::new(parameters.expect("the settings are valid"), limits)
}

/// Bytes allowed for what the receiver holds now, with `segments` segments in it.
fn allowed(reassembler: &Reassembler, segments: usize) -> usize {
    let stats = reassembler.stats();
    stats.bytes_held as usize * 11 / 10
        + 64 * segments
        + 512 * stats.sets_held as usize
        + 128 * stats.completed_remembered as usize
        + 4_096
}

fn bytes_of(number: u32, index: u8, counts: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut entire_message_hash = [0; 32];
    entire_message_hash[..4].copy_from_slice(&number.to_be_bytes());
    let header = Header {
        entire_message_hash,
        slot: Slot::Data(index),
        data_segment_count: Some(counts.0),
        parity_segment_count: Some(counts.1),
        payload_length: None,
    };
    header.encode(WireFormat::Raw, payload)
}

#[test]
fn memory_stays_within_its_bound() {
    // Each case holds: forged sets of one small segment under the largest counts, each from its own
    // sender; large segments, copied and kept in place; many small segments of few sets; completions.
    let cases: [(u32, u8, usize, bool, bool); 5] = [
        (4_000, 1, 1, true, false),
        (40, 100, 10_240, false, false),
        (40, 100, 10_240, false, true),
        (100, 200, 40, false, false),
        (100, 200, 40, false, true),
    ];
    for (sets, segments, payload, own_sender, is_lent) in cases {
        let before = HELD.load(Ordering::Relaxed);
        let mut reassembler = reassembler();
        for number in 0..sets {
            let name = format!("sender-{number}");
            let sender = own_sender.then_some(name.as_str());
            for index in 0..segments {
                let bytes = bytes_of(number, index, (228, 28), &vec![index; payload]);
                let receipt = Receipt {
                    sender,
                    ..Receipt::default()
                };
                let outcome = if is_lent {
                    let bytes: Lent = Arc::new(bytes);
                    reassembler.receive_lent(&bytes, &receipt)
                } else {
                    reassembler.receive(&bytes, &receipt)
                };
                assert!(matches!(outcome, Outcome::Stored { .. }), "{outcome:?}");
            }
        }
        let held = HELD.load(Ordering::Relaxed) - before;
        let limit = allowed(&reassembler, sets as usize * usize::from(segments));
        assert!(
            held <= limit,
            "{sets} sets of {segments} segments hold {held}, at most {limit}"
        );
    }
    let before = HELD.load(Ordering::Relaxed);
    let mut reassembler = reassembler();
    let parameters = Parameters::new(Settings {
        segment_size_bytes: 10_240,
        enable_reed_solomon: false,
        parity_rate: 0.0,
        parity_for_single_segment: false,
        erasure_code: ErasureCode::Leopard,
        wire_format: WireFormat::Raw,
        max_total_segments: 256,
        max_tail_candidates: 1,
    });
    let parameters = parameters.expect("the settings are valid");
    for number in 0..50_000u32 {
        let payload = number.to_be_bytes();
        let wire = segment(&payload, &parameters).expect("it fits").to_vecs();
        reassembler.receive(&wire[0], &Receipt::default());
    }
    let held = HELD.load(Ordering::Relaxed) - before;
    let limit = allowed(&reassembler, 0);
    assert!(
        held <= limit,
        "50,000 completions hold {held}, at most {limit}"
    );
    drop(reassembler);
    // One test: the counting allocator counts for the whole process.
    hostile_shapes_stay_within_the_bound();
}

/// What a shape holds more than before, in bytes, against what it may.
fn check(shape: &str, fill: impl Fn(&mut Reassembler) -> usize) {
    let before = HELD.load(Ordering::Relaxed);
    let mut reassembler = reassembler();
    let segments = fill(&mut reassembler);
    let held = HELD.load(Ordering::Relaxed) - before;
    let limit = allowed(&reassembler, segments);
    assert!(held <= limit, "{shape}: {held} bytes, at most {limit}");
}

fn from(sender: &str) -> Receipt<'_> {
    Receipt {
        sender: Some(sender),
        ..Receipt::default()
    }
}

/// Shapes that a hostile network can give to what is held.
fn hostile_shapes_stay_within_the_bound() {
    for payload in [0, 40, 300] {
        check("a sender for every segment of a set", |reassembler| {
            for number in 0..100 {
                for index in 0..200 {
                    let bytes = bytes_of(number, index, (228, 28), &vec![index; payload]);
                    reassembler.receive(&bytes, &from(&format!("{number}-{index}")));
                }
            }
            reassembler.stats().stored as usize
        });
    }
    check("senders that are gone but the last", |reassembler| {
        for number in 0..2_000 {
            for index in 0..8 {
                let bytes = bytes_of(number, index, (228, 28), b"x");
                reassembler.receive(&bytes, &from(&format!("{number}-{index}")));
            }
        }
        let late = Receipt {
            now_ms: 300_000,
            ..from("late")
        };
        reassembler.receive(&bytes_of(9_999, 0, (228, 28), b"x"), &late);
        reassembler.expire(300_000);
        1
    });
    check(
        "four candidates in every slot, of four senders",
        |reassembler| {
            for number in 0..50 {
                for index in 0..150 {
                    for rival in 0..4u8 {
                        let bytes = bytes_of(number, index, (228, 28), &[rival; 60]);
                        reassembler.receive(&bytes, &from(&format!("rival {rival}")));
                    }
                }
            }
            reassembler.stats().stored as usize
        },
    );
    check("sets whose attempts failed", |reassembler| {
        let mut stored = 0;
        for number in 0..60 {
            for index in 0..100u8 {
                let bytes = bytes_of(number, index, (90, 10), &[index ^ 3; 64]);
                let parity = index
                    .checked_sub(90)
                    .map(|index| parity_of(number, index, &[index; 64]));
                let outcome = reassembler.receive(&parity.unwrap_or(bytes), &Receipt::default());
                stored += usize::from(matches!(outcome, Outcome::Stored { .. }));
            }
        }
        assert!(
            reassembler.stats().failed_reconstructions > 0,
            "the case does what it says"
        );
        stored
    });
    check("headers that claim the largest counts", |reassembler| {
        for number in 0..2_000 {
            reassembler.receive(&bytes_of(number, 255, (256, 0), b""), &Receipt::default());
            reassembler.receive(&parity_of(number, 27, b""), &Receipt::default());
        }
        reassembler.stats().stored as usize
    });
}

fn parity_of(number: u32, index: u8, payload: &[u8]) -> Vec<u8> {
    let mut entire_message_hash = [0; 32];
    entire_message_hash[..4].copy_from_slice(&number.to_be_bytes());
    let header = Header {
        entire_message_hash,
        slot: Slot::Parity(index),
        data_segment_count: Some(if index < 10 { 90 } else { 228 }),
        parity_segment_count: Some(if index < 10 { 10 } else { 28 }),
        payload_length: None,
    };
    header.encode(WireFormat::Raw, payload)
}
