//! The wire formats: segments, Scalable Data Sync, Waku messages and files.
//!
//! `proto/` is the source; prost compiles it into [`proto`]. Where prost would copy a payload, or
//! refuse what a peer may send, the coding is by hand and tested equal to prost.

pub mod file;
mod protobuf;
pub mod sds;
mod sds_nim;
mod sds_parts;
mod sds_spec;
pub mod segment;
mod segment_encode;
pub mod waku;
pub mod waku_json;

/// The messages of `proto/`, as prost compiles them.
pub mod proto {
    #![allow(missing_docs, clippy::doc_markdown)]

    /// `proto/segment_raw.proto`.
    pub mod segment_raw {
        include!(concat!(env!("OUT_DIR"), "/shardwire.segment.raw.rs"));
    }
    /// `proto/segment_draft.proto`.
    pub mod segment_draft {
        include!(concat!(env!("OUT_DIR"), "/shardwire.segment.draft.rs"));
    }
    /// `proto/segment_lip243.proto`.
    pub mod segment_lip243 {
        include!(concat!(env!("OUT_DIR"), "/shardwire.segment.lip243.rs"));
    }
    /// `proto/sds.proto` and, inside, `proto/sds_nim.proto`.
    pub mod sds {
        include!(concat!(env!("OUT_DIR"), "/shardwire.sds.rs"));
        /// `proto/sds_nim.proto`.
        pub mod nim {
            include!(concat!(env!("OUT_DIR"), "/shardwire.sds.nim.rs"));
        }
    }
    /// `proto/waku_message.proto`.
    pub mod waku {
        include!(concat!(env!("OUT_DIR"), "/shardwire.waku.rs"));
    }
    /// `proto/file_transfer.proto`.
    pub mod file {
        include!(concat!(env!("OUT_DIR"), "/shardwire.file.rs"));
    }
}
