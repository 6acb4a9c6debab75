"""Missing messages from the store: by hint, by topic and time, on connect; limited, and reported when not found."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world
from spied_store import spy

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.channel import close_channel
from shardwire.channel.receiving import store_queries
from shardwire.config import ChannelConfig, SdsConfig, SyncConfig
from shardwire.errors import DecryptionError
from shardwire.events import IrretrievableMessageEvent, MessageReceivedEvent
from shardwire.node import MessageEnvelope, NetworkConditions, StorePage, StoreQuery
from shardwire.node.virtual_time import VirtualClock

# The sender never resends, and nobody repairs: what arrives late came from the store.
STORE_ONLY = ChannelConfig.logos(sds=SdsConfig(max_retransmissions=0, enable_repair=False))


def test_a_missing_message_is_fetched_by_hint_on_detection_and_delivered_in_order() -> None:
    queries: list[StoreQuery] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY)
        await alice.send(b"zeroth")
        await asyncio.sleep(5)
        queries.extend(spied := spy(world.nodes["bob"]))
        world.lose("alice", "bob", {0})
        await alice.send(b"first")
        await asyncio.sleep(0.5)
        await alice.send(b"second")
        await asyncio.sleep(0.5)
        queries.extend(spied)

    world = run_world(scenario)
    assert world.messages("bob") == [b"zeroth", b"first", b"second"]
    (query,) = queries
    assert len(query.message_hashes) == 1
    assert world.sent_by("alice") == 3


def test_without_a_hint_it_is_found_by_topic_and_time() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", STORE_ONLY)
        # What is asked on connecting brings nothing of it.
        await asyncio.sleep(30)
        queries = spy(world.nodes["bob"])
        peer = await world.node("peer")
        known = SdsMessage(
            sender_id="peer", message_id="m0", channel_id=CHANNEL, lamport_timestamp=4, content=_segment(b"zeroth")
        )
        await peer.send(MessageEnvelope(TOPIC, known.encode()))
        await asyncio.sleep(1)
        missing = SdsMessage(
            sender_id="peer", message_id="m1", channel_id=CHANNEL, lamport_timestamp=5, content=_segment(b"first")
        )
        effect = SdsMessage(
            sender_id="peer",
            message_id="m2",
            channel_id=CHANNEL,
            lamport_timestamp=6,
            causal_history=[HistoryEntry("m1")],
            content=_segment(b"second"),
        )
        world.lose("peer", "bob", {0})
        await peer.send(MessageEnvelope(TOPIC, missing.encode()))
        await asyncio.sleep(0.5)
        await peer.send(MessageEnvelope(TOPIC, effect.encode()))
        await asyncio.sleep(10)
        assert any(query.content_topics == (TOPIC,) for query in queries)

    assert run_world(scenario).messages("bob") == [b"zeroth", b"first", b"second"]


def test_what_of_a_burst_without_hints_gets_lost_is_found_within_seconds() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(30)
        queries = spy(world.nodes["bob"])
        for burst in range(5):
            world.lose("alice", "bob", set(range(3, 60, 7)))
            # Sent at once, none knows the transport hash of the one before.
            await asyncio.gather(*[alice.send(b"%d" % (100 * burst + number)) for number in range(60)])
            await asyncio.sleep(3)
        assert len(world.messages("bob")) == 300
        # The newest page has what is missing, however much was said before.
        assert len([query for query in queries if query.content_topics]) <= 2 * 5

    run_world(scenario)


async def _waited_for_what_was_lost(world: World, config: ChannelConfig, conditions: NetworkConditions) -> float:
    """Seconds until bob has one message that he did not get, from the next one on, which names it."""
    loop = asyncio.get_running_loop()
    alice = await world.join("alice", config)
    await world.join("bob", config)
    await alice.send(b"zeroth")
    await asyncio.sleep(30)
    world.network.conditions = conditions
    world.lose("alice", "bob", {0})
    await alice.send(b"first")
    await asyncio.sleep(1)
    began = loop.time()
    await alice.send(b"second")
    for _ in range(1_200):
        await asyncio.sleep(0.1)
        if world.messages("bob") == [b"zeroth", b"first", b"second"]:
            break
    return loop.time() - began


# Nobody sends anything again unasked.
ASKED_FOR = ChannelConfig.logos(sds=SdsConfig(max_retransmissions=0))
NEVER_STORED = NetworkConditions(store_loss=1.0)


@pytest.mark.parametrize("store", ["without it", "slow", "out of reach", "none"])
def test_others_are_asked_soon_for_what_a_store_does_not_bring(store: str) -> None:
    slow = NetworkConditions(store_delay_ms=(30_000, 30_000))

    async def scenario(world: World) -> None:
        world.network.store_online = store != "out of reach"
        if store == "none":
            world.network.store = None
        assert await _waited_for_what_was_lost(world, ASKED_FOR, slow if store == "slow" else NEVER_STORED) < 5

    run_world(scenario)


def test_times_of_sds_r_that_were_set_stand_whatever_a_store_has() -> None:
    config = replace(ASKED_FOR, sds=replace(ASKED_FOR.sds, repair_t_min_ms=20_000, repair_t_max_ms=40_000))

    async def scenario(world: World) -> None:
        assert await _waited_for_what_was_lost(world, config, NEVER_STORED) >= 20

    run_world(scenario)


def _segment(payload: bytes) -> bytes:
    from shardwire.segmentation import SegmentationConfig, segment

    return segment(payload, SegmentationConfig())[0]


def test_queries_keep_to_their_limit() -> None:
    config = replace(
        STORE_ONLY,
        sds=replace(STORE_ONLY.sds, timeout_for_lost_messages_ms=0),
        sync=SyncConfig(retrieve_frequency_ms=100, store_queries_per_minute_max=10),
    )

    async def scenario(world: World) -> None:
        await world.join("bob", config)
        queries = spy(world.nodes["bob"])
        peer = await world.node("peer")
        known = SdsMessage(
            sender_id="peer", message_id="m1", channel_id=CHANNEL, lamport_timestamp=5, content=_segment(b"known")
        )
        await peer.send(MessageEnvelope(TOPIC, known.encode()))
        await asyncio.sleep(1)
        entry = HistoryEntry("gone", retrieval_hint=bytes(32))
        message = SdsMessage(
            sender_id="peer",
            message_id="m2",
            channel_id=CHANNEL,
            lamport_timestamp=6,
            causal_history=[entry],
            content=_segment(b"x"),
        )
        await peer.send(MessageEnvelope(TOPIC, message.encode()))
        await asyncio.sleep(59)
        assert 3 <= len([query for query in queries if query.message_hashes]) <= 10
        await asyncio.sleep(600)
        assert len(queries) <= 110

    run_world(scenario)


def test_the_store_is_asked_at_the_configured_frequency_while_something_is_missing() -> None:
    config = replace(
        STORE_ONLY,
        sds=replace(STORE_ONLY.sds, timeout_for_lost_messages_ms=0),
        sync=SyncConfig(retrieve_frequency_ms=10_000),
    )

    async def scenario(world: World) -> None:
        await world.join("bob", config)
        peer = await world.node("peer")
        known = SdsMessage(
            sender_id="peer", message_id="m1", channel_id=CHANNEL, lamport_timestamp=5, content=_segment(b"known")
        )
        await peer.send(MessageEnvelope(TOPIC, known.encode()))
        await asyncio.sleep(1)
        queries = spy(world.nodes["bob"])
        message = SdsMessage(
            sender_id="peer",
            message_id="m2",
            channel_id=CHANNEL,
            lamport_timestamp=6,
            causal_history=[HistoryEntry("gone", retrieval_hint=bytes(32))],
            content=_segment(b"x"),
        )
        await asyncio.sleep(60)
        assert queries == []
        await peer.send(MessageEnvelope(TOPIC, message.encode()))
        await asyncio.sleep(100.5)
        assert len(queries) == 11

    run_world(scenario)


@pytest.mark.parametrize(("hint", "queries_max"), [(bytes(32), 20), (None, 10)])
def test_what_no_store_has_is_asked_for_less_and_less_often_and_still_found_when_it_comes(
    hint: bytes | None, queries_max: int
) -> None:
    config = replace(STORE_ONLY, sds=replace(STORE_ONLY.sds, timeout_for_lost_messages_ms=0))

    async def scenario(world: World) -> None:
        await world.join("bob", config)
        peer = await world.node("peer")
        first = SdsMessage(
            sender_id="peer", message_id="m1", channel_id=CHANNEL, lamport_timestamp=5, content=_segment(b"first")
        )
        await peer.send(MessageEnvelope(TOPIC, first.encode()))
        await asyncio.sleep(1)
        queries = spy(world.nodes["bob"])
        late = SdsMessage(
            sender_id="peer", message_id="late", channel_id=CHANNEL, lamport_timestamp=6, content=_segment(b"late")
        )
        effect = SdsMessage(
            sender_id="peer",
            message_id="m2",
            channel_id=CHANNEL,
            lamport_timestamp=7,
            causal_history=[HistoryEntry("late", retrieval_hint=hint)],
            content=_segment(b"effect"),
        )
        await peer.send(MessageEnvelope(TOPIC, effect.encode()))
        await asyncio.sleep(200)
        assert 5 <= len(queries) <= queries_max
        if hint is None:
            # Only the store hears it.
            world.lose("peer", "bob", {0})
        await peer.send(MessageEnvelope(TOPIC, late.encode()))
        await asyncio.sleep(61)

    assert run_world(scenario).messages("bob") == [b"first", b"late", b"effect"]


@pytest.mark.parametrize("hint", [bytes(32), None])
def test_asking_a_store_for_what_never_was_decays_to_nothing(hint: bytes | None) -> None:
    waku = ChannelConfig.waku()
    config = replace(waku, sync=replace(waku.sync, query_on_connect=False))

    async def scenario(world: World) -> None:
        await world.join("bob", config)
        peer = await world.node("peer")
        message = SdsMessage(
            sender_id="peer",
            message_id="m1",
            channel_id=CHANNEL,
            lamport_timestamp=5,
            causal_history=[HistoryEntry(f"never{number}", retrieval_hint=hint) for number in range(15)],
            content=_segment(b"x"),
        )
        await peer.send(MessageEnvelope(TOPIC, message.encode()))
        queries = spy(world.nodes["bob"])
        counts = []
        for _ in range(24):
            await asyncio.sleep(3_600)
            counts.append(len(queries))
        assert 10 < counts[0] < 100
        # In the second half of a day.
        assert counts[-1] - counts[11] <= 3

    run_world(scenario, limit_ms=25 * 3_600_000)


def test_many_without_a_hint_take_no_turn_from_those_with_one() -> None:
    config = ChannelConfig.waku()

    async def scenario(world: World) -> None:
        await world.join("bob", config)
        peer = await world.node("peer")
        invented = [HistoryEntry(f"never{number}") for number in range(200)]
        message = SdsMessage(
            sender_id="peer",
            message_id="m1",
            channel_id=CHANNEL,
            lamport_timestamp=5,
            causal_history=[*invented, HistoryEntry("hinted", retrieval_hint=bytes(32))],
            content=_segment(b"x"),
        )
        queries = spy(world.nodes["bob"])
        await peer.send(MessageEnvelope(TOPIC, message.encode()))
        await asyncio.sleep(45)
        assert len([query for query in queries if query.message_hashes == (bytes(32),)]) >= 3

    run_world(scenario)


def test_a_lost_dependency_is_reported_and_its_dependent_released() -> None:
    config = replace(STORE_ONLY, sds=replace(STORE_ONLY.sds, timeout_for_lost_messages_ms=20_000))

    async def scenario(world: World) -> None:
        world.network.store_online = False
        alice = await world.join("alice", config)
        await world.join("bob", config)
        await alice.send(b"zeroth")
        await asyncio.sleep(1)
        world.lose("alice", "bob", {0})
        await alice.send(b"first")
        await asyncio.sleep(0.5)
        await alice.send(b"second")
        await asyncio.sleep(10)
        assert world.messages("bob") == [b"zeroth"]
        await asyncio.sleep(20)

    world = run_world(scenario)
    assert world.messages("bob") == [b"zeroth", b"second"]
    assert len(world.of("bob", IrretrievableMessageEvent)) == 1


def test_a_lost_dependency_is_named_as_its_history_names_it() -> None:
    """004 HistoryEntry: the id of the SDS message and its retrieval hint."""
    config = replace(STORE_ONLY, sds=replace(STORE_ONLY.sds, timeout_for_lost_messages_ms=20_000))
    gone = HistoryEntry("gone", retrieval_hint=bytes(range(32)))

    async def scenario(world: World) -> None:
        await world.join("bob", config)
        peer = await world.node("peer")
        known = SdsMessage(
            sender_id="peer", message_id="m1", channel_id=CHANNEL, lamport_timestamp=5, content=_segment(b"known")
        )
        await peer.send(MessageEnvelope(TOPIC, known.encode()))
        await asyncio.sleep(1)
        effect = SdsMessage(
            sender_id="peer",
            message_id="m2",
            channel_id=CHANNEL,
            lamport_timestamp=6,
            causal_history=[gone],
            content=_segment(b"effect"),
        )
        await peer.send(MessageEnvelope(TOPIC, effect.encode()))
        await asyncio.sleep(60)

    world = run_world(scenario)
    assert [event.history_entry for event in world.of("bob", IrretrievableMessageEvent)] == [gone]
    assert world.messages("bob") == [b"known", b"effect"]


def test_who_comes_back_online_asks_for_what_passed_by() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY)
        await alice.send(b"before")
        await asyncio.sleep(1)
        world.nodes["bob"].go_offline()
        for number in range(50):
            await alice.send(b"%d" % number)
        await asyncio.sleep(60)
        assert world.messages("bob") == [b"before"]
        world.nodes["bob"].go_online()
        await asyncio.sleep(30)

    world = run_world(scenario)
    assert world.messages("bob") == [b"before", *(b"%d" % number for number in range(50))]


MISSED = [b"%d" % number for number in range(1_000)]


async def miss_many(world: World, config: ChannelConfig, pause_s: float = 0.0) -> list[StoreQuery]:
    """Bob has missed many messages and comes back; gives what he asks from then on."""
    alice = await world.join("alice", STORE_ONLY)
    await world.join("bob", config)
    await asyncio.sleep(1)
    world.nodes["bob"].go_offline()
    for message in MISSED:
        await alice.send(message)
        await asyncio.sleep(pause_s)
    await asyncio.sleep(60)
    world.nodes["bob"].go_online()
    return spy(world.nodes["bob"])


def asking(per_minute_max: int = 120) -> ChannelConfig:
    return replace(STORE_ONLY, sync=SyncConfig(store_queries_per_minute_max=per_minute_max))


def test_who_missed_many_gets_them_oldest_first_by_pages_of_many() -> None:
    async def scenario(world: World) -> None:
        queries = await miss_many(world, STORE_ONLY)
        await asyncio.sleep(5)
        assert all(query.forward for query in queries)
        # A page of hashes, and their messages twenty at first; then pages with what is in them.
        sizes = [query.page_size for query in queries]
        assert sizes == [100, 20, 40, 40, *[100] * (len(sizes) - 4)]
        assert len(sizes) < 16
        assert [query.include_data for query in queries] == [False, *[True] * (len(sizes) - 1)]
        assert world.messages("bob") == MISSED

    run_world(scenario)


def test_who_takes_in_once_a_second_gets_many_pages_in_it() -> None:
    async def scenario(world: World) -> None:
        await miss_many(world, replace(STORE_ONLY, sync=SyncConfig(process_task_min_elapse_ms=1_000)))
        await asyncio.sleep(4)
        assert world.messages("bob") == MISSED

    run_world(scenario)


def test_what_a_limit_of_queries_lets_come_is_delivered_meanwhile() -> None:
    async def scenario(world: World) -> None:
        await miss_many(world, asking(per_minute_max=6))
        await asyncio.sleep(30)
        count = len(world.messages("bob"))
        assert 100 <= count < 500
        assert world.messages("bob") == MISSED[:count]
        await asyncio.sleep(180)
        assert world.messages("bob") == MISSED

    run_world(scenario)


def test_a_walk_that_was_interrupted_goes_on_where_it_was() -> None:
    async def scenario(world: World) -> None:
        queries = await miss_many(world, asking(per_minute_max=6), pause_s=1)
        await asyncio.sleep(30)
        count = len(world.messages("bob"))
        assert 100 <= count < 500
        del queries[:]
        world.nodes["bob"].go_offline()
        await asyncio.sleep(60)
        world.nodes["bob"].go_online()
        await asyncio.sleep(30)
        first = next(query for query in queries if query.content_topics and query.cursor is None)
        # Half a minute before the last one that came: so far apart may clocks be.
        assert first.start_time_ns is not None
        assert abs((first.start_time_ns - world.network.trace[0].time_ns) / 1e9 - count + 30) < 10
        await asyncio.sleep(600)
        assert world.messages("bob") == MISSED

    run_world(scenario)


@pytest.mark.parametrize("elapse_ms", [0, 1_000])
def test_an_application_that_is_slow_has_a_store_asked_for_what_it_has_room_for(elapse_ms: int) -> None:
    config = replace(
        STORE_ONLY,
        sds=replace(STORE_ONLY.sds, incoming_buffer_messages_max=150),
        sync=SyncConfig(process_task_min_elapse_ms=elapse_ms),
    )
    taken: list[bytes] = []

    async def scenario(world: World) -> None:
        queries = await miss_many(world, config, pause_s=1)

        async def take(event: MessageReceivedEvent) -> None:
            await asyncio.sleep(0.05)
            taken.append(event.message)

        world.channels["bob"].on_message_received(take)
        await asyncio.sleep(300)
        assert taken == MISSED
        assert sum(query.page_size for query in queries if query.include_data) < 4 * len(MISSED)

    run_world(scenario)


@pytest.mark.parametrize("fault", ["pages without times", "pages in no order", "many pages"])
def test_all_that_was_missed_comes_whatever_the_pages_are_like(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "many pages":
        defaults = store_queries.Walk.__init__.__defaults__ or ()
        few = tuple(3 if value == store_queries.PAGES_PER_QUERY_MAX else value for value in defaults)
        monkeypatch.setattr(store_queries.Walk.__init__, "__defaults__", few)

    async def scenario(world: World) -> None:
        await world.node("bob")
        node = world.nodes["bob"]
        query_store = node.query_store

        async def changed(query: StoreQuery) -> StorePage:
            page = await query_store(query)
            if fault == "pages without times":
                return replace(page, messages=tuple(replace(stored, timestamp_ns=0) for stored in page.messages))
            if fault == "pages in no order":
                return replace(page, messages=page.messages[1:] + page.messages[:1])
            return page

        node.query_store = changed  # type: ignore[method-assign]
        await miss_many(world, STORE_ONLY, pause_s=1)
        await asyncio.sleep(120)

    assert set(run_world(scenario).messages("bob")) == set(MISSED)


def test_who_starts_late_finds_what_was_said() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        for number in range(30):
            await alice.send(b"%d" % number)
        await asyncio.sleep(5)
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(30)

    world = run_world(scenario)
    assert world.messages("bob") == [b"%d" % number for number in range(30)]


@pytest.mark.parametrize("minutes", [-60, -10, 10, 60])
def test_whose_clock_is_wrong_finds_the_past_in_order(minutes: int) -> None:
    """A store keeps messages under the times of their senders."""

    async def scenario(world: World) -> None:
        count = 0

        async def talk(rounds: int, *names: str) -> None:
            nonlocal count
            for _ in range(rounds):
                for name in names:
                    await world.channels[name].send(b"%s %d" % (name.encode(), count))
                    count += 1
                await asyncio.sleep(1.5)

        await world.join("alice", on_disk=True)
        await world.join("bob", on_disk=True)
        await talk(20, "alice", "bob")
        await close_channel(world.channels.pop("alice"))
        await talk(27, "bob")
        await world.join("alice", on_disk=True)
        await talk(20, "alice", "bob")
        clock = VirtualClock()
        clock.step(minutes * 60_000)
        await world.join("carol", clock=clock, on_disk=True)
        await talk(20, "alice", "bob", "carol")
        await asyncio.sleep(60)
        for name in ("alice", "bob"):
            numbers = [int(said.split()[1]) for said in world.messages("carol") if said.startswith(name.encode())]
            assert numbers == sorted(numbers)
        assert len(world.messages("carol")) == count - 20
        assert world.of("carol", IrretrievableMessageEvent) == []

    run_world(scenario, NetworkConditions(delay_ms=(5, 40)))


@pytest.mark.parametrize("asks", [True, False])
def test_query_on_connect_can_be_switched_off(asks: bool) -> None:
    config = replace(STORE_ONLY, sync=SyncConfig(query_on_connect=asks))

    async def scenario(world: World) -> None:
        await world.node("bob")
        queries = spy(world.nodes["bob"])
        await world.join("bob", config)
        await asyncio.sleep(1)
        assert bool(queries) is asks

    run_world(scenario)


def test_query_on_connect_repeats_after_its_interval_and_stops_at_history() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        for number in range(100):
            await alice.send(b"%d" % number)
        await asyncio.sleep(5)
        await world.node("bob")
        queries = spy(world.nodes["bob"])
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(100)
        by_topic = [query for query in queries if query.content_topics]
        assert len(by_topic) == 1
        assert not by_topic[0].forward
        await asyncio.sleep(300)
        assert len([query for query in queries if query.content_topics]) == 2

    world = run_world(scenario)
    assert world.messages("bob") == [b"%d" % number for number in range(100)]


def test_a_store_that_comes_into_reach_is_asked_for_what_passed_by() -> None:
    """004, Query on connect: long before the interval would have it asked again."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        for number in range(30):
            await alice.send(b"%d" % number)
        await asyncio.sleep(5)
        world.network.store_online = False
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(60)
        assert world.messages("bob") == []
        world.network.store_online = True
        await asyncio.sleep(30)

    world = run_world(scenario)
    assert world.messages("bob") == [b"%d" % number for number in range(30)]


