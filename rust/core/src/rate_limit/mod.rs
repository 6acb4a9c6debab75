//! How many messages may still leave in an epoch, and who of those that share a limit gets the next place (003 and
//! 004, Rate limit management).
//!
//! A [`SharedQuota`] is one limit: that of a node, which its channels share, or that of one channel. Whoever drives it
//! makes the count durable before what it counts is handed to a node:
//!
//! - `count`: what was counted in the epoch, and in those before it;
//! - `members`: who shares the limit, what each waits for, and what is left to the others;
//! - `pause`: nothing is counted for a while after a count that could not be stored.

mod count;
mod members;
mod pause;

pub use count::{Counts, EARLIER_MAX, Record, Standing, Terms};
pub use members::{LOOKS_PER_EPOCH, MemberId, RequestId};
pub use pause::{PAUSE_MS_MAX, PAUSE_MS_MIN};

use crate::channel::Allowance;
use crate::sds::{Kinds, TransmitKind};
use count::Count;
use members::{Members, Request};
use pause::Pause;

/// A moment, as a limit is told it.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Unix time in ms.
    pub epoch_ms: i64,
    /// How many counted messages nodes hold of which nobody knows when they leave: they count in an epoch that begins
    /// meanwhile, too. Looked at only where [`SharedQuota::enters`] says so.
    pub in_flight: i64,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The request.
    pub request: RequestId,
    /// Which of its kinds got a place.
    pub granted: Vec<bool>,
    /// The epoch of the places: they are void once that is over.
    pub epoch: i64,
}

/// A request that is part of a round.
#[derive(Debug)]
struct Served {
    member: MemberId,
    request: Request,
    granted: Vec<bool>,
    /// Places that the member had got in this epoch before.
    granted_before: i64,
    counted: Vec<TransmitKind>,
    epoch: i64,
}

/// One limit, and those who share it.
///
/// A member that was active lately may count on an equal share of each epoch: the others leave that to it, the less
/// the later in the epoch, so that what one does not use is not lost to them.
#[derive(Debug)]
pub struct SharedQuota {
    count: Count,
    members: Members,
    pause: Pause,
    /// The requests whose count is being stored.
    round: Vec<Served>,
    answers: Vec<Answer>,
}

impl SharedQuota {
    /// A limit of which nothing is counted.
    pub fn new(terms: Terms) -> Self {
        SharedQuota {
            count: Count::new(terms),
            members: Members::default(),
            pause: Pause::default(),
            round: Vec::new(),
            answers: Vec::new(),
        }
    }

    // --- what was counted in an earlier life -----------------------------------------------------

    /// Takes over a count that was stored, on top of what was counted here in the same epoch.
    pub fn add(&mut self, stored: Record) {
        self.count.add(stored);
    }

    /// An earlier life counted elsewhere: unless its count was taken over, nothing more of this epoch is spent.
    pub fn close(&mut self, now: Moment) {
        if !self.count.is_known() {
            self.count.close(now);
        }
    }

    // --- members ---------------------------------------------------------------------------------

    /// Somebody shares the limit from now on.
    pub fn join(&mut self, now: Moment) -> MemberId {
        self.advance(now);
        self.members.join()
    }

    /// Somebody does no longer; nothing that he waits for is granted.
    pub fn leave(&mut self, member: MemberId) {
        for request in self.members.leave(member) {
            self.refuse(request);
        }
    }

    /// How many share it.
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    // --- what may leave --------------------------------------------------------------------------

    /// Whether an epoch is entered at this time, in which what nodes hold counts: [`Moment::in_flight`] is looked at.
    pub fn enters(&self, epoch_ms: i64) -> bool {
        self.count.enters(epoch_ms)
    }

    /// Kinds that take no place.
    pub fn free_kinds(&self) -> Kinds {
        self.count.free_kinds()
    }

    /// What `member` may prepare now.
    pub fn allowance(&mut self, member: MemberId, now: Moment) -> Allowance {
        self.advance(now);
        let is_paused = self.pause.holds(now.epoch_ms);
        let turns = self.members.turns_of_others(member);
        let left_to_others = self.left_to_others(member, now.epoch_ms).max(turns);
        let mut allowance = self.count.allowance(now, left_to_others, turns, is_paused);
        if self.members.has_turn(member) && !is_paused {
            // What acknowledgements took of the places of messages they have left of their reserve.
            let one = (allowance.left - turns).clamp(0, 1);
            allowance.open_left = allowance.open_left.max(one);
        }
        allowance
    }

    /// Contents of a member wait for an epoch with a place, which it does not ask for while there is none: it is as if
    /// it had asked in vain.
    pub fn pass_over(&mut self, member: MemberId, now: Moment) {
        self.advance(now);
        self.members.refuse(member, TransmitKind::First);
    }

    /// Unix time at which more of a kind may leave, where none may now.
    pub fn reopens_at_ms(&self, member: MemberId, kind: TransmitKind, epoch_ms: i64) -> i64 {
        let reopens_at_ms = self.count.reopens_at_ms(kind, epoch_ms);
        if self.pause.holds(epoch_ms) {
            return reopens_at_ms.min(self.pause.until_ms());
        }
        if self.left_to_others(member, epoch_ms) > 0 {
            let looks_at_ms = epoch_ms + (self.count.epoch_size_ms() / LOOKS_PER_EPOCH).max(1);
            return reopens_at_ms.min(looks_at_ms);
        }
        reopens_at_ms
    }

    /// Unix time at which the epoch that follows the newest begins.
    pub fn resets_at_ms(&self) -> i64 {
        self.count.resets_at_ms()
    }

