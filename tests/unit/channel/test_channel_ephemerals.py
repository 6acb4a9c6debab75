"""Specification 004, Ephemeral messages, where they cannot leave at once: none waits, and each ends with one event."""

from __future__ import annotations

import asyncio

import pytest
from channel_world import World, run_world

from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig
from shardwire.errors import NodeError, PayloadTooLargeError, PersistenceError
from shardwire.events import ChunkErrorEvent, ChunkInfo, ChunkSentEvent, EphemeralDroppedEvent, MessageReceivedEvent
from shardwire.node import MessageEnvelope


def test_a_burst_is_dropped_from_the_threshold_on_and_nothing_of_it_waits() -> None:
    limit = RateLimitConfig(enabled=True, epoch_size_ms=60_000, messages_per_epoch=10, ephemeral_drop_threshold=0.5)
    requests: list[str] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.waku(rate_limit=limit))
        await world.join("bob", ChannelConfig.waku())
        requests.extend([await alice.send_ephemeral(b"%d" % number) for number in range(8)])
        await asyncio.sleep(70)

    world = run_world(scenario)
    assert [event.request_id for event in world.of("alice", ChunkSentEvent)] == requests[:5]
    dropped = world.of("alice", EphemeralDroppedEvent)
    assert [(event.request_id, event.reason) for event in dropped] == [
        (request_id, "rate_limit_approached") for request_id in requests[5:]
    ]
    assert [event.message for event in world.of("bob", MessageReceivedEvent)] == [b"0", b"1", b"2", b"3", b"4"]


def test_nothing_waits_for_an_offline_node() -> None:
    requests: list[str] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        world.nodes["alice"].go_offline()
        await asyncio.sleep(1)
        requests.append(await alice.send_ephemeral(b"typing"))
        await asyncio.sleep(1)
        world.nodes["alice"].go_online()
        await asyncio.sleep(1)
        requests.append(await alice.send_ephemeral(b"typing again"))
        await asyncio.sleep(1)

    world = run_world(scenario)
    [failed] = world.of("alice", ChunkErrorEvent)
    assert failed.request_id == requests[0]
    assert "offline" in failed.error
    assert [event.message for event in world.of("bob", MessageReceivedEvent)] == [b"typing again"]


def test_ephemeral_messages_that_a_node_holds_are_bounded() -> None:
    config = ChannelConfig.logos(sds=SdsConfig(outgoing_buffer_messages_max=3))
    requests: list[str] = []

    async def scenario(world: World) -> None:
        # Nobody is in reach, so the node keeps what it is given without an answer.
        alice = await world.join("alice", config)
        world.network.store_online = False
        requests.extend([await alice.send_ephemeral(b"typing") for _ in range(5)])
        await asyncio.sleep(1)
        await alice.stop()

    world = run_world(scenario)
    errors = [(event.request_id, event.error) for event in world.of("alice", ChunkErrorEvent)]
    assert sorted(request_id for request_id, _ in errors) == sorted(requests)
    assert [request_id for request_id, error in errors if "3 ephemeral messages wait" in error] == requests[3:]


def test_nothing_waits_for_a_persistence_that_fails() -> None:
    # The count against the limit must be stored before anything leaves.
    limit = RateLimitConfig(enabled=True, epoch_size_ms=60_000, messages_per_epoch=100)
    requests: list[str] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.logos(rate_limit=limit), on_disk=True)
        await world.join("bob")
        world.disks["alice"].fails_with = PersistenceError("the disk is full")
        # The first is on its way when the commit fails, the second comes while commits are held back.
        for _ in range(2):
            requests.append(await alice.send_ephemeral(b"lost"))
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
        world.disks["alice"].fails_with = None
        await asyncio.sleep(30)
        requests.append(await alice.send_ephemeral(b"kept"))
        await asyncio.sleep(1)
        assert alice.stats()["dispatches_in_flight"] == 0

    world = run_world(scenario)
    errors = [(event.request_id, event.error) for event in world.of("alice", ChunkErrorEvent)]
    assert errors == [(request_id, "the disk is full") for request_id in requests[:2]]
    assert [event.request_id for event in world.of("alice", ChunkSentEvent)] == requests[2:]
    assert world.messages("bob") == [b"kept"]


class Failing:
    """Encrypts nothing."""

    overhead_bytes = 0

    def encrypt(self, content: bytes) -> bytes:
        raise RuntimeError("no key")

    def decrypt(self, payload: bytes) -> bytes:
        return payload


@pytest.mark.parametrize("cause", ["encoding", "refused", "refused for good", "offline", "stopped", "too large"])
def test_each_way_in_which_one_cannot_be_sent_ends_it_with_one_error(cause: str) -> None:
    """004, Ephemeral messages: encoding, sending or the size check fails."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=Failing() if cause == "encoding" else None)
        node = world.nodes["alice"]
        fault = NodeError("no proof", permanent=True) if cause == "refused for good" else "busy"
        if cause.startswith("refused"):
            node.send_fault = lambda envelope: fault
        elif cause == "offline":
            node.go_offline()
        await asyncio.sleep(1)
        if cause == "too large":
            with pytest.raises(PayloadTooLargeError):
                await alice.send_ephemeral(bytes(200_000))
        else:
            # Nobody is in reach, so the node says nothing of what it is given.
            world.network.store_online = False
            await alice.send_ephemeral(b"typing")
        await asyncio.sleep(1)
        if cause == "stopped":
            await alice.stop()
        await asyncio.sleep(60)

    told = [event for event in run_world(scenario).events["alice"] if hasattr(event, "chunk_info")]
    assert [(type(event), event.chunk_info) for event in told] == [(ChunkErrorEvent, ChunkInfo((0,), 1))]


def test_ephemeral_messages_leave_once_the_node_is_tried_again() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice")
        await asyncio.sleep(30)
        node = world.nodes["alice"]
        send = node.send

        async def fail_once(envelope: MessageEnvelope) -> str:
            node.send = send  # type: ignore[method-assign]
            await asyncio.sleep(0.1)
            raise NodeError("busy")

        node.send = fail_once  # type: ignore[method-assign]
        for message in (b"lost", b"held back"):
            await alice.send_ephemeral(message)
        await asyncio.sleep(5)
        assert world.messages("bob") == [b"held back"]

    run_world(scenario)
