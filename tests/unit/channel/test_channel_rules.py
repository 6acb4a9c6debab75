"""Rules of specifications 003 and 004 that concern the whole channel: its handle, its schedule, its silence."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world
from wrapped_node import WrappedNode

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.channel import close_channel, create_reliable_channel
from shardwire.config import (
    ChannelConfig,
    RateLimitConfig,
    ReassemblyLimits,
    SdsConfig,
    SegmentationConfig,
    SyncConfig,
)
from shardwire.errors import ConfigError
from shardwire.events import (
    ChunkSendingEvent,
    IrretrievableMessageEvent,
    MessageDeliveredEvent,
)
from shardwire.node import (
    MessageEnvelope,
    NetworkConditions,
    Node,
    NodeConfig,
    StorePage,
    StoreQuery,
)
from shardwire.segmentation import segment


def test_parts_of_the_node_configuration_are_used_unless_a_configuration_is_given_and_its_rate_limit_always() -> None:
    node_config = NodeConfig(
        segmentation_config=SegmentationConfig(segment_size_bytes=2_048),
        sds_config=SdsConfig(max_retransmissions=9),
        rate_limit_config=RateLimitConfig(enabled=True, messages_per_epoch=77),
    )

    async def scenario(world: World) -> None:
        node = await world.node("alice", node_config)
        taken = await create_reliable_channel(node, CHANNEL, TOPIC, "alice")
        assert taken.config.sds.max_retransmissions == 9
        assert taken.rate_limit_status().total == 77
        assert taken.config.segmentation.segment_size_bytes == 2_048
        assert taken.config.sync == SyncConfig()
        given = await create_reliable_channel(node, "other", TOPIC, "alice", config=ChannelConfig.waku())
        assert given.config.sds.max_retransmissions == 10
        assert not given.config.rate_limit.enabled
        assert given.rate_limit_status().total == 77
        for channel in (taken, given):
            await close_channel(channel)

    run_world(scenario)


class OnlyEncrypts:
    def encrypt(self, content: bytes) -> bytes:
        return content


class OnlyDecrypts:
    def decrypt(self, payload: bytes) -> bytes:
        return payload


@pytest.mark.parametrize("hook", [OnlyEncrypts(), OnlyDecrypts(), object()], ids=lambda hook: type(hook).__name__)
def test_an_encryption_that_lacks_an_operation_is_refused(hook: object) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ConfigError, match="encryption"):
            await world.join("alice", encryption=hook)  # type: ignore[arg-type]

    run_world(scenario)


def test_a_closed_channel_hears_nothing_and_its_neighbour_on_the_node_goes_on() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        other = await world.join("bob", channel_id="other")
        await alice.delivered(await alice.send(b"one"))
        await close_channel(bob)
        await alice.send(b"two")
        await asyncio.sleep(1)
        # Its topic stays subscribed for the other channel; with that one it goes.
        assert {outcome.receiver for record in world.network.trace[-1:] for outcome in record.outcomes} == {"bob"}
        await close_channel(other)
        await alice.send(b"three")
        await asyncio.sleep(1)
        assert not world.network.trace[-1].outcomes

    assert run_world(scenario).messages("bob") == [b"one"]


def test_a_stopped_channel_is_silent_and_starts_again() -> None:
    config = ChannelConfig.logos(sync=SyncConfig(sync_min_interval_ms=1_000))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.node("bob")
        request_id = await alice.send(b"nobody there yet")
        await asyncio.sleep(1)
        queries: list[StoreQuery] = []
        answer = world.nodes["alice"].query_store

        async def spied(query: StoreQuery) -> StorePage:
            queries.append(query)
            return await answer(query)

        world.nodes["alice"].query_store = spied  # type: ignore[method-assign]
        await alice.stop()
        before = world.sent_by("alice")
        tried = len(world.of("alice", ChunkSendingEvent))
        await asyncio.sleep(600)
        assert world.sent_by("alice") == before
        # Nor is anything prepared to leave, which would use up the retransmissions.
        assert len(world.of("alice", ChunkSendingEvent)) == tried
        assert queries == []
        await world.join("bob", config)
        await alice.start()
        assert await alice.delivered(request_id, timeout_ms=120_000) == {"bob"}

    run_world(scenario)


def test_a_channel_that_was_not_started_neither_listens_nor_asks_nor_answers() -> None:
    """004 ReliableChannelOptions, auto_start: nothing at all before `start()`, and then everything."""

    async def scenario(world: World) -> None:
        node = await world.node("bob")
        calls: list[object] = []
        for name in ("subscribe", "query_store", "send"):
            inner = getattr(node, name)

            async def spied(argument: object, name: str = name, inner: Any = inner) -> Any:
                calls.append((name, argument))
                return await inner(argument)

            setattr(node, name, spied)
        bob = await world.join("bob", ChannelConfig.logos(auto_start=False))
        alice = await world.join("alice")
        request_id = await alice.send(b"early")
        await asyncio.sleep(60)
        assert not bob.is_started()
        assert calls == []
        assert world.messages("bob") == []
        assert bob.stats()["segments_received"] == 0
        await bob.start()
        assert await alice.delivered(request_id, timeout_ms=120_000) == {"bob"}
        assert {name for name, _ in calls} == {"subscribe", "query_store", "send"}  # type: ignore[misc]

    assert run_world(scenario).messages("bob") == [b"early"]


def test_the_handle_shows_nothing_of_what_is_behind_it() -> None:
    """003 ReliableChannel: internal state is managed by the implementation."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        assert [name for name in vars(alice) if not name.startswith("_")] == []
        shown = {name: getattr(alice, name) for name in dir(alice) if not name.startswith("_")}
        values = {name: value for name, value in shown.items() if not callable(value)}
        assert {type(value) for value in values.values()} == {str, ChannelConfig}
        assert {"channel_id", "content_topic", "sender_id", "config"} <= values.keys()

    run_world(scenario)


