"""What a node says of a server that is not there: why, and what to do, without the numbers of the system."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest
from live_servers import free_port

from shardwire import NodeError
from shardwire.node import MqttNode, NatsNode
from shardwire.node.transport.address import unreachable


@pytest.mark.parametrize("node", [NatsNode, MqttNode])
@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("127.0.0.1", "nobody listens there: start the server, or correct host and port"),
        ("localhost", "nobody listens there: start the server, or correct host and port"),
        ("no.such.host.invalid", r"the host is not found \(.+\): correct its name"),
    ],
)
def test_a_server_that_is_not_there(node: type[NatsNode | MqttNode], host: str, said: str) -> None:
    scheme = "nats" if node is NatsNode else "mqtt"
    with pytest.raises(NodeError, match=rf"cannot be used: {said}$"):
        asyncio.run(node(f"{scheme}://{host}:{free_port()}").start())


def test_another_error_is_told_in_words() -> None:
    error = OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
    assert unreachable(error) == "No route to host"
    assert unreachable(OSError("closed by the proxy")) == "closed by the proxy"
    assert unreachable(TimeoutError()) == "TimeoutError"
