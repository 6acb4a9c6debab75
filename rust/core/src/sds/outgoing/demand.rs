//! Parity on demand: how many more contents of a send its receivers need, whichever those are.

use std::sync::Arc;

use super::acknowledged::PARTICIPANTS_PER_SEND_MAX;
use crate::maps::HashMap;

/// So many inquiries go out before one content does, where nobody says what is missing.
const INQUIRIES_MAX: u32 = 2;
/// As many where anybody says numbers: an inquiry is what is answered, and a content only tells those
/// who have everything what they know.
const INQUIRIES_OF_SPEAKERS_MAX: u32 = 5;
/// For the sake of one receiver what makes the send whole goes so many times, and so many contents more for each that
/// came: of three in four that are lost all goes again that is lacking. Without a bound whoever says after each answer
/// that one content came of it would have nearly all of the send go for every one.
const SENT_FOR_EACH: u32 = 4;
/// What is beyond that goes by so few at once.
const SENT_IN_VAIN: u32 = 4;

/// What the sender of one send knows of how much its receivers lack, while further contents of it can
/// be made.
///
/// Its contents stand for one another: any `contents_needed` of them are the message. So what counts
/// is how many each receiver lacks; the largest need is sent once, in contents that nobody has, and
/// serves all of them.
#[derive(Debug)]
pub struct Demand {
    /// Contents that were announced and are not made.
    pub reserve: u32,
    /// Contents that left at first: parity beyond them comes on demand.
    pub scheduled: u32,
    /// When something of the send left last.
    left_ms: i64,
    /// When its receivers were asked last, by that or by an inquiry.
    asked_ms: i64,
    /// Who said how many it lacks, and when.
    lacking: HashMap<Arc<str>, (u32, i64)>,
    /// Who named contents of it, and when last.
    named_ms: HashMap<Arc<str>, i64>,
    /// Rounds in a row in which nobody said anything new, and inquiries of this one.
    silent_rounds: u32,
    inquiries: u32,
    has_news: bool,
    /// How many contents went for those who were known to lack some, and how many of them for each.
    sent: u32,
    sent_for: HashMap<Arc<str>, u32>,
    /// How many contents the owner was asked for.
    pub wanted: u32,
    /// Whether what was lacked of it at first counted for the messages after it.
    pub is_counted: bool,
}

/// What is known of those who are to have the send.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// How many contents each lacks of whom that is known.
    pub lacking: Vec<(Arc<str>, u32)>,
    /// Whether of some of them nothing is known since the last content left.
    pub is_unknown: bool,
    /// How many are to have it.
    pub receivers: usize,
    /// How many contents make the send whole.
    pub contents_needed: u32,
}

impl Need {
    /// The most that any of them is known to lack.
    pub fn most(&self) -> u32 {
        let lacking = self.lacking.iter().map(|(_, lacking)| *lacking);
        lacking.max().unwrap_or(0)
    }
}

/// What is done about it.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// So many further contents go.
    Contents(u32),
    /// Whoever is silent is asked.
    Inquiry,
    /// Nobody answers.
    GiveUp,
}

impl Demand {
    /// A send of which nothing left.
    pub fn new(reserve: u32, scheduled: u32) -> Self {
        Demand {
            reserve,
            scheduled,
            left_ms: 0,
            asked_ms: 0,
            lacking: HashMap::default(),
            named_ms: HashMap::default(),
            silent_rounds: 0,
            inquiries: 0,
            has_news: false,
            sent: 0,
            sent_for: HashMap::default(),
            wanted: 0,
            is_counted: false,
        }
    }

    /// A content leaves.
    pub fn on_left(&mut self, monotonic_ms: i64) {
        self.left_ms = monotonic_ms;
        self.asked_ms = monotonic_ms;
    }

    /// An inquiry leaves.
    pub fn on_inquiry(&mut self, monotonic_ms: i64) {
        self.asked_ms = monotonic_ms;
    }

    /// When its receivers were asked last.
    pub fn asked_ms(&self) -> i64 {
        self.asked_ms
    }

    /// Rounds in a row in which nobody said anything new.
    pub fn silent_rounds(&self) -> u32 {
        match self.has_news {
            true => 0,
            false => self.silent_rounds,
        }
    }

