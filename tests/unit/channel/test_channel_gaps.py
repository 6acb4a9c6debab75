"""What may have passed a participant by is asked of a store until it answered, and no later life takes it for seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from channel_world import TOPIC, World, run_world
from spied_store import spy

from shardwire import ReliableChannel
from shardwire._native import last_seen_ns
from shardwire.channel.storing.records import LAST_SEEN
from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig, SyncConfig
from shardwire.events import MessageReceivedEvent
from shardwire.node import (
    STORE,
    MemoryNetwork,
    MemoryNode,
    MessageEnvelope,
    MessageReceived,
    MessagesMissed,
    NodeEvent,
    StorePage,
    StoreQuery,
    running_clock,
)
from shardwire.node.clock import NANOSECONDS_PER_MS

# The sender never resends, nobody repairs and nobody names what he heard: what arrives late came from the store.
SILENT = SyncConfig(sync_min_interval_ms=0, acknowledgement_sync=False)
STORE_ONLY = ChannelConfig.logos(
    sds=SdsConfig(max_retransmissions=0, enable_repair=False, causal_history_size=0), sync=SILENT
)


def deafen(node: MemoryNode) -> Callable[[], None]:
    """What arrives at `node` from now on passes it by, until the returned function is called."""
    node.inbox.arrive = lambda delay_ms, message, fate: fate.refuse(delay_ms, "overflow")  # type: ignore[method-assign]

    def hear() -> None:
        del node.inbox.arrive  # type: ignore[attr-defined]

    return hear


def tell_missed(node: MemoryNode, since_ms: int) -> None:
    node._streams.put(MessagesMissed(since_ms * NANOSECONDS_PER_MS))


async def fill(world: World, count: int) -> None:
    """Lets more pass than one page of a store holds, in an own channel's messages that everybody hears."""
    for number in range(count):
        await world.channels["alice"].send(b"heard %d" % number)
    await asyncio.sleep(1)


@pytest.mark.parametrize(("heard_after", "told_after_s"), [(0, 60), (150, 60), (150, 600)])
def test_what_the_node_says_it_missed_is_asked_of_the_store(heard_after: int, told_after_s: int) -> None:
    """Also behind a page of messages that were heard since, of which none names it, and before the last answer."""

    async def scenario(world: World) -> None:
        await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY)
        carol = await world.join("carol", STORE_ONLY)
        await asyncio.sleep(60)
        queries = spy(world.nodes["bob"])
        missed_ms = running_clock().epoch_ms()
        all_hear = [deafen(world.nodes[name]) for name in ("alice", "bob")]
        await carol.send(b"missed")
        await asyncio.sleep(1)
        await carol.stop()
        for hear in all_hear:
            hear()
        await fill(world, heard_after)
        await asyncio.sleep(told_after_s)
        assert b"missed" not in world.messages("bob")
        assert bool(queries) is (told_after_s > 300)
        tell_missed(world.nodes["bob"], missed_ms)
        await asyncio.sleep(10)
        assert b"missed" in world.messages("bob")
        assert len(world.messages("bob")) == heard_after + 1

    run_world(scenario)


def test_a_store_that_fails_is_asked_until_it_answers_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    failing = True

    async def scenario(world: World) -> None:
        nonlocal failing
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(30)
        queries = spy(world.nodes["bob"], lambda: failing)
        world.nodes["bob"].go_offline()
        await alice.send(b"missed")
        await asyncio.sleep(1)
        world.nodes["bob"].go_online()
        # Long after the interval in which a store is asked anyway: it backs off, up to a minute.
        await asyncio.sleep(600)
        assert 12 <= len(queries) <= 20
        failing = False
        await asyncio.sleep(61)
        assert world.messages("bob") == [b"missed"]

    with caplog.at_level(logging.INFO, "shardwire.channel.receiving.retrieval"):
        run_world(scenario)
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [
        ("WARNING", "no store answered, it is asked again until one does: the store is busy"),
        ("INFO", "the store answers again"),
    ]


def test_a_store_that_fails_once_delays_nothing_for_minutes() -> None:
    fails = 1

    async def scenario(world: World) -> None:
        def fail() -> bool:
            nonlocal fails
            fails -= 1
            return fails >= 0

        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(30)
        spy(world.nodes["bob"], fail)
        world.nodes["bob"].go_offline()
        await alice.send(b"missed")
        await asyncio.sleep(1)
        world.nodes["bob"].go_online()
        await asyncio.sleep(3)
        assert world.messages("bob") == [b"missed"]

    run_world(scenario)


LATER = [b"heard %d" % number for number in range(20)]


async def say_on(alice: ReliableChannel) -> None:
    """Seven minutes of messages that are heard."""
    for message in LATER:
        await asyncio.sleep(20)
        await alice.send(message)
    await asyncio.sleep(1)


async def bob_alone_begins_anew(world: World) -> None:
    """What comes now comes of a store."""
    await world.crash("bob")
    await world.channels["alice"].stop()
    await asyncio.sleep(100)
    await world.join("bob", STORE_ONLY, on_disk=True)
    await asyncio.sleep(10)


