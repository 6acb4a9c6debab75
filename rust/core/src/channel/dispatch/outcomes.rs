//! What became of what was handed out, as the node says or does not say.

use super::flights::Flight;
use super::{DropReason, FAILURES_TOLD, PROPAGATION_TIMEOUT_MS};
use crate::channel::{Channel, Event};
use crate::sds::{Kinds, Name, Now, Transmit, TransmitKind};

/// Why a message did not leave, as far as anybody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure<'a> {
    /// What happened.
    pub error: &'a str,
    /// Whether trying again cannot help (004, Irrecoverable errors), as the node or the cipher says.
    pub permanent: bool,
    /// Whether the node took it and did not say what became of it, so that it may have left after all.
    pub unanswered: bool,
    /// For how many milliseconds the node refuses everything; `None` where it does not say so.
    pub retry_after_ms: Option<i64>,
}

impl Channel {
    // --- the node --------------------------------------------------------------------------------

    /// The channel starts, and its node is taken for connected until it says otherwise.
    pub fn handle_started(&mut self, now: Now) {
        self.dispatch.readiness.online = true;
        self.retrieval.on_started(now);
    }

    /// Whether the node is connected, and whether so well that all that it offers is in reach.
    pub fn handle_connection(&mut self, online: bool, is_full: bool, now: Now) {
        self.dispatch.readiness.online = online;
        self.retrieval.on_connection(online, is_full, now);
    }

    /// Says at once that [`Channel::handle_failed`] will come: nothing is tried before it has.
    pub fn announce_failure(&mut self) {
        self.dispatch.announced_failures += 1;
    }

    /// A message reached the network under this hash; false where nobody waited for it any longer.
    pub fn handle_propagated(&mut self, transmit_id: u64, message_hash: &[u8], now: Now) -> bool {
        let Some(flight) = self.take_answered(transmit_id, false) else {
            return false;
        };
        let left_ms = flight.left_ms;
        self.dispatch.flights.on_answered(left_ms, now.monotonic_ms);
        let readiness = &mut self.dispatch.readiness;
        let failures = readiness.failures();
        if failures > 0 {
            self.events.push_back(Event::NodeRecovered {
                failures,
                told: failures >= FAILURES_TOLD,
            });
        }
        readiness.on_taken(left_ms, now.monotonic_ms);
        self.sds
            .handle_transmitted(transmit_id, Some(message_hash), now);
        let transmit = flight.transmit;
        if let Some(send_id) = &transmit.send_id {
            self.dispatch.failures_by_send.remove(send_id);
            if transmit.kind == TransmitKind::Ephemeral {
                let ephemerals = &mut self.dispatch.ephemerals;
                ephemerals.on_propagated(send_id, &mut self.own);
            } else if let Some(ordinal) = transmit.ordinal {
                self.own.on_propagated(send_id, ordinal);
            }
        }
        true
    }

    /// A message was not handed to the node, since a rate limit had no place left for it: no failure. It leaves
    /// as it is when there is a place; an ephemeral one has one try and is dropped.
    pub fn handle_late(&mut self, transmit_id: u64, now: Now) {
        self.dispatch.announced_late.remove(&transmit_id);
        let Some(flight) = self.take_answered(transmit_id, false) else {
            return;
        };
        match &flight.transmit.send_id {
            Some(send_id) if flight.transmit.kind == TransmitKind::Ephemeral => {
                self.sds.handle_transmit_failed(transmit_id, now);
                let ephemerals = &mut self.dispatch.ephemerals;
                ephemerals.on_dropped(send_id, DropReason::Approached, &mut self.own);
            }
            _ => self.dispatch.late.push(flight.transmit),
        }
    }

    /// The message that an answer is about, where it is awaited. One that comes late may say that it was `refused`.
    fn take_answered(&mut self, transmit_id: u64, refused: bool) -> Option<Flight> {
        let flight = self.dispatch.flights.take(transmit_id);
        if flight.is_none() {
            let (unanswered, own) = (&mut self.dispatch.unanswered, &mut self.own);
            unanswered.on_answer(transmit_id, refused, own);
        }
        flight
    }

