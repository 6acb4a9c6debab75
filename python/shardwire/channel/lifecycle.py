"""How a channel comes to be: arguments checked, configuration resolved, state loaded, parts put together."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from shardwire.channel.deliveries import Deliveries
from shardwire.channel.engine import Engine
from shardwire.channel.incoming import Incoming
from shardwire.channel.message_sizes import MessageSizes
from shardwire.channel.outgoing import OutgoingSends
from shardwire.channel.parts import Parts
from shardwire.channel.rate_limit import RateLimiter
from shardwire.channel.records import (
    DELIVERY,
    HANDOVER,
    IDENTITY,
    LAST_SEEN,
    PAYLOAD,
    RATE,
    SEND,
    DeliveryRecord,
    IdentityRecord,
    LastSeenRecord,
    RateRecord,
    of_kind,
    payload_key,
)
from shardwire.channel.reliable_channel import ReliableChannel
from shardwire.channel.restored_bytes import StoredSegment, expand
from shardwire.channel.segment_size import MessageBudget
from shardwire.channel.segmenter import ChannelSegmenter
from shardwire.channel.session import Session
from shardwire.channel.shared_bytes import SharedBytes
from shardwire.channel.subscriptions import Subscriptions
from shardwire.channel.timeline import Timeline
from shardwire.channel.writer import Writer
from shardwire.config import ChannelConfig, DeliveredWhen, SegmentationConfig
from shardwire.encryption.protocol import Encryption
from shardwire.errors import ConfigError
from shardwire.node.clock import NANOSECONDS_PER_MS, Clock, running_clock
from shardwire.node.protocol import Node, NodeConfig
from shardwire.persistence import MemoryPersistence
from shardwire.persistence.protocol import Changes, Persistence, RecordName
from shardwire.sds import MessageChannel, Now
from shardwire.segmentation import Reassembler

logger = logging.getLogger(__name__)

# Ids travel in every message, twice in a history entry.
ID_BYTES_MAX = 256
# A partial message waits so many epochs for its next segment: one that begins just after the last one left, and one
# in which its sender's other messages take the quota.
EPOCHS_AWAITED = 3
_NODE_MEMBERS = (
    "config",
    "max_message_size_bytes",
    "has_store",
    "subscribe",
    "unsubscribe",
    "send",
    "query_store",
    "events",
)

_warned_of_memory_persistence = False


async def create_reliable_channel(
    node: Node,
    channel_id: str,
    content_topic: str,
    sender_id: str,
    encryption: Encryption | None = None,
    config: ChannelConfig | None = None,
    *,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> ReliableChannel:
    """Creates a reliable channel, or resumes the one that its persistence holds (003 createReliableChannel).

    Sets up SDS, segmentation and encryption, and, with `auto_start`, subscribes to the content topic.

    Args:
        node: A started node; it stays the caller's.
        channel_id: The same for all participants.
        content_topic: Where the channel listens and sends.
        sender_id: Unique for each participant, the same in every session.
        encryption: Applied to everything that the channel sends; None sends in the clear.
        config: Counts alone where given. None means `ChannelConfig.logos()`, with each part that the node's
            `NodeConfig` sets put in its place, and on a node without a store `without_store()` of that.
        clock: Both times; None for those of the running event loop.
        rng: Source of ids and of random delays; None for an unpredictable one.

    Raises:
        ConfigError: An argument or option is out of its limits, the node's messages are too small, or the stored
            state belongs to another sender id.
        PersistenceError: The stored state cannot be read or written.
        NodeError: The node could not subscribe.
    """
    _check_node(node)
    _check_ids(channel_id, content_topic, sender_id)
    config = resolve_config(node.config, config, has_store=node.has_store)
    clock = clock if clock is not None else running_clock()
    rng = rng if rng is not None else random.SystemRandom()
    encryption = _bind_encryption(encryption, channel_id)
    sizes = MessageSizes(node, config, channel_id, content_topic, sender_id, encryption)
    await sizes.measure()
    persistence, own_persistence = _choose_persistence(config)
    writer = Writer(persistence, channel_id)
    try:
        state = await writer.load()
        shared = SharedBytes(config.sds.wire_format, config.segmentation.wire_format)
        records, segments = expand(state.records if state is not None else {}, shared)
        stored = StoredState.read(records, channel_id, sender_id)
        if stored.is_new:
            # Tells a persistence that cannot write from one that can, before anything depends on it.
            identity = {(IDENTITY, b""): IdentityRecord(sender_id).encode()}
            await writer.commit(Changes({**identity}))
        session = _assemble(
            node,
            channel_id,
            content_topic,
            sender_id,
            encryption,
            config,
            clock,
            rng,
            sizes,
            records,
            segments,
            shared,
            stored,
            writer,
            own_persistence,
        )
    except BaseException:
        await writer.close(own_persistence)
        raise
    session.open()
    channel = ReliableChannel(session)
    if config.auto_start:
        try:
            await session.start()
        except BaseException:
            await session.close(0)
            raise
    return channel


def resolve_config(node_config: NodeConfig, config: ChannelConfig | None, *, has_store: bool) -> ChannelConfig:
    """`config` itself, or the defaults of specification 003 with what the node's configuration sets."""
    if config is not None:
        if not isinstance(config, ChannelConfig):
            raise ConfigError(
                f"config is a {type(config).__name__}: it must be a ChannelConfig or None"
                + ("; pass its to_config()" if hasattr(config, "to_config") else "")
            )
        return config
    parts = {
        "segmentation": node_config.segmentation_config,
        "sds": node_config.sds_config,
        "rate_limit": node_config.rate_limit_config,
    }
    resolved = ChannelConfig.logos(**{name: part for name, part in parts.items() if part is not None})
    return resolved if has_store else resolved.without_store()


