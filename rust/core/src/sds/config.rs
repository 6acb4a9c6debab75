//! How a machine is set up. What a user may get wrong is checked before, where the value can be named.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::wire::sds::WireFormat;

/// One moment on both clocks: timers run on the monotonic one, Lamport timestamps on the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Milliseconds on a clock that nobody sets.
    pub monotonic_ms: i64,
    /// Milliseconds since the Unix epoch.
    pub epoch_ms: i64,
}

/// The source of randomness, which the machine's owner gives it.
pub trait Randomness: Send + Sync {
    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64;
    /// 64 uniform bits.
    fn bits(&mut self) -> u64;
}

/// How message ids come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageIdRule {
    /// `<32 hex send id>.<ordinal>`.
    Send,
    /// The hex SHA-256 of the content, as @waku/sds makes them.
    ContentSha256,
}

/// Who must be able to reconstruct a send before its resending stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveredWhen {
    /// Any one participant, and one acknowledgement speaks for all.
    Any,
    /// So many participants.
    Count(usize),
    /// All of these.
    Named(BTreeSet<Arc<str>>),
}

/// The configuration of a machine; names and meanings are those of `SdsConfig` and `SyncConfig`.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "python/shardwire/config/sds.py describes each")]
pub struct Config {
    pub wire_format: WireFormat,
    pub message_id: MessageIdRule,
    pub delivered_when: DeliveredWhen,
    pub acknowledgement_timeout_ms: i64,
    pub max_retransmissions: u32,
    pub back_off_percent: i64,
    pub causal_history_size: usize,
    pub bloom_filter_capacity: u64,
    pub bloom_filter_error_rate: f64,
    pub bloom_interval_ms: i64,
    pub possible_acks_threshold: usize,
    /// 0 for never.
    pub timeout_for_lost_messages_ms: i64,
    pub enable_repair: bool,
    pub repair_t_min_ms: i64,
    pub repair_t_max_ms: i64,
    pub repair_groups: u64,
    pub outgoing_buffer_messages_max: usize,
    pub incoming_buffer_messages_max: usize,
    pub missing_messages_max: usize,
    pub log_messages_max: usize,
    /// Of messages that are kept to answer others with.
    pub log_bytes_max: usize,
    pub max_lamport_skew_ms: i64,
    /// 0 for any age.
    pub replay_window_ms: i64,
    /// 0 for no periodic syncs.
    pub sync_min_interval_ms: i64,
    /// 0 for at once.
    pub sweep_in_buf_interval_ms: i64,
    pub acknowledgement_sync: bool,
    pub participant_ttl_ms: i64,
    /// A message is at most this much longer than its content.
    pub header_bytes_max: usize,
    /// Whether whoever has a message of another one makes parity of it, and asks for such.
    pub members_make_parity: bool,
}

impl Config {
    /// One that tests and benchmarks begin from, with the figures of `ChannelConfig.logos()`. A channel's own comes
    /// from Python, field by field.
    #[doc(hidden)]
    pub fn example() -> Self {
        Config {
            wire_format: WireFormat::Spec,
            message_id: MessageIdRule::Send,
            delivered_when: DeliveredWhen::Any,
            acknowledgement_timeout_ms: 5_000,
            max_retransmissions: 5,
            back_off_percent: 0,
            causal_history_size: 2,
            bloom_filter_capacity: 10_000,
            bloom_filter_error_rate: 0.001,
            bloom_interval_ms: 30_000,
            possible_acks_threshold: 2,
            timeout_for_lost_messages_ms: 300_000,
            enable_repair: true,
            repair_t_min_ms: 30_000,
            repair_t_max_ms: 120_000,
            repair_groups: 1,
            outgoing_buffer_messages_max: 1_024,
            incoming_buffer_messages_max: 10_000,
            missing_messages_max: 10_000,
            log_messages_max: 100_000,
            log_bytes_max: 32 << 20,
            max_lamport_skew_ms: 300_000,
            replay_window_ms: 0,
            sync_min_interval_ms: 30_000,
            sweep_in_buf_interval_ms: 0,
            acknowledgement_sync: true,
            participant_ttl_ms: 600_000,
            header_bytes_max: 24_000,
            members_make_parity: true,
        }
    }

    /// T_min and T_max of SDS-R where no store has what is missing, or none answers, in a group of so many members:
    /// those that SDS-R lays down give a store its time first. Others were set for a reason, and stand.
    pub fn times_without_store(&self, members: usize) -> (i64, i64) {
        let times = (self.repair_t_min_ms, self.repair_t_max_ms);
        if times == SDS_R_TIMES_MS {
            repair_times_without_store(members)
        } else {
            times
        }
    }

