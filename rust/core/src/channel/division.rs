//! How a message of the network is divided between the header of SDS and a segment (specification 003,
//! Outgoing message processing, step 1).

use thiserror::Error;

use crate::bloom::BloomFilter;
use crate::sds::{Config, ENTRY_FRAME_BYTES, header_bytes_min};
use crate::segment::Settings;

/// Tag and length of the filter, at most.
const FILTER_FRAME_BYTES: usize = 10;
/// No id by our rules is longer.
const OWN_ID_BYTES_MAX: usize = 64;
/// What Waku finds a message by.
const WAKU_HINT_BYTES: usize = 32;

/// What a message of the network has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Division {
    /// The segment size that is left.
    pub segment_size_bytes: usize,
    /// The largest content that SDS is handed: a segment of that size. The header has the rest.
    pub content_bytes_max: usize,
}

/// A message of the network cannot carry anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "max_message_size_bytes of the node is {given}: with this content topic, channel id, sender id and cipher it must \
     be at least {needed}"
)]
pub struct TooSmall {
    /// Its size.
    pub given: usize,
    /// The least that would do.
    pub needed: usize,
}

/// Divides a message of `message_bytes` of which `around_bytes` go to envelope and cipher.
///
/// The segment size of `segmentation` is kept where it fits; the header then has everything else, since a
/// longer list of what was received saves messages. Where messages are small the segment shrinks, and the
/// header with it.
///
/// # Errors
/// [`TooSmall`] with the size that would do.
pub fn divide(
    message_bytes: usize,
    around_bytes: usize,
    sds: &Config,
    channel_id: &str,
    sender_id: &str,
    segmentation: &Settings,
) -> Result<Division, TooSmall> {
    let framing = segmentation.frame_bytes_max();
    let least_segment = segmentation.segment_bytes_min();
    let least_header = header_bytes_min(sds.message_id, channel_id, sender_id);
    let needed = around_bytes.saturating_add(least_header + framing + least_segment);
    if message_bytes < needed {
        return Err(TooSmall {
            given: message_bytes,
            needed,
        });
    }
    let sds_bytes = message_bytes - around_bytes;
    let wished_header = least_header.saturating_add(history_and_filter_bytes(sds, sender_id));
    // On a node with small messages the header has half, or the least that it can do with.
    let header = wished_header.min(sds_bytes / 2).max(least_header);
    let segment = segmentation
        .segment_size_bytes
        .min(sds_bytes - header - framing);
    let segment_size_bytes = segmentation.aligned(segment.max(least_segment));
    Ok(Division {
        segment_size_bytes,
        content_bytes_max: segment_size_bytes + framing,
    })
}

