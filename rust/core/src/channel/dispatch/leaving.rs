//! What is handed out, and when there is more.

use super::allowance::{self, Allowance};
use super::ephemerals::failed;
use super::{DISPATCHES_MAX, DropReason, NodeState};
use crate::channel::Channel;
use crate::sds::{Kinds, Now, Octets, Transmit, TransmitKind};

/// How soon to look again at what is overdue but held back by something that sends no signal.
const OVERDUE_RECHECK_MS: i64 = 1_000;

/// What leaves next.
enum Next {
    /// It was handed out before, and found no place.
    Late(Transmit),
    /// SDS hands it out now.
    Fresh(Transmit),
}

impl Channel {
    // --- ephemeral messages ----------------------------------------------------------------------

    /// Lets an ephemeral message leave now, or says by an event why it never will.
    pub fn submit_ephemeral(
        &mut self,
        send_id: &str,
        (request_id, message_id): (&str, &str),
        content: Octets,
        allowances: &[Allowance],
    ) {
        let (ephemerals, own) = (&mut self.dispatch.ephemerals, &mut self.own);
        ephemerals.register(send_id.into(), request_id.into(), message_id.into());
        let unplaced = self.dispatch.flights.unplaced();
        if let Some(reason) = allowance::drop_reason(allowances, unplaced) {
            ephemerals.on_dropped(send_id, reason, own);
        } else if ephemerals.len() > self.dispatch.ephemerals_max {
            let most = self.dispatch.ephemerals_max;
            let error = format!("{most} ephemeral messages wait for the node already");
            ephemerals.on_failed(send_id, &error, own);
        } else if let Err(refusal) = self.sds.send_ephemeral(send_id, content) {
            // The wire "nim" has no such messages.
            ephemerals.on_failed(send_id, &refusal.to_string(), own);
        }
    }

    /// An ephemeral message can never be sent: it ends before it was submitted.
    pub fn refuse_ephemeral(&mut self, request_id: &str, message_id: &str, error: &str) {
        let event = failed(request_id.into(), message_id.into(), error);
        self.own.add_event(event);
    }

    pub(super) fn fail_ephemerals(&mut self, error: &str) {
        for send_id in self.dispatch.ephemerals.waiting() {
            if self.sds.cancel(&send_id) {
                let ephemerals = &mut self.dispatch.ephemerals;
                ephemerals.on_failed(&send_id, error, &mut self.own);
            }
        }
    }

    fn drop_ephemerals(&mut self, reason: DropReason) {
        for send_id in self.dispatch.ephemerals.waiting() {
            if self.sds.cancel(&send_id) {
                let ephemerals = &mut self.dispatch.ephemerals;
                ephemerals.on_dropped(&send_id, reason, &mut self.own);
            }
        }
    }

    // --- what leaves -----------------------------------------------------------------------------

    /// Everything that may be prepared to leave now, as far as there are places left by all of `allowances`;
    /// and the kinds of what waits for places, ephemeral messages aside.
    pub fn poll_transmits(&mut self, allowances: &[Allowance], now: Now) -> (Vec<Transmit>, Kinds) {
        let mut transmits = Vec::new();
        let readiness = &self.dispatch.readiness;
        if !self.dispatch.ephemerals.is_empty() {
            if !readiness.online {
                self.fail_ephemerals("the node is offline, and an ephemeral message does not wait");
            } else if readiness.is_held(now.monotonic_ms) {
                self.drop_ephemerals(DropReason::Reached);
            }
        }
        if !self.dispatch.readiness.may_try(now.monotonic_ms) {
            return (transmits, Kinds::NONE);
        }
        // Ever fewer kinds may leave from here on, so what is late stays where nothing of it goes now.
        let mut may_take_late = true;
        while self.dispatch.flights.len() < DISPATCHES_MAX {
            let kinds = self.dispatch.allowed(allowances);
            let next = self.poll_by_turns(allowances, kinds, &mut may_take_late, now);
            let transmit = match next {
                Some(Next::Late(transmit)) => transmit,
                Some(Next::Fresh(mut transmit)) => {
                    let is_first = self.is_first_again(&transmit);
                    if is_first {
                        transmit.kind = TransmitKind::First;
                    }
                    self.dispatch.counts.dispatched[transmit.kind as usize] += 1;
                    let has_no_place = is_first && !kinds.has(TransmitKind::First);
                    if has_no_place || self.dispatch.late.is_behind(&transmit) {
                        self.dispatch.late.push(transmit);
                        continue;
                    }
                    transmit
                }
                None if kinds == Kinds::ALL => break,
                None => return (transmits, self.on_limited(allowances)),
            };
            let counts = allowance::counts(allowances, transmit.kind);
            let flights = &mut self.dispatch.flights;
            flights.add(transmit.clone(), counts, now.monotonic_ms);
            transmits.push(transmit);
        }
        (transmits, Kinds::NONE)
    }