    /// Whether message ids name their sends.
    pub fn by_send(&self) -> bool {
        self.message_id == MessageIdRule::Send
    }

    /// Whether any one acknowledgement is enough.
    pub fn any_is_enough(&self) -> bool {
        self.delivered_when == DeliveredWhen::Any
    }

    /// Whether members answer for each other with parity: it travels in ephemeral messages, which name a
    /// send that ids must name.
    pub fn answers_with_parity(&self) -> bool {
        let travels = self.wire_format == WireFormat::Spec && self.by_send();
        self.members_make_parity && self.enable_repair && travels
    }

    /// Whether a sync asks who was silent what it has of a send: it names that by a number, as a request of
    /// SDS-R.
    pub fn asks_by_sync(&self) -> bool {
        self.acknowledgement_sync && self.enable_repair && self.by_send()
    }

    /// Within it the sender of a send, and others who lack it, had time to hear who asks anybody for parity.
    pub fn sender_first_ms(&self) -> i64 {
        3 * self.window_ms()
    }

    /// What is on its way has come after so long.
    pub fn settle_ms(&self) -> i64 {
        (2 * self.acknowledgement_timeout_ms).min(SETTLE_MS_MAX)
    }

    /// A quarter of the acknowledgement timeout: within it those speak who are to speak promptly.
    pub fn window_ms(&self) -> i64 {
        self.acknowledgement_timeout_ms / 4
    }

    /// A burst has ended once nothing came for so long.
    pub fn gap_ms(&self) -> i64 {
        self.window_ms() / GAPS_PER_WINDOW
    }

    /// How long a content is sent again for want of an acknowledgement.
    pub fn resending_ms(&self) -> i64 {
        let retries = 0..=self.max_retransmissions.min(RETRIES_COUNTED_MAX);
        retries
            .map(|attempts| self.resend_period_ms(attempts))
            .sum()
    }

    /// How long a content that was sent again `attempts` times waits for its acknowledgement: equal
    /// periods unless back-off is configured (specification 004, Message retries).
    pub fn resend_period_ms(&self, attempts: u32) -> i64 {
        let mut period_ms = self.acknowledgement_timeout_ms;
        if self.back_off_percent == 0 {
            return period_ms;
        }
        let limit_ms = BACK_OFF_LIMIT.saturating_mul(period_ms);
        for _ in 0..attempts {
            if period_ms >= limit_ms {
                break;
            }
            period_ms += (period_ms.saturating_mul(self.back_off_percent) / 100).max(1);
        }
        period_ms.min(limit_ms)
    }
}

/// T_min and T_max as SDS-R lays them down.
const SDS_R_TIMES_MS: (i64, i64) = (30_000, 120_000);
/// Among so many as fall due within one network delay of 100 ms, one or two ask or answer.
const T_MAX_MS_MIN: i64 = 1_500;
const T_MAX_MS_PER_MEMBER: i64 = 75;

/// T_min and T_max of SDS-R for a group of so many members on a network without a store.
pub fn repair_times_without_store(members: usize) -> (i64, i64) {
    let members = i64::try_from(members).unwrap_or(i64::MAX);
    let t_max_ms = members.saturating_mul(T_MAX_MS_PER_MEMBER);
    let t_max_ms = t_max_ms.clamp(T_MAX_MS_MIN, SDS_R_TIMES_MS.1);
    (t_max_ms / 3, t_max_ms)
}

/// Part of the time in which receivers answer.
const GAPS_PER_WINDOW: i64 = 8;
/// However late an acknowledgement may be, nothing is longer on its way than this.
const SETTLE_MS_MAX: i64 = 10_000;
/// Retransmissions that are waited for, at most.
const RETRIES_COUNTED_MAX: u32 = 100;
/// Back-off ends at this many times the first period.
const BACK_OFF_LIMIT: i64 = 8;

/// Draws what it is told, then one half.
#[cfg(test)]
pub struct Drawn(std::collections::VecDeque<f64>);

#[cfg(test)]
impl<T: IntoIterator<Item = f64>> From<T> for Drawn {
    fn from(shares: T) -> Self {
        Drawn(shares.into_iter().collect())
    }
}

#[cfg(test)]
impl Randomness for Drawn {
    fn unit(&mut self) -> f64 {
        self.0.pop_front().unwrap_or(0.5)
    }

    fn bits(&mut self) -> u64 {
        0
    }
}
