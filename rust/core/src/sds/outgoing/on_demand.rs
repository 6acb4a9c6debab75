//! Sends of which further contents can be made: what their receivers lack is sent in contents that
//! nobody has.

use std::cmp::Reverse;
use std::sync::Arc;

use super::changes::Changes;
use super::demand::Answer;
use super::first_parity::FirstParity;
use super::inquiries::Inquiries;
use super::quorum::Quorum;
use super::send::{ContentRef, OutgoingContent, OutgoingRef};
use super::sends::Sends;
use super::unacknowledged::Unacknowledged;
use crate::sds::ids::content_id;
use crate::sds::log::Log;
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::participants::Participants;

/// What earlier sends taught later ones.
#[derive(Debug, Default)]
pub struct OnDemand {
    first_parity: FirstParity,
}

/// The sends, and what is changed of them.
pub struct Around<'a> {
    pub sends: &'a mut Sends,
    pub unacknowledged: &'a mut Unacknowledged,
    pub quorum: &'a Quorum,
    pub inquiries: &'a mut Inquiries,
    pub changes: &'a mut Changes,
}

/// What a review of a send asks of its owner.
#[derive(Debug, PartialEq, Eq)]
pub enum Review {
    /// Nothing.
    Nothing,
    /// So many further contents.
    Contents(u32),
    /// To give the send up: nobody answers.
    GiveUp,
}

impl OnDemand {
    /// How much parity leaves with a message before anybody asks.
    pub fn first_parity(&self) -> &FirstParity {
        &self.first_parity
    }

    /// Goes on from a stored rate.
    pub fn restore_first_parity(&mut self, millionths: u32) {
        self.first_parity.restore(millionths);
    }

    /// Nothing of a send left for a period, or all that its receivers lack is known.
    pub fn review(
        &mut self,
        handle: OutgoingRef,
        monotonic_ms: i64,
        participants: &Participants,
        around: &mut Around<'_>,
    ) -> Review {
        around.send_unconfirmed(handle);
        let send = &around.sends[handle];
        let period_ms = around.unacknowledged.round_ms(send);
        let is_under_way = |content: &OutgoingContent| {
            let has_not_left = content.lamport == 0 && content.has_bytes();
            content.in_flight != 0 || has_not_left || content.is_due || content.unconfirmed
        };
        if send.waits() || send.contents.iter().any(is_under_way) {
            around.look_again(handle, monotonic_ms + period_ms);
            return Review::Nothing;
        }
        let need = around.quorum.need(send);
        if around.waits_in_store(handle, monotonic_ms, participants) {
            return Review::Nothing;
        }
        if need.most() > 0 {
            self.count_lacked(handle, need.most(), around.sends);
        }
        let rounds_max = around.unacknowledged.rounds_max();
        let send = &mut around.sends[handle];
        let Some(demand) = &mut send.demand else {
            return Review::Nothing;
        };
        match demand.answer(&need, rounds_max) {
            Answer::GiveUp => return Review::GiveUp,
            Answer::Inquiry => {
                demand.on_inquiry(monotonic_ms);
                let send_id = send.send_id.clone();
                around.inquiries.add(send_id, monotonic_ms);
                around.look_again(handle, monotonic_ms + period_ms / 2);
            }
            // The owner did not answer.
            Answer::Contents(_) if demand.wanted > 0 => around.end(handle, monotonic_ms),
            Answer::Contents(count) if demand.reserve == 0 => {
                around.repeat(handle, count as usize);
                around.look_again_in_a_round(handle, monotonic_ms);
            }
            Answer::Contents(count) => {
                demand.wanted = count.min(demand.reserve);
                let wanted = demand.wanted;
                around.look_again_in_a_round(handle, monotonic_ms);
                return Review::Contents(wanted);
            }
        }
        Review::Nothing
    }

    /// What its receivers lacked of a send after all of it left is what later ones leave with.
    pub fn count_lacked(&mut self, handle: OutgoingRef, lacked: u32, sends: &mut Sends) {
        let send = &mut sends[handle];
        let needed = send.contents_needed;
        if let Some(demand) = &mut send.demand
            && !std::mem::replace(&mut demand.is_counted, true)
        {
            let first = demand.scheduled.saturating_sub(needed);
            self.first_parity.on_first_round(needed, first, lacked);
        }
    }
}