def test_a_connection_that_comes_back_has_what_is_missing_asked_for_at_once() -> None:
    """It may lead to another store, or to one that has learned more meanwhile."""
    config = replace(STORE_ONLY, sds=replace(STORE_ONLY.sds, timeout_for_lost_messages_ms=0))

    async def scenario(world: World) -> None:
        await world.join("bob", config)
        peer = await world.node("peer")
        for number, history in enumerate(([], [HistoryEntry("never", retrieval_hint=bytes(32))])):
            message = SdsMessage(
                sender_id="peer",
                message_id=f"m{number}",
                channel_id=CHANNEL,
                lamport_timestamp=5 + number,
                causal_history=history,
                content=_segment(b"x%d" % number),
            )
            await peer.send(MessageEnvelope(TOPIC, message.encode()))
            await asyncio.sleep(1)
        queries = spy(world.nodes["bob"])

        def by_hash() -> int:
            return len([query for query in queries if query.message_hashes])

        # Once a minute by then.
        await asyncio.sleep(600)
        asked = by_hash()
        for _ in range(120):
            if by_hash() == asked:
                await asyncio.sleep(1)
        await asyncio.sleep(20)
        assert by_hash() == asked + 1
        world.nodes["bob"].go_offline()
        await asyncio.sleep(1)
        world.nodes["bob"].go_online()
        await asyncio.sleep(20)
        # And as often as if it were new.
        assert by_hash() > asked + 3

    run_world(scenario, limit_ms=3_600_000)


