"""One memory node as the `Node` protocol: life cycle, sending, events, limits, the store."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shardwire._native import WakuMessage, message_hash, shard_of
from shardwire.errors import ConfigError, NodeError
from shardwire.node import (
    ConnectionState,
    ConnectionStatus,
    MemoryNetwork,
    MemoryNode,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSendError,
    MessageSent,
    NetworkConditions,
    Node,
    NodeConfig,
    NodeEvent,
    StoreQuery,
    VirtualClock,
    run_virtual,
)
from shardwire.node.event_stream import EventStream
from shardwire.node.memory import encoded_size_bytes

TOPIC = "/test/1/room/proto"
OTHER_TOPIC = "/test/1/other/proto"


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a coroutine function as a plain test in virtual time."""

    def run() -> None:
        run_virtual(test(), limit_ms=3_600_000)

    run.__name__ = test.__name__
    return run


async def start(network: MemoryNetwork, name: str, *topics: str, config: NodeConfig | None = None) -> MemoryNode:
    node = network.create_node(name, config)
    await node.start()
    await node.subscribe(topics)
    return node


async def drain(stream: EventStream) -> list[NodeEvent]:
    """Everything that is in the stream once a second passed."""
    await asyncio.sleep(1)
    events = []
    while True:
        try:
            events.append(await asyncio.wait_for(stream.__anext__(), 0.001))
        except TimeoutError:
            return events


@virtual
async def test_it_is_a_node() -> None:
    assert isinstance(MemoryNetwork().create_node("alice"), Node)


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
async def test_topics_are_heard_from_subscribe_to_unsubscribe() -> None:
    network = MemoryNetwork()
    alice, bob = await start(network, "alice"), await start(network, "bob", TOPIC, OTHER_TOPIC)
    stream = bob.events()
    await alice.send(MessageEnvelope(TOPIC, b"1"))
    await bob.unsubscribe([TOPIC, "/never/1/subscribed/proto"])
    await alice.send(MessageEnvelope(TOPIC, b"2"))
    await alice.send(MessageEnvelope(OTHER_TOPIC, b"3"))
    payloads = [event.envelope.payload for event in await drain(stream) if isinstance(event, MessageReceived)]
    assert payloads == [b"1", b"3"]
    assert bob.subscriptions == (OTHER_TOPIC,)


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
        with pytest.raises(NodeError, match="was stopped"):
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


@virtual
async def test_connection_status_is_reported_on_change_only() -> None:
    network = MemoryNetwork()
    alice = network.create_node("alice")
    stream = alice.events()
    await alice.start()
    bob = await start(network, "bob")
    carol = await start(network, "carol")
    await asyncio.sleep(1)
    network.store_online = False
    await asyncio.sleep(1)
    network.partition([{"alice"}, {"bob"}])
    await asyncio.sleep(1)
    network.heal()
    network.store_online = True
    await asyncio.sleep(1)
    alice.go_offline()
    alice.go_offline()
    await asyncio.sleep(1)
    alice.go_online()
    bob.go_offline()
    await carol.stop()
    states = [event.state for event in await drain(stream) if isinstance(event, ConnectionStatus)]
    full, part, none = (
        ConnectionState.CONNECTED,
        ConnectionState.PARTIALLY_CONNECTED,
        ConnectionState.DISCONNECTED,
    )
    assert states == [part, full, part, none, part, full, none, full, part]
    assert alice.connection_state is part
    assert bob.connection_state is none


@virtual
async def test_a_network_without_a_store_is_connected_by_neighbours_alone() -> None:
    network = MemoryNetwork(store=False)
    alice = await start(network, "alice")
    assert alice.connection_state is ConnectionState.DISCONNECTED
    await start(network, "bob")
    assert alice.connection_state is ConnectionState.CONNECTED
    with pytest.raises(NodeError, match="no store"):
        await alice.query_store(StoreQuery())
    with pytest.raises(ConfigError, match="store=False"):
        network.store_online = True


@virtual
async def test_what_is_sent_offline_leaves_on_reconnection_with_its_own_timestamp() -> None:
    network = MemoryNetwork()
    alice, bob = await start(network, "alice"), await start(network, "bob", TOPIC)
    sent, received = alice.events(), bob.events()
    alice.go_offline()
    request_ids = [await alice.send(MessageEnvelope(TOPIC, bytes([number]))) for number in range(3)]
    assert [type(event) for event in await drain(sent)] == [ConnectionStatus]
    assert network.trace == []
    alice.go_online()
    events = await drain(sent)
    assert [event.request_id for event in events if isinstance(event, MessagePropagated)] == request_ids
    payloads = [event.envelope.payload for event in await drain(received) if isinstance(event, MessageReceived)]
    assert payloads == [b"\x00", b"\x01", b"\x02"]
    assert all(record.time_ns - record.timestamp_ns > 900_000_000 for record in network.trace)
    await asyncio.sleep(100)
    assert not any(isinstance(event, MessageSendError) for event in await drain(sent))


@virtual
async def test_what_finds_no_neighbour_for_a_minute_is_given_up() -> None:
    network = MemoryNetwork(store=False)
    alice = await start(network, "alice")
    sent = alice.events()
    request_id = await alice.send(MessageEnvelope(TOPIC, b"alone"))
    await asyncio.sleep(59)
    assert sent._events == type(sent._events)()
    (error,) = await drain(sent)
    assert isinstance(error, MessageSendError)
    assert error.request_id == request_id
    assert error.error == "nobody was in reach for 60000 ms"
    await start(network, "bob", TOPIC)
    assert network.trace == []