impl Around<'_> {
    /// The owner made contents that were wanted, or none: then there are no more.
    pub fn extend(
        &mut self,
        handle: OutgoingRef,
        contents: Vec<Octets>,
        log: &Log,
        monotonic_ms: i64,
    ) {
        let send = &mut self.sends[handle];
        let Some(demand) = &mut send.demand else {
            return;
        };
        demand.wanted = 0;
        let reserve = demand.reserve;
        let first = send.contents.len() as u32;
        let count = contents.len() as u32;
        let ids = (first..first + count).map(|ordinal| content_id(&send.send_id, ordinal));
        let ids: Vec<_> = ids.collect();
        // An id that another participant's content has already cannot be ours any more.
        let is_taken = |id: &Name| {
            self.sends.find_content(id.as_bytes()).is_some() || log.contains(id.as_bytes())
        };
        if count == 0 || count > reserve || ids.iter().any(is_taken) {
            self.end(handle, monotonic_ms);
            return;
        }
        for (message_id, content) in ids.into_iter().zip(contents) {
            let mut content = OutgoingContent::new(message_id, content);
            content.queued = false;
            content.made = true;
            let place = self.sends.add_content(handle, content);
            if let Some(content) = self.sends.content_mut(place) {
                self.changes.on_content(place, content);
            }
            self.unacknowledged.add_due(place, self.sends);
        }
        let send = &mut self.sends[handle];
        if let Some(demand) = &mut send.demand {
            demand.reserve -= count;
        }
        send.acknowledged.extend(first + count);
        self.changes.on_send(handle, send);
    }

    /// Once all who are waited for have spoken, what they lack goes as soon as the last of them had
    /// time to say it all.
    pub fn hasten(&mut self, handle: OutgoingRef, monotonic_ms: i64) {
        let at_ms = monotonic_ms + self.unacknowledged.window_ms();
        let send = &self.sends[handle];
        if is_due_later(&send.contents, at_ms) && !self.quorum.need(send).is_unknown {
            self.look_again(handle, at_ms);
        }
    }

    /// What is known to be lacking goes as soon as all who were asked had time to answer: who lacks no
    /// more than another one said may be silent. Where all `members` have spoken, what is still on its way to one that
    /// spoke early is left half as long.
    pub fn hasten_by_number<'m>(
        &mut self,
        handle: OutgoingRef,
        monotonic_ms: i64,
        mut members: impl Iterator<Item = &'m Arc<str>>,
    ) {
        let send = &self.sends[handle];
        let Some(demand) = &send.demand else {
            return;
        };
        let need = self.quorum.need(send);
        let has_spoken =
            |name| send.acknowledged.is_complete(name) || demand.stated(name).is_some();
        let all_spoke = !need.is_unknown && members.all(has_spoken);
        let windows = if all_spoke { 1 } else { 2 };
        let answered_ms = demand.asked_ms() + windows * self.unacknowledged.window_ms();
        let at_ms = monotonic_ms.max(answered_ms);
        if is_due_later(&send.contents, at_ms) && need.most() > 0 {
            self.look_again(handle, at_ms);
        }
    }

    fn look_again(&mut self, handle: OutgoingRef, at_ms: i64) {
        self.unacknowledged.look_again(handle, at_ms, self.sends);
    }

    fn look_again_in_a_round(&mut self, handle: OutgoingRef, monotonic_ms: i64) {
        let round_ms = self.unacknowledged.round_ms(&self.sends[handle]);
        self.look_again(handle, monotonic_ms + round_ms);
    }

    /// What an earlier life may not have sent goes once more.
    fn send_unconfirmed(&mut self, handle: OutgoingRef) {
        let send = &mut self.sends[handle];
        for ordinal in std::mem::take(&mut send.unconfirmed) {
            let place = (handle, ordinal);
            if self.unacknowledged.awaits(place) {
                self.sends[handle].contents[ordinal as usize].unconfirmed = true;
                self.unacknowledged.restore_due(place, self.sends);
            }
        }
    }

    /// All parity has left: contents go again, first those that most of the receivers which named some
    /// lack, then those that left longest ago.
    fn repeat(&mut self, handle: OutgoingRef, count: usize) {
        let send = &self.sends[handle];
        let named = self.quorum.partly_held(&send.acknowledged);
        let lacked_by = |ordinal: u32| named.iter().filter(|held| !held.contains(ordinal)).count();
        let mut order: Vec<u32> = (0..send.contents.len() as u32)
            .filter(|ordinal| self.unacknowledged.awaits((handle, *ordinal)))
            .collect();
        order.sort_by_cached_key(|ordinal| {
            let left_ms = send.contents[*ordinal as usize].left_ms;
            (Reverse(lacked_by(*ordinal)), left_ms, *ordinal)
        });
        for ordinal in order.into_iter().take(count) {
            self.unacknowledged.add_due((handle, ordinal), self.sends);
        }
    }

    /// Whether a store has all of a send that left, and comes first.
    fn waits_in_store(
        &mut self,
        handle: OutgoingRef,
        monotonic_ms: i64,
        participants: &Participants,
    ) -> bool {
        let send = &self.sends[handle];
        let places = (0..send.contents.len() as u32).map(|ordinal| (handle, ordinal));
        let places: Vec<ContentRef> = places
            .filter(|place| self.unacknowledged.awaits(*place))
            .collect();
        let stored = places
            .iter()
            .map(|(_, ordinal)| send.contents[*ordinal as usize].stored_ms);
        let Some(Some(stored_ms)) = stored.reduce(|one, other| Some(one?.max(other?))) else {
            return false;
        };
        let lacks = |name: &Arc<str>| !send.acknowledged.is_complete(name);
        let is_heard = self.quorum.is_heard(stored_ms, participants, lacks);
        let mut waits = false;
        for place in &places {
            waits |= self
                .unacknowledged
                .store_holds_back(*place, is_heard, monotonic_ms);
        }
        for place in places {
            if waits {
                self.unacknowledged
                    .wait_in_store(place, monotonic_ms, self.sends);
            } else {
                self.unacknowledged.leave_store(place);
            }
        }
        waits
    }

    /// From now on what is missing of a send is sent again, content by content.
    fn end(&mut self, handle: OutgoingRef, monotonic_ms: i64) {
        let send = &mut self.sends[handle];
        send.demand = None;
        self.changes.on_send(handle, send);
        for ordinal in 0..send.contents.len() as u32 {
            let place = (handle, ordinal);
            if self.unacknowledged.awaits(place) {
                self.unacknowledged
                    .set_timer(place, monotonic_ms, self.sends);
            }
        }
    }
}

/// Whether a send on demand is looked at only after `at_ms`.
fn is_due_later(contents: &[OutgoingContent], at_ms: i64) -> bool {
    let due_ms = contents.first().and_then(|first| first.resend_ms);
    due_ms.is_some_and(|due_ms| due_ms > at_ms)
}
