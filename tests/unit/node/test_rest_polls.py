"""Polls of a node whose readers are behind, what they leave behind and may have missed, and the store that is asked."""

from __future__ import annotations

import asyncio

import pytest
from stub_waku_node import STORE_PEER, StubHttp, StubNetwork, StubNode
from virtual_nodes import TOPIC, drain, virtual

from shardwire.node import MessageEnvelope, MessagesMissed, NodeEvent, StoreQuery, running_clock
from shardwire.node.event_stream import EventStream
from shardwire.node.rest import topic_poll
from shardwire.node.rest.rest_store import RestStore, StoreSettings
from shardwire.node.rest.transport import RestTransport
from shardwire.node.rest.waku_api import STORE, WakuApi, WakuPeer
from shardwire.node.transport import TransportNode


async def started(
    stub: StubNode, *, settings: StoreSettings | None = None, light: bool | None = None
) -> tuple[TransportNode, EventStream]:
    node = TransportNode(RestTransport("stub", StubHttp(stub), settings or StoreSettings(), light))
    await node.start()
    events = node.events()
    await node.subscribe([TOPIC])
    return node, events


def missed(events: list[NodeEvent]) -> list[int]:
    return [event.since_ns for event in events if isinstance(event, MessagesMissed)]


@virtual
async def test_of_two_reasons_why_messages_passed_by_the_earlier_counts() -> None:
    stub = StubNode(StubNetwork(), light=True)
    node, events = await started(stub)
    await asyncio.sleep(20)
    forgot_ns = running_clock().epoch_ns()
    # Which the next ping finds, while no poll succeeds.
    stub.filters.clear()
    await asyncio.sleep(2)
    stub.fault, stub.fault_paths = "error", ("/filter/v2/messages/",)
    await asyncio.sleep(20)
    assert len(stub.filters) == 1
    stub.fault = None
    await asyncio.sleep(2)
    (since_ns,) = missed(await drain(events))
    assert since_ns <= forgot_ns
    await node.stop()


@virtual
async def test_a_queue_that_holds_only_echoes_is_emptied_too_before_it_is_given_up() -> None:
    stub = StubNode(StubNetwork(), answer_messages_max=2)
    node, _ = await started(stub)
    await asyncio.sleep(10)
    for number in range(9):
        await node.send(MessageEnvelope(TOPIC, b"%d" % number))
    await node.stop()
    assert (stub.queues, stub.given_up_full) == ({}, 0)


def test_readers_that_are_behind_are_brought_no_more_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_poll, "BACKLOG_BYTES_MAX", 1_000)

    @virtual
    async def run() -> None:
        network = StubNetwork()
        stub = StubNode(network)
        alice, unread = await started(stub)
        bob, _ = await started(StubNode(network))
        await bob.send(MessageEnvelope(TOPIC, bytes(1_000)))
        await asyncio.sleep(1)
        assert alice.counts["received"] == 1
        polls = stub.count("GET", "/relay")
        await asyncio.sleep(topic_poll.BACKLOG_WAIT_MS / 1_000 - 2)
        assert stub.count("GET", "/relay") == polls
        # For ever nobody waits: the node's queue would run over.
        await asyncio.sleep(topic_poll.BACKLOG_WAIT_MS / 1_000)
        assert 1 <= stub.count("GET", "/relay") - polls <= 2
        await drain(unread)
        await asyncio.sleep(5)
        assert stub.count("GET", "/relay") - polls > 10
        await alice.stop()
        await bob.stop()

    run()


@virtual
async def test_another_node_that_is_asked_for_what_is_stored_is_identified_once_and_left_at_the_end() -> None:
    network = StubNetwork()
    store = StubNode(network, "logos-delivery")
    http = StubHttp(store)
    node, _ = await started(StubNode(network), settings=StoreSettings(http=http))
    await node.query_store(StoreQuery(content_topics=(TOPIC,)))
    before = len(store.requests)
    await node.query_store(StoreQuery(content_topics=(TOPIC,)))
    assert [path for _, path in store.requests[before:]] == ["/store/v3/messages"]
    await node.stop()
    assert http.closed


def test_a_store_that_the_node_is_not_connected_to_is_not_in_reach() -> None:
    http = StubHttp(StubNode(StubNetwork()))
    store = RestStore("stub", StoreSettings(), WakuApi(http, "stub"), lambda: False, lambda: None)
    for connected in (False, True, False):
        store.judge_peers([WakuPeer(STORE_PEER, (f"{STORE}3.0.0",), connected)])
        assert store.in_reach(0) is connected
