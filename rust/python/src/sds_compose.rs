//! What a message of ours names: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyString, PyTuple};
use shardwire_core::wire::sds::{self, EntryView};

use crate::sds_codec::SdsCodec;
use crate::sds_log::{LocalLog, LogEntry};

/// Tags and lengths around the strings of one history entry, at most.
const ENTRY_FRAME_BYTES: usize = 14;

/// Ids, the fields as encoded, the entries that count as said, and the bytes left.
type Composed<'py> = (
    Bound<'py, PyTuple>,
    Vec<u8>,
    Vec<Bound<'py, LogEntry>>,
    usize,
);

/// One entry to encode, with or without hint and sender.
struct Item<'py> {
    entry: Bound<'py, LogEntry>,
    whole: bool,
}

impl Item<'_> {
    fn size(&self) -> PyResult<usize> {
        let py = self.entry.py();
        let entry = self.entry.borrow();
        let mut size = ENTRY_FRAME_BYTES + entry.message_id.to_str(py)?.len();
        if self.whole {
            size += entry.sender_id.to_str(py)?.len();
            let hint = entry.retrieval_hint.as_ref();
            size += hint.map_or(0, |hint| hint.as_bytes(py).len());
        }
        Ok(size)
    }
}

/// A causal history of at most `budget` bytes.
///
/// The newest `causal_size` delivered sends come first in claim and last in place. `sources`
/// follow as ids alone until one has no room, then those of `owed` that have, with hints.
#[pyfunction]
#[pyo3(signature = (codec, log, causal_size, sources, owed, budget, /))]
pub fn compose_history<'py>(
    codec: &SdsCodec,
    log: &Bound<'py, LocalLog>,
    causal_size: usize,
    sources: Vec<Bound<'py, PyAny>>,
    owed: Vec<Bound<'py, LogEntry>>,
    mut budget: usize,
) -> PyResult<Composed<'py>> {
    let py = log.py();
    let named = PySet::empty(py)?;
    let mut causal = Vec::new();
    let mut said = Vec::new();
    for entry in log.borrow().newest(py, causal_size)?.into_iter().rev() {
        let item = Item { entry, whole: true };
        let size = item.size()?;
        if size > budget {
            break;
        }
        budget -= size;
        named.add(&item.entry.borrow().message_id)?;
        said.push(item.entry.clone());
        causal.push(item);
    }
    let mut items = Vec::new();
    'sources: for source in sources {
        let entries = match source.cast::<PyDict>() {
            Ok(entries) => entries.values(),
            Err(_) => source.cast_into::<PyList>()?,
        };
        for entry in entries.iter() {
            let entry = entry.cast_into::<LogEntry>()?;
            if named.contains(&entry.borrow().message_id)? {
                continue;
            }
            let item = Item {
                entry,
                whole: false,
            };
            let size = item.size()?;
            if size > budget {
                break 'sources;
            }
            budget -= size;
            named.add(&item.entry.borrow().message_id)?;
            said.push(item.entry.clone());
            items.push(item);
        }
    }
    for entry in owed {
        let item = Item { entry, whole: true };
        let size = item.size()?;
        if size <= budget && !named.contains(&item.entry.borrow().message_id)? {
            budget -= size;
            named.add(&item.entry.borrow().message_id)?;
            items.push(item);
        }
    }
    items.extend(causal.into_iter().rev());
    let fields = encode(py, codec, &items)?;
    let ids = items
        .iter()
        .map(|item| item.entry.borrow().message_id.clone_ref(py));
    let ids = PyTuple::new(py, ids.collect::<Vec<Py<PyString>>>())?;
    Ok((ids, fields, said, budget))
}

fn encode(py: Python<'_>, codec: &SdsCodec, items: &[Item<'_>]) -> PyResult<Vec<u8>> {
    let borrowed: Vec<_> = items
        .iter()
        .map(|item| (item.entry.borrow(), item.whole))
        .collect();
    let mut views = Vec::with_capacity(items.len());
    for (entry, whole) in &borrowed {
        let hint = entry.retrieval_hint.as_ref().filter(|_| *whole);
        let sender_id = whole.then(|| entry.sender_id.to_str(py)).transpose()?;
        views.push(EntryView {
            message_id: entry.message_id.to_str(py)?.as_bytes(),
            retrieval_hint: hint.map(|hint| hint.as_bytes(py)),
            sender_id: sender_id.map(str::as_bytes),
        });
    }
    Ok(sds::encode_history(views, codec.wire_format()))
}

/// Notes in each of `entries` that a message of ours names it; gives those that were unsaid, and
/// their numbers.
///
/// Of what a sync said, `said_before` keeps what no other participant was `heard` to say, for
/// `repeats_max` further syncs.
#[pyfunction]
#[pyo3(signature = (
    entries, monotonic_ms, by_sync, repeats_max, delivered, incomplete, said_before, heard, /
))]
#[expect(clippy::too_many_arguments, reason = "one argument a container")]
pub fn note_said<'py>(
    entries: Vec<Bound<'py, LogEntry>>,
    monotonic_ms: i64,
    by_sync: bool,
    repeats_max: u32,
    delivered: &Bound<'py, PyDict>,
    incomplete: &Bound<'py, PyDict>,
    said_before: &Bound<'py, PyDict>,
    heard: &Bound<'py, PySet>,
) -> PyResult<(Vec<Bound<'py, LogEntry>>, Vec<u64>)> {
    let mut newly = Vec::new();
    let mut numbers = Vec::new();
    for entry in entries {
        let mut held = entry.borrow_mut();
        if held.unsaid == 0 {
            if by_sync && held.repeats > 0 {
                held.repeats -= 1;
            }
            continue;
        }
        let message_id = held.message_id.clone_ref(entry.py());
        if delivered.contains(&message_id)? {
            delivered.del_item(&message_id)?;
        } else if incomplete.contains(&message_id)? {
            incomplete.del_item(&message_id)?;
        }
        numbers.push(held.unsaid);
        held.unsaid = 0;
        held.spoken_ms = monotonic_ms;
        if by_sync && !heard.contains(&message_id)? {
            held.repeats = repeats_max;
            said_before.set_item(&message_id, &entry)?;
        }
        drop(held);
        newly.push(entry);
    }
    Ok((newly, numbers))
}
