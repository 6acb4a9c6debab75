//! What leaves a channel: polled from SDS as far as the limits and the node allow, followed until the node has
//! answered (003, Outgoing message processing).
//!
//! A message is handed out by [`Channel::poll_transmits`]. Its owner makes durable what it speaks of, takes a
//! place of the rate limit for it, asks [`Channel::leave`] whether anybody still wants it, hands it to the node,
//! and says what became of it. A failure of the node is a failure of no message: all of them wait, and each of our
//! sends that waits for the node in vain for too long is given up.
//!
//! - `allowance`: what a rate limit lets leave, as data;
//! - `flights`: what was handed out and nobody has answered for;
//! - `late`: what had no place of the rate limit when its turn came;
//! - `unanswered`: what nobody waits for any longer, until the node answers all the same;
//! - `readiness`: whether the node is worth a try;
//! - `ephemerals`: ephemeral messages, and the one event that each ends with.
//!
//! [`Channel::poll_transmits`]: super::Channel::poll_transmits
//! [`Channel::leave`]: super::Channel::leave

mod allowance;
mod ephemerals;
#[cfg(test)]
mod failure_tests;
mod flights;
mod late;
mod leaving;
mod outcomes;
mod readiness;
#[cfg(test)]
mod tests;
mod unanswered;
#[cfg(test)]
mod withdrawal_tests;

#[cfg(debug_assertions)]
use std::collections::BTreeSet;

pub use allowance::{Allowance, DropReason};
pub use flights::{DISPATCHES_MAX, PROPAGATION_TIMEOUT_MS};
#[cfg(test)]
use flights::{FURTHER_SLOW_MAX, REPAIRS_MAX, SLOW_MS};
pub use outcomes::Failure;

#[cfg(debug_assertions)]
use crate::channel::own::OwnSends;
use crate::maps::{HashMap, HashSet};
#[cfg(debug_assertions)]
use crate::sds::Machine;
use crate::sds::{Config, Kinds, Name, TransmitKind};
use ephemerals::Ephemerals;
use flights::Flights;
use late::Late;
use readiness::Readiness;
use unanswered::Unanswered;

/// Failures of the node in a row of which the application is told.
const FAILURES_TOLD: u32 = 3;

/// Messages between SDS and the node.
#[derive(Debug)]
pub(super) struct Dispatch {
    failures_max: u32,
    failure_interval_ms: i64,
    ephemerals_max: usize,
    readiness: Readiness,
    flights: Flights,
    unanswered: Unanswered,
    ephemerals: Ephemerals,
    late: Late,
    /// Sends whose first content was taken back before it left, or is not known to have left before a restart, after
    /// which it may leave in a later epoch than the one in which it was counted: no place was taken for it.
    pub(super) uncounted: HashSet<Name>,
    /// Failures that are known and not applied yet: nothing is tried before they are.
    announced_failures: u32,
    /// First contents that got no place, and are not taken back yet.
    announced_late: HashSet<u64>,
    /// Requests that are to be withdrawn, and their sends.
    announced_withdrawals: HashMap<Name, Name>,
    /// Failures of the node since a send that waits for it last propagated, and when the last of them was
    /// counted.
    failures_by_send: HashMap<Name, (u32, i64)>,
    /// When what is due was last looked at.
    looked_ms: i64,
    counts: DispatchCounts,
}

/// How many messages went which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DispatchCounts {
    /// Handed out, by kind.
    pub dispatched: [u64; TransmitKind::ALL.len()],
    /// Messages that the node failed to send.
    pub failures: u64,
    /// Messages that the node refused until a time that it named.
    pub held: u64,
    /// Parity that can never be sent and is done without.
    pub parity_left_out: u64,
}

/// What the answers of the node say of the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeState {
    /// Whether it is connected.
    pub online: bool,
    /// For how long it refuses everything, as it said; 0 where it does not.
    pub held_ms: i64,
    /// How many times in a row it failed without naming a time.
    pub failures: u32,
}

impl Dispatch {
    pub fn new(config: &Config, monotonic_ms: i64) -> Self {
        Dispatch {
            failures_max: config.max_retransmissions,
            failure_interval_ms: config.acknowledgement_timeout_ms,
            ephemerals_max: config.outgoing_buffer_messages_max,
            readiness: Readiness::new(),
            flights: Flights::new(),
            unanswered: Unanswered::default(),
            ephemerals: Ephemerals::default(),
            late: Late::default(),
            uncounted: HashSet::default(),
            announced_failures: 0,
            announced_late: HashSet::default(),
            announced_withdrawals: HashMap::default(),
            failures_by_send: HashMap::default(),
            looked_ms: monotonic_ms,
            counts: DispatchCounts::default(),
        }
    }

    /// What SDS waits for an answer to is on its way, and what is kept of a send of ours goes with it.
    #[cfg(debug_assertions)]
    pub fn audit(&self, sds: &Machine, own: &OwnSends) {
        if self.counts.dispatched.iter().all(|count| *count == 0) {
            // Some tests ask SDS alone what leaves.
            return;
        }
        let flights = self.flights.ids().into_iter();
        assert_eq!(
            sds.transmissions_in_flight().collect::<BTreeSet<_>>(),
            flights.chain(self.late.ids()).collect::<BTreeSet<_>>(),
            "what awaits an answer"
        );
        for send_id in self.ephemerals.waiting() {
            let leaves = !self.flights.of_send(&send_id).is_empty();
            assert!(
                leaves || sds.is_ephemeral_queued(&send_id),
                "{send_id:?} never ends"
            );
        }
        for send_id in own.pending_ids() {
            assert!(sds.knows_send(send_id), "{send_id:?} never ends");
        }
    }

    /// A request of which that was announced is withdrawn.
    pub fn on_withdrawn(&mut self, request_id: &str) {
        self.announced_withdrawals.remove(request_id.as_bytes());
    }

    /// Whether a message waits for what was announced, or for the first of its send.
    fn is_withheld(&self, transmit_id: u64) -> bool {
        let Some(transmit) = self.flights.transmit(transmit_id) else {
            return false;
        };
        let is_new = matches!(transmit.kind, TransmitKind::First | TransmitKind::Further);
        let is_of = |send_id: &Name| transmit.send_id.as_ref() == Some(send_id);
        let late = self.announced_late.iter();
        let mut late = late.filter_map(|&id| self.flights.transmit(id)?.send_id.as_ref());
        (is_new && !self.announced_withdrawals.is_empty())
            || self.announced_withdrawals.values().any(is_of)
            || late.any(is_of)
            || self.late.is_behind(transmit)
    }

    /// The kinds that may leave now.
    fn allowed(&self, allowances: &[Allowance]) -> Kinds {
        allowance::allowed(allowances, self.flights.unplaced()).and(self.flights.with_places())
    }

    /// Of `kinds`, which may leave, those of contents where a sync would take the last place that one may take.
    fn contents_of_last_place(&self, allowances: &[Allowance], kinds: Kinds) -> Option<Kinds> {
        if !kinds.has(TransmitKind::Sync) || !allowance::counts(allowances, TransmitKind::Sync) {
            return None;
        }
        let after = allowance::allowed(allowances, self.flights.unplaced() + 1);
        let contents = kinds.and(Kinds::CONTENTS);
        (contents.and(after) != contents).then_some(contents)
    }
}
