//! The outcomes of a reassembler as frozen Python records.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use shardwire_core::reassemble::{Dropped, Outcome, Reconstructed};
use shardwire_stub::documented;

use crate::fresh::new_bytes;
use crate::record::{Field, Record, field};

/// The record of one outcome.
pub fn wrap(py: Python<'_>, outcome: Outcome) -> PyResult<Bound<'_, PyAny>> {
    Ok(match outcome {
        Outcome::Stored {
            entire_message_hash,
            segments_held,
            segments_needed,
            hash_mismatch,
        } => {
            let entire_message_hash = PyBytes::new(py, &entire_message_hash).unbind();
            let stored = SegmentStored {
                entire_message_hash,
                segments_held,
                segments_needed,
                hash_mismatch,
            };
            Bound::new(py, stored)?.into_any()
        }
        Outcome::Reconstructed(found) => {
            Bound::new(py, PayloadReconstructed::of(py, &found)?)?.into_any()
        }
        Outcome::Discarded { reason, detail } => Bound::new(
            py,
            SegmentDiscarded {
                reason: reason.name().into(),
                detail,
            },
        )?
        .into_any(),
        Outcome::Dropped(dropped) => Bound::new(py, SetDropped::of(py, dropped))?.into_any(),
    })
}

#[documented]
#[pyclass(frozen, get_all, module = "shardwire._native")]
pub struct SegmentStored {
    entire_message_hash: Py<PyBytes>,
    segments_held: usize,
    segments_needed: Option<usize>,
    hash_mismatch: bool,
}

#[documented]
#[pymethods]
impl SegmentStored {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str) {
        ("entire_message_hash", "segments_held", "segments_needed")
    }

    #[new]
    #[pyo3(signature = (entire_message_hash, segments_held, segments_needed = None, hash_mismatch = false))]
    fn new(
        entire_message_hash: Py<PyBytes>,
        segments_held: usize,
        segments_needed: Option<usize>,
        hash_mismatch: bool,
    ) -> Self {
        SegmentStored {
            entire_message_hash,
            segments_held,
            segments_needed,
            hash_mismatch,
        }
    }

    fn __eq__(&self, other: &Self, py: Python<'_>) -> PyResult<bool> {
        self.equals(other, py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.repr(py)
    }

    /// For `pickle` and `copy`.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.values(py)
    }
}

impl Record for SegmentStored {
    const NAME: &'static str = "SegmentStored";

    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Field<'py>>> {
        Ok(vec![
            field(py, "entire_message_hash", self.entire_message_hash.bind(py))?,
            field(py, "segments_held", self.segments_held)?,
            field(py, "segments_needed", self.segments_needed)?,
            field(py, "hash_mismatch", self.hash_mismatch)?,
        ])
    }
}

#[documented]
#[pyclass(frozen, get_all, module = "shardwire._native")]
pub struct PayloadReconstructed {
    entire_message_hash: Py<PyBytes>,
    payload: Py<PyBytes>,
    data_segment_count: usize,
    parity_segment_count: usize,
    data_segments_recovered: Py<PyTuple>,
    erasure_code: Option<Cow<'static, str>>,
    bad_segments: Py<PyTuple>,
}

#[documented]
#[pymethods]
impl PayloadReconstructed {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("entire_message_hash", "payload")
    }

    #[new]
    #[pyo3(signature = (entire_message_hash, payload, data_segment_count, parity_segment_count, data_segments_recovered, erasure_code, bad_segments))]
    fn new(
        entire_message_hash: Py<PyBytes>,
        payload: Py<PyBytes>,
        data_segment_count: usize,
        parity_segment_count: usize,
        data_segments_recovered: Py<PyTuple>,
        erasure_code: Option<String>,
        bad_segments: Py<PyTuple>,
    ) -> Self {
        PayloadReconstructed {
            entire_message_hash,
            payload,
            data_segment_count,
            parity_segment_count,
            data_segments_recovered,
            erasure_code: erasure_code.map(Cow::Owned),
            bad_segments,
        }
    }

    fn __eq__(&self, other: &Self, py: Python<'_>) -> PyResult<bool> {
        self.equals(other, py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.repr(py)
    }

    /// For `pickle` and `copy`.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.values(py)
    }
}

