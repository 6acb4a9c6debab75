"""What `send` takes, keeps and waits for, and how a send is cancelled."""

from __future__ import annotations

import asyncio

import pytest
from channel_world import World, run_world

from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig, SegmentationConfig
from shardwire.errors import ConfigError, NodeError, QueueFullError
from shardwire.events import MessageSentEvent
from shardwire.node import MessageEnvelope

SLOW = ChannelConfig.logos(
    rate_limit=RateLimitConfig(
        enabled=True, epoch_size_ms=60_000, messages_per_epoch=2, counts="segment", ack_reserve=0.0
    ),
    segmentation=SegmentationConfig(segment_size_bytes=1_024),
)


def test_cancel_drops_what_was_not_dispatched() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", SLOW)
        await world.join("bob")
        waits = [await alice.send(bytes([number]) * 100) for number in range(4)]
        await asyncio.sleep(1)
        waiter = asyncio.create_task(alice.delivered(waits[3], timeout_ms=60_000))
        await asyncio.sleep(0)
        assert await alice.cancel(waits[3])
        with pytest.raises(NodeError, match="cancelled"):
            await waiter
        assert not await alice.cancel(waits[3])
        assert not await alice.cancel(waits[0])
        assert not await alice.cancel("unknown")
        assert waits[3] not in [entry.request_id for entry in alice.pending()]
        await asyncio.sleep(300)

    world = run_world(scenario)
    assert world.messages("bob") == [bytes([number]) * 100 for number in range(3)]


def test_a_cancelled_send_sends_nothing_more() -> None:
    config = ChannelConfig.logos(sds=SdsConfig(outgoing_buffer_messages_max=1))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.node("bob")
        await alice.send(b"fills the buffer")
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(alice.send(b"waits for room"))
        await asyncio.sleep(1)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await world.join("bob")
        await asyncio.sleep(60)
        assert await alice.delivered(await alice.send(b"later")) == {"bob"}
        await asyncio.sleep(60)

    assert run_world(scenario).messages("bob") == [b"fills the buffer", b"later"]


def test_a_cancelled_send_gives_its_room_in_the_queue_back_at_once() -> None:
    config = ChannelConfig.logos(
        sds=SdsConfig(outgoing_buffer_messages_max=1), rate_limit=RateLimitConfig(queue_bytes_max=10_000)
    )

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.node("bob")
        await alice.send(b"fills the buffer")
        await asyncio.sleep(1)
        waiting = [asyncio.create_task(alice.send(bytes(3_000))) for _ in range(3)]
        await asyncio.sleep(1)
        assert alice.rate_limit_status().queued == 3
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.sleep(1)
        status = alice.rate_limit_status()
        assert (status.queued, status.queued_bytes) == (0, 0)
        later = asyncio.create_task(alice.send(bytes(3_000)))
        await world.join("bob")
        assert await alice.delivered(await later, timeout_ms=120_000) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"fills the buffer", bytes(3_000)]


def test_without_a_rate_limit_send_waits_for_room_in_the_queue() -> None:
    config = ChannelConfig.logos(rate_limit=RateLimitConfig(queue_bytes_max=10_000))
    messages = [bytes([number]) * 3_000 for number in range(40)]

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob")
        for message in messages:
            await alice.send(message)
            assert alice.rate_limit_status().queued_bytes <= 10_000
        with pytest.raises(QueueFullError, match=r"of the message have 20[0-9]{3} bytes, .* raise the limit"):
            await alice.send(bytes(20_000))
        await asyncio.sleep(60)

    assert run_world(scenario).messages("bob") == messages


def test_a_send_that_waits_for_room_in_the_queue_keeps_its_place() -> None:
    config = ChannelConfig.logos(rate_limit=RateLimitConfig(queue_bytes_max=10_000))
    sizes = [6_000, 9_000, 100, 5_000]

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob")
        sends = [asyncio.create_task(alice.send(bytes(size))) for size in sizes]
        await asyncio.gather(*sends)
        await asyncio.sleep(60)

    assert [len(message) for message in run_world(scenario).messages("bob")] == sizes


def test_send_waits_for_room_in_the_outgoing_buffer() -> None:
    config = ChannelConfig.logos(sds=SdsConfig(outgoing_buffer_messages_max=2))

    async def scenario(world: World) -> None:
        world.network.store_online = False
        alice = await world.join("alice", config)
        await world.node("bob")
        for number in range(2):
            await alice.send(b"%d" % number)
            await asyncio.sleep(0.1)
        waiting = [asyncio.create_task(alice.send(b"%d" % number)) for number in range(2, 6)]
        await asyncio.sleep(5)
        assert not any(task.done() for task in waiting)
        await world.join("bob")
        await asyncio.wait_for(asyncio.gather(*waiting), 120)
        await asyncio.sleep(60)

    assert run_world(scenario).messages("bob") == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize(("room", "sends"), [(3, 1), (5, 3)])
def test_messages_that_do_not_fit_into_the_outgoing_buffer_together_leave_one_after_another(
    room: int, sends: int
) -> None:
    config = ChannelConfig.logos(
        sds=SdsConfig(outgoing_buffer_messages_max=room), segmentation=SegmentationConfig(segment_size_bytes=1_024)
    )
    held: list[int] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob")
        tasks = [asyncio.create_task(alice.send(bytes([number]) * 4_096)) for number in range(sends)]
        for _ in range(60):
            await asyncio.sleep(0.5)
            held.append(alice.stats()["outgoing_unacknowledged"])
        await asyncio.gather(*tasks)

    assert run_world(scenario).messages("bob") == [bytes([number]) * 4_096 for number in range(sends)]
    assert max(held) <= max(room, 4)


@pytest.mark.parametrize("message", ["text", 5, None, [1]])
def test_a_message_must_be_a_buffer(message: object) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        for send in (alice.send, alice.send_ephemeral):
            with pytest.raises(TypeError):
                await send(message)  # type: ignore[arg-type]

    run_world(scenario)


def test_any_buffer_is_sent_as_it_was_at_the_call() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        buffer = bytearray(b"before")
        sending = asyncio.create_task(alice.send(memoryview(buffer)[::2]))
        await sending
        buffer[:] = b"after!"
        await asyncio.sleep(1)

    assert run_world(scenario).messages("bob") == [b"bfr"]


def test_unknown_requests_are_refused() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        with pytest.raises(ConfigError, match="request_id is 'x'"):
            await alice.delivered("x")

    run_world(scenario)


@pytest.mark.parametrize("waits", [False, True])
def test_a_large_message_that_takes_long_to_leave_lets_later_ones_pass(waits: bool) -> None:
    """Unless they are sent when it is sent."""
    large, small = bytes(10_000_000), b"small"

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        node = world.nodes["alice"]
        send, count = node.send, 0

        async def slow(envelope: MessageEnvelope) -> str:
            nonlocal count
            count += 1
            if count == 3:
                await asyncio.sleep(6)
            return await send(envelope)

        node.send = slow  # type: ignore[method-assign]
        sent = asyncio.Event()
        alice.on(MessageSentEvent, lambda event: sent.set())
        await alice.send(large)
        if waits:
            await sent.wait()
        await alice.send(small)
        await asyncio.sleep(60)

    assert run_world(scenario).messages("bob") == ([large, small] if waits else [small, large])
