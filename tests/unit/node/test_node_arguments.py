"""Arguments of nodes and of what simulates them, of a wrong kind: refused at once, by their names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from shardwire import ConfigError, NodeError
from shardwire.node import (
    MemoryNetwork,
    MemoryNode,
    MessageEnvelope,
    MqttNode,
    NatsNode,
    NetworkConditions,
    SystemClock,
    UdpNode,
    VirtualClock,
    VirtualTimeLoop,
    WakuRestNode,
    create_node,
    run_virtual,
)

Call = Callable[..., Any]
NODES: dict[str, Call] = {
    "NatsNode": lambda **given: NatsNode("nats://host", **given),
    "MqttNode": lambda **given: MqttNode("mqtt://host", **given),
    "UdpNode": lambda **given: UdpNode("udp://host", **given),
    "WakuRestNode": lambda **given: WakuRestNode("http://host", **given),
    "create_node": lambda **given: create_node("nats://host", **given),
    "MemoryNetwork": MemoryNetwork,
    "MemoryNetwork.create_node": lambda **given: MemoryNetwork().create_node("alice", **given),
}
CLOCKS = list(NODES)
TEXTS = [
    ("NatsNode", "user"),
    ("NatsNode", "token"),
    ("NatsNode", "stream"),
    ("NatsNode", "subject_prefix"),
    ("MqttNode", "client_id"),
    ("MqttNode", "topic_prefix"),
    ("UdpNode", "interface"),
    ("create_node", "credentials"),
    ("create_node", "participant"),
]
FLAGS = [
    ("UdpNode", "accept_peers"),
    ("WakuRestNode", "use_store"),
    ("WakuRestNode", "light"),
    ("MemoryNetwork", "store"),
    ("MemoryNetwork", "trace_payloads"),
]


@pytest.mark.parametrize("name", CLOCKS)
@pytest.mark.parametrize("clock", [5, "now", SystemClock], ids=lambda clock: getattr(clock, "__name__", repr(clock)))
def test_what_is_no_clock(name: str, clock: object) -> None:
    with pytest.raises(
        ConfigError, match=r"clock is (a int|a str|the class SystemClock): it must be a shardwire\.node"
    ):
        NODES[name](clock=clock)


@pytest.mark.parametrize(("name", "argument"), TEXTS)
@pytest.mark.parametrize("value", [5, b"bytes", "half \ud800"], ids=["an integer", "bytes", "half a character"])
def test_what_is_no_text(name: str, argument: str, value: object) -> None:
    with pytest.raises(
        ConfigError, match=rf"{argument} (is a int|is a bytes|holds half a character): it must be a text"
    ):
        NODES[name](**{argument: value})


@pytest.mark.parametrize(("name", "argument"), FLAGS)
@pytest.mark.parametrize("value", [1, "no", []], ids=repr)
def test_what_is_neither_true_nor_false(name: str, argument: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{argument} is .*: it must be True"):
        NODES[name](**{argument: value})


@pytest.mark.parametrize("name", ["NatsNode", "MqttNode", "WakuRestNode"])
def test_tls_wants_a_context(name: str) -> None:
    with pytest.raises(ConfigError, match="tls is a bool: it must be a SSLContext or None"):
        NODES[name](tls=True)


def test_a_creds_file_is_named_by_a_path() -> None:
    with pytest.raises(ConfigError, match=r"credentials is a int: it must name a \.creds file"):
        NODES["NatsNode"](credentials=5)


@pytest.mark.parametrize("value", ["soon", None, -1, True], ids=repr)
def test_a_session_expires_after_a_number_of_milliseconds(value: object) -> None:
    with pytest.raises(ConfigError, match=r"session_expiry_ms is .*: it must be an integer from 0 to"):
        NODES["MqttNode"](session_expiry_ms=value)


@pytest.mark.parametrize("seed", ["7", None, 1.5], ids=repr)
def test_the_seed_of_a_network_is_an_integer(seed: Any) -> None:
    with pytest.raises(ConfigError, match=r"seed is .*: it must be an integer"):
        MemoryNetwork(seed=seed)


@pytest.mark.parametrize("name", [[], {}, 5], ids=repr)
def test_groups_hold_names(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"a name in groups\[0\] is a .*: it must be a text"):
        MemoryNetwork().partition([[name]])


@pytest.mark.parametrize("value", [0.2, {"loss": 0.2}, "lossy"], ids=repr)
def test_conditions_that_are_assigned_are_looked_at_then(value: Any) -> None:
    network = MemoryNetwork()
    node = network.create_node("alice")
    for owner in (network, node):
        with pytest.raises(
            ConfigError, match=f"conditions is a {type(value).__name__}: it must be a NetworkConditions"
        ):
            owner.conditions = value
    with pytest.raises(ConfigError):
        network.conditions = None  # type: ignore[assignment]
    network.conditions = node.conditions = NetworkConditions(loss=1.0)
    node.conditions = None
    with pytest.raises(ConfigError, match="store_online is 'yes': it must be True or False"):
        network.store_online = "yes"  # type: ignore[assignment]


async def nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("limit_ms", "an hour"),
        ("limit_ms", 0),
        ("limit_ms", 10**30),
        ("start_epoch_ms", None),
        ("start_epoch_ms", 10**30),
        ("executor_delay_ms", 5),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_virtual_run_says_what_it_does_not_take(argument: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=argument):
        VirtualTimeLoop(**{argument: value})
    with pytest.raises(ConfigError, match=argument):
        run_virtual(nothing(), **{argument: value})


@pytest.mark.parametrize("value", [None, 5, nothing], ids=["None", "5", "a function"])
def test_a_virtual_run_takes_a_coroutine(value: Any) -> None:
    expected = r"it must be what an async function gives: call it" if value is nothing else "it must be what an async"
    with pytest.raises(ConfigError, match=expected):
        run_virtual(value)


def test_a_virtual_clock_says_where_it_is_made() -> None:
    with pytest.raises(ConfigError, match="make it inside of run_virtual"):
        VirtualClock()


def test_a_node_in_memory_belongs_to_its_loop() -> None:
    """From another thread it would go on in the middle of what its own loop does."""

    async def main() -> None:
        node = MemoryNetwork().create_node("alice")
        await node.start()
        for call in (node.stop, node.start, lambda: node.subscribe(["/app/1/a/proto"])):
            with pytest.raises(
                NodeError, match=r"'alice' was started on another event loop than this one: .*run_coroutine_threadsafe"
            ):
                await asyncio.to_thread(asyncio.run, call())  # type: ignore[operator]
        assert not node.stopped
        await node.stop()

    asyncio.run(main())


def test_a_node_in_memory_may_be_stopped_where_its_loop_has_ended() -> None:
    async def started() -> MemoryNode:
        node = MemoryNetwork().create_node("alice")
        await node.start()
        return node

    node = asyncio.run(started())
    asyncio.run(node.stop())
    assert node.stopped


@pytest.mark.parametrize(
    ("envelope", "told"),
    [
        ("text", "the envelope is a str: it must be a MessageEnvelope"),
        (None, "the envelope is a NoneType: it must be a MessageEnvelope"),
        (MessageEnvelope(5, b"x"), "content_topic of the envelope is a int: it must be text"),  # type: ignore[arg-type]
        (MessageEnvelope("/app/1/x/proto", "text"), "payload of the envelope is a str: it must be bytes"),  # type: ignore[arg-type]
        (MessageEnvelope("/app/1/x/proto", b"x", meta=None), "meta of the envelope is a NoneType"),  # type: ignore[arg-type]
    ],
    ids=["a text", "nothing", "no topic", "a text in it", "no meta"],
)
@pytest.mark.parametrize("kind", ["memory", "udp"])
def test_only_envelopes_are_sent(kind: str, envelope: Any, told: str) -> None:
    async def scenario() -> None:
        node = MemoryNetwork().create_node("alice") if kind == "memory" else UdpNode("udp://127.0.0.1:0", peers=[])
        await node.start()
        try:
            with pytest.raises(ConfigError, match=f"send: {told}"):
                await node.send(envelope)
        finally:
            await node.stop()

    asyncio.run(scenario())
