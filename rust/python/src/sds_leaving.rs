//! What a content of ours moves when it leaves: `_native.pyi`, "Scalable Data Sync".

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::now::moment;
use crate::sds_counts::{AcknowledgementDue, FilterTime, LamportTime, SyncDue, TransmitCounts};
use crate::sds_outgoing::{OutgoingContent, OutgoingSend};

/// Milliseconds of one step of a Lamport clock in seconds.
const SECOND_MS: i64 = 1_000;

/// Numbers and moments of the machine's parts.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Leaving {
    counts: Py<TransmitCounts>,
    /// Transmissions without an answer: kind, content and what was said, by number.
    in_flight: Py<PyDict>,
    /// `TransmitKind.FIRST`.
    first: Py<PyAny>,
    lamport: Py<LamportTime>,
    /// Milliseconds of one step of the Lamport clock.
    lamport_unit_ms: i64,
    lamport_max: u64,
    filter: Py<FilterTime>,
    /// Least time between two filters; 0 for one on every message.
    filter_interval_ms: i64,
    /// `BloomSchedule.due`.
    filter_due: Py<PyAny>,
    acknowledgements: Py<AcknowledgementDue>,
    sync_timer: Py<SyncDue>,
    /// A periodic sync is due within this time; 0 for no periodic syncs.
    sync_within_ms: f64,
    random: Py<PyAny>,
}

impl Leaving {
    pub fn next_send_number(&self, py: Python<'_>) -> u64 {
        let mut counts = self.counts.borrow_mut(py);
        counts.send_count += 1;
        counts.send_count
    }

    pub fn next_transmit_id(&self, py: Python<'_>) -> u64 {
        self.counts.borrow(py).transmit_count + 1
    }

    pub fn first(&self, py: Python<'_>) -> Py<PyAny> {
        self.first.clone_ref(py)
    }

    pub fn filter_is_due(&self, now: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = now.py();
        let last_ms = self.filter.borrow(py).last_ms;
        if self.filter_interval_ms > 0
            && let Some(last_ms) = last_ms
            && moment(now)?.0 - last_ms < self.filter_interval_ms
        {
            return Ok(false);
        }
        self.filter_due.bind(py).call1((now,))?.extract()
    }

    /// The timestamp of a message that leaves now.
    pub fn next_lamport(&self, py: Python<'_>, epoch_ms: i64) -> u64 {
        let next = self.lamport.borrow(py).timestamp.saturating_add(1);
        let epoch = match self.lamport_unit_ms {
            // nim-sds adds one to whichever is later.
            SECOND_MS => epoch_ms.div_euclid(SECOND_MS) + 1,
            _ => epoch_ms,
        };
        next.max(epoch.max(0) as u64).min(self.lamport_max)
    }

    /// `content` leaves.
    pub fn left(
        &self,
        content: &Bound<'_, OutgoingContent>,
        transmit_id: u64,
        (lamport_timestamp, monotonic_ms): (u64, i64),
        all_said: bool,
    ) -> PyResult<()> {
        let py = content.py();
        self.counts.borrow_mut(py).transmit_count = transmit_id;
        self.lamport.borrow_mut(py).timestamp = lamport_timestamp;
        if all_said {
            self.acknowledgements.borrow_mut(py).due_ms = None;
        }
        self.sync_timer.borrow_mut(py).content_since_sync = true;
        if self.sync_within_ms > 0.0 {
            let share: f64 = self.random.bind(py).call0()?.extract()?;
            let wait_ms = (share * self.sync_within_ms).round_ties_even() as i64;
            self.sync_timer.borrow_mut(py).due_ms = Some(monotonic_ms + wait_ms);
        }
        let flight = (&self.first, content, PyTuple::empty(py));
        self.in_flight.bind(py).set_item(transmit_id, flight)
    }

    /// The content of a transmission without an answer.
    pub fn in_flight<'py>(
        &self,
        py: Python<'py>,
        transmit_id: u64,
    ) -> PyResult<Option<Bound<'py, OutgoingContent>>> {
        let Some(flight) = self.in_flight.bind(py).get_item(transmit_id)? else {
            return Ok(None);
        };
        let content = flight.cast::<PyTuple>()?.get_item(1)?;
        Ok(content.cast_into::<OutgoingContent>().ok())
    }

    pub fn answered(&self, py: Python<'_>, transmit_id: u64) -> PyResult<()> {
        self.in_flight.bind(py).del_item(transmit_id)
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.counts)?;
        visit.call(&self.filter)?;
        visit.call(&self.filter_due)?;
        visit.call(&self.acknowledgements)?;
        visit.call(&self.sync_timer)
    }
}

/// The only content of a send that nobody looked into yet.
pub fn single<'py>(
    send: &Bound<'py, OutgoingSend>,
) -> PyResult<Option<Bound<'py, OutgoingContent>>> {
    let held = send.borrow();
    let py = send.py();
    if held.contents.len(py) != 1 || held.finished || held.is_opened() || held.dispatched > 0 {
        return Ok(None);
    }
    held.contents.get(py, 0).map(Some)
}

/// The bytes of a content that never left.
pub fn unsent(
    content: &Bound<'_, OutgoingContent>,
    send: &Bound<'_, OutgoingSend>,
) -> Option<Py<PyBytes>> {
    let py = send.py();
    let held = content.borrow();
    if !held.queued || held.wire.is_some() || send.borrow().history_ids.is_some() {
        return None;
    }
    held.content.as_ref().map(|data| data.clone_ref(py))
}
