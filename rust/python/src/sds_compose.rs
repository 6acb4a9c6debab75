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

/// What `compose` puts together.
pub struct History<'py> {
    items: Vec<Item<'py>>,
    /// The entries that count as said.
    pub said: Vec<Bound<'py, LogEntry>>,
    /// Bytes left of the budget.
    pub left: usize,
}

impl<'py> History<'py> {
    pub fn ids(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let ids = self.items.iter();
        let ids = ids.map(|item| item.entry.borrow().message_id.clone_ref(py));
        PyTuple::new(py, ids.collect::<Vec<Py<PyString>>>())
    }

    /// Its fields as they stand in a message.
    pub fn fields(&self, py: Python<'py>, codec: &SdsCodec) -> PyResult<Vec<u8>> {
        encode(py, codec, &self.items)
    }
}

/// Marks the entry as named in the history of this number; false where it is already.
fn name(entry: &Bound<'_, LogEntry>, number: u64) -> bool {
    std::mem::replace(&mut entry.borrow_mut().named_in, number) != number
}

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
    budget: usize,
) -> PyResult<Composed<'py>> {
    let py = log.py();
    let history = compose(log, causal_size, &sources, owed, budget)?;
    let fields = history.fields(py, codec)?;
    Ok((history.ids(py)?, fields, history.said, history.left))
}

/// What `compose_history` does, before it is encoded.
pub fn compose<'py>(
    log: &Bound<'py, LocalLog>,
    causal_size: usize,
    sources: &[Bound<'py, PyAny>],
    owed: Vec<Bound<'py, LogEntry>>,
    mut budget: usize,
) -> PyResult<History<'py>> {
    let py = log.py();
    let number = log.borrow_mut().next_history();
    let mut causal = Vec::new();
    let mut said = Vec::new();
    for entry in log.borrow().newest(py, causal_size).into_iter().rev() {
        let item = Item { entry, whole: true };
        let size = item.size()?;
        if size > budget {
            break;
        }
        budget -= size;
        name(&item.entry, number);
        said.push(item.entry.clone());
        causal.push(item);
    }
    let mut items = Vec::new();
    'sources: for source in sources {
        let entries = match source.cast::<PyDict>() {
            Ok(entries) if entries.is_empty() => continue,
            Ok(entries) => entries.values(),
            Err(_) => source.cast::<PyList>()?.clone(),
        };
        for entry in entries.iter() {
            let entry = entry.cast_into::<LogEntry>()?;
            if entry.borrow().named_in == number {
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
            name(&item.entry, number);
            said.push(item.entry.clone());
            items.push(item);
        }
    }
    for entry in owed {
        let item = Item { entry, whole: true };
        let size = item.size()?;
        if size <= budget && name(&item.entry, number) {
            budget -= size;
            items.push(item);
        }
    }
    items.extend(causal.into_iter().rev());
    Ok(History {
        items,
        said,
        left: budget,
    })
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
    repeats_max: u8,
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
        if by_sync && (heard.is_empty() || !heard.contains(&message_id)?) {
            held.repeats = repeats_max;
            said_before.set_item(&message_id, &entry)?;
        }
        drop(held);
        newly.push(entry);
    }
    Ok((newly, numbers))
}

/// What of `said_before` a sync names once more: what is still to be said again and was said at
/// `oldest_ms` or later, the newest `count_max` of it. The rest is taken out.
#[pyfunction]
#[pyo3(signature = (said_before, oldest_ms, count_max, /))]
pub fn still_repeated<'py>(
    said_before: &Bound<'py, PyDict>,
    oldest_ms: i64,
    count_max: usize,
) -> PyResult<Vec<Bound<'py, LogEntry>>> {
    let mut kept = Vec::with_capacity(said_before.len());
    let mut gone = Vec::new();
    for (message_id, entry) in said_before {
        let entry = entry.cast_into::<LogEntry>()?;
        let held = entry.borrow();
        let again = held.repeats > 0 && held.spoken_ms >= oldest_ms;
        drop(held);
        if again {
            kept.push((message_id, entry));
        } else {
            gone.push(message_id);
        }
    }
    let first = kept.len().saturating_sub(count_max);
    gone.extend(kept.drain(..first).map(|(message_id, _)| message_id));
    for message_id in gone {
        said_before.del_item(message_id)?;
    }
    Ok(kept.into_iter().map(|(_, entry)| entry).collect())
}
