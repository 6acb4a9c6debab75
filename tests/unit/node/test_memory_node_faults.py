"""One memory node that is cut off, overrun or slowly read, and its store."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import pytest

from shardwire.errors import ConfigError, NodeError
from shardwire.node import (
    ConnectionState,
    ConnectionStatus,
    MemoryNetwork,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSendError,
    MessageSent,
    NetworkConditions,
    StoreQuery,
    run_virtual,
)
from tests.virtual_nodes import OTHER_TOPIC, TOPIC, drain, start, virtual


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


@virtual
async def test_what_became_of_a_message_is_told_to_readers_of_its_topic() -> None:
    network = MemoryNetwork()
    alice = await start(network, "alice", TOPIC)
    everything, wanting, other = alice.events(), alice.events(), alice.events()
    wanting.content_topic, other.content_topic = TOPIC, OTHER_TOPIC
    await alice.send(MessageEnvelope(TOPIC, b"stored"))
    alice.send_fault = lambda envelope: "refused"
    await alice.send(MessageEnvelope(TOPIC, b"refused"))
    alice.send_fault = None
    alice.go_offline()
    await alice.send(MessageEnvelope(TOPIC, b"waits"))
    await asyncio.sleep(60)
    told = await drain(everything)
    kinds = [MessagePropagated, MessageSent, MessageReceived, MessageSendError, ConnectionStatus, MessageSendError]
    assert [type(event) for event in told] == kinds
    assert await drain(wanting) == told
    assert await drain(other) == [ConnectionStatus(ConnectionState.DISCONNECTED)]


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


@virtual
async def test_who_goes_offline_delays_nothing_for_others() -> None:
    network = MemoryNetwork(NetworkConditions(delay_ms=(2, 400), reorder=1.0), seed=3)
    alice, bob, carol = [await start(network, name, TOPIC) for name in ("alice", "bob", "carol")]
    stream = bob.events()
    began_ms = network.clock.monotonic_ms()
    arrived_ms: list[int] = []

    async def listen() -> None:
        async for event in stream:
            if isinstance(event, MessageReceived):
                arrived_ms.append(network.clock.monotonic_ms() - began_ms)

    listening = asyncio.create_task(listen())
    for _ in range(200):
        await alice.send(MessageEnvelope(TOPIC, b"x"))
    await asyncio.sleep(0.001)
    carol.go_offline()
    await asyncio.sleep(1)
    listening.cancel()
    fates = [fate for record in network.trace for fate in record.outcomes if fate.receiver == "bob"]
    assert arrived_ms == sorted(delay_ms for fate in fates for delay_ms in fate.delays_ms)


def told_to_the_loop() -> list[object]:
    """Gets what a callback of the running loop raises."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    return told


@virtual
async def test_what_left_or_went_with_its_node_is_not_given_up_later() -> None:
    told = told_to_the_loop()
    network = MemoryNetwork(store=False)
    alice, bob = await start(network, "alice"), await start(network, "bob")
    for node in (alice, bob):
        node.go_offline()
        await node.send(MessageEnvelope(TOPIC, b"waits"))
    await start(network, "carol")
    alice.go_online()
    await bob.stop()
    await asyncio.sleep(100)
    assert told == []


def test_what_is_in_flight_to_one_receiver_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwire.node.inbox.IN_FLIGHT_MAX", 3)

    async def main() -> None:
        network = MemoryNetwork(NetworkConditions(delay_ms=(100, 100)), store=False)
        alice, bob = await start(network, "alice"), await start(network, "bob", TOPIC)
        for _ in range(2):
            # What arrived makes room.
            for _ in range(4):
                await alice.send(MessageEnvelope(TOPIC, b"x"))
            await asyncio.sleep(1)
        for _ in range(3):
            await alice.send(MessageEnvelope(TOPIC, b"x"))
        # What is lost with the connection does too.
        bob.go_offline()
        bob.go_online()
        await alice.send(MessageEnvelope(TOPIC, b"x"))
        await asyncio.sleep(1)
        fates = [record.outcomes[0].outcome for record in network.trace]
        assert fates == [*["delivered"] * 3, "overflow"] * 2 + ["offline"] * 3 + ["delivered"]

    run_virtual(main())


@virtual
async def test_what_arrives_at_once_comes_behind_what_is_due() -> None:
    network = MemoryNetwork(NetworkConditions(delay_ms=(100, 100)))
    alice, bob = await start(network, "alice"), await start(network, "bob", TOPIC)
    stream = bob.events()

    def send_second() -> None:
        network.conditions = NetworkConditions()
        with suppress(StopIteration):
            alice.send(MessageEnvelope(TOPIC, b"second")).send(None)

    # In the moment in which the first is due, and before it.
    asyncio.get_running_loop().call_later(0.1, send_second)
    await alice.send(MessageEnvelope(TOPIC, b"first"))
    payloads = [event.envelope.payload for event in await drain(stream) if isinstance(event, MessageReceived)]
    assert payloads == [b"first", b"second"]


def test_a_message_that_one_of_two_readers_takes_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwire.node.event_stream.RECEIVED_MESSAGES_MAX", 1)

    async def main() -> None:
        network = MemoryNetwork()
        alice, bob = await start(network, "alice"), await start(network, "bob", TOPIC)
        slow, quick = bob.events(), bob.events()
        for _ in range(2):
            await alice.send(MessageEnvelope(TOPIC, b"x"))
            await drain(quick)
        assert slow.refused == 1
        assert [record.outcomes[0].outcome for record in network.trace] == ["delivered"] * 2

    run_virtual(main())


def test_a_reader_of_another_topic_neither_holds_sends_up_nor_takes_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwire.node.event_stream.RECEIVED_MESSAGES_MAX", 1)
    monkeypatch.setattr("shardwire.node.event_stream.OUTCOMES_MAX", 2)

    async def main() -> None:
        network = MemoryNetwork()
        alice, bob = await start(network, "alice"), await start(network, "bob", TOPIC)
        other, slow = bob.events(), bob.events()
        other.content_topic, slow.content_topic = OTHER_TOPIC, TOPIC
        for _ in range(2):
            await alice.send(MessageEnvelope(TOPIC, b"x"))
            await asyncio.sleep(1)
        assert [record.outcomes[0].outcome for record in network.trace] == ["delivered", "overflow"]
        await drain(slow)
        for _ in range(3):
            await bob.send(MessageEnvelope(TOPIC, b"x"))
            await drain(slow)
        assert (other.refused, slow.refused) == (0, 1)

    run_virtual(main())


def test_a_node_whose_event_loop_is_closed_may_be_stopped_on_another() -> None:
    network = MemoryNetwork()
    node = network.create_node("alice")
    asyncio.run(node.start())
    asyncio.run(node.stop())
    assert node.stopped