@pytest.mark.parametrize("tells", [True, False])
def test_a_later_life_asks_for_a_gap_that_no_store_answered_for(tells: bool) -> None:
    """Though it heard what was said since."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY, on_disk=True)
        await asyncio.sleep(120)
        failing = True
        spy(world.nodes["bob"], lambda: failing)
        missed_ms = running_clock().epoch_ms()
        if tells:
            hear = deafen(world.nodes["bob"])
        else:
            world.nodes["bob"].go_offline()
        await asyncio.sleep(1)
        await alice.send(b"missed")
        await asyncio.sleep(1)
        if tells:
            hear()
            tell_missed(world.nodes["bob"], missed_ms)
        else:
            world.nodes["bob"].go_online()
        await say_on(alice)
        assert b"missed" not in world.messages("bob")
        await bob_alone_begins_anew(world)

    world = run_world(scenario)
    assert world.messages("bob") == [*LATER, b"missed"]


def test_a_later_life_asks_for_a_gap_that_the_node_told_of_late() -> None:
    """The one before had taken it for seen, and stored that."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY, on_disk=True)
        await asyncio.sleep(120)
        spy(world.nodes["bob"], lambda: True)
        missed_ms = running_clock().epoch_ms()
        hear = deafen(world.nodes["bob"])
        await alice.send(b"missed")
        await asyncio.sleep(1)
        hear()
        await say_on(alice)
        tell_missed(world.nodes["bob"], missed_ms)
        await asyncio.sleep(1)
        await bob_alone_begins_anew(world)

    world = run_world(scenario)
    assert world.messages("bob") == [*LATER, b"missed"]


def test_a_gap_that_a_store_is_being_asked_for_is_stored_as_one() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY, on_disk=True)
        await asyncio.sleep(120)
        asked = asyncio.Event()

        async def hang(query: StoreQuery) -> StorePage:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        world.nodes["bob"].query_store = hang  # type: ignore[method-assign]
        missed_ms = running_clock().epoch_ms()
        hear = deafen(world.nodes["bob"])
        await alice.send(b"missed")
        await asyncio.sleep(1)
        hear()
        tell_missed(world.nodes["bob"], missed_ms)
        await asked.wait()
        # Within the time that the store has for its answer.
        for number in range(3):
            await asyncio.sleep(18)
            await alice.send(b"heard %d" % number)
        await asyncio.sleep(1)
        seen_ns = last_seen_ns(world.disks["bob"].records[LAST_SEEN, b""])
        assert seen_ns <= missed_ms * NANOSECONDS_PER_MS

    run_world(scenario)


def test_what_found_no_room_before_a_crash_is_asked_for_after_it() -> None:
    config = replace(STORE_ONLY, sds=replace(STORE_ONLY.sds, incoming_buffer_messages_max=5))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", config, on_disk=True, listen=False)
        for number in range(15):
            await asyncio.sleep(60)
            await alice.send(b"%d" % number)
        await world.crash("bob")
        # Those that wait are handed over, and the next life has room.
        await world.join("bob", STORE_ONLY, on_disk=True)
        await asyncio.sleep(60)

    assert run_world(scenario).messages("bob") == [b"%d" % number for number in range(15)]


def test_a_gap_is_not_asked_for_again_once_a_store_answered() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY, on_disk=True)
        for number in range(4):
            await asyncio.sleep(60)
            await alice.send(b"%d" % number)
        await asyncio.sleep(10)
        await world.crash("bob")
        node = await world.node("bob")
        queries = spy(node)
        began_ms = running_clock().epoch_ms()
        await world.join("bob", STORE_ONLY, on_disk=True)
        await asyncio.sleep(10)
        (query,) = [query for query in queries if query.content_topics]
        assert query.start_time_ns is not None
        assert began_ms - query.start_time_ns // NANOSECONDS_PER_MS < 120_000

    run_world(scenario)


class Replaying:
    """Publishes again what it recorded, which takes no key."""

    def __init__(self, node: MemoryNode) -> None:
        self.node = node
        self.recorded: list[bytes] = []

    async def record(self) -> None:
        async for event in self.node.events():
            if isinstance(event, MessageReceived):
                self.recorded.append(event.envelope.payload)

    async def replay(self) -> None:
        for payload in self.recorded:
            await self.node.send(MessageEnvelope(TOPIC, payload))


def test_replays_and_garbage_do_not_end_the_search_for_what_passed_by() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.logos(sds=SdsConfig(max_retransmissions=0), sync=SILENT))
        await world.join("bob", STORE_ONLY)
        mallory = Replaying(await world.node("mallory"))
        await mallory.node.subscribe([TOPIC])
        recording = asyncio.create_task(mallory.record())
        for number in range(20):
            await alice.send(b"known %d" % number)
        await asyncio.sleep(30)
        world.nodes["bob"].go_offline()
        await asyncio.sleep(1)
        recording.cancel()
        for number in range(5):
            await alice.send(b"missed %d" % number)
        await asyncio.sleep(1)
        await alice.stop()
        for number in range(110):
            await mallory.node.send(MessageEnvelope(TOPIC, b"garbage %d" % number))
        await mallory.replay()
        await asyncio.sleep(60)
        world.nodes["bob"].go_online()
        await asyncio.sleep(60)

    missed = [message for message in run_world(scenario).messages("bob") if message.startswith(b"missed")]
    assert missed == [b"missed %d" % number for number in range(5)]


