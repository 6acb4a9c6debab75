"""What every kind of node knows of a Waku message: its limits, its size on the wire, its pubsub topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shardwire._native import shard_of
from shardwire.errors import ConfigError
from shardwire.node.protocol import MessageEnvelope

# 14/WAKU2-MESSAGE.
META_BYTES_MAX = 64
# Topics come from the application and are few; what a peer names is looked up, never added.
TOPICS_REMEMBERED_MAX = 10_000


def check_topics(content_topics: Sequence[str]) -> None:
    """Refuses what is no list of topics: a text too, whose letters would be taken for topics.

    Raises:
        ConfigError: It is none.
    """
    if isinstance(content_topics, str):
        raise ConfigError(f"content_topics is the text {content_topics!r}: give a list, [{content_topics!r}]")
    # Looking at what an iterator gives would leave nothing of it.
    if not isinstance(content_topics, Iterable) or isinstance(content_topics, Iterator):
        raise ConfigError(f"content_topics is a {type(content_topics).__name__}: it must be a list of texts")
    if not all(isinstance(topic, str) for topic in content_topics):
        raise ConfigError(f"content_topics is {content_topics!r}: it must be a list of texts")


def check_envelope(envelope: object) -> None:
    """Refuses what is no envelope, and one of which a part is of a wrong kind.

    Raises:
        ConfigError: It is none.
    """
    if not isinstance(envelope, MessageEnvelope):
        raise ConfigError(f"send: the envelope is a {type(envelope).__name__}: it must be a MessageEnvelope")
    topic, payload, meta = envelope.content_topic, envelope.payload, envelope.meta
    # Every message comes here: a loop takes thrice as long.
    are_right = isinstance(topic, str) and isinstance(payload, bytes) and isinstance(meta, bytes)
    if are_right:
        return
    for name, part, kind in (("content_topic", topic, str), ("payload", payload, bytes), ("meta", meta, bytes)):
        if not isinstance(part, kind):
            given, wanted = type(part).__name__, "text" if kind is str else "bytes"
            raise ConfigError(f"send: {name} of the envelope is a {given}: it must be {wanted}")


class PubsubTopics:
    """Places content topics on the shards of one cluster (RELAY-SHARDING, autosharding).

    Args:
        cluster_id: The cluster.
        num_shards_in_cluster: How many shards it has.
    """

    def __init__(self, cluster_id: int, num_shards_in_cluster: int) -> None:
        self._cluster_id = cluster_id
        self._num_shards_in_cluster = num_shards_in_cluster
        self._topics: dict[str, str] = {}

    def of(self, content_topic: str) -> str:
        """The pubsub topic that a content topic is published on.

        Raises:
            ConfigError: It is not /[generation/]application/version/name/encoding.
        """
        topic = self._topics.get(content_topic)
        if topic is None:
            try:
                shard = shard_of(content_topic, self._num_shards_in_cluster)
            except UnicodeEncodeError:
                # Half of a surrogate pair.
                raise ConfigError(f"the content topic {content_topic!r} cannot be encoded as UTF-8") from None
            if len(self._topics) >= TOPICS_REMEMBERED_MAX:
                self._topics.clear()
            topic = self._topics[content_topic] = f"/waku/2/rs/{self._cluster_id}/{shard}"
        return topic


def encoded_size_bytes(envelope: MessageEnvelope, timestamp_ns: int) -> int:
    """Length of the envelope as an encoded WakuMessage, without encoding it."""
    topic = envelope.content_topic
    size = _field_size_bytes(len(envelope.payload)) if envelope.payload else 0
    size += _field_size_bytes(len(topic) if topic.isascii() else len(topic.encode())) if topic else 0
    # sint64: zigzag doubles the value.
    size += 1 + (timestamp_ns.bit_length() + 7) // 7
    if envelope.meta:
        size += _field_size_bytes(len(envelope.meta))
    if envelope.ephemeral:
        size += 3
    return size


def _field_size_bytes(length: int) -> int:
    """Of a field that is not empty: its number takes one byte, its length is a varint."""
    return 1 + (length.bit_length() + 6) // 7 + length
