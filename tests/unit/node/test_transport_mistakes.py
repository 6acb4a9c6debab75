"""What somebody who writes a transport gets wrong is named where it is made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from live_nodes import real_time
from scripted_transport import OnTime, ScriptedTransport
from virtual_nodes import TOPIC, drain, virtual

from shardwire.channel.receiving.node_events import fault_of_page
from shardwire.errors import ConfigError, NodeError
from shardwire.node import (
    ConnectionState,
    MessageEnvelope,
    MessageReceived,
    StorePage,
    StoreQuery,
    UdpNode,
    run_virtual,
)
from shardwire.node.transport import TransportLink, TransportNode


@pytest.mark.parametrize(
    ("transport", "what"), [(ScriptedTransport, "the class ScriptedTransport"), ("hub", "a str"), (None, "a NoneType")]
)
def test_a_transport_is_an_instance(transport: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=f"^transport is {what}: it must be an instance of a Transport$"):
        TransportNode(transport)


@virtual
async def test_a_connection_has_a_state() -> None:
    transport = ScriptedTransport()
    node = TransportNode(transport, rng=OnTime())
    await node.start()
    wrong: Any = "Connected"
    with pytest.raises(ConfigError, match=r"^state is a str: it must be a ConnectionState$"):
        transport.link.connection(wrong)
    assert transport.link.state is ConnectionState.CONNECTED
    await node.stop()


@real_time
async def test_another_thread_hands_over_what_it_tells() -> None:
    transport, topic = ScriptedTransport(), "/app/1/notes/proto"
    node = TransportNode(transport, rng=OnTime())
    await node.start()
    await node.subscribe([topic])
    link, loop = transport.link, asyncio.get_running_loop()
    message = MessageEnvelope(topic, b"x")
    told: dict[str, Callable[[], object]] = {
        "received": lambda: link.received(message, 1),
        "connection": lambda: link.connection(ConnectionState.DISCONNECTED),
        "missed": lambda: link.missed(1),
        "hold": lambda: link.hold(1_000, "later"),
        "run": lambda: link.run("reader", asyncio.Event().wait),
        "max_message_size_bytes": lambda: setattr(link, "max_message_size_bytes", 10_000),
    }

    def reader() -> None:
        for call, tell in told.items():
            with pytest.raises(NodeError, match=f"^{call} of the link of scripted was called in another thread .*hand"):
                tell()
        loop.call_soon_threadsafe(link.received, message, 2)

    events = node.events()
    await asyncio.to_thread(reader)
    assert link.state is ConnectionState.CONNECTED
    assert link.max_message_size_bytes != 10_000
    event = await anext(events)
    while not isinstance(event, MessageReceived):
        event = await anext(events)
    assert event.timestamp_ns == 2
    await node.stop()


def test_a_node_is_used_on_the_event_loop_it_was_started_on() -> None:
    node = TransportNode(ScriptedTransport(), rng=OnTime())
    asyncio.run(node.start())
    topic = "/app/1/notes/proto"
    for call, use in (
        ("start", node.start),
        ("subscribe", lambda: node.subscribe([topic])),
        ("send", lambda: node.send(MessageEnvelope(topic, b"x"))),
        ("query_store", lambda: node.query_store(StoreQuery())),
    ):
        with pytest.raises(
            NodeError, match=f"^{call}: scripted was started on another event loop than this one: start it"
        ):
            run_virtual(use())


def test_a_node_is_not_stopped_from_another_thread() -> None:
    """It would stop by half: its loop goes on with what was taken away."""

    async def main() -> None:
        node = TransportNode(ScriptedTransport(), rng=OnTime())
        await node.start()
        with pytest.raises(NodeError, match="stop: scripted was started on another event loop than this one: start"):
            await asyncio.to_thread(asyncio.run, node.stop())
        await node.subscribe([TOPIC])
        await node.stop()

    asyncio.run(main())


def test_a_node_may_be_stopped_where_its_loop_has_ended() -> None:
    node = TransportNode(ScriptedTransport(), rng=OnTime())
    asyncio.run(node.start())
    asyncio.run(node.stop())
    with pytest.raises(NodeError, match="scripted was stopped: create a new node"):
        asyncio.run(node.start())


@pytest.mark.parametrize("page", [None, [], {}])
def test_an_answer_of_a_store_is_a_page(page: Any) -> None:
    assert fault_of_page(page) == f"a {type(page).__name__}: it must be a StorePage"
    assert fault_of_page(StorePage((), None)) is None


@pytest.mark.parametrize("peers", [[("127.0.0.1", 9700)], [9700], "127.0.0.1:9700"])
def test_a_peer_is_a_text(peers: Any) -> None:
    with pytest.raises(ConfigError, match="it must be a list of texts host:port"):
        UdpNode("udp://127.0.0.1:0", peers=peers)


class Hanging(ScriptedTransport):
    """One whose calls do not return."""

    async def unsubscribe(self, content_topic: str, pubsub_topic: str) -> None:
        await asyncio.sleep(3_600)

    async def query_store(self, query: StoreQuery) -> StorePage:
        await asyncio.sleep(3_600)
        return StorePage(())


@virtual
async def test_who_gives_up_a_call_of_a_transport_that_hangs_goes_on_at_once() -> None:
    node = TransportNode(Hanging(), rng=OnTime())
    await node.start()
    await node.subscribe([TOPIC])
    for call in (lambda: node.unsubscribe([TOPIC]), lambda: node.query_store(StoreQuery())):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await call()
    assert node.subscriptions == ()
    await node.stop()


class Busy(ScriptedTransport):
    """One that begins its work and then finds that it cannot connect."""

    working: asyncio.Task[None]

    async def connect(self, link: TransportLink) -> None:
        self.working = link.run("polling", lambda: asyncio.sleep(3_600))
        raise NodeError("nobody answers")


@virtual
async def test_a_start_that_fails_ends_what_the_transport_began() -> None:
    transport = Busy()
    with pytest.raises(NodeError, match="nobody answers"):
        await TransportNode(transport, rng=OnTime()).start()
    assert transport.working.cancelled()
    assert transport.calls == ["disconnect"]


class Early(ScriptedTransport):
    """One that brings a message while it subscribes."""

    async def subscribe(self, content_topic: str, pubsub_topic: str) -> None:
        assert self.bring(content_topic, b"early", self.link.clock.epoch_ns())


@virtual
async def test_what_comes_while_a_topic_is_being_subscribed_is_heard() -> None:
    node = TransportNode(Early(), rng=OnTime())
    await node.start()
    events = node.events()
    await node.subscribe([TOPIC])
    (event,) = await drain(events)
    assert isinstance(event, MessageReceived)
    assert event.envelope.payload == b"early"
    await node.stop()
