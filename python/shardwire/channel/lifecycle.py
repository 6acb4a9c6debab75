"""How a channel comes to be: arguments checked, configuration resolved, state loaded, parts put together."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from shardwire._native import ChangedRecords, ChannelMachine
from shardwire.channel.choice_of_config import resolve_config, without_sender
from shardwire.channel.creation import ChannelCreation
from shardwire.channel.engine import Engine
from shardwire.channel.limits import node_limits
from shardwire.channel.limits.limit import Limit, Member
from shardwire.channel.limits.node_limits import COUNT_NAME_PREFIX, NodeMembership
from shardwire.channel.limits.quota import Quota
from shardwire.channel.node_members import NodeMembers
from shardwire.channel.observing.subscriptions import Subscriptions
from shardwire.channel.observing.timeline import Timeline
from shardwire.channel.parts import Parts
from shardwire.channel.reliable_channel import ReliableChannel
from shardwire.channel.sending.message_sizes import MessageSizes
from shardwire.channel.sending.segment_size import MessageBudget
from shardwire.channel.sending.segmenter import ChannelSegmenter
from shardwire.channel.session import Session
from shardwire.channel.storing.records import IDENTITY, IdentityRecord
from shardwire.channel.storing.stored_state import StoredState
from shardwire.channel.storing.writer import Writer
from shardwire.config import (
    ChannelConfig,
    DeliveredWhen,
    RateLimitConfig,
    ReliableChannelOptions,
    SdsConfig,
    SegmentationConfig,
)
from shardwire.config.channel import ID_BYTES_MAX
from shardwire.config.checks import check_kind
from shardwire.config.without_store import waits_for_store
from shardwire.encryption.protocol import Encryption
from shardwire.errors import ConfigError
from shardwire.names import ChannelId, SenderId
from shardwire.node.clock import NANOSECONDS_PER_MS, Clock, check_clock, running_clock
from shardwire.node.protocol import Node, NodeConfig
from shardwire.peer_log import PeerLog
from shardwire.persistence.protocol import Persistence, RecordName
from shardwire.quoting import quoted
from shardwire.sds import Now
from shardwire.segmentation.parameters import native_parameters

logger = logging.getLogger(__name__)
peer_logger = logging.getLogger("shardwire.channel.peers")

# 23/WAKU2-TOPICS: /application/version/name/encoding, after a generation where there is one.
_CONTENT_TOPIC = re.compile(r"(/[^/]+){4,5}")
# A partial message waits so many epochs for its next segment: one that begins just after the last one left, and one
# in which its sender's other messages take the quota.
EPOCHS_AWAITED = 3

_warned: set[str] = set()


def create_reliable_channel(
    node: Node,
    channel_id: ChannelId,
    content_topic: str,
    sender_id: SenderId,
    encryption: Encryption | None = None,
    config: ChannelConfig | ReliableChannelOptions | None = None,
    *,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> ChannelCreation:
    """Creates a reliable channel, or resumes the one that its persistence holds (Logos 003 createReliableChannel).

    Sets up SDS, segmentation and encryption, and, with `auto_start`, subscribes to the content topic. Both forms work:

        channel = await create_reliable_channel(...)            # close it when done
        async with create_reliable_channel(...) as channel:     # waits for its messages, then closes

    Args:
        node: A started node; it stays the caller's.
        channel_id: The same for all participants.
        content_topic: Where the channel listens and sends.
        sender_id: Unique for each participant, the same in every session.
        encryption: Applied to everything that the channel sends; None sends in the clear.
        config: A `ChannelConfig`, or the options of Waku 004 (`ReliableChannelOptions`). Counts alone where
            given, beneath the rate limit of the node. None means `ChannelConfig.logos()`, with
            the segmentation and SDS that the node's `NodeConfig` sets put in their places, and on a node without a
            store `without_store()` of that.
        clock: Both times; None for those of the running event loop.
        rng: Source of ids and of random delays; None for an unpredictable one. One with a seed, for a run that can be
            repeated, takes another seed in each life of a participant: a new message under the id of an earlier one
            counts as that. Ids that the state remembers are passed over.

    Raises:
        ConfigError: An argument or option is out of its limits, the node's messages are too small, or the stored
            state belongs to another sender id.
        PersistenceError: The stored state cannot be read or written, or the count of the node's rate limit cannot.
        NodeError: The node could not subscribe.
    """
    return ChannelCreation(_create(node, channel_id, content_topic, sender_id, encryption, config, clock, rng))


async def _create(
    node: Node,
    channel_id: ChannelId,
    content_topic: str,
    sender_id: SenderId,
    encryption: Encryption | None,
    config: ChannelConfig | ReliableChannelOptions | None,
    clock: Clock | None,
    rng: random.Random | None,
) -> ReliableChannel:
    members = NodeMembers.of(node)
    _check_ids(channel_id, content_topic, sender_id)
    config = without_sender(resolve_config(members.config, config, has_store=members.has_store), sender_id)
    _warn_of_idle_limits(config, members.config)
    if not members.has_store:
        _warn_of_late_requests(config.sds)
    check_clock(clock)
    check_kind("rng", rng, random.Random)
    clock = clock if clock is not None else running_clock()
    rng = rng if rng is not None else random.SystemRandom()
    encryption = _bind_encryption(encryption, channel_id)
    sizes = MessageSizes(node, config, channel_id, content_topic, sender_id, encryption)
    await sizes.measure(members.max_message_size_bytes)
    persistence = _persistence_of(config)
    writer = Writer(persistence, channel_id)
    membership: NodeMembership | None = None
    try:
        state = await writer.load()
        records = state.records if state is not None else {}
        stored = StoredState.read(records, channel_id, sender_id)
        if stored.is_new:
            # Tells a persistence that cannot write from one that can, before anything depends on it.
            identity = {(IDENTITY, b""): IdentityRecord(sender_id).encode()}
            await writer.commit_first(ChangedRecords({**identity}))
        node_limit = members.config.rate_limit_config
        now = Now(clock.monotonic_ms(), clock.epoch_ms())
        machine = _make_machine(channel_id, sender_id, config, node_limit, now, rng, sizes.budget, records)
        if node_limit is not None and node_limit.enabled:
            in_flight = machine.counted_in_flight
            membership = await node_limits.join(node, node_limit, persistence, in_flight, clock.epoch_ms)
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
            machine,
            now,
            stored,
            writer,
            membership,
        )
        if members.has_store:
            machine.resume_in_store(now)
    except BaseException:
        if membership is not None:
            await membership.leave()
        await writer.close()
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


# By these Python names what nobody awaits: as what was called, not as what does it.
_create.__name__ = _create.__qualname__ = create_reliable_channel.__name__


def _patient(config: ChannelConfig, node_limit: RateLimitConfig | None) -> SegmentationConfig:
    """How segments are put together: what waits for the next epochs of its sender's rate limit does not expire."""
    segmentation = config.segmentation
    epochs_ms = [
        limit.epoch_size_ms for limit in (config.rate_limit, node_limit) if limit is not None and limit.enabled
    ]
    waits_ms = EPOCHS_AWAITED * max(epochs_ms, default=0)
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
    machine: ChannelMachine,
    now: Now,
    stored: StoredState,
    writer: Writer,
    membership: NodeMembership | None,
) -> Session:
    timeline = Timeline(channel_id, sender_id, config.sds.wire_format)
    subscriptions = Subscriptions(quoted(channel_id), machine.listen_for)
    peer_log = PeerLog(peer_logger, clock.monotonic_ms, f"channel {quoted(channel_id)}: ")
    own_limit: tuple[Limit, Member] | None = None
    if config.rate_limit.enabled:
        # Stored with everything else of the channel.
        limit = Limit(config.rate_limit, lambda count: session.make_durable(), stored.rate)
        own_limit = limit, limit.join(machine.counted_in_flight, clock.epoch_ms)
    quota = Quota(own_limit, membership)
    engine = Engine(config, machine, quota, timeline, peer_log, sender_id, now, writer.stores)
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
            quota,
            ChannelSegmenter(
                sizes.budget.segmentation, machine.first_parity_millionths if config.parity_on_demand else None
            ),
            subscriptions,
            timeline,
            writer,
            # A time that has not come says nothing: the clock was ahead when it was stored.
            stored.last_seen_ns if stored.last_seen_ns <= now.epoch_ms * NANOSECONDS_PER_MS else 0,
        )
    )
    return session


