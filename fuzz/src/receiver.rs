use shardwire_core::erasure::ErasureCode;
use shardwire_core::reassemble::{Limits, Reassembler};
use shardwire_core::segment::{Parameters, Settings};
use shardwire_core::wire::segment::WireFormat;

/// Settings of a receiver that knows segments of `segment_size_bytes` and tries every tail.
pub fn settings(
    wire_format: WireFormat,
    erasure_code: ErasureCode,
    segment_size_bytes: usize,
) -> Settings {
    Settings {
        segment_size_bytes,
        enable_reed_solomon: true,
        parity_rate: 0.5,
        parity_for_single_segment: false,
        erasure_code,
        wire_format,
        max_total_segments: 256,
        max_tail_candidates: segment_size_bytes,
    }
}

/// Limits that a story of a few small messages does not meet.
pub fn limits() -> Limits {
    Limits {
        sets_max: 10,
        sets_per_sender_max: 10,
        buffered_bytes_max: 1 << 20,
        buffered_bytes_per_sender_max: 1 << 20,
        unauthenticated_share: 1.0,
        candidates_per_slot_max: 4,
        completed_remembered_max: 10,
        timeout_ms: 1_000,
        work_budget: 32,
    }
}

/// A reassembler with these settings and limits.
///
/// # Panics
///
/// Where the settings are refused.
pub fn receiver(settings: Settings, limits: Limits) -> Reassembler {
    let parameters = Parameters::new(settings).expect("the settings are valid");
    Reassembler::new(parameters, limits)
}
