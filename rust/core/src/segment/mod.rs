//! Payload to segments: counts, limits, parity and the segments themselves.
//!
//! The payload is read where it lies; each segment is allocated once, at its exact size, by
//! whoever writes it.

mod parameters;

use std::ops::Range;

use thiserror::Error;

use crate::erasure::{self, ErasureCode, ErasureError};
use crate::keccak::{keccak256, keccak256_many};
use crate::sink::Sink;
use crate::wire::segment::{self, HASH_LENGTH, Header, Received, Slot, WireFormat};

pub use crate::wire::segment::OVERHEAD_BYTES_MAX;
use parameters::RATE_SCALE;
pub use parameters::{Counts, ParameterError, Parameters, Settings};

/// A payload cannot be sent as it is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SegmentationError {
    /// It has more segments than one message may have.
    #[error(
        "the payload has {payload_bytes} bytes: at most {limit_bytes} fit one message; enlarge \
         segment_size_bytes, lower parity_rate or split the payload"
    )]
    PayloadTooLarge {
        /// Its length.
        payload_bytes: usize,
        /// The largest length that fits.
        limit_bytes: usize,
    },
    /// draft: a small payload travels unmodified, and a receiver would take this one for a segment.
    #[error(
        "a payload of {payload_bytes} bytes travels unmodified under draft, and this one reads as \
         a segment: wrap it, or use wire_format raw"
    )]
    ReadsAsSegment {
        /// Its length.
        payload_bytes: usize,
    },
    /// draft: an empty payload would be an empty transport message.
    #[error("an empty payload has no form under draft: use wire_format raw")]
    Empty,
    /// Parity cannot be made of these.
    #[error("these are not all data segments of one message that announced so much parity")]
    NotItsData,
    /// The code refuses the shards: a broken invariant of the counts.
    #[error(transparent)]
    Erasure(#[from] ErasureError),
}

/// The segments of one payload, ready to be written one by one.
#[derive(Debug)]
pub struct Segments<'a> {
    wire_format: WireFormat,
    chunk_size_bytes: usize,
    payload: &'a [u8],
    entire_message_hash: [u8; HASH_LENGTH],
    counts: Counts,
    parity: Vec<Vec<u8>>,
}

impl<'a> Segments<'a> {
    /// Keccak-256 of the payload; zeros where draft sends it unmodified.
    pub fn entire_message_hash(&self) -> [u8; HASH_LENGTH] {
        self.entire_message_hash
    }

    /// Keccak-256 of the payload, also where draft sends it unmodified.
    pub fn payload_hash(&self) -> [u8; HASH_LENGTH] {
        let hash = || self.entire_message_hash;
        self.unmodified().map_or_else(hash, keccak256)
    }

    /// The payload where draft sends it unmodified, as the only transport message.
    pub fn unmodified(&self) -> Option<&'a [u8]> {
        (self.counts.data == 0).then_some(self.payload)
    }

    /// Number of transport messages.
    pub fn count(&self) -> usize {
        if self.counts.data == 0 {
            1
        } else {
            self.counts.data + self.parity.len()
        }
    }

    /// How many of those hold data.
    pub fn data_count(&self) -> usize {
        self.counts.data.max(1)
    }

    /// Parity that is announced and not made.
    pub fn reserve(&self) -> usize {
        self.counts.parity - self.parity.len()
    }

    /// Length of transport message `ordinal`; data segments come first.
    pub fn encoded_length(&self, ordinal: usize) -> usize {
        match self.unmodified() {
            Some(payload) => payload.len(),
            None => {
                let (header, shard) = self.part(ordinal);
                header.encoded_length(self.wire_format, shard.len())
            }
        }
    }

    /// Writes transport message `ordinal`, [`Segments::encoded_length`] bytes.
    pub fn write(&self, ordinal: usize, out: &mut impl Sink) {
        match self.unmodified() {
            Some(payload) => out.put(payload),
            None => {
                let (header, shard) = self.part(ordinal);
                header.encode_into(self.wire_format, shard, out);
            }
        }
    }

    /// All transport messages.
    pub fn to_vecs(&self) -> Vec<Vec<u8>> {
        (0..self.count())
            .map(|ordinal| {
                let mut message = Vec::with_capacity(self.encoded_length(ordinal));
                self.write(ordinal, &mut message);
                message
            })
            .collect()
    }

    fn part(&self, ordinal: usize) -> (Header, &[u8]) {
        let Counts { data, parity } = self.counts;
        let is_parity = ordinal >= data;
        let draft = self.wire_format == WireFormat::Draft;
        let header = Header {
            entire_message_hash: self.entire_message_hash,
            slot: if is_parity {
                Slot::Parity((ordinal - data) as u8)
            } else {
                Slot::Data(ordinal as u8)
            },
            data_segment_count: (!(draft && is_parity)).then_some(data as u16),
            parity_segment_count: (!draft || is_parity).then_some(parity as u16),
            payload_length: (self.wire_format == WireFormat::Lip243)
                .then_some(self.payload.len() as u64),
        };
        let shard = if is_parity {
            self.parity[ordinal - data].as_slice()
        } else {
            let start = ordinal * self.chunk_size_bytes;
            let end = self.payload.len().min(start + self.chunk_size_bytes);
            &self.payload[start..end]
        };
        (header, shard)
    }
}

