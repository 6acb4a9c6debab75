"""What a channel on a disk keeps when its process dies: sends, outcomes, partial messages, deliveries, rate count."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world
from stored_kinds import DELIVERY, HANDOVER, PAYLOAD

from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel, creation
from shardwire.channel.sending import request_ids
from shardwire.channel.storing.records import IdentityRecord
from shardwire.config import ChannelConfig, RateLimitConfig, Redelivery, Repair, SdsConfig, SegmentationConfig
from shardwire.errors import ConfigError, PayloadTooLargeError, PersistenceError
from shardwire.events import (
    ChunkErrorEvent,
    MessageDeliveredEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    SenderIdConflictEvent,
)
from shardwire.node import MemoryNetwork, NetworkConditions, run_virtual, running_clock
from shardwire.persistence import MemoryPersistence, SqlitePersistence


def test_a_new_life_without_state_meets_no_twin_in_the_store() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        for life in range(3):
            alice = await world.join("alice", node=f"node-{life}")
            assert await alice.delivered(await alice.send(b"%d" % life)) == {"bob"}
            await asyncio.sleep(100)
            await close_channel(alice)
            await asyncio.sleep(5)

    world = run_world(scenario)
    assert world.messages("bob") == [b"0", b"1", b"2"]
    assert world.of("alice", SenderIdConflictEvent) == []


def test_a_seed_of_an_earlier_life_gives_new_messages_ids_of_their_own(tmp_path: Path) -> None:
    """Under an id of that life receivers would take them for its messages, acknowledge them and hand over nothing."""
    received: list[bytes] = []

    async def scenario() -> None:
        network = MemoryNetwork(seed=7)
        persistence = SqlitePersistence(tmp_path / "alice.sqlite")
        config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence))
        async with network.create_node("bob") as node:
            bob = await create_reliable_channel(node, CHANNEL, TOPIC, "bob", rng=random.Random(1))
            bob.on_message_received(lambda event: received.append(event.message))
            for life in range(3):
                async with network.create_node("alice") as own:
                    alice = await create_reliable_channel(own, CHANNEL, TOPIC, "alice", config=config, rng=Seeded(2))
                    for number in range(3):
                        assert await alice.delivered(await alice.send(b"%d/%d" % (life, number))) == {"bob"}
                    await close_channel(alice)
            await close_channel(bob)

    run_virtual(scenario())
    assert received == [b"%d/%d" % (life, number) for life in range(3) for number in range(3)]


class Seeded(random.Random):
    """Draws the same ids in each life, whatever else is drawn between."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._ids = random.Random(seed)

    def getrandbits(self, k: int, /) -> int:
        return self._ids.getrandbits(k) if k == 128 else super().getrandbits(k)


def test_a_source_that_draws_one_id_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_ids, "IDS_DRAWN_MAX", 100)

    class Stuck(random.Random):
        def getrandbits(self, k: int, /) -> int:
            return 7

    async def scenario() -> None:
        async with MemoryNetwork().create_node("alice") as node:
            alice = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", rng=Stuck())
            await alice.send(b"first")
            with pytest.raises(ConfigError, match="rng draws ids of earlier messages alone: give it a seed of its own"):
                await alice.send(b"second")
            await close_channel(alice)

    run_virtual(scenario())


def test_a_returned_send_survives_a_crash_before_it_left() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", on_disk=True)
        world.nodes["alice"].go_offline()
        await asyncio.sleep(1)
        request_ids = [await alice.send(b"durable %d" % number) for number in range(6)]
        await world.crash("alice")
        await world.join("bob")
        alice = await world.join("alice", on_disk=True)
        assert [entry.request_id for entry in alice.pending()] == request_ids
        for request_id in request_ids:
            assert await alice.delivered(request_id) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"durable %d" % number for number in range(6)]


