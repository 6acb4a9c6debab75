"""What a reliable channel needs of a messaging node (MESSAGING-API), and the values that cross that line."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias, runtime_checkable

from shardwire.config import RateLimitConfig, SdsConfig, SegmentationConfig
from shardwire.config.checks import INTEGER_MIN, check_bools, check_integers, check_list, refuse
from shardwire.errors import ConfigError

logger = logging.getLogger(__name__)

# The largest encoded message that every Waku node carries: nwaku takes 150 KiB, go-waku 150 KB.
MAX_MESSAGE_SIZE_BYTES = 150_000
# What autosharding counts with.
SHARDS_MAX = (1 << 32) - 1

RequestId: TypeAlias = str


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Configuration of a node (Logos 003 Node configuration, extending MESSAGING-API NodeConfig).

    `segmentation_config` and `sds_config` are what a channel takes over when it is created without a `ChannelConfig`,
    None where the defaults of `ChannelConfig.logos()` hold.

    Attributes:
        cluster_id: Waku cluster of the node.
        num_shards_in_cluster: Shards that content topics are spread over.
        max_message_size_bytes: Largest encoded transport message.
        segmentation_config: Replaces `ChannelConfig.segmentation`.
        sds_config: Replaces `ChannelConfig.sds`.
        rate_limit_config: One quota for all channels of the node, as an RLN membership has it; each may have one of
            its own beneath it. None for none. Its `queue_bytes_max` is for each channel created without a
            `ChannelConfig`.
        rln: Whether what the node sends counts against an RLN membership. Then `rate_limit_config` says its quota and
            epoch, and counts segments; where it does not, a warning says so (Logos 003 RateLimitConfig). A node that
            tells of its RLN itself, as `WakuRestNode` may, needs no such word.
    """

    cluster_id: int = 1
    num_shards_in_cluster: int = 8
    max_message_size_bytes: int = MAX_MESSAGE_SIZE_BYTES
    segmentation_config: SegmentationConfig | None = None
    sds_config: SdsConfig | None = None
    rate_limit_config: RateLimitConfig | None = None
    rln: bool = False

    def __post_init__(self) -> None:
        check_bools(self, ("rln",))
        check_integers(self, 0, ("cluster_id",))
        check_integers(self, 1, ("max_message_size_bytes",))
        check_integers(self, 1, ("num_shards_in_cluster",), SHARDS_MAX)
        for part, kind in (
            ("segmentation_config", SegmentationConfig),
            ("sds_config", SdsConfig),
            ("rate_limit_config", RateLimitConfig),
        ):
            value = getattr(self, part)
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"NodeConfig.{part} is {value!r}: it must be a {kind.__name__} or None")
        if self.rln and (doubt := self.rln_doubt()) is not None:
            logger.warning("NodeConfig.rln is True and %s", doubt)

    def rln_doubt(self) -> str | None:
        """What of `rate_limit_config` does not fit a node with RLN, for people; None where it fits."""
        limit = self.rate_limit_config
        if limit is None or not limit.enabled:
            return (
                "NodeConfig.rate_limit_config sets no limit: messages beyond the membership's quota are refused; set "
                "enabled=True, messages_per_epoch to that quota, and counts='segment'"
            )
        if limit.counts == "message":
            return "NodeConfig.rate_limit_config counts messages, where RLN counts segments: set counts='segment'"
        return None


@dataclass(frozen=True, slots=True)
class MessageEnvelope:
    """What is handed to a node to be published (MESSAGING-API MessageEnvelope; `meta` as 14/WAKU2-MESSAGE).

    Attributes:
        content_topic: Where to.
        payload: The bytes.
        ephemeral: Whether stores pass it over.
        meta: A marker of the application, at most 64 bytes.
    """

    content_topic: str
    payload: bytes = field(repr=False)
    ephemeral: bool = False
    meta: bytes = b""


