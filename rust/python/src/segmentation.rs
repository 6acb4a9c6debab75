//! Segmentation: parameters, segments and headers of `_native.pyi`.

use std::ops::Range;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use shardwire_core::hex::hex;
use shardwire_core::segment::{
    self, ParameterError, Parameters, SegmentationError, Segments, Settings,
};
use shardwire_core::wire::segment::{Received, Slot, WireFormat, decode};
use shardwire_stub::documented;

use crate::buffer::{Buffer, detached};
use crate::erasure::parse_code;
use crate::error::Error;
use crate::fresh::new_bytes;
use crate::record::{Field, Record, field};

/// The wire that `name` names.
pub fn parse_wire_format(name: &str) -> Result<WireFormat, Error> {
    name.parse().map_err(|()| Error::Choice {
        field: "wire_format",
        value: name.to_owned(),
        choices: "'raw', 'draft' or 'lip243'",
    })
}

fn unsigned<T: TryFrom<i64>>(field: &'static str, value: i64) -> Result<T, ParameterError> {
    T::try_from(value).map_err(|_| ParameterError {
        field,
        value: value.to_string(),
        limit: "a positive integer".to_owned(),
    })
}

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct SegmentationParameters {
    pub inner: Parameters,
}

#[documented]
#[pymethods]
impl SegmentationParameters {
    #[new]
    #[pyo3(signature = (
        *, segment_size_bytes, enable_reed_solomon, parity_rate, parity_for_single_segment,
        erasure_code, wire_format, max_total_segments, max_tail_candidates
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one argument a setting, all by keyword"
    )]
    fn new(
        segment_size_bytes: i64,
        enable_reed_solomon: bool,
        parity_rate: f64,
        parity_for_single_segment: bool,
        erasure_code: &str,
        wire_format: &str,
        max_total_segments: i64,
        max_tail_candidates: i64,
    ) -> Result<Self, Error> {
        let settings = Settings {
            segment_size_bytes: unsigned("segment_size_bytes", segment_size_bytes)?,
            enable_reed_solomon,
            parity_rate,
            parity_for_single_segment,
            erasure_code: parse_code(erasure_code)?,
            wire_format: parse_wire_format(wire_format)?,
            max_total_segments: unsigned("max_total_segments", max_total_segments)?,
            max_tail_candidates: unsigned("max_tail_candidates", max_tail_candidates)?,
        };
        Ok(SegmentationParameters {
            inner: Parameters::new(settings)?,
        })
    }

    #[getter]
    fn chunk_size_bytes(&self) -> usize {
        self.inner.chunk_size_bytes()
    }

    #[getter]
    fn max_payload_bytes(&self) -> usize {
        self.inner.max_payload_bytes()
    }

    fn segment_counts(&self, payload_length: usize) -> Result<(usize, usize), Error> {
        let counts = self.inner.counts(payload_length)?;
        Ok((counts.data, counts.parity))
    }
}

#[documented]
#[pyfunction]
#[pyo3(name = "segment")]
pub fn segment_payload<'py>(
    py: Python<'py>,
    payload: Buffer<'py>,
    parameters: &SegmentationParameters,
) -> Result<Bound<'py, PyList>, Error> {
    let bytes = payload.as_bytes();
    let segments = detached(py, bytes.len(), || {
        segment::segment(bytes, &parameters.inner)
    })?;
    messages(py, &segments, &payload)
}

/// Segments, how many of them hold data, Keccak-256 of the payload in hex, and parity that can be made on demand.
type Message<'py> = (Bound<'py, PyList>, usize, String, usize);

#[documented]
#[pyfunction]
pub fn segment_message<'py>(
    py: Python<'py>,
    payload: Buffer<'py>,
    parameters: &SegmentationParameters,
    parity_millionths: Option<u32>,
) -> Result<Message<'py>, Error> {
    let (bytes, parameters) = (payload.as_bytes(), &parameters.inner);
    let (segments, hash) = detached(py, bytes.len(), || {
        let segments = match parity_millionths {
            Some(first) => segment::segment_on_demand(bytes, parameters, first)?,
            None => segment::segment(bytes, parameters)?,
        };
        let hash = segments.payload_hash();
        Ok::<_, SegmentationError>((segments, hash))
    })?;
    let contents = messages(py, &segments, &payload)?;
    Ok((
        contents,
        segments.data_count(),
        hex(&hash),
        segments.reserve(),
    ))
}

