"""UdpNode over real sockets: who meets whom, what a path does, and what strangers may do."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from typing import Any

import pytest
from live_nodes import OTHER_TOPIC, TOPIC, drained, next_of, real_time, until
from live_servers import free_port
from udp_relay import UdpRelay

from shardwire._native import WakuMessage
from shardwire.errors import ConfigError, NodeError, PayloadTooLargeError
from shardwire.node import (
    ConnectionState,
    ConnectionStatus,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessagesMissed,
    NodeConfig,
    StoreQuery,
    UdpNode,
)
from shardwire.node.udp import neighbours as udp_neighbours
from shardwire.node.udp import transport as udp_transport
from shardwire.node.udp.datagram import FRAGMENT, FRAGMENT_HEADER_BYTES, HELLO, STATUS, Datagram, decode

LOOPBACK = "udp://127.0.0.1:0"
GROUP = "239.255.70.9"
SILENCE_S = udp_neighbours.SILENCE_MS / 1_000


async def started(*args: Any, topics: tuple[str, ...] = (TOPIC,), **settings: Any) -> UdpNode:
    node = UdpNode(*args, **settings)
    await node.start()
    await node.subscribe(topics)
    return node


def at(node: UdpNode) -> str:
    assert node.address is not None
    host, port = node.address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def meet(*nodes: UdpNode) -> None:
    await until(lambda: all(node.connection_state is ConnectionState.CONNECTED for node in nodes))
    await until(lambda: all(node.counts.get("neighbours_came", 0) >= len(nodes) - 1 for node in nodes))


async def check_exchange(*nodes: UdpNode) -> None:
    """Everybody gets everything once, its own messages too."""
    streams = [node.events() for node in nodes]
    messages = {bytes([number]) * (1 + 20_000 * number) for number in range(len(nodes))}
    for node, message in zip(nodes, sorted(messages), strict=True):
        await node.send(MessageEnvelope(TOPIC, message, meta=b"m"))
        await node.send(MessageEnvelope(OTHER_TOPIC, b"not subscribed"))
    for stream in streams:
        events = await drained(stream, first={MessageReceived: len(nodes), MessagePropagated: 2}, quiet_s=0.5)
        received = [event for event in events if isinstance(event, MessageReceived)]
        assert sorted(event.envelope.payload for event in received) == sorted(messages)
        hashes = {event.message_hash for event in received}
        propagated = [event for event in events if isinstance(event, MessagePropagated)]
        assert len(propagated) == 2
        assert len({event.message_hash for event in propagated} & hashes) == 1


@real_time
async def test_three_that_know_one_another_meet() -> None:
    alice = await started(LOOPBACK)
    assert alice.connection_state is ConnectionState.DISCONNECTED
    bob = await started(LOOPBACK, peers=[at(alice)])
    carol = await started(f"{LOOPBACK}?peers={at(alice)},{at(bob)}")
    await meet(alice, bob, carol)
    await check_exchange(alice, bob, carol)
    assert not alice.has_store
    with pytest.raises(NodeError, match="no store"):
        await alice.query_store(StoreQuery())
    for node in (alice, bob, carol):
        await node.stop()


@real_time
async def test_three_in_a_group_meet() -> None:
    url = f"udp://{GROUP}:{free_port()}"
    nodes = [await started(url, interface="127.0.0.1") for _ in range(3)]
    await meet(*nodes)
    await check_exchange(*nodes)
    for node in nodes:
        await node.stop()


@real_time
async def test_ipv6_and_mapped_ipv4() -> None:
    alice = await started("udp://[::1]:0")
    bob = await started("udp://[::1]:0", peers=[at(alice)])
    await meet(alice, bob)
    await check_exchange(alice, bob)
    both = await started("udp://[::]:0")
    four = await started(LOOPBACK, peers=[f"127.0.0.1:{both.address[1]}"])  # type: ignore[index]
    await meet(both, four)
    await check_exchange(both, four)
    for node in (alice, bob, both, four):
        await node.stop()


@real_time
async def test_a_message_waits_until_somebody_comes_and_who_goes_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    alice = await started(LOOPBACK)
    outcomes = alice.events()
    request = await alice.send(MessageEnvelope(TOPIC, b"early"))
    await asyncio.sleep(0.2)
    bob = await started(LOOPBACK, peers=[at(alice)])
    stream = bob.events()
    assert (await next_of(outcomes, MessagePropagated)).request_id == request
    assert (await next_of(stream, MessageReceived)).envelope.payload == b"early"
    place = bob.address
    await bob.stop()
    # By its good-bye, not by its silence.
    await until(lambda: alice.connection_state is ConnectionState.DISCONNECTED, within_s=SILENCE_S / 2)
    # Nobody is warned of one that ends as it should; and where port 0 was asked for, which one it is stands in the log.
    assert f"{alice.name}: disconnected: the last neighbour said good-bye" in caplog.text
    assert f"{alice.name}: listens at {at(alice)}" in caplog.text
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert not [warning for warning in warnings if "disconnected" in warning]
    # Nor of what is sent before anybody can have come.
    told = [record for record in caplog.records if "publishing fails and is tried again" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.INFO]
    again = await started(f"udp://{place[0]}:{place[1]}", peers=[at(alice)])  # type: ignore[index]
    assert (await next_of(outcomes, MessagesMissed)).since_ns > 0
    await alice.stop()
    await again.stop()


@real_time
async def test_who_sends_to_nobody_is_warned(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    for finding_ms, has_met in ((0, False), (60_000, True)):
        monkeypatch.setattr("shardwire.node.udp.transport.FINDING_MS", finding_ms)
        alice = await started(LOOPBACK)
        if has_met:
            bob = await started(LOOPBACK, peers=[at(alice)])
            await meet(alice, bob)
            await bob.stop()
            await until(lambda node=alice: node.connection_state is ConnectionState.DISCONNECTED)  # type: ignore[misc]
        caplog.clear()
        await alice.send(MessageEnvelope(TOPIC, b"x"))
        warning = f"{alice.name}: publishing fails and is tried again: nobody is in reach"
        await until(lambda: warning in caplog.messages)  # noqa: B023
        assert [each.levelno for each in caplog.records if each.getMessage() == warning] == [logging.WARNING]
        await alice.stop(drain_timeout_ms=0)


@real_time
async def test_the_largest_message_is_known_before_the_start() -> None:
    for settings in ({}, {"datagram_bytes_max": 9_000}, {"config": NodeConfig(max_message_size_bytes=5_000)}):
        node = UdpNode(LOOPBACK, **settings)  # type: ignore[arg-type]
        before = node.max_message_size_bytes
        await node.start()
        assert before == node.max_message_size_bytes
        await node.stop()
    assert UdpNode(LOOPBACK).max_message_size_bytes == 64 * (1_200 - FRAGMENT_HEADER_BYTES)


@real_time
async def test_a_lossy_path_delays_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    ports = free_port(), free_port()
    relay = UdpRelay(ports, loss=0.1)
    alice = await started(f"udp://127.0.0.1:{ports[0]}", peers=[f"127.0.0.1:{relay.fronts[1]}"])
    bob = await started(f"udp://127.0.0.1:{ports[1]}", peers=[f"127.0.0.1:{relay.fronts[0]}"])
    await meet(alice, bob)
    stream = bob.events()
    payloads = [number.to_bytes(2, "big") * (10 + 300 * number) for number in range(60)]
    for payload in payloads:
        await alice.send(MessageEnvelope(TOPIC, payload))
    received = [(await next_of(stream, MessageReceived)).envelope.payload for _ in payloads]
    assert sorted(received) == sorted(payloads)
    assert not [event for event in await drained(stream) if isinstance(event, MessageReceived)]
    assert relay.largest <= 1_200
    await alice.stop()
    await bob.stop()
    relay.close()


@real_time
async def test_a_cut_path_is_noticed_and_found_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(udp_neighbours, "SILENCE_MS", 3_000)
    monkeypatch.setattr(udp_neighbours, "HELLO_MS", 500)
    ports = free_port(), free_port()
    relay = UdpRelay(ports)
    alice = await started(f"udp://127.0.0.1:{ports[0]}", peers=[f"127.0.0.1:{relay.fronts[1]}"])
    bob = await started(f"udp://127.0.0.1:{ports[1]}", peers=[f"127.0.0.1:{relay.fronts[0]}"])
    await meet(alice, bob)
    stream, outcomes = bob.events(), alice.events()
    relay.cut = True
    request = await alice.send(MessageEnvelope(TOPIC, bytes(10_000)))
    assert (await next_of(stream, ConnectionStatus)).state is ConnectionState.DISCONNECTED
    relay.cut = False
    assert (await next_of(stream, ConnectionStatus)).state is ConnectionState.CONNECTED
    assert (await next_of(outcomes, MessagePropagated)).request_id == request
    await until(lambda: bob.counts.get("missed") == 1 and bob.counts.get("received", 0) >= 1)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len([record for record in warnings if "disconnected" in record.getMessage()]) == 2
    await alice.stop()
    await bob.stop()
    relay.close()


@real_time
async def test_strangers_get_nothing_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_neighbours, "STRANGERS_PER_SECOND", 10)
    alice = await started(LOOPBACK)
    bob = await started(LOOPBACK, peers=[at(alice)])
    await meet(alice, bob)
    stream = alice.events()
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stranger.setblocking(False)
    message = WakuMessage(payload=b"forged", content_topic=TOPIC, timestamp_ns=1).encode()
    sent, began_s = 0, int(time.monotonic())
    for number in range(50):
        for data in (
            b"",
            bytes([number]) * 500,
            Datagram(number + 1, 7, FRAGMENT, number, 0, 1, message).encode(),
            Datagram(number + 1, 7, STATUS, number, held=1).encode(),
            Datagram(number + 1, 7, HELLO, token=5, answer=1).encode(),
            Datagram(number + 1, 7, HELLO).encode(),
            Datagram(0, 7, HELLO, token=5, answer=1).encode(),
        ):
            stranger.sendto(data, alice.address)  # type: ignore[arg-type]
            sent += len(data)
    await until(lambda: alice.counts.get("datagrams_malformed", 0) >= 50)
    await until(lambda: alice.counts.get("datagrams_unproven", 0) >= 100)
    answers = []
    while True:
        try:
            answers.append(stranger.recv(65_535))
        except BlockingIOError:
            break
    assert answers
    # Nothing but answers to hellos, each no longer than what it answers, of which few are given in a second.
    longest = len(Datagram(1, 7, HELLO, token=5, answer=1).encode())
    assert max(map(len, answers)) <= longest
    assert len(answers) <= udp_neighbours.STRANGERS_PER_SECOND * (int(time.monotonic()) - began_s + 1)
    assert sum(map(len, answers)) < sent
    # It shows what it was given: now it is one of them, with no more rights than the others.
    hello = decode(answers[-1])
    assert hello is not None
    stranger.sendto(Datagram(hello.token, 7, HELLO, token=5).encode(), alice.address)  # type: ignore[arg-type]
    await until(lambda: alice.counts["neighbours_came"] == 2)
    # Of another process than it said before.
    stranger.sendto(Datagram(hello.token, 8, FRAGMENT, 1, 0, 1, message).encode(), alice.address)  # type: ignore[arg-type]
    await asyncio.sleep(0.1)
    assert not [event for event in await drained(stream) if isinstance(event, MessageReceived)]
    # One that confirms nothing holds nobody up.
    outcomes = bob.events()
    await bob.send(MessageEnvelope(TOPIC, b"genuine"))
    await next_of(outcomes, MessagePropagated)
    assert (await next_of(stream, MessageReceived)).envelope.payload == b"genuine"
    await alice.send(MessageEnvelope(TOPIC, bytes(30_000)))
    await next_of(outcomes, MessageReceived)
    stranger.close()
    await alice.stop()
    await bob.stop()


@real_time
async def test_datagrams_become_smaller_where_the_path_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    alice = await started(LOOPBACK)
    bob = await started(LOOPBACK, peers=[at(alice)], datagram_bytes_max=9_000)
    await meet(alice, bob)
    assert bob.max_message_size_bytes == 64 * (9_000 - FRAGMENT_HEADER_BYTES)
    sendto = socket.socket.sendto

    class Narrow:
        """The socket, on a path of 900 bytes."""

        def __init__(self, connection: socket.socket) -> None:
            self._connection = connection

        def sendto(self, data: bytes, address: Any) -> int:
            if len(data) > 900:
                raise OSError(errno.EMSGSIZE, "too large")
            return sendto(self._connection, data, address)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

    sockets = bob._udp._sockets
    monkeypatch.setattr(sockets[0], "_connection", Narrow(sockets[0]._connection))
    stream, outcomes = alice.events(), bob.events()
    await bob.send(MessageEnvelope(TOPIC, bytes(30_000)))
    await next_of(outcomes, MessagePropagated)
    assert len((await next_of(stream, MessageReceived)).envelope.payload) == 30_000
    assert bob.max_message_size_bytes == 64 * (800 - FRAGMENT_HEADER_BYTES)
    with pytest.raises(PayloadTooLargeError):
        await bob.send(MessageEnvelope(TOPIC, bytes(60_000)))
    await alice.stop()
    await bob.stop()


@pytest.mark.parametrize("server", ["says that there is no such name", "does not answer"])
@real_time
async def test_a_neighbour_keeps_its_address_while_the_name_server(
    monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    resolve, asked = udp_transport.resolve, asyncio.Event()

    async def resolved(host: str, port: int, family: int) -> list[tuple[int, Any]]:
        if alice_left:
            asked.set()
            if server == "does not answer":
                await asyncio.sleep(3_600)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return await resolve("127.0.0.1", port, family)

    monkeypatch.setattr(udp_transport, "resolve", resolved)
    monkeypatch.setattr(udp_transport, "RESOLVE_MS", 10)
    alice_left = False
    place = f"127.0.0.1:{free_port()}"
    alice = await started(f"udp://{place}")
    bob = await started(LOOPBACK, peers=[place.replace("127.0.0.1", "alice.example")])
    await meet(alice, bob)
    alice_left = True
    await alice.stop()
    await asyncio.wait_for(asked.wait(), 60)
    await until(lambda: bob.status().peers_missing == (place,))
    alice = await started(f"udp://{place}")
    await meet(alice)
    await alice.stop()
    await bob.stop()


@real_time
async def test_what_cannot_be_used_is_said(caplog: pytest.LogCaptureFixture) -> None:
    taken = await started(LOOPBACK)
    with pytest.raises(NodeError, match="in use"):
        await UdpNode(f"udp://{at(taken)}").start()
    with pytest.raises(NodeError, match="cannot be used"):
        await UdpNode("udp://192.0.2.1:9700").start()
    with pytest.raises(NodeError, match="has no address"):
        await UdpNode(LOOPBACK, peers=["no.such.host.invalid:1"]).start()
    assert "raised" not in caplog.text
    with pytest.raises(NodeError, match="cannot be joined"):
        await UdpNode(f"udp://{GROUP}", interface="192.0.2.1").start()
    small = await started(LOOPBACK, config=NodeConfig(max_message_size_bytes=5_000))
    assert small.max_message_size_bytes == 5_000
    assert taken.max_message_size_bytes == 64 * (1_200 - FRAGMENT_HEADER_BYTES)
    await small.stop()
    await taken.stop()


@pytest.mark.parametrize(
    ("url", "settings", "told"),
    [
        ("nats://localhost", {}, "begin with udp://"),
        ("udp://a:open-sesame@h", {}, "use an Encryption"),
        ("udp://h", {"peers": "a:1"}, "must be a list of texts host:port"),
        ("udp://h", {"peers": ["a:0"]}, "at port 0, it must be one from 1"),
        ("udp://h", {"peers": ["a:99999"]}, "its port is none"),
        ("udp://h?peer=a:1", {}, "only peers"),
        ("udp://h", {"peers": [f"a:{port}" for port in range(1, 66)]}, "64 may be"),
        (f"udp://{GROUP}", {"peers": ["a:1"]}, "found by itself"),
        ("udp://h", {"accept_peers": False}, "name some"),
        ("udp://h", {"interface": "127.0.0.1"}, "without a group"),
        (f"udp://{GROUP}", {"ttl": 256}, "from 0 to 255"),
        ("udp://h", {"datagram_bytes_max": 507}, "from 508 to 65507"),
        ("udp://h", {"datagram_bytes_max": 65_508}, "from 508 to 65507"),
    ],
)
def test_wrong_arguments_are_named(url: str, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        UdpNode(url, **settings)
    assert told in str(caught.value)
    assert "open-sesame" not in str(caught.value)
