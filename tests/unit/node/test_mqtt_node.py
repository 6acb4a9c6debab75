"""MqttNode against a real mosquitto, and against brokers that answer what mosquitto never would."""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import paho.mqtt.publish as paho_publish
import pytest
from certificates import trusting, write_certificate
from live_nodes import OTHER_TOPIC, TOPIC, drained, next_of, real_time, until
from live_servers import Mosquitto, find_program

from shardwire._native import WakuMessage
from shardwire.errors import ConfigError, NodeError, PayloadTooLargeError
from shardwire.node import (
    ConnectionState,
    ConnectionStatus,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSendError,
    MessageSent,
    MessagesMissed,
    MqttNode,
    NodeConfig,
    StoreQuery,
    running_clock,
)
from shardwire.node.mqtt import session as mqtt_session
from shardwire.node.mqtt.transport import PUBLISH_HEADER_BYTES, TOPIC_BYTES
from shardwire.node.transport.kept_connection import ConnectionLost

SECRET = "open-sesame"
BROKER_TOPIC = "shardwire/test/1/room/proto"


async def started(*args: Any, topics: tuple[str, ...] = (TOPIC,), **settings: Any) -> MqttNode:
    node = MqttNode(*args, **settings)
    await node.start()
    await node.subscribe(topics)
    return node


async def publish_raw(broker: Mosquitto, topic: str, *payloads: bytes) -> None:
    messages = [(topic, payload, 1, False) for payload in payloads]
    await asyncio.to_thread(paho_publish.multiple, messages, "127.0.0.1", broker.port)


@real_time
async def test_everybody_gets_a_message_and_its_sender_once(tmp_path: Path) -> None:
    with Mosquitto(tmp_path) as broker:
        nodes = [await started(broker.url, topics=(TOPIC, OTHER_TOPIC)) for _ in range(3)]
        streams = [node.events() for node in nodes]
        await nodes[0].send(MessageEnvelope(TOPIC, b"one", meta=b"m"))
        await nodes[1].send(MessageEnvelope(OTHER_TOPIC, b"two", ephemeral=True))
        for stream in streams:
            events = await drained(stream, first={MessageReceived: 2})
            received = [event for event in events if isinstance(event, MessageReceived)]
            assert sorted((event.envelope.payload, event.envelope.content_topic) for event in received) == [
                (b"one", TOPIC),
                (b"two", OTHER_TOPIC),
            ]
            hashes = {event.message_hash for event in received}
            assert {event.message_hash for event in events if isinstance(event, MessagePropagated)} <= hashes
            assert not [event for event in events if isinstance(event, MessageSent)]
        # No-local: what comes back would be counted.
        assert all("received_echoes" not in node.counts for node in nodes)
        assert not nodes[0].has_store
        with pytest.raises(NodeError, match="no store"):
            await nodes[0].query_store(StoreQuery())
        for node in nodes:
            await node.stop()


@real_time
async def test_nothing_comes_after_unsubscribing_and_nothing_is_left_behind(tmp_path: Path) -> None:
    with Mosquitto(tmp_path, settings="sys_interval 1") as broker:
        alice, bob = await started(broker.url), await started(broker.url, client_id="bob")
        stream = bob.events()
        await bob.unsubscribe([TOPIC])
        await alice.send(MessageEnvelope(TOPIC, b"unheard"))
        assert not [event for event in await drained(stream) if isinstance(event, MessageReceived)]
        await bob.subscribe([TOPIC])
        await bob.stop()
        await alice.send(MessageEnvelope(TOPIC, b"after its end"))
        await asyncio.sleep(0.2)
        again = MqttNode(broker.url, client_id="bob")
        await again.start()
        stream = again.events()
        await again.subscribe([TOPIC])
        assert not [event for event in await drained(stream) if isinstance(event, MessageReceived)]
        await again.stop()
        await alice.stop()


@real_time
async def test_a_session_keeps_what_comes_in_while_its_client_is_away(tmp_path: Path) -> None:
    with Mosquitto(tmp_path) as broker:
        alice, bob = await started(broker.url), await started(broker.url, client_id="bob")
        # As if its process were killed.
        session = bob._transport._session  # type: ignore[attr-defined]
        bob._transport._connection._session = None  # type: ignore[attr-defined]
        await session.close()
        outcomes = alice.events()
        for number in range(30):
            await alice.send(MessageEnvelope(TOPIC, number.to_bytes(2, "big")))
        for _ in range(30):
            await next_of(outcomes, MessagePropagated)
        successor = MqttNode(broker.url, client_id="bob")
        await successor.start()
        stream = successor.events()
        await asyncio.sleep(0.3)
        await successor.subscribe([TOPIC])
        for number in range(30):
            assert (await next_of(stream, MessageReceived)).envelope.payload == number.to_bytes(2, "big")
        await successor.stop()
        await alice.stop()


