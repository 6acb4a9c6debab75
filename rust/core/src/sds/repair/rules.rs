//! What SDS-R lays down: who asks and answers when, and how much is kept of it (SDS, SDS-Repair).

use sha2::{Digest, Sha256};

use crate::bloom::farmhash64;
use crate::wire::sds::WireFormat;

/// SDS-R: a repair buffer holds at most 1,000 entries.
pub const REPAIR_BUFFER_MAX: usize = 1_000;

/// The hash that spreads requests and answers over time: @waku/sds takes the first eight bytes of
/// SHA-256, big-endian; nim-sds Nim's `hash(string)`, of which it works with absolute values. That
/// was derived from its source; it was never met as a live peer.
fn repair_hash(wire_format: WireFormat, parts: [&str; 2]) -> u64 {
    match wire_format {
        WireFormat::Spec => {
            let mut hasher = Sha256::new();
            parts.iter().for_each(|part| hasher.update(part));
            let digest = hasher.finalize();
            u64::from_be_bytes(digest[..8].try_into().expect("eight bytes"))
        }
        WireFormat::Nim => farmhash64(parts.concat().as_bytes()),
    }
}

/// The absolute value that the wire takes of a hash.
fn magnitude(wire_format: WireFormat, hash: u64) -> u64 {
    match wire_format {
        WireFormat::Spec => hash,
        WireFormat::Nim => (hash as i64).unsigned_abs(),
    }
}

/// T_req - now.
pub fn request_offset_ms(
    participant: &str,
    message_id: &str,
    t_min_ms: i64,
    t_max_ms: i64,
    wire_format: WireFormat,
) -> i64 {
    let hash = magnitude(
        wire_format,
        repair_hash(wire_format, [participant, message_id]),
    );
    let spread = (t_max_ms - t_min_ms).max(1) as u64;
    (hash % spread) as i64 + t_min_ms
}

/// T_resp - now: 0 for the original sender, whose distance to itself is 0.
pub fn response_offset_ms(
    participant: &str,
    sender_id: &str,
    message_id: &str,
    t_max_ms: i64,
    wire_format: WireFormat,
) -> i64 {
    let hash = |text: &str| repair_hash(wire_format, [text, ""]);
    let distance = magnitude(wire_format, hash(participant) ^ hash(sender_id));
    let product = u128::from(distance) * u128::from(magnitude(wire_format, hash(message_id)));
    (product % t_max_ms.max(1) as u128) as i64
}

/// Whether `participant` answers for a message of `sender_id`; nobody does where the sender is
/// unknown.
pub fn in_response_group(
    participant: &str,
    sender_id: &str,
    message_id: &str,
    groups: u64,
    wire_format: WireFormat,
) -> bool {
    if sender_id.is_empty() {
        return false;
    }
    if groups <= 1 {
        return true;
    }
    let group =
        |name: &str| magnitude(wire_format, repair_hash(wire_format, [name, message_id])) % groups;
    group(participant) == group(sender_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "held";

    #[test]
    fn of_sha_256_the_first_eight_bytes_tell_the_moments() {
        let wire_format = WireFormat::Spec;
        let asked_ms = request_offset_ms("bob", ID, 30_000, 120_000, wire_format);
        let answered_ms = response_offset_ms("bob", "alice", ID, 120_000, wire_format);
        assert_eq!((asked_ms, answered_ms), (93037, 109723));
        let of_another = request_offset_ms("dave", ID, 30_000, 120_000, wire_format);
        assert_eq!(of_another, 101515);
        let own_ms = response_offset_ms("alice", "alice", ID, 120_000, wire_format);
        assert_eq!(own_ms, 0);
    }

    #[test]
    fn nim_takes_the_distance_of_a_hash_from_zero() {
        let wire_format = WireFormat::Nim;
        let hash = |text: &str| farmhash64(text.as_bytes()) as i64;
        let is_negative = |id: &&str| hash(&format!("bob{id}")) < 0 && hash(id) < 0;
        let ids = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let id = ids
            .into_iter()
            .find(is_negative)
            .expect("some hash is negative");
        let asked = hash(&format!("bob{id}")).unsigned_abs() % 90_000;
        let asked_ms = request_offset_ms("bob", id, 30_000, 120_000, wire_format);
        assert_eq!(asked_ms, asked as i64 + 30_000);
        let distance = (hash("bob") ^ hash("alice")).unsigned_abs();
        let product = u128::from(distance) * u128::from(hash(id).unsigned_abs());
        let answered_ms = response_offset_ms("bob", "alice", id, 120_000, wire_format);
        assert_eq!(answered_ms, (product % 120_000) as i64);
    }

    #[test]
    fn of_two_groups_that_of_the_sender_answers() {
        let is_in = |name| in_response_group(name, "alice", ID, 2, WireFormat::Spec);
        let group = ["alice", "bob", "carol", "dave"].map(is_in);
        assert_eq!(group, [true, false, false, false]);
    }

    #[test]
    fn a_config_without_groups_has_one() {
        for (groups, is_one) in [(0, true), (1, true), (1 << 40, false)] {
            let is_in = |name| in_response_group(name, "alice", ID, groups, WireFormat::Spec);
            assert!(is_in("alice"));
            assert_eq!(is_in("bob"), is_one);
        }
        assert!(!in_response_group("", "", ID, 1, WireFormat::Spec));
    }
}
