//! The delivered sends that no delivered send follows yet: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::sds_log::{LogEntry, discard, first_key};

/// Characters of a send id.
pub const SEND_ID_LENGTH: usize = 32;

/// The send that a message id names under the rule "send".
fn send_key(message_id: &str) -> &str {
    if message_id.is_ascii() {
        return &message_id[..message_id.len().min(SEND_ID_LENGTH)];
    }
    let end = message_id.char_indices().nth(SEND_ID_LENGTH);
    end.map_or(message_id, |(end, _)| &message_id[..end])
}

/// So few heads are compared one by one: to make and hash a key takes longer.
const COMPARED_MAX: usize = 4;

/// The key under which what `named` names is a head.
fn head_of<'py>(
    heads: &Bound<'py, PyDict>,
    named: &Bound<'py, PyString>,
    by_send: bool,
) -> PyResult<Option<Bound<'py, PyString>>> {
    let text = named.to_str()?;
    let wanted = if by_send { send_key(text) } else { text };
    for (key, _) in heads {
        let key = key.cast_into::<PyString>()?;
        if key.to_str()? == wanted {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

fn key_of<'py>(id: &Bound<'py, PyString>, by_send: bool) -> PyResult<Bound<'py, PyString>> {
    if !by_send {
        return Ok(id.clone());
    }
    Ok(PyString::new(id.py(), send_key(id.to_str()?)))
}

/// Makes `entry`, which stands for a send delivered now, a head: nothing that `history` names is
/// one any more, and beyond `heads_max` the oldest is none.
#[pyfunction]
#[pyo3(signature = (heads, entry, history, by_send, heads_max, /))]
pub fn deliver_head(
    heads: &Bound<'_, PyDict>,
    entry: &Bound<'_, LogEntry>,
    history: &Bound<'_, PyAny>,
    by_send: bool,
    heads_max: usize,
) -> PyResult<()> {
    let message_id = entry.borrow().message_id.bind(entry.py()).clone();
    let key = key_of(&message_id, by_send)?;
    make_head(heads, entry, &key, history, by_send, heads_max)
}

/// What `deliver_head` does for an entry whose `key` is known.
pub fn make_head(
    heads: &Bound<'_, PyDict>,
    entry: &Bound<'_, LogEntry>,
    key: &Bound<'_, PyString>,
    history: &Bound<'_, PyAny>,
    by_send: bool,
    heads_max: usize,
) -> PyResult<()> {
    for named in history.try_iter()? {
        let named = named?.cast_into()?;
        if heads.len() > COMPARED_MAX {
            discard(heads, &key_of(&named, by_send)?)?;
        } else if let Some(key) = head_of(heads, &named, by_send)? {
            heads.del_item(key)?;
        }
    }
    heads.set_item(key, entry)?;
    if heads.len() > heads_max
        && let Some(oldest) = first_key(heads)?
    {
        heads.del_item(oldest)?;
    }
    Ok(())
}
