"""When a channel asks a store again: not at every occasion, and after every life as a started channel."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world
from spied_store import spy

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.config import ChannelConfig, SdsConfig, SyncConfig
from shardwire.events import IrretrievableMessageEvent, MessageReceivedEvent
from shardwire.node import (
    ConnectionState,
    ConnectionStatus,
    MemoryNode,
    MessageEnvelope,
    StorePage,
    StoreQuery,
)
from shardwire.segmentation import SegmentationConfig, segment

# The sender never resends, and nobody repairs: what arrives late came from the store.
STORE_ONLY = ChannelConfig.logos(sds=SdsConfig(max_retransmissions=0, enable_repair=False))


def test_a_channel_that_was_stopped_offline_asks_once_it_starts_again() -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice", STORE_ONLY), await world.join("bob", STORE_ONLY)
        await asyncio.sleep(1)
        world.nodes["bob"].go_offline()
        await asyncio.sleep(1)
        await bob.stop()
        world.nodes["bob"].go_online()
        await alice.send(b"missed")
        await asyncio.sleep(1)
        await bob.start()
        await asyncio.sleep(10)

    assert run_world(scenario).messages("bob") == [b"missed"]


def naming(number: int, entries: list[HistoryEntry]) -> MessageEnvelope:
    """A message whose history names others."""
    message = SdsMessage(
        sender_id="peer",
        message_id=f"m{number}",
        channel_id=CHANNEL,
        lamport_timestamp=5 + number,
        causal_history=entries,
        content=segment(b"%d" % number, SegmentationConfig())[0],
    )
    return MessageEnvelope(TOPIC, message.encode())


def test_a_store_that_fails_is_left_alone_for_its_time_whatever_is_found_missing_meanwhile() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", STORE_ONLY)
        peer = await world.node("peer")
        await asyncio.sleep(30)
        queries = spy(world.nodes["bob"], fails=lambda: True)
        for number in range(60):
            await peer.send(naming(number, [HistoryEntry(f"never{number}", retrieval_hint=bytes([number]) * 32)]))
            await asyncio.sleep(1)
        assert 1 < len(queries) <= 8

    run_world(scenario)


def test_what_is_missing_is_asked_for_again_in_turn_and_by_one_query_in_a_period() -> None:
    config = replace(STORE_ONLY, sync=SyncConfig(retrieve_frequency_ms=10_000))

    async def scenario(world: World) -> None:
        await world.join("bob", config)
        peer = await world.node("peer")
        await asyncio.sleep(30)
        queries = spy(world.nodes["bob"])
        hints = [bytes([number]) * 32 for number in range(60)]
        await peer.send(naming(0, [HistoryEntry(f"never{hint[0]}", retrieval_hint=hint) for hint in hints]))
        await asyncio.sleep(45)
        asked = [query.message_hashes for query in queries if query.message_hashes]
        assert 6 <= len(asked) <= 8
        again = [each for batch in asked[3:6] for each in batch]
        assert sorted(again) == hints

    run_world(scenario)


def test_a_channel_that_was_stopped_while_a_store_was_being_asked_asks_once_it_starts_again() -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice", STORE_ONLY), await world.join("bob", STORE_ONLY)
        await asyncio.sleep(1)
        node = world.nodes["bob"]
        answer = node.query_store

        async def hang(query: StoreQuery) -> StorePage:
            await asyncio.sleep(1e6)
            return StorePage(())

        node.query_store = hang  # type: ignore[method-assign]
        node.go_offline()
        await alice.send(b"missed")
        await asyncio.sleep(1)
        node.go_online()
        await asyncio.sleep(1)
        await bob.stop()
        node.query_store = answer  # type: ignore[method-assign]
        await bob.start()
        await asyncio.sleep(10)

    assert run_world(scenario).messages("bob") == [b"missed"]


def test_one_query_of_the_topic_serves_all_that_is_found_missing_without_a_hint_for_a_while() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", STORE_ONLY)
        peer = await world.node("peer")
        await asyncio.sleep(30)
        queries = spy(world.nodes["bob"])
        for number in range(20):
            await peer.send(naming(number, [HistoryEntry(f"never{number}")]))
            await asyncio.sleep(1)
        of_topic = [query for query in queries if query.content_topics and query.cursor is None]
        assert 1 <= len(of_topic) <= 3

    run_world(scenario)


@pytest.mark.parametrize("has_data", [True, False])
def test_what_is_no_message_in_a_store_keeps_nothing_else_out(has_data: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        peer = await world.node("peer")
        await peer.send(MessageEnvelope(TOPIC, b"no message"))
        await asyncio.sleep(1)
        alice = await world.join("alice", STORE_ONLY)
        await alice.send(b"missed")
        await asyncio.sleep(30)
        node = await world.node("bob")
        query_store = node.query_store

        async def without(query: StoreQuery) -> StorePage:
            page = await query_store(query)
            kept = [each if each.envelope != envelope else replace(each, envelope=None) for each in page.messages]
            return replace(page, messages=tuple(kept))

        envelope = MessageEnvelope(TOPIC, b"no message")
        if not has_data:
            node.query_store = without  # type: ignore[method-assign]
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(10)

    assert run_world(scenario).messages("bob") == [b"missed"]
    assert "no store answered" not in caplog.text


@pytest.mark.parametrize("comes", [False, True])
def test_what_is_older_than_a_newcomer_holds_others_back_until_no_store_is_known_to_have_it(comes: bool) -> None:
    config = ChannelConfig.logos(sync=SyncConfig(query_on_connect=False))

    async def scenario(world: World) -> None:
        await world.join("bob", config)
        peer = await world.node("peer")
        await peer.send(naming(1, [HistoryEntry("m0")]))
        await asyncio.sleep(5)
        if comes:
            world.lose("peer", "bob", {0})
            await peer.send(naming(0, []))
        await asyncio.sleep(20)

    world = run_world(scenario)
    assert world.messages("bob") == ([b"0", b"1"] if comes else [b"1"])
    assert len(world.of("bob", IrretrievableMessageEvent)) == (not comes)


def test_intervals_that_never_end_ask_once() -> None:
    ever = (1 << 63) - 1
    config = replace(STORE_ONLY, sync=SyncConfig(retrieve_frequency_ms=ever, query_on_connect_interval_ms=ever))

    async def scenario(world: World) -> None:
        await world.join("bob", config)
        peer = await world.node("peer")
        await asyncio.sleep(30)
        queries = spy(world.nodes["bob"])
        entries = [HistoryEntry("hinted", retrieval_hint=bytes(32)), HistoryEntry("hintless")]
        await peer.send(naming(0, entries))
        await asyncio.sleep(1_000)
        by_hash, by_topic = queries
        assert by_hash.message_hashes
        assert by_topic.content_topics

    run_world(scenario)


@pytest.mark.parametrize("hint", [bytes(32), None], ids=["hint", "no hint"])
@pytest.mark.parametrize("fails", [False, True])
def test_who_waits_to_ask_a_store_again_sleeps(
    hint: bytes | None, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def has_store(node: MemoryNode) -> bool:
        nonlocal looks
        looks += 1
        return True

    async def scenario(world: World) -> None:
        nonlocal looks
        await world.join("bob", STORE_ONLY)
        peer = await world.node("peer")
        await asyncio.sleep(30)
        spy(world.nodes["bob"], fails=lambda: fails)
        monkeypatch.setattr(MemoryNode, "has_store", property(has_store))
        await peer.send(naming(0, [HistoryEntry("never", retrieval_hint=hint)]))
        await asyncio.sleep(30)
        assert 0 < looks < 100

    run_world(scenario)


def test_what_is_found_missing_is_asked_for_at_once_though_as_much_was_found_meanwhile() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob", STORE_ONLY)
        peer = await world.node("peer")
        await asyncio.sleep(30)
        queries = spy(world.nodes["bob"])
        first, second, third = (bytes([number]) * 32 for number in range(3))
        await peer.send(naming(1, [HistoryEntry("m0", retrieval_hint=first), HistoryEntry("x", retrieval_hint=second)]))
        await asyncio.sleep(1)
        await peer.send(naming(0, []))
        await peer.send(naming(2, [HistoryEntry("y", retrieval_hint=third)]))
        await asyncio.sleep(1)
        asked = [query.message_hashes for query in queries]
        assert third in asked[-1]
        # Later all that is missing, and nothing else.
        await asyncio.sleep(30)
        assert {each for query in queries[len(asked) :] for each in query.message_hashes} == {second, third}

    run_world(scenario)


def test_a_node_that_is_connected_better_than_before_is_asked_at_once() -> None:
    """A store may be in reach that was not."""

    async def scenario(world: World) -> None:
        await world.join("bob", STORE_ONLY)
        await asyncio.sleep(30)
        queries = spy(world.nodes["bob"])
        world.nodes["bob"]._streams.put(ConnectionStatus(ConnectionState.PARTIALLY_CONNECTED))
        await asyncio.sleep(5)
        assert not queries
        world.nodes["bob"]._streams.put(ConnectionStatus(ConnectionState.CONNECTED))
        await asyncio.sleep(5)
        assert len(queries) == 1

    run_world(scenario)


@pytest.mark.parametrize("asks", [True, False])
def test_who_was_offline_goes_on_to_ask_for_what_is_missing(asks: bool) -> None:
    """Whether or not it asks for what passed by."""
    config = replace(STORE_ONLY, sync=SyncConfig(query_on_connect=asks))

    async def scenario(world: World) -> None:
        await world.join("bob", config)
        peer = await world.node("peer")
        await peer.send(naming(0, []))
        await asyncio.sleep(1)
        await peer.send(naming(1, [HistoryEntry("gone", retrieval_hint=bytes(32))]))
        await asyncio.sleep(1)
        world.nodes["bob"].go_offline()
        await asyncio.sleep(60)
        world.nodes["bob"].go_online()
        queries = spy(world.nodes["bob"])
        await asyncio.sleep(60)
        assert len([query for query in queries if query.message_hashes]) > 3

    run_world(scenario)


def test_while_the_application_takes_nothing_more_no_store_is_asked() -> None:
    config = replace(STORE_ONLY, sds=replace(STORE_ONLY.sds, incoming_buffer_messages_max=10))
    taken: list[bytes] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        bob = await world.join("bob", config, listen=False)
        taking = asyncio.Event()

        async def take(event: MessageReceivedEvent) -> None:
            await taking.wait()
            taken.append(event.message)

        bob.on_message_received(take)
        await asyncio.sleep(30)
        for number in range(60):
            await alice.send(b"%d" % number)
        await asyncio.sleep(30)
        queries = spy(world.nodes["bob"])
        await asyncio.sleep(900)
        assert not queries
        taking.set()
        await asyncio.sleep(60)

    run_world(scenario)
    assert len(taken) == 60
