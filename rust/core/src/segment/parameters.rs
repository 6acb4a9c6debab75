//! What a sender is configured with, and the counts and limits that follow.

use thiserror::Error;

use super::SegmentationError;
use crate::erasure::ErasureCode;
use crate::wire::segment::{self, OVERHEAD_BYTES_MAX, WireFormat};

/// Parity rates are integers in millionths, so that every peer counts the same.
pub(super) const RATE_SCALE: u64 = 1_000_000;

/// lip243: what is kept free in a serialized segment for its header.
const LIP243_RESERVE: usize = 128;

/// Leopard codes shards of a multiple of this many bytes; lip243 aligns its chunks to it.
const SHARD_ALIGNMENT: usize = 64;

/// Elements of the field of both codes: shards that one payload may have.
const FIELD_SIZE: u64 = 256;

/// What a [`Parameters`] is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Payload bytes of a data segment; under lip243 the size of a serialized segment.
    pub segment_size_bytes: usize,
    /// Whether parity is made.
    pub enable_reed_solomon: bool,
    /// Parity segments per data segment.
    pub parity_rate: f64,
    /// Whether a payload that fits one segment gets parity.
    pub parity_for_single_segment: bool,
    /// The code of the parity.
    pub erasure_code: ErasureCode,
    /// The segment wire.
    pub wire_format: WireFormat,
    /// Data and parity segments of a payload stay below this.
    pub max_total_segments: u32,
    /// Lengths tried for a recovered last segment.
    pub max_tail_candidates: usize,
}

impl Settings {
    /// What a segment has beyond its size, at most: lip243's size is that of the serialized segment.
    pub fn frame_bytes_max(&self) -> usize {
        match self.wire_format {
            WireFormat::Lip243 => 0,
            WireFormat::Raw | WireFormat::Draft => OVERHEAD_BYTES_MAX,
        }
    }

    /// The least size at which every code has something to code.
    pub fn segment_bytes_min(&self) -> usize {
        match self.wire_format {
            WireFormat::Lip243 => LIP243_RESERVE + SHARD_ALIGNMENT,
            WireFormat::Raw | WireFormat::Draft => SHARD_ALIGNMENT,
        }
    }

    /// `size`, or the next smaller one that the code takes where parity is made. lip243 aligns its chunks itself.
    pub fn aligned(&self, size: usize) -> usize {
        let is_leopard = self.enable_reed_solomon && self.erasure_code == ErasureCode::Leopard;
        if is_leopard && self.wire_format != WireFormat::Lip243 {
            size - size % SHARD_ALIGNMENT
        } else {
            size
        }
    }
}

/// Validated settings and what follows from them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    settings: Settings,
    parity_rate_millionths: u64,
    chunk_size_bytes: usize,
    data_segment_count_max: u64,
}

/// A setting is out of range.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{field} is {value}: it must be {limit}")]
pub struct ParameterError {
    /// The setting.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What is allowed.
    pub limit: String,
}

/// How many segments a payload has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Data segments; 0 where draft sends the payload unmodified.
    pub data: usize,
    /// Parity segments.
    pub parity: usize,
}

impl Parameters {
    /// Validates `settings`.
    ///
    /// # Errors
    /// [`ParameterError`] naming the setting, its value and what is allowed.
    pub fn new(settings: Settings) -> Result<Self, ParameterError> {
        let refuse = |field, value: String, limit: String| {
            Err(ParameterError {
                field,
                value,
                limit,
            })
        };
        let size = settings.segment_size_bytes;
        let lip243 = settings.wire_format == WireFormat::Lip243;
        let minimum = if lip243 {
            settings.segment_bytes_min()
        } else {
            1
        };
        if !(minimum..=1 << 30).contains(&size) {
            let limit = format!(
                "from {minimum} to {} under {}",
                1 << 30,
                settings.wire_format
            );
            return refuse("segment_size_bytes", size.to_string(), limit);
        }
        if settings.aligned(size) != size {
            let nearest = (size + SHARD_ALIGNMENT / 2) / SHARD_ALIGNMENT * SHARD_ALIGNMENT;
            let nearest = nearest.max(SHARD_ALIGNMENT);
            let limit = format!("a multiple of 64 for leopard: the nearest is {nearest}");
            return refuse("segment_size_bytes", size.to_string(), limit);
        }
        if !(0.0..=1.0).contains(&settings.parity_rate) {
            let limit = "a number from 0 to 1".to_owned();
            return refuse("parity_rate", settings.parity_rate.to_string(), limit);
        }
        if !(2..=segment::TOTAL_SEGMENTS_MAX).contains(&settings.max_total_segments) {
            let limit = "from 2 to 256".to_owned();
            return refuse(
                "max_total_segments",
                settings.max_total_segments.to_string(),
                limit,
            );
        }
        if settings.max_tail_candidates == 0 {
            return refuse(
                "max_tail_candidates",
                "0".to_owned(),
                "at least 1".to_owned(),
            );
        }
        let chunk_size_bytes = if lip243 {
            (size - LIP243_RESERVE) / SHARD_ALIGNMENT * SHARD_ALIGNMENT
        } else {
            size
        };
        let mut parameters = Parameters {
            settings,
            parity_rate_millionths: (settings.parity_rate * RATE_SCALE as f64).round() as u64,
            chunk_size_bytes,
            data_segment_count_max: 0,
        };
        let total = u64::from(settings.max_total_segments);
        parameters.data_segment_count_max = (1..total)
            .rev()
            .find(|data| parameters.fits(*data))
            .unwrap_or(0);
        if parameters.data_segment_count_max == 0 {
            let limit = "at least 3 where a single segment has parity".to_owned();
            return refuse("max_total_segments", total.to_string(), limit);
        }
        Ok(parameters)
    }