    /// A message did not leave, as [`Channel::announce_failure`] said.
    pub fn handle_failed(&mut self, transmit_id: u64, failure: Failure<'_>, now: Now) {
        let announced = &mut self.dispatch.announced_failures;
        *announced = announced.saturating_sub(1);
        self.apply_failure(transmit_id, failure, now);
    }

    /// Gives up waiting for a node that does not answer; one that refuses everything may keep what it has.
    pub(super) fn give_up_silent(&mut self, now: Now) {
        let held_until_ms = self.dispatch.readiness.held_until_ms();
        let overdue = self
            .dispatch
            .flights
            .overdue(now.monotonic_ms, held_until_ms);
        if !overdue.is_empty() {
            let error = format!("the node said nothing of it for {PROPAGATION_TIMEOUT_MS} ms");
            let failure = Failure {
                error: &error,
                permanent: false,
                unanswered: true,
                retry_after_ms: None,
            };
            for transmit_id in overdue {
                // What ended with an earlier one is gone.
                if self.dispatch.flights.contains(transmit_id) {
                    self.apply_failure(transmit_id, failure, now);
                }
            }
        }
        let flights = &mut self.dispatch.flights;
        flights.look_again(now.monotonic_ms, held_until_ms);
    }

    fn apply_failure(&mut self, transmit_id: u64, failure: Failure<'_>, now: Now) {
        let Some(flight) = self.take_answered(transmit_id, !failure.unanswered) else {
            return;
        };
        let transmit = flight.transmit;
        match failure.retry_after_ms {
            Some(retry_after_ms) if !failure.permanent => {
                self.on_held(&transmit, failure.error, retry_after_ms, now);
            }
            _ => {
                let known = self.dispatch.readiness.is_known(flight.left_ms);
                self.on_failed(&transmit, failure, known, now);
            }
        }
    }

    /// The node refuses everything until a time that it names, say the next epoch: no failure of any message.
    fn on_held(&mut self, transmit: &Transmit, error: &str, retry_after_ms: i64, now: Now) {
        self.dispatch.counts.held += 1;
        self.sds.handle_transmit_failed(transmit.transmit_id, now);
        if let Some(send_id) = &transmit.send_id
            && transmit.kind == TransmitKind::Ephemeral
        {
            let ephemerals = &mut self.dispatch.ephemerals;
            ephemerals.on_dropped(send_id, DropReason::Reached, &mut self.own);
        }
        let readiness = &mut self.dispatch.readiness;
        if let Some(hold_ms) = readiness.on_held(retry_after_ms, now.monotonic_ms) {
            let error = error.into();
            self.events.push_back(Event::NodeHolds { hold_ms, error });
        }
    }

    /// `known`: it left before the node failed last, so that its failure is no news of the node.
    fn on_failed(&mut self, transmit: &Transmit, failure: Failure<'_>, known: bool, now: Now) {
        let Failure {
            error, permanent, ..
        } = failure;
        self.dispatch.counts.failures += 1;
        self.events.push_back(Event::TransmitFailed {
            message_id: transmit.message_id.clone(),
            kind: transmit.kind,
            error: error.into(),
            of_node: !permanent && (known || self.dispatch.readiness.failures() > 0),
        });
        if failure.unanswered {
            self.dispatch.unanswered.add(transmit, &mut self.own);
        }
        let ordinal = transmit.ordinal.unwrap_or(0);
        if let Some(send_id) = &transmit.send_id
            && permanent
            && self.is_parity(send_id, ordinal)
        {
            self.leave_out(send_id, ordinal, transmit, now);
            return;
        }
        self.sds.handle_transmit_failed(transmit.transmit_id, now);
        match &transmit.send_id {
            Some(send_id) if transmit.kind == TransmitKind::Ephemeral => {
                let ephemerals = &mut self.dispatch.ephemerals;
                ephemerals.on_failed(send_id, error, &mut self.own);
            }
            Some(send_id) if permanent => self.give_up(send_id, Some(ordinal), error, now),
            _ if known => {}
            // It is somebody else's, and says nothing of the node.
            _ if permanent && transmit.kind == TransmitKind::Repair => {}
            send_id => self.on_node_failed(send_id.as_ref(), error, now),
        }
    }