    /// How far the clock stands before the newest epoch: it was set back, or was ahead when that was opened.
    pub fn behind_ms(&mut self, now: Moment) -> i64 {
        self.count.behind_ms(now)
    }

    /// How the limit stands.
    pub fn standing(&mut self, now: Moment) -> Standing {
        self.count.standing(now)
    }

    /// Whether `epoch`, in which a place was counted, is that of this time.
    pub fn is_open(&mut self, epoch: i64, now: Moment) -> bool {
        self.advance(now);
        epoch == self.count.epoch_of(now.epoch_ms)
    }

    /// Places whose messages never left; what is stored stays until the next count.
    pub fn give_back(&mut self, places: i64, epoch: i64) {
        // What they were for nobody knows here.
        self.count.give_back(places, 0, epoch);
    }

    // --- counting --------------------------------------------------------------------------------

    /// `member` waits for a place for each of these, or for as many as it gets in the next round.
    pub fn request(&mut self, member: MemberId, kinds: Vec<TransmitKind>) -> RequestId {
        let request = self.members.new_request(kinds);
        let id = request.id;
        if let Err(request) = self.members.wait(member, request) {
            self.refuse(request);
        }
        id
    }

    /// Members that wait for places.
    pub fn asking(&self) -> impl Iterator<Item = MemberId> {
        self.members.asking()
    }

    /// Counts places for the first request of each member, the next always for whoever got fewest in this epoch; true
    /// where the count must be stored before they are answered.
    pub fn count_round(&mut self, now: Moment) -> bool {
        self.advance(now);
        let taken = self.members.take_round();
        let epoch = self.count.epoch_of(now.epoch_ms);
        let serve = |(member, request)| Served {
            member,
            request,
            granted: Vec::new(),
            granted_before: self.members.granted(member),
            counted: Vec::new(),
            epoch,
        };
        let mut round: Vec<_> = taken.into_iter().map(serve).collect();
        while let Some(served) = round
            .iter_mut()
            .filter(|served| served.granted.len() < served.request.kinds.len())
            .min_by_key(|served| served.granted_before + places(&served.counted))
        {
            let kind = served.request.kinds[served.granted.len()];
            let is_granted = self.allowance(served.member, now).kinds(0).has(kind);
            served.granted.push(is_granted);
            if is_granted && !self.count.free_kinds().has(kind) {
                self.count.take(kind, now);
                self.members.grant(served.member, kind);
                served.counted.push(kind);
            } else if !is_granted {
                self.members.refuse(served.member, kind);
            }
        }
        let must_be_stored = round.iter().any(|served| !served.counted.is_empty());
        self.round = round;
        if !must_be_stored {
            self.answer_round();
        }
        must_be_stored
    }

    /// The count of the round is durable: its places are given.
    pub fn handle_stored(&mut self) {
        self.pause.handle_stored();
        self.answer_round();
    }

    /// It could not be stored: the places of the round are nobody's, and nothing is counted for a while. True where
    /// that is news.
    pub fn handle_store_failed(&mut self, epoch_ms: i64) -> bool {
        // Where nobody is left, nobody waits for the end of a pause.
        let is_news = self.members.len() > 0 && self.pause.handle_store_failed(epoch_ms);
        self.refuse_round();
        is_news
    }

    /// Nobody counts any more: whatever waits is refused.
    pub fn refuse_all(&mut self) {
        self.refuse_round();
        for request in self.members.drop_requests() {
            self.refuse(request);
        }
    }

    /// What became of requests since the last call.
    pub fn poll_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    fn answer_round(&mut self) {
        for served in std::mem::take(&mut self.round) {
            if self.members.has(served.member) {
                self.answers.push(Answer {
                    request: served.request.id,
                    granted: served.granted,
                    epoch: served.epoch,
                });
            } else {
                self.take_back(served);
            }
        }
    }

    fn refuse_round(&mut self) {
        for served in std::mem::take(&mut self.round) {
            self.take_back(served);
        }
    }

    fn take_back(&mut self, served: Served) {
        let counted = &served.counted;
        let is_repair = |kind: &&TransmitKind| **kind == TransmitKind::Repair;
        let repairs = counted.iter().filter(is_repair).count() as i64;
        self.count.give_back(places(counted), repairs, served.epoch);
        if served.epoch == self.count.epoch() {
            self.members.take_back(served.member, counted);
        }
        self.refuse(served.request);
    }

    fn refuse(&mut self, request: Request) {
        self.answers.push(Answer {
            request: request.id,
            granted: vec![false; request.kinds.len()],
            epoch: self.count.epoch(),
        });
    }

    // --- what is stored --------------------------------------------------------------------------

    /// The count as it stands.
    pub fn record(&self) -> Record {
        self.count.record()
    }

    /// The count, where it changed since the last call.
    pub fn poll_record(&mut self) -> Option<Record> {
        self.count.poll_record()
    }

    // --- shares ----------------------------------------------------------------------------------

    fn advance(&mut self, now: Moment) {
        self.count.advance(now);
        self.members
            .enter(self.count.epoch(), self.count.open_quota());
    }

    /// Places that the other active members have not claimed of their shares yet.
    fn left_to_others(&self, member: MemberId, epoch_ms: i64) -> i64 {
        let unclaimed = self.members.unclaimed(member, self.count.open_quota());
        self.count.due_later(unclaimed, epoch_ms)
    }
}

fn places(counted: &[TransmitKind]) -> i64 {
    i64::try_from(counted.len()).expect("requests are in memory")
}

#[cfg(test)]
mod tests;