def test_without_a_store_none_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        world.network = MemoryNetwork(seed=7, store=False)
        alice = await world.join("alice")
        await world.join("bob")
        queries = [spy(world.nodes[name]) for name in ("alice", "bob")]
        world.lose("alice", "bob", {0})
        await alice.send(b"lost at first")
        await alice.send(b"follows it")
        world.nodes["bob"].go_offline()
        await asyncio.sleep(60)
        await alice.send(b"missed")
        world.nodes["bob"].go_online()
        tell_missed(world.nodes["bob"], 0)
        await asyncio.sleep(600)
        assert queries == [[], []]

    with caplog.at_level(logging.WARNING, "shardwire.channel.receiving.retrieval"):
        world = run_world(scenario)
    assert sorted(world.messages("bob")) == [b"follows it", b"lost at first", b"missed"]
    assert not [record for record in caplog.records if record.name == "shardwire.channel.receiving.retrieval"]


def test_what_could_not_be_kept_for_want_of_room_is_asked_for_again() -> None:
    """The application takes its time, and less fits than the store brings."""
    config = ChannelConfig.logos(
        sds=SdsConfig(
            max_retransmissions=0, enable_repair=False, causal_history_size=0, incoming_buffer_messages_max=10
        ),
        sync=SILENT,
        rate_limit=RateLimitConfig(),
    )
    taken: list[bytes] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        bob = await world.join("bob", config, listen=False)

        async def slowly(event: object) -> None:
            await asyncio.sleep(0.2)
            taken.append(event.message)  # type: ignore[attr-defined]

        bob.on_message_received(slowly)
        await asyncio.sleep(30)
        world.nodes["bob"].go_offline()
        for number in range(60):
            await alice.send(b"%d" % number)
        await asyncio.sleep(1)
        await alice.stop()
        world.nodes["bob"].go_online()
        await asyncio.sleep(60)

    run_world(scenario)
    assert sorted(taken, key=int) == [b"%d" % number for number in range(60)]


@pytest.mark.parametrize("since", [-1, None, 1.5, True, "0"])
def test_a_gap_without_a_time_is_dropped_and_counted(since: object) -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        event: NodeEvent = MessagesMissed(since)  # type: ignore[arg-type]
        world.nodes["bob"]._streams.put(event)
        await asyncio.sleep(1)
        assert world.channels["bob"].stats()["node_events_malformed"] == 1

    run_world(scenario)


def test_a_store_that_stays_away_while_its_network_is_split_is_asked_when_that_heals() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY)
        await world.node("carol")
        await asyncio.sleep(30)
        world.network.partition([{"alice", STORE}, {"bob", "carol"}])
        await alice.send(b"missed")
        await asyncio.sleep(300)
        world.network.heal()
        await asyncio.sleep(5)
        assert world.messages("bob") == [b"missed"]

    run_world(scenario)


def test_a_message_whose_history_leads_back_ends_the_search() -> None:
    """004, Query on connect: what came before it is found through its history."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.logos(sds=SdsConfig(max_retransmissions=0), sync=SILENT))
        for number in range(350):
            await alice.send(b"%d" % number)
            # The next one's history says how a store finds this one.
            await asyncio.sleep(0.001)
        await asyncio.sleep(5)
        queries = spy(await world.node("bob"))
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(280)
        (query,) = [query for query in queries if query.content_topics]
        assert query.cursor is None

    world = run_world(scenario)
    assert world.messages("bob") == [b"%d" % number for number in range(350)]


def test_a_store_that_comes_into_reach_is_asked_at_once() -> None:
    """However long the pauses between questions had grown (004, Query on connect: a store node becomes available)."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        await alice.send(b"missed")
        await asyncio.sleep(5)
        world.network.store_online = False
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(200)
        queries = spy(world.nodes["bob"])
        world.network.store_online = True
        await asyncio.sleep(0.5)
        assert queries
        assert world.messages("bob") == [b"missed"]

    run_world(scenario)


def test_what_found_no_room_when_it_came_is_taken_from_the_store() -> None:
    small = replace(STORE_ONLY, sds=replace(STORE_ONLY.sds, incoming_buffer_bytes_max=30_000))
    messages = [bytes([number]) * 10_000 for number in range(20)]

    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        bob = await world.join("bob", small, listen=False)
        heard: list[bytes] = []

        async def take(event: MessageReceivedEvent) -> None:
            await asyncio.sleep(1)
            heard.append(event.message)

        bob.on_message_received(take)
        # What is asked on connecting brings nothing of it.
        await asyncio.sleep(1)
        for message in messages:
            await alice.send(message)
        await asyncio.sleep(60)
        assert bob.stats()["dropped_by_backpressure"] > 0
        assert len(heard) < len(messages)
        tell_missed(world.nodes["bob"], 0)
        await asyncio.sleep(600)
        assert sorted(heard) == messages

    run_world(scenario)
