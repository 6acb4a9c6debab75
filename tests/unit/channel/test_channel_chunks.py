"""Specification 004: the options, chunk events, ephemeral messages, irrecoverable errors, retries."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire._native import BloomFilter, ChannelMachine, SdsMessage
from shardwire.config import (
    ChannelConfig,
    RateLimitConfig,
    ReliableChannelOptions,
    SdsConfig,
    SegmentationConfig,
    SyncConfig,
)
from shardwire.errors import NodeError, PayloadTooLargeError, QueueFullError
from shardwire.events import (
    ChunkAcknowledgedEvent,
    ChunkErrorEvent,
    ChunkInfo,
    ChunkPossiblyAcknowledgedEvent,
    ChunkSendingEvent,
    ChunkSentEvent,
    EphemeralDroppedEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    RateLimitEvent,
)
from shardwire.node import MessageEnvelope, NetworkConditions

WAKU = ReliableChannelOptions(sync_min_interval_ms=10_000).to_config()


@pytest.mark.parametrize("payload", [b"hello", bytes(250_000)])
def test_the_waku_preset_carries_messages_both_ways(payload: bytes) -> None:
    async def scenario(world: World) -> None:
        for name in ("alice", "bob"):
            await world.join(name, WAKU)
        request_id = await world.channels["alice"].send(b"a" + payload)
        await world.channels["bob"].send(b"b" + payload)
        assert await world.channels["alice"].delivered(request_id, timeout_ms=120_000) == {"bob"}
        await asyncio.sleep(60)

    world = run_world(scenario, NetworkConditions(delay_ms=(5, 40)))
    assert world.messages("bob") == [b"a" + payload]
    assert world.messages("alice") == [b"b" + payload]


def test_chunk_progress_is_cumulative_in_order() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", WAKU)
        await world.join("bob", WAKU)
        await alice.send(bytes(5 * 102_400))
        await asyncio.sleep(60)

    world = run_world(scenario)
    progress = [tuple(range(count)) for count in range(1, 6)]
    for kind in (ChunkSendingEvent, ChunkSentEvent):
        assert [event.chunk_info.chunks for event in world.of("alice", kind)] == progress
    acknowledged = world.of("alice", ChunkAcknowledgedEvent)
    assert [len(event.chunk_info.chunks) for event in acknowledged] == sorted(
        len(event.chunk_info.chunks) for event in acknowledged
    )
    assert acknowledged[-1].chunk_info == ChunkInfo((0, 1, 2, 3, 4), 5)
    ids = {event.message_id for event in (*acknowledged, *world.of("alice", ChunkSentEvent))}
    assert len(ids) == 1


def test_a_filter_possibly_acknowledges() -> None:
    """A peer whose message names nothing but carries a filter, as a history that is too short leaves it."""

    config = replace(WAKU, sds=replace(WAKU.sds, message_id="content-sha256"))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        peer = await world.node("peer")
        await alice.send(b"x")
        await asyncio.sleep(1)
        bloom = BloomFilter(WAKU.sds.bloom_filter_capacity, WAKU.sds.bloom_filter_error_rate)
        bloom.insert(hashlib.sha256(b"x").hexdigest())
        message = SdsMessage(
            sender_id="peer", message_id="m1", channel_id=CHANNEL, lamport_timestamp=5, bloom_filter=bloom.to_bytes(),
            content=b"reply",
        )  # fmt: skip
        await peer.send(MessageEnvelope(TOPIC, message.encode()))
        await asyncio.sleep(2)

    world = run_world(scenario)
    (possibly,) = world.of("alice", ChunkPossiblyAcknowledgedEvent)
    assert possibly.chunk_info == ChunkInfo((0,), 1)
    assert world.of("alice", ChunkAcknowledgedEvent) == []


def test_retries_are_counted_by_the_options_and_end_in_an_error() -> None:
    config = ReliableChannelOptions(retry_interval_ms=1_000, max_retry_attempts=3).to_config()

    async def scenario(world: World) -> None:
        world.network.store_online = False
        alice = await world.join("alice", config)
        await world.node("silent")
        await alice.send(b"x")
        await asyncio.sleep(60)

    world = run_world(scenario)
    assert len(world.of("alice", ChunkSendingEvent)) == 4
    (error,) = world.of("alice", MessageSendErrorEvent)
    assert error.stage == "delivery"


def test_an_ephemeral_message_arrives_once_and_leaves_no_trace() -> None:
    async def scenario(world: World) -> None:
        for name in ("alice", "bob"):
            await world.join(name, on_disk=True)
        before = dict(world.disks["alice"].records)
        request_id = await world.channels["alice"].send_ephemeral(b"typing")
        await asyncio.sleep(30)
        (sent,) = world.of("alice", ChunkSentEvent)
        assert (sent.request_id, sent.chunk_info) == (request_id, ChunkInfo((0,), 1))
        assert world.disks["alice"].records.keys() == before.keys()

    world = run_world(scenario)
    assert world.messages("bob") == [b"typing"]
    assert world.sent_by("alice") == 1
    assert world.sent_by("bob") == 0
    assert [record.ephemeral for record in world.network.trace] == [True]
    assert world.of("alice", MessageSentEvent) == world.of("alice", MessageDeliveredEvent) == []


@pytest.mark.parametrize("config", [ChannelConfig.logos(), ChannelConfig.waku()])
def test_a_large_ephemeral_message_is_refused(config: ChannelConfig) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        with pytest.raises(PayloadTooLargeError, match="does not fit one segment"):
            await alice.send_ephemeral(bytes(102_401))
        await asyncio.sleep(1)

    world = run_world(scenario)
    assert [type(event) for event in world.events["alice"]] == [ChunkErrorEvent]
    assert world.sent_by("alice") == 0


@pytest.mark.parametrize("ephemeral", [False, True])
def test_an_empty_message_is_irrecoverable_in_waku_and_legal_in_logos(ephemeral: bool) -> None:
    async def scenario(world: World) -> None:
        for name, config in (("alice", ChannelConfig.waku()), ("bob", None), ("carol", None)):
            await world.join(name, config, channel_id="waku" if name == "alice" else "channel")
        alice, bob = world.channels["alice/waku"], world.channels["bob"]
        for channel in (alice, bob):
            await (channel.send_ephemeral(b"") if ephemeral else channel.send(b""))
        await asyncio.sleep(10)

    world = run_world(scenario)
    (error,) = world.of("alice", ChunkErrorEvent)
    assert "empty" in error.error
    assert len(world.of("alice", MessageSendErrorEvent)) == (0 if ephemeral else 1)
    assert world.messages("carol") == [b""]


def test_a_rate_limit_proof_that_fails_is_irrecoverable() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        error = NodeError("RLN proof generation failed", permanent=True)
        world.nodes["alice"].send_fault = lambda envelope: error
        request_id = await alice.send(b"x")
        with pytest.raises(NodeError, match="proof"):
            await alice.delivered(request_id)
        await asyncio.sleep(60)

    world = run_world(scenario)
    assert len(world.of("alice", ChunkErrorEvent)) == 1
    (error,) = world.of("alice", MessageSendErrorEvent)
    assert error.stage == "dispatch"
    assert len(world.of("alice", ChunkSendingEvent)) == 1


def test_a_passing_fault_of_the_node_is_tried_again() -> None:
    faults = ["busy"] * 3

    def fail(envelope: MessageEnvelope) -> str | None:
        return faults.pop() if faults else None

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        world.nodes["alice"].send_fault = fail
        assert await alice.delivered(await alice.send(b"x")) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"x"]


def test_a_fault_that_lasts_is_a_dispatch_error() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        world.nodes["alice"].send_fault = lambda envelope: "busy"
        await alice.send(b"x")
        await asyncio.sleep(300)

    (error,) = run_world(scenario).of("alice", MessageSendErrorEvent)
    assert error.stage == "dispatch"


def test_nothing_is_tried_while_the_node_is_offline() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        world.nodes["alice"].go_offline()
        await asyncio.sleep(1)
        request_id = await alice.send(b"x")
        await asyncio.sleep(600)
        assert world.of("alice", ChunkSendingEvent) == []
        world.nodes["alice"].go_online()
        assert await alice.delivered(request_id) == {"bob"}

    run_world(scenario)


LIMIT = RateLimitConfig(enabled=True, epoch_size_ms=60_000, messages_per_epoch=10, counts="segment", ack_reserve=0.0)


def test_a_retry_near_the_limit_waits_for_the_next_epoch_and_is_not_dropped() -> None:
    """Eight messages that nobody acknowledges, resent each second: they share the ten places of each epoch."""
    config = ChannelConfig.logos(
        rate_limit=LIMIT,
        sds=SdsConfig(acknowledgement_timeout_ms=1_000, max_retransmissions=100),
        sync=SyncConfig(sync_min_interval_ms=0),
    )

    async def scenario(world: World) -> None:
        world.network.store_online = False
        await world.node("bob")
        # To the beginning of an epoch.
        await asyncio.sleep(60)
        alice = await world.join("alice", config)
        for number in range(8):
            await alice.send(b"%d" % number)
        await asyncio.sleep(230)
        left: dict[int, int] = {}
        for record in world.network.trace:
            left[record.time_ns // 60_000_000_000] = left.get(record.time_ns // 60_000_000_000, 0) + 1
        assert list(left.values()) == [10] * 4
        assert alice.stats()["dispatched_retransmission"] == 4 * 10 - 8
        assert len(alice.pending()) == 8

    run_world(scenario)


def test_ephemeral_messages_drop_near_the_limit_and_others_queue() -> None:
    config = ChannelConfig.logos(rate_limit=LIMIT)
    requests: list[str] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob")
        await asyncio.sleep(60 - world.network.clock.epoch_ms() % 60_000 / 1000)
        for number in range(9):
            await alice.send(b"%d" % number)
        await asyncio.sleep(0.2)
        requests.append(await alice.send_ephemeral(b"near"))
        await alice.send(b"9")
        await asyncio.sleep(0.2)
        requests.append(await alice.send_ephemeral(b"over"))
        await alice.send(b"10")
        await asyncio.sleep(0.2)
        status = alice.rate_limit_status()
        assert (status.used, status.total, status.queued) == (10, 10, 1)
        assert b"10" not in world.messages("bob")
        await asyncio.sleep(61)

    world = run_world(scenario)
    assert [(event.request_id, event.reason) for event in world.of("alice", EphemeralDroppedEvent)] == [
        (requests[0], "rate_limit_approached"),
        (requests[1], "rate_limit_reached"),
    ]
    assert world.messages("bob") == [b"%d" % number for number in range(11)]
    (limited,) = world.of("alice", RateLimitEvent)
    assert (limited.used, limited.total, limited.queued) == (10, 10, 1)


def test_what_was_not_handed_to_the_node_gives_its_place_back_and_leaves_without_waiting_for_a_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusals = [False] * 3
    leave = ChannelMachine.leave
    monkeypatch.setattr(ChannelMachine, "leave", lambda *transmit: refusals.pop() if refusals else leave(*transmit))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.logos(rate_limit=replace(LIMIT, messages_per_epoch=100)))
        await world.join("bob")
        await alice.send(bytes(500_000))
        await asyncio.sleep(0.1)
        assert world.messages("bob") == [bytes(500_000)]
        assert alice.rate_limit_status().used == 5

    run_world(scenario)


def test_the_queue_has_a_limit() -> None:
    config = ChannelConfig.logos(rate_limit=replace(LIMIT, messages_per_epoch=1, queue_bytes_max=10_000))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob")
        await alice.send(bytes(4_000))
        await asyncio.sleep(0.2)
        await alice.send(bytes(4_000))
        await alice.send(bytes(4_000))
        with pytest.raises(QueueFullError, match="queue_bytes_max is 10000"):
            await alice.send(bytes(4_000))
        with pytest.raises(QueueFullError, match=r"of the message have 20[0-9]{3} bytes, .* raise the limit"):
            await alice.send(bytes(20_000))
        await asyncio.sleep(200)
        await alice.send(bytes(4_000))

    run_world(scenario)


def test_a_small_message_does_not_wait_behind_a_large_one_for_epochs() -> None:
    limit = replace(LIMIT, epoch_size_ms=10_000, messages_per_epoch=10)
    config = ChannelConfig.logos(
        rate_limit=limit, segmentation=SegmentationConfig(segment_size_bytes=1_024, enable_reed_solomon=False)
    )

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob")
        await alice.send(bytes(100 * 1_024))
        await asyncio.sleep(15)
        await alice.send(b"small")
        await asyncio.sleep(25)
        assert b"small" in world.messages("bob")
        assert bytes(100 * 1_024) not in world.messages("bob")
        await asyncio.sleep(200)

    assert bytes(100 * 1_024) in run_world(scenario).messages("bob")


def test_an_idle_channel_is_quiet() -> None:
    async def scenario(world: World) -> None:
        for name in ("alice", "bob", "carol"):
            await world.join(name)
        await world.channels["alice"].send(b"x")
        await asyncio.sleep(300)
        before = len(world.network.trace)
        await asyncio.sleep(600)
        assert len(world.network.trace) - before <= 600 / 30

    run_world(scenario)


def test_syncs_can_be_switched_off() -> None:
    config = replace(WAKU, sync=replace(WAKU.sync, sync_min_interval_ms=0))

    async def scenario(world: World) -> None:
        for name in ("alice", "bob"):
            await world.join(name, config)
        await world.channels["alice"].send(b"x")
        await asyncio.sleep(600)

    assert run_world(scenario).sent_by("bob") == 0


def test_processing_is_throttled() -> None:
    config = ChannelConfig.logos(sync=SyncConfig(process_task_min_elapse_ms=1_000))

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob", config)
        await alice.send(b"0")
        await asyncio.sleep(0.1)
        assert world.messages("bob") == [b"0"]
        for number in range(1, 6):
            await alice.send(b"%d" % number)
            await asyncio.sleep(0.1)
        assert world.messages("bob") == [b"0"]
        await asyncio.sleep(1)

    assert run_world(scenario).messages("bob") == [b"%d" % number for number in range(6)]