def test_ephemeral_messages_carry_no_timestamp_no_history_and_no_filter() -> None:
    seen: list[MessageEnvelope] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.waku())
        await world.join("bob", ChannelConfig.waku())
        await alice.send(b"a regular one, which has them")
        world.nodes["alice"].send_fault = seen.append  # type: ignore[assignment]
        await alice.send_ephemeral(b"typing")
        await asyncio.sleep(1)

    run_world(scenario)
    [message] = [SdsMessage.decode(envelope.payload) for envelope in seen if envelope.ephemeral]
    assert message is not None
    assert (message.kind, message.lamport_timestamp, message.causal_history, message.bloom_filter) == (
        "ephemeral",
        None,
        (),
        None,
    )


def test_a_message_that_stays_partial_is_given_up_with_an_event_and_its_bytes() -> None:
    limits = ReassemblyLimits(timeout_ms=10_000)
    config = ChannelConfig.logos(
        segmentation=SegmentationConfig(limits=limits), sds=SdsConfig(max_retransmissions=0, enable_repair=False)
    )

    async def scenario(world: World) -> None:
        world.network.store_online = False
        alice = await world.join("alice", config)
        await world.join("bob", config)
        world.lose("alice", "bob", {1})
        await alice.send(bytes(250_000))
        await asyncio.sleep(5)
        assert world.of("bob", IrretrievableMessageEvent) == []
        await asyncio.sleep(600)

    world = run_world(scenario)
    assert world.of("bob", IrretrievableMessageEvent)
    assert world.messages("bob") == []
    assert world.of("alice", MessageDeliveredEvent) == []


def test_a_node_of_somebody_elses_is_enough() -> None:
    async def scenario(world: World) -> None:
        node = WrappedNode(await world.node("alice"))
        assert isinstance(node, Node)
        alice = await create_reliable_channel(node, CHANNEL, TOPIC, "alice")
        await world.join("bob")
        await alice.delivered(await alice.send(bytes(300_000)))
        await close_channel(alice)

    assert run_world(scenario).messages("bob") == [bytes(300_000)]


def test_segments_that_come_after_their_message_was_released_hold_nothing_up() -> None:
    """Ids that are hashes do not say to which message a late parity segment belongs; who makes no such reads them."""
    waku = ChannelConfig.waku()
    segmentation = replace(waku.segmentation, segment_size_bytes=256, enable_reed_solomon=True, parity_rate=1.0)
    config = replace(waku, segmentation=segmentation)
    hashes = replace(config, sds=replace(config.sds, message_id="content-sha256"))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", hashes)
        await world.join("bob", config)
        large = [bytes([number]) * 2_000 for number in range(8)]
        for message in large:
            await alice.send(message)
            await asyncio.sleep(10)
        await alice.send(b"what follows them")
        await asyncio.sleep(20)
        assert world.messages("bob") == [*large, b"what follows them"]

    run_world(scenario, NetworkConditions(delay_ms=(20, 5_000)))


def test_a_history_that_names_a_recovered_segment_by_its_hash_waits_for_nothing() -> None:
    config = ChannelConfig.waku()
    cut = replace(config.segmentation, segment_size_bytes=1_000, enable_reed_solomon=True, parity_rate=0.5)

    def message(content: bytes, history: list[HistoryEntry]) -> MessageEnvelope:
        wire = SdsMessage(
            sender_id="peer",
            message_id=hashlib.sha256(content).hexdigest(),
            channel_id=CHANNEL,
            lamport_timestamp=5,
            causal_history=history,
            content=content,
        )
        return MessageEnvelope(TOPIC, wire.encode())

    async def scenario(world: World) -> None:
        bob = await world.join("bob", config)
        peer = await world.node("peer")
        lost, *others = segment(bytes(3_500), cut)
        for content in others:
            await peer.send(message(content, []))
        (follows,) = segment(b"what follows", cut)
        await peer.send(message(follows, [HistoryEntry(hashlib.sha256(lost).hexdigest())]))
        await asyncio.sleep(2)
        assert world.messages("bob") == [bytes(3_500), b"what follows"]
        assert bob.stats()["segments_recovered"] == 1

    run_world(scenario)