def test_a_page_of_other_channels_leads_to_the_next() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        for number in range(3):
            await alice.send(b"%d" % number)
        await asyncio.sleep(5)
        # Or a sync of hers would end the search on the first page.
        await alice.stop()
        eve = await world.join("eve", STORE_ONLY, channel_id="other", listen=False)
        for number in range(150):
            await eve.send(b"other %d" % number)
        await asyncio.sleep(5)
        await world.node("bob")
        queries = spy(world.nodes["bob"])
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(30)
        by_topic = [query for query in queries if query.content_topics]
        assert [query.cursor is None for query in by_topic] == [True, False]

    assert run_world(scenario).messages("bob") == [b"0", b"1", b"2"]


def test_a_store_whose_pages_never_end_is_left() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        for message in (b"0", b"1"):
            await alice.send(message)
        await asyncio.sleep(30)
        node = await world.node("bob")
        query_store = node.query_store
        asked: list[StoreQuery] = []

        async def endless(query: StoreQuery) -> StorePage:
            asked.append(query)
            page = await query_store(replace(query, cursor=None))
            return StorePage(page.messages, b"cursor %d" % len(asked))

        node.query_store = endless  # type: ignore[method-assign]
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(60)
        # What was asked for, and no more than three pages that add nothing to it.
        assert [query.cursor is None for query in asked if query.message_hashes] == [True, False, False, False]
        assert await alice.delivered(await alice.send(b"2")) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"message_hash": b""}, "message_hash is 0 bytes: it must be 1 to 64 bytes"),
        ({"message_hash": "ff"}, "message_hash is of type str: it must be 1 to 64 bytes"),
        ({"timestamp_ns": None}, "timestamp_ns is of type NoneType: it must be an int"),
        ({"envelope": "x"}, "envelope is of type str: it must be None or a MessageEnvelope with a payload of bytes"),
    ],
)
def test_a_store_that_gives_what_is_none_is_told_by_name_and_asked_again(
    change: dict[str, Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await alice.send(b"x")
        await asyncio.sleep(30)
        node = await world.node("bob")
        query_store, is_wrong = node.query_store, True

        async def changed(query: StoreQuery) -> StorePage:
            page = await query_store(query)
            if not is_wrong or ("message_hash" not in change and not query.message_hashes):
                return page
            return replace(page, messages=tuple(replace(stored, **change) for stored in page.messages))

        node.query_store = changed  # type: ignore[method-assign]
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(60)
        assert world.messages("bob") == []
        is_wrong = False
        await asyncio.sleep(120)

    assert run_world(scenario).messages("bob") == [b"x"]
    assert f"gave a StoredMessage whose {told}" in caplog.text


def test_a_late_joiner_gets_the_past_from_the_others_where_there_is_no_store() -> None:
    past = [b"first", b"second", bytes(250_000), b"fourth", b"fifth"]

    async def scenario(world: World) -> None:
        world.network.store_online = False
        alice = await world.join("alice")
        await world.join("bob")
        for message in past:
            await alice.send(message)
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        await world.join("carol")
        await asyncio.sleep(5)
        await alice.send(b"new")
        await asyncio.sleep(40)

    world = run_world(scenario)
    assert world.messages("carol") == [*past, b"new"]


def test_a_transport_time_of_the_future_does_not_hide_what_was_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    far_ns = 7_258_118_400 * 10**9

    async def scenario(world: World) -> None:
        await world.join("bob", on_disk=True)
        mallory = await world.node("mallory")
        with monkeypatch.context() as patch:
            patch.setattr(world.network, "next_timestamp_ns", lambda clock: far_ns)
            await mallory.send(MessageEnvelope(TOPIC, b"garbage"))
            await asyncio.sleep(1)
        await world.crash("bob")
        alice = await world.join("alice", STORE_ONLY)
        await alice.send(b"missed")
        await asyncio.sleep(5)
        await world.join("bob", STORE_ONLY, on_disk=True)
        await asyncio.sleep(5)

    assert run_world(scenario).messages("bob") == [b"missed"]


def test_what_becomes_irretrievable_in_one_moment_is_told_by_one_event() -> None:
    config = replace(STORE_ONLY, sds=replace(STORE_ONLY.sds, timeout_for_lost_messages_ms=20_000))

    async def scenario(world: World) -> None:
        world.network.store_online = False
        await world.join("bob", config)
        peer = await world.node("peer")
        named = [HistoryEntry(f"{number:032x}.0", None, "carol") for number in range(300)]
        sync = SdsMessage(
            sender_id="peer", message_id="sync-1", channel_id=CHANNEL, lamport_timestamp=5, causal_history=named
        )
        await peer.send(MessageEnvelope(TOPIC, sync.encode()))
        await asyncio.sleep(60)

    (event,) = run_world(scenario).of("bob", IrretrievableMessageEvent)
    assert isinstance(event, IrretrievableMessageEvent)
    assert event.history_entries == (event.history_entry, *event.others)
    assert {entry.message_id for entry in event.history_entries} == {f"{number:032x}.0" for number in range(300)}


class Locked:
    """A cipher whose key comes later."""

    has_key = False

    def encrypt(self, content: bytes) -> bytes:
        return content

    def decrypt(self, payload: bytes) -> bytes:
        if not self.has_key:
            raise DecryptionError("no key is held", reason="no key")
        return payload


def test_what_could_not_be_read_when_it_came_is_fetched_once_it_is_missing() -> None:
    cipher = Locked()

    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY, encryption=cipher)
        await alice.send(b"first")
        await asyncio.sleep(5)
        cipher.has_key = True
        # It names the first by its hash.
        await alice.send(b"second")
        await asyncio.sleep(30)

    assert run_world(scenario).messages("bob") == [b"first", b"second"]