@dataclass(slots=True)
class StoredState:
    """What the channel itself stored."""

    is_new: bool
    rate: RateRecord | None
    last_seen_ns: int
    sends: dict[bytes, bytes]
    payloads: dict[bytes, bytes]
    deliveries: dict[bytes, bytes]
    handover: bytes | None

    @classmethod
    def read(cls, records: Mapping[RecordName, bytes], channel_id: str, sender_id: str) -> StoredState:
        """Raises:
        ConfigError: The state is another sender's.
        PersistenceError: A record is damaged or of a newer schema.
        """
        identity = records.get((IDENTITY, b""))
        if identity is not None:
            stored_sender = IdentityRecord.decode(identity).sender_id
            if stored_sender != sender_id:
                raise ConfigError(
                    f"sender_id is {sender_id!r}: the stored state of channel {channel_id!r} belongs to "
                    f"{stored_sender!r}; use that sender id or another persistence"
                )
        rate = records.get((RATE, b""))
        last_seen = records.get((LAST_SEEN, b""))
        return cls(
            is_new=identity is None,
            rate=RateRecord.decode(rate) if rate is not None else None,
            last_seen_ns=LastSeenRecord.decode(last_seen).timestamp_ns if last_seen is not None else 0,
            sends=of_kind(records, SEND),
            payloads=of_kind(records, PAYLOAD),
            deliveries=of_kind(records, DELIVERY),
            handover=records.get((HANDOVER, b"")),
        )


def _patient(config: ChannelConfig) -> SegmentationConfig:
    """How segments are put together: what waits for the next epochs of its sender's rate limit does not expire."""
    segmentation, rate_limit = config.segmentation, config.rate_limit
    waits_ms = EPOCHS_AWAITED * rate_limit.epoch_size_ms if rate_limit.enabled else 0
    limits = replace(segmentation.limits, timeout_ms=max(segmentation.limits.timeout_ms, waits_ms))
    return replace(segmentation, limits=limits)


def _assemble(
    node: Node,
    channel_id: str,
    content_topic: str,
    sender_id: str,
    encryption: Encryption | None,
    config: ChannelConfig,
    clock: Clock,
    rng: random.Random,
    sizes: MessageSizes,
    records: Mapping[RecordName, bytes],
    segments: list[StoredSegment],
    shared: SharedBytes,
    stored: StoredState,
    writer: Writer,
    own_persistence: Persistence | None,
) -> Session:
    now = Now(clock.monotonic_ms(), clock.epoch_ms())
    machine = _make_machine(channel_id, sender_id, config, now, rng, sizes.budget, records)
    timeline = Timeline()
    subscriptions = Subscriptions()
    # Segments of a peer whose node carries larger messages are read at their full size.
    incoming = Incoming(
        machine,
        Reassembler(_patient(config)),
        config.segmentation,
        shared,
        timeline=timeline,
        now=now,
    )
    outgoing = OutgoingSends(_delivered_when(config), subscriptions.wants)
    # The machine keeps the order of sends; those that it is done with are the oldest.
    order = {send_id.encode(): number for number, send_id in enumerate(machine.sends())}
    outgoing.restore(dict(sorted(stored.sends.items(), key=lambda item: order.get(item[0], -1))))
    deliveries = Deliveries(
        config.redelivery,
        messages_max=config.sds.incoming_buffer_messages_max,
        bytes_max=config.sds.incoming_buffer_bytes_max,
    )
    deliveries.restore(stored.deliveries, stored.payloads, stored.handover)
    waiting = map(DeliveryRecord.decode, stored.deliveries.values())
    queued = {payload_key(entry.sender_id, entry.send_id) for entry in waiting}
    incoming.restore(records, segments, stored.payloads, queued, now)
    limiter = RateLimiter(config.rate_limit, stored.rate)
    engine = Engine(config, machine, incoming, outgoing, deliveries, limiter, timeline, shared, sender_id, now)
    session = Session(
        Parts(
            node,
            channel_id,
            content_topic,
            sender_id,
            encryption,
            config,
            sizes,
            clock,
            rng,
            engine,
            ChannelSegmenter(sizes.budget.segmentation),
            subscriptions,
            timeline,
            writer,
            own_persistence,
            # A time that has not come says nothing: the clock was ahead when it was stored.
            stored.last_seen_ns if stored.last_seen_ns <= now.epoch_ms * NANOSECONDS_PER_MS else 0,
        )
    )
    if node.has_store:
        engine.in_store.resume(now)
    engine.may_hand_over = session.may_hand_over
    subscriptions.on_change = session.on_listeners_changed
    return session


