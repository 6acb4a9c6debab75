//! The Python module `shardwire._native`: converts, releases the GIL, wraps. The list of what it
//! holds follows `python/shardwire/_native.pyi`. Only `fresh`, `interpreter` and `arrow::capsule` have
//! unsafe code.

#![deny(unsafe_code)]

mod allowance;
mod arguments;
mod arrow;
mod batch;
mod bloom;
mod buffer;
mod channel_events;
mod channel_machine;
mod checksum;
mod erasure;
mod error;
mod file;
mod fresh;
mod interpreter;
mod journal_file;
mod keccak;
mod lent_bytes;
mod now;
mod outcome;
mod own_sends;
mod participant;
mod python_random;
mod rate_limit;
mod reassembler;
mod record;
mod sds;
mod sds_config;
mod sds_events;
mod sds_machine;
mod segmentation;
mod send_events;
mod store_questions;
mod stored_records;
mod texts;
mod waku;
mod waku_json;

use pyo3::prelude::*;
use pyo3::types::PyMapping;
use shardwire_core::channel::{DISPATCHES_MAX, PROPAGATION_TIMEOUT_MS};

#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use allowance::Allowance;
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
    use channel_events::{
        Delivery, MessageFault, MessageGivenUp, NodeFailing, NodeHolds, NodeRecovered, SegmentSeen,
        TransmitFailed,
    };
    #[pymodule_export]
    use channel_machine::ChannelMachine;
    #[pymodule_export]
    use checksum::crc32;
    #[pymodule_export]
    use erasure::{erasure_encode, erasure_reconstruct};
    #[pymodule_export]
    use file::{
        FileChunk, FileManifest, FileStatus, decode_file_message, encode_file_chunk,
        encode_file_manifest, encode_file_status, is_file_message,
    };
    #[pymodule_export]
    use journal_file::{JournalFile, Wake, read_journal};
    #[pymodule_export]
    use keccak::{Keccak256, keccak256, keccak256_many};
    #[pymodule_export]
    use now::Now;
    #[pymodule_export]
    use outcome::{PayloadReconstructed, SegmentDiscarded, SegmentStored, SetDropped};
    #[pymodule_export]
    use own_sends::{OwnSends, SendProgress};
    #[pymodule_export]
    use participant::{
        Participant, farmhash64, in_response_group, is_rival, repair_times_without_store,
        request_offset_ms, response_offset_ms, rival_name, sds_limits,
    };
    #[pymodule_export]
    use rate_limit::SharedQuota;
    #[pymodule_export]
    use reassembler::ReassemblerCore;
    #[pymodule_export]
    use sds::{HistoryEntry, SdsMessage};
    #[pymodule_export]
    use sds_config::divide_message;
    #[pymodule_export]
    use sds_events::{
        ContentAcknowledged, ContentPossiblyAcknowledged, ContentReceived, ContentsWanted,
        DependencyLost, EphemeralReceived, MessageDropped, MissingDetected, SdsEvent,
        SendAcknowledged, SendGivenUp, SendReleased, SenderIdConflict, SyncReceived, Transmit,
    };
    #[pymodule_export]
    use sds_machine::MessageChannel;
    #[pymodule_export]
    use segmentation::{SegmentHeader, SegmentationParameters, inspect_segment};
    #[pymodule_export]
    use segmentation::{segment_message, segment_payload};
    #[pymodule_export]
    use store_questions::{StoreQuestion, StoreQuestions, last_seen_ns};
    #[pymodule_export]
    use stored_records::{ChangedRecords, RecordTable, sizes_in_rows, split_row};
    #[pymodule_export]
    use waku::{WakuMessage, message_hash, shard_of};
    #[pymodule_export]
    use waku_json::{WakuJsonReader, decode_store_json, encode_waku_json};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        interpreter::require_main(module.py())?;
        module.add("DISPATCHES_MAX", DISPATCHES_MAX)?;
        module.add("PROPAGATION_TIMEOUT_MS", PROPAGATION_TIMEOUT_MS)?;
        module.add("SENDERS_MAX", arrow::SENDERS_MAX)?;
        module.add("ERROR_LENGTH_MAX", arrow::ERROR_LENGTH_MAX)?;
        module.add("NO_HASH", arrow::NO_HASH)?;
        PyMapping::register::<ChangedRecords>(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
