"""How a transport node finds out that a store has what it published."""

from __future__ import annotations

import asyncio
import logging

import pytest
from scripted_transport import OnTime, ScriptedTransport
from virtual_nodes import TOPIC, drain, virtual

from shardwire.node import MessageEnvelope, MessageSent, StorePage, StoreQuery
from shardwire.node.transport import TransportNode


async def publishing(count: int, **options: bool) -> tuple[ScriptedTransport, TransportNode, list[str]]:
    transport = ScriptedTransport(has_store=True, asks_store_for_presence=True)
    node = TransportNode(transport, rng=OnTime())
    await node.start()
    ids = [await node.send(MessageEnvelope(TOPIC, b"%d" % n, **options)) for n in range(count)]
    return transport, node, ids


@virtual
async def test_what_a_store_has_is_told_once() -> None:
    transport, node, ids = await publishing(3)
    events = node.events()
    await asyncio.sleep(0.5)
    assert transport.stored is not None
    hashes = [attempt.message_hash for attempt in transport.attempts]
    transport.stored.update(hashes[:2])
    await asyncio.sleep(1)
    assert transport.queries == [(1_000, 3)]
    transport.stored.add(hashes[2])
    await asyncio.sleep(60)
    assert transport.queries == [(1_000, 3), (4_000, 1)]
    told = [event for event in await drain(events) if isinstance(event, MessageSent)]
    assert told == [MessageSent(request_id, name) for request_id, name in zip(ids, hashes, strict=True)]


@virtual
async def test_what_a_store_never_has_is_forgotten() -> None:
    transport, _, _ = await publishing(1)
    await asyncio.sleep(600)
    assert [at_ms for at_ms, _ in transport.queries][-1] <= 62_000
    assert len(transport.queries) == 20


@virtual
async def test_many_are_asked_for_together() -> None:
    transport, _, _ = await publishing(250)
    await asyncio.sleep(1.6)
    assert [count for _, count in transport.queries] == [100, 100, 50]


@virtual
async def test_ephemeral_messages_are_in_no_store() -> None:
    transport, _, _ = await publishing(1, ephemeral=True)
    await asyncio.sleep(60)
    assert transport.queries == []


def test_a_store_that_fails_is_asked_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def run() -> None:
        transport, node, _ = await publishing(1)
        events = node.events()
        transport.stored = None
        await asyncio.sleep(40)
        times = [at_ms for at_ms, _ in transport.queries]
        assert times == [1_000, 4_000, 7_000, 11_500, 20_000, 30_500]
        transport.stored = {transport.attempts[0].message_hash}
        await asyncio.sleep(40)
        assert transport.queries[6:] == [(41_000, 1)]
        assert sum(isinstance(event, MessageSent) for event in await drain(events)) == 1

    with caplog.at_level(logging.INFO, "shardwire.node.transport.presence"):
        run()
    assert [record.getMessage() for record in caplog.records] == [
        "scripted: the store does not say what it has: the store is out of order"
    ]


class Raising(ScriptedTransport):
    """Raises at the first query, which is no error that a store has."""

    async def query_store(self, query: StoreQuery) -> StorePage:
        page = await super().query_store(query)
        if len(self.queries) == 1:
            raise ValueError("the answer is no JSON")
        return page


@virtual
async def test_what_a_transport_that_raised_was_asked_for_it_is_asked_for_again() -> None:
    transport = Raising(has_store=True, asks_store_for_presence=True)
    node = TransportNode(transport, rng=OnTime())
    await node.start()
    events = node.events()
    request_id = await node.send(MessageEnvelope(TOPIC, b""))
    await asyncio.sleep(0.5)
    assert transport.stored is not None
    transport.stored.add(transport.attempts[0].message_hash)
    await asyncio.sleep(10)
    told = [event.request_id for event in await drain(events) if isinstance(event, MessageSent)]
    assert told == [request_id]
    await node.stop()


class Hanging(ScriptedTransport):
    """Answers every query but the first."""

    async def query_store(self, query: StoreQuery) -> StorePage:
        page = await super().query_store(query)
        if len(self.queries) == 1:
            await asyncio.sleep(3_000)
        return page


def test_a_store_that_hangs_is_asked_again_and_each_failure_of_its_own_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @virtual
    async def run() -> None:
        transport = Hanging(has_store=True, asks_store_for_presence=True)
        node = TransportNode(transport, rng=OnTime())
        await node.start()
        await node.send(MessageEnvelope(TOPIC, b""))
        await asyncio.sleep(36)
        transport.stored = None
        await asyncio.sleep(4)
        assert [at_ms for at_ms, _ in transport.queries] == [1_000, 34_000, 37_000]
        await node.stop()

    with caplog.at_level(logging.INFO, "shardwire.node.transport.presence"):
        run()
    told = "scripted: the store does not say what it has: "
    assert [record.getMessage() for record in caplog.records] == [
        f"{told}no answer in time",
        f"{told}the store is out of order",
    ]


@virtual
async def test_of_too_many_the_oldest_are_not_asked_for() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardwire.node.transport.presence.MESSAGES_MAX", 3)
        transport, node, ids = await publishing(5)
        events = node.events()
        await asyncio.sleep(0.5)
        assert transport.stored is not None
        transport.stored.update(attempt.message_hash for attempt in transport.attempts)
        told = [event.request_id for event in await drain(events) if isinstance(event, MessageSent)]
        assert sorted(told) == ids[2:]
        await node.stop()
