//! What the participants of every world have in common: their names, their small limits and their time.

use shardwire_core::sds::{Config, DeliveredWhen, MessageIdRule, Now};
use shardwire_core::wire::sds::WireFormat;

use crate::draws::Draws;

pub const EPOCH_MS: i64 = 1_760_000_000_000;
pub const NAMES: [&str; 3] = ["alice", "bob", "carol"];
pub const MISSING_MAX: usize = 24;
pub const LOG_MAX: usize = 40;
pub const CONTENTS_MAX: usize = 16;
pub const OUTGOING_MAX: usize = 8;
/// Little more than a channel needs at least, so that what is to be said often has no room.
const HEADER_BYTES_MAX: usize = 1_300;

pub fn config(draws: &mut Draws) -> Config {
    let delivered_when = match draws.below(3) {
        0 => DeliveredWhen::Any,
        1 => DeliveredWhen::Count(2),
        _ => DeliveredWhen::Named(NAMES.iter().map(|name| (*name).into()).collect()),
    };
    Config {
        wire_format: if draws.chance(80) {
            WireFormat::Spec
        } else {
            WireFormat::Nim
        },
        message_id: if draws.chance(75) {
            MessageIdRule::Send
        } else {
            MessageIdRule::ContentSha256
        },
        delivered_when,
        acknowledgement_timeout_ms: 2_000,
        max_retransmissions: 2,
        back_off_percent: if draws.chance(50) { 0 } else { 50 },
        causal_history_size: 1 + draws.below(8),
        bloom_filter_capacity: 32,
        bloom_filter_error_rate: 0.05,
        bloom_interval_ms: if draws.chance(30) { 0 } else { 5_000 },
        possible_acks_threshold: 1 + draws.below(3),
        timeout_for_lost_messages_ms: if draws.chance(30) { 0 } else { 20_000 },
        enable_repair: draws.chance(80),
        repair_t_min_ms: 1_000,
        repair_t_max_ms: 4_000,
        repair_groups: 1,
        outgoing_buffer_messages_max: OUTGOING_MAX,
        incoming_buffer_messages_max: CONTENTS_MAX,
        missing_messages_max: MISSING_MAX,
        log_messages_max: LOG_MAX,
        log_bytes_max: 32 << 20,
        max_lamport_skew_ms: 300_000,
        replay_window_ms: if draws.chance(70) { 0 } else { 60_000 },
        sync_min_interval_ms: if draws.chance(20) { 0 } else { 3_000 },
        sweep_in_buf_interval_ms: if draws.chance(70) { 0 } else { 1_000 },
        acknowledgement_sync: draws.chance(80),
        participant_ttl_ms: 60_000,
        header_bytes_max: HEADER_BYTES_MAX,
        members_make_parity: draws.chance(50),
    }
}

pub fn at(monotonic_ms: i64) -> Now {
    Now {
        monotonic_ms,
        epoch_ms: EPOCH_MS + monotonic_ms,
    }
}
