"""NatsNode against a real nats-server: who gets what, limits, refusals, and connections that break."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import nkeys
import pytest
from certificates import trusting, write_certificate
from live_nodes import OTHER_TOPIC, TOPIC, drained, next_of, real_time, until
from live_servers import NatsServer
from nats.aio.client import Client

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
    NatsNode,
    NodeConfig,
    StoreQuery,
)
from shardwire.node.nats import session as nats_session
from shardwire.node.nats.transport import HEADER_BYTES, NatsTransport

SECRET = "open-sesame"


async def started(*args: Any, topics: tuple[str, ...] = (TOPIC,), **settings: Any) -> NatsNode:
    node = NatsNode(*args, **settings)
    await node.start()
    await node.subscribe(topics)
    return node


async def raw_client(server: NatsServer) -> Client:
    client = Client()
    await client.connect(server.url)
    return client


@real_time
async def test_everybody_gets_a_message_and_its_sender_once(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server:
        nodes = [await started(server.url, topics=(TOPIC, OTHER_TOPIC)) for _ in range(3)]
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
        assert not nodes[0].has_store
        with pytest.raises(NodeError, match="JetStream"):
            await nodes[0].query_store(StoreQuery())
        for node in nodes:
            await node.stop()


@real_time
async def test_the_servers_limit_holds_and_follows_it(tmp_path: Path) -> None:
    with NatsServer(tmp_path, settings="max_payload: 20000") as server:
        node = await started(server.url)
        small = await started(server.url, config=NodeConfig(max_message_size_bytes=5_000))
        assert node.max_message_size_bytes == 20_000 - HEADER_BYTES
        assert small.max_message_size_bytes == 5_000
        with pytest.raises(PayloadTooLargeError, match=str(20_000 - HEADER_BYTES)):
            await node.send(MessageEnvelope(TOPIC, bytes(20_000)))
        stream = node.events()
        room = node.max_message_size_bytes - 100
        await node.send(MessageEnvelope(TOPIC, bytes(room)))
        await next_of(stream, MessagePropagated)
        server.settings = "max_payload: 40000"
        server.restart()
        await until(lambda: node.max_message_size_bytes == 40_000 - HEADER_BYTES)
        assert small.max_message_size_bytes == 5_000
        await node.stop()
        await small.stop()


@real_time
async def test_a_restart_is_told_once_and_what_came_meanwhile_is_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shardwire")
    with NatsServer(tmp_path) as server:
        alice, bob = await started(server.url), await started(server.url)
        stream, outcomes = bob.events(), alice.events()
        server.kill()
        assert (await next_of(stream, ConnectionStatus)).state is ConnectionState.DISCONNECTED
        await until(lambda: alice.connection_state is ConnectionState.DISCONNECTED)
        request = await alice.send(MessageEnvelope(TOPIC, b"while away"))
        await asyncio.sleep(0.8)
        server.start()
        assert (await next_of(stream, ConnectionStatus)).state is ConnectionState.CONNECTED
        assert (await next_of(stream, MessagesMissed)).since_ns > 0
        assert (await next_of(outcomes, MessagePropagated)).request_id == request
        await alice.send(MessageEnvelope(TOPIC, b"afterwards"))
        # It went out as soon as alice was back: bob has it where he was back before, and asks for it where not.
        payloads = [(await next_of(stream, MessageReceived)).envelope.payload]
        if payloads == [b"while away"]:
            payloads.append((await next_of(stream, MessageReceived)).envelope.payload)
        assert payloads[-1] == b"afterwards"
        lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len([line for line in lines if "disconnected" in line]) == 2, lines
        await alice.stop()
        await bob.stop()


@real_time
async def test_a_server_that_hangs_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_session, "HEARTBEAT_MS", 1_000)
    with NatsServer(tmp_path) as server:
        alice, bob = await started(server.url), await started(server.url)
        stream, outcomes = bob.events(), alice.events()
        server.pause()
        try:
            request = await alice.send(MessageEnvelope(TOPIC, b"into the void"))
            assert (await next_of(stream, ConnectionStatus)).state is ConnectionState.DISCONNECTED
        finally:
            server.go_on()
        assert (await next_of(stream, MessagesMissed)).since_ns > 0
        assert (await next_of(outcomes, MessagePropagated)).request_id == request
        await alice.stop()
        await bob.stop()


@real_time
async def test_a_connection_that_breaks_with_something_to_write_is_noticed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Not by the heartbeat.
    monkeypatch.setattr(nats_session, "HEARTBEAT_MS", 600_000)
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        writer.write(b'INFO {"max_payload":1048576}\r\n')
        pings = 0
        while pings < 2:  # of the connection and of the subscription; what follows is not read
            if (await reader.readline()).strip() == b"PING":
                pings += 1
                writer.write(b"PONG\r\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    # What is not read is given up soon, and what follows waits in the client.
    monkeypatch.setattr(NatsTransport, "publish_timeout_ms", 300)
    node = await started(f"nats://{host}:{port}", stream=None)
    events = node.events()
    session = node._nats._session
    assert session is not None
    before = asyncio.all_tasks()
    for _ in range(30):
        await node.send(MessageEnvelope(TOPIC, bytes(900_000)))
    await until(lambda: session.client.pending_data_size > 1_000_000)
    writers[0].transport.abort()
    server.close()
    assert (await next_of(events, ConnectionStatus)).state is ConnectionState.DISCONNECTED
    await until(lambda: all(task.done() for task in before if "nats" in repr(task.get_coro())))
    await node.stop(drain_timeout_ms=0)


@real_time
async def test_what_is_no_message_is_counted_and_dropped(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server:
        alice, bob = await started(server.url), await started(server.url, topics=(TOPIC, OTHER_TOPIC))
        stream = bob.events()
        stranger = await raw_client(server)
        subject = "shardwire.test.1.room.proto." + 64 * "0"
        for garbage in (b"", b"\xff" * 1_000, b"\x0a\xff\xff\xff\xff\x0f", bytes(200_000)):
            await stranger.publish(subject, garbage)
        # Says that it is of another topic than the subject that it was published to.
        heard: list[bytes] = []

        async def keep(message: Any) -> None:
            heard.append(message.data)

        await stranger.subscribe("shardwire.>", cb=keep)
        # The library asks before it has written what it asks about: the second answer comes after that was read.
        await stranger.flush()
        await stranger.flush()
        await alice.send(MessageEnvelope(TOPIC, b"genuine"))
        await next_of(stream, MessageReceived)
        await until(lambda: bool(heard))
        await stranger.publish("shardwire.test.1.other%2Eroom%20%24%2B%23%2A%3E.proto.x", heard[0])
        await stranger.flush()
        # No bytes at all are a message of no topic.
        await until(lambda: bob.counts.get("received_misplaced") == 2)
        assert bob.counts["received_malformed"] == 3
        assert not [event for event in await drained(stream) if isinstance(event, MessageReceived)]
        await stranger.close()
        await alice.stop()
        await bob.stop()


@real_time
async def test_what_a_slow_reader_of_the_socket_loses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_session, "PENDING_MESSAGES_MAX", 3)
    with NatsServer(tmp_path) as server:
        alice, bob = await started(server.url), await started(server.url)
        stream = bob.events()
        begun_ns = time.time_ns()
        for number in range(200):
            await alice.send(MessageEnvelope(TOPIC, number.to_bytes(2, "big")))
        assert (await next_of(stream, MessagesMissed)).since_ns < begun_ns
        assert bob.counts["slow_consumer"] > 0
        await alice.stop()
        await bob.stop()


@pytest.mark.parametrize("way", ["url", "arguments", "token", "token in url"])
@real_time
async def test_credentials_are_used_and_told_to_nobody(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    auth = f"user: ali, password: {SECRET}" if way in ("url", "arguments") else f"token: {SECRET}"
    with NatsServer(tmp_path, settings=f"authorization {{ {auth} }}") as server:
        place = server.url.removeprefix("nats://")
        right: dict[str, tuple[str, dict[str, str]]] = {
            "url": (f"nats://ali:{SECRET}@{place}", {}),
            "arguments": (server.url, {"user": "ali", "password": SECRET}),
            "token": (server.url, {"token": SECRET}),
            "token in url": (f"nats://{SECRET}@{place}", {}),
        }
        url, arguments = right[way]
        node = NatsNode(url, **arguments)  # type: ignore[arg-type]
        await node.start()
        assert SECRET not in repr(node) + repr(node._transport) + repr(node.__dict__)
        await node.stop()
        wrong = {name: f"not {value}" for name, value in arguments.items()}
        refused = NatsNode(url.replace(SECRET, f"not-{SECRET}"), **wrong)  # type: ignore[arg-type]
        with pytest.raises(NodeError, match="Authorization Violation") as caught:
            await refused.start()
        assert SECRET not in str(caught.value)
        # Once it is told the right one the server lets a node in that it refused.
        assert SECRET not in caplog.text


def jwt(kind: str, name: str, subject: nkeys.KeyPair, issuer: nkeys.KeyPair) -> str:
    """A token as NATS reads it (ADR-14): header, claims and an Ed25519 signature."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    header = part(json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode())
    claims: dict[str, Any] = {
        "jti": name,
        "iat": 1,
        "iss": issuer.public_key.decode(),
        "sub": subject.public_key.decode(),
        "name": name,
        "nats": {"type": kind, "version": 2},
    }
    if kind == "account":
        unlimited = ("subs", "data", "payload", "imports", "exports", "conn", "leaf")
        claims["nats"]["limits"] = {**dict.fromkeys(unlimited, -1), "wildcards": True}
    if kind == "user":
        claims["nats"] |= dict.fromkeys(("subs", "data", "payload"), -1)
    body = part(json.dumps(claims).encode())
    return f"{header}.{body}.{part(issuer.sign(f'{header}.{body}'.encode()))}"


