//! Participants repair each other with contents that a send's sender never sent.
//!
//! Such a content is parity: whoever has the send can make it, and whichever is made fills any gap. It
//! travels in an ephemeral message of whoever made it, without a place in the causal order, so no id ever
//! has a second message; beside it stands which send of whom it repairs, as the statement that nothing of
//! that is lacking here. Who asks for it says how many contents it lacks, at the time of SDS-R at which it
//! would name them; names follow where nobody answered.

use std::sync::Arc;

use super::config::Now;
use super::events::{Event, Transmit, TransmitKind};
use super::flights::Flight;
use super::ids::{content_id, is_joined, split_content_id, split_lacking_id};
use super::incoming::SendRef;
use super::machine::Machine;
use super::name::Name;
use super::octets::Octets;
use super::repair::{fitting, in_response_group, response_offset_ms};
use super::sync::lacking::{request, statement};
use crate::wire::sds::{EntryView, HistoryEntry};

/// Where a sender is heard it is left so many acknowledgement timeouts to answer; who answered so lately
/// goes on to.
const PATIENCE_TIMEOUTS: i64 = 4;
/// Making parity of a message counts in the pace of answers as this part of its bytes would.
const WORK_SHARE: usize = 8;
/// Anybody is asked so often for more of one send that something came of; then contents are named.
const ASKED_AGAIN_MAX: u32 = 16;

/// The send that an ephemeral message brings parity of, and its sender.
pub(super) fn repaired<'a>(requests: &[EntryView<'a>]) -> Option<(&'a [u8], &'a str)> {
    let first = requests.first()?;
    let (send_id, lacking) = split_lacking_id(std::str::from_utf8(first.message_id).ok()?)?;
    (lacking == 0).then_some((first.sender_id?, send_id))
}

impl Machine {
    // --- asking ---------------------------------------------------------------------------------

    /// Requests that ride on the message that leaves now. The first time, a number asks for all that is
    /// missing of a send.
    pub(super) fn take_requests(&mut self, now: Now, budget_bytes: usize) -> Vec<HistoryEntry> {
        let at_ms = now.monotonic_ms;
        let taken = self.asking.take_requests(at_ms, budget_bytes);
        if taken.is_empty() || !self.config.answers_with_parity() {
            return taken;
        }
        let (mut requests, mut asked) = (Vec::<HistoryEntry>::new(), Vec::new());
        for entry in taken {
            let is_early = self.asking.is_early(&entry.message_id);
            match self.number_for(&entry.message_id).filter(|_| is_early) {
                Some((send, number)) => {
                    let message_id = Name::new(&entry.message_id);
                    self.asking.on_number_instead(&message_id, at_ms);
                    asked.push(send);
                    if !requests.contains(&number) {
                        requests.push(number);
                    }
                }
                None => requests.push(entry),
            }
        }
        for send in asked {
            self.incoming.may_ask_again(send, ASKED_AGAIN_MAX);
            for message_id in self.incoming.missing_of(send) {
                self.asking.put_off(&message_id, false, at_ms);
            }
        }
        fitting(requests, budget_bytes)
    }

    /// Asks for more of what parity that came was not enough for.
    pub(super) fn take_numbers_again(
        &mut self,
        now: Now,
        budget_bytes: usize,
    ) -> Vec<HistoryEntry> {
        let mut numbers: Vec<HistoryEntry> = Vec::new();
        for (sender_id, send_id) in self.lacking.take_again(now.monotonic_ms) {
            let found = self.incoming.find(&sender_id, &send_id);
            if let Some(send) = found
                && let Some((lacking, made)) = self.lacking_of_anybody(send)
                && self.incoming.may_ask_again(send, ASKED_AGAIN_MAX)
            {
                numbers.push(request(&send_id, lacking, made, &sender_id));
                for message_id in self.incoming.missing_of(send) {
                    self.asking.put_off(&message_id, false, now.monotonic_ms);
                }
            }
        }
        fitting(numbers, budget_bytes)
    }

