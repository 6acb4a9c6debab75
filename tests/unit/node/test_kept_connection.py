"""A connection that breaks is opened again, with every topic of the node."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest
from scripted_transport import OnTime, ScriptedTransport
from virtual_nodes import OTHER_TOPIC, TOPIC, drain, virtual

from shardwire.errors import NodeError
from shardwire.node import ConnectionState, MessagesMissed, running_clock
from shardwire.node.transport import TransportLink, TransportNode
from shardwire.node.transport.kept_connection import (
    MISSED_MARGIN_MS,
    REOPEN_PAUSE_MS_MAX,
    ConnectionLost,
    KeptConnection,
    Session,
)


class SlowSession(Session):
    """Takes a second for each topic."""

    def __init__(self) -> None:
        super().__init__()
        self.heard_ns = running_clock().epoch_ns()
        self.topics: list[str] = []
        self.refusal: Exception | None = None
        self.goodbyes = 0
        self.is_closed = False

    async def subscribe(self, content_topic: str) -> None:
        await asyncio.sleep(1)
        if self.refusal is not None:
            raise self.refusal
        self.topics.append(content_topic)

    async def unsubscribe(self, content_topic: str) -> None:
        self.topics.remove(content_topic)

    async def say_goodbye(self) -> None:
        self.goodbyes += 1
        self.break_("the server took leave")

    async def close(self) -> None:
        await asyncio.sleep(1)
        self.is_closed = True


class KeptTransport(ScriptedTransport):
    """Keeps a connection of such sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: list[SlowSession] = []
        self.open_errors: list[NodeError] = []
        self.refusals: list[Exception] = []

    async def connect(self, link: TransportLink) -> None:
        self.link = link
        self.connection = KeptConnection("scripted", self._open, link)
        await self.connection.start()

    async def disconnect(self) -> None:
        await self.connection.stop()

    async def subscribe(self, content_topic: str, pubsub_topic: str) -> None:
        await self.connection.subscribe(content_topic)

    async def unsubscribe(self, content_topic: str, pubsub_topic: str) -> None:
        await self.connection.unsubscribe(content_topic)

    async def _open(self) -> SlowSession:
        if self.open_errors:
            raise self.open_errors.pop()
        self.sessions.append(SlowSession())
        self.sessions[-1].refusal = self.refusals.pop() if self.refusals else None
        return self.sessions[-1]


async def start() -> tuple[KeptTransport, TransportNode]:
    transport = KeptTransport()
    node = TransportNode(transport, rng=OnTime())
    await node.start()
    await node.subscribe([TOPIC])
    return transport, node


@virtual
async def test_a_topic_that_comes_while_the_others_are_subscribed_again_is_subscribed_too() -> None:
    transport, node = await start()
    transport.sessions[0].break_("the server was restarted")
    await asyncio.sleep(1.75)
    assert len(transport.sessions) == 2
    await node.subscribe([OTHER_TOPIC])
    assert node.connection_state is ConnectionState.DISCONNECTED
    await asyncio.sleep(2)
    assert node.connection_state is ConnectionState.CONNECTED
    assert transport.sessions[1].topics == [TOPIC, OTHER_TOPIC]
    await node.stop()


@virtual
async def test_a_topic_that_goes_while_the_others_are_subscribed_again_is_not_subscribed() -> None:
    transport, node = await start()
    await node.subscribe([OTHER_TOPIC])
    transport.sessions[0].break_("the server was restarted")
    # The first of the two topics is being subscribed.
    await asyncio.sleep(1.75)
    assert len(transport.sessions) == 2
    await node.unsubscribe([TOPIC, OTHER_TOPIC])
    await asyncio.sleep(2)
    assert node.connection_state is ConnectionState.CONNECTED
    assert transport.sessions[1].topics == []
    await node.subscribe([TOPIC])
    assert transport.sessions[1].topics == [TOPIC]
    await node.unsubscribe([TOPIC])
    assert transport.sessions[1].topics == []
    await node.stop()


@virtual
async def test_a_server_that_is_away_is_tried_until_it_is_there() -> None:
    transport, node = await start()
    transport.open_errors = [NodeError("nobody answers")] * 3
    transport.sessions[0].break_("the server was stopped")
    await asyncio.sleep(10)
    assert transport.sessions[0].is_closed
    assert transport.sessions[1].topics == [TOPIC]
    assert node.connection_state is ConnectionState.CONNECTED
    await node.stop()
    assert transport.sessions[1].is_closed


@virtual
async def test_a_node_that_stops_while_it_connects_again_leaves_no_session_open() -> None:
    transport, node = await start()
    transport.sessions[0].break_("the server was restarted")
    await asyncio.sleep(1.75)
    await node.stop()
    assert [session.is_closed for session in transport.sessions] == [True, True]
    with pytest.raises(NodeError, match="was stopped"):
        await node.subscribe([OTHER_TOPIC])


