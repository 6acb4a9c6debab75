//! Who is to have a send: what `delivered_when` asks.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::acknowledged::Acknowledged;
use super::demand::Need;
use super::ordinals::Ordinals;
use super::send::OutgoingSend;
use crate::sds::config::DeliveredWhen;
use crate::sds::participants::Participants;

/// The participants that must be able to reconstruct a send before its resending stops.
#[derive(Debug)]
pub enum Quorum {
    /// All of these.
    Named(BTreeSet<Arc<str>>),
    /// So many, whoever they are.
    Count(usize),
}

impl From<&DeliveredWhen> for Quorum {
    fn from(delivered_when: &DeliveredWhen) -> Self {
        match delivered_when {
            DeliveredWhen::Named(names) => Quorum::Named(names.clone()),
            DeliveredWhen::Any => Quorum::Count(1),
            DeliveredWhen::Count(count) => Quorum::Count(*count),
        }
    }
}

impl Quorum {
    /// Whether it is known who is to have every send.
    pub fn is_named(&self) -> bool {
        matches!(self, Quorum::Named(_))
    }

    /// Whether `name` must have every send.
    pub fn names(&self, name: &Arc<str>) -> bool {
        matches!(self, Quorum::Named(names) if names.contains(name))
    }

    /// Whether what `name` lacks of a send decides how that goes on: where receivers are named, what others say
    /// tells nothing of them.
    pub fn counts(&self, name: &Arc<str>) -> bool {
        !self.is_named() || self.names(name)
    }

    /// Whether a send is delivered.
    pub fn is_delivered(&self, acknowledged: &Acknowledged) -> bool {
        match self {
            Quorum::Named(names) => names.iter().all(|name| acknowledged.is_complete(name)),
            Quorum::Count(count) => acknowledged.complete() >= *count,
        }
    }

    /// Whether one of those who are to have a send still lacks a content.
    pub fn wants(&self, acknowledged: &Acknowledged, ordinal: u32) -> bool {
        let count = match self {
            Quorum::Named(names) => {
                return names.iter().any(|name| !acknowledged.holds(name, ordinal));
            }
            Quorum::Count(count) => *count,
        };
        if acknowledged.len() < count {
            return true;
        }
        let mut nearest: Vec<&Ordinals> = acknowledged.iter().map(|(_, held)| held).collect();
        nearest.sort_by_key(|held| Reverse(held.count()));
        nearest
            .iter()
            .take(count)
            .any(|held| !held.contains(ordinal))
    }

    /// Whether somebody who is to have a content named what it has later than `gap_ms` after that left, and
    /// not it. What is named sooner may be what came until the middle of its burst.
    pub fn is_missed(&self, send: &OutgoingSend, ordinal: u32, gap_ms: i64) -> bool {
        let left_ms = send.contents[ordinal as usize].left_ms + gap_ms;
        let acknowledged = &send.acknowledged;
        self.receivers(acknowledged.names()).any(|name| {
            !acknowledged.is_complete(name)
                && send.inquiry.is_heard_since(name, left_ms)
                && !acknowledged.holds(name, ordinal)
        })
    }

    /// Whether somebody who is to have something, and `lacks` it, spoke after `since_ms`.
    pub fn is_heard(
        &self,
        since_ms: i64,
        participants: &Participants,
        lacks: impl Fn(&Arc<str>) -> bool,
    ) -> bool {
        let spoke = |name: &Arc<str>| participants.live_ms(name) > Some(since_ms);
        self.receivers(participants.live_since(since_ms))
            .any(|name| spoke(name) && lacks(name))
    }

