//! A payload and its genuine segments, of any geometry that a receiver takes.

use std::fmt;

use arbitrary::{Result, Unstructured};
use reed_solomon_simd::engine::DefaultEngine;
use reed_solomon_simd::rate::{HighRateEncoder, RateEncoder};
use shardwire_core::erasure::{self, ErasureCode};
use shardwire_core::keccak::keccak256;
use shardwire_core::wire::segment::{HASH_LENGTH, Header, Slot, WireFormat};

use crate::random::Random;

/// Ends of a payload that every search may test.
const ENDS_ALWAYS_TESTED: u64 = 16;

/// One payload on its way: what a faithful sender makes of it.
#[derive(Debug, Clone)]
pub struct Message {
    /// What the receiver must come to, or never see.
    pub payload: Vec<u8>,
    /// Keccak-256 of it.
    pub hash: [u8; HASH_LENGTH],
    /// What tells it from another send of the same payload.
    pub key: Option<Vec<u8>>,
    /// The code that made the parity.
    pub code: ErasureCode,
    /// Data segments.
    pub data_count: usize,
    /// Parity segments.
    pub parity_count: usize,
    /// Length of a full shard.
    pub shard_len: usize,
    /// The segments, data first.
    pub segments: Vec<(Header, Vec<u8>)>,
}

impl Message {
    /// A message on `wire_format`: mostly a few segments, now and then many, rarely so many that
    /// Leopard needs its larger field.
    pub fn new(
        source: &mut Unstructured<'_>,
        wire_format: WireFormat,
        key: Option<Vec<u8>>,
    ) -> Result<Self> {
        let code = match source.ratio(1, 3)? {
            true => ErasureCode::Vandermonde,
            false => ErasureCode::Leopard,
        };
        let least = if wire_format == WireFormat::Draft {
            2
        } else {
            1
        };
        let (data_count, parity_count) = match source.int_in_range(0..=255)? {
            0 if code == ErasureCode::Leopard => {
                let data = source.int_in_range(130..=190)?;
                (data, source.int_in_range(65..=256 - data)?.min(data))
            }
            0..=3 => (
                source.int_in_range(least..=64)?,
                source.int_in_range(0..=8)?,
            ),
            _ => (source.int_in_range(least..=9)?, source.int_in_range(0..=5)?),
        };
        let parity_count = match code {
            ErasureCode::Leopard => parity_count.min(data_count),
            ErasureCode::Vandermonde => parity_count,
        };
        let shard_len = match code {
            ErasureCode::Leopard => 64 * source.int_in_range(1..=2)?,
            ErasureCode::Vandermonde => source.int_in_range(1..=96)?,
        };
        let empty = data_count == 1 && source.ratio(1, 16)?;
        let tail = if empty {
            0
        } else {
            source.int_in_range(1..=shard_len)?
        };
        let length = (data_count - 1) * shard_len + tail;
        let zeros = match source.ratio(1, 4)? {
            true => source.int_in_range(0..=2 * shard_len)?.min(length),
            false => 0,
        };
        let mut payload = Random(source.arbitrary()?).bytes(length);
        payload[length - zeros..].fill(0);
        let padded = parity_count > 0 && source.ratio(1, 8)?;
        Ok(Self::of(
            payload,
            key,
            wire_format,
            code,
            (data_count, parity_count, shard_len),
            padded,
        ))
    }