    /// However many messages a failure of the node hits, it is one failure of each send that waits for the node.
    fn on_node_failed(&mut self, hit: Option<&Name>, error: &str, now: Now) {
        let at_ms = now.monotonic_ms;
        let readiness = &mut self.dispatch.readiness;
        readiness.on_failed(at_ms);
        let failures = readiness.failures();
        if failures == FAILURES_TOLD {
            let error = error.into();
            self.events
                .push_back(Event::NodeFailing { failures, error });
        }
        let Some(hit) = hit else {
            return;
        };
        let own = &self.own;
        let is_known = |send_id: &Name| own.get(send_id).is_some();
        let failures_by_send = &mut self.dispatch.failures_by_send;
        failures_by_send.retain(|send_id, _| is_known(send_id));
        let is_content = |transmit: &Transmit| Kinds::CONTENTS.has(transmit.kind);
        let mut waiting = self.dispatch.flights.sends(is_content);
        waiting.retain(|send_id| send_id != hit);
        waiting.insert(0, hit.clone());
        for send_id in waiting {
            if self.own.get(&send_id).is_some_and(|send| send.is_stored()) {
                // Nothing of it waits for the node.
                continue;
            }
            let counted = self.dispatch.failures_by_send.get(&send_id).copied();
            let (failures, counted_ms) = counted.unwrap_or((0, 0));
            if failures > 0 && at_ms - counted_ms < self.dispatch.failure_interval_ms {
                continue;
            }
            if failures >= self.dispatch.failures_max {
                self.give_up(&send_id, None, error, now);
            } else {
                let failures_by_send = &mut self.dispatch.failures_by_send;
                failures_by_send.insert(send_id, (failures + 1, at_ms));
            }
        }
    }

    fn is_parity(&self, send_id: &str, ordinal: u32) -> bool {
        let send = self.own.get(send_id);
        send.is_some_and(|send| ordinal >= send.data_count)
    }

    fn leave_out(&mut self, send_id: &Name, ordinal: u32, transmit: &Transmit, now: Now) {
        self.dispatch.counts.parity_left_out += 1;
        self.sds.handle_transmitted(transmit.transmit_id, None, now);
        self.sds.leave_out(&transmit.message_id);
        self.own.on_left_out(send_id, ordinal);
    }

    /// Ends the send of a segment that was made for larger messages and is not encoded yet: nothing may follow
    /// what never leaves. Parity is left out when its time comes.
    pub fn fail_oversized(&mut self, send_id: &str, ordinal: u32, error: &str, now: Now) {
        if self.sds.is_queued(send_id) && !self.is_parity(send_id, ordinal) {
            self.give_up(&Name::new(send_id), Some(ordinal), error, now);
        }
    }

    /// Ends a send; `irrecoverable` is the ordinal of the segment that can never be sent, if it is one.
    fn give_up(&mut self, send_id: &Name, irrecoverable: Option<u32>, error: &str, now: Now) {
        self.dispatch.failures_by_send.remove(send_id);
        let in_flight = self.dispatch.flights.of_send(send_id);
        self.take_back(&in_flight, error, now);
        for late in self.dispatch.late.take_send(send_id) {
            self.take_back_late(&late, now);
        }
        let left = !self.sds.cancel(send_id);
        if left {
            // SDS says so in its turn: what is in the network may yet be acknowledged.
            self.sds.stop(send_id);
        }
        if let Some(ordinal) = irrecoverable {
            self.own.on_irrecoverable(send_id, ordinal, error);
        } else if !left {
            self.own.on_undispatched(send_id, error);
        }
    }