/// Writes each segment straight into the `bytes` that is returned.
pub fn messages<'py>(
    py: Python<'py>,
    segments: &Segments<'_>,
    payload: &Buffer<'py>,
) -> Result<Bound<'py, PyList>, Error> {
    if segments.unmodified().is_some()
        && let Some(bytes) = payload.clone().into_exact_bytes()
    {
        return Ok(PyList::new(py, [bytes])?);
    }
    let lengths: Vec<usize> = (0..segments.count())
        .map(|ordinal| segments.encoded_length(ordinal))
        .collect();
    let messages = new_bytes(py, &lengths, |ordinal, out| segments.write(ordinal, out))?;
    Ok(PyList::new(py, messages)?)
}

/// More than any wire can say that a payload has.
const TOTAL_SEGMENTS_MAX: u32 = 1 << 17;

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct SegmentHeader {
    wire_format: WireFormat,
    header: shardwire_core::wire::segment::Header,
    source: Py<PyBytes>,
    payload: Range<usize>,
}

impl SegmentHeader {
    fn index_of(&self, is_parity: bool) -> Option<u8> {
        match self.header.slot {
            Slot::Data(index) if !is_parity => Some(index),
            Slot::Parity(index) if is_parity => Some(index),
            _ => None,
        }
    }
}

/// A segment, its wire format, and how many segments its message may have.
type Inspected = (Py<PyBytes>, &'static str, u32);

#[documented]
#[pymethods]
impl SegmentHeader {
    #[getter]
    fn wire_format(&self) -> &'static str {
        self.wire_format.name()
    }

    #[getter]
    fn entire_message_hash<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.header.entire_message_hash)
    }

    #[getter]
    fn is_parity(&self) -> bool {
        matches!(self.header.slot, Slot::Parity(_))
    }

    #[getter]
    fn data_segment_index(&self) -> Option<u8> {
        self.index_of(false)
    }

    #[getter]
    fn data_segment_count(&self) -> Option<u16> {
        self.header.data_segment_count
    }

    #[getter]
    fn parity_segment_index(&self) -> Option<u8> {
        self.index_of(true)
    }

    #[getter]
    fn parity_segment_count(&self) -> Option<u16> {
        self.header.parity_segment_count
    }

    #[getter]
    fn payload_length(&self) -> Option<u64> {
        self.header.payload_length
    }

    #[getter]
    fn segment_payload_length(&self) -> usize {
        self.payload.len()
    }

    #[getter]
    fn segment_payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.source.as_bytes(py)[self.payload.clone()])
    }

    fn __eq__(&self, other: &Self, py: Python<'_>) -> PyResult<bool> {
        self.equals(other, py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.repr(py)
    }

    /// For `pickle` and `copy`: the segment, to be looked at again.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Inspected)> {
        let inspect = py.import("shardwire._native")?.getattr("inspect_segment")?;
        let segment = self.source.clone_ref(py);
        Ok((inspect, (segment, self.wire_format(), TOTAL_SEGMENTS_MAX)))
    }
}

impl Record for SegmentHeader {
    const NAME: &'static str = "SegmentHeader";

    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Field<'py>>> {
        Ok(vec![
            field(py, "wire_format", self.wire_format())?,
            field(py, "entire_message_hash", self.entire_message_hash(py))?,
            field(py, "is_parity", self.is_parity())?,
            field(py, "data_segment_index", self.data_segment_index())?,
            field(py, "data_segment_count", self.data_segment_count())?,
            field(py, "parity_segment_index", self.parity_segment_index())?,
            field(py, "parity_segment_count", self.parity_segment_count())?,
            field(py, "payload_length", self.payload_length())?,
            field(py, "segment_payload", self.segment_payload(py))?,
        ])
    }
}

#[documented]
#[pyfunction]
#[pyo3(signature = (segment, wire_format, max_total_segments = 256))]
pub fn inspect_segment(
    segment: Buffer<'_>,
    wire_format: &str,
    max_total_segments: u32,
) -> Result<Option<SegmentHeader>, Error> {
    let wire_format = parse_wire_format(wire_format)?;
    let bytes = segment.as_bytes();
    let Received::Segment(found) = decode(bytes, wire_format, max_total_segments)? else {
        return Ok(None);
    };
    let start = if found.payload.is_empty() {
        0
    } else {
        found.payload.as_ptr().addr() - bytes.as_ptr().addr()
    };
    let payload = start..start + found.payload.len();
    let header = found.header;
    Ok(Some(SegmentHeader {
        wire_format,
        header,
        source: segment.unbind(),
        payload,
    }))
}