def test_delivered_comes_after_a_restart_under_the_same_id() -> None:
    request_ids: list[str] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", on_disk=True)
        await world.node("bob")
        request_ids.append(await alice.send(b"x"))
        await asyncio.sleep(1)
        assert len(world.of("alice", MessageSentEvent)) == 1
        await world.crash("alice")
        alice = await world.join("alice", on_disk=True)
        await world.join("bob")
        assert await alice.delivered(request_ids[0]) == {"bob"}
        await asyncio.sleep(1)
        await world.crash("alice")
        alice = await world.join("alice", on_disk=True)
        assert await alice.delivered(request_ids[0], timeout_ms=1) == {"bob"}
        await asyncio.sleep(1)

    world = run_world(scenario)
    assert [event.request_id for event in world.of("alice", MessageDeliveredEvent)] == request_ids
    assert [event.request_id for event in world.of("alice", MessageSentEvent)] == request_ids
    assert world.messages("bob") == [b"x"]


def test_an_outcome_nobody_was_told_is_told_after_the_restart() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", on_disk=True, listen=False)
        told = asyncio.Event()

        async def never_returns(event: object) -> None:
            told.set()
            await asyncio.Event().wait()

        alice.on_message_delivered(never_returns)
        await world.join("bob")
        await alice.send(b"x")
        await told.wait()
        await asyncio.sleep(1)
        await world.crash("alice")
        await world.join("alice", on_disk=True)
        await asyncio.sleep(1)

    world = run_world(scenario)
    assert len(world.of("alice", MessageDeliveredEvent)) == 1
    assert world.of("alice", MessageSentEvent) == []


