"""Segments that can never be sent (004, Irrecoverable errors; docs/decisions/2026-11-22-failed-parity.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from channel_world import World, run_world

from shardwire.config import ChannelConfig, MessageIdRule, SegmentationConfig
from shardwire.errors import NodeError, PayloadTooLargeError, PersistenceError
from shardwire.events import (
    ChunkErrorEvent,
    ChunkSentEvent,
    IrretrievableMessageEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from shardwire.node import MessageEnvelope

NO_PROOF = NodeError("RLN proof generation failed", permanent=True)
# Four data segments and two of parity for a message of 4,000 bytes.
CODED = ChannelConfig.logos(
    segmentation=SegmentationConfig(segment_size_bytes=1_024, enable_reed_solomon=True, parity_rate=0.5)
)


def fail(positions: set[int], error: str | NodeError = NO_PROOF) -> Callable[[MessageEnvelope], str | NodeError | None]:
    """A fault for the envelopes at these positions, counted from 0."""
    count = 0

    def choose(envelope: MessageEnvelope) -> str | NodeError | None:
        nonlocal count
        count += 1
        return error if count - 1 in positions else None

    return choose


@pytest.mark.parametrize("failing", [{4}, {5}, {4, 5}])
def test_a_message_goes_on_without_the_parity_that_can_never_be_sent(failing: set[int]) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", CODED)
        await world.join("bob", CODED)
        world.nodes["alice"].send_fault = fail(failing)
        assert await alice.delivered(await alice.send(bytes(4_000))) == {"bob"}
        # What follows it does not wait for the segment that never left.
        assert await alice.delivered(await alice.send(b"next"), timeout_ms=5_000) == {"bob"}
        await asyncio.sleep(600)
        stats = alice.stats()
        assert stats["parity_left_out"] == len(failing)
        assert stats.get("dispatched_retransmission", 0) == 0

    world = run_world(scenario)
    assert world.messages("bob") == [bytes(4_000), b"next"]
    assert len(world.of("alice", MessageSentEvent)) == len(world.of("alice", MessageDeliveredEvent)) == 2
    for kind in (ChunkErrorEvent, MessageSendErrorEvent):
        assert world.of("alice", kind) == []
    assert world.of("bob", IrretrievableMessageEvent) == []


def test_lost_data_is_sent_again_where_parity_was_left_out() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", CODED)
        await world.join("bob", CODED)
        # What is asked on connecting brings nothing of it.
        await asyncio.sleep(1)
        world.lose("alice", "bob", {0})
        lose, choose = world.nodes["alice"].send_fault, fail({4, 5})
        assert lose is not None

        def lose_or_fail(envelope: MessageEnvelope) -> str | NodeError | None:
            return lose(envelope) or choose(envelope)

        world.nodes["alice"].send_fault = lose_or_fail
        assert await alice.delivered(await alice.send(bytes(4_000)), timeout_ms=300_000) == {"bob"}
        assert alice.stats()["dispatched_retransmission"] > 0

    world = run_world(scenario)
    assert world.messages("bob") == [bytes(4_000)]
    assert world.of("alice", MessageSendErrorEvent) == []


def test_a_retransmission_without_a_proof_is_an_error_of_delivery() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        request_id = await alice.send(b"nobody hears it")
        await asyncio.sleep(1)
        world.nodes["alice"].send_fault = lambda envelope: NO_PROOF
        await asyncio.sleep(60)
        with pytest.raises(TimeoutError, match=str(NO_PROOF)):
            await alice.delivered(request_id, timeout_ms=1_000)

    world = run_world(scenario)
    assert len(world.of("alice", MessageSentEvent)) == 1
    (chunk,) = world.of("alice", ChunkErrorEvent)
    assert chunk.chunk_info.chunks == (0,)
    (error,) = world.of("alice", MessageSendErrorEvent)
    assert (error.stage, error.error) == ("delivery", str(NO_PROOF))


def test_giving_up_names_the_chunks_that_the_node_did_not_take() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        world.nodes["alice"].send_fault = fail(set(range(1, 1_000)), "out of order")
        await alice.send(bytes(250_000))
        await asyncio.sleep(1_000)

    world = run_world(scenario)
    assert [event.chunk_info.chunks for event in world.of("alice", ChunkSentEvent)] == [(0,)]
    (chunk,) = world.of("alice", ChunkErrorEvent)
    assert (chunk.chunk_info.chunks, chunk.chunk_info.total_chunks) == ((1, 2), 3)
    (error,) = world.of("alice", MessageSendErrorEvent)
    assert error.stage == "dispatch"


@pytest.mark.parametrize("message_id", ["send", "content-sha256"])
def test_the_failure_of_an_empty_message_is_durable_when_its_id_is_returned(message_id: MessageIdRule) -> None:
    waku = ChannelConfig.waku()
    config = replace(waku, sds=replace(waku.sds, message_id=message_id))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config, on_disk=True, listen=False)
        alice.on_message_send_error(lambda event: asyncio.Event().wait())
        request_ids = [await alice.send(b"") for _ in range(2)]
        await world.crash("alice")
        alice = await world.join("alice", config, on_disk=True)
        await asyncio.sleep(1)
        assert [event.request_id for event in world.of("alice", MessageSendErrorEvent)] == request_ids
        assert alice.pending() == ()
        world.disks["alice"].fails_with = PersistenceError("disk full")
        with pytest.raises(PersistenceError, match="disk full"):
            await alice.send(b"")
        world.disks["alice"].fails_with = None
        await asyncio.sleep(1)
        await world.crash("alice")
        await world.join("alice", config, on_disk=True)
        await asyncio.sleep(1)
        assert [event.request_id for event in world.of("alice", MessageSendErrorEvent)] == request_ids

    run_world(scenario)


class Unable:
    """Encrypts nothing, and counts how often it was asked to."""

    overhead_bytes = 0

    def __init__(self) -> None:
        self.asked = 0

    def encrypt(self, content: bytes) -> bytes:
        self.asked += 1
        raise RuntimeError("no key")

    def decrypt(self, payload: bytes) -> bytes:
        return payload


@pytest.mark.parametrize(
    ("cause", "tries"), [("encoding failed", 1), ("empty payload", 0), ("too large", 0), ("no proof", 1)]
)
def test_each_irrecoverable_error_of_the_specification_is_told_and_nothing_is_tried_again(
    cause: str, tries: int
) -> None:
    """004, Irrecoverable errors: the four that it lists."""
    waku = ChannelConfig.waku()
    config = replace(waku, segmentation=replace(waku.segmentation, max_total_segments=3))
    cipher = Unable()
    tried: list[MessageEnvelope] = []

    def note(envelope: MessageEnvelope) -> NodeError | None:
        tried.append(envelope)
        return NO_PROOF if cause == "no proof" else None

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config, encryption=cipher if cause == "encoding failed" else None)
        await world.node("bob")
        world.nodes["alice"].send_fault = note
        if cause == "too large":
            with pytest.raises(PayloadTooLargeError):
                await alice.send(bytes(300_000))
        else:
            await alice.send(b"" if cause == "empty payload" else b"message")
        await asyncio.sleep(900)
        assert alice.pending() == ()

    world = run_world(scenario)
    (chunk,) = world.of("alice", ChunkErrorEvent)
    assert (chunk.chunk_info.chunks, chunk.chunk_info.total_chunks) == ((0,), 1)
    (error,) = world.of("alice", MessageSendErrorEvent)
    assert (error.stage, error.error) == ("dispatch", chunk.error)
    assert len(tried) + cipher.asked == tries
