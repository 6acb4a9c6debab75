//! Texts as objects, made once where the same is told again and again.

use pyo3::prelude::*;
use pyo3::types::PyString;
use shardwire_core::sds::Name;

/// The sender and the send that were told of last, and words of the API.
#[derive(Default)]
pub struct Texts {
    sender: Option<(Name, Py<PyString>)>,
    send: Option<(Name, Py<PyString>)>,
    words: Vec<(&'static str, Py<PyString>)>,
}

impl Texts {
    /// The id of a sender.
    pub fn sender(&mut self, py: Python<'_>, sender_id: &str) -> Py<PyString> {
        object(py, &mut self.sender, sender_id.as_bytes(), || {
            Name::new(sender_id)
        })
    }

    /// The id of a send.
    pub fn send(&mut self, py: Python<'_>, send_id: &Name) -> Py<PyString> {
        object(py, &mut self.send, send_id.as_bytes(), || send_id.clone())
    }

    /// A word of the API.
    pub fn word(&mut self, py: Python<'_>, word: &'static str) -> Py<PyString> {
        let known = self
            .words
            .iter()
            .find(|(known, _)| std::ptr::eq(*known, word));
        if let Some((_, object)) = known {
            return object.clone_ref(py);
        }
        let object = PyString::intern(py, word).unbind();
        self.words.push((word, object.clone_ref(py)));
        object
    }
}

fn object(
    py: Python<'_>,
    last: &mut Option<(Name, Py<PyString>)>,
    text: &[u8],
    named: impl FnOnce() -> Name,
) -> Py<PyString> {
    if let Some((known, object)) = last
        && known.as_bytes() == text
    {
        return object.clone_ref(py);
    }
    let named = named();
    let object = name(py, &named);
    *last = Some((named, object.clone_ref(py)));
    object
}

/// A name as an object. It is UTF-8 already, which Python sees for itself.
pub fn name(py: Python<'_>, name: &Name) -> Py<PyString> {
    let object = PyString::from_bytes(py, name.as_bytes());
    object.expect("a name is UTF-8").unbind()
}