    /// The number that asks for a missing content and for all else of its send, where parity can bring it.
    fn number_for(&self, message_id: &str) -> Option<(SendRef, HistoryEntry)> {
        split_content_id(message_id)?;
        let send = self.incoming.missing().get(message_id.as_bytes())?.send;
        let (lacking, made) = self.lacking_of_anybody(send)?;
        let held = self
            .incoming
            .get(send)
            .filter(|held| held.asked_again == 0)?;
        let number = request(&held.send_id, lacking, made, &held.sender_id);
        Some((send, number))
    }

    /// How many contents are lacking of a send, and how many are here that others made of it; `None` where
    /// nothing of it is here, or its sender announced no parity.
    fn lacking_of_anybody(&self, send: SendRef) -> Option<(u32, u32)> {
        let held = self.incoming.get(send)?;
        let lacking = self
            .count_lacking(&held.sender_id, &held.send_id)
            .filter(|lacking| *lacking > 0)?;
        let announces = held.content_count? > held.contents_needed?;
        announces.then_some((lacking, held.by_members))
    }

    // --- answering ------------------------------------------------------------------------------

    /// `by` asks anybody for so many contents of a send.
    pub(super) fn on_asked_for_any(
        &mut self,
        (sender_id, send_id): (&Arc<str>, &str),
        by: &Arc<str>,
        lacking: u32,
        now: Now,
    ) {
        let at_ms = now.monotonic_ms;
        if !self.config.answers_with_parity() {
            return;
        }
        let ours = self.incoming.find(sender_id, send_id);
        if let Some(send) = ours
            && let Some((own, made)) = self.lacking_of_anybody(send)
        {
            // What repairs it repairs this too.
            if own.saturating_sub(made) <= lacking {
                self.lacking.ask_no_more(sender_id, &Name::new(send_id));
                for message_id in self.incoming.missing_of(send) {
                    self.asking.put_off(&message_id, true, at_ms);
                }
            }
            return;
        }
        let (config, me) = (&self.config, &*self.sender_id);
        let wire_format = config.wire_format;
        let answers = in_response_group(me, sender_id, send_id, config.repair_groups, wire_format);
        let is_whole = self.count_lacking(sender_id, send_id) == Some(0);
        if !answers || !is_whole || self.answering.rests(send_id, at_ms) {
            return;
        }
        let window_ms = config.window_ms();
        let timeout_ms = config.acknowledgement_timeout_ms;
        // Others who ask have time to, and its own sender comes first.
        let wait_ms = match *me == **sender_id {
            true => 2 * window_ms,
            false => {
                // Within T_min, in which names wait for it.
                let (within_ms, _) = self.times_without_store(at_ms);
                let offset_ms = response_offset_ms(me, sender_id, send_id, within_ms, wire_format);
                config.sender_first_ms() + offset_ms
            }
        };
        let served_ms = 2 * window_ms + (self.rng.unit() * window_ms as f64) as i64;
        let waits_ms = [wait_ms, served_ms, PATIENCE_TIMEOUTS * timeout_ms];
        self.needs
            .on_asked((sender_id, send_id), by, lacking, at_ms, waits_ms);
    }

    /// What is wanted of what is whole here, as far as nobody else answered.
    pub(super) fn want_parity(&mut self, now: Now) {
        let at_ms = now.monotonic_ms;
        if self.needs.queued() > 0 || self.answering.paced_ms() > at_ms {
            // To make it is work of the same pace.
            return;
        }
        let patience_ms = PATIENCE_TIMEOUTS * self.config.acknowledgement_timeout_ms;
        let participants = &self.participants;
        let live_ms = |name: &Arc<str>| participants.live_ms(name);
        if let Some(wanted) = self.needs.take_due(at_ms, patience_ms, live_ms) {
            self.answering
                .on_answered_with_parity(&wanted.send_id, at_ms);
            self.events.push_back(Event::ParityWanted {
                sender_id: wanted.sender_id,
                send_id: wanted.send_id,
                count: wanted.count,
            });
        }
    }

