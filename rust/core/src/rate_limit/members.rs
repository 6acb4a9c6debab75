//! Who shares a limit, and what each waits for.

use std::collections::VecDeque;

use crate::sds::{Kinds, TransmitKind};

/// While others may still claim their shares, how often it is looked what they have left over: so many times an epoch.
pub const LOOKS_PER_EPOCH: i64 = 64;

/// What a member is called, once.
pub type MemberId = u64;
/// What a request is called, once.
pub type RequestId = u64;

/// Kinds that wait for places.
#[derive(Debug)]
pub struct Request {
    pub id: RequestId,
    pub kinds: Vec<TransmitKind>,
}

impl Request {
    /// Whether it is for more than acknowledgements, to which nothing is left.
    fn claims_share(&self) -> bool {
        self.kinds.iter().any(|kind| *kind != TransmitKind::Sync)
    }
}

#[derive(Debug)]
struct Member {
    id: MemberId,
    /// Places it got in this epoch.
    granted: i64,
    /// Whether it asked for any in this epoch or the last, acknowledgements aside, or joined in it.
    is_active: bool,
    /// Whether it asked for any in this epoch, or joined in it.
    asked: bool,
    /// Whether it asked for a place of a content in this epoch in vain, and how many it got.
    refused: bool,
    contents: i64,
    /// The epoch since which it is passed over: it asked for a content, and got no place.
    passed_over_since: Option<i64>,
    /// Whether a place of this epoch is kept for it since it was passed over.
    has_turn: bool,
    requests: VecDeque<Request>,
}

/// The members in the order in which they joined.
#[derive(Debug, Default)]
pub struct Members {
    members: Vec<Member>,
    /// The epoch that `granted` and `asked` of each are about.
    epoch: i64,
    ids_used: u64,
}

impl Members {
    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn has(&self, id: MemberId) -> bool {
        self.members.iter().any(|member| member.id == id)
    }

    pub fn join(&mut self) -> MemberId {
        let id = self.new_id();
        self.members.push(Member {
            id,
            granted: 0,
            is_active: true,
            asked: true,
            refused: false,
            contents: 0,
            passed_over_since: None,
            has_turn: false,
            requests: VecDeque::new(),
        });
        id
    }

    /// It leaves; what it waits for.
    pub fn leave(&mut self, id: MemberId) -> VecDeque<Request> {
        let place = self.members.iter().position(|member| member.id == id);
        place.map_or_else(VecDeque::new, |place| self.members.remove(place).requests)
    }

    /// The newest epoch that is open, and how many places it has beside those for acknowledgements.
    pub fn enter(&mut self, epoch: i64, places: i64) {
        if epoch == self.epoch {
            return;
        }
        let follows = epoch == self.epoch + 1;
        let left = std::mem::replace(&mut self.epoch, epoch);
        for member in &mut self.members {
            let had_turn = std::mem::take(&mut member.has_turn);
            let was_refused = std::mem::take(&mut member.refused);
            let had_content = std::mem::take(&mut member.contents) > 0;
            let since = member.passed_over_since.filter(|_| !had_turn);
            member.passed_over_since = match (had_content, was_refused) {
                (true, _) => None,
                (false, true) => Some(since.unwrap_or(left)),
                (false, false) => since,
            };
            // What waits is asked for in each epoch in which it does.
            let asks = member.requests.iter().any(Request::claims_share);
            member.is_active = asks || (follows && member.asked);
            member.asked = asks;
            member.granted = 0;
        }
        self.give_turns(places);
    }

    /// As far as there are places, one each is kept for those who were passed over, the longest first: else those who
    /// ask first, and acknowledgements, would have all of them in each epoch.
    fn give_turns(&mut self, places: i64) {
        let members = self.members.iter_mut();
        let passed_over = |member: &&mut Member| member.passed_over_since.is_some();
        let mut waiting: Vec<_> = members.filter(passed_over).collect();
        // Stable: of those who wait equally long the first who joined.
        waiting.sort_by_key(|member| member.passed_over_since);
        let places = usize::try_from(places).unwrap_or(0);
        for member in waiting.into_iter().take(places) {
            member.has_turn = true;
        }
    }