class ConnectionState(Enum):
    """How well a node is connected, as its API tells it (MESSAGING-API health:connection-status).

    `CONNECTED` has neighbours and a store in reach, `PARTIALLY_CONNECTED` only part of that, `DISCONNECTED` nobody.
    """

    DISCONNECTED = "Disconnected"
    PARTIALLY_CONNECTED = "PartiallyConnected"
    CONNECTED = "Connected"


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Base of what a node reports."""


@dataclass(frozen=True, slots=True)
class MessageReceived(NodeEvent):
    """A message of a subscribed content topic arrived.

    Attributes:
        envelope: The message.
        message_hash: Deterministic message hash (14/WAKU2-MESSAGE), 32 bytes. A node for another network may have its
            own, of 1 to 64 bytes, unlike for unlike messages.
        timestamp_ns: Sender's timestamp, nanoseconds since the Unix epoch.
    """

    envelope: MessageEnvelope
    message_hash: bytes
    timestamp_ns: int


@dataclass(frozen=True, slots=True)
class MessagePropagated(NodeEvent):
    """A sent message reached at least one neighbour; at most once a request.

    Attributes:
        request_id: What `Node.send` returned.
        message_hash: Of the message, as stores know it.
    """

    request_id: RequestId
    message_hash: bytes


@dataclass(frozen=True, slots=True)
class MessageSent(NodeEvent):
    """A sent message was seen in a store: whoever was away can fetch it there, so it is not published again.

    Attributes:
        request_id: What `Node.send` returned.
        message_hash: Of the message, as the store knows it.
    """

    request_id: RequestId
    message_hash: bytes


@dataclass(frozen=True, slots=True)
class MessageSendError(NodeEvent):
    """A request failed: the node does not try it again.

    Attributes:
        request_id: The request.
        error: What happened, for people: the channel reads nothing out of it.
        message_hash: Of the message; None where it was never made.
        permanent: Whether the same message can never be sent by this node (too large, invalid, no membership). The
            channel fails the message; otherwise it sends the message again.
        retry_after_ms: How long the node will refuse everything, where it knows (a spent RLN quota): the channel
            holds what waits for so long and counts no failure. None where it does not know.
    """

    request_id: RequestId
    error: str
    message_hash: bytes | None = None
    permanent: bool = False
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MessagesMissed(NodeEvent):
    """Messages may have passed the node by, as when a poll failed or a subscription was gone: the channel asks a store.

    Attributes:
        since_ns: Transport time from which on, nanoseconds since the Unix epoch.
    """

    since_ns: int


@dataclass(frozen=True, slots=True)
class ConnectionStatus(NodeEvent):
    """The connection of the node changed; the channel asks the store for what passed meanwhile.

    Attributes:
        state: How well the node is connected now.
    """

    state: ConnectionState


@dataclass(frozen=True, slots=True)
class StoreQuery:
    """A query of a store (13/STORE v3): by hashes, or by content topics and times.

    Attributes:
        message_hashes: Hashes asked for; where given, topics and times are not used.
        content_topics: Topics asked for.
        start_time_ns: Earliest timestamp, inclusive.
        end_time_ns: Latest timestamp, inclusive.
        cursor: Where the page begins: `StorePage.cursor` of the page before.
        page_size: Most messages in a page.
        forward: Oldest first where True.
        include_data: Whether messages come with their payloads.

    Raises:
        ConfigError: A field is of another type, or `page_size` below 1: names it and its value.
    """

    message_hashes: tuple[bytes, ...] = ()
    content_topics: tuple[str, ...] = ()
    start_time_ns: int | None = None
    end_time_ns: int | None = None
    cursor: bytes | None = None
    page_size: int = 100
    forward: bool = True
    include_data: bool = True

    def __post_init__(self) -> None:
        # A text would be taken letter by letter, and a store has nothing of those. A cursor is its node's alone.
        for name, what, kind in (("message_hashes", "hashes", bytes), ("content_topics", "topics", str)):
            value = getattr(self, name)
            check_list(f"StoreQuery.{name}", value, what)
            if not all(isinstance(one, kind) for one in value):
                raise refuse(self, name, value, f"a list of {what}, each {kind.__name__}")
        for name in ("start_time_ns", "end_time_ns"):
            if getattr(self, name) is not None:
                check_integers(self, INTEGER_MIN, (name,))
        check_integers(self, 1, ("page_size",))
        check_bools(self, ("forward", "include_data"))


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message of a store's answer.

    Attributes:
        message_hash: Of the message.
        timestamp_ns: Sender's timestamp, nanoseconds since the Unix epoch.
        envelope: The message; None where the query asked for no data.
    """

    message_hash: bytes
    timestamp_ns: int = 0
    envelope: MessageEnvelope | None = None


@dataclass(frozen=True, slots=True)
class StorePage:
    """A page of a store's answer.

    Attributes:
        messages: In the order that the query asked for.
        cursor: What the query of the next page names; None on the last page.
    """

    messages: tuple[StoredMessage, ...]
    cursor: bytes | None = None


@runtime_checkable
class Node(Protocol):
    """A messaging node. `events()` may be called once per channel: every iterator sees every event."""

    # As properties, since nobody sets them: a class may have either.
    @property
    def config(self) -> NodeConfig:
        """What the node was configured with; a channel made without a `ChannelConfig` takes its parts over."""

    @property
    def max_message_size_bytes(self) -> int:
        """Largest encoded transport message; may change while the node runs."""

    @property
    def has_store(self) -> bool:
        """Whether `query_store` can ever be answered: without a store none is asked, and repair comes sooner."""

    async def start(self) -> None:
        """Connects; the caller of `create_reliable_channel` has done it before. Again it does nothing."""

    async def stop(self) -> None:
        """Disconnects and ends every iterator of `events()`. Again it does nothing."""

    async def subscribe(self, content_topics: Sequence[str]) -> None:
        """Begins to report the messages of these topics, our own too; what was published before is not reported.

        Raises:
            NodeError: The node cannot subscribe now.
        """

    async def unsubscribe(self, content_topics: Sequence[str]) -> None:
        """Ends what `subscribe` began; topics that are not subscribed are passed over."""

    async def send(self, envelope: MessageEnvelope) -> RequestId:
        """Publishes; the outcome arrives by event under the returned id.

        A channel calls it for one message at a time and cancels a call after 60 s. It sends nothing again before it
        heard `MessagePropagated` or `MessageSendError`, or nothing of any message for 60 s.

        Raises:
            NodeError: The message is not accepted. Its `permanent` and `retry_after_ms` say what the channel does, as
                those of `MessageSendError` do: unless it is permanent the message is sent again.
        """

    async def query_store(self, query: StoreQuery) -> StorePage:
        """Answers one page of what a store holds.

        Raises:
            NodeError: No store answered.
        """

    def events(self) -> AsyncIterator[NodeEvent]:
        """Everything the node reports from this call on, in order; several iterators each see all of it."""
