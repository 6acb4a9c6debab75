//! The Python module `shardwire._native`: converts, releases the GIL, wraps. The list of what it
//! holds follows `python/shardwire/_native.pyi`. Only `fresh`, `untracked` and `arrow::capsule` have
//! unsafe code.

#![deny(unsafe_code)]

mod arrow;
mod batch;
mod bloom;
mod buffer;
mod erasure;
mod error;
mod fresh;
mod keccak;
mod now;
mod outcome;
mod prefetch;
mod reassembler;
mod record;
mod sds;
mod sds_acknowledge;
mod sds_codec;
mod sds_compose;
mod sds_counts;
mod sds_entries;
mod sds_entry;
mod sds_events;
mod sds_few;
mod sds_forget;
mod sds_heads;
mod sds_intake;
mod sds_leaving;
mod sds_log;
mod sds_originals;
mod sds_outgoing;
mod sds_outgoing_store;
mod sds_outlet;
mod sds_receiving;
mod sds_record;
mod sds_release;
mod sds_send;
mod sds_timers;
mod sds_waiting;
mod segmentation;
mod untracked;
mod waku;
mod waku_json;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use arrow::{
        ArrowLocalReconstructor, ArrowReconstructor, arrow_decode_sds, arrow_decode_segment,
        arrow_decode_waku_message, arrow_keccak256, arrow_message_hash, arrow_segment,
        arrow_segment_rows, arrow_shard_of, arrow_unwrap_sds, arrow_unwrap_segment,
        arrow_unwrap_waku,
    };
    #[pymodule_export]
    use batch::{reassemble_many, segment_many};
    #[pymodule_export]
    use bloom::BloomFilter;
    #[pymodule_export]
    use erasure::{erasure_encode, erasure_reconstruct};
    #[pymodule_export]
    use keccak::{Keccak256, keccak256, keccak256_many};
    #[pymodule_export]
    use now::Now;
    #[pymodule_export]
    use outcome::{PayloadReconstructed, SegmentDiscarded, SegmentStored, SetDropped};
    #[pymodule_export]
    use reassembler::ReassemblerCore;
    #[pymodule_export]
    use sds::{HistoryEntry, SdsMessage};
    #[pymodule_export]
    use sds_codec::{SdsCodec, farmhash64};
    #[pymodule_export]
    use sds_compose::{compose_history, note_said, still_repeated};
    #[pymodule_export]
    use sds_counts::{
        AcknowledgementDue, FilterTime, HeldCount, LamportTime, QueueCounts, SyncDue,
        TransmitCounts,
    };
    #[pymodule_export]
    use sds_entries::LogEntries;
    #[pymodule_export]
    use sds_events::{
        ContentAcknowledged, ContentReceived, EventQueue, MissingDetected, SdsEvent,
        SendAcknowledged, SendReleased, Transmit,
    };
    #[pymodule_export]
    use sds_heads::deliver_head;
    #[pymodule_export]
    use sds_intake::SdsIntake;
    #[pymodule_export]
    use sds_log::{LocalLog, LogEntry};
    #[pymodule_export]
    use sds_originals::Originals;
    #[pymodule_export]
    use sds_outgoing::{OutgoingContent, OutgoingSend};
    #[pymodule_export]
    use sds_outgoing_store::store_outgoing;
    #[pymodule_export]
    use sds_outlet::SdsOutlet;
    #[pymodule_export]
    use sds_send::IncomingSend;
    #[pymodule_export]
    use sds_timers::{FinishedSends, ResendTimers};
    #[pymodule_export]
    use sds_waiting::MissingMessage;
    #[pymodule_export]
    use segmentation::segment_payload;
    #[pymodule_export]
    use segmentation::{SegmentHeader, SegmentationParameters, inspect_segment};
    #[pymodule_export]
    use waku::{WakuMessage, message_hash, shard_of};
    #[pymodule_export]
    use waku_json::{WakuJsonReader, decode_store_json, encode_waku_json};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