@real_time
async def test_a_topic_that_nobody_takes_over_does_not_hold_the_others_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_session, "UNKNOWN_TOPIC_WAIT_S", 0.2)
    monkeypatch.setattr(mqtt_session, "LOOK_S", 0.1)
    with Mosquitto(tmp_path) as broker:
        old = await started(broker.url, client_id="bob", topics=(TOPIC, OTHER_TOPIC))
        session = old._transport._session  # type: ignore[attr-defined]
        old._transport._connection._session = None  # type: ignore[attr-defined]
        await session.close()
        alice = await started(broker.url)
        for number in range(400):
            await alice.send(MessageEnvelope(OTHER_TOPIC, number.to_bytes(2, "big")))
        outcomes = alice.events()
        await next_of(outcomes, MessagePropagated)
        bob = await started(broker.url, client_id="bob")
        stream = bob.events()
        await asyncio.sleep(1)
        await alice.send(MessageEnvelope(TOPIC, b"goes on"))
        assert (await next_of(stream, MessageReceived)).envelope.payload == b"goes on"
        await alice.stop()
        await bob.stop()


@real_time
async def test_the_brokers_limits_hold_and_are_followed(tmp_path: Path) -> None:
    with Mosquitto(tmp_path, settings="max_packet_size 20000\nmax_inflight_messages 3") as broker:
        node = await started(broker.url)
        small = await started(broker.url, config=NodeConfig(max_message_size_bytes=5_000))
        limit = 20_000 - PUBLISH_HEADER_BYTES - 2 - TOPIC_BYTES
        assert node.max_message_size_bytes == limit
        assert small.max_message_size_bytes == 5_000
        with pytest.raises(PayloadTooLargeError, match=str(limit)):
            await node.send(MessageEnvelope(TOPIC, bytes(20_000)))
        stream = node.events()
        for _ in range(50):
            await node.send(MessageEnvelope(TOPIC, bytes(limit - 100)))
        for _ in range(50):
            await next_of(stream, MessagePropagated)
        assert node.counts["publish_retries"] == 0
        broker.settings = "max_packet_size 40000"
        broker.restart()
        await until(lambda: node.max_message_size_bytes == limit + 20_000)
        assert small.max_message_size_bytes == 5_000
        await node.stop()
        await small.stop()
    with Mosquitto(tmp_path, settings="max_packet_size 500") as broker, pytest.raises(NodeError, match="too small"):
        await MqttNode(broker.url).start()


@real_time
async def test_a_message_that_the_broker_finds_too_large_without_saying_so_before(tmp_path: Path) -> None:
    with Mosquitto(tmp_path, settings="message_size_limit 2000") as broker:
        alice, bob = await started(broker.url), await started(broker.url)
        outcomes, stream = alice.events(), bob.events()
        too_large = await alice.send(MessageEnvelope(TOPIC, bytes(3_000)))
        small = await alice.send(MessageEnvelope(TOPIC, b"small"))
        error = await next_of(outcomes, MessageSendError)
        assert (error.request_id, error.permanent) == (too_large, True)
        assert "too large" in error.error
        await until(lambda: alice.counts.get("published") == 1)
        assert (await next_of(stream, MessageReceived)).envelope.payload == b"small"
        assert small != too_large
        await alice.stop()
        await bob.stop()


@real_time
async def test_a_restart_is_told_once_and_what_came_meanwhile_is_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shardwire")
    with Mosquitto(tmp_path) as broker:
        alice, bob = await started(broker.url), await started(broker.url)
        stream, outcomes = bob.events(), alice.events()
        broker.kill()
        assert (await next_of(stream, ConnectionStatus)).state is ConnectionState.DISCONNECTED
        await until(lambda: alice.connection_state is ConnectionState.DISCONNECTED)
        request = await alice.send(MessageEnvelope(TOPIC, b"while away"))
        await asyncio.sleep(0.8)
        broker.start()
        assert (await next_of(stream, ConnectionStatus)).state is ConnectionState.CONNECTED
        assert (await next_of(stream, MessagesMissed)).since_ns > 0
        assert (await next_of(outcomes, MessagePropagated)).request_id == request
        await alice.send(MessageEnvelope(TOPIC, b"afterwards"))
        payloads = [(await next_of(stream, MessageReceived)).envelope.payload]
        if payloads == [b"while away"]:
            payloads.append((await next_of(stream, MessageReceived)).envelope.payload)
        assert payloads[-1] == b"afterwards"
        lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len([line for line in lines if "disconnected" in line]) == 2, lines
        await alice.stop()
        await bob.stop()