def _delivered_when(config: ChannelConfig) -> DeliveredWhen:
    # Whatever set of names was given, the configuration has frozen it.
    return cast(DeliveredWhen, config.delivered_when)


def _make_machine(
    channel_id: str,
    sender_id: str,
    config: ChannelConfig,
    node_limit: RateLimitConfig | None,
    now: Now,
    rng: random.Random,
    budget: MessageBudget,
    records: Mapping[RecordName, bytes],
) -> ChannelMachine:
    """The machine that was stored, or a new one."""
    # Segments of a peer whose node carries larger messages are read at their full size.
    segmentation = _patient(config, node_limit)
    return ChannelMachine.restore(
        records,
        channel_id,
        sender_id,
        config.sds,
        config.sync,
        native_parameters(segmentation),
        segmentation.limits,
        now=now,
        rng=rng,
        redelivery=config.redelivery,
        header_bytes_max=budget.header_bytes_max,
        delivered_when=_delivered_when(config),
        members_make_parity=config.parity_on_demand,
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


def _persistence_of(config: ChannelConfig) -> Persistence | None:
    if config.sds.persistence is not None:
        return config.sds.persistence
    _warn_once(
        "SdsConfig.persistence is not set: channel state is kept in memory and lost with the process; "
        "use SqlitePersistence(path) to keep it"
    )
    return None


def _warn_of_late_requests(sds: SdsConfig) -> None:
    """A configuration that is given counts alone, whatever the node has."""
    if sds.enable_repair and waits_for_store(sds):
        _warn_once(
            "the node has no store, and this configuration asks others for what is missing after "
            f"{sds.repair_t_min_ms // 1_000} to {sds.repair_t_max_ms // 1_000} s; "
            "without_store(members=...) of it asks within seconds"
        )


def _warn_once(text: str) -> None:
    """What is true of a whole program is told once, however many channels it has."""
    if text not in _warned:
        _warned.add(text)
        logger.warning(text)


def _warn_of_idle_limits(config: ChannelConfig, node_config: NodeConfig) -> None:
    """A quota that nobody enforces looks like one until the network refuses what is beyond it."""
    limits = {
        "ChannelConfig.rate_limit": config.rate_limit,
        "NodeConfig.rate_limit_config": node_config.rate_limit_config,
    }
    for name, limit in limits.items():
        if limit is not None and not limit.enabled and limit.messages_per_epoch is not None:
            logger.warning(
                "%s.messages_per_epoch is %d and enabled is False: nothing is limited; set enabled=True to have it "
                "enforced, or messages_per_epoch=None",
                name,
                limit.messages_per_epoch,
            )


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
    if _CONTENT_TOPIC.fullmatch(sender_id) and not _CONTENT_TOPIC.fullmatch(content_topic):
        raise ConfigError(
            f"content_topic is {content_topic!r} and sender_id is {sender_id!r}: they stand in each other's place; the "
            "content topic, which looks like /application/version/name/encoding, comes before the sender id"
        )
    if channel_id.startswith(COUNT_NAME_PREFIX):
        raise ConfigError(
            f"channel_id is {channel_id!r}: names that begin with {COUNT_NAME_PREFIX!r} are not for channels"
        )