def _delivered_when(config: ChannelConfig) -> DeliveredWhen:
    # Whatever set of names was given, the configuration has frozen it.
    return cast(DeliveredWhen, config.delivered_when)


def _make_machine(
    channel_id: str,
    sender_id: str,
    config: ChannelConfig,
    now: Now,
    rng: random.Random,
    budget: MessageBudget,
    records: Mapping[RecordName, bytes],
) -> MessageChannel:
    sds_records = {name: value for name, value in records.items() if name[0].startswith("sds.")}
    if not sds_records:
        return MessageChannel(
            channel_id,
            sender_id,
            config.sds,
            config.sync,
            now=now,
            rng=rng,
            header_bytes_max=budget.header_bytes_max,
            delivered_when=_delivered_when(config),
        )
    return MessageChannel.restore(
        sds_records,
        channel_id,
        sender_id,
        config.sds,
        config.sync,
        now=now,
        rng=rng,
        header_bytes_max=budget.header_bytes_max,
        delivered_when=_delivered_when(config),
    )


def _bind_encryption(encryption: Encryption | None, channel_id: str) -> Encryption | None:
    if encryption is None:
        return None
    if isinstance(encryption, type):
        raise ConfigError(f"encryption is the class {encryption.__name__}: it must be an instance of it")
    bind = getattr(encryption, "bind", None)
    bound: Encryption = bind(channel_id) if bind is not None else encryption
    for name in ("encrypt", "decrypt"):
        if not callable(getattr(bound, name, None)):
            raise ConfigError(f"encryption is a {type(bound).__name__} without {name}(): it must have both operations")
    return bound


def _choose_persistence(config: ChannelConfig) -> tuple[Persistence, Persistence | None]:
    """The persistence, and again where it is the channel's own."""
    if config.sds.persistence is not None:
        return config.sds.persistence, None
    global _warned_of_memory_persistence
    if not _warned_of_memory_persistence:
        _warned_of_memory_persistence = True
        logger.warning(
            "SdsConfig.persistence is not set: channel state is kept in memory and lost with the process; "
            "use SqlitePersistence(path) to keep it"
        )
    own = MemoryPersistence()
    return own, own


def _check_node(node: Node) -> None:
    for name in _NODE_MEMBERS:
        if not hasattr(node, name):
            raise ConfigError(f"node is a {type(node).__name__} without {name}: it must be a shardwire.node.Node")
    if not isinstance(node.has_store, bool):
        raise ConfigError(f"has_store of the node is {node.has_store!r}: it must be True or False")
    size = node.max_message_size_bytes
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ConfigError(f"max_message_size_bytes of the node is {size!r}: it must be an integer of at least 1")


def _check_ids(channel_id: str, content_topic: str, sender_id: str) -> None:
    for name, value in (("channel_id", channel_id), ("content_topic", content_topic), ("sender_id", sender_id)):
        if not isinstance(value, str) or not 1 <= len(value.encode("utf-8", "replace")) <= ID_BYTES_MAX:
            shown = repr(value)
            shown = shown if len(shown) <= ID_BYTES_MAX else f"{shown[:32]}... ({len(shown)} characters)"
            raise ConfigError(f"{name} is {shown}: it must be a text of 1 to {ID_BYTES_MAX} bytes")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{name} is {value!r}: it must be encodable as UTF-8") from None