/// Prepares the segments of `payload`: hash and parity are computed, nothing is copied.
///
/// # Errors
/// `PayloadTooLarge`; under draft `ReadsAsSegment` and `Empty`.
pub fn segment<'a>(
    payload: &'a [u8],
    parameters: &Parameters,
) -> Result<Segments<'a>, SegmentationError> {
    let counts = admit(payload, parameters)?;
    let hash = if counts.data == 0 {
        [0; HASH_LENGTH]
    } else {
        keccak256(payload)
    };
    prepare(payload, hash, counts, parameters)
}

/// As [`segment`] for each of many payloads, whose hashes are computed side by side.
pub fn segment_many<'a>(
    payloads: &[&'a [u8]],
    parameters: &Parameters,
) -> Vec<Result<Segments<'a>, SegmentationError>> {
    let counts: Vec<Result<Counts, SegmentationError>> = payloads
        .iter()
        .map(|payload| admit(payload, parameters))
        .collect();
    let is_hashed = |counts: &Result<Counts, _>| counts.as_ref().is_ok_and(|c| c.data > 0);
    let admitted: Vec<&[u8]> = payloads
        .iter()
        .zip(&counts)
        .filter(|(_, counts)| is_hashed(counts))
        .map(|(payload, _)| *payload)
        .collect();
    let mut hashes = vec![[0; HASH_LENGTH]; admitted.len()];
    keccak256_many(&admitted, &mut hashes);
    let mut hashes = hashes.into_iter();
    payloads
        .iter()
        .zip(counts)
        .map(|(payload, counts)| {
            let hash = is_hashed(&counts).then(|| hashes.next()).flatten();
            prepare(payload, hash.unwrap_or_default(), counts?, parameters)
        })
        .collect()
}

/// As [`segment`], of a payload whose parity is made on demand: it announces as much as there may be
/// ([`Parameters::parity_bound`]), of which `parity_millionths` for a million data segments are made,
/// or as many as `parameters` ask for where that is more. What is made at first takes nothing from what
/// a payload may hold.
///
/// # Errors
/// As [`segment`].
pub fn segment_on_demand<'a>(
    payload: &'a [u8],
    parameters: &Parameters,
    parity_millionths: u32,
) -> Result<Segments<'a>, SegmentationError> {
    let configured = parameters;
    let parameters = &configured.without_parity();
    let mut counts = admit(payload, parameters)?;
    if counts.data < 2 {
        // Not repaired with parity; where it is to have some, that leaves with it.
        return segment(payload, configured);
    }
    counts.parity = parameters.parity_bound(counts.data);
    let chunk_size_bytes = parameters.chunk_size_bytes();
    let shards: Vec<&[u8]> = payload.chunks(chunk_size_bytes).collect();
    let settings = parameters.settings();
    let data = counts.data as u64;
    let first = (data * u64::from(parity_millionths) + RATE_SCALE / 2) / RATE_SCALE;
    let first = first.max(configured.parity_count(data));
    let wanted = 0..counts.parity.min(first as usize);
    Ok(Segments {
        wire_format: settings.wire_format,
        chunk_size_bytes,
        payload,
        entire_message_hash: keccak256(payload),
        counts,
        parity: parity_shards(
            settings.erasure_code,
            &shards,
            counts.parity,
            wanted,
            chunk_size_bytes,
        )?,
    })
}

