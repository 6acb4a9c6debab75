//! What others lack of messages that are whole here, and the parity that answers it.
//!
//! A participant that lacks contents of a send asks anyone for so many of them, not for these. Whoever has
//! the send makes as many as nobody else was heard to send meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;

use hashlink::LinkedHashMap;

use super::rules::REPAIR_BUFFER_MAX;
use crate::sds::name::Name;
use crate::sds::octets::Octets;
use crate::sds::outgoing::Ordinals;

/// Who asks of one send; the longest known goes first.
const ASKING_MAX: usize = 256;
/// Where the sender of a send is heard after somebody asked, its own answer is waited for so often.
const PUT_OFF_MAX: u32 = 3;
/// Bytes of made contents that wait to leave; what is beyond them is asked for again.
const QUEUED_BYTES_MAX: usize = 32 << 20;

/// One send of which something is lacking elsewhere.
#[derive(Debug)]
pub struct Need {
    /// Who sent it.
    pub sender_id: Arc<str>,
    /// How many each lacked that asked, and how many contents had been heard by then.
    asking: LinkedHashMap<Arc<str>, (u32, u32)>,
    /// Contents of it that were heard since, or left here.
    heard: u32,
    /// Parity of it that was heard, or left here, by its index.
    indexes: Ordinals,
    /// When it is answered, if nobody does before; `None` while the answer is made or leaves.
    due_ms: Option<i64>,
    asked_ms: i64,
    put_off: u32,
    /// When parity of ours left last, and how much waits to.
    served_ms: Option<i64>,
    queued: u32,
}

impl Need {
    /// The most that anybody still lacks, as far as was heard.
    fn left(&self) -> u32 {
        let left = |(lacking, before): &(u32, u32)| lacking.saturating_sub(self.heard - before);
        self.asking.values().map(left).max().unwrap_or(0)
    }
}

/// A content that answers a need.
#[derive(Debug)]
pub struct Made {
    /// The send that it repairs.
    pub send_id: Name,
    /// Who sent that.
    pub sender_id: Arc<str>,
    /// Its bytes.
    pub content: Octets,
    index: u32,
}

/// What is to be made now.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Who sent the send.
    pub sender_id: Arc<str>,
    /// The send.
    pub send_id: Name,
    /// How many contents.
    pub count: u32,
}

/// Needs by send, of which the longest known goes first.
#[derive(Debug, Default)]
pub struct Needs {
    by_send: LinkedHashMap<Name, Need>,
    queue: VecDeque<Made>,
    queued_bytes: usize,
    /// Nothing is due before.
    next_ms: Option<i64>,
}

impl Needs {
    /// Whether nobody is known to lack anything.
    pub fn is_empty(&self) -> bool {
        self.by_send.is_empty()
    }

    /// Contents that wait to leave.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// `by` lacks so many contents of a send that is whole here. It is answered after `wait_ms`, or after
    /// `served_ms` by who answered lately.
    pub fn on_asked(
        &mut self,
        (sender_id, send_id): (&Arc<str>, &str),
        by: &Arc<str>,
        lacking: u32,
        monotonic_ms: i64,
        [wait_ms, served_ms, lately_ms]: [i64; 3],
    ) {
        let need = self
            .by_send
            .entry(Name::new(send_id))
            .or_insert_with(|| Need {
                sender_id: Arc::clone(sender_id),
                asking: LinkedHashMap::new(),
                heard: 0,
                indexes: Ordinals::NONE,
                due_ms: None,
                asked_ms: monotonic_ms,
                put_off: 0,
                served_ms: None,
                queued: 0,
            });
        if need.sender_id != *sender_id {
            return;
        }
        let before = need.heard;
        need.asking.replace(Arc::clone(by), (lacking, before));
        if need.asking.len() > ASKING_MAX {
            need.asking.pop_front();
        }
        if need.due_ms.is_none() && need.queued == 0 {
            let serves = need
                .served_ms
                .is_some_and(|served_ms| monotonic_ms - served_ms < lately_ms);
            let wait_ms = if serves { served_ms } else { wait_ms };
            let due_ms = monotonic_ms + wait_ms;
            need.due_ms = Some(due_ms);
            need.asked_ms = monotonic_ms;
            need.put_off = 0;
            self.next_ms = Some(self.next_ms.map_or(due_ms, |next_ms| next_ms.min(due_ms)));
        }
        if self.by_send.len() > REPAIR_BUFFER_MAX {
            self.by_send.pop_front();
        }
    }

