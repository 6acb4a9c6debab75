//! The bytes of shardwire: Keccak-256, Reed-Solomon, the wire formats, segmentation and reassembly.
//!
//! Everything here is a pure function or a state machine over bytes the caller hands in. There is
//! no clock, no I/O, no global state and no Python: time is an argument.

pub mod bloom;
pub mod channel;
pub mod cpu;
pub mod crc32;
pub mod erasure;
#[cfg(all(test, unix, not(miri)))]
mod guard_pages;
pub mod hex;
pub mod journal;
pub mod keccak;
mod maps;
pub mod rate_limit;
pub mod reassemble;
pub mod sds;
pub mod segment;
pub mod sink;
pub mod wire;