@real_time
async def test_a_broker_that_hangs_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_session, "KEEP_ALIVE_S", 2)
    monkeypatch.setattr(mqtt_session, "LOOK_S", 0.1)
    with Mosquitto(tmp_path) as broker:
        alice, bob = await started(broker.url), await started(broker.url)
        stream, outcomes = bob.events(), alice.events()
        broker.pause()
        try:
            request = await alice.send(MessageEnvelope(TOPIC, b"into the void"))
            assert (await next_of(stream, ConnectionStatus)).state is ConnectionState.DISCONNECTED
        finally:
            broker.go_on()
        assert (await next_of(outcomes, MessagePropagated)).request_id == request
        await until(lambda: bob.counts.get("received", 0) >= 1 and bob.counts.get("missed", 0) >= 1)
        await alice.stop()
        await bob.stop()


@real_time
async def test_what_is_no_message_is_counted_and_dropped(tmp_path: Path) -> None:
    with Mosquitto(tmp_path) as broker:
        alice, bob = await started(broker.url), await started(broker.url, topics=(TOPIC, OTHER_TOPIC))
        stream = bob.events()
        await publish_raw(broker, BROKER_TOPIC, b"\xff" * 1_000, b"\x0a\xff\xff\xff\xff\x0f", bytes(200_000))
        await alice.send(MessageEnvelope(TOPIC, b"genuine"))
        genuine = await next_of(stream, MessageReceived)
        # Says that it is of another topic than the one that it was published to.
        data = WakuMessage(payload=b"x", content_topic=OTHER_TOPIC, timestamp_ns=genuine.timestamp_ns).encode()
        await publish_raw(broker, BROKER_TOPIC, data)
        await until(lambda: bob.counts.get("received_misplaced") == 1)
        assert bob.counts["received_malformed"] == 3
        assert not [event for event in await drained(stream) if isinstance(event, MessageReceived)]
        await alice.stop()
        await bob.stop()