    /// What leaves next: what is late first, else what SDS hands out. That has syncs first, and those come again and
    /// again: the last place that a content may take goes to one that waits, which acknowledges as well, or it would
    /// never leave under a tight limit.
    fn poll_by_turns(
        &mut self,
        allowances: &[Allowance],
        kinds: Kinds,
        may_take_late: &mut bool,
        now: Now,
    ) -> Option<Next> {
        if let Some(contents) = self.dispatch.contents_of_last_place(allowances, kinds) {
            let late = &mut self.dispatch.late;
            let late = may_take_late.then(|| late.take(contents)).flatten();
            let fresh = || self.poll_transmit(now, contents).map(Next::Fresh);
            let content = late.map(Next::Late).or_else(fresh);
            if content.is_some() {
                return content;
            }
        }
        if *may_take_late {
            let late = self.dispatch.late.take(kinds);
            *may_take_late = late.is_some();
            if late.is_some() {
                return late.map(Next::Late);
            }
        }
        self.poll_transmit(now, kinds).map(Next::Fresh)
    }

    /// Whether a content that SDS hands out again is the first of its send that takes a place.
    fn is_first_again(&mut self, transmit: &Transmit) -> bool {
        let is_content = Kinds::CONTENTS.has(transmit.kind);
        let Some(send_id) = transmit.send_id.as_ref().filter(|_| is_content) else {
            return false;
        };
        self.dispatch.uncounted.remove(send_id)
    }

    /// Whether more than ephemeral messages wait for places; those are dropped.
    fn on_limited(&mut self, allowances: &[Allowance]) -> Kinds {
        let held = self.held_kinds(allowances);
        if held.has(TransmitKind::Ephemeral) {
            let unplaced = self.dispatch.flights.unplaced();
            let reason = allowance::drop_reason(allowances, unplaced);
            self.drop_ephemerals(reason.unwrap_or(DropReason::Reached));
        }
        held.without(TransmitKind::Ephemeral)
    }

    /// Kinds held back only by a rate limit.
    fn held_kinds(&self, allowances: &[Allowance]) -> Kinds {
        let allowed = allowance::allowed(allowances, self.dispatch.flights.unplaced());
        let is_held = |kind: &TransmitKind| {
            let is_late = self.dispatch.late.has_kind(*kind);
            let waits = match kind {
                // Answers to repair requests wait for their time first.
                TransmitKind::Repair => false,
                TransmitKind::First if !self.sds.has_room() => false,
                _ => self.sds.waiting(*kind) > 0,
            };
            !allowed.has(*kind) && (is_late || waits)
        };
        let held = TransmitKind::ALL.into_iter().filter(is_held);
        held.fold(Kinds::NONE, Kinds::with)
    }

    /// Whether the node is online and did not fail just now.
    pub fn may_try(&self, monotonic_ms: i64) -> bool {
        self.dispatch.announced_failures == 0 && self.dispatch.readiness.may_try(monotonic_ms)
    }

    /// Whether a message that was handed out is waited for: nothing need be done for another one.
    pub fn is_handed_out(&self, transmit_id: u64) -> bool {
        self.dispatch.flights.contains(transmit_id)
    }