    /// `by` lacks nothing of a send any more.
    pub fn on_whole(&mut self, send_id: &str, by: &Arc<str>) {
        if let Some(need) = self.by_send.get_mut(send_id.as_bytes()) {
            need.asking.remove(by);
        }
    }

    /// A content of a send was heard: its parity of this index, where it is parity.
    pub fn on_heard(&mut self, send_id: &str, index: Option<u32>) {
        if let Some(need) = self.by_send.get_mut(send_id.as_bytes()) {
            need.heard = need.heard.saturating_add(1);
            if let Some(index) = index {
                need.indexes.insert(index);
            }
        }
    }

    /// Whether parity of this index was heard, or left here.
    pub fn has_heard(&self, send_id: &str, index: u32) -> bool {
        let need = self.by_send.get(send_id.as_bytes());
        need.is_some_and(|need| need.indexes.contains(index))
    }

    /// When anything may be due.
    pub fn next_ms(&self) -> Option<i64> {
        self.next_ms
    }

    /// The next that is to be made now. Where `live_ms` tells that the sender spoke since it was asked, its
    /// answer is waited for, `patience_ms` from then on.
    pub fn take_due(
        &mut self,
        monotonic_ms: i64,
        patience_ms: i64,
        live_ms: impl Fn(&Arc<str>) -> Option<i64>,
    ) -> Option<Wanted> {
        if self.next_ms.is_none_or(|next_ms| next_ms > monotonic_ms) {
            return None;
        }
        let mut wanted = None;
        for (send_id, need) in &mut self.by_send {
            if need.due_ms.is_none_or(|due_ms| due_ms > monotonic_ms) {
                continue;
            }
            let count = need.left();
            if count == 0 {
                need.due_ms = None;
                need.asking.clear();
                continue;
            }
            let live_ms = live_ms(&need.sender_id).filter(|live_ms| *live_ms > need.asked_ms);
            if let Some(live_ms) = live_ms
                && need.put_off < PUT_OFF_MAX
                && live_ms + patience_ms > monotonic_ms
            {
                need.put_off += 1;
                need.due_ms = Some(live_ms + patience_ms);
                continue;
            }
            need.due_ms = None;
            wanted = Some(Wanted {
                sender_id: Arc::clone(&need.sender_id),
                send_id: send_id.clone(),
                count,
            });
            break;
        }
        self.next_ms = self.by_send.values().filter_map(|need| need.due_ms).min();
        wanted
    }

    /// Contents were made that answer a need.
    pub fn on_made(
        &mut self,
        (sender_id, send_id): (&Arc<str>, &str),
        contents: Vec<(u32, Octets)>,
    ) {
        let Some(need) = self.by_send.get_mut(send_id.as_bytes()) else {
            return;
        };
        for (index, content) in contents {
            if self.queued_bytes + content.len() > QUEUED_BYTES_MAX {
                break;
            }
            self.queued_bytes += content.len();
            need.queued += 1;
            self.queue.push_back(Made {
                send_id: Name::new(send_id),
                sender_id: Arc::clone(sender_id),
                content,
                index,
            });
        }
    }

