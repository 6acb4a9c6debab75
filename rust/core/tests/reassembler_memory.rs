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
}