    /// The segments of a payload; `padded` sends the last data segment with its padding.
    pub fn of(
        payload: Vec<u8>,
        key: Option<Vec<u8>>,
        wire_format: WireFormat,
        code: ErasureCode,
        (data_count, parity_count, shard_len): (usize, usize, usize),
        padded: bool,
    ) -> Self {
        let hash = keccak256(&payload);
        let mut parts: Vec<Vec<u8>> = payload.chunks(shard_len).map(<[u8]>::to_vec).collect();
        parts.resize(data_count, Vec::new());
        let parity = parity_of(code, &parts, parity_count, shard_len);
        if padded {
            parts[data_count - 1].resize(shard_len, 0);
        }
        let draft = wire_format == WireFormat::Draft;
        let header = |slot| Header {
            entire_message_hash: hash,
            slot,
            data_segment_count: (!draft || matches!(slot, Slot::Data(_)))
                .then_some(data_count as u16),
            parity_segment_count: (!draft || matches!(slot, Slot::Parity(_)))
                .then_some(parity_count as u16),
            payload_length: (wire_format == WireFormat::Lip243).then_some(payload.len() as u64),
        };
        let data = parts
            .into_iter()
            .enumerate()
            .map(|(index, part)| (header(Slot::Data(index as u8)), part));
        let parity = parity
            .into_iter()
            .enumerate()
            .map(|(index, part)| (header(Slot::Parity(index as u8)), part));
        let segments = data.chain(parity).collect();
        Message {
            payload,
            hash,
            key,
            code,
            data_count,
            parity_count,
            shard_len,
            segments,
        }
    }

    /// Whether a forged parity segment is what the other code makes of the payload: it accuses
    /// nobody, since another sender of the payload may use that code.
    pub fn is_parity_of_the_other_code(&self, ordinal: usize, content: &[u8]) -> bool {
        let other = match self.code {
            ErasureCode::Leopard => ErasureCode::Vandermonde,
            ErasureCode::Vandermonde => ErasureCode::Leopard,
        };
        let Some(index) = ordinal.checked_sub(self.data_count) else {
            return false;
        };
        let shards: Vec<&[u8]> = self.payload.chunks(self.shard_len).collect();
        let parity = erasure::encode(other, &shards, self.parity_count, self.shard_len);
        parity.is_ok_and(|parity| parity[index] == content)
    }

    /// Whether a budget of so many reconstructions covers, some times over, the search for the end
    /// of a payload that itself ends in zeros. Shards here are so short that it may not. Where the counts
    /// cannot be looked at, whoever poisons a set has all that is kept for searches spent: the ends that are
    /// always tested are left.
    pub fn affords_its_tail(&self, work_budget: u64) -> bool {
        let last = &self.payload[(self.data_count - 1) * self.shard_len..];
        let zeros = last.iter().rev().take_while(|byte| **byte == 0).count() as u64;
        if !erasure::supports(self.code, self.data_count, self.parity_count)
            && zeros >= ENDS_ALWAYS_TESTED
        {
            return false;
        }
        let whole = (self.data_count * self.shard_len) as u64;
        work_budget >= 32 && 16 * 200 * zeros <= work_budget * whole
    }

    /// The place of a slot among the segments.
    pub fn ordinal_of(&self, slot: Slot) -> usize {
        match slot {
            Slot::Data(index) => usize::from(index),
            Slot::Parity(index) => self.data_count + usize::from(index),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (k, m, length) = (self.data_count, self.parity_count, self.payload.len());
        let (code, shard) = (self.code.as_str(), self.shard_len);
        write!(
            formatter,
            "{length} bytes in {k} + {m} {code} shards of {shard}"
        )
    }
}

fn parity_of(
    code: ErasureCode,
    data: &[Vec<u8>],
    parity_count: usize,
    shard_len: usize,
) -> Vec<Vec<u8>> {
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    if erasure::supports(code, data.len(), parity_count) {
        return erasure::encode(code, &slices, parity_count, shard_len)
            .expect("the geometry is supported");
    }
    // A peer's Leopard changes to its larger field here; ours decodes that but does not encode it.
    let engine = DefaultEngine::new();
    let mut encoder = HighRateEncoder::new(data.len(), parity_count, shard_len, engine, None)
        .expect("the crate takes the geometry");
    for shard in data {
        let mut shard = shard.clone();
        shard.resize(shard_len, 0);
        encoder
            .add_original_shard(shard)
            .expect("every shard has the length");
    }
    let encoded = encoder.encode().expect("every shard was added");
    encoded.recovery_iter().map(<[u8]>::to_vec).collect()
}
