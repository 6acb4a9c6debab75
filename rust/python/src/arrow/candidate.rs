//! A segment that a group holds: in the batch that brought it, or moved out of it.

use std::ops::Range;
use std::sync::Arc;

use shardwire_core::wire::segment::Header;

use super::input::BinaryColumn;

/// What a segment takes beside its bytes, about.
pub const CANDIDATE_BYTES: usize = 256;

/// The bytes of one segment: in the batch that brought them, or moved out of it.
#[derive(Debug)]
pub enum Held {
    Row(Arc<BinaryColumn>, usize),
    Owned(Box<[u8]>),
}

/// A segment that a place holds.
#[derive(Debug)]
pub struct Candidate {
    pub header: Header,
    pub sender: Option<Arc<str>>,
    pub held: Held,
    /// Where its shard lies in it.
    pub payload: Range<usize>,
    /// How often exactly this segment came.
    pub times: u32,
    /// When it first came.
    pub timestamp: Option<i64>,
}

impl Candidate {
    /// The whole segment, as it was on the wire.
    pub fn segment(&self) -> &[u8] {
        match &self.held {
            Held::Row(column, row) => column.get(*row).unwrap_or_default(),
            Held::Owned(bytes) => bytes,
        }
    }

    /// The column that it lies in; `None` once it was moved out.
    pub fn column(&self) -> Option<&Arc<BinaryColumn>> {
        match &self.held {
            Held::Row(column, _) => Some(column),
            Held::Owned(_) => None,
        }
    }

    /// The shard inside it.
    pub fn payload(&self) -> &[u8] {
        &self.segment()[self.payload.clone()]
    }
}

/// Where `part`, a slice of `whole`, lies in it. An empty part may point anywhere.
pub fn range_within(whole: &[u8], part: &[u8]) -> Range<usize> {
    if part.is_empty() {
        return 0..0;
    }
    let start = part.as_ptr() as usize - whole.as_ptr() as usize;
    start..start + part.len()
}
