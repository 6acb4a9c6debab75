//! Sends known only by id, each until it counts as lost.

use hashlink::LinkedHashSet;

use super::send::{IncomingSend, SendRef};
use super::step::UNTIED_AT_ONCE_MAX;
use crate::sds::config::Config;
use crate::sds::slab::Slab;

const FOR_EVER_MS: i64 = 1 << 62;
/// Sends that one step gives up.
const LOST_AT_ONCE_MAX: usize = 512;

/// Sends are waited for during one of three periods: one queue each, in the order of its deadlines.
///
/// What is named before anything else was heard of its sender may be older than this participant. In
/// the first that this participant hears at all it most likely is: it is waited for while a sender
/// that lost it lately would send it again, and a store that does not have it is believed. Later, or
/// in a later life, a partition or a crash may as well have kept it away, and a store may have had
/// the same one: it is waited for twice as long as a repair takes, by its sender or by others.
#[derive(Debug)]
pub struct NamedSends {
    /// How long the first of these wait; 0 where they wait for ever.
    lost_ms: i64,
    before_ms: i64,
    pub(super) at_first_ms: i64,
    /// How long after its first receipt a participant is at its first; for ever where none but a
    /// store can help.
    first_ms: i64,
    /// Whether this participant heard others in an earlier life.
    pub returned: bool,
    always: LinkedHashSet<SendRef>,
    before: LinkedHashSet<SendRef>,
    at_first: LinkedHashSet<SendRef>,
}

impl NamedSends {
    /// None.
    pub fn new(config: &Config) -> Self {
        let lost_ms = config.timeout_for_lost_messages_ms;
        let bound_ms = if lost_ms == 0 { FOR_EVER_MS } else { lost_ms };
        let repair_ms = config.repair_t_max_ms.max(config.resending_ms());
        NamedSends {
            lost_ms,
            before_ms: bound_ms.min(2 * repair_ms),
            at_first_ms: bound_ms.min(config.resending_ms()),
            first_ms: if config.enable_repair {
                config.acknowledgement_timeout_ms
            } else {
                FOR_EVER_MS
            },
            returned: false,
            always: LinkedHashSet::new(),
            before: LinkedHashSet::new(),
            at_first: LinkedHashSet::new(),
        }
    }

    /// A send is waited for from now on; this participant's first receipt was `since_first_ms` ago.
    pub fn add(
        &mut self,
        send: SendRef,
        sends: &mut Slab<IncomingSend>,
        monotonic_ms: i64,
        since_first_ms: i64,
    ) {
        let (queue, period_ms) = if !sends[send].may_predate_us {
            (&mut self.always, self.lost_ms)
        } else if self.returned || since_first_ms > self.first_ms {
            (&mut self.before, self.before_ms)
        } else {
            (&mut self.at_first, self.at_first_ms)
        };
        if period_ms != 0 {
            sends[send].deadline_ms = Some(monotonic_ms + period_ms);
            queue.replace(send);
        }
    }

    /// Restores a send that was waited for.
    pub fn restore(&mut self, send: SendRef, sends: &mut Slab<IncomingSend>, monotonic_ms: i64) {
        self.add(send, sends, monotonic_ms, FOR_EVER_MS);
    }

    /// Whether it counts as lost in time.
    #[cfg(debug_assertions)]
    pub fn holds(&self, send: SendRef) -> bool {
        [&self.always, &self.before, &self.at_first]
            .iter()
            .any(|queue| queue.contains(&send))
    }

    /// Something of it came, or nothing waits for it.
    pub fn discard(&mut self, send: SendRef) {
        let _ =
            self.always.remove(&send) || self.before.remove(&send) || self.at_first.remove(&send);
    }

    /// Whether it is lost as soon as a store does not have it.
    pub fn is_store_believed(&self, send: SendRef) -> bool {
        self.at_first.contains(&send)
    }

    /// When the next one is lost.
    pub fn next_ms(&self, sends: &Slab<IncomingSend>) -> Option<i64> {
        let queues = [&self.always, &self.before, &self.at_first];
        queues
            .into_iter()
            .filter_map(|queue| due_of(queue, sends))
            .min()
    }

    /// Takes the sends whose time is over, at most [`LOST_AT_ONCE_MAX`], and no more once
    /// [`UNTIED_AT_ONCE_MAX`] others wait for them.
    pub fn take_lost(&mut self, sends: &Slab<IncomingSend>, monotonic_ms: i64) -> Vec<SendRef> {
        let mut lost = Vec::new();
        let mut waiting = 0;
        for queue in [&mut self.always, &mut self.before, &mut self.at_first] {
            while lost.len() < LOST_AT_ONCE_MAX
                && waiting < UNTIED_AT_ONCE_MAX
                && due_of(queue, sends).is_some_and(|at_ms| at_ms <= monotonic_ms)
                && let Some(send) = queue.pop_front()
            {
                waiting += sends.get(send).map_or(0, |send| send.dependents.len());
                lost.push(send);
            }
        }
        lost
    }
}

fn due_of(queue: &LinkedHashSet<SendRef>, sends: &Slab<IncomingSend>) -> Option<i64> {
    let first = queue.front()?;
    Some(
        sends
            .get(*first)
            .and_then(|send| send.deadline_ms)
            .unwrap_or(0),
    )
}
