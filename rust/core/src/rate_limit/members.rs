//! Who shares a limit, and what each waits for.

use std::collections::VecDeque;

use crate::sds::TransmitKind;

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
            requests: VecDeque::new(),
        });
        id
    }

    /// It leaves; what it waits for.
    pub fn leave(&mut self, id: MemberId) -> VecDeque<Request> {
        let place = self.members.iter().position(|member| member.id == id);
        place.map_or_else(VecDeque::new, |place| self.members.remove(place).requests)
    }

    /// The newest epoch that is open.
    pub fn enter(&mut self, epoch: i64) {
        if epoch == self.epoch {
            return;
        }
        let follows = epoch == self.epoch + 1;
        self.epoch = epoch;
        for member in &mut self.members {
            // What waits is asked for in each epoch in which it does.
            let asks = member.requests.iter().any(Request::claims_share);
            member.is_active = asks || (follows && member.asked);
            member.asked = asks;
            member.granted = 0;
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

    /// It got one more.
    pub fn grant(&mut self, id: MemberId) {
        if let Some(member) = self.get_mut(id) {
            member.granted += 1;
        }
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
