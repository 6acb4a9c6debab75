//! Waku messages: 14/WAKU2-MESSAGE, its deterministic hash, and autosharding (RELAY-SHARDING).

use prost::Message as _;
use sha2::{Digest, Sha256};
use thiserror::Error;

pub use super::proto::waku::WakuMessage;

/// A content topic that autosharding cannot place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ContentTopicError {
    /// Not `/application/version/name/encoding`, optionally with `/generation` before it.
    #[error("it is not /[generation/]application/version/name/encoding")]
    Format,
    /// The generation is not a number.
    #[error("its generation is not a number")]
    Generation,
    /// Only generation 0 is defined.
    #[error("its generation is not 0, the only one defined")]
    UnknownGeneration,
    /// A part is empty.
    #[error("its {0} is empty")]
    Empty(&'static str),
    /// A network has at least one shard.
    #[error("a cluster has at least one shard")]
    NoShards,
}

/// The Waku message that `bytes` are. Unknown fields are skipped, the last of a repeated one wins.
///
/// # Errors
/// Where the bytes are no such message, or its content topic is not UTF-8.
pub fn decode(bytes: &[u8]) -> Result<WakuMessage, prost::DecodeError> {
    WakuMessage::decode(bytes)
}

/// The message on the wire.
pub fn encode(message: &WakuMessage) -> Vec<u8> {
    message.encode_to_vec()
}

/// The deterministic message hash of 14/WAKU2-MESSAGE: SHA-256 over the pubsub topic, the payload,
/// the content topic, the meta attribute and the timestamp (8 bytes, big-endian). What is absent
/// adds nothing; timestamp 0 adds eight zero bytes.
pub fn message_hash(
    pubsub_topic: &str,
    payload: &[u8],
    content_topic: &str,
    meta: &[u8],
    timestamp_ns: impl Into<Option<i64>>,
) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(pubsub_topic.as_bytes());
    hasher.update(payload);
    hasher.update(content_topic.as_bytes());
    hasher.update(meta);
    if let Some(timestamp_ns) = timestamp_ns.into() {
        hasher.update(timestamp_ns.to_be_bytes());
    }
    hasher.finalize().into()
}

/// The shard of a content topic: the last 8 bytes, big-endian, of SHA-256 over application and
/// version, modulo the number of shards in the cluster.
///
/// # Errors
/// [`ContentTopicError`] where the topic has another form or the cluster has no shard.
pub fn shard_of(content_topic: &str, num_shards_in_cluster: u32) -> Result<u32, ContentTopicError> {
    if num_shards_in_cluster == 0 {
        return Err(ContentTopicError::NoShards);
    }
    let (application, version) = application_and_version(content_topic)?;
    let mut hasher = Sha256::new();
    hasher.update(application.as_bytes());
    hasher.update(version.as_bytes());
    let digest: [u8; 32] = hasher.finalize().into();
    let tail = digest
        .last_chunk::<8>()
        .expect("a SHA-256 digest has 32 bytes");
    Ok((u64::from_be_bytes(*tail) % u64::from(num_shards_in_cluster)) as u32)
}

fn application_and_version(content_topic: &str) -> Result<(&str, &str), ContentTopicError> {
    let parts: Vec<&str> = content_topic
        .strip_prefix('/')
        .ok_or(ContentTopicError::Format)?
        .splitn(7, '/')
        .collect();
    let fields = match parts.len() {
        4 => &parts[..],
        5 => {
            let generation = parts[0];
            if generation.is_empty() || !generation.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(ContentTopicError::Generation);
            }
            if generation.bytes().any(|byte| byte != b'0') {
                return Err(ContentTopicError::UnknownGeneration);
            }
            &parts[1..]
        }
        _ => return Err(ContentTopicError::Format),
    };
    let names = ["application", "version", "topic name", "encoding"];
    for (field, name) in fields.iter().zip(names) {
        if field.is_empty() {
            return Err(ContentTopicError::Empty(name));
        }
    }
    Ok((fields[0], fields[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_topics_as_js_and_nim_do() {
        assert_eq!(shard_of("/toychat/2/huilong/proto", 8), Ok(3));
        assert_eq!(shard_of("/0/toychat/4/huilong/proto2", 8), Ok(7));
        assert_eq!(shard_of("/app/20/sometopic/someencoding", 16), Ok(15));
    }

    #[test]
    fn refuses_other_forms() {
        use ContentTopicError::{Empty, Format, Generation, NoShards, UnknownGeneration};
        assert_eq!(shard_of("", 8), Err(Format));
        assert_eq!(shard_of("/myapp/1/mytopic", 8), Err(Format));
        assert_eq!(shard_of("/0/myapp/1/mytopic/cbor/extra", 8), Err(Format));
        assert_eq!(shard_of("/ /myapp/1/mytopic/cbor", 8), Err(Generation));
        assert_eq!(
            shard_of("/1/myapp/1/mytopic/cbor", 8),
            Err(UnknownGeneration)
        );
        assert_eq!(shard_of("/0//1/mytopic/cbor", 8), Err(Empty("application")));
        assert_eq!(shard_of("/a/1/b/c", 0), Err(NoShards));
    }
}