    /// What those who are to have a send on demand lack of it.
    pub fn need(&self, send: &OutgoingSend) -> Need {
        let mut need = Need {
            receivers: match self {
                Quorum::Named(names) => names.len(),
                Quorum::Count(count) => *count,
            },
            contents_needed: send.contents_needed,
            ..Need::default()
        };
        let Some(demand) = &send.demand else {
            return need;
        };
        let mut add = |name: &Arc<str>| match send.known_to_lack(name) {
            Some(0) => {}
            Some(lacking) => need.lacking.push((Arc::clone(name), lacking)),
            None => need.is_unknown = true,
        };
        let acknowledged = &send.acknowledged;
        let is_open = |name: &&Arc<str>| !acknowledged.is_complete(name);
        let count = match self {
            Quorum::Named(names) => {
                names.iter().filter(is_open).for_each(add);
                return need;
            }
            Quorum::Count(count) => *count,
        };
        let wanted = count.saturating_sub(acknowledged.complete());
        let candidates = acknowledged.names().chain(demand.stating());
        let candidates: BTreeSet<&Arc<str>> = candidates.filter(is_open).collect();
        let mut nearest: Vec<&Arc<str>> = candidates.into_iter().collect();
        nearest.sort_by_key(|name| {
            let by_names = send
                .contents_needed
                .saturating_sub(acknowledged.count(name));
            demand.stated_once(name).unwrap_or(by_names)
        });
        nearest.iter().take(wanted).for_each(|name| add(name));
        need.is_unknown |= nearest.len() < wanted;
        need
    }

    /// What those acknowledged that are to have a send and lack some of it.
    pub fn partly_held<'a>(&'a self, acknowledged: &'a Acknowledged) -> Vec<&'a Ordinals> {
        let is_receiver = |name| match self {
            Quorum::Named(names) => names.contains(name),
            Quorum::Count(_) => true,
        };
        let open = |name| is_receiver(name) && !acknowledged.is_complete(name);
        let held = acknowledged.iter();
        held.filter(|(name, held)| open(name) && held.count() > 0)
            .map(|(_, held)| held)
            .collect()
    }

    /// Who is to have a send and says nothing of what it lacks: nobody in particular where it is not known
    /// who is to have it. What was named within `gap_ms` after a content left says nothing of that.
    pub fn silent(&self, send: &OutgoingSend, gap_ms: i64) -> Vec<Arc<str>> {
        let Quorum::Named(names) = self else {
            return Vec::new();
        };
        let open = names
            .iter()
            .filter(|name| !send.acknowledged.is_complete(name));
        let silent = open.filter(|name| match send.demand {
            Some(_) => send.known_to_lack(name).is_none(),
            None => send.is_silent(name, gap_ms),
        });
        silent.cloned().collect()
    }