/// Further parity of a message, out of all its data segments as they were made.
///
/// # Errors
/// `NotItsData` where these are not all data segments of one message, or it announced less parity.
pub fn further_parity(
    data_segments: &[&[u8]],
    wire_format: WireFormat,
    code: ErasureCode,
    wanted: Range<usize>,
) -> Result<Vec<Vec<u8>>, SegmentationError> {
    let mut shards = Vec::with_capacity(data_segments.len());
    let mut first: Option<Header> = None;
    for (index, bytes) in data_segments.iter().enumerate() {
        let Ok(Received::Segment(read)) =
            segment::decode(bytes, wire_format, segment::TOTAL_SEGMENTS_MAX)
        else {
            return Err(SegmentationError::NotItsData);
        };
        let header = first.get_or_insert(read.header);
        let expected = Header {
            slot: Slot::Data(index as u8),
            ..*header
        };
        if read.header != expected {
            return Err(SegmentationError::NotItsData);
        }
        shards.push(read.payload);
    }
    let header = first.ok_or(SegmentationError::NotItsData)?;
    let announced = usize::from(header.parity_segment_count.unwrap_or(0));
    let is_whole = header.data_segment_count == Some(shards.len() as u16);
    if !is_whole || wanted.end > announced {
        return Err(SegmentationError::NotItsData);
    }
    let made = parity_shards(code, &shards, announced, wanted.clone(), shards[0].len())?;
    let mut parity = Vec::with_capacity(made.len());
    for (index, shard) in wanted.zip(made) {
        let mut own = header;
        own.slot = Slot::Parity(index as u8);
        let mut message = Vec::with_capacity(own.encoded_length(wire_format, shard.len()));
        own.encode_into(wire_format, &shard, &mut message);
        parity.push(message);
    }
    Ok(parity)
}

/// Parity of a message by its indexes, out of the message, a header of one of its segments and the length
/// of its shards.
///
/// # Errors
/// `NotItsData` where they are not of one message.
pub fn parity_of(
    payload: &[u8],
    header: &Header,
    shard_len: usize,
    (wire_format, code): (WireFormat, ErasureCode),
    indexes: &[u32],
) -> Result<Vec<Vec<u8>>, SegmentationError> {
    let announced = usize::from(header.parity_segment_count.unwrap_or(0));
    let data = usize::from(header.data_segment_count.unwrap_or(0));
    if indexes.is_empty() {
        return Ok(Vec::new());
    }
    let is_its = shard_len > 0 && payload.chunks(shard_len).count() == data;
    if !is_its || indexes.iter().any(|index| *index as usize >= announced) {
        return Err(SegmentationError::NotItsData);
    }
    let sources: Vec<_> = payload.chunks(shard_len).enumerate().collect();
    let targets: Vec<_> = indexes.iter().map(|index| data + *index as usize).collect();
    let made = erasure::remake(code, (data, announced), &sources, &targets, shard_len)?;
    let parity = indexes.iter().zip(made).map(|(index, shard)| {
        let mut own = *header;
        own.slot = Slot::Parity(*index as u8);
        let mut message = Vec::with_capacity(own.encoded_length(wire_format, shard.len()));
        own.encode_into(wire_format, &shard, &mut message);
        message
    });
    Ok(parity.collect())
}

/// Some of the parity shards of a message, and no others.
fn parity_shards(
    code: ErasureCode,
    shards: &[&[u8]],
    announced: usize,
    wanted: Range<usize>,
    shard_len: usize,
) -> Result<Vec<Vec<u8>>, ErasureError> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let data = shards.len();
    let sources: Vec<_> = shards.iter().copied().enumerate().collect();
    let targets: Vec<_> = wanted.map(|index| data + index).collect();
    erasure::remake(code, (data, announced), &sources, &targets, shard_len)
}

fn admit(payload: &[u8], parameters: &Parameters) -> Result<Counts, SegmentationError> {
    let counts = parameters.counts(payload.len())?;
    if counts.data == 0 {
        if payload.is_empty() {
            return Err(SegmentationError::Empty);
        }
        let limit = segment::TOTAL_SEGMENTS_MAX;
        match segment::decode(payload, WireFormat::Draft, limit) {
            Ok(Received::WholeMessage(_)) => {}
            _ => {
                let payload_bytes = payload.len();
                return Err(SegmentationError::ReadsAsSegment { payload_bytes });
            }
        }
    }
    Ok(counts)
}

fn prepare<'a>(
    payload: &'a [u8],
    entire_message_hash: [u8; HASH_LENGTH],
    counts: Counts,
    parameters: &Parameters,
) -> Result<Segments<'a>, SegmentationError> {
    let chunk_size_bytes = parameters.chunk_size_bytes();
    let parity = if counts.parity == 0 {
        Vec::new()
    } else {
        // An empty payload has one data shard all the same, of padding alone.
        let mut shards: Vec<&[u8]> = payload.chunks(chunk_size_bytes).collect();
        shards.resize(counts.data, &[]);
        let code = parameters.settings().erasure_code;
        erasure::encode(code, &shards, counts.parity, chunk_size_bytes)?
    };
    Ok(Segments {
        wire_format: parameters.settings().wire_format,
        chunk_size_bytes,
        payload,
        entire_message_hash,
        counts,
        parity,
    })
}

#[cfg(test)]
mod tests;