    /// Something about the send is known that was not.
    pub fn on_news(&mut self) {
        self.has_news = true;
    }

    /// `by` named a content of it; whether it is the first time since the last content left.
    pub fn on_named(&mut self, by: &Arc<str>, monotonic_ms: i64) -> bool {
        if let Some(at_ms) = self.named_ms.get_mut(by) {
            return std::mem::replace(at_ms, monotonic_ms) <= self.left_ms;
        }
        if self.named_ms.len() < PARTICIPANTS_PER_SEND_MAX {
            self.named_ms.insert(Arc::clone(by), monotonic_ms);
        }
        true
    }

    /// Whether `by` named contents of it since the last one left.
    pub fn is_named_by(&self, by: &Arc<str>) -> bool {
        self.named_ms
            .get(by)
            .is_some_and(|at_ms| *at_ms > self.left_ms)
    }

    /// `by` says that it lacks so many; whether it is the first time since the last content left.
    pub fn on_stated(&mut self, by: &Arc<str>, lacking: u32, monotonic_ms: i64) -> bool {
        let is_full = self.lacking.len() >= PARTICIPANTS_PER_SEND_MAX;
        let Some((before, at_ms)) = self.lacking.get_mut(by) else {
            if !is_full {
                self.lacking.insert(Arc::clone(by), (lacking, monotonic_ms));
                self.has_news = true;
            }
            return !is_full;
        };
        let is_first = *at_ms <= self.left_ms;
        // What is repeated or overtaken says nothing new: nobody loses what it had.
        self.has_news |= lacking < *before;
        *before = lacking.min(*before);
        *at_ms = monotonic_ms;
        is_first
    }

    /// How many `by` lacks, as it said since the last content left; `None` for silence.
    pub fn stated(&self, by: &Arc<str>) -> Option<u32> {
        let (lacking, at_ms) = self.lacking.get(by)?;
        (*at_ms > self.left_ms).then_some(*lacking)
    }

    /// How many `by` lacked when it said so last.
    pub fn stated_once(&self, by: &Arc<str>) -> Option<u32> {
        self.lacking.get(by).map(|(lacking, _)| *lacking)
    }

    /// Who ever said how many it lacks.
    pub fn stating(&self) -> impl Iterator<Item = &Arc<str>> {
        self.lacking.keys()
    }

    /// What goes, by what is known. After `rounds_max` rounds without any news nothing does.
    pub fn answer(&mut self, need: &Need, rounds_max: u32) -> Answer {
        if std::mem::take(&mut self.has_news) {
            self.silent_rounds = 0;
        }
        if self.silent_rounds >= rounds_max {
            return Answer::GiveUp;
        }
        let inquiries_max = match self.lacking.is_empty() {
            true => INQUIRIES_MAX,
            false => INQUIRIES_OF_SPEAKERS_MAX,
        };
        let most = need.most();
        if most == 0 && self.inquiries < inquiries_max {
            self.inquiries += 1;
            return Answer::Inquiry;
        }
        self.inquiries = 0;
        self.silent_rounds += 1;
        if most > 0 {
            return Answer::Contents(self.serve(need));
        }
        // More each time for those who never say how much they lack: peers that know nothing of it.
        Answer::Contents(1 << (self.silent_rounds - 1).min(8))
    }