    /// The participants that are to have it: the named ones, or else any of `others`.
    fn receivers<'a>(
        &'a self,
        others: impl Iterator<Item = &'a Arc<str>>,
    ) -> impl Iterator<Item = &'a Arc<str>> {
        let (named, others) = match self {
            Quorum::Named(names) => (Some(names), None),
            Quorum::Count(_) => (None, Some(others)),
        };
        let named = named.into_iter().flatten();
        named.chain(others.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sds::name::Name;
    use crate::sds::octets::Octets;
    use crate::sds::outgoing::{Demand, OutgoingContent};

    fn names<const COUNT: usize>(names: [&str; COUNT]) -> BTreeSet<Arc<str>> {
        names.into_iter().map(Arc::from).collect()
    }

    /// A send of three contents, two of which make it whole; "ann" has all of it, "bob" the first one.
    fn send() -> OutgoingSend {
        let mut send = OutgoingSend::new(Name::new("send"), 1, 2);
        send.contents.extend((0..3).map(|ordinal| {
            OutgoingContent::new(
                Name::new(&format!("send.{ordinal}")),
                Octets::from(&[0][..]),
            )
        }));
        send.demand = Some(Demand::new(4, 3));
        let acknowledged = &mut send.acknowledged;
        assert_eq!(acknowledged.add(&"bob".into(), 0), Some(1));
        assert_eq!(acknowledged.add(&"bob".into(), 0), None);
        assert_eq!(
            acknowledged.on_complete(&"ann".into(), 3),
            Some(Ordinals::NONE)
        );
        assert_eq!(acknowledged.on_complete(&"ann".into(), 3), None);
        send
    }

    #[test]
    fn a_send_is_delivered_to_all_who_are_named_or_to_so_many() {
        let send = send();
        for (delivered_when, delivered) in [
            (DeliveredWhen::Named(names(["ann"])), true),
            (DeliveredWhen::Named(names(["ann", "bob"])), false),
            (DeliveredWhen::Any, true),
            (DeliveredWhen::Count(1), true),
            (DeliveredWhen::Count(2), false),
        ] {
            let quorum = Quorum::from(&delivered_when);
            assert_eq!(
                quorum.is_delivered(&send.acknowledged),
                delivered,
                "{quorum:?}"
            );
        }
    }

    #[test]
    fn a_content_is_wanted_while_one_of_them_lacks_it() {
        let send = send();
        for (delivered_when, wanted) in [
            (DeliveredWhen::Named(names(["ann"])), [false, false]),
            (DeliveredWhen::Named(names(["bob"])), [false, true]),
            (DeliveredWhen::Named(names(["carol"])), [true, true]),
            (DeliveredWhen::Any, [false, false]),
            (DeliveredWhen::Count(2), [false, true]),
            (DeliveredWhen::Count(3), [true, true]),
        ] {
            let quorum = Quorum::from(&delivered_when);
            let wants = [0, 1].map(|ordinal| quorum.wants(&send.acknowledged, ordinal));
            assert_eq!(wants, wanted, "{quorum:?}");
        }
    }

    #[test]
    fn what_is_needed_is_what_the_nearest_of_them_lack() {
        let mut send = send();
        let demand = send.demand.as_mut().expect("it is on demand");
        demand.on_stated(&"carol".into(), 2, 1);
        for (delivered_when, most, is_unknown) in [
            (DeliveredWhen::Named(names(["ann"])), 0, false),
            (DeliveredWhen::Named(names(["ann", "carol"])), 2, false),
            (DeliveredWhen::Named(names(["dave"])), 0, true),
            (DeliveredWhen::Any, 0, false),
            // "bob" is nearer, and silent.
            (DeliveredWhen::Count(2), 0, true),
            (DeliveredWhen::Count(3), 2, true),
            (DeliveredWhen::Count(4), 2, true),
        ] {
            let quorum = Quorum::from(&delivered_when);
            let need = quorum.need(&send);
            assert_eq!(
                (need.most(), need.is_unknown),
                (most, is_unknown),
                "{quorum:?}"
            );
        }
        let quorum = Quorum::Named(names(["ann", "bob", "carol", "dave"]));
        assert_eq!(quorum.silent(&send, 0), ["bob".into(), "dave".into()]);
        assert_eq!(Quorum::Count(4).silent(&send, 0), []);
        for quorum in [quorum, Quorum::Count(2)] {
            assert_eq!(quorum.partly_held(&send.acknowledged).len(), 1);
        }
        let others = Quorum::Named(names(["ann", "carol"]));
        assert!(others.partly_held(&send.acknowledged).is_empty());
    }

    #[test]
    fn only_those_are_heard_who_are_to_have_it_lack_it_and_spoke_since() {
        let mut participants = Participants::default();
        participants.hear_live(&"ann".into(), 10);
        participants.hear_live(&"bob".into(), 20);
        let lacks = |name: &Arc<str>| **name != *"ann";
        for (quorum, since_ms, heard) in [
            (Quorum::Count(1), 9, true),
            (Quorum::Count(1), 20, false),
            (Quorum::Named(names(["ann"])), 9, false),
            (Quorum::Named(names(["bob"])), 19, true),
            (Quorum::Named(names(["bob"])), 20, false),
            (Quorum::Named(names(["carol"])), 0, false),
        ] {
            assert_eq!(
                quorum.is_heard(since_ms, &participants, lacks),
                heard,
                "{quorum:?} {since_ms}"
            );
        }
    }
}