def new_key(prefix: int) -> nkeys.KeyPair:
    return nkeys.from_seed(bytearray(nkeys.encode_seed(os.urandom(32), prefix)))


@real_time
async def test_a_credentials_file_opens_an_account(tmp_path: Path) -> None:
    operator, account, user = (
        new_key(kind) for kind in (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER)
    )
    settings = (
        f"operator: {jwt('operator', 'o', operator, operator)}\n"
        "resolver: MEMORY\n"
        f"resolver_preload: {{ {account.public_key.decode()}: {jwt('account', 'a', account, operator)} }}"
    )
    credentials = tmp_path / "user.creds"
    credentials.write_text(
        f"-----BEGIN NATS USER JWT-----\n{jwt('user', 'u', user, account)}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    with NatsServer(tmp_path / "server", settings=settings) as server:
        node = NatsNode(server.url, credentials=credentials)
        await node.start()
        assert node.connection_state is ConnectionState.CONNECTED
        await node.stop()
        with pytest.raises(NodeError):
            await NatsNode(server.url).start()


@real_time
async def test_tls_is_used_and_a_server_without_it_is_told_nothing(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    settings = f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}'
    with NatsServer(tmp_path / "server", settings=settings) as server:
        alice = await started(server.url, tls=trusting(certificate))
        bob = await started(server.url.replace("nats:", "tls:"), tls=trusting(certificate))
        stream = bob.events()
        await alice.send(MessageEnvelope(TOPIC, b"sealed"))
        assert (await next_of(stream, MessageReceived)).envelope.payload == b"sealed"
        with pytest.raises(NodeError, match="not trusted"):
            await NatsNode(server.url.replace("nats:", "tls:")).start()
        await alice.stop()
        await bob.stop()
    heard = bytearray()

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload":1000000,"auth_required":true,"headers":true}\r\n')
        heard.extend(await reader.read())
        writer.close()

    impostor = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = impostor.sockets[0].getsockname()[1]
    with pytest.raises(NodeError, match="TLS is asked for"):
        await NatsNode(f"tls://ali:{SECRET}@127.0.0.1:{port}").start()
    assert bytes(heard) == b""
    impostor.close()


@real_time
async def test_what_a_user_may_not_do_is_said(tmp_path: Path) -> None:
    permissions = 'publish: { deny: "shardwire.test.1.room.>" }, subscribe: { deny: "shardwire.test.1.other%2Eroom.>" }'
    other = "/test/1/other.room/proto"
    settings = f"authorization {{ users: [{{ user: u, password: p, permissions: {{ {permissions} }} }}] }}"
    with NatsServer(tmp_path, settings=settings) as server:
        node = await started(server.url, user="u", password="p")
        stream = node.events()
        await node.send(MessageEnvelope(TOPIC, b"forbidden"))
        error = await next_of(stream, MessageSendError)
        assert error.permanent
        assert "publish to shardwire.test.1.room.proto" in error.error
        for _ in range(2):
            with pytest.raises(NodeError, match="not subscribe to"):
                await node.subscribe([other])
        assert node.subscriptions == (TOPIC,)
        assert node.connection_state is ConnectionState.CONNECTED
        await node.stop()


@real_time
async def test_servers_that_are_none_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_session, "CONNECT_TIMEOUT_S", 0.2)

    async def serve(first: bytes) -> tuple[asyncio.Server, str]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(first)
            await reader.read()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        return server, f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    for first in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"INFO {not json}\r\n", b"INFO []\r\n", b"\xff" * 10_000):
        server, url = await serve(first)
        with pytest.raises(NodeError, match=r"cannot be used|raised"):
            await NatsNode(url).start()
        server.close()
    with pytest.raises(NodeError, match="nobody listens there: start the server"):
        await NatsNode("nats://127.0.0.1:1").start()


@pytest.mark.parametrize(
    ("url", "settings", "told"),
    [
        ("http://localhost", {}, "begin with nats:// or tls://"),
        ("nats://", {}, "name a host"),
        ("nats://h:99999", {}, "its port is none"),
        (f"nats://ali:{SECRET}@h/path", {}, "nothing may follow the port"),
        (f"nats://ali:{SECRET}@h", {"token": "t"}, "keep one of them"),
        ("nats://h", {"user": "ali"}, "given together"),
        ("nats://h", {"user": "a", "password": "b", "token": "t"}, "wants one of them"),
        ("nats://h", {"credentials": "no such file"}, "no such file"),
        ("nats://h", {"subject_prefix": "a.b"}, "A-Z a-z 0-9"),
        ("nats://h", {"stream": "*"}, "A-Z a-z 0-9"),
    ],
)
def test_wrong_arguments_are_named_without_what_is_secret(url: str, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NatsNode(url, **settings)
    assert told in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_client_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from shardwire.node.nats import node as nats_node

    monkeypatch.setattr(nats_node, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'shardwire\[nats\]'"):
        NatsNode("nats://localhost")