impl Record for PayloadReconstructed {
    const NAME: &'static str = "PayloadReconstructed";

    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Field<'py>>> {
        Ok(vec![
            field(py, "entire_message_hash", self.entire_message_hash.bind(py))?,
            field(py, "payload", self.payload.bind(py))?,
            field(py, "data_segment_count", self.data_segment_count)?,
            field(py, "parity_segment_count", self.parity_segment_count)?,
            field(
                py,
                "data_segments_recovered",
                self.data_segments_recovered.bind(py),
            )?,
            field(py, "erasure_code", self.erasure_code.as_deref())?,
            field(py, "bad_segments", self.bad_segments.bind(py))?,
        ])
    }
}

impl PayloadReconstructed {
    fn of(py: Python<'_>, found: &Reconstructed) -> PyResult<Self> {
        let lengths = [found.payload.len()];
        let payload = new_bytes(py, &lengths, |_, out| found.payload.write_to(out))?;
        let payload = payload.into_iter().next().expect("one for one length");
        Ok(PayloadReconstructed {
            entire_message_hash: PyBytes::new(py, &found.entire_message_hash).unbind(),
            payload: payload.unbind(),
            data_segment_count: found.data_segment_count,
            parity_segment_count: found.parity_segment_count,
            data_segments_recovered: PyTuple::new(py, &found.data_segments_recovered)?.unbind(),
            erasure_code: found.erasure_code.map(|code| code.as_str().into()),
            bad_segments: PyTuple::new(py, &found.bad_segments)?.unbind(),
        })
    }
}

#[documented]
#[pyclass(frozen, get_all, module = "shardwire._native")]
pub struct SegmentDiscarded {
    reason: Cow<'static, str>,
    detail: String,
}

#[documented]
#[pymethods]
impl SegmentDiscarded {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("reason", "detail")
    }

    #[new]
    #[pyo3(signature = (reason, detail))]
    fn new(reason: String, detail: String) -> Self {
        SegmentDiscarded {
            reason: reason.into(),
            detail,
        }
    }

    fn __eq__(&self, other: &Self, py: Python<'_>) -> PyResult<bool> {
        self.equals(other, py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.repr(py)
    }

    /// For `pickle` and `copy`.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.values(py)
    }
}

impl Record for SegmentDiscarded {
    const NAME: &'static str = "SegmentDiscarded";

    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Field<'py>>> {
        Ok(vec![
            field(py, "reason", self.reason.as_ref())?,
            field(py, "detail", self.detail.as_str())?,
        ])
    }
}

#[documented]
#[pyclass(frozen, get_all, module = "shardwire._native")]
pub struct SetDropped {
    entire_message_hash: Py<PyBytes>,
    message_key: Option<Py<PyBytes>>,
    sender: Option<String>,
    reason: Cow<'static, str>,
}

#[documented]
#[pymethods]
impl SetDropped {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str) {
        ("entire_message_hash", "reason")
    }

    #[new]
    #[pyo3(signature = (entire_message_hash, message_key, sender, reason))]
    fn new(
        entire_message_hash: Py<PyBytes>,
        message_key: Option<Py<PyBytes>>,
        sender: Option<String>,
        reason: String,
    ) -> Self {
        SetDropped {
            entire_message_hash,
            message_key,
            sender,
            reason: reason.into(),
        }
    }

    fn __eq__(&self, other: &Self, py: Python<'_>) -> PyResult<bool> {
        self.equals(other, py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        self.repr(py)
    }

    /// For `pickle` and `copy`.
    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.values(py)
    }
}

impl Record for SetDropped {
    const NAME: &'static str = "SetDropped";

    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Field<'py>>> {
        Ok(vec![
            field(py, "entire_message_hash", self.entire_message_hash.bind(py))?,
            field(
                py,
                "message_key",
                self.message_key.as_ref().map(|value| value.bind(py)),
            )?,
            field(py, "sender", self.sender.as_deref())?,
            field(py, "reason", self.reason.as_ref())?,
        ])
    }
}

impl SetDropped {
    /// The record of a set that was given up.
    pub fn of(py: Python<'_>, dropped: Dropped) -> Self {
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
        SetDropped {
            entire_message_hash: bytes(&dropped.entire_message_hash),
            message_key: dropped.message_key.as_deref().map(bytes),
            sender: dropped.sender,
            reason: dropped.reason.name().into(),
        }
    }
}
