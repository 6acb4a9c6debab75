//! Why a stored channel cannot be read.

use thiserror::Error;

use super::records::SCHEMA_VERSION;
use crate::sds;

/// Bytes of a key that an error shows.
const SHOWN_BYTES: usize = 40;

/// Why a stored channel cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// SDS cannot be.
    #[error(transparent)]
    Sds(#[from] sds::RestoreError),
    /// A newer release wrote it.
    #[error(
        "a {what} has schema version {version}, this release reads up to {SCHEMA_VERSION}: open the channel \
         with the release that wrote it, or a newer one"
    )]
    Newer {
        /// Which kind of record.
        what: &'static str,
        /// Its version.
        version: u64,
    },
    /// A record is none.
    #[error("a stored {0} is damaged: restore the database from a copy")]
    Damaged(&'static str),
    /// A record names bytes that are not there.
    #[error(
        "{what} (record {key:?}) is stored without its bytes: restore the database from a copy"
    )]
    WithoutBytes {
        /// What.
        what: &'static str,
        /// The start of its key.
        key: String,
    },
    /// A stored segment is none.
    #[error("a stored segment cannot be read ({0}): restore the database from a copy")]
    Segment(String),
}

pub(super) fn without_bytes(what: &'static str, key: &[u8]) -> RestoreError {
    let shown = &key[..key.len().min(SHOWN_BYTES)];
    let key = String::from_utf8_lossy(shown).into_owned();
    RestoreError::WithoutBytes { what, key }
}