    // --- requests --------------------------------------------------------------------------------

    pub fn new_request(&mut self, kinds: Vec<TransmitKind>) -> Request {
        let id = self.new_id();
        Request { id, kinds }
    }

    /// The request waits; that of somebody who has left comes back.
    pub fn wait(&mut self, member: MemberId, request: Request) -> Result<(), Request> {
        let Some(member) = self.get_mut(member) else {
            return Err(request);
        };
        if request.claims_share() {
            member.asked = true;
            member.is_active = true;
        }
        member.requests.push_back(request);
        Ok(())
    }

    pub fn asking(&self) -> impl Iterator<Item = MemberId> {
        let asking = self.members.iter().filter(|it| !it.requests.is_empty());
        asking.map(|member| member.id)
    }

    /// The first request of each.
    pub fn take_round(&mut self) -> Vec<(MemberId, Request)> {
        let take = |member: &mut Member| Some((member.id, member.requests.pop_front()?));
        self.members.iter_mut().filter_map(take).collect()
    }

    pub fn drop_requests(&mut self) -> Vec<Request> {
        let requests = self.members.iter_mut();
        requests
            .flat_map(|member| std::mem::take(&mut member.requests))
            .collect()
    }

    // --- shares ----------------------------------------------------------------------------------

    /// Places that a member got in this epoch.
    pub fn granted(&self, id: MemberId) -> i64 {
        let member = self.members.iter().find(|member| member.id == id);
        member.map_or(0, |member| member.granted)
    }

    /// It asked for one more in vain.
    pub fn refuse(&mut self, id: MemberId, kind: TransmitKind) {
        if let Some(member) = self.get_mut(id) {
            member.refused |= Kinds::CONTENTS.has(kind);
        }
    }

    /// It got one more.
    pub fn grant(&mut self, id: MemberId, kind: TransmitKind) {
        if let Some(member) = self.get_mut(id) {
            member.granted += 1;
            member.contents += i64::from(Kinds::CONTENTS.has(kind));
        }
    }

    /// It got none of these: their count could not be stored.
    pub fn take_back(&mut self, id: MemberId, kinds: &[TransmitKind]) {
        for kind in kinds {
            if let Some(member) = self.get_mut(id) {
                member.granted -= 1;
                member.contents -= i64::from(Kinds::CONTENTS.has(*kind));
            }
            self.refuse(id, *kind);
        }
    }

    /// Whether it is its turn: it may have a place that acknowledgements of others left to it.
    pub fn has_turn(&self, id: MemberId) -> bool {
        let member = self.members.iter().find(|member| member.id == id);
        member.is_some_and(|member| member.has_turn && member.contents == 0)
    }

    /// Places that are kept for others who were passed over, for whose turn acknowledgements wait as well.
    pub fn turns_of_others(&self, id: MemberId) -> i64 {
        let others = self.members.iter().filter(|other| other.id != id);
        let waiting = others.filter(|other| other.has_turn && other.contents == 0);
        i64::try_from(waiting.count()).expect("members are in memory")
    }

    /// What the other active members have not got of their equal shares of these places.
    pub fn unclaimed(&self, id: MemberId, places: i64) -> i64 {
        if self.members.len() < 2 {
            return 0;
        }
        let others = || {
            let members = self.members.iter();
            members.filter(|other| other.id != id && other.is_active)
        };
        let sharers = i64::try_from(others().count()).expect("members are in memory") + 1;
        let share = places / sharers;
        others().map(|other| (share - other.granted).max(0)).sum()
    }

    fn get_mut(&mut self, id: MemberId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.id == id)
    }

    fn new_id(&mut self) -> u64 {
        self.ids_used += 1;
        self.ids_used
    }
}
