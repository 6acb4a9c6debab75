//! What a channel asks of a store: `_native.pyi`, "Channel".

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use shardwire_core::channel::{Channel, Question};
use shardwire_stub::documented;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::now::Now;
use crate::participant::{Participant, with};

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct StoreQuestions {
    machine: Py<Participant>,
}

impl StoreQuestions {
    /// Those of `machine`, which is a channel's.
    pub fn of(machine: Py<Participant>) -> Self {
        StoreQuestions { machine }
    }

    fn with<T>(&self, py: Python<'_>, act: impl FnOnce(&mut Channel) -> T) -> PyResult<T> {
        Ok(with(self.machine.get().lock_held(py)?, act))
    }
}

#[documented]
#[pymethods]
impl StoreQuestions {
    fn next_ms(&self, py: Python<'_>, now: &Bound<'_, Now>) -> PyResult<Option<i64>> {
        let now = now.get().into();
        self.with(py, |channel| channel.next_question_ms(now))
    }

    fn poll(&self, py: Python<'_>, now: &Bound<'_, Now>) -> PyResult<Option<StoreQuestion>> {
        let now = now.get().into();
        let question = self.with(py, |channel| channel.poll_question(now))?;
        question
            .map(|question| StoreQuestion::of(py, question))
            .transpose()
    }

    fn handle_message(
        &self,
        py: Python<'_>,
        message_hash: Buffer<'_>,
        data: Option<Buffer<'_>>,
    ) -> PyResult<()> {
        let data = data.as_ref().map(Buffer::as_bytes);
        self.with(py, |channel| {
            channel.handle_stored_message(message_hash.as_bytes(), data);
        })
    }

    fn handle_page(
        &self,
        py: Python<'_>,
        news: bool,
        all_kept: bool,
        until_ns: Option<i64>,
        now: &Bound<'_, Now>,
    ) -> PyResult<bool> {
        let now = now.get().into();
        self.with(py, |channel| {
            channel.handle_page(news, all_kept, until_ns, now)
        })
    }

    fn handle_answered(
        &self,
        py: Python<'_>,
        all_kept: bool,
        now: &Bound<'_, Now>,
    ) -> PyResult<()> {
        let now = now.get().into();
        self.with(py, |channel| channel.handle_answered(all_kept, now))
    }

    fn handle_no_answer(&self, py: Python<'_>, now: &Bound<'_, Now>) -> PyResult<()> {
        let now = now.get().into();
        self.with(py, |channel| channel.handle_no_answer(now))
    }

    fn handle_no_store(&self, py: Python<'_>, now: &Bound<'_, Now>) -> PyResult<()> {
        let now = now.get().into();
        self.with(py, |channel| channel.handle_no_store(now))
    }

    fn withdraw(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Channel::withdraw_question)
    }
}

#[documented]
#[pyclass(frozen, module = "shardwire._native")]
pub struct StoreQuestion {
    #[pyo3(get)]
    hashes: Py<PyTuple>,
    #[pyo3(get)]
    since_ms: i64,
    #[pyo3(get)]
    newest_first: bool,
    #[pyo3(get)]
    goes_ahead: bool,
}

impl StoreQuestion {
    fn of(py: Python<'_>, question: Question) -> PyResult<Self> {
        let (newest_first, goes_ahead) = (question.is_newest_first(), question.goes_ahead());
        let (hashes, since_ms) = match question {
            Question::Hashes(hashes) => (hashes, 0),
            Question::Window(since_ms) | Question::Passed(since_ms) | Question::Gap(since_ms) => {
                (Vec::new(), since_ms)
            }
        };
        let hashes = hashes.iter().map(|hash| PyBytes::new(py, hash));
        Ok(StoreQuestion {
            hashes: PyTuple::new(py, hashes.collect::<Vec<_>>())?.unbind(),
            since_ms,
            newest_first,
            goes_ahead,
        })
    }
}

#[documented]
#[pyfunction]
pub fn last_seen_ns(record: Buffer<'_>) -> Result<i64, Error> {
    Ok(shardwire_core::channel::last_seen_ns(record.as_bytes())?)
}