async def never_returns(event: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("steps", range(4))
def test_what_nobody_was_told_comes_after_the_restart_before_anything_new(steps: int) -> None:
    async def scenario(world: World) -> None:
        await world.node("bob")
        alice = await world.join("alice", on_disk=True, listen=False)
        alice.on_message_sent(never_returns)
        request_id = await alice.send(b"x")
        await asyncio.sleep(1)
        await world.crash("alice")
        alice = await world.join("alice", on_disk=True, listen=False)
        with pytest.raises(PayloadTooLargeError):
            await alice.send_ephemeral(bytes(200_000))
        # The channel is about to announce that.
        for _ in range(steps):
            await asyncio.sleep(0)
        world.listen("alice", alice)
        await asyncio.sleep(1)
        told = [type(event) for event in world.events["alice"]]
        # What was announced before anybody listened is gone, but for what the earlier life was to tell.
        assert told == [MessageSentEvent, ChunkErrorEvent] or (steps and told == [MessageSentEvent])
        assert world.of("alice", MessageSentEvent)[0].request_id == request_id

    run_world(scenario)


@pytest.mark.parametrize("callback_ms", [10, 300, 900])
def test_a_close_leaves_no_outcome_but_the_one_that_is_being_told_to_be_told_again(callback_ms: int) -> None:
    told: list[str] = []

    async def take_time(event: MessageSentEvent) -> None:
        told.append(event.request_id)
        await asyncio.sleep(callback_ms / 1_000)

    async def scenario(world: World) -> None:
        await world.node("bob")
        request_ids = []
        for _ in range(3):
            alice = await world.join("alice", on_disk=True, listen=False)
            alice.on_message_sent(take_time)
            request_ids += [await alice.send(b"%d" % number) for number in range(4)]
            await asyncio.sleep(callback_ms / 1_000)
            await close_channel(alice)
        alice = await world.join("alice", on_disk=True, listen=False)
        alice.on_message_sent(take_time)
        await asyncio.sleep(60)
        assert set(told) == set(request_ids)
        assert len(told) <= len(request_ids) + 3

    run_world(scenario)


@pytest.mark.parametrize(
    ("redelivery", "expected"),
    [
        ("at-least-once", [(b"1", True), (b"2", False)]),
        ("at-most-once", [(b"2", False)]),
    ],
)
def test_a_crash_during_a_hand_over(redelivery: Redelivery, expected: list[tuple[bytes, bool]]) -> None:
    handed_over: list[bytes] = []

    async def scenario(world: World) -> None:
        config = ChannelConfig.logos(redelivery=redelivery)
        bob = await world.join("bob", config, on_disk=True, listen=False)

        async def slow(event: MessageReceivedEvent) -> None:
            handed_over.append(event.message)
            if event.message == b"1":
                await asyncio.Event().wait()

        bob.on_message_received(slow)
        alice = await world.join("alice")
        for number in range(3):
            await alice.send(b"%d" % number)
        await asyncio.sleep(10)
        await world.crash("bob")
        await world.join("bob", config, on_disk=True)
        await asyncio.sleep(10)
        assert world.disks["bob"].of_kind(DELIVERY) == []
        assert world.disks["bob"].of_kind(PAYLOAD) == []
        assert world.disks["bob"].of_kind(HANDOVER) == []

    world = run_world(scenario)
    assert handed_over == [b"0", b"1"]
    assert [(event.message, event.redelivered) for event in world.received["bob"]] == expected


async def join_where_many_wait(world: World) -> ReliableChannel:
    """Bob's channel, on a disk, with 200 messages to hand over once somebody listens."""
    bob = await world.join("bob", on_disk=True, listen=False)
    alice = await world.join("alice")
    for number in range(200):
        await alice.send(b"%d" % number)
    await asyncio.sleep(1)
    return bob


@pytest.mark.parametrize("ends", ["in a crash", "as it should"])
def test_a_life_that_ends_while_many_wait_repeats_what_it_had_begun(ends: str) -> None:
    """A crash repeats some, all of them flagged and before any other; who closes gets the one in progress again."""
    handed_over: list[int] = []

    async def scenario(world: World) -> None:
        bob = await join_where_many_wait(world)

        async def take(event: MessageReceivedEvent) -> None:
            handed_over.append(int(event.message))
            if event.message == b"60":
                # Time for what is done to become durable.
                await asyncio.sleep(1)
                await asyncio.Event().wait()

        bob.on_message_received(take)
        await asyncio.sleep(10)
        if ends == "in a crash":
            await world.crash("bob")
        else:
            await close_channel(world.channels.pop("bob"))
            await world.nodes.pop("bob").stop()
        await world.join("bob", on_disk=True)
        await asyncio.sleep(10)

    world = run_world(scenario)
    assert handed_over == list(range(61))
    received = [(int(event.message), event.redelivered) for event in world.received["bob"]]
    flagged = [number for number, redelivered in received if redelivered]
    assert received == [(number, number in flagged) for number in range(60, 200)]
    assert flagged == list(range(60, 60 + len(flagged)))
    assert (len(flagged) > 1) == (ends == "in a crash")
    assert world.disks["bob"].of_kind(HANDOVER) == []


def test_what_is_not_stored_as_done_comes_again_flagged() -> None:
    async def scenario(world: World) -> None:
        bob = await join_where_many_wait(world)

        def take(event: MessageReceivedEvent) -> None:
            handed_over.append(int(event.message))
            if len(handed_over) == 60:
                world.cut_power("bob")

        bob.on_message_received(take)
        await asyncio.sleep(1)
        await world.crash("bob")
        await world.join("bob", on_disk=True)
        await asyncio.sleep(10)

    handed_over: list[int] = []
    world = run_world(scenario)
    received = [(int(event.message), event.redelivered) for event in world.received["bob"]]
    first_again = received[0][0]
    assert first_again < 59
    assert [number for number, _ in received] == list(range(first_again, 200))
    assert all(redelivered for number, redelivered in received if number in handed_over)


def test_the_same_bytes_arrive_each_time_also_across_a_restart() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", on_disk=True)
        await world.join("alice")
        for _ in range(3):
            await world.channels["alice"].delivered(await world.channels["alice"].send(b"same"))
        await asyncio.sleep(1)
        await world.crash("bob")
        await world.join("bob", on_disk=True)
        for _ in range(3):
            await world.channels["alice"].delivered(await world.channels["alice"].send(b"same"))
        await asyncio.sleep(1)

    assert run_world(scenario).messages("bob") == [b"same"] * 6


# Longer than a partial message is kept for without anything new.
@pytest.mark.parametrize(("down_s", "back_s"), [(0, 60), (600, 300)])
@pytest.mark.parametrize("repair", ["arq", "parity"])
def test_a_partial_message_survives_and_only_the_rest_is_sent(repair: Repair, down_s: int, back_s: int) -> None:
    """What was lost goes again, or as much parity as was lost, which is as good."""
    config = ChannelConfig.logos(repair=repair)
    payload = random.Random(5).randbytes(1_000_000)

    async def scenario(world: World) -> None:
        world.network.store_online = False
        alice = await world.join("alice", config)
        await world.join("bob", config, on_disk=True)
        world.lose("alice", "bob", set(range(5, 10)))
        await alice.send(payload)
        await asyncio.sleep(0.2)
        assert world.messages("bob") == []
        await world.crash("bob")
        world.nodes["alice"].send_fault = None
        await asyncio.sleep(down_s)
        bob = await world.join("bob", config, on_disk=True)
        received: list[int] = []
        bob.observe(lambda o: received.append(o.ordinal) if o.stage == "received" else None)
        await asyncio.sleep(back_s)
        if repair == "arq":
            assert sorted(received) == [5, 6, 7, 8, 9]
        else:
            assert len(received) == len(set(received)) == 5
            assert min(received) >= 10

    assert run_world(scenario).messages("bob") == [payload]


def test_the_rate_count_survives_so_that_no_epoch_carries_more() -> None:
    limit = RateLimitConfig(enabled=True, epoch_size_ms=60_000, messages_per_epoch=10, counts="segment")
    config = ChannelConfig.logos(rate_limit=limit)

    async def scenario(world: World) -> None:
        await world.node("bob")
        for _ in range(5):
            alice = await world.join("alice", config, on_disk=True)
            for number in range(4):
                await alice.send(b"%d" % number)
            await asyncio.sleep(1)
            await world.crash("alice")
        status = (await world.join("alice", config, on_disk=True)).rate_limit_status()
        assert (status.used, status.total) == (9, 10)
        await asyncio.sleep(200)

    world = run_world(scenario)
    left: dict[int, int] = {}
    for record in world.network.trace:
        left[record.time_ns // 60_000_000_000] = left.get(record.time_ns // 60_000_000_000, 0) + 1
    assert max(left.values()) <= 10
    assert sum(left.values()) > 20


@pytest.mark.parametrize("is_told", [True, False])
def test_state_of_another_wire_is_refused_where_it_says_its_wire(
    is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    persistence = MemoryPersistence()
    if not is_told:
        # As earlier releases wrote it.
        monkeypatch.setattr(creation, "IdentityRecord", lambda sender_id, _: IdentityRecord(sender_id))

    async def scenario(world: World) -> None:
        spec = ChannelConfig.logos(sds=SdsConfig(persistence=persistence))
        await close_channel(await world.join("alice", spec))
        nim = ChannelConfig.logos(sds=SdsConfig(persistence=persistence, wire_format="nim"))
        if is_told:
            with pytest.raises(ConfigError, match=r"wire_format is 'nim': .* are in 'spec'.*another persistence"):
                await world.join("alice", nim)
        await world.join("alice", spec if is_told else nim)

    run_world(scenario)


def test_state_of_another_sender_is_refused() -> None:
    async def scenario(world: World) -> None:
        await world.join("alice", on_disk=True)
        await world.crash("alice")
        config = ChannelConfig.logos(sds=SdsConfig(persistence=world.disks["alice"].mount()))
        with pytest.raises(ConfigError, match=r"sender_id is 'bob'.*belongs to 'alice'"):
            await create_reliable_channel(await world.node("bob"), CHANNEL, TOPIC, "bob", None, config)

    run_world(scenario)


def test_a_full_disk_refuses_sends_and_nothing_of_them_leaves() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", on_disk=True)
        await world.join("bob")
        world.disks["alice"].fails_with = PersistenceError("disk full")
        with pytest.raises(PersistenceError, match="disk full"):
            await alice.send(b"lost")
        world.disks["alice"].fails_with = None
        request_id = await alice.send(b"kept")
        assert await alice.delivered(request_id) == {"bob"}
        await asyncio.sleep(60)

    assert run_world(scenario).messages("bob") == [b"kept"]


def test_nothing_is_acknowledged_or_delivered_while_the_disk_is_full() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob", on_disk=True)
        world.disks["bob"].fails_with = PersistenceError("disk full")
        request_id = await alice.send(b"x")
        with pytest.raises(TimeoutError):
            await alice.delivered(request_id, timeout_ms=20_000)
        assert world.messages("bob") == []
        assert world.sent_by("bob") == 0
        world.disks["bob"].fails_with = None
        assert await alice.delivered(request_id, timeout_ms=120_000) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"x"]


def test_damaged_records_are_a_persistence_error_and_stay_as_they_are() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", on_disk=True)
        await alice.send(b"x")
        await world.crash("alice")
        records = world.disks["alice"].records
        name = next(name for name in records if name[0] == "channel.send")
        for damage in (b"", b"{}", b'{"version":99}', b'{"version":1,"request_ids":[]}', b"\xff"):
            records[name] = damage
            with pytest.raises(PersistenceError):
                await world.join("alice", on_disk=True)
            assert records[name] == damage

    run_world(scenario)


def test_sqlite_keeps_a_conversation_over_restarts(tmp_path: Path) -> None:
    """In real time, with the writer thread and files."""

    async def main() -> list[bytes]:
        network = MemoryNetwork(NetworkConditions(loss=0.1, delay_ms=(0, 2)), seed=3)
        received: list[bytes] = []
        handed = asyncio.Semaphore(0)

        def take(event: MessageReceivedEvent) -> None:
            received.append(event.message)
            handed.release()

        config = ChannelConfig.logos(segmentation=SegmentationConfig(enable_reed_solomon=True))
        for life in range(3):
            channels = []
            persistences = []
            nodes = []
            for name in ("alice", "bob"):
                node = network.create_node(name)
                await node.start()
                persistence = SqlitePersistence(tmp_path / f"{name}.db")
                sds = replace(config.sds, persistence=persistence, acknowledgement_timeout_ms=200)
                channels.append(
                    await create_reliable_channel(
                        node, CHANNEL, TOPIC, name, None, replace(config, sds=sds, delivered_when="any")
                    )
                )
                persistences.append(persistence)
                nodes.append(node)
            channels[1].on_message_received(take)
            for number in range(5):
                request_id = await channels[0].send(b"%d/%d" % (life, number))
            await channels[0].send(bytes(300_000))
            await channels[0].delivered(request_id, timeout_ms=20_000)
            for _ in range(6):
                # What waits for its callback when a channel closes is for the next life, and the last has none.
                await handed.acquire()
            for channel in channels:
                await close_channel(channel, drain_timeout_ms=20_000)
            for persistence in persistences:
                persistence.close()
            for node in nodes:
                await node.stop()
        return received

    received = asyncio.run(asyncio.wait_for(main(), 60))
    small = [message for message in received if len(message) < 10]
    assert sorted(small) == sorted(b"%d/%d" % (life, number) for life in range(3) for number in range(5))
    assert received.count(bytes(300_000)) == 3


def test_what_falls_due_while_a_commit_is_written_leaves_after_it() -> None:
    commit_ms = 1_000
    waits_ms: list[int] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        # Nobody listens: no hand-over gives the channel something else to do when its commit is done.
        await world.join("bob", on_disk=True, listen=False)
        clock = running_clock()
        for _ in range(10):
            await asyncio.sleep(60)
            since_ms = clock.monotonic_ms()
            await alice.delivered(await alice.send(b"x"))
            waits_ms.append(clock.monotonic_ms() - since_ms)

    run_world(scenario, commit_ms=commit_ms)
    # Received, and said once both commits are written: the acknowledgement is mostly due within the first of them.
    window_ms = ChannelConfig.logos().sds.acknowledgement_timeout_ms // 4
    assert max(waits_ms) <= max(commit_ms, window_ms) + commit_ms + 10
