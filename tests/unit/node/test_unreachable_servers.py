"""What a node says of a server that is not there: why, and what to do, without the numbers of the system."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import write_certificate
from live_nodes import real_time
from live_servers import free_port

from shardwire import ConfigError, NodeError
from shardwire.node import MqttNode, NatsNode, UdpNode, WakuRestNode
from shardwire.node.transport import TransportNode
from shardwire.node.transport.address import unreachable

NODES: dict[str, Callable[..., TransportNode]] = {"nats": NatsNode, "mqtt": MqttNode, "http": WakuRestNode}
NO_NAMES = ["a..b", "x" * 64 + ".invalid", "with space", "with\x00zero"]


@pytest.mark.parametrize("scheme", NODES)
@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("127.0.0.1", "nobody listens there: start the server, or correct host and port"),
        ("localhost", "nobody listens there: start the server, or correct host and port"),
        ("no.such.host.invalid", r"the host is not found \(.+\): correct its name"),
    ],
)
def test_a_server_that_is_not_there(scheme: str, host: str, said: str) -> None:
    with pytest.raises(NodeError, match=rf"(cannot be used|no connection): {said}$"):
        asyncio.run(NODES[scheme](f"{scheme}://{host}:{free_port()}").start())


@pytest.mark.parametrize("scheme", [*NODES, "udp"])
@pytest.mark.parametrize("host", NO_NAMES)
def test_a_host_that_is_no_name_is_refused_before_anybody_is_asked(scheme: str, host: str) -> None:
    with pytest.raises(ConfigError, match=r"url names the host '.+'.*: a name has 1 to 63 characters before"):
        (NODES | {"udp": UdpNode})[scheme](f"{scheme}://{host}:1")


def test_a_peer_that_is_no_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a peer names the host 'a\.\.b'"):
        UdpNode(peers=["a..b:1"])


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://127.0.0.1:x", "http://[::1"])
def test_a_port_that_is_none_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match=r"url is .+: it is no URL, or its port is none$"):
        WakuRestNode(url)


@pytest.mark.parametrize("scheme", NODES)
def test_nobody_is_reached_at_port_0(scheme: str) -> None:
    with pytest.raises(
        ConfigError, match=r"127\.0\.0\.1:0': nobody is reached at port 0, it must be one from 1 to 65535$"
    ):
        NODES[scheme](f"{scheme}://127.0.0.1:0")


@pytest.mark.parametrize(("url", "peers"), [("udp://239.255.70.1:0", ()), ("udp://127.0.0.1:0", ("127.0.0.1:0",))])
def test_neither_a_group_nor_a_peer_has_port_0(url: str, peers: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r":0': nobody is reached at port 0"):
        UdpNode(url, peers=peers)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("udp://192.0.2.1:9700", "udp://192.0.2.1:9700 cannot be used: .+: name an address of this machine"),
        ("udp://[2001:db8::1]:9700", r"udp://\[2001:db8::1\]:9700 cannot be used: .+: name an address of this machine"),
        ("udp://no.such.host.invalid", r"cannot be used: the host is not found \(.+\): correct its name$"),
    ],
)
def test_an_address_of_its_own_that_is_none(url: str, said: str) -> None:
    with pytest.raises(NodeError, match=said):
        asyncio.run(UdpNode(url).start())


@real_time
async def test_a_rest_interface_whose_certificate_is_not_trusted(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    for tls, said in ((context, "its certificate is not trusted: self-signed certificate"), (None, "TLS failed: ")):
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(NodeError, match=f"no connection: {said}"):
            await WakuRestNode(url).start()
        server.close()


def test_another_error_is_told_in_words() -> None:
    error = OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
    assert unreachable(error) == "No route to host"
    assert unreachable(OSError("closed by the proxy")) == "closed by the proxy"
    assert unreachable(TimeoutError()) == "TimeoutError"
