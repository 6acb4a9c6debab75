"""The base of transports over a scripted one: events, subscriptions, start and stop."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest
from conformance.vector_files import load
from scripted_transport import OnTime, ScriptedTransport
from virtual_nodes import OTHER_TOPIC, TOPIC, drain, virtual

from shardwire import ConfigError, NodeError, PayloadTooLargeError
from shardwire._native import WakuMessage, message_hash, shard_of
from shardwire.node import (
    ConnectionState,
    ConnectionStatus,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSendError,
    MessageSent,
    MessagesMissed,
    Node,
    NodeConfig,
    StoreQuery,
    VirtualClock,
)
from shardwire.node.clock import NANOSECONDS_PER_MS
from shardwire.node.event_stream import RECEIVED_MESSAGES_MAX
from shardwire.node.transport import Permanent, Published, TransportNode
from shardwire.node.transport import stamps as stamps_module
from shardwire.node.transport.stamps import Stamps
from shardwire.node.waku_message import encoded_size_bytes

NOW_NS = 1_767_225_600_000_000_000


async def started(transport: ScriptedTransport, *topics: str, config: NodeConfig | None = None) -> TransportNode:
    node = TransportNode(transport, config, rng=OnTime())
    await node.start()
    await node.subscribe(topics)
    return node


@virtual
async def test_it_is_a_node() -> None:
    transport = ScriptedTransport()
    node = await started(transport, TOPIC)
    assert isinstance(node, Node)
    assert transport.calls == ["connect", f"subscribe {TOPIC} /waku/2/rs/1/{shard_of(TOPIC, 8)}"]
    await node.subscribe([TOPIC])
    assert len(transport.calls) == 2
    assert node.subscriptions == (TOPIC,)
    await node.unsubscribe([TOPIC, OTHER_TOPIC])
    assert transport.calls[2:] == [f"unsubscribe {TOPIC}"]
    assert (repr(node), node.has_store) == ("<TransportNode scripted>", False)
    with pytest.raises(NodeError, match="scripted has no store"):
        await TransportNode.query_store(await started(NoStore()), StoreQuery())


class NoStore(ScriptedTransport):
    query_store = ScriptedTransport.__mro__[1].query_store


@virtual
async def test_a_published_message_is_told_and_handed_to_our_own_readers() -> None:
    transport = ScriptedTransport()
    node = await started(transport, TOPIC)
    first, second = node.events(), node.events()
    request_id = await node.send(MessageEnvelope(TOPIC, b"payload", meta=b"mark"))
    attempt_hash = message_hash(
        pubsub_topic=f"/waku/2/rs/1/{shard_of(TOPIC, 8)}",
        payload=b"payload",
        content_topic=TOPIC,
        meta=b"mark",
        timestamp_ns=NOW_NS,
    )
    told = [
        MessagePropagated(request_id, attempt_hash),
        MessageReceived(MessageEnvelope(TOPIC, b"payload", meta=b"mark"), attempt_hash, NOW_NS),
    ]
    assert await drain(first) == told
    assert await drain(second) == told
    # Its echo is not decoded, let alone told.
    assert transport.link.is_ours(TOPIC, NOW_NS)
    assert not transport.bring(TOPIC, b"payload", NOW_NS)
    assert not transport.link.is_ours(OTHER_TOPIC, NOW_NS)
    await node.send(MessageEnvelope(OTHER_TOPIC, b"unheard"))
    assert [type(event) for event in await drain(first)] == [MessagePropagated]
    assert node.counts == {"published": 2, "received_echoes": 1, "publish_retries": 0}


@virtual
async def test_what_became_of_a_message_is_told_to_readers_of_its_topic() -> None:
    transport = ScriptedTransport(has_store=True, asks_store_for_presence=True)
    transport.answers.extend([Published(), Published(stored=True), Permanent("refused")])
    node = await started(transport)
    everything, wanting, other = node.events(), node.events(), node.events()
    wanting.content_topic, other.content_topic = TOPIC, OTHER_TOPIC
    for payload in (b"published", b"stored", b"refused"):
        await node.send(MessageEnvelope(TOPIC, payload))
    await asyncio.sleep(0.1)
    transport.stored = {attempt.message_hash for attempt in transport.attempts}
    await asyncio.sleep(1)
    told = await drain(everything)
    assert sorted(type(event).__name__ for event in told) == [
        "MessagePropagated",
        "MessagePropagated",
        "MessageSendError",
        "MessageSent",
        "MessageSent",
    ]
    assert await drain(wanting) == told
    assert await drain(other) == []


@virtual
async def test_an_acknowledgement_of_a_store_is_told() -> None:
    transport = ScriptedTransport()
    transport.answers.append(Published(stored=True))
    node = await started(transport)
    events = node.events()
    request_id = await node.send(MessageEnvelope(TOPIC, b"x"))
    (propagated, sent) = await drain(events)
    assert isinstance(propagated, MessagePropagated)
    assert sent == MessageSent(request_id, propagated.message_hash)


@pytest.mark.parametrize(
    "vector", [vector for vector in load("message_hash")["official"] if vector["timestamp_ns"] is not None]
)
def test_received_messages_get_the_hash_of_every_other_node(vector: dict[str, str]) -> None:
    @virtual
    async def run() -> None:
        topic, stamp = vector["content_topic"], int(vector["timestamp_ns"])
        transport = ScriptedTransport()
        node = await started(transport)
        # Vectors name topics that autosharding cannot place.
        node._subscriptions[topic] = vector["pubsub_topic"]
        events = node.events()
        payload, meta = bytes.fromhex(vector["payload_hex"]), bytes.fromhex(vector["meta_hex"] or "")
        envelope = MessageEnvelope(topic, payload, meta=meta)
        assert transport.link.received(envelope, stamp)
        encoded = WakuMessage(
            payload=envelope.payload, content_topic=topic, timestamp_ns=stamp, meta=envelope.meta or None
        ).encode()
        assert transport.link.received_encoded(encoded)
        assert await drain(events) == [MessageReceived(envelope, bytes.fromhex(vector["hash_hex"]), stamp)] * 2

    run()


@virtual
async def test_what_is_not_subscribed_or_malformed_is_dropped() -> None:
    transport = ScriptedTransport()
    node = await started(transport, TOPIC)
    events = node.events()
    assert not transport.bring(OTHER_TOPIC, b"x", 1)
    assert not transport.bring(TOPIC, b"x", 1 << 63)
    assert not transport.bring(TOPIC, b"x", 10**400)
    assert not transport.link.received_encoded(b"\xff" * 50)
    assert transport.bring(TOPIC, b"x", (1 << 63) - 1)
    assert [type(event) for event in await drain(events)] == [MessageReceived]
    assert node.counts["received_malformed"] == 3


@virtual
async def test_the_connection_is_told_on_change_and_to_who_comes_later() -> None:
    transport = ScriptedTransport()
    node = await started(transport)
    events = node.events()
    for state in (
        ConnectionState.CONNECTED,
        ConnectionState.DISCONNECTED,
        ConnectionState.DISCONNECTED,
        ConnectionState.PARTIALLY_CONNECTED,
    ):
        transport.link.connection(state, "test")
    later = node.events()
    transport.link.connection(ConnectionState.CONNECTED)
    assert [event.state for event in await drain(events) if isinstance(event, ConnectionStatus)] == [
        ConnectionState.DISCONNECTED,
        ConnectionState.PARTIALLY_CONNECTED,
        ConnectionState.CONNECTED,
    ]
    assert await drain(later) == [
        ConnectionStatus(ConnectionState.PARTIALLY_CONNECTED),
        ConnectionStatus(ConnectionState.CONNECTED),
    ]
    assert node.connection_state is ConnectionState.CONNECTED


@virtual
async def test_a_reader_that_is_too_slow_is_told_that_it_missed_something() -> None:
    transport = ScriptedTransport()
    node = await started(transport, TOPIC)
    events = node.events()
    for stamp in range(RECEIVED_MESSAGES_MAX + 5):
        transport.bring(TOPIC, b"", stamp)
    told = await drain(events)
    assert len(told) == RECEIVED_MESSAGES_MAX + 1
    assert told[-1] == MessagesMissed(NOW_NS)
    # Told again of the next time.
    for stamp in range(RECEIVED_MESSAGES_MAX + 5):
        transport.bring(TOPIC, b"", stamp)
    assert sum(isinstance(event, MessagesMissed) for event in await drain(events)) == 1


@virtual
async def test_a_start_that_fails_may_be_tried_again() -> None:
    transport = ScriptedTransport()
    transport.connect_errors.extend([NodeError("nobody listens there"), OSError("odd")])
    node = TransportNode(transport, rng=OnTime())
    with pytest.raises(NodeError, match="nobody listens"):
        await node.start()
    with pytest.raises(NodeError, match="connect raised OSError"):
        await node.start()
    with pytest.raises(NodeError, match="is not started"):
        await node.subscribe([TOPIC])
    await node.start()
    await node.start()
    assert transport.calls == ["connect", "disconnect", "connect", "disconnect", "connect"]


@virtual
async def test_a_subscription_that_can_never_be_is_refused() -> None:
    transport = ScriptedTransport()
    node = await started(transport)
    transport.subscribe_errors.append(NodeError("this cluster has no such shard"))
    with pytest.raises(NodeError, match="no such shard"):
        await node.subscribe([TOPIC])
    assert node.subscriptions == ()
    with pytest.raises(ConfigError, match="room"):
        await node.subscribe([TOPIC, "room"])
    with pytest.raises(ConfigError, match="give a list"):
        await node.subscribe(TOPIC)
    assert node.subscriptions == ()


@virtual
async def test_what_can_never_be_sent_is_refused_at_once() -> None:
    transport = ScriptedTransport()
    node = await started(transport, config=NodeConfig(max_message_size_bytes=1_000))
    with pytest.raises(PayloadTooLargeError, match="scripted carries 1000") as caught:
        await node.send(MessageEnvelope(TOPIC, b"x" * 990))
    assert (caught.value.payload_bytes > 1_000, caught.value.limit_bytes) == (True, 1_000)
    with pytest.raises(ConfigError, match="meta is 65 bytes"):
        await node.send(MessageEnvelope(TOPIC, b"", meta=b"m" * 65))
    largest = MessageEnvelope(TOPIC, bytes(1_000), meta=b"m" * 64)
    beyond_bytes = encoded_size_bytes(largest, NOW_NS) - 1_000
    await node.send(replace(largest, payload=bytes(1_000 - beyond_bytes)))
    with pytest.raises(PayloadTooLargeError, match="is 1001 bytes"):
        await node.send(replace(largest, payload=bytes(1_001 - beyond_bytes)))
    with pytest.raises(ConfigError):
        await node.send(MessageEnvelope("room", b""))
    transport.link.max_message_size_bytes = 2_000
    assert node.max_message_size_bytes == 2_000
    await node.send(MessageEnvelope(TOPIC, b"x" * 990))
    with pytest.raises(NodeError, match="max_message_size_bytes is 0"):
        transport.link.max_message_size_bytes = 0


@virtual
async def test_stop_publishes_what_waits_then_unsubscribes_and_ends() -> None:
    transport = ScriptedTransport()
    node = await started(transport, TOPIC)
    events = node.events()
    transport.answers.append(1_000)
    ids = [await node.send(MessageEnvelope(OTHER_TOPIC, bytes([n]))) for n in range(3)]
    await node.stop()
    assert transport.calls[-2:] == [f"unsubscribe {TOPIC}", "disconnect"]
    told = [event async for event in events]
    assert [event.request_id for event in told if isinstance(event, MessagePropagated)] == ids
    assert told[-1] == ConnectionStatus(ConnectionState.DISCONNECTED)
    await node.stop()
    with pytest.raises(NodeError, match="was stopped"):
        await node.send(MessageEnvelope(TOPIC, b""))
    with pytest.raises(NodeError, match="was stopped"):
        await node.start()
    assert [event async for event in node.events()] == []


@virtual
async def test_stop_leaves_what_does_not_leave_in_time() -> None:
    transport = ScriptedTransport()
    node = await started(transport)
    events = node.events()
    transport.answers.extend([60_000])
    ids = [await node.send(MessageEnvelope(TOPIC, bytes([n]))) for n in range(2)]
    begun_ms = transport.link.clock.monotonic_ms()
    await node.stop(drain_timeout_ms=2_000)
    assert transport.link.clock.monotonic_ms() - begun_ms == 2_000
    failed = [event for event in [event async for event in events] if isinstance(event, MessageSendError)]
    assert [(event.request_id, event.error, event.permanent) for event in failed] == [
        (request_id, "scripted was stopped", False) for request_id in ids
    ]


@virtual
async def test_stop_goes_on_though_its_caller_is_cancelled() -> None:
    transport = ScriptedTransport()
    node = await started(transport)
    transport.answers.extend([3_000])
    await node.send(MessageEnvelope(TOPIC, b""))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(node.stop(), 1)
    await asyncio.sleep(5)
    assert transport.calls[-1] == "disconnect"


class Clinging(ScriptedTransport):
    error: BaseException = OSError("gone")

    async def unsubscribe(self, content_topic: str, pubsub_topic: str) -> None:
        await asyncio.sleep(3_600)

    async def disconnect(self) -> None:
        raise self.error


@pytest.mark.parametrize("error", [OSError("gone"), asyncio.CancelledError()])
def test_a_transport_that_hangs_or_raises_does_not_hold_up_the_end(error: BaseException) -> None:
    @virtual
    async def run() -> None:
        transport = Clinging()
        transport.error = error
        node = await started(transport, TOPIC)
        events = node.events()
        await node.stop()
        assert transport.link.clock.monotonic_ms() == 5_000
        assert [event async for event in events] == [ConnectionStatus(ConnectionState.DISCONNECTED)]

    run()


def test_background_work_that_raises_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    times: list[int] = []

    @virtual
    async def run() -> None:
        transport = ScriptedTransport()
        node = await started(transport)

        async def work() -> None:
            times.append(transport.link.clock.monotonic_ms())
            if len(times) == 2:
                raise asyncio.CancelledError
            if len(times) < 5:
                raise ValueError("bug")
            await asyncio.sleep(3_600)

        task = transport.link.run("polling", work)
        await asyncio.sleep(30)
        await node.stop()
        assert task.cancelled()

    with caplog.at_level(logging.ERROR):
        run()
    assert times == [0, 1_000, 3_000, 7_000, 15_000]
    assert [record.getMessage() for record in caplog.records][1] == (
        "scripted: polling raised CancelledError, again in 2000 ms"
    )


@virtual
async def test_no_stamp_is_given_twice_and_the_latest_are_known_again() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stamps_module, "STAMPS_REMEMBERED_MAX", 3)
        clock = VirtualClock()
        stamps = Stamps(clock, 0)
        start_ns = clock.epoch_ns()
        first = stamps.next_ns(TOPIC)
        clock.step(60_000)
        later = [stamps.next_ns(TOPIC)]
        # Back to where a stamp was given already.
        clock.step(-60_000)
        later.append(stamps.next_ns(TOPIC))
        assert [first, *later] == [start_ns, start_ns + 60_000 * NANOSECONDS_PER_MS, start_ns + 1]
        later.append(stamps.next_ns(TOPIC))
        assert [stamps.is_ours(TOPIC, stamp) for stamp in (first, *later)] == [False, True, True, True]
        assert not stamps.is_ours(OTHER_TOPIC, later[-1])
