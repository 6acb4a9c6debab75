//! Payload to segments: counts, limits, parity and the segments themselves.
//!
//! The payload is read where it lies; each segment is allocated once, at its exact size, by
//! whoever writes it.

use thiserror::Error;

use crate::erasure::{self, ErasureCode, ErasureError};
use crate::keccak::{keccak256, keccak256_many};
use crate::wire::segment::{self, HASH_LENGTH, Header, Received, Slot, WireFormat};

/// Parity rates are integers in millionths, so that every peer counts the same.
const RATE_SCALE: u64 = 1_000_000;

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
    /// The code refuses the shards: a broken invariant of the counts.
    #[error(transparent)]
    Erasure(#[from] ErasureError),
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
            LIP243_RESERVE + SHARD_ALIGNMENT
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
        let leopard = settings.enable_reed_solomon && settings.erasure_code == ErasureCode::Leopard;
        if leopard && !lip243 && !size.is_multiple_of(SHARD_ALIGNMENT) {
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

    /// specification 002, parityRate: ceil of rate x data in millionths, capped at the number of
    /// data segments, which is Leopard's bound; draft: floor, as deployed; lip243: one fewer.
    fn parity_count(&self, data: u64) -> u64 {
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

    /// The payload where draft sends it unmodified, as the only transport message.
    pub fn unmodified(&self) -> Option<&'a [u8]> {
        (self.counts.data == 0).then_some(self.payload)
    }

    /// Number of transport messages.
    pub fn count(&self) -> usize {
        if self.counts.data == 0 {
            1
        } else {
            self.counts.data + self.counts.parity
        }
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

    /// Writes transport message `ordinal` into `out`, which has exactly its length.
    pub fn write(&self, ordinal: usize, out: &mut [u8]) {
        match self.unmodified() {
            Some(payload) => out.copy_from_slice(payload),
            None => {
                let (header, shard) = self.part(ordinal);
                header.encode_into(self.wire_format, shard, out);
            }
        }
    }

    /// All transport messages.
    pub fn to_vecs(&self) -> Vec<Vec<u8>> {
        (0..self.count())
            .map(|ordinal| match self.unmodified() {
                Some(payload) => payload.to_vec(),
                None => {
                    let (header, shard) = self.part(ordinal);
                    header.encode(self.wire_format, shard)
                }
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

/// As [`segment`] for many payloads, whose hashes are computed side by side.
///
/// # Errors
/// That of the first payload that fails.
pub fn segment_many<'a>(
    payloads: &[&'a [u8]],
    parameters: &Parameters,
) -> Result<Vec<Segments<'a>>, SegmentationError> {
    let counts: Vec<Counts> = payloads
        .iter()
        .map(|payload| admit(payload, parameters))
        .collect::<Result<_, _>>()?;
    let mut hashes = vec![[0; HASH_LENGTH]; payloads.len()];
    keccak256_many(payloads, &mut hashes);
    payloads
        .iter()
        .zip(hashes)
        .zip(counts)
        .map(|((payload, hash), counts)| {
            let hash = if counts.data == 0 {
                [0; HASH_LENGTH]
            } else {
                hash
            };
            prepare(payload, hash, counts, parameters)
        })
        .collect()
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
    let chunk_size_bytes = parameters.chunk_size_bytes;
    let parity = if counts.parity == 0 {
        Vec::new()
    } else {
        // An empty payload has one data shard all the same, of padding alone.
        let mut shards: Vec<&[u8]> = payload.chunks(chunk_size_bytes).collect();
        shards.resize(counts.data, &[]);
        let code = parameters.settings.erasure_code;
        erasure::encode(code, &shards, counts.parity, chunk_size_bytes)?
    };
    Ok(Segments {
        wire_format: parameters.settings.wire_format,
        chunk_size_bytes,
        payload,
        entire_message_hash,
        counts,
        parity,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn settings() -> Settings {
        Settings {
            segment_size_bytes: 102_400,
            enable_reed_solomon: true,
            parity_rate: 0.125,
            parity_for_single_segment: false,
            erasure_code: ErasureCode::Leopard,
            wire_format: WireFormat::Raw,
            max_total_segments: 256,
            max_tail_candidates: 102_400,
        }
    }

    fn counts(settings: Settings, payload_length: usize) -> (usize, usize) {
        let counts = Parameters::new(settings)
            .unwrap()
            .counts(payload_length)
            .unwrap();
        (counts.data, counts.parity)
    }

    #[test]
    fn counts_follow_the_wire() {
        let raw = settings();
        assert_eq!(counts(raw, 0), (1, 0));
        assert_eq!(counts(raw, 102_400), (1, 0));
        assert_eq!(counts(raw, 102_401), (2, 1));
        assert_eq!(counts(raw, 102_400 * 9), (9, 2));
        let single = Settings {
            parity_for_single_segment: true,
            ..raw
        };
        assert_eq!(counts(single, 1), (1, 1));
        let draft = Settings {
            wire_format: WireFormat::Draft,
            ..raw
        };
        assert_eq!(counts(draft, 102_400), (0, 0));
        assert_eq!(counts(draft, 102_401), (2, 0));
        assert_eq!(counts(draft, 102_400 * 9), (9, 1));
        let full = Settings {
            parity_rate: 1.0,
            ..raw
        };
        assert_eq!(counts(full, 102_400 * 9), (9, 9));
        let lip243 = Settings {
            wire_format: WireFormat::Lip243,
            ..full
        };
        assert_eq!(counts(lip243, 102_272 * 9), (9, 8));
    }

    #[test]
    fn the_largest_payload_follows_from_both_bounds() {
        let limit = |settings| Parameters::new(settings).unwrap().max_payload_bytes();
        // (224, 28) is the last pair inside Leopard's field: 225 data need 29 parity.
        assert_eq!(limit(settings()), 224 * 102_400);
        let vandermonde = Settings {
            erasure_code: ErasureCode::Vandermonde,
            ..settings()
        };
        assert_eq!(limit(vandermonde), 226 * 102_400);
        let plain = Settings {
            enable_reed_solomon: false,
            ..settings()
        };
        assert_eq!(limit(plain), 255 * 102_400);
        let lip243 = Settings {
            wire_format: WireFormat::Lip243,
            ..settings()
        };
        assert_eq!(limit(lip243), 224 * 102_272);
        let parameters = Parameters::new(settings()).unwrap();
        let (payload_bytes, limit_bytes) = (224 * 102_400 + 1, 224 * 102_400);
        assert_eq!(
            parameters.counts(payload_bytes),
            Err(SegmentationError::PayloadTooLarge {
                payload_bytes,
                limit_bytes
            })
        );
    }

    #[test]
    fn refuses_settings_out_of_range() {
        let error = |settings| Parameters::new(settings).unwrap_err().to_string();
        assert_eq!(
            error(Settings {
                segment_size_bytes: 1000,
                ..settings()
            }),
            "segment_size_bytes is 1000: it must be a multiple of 64 for leopard: the nearest is 1024"
        );
        let lip243 = Settings {
            wire_format: WireFormat::Lip243,
            ..settings()
        };
        assert!(
            error(Settings {
                segment_size_bytes: 191,
                ..lip243
            })
            .contains("from 192")
        );
        assert!(
            error(Settings {
                parity_rate: f64::NAN,
                ..settings()
            })
            .contains("parity_rate")
        );
        let two = Settings {
            max_total_segments: 2,
            ..settings()
        };
        assert_eq!(Parameters::new(two).unwrap().max_payload_bytes(), 102_400);
        let single = Settings {
            parity_for_single_segment: true,
            ..two
        };
        assert!(error(single).contains("max_total_segments is 2"));
    }

    #[test]
    fn draft_refuses_a_small_payload_that_reads_as_a_segment() {
        let draft = Settings {
            wire_format: WireFormat::Draft,
            ..settings()
        };
        let parameters = Parameters::new(draft).unwrap();
        let large = vec![1; 102_401];
        let inner = segment(&large, &parameters)
            .unwrap()
            .to_vecs()
            .pop()
            .unwrap();
        assert!(matches!(
            segment(&inner, &parameters),
            Err(SegmentationError::ReadsAsSegment { .. })
        ));
        assert_eq!(
            segment(b"", &parameters).unwrap_err(),
            SegmentationError::Empty
        );
        assert_eq!(
            segment(b"hello", &parameters).unwrap().to_vecs(),
            [b"hello"]
        );
    }
}
