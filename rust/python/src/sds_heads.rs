//! The delivered sends that no delivered send follows yet: `_native.pyi`, "Scalable Data Sync".

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::sds_log::{LogEntry, discard, first_key};

/// Characters of a send id.
pub const SEND_ID_LENGTH: usize = 32;

/// The send that a message id names under the rule "send".
fn send_key(message_id: &str) -> &str {
    let end = message_id.char_indices().nth(SEND_ID_LENGTH);
    end.map_or(message_id, |(end, _)| &message_id[..end])
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
    let py = heads.py();
    let key_of = |id: &Bound<'_, PyString>| -> PyResult<Py<PyString>> {
        let text = id.to_str()?;
        Ok(match by_send {
            true => PyString::new(py, send_key(text)).unbind(),
            false => PyString::new(py, text).unbind(),
        })
    };
    for named in history.try_iter()? {
        discard(heads, key_of(named?.cast()?)?.bind(py))?;
    }
    let message_id = entry.borrow().message_id.clone_ref(py);
    heads.set_item(key_of(message_id.bind(py))?, entry)?;
    if heads.len() > heads_max
        && let Some(oldest) = first_key(heads)?
    {
        heads.del_item(oldest)?;
    }
    Ok(())
}