    /// What was validated.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// These parameters without parity.
    pub(super) fn without_parity(mut self) -> Self {
        self.settings.enable_reed_solomon = false;
        self.data_segment_count_max = u64::from(self.settings.max_total_segments) - 1;
        self
    }

    /// Payload bytes in one data segment: the segment size, or what lip243's bound on the
    /// serialized segment leaves, aligned to 64.
    pub fn chunk_size_bytes(&self) -> usize {
        self.chunk_size_bytes
    }

    /// The largest payload of one message. draft sends payloads of one segment unmodified.
    pub fn max_payload_bytes(&self) -> usize {
        self.chunk_size_bytes
            .saturating_mul(self.data_segment_count_max as usize)
    }

    /// How many segments a payload of `payload_length` bytes has; zero of both where draft sends
    /// it unmodified.
    ///
    /// # Errors
    /// [`SegmentationError::PayloadTooLarge`].
    pub fn counts(&self, payload_length: usize) -> Result<Counts, SegmentationError> {
        let limit_bytes = self.max_payload_bytes();
        if payload_length > limit_bytes {
            return Err(SegmentationError::PayloadTooLarge {
                payload_bytes: payload_length,
                limit_bytes,
            });
        }
        let draft = self.settings.wire_format == WireFormat::Draft;
        if draft && payload_length <= self.chunk_size_bytes {
            return Ok(Counts { data: 0, parity: 0 });
        }
        let data = payload_length.div_ceil(self.chunk_size_bytes).max(1);
        Ok(Counts {
            data,
            parity: self.parity_count(data as u64) as usize,
        })
    }

    /// The most parity segments that `data` ones may have: what a message announces whose parity is made
    /// on demand. As many as data (lip243: one fewer), within the limit of the code and of
    /// `max_total_segments`; none of a single segment, nor of segments that the code does not take.
    pub fn parity_bound(&self, data: usize) -> usize {
        let leopard = self.settings.erasure_code == ErasureCode::Leopard;
        if data < 2 || (leopard && !self.chunk_size_bytes.is_multiple_of(SHARD_ALIGNMENT)) {
            return 0;
        }
        let total = self.settings.max_total_segments as usize;
        let most = match self.settings.wire_format {
            WireFormat::Lip243 => data - 1,
            WireFormat::Raw | WireFormat::Draft => data,
        };
        let by_code = match self.settings.erasure_code {
            ErasureCode::Vandermonde => (FIELD_SIZE as usize).saturating_sub(data),
            // Leopard counts parity as the next power of two.
            ErasureCode::Leopard => match (FIELD_SIZE as usize).saturating_sub(data) {
                0 => 0,
                room => 1 << room.ilog2(),
            },
        };
        most.min(by_code).min((total - 1).saturating_sub(data))
    }

    /// specification 002, parityRate: ceil of rate x data in millionths, capped at the number of
    /// data segments, which is Leopard's bound; draft: floor, as deployed; lip243: one fewer.
    pub(super) fn parity_count(&self, data: u64) -> u64 {
        if !self.settings.enable_reed_solomon
            || (data == 1 && !self.settings.parity_for_single_segment)
        {
            return 0;
        }
        let scaled = self.parity_rate_millionths * data;
        match self.settings.wire_format {
            WireFormat::Raw => scaled.div_ceil(RATE_SCALE).min(data),
            WireFormat::Draft => (scaled / RATE_SCALE).min(data),
            WireFormat::Lip243 => scaled.div_ceil(RATE_SCALE).min(data - 1),
        }
    }

    fn fits(&self, data: u64) -> bool {
        let single = data == 1 && self.settings.wire_format == WireFormat::Draft;
        let parity = if single { 0 } else { self.parity_count(data) };
        // specification 002, Validation: strictly fewer than maxTotalSegments.
        if data + parity >= u64::from(self.settings.max_total_segments) {
            return false;
        }
        let points = match self.settings.erasure_code {
            ErasureCode::Leopard => data + parity.next_power_of_two(),
            ErasureCode::Vandermonde => data + parity,
        };
        parity == 0 || points <= FIELD_SIZE
    }
}