@pytest.mark.parametrize("way", ["url", "arguments"])
@real_time
async def test_credentials_are_used_and_told_to_nobody(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    passwords = tmp_path / "passwords"
    passwords.write_text(f"ali:{SECRET}\n")
    passwords.chmod(0o644)
    hashing = await asyncio.create_subprocess_exec(
        find_program("mosquitto_passwd", "apt-get install mosquitto"), "-U", passwords
    )
    assert await hashing.wait() == 0
    with Mosquitto(tmp_path / "broker", listener=f"allow_anonymous false\npassword_file {passwords}") as broker:
        place = broker.url.removeprefix("mqtt://")
        url = f"mqtt://ali:{SECRET}@{place}" if way == "url" else broker.url
        arguments: dict[str, Any] = {} if way == "url" else {"user": "ali", "password": SECRET}
        node = MqttNode(url, **arguments)
        await node.start()
        assert SECRET not in repr(node) + repr(node._transport) + repr(node.__dict__)
        await node.stop()
        if way == "url":
            refused = MqttNode(url.replace(SECRET, f"not-{SECRET}"))
        else:
            refused = MqttNode(url, user="ali", password=f"not-{SECRET}")
        with pytest.raises(NodeError, match=r"refuses this client: Not authorized") as caught:
            await refused.start()
        assert SECRET not in str(caught.value)
        assert SECRET not in caplog.text


@real_time
async def test_tls_is_used_and_a_strange_certificate_refused(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    key.chmod(0o644)
    listener = f"allow_anonymous true\ncertfile {certificate}\nkeyfile {key}"
    with Mosquitto(tmp_path / "broker", listener=listener) as broker:
        alice = await started(broker.url, tls=trusting(certificate))
        bob = await started(broker.url.replace("mqtt:", "mqtts:"), tls=trusting(certificate))
        stream = bob.events()
        payloads = [bytes([number]) * 100_000 for number in range(20)]
        for payload in payloads:
            await alice.send(MessageEnvelope(TOPIC, payload))
        assert [(await next_of(stream, MessageReceived)).envelope.payload for _ in payloads] == payloads
        with pytest.raises(NodeError, match="not trusted"):
            await MqttNode(broker.url.replace("mqtt:", "mqtts:")).start()
        with pytest.raises(NodeError, match="where another port or TLS is wanted"):
            await MqttNode(broker.url).start()
        await alice.stop()
        await bob.stop()


@pytest.mark.filterwarnings("error::ResourceWarning")
@real_time
async def test_a_connection_on_which_tls_fails_is_closed() -> None:
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no TLS")
        with suppress(ConnectionError):
            await reader.read()
        closed.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    with pytest.raises(NodeError, match="TLS failed"):
        await MqttNode(f"mqtts://{host}:{port}").start()
    await asyncio.wait_for(closed.wait(), 60)
    server.close()
    gc.collect()


@real_time
async def test_what_a_user_may_not_do_is_said(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("topic read shardwire/#\ntopic deny shardwire/test/1/room/proto\n")
    rules.chmod(0o644)
    with Mosquitto(tmp_path / "broker", settings=f"acl_file {rules}") as broker:
        node = await started(broker.url)
        stream = node.events()
        await node.send(MessageEnvelope(TOPIC, b"forbidden"))
        error = await next_of(stream, MessageSendError)
        assert error.permanent
        assert "Not authorized" in error.error
        await node.stop()


@real_time
async def test_two_under_one_client_id_are_told_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Mosquitto(tmp_path) as broker:
        first = await started(broker.url, client_id="same")
        second = await started(broker.url, client_id="same")
        # Each throws the other out; they do so more and more slowly.
        await asyncio.sleep(3)
        await until(lambda: caplog.text.count("disconnected") >= 2)
        assert caplog.text.count("disconnected") < 12
        await first.stop()
        await second.stop()
    # As brokers say that do not only close the connection.
    async with scripted_broker(connack(), b"\xe0\x02\x8e\x00") as url:
        node = MqttNode(url)
        await node.start()
        await node.send(MessageEnvelope(TOPIC, b"one"))
        await until(lambda: "give each participant its own" in caplog.text)
        await node.stop(drain_timeout_ms=0)


@asynccontextmanager
async def scripted_broker(*answers: bytes) -> AsyncIterator[str]:
    """A broker that answers packet after packet with these bytes, whatever they are."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for answer in answers:
                head = await reader.readexactly(2)
                length, shift, byte = head[1] & 127, 7, head[1]
                while byte & 128:
                    byte = (await reader.readexactly(1))[0]
                    length |= (byte & 127) << shift
                    shift += 7
                await reader.readexactly(length)
                writer.write(answer)
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def connack(reason: int = 0, properties: bytes = b"") -> bytes:
    body = bytes([0, reason, len(properties)]) + properties
    return bytes([0x20, len(body)]) + body


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        # MQTT 3.1.1, 3.2.2.3: return code 1, unacceptable protocol version.
        (b"\x20\x02\x00\x01", "does not speak MQTT 5.0"),
        (connack(0x84), "does not speak MQTT 5.0"),
        # A broker of 3.1.1 that does not look at the version.
        (b"\x20\x02\x00\x00", "cannot be used"),
        (connack(0x87), "Not authorized"),
        (connack(0x97), "Quota exceeded"),
        # Maximum QoS 0.
        (connack(0, b"\x24\x00"), "QoS 0 only"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "cannot be used"),
        (b"\x20\xff\xff\xff\xff\xff", "cannot be used"),
        (connack(0, b"\x27\x00"), "cannot be used"),
    ],
)
@real_time
async def test_brokers_that_cannot_be_used_are_refused(
    answer: bytes, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_session, "CONNECT_TIMEOUT_S", 0.5)
    async with scripted_broker(answer) as url:
        with pytest.raises(NodeError, match=told) as caught:
            await MqttNode(url).start()
        assert "\n" not in str(caught.value)


@real_time
async def test_a_broker_that_says_nothing_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_session, "CONNECT_TIMEOUT_S", 0.2)
    async with scripted_broker() as url:
        with pytest.raises(NodeError, match="no answer in time"):
            await MqttNode(url).start()
    with pytest.raises(NodeError, match="nobody listens there: start the server"):
        await MqttNode("mqtt://127.0.0.1:1").start()


@pytest.mark.parametrize(
    ("reason", "permanent"), [(0x80, False), (0x87, True), (0x90, True), (0x97, False), (0x99, True)]
)
@real_time
async def test_what_an_acknowledgement_says_decides(reason: int, permanent: bool) -> None:
    failed = b"\x40\x04" + struct.pack(">HBB", 1, reason, 0)
    # Nobody is subscribed: it is published all the same.
    fine = b"\x40\x04" + struct.pack(">HBB", 2, 0x10, 0)
    async with scripted_broker(connack(), failed, fine) as url:
        node = MqttNode(url)
        await node.start()
        stream = node.events()
        await node.send(MessageEnvelope(TOPIC, b"refused"))
        if permanent:
            assert (await next_of(stream, MessageSendError)).permanent
        else:
            await next_of(stream, MessagePropagated)
            assert node.counts["publish_retries"] == 1
        await node.stop(drain_timeout_ms=0)


@real_time
async def test_a_topic_that_a_broker_refuses_is_refused_each_time() -> None:
    refused = [b"\x90\x04" + struct.pack(">HBB", number, 0, 0x87) for number in (1, 2)]
    async with scripted_broker(connack(), *refused) as url:
        node = MqttNode(url)
        await node.start()
        for _ in refused:
            with pytest.raises(NodeError, match=r"lets this client not subscribe to .*: Not authorized"):
                await node.subscribe([TOPIC])
        assert node.subscriptions == ()
        await node.stop()


@real_time
async def test_who_waits_for_room_at_a_broker_that_goes_is_told_so() -> None:
    session = mqtt_session.MqttSession(running_clock(), lambda topic, data: None, lambda topic: topic)
    await session._room.acquire()
    waiting = asyncio.create_task(session.publish(BROKER_TOPIC, b"one"))
    await asyncio.sleep(0)
    session.break_("the broker was stopped")
    with pytest.raises(ConnectionLost):
        await waiting


@real_time
async def test_a_broker_that_talks_nonsense_later_costs_the_session_only() -> None:
    async with scripted_broker(connack(), b"\x40\x04\x00") as url:
        node = MqttNode(url)
        await node.start()
        stream = node.events()
        await node.send(MessageEnvelope(TOPIC, b"one"))
        await asyncio.sleep(0.1)
        await node.stop(drain_timeout_ms=0)
        assert [event for event in await drained(stream) if isinstance(event, MessageSendError)]
    for nonsense in (b"\x00\x00", b"\xf0\x00", b"\x30\x04\x00\xff\x00\x00", b"\xe0\x02\x8e\x00"):
        async with scripted_broker(connack(), nonsense) as url:
            node = MqttNode(url)
            await node.start()
            stream = node.events()
            await node.send(MessageEnvelope(TOPIC, b"one"))
            assert (await next_of(stream, ConnectionStatus)).state is ConnectionState.DISCONNECTED
            await node.stop(drain_timeout_ms=0)


@pytest.mark.parametrize(
    ("url", "settings", "told"),
    [
        ("http://localhost", {}, "begin with mqtt:// or mqtts://"),
        (f"mqtt://ali:{SECRET}@h/path", {}, "nothing may follow the port"),
        (f"mqtt://ali:{SECRET}@h", {"user": "b", "password": "c"}, "keep one of them"),
        ("mqtt://h", {"password": SECRET}, "without a user"),
        ("mqtt://h", {"client_id": ""}, "1 to 65535"),
        ("mqtt://h", {"client_id": "a\0b"}, "client_id holds a NUL, which no text of MQTT does"),
        ("mqtt://a%00b:c@h", {}, "user holds a NUL, which no text of MQTT does"),
        ("mqtt://h", {"user": "x" * 65_536, "password": SECRET}, "user has 65536 bytes: it must have 0 to 65535"),
        ("mqtt://h", {"user": "x", "password": SECRET * 6_000}, "password has 66000 bytes: it must have 0 to 65535"),
        ("mqtt://h", {"session_expiry_ms": -1}, "from 0 to"),
        ("mqtt://h", {"topic_prefix": "a/+"}, "levels of"),
        ("mqtt://h", {"topic_prefix": "$SYS"}, "levels of"),
    ],
)
def test_wrong_arguments_are_named_without_what_is_secret(url: str, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MqttNode(url, **settings)
    assert told in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_missing_client_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardwire.node.mqtt import node as mqtt_node

    monkeypatch.setattr(mqtt_node, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'shardwire\[mqtt\]'"):
        MqttNode("mqtt://localhost")
