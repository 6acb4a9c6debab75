"""The queues of a node's readers: bounded, each by itself, and ended with the node."""

from __future__ import annotations

import asyncio
import gc

import pytest
from virtual_nodes import OTHER_TOPIC, TOPIC, virtual

from shardwire.node import MessageEnvelope, MessageReceived, MessageSent, MessagesMissed
from shardwire.node import event_stream as event_stream_module
from shardwire.node.event_stream import EventStream
from shardwire.node.event_streams import EventStreams


def received(size_bytes: int = 1) -> MessageReceived:
    return MessageReceived(MessageEnvelope(TOPIC, bytes(size_bytes)), bytes(32), 1)


def outcome(number: int = 0) -> MessageSent:
    return MessageSent(f"request {number}", bytes(32))


@virtual
async def test_messages_and_outcomes_have_room_of_their_own_which_reading_gives_back() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_stream_module, "RECEIVED_MESSAGES_MAX", 3)
        patch.setattr(event_stream_module, "OUTCOMES_MAX", 2)
        stream = EventStream()
        for _ in range(3):
            assert [stream.put(received()) for _ in range(4)] == [True, True, True, False]
            assert not stream.outcomes_full()
            assert [stream.put(outcome()) for _ in range(3)] == [True, True, False]
            assert stream.outcomes_full()
            for _ in range(5):
                await anext(stream)
        assert stream.refused == 6


@virtual
async def test_messages_have_room_by_their_bytes() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_stream_module, "RECEIVED_BYTES_MAX", 10)
        stream = EventStream()
        for _ in range(2):
            assert [stream.put(received(size)) for size in (4, 6, 1, 0)] == [True, True, False, True]
            assert stream.received_bytes == 10
            for _ in range(3):
                await anext(stream)
            assert stream.received_bytes == 0


@virtual
async def test_the_end_wakes_who_waits_and_leaves_what_is_queued() -> None:
    waiting, queued, closed = EventStream(), EventStream(), EventStream()
    queued.put(received())
    closed.put(received())

    async def read(stream: EventStream) -> int:
        return len([event async for event in stream])

    reading = asyncio.create_task(read(waiting))
    await asyncio.sleep(1)
    for stream in (waiting, queued):
        stream.end()
    await closed.aclose()
    assert not queued.put(outcome())
    async with asyncio.timeout(1):
        assert [await reading, await read(queued), await read(closed)] == [0, 1, 0]
    assert closed.received_bytes == 0


@virtual
async def test_that_messages_were_missed_may_be_told_again_once_it_was_read() -> None:
    stream = EventStream()
    stream.put(MessagesMissed(5))
    stream.missed_told = True
    await anext(stream)
    assert not stream.missed_told


@virtual
async def test_what_is_given_soon_comes_once_in_order_to_those_who_were_there() -> None:
    streams = EventStreams("node")
    readers = [streams.open(), streams.open()]
    for number in range(3):
        streams.put_soon(outcome(2 * number), outcome(2 * number + 1))
    late = streams.open()
    await asyncio.sleep(0)
    streams.put_soon(outcome(6))
    await asyncio.sleep(0)
    streams.end()
    assert [[event async for event in reader] for reader in readers] == [[outcome(number) for number in range(7)]] * 2
    assert [event async for event in late] == [outcome(6)]


@virtual
async def test_the_slowest_reader_counts_and_one_that_nobody_holds_is_forgotten() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_stream_module, "OUTCOMES_MAX", 2)
        streams = EventStreams("node")
        assert streams.backlog_bytes() == 0
        slow, quick = streams.open(), streams.open()
        streams.put(received(7), outcome(), outcome())
        for _ in range(3):
            await anext(quick)
        assert streams.backlog_bytes() == 7
        assert streams.outcomes_full()
        del slow
        gc.collect()
        assert streams.live() == [quick]
        assert len(streams._streams) == 1
        assert streams.backlog_bytes() == 0
        assert not streams.outcomes_full()


@virtual
async def test_what_is_of_one_topic_goes_to_who_wants_that_or_all() -> None:
    streams = EventStreams("node")
    everything, wanting, other = streams.open(), streams.open(), streams.open()
    wanting.content_topic, other.content_topic = TOPIC, OTHER_TOPIC
    assert streams.put_received(received(5)) == (2, [])
    assert [reader.received_bytes for reader in (everything, wanting, other)] == [5, 5, 0]
    streams.put(outcome(1), content_topic=TOPIC)
    streams.put(MessagesMissed(5))
    streams.put_soon(outcome(2), content_topic=TOPIC)
    await asyncio.sleep(0)
    streams.end()
    told = [received(5), outcome(1), MessagesMissed(5), outcome(2)]
    assert [[event async for event in reader] for reader in (everything, wanting)] == [told, told]
    assert [event async for event in other] == [MessagesMissed(5)]
