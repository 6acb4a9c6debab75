//! The stored form of sends of ours: `_native.pyi`, "Scalable Data Sync".

use std::collections::BTreeSet;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PySet, PyString};
use shardwire_core::crc32::crc32;

use crate::sds_originals::Originals;
use crate::sds_outgoing::{OutgoingContent, OutgoingSend};
use crate::sds_record::{record_key, record_name};

const FINISHED: u8 = 1;
const GIVEN_UP: u8 = 2;
const FIXED: u8 = 4;
const FILTER: u8 = 8;
const ALONE: u8 = 16;

fn put_text(record: &mut Vec<u8>, text: &str) -> PyResult<()> {
    record.extend_from_slice(&u16::try_from(text.len())?.to_le_bytes());
    record.extend_from_slice(text.as_bytes());
    Ok(())
}

fn put_length(record: &mut Vec<u8>, length: usize) -> PyResult<()> {
    record.extend_from_slice(&u32::try_from(length)?.to_le_bytes());
    Ok(())
}

fn sealed<'py>(py: Python<'py>, mut record: Vec<u8>) -> Bound<'py, PyBytes> {
    record.extend_from_slice(&crc32(&record).to_le_bytes());
    PyBytes::new(py, &record)
}

impl OutgoingSend {
    fn record<'py>(&self, py: Python<'py>, version: u8) -> PyResult<Bound<'py, PyBytes>> {
        let count = self.contents.len(py);
        let filter = self.bloom_filter.as_ref().map(|filter| filter.as_bytes(py));
        let fields = self.history_fields.as_bytes(py);
        let alone = self.alone(py)?;
        // What is fixed at the first dispatch is wanted for the contents that follow it.
        let ids = self.history_ids.as_ref().filter(|_| !fields.is_empty());
        let ids = ids.map(|ids| ids.bind(py));
        let flags = u8::from(self.finished) * FINISHED
            + u8::from(self.given_up) * GIVEN_UP
            + u8::from(self.history_ids.is_some()) * FIXED
            + u8::from(filter.is_some()) * FILTER
            + u8::from(alone.is_some()) * ALONE;
        let filter = filter.unwrap_or_default();
        let mut record = Vec::with_capacity(64 + filter.len() + fields.len());
        record.extend_from_slice(&[version, flags]);
        record.extend_from_slice(&self.number.to_le_bytes());
        put_length(&mut record, count)?;
        record.extend_from_slice(&self.contents_needed.to_le_bytes());
        record.extend_from_slice(&self.header_left.to_le_bytes());
        put_length(&mut record, filter.len())?;
        put_length(&mut record, fields.len())?;
        put_length(&mut record, ids.map_or(0, |ids| ids.len()))?;
        record.extend_from_slice(filter);
        record.extend_from_slice(fields);
        for id in ids.into_iter().flatten() {
            put_text(&mut record, id.cast::<PyString>()?.to_str()?)?;
        }
        if let Some(content) = alone {
            content.borrow().put_state(py, &mut record)?;
        }
        let width = count.div_ceil(8);
        for name in &self.holders {
            put_text(&mut record, name.to_str(py)?)?;
            record.push(1);
        }
        let acknowledged = self.acknowledged.iter().flat_map(|dict| dict.bind(py));
        for (name, bits) in acknowledged {
            put_text(&mut record, name.cast::<PyString>()?.to_str()?)?;
            if width <= size_of::<u64>() {
                record.extend_from_slice(&bits.extract::<u64>()?.to_le_bytes()[..width]);
            } else {
                let bytes = bits.call_method1(intern!(py, "to_bytes"), (width, "little"))?;
                record.extend(bytes.cast::<PyBytes>()?.as_bytes());
            }
        }
        Ok(sealed(py, record))
    }
}

impl OutgoingContent {
    fn possible_names(&self, py: Python<'_>) -> PyResult<BTreeSet<String>> {
        match &self.possible {
            Some(possible) => possible.bind(py).extract(),
            None => Ok(BTreeSet::new()),
        }
    }

    /// What changes of a content: whether it waits, its timestamp, attempts, and who may have it.
    fn put_state(&self, py: Python<'_>, record: &mut Vec<u8>) -> PyResult<()> {
        let names = self.possible_names(py)?;
        record.push(u8::from(self.queued));
        record.extend_from_slice(&self.lamport.to_le_bytes());
        record.extend_from_slice(&self.attempts.to_le_bytes());
        put_length(record, names.len())?;
        names.iter().try_for_each(|name| put_text(record, name))
    }