    // --- what is taken back ----------------------------------------------------------------------

    /// These never reached the node, or will not be answered for: they wait, and ephemeral ones end with
    /// `error`.
    fn take_back(&mut self, transmit_ids: &[u64], error: &str, now: Now) {
        // Each goes before what waits: the last one first.
        for &transmit_id in transmit_ids.iter().rev() {
            let Some(flight) = self.dispatch.flights.take(transmit_id) else {
                continue;
            };
            let transmit = flight.transmit;
            if flight.left_ms.is_some() {
                self.dispatch.unanswered.add(&transmit, &mut self.own);
            } else {
                self.on_first_taken_back(&transmit);
            }
            self.sds.handle_transmit_failed(transmit_id, now);
            if let Some(send_id) = &transmit.send_id
                && transmit.kind == TransmitKind::Ephemeral
            {
                let ephemerals = &mut self.dispatch.ephemerals;
                ephemerals.on_failed(send_id, error, &mut self.own);
            }
        }
    }

    fn on_first_taken_back(&mut self, transmit: &Transmit) {
        if let Some(send_id) = &transmit.send_id
            && transmit.kind == TransmitKind::First
        {
            let own = &self.own;
            let uncounted = &mut self.dispatch.uncounted;
            uncounted.retain(|send_id| own.get(send_id).is_some());
            uncounted.insert(send_id.clone());
        }
    }

    /// Takes a send back from SDS, with what was handed out of it and not to the node yet. Gives the ordinals of what
    /// never left so; `None` where SDS is done with it.
    pub(in crate::channel) fn withdraw_send(&mut self, send_id: &str) -> Option<Vec<u32>> {
        let (flights, late) = (&self.dispatch.flights, &self.dispatch.late);
        let is_held = |id| flights.is_prepared(id) || late.contains(id);
        let changed = self.sds.withdraw_among(send_id, &is_held)?;
        for send_id in changed.iter().rev() {
            let prepared = self.dispatch.flights.take_prepared(send_id);
            let late = self.dispatch.late.take_send(send_id);
            for transmit in late.iter().chain(&prepared).rev() {
                self.on_first_taken_back(transmit);
                self.sds.handle_transmit_void(transmit.transmit_id);
            }
        }
        let mut unsent = Vec::new();
        self.dispatch.failures_by_send.remove(send_id.as_bytes());
        let prepared = self.dispatch.flights.take_prepared(send_id).into_iter();
        let late = self.dispatch.late.take_send(send_id);
        for transmit in prepared.chain(late) {
            self.sds.handle_transmit_withdrawn(transmit.transmit_id);
            unsent.extend(transmit.ordinal.filter(|_| transmit.attempt == 0));
        }
        Some(unsent)
    }

    /// What these speak of is not stored: they leave after a commit that succeeds, and nothing ephemeral does.
    pub fn handle_commit_failed(&mut self, transmit_ids: &[u64], error: &str, now: Now) {
        self.take_back(transmit_ids, error, now);
        self.fail_ephemerals(error);
    }

    /// The channel stops: what the node did not answer for is tried again after the next start.
    pub fn handle_stopped(&mut self, now: Now) {
        self.retrieval.on_stopped();
        let in_flight = self.dispatch.flights.ids();
        let error = "the channel was stopped before the node answered";
        self.take_back(&in_flight, error, now);
        self.fail_ephemerals("the channel was stopped");
        for late in self.dispatch.late.clear() {
            self.take_back_late(&late, now);
        }
    }

    fn take_back_late(&mut self, late: &Transmit, now: Now) {
        self.on_first_taken_back(late);
        self.sds.handle_transmit_failed(late.transmit_id, now);
    }
}
