"""One memory node as the `Node` protocol: life cycle, sending, events, the size limit."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shardwire._native import WakuMessage, message_hash, shard_of
from shardwire.errors import ConfigError, NodeError
from shardwire.node import (
    ConnectionStatus,
    MemoryNetwork,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSent,
    NetworkConditions,
    NodeConfig,
    StoreQuery,
    VirtualClock,
)
from shardwire.node.waku_message import encoded_size_bytes
from tests.virtual_nodes import OTHER_TOPIC, TOPIC, drain, start, virtual


@virtual
async def test_a_send_is_propagated_then_stored_and_carries_the_hash_of_waku() -> None:
    network = MemoryNetwork()
    alice, bob = await start(network, "alice"), await start(network, "bob", TOPIC)
    sent, received = alice.events(), bob.events()
    envelope = MessageEnvelope(TOPIC, b"payload", meta=b"marker")
    request_id = await alice.send(envelope)
    propagated, stored = await drain(sent)
    (arrived,) = await drain(received)
    assert isinstance(arrived, MessageReceived)
    expected = message_hash(
        pubsub_topic=f"/waku/2/rs/1/{shard_of(TOPIC, 8)}",
        payload=b"payload",
        content_topic=TOPIC,
        meta=b"marker",
        timestamp_ns=arrived.timestamp_ns,
    )
    assert propagated == MessagePropagated(request_id, expected)
    assert stored == MessageSent(request_id, expected)
    assert arrived == MessageReceived(envelope, expected, arrived.timestamp_ns)
    assert network.trace[0].request_id == request_id
    assert network.trace[0].stored
    by_hand = hashlib.sha256(
        f"/waku/2/rs/1/{shard_of(TOPIC, 8)}".encode()
        + b"payload"
        + TOPIC.encode()
        + b"marker"
        + arrived.timestamp_ns.to_bytes(8, "big")
    )
    assert expected == by_hand.digest()


@virtual
async def test_equal_messages_of_one_instant_have_different_hashes() -> None:
    network = MemoryNetwork()
    nodes = [await start(network, name, TOPIC) for name in ("alice", "bob", "carol")]
    for _ in range(50):
        for node in nodes:
            await node.send(MessageEnvelope(TOPIC, b"same"))
    assert len({record.message_hash for record in network.trace}) == 150
    assert len({record.timestamp_ns for record in network.trace}) == 150


@virtual
async def test_timestamps_follow_a_clock_that_steps_back() -> None:
    network = MemoryNetwork()
    clock = VirtualClock()
    alice = network.create_node("alice", clock=clock)
    await alice.start()
    for _ in range(3):
        await alice.send(MessageEnvelope(TOPIC, b"before"))
    clock.step(-3_600_000)
    await alice.send(MessageEnvelope(TOPIC, b"after"))
    first, *_, last = network.trace
    assert first.timestamp_ns - last.timestamp_ns == 3_600_000 * 1_000_000
    assert first.time_ns == last.time_ns


@virtual
async def test_own_messages_are_heard_only_where_subscribed() -> None:
    network = MemoryNetwork(NetworkConditions(loss=1.0))
    alice = await start(network, "alice", TOPIC)
    stream = alice.events()
    await alice.send(MessageEnvelope(TOPIC, b"heard"))
    await alice.send(MessageEnvelope(OTHER_TOPIC, b"not heard"))
    received = [event for event in await drain(stream) if isinstance(event, MessageReceived)]
    assert [event.envelope.payload for event in received] == [b"heard"]


@virtual
async def test_a_text_is_no_list_of_topics() -> None:
    node = MemoryNetwork().create_node("a")
    await node.start()
    for call in (node.subscribe, node.unsubscribe):
        with pytest.raises(ConfigError, match=r"the text '/app/1/t/proto': give a list, \['/app/1/t/proto'\]"):
            await call("/app/1/t/proto")
    await node.stop()


@virtual
async def test_a_topic_that_no_utf_8_has_is_refused() -> None:
    node = MemoryNetwork().create_node("a")
    await node.start()
    topic = "/app/1/\ud800/proto"
    with pytest.raises(ConfigError, match=r"the content topic '/app/1/\\ud800/proto' cannot be encoded as UTF-8"):
        await node.subscribe([topic])
    with pytest.raises(ConfigError, match="cannot be encoded as UTF-8"):
        await node.send(MessageEnvelope(topic, b"x"))
    await node.stop()


@virtual
async def test_every_stream_sees_every_event_since_it_was_made() -> None:
    network = MemoryNetwork()
    alice, bob = await start(network, "alice"), await start(network, "bob", TOPIC)
    early = bob.events()
    await alice.send(MessageEnvelope(TOPIC, b"1"))
    late, closed = bob.events(), bob.events()
    await closed.aclose()
    await alice.send(MessageEnvelope(TOPIC, b"2"))
    assert len(await drain(early)) == 2
    assert len(await drain(late)) == 1
    assert [event async for event in closed] == []


@virtual
async def test_streams_end_after_what_is_queued_when_the_node_stops() -> None:
    network = MemoryNetwork()
    alice, bob = await start(network, "alice"), await start(network, "bob", TOPIC)
    stream = bob.events()
    await alice.send(MessageEnvelope(TOPIC, b"1"))
    await bob.stop()
    await bob.stop()
    kinds = [type(event) async for event in stream]
    assert kinds == [MessageReceived, ConnectionStatus]
    assert [event async for event in bob.events()] == []


@virtual
async def test_a_reader_cancelled_while_waiting_loses_nothing() -> None:
    network = MemoryNetwork()
    alice, bob = await start(network, "alice"), await start(network, "bob", TOPIC)
    stream = bob.events()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream.__anext__(), 1)
    await alice.send(MessageEnvelope(TOPIC, b"1"))
    assert len(await drain(stream)) == 1


@virtual
async def test_a_node_that_is_not_started_refuses() -> None:
    node = MemoryNetwork().create_node("alice")
    envelope = MessageEnvelope(TOPIC, b"payload")
    calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: node.send(envelope),
        lambda: node.subscribe([TOPIC]),
        lambda: node.unsubscribe([TOPIC]),
        lambda: node.query_store(StoreQuery()),
    ]
    for call in calls:
        with pytest.raises(NodeError, match="is not started"):
            await call()
    await node.start()
    await node.start()
    await node.stop()
    for call in calls:
        with pytest.raises(NodeError, match="was stopped: create a new one"):
            await call()


@virtual
async def test_malformed_topics_are_refused() -> None:
    node = await start(MemoryNetwork(), "alice")
    with pytest.raises(ConfigError):
        await node.subscribe([TOPIC, "room"])
    assert node.subscriptions == ()
    with pytest.raises(ConfigError):
        await node.send(MessageEnvelope("room", b"payload"))


@virtual
async def test_the_size_limit_is_that_of_the_encoded_message() -> None:
    network = MemoryNetwork()
    alice = await start(network, "alice", config=NodeConfig(max_message_size_bytes=1_000))
    overhead = encoded_size_bytes(MessageEnvelope(TOPIC, b"x" * 900), 1_767_225_600_000_000_000) - 900
    await alice.send(MessageEnvelope(TOPIC, b"x" * (1_000 - overhead)))
    assert network.trace[0].size_bytes == 1_000
    with pytest.raises(NodeError, match="is 1001 bytes, node 'alice' carries 1000"):
        await alice.send(MessageEnvelope(TOPIC, b"x" * (1_001 - overhead)))
    with pytest.raises(NodeError, match="meta is 65 bytes"):
        await alice.send(MessageEnvelope(TOPIC, b"x", meta=b"m" * 65))
    assert len(network.trace) == 1


@pytest.mark.parametrize("length", [0, 1, 127, 128, 16_383, 16_384, 102_400, 2_097_152])
@pytest.mark.parametrize("meta", [b"", b"m", b"m" * 64])
@pytest.mark.parametrize("ephemeral", [False, True])
def test_the_encoded_size_is_exact(length: int, meta: bytes, ephemeral: bool) -> None:
    for timestamp_ns in (0, 63, 64, 1_767_225_600_000_000_000, (1 << 62) - 1):
        envelope = MessageEnvelope(TOPIC + "\u00e9", b"x" * length, ephemeral, meta)
        encoded = WakuMessage(
            payload=envelope.payload,
            content_topic=envelope.content_topic,
            timestamp_ns=timestamp_ns,
            meta=meta or None,
            ephemeral=ephemeral or None,
        ).encode()
        assert encoded_size_bytes(envelope, timestamp_ns) == len(encoded)