    /// The largest of what goes for each that is known to lack some.
    fn serve(&mut self, need: &Need) -> u32 {
        let mut most = 0;
        for (name, lacking) in &need.lacking {
            // Names are free to forge: once as many were served as are to have it, all that went counts for a new one.
            let before = match self.sent_for.len() < need.receivers {
                true => 0,
                false => self.sent,
            };
            let sent = self.sent_for.entry(Arc::clone(name)).or_insert(before);
            let came = need.contents_needed.saturating_sub(*lacking);
            let worth = SENT_FOR_EACH.saturating_mul(need.contents_needed.saturating_add(came));
            let share = (*lacking).min(worth.saturating_sub(*sent).max(SENT_IN_VAIN));
            *sent = sent.saturating_add(share);
            most = most.max(share);
        }
        self.sent = self.sent.saturating_add(most);
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(most: u32) -> Need {
        needs_of(&[("bob", most)], 64)
    }

    /// What each lacks of a send that so many contents make whole.
    fn needs_of(lacking: &[(&str, u32)], contents_needed: u32) -> Need {
        let lacking = lacking.iter().filter(|(_, lacking)| *lacking > 0);
        let lacking: Vec<_> = lacking
            .map(|(name, lacking)| ((*name).into(), *lacking))
            .collect();
        Need {
            is_unknown: lacking.is_empty(),
            lacking,
            receivers: 1,
            contents_needed,
        }
    }

    /// How many go to each of these in turn, who say something new every time.
    fn shares<'a>(
        said: impl IntoIterator<Item = (&'a str, u32)>,
        contents_needed: u32,
    ) -> Vec<u32> {
        let mut demand = Demand::new(1_000, contents_needed);
        let said = said.into_iter().map(|(name, lacking)| {
            demand.on_news();
            demand.answer(&needs_of(&[(name, lacking)], contents_needed), 5)
        });
        let counts = said.map(|answer| match answer {
            Answer::Contents(count) => count,
            other => panic!("{other:?}"),
        });
        counts.collect()
    }

    #[test]
    fn the_largest_need_goes_and_silence_is_asked_about_first() {
        let mut demand = Demand::new(64, 64);
        assert_eq!(demand.answer(&needs(0), 5), Answer::Inquiry);
        assert_eq!(demand.answer(&needs(0), 5), Answer::Inquiry);
        assert_eq!(demand.answer(&needs(0), 5), Answer::Contents(1));
        assert_eq!(demand.answer(&needs(7), 5), Answer::Contents(7));
    }

    #[test]
    fn whoever_has_spoken_is_asked_more_often() {
        let mut demand = Demand::new(64, 64);
        demand.on_stated(&"bob".into(), 3, 10);
        for _ in 0..INQUIRIES_OF_SPEAKERS_MAX {
            assert_eq!(demand.answer(&needs(0), 5), Answer::Inquiry);
        }
        assert_eq!(demand.answer(&needs(0), 5), Answer::Contents(1));
    }

    #[test]
    fn nobody_is_waited_for_that_says_nothing_new() {
        let mut demand = Demand::new(64, 64);
        let by: Arc<str> = "bob".into();
        assert!(demand.on_stated(&by, 3, 10));
        let mut goes = Vec::new();
        for _ in 0..3 {
            // Said again, and nothing new.
            demand.on_stated(&by, 3, 20);
            goes.push(demand.answer(&needs(3), 2));
        }
        let contents = Answer::Contents(3);
        assert_eq!(goes[..2], [Answer::Contents(3), contents]);
        assert_eq!(goes[2], Answer::GiveUp);
        demand.on_stated(&by, 2, 30);
        assert_eq!(demand.answer(&needs(2), 2), Answer::Contents(2));
    }

    #[test]
    fn who_speaks_first_or_lacks_less_is_news_though_that_is_repeated() {
        let mut demand = Demand::new(64, 64);
        let by: Arc<str> = "bob".into();
        for lacking in [3, 2] {
            for _ in 0..2 {
                assert_eq!(demand.answer(&needs(3), 2), Answer::Contents(3));
            }
            for at_ms in [10, 20] {
                demand.on_stated(&by, lacking, at_ms);
            }
        }
        assert_eq!(demand.answer(&needs(2), 2), Answer::Contents(2));
    }

    #[test]
    fn what_was_said_before_the_last_content_left_is_no_longer_known() {
        let mut demand = Demand::new(64, 64);
        let by: Arc<str> = "bob".into();
        demand.on_stated(&by, 3, 10);
        assert_eq!(demand.stated(&by), Some(3));
        demand.on_left(10);
        assert_eq!(demand.stated(&by), None);
        // Overtaken: it lacked less since.
        assert!(demand.on_stated(&by, 5, 11));
        assert_eq!(demand.stated(&by), Some(3));
        assert!(!demand.on_stated(&by, 1, 12));
    }

    #[test]
    fn who_names_contents_does_so_anew_after_each_that_left() {
        let mut demand = Demand::new(64, 64);
        let by: Arc<str> = "bob".into();
        demand.on_left(10);
        assert!(demand.on_named(&by, 10));
        assert!(!demand.is_named_by(&by), "at that moment it had not come");
        assert!(demand.on_named(&by, 11));
        assert!(demand.is_named_by(&by));
        assert!(!demand.on_named(&by, 12));
        demand.on_left(13);
        assert!(!demand.is_named_by(&by));
        assert!(demand.on_named(&by, 14));
        demand.on_inquiry(20);
        assert_eq!(demand.asked_ms(), 20);
        demand.on_left(30);
        assert_eq!(demand.asked_ms(), 30);
    }

    #[test]
    fn so_many_receivers_are_told_apart_and_no_more() {
        let mut demand = Demand::new(64, 64);
        let names: Vec<Arc<str>> = (0..=PARTICIPANTS_PER_SEND_MAX)
            .map(|number| number.to_string().into())
            .collect();
        let (last, one_past) = (
            &names[PARTICIPANTS_PER_SEND_MAX - 1],
            &names[PARTICIPANTS_PER_SEND_MAX],
        );
        for name in &names {
            demand.on_named(name, 1);
            demand.on_stated(name, 2, 1);
        }
        assert!(demand.is_named_by(last) && !demand.is_named_by(one_past));
        assert_eq!(
            (demand.stated_once(last), demand.stated_once(one_past)),
            (Some(2), None)
        );
        assert_eq!(demand.stating().count(), PARTICIPANTS_PER_SEND_MAX);
        demand.on_stated(last, 1, 2);
        assert_eq!(
            demand.stated_once(last),
            Some(1),
            "it is known, however full the table is"
        );
    }

    #[test]
    fn whoever_says_that_hardly_any_comes_is_sent_no_more_than_some_for_each() {
        for needed in [1, 4, 20, 190, 60_000] {
            let said = (1..=needed.min(190)).rev().map(|lacking| ("bob", lacking));
            let sent = shares(said, needed)
                .iter()
                .map(|count| u64::from(*count))
                .sum::<u64>();
            let most = u64::from(2 * SENT_FOR_EACH * needed + SENT_IN_VAIN);
            assert!(sent <= most, "{sent} of {needed}");
        }
    }

    #[test]
    fn of_three_in_four_that_are_lost_all_goes_again_that_is_lacking() {
        for needed in [1_u32, 7, 100, 200] {
            let lacking = std::iter::successors(Some(needed), |lacking| {
                Some(lacking - lacking.div_ceil(4)).filter(|lacking| *lacking > 0)
            });
            // The first answers came to nothing.
            let said = [needed; 3].into_iter().chain(lacking);
            let said: Vec<_> = said.map(|lacking| ("bob", lacking)).collect();
            let counts = said.iter().map(|(_, lacking)| *lacking);
            assert_eq!(
                shares(said.iter().copied(), needed),
                counts.collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn nobody_is_sent_less_for_what_another_one_had_sent() {
        let mut demand = Demand::new(1_000, 100);
        let both = |mallory, carol| Need {
            receivers: 2,
            ..needs_of(&[("mallory", mallory), ("carol", carol)], 100)
        };
        for lacking in (50..100).rev() {
            demand.on_news();
            demand.answer(&both(lacking, 1), 5);
        }
        demand.on_news();
        assert_eq!(
            demand.answer(&both(49, 1), 5),
            Answer::Contents(SENT_IN_VAIN)
        );
        demand.on_news();
        assert_eq!(demand.answer(&both(48, 60), 5), Answer::Contents(60));
    }

    #[test]
    fn a_name_that_is_new_brings_no_more_once_so_many_spoke_as_are_to_have_it() {
        let names: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let said = names.iter().map(|name| (name.as_str(), 100));
        let sent: u32 = shares(said, 100).iter().sum();
        assert!(sent <= SENT_FOR_EACH * 100 + 100 * SENT_IN_VAIN, "{sent}");
    }

    #[test]
    fn silence_is_answered_with_more_each_time() {
        let mut demand = Demand::new(1_000, 64);
        let mut goes = Vec::new();
        while goes.len() < 11 {
            if let Answer::Contents(count) = demand.answer(&needs(0), 20) {
                goes.push(count);
            }
        }
        assert_eq!(goes, [1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256]);
        // Any news begins anew.
        demand.on_news();
        demand.inquiries = INQUIRIES_MAX;
        assert_eq!(demand.answer(&needs(0), 20), Answer::Contents(1));
    }
}