@virtual
async def test_the_outbox_is_bounded() -> None:
    network = MemoryNetwork(store=False)
    alice = await start(network, "alice")
    for _ in range(1_024):
        await alice.send(MessageEnvelope(TOPIC, b"waits"))
    with pytest.raises(NodeError, match="1024 envelopes of node 'alice' wait"):
        await alice.send(MessageEnvelope(TOPIC, b"one more"))


@virtual
async def test_a_reported_fault_of_the_node_is_final() -> None:
    network = MemoryNetwork()
    alice = await start(network, "alice")
    sent = alice.events()
    alice.send_fault = lambda envelope: "could not prove the rate limit"
    request_id = await alice.send(MessageEnvelope(TOPIC, b"payload"))
    (error,) = await drain(sent)
    assert isinstance(error, MessageSendError)
    assert (error.request_id, error.error) == (request_id, "could not prove the rate limit")
    assert network.trace == []


def test_a_reader_too_slow_loses_messages_but_no_outcomes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shardwire.node.event_stream.RECEIVED_MESSAGES_MAX", 10)

    async def main() -> None:
        network = MemoryNetwork()
        alice, bob = await start(network, "alice", TOPIC), await start(network, "bob", TOPIC)
        slow = bob.events()
        for number in range(25):
            await alice.send(MessageEnvelope(TOPIC, bytes([number])))
        request_id = await bob.send(MessageEnvelope(OTHER_TOPIC, b"own"))
        events = await drain(slow)
        assert [event.envelope.payload for event in events if isinstance(event, MessageReceived)] == [
            bytes([number]) for number in range(10)
        ]
        assert slow.refused == 15
        assert [event.request_id for event in events if isinstance(event, MessagePropagated)] == [request_id]
        fates = [record.outcomes[0].outcome for record in network.trace if record.outcomes]
        assert fates == ["delivered"] * 10 + ["overflow"] * 15

    with caplog.at_level(logging.WARNING, "shardwire"):
        run_virtual(main())
    assert [record.getMessage() for record in caplog.records] == [
        "node bob: events are read too slowly, received messages are being lost"
    ]


def test_a_slow_reader_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwire.node.event_stream.RECEIVED_BYTES_MAX", 1_000)

    async def main() -> None:
        network = MemoryNetwork()
        alice, bob = await start(network, "alice"), await start(network, "bob", TOPIC)
        slow = bob.events()
        for _ in range(5):
            await alice.send(MessageEnvelope(TOPIC, bytes(400)))
        assert len(await drain(slow)) == 2
        await alice.send(MessageEnvelope(TOPIC, bytes(1_000)))
        assert len(await drain(slow)) == 1

    run_virtual(main())


def test_sending_without_reading_outcomes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwire.node.event_stream.OUTCOMES_MAX", 10)

    async def main() -> None:
        network = MemoryNetwork()
        alice = await start(network, "alice")
        stream = alice.events()
        for _ in range(5):
            await alice.send(MessageEnvelope(TOPIC, b"payload"))
        await asyncio.sleep(1)
        with pytest.raises(NodeError, match="nobody reads the events"):
            await alice.send(MessageEnvelope(TOPIC, b"payload"))
        assert len(await drain(stream)) == 10
        await alice.send(MessageEnvelope(TOPIC, b"payload"))
        # An abandoned stream holds nothing up.
        for _ in range(5):
            await alice.send(MessageEnvelope(TOPIC, b"payload"))
        del stream
        await asyncio.sleep(1)
        for _ in range(50):
            await alice.send(MessageEnvelope(TOPIC, b"payload"))

    run_virtual(main())


@virtual
async def test_the_store_answers_by_hash_after_a_delay() -> None:
    network = MemoryNetwork(NetworkConditions(loss=1.0, store_delay_ms=(20, 20)))
    alice, bob = await start(network, "alice"), await start(network, "bob", TOPIC)
    await alice.send(MessageEnvelope(TOPIC, b"one"))
    await alice.send(MessageEnvelope(TOPIC, b"ephemeral", ephemeral=True))
    stored, ephemeral = network.trace
    before = asyncio.get_running_loop().time()
    page = await bob.query_store(StoreQuery(message_hashes=(stored.message_hash, ephemeral.message_hash, bytes(32))))
    assert asyncio.get_running_loop().time() - before == pytest.approx(0.02)
    (message,) = page.messages
    assert message.message_hash == stored.message_hash
    assert message.envelope == MessageEnvelope(TOPIC, b"one")


@virtual
async def test_a_store_out_of_reach_does_not_answer_and_misses_messages() -> None:
    network = MemoryNetwork()
    alice = await start(network, "alice")
    await start(network, "bob")
    await alice.send(MessageEnvelope(TOPIC, b"1"))
    network.store_online = False
    await alice.send(MessageEnvelope(TOPIC, b"2"))
    with pytest.raises(NodeError, match="no store answered"):
        await alice.query_store(StoreQuery())
    network.store_online = True
    network.partition([{"bob"}, {"alice"}])
    with pytest.raises(NodeError, match="no store answered"):
        await alice.query_store(StoreQuery())
    network.partition([{"bob"}, {"alice", "store"}])
    await alice.send(MessageEnvelope(TOPIC, b"3"))
    page = await alice.query_store(StoreQuery())
    assert [message.envelope.payload for message in page.messages if message.envelope] == [b"1", b"3"]
    assert [record.stored for record in network.trace] == [True, False, True]
    alice.go_offline()
    with pytest.raises(NodeError, match="offline"):
        await alice.query_store(StoreQuery())


@virtual
async def test_the_store_loses_its_share() -> None:
    network = MemoryNetwork(NetworkConditions(store_loss=0.5))
    alice = await start(network, "alice")
    for _ in range(400):
        await alice.send(MessageEnvelope(TOPIC, b"payload"))
    assert network.store is not None
    assert len(network.store) == sum(record.stored for record in network.trace)
    assert 150 < len(network.store) < 250
