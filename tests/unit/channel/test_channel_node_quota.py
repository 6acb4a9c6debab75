"""The quota of a node: shared and fair between its channels, never exceeded, whatever crashes, steps or joins."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from channel_world import World, run_world
from wrapped_node import WrappedNode

from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.channel.limits import count_store
from shardwire.channel.limits.count_store import CountStore
from shardwire.channel.limits.node_limits import COUNT_NAME_PREFIX
from shardwire.channel.sending.requests import DISPATCHES_MAX
from shardwire.channel.storing.records import NODE_RATE, NodeRateRecord, RateRecord
from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig, SegmentationConfig, SyncConfig
from shardwire.encryption.protocol import Encryption
from shardwire.errors import ConfigError, PersistenceError
from shardwire.events import EphemeralDroppedEvent, MessageSendErrorEvent, RateLimitEvent
from shardwire.node import (
    MemoryNode,
    MessageEnvelope,
    MessagePropagated,
    MessageSent,
    NodeConfig,
    NodeEvent,
    running_clock,
)
from shardwire.node.clock import Clock
from shardwire.node.virtual_time import START_EPOCH_MS
from shardwire.persistence import MemoryPersistence, SqlitePersistence
from shardwire.persistence.protocol import Changes, ChannelState, Persistence, RecordName

EPOCH_MS = 60_000
QUOTA = 20
# Of them 2 are kept for acknowledgements.
OPEN_QUOTA = 18
LIMIT = RateLimitConfig(enabled=True, epoch_size_ms=EPOCH_MS, messages_per_epoch=QUOTA, counts="segment")
NAMES = ("red", "green", "blue")
SEED = 7


class SharedDisk:
    """What several channels keep; each mount is a persistence until its power is cut."""

    def __init__(self) -> None:
        self.channels: dict[str, dict[RecordName, bytes]] = {}
        self.fails_with: PersistenceError | None = None
        self.commits = 0
        # The power fails with this commit, which is or is not stored.
        self.power_fails_at: int | None = None
        self.last_is_stored = False
        self._mounts: list[SharedMount] = []

    def mount(self) -> SharedMount:
        self._mounts.append(SharedMount(self))
        return self._mounts[-1]

    def cut_power(self) -> None:
        for mount in self._mounts:
            mount.is_on = False

    def counted(self, node: str) -> NodeRateRecord | None:
        value = self.channels.get(COUNT_NAME_PREFIX + node, {}).get((NODE_RATE, b""))
        return None if value is None else NodeRateRecord.decode(value)


class SharedMount:
    def __init__(self, disk: SharedDisk) -> None:
        self._disk = disk
        self.is_on = True

    def load(self, channel_id: str) -> ChannelState | None:
        self._require_power()
        records = self._disk.channels.get(channel_id)
        return None if records is None else ChannelState(dict(records))

    def commit(self, channel_id: str, changes: Changes) -> None:
        self._require_power()
        disk = self._disk
        if disk.fails_with is not None:
            raise disk.fails_with
        disk.commits += 1
        fails = disk.commits == disk.power_fails_at
        if fails:
            disk.cut_power()
        if not fails or disk.last_is_stored:
            records = disk.channels.setdefault(channel_id, {})
            for name, value in changes.records.items():
                if value is None:
                    records.pop(name, None)
                else:
                    records[name] = value
        if fails:
            raise PersistenceError("the power is cut")

    def close(self) -> None:
        """Nothing to release."""

    def _require_power(self) -> None:
        if not self.is_on:
            raise PersistenceError("the power is cut")


class SteppedClock:
    """The running clock, with a Unix time that can be set."""

    def __init__(self) -> None:
        self.offset_ms = 0

    def monotonic_ms(self) -> int:
        return running_clock().monotonic_ms()

    def epoch_ms(self) -> int:
        return running_clock().epoch_ms() + self.offset_ms

    def epoch_ns(self) -> int:
        return running_clock().epoch_ns() + self.offset_ms * 1_000_000


class QuotaWorld:
    """Channels of one node with a quota, each with a peer on a node without."""

    def __init__(self, world: World, limit: RateLimitConfig = LIMIT) -> None:
        self.world = world
        self.limit = limit
        self.clock: Clock | None = None
        self.channels: dict[str, ReliableChannel] = {}
        self.node: MemoryNode | None = None
        self._lives = count()

    async def start_node(self) -> MemoryNode:
        self.node = self.world.network.create_node("shared", NodeConfig(rate_limit_config=self.limit), clock=self.clock)
        self.world.nodes["shared"] = self.node
        await self.node.start()
        return self.node

    async def join(
        self,
        name: str,
        persistence: Persistence | None = None,
        own: RateLimitConfig | None = None,
        encryption: Encryption | None = None,
        sync: SyncConfig | None = None,
    ) -> ReliableChannel:
        """A channel `name` of the shared node."""
        if self.node is None:
            await self.start_node()
        assert self.node is not None
        config = ChannelConfig.logos(
            segmentation=SegmentationConfig(segment_size_bytes=1_024, enable_reed_solomon=False),
            sds=SdsConfig(persistence=persistence),
            rate_limit=own or RateLimitConfig(),
            sync=sync or SyncConfig(),
        )
        channel = await create_reliable_channel(
            self.node,
            name,
            topic(name),
            "sender",
            encryption,
            config,
            clock=self.clock,
            rng=random.Random(f"{SEED} {name} {next(self._lives)}"),
        )
        self.channels[name] = channel
        self.world.channels[f"shared/{name}"] = channel
        self.world.listen(name, channel)
        return channel

    async def peer(self, name: str) -> ReliableChannel:
        """Receives what `name` sends, and acknowledges it."""
        node = await self.world.node("peers")
        rng = random.Random(f"{SEED} peer of {name}")
        channel = await create_reliable_channel(node, name, topic(name), "receiver", rng=rng)
        self.world.channels[f"peers/{name}"] = channel
        self.world.listen(f"peer of {name}", channel)
        return channel

    async def crash(self, *disks: SharedDisk) -> None:
        """The process of the shared node dies."""
        for disk in disks:
            disk.cut_power()
        assert self.node is not None
        await self.node.stop()
        await self.close()
        self.node = None

    async def close(self) -> None:
        for name in list(self.channels):
            await close_channel(self.world.channels.pop(f"shared/{name}"))
        self.channels.clear()

    def left(self) -> Counter[int]:
        """How many envelopes left the shared node, by epoch of their time stamps."""
        return Counter(
            record.timestamp_ns // 1_000_000 // EPOCH_MS
            for record in self.world.network.trace
            if record.sender == "shared"
        )

    def left_by_channel(self, epoch: int) -> Counter[str]:
        return Counter(
            record.content_topic.split("/")[3]
            for record in self.world.network.trace
            if record.sender == "shared" and record.timestamp_ns // 1_000_000 // EPOCH_MS == epoch
        )

    def messages(self, name: str) -> list[bytes]:
        return self.world.messages(f"peer of {name}")


def topic(name: str) -> str:
    return f"/shardwire/1/{name}/proto"


def this_epoch() -> int:
    return running_clock().epoch_ms() // EPOCH_MS


async def next_epoch(into_ms: int = 100) -> None:
    """Sleeps until so long after the beginning of the next epoch."""
    now_ms = running_clock().epoch_ms()
    await asyncio.sleep((EPOCH_MS - now_ms % EPOCH_MS + into_ms) / 1000)


async def send_all(channel: ReliableChannel, message_count: int) -> list[str]:
    return [await channel.send(b"%d" % number) for number in range(message_count)]


def test_three_channels_send_no_more_than_the_quota_of_their_node_and_share_it_evenly() -> None:
    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        for name in NAMES:
            await shared.peer(name)
            await shared.join(name)
        await next_epoch()
        for name in NAMES:
            await send_all(shared.channels[name], 30)
        began = this_epoch()
        await asyncio.sleep(12 * EPOCH_MS / 1000)
        left = shared.left()
        assert max(left.values()) <= QUOTA
        for epoch in range(began, began + 4):
            assert left[epoch] >= OPEN_QUOTA
            by_channel = shared.left_by_channel(epoch)
            assert max(by_channel.values()) - min(by_channel.values()) <= 3, by_channel
        for name in NAMES:
            assert shared.messages(name) == [b"%d" % number for number in range(30)]
            assert world.of(name, MessageSendErrorEvent) == []
            assert world.of(name, RateLimitEvent)

    run_world(scenario)


def test_who_asks_first_takes_no_more_than_his_share_at_once_and_the_rest_when_nobody_claims_it() -> None:
    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        for name in NAMES:
            await shared.peer(name)
            await shared.join(name)
        await next_epoch()
        for name in NAMES:
            await send_all(shared.channels[name], 1)
        await next_epoch()
        began = this_epoch()
        await send_all(shared.channels["red"], 40)
        await asyncio.sleep(1)
        # The others were active in the last epoch: a third is kept for each of them.
        assert shared.left_by_channel(began)["red"] in range(6, 8)
        await send_all(shared.channels["green"], 40)
        await asyncio.sleep(1)
        assert shared.left_by_channel(began)["green"] in range(5, 8)
        await asyncio.sleep(EPOCH_MS / 1000 - 3)
        # Blue claimed nothing: but for the last place the others have it all by the end of the epoch.
        assert shared.left()[began] >= OPEN_QUOTA - 1
        await next_epoch()
        await asyncio.sleep(1)
        # Blue is idle for an epoch by now: nothing is kept for it.
        by_channel = shared.left_by_channel(this_epoch())
        assert by_channel["red"] + by_channel["green"] >= OPEN_QUOTA - 1
        assert abs(by_channel["red"] - by_channel["green"]) <= 2

    run_world(scenario)


def test_a_channel_that_is_alone_has_the_whole_quota_at_once() -> None:
    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        await shared.join("red")
        await send_all(shared.channels["red"], 40)
        await asyncio.sleep(1)
        assert shared.left()[this_epoch()] in range(OPEN_QUOTA, QUOTA + 1)

    run_world(scenario)


def test_who_joins_later_finds_the_quota_of_the_epoch_spent() -> None:
    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        await shared.peer("green")
        await shared.join("red")
        await send_all(shared.channels["red"], 40)
        await asyncio.sleep(1)
        green = await shared.join("green")
        status = green.rate_limit_status()
        assert (status.enabled, status.used, status.total) == (True, shared.left()[this_epoch()], QUOTA)
        assert status.used >= OPEN_QUOTA
        await green.send(b"late")
        ephemeral = await green.send_ephemeral(b"now or never")
        await asyncio.sleep(30)
        assert shared.messages("green") == []
        assert [event.request_id for event in world.of("green", EphemeralDroppedEvent)] == [ephemeral]
        await next_epoch(2_000)
        assert shared.messages("green") == [b"late"]
        assert max(shared.left().values()) <= QUOTA

    run_world(scenario)


def test_a_channel_that_closes_and_comes_back_finds_what_it_spent_though_it_stored_nothing() -> None:
    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        red = await shared.join("red")
        await send_all(red, 40)
        await asyncio.sleep(1)
        await shared.close()
        red = await shared.join("red")
        assert red.rate_limit_status().used >= OPEN_QUOTA
        await send_all(red, 5)
        await asyncio.sleep(1)
        assert shared.left()[this_epoch()] <= QUOTA

    run_world(scenario)


@pytest.mark.parametrize("down_ms", [0, 5_000, EPOCH_MS])
def test_the_count_outlives_processes_that_die(down_ms: int) -> None:
    """Three channels keep their states in one place; the process dies every 7 s."""

    async def scenario(world: World) -> None:
        shared, disk = QuotaWorld(world), SharedDisk()
        for _ in range(30):
            for name in NAMES:
                await send_all(await shared.join(name, disk.mount()), 4)
            await asyncio.sleep(7)
            await shared.crash(disk)
            await asyncio.sleep(down_ms / 1000)
        assert max(shared.left().values()) <= QUOTA
        assert sum(shared.left().values()) >= OPEN_QUOTA * 2

    run_world(scenario)


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("commit", [*range(1, 16), 20, 30, 40])
def test_the_count_is_right_after_a_crash_in_any_commit(commit: int, is_stored: bool) -> None:
    async def scenario(world: World) -> None:
        shared, disk = QuotaWorld(world), SharedDisk()
        disk.power_fails_at, disk.last_is_stored = commit, is_stored
        for life in range(3):
            for name in NAMES:
                try:
                    await send_all(await shared.join(name, disk.mount()), 8)
                except PersistenceError:
                    assert life == 0
                    break
            await asyncio.sleep(2)
            await shared.crash(disk)
        assert max(shared.left().values()) <= QUOTA
        assert this_epoch() == START_EPOCH_MS // EPOCH_MS

    run_world(scenario)


def test_no_message_leaves_before_its_place_is_durable() -> None:
    behind: list[int] = []

    async def scenario(world: World) -> None:
        shared, disk = QuotaWorld(world), SharedDisk()
        node = await shared.start_node()

        def check(envelope: MessageEnvelope) -> None:
            counted = disk.counted("shared")
            assert counted is not None
            assert counted.is_counted_here
            epoch = this_epoch()
            used = counted.used if counted.epoch == epoch else 0
            behind.append(shared.left()[epoch] + 1 - used)

        node.send_fault = check
        for name in NAMES:
            await send_all(await shared.join(name, disk.mount()), 30)
        await asyncio.sleep(5 * EPOCH_MS / 1000)

    run_world(scenario, commit_ms=40)
    assert len(behind) >= 4 * OPEN_QUOTA
    assert max(behind) <= 0


def test_it_is_counted_in_one_place_only_and_moves_on_when_that_is_closed() -> None:
    async def scenario(world: World) -> None:
        shared, disks = QuotaWorld(world), {name: SharedDisk() for name in NAMES}
        for name in NAMES:
            await send_all(await shared.join(name, disks[name].mount()), 2)
        await asyncio.sleep(2)

        def places() -> list[str]:
            counts = {name: disks[name].counted("shared") for name in NAMES}
            return [name for name, counted in counts.items() if counted is not None and counted.is_counted_here]

        assert places() == ["red"]
        await close_channel(shared.channels.pop("red"))
        assert places() == ["green"]
        counted = disks["green"].counted("shared")
        assert counted is not None
        assert counted.used == shared.left()[this_epoch()]
        await shared.join("red", disks["red"].mount())
        assert places() == ["green"]

    run_world(scenario)


@pytest.mark.parametrize("first", NAMES)
def test_after_a_crash_who_does_not_know_the_count_waits_for_it_or_for_the_next_epoch(first: str) -> None:
    """Each channel keeps its state in a place of its own; only the first one that joined had the count."""

    async def scenario(world: World) -> None:
        shared, disks = QuotaWorld(world), {name: SharedDisk() for name in NAMES}
        for name in NAMES:
            await send_all(await shared.join(name, disks[name].mount()), 4)
        await asyncio.sleep(2)
        spent = shared.left()[this_epoch()]
        assert spent >= 12
        await shared.crash(*disks.values())
        one = await shared.join(first, disks[first].mount())
        await send_all(one, 20)
        await asyncio.sleep(2)
        if first == "red":
            assert shared.left()[this_epoch()] >= OPEN_QUOTA
        else:
            assert one.rate_limit_status().used == QUOTA
            assert shared.left()[this_epoch()] == spent
            await shared.join("red", disks["red"].mount())
            await asyncio.sleep(30)
            # Red knows it: what is left may be used.
            assert spent < shared.left()[this_epoch()] <= QUOTA
        await next_epoch(2_000)
        assert shared.left()[this_epoch()] >= OPEN_QUOTA // 2
        assert max(shared.left().values()) <= QUOTA

    run_world(scenario)


@pytest.mark.parametrize("is_given", [False, True])
def test_a_place_that_outlives_the_process_takes_the_count_over(is_given: bool) -> None:
    async def scenario(world: World) -> None:
        shared, disk = QuotaWorld(world), SharedDisk()
        await send_all(await shared.join("red", MemoryPersistence() if is_given else None), 10)
        await asyncio.sleep(1)
        await send_all(await shared.join("green", disk.mount()), 10)
        await asyncio.sleep(1)
        counted = disk.counted("shared")
        assert counted is not None
        assert counted.is_counted_here
        assert counted.used == shared.left()[this_epoch()] > 10

    run_world(scenario)


def test_a_place_that_lost_the_count_to_another_does_not_pass_for_the_one_that_has_it() -> None:
    async def scenario(world: World) -> None:
        shared, memory = QuotaWorld(world), MemoryPersistence()
        await shared.join("red", memory)
        await send_all(await shared.join("green", SharedDisk().mount()), 30)
        await asyncio.sleep(10)
        # Another node of the name, in the same process and epoch; of the states only the one in memory.
        await shared.crash()
        await send_all(await shared.join("red", memory), 30)
        await asyncio.sleep(5)
        assert shared.left()[this_epoch()] <= QUOTA

    run_world(scenario)


def test_so_many_places_that_were_left_are_remembered_and_others_pass_for_an_earlier_lifes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(count_store, "LEFT_MAX", 2)
    found: list[NodeRateRecord] = []

    async def live() -> list[int]:
        places = [MemoryPersistence() for _ in range(3)]
        store = CountStore("node")

        def count() -> RateRecord:
            return RateRecord(1, EPOCH_MS, 5)

        for place in places:
            await store.join(place, found.append, count)
            await store.leave(place, count)
        told = []
        for place in reversed(places):
            await store.join(place, found.append, count)
            told.append(len(found))
        return told

    assert asyncio.run(live()) == [0, 0, 1]


@pytest.mark.parametrize("others", [True, False])
def test_a_place_that_comes_back_in_one_life_of_the_process_is_known(others: bool) -> None:
    async def scenario(world: World) -> None:
        shared, disk = QuotaWorld(world), SharedDisk()
        if others:
            await send_all(await shared.join("green"), 1)
        await send_all(await shared.join("red", disk.mount()), 2)
        await asyncio.sleep(1)
        await close_channel(shared.channels.pop("red"))
        spent = shared.left()[this_epoch()]
        red = await shared.join("red", disk.mount())
        assert red.rate_limit_status().used == spent
        await send_all(red, 1)
        await asyncio.sleep(1)
        assert shared.left()[this_epoch()] > spent

    run_world(scenario)


@pytest.mark.parametrize("steps_ms", [(-90_000,), (-30_000,), (90_000,), (90_000, -90_000), (-90_000, 90_000), (1, -1)])
def test_a_clock_that_steps_reopens_no_epoch(steps_ms: tuple[int, ...]) -> None:
    async def scenario(world: World) -> None:
        shared, disk = QuotaWorld(world), SharedDisk()
        shared.clock = clock = SteppedClock()
        await next_epoch(0)
        for name in NAMES:
            await send_all(await shared.join(name, disk.mount()), 30)
        for step_ms in steps_ms:
            await asyncio.sleep(20)
            clock.offset_ms += step_ms
            await asyncio.sleep(5)
            await shared.crash(disk)
            for name in NAMES:
                await send_all(await shared.join(name, disk.mount()), 10)
        await asyncio.sleep(6 * EPOCH_MS / 1000)
        assert max(shared.left().values()) <= QUOTA
        assert len(shared.left()) >= 4

    run_world(scenario)


def test_a_clock_that_steps_while_a_message_waits_for_the_node_costs_no_epoch_a_message_too_many() -> None:
    """The node takes 3 s for each: the epoch ends, or the clock is set back, between the count and the sending."""

    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        shared.clock = clock = SteppedClock()
        node = SlowNode(await shared.start_node())
        shared.node = node  # type: ignore[assignment]
        for name in NAMES:
            await send_all(await shared.join(name), 30)
        for _ in range(6):
            await asyncio.sleep(17)
            clock.offset_ms -= 40_000
            await asyncio.sleep(40)
        assert max(shared.left().values()) <= QUOTA
        await shared.close()

    run_world(scenario)


def test_a_clock_that_was_set_back_is_said_and_what_comes_in_is_acknowledged() -> None:
    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        shared.clock = clock = SteppedClock()
        peer = await shared.peer("red")
        clock.offset_ms += 20 * EPOCH_MS
        red = await shared.join("red")
        await send_all(red, 3)
        await asyncio.sleep(5)
        assert world.of("red", RateLimitEvent) == []
        # It was ahead, and is set right: two minutes before the epoch that was counted.
        clock.offset_ms -= 20 * EPOCH_MS
        await red.send(b"later")
        request_id = await peer.send(b"from the peer")
        await peer.delivered(request_id, timeout_ms=EPOCH_MS)
        [event] = world.of("red", RateLimitEvent)
        assert event.used < event.total
        assert 0 < event.resets_at_ms - clock.epoch_ms() <= event.clock_behind_ms <= 20 * EPOCH_MS
        assert b"later" not in shared.messages("red")
        await asyncio.sleep(19 * EPOCH_MS / 1000 + 60)
        assert b"later" in shared.messages("red")
        assert len([event for event in world.of("red", RateLimitEvent) if event.clock_behind_ms]) == 1
        assert max(shared.left().values()) <= QUOTA

    run_world(scenario)


class SlowNode(WrappedNode):
    pause_s = 3.0

    async def send(self, envelope: MessageEnvelope) -> str:
        request_id = await super().send(envelope)
        await asyncio.sleep(self.pause_s)
        return request_id


def test_what_the_node_holds_when_the_epoch_ends_counts_in_the_next() -> None:
    """It takes messages at once and publishes one every 2 s."""

    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        await next_epoch(50_000)
        node = QueueingNode(await shared.start_node())
        shared.node = node  # type: ignore[assignment]
        publishing = asyncio.create_task(node.publish())
        for name in NAMES:
            await send_all(await shared.join(name), 30)
        await asyncio.sleep(3 * EPOCH_MS / 1000)
        assert max(shared.left().values()) <= QUOTA
        assert len(shared.left()) == 4
        publishing.cancel()
        await shared.close()

    run_world(scenario)


class QueueingNode(WrappedNode):
    def __init__(self, inner: MemoryNode) -> None:
        super().__init__(inner)
        self._queue: asyncio.Queue[tuple[str, MessageEnvelope]] = asyncio.Queue()
        self._numbers = count()
        self._ids: dict[str, str] = {}

    async def send(self, envelope: MessageEnvelope) -> str:
        request_id = f"queued-{next(self._numbers)}"
        self._queue.put_nowait((request_id, envelope))
        return request_id

    async def publish(self) -> None:
        while True:
            request_id, envelope = await self._queue.get()
            await asyncio.sleep(2)
            self._ids[await self._inner.send(envelope)] = request_id

    async def events(self) -> AsyncIterator[NodeEvent]:
        async for event in self._inner.events():
            if isinstance(event, MessagePropagated) and event.request_id in self._ids:
                yield MessagePropagated(self._ids[event.request_id], event.message_hash)
            elif not isinstance(event, MessagePropagated | MessageSent):
                yield event


class BrokenCipher:
    """Fails or never answers, `broken` times; then it changes nothing."""

    overhead_bytes_max = 0

    def __init__(self, how: str, broken: int) -> None:
        self._how = how
        self.broken = 0
        self.calls = 0
        self._upcoming = broken

    def break_down(self) -> None:
        self.broken = self._upcoming

    async def encrypt(self, content: bytes) -> bytes:
        self.calls += 1
        if self.broken:
            self.broken -= 1
            if self._how == "fails":
                raise ValueError("no key")
            await asyncio.Event().wait()
        return content

    async def decrypt(self, payload: bytes) -> bytes:
        return payload


def test_a_message_is_segmented_registered_encrypted_counted_and_dispatched_in_this_order() -> None:
    trace: list[str] = []

    class TracedMount(SharedMount):
        def commit(self, channel_id: str, changes: Changes) -> None:
            super().commit(channel_id, changes)
            if channel_id.startswith(COUNT_NAME_PREFIX):
                trace.append("counted")
            elif any(kind == "sds.outgoing" for kind, _ in changes.records):
                trace.append("registered")

    class TracedCipher(BrokenCipher):
        async def encrypt(self, content: bytes) -> bytes:
            trace.append("encrypted")
            return await super().encrypt(content)

    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        node = await shared.start_node()
        node.send_fault = lambda envelope: trace.append("dispatched")
        mount = TracedMount(SharedDisk())
        red = await shared.join("red", mount, encryption=TracedCipher("fails", 0))
        trace.clear()
        segments = 3
        await red.send(bytes(segments * 1_024))
        await asyncio.sleep(1)
        # All segments are registered at once, and what is encrypted by then is counted at once.
        order = [step for number, step in enumerate(trace) if step not in trace[:number]]
        assert order == ["registered", "encrypted", "counted", "dispatched"]
        assert Counter(trace)["encrypted"] == Counter(trace)["dispatched"] == segments
        for number, step in enumerate(trace):
            before = Counter(trace[:number])
            if step == "dispatched":
                assert before["dispatched"] < before["encrypted"]

    run_world(scenario)


@pytest.mark.parametrize("how", ["fails", "hangs"])
@pytest.mark.parametrize("whose", ["node", "channel"])
def test_a_cipher_that_fails_or_hangs_costs_no_quota(how: str, whose: str) -> None:
    async def scenario(world: World) -> None:
        shared = QuotaWorld(world, LIMIT if whose == "node" else replace(LIMIT, enabled=False))
        cipher = BrokenCipher(how, 5)
        own = LIMIT if whose == "channel" else None
        red = await shared.join("red", own=own, encryption=cipher, sync=SyncConfig(sync_min_interval_ms=0))
        await shared.peer("red")
        await asyncio.sleep(1)
        assert red.rate_limit_status().used == 0
        cipher.break_down()
        await send_all(red, 5)
        # A cipher gets a minute for each.
        await asyncio.sleep(5 * 61 if how == "hangs" else 5)
        assert cipher.broken == 0
        assert red.rate_limit_status().used == 0
        assert shared.left() == {}
        assert len(world.of("red", MessageSendErrorEvent)) == 5
        if whose == "node":
            green = await shared.join("green")
            await send_all(green, 4)
        request_id = await red.send(b"after")
        assert await red.delivered(request_id, timeout_ms=5_000) == {"receiver"}

    run_world(scenario)


def test_while_a_cipher_hangs_others_have_the_quota() -> None:
    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        cipher = BrokenCipher("hangs", 100)
        red = await shared.join("red", encryption=cipher)
        green = await shared.join("green")
        await next_epoch()
        cipher.break_down()
        await send_all(red, 30)
        await send_all(green, 30)
        await asyncio.sleep(EPOCH_MS / 1000 - 2)
        # The last place of red's share is kept for it to the end.
        assert shared.left_by_channel(this_epoch())["green"] >= OPEN_QUOTA - 1
        assert shared.left_by_channel(this_epoch())["red"] == 0

    run_world(scenario)


def test_acknowledgements_have_their_reserve() -> None:
    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        for name in ("red", "green"):
            await shared.join(name, sync=SyncConfig(sync_min_interval_ms=0))
        await shared.join("blue")
        peer = await shared.peer("blue")
        for name in ("red", "green"):
            await send_all(shared.channels[name], 40)
        # Until nothing is kept any more for blue, which said nothing in a whole epoch.
        for _ in range(3):
            await next_epoch(into_ms=50_000)
        assert OPEN_QUOTA <= shared.left()[this_epoch()] < QUOTA
        request_id = await peer.send(b"do you hear me")
        assert await peer.delivered(request_id, timeout_ms=5_000) == {"sender"}
        assert shared.left()[this_epoch()] <= QUOTA

    run_world(scenario)


def test_a_limit_of_a_channel_holds_beneath_that_of_its_node() -> None:
    own = replace(LIMIT, messages_per_epoch=5, ack_reserve=0.0)

    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        red = await shared.join("red", own=own)
        await shared.join("green")
        await next_epoch()
        await send_all(red, 40)
        await asyncio.sleep(1)
        status = red.rate_limit_status()
        assert (status.used, status.total) == (5, 5)
        for _ in range(4):
            await send_all(shared.channels["green"], 20)
            epoch = this_epoch()
            await next_epoch()
            assert shared.left_by_channel(epoch)["red"] <= 5
            assert shared.left()[epoch] <= QUOTA
        assert shared.left_by_channel(epoch)["green"] >= 10

    run_world(scenario)


def test_a_message_of_several_segments_counts_once_where_messages_count() -> None:
    limit = replace(LIMIT, counts="message", messages_per_epoch=4, ack_reserve=0.0)

    async def scenario(world: World) -> None:
        shared = QuotaWorld(world, limit)
        await shared.peer("red")
        red = await shared.join("red")
        for number in range(5):
            await red.send(bytes([number]) * 5 * 1_024)
        await asyncio.sleep(1)
        assert shared.messages("red") == [bytes([number]) * 5 * 1_024 for number in range(4)]
        assert red.rate_limit_status().used == 4
        await next_epoch(2_000)
        assert len(shared.messages("red")) == 5

    run_world(scenario)


@pytest.mark.parametrize("segments", [3, 240])
def test_nothing_of_a_message_leaves_before_its_first_segment_has_a_place(segments: int) -> None:
    """Two channels are about to send in the moment in which one place is left; further segments take none."""
    limit = replace(LIMIT, counts="message", messages_per_epoch=1, ack_reserve=0.0)

    async def scenario(world: World) -> None:
        shared = QuotaWorld(world, limit)
        ciphers = {name: BrokenCipher("fails", 0) for name in ("red", "green")}
        for name, cipher in ciphers.items():
            await shared.peer(name)
            await shared.join(name, sync=SyncConfig(sync_min_interval_ms=0), encryption=cipher)
        await next_epoch()
        for cipher in ciphers.values():
            # How much it adds was measured.
            cipher.calls = 0
        began = this_epoch()
        message = random.Random(1).randbytes(segments * 1_024)
        await asyncio.gather(*(shared.channels[name].send(message) for name in ("red", "green")))
        await asyncio.sleep(20)
        (first,) = shared.left_by_channel(began)
        assert shared.messages(first) == [message]
        # Nor is what waits for it encrypted.
        assert ciphers["red" if first == "green" else "green"].calls <= DISPATCHES_MAX
        await next_epoch(20_000)
        assert [shared.messages(name) for name in ("red", "green")] == [[message]] * 2

    run_world(scenario)


def test_a_message_on_its_way_is_not_held_up_by_one_that_got_no_place() -> None:
    limit = replace(LIMIT, counts="message", messages_per_epoch=2, ack_reserve=0.0)

    async def scenario(world: World) -> None:
        shared = QuotaWorld(world, limit)
        await shared.peer("red")
        node = SlowNode(await shared.start_node())
        node.pause_s = 0.01
        shared.node = node  # type: ignore[assignment]
        for name in ("red", "green"):
            await shared.join(name, sync=SyncConfig(sync_min_interval_ms=0))
        await next_epoch(EPOCH_MS - 20_000)
        message = random.Random(1).randbytes(240 * 1_024)
        await shared.channels["red"].send(message)
        await asyncio.sleep(0.1)
        await asyncio.gather(*(shared.channels[name].send(b"small") for name in ("red", "green")))
        await asyncio.sleep(10)
        assert message in shared.messages("red")
        await shared.close()

    run_world(scenario)


def test_a_place_that_the_node_refuses_is_not_spent_of_the_channels_own_quota() -> None:
    """Two channels are about to send in the moment in which the node has one place left."""
    own = replace(LIMIT, epoch_size_ms=100 * EPOCH_MS, messages_per_epoch=1, ack_reserve=0.0)

    async def scenario(world: World) -> None:
        shared = QuotaWorld(world, replace(LIMIT, messages_per_epoch=1, ack_reserve=0.0))
        for name in ("red", "green"):
            await shared.peer(name)
            await shared.join(name, own=own)
        await next_epoch()
        await asyncio.gather(*(shared.channels[name].send(b"x") for name in ("red", "green")))
        await asyncio.sleep(20)
        assert len(shared.messages("red") + shared.messages("green")) == 1
        await next_epoch(20_000)
        assert len(shared.messages("red") + shared.messages("green")) == 2

    run_world(scenario)


def test_a_channel_that_could_not_be_made_has_no_share() -> None:
    async def scenario(world: World) -> None:
        shared, disk = QuotaWorld(world), SharedDisk()
        await shared.join("red", disk.mount())
        await shared.close()
        disk.channels["red"]["channel.send", b"x"] = b"garbage"
        with pytest.raises(PersistenceError):
            await shared.join("red", disk.mount())
        await next_epoch()
        await send_all(await shared.join("green"), 40)
        await asyncio.sleep(1)
        assert shared.left()[this_epoch()] >= OPEN_QUOTA

    run_world(scenario)


def test_nothing_that_counts_leaves_while_the_count_cannot_be_stored(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        shared, disk, other = QuotaWorld(world), SharedDisk(), SharedDisk()
        # Red's place holds the count; green's own state can be stored.
        await shared.join("red", disk.mount())
        green = await shared.join("green", other.mount())
        await shared.peer("green")
        disk.fails_with = PersistenceError("disk full")
        await green.send(b"x")
        await asyncio.sleep(20)
        assert shared.left() == {}
        disk.fails_with = None
        await asyncio.sleep(20)
        assert shared.messages("green") == [b"x"]
        assert max(shared.left().values()) <= QUOTA

    with caplog.at_level(logging.ERROR):
        run_world(scenario)
    told = [record.message for record in caplog.records if "rate limit cannot be stored" in record.message]
    assert told == ["the count of the rate limit cannot be stored, nothing that counts leaves: disk full"]


def test_channels_of_one_database_count_in_it_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "state.db"

    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        for _ in range(3):
            persistences = {name: SqlitePersistence(path) for name in NAMES}
            for name in NAMES:
                await send_all(await shared.join(name, persistences[name]), 4)
            await asyncio.sleep(2)
            # The one that counts leaves first.
            await close_channel(shared.channels.pop("red"))
            persistences["red"].close()
            await asyncio.sleep(2)
            await shared.crash()
            for persistence in persistences.values():
                persistence.close()
        assert shared.left()[this_epoch()] in range(OPEN_QUOTA, QUOTA + 1)

    run_world(scenario)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_who_stays_of_those_that_share_a_place_still_has_the_count_kept_there() -> None:
    async def scenario(world: World) -> None:
        shared, disk = QuotaWorld(world), SharedDisk()
        mount = disk.mount()
        for name in ("red", "green"):
            await shared.join(name, mount)
        await close_channel(shared.channels.pop("red"))
        await next_epoch()
        await send_all(shared.channels["green"], 4)
        await asyncio.sleep(1)
        counted = disk.counted("shared")
        assert counted is not None
        assert counted.used == shared.left()[this_epoch()] >= 4

    run_world(scenario)


def test_the_count_is_written_by_who_stays_when_its_writer_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        red, green = (SqlitePersistence(tmp_path / "state.db") for _ in range(2))
        await shared.join("red", red)
        await shared.join("green", green)
        await close_channel(shared.channels.pop("red"))
        red.close()
        await next_epoch()
        await send_all(shared.channels["green"], 4)
        await asyncio.sleep(1)
        assert shared.left()[this_epoch()] >= 4
        await close_channel(shared.channels.pop("green"))
        green.close()

    run_world(scenario)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_no_channel_may_be_called_like_a_count() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ConfigError, match="not for channels"):
            await QuotaWorld(world).join(f"{COUNT_NAME_PREFIX}x")

    run_world(scenario)


@pytest.mark.parametrize(
    ("fault", "error", "told"),
    [
        ("load", PersistenceError("unreadable"), "unreadable"),
        ("commit", PersistenceError("unwritable"), "unwritable"),
        ("commit", KeyError("x"), "the persistence raised KeyError: nothing was stored"),
    ],
)
def test_a_count_that_cannot_be_read_or_written_refuses_the_channel_and_leaves_nothing_behind(
    fault: str, error: Exception, told: str
) -> None:
    class Faulty(SharedMount):
        def load(self, channel_id: str) -> ChannelState | None:
            self.check("load", channel_id)
            return super().load(channel_id)

        def commit(self, channel_id: str, changes: Changes) -> None:
            self.check("commit", channel_id)
            super().commit(channel_id, changes)

        def check(self, call: str, channel_id: str) -> None:
            if broken and call == fault and channel_id.startswith(COUNT_NAME_PREFIX):
                raise error

    broken = True

    async def scenario(world: World) -> None:
        nonlocal broken
        shared, mount = QuotaWorld(world), Faulty(SharedDisk())
        with pytest.raises(PersistenceError, match=told):
            await shared.join("red", mount)
        broken = False
        red = await shared.join("red", mount)
        await send_all(red, 30)
        await asyncio.sleep(1)
        # Nobody else is a member of the limit.
        assert shared.left()[this_epoch()] in range(OPEN_QUOTA, QUOTA + 1)

    run_world(scenario)


@pytest.mark.parametrize("later_ms", range(0, 200, 20))
def test_a_count_that_is_found_while_another_is_stored_is_not_lost(later_ms: int) -> None:
    """Red is about to store its count when green finds that of an earlier life."""

    async def scenario(world: World) -> None:
        shared, disk, other = QuotaWorld(world), SharedDisk(), SharedDisk()
        await send_all(await shared.join("green", other.mount()), 4)
        await asyncio.sleep(2)
        earlier = shared.left()[this_epoch()]
        await shared.crash(other)
        red = await shared.join("red", disk.mount())
        sending = asyncio.create_task(send_all(red, 1))
        await asyncio.sleep(later_ms / 1000)
        await shared.join("green", other.mount())
        await sending
        await asyncio.sleep(0.5)
        assert shared.left()[this_epoch()] == earlier + 1
        counted = disk.counted("shared")
        assert counted is not None
        assert (counted.is_counted_here, counted.used) == (True, earlier + 1)

    run_world(scenario, commit_ms=50)


def test_a_place_that_could_not_take_the_count_over_does_not_stop_the_others() -> None:
    class Volatile(MemoryPersistence):
        def commit(self, channel_id: str, changes: Changes) -> None:
            if fails:
                raise PersistenceError("no memory")
            super().commit(channel_id, changes)

    fails = False

    async def scenario(world: World) -> None:
        nonlocal fails
        shared, disk = QuotaWorld(world), SharedDisk()
        red = await shared.join("red", Volatile())
        await shared.peer("red")
        fails = True
        with pytest.raises(PersistenceError, match="no memory"):
            await shared.join("green", disk.mount())
        fails = False
        counted = disk.counted("shared")
        await send_all(red, 3)
        await asyncio.sleep(2)
        assert len(shared.messages("red")) == 3
        # Nor is that place used any more: its channel may be made again, by whatever process.
        assert disk.counted("shared") == counted

    run_world(scenario)


def test_a_stopped_channel_keeps_nothing_of_the_quota_from_others() -> None:
    async def scenario(world: World) -> None:
        shared = QuotaWorld(world)
        red, green = await shared.join("red"), await shared.join("green")
        await send_all(red, 40)
        await asyncio.sleep(1)
        await red.stop()
        await next_epoch()
        await next_epoch()
        await send_all(green, 40)
        await asyncio.sleep(1)
        assert shared.left_by_channel(this_epoch())["green"] >= OPEN_QUOTA
        await red.start()
        await asyncio.sleep(2 * EPOCH_MS / 1000)
        assert max(shared.left().values()) <= QUOTA

    run_world(scenario)
