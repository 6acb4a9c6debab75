"""What `cancel` promises when it returns: it is durable, and nothing of the message follows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from channel_world import World, run_world

from shardwire.channel import ReliableChannel
from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig, SegmentationConfig
from shardwire.errors import ChannelClosedError, NodeError, PersistenceError
from shardwire.events import ChannelEvent, ChunkSentEvent
from shardwire.persistence import SqlitePersistence

# Of a message of eight segments four leave at once, the others an hour later.
HALVES = ChannelConfig.logos(
    segmentation=SegmentationConfig(segment_size_bytes=1_024),
    rate_limit=RateLimitConfig(
        enabled=True, epoch_size_ms=3_600_000, messages_per_epoch=4, counts="segment", ack_reserve=0.0
    ),
)
PAYLOAD = bytes(6_000)


async def send_half(channel: ReliableChannel) -> str:
    request_id = await channel.send(PAYLOAD)
    await asyncio.sleep(5)
    return request_id


def of_request(events: list[ChannelEvent], request_id: str) -> list[ChannelEvent]:
    return [event for event in events if getattr(event, "request_id", None) == request_id]


def test_a_cancelled_message_stays_cancelled_after_a_crash() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice", HALVES, on_disk=True)
        request_id = await send_half(alice)
        assert await alice.cancel(request_id)
        await world.crash("alice")
        alice = await world.join("alice", on_disk=True)
        assert alice.pending() == ()
        await asyncio.sleep(600)

    assert run_world(scenario, commit_ms=400).messages("bob") == []


def test_a_callback_that_takes_its_time_is_told_nothing_more_once_cancel_has_returned() -> None:
    told: list[Any] = []
    further: list[Any] = []

    async def take_time(event: ChunkSentEvent) -> None:
        told.append(event)
        await asyncio.sleep(1)

    async def scenario(world: World) -> None:
        alice = await world.join("alice", HALVES)
        await world.join("bob")
        alice.on(ChunkSentEvent, take_time)
        alice.on(ChunkSentEvent, further.append)
        reader = alice.events()
        request_id = await alice.send(PAYLOAD)
        await asyncio.sleep(0.5)
        assert await alice.cancel(request_id)
        before = len(of_request(world.events["alice"], request_id)), len(told), len(further)
        await asyncio.sleep(20)
        assert (len(of_request(world.events["alice"], request_id)), len(told), len(further)) == before
        assert before[1:] == (1, 0)
        read: list[ChannelEvent] = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                async for event in reader:
                    read.append(event)
        assert of_request(read, request_id) == []

    run_world(scenario)


@pytest.mark.parametrize("callback_ms", [0, 30])
def test_no_event_follows_a_cancellation_whenever_it_comes(callback_ms: int) -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        for step in range(20):
            alice = await world.join(f"alice {step}", HALVES, on_disk=True)
            alice.on(ChunkSentEvent, lambda event: asyncio.sleep(callback_ms / 1_000))
            request_id = await alice.send(PAYLOAD)
            await asyncio.sleep(step * 0.01)
            assert await alice.cancel(request_id)
            before = len(world.events[f"alice {step}"])
            await asyncio.sleep(5)
            assert of_request(world.events[f"alice {step}"][before:], request_id) == []

    run_world(scenario, commit_ms=50)


@pytest.mark.parametrize("heals", [True, False])
def test_a_cancellation_that_cannot_be_stored_holds_for_as_long_as_the_process_lives(heals: bool) -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice", HALVES, on_disk=True)
        request_id = await send_half(alice)
        disk = world.disks["alice"]
        disk.fails_with = PersistenceError("disk full")
        with pytest.raises(PersistenceError, match="disk full"):
            await alice.cancel(request_id)
        before = len(world.events["alice"])
        assert alice.pending() == ()
        with pytest.raises(NodeError, match="cancelled"):
            await alice.delivered(request_id)
        if heals:
            disk.fails_with = None
        await asyncio.sleep(7_200)
        assert of_request(world.events["alice"][before:], request_id) == []
        assert world.messages("bob") == []
        await world.crash("alice")
        disk.fails_with = None
        alice = await world.join("alice", on_disk=True)
        assert [entry.request_id for entry in alice.pending()] == ([] if heals else [request_id])
        await asyncio.sleep(600)

    assert run_world(scenario, limit_ms=36_000_000).messages("bob") == ([] if heals else [PAYLOAD])


def test_cancel_ends_with_the_channel() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", HALVES, on_disk=True)
        request_id = await send_half(alice)
        cancelling = asyncio.create_task(alice.cancel(request_id))
        await asyncio.sleep(0)
        await world.close()
        assert await cancelling
        with pytest.raises(ChannelClosedError):
            await alice.cancel(request_id)

    run_world(scenario, commit_ms=400)


def test_a_delivered_message_is_not_cancelled_though_parity_of_it_waits_for_the_next_epoch() -> None:
    config = replace(HALVES, segmentation=replace(HALVES.segmentation, enable_reed_solomon=True, parity_rate=0.5))

    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice", config)
        request_id = await alice.send(bytes(3_500))
        assert await alice.delivered(request_id) == {"bob"}
        assert not await alice.cancel(request_id)
        assert await alice.delivered(request_id) == {"bob"}

    run_world(scenario)


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_message_that_left_is_not_sent_again_nor_given_to_who_asks_and_the_answer_says_so(on_disk: bool) -> None:
    config = replace(ChannelConfig.logos(), auto_start=True).without_store(2)

    async def scenario(world: World) -> None:
        world.network.store_online = False
        alice = await world.join("alice", config, on_disk=on_disk)
        await world.join("bob", config)
        # The only transmission is lost on its way.
        world.lose("alice", "bob", {0})
        request_id = await alice.send(b"never mind")
        await asyncio.sleep(1)
        left = world.sent_by("alice")
        cancelled = await alice.cancel(request_id)
        assert cancelled
        assert (cancelled.stopped, cancelled.segments_withdrawn, cancelled.segments_sent) == (True, 0, 1)
        assert cancelled.delivered_to == frozenset()
        assert alice.pending() == ()
        if on_disk:
            await world.crash("alice")
            alice = await world.join("alice", config, on_disk=True)
        world.nodes["bob"].conditions = None
        await alice.send(b"what follows")
        await asyncio.sleep(60)
        sizes = [record for record in world.network.trace if record.sender == "alice"]
        assert len(sizes) > left
        assert not await alice.cancel(request_id)

    world = run_world(scenario)
    # What follows does not name it: bob asks for nothing that he cannot have, and waits for nothing.
    assert world.messages("bob") == [b"what follows"]


def test_what_others_have_is_told_and_a_delivered_message_is_not_stopped() -> None:
    config = replace(ChannelConfig.logos(), delivered_when={"bob", "carol"})

    async def scenario(world: World) -> None:
        world.network.store_online = False
        await world.join("bob")
        alice = await world.join("alice", config)
        request_id = await alice.send(b"for both")
        await asyncio.sleep(20)
        cancelled = await alice.cancel(request_id)
        assert cancelled.stopped
        assert cancelled.delivered_to == {"bob"}
        sent = world.sent_by("alice")
        await asyncio.sleep(20)
        # Acknowledgements and syncs may leave, the message does not.
        assert world.sent_by("alice") - sent <= 1
        other = await world.join("dave", ChannelConfig.logos())
        request_id = await other.send(b"x")
        await other.delivered(request_id)
        refused = await other.cancel(request_id)
        assert not refused
        assert refused.segments_sent == 1

    run_world(scenario)


@pytest.mark.parametrize("rule", ["send", "content-sha256"])
@pytest.mark.parametrize("cancelled_ms", range(0, 60, 5))
def test_nothing_leaves_of_a_send_that_is_cancelled_while_it_is_being_stored(rule: Any, cancelled_ms: int) -> None:
    config = ChannelConfig.logos(sds=SdsConfig(message_id=rule))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config, on_disk=True)
        await world.join("bob", config)
        await alice.send(b"before")
        await asyncio.sleep(5)
        left = world.sent_by("alice")
        sending = asyncio.create_task(alice.send(b"never mind"))
        await asyncio.sleep(cancelled_ms / 1000)
        sending.cancel()
        try:
            await sending
        except asyncio.CancelledError:
            await asyncio.sleep(5)
            assert world.sent_by("alice") == left
            assert alice.pending() == ()
            assert world.messages("bob") == [b"before"]
        else:
            assert cancelled_ms >= 30
        # One that is sent again arrives once.
        await alice.delivered(await alice.send(b"later"))

    heard = run_world(scenario, commit_ms=30).messages("bob")
    assert heard.count(b"later") == 1


@pytest.mark.parametrize("cancelled", range(3))
@pytest.mark.parametrize("cancelled_ms", [0, 1, 2, 4])
def test_what_is_sent_beside_a_send_that_is_cancelled_does_not_wait_for_it(
    tmp_path: Path, cancelled: int, cancelled_ms: int
) -> None:
    config = ChannelConfig.logos(sds=SdsConfig(persistence=SqlitePersistence(tmp_path / "alice.sqlite")))

    async def scenario(world: World) -> None:
        # Nothing but her sends is stored, so all three are prepared beside each other.
        alice = await world.join("alice", config, listen=False)
        await world.join("bob")
        await alice.delivered(await alice.send(b"before"))
        sending = [asyncio.create_task(alice.send(b"%d" % number)) for number in range(3)]
        await asyncio.sleep(cancelled_ms / 1000)
        sending[cancelled].cancel()
        results = await asyncio.gather(*sending, return_exceptions=True)
        assert isinstance(results.pop(cancelled), asyncio.CancelledError)
        for request_id in results:
            assert isinstance(request_id, str)
            await alice.delivered(request_id)
        # Less than it takes to give up what is missing.
        await asyncio.sleep(5)
        sent = [b"%d" % number for number in range(3) if number != cancelled]
        assert world.messages("bob") == [b"before", *sent]

    run_world(scenario, commit_ms=5)


class SlowCipher:
    """Takes a tenth of a second for a message, and counts them."""

    overhead_bytes = 0

    def __init__(self) -> None:
        self.encrypted = 0

    async def encrypt(self, content: bytes) -> bytes:
        await asyncio.sleep(0.1)
        self.encrypted += 1
        return content

    def decrypt(self, payload: bytes) -> bytes:
        return payload


def test_segments_that_wait_for_the_cipher_have_not_left_and_are_not_encrypted_any_more() -> None:
    config = ChannelConfig.logos(segmentation=SegmentationConfig(segment_size_bytes=1_024))

    async def scenario(world: World) -> None:
        cipher = SlowCipher()
        alice = await world.join("alice", config, encryption=cipher)
        await world.join("bob", config)
        request_id = await alice.send(bytes(10_000))
        await asyncio.sleep(0.25)
        left = world.sent_by("alice")
        cancelled = await alice.cancel(request_id)
        assert left == cancelled.segments_sent == 2
        assert cancelled.segments_withdrawn >= 8
        await asyncio.sleep(10)
        # The one that was being encrypted, and syncs.
        assert cipher.encrypted <= left + 3
        assert world.messages("bob") == []

    run_world(scenario)