    /// The id of the send that this content is all of.
    fn whole_send(&self, py: Python<'_>) -> PyResult<Option<Py<PyString>>> {
        let Some(send) = self.send.as_ref().map(|send| send.borrow(py)) else {
            return Ok(None);
        };
        Ok(send.alone(py)?.map(|_| send.send_id.clone_ref(py)))
    }

    fn record<'py>(&self, py: Python<'py>, version: u8) -> PyResult<Bound<'py, PyBytes>> {
        let send = self.send.as_ref().map(|send| send.borrow(py));
        let send_id = send
            .as_ref()
            .map_or(Ok(""), |send| send.send_id.to_str(py))?;
        let mut record = Vec::with_capacity(64);
        record.extend_from_slice(&[version, u8::from(self.queued)]);
        record.extend_from_slice(&self.ordinal.to_le_bytes());
        record.extend_from_slice(&self.lamport.to_le_bytes());
        record.extend_from_slice(&self.attempts.to_le_bytes());
        put_text(&mut record, send_id)?;
        for name in self.possible_names(py)? {
            put_text(&mut record, &name)?;
        }
        Ok(sealed(py, record))
    }
}

/// Adds to `out` the records of what changed in the outgoing buffer, and empties the lists of it.
///
/// `stored` has the ids of contents with a record of their own.
#[pyfunction]
#[pyo3(signature = (
    version, sends, by_id, originals, changed_sends, changed_contents, new_contents, new_wires,
    stored, out, /
))]
#[expect(clippy::too_many_arguments, reason = "one argument a container")]
pub fn store_outgoing<'py>(
    version: u8,
    sends: &Bound<'py, PyDict>,
    by_id: &Bound<'py, PyDict>,
    originals: &Bound<'py, Originals>,
    changed_sends: &Bound<'py, PyDict>,
    changed_contents: &Bound<'py, PyDict>,
    new_contents: &Bound<'py, PyDict>,
    new_wires: &Bound<'py, PyDict>,
    stored: &Bound<'py, PySet>,
    out: &Bound<'py, PyDict>,
) -> PyResult<()> {
    let py = out.py();
    let put = |kind: &Bound<'py, PyString>, id: &Bound<'py, PyAny>, value: Bound<'py, PyAny>| {
        out.set_item(record_name(kind, &record_key(id.cast()?)?)?, value)
    };
    let none = || py.None().into_bound(py);
    let message = intern!(py, "sds.message");
    let content = intern!(py, "sds.content");
    for (message_id, wire) in new_wires {
        put(message, &message_id, wire)?;
        if new_contents.contains(&message_id)? {
            new_contents.del_item(&message_id)?;
        } else {
            // Stored when it was queued; from now on the wire holds it.
            put(content, &message_id, none())?;
        }
    }
    new_wires.clear();
    for (message_id, data) in new_contents {
        put(content, &message_id, data)?;
    }
    new_contents.clear();
    let outgoing = intern!(py, "sds.outgoing");
    let kept = originals.borrow();
    for (message_id, never_left) in changed_contents {
        if let Some(known) = by_id.get_item(&message_id)? {
            let known = known.cast_into::<OutgoingContent>()?;
            if let Some(send_id) = known.borrow().whole_send(py)? {
                changed_sends.set_item(send_id, py.None())?;
                if stored.discard(&message_id)? {
                    put(outgoing, &message_id, none())?;
                }
                continue;
            }
            let record = known.borrow().record(py, version)?.into_any();
            put(outgoing, &message_id, record)?;
            stored.add(message_id)?;
            continue;
        }
        if stored.discard(&message_id)? {
            put(outgoing, &message_id, none())?;
        }
        if never_left.is_truthy()? {
            put(content, &message_id, none())?;
        }
        if !kept.__contains__(message_id.cast()?)? {
            put(message, &message_id, none())?;
        }
    }
    changed_contents.clear();
    for send_id in changed_sends.keys() {
        let record = match sends.get_item(&send_id)? {
            Some(send) => {
                let send = send.cast_into::<OutgoingSend>()?;
                send.borrow().record(py, version)?.into_any()
            }
            None => none(),
        };
        put(intern!(py, "sds.send"), &send_id, record)?;
    }
    changed_sends.clear();
    Ok(())
}