    /// [`Channel::handle_late`] follows for this message. Where it is the first of its send, nothing of that leaves
    /// meanwhile.
    pub fn announce_late(&mut self, transmit_id: u64) {
        let transmit = self.dispatch.flights.transmit(transmit_id);
        if transmit.is_some_and(|transmit| transmit.kind == TransmitKind::First) {
            self.dispatch.announced_late.insert(transmit_id);
        }
    }

    /// [`Channel::withdraw`] follows for a request of this send. Nothing of it leaves meanwhile, and nothing new that
    /// may name it in its history: that is encoded again.
    pub fn announce_withdrawal(&mut self, request_id: &str, send_id: &str) {
        let withdrawals = &mut self.dispatch.announced_withdrawals;
        withdrawals.insert(request_id.into(), send_id.into());
    }

    /// Whether a message is still to leave. If so it does: the time in which the node has to answer begins.
    pub fn leave(&mut self, transmit_id: u64, monotonic_ms: i64) -> bool {
        !self.dispatch.is_withheld(transmit_id)
            && self.dispatch.flights.leave(transmit_id, monotonic_ms)
    }

    // --- time ------------------------------------------------------------------------------------

    /// Does what is due: gives up waiting for a node that does not answer, and, while the channel is started,
    /// what SDS and reassembly have to do.
    pub fn handle_time(&mut self, is_active: bool, now: Now) {
        let at_ms = now.monotonic_ms;
        self.dispatch.looked_ms = at_ms;
        self.retrieval.note_seen(now);
        self.give_up_silent(now);
        if !is_active {
            return;
        }
        if self
            .sds
            .poll_timeout()
            .is_some_and(|due_ms| due_ms <= at_ms)
        {
            self.sds.handle_timeout(now);
            self.settle(None, now);
        }
        if self.next_expiry_ms().is_some_and(|due_ms| due_ms <= at_ms) {
            self.expire(now);
        }
    }

    /// Monotonic milliseconds at which something falls due, may leave or is given up without any input.
    ///
    /// `reopens_ms` is when more may leave by all limits, where nothing may now.
    pub fn next_wake_ms(
        &mut self,
        allowances: &[Allowance],
        reopens_ms: i64,
        now: Now,
    ) -> Option<i64> {
        let at_ms = now.monotonic_ms;
        let sds_ms = self.sds.poll_timeout().and_then(|due_ms| {
            if due_ms > self.dispatch.looked_ms {
                return Some(due_ms);
            }
            // What was overdue then waits for a limit, the node or a free place, not for the clock.
            let may_try = self.dispatch.readiness.may_try(at_ms);
            may_try.then_some(at_ms + OVERDUE_RECHECK_MS)
        });
        let is_limited = self.held_kinds(allowances) != Kinds::NONE;
        let due = [
            sds_ms,
            is_limited.then(|| reopens_ms.max(at_ms + 1)),
            self.dispatch.flights.look_ms(),
            self.dispatch.readiness.resumes_ms(at_ms),
            self.next_expiry_ms(),
        ];
        due.into_iter().flatten().min()
    }

    // --- views -----------------------------------------------------------------------------------

    /// Messages that were handed out and not answered for, or that wait for the next epoch.
    pub fn dispatches_in_flight(&self) -> usize {
        self.dispatch.flights.len() + self.dispatch.late.len()
    }

    /// How many of those have no place of a rate limit yet, and need one.
    pub fn unplaced(&self) -> usize {
        self.dispatch.flights.unplaced()
    }

    /// How many the node holds that took a place of a rate limit.
    pub fn counted_in_flight(&self) -> usize {
        self.dispatch.flights.counted()
    }

    /// What the answers of the node say of the next try.
    pub fn node_state(&self, now: Now) -> NodeState {
        let readiness = &self.dispatch.readiness;
        NodeState {
            online: readiness.online,
            held_ms: (readiness.held_until_ms() - now.monotonic_ms).max(0),
            failures: readiness.failures(),
        }
    }

    /// How many messages went which way.
    pub fn dispatch_counts(&self) -> super::DispatchCounts {
        self.dispatch.counts
    }
}