/// What a causal history of the configured size and the filter take.
fn history_and_filter_bytes(sds: &Config, sender_id: &str) -> usize {
    let entry = ENTRY_FRAME_BYTES + OWN_ID_BYTES_MAX + WAKU_HINT_BYTES + sender_id.len();
    let history = sds.causal_history_size.saturating_mul(entry);
    let filter = BloomFilter::new(
        sds.bloom_filter_capacity,
        sds.bloom_filter_error_rate,
        sds.wire_format,
    );
    let filter = filter.expect("checked where the configuration was made");
    history.saturating_add(filter.size_bytes() + FILTER_FRAME_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::erasure::ErasureCode;
    use crate::sds::MessageIdRule;
    use crate::segment::{Parameters, segment};
    use crate::wire::sds::{HistoryEntry, Message, WireFormat as SdsWireFormat};
    use crate::wire::segment::WireFormat;

    fn segments_of(segment_size_bytes: usize, wire_format: WireFormat) -> Settings {
        Settings {
            segment_size_bytes,
            enable_reed_solomon: true,
            parity_rate: 0.5,
            parity_for_single_segment: false,
            erasure_code: ErasureCode::Leopard,
            wire_format,
            max_total_segments: 256,
            max_tail_candidates: 1,
        }
    }

    #[test]
    fn the_size_that_is_wished_for_is_kept_where_it_fits() {
        let config = Config::example();
        let wished = segments_of(102_400, WireFormat::Raw);
        let division = divide(150_000, 300, &config, "c", "alice", &wished);
        let expected = Division {
            segment_size_bytes: 102_400,
            content_bytes_max: 102_465,
        };
        assert_eq!(division, Ok(expected));
    }

    #[test]
    fn a_header_has_half_of_a_small_message_at_most() {
        let config = Config::example();
        for (wire_format, framing, segment_size_bytes) in [
            (WireFormat::Raw, 65, 1_920),
            (WireFormat::Draft, 65, 1_920),
            (WireFormat::Lip243, 0, 2_000),
        ] {
            let wished = segments_of(102_400, wire_format);
            let division = divide(4_010, 10, &config, "c", "alice", &wished).unwrap();
            let content_bytes_max = segment_size_bytes + framing;
            let expected = Division {
                segment_size_bytes,
                content_bytes_max,
            };
            assert_eq!(division, expected, "{wire_format:?}");
        }
        let without_parity = Settings {
            enable_reed_solomon: false,
            ..segments_of(102_400, WireFormat::Raw)
        };
        let division = divide(4_010, 10, &config, "c", "alice", &without_parity).unwrap();
        assert_eq!(division.segment_size_bytes, 1_935);
    }

    proptest! {
        #[test]
        fn the_least_message_is_the_least(
            around_bytes in 0_usize..2_000,
            sender_id in "[a-zé]{1,40}",
            by_send in any::<bool>(),
            lip243 in any::<bool>(),
            segment_size_bytes in 64_usize..200_000,
        ) {
            let rule = if by_send { MessageIdRule::Send } else { MessageIdRule::ContentSha256 };
            let config = Config { message_id: rule, ..Config::example() };
            let wire_format = if lip243 { WireFormat::Lip243 } else { WireFormat::Raw };
            let wished = segments_of(segment_size_bytes.max(if lip243 { 192 } else { 64 }), wire_format);
            let of = |bytes| divide(bytes, around_bytes, &config, "channel", &sender_id, &wished);
            let TooSmall { given, needed } = of(0).unwrap_err();
            prop_assert_eq!(given, 0);
            prop_assert_eq!(of(needed - 1), Err(TooSmall { given: needed - 1, needed }));
            let least = of(needed).unwrap();
            prop_assert_eq!(least.segment_size_bytes, if lip243 { 192 } else { 64 });
            let header = needed - around_bytes - least.content_bytes_max;
            prop_assert_eq!(header, header_bytes_min(rule, "channel", &sender_id));
        }

        #[test]
        fn a_segment_and_the_least_header_fit(
            sds_bytes in 1_500_usize..300_000,
            blocks in 3_usize..2_000,
            wire_format in prop::sample::select(vec![WireFormat::Raw, WireFormat::Draft, WireFormat::Lip243]),
            enable_reed_solomon in any::<bool>(),
            causal_history_size in 0_usize..400,
        ) {
            let config = Config { causal_history_size, ..Config::example() };
            let wished = Settings { enable_reed_solomon, ..segments_of(64 * blocks, wire_format) };
            let division = divide(sds_bytes, 0, &config, "channel", "alice", &wished).unwrap();
            let size = division.segment_size_bytes;
            prop_assert!(size <= wished.segment_size_bytes);
            let least = header_bytes_min(config.message_id, "channel", "alice");
            prop_assert!(division.content_bytes_max + least <= sds_bytes);

            let settings = Settings { segment_size_bytes: size, ..wished };
            let parameters = Parameters::new(settings).unwrap();
            let payload = vec![1; 2 * size + 1];
            let segments = segment(&payload, &parameters).unwrap();
            let longest = (0..segments.count()).map(|ordinal| segments.encoded_length(ordinal)).max();
            prop_assert!(longest.unwrap() <= division.content_bytes_max);
        }

        #[test]
        fn a_whole_history_and_the_filter_fit_the_header_that_is_wished_for(
            causal_history_size in 0_usize..60,
            bloom_filter_capacity in 1_u64..20_000,
            sender_id in "[a-z]{1,40}",
            spec in any::<bool>(),
        ) {
            let wire_format = if spec { SdsWireFormat::Spec } else { SdsWireFormat::Nim };
            let config = Config { causal_history_size, bloom_filter_capacity, wire_format, ..Config::example() };
            let entry = HistoryEntry {
                message_id: "x".repeat(OWN_ID_BYTES_MAX),
                retrieval_hint: Some(vec![1; WAKU_HINT_BYTES]),
                sender_id: Some(sender_id.clone()),
            };
            let filter = BloomFilter::new(bloom_filter_capacity, config.bloom_filter_error_rate, wire_format).unwrap();
            let message = Message {
                sender_id: sender_id.clone(),
                message_id: "x".repeat(38),
                channel_id: "channel".to_owned(),
                lamport_timestamp: Some(u64::MAX >> 1),
                causal_history: vec![entry; causal_history_size],
                bloom_filter: Some(filter.to_bytes()),
                repair_request: Vec::new(),
                content: Some(vec![1; 100_000]),
            };
            let header = message.encode(wire_format).unwrap().len() - 100_000;
            let wished = header_bytes_min(config.message_id, "channel", &sender_id)
                + history_and_filter_bytes(&config, &sender_id);
            prop_assert!(header <= wished, "{header} > {wished}");
        }
    }
}