    /// When parity is to be made, or to leave.
    pub(super) fn next_parity_ms(&self) -> Option<i64> {
        let queued_ms = (self.needs.queued() > 0).then_some(0);
        let next_ms = queued_ms.or_else(|| self.needs.next_ms());
        next_ms.map(|next_ms| next_ms.max(self.answering.paced_ms()))
    }

    /// So many of the parity contents of a send that nobody was heard to send, by their index; each
    /// participant begins elsewhere.
    pub fn unheard_parity(
        &mut self,
        send_id: &str,
        data_count: u32,
        parity_count: u32,
        count: u32,
    ) -> Vec<u32> {
        if parity_count == 0 {
            return Vec::new();
        }
        let first = (self.rng.unit() * f64::from(parity_count)) as u32;
        let indexes = (0..parity_count).map(|at| (first + at) % parity_count);
        let is_unheard = |index: &u32| {
            let id = content_id(send_id, data_count + index);
            !self.log.contains(id.as_bytes()) && !self.needs.has_heard(send_id, *index)
        };
        indexes.filter(is_unheard).take(count as usize).collect()
    }

    /// The owner made contents that were wanted, each with its index among the parity, out of so many bytes.
    pub fn handle_parity_made(
        &mut self,
        sender_id: &Arc<str>,
        send_id: &str,
        contents: Vec<(u32, Octets)>,
        size_bytes: usize,
        now: Now,
    ) {
        let work_bytes = size_bytes / WORK_SHARE;
        self.answering.on_answer_left(work_bytes, now.monotonic_ms);
        self.needs.on_made((sender_id, send_id), contents);
    }

    /// Parity of a send that leaves now.
    pub(super) fn next_parity(&mut self, now: Now) -> Option<Transmit> {
        let at_ms = now.monotonic_ms;
        if self.answering.paced_ms() > at_ms {
            return None;
        }
        let made = self.needs.take(at_ms)?;
        let message_id = self.transmission.new_parity_id();
        let said = statement(&made.send_id, 0, &made.sender_id);
        let wire = self.encode(&message_id, None, &[], None, &[said], Some(&made.content))?;
        self.remember_ephemeral(message_id.clone());
        self.answering.on_answer_left(wire.len(), at_ms);
        Some(
            self.transmission
                .leave(TransmitKind::Repair, message_id, wire, Flight::Other),
        )
    }

    // --- what came ------------------------------------------------------------------------------

    /// Somebody sent parity of a send, of this index.
    pub fn handle_parity_heard(&mut self, send_id: &str, index: u32) {
        self.needs.on_heard(send_id, Some(index));
    }

    /// Whether something of a send is here and more is lacking.
    pub fn is_partial(&self, sender_id: &str, send_id: &str) -> bool {
        let send = self.incoming.find(sender_id, send_id);
        let send = send.and_then(|send| self.incoming.get(send));
        send.is_some_and(|send| send.is_partial())
    }

    /// Whether all of a send of another participant is here, and it waits for what it follows. A content of
    /// another send that is spelled like it is none of it.
    pub fn is_reconstructed(&self, message_id: &str, sender_id: &str, send_id: &str) -> bool {
        let Some(found) = self.incoming.find(sender_id, send_id) else {
            return false;
        };
        let entry = self.log.find(message_id.as_bytes());
        let held_in = entry.and_then(|entry| self.log.get(entry)?.send);
        let send = self.incoming.get(found);
        send.is_some_and(|send| {
            send.reconstructed
                && (is_joined(&send.key) || held_in.is_none_or(|held_in| held_in == found))
        })
    }

    /// So many contents that others made of a send are here now, and it is not whole.
    pub fn handle_parity_taken(&mut self, sender_id: &str, send_id: &str, held: u32, now: Now) {
        let Some(send) = self.incoming.find(sender_id, send_id) else {
            return;
        };
        let window_ms = self.config.window_ms();
        let delay_ms = window_ms / 2 + (self.rng.unit() * window_ms as f64) as i64;
        if let Some((sender_id, send_id)) = self.incoming.on_parity(send, held) {
            // Once what came with it had time to come.
            let at_ms = now.monotonic_ms + delay_ms;
            self.lacking.ask_again(&sender_id, send_id, at_ms);
        }
    }
}