@virtual
async def test_a_node_that_stops_takes_leave_once_and_opens_no_other_session() -> None:
    for is_broken in (False, True):
        transport, node = await start()
        if is_broken:
            transport.sessions[0].break_("the server was stopped")
        await node.stop()
        assert [session.goodbyes for session in transport.sessions] == [0 if is_broken else 1]
        assert transport.sessions[0].is_closed


@virtual
async def test_a_session_that_takes_a_topic_not_is_closed_before_the_next_one() -> None:
    transport, node = await start()
    transport.refusals = [NodeError("not permitted"), ConnectionLost("it broke again")]
    transport.sessions[0].break_("the server was restarted")
    await asyncio.sleep(20)
    assert node.connection_state is ConnectionState.CONNECTED
    assert [session.is_closed for session in transport.sessions] == [True, True, True, False]
    await node.stop()


@virtual
async def test_one_that_breaks_now_and_then_is_soon_there_again_and_tells_since_when_it_was_away() -> None:
    transport, node = await start()
    events = node.events()
    for number in range(5):
        await asyncio.sleep(20)
        transport.sessions[number].heard_ns = heard_ns = running_clock().epoch_ns()
        transport.sessions[number].break_("the server was restarted")
        # To close the one and to subscribe with the other takes a second each.
        await asyncio.sleep(2.5)
        assert node.connection_state is ConnectionState.CONNECTED
        missed = [event.since_ns for event in await drain(events) if isinstance(event, MessagesMissed)]
        assert missed == [heard_ns - MISSED_MARGIN_MS * 1_000_000]
    await node.stop()


@virtual
async def test_a_call_ends_with_the_session_that_it_would_wait_for() -> None:
    session = SlowSession()
    call = asyncio.create_task(asyncio.sleep(3_000))
    asyncio.get_running_loop().call_later(1, session.break_, "the server was stopped")
    with pytest.raises(ConnectionLost, match="the server was stopped"):
        await session.unless_broken(call)
    await asyncio.wait((call,), timeout=1)
    assert call.cancelled()


@virtual
async def test_what_a_call_raises_that_the_session_has_left_is_told_to_nobody() -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    session = SlowSession()

    async def take_the_cancellation_for_an_error() -> None:
        try:
            await asyncio.sleep(3_000)
        except asyncio.CancelledError:
            raise OSError("the connection was closed") from None

    asyncio.get_running_loop().call_later(1, session.break_, "the server was stopped")
    with pytest.raises(ConnectionLost, match="the server was stopped"):
        await session.unless_broken(take_the_cancellation_for_an_error())
    await asyncio.sleep(1)
    gc.collect()
    assert not told


def test_a_server_that_is_away_for_long_is_told_of_once_and_still_asked_every_few_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @virtual
    async def run() -> None:
        transport, node = await start()
        transport.open_errors = [NodeError("nobody answers")] * 1_000
        transport.sessions[0].break_("the server was stopped")
        await asyncio.sleep(600)
        transport.open_errors.clear()
        # The pause, and the second that the topic takes.
        await asyncio.sleep(REOPEN_PAUSE_MS_MAX / 1_000 + 1)
        assert node.connection_state is ConnectionState.CONNECTED
        await node.stop()

    with caplog.at_level(logging.INFO, "shardwire"):
        run()
    told = [record.getMessage() for record in caplog.records if "nobody answers" in record.getMessage()]
    assert told == ["scripted: cannot be reached, tried again: nobody answers"]


@virtual
async def test_a_clock_that_was_set_back_leaves_nothing_out_of_what_is_missed() -> None:
    transport, node = await start()
    events = node.events()
    broken_ns = running_clock().epoch_ns()
    transport.sessions[0].heard_ns = broken_ns + 3_600_000_000_000
    transport.sessions[0].break_("the server was restarted")
    await asyncio.sleep(2.5)
    missed = [event.since_ns for event in await drain(events) if isinstance(event, MessagesMissed)]
    assert missed == [broken_ns - MISSED_MARGIN_MS * 1_000_000]
    await node.stop()


@virtual
async def test_a_session_that_broke_is_asked_for_nothing_more() -> None:
    transport, node = await start()
    transport.sessions[0].break_("the server was restarted")
    await node.subscribe([OTHER_TOPIC])
    await node.unsubscribe([TOPIC])
    assert transport.sessions[0].topics == [TOPIC]
    await asyncio.sleep(4)
    assert transport.sessions[1].topics == [OTHER_TOPIC]
    await node.stop()
