"""How a channel comes to be: arguments checked, sizes measured, state loaded, machine restored, parts put together."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import cast

from shardwire._native import ChangedRecords, ChannelMachine
from shardwire.channel.arguments import ChannelArguments, check_arguments, persistence_of
from shardwire.channel.creation_coroutine import ChannelCreation
from shardwire.channel.engine import Engine
from shardwire.channel.limits import node_limits
from shardwire.channel.limits.limit import Limit, Member
from shardwire.channel.limits.node_limits import NodeMembership
from shardwire.channel.limits.quota import Quota
from shardwire.channel.observing.subscriptions import Subscriptions
from shardwire.channel.observing.timeline import Timeline
from shardwire.channel.reliable_channel import ReliableChannel
from shardwire.channel.sending.message_sizes import MessageSizes
from shardwire.channel.sending.segmenter import ChannelSegmenter
from shardwire.channel.session import Session
from shardwire.channel.storing.records import IDENTITY, IdentityRecord, StoredState
from shardwire.channel.storing.writer import Writer
from shardwire.config import ChannelConfig, DeliveredWhen, ReliableChannelOptions, SegmentationConfig
from shardwire.encryption.protocol import Encryption
from shardwire.names import ChannelId, SenderId
from shardwire.node.clock import Clock
from shardwire.node.protocol import Node
from shardwire.peer_log import PeerLog
from shardwire.persistence.protocol import Persistence, RecordName
from shardwire.quoting import quoted
from shardwire.sds import Now
from shardwire.segmentation.parameters import native_parameters

peer_logger = logging.getLogger("shardwire.channel.peers")

# A partial message waits so many epochs for its next segment: one that begins just after the last one left, and one
# in which its sender's other messages take the quota.
EPOCHS_AWAITED = 3


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
    check = partial(check_arguments, node, channel_id, content_topic, sender_id, encryption, config, clock, rng)
    return ChannelCreation(_create(check))


async def _create(check: Callable[[], ChannelArguments]) -> ReliableChannel:
    arguments = check()
    sizes = MessageSizes(arguments)
    await sizes.measure()
    persistence = persistence_of(arguments.config)
    writer = Writer(persistence, arguments.channel_id)
    membership: NodeMembership | None = None
    try:
        records, stored = await _load(arguments, writer)
        now = Now(arguments.clock.monotonic_ms(), arguments.clock.epoch_ms())
        machine = _restore_machine(arguments, records, sizes.budget.header_bytes_max, now)
        membership = await _join_node_limit(arguments, machine, persistence)
        session = _assemble(arguments, sizes, machine, stored, writer, membership, now)
        if arguments.members.has_store:
            machine.resume_in_store(now)
    except BaseException:
        if membership is not None:
            await membership.leave()
        await writer.close()
        raise
    session.open()
    channel = ReliableChannel(session)
    if arguments.config.auto_start:
        try:
            await session.start()
        except BaseException:
            await session.close(0)
            raise
    return channel


# Python names a coroutine that nobody awaited: by the function that the application called.
_create.__name__ = _create.__qualname__ = create_reliable_channel.__name__


async def _load(arguments: ChannelArguments, writer: Writer) -> tuple[Mapping[RecordName, bytes], StoredState]:
    """The stored records, and those of the channel itself read; a new channel stores its identity first."""
    state = await writer.load()
    records = state.records if state is not None else {}
    sds_wire_format = arguments.config.sds.wire_format
    stored = StoredState.read(records, arguments.channel_id, arguments.sender_id, sds_wire_format)
    if stored.is_new:
        # Tells a persistence that cannot write from one that can, before anything depends on it.
        identity = {(IDENTITY, b""): IdentityRecord(arguments.sender_id, sds_wire_format).encode()}
        await writer.commit_first(ChangedRecords({**identity}))
    return records, stored


def _restore_machine(
    arguments: ChannelArguments, records: Mapping[RecordName, bytes], header_bytes_max: int, now: Now
) -> ChannelMachine:
    """The machine that was stored; without records a new one."""
    config = arguments.config
    # Segments of a peer whose node carries larger messages are read at their full size.
    segmentation = _awaiting_epochs(arguments)
    return ChannelMachine.restore(
        records,
        arguments.channel_id,
        arguments.sender_id,
        config.sds,
        config.sync,
        native_parameters(segmentation),
        segmentation.limits,
        now=now,
        rng=arguments.rng,
        redelivery=config.redelivery,
        header_bytes_max=header_bytes_max,
        # Whatever set of names was given, the configuration has frozen it.
        delivered_when=cast(DeliveredWhen, config.delivered_when),
        members_make_parity=config.parity_on_demand,
        queue_bytes_max=config.rate_limit.queue_bytes_max,
        is_limited=bool(_epochs_ms(arguments)),
    )


def _epochs_ms(arguments: ChannelArguments) -> list[int]:
    """The epochs of the rate limits that hold: the channel's own, and its node's."""
    limits = arguments.config.rate_limit, arguments.members.config.rate_limit_config
    return [limit.epoch_size_ms for limit in limits if limit is not None and limit.enabled]


def _awaiting_epochs(arguments: ChannelArguments) -> SegmentationConfig:
    """The segmentation with a timeout that outlasts rate limits: a sender may need several epochs for one message."""
    segmentation = arguments.config.segmentation
    waits_ms = EPOCHS_AWAITED * max(_epochs_ms(arguments), default=0)
    limits = replace(segmentation.limits, timeout_ms=max(segmentation.limits.timeout_ms, waits_ms))
    return replace(segmentation, limits=limits)


async def _join_node_limit(
    arguments: ChannelArguments, machine: ChannelMachine, persistence: Persistence | None
) -> NodeMembership | None:
    """The channel's part in the rate limit of its node; None where the node has none."""
    limit = arguments.members.config.rate_limit_config
    if limit is None or not limit.enabled:
        return None
    in_flight, epoch_ms = machine.counted_in_flight, arguments.clock.epoch_ms
    return await node_limits.join(arguments.node, limit, persistence, in_flight, epoch_ms)


def _assemble(
    arguments: ChannelArguments,
    sizes: MessageSizes,
    machine: ChannelMachine,
    stored: StoredState,
    writer: Writer,
    membership: NodeMembership | None,
    now: Now,
) -> Session:
    config, channel, clock = arguments.config, quoted(arguments.channel_id), arguments.clock
    timeline = Timeline(arguments.channel_id, arguments.sender_id, config.sds.wire_format)
    peer_log = PeerLog(peer_logger, clock.monotonic_ms, f"channel {channel}: ")
    own_limit: tuple[Limit, Member] | None = None
    if config.rate_limit.enabled:
        # Stored with everything else of the channel.
        limit = Limit(config.rate_limit, lambda count: session.make_durable(), stored.rate)
        own_limit = limit, limit.join(machine.counted_in_flight, clock.epoch_ms)
    quota = Quota(own_limit, membership)
    first_parity = machine.first_parity_millionths if config.parity_on_demand else None
    session = Session(
        arguments,
        sizes,
        Engine(machine, quota, timeline, peer_log, arguments.sender_id, now, writer.stores),
        ChannelSegmenter(sizes.budget.segmentation, first_parity),
        Subscriptions(channel, machine.listen_for),
        writer,
    )
    return session