    /// The next content that leaves. What was answered by others meanwhile does not.
    pub fn take(&mut self, monotonic_ms: i64) -> Option<Made> {
        while let Some(made) = self.queue.pop_front() {
            self.queued_bytes -= made.content.len();
            let Some(need) = self.by_send.get_mut(made.send_id.as_bytes()) else {
                continue;
            };
            need.queued = need.queued.saturating_sub(1);
            let is_wanted = need.left() > 0 && !need.indexes.contains(made.index);
            if is_wanted {
                need.heard = need.heard.saturating_add(1);
                need.indexes.insert(made.index);
                need.served_ms = Some(monotonic_ms);
            }
            if need.queued == 0 {
                // Who lacks more says so again.
                need.asking.clear();
            }
            if is_wanted {
                return Some(made);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: &str = "0123456789abcdef0123456789abcdef";
    const WAITS_MS: [i64; 3] = [1_000, 100, 10_000];

    fn asked(needs: &mut Needs, by: &str, lacking: u32, now_ms: i64) {
        let alice: Arc<str> = "alice".into();
        needs.on_asked((&alice, SEND), &by.into(), lacking, now_ms, WAITS_MS);
    }

    fn due(needs: &mut Needs, now_ms: i64) -> Option<u32> {
        needs
            .take_due(now_ms, 500, |_| None)
            .map(|wanted| wanted.count)
    }

    fn make(needs: &mut Needs, indexes: std::ops::Range<u32>) {
        let contents = indexes.map(|index| (index, Octets::from(vec![7; 10])));
        needs.on_made((&"alice".into(), SEND), contents.collect());
    }

    fn leave(needs: &mut Needs, now_ms: i64) -> usize {
        std::iter::from_fn(|| needs.take(now_ms)).count()
    }

    #[test]
    fn the_most_that_anybody_lacks_is_made_less_what_was_heard_since_it_was_said() {
        let mut needs = Needs::default();
        asked(&mut needs, "bob", 5, 0);
        needs.on_heard(SEND, Some(3));
        needs.on_heard(SEND, None);
        asked(&mut needs, "carol", 4, 10);
        needs.on_heard(SEND, None);
        assert_eq!(needs.next_ms(), Some(1_000));
        assert_eq!(due(&mut needs, 999), None);
        assert_eq!(due(&mut needs, 1_000), Some(3));
        assert!(needs.has_heard(SEND, 3) && !needs.has_heard(SEND, 4));
        assert_eq!(needs.next_ms(), None);
    }

    #[test]
    fn what_others_send_meanwhile_is_not_sent_and_nobody_waits_for_what_they_answered() {
        let mut needs = Needs::default();
        asked(&mut needs, "bob", 3, 0);
        assert_eq!(due(&mut needs, 1_000), Some(3));
        make(&mut needs, 0..3);
        needs.on_heard(SEND, Some(1));
        assert_eq!(leave(&mut needs, 1_000), 2);
        assert_eq!(needs.queued(), 0);
        asked(&mut needs, "bob", 2, 2_000);
        needs.on_heard(SEND, Some(7));
        needs.on_heard(SEND, Some(8));
        assert_eq!(due(&mut needs, 3_000), None);
        asked(&mut needs, "bob", 1, 3_000);
        needs.on_whole(SEND, &"bob".into());
        assert_eq!(due(&mut needs, 9_000), None);
    }

    #[test]
    fn who_answered_lately_answers_soon() {
        let mut needs = Needs::default();
        asked(&mut needs, "bob", 1, 0);
        assert_eq!(due(&mut needs, 1_000), Some(1));
        make(&mut needs, 0..1);
        assert_eq!(leave(&mut needs, 1_000), 1);
        asked(&mut needs, "bob", 1, 2_000);
        assert_eq!(needs.next_ms(), Some(2_100));
        asked(&mut needs, "bob", 1, 3_000);
        assert_eq!(due(&mut needs, 3_000), Some(1));
        asked(&mut needs, "bob", 1, 20_000);
        assert_eq!(needs.next_ms(), Some(21_000));
    }

    #[test]
    fn a_sender_that_is_heard_is_left_time_and_not_for_ever() {
        let mut needs = Needs::default();
        asked(&mut needs, "bob", 1, 0);
        let mut now_ms = 1_000;
        for _ in 0..PUT_OFF_MAX {
            let live_ms = |_: &Arc<str>| Some(now_ms - 1);
            assert_eq!(needs.take_due(now_ms, 500, live_ms), None);
            assert_eq!(needs.next_ms(), Some(now_ms + 499));
            now_ms += 499;
        }
        let wanted = needs.take_due(now_ms, 500, |_| Some(now_ms - 1));
        assert_eq!(wanted.map(|wanted| wanted.count), Some(1));
    }

    #[test]
    fn needs_and_what_waits_are_bounded() {
        let mut needs = Needs::default();
        for number in 0..2 * ASKING_MAX {
            asked(&mut needs, &format!("member-{number}"), 1, 0);
        }
        assert_eq!(needs.by_send[SEND.as_bytes()].asking.len(), ASKING_MAX);
        let alice: Arc<str> = "alice".into();
        for number in 0..2 * REPAIR_BUFFER_MAX {
            let send_id = format!("{number:032x}");
            needs.on_asked((&alice, &send_id), &"bob".into(), 1, 0, WAITS_MS);
        }
        assert_eq!(needs.by_send.len(), REPAIR_BUFFER_MAX);
        asked(&mut needs, "bob", 9, 0);
        let large = |index| (index, Octets::from(vec![0; QUEUED_BYTES_MAX / 2]));
        needs.on_made((&alice, SEND), (0..3).map(large).collect());
        assert_eq!(needs.queued(), 2);
    }

    fn leaving(needs: &mut Needs, now_ms: i64) -> Vec<u32> {
        let left = std::iter::from_fn(|| needs.take(now_ms));
        left.map(|made| made.index).collect()
    }

    const OTHER: &str = "fedcba9876543210fedcba9876543210";

    fn asked_of_other(needs: &mut Needs, lacking: u32, now_ms: i64) {
        let alice: Arc<str> = "alice".into();
        needs.on_asked((&alice, OTHER), &"bob".into(), lacking, now_ms, WAITS_MS);
    }

    #[test]
    fn a_send_under_anothers_name_is_another_one() {
        let mut needs = Needs::default();
        asked(&mut needs, "bob", 2, 0);
        let mallory: Arc<str> = "mallory".into();
        needs.on_asked((&mallory, SEND), &"carol".into(), 9, 0, WAITS_MS);
        assert_eq!(due(&mut needs, 1_000), Some(2));
        assert!(!needs.has_heard(OTHER, 0));
    }

    #[test]
    fn who_asked_longest_ago_is_forgotten_first() {
        let mut needs = Needs::default();
        asked(&mut needs, "first", 9, 0);
        for number in 0..ASKING_MAX {
            asked(&mut needs, &format!("member-{number}"), 1, 0);
        }
        assert_eq!(due(&mut needs, 1_000), Some(1));
        let alice: Arc<str> = "alice".into();
        for number in 0..REPAIR_BUFFER_MAX {
            let send_id = format!("{number:032x}");
            needs.on_asked((&alice, &send_id), &"bob".into(), 1, 0, WAITS_MS);
        }
        let holds = |send_id: &str| needs.by_send.contains_key(send_id.as_bytes());
        let last = format!("{:032x}", REPAIR_BUFFER_MAX - 1);
        assert!(!holds(SEND) && holds(&format!("{:032x}", 0)) && holds(&last));
    }

    #[test]
    fn each_has_its_time_and_one_is_made_at_once() {
        let mut needs = Needs::default();
        asked(&mut needs, "bob", 1, 500);
        asked_of_other(&mut needs, 2, 0);
        assert_eq!(needs.next_ms(), Some(1_000));
        assert_eq!(due(&mut needs, 1_499), Some(2));
        assert_eq!(needs.next_ms(), Some(1_500));
        asked_of_other(&mut needs, 3, 500);
        assert_eq!(needs.next_ms(), Some(1_500));
        assert_eq!(due(&mut needs, 1_500), Some(1));
        assert_eq!(needs.next_ms(), Some(1_500));
        assert_eq!(due(&mut needs, 1_500), Some(3));
        assert_eq!(due(&mut needs, 9_000), None);
        // Of two the sooner one counts, whichever was asked for last.
        asked(&mut needs, "bob", 1, 9_000);
        asked_of_other(&mut needs, 1, 9_500);
        assert_eq!(needs.next_ms(), Some(10_000));
    }

    #[test]
    fn who_asks_while_an_answer_waits_to_leave_says_so_again() {
        let mut needs = Needs::default();
        asked(&mut needs, "bob", 2, 0);
        assert_eq!(due(&mut needs, 1_000), Some(2));
        make(&mut needs, 0..2);
        asked(&mut needs, "carol", 5, 1_000);
        assert_eq!(needs.next_ms(), None);
        assert_eq!(leave(&mut needs, 1_000), 2);
        asked(&mut needs, "dave", 1, 2_000);
        assert_eq!(due(&mut needs, 2_100), Some(1));
    }

    #[test]
    fn nobody_waits_for_a_need_that_was_answered_by_others_and_is_asked_anew() {
        let mut needs = Needs::default();
        asked(&mut needs, "bob", 1, 0);
        asked_of_other(&mut needs, 2, 0);
        needs.on_heard(SEND, None);
        assert_eq!(due(&mut needs, 1_000), Some(2));
        assert_eq!(needs.next_ms(), None);
        // What bob lacked then counts no more.
        asked(&mut needs, "carol", 3, 2_000);
        needs.on_heard(SEND, None);
        needs.on_heard(SEND, None);
        assert_eq!(due(&mut needs, 3_000), Some(1));
    }

    #[test]
    fn a_sender_counts_that_was_heard_since_it_was_asked_and_for_so_long() {
        for (live_ms, now_ms, waits) in [
            (0, 1_000, false),
            (1, 1_000, false),
            (500, 1_000, false),
            (501, 1_000, true),
        ] {
            let mut needs = Needs::default();
            asked(&mut needs, "bob", 1, 0);
            let wanted = needs.take_due(now_ms, 500, |_| Some(live_ms));
            assert_eq!(wanted.is_none(), waits, "{live_ms}");
        }
        // At the moment of the question it had not come.
        let mut needs = Needs::default();
        asked(&mut needs, "bob", 1, 0);
        assert!(needs.take_due(1_000, 5_000, |_| Some(0)).is_some());
    }

    #[test]
    fn each_question_is_left_to_its_sender_anew() {
        let mut needs = Needs::default();
        asked(&mut needs, "bob", 1, 0);
        for _ in 0..=PUT_OFF_MAX {
            let now_ms = needs.next_ms().unwrap();
            needs.take_due(now_ms, 500, |_| Some(now_ms));
        }
        assert_eq!(needs.next_ms(), None);
        make(&mut needs, 0..1);
        assert_eq!(leave(&mut needs, 4_000), 1);
        asked(&mut needs, "bob", 1, 20_000);
        // It was heard before that, and then since.
        assert!(needs.take_due(21_000, 9_000, |_| Some(20_001)).is_none());
        assert_eq!(needs.next_ms(), Some(29_001));
        let mut needs = Needs::default();
        asked(&mut needs, "bob", 1, 0);
        needs.take_due(1_000, 500, |_| None);
        make(&mut needs, 0..1);
        assert_eq!(leave(&mut needs, 1_000), 1);
        asked(&mut needs, "bob", 1, 20_000);
        assert!(needs.take_due(21_000, 9_000, |_| Some(20_000)).is_some());
    }

    #[test]
    fn what_was_made_leaves_in_its_order_as_far_as_it_is_lacking() {
        let mut needs = Needs::default();
        asked(&mut needs, "bob", 5, 0);
        due(&mut needs, 1_000);
        make(&mut needs, 0..5);
        needs.on_heard(SEND, Some(2));
        assert_eq!(leaving(&mut needs, 1_000), [0, 1, 3, 4]);
        // What left here was heard as well.
        assert!(needs.has_heard(SEND, 4));
        asked(&mut needs, "bob", 1, 2_000);
        assert_eq!(due(&mut needs, 2_100), Some(1));
        make(&mut needs, 4..7);
        assert_eq!(leaving(&mut needs, 2_100), [5]);
        assert_eq!(needs.queued_bytes, 0);
        // Nobody is known to lack any more of it.
        asked(&mut needs, "carol", 0, 3_000);
        assert_eq!(due(&mut needs, 9_000), None);
    }
}
