"""What waits when a node stops, when a minute is over, and when several attempts under way say different things."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import pytest
from scripted_transport import OnTime, ScriptedTransport
from virtual_nodes import TOPIC, virtual

from shardwire.node import MessageEnvelope, MessagePropagated, MessageSendError
from shardwire.node.event_stream import EventStream
from shardwire.node.transport import Answer, OutgoingMessage, Passing, PassingUntil, Published, TransportNode
from shardwire.node.transport import outbox as outbox_module


async def started(transport: ScriptedTransport) -> tuple[TransportNode, EventStream]:
    node = TransportNode(transport, rng=OnTime())
    await node.start()
    return node, node.events()


async def send(node: TransportNode, count: int) -> list[str]:
    return [await node.send(MessageEnvelope(TOPIC, b"%d" % number)) for number in range(count)]


async def told(events: EventStream) -> tuple[list[str], list[str]]:
    """The requests that were propagated and that failed, up to the end of the stream."""
    propagated: list[str] = []
    failed: list[str] = []
    async for event in events:
        if isinstance(event, MessagePropagated):
            propagated.append(event.request_id)
        elif isinstance(event, MessageSendError):
            failed.append(event.request_id)
    return propagated, failed


@virtual
async def test_a_node_that_stops_publishes_all_that_waits_whatever_was_published_before() -> None:
    transport = ScriptedTransport()
    node, events = await started(transport)
    first = await send(node, 1)
    await asyncio.sleep(1)
    transport.answers.extend([100, 100, 100])
    rest = await send(node, 3)
    await node.stop()
    assert await told(events) == (first + rest, [])


@virtual
async def test_what_is_left_when_a_node_stops_fails_in_order() -> None:
    transport = ScriptedTransport(publishes_at_once=12)
    transport.answers.extend([9_000] * 12)
    node, events = await started(transport)
    ids = await send(node, 20)
    await asyncio.sleep(1)
    await node.stop(drain_timeout_ms=0)
    assert await told(events) == ([], ids)


@dataclass
class Stubborn(ScriptedTransport):
    """One that says of an attempt that is cancelled that it was published."""

    async def publish(self, message: OutgoingMessage) -> Answer:
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
        return Published()


@virtual
async def test_an_attempt_that_is_published_while_it_is_cancelled_is_told_once() -> None:
    node, events = await started(Stubborn())
    ids = await send(node, 1)
    await asyncio.sleep(1)
    await node.stop(drain_timeout_ms=0)
    assert await told(events) == (ids, [])


@virtual
async def test_every_message_is_answered_for_at_the_end_of_its_minute_and_no_attempt_goes_on_beyond_it() -> None:
    hangs = ScriptedTransport(publish_timeout_ms=300_000)
    hangs.answers.extend([290_000])
    refuses = ScriptedTransport()
    refuses.answers.extend([Passing("no peers")] * 100)
    for transport in (hangs, refuses):
        node, events = await started(transport)
        began_ms = transport.link.clock.monotonic_ms()
        failed_ms: list[int] = []
        for _ in range(2):
            (request_id,) = await send(node, 1)
            transport.answers.extend([290_000] if transport is hangs else [])
            async for event in events:
                if isinstance(event, MessageSendError):
                    assert event.request_id == request_id
                    failed_ms.append(transport.link.clock.monotonic_ms() - began_ms)
                    break
            await asyncio.sleep(5)
        assert failed_ms == [55_000, 115_000]
        await node.stop(drain_timeout_ms=0)


@virtual
async def test_one_that_is_published_ends_the_pause_of_another_that_failed() -> None:
    transport = ScriptedTransport(publishes_at_once=2)
    transport.answers.extend([Passing("no peers"), 100])
    node, _ = await started(transport)
    await send(node, 2)
    await asyncio.sleep(0.2)
    assert [(attempt.at_ms, attempt.payload) for attempt in transport.attempts] == [(0, b"0"), (0, b"1"), (100, b"0")]
    await node.stop()


@virtual
async def test_one_that_fails_while_a_quota_is_waited_for_does_not_end_the_wait() -> None:
    transport = ScriptedTransport(publishes_at_once=2)
    transport.answers.extend([PassingUntil("the quota is used up", 20_000), (100, Passing("no peers"))])
    node, _ = await started(transport)
    await send(node, 2)
    await asyncio.sleep(30)
    assert [attempt.at_ms for attempt in transport.attempts] == [0, 0, 20_000, 20_000]
    await node.stop()


@virtual
async def test_what_is_published_takes_no_room_any_more() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox_module, "BYTES_MAX", 100)
        node, events = await started(ScriptedTransport())
        for _ in range(3):
            await node.send(MessageEnvelope(TOPIC, bytes(90)))
            await asyncio.sleep(1)
        await node.stop()
        propagated, failed = await told(events)
        assert (len(propagated), failed) == (3, [])


@virtual
async def test_one_that_is_published_while_a_quota_is_waited_for_does_not_end_the_wait() -> None:
    transport = ScriptedTransport(publishes_at_once=2)
    transport.answers.extend([PassingUntil("the quota is used up", 20_000), 100])
    node, _ = await started(transport)
    await send(node, 3)
    await asyncio.sleep(30)
    assert [attempt.at_ms for attempt in transport.attempts] == [0, 0, 20_000, 20_000]
    await node.stop()


def test_an_attempt_that_the_stop_ends_is_no_failure_of_the_network(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def run() -> None:
        transport = ScriptedTransport()
        transport.answers.append(9_000)
        node, events = await started(transport)
        ids = await send(node, 1)
        await asyncio.sleep(1)
        await node.stop(drain_timeout_ms=0)
        assert await told(events) == ([], ids)

    with caplog.at_level(logging.INFO, "shardwire"):
        run()
    assert [record.getMessage() for record in caplog.records if "publish" in record.getMessage()] == []
