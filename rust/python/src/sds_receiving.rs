//! What a received content moves besides what holds it: `_native.pyi`, "Scalable Data Sync".

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::sds::HistoryEntry;
use crate::sds_counts::{AcknowledgementDue, HeldCount, LamportTime, SyncDue};
use crate::sds_log::LogEntry;
use crate::sds_release::Released;
use crate::sds_send::IncomingSend;
use crate::sds_waiting::Unknown;

/// What a history names, sorted by what it calls for.
pub struct Named<'a, 'py> {
    pub ids: Vec<Bound<'py, PyString>>,
    pub mine: Vec<Bound<'py, PyAny>>,
    pub heard: Vec<Bound<'py, LogEntry>>,
    pub waits: Vec<Bound<'py, IncomingSend>>,
    pub unknown: Vec<Unknown<'a, 'py>>,
}

/// Numbers and moments of the machine's parts, and what is called where one of them is not common.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Receiving {
    held: Py<HeldCount>,
    contents_max: i64,
    sync_timer: Py<SyncDue>,
    /// A sync that is due within this time stays where it is.
    sooner_ms: i64,
    /// `SyncTimer.on_content_received`.
    on_content_received: Py<PyAny>,
    acknowledgements: Py<AcknowledgementDue>,
    /// Whether acknowledgements have a time of their own.
    prompt: bool,
    /// `Acknowledgements.draw`.
    draw: Py<PyAny>,
    lamport: Py<LamportTime>,
    /// `FilterWish.on_missing`.
    on_missing: Py<PyAny>,
}

impl Receiving {
    /// Whether one more content may be held.
    pub fn has_room(&self, py: Python<'_>) -> bool {
        self.held.borrow(py).contents_held < self.contents_max
    }

    /// A content that nobody heard of before is held: as `Reception` and `Acknowledgements` do it.
    pub fn received<'py>(
        &self,
        entry: &Bound<'py, LogEntry>,
        incomplete: &Py<PyDict>,
        news: bool,
        (now, monotonic_ms): (&Bound<'py, PyAny>, i64),
    ) -> PyResult<()> {
        let py = entry.py();
        let mut sync = self.sync_timer.borrow_mut(py);
        sync.content_since_sync = true;
        let late = sync
            .due_ms
            .is_some_and(|due_ms| due_ms - monotonic_ms > self.sooner_ms);
        drop(sync);
        if late {
            self.on_content_received.bind(py).call1((now,))?;
        }
        self.held.borrow_mut(py).contents_held += 1;
        if news {
            self.on_missing.bind(py).call1((monotonic_ms,))?;
        }
        let mut acknowledgements = self.acknowledgements.borrow_mut(py);
        acknowledgements.order += 1;
        entry.borrow_mut().unsaid = acknowledgements.order;
        let draws = self.prompt && acknowledgements.due_ms.is_none();
        drop(acknowledgements);
        let message_id = entry.borrow().message_id.bind(py).clone();
        incomplete.bind(py).set_item(&message_id, entry)?;
        if draws {
            self.draw.bind(py).call1((now,))?;
        }
        Ok(())
    }

    /// So many contents left the buffer, of which the newest has this timestamp.
    pub fn released(&self, py: Python<'_>, (count, lamport): Released) {
        self.held.borrow_mut(py).contents_held -= count as i64;
        let mut clock = self.lamport.borrow_mut(py);
        clock.timestamp = clock.timestamp.max(lamport);
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.held)?;
        visit.call(&self.sync_timer)?;
        visit.call(&self.on_content_received)?;
        visit.call(&self.acknowledgements)?;
        visit.call(&self.draw)?;
        visit.call(&self.on_missing)
    }
}

impl<'py> Named<'_, 'py> {
    /// Ids (where the send was `known` already), contents of ours, entries that another
    /// participant acknowledged, sends to wait for, and what is unknown; `None` where all is empty.
    pub fn rare(self, py: Python<'py>, known: bool) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Named {
            ids,
            mine,
            heard,
            waits,
            unknown,
        } = self;
        if !known && mine.is_empty() && heard.is_empty() && waits.is_empty() && unknown.is_empty() {
            return Ok(None);
        }
        let ids = PyTuple::new(py, if known { ids } else { Vec::new() })?;
        let entry = |(_, view)| HistoryEntry::from_view(view);
        let unknown: Vec<_> = unknown.into_iter().map(entry).collect();
        (ids, mine, heard, waits, unknown)
            .into_pyobject(py)
            .map(Some)
    }
}
