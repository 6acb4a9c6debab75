"""What leaves through a node that fails, hangs, is slow or says nothing: nothing of that is the message's fault."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world
from wrapped_node import WrappedNode

from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.channel.limits.quota import Place, Quota
from shardwire.channel.sending.dispatch import Dispatcher
from shardwire.channel.sending.outcomes import DispatchFailed, DispatchOutcome, Propagated
from shardwire.channel.sending.requests import DISPATCHES_MAX, Requests
from shardwire.channel.sending.sealing import Sealed
from shardwire.config import ChannelConfig, SegmentationConfig
from shardwire.errors import NodeError
from shardwire.events import MessageSendErrorEvent
from shardwire.node import (
    MemoryNode,
    MessageEnvelope,
    MessagePropagated,
    MessageSent,
    Node,
    NodeEvent,
    run_virtual,
)
from shardwire.sds import Transmit, TransmitKind

SMALL = ChannelConfig.logos(segmentation=SegmentationConfig(segment_size_bytes=1_024))


class FaultyNode(WrappedNode):
    """A memory node whose `send` may fail, hang or take its time, and whose answers may wait.

    Attributes:
        down: Whether `send` raises.
        hangs: How many calls of `send` never return.
        send_s: How long each call takes.
        answer_s: How long each message is on its way, one after the other, before it is in the network.
        tells_of_store: Whether it tells that a store has a message.
    """

    def __init__(self, inner: MemoryNode) -> None:
        super().__init__(inner)
        self.down = False
        self.hangs = 0
        self.send_s = 0.0
        self.answer_s = 0.0
        self.tells_of_store = True
        self.attempts = 0
        self._line: asyncio.Queue[tuple[str, MessageEnvelope]] = asyncio.Queue()
        self._ids: dict[str, str] = {}

    async def send(self, envelope: MessageEnvelope) -> str:
        self.attempts += 1
        if self.down:
            raise NodeError("connection refused")
        if self.hangs:
            self.hangs -= 1
            await asyncio.Event().wait()
        await asyncio.sleep(self.send_s)
        if not self.answer_s:
            return await self._inner.send(envelope)
        request_id = f"line-{self.attempts}"
        self._line.put_nowait((request_id, envelope))
        return request_id

    async def run_line(self) -> None:
        while True:
            request_id, envelope = await self._line.get()
            await asyncio.sleep(self.answer_s)
            self._ids[await self._inner.send(envelope)] = request_id

    async def events(self) -> AsyncIterator[NodeEvent]:
        async for event in self._inner.events():
            if isinstance(event, MessagePropagated) and event.request_id in self._ids:
                event = MessagePropagated(self._ids.pop(event.request_id), event.message_hash)
            if self.tells_of_store or not isinstance(event, MessageSent):
                yield event


async def join_faulty(world: World, config: ChannelConfig = SMALL) -> tuple[FaultyNode, ReliableChannel]:
    """Alice behind a faulty node; bob as he is."""
    await world.join("bob", config)
    node = FaultyNode(await world.node("alice"))
    channel = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config)
    world.listen("alice", channel)
    return node, channel


@pytest.mark.parametrize("outage_s", [0.01, 0.5, 20.0])
@pytest.mark.parametrize("segments", [1, 20, 100])
def test_a_fault_of_the_node_is_one_failure_however_many_segments_it_hits(segments: int, outage_s: float) -> None:
    message = bytes(1_024 * segments)

    async def scenario(world: World) -> None:
        node, alice = await join_faulty(world)
        node.down = True
        request_id = await alice.send(message)
        await asyncio.sleep(outage_s)
        assert node.attempts <= 10
        node.down = False
        assert await alice.delivered(request_id, timeout_ms=300_000) == {"bob"}
        await close_channel(alice)

    world = run_world(scenario)
    assert world.messages("bob") == [message]
    assert world.of("alice", MessageSendErrorEvent) == []


def test_sends_that_wait_for_a_node_that_always_fails_are_given_up_together() -> None:
    async def scenario(world: World) -> None:
        node, alice = await join_faulty(world)
        node.down = True
        for _ in range(10):
            await alice.send(bytes(3 * 1_024))
        await asyncio.sleep(300)
        assert alice.pending() == ()
        attempts = node.attempts
        await asyncio.sleep(300)
        # Nothing of them is tried again; syncs are.
        assert alice.stats()["dispatched_first"] == 10
        assert node.attempts - attempts <= 20
        await close_channel(alice)

    errors = run_world(scenario).of("alice", MessageSendErrorEvent)
    assert [error.stage for error in errors] == ["dispatch"] * 10


def test_an_outage_uses_up_no_retransmissions() -> None:
    """Everything left before the node fails, and nobody heard it."""

    async def scenario(world: World) -> None:
        node, alice = await join_faulty(world)
        world.nodes["bob"].go_offline()
        request_id = await alice.send(bytes(20 * 1_024))
        await asyncio.sleep(1)
        node.down = True
        await asyncio.sleep(60)
        assert alice.stats()["dispatch_failures"] < 10
        node.down = False
        world.nodes["bob"].go_online()
        assert await alice.delivered(request_id, timeout_ms=300_000) == {"bob"}
        await close_channel(alice)

    assert run_world(scenario).of("alice", MessageSendErrorEvent) == []


@pytest.mark.parametrize("tells", [True, False])
def test_a_node_that_stays_down_ends_the_retransmissions_of_what_has_left(tells: bool) -> None:
    """Unless it told that a store has it."""

    async def scenario(world: World) -> None:
        node, alice = await join_faulty(world)
        node.tells_of_store = tells
        world.nodes["bob"].go_offline()
        request_id = await alice.send(bytes(3 * 1_024))
        await asyncio.sleep(1)
        node.down = True
        await asyncio.sleep(400)
        assert len(alice.pending()) == tells
        node.down = False
        world.nodes["bob"].go_online()
        # Bob finds it in the store.
        assert await alice.delivered(request_id, timeout_ms=100_000) == {"bob"}
        await close_channel(alice)

    errors = run_world(scenario).of("alice", MessageSendErrorEvent)
    assert [error.stage for error in errors] == ([] if tells else ["delivery"])


def test_going_offline_in_the_middle_of_a_message_puts_the_rest_off() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", SMALL)
        await world.join("bob", SMALL)
        world.nodes["alice"].send_fault = lambda envelope: world.nodes["alice"].go_offline()
        request_id = await alice.send(bytes(20 * 1_024))
        await asyncio.sleep(70)
        world.nodes["alice"].send_fault = None
        world.nodes["alice"].go_online()
        assert await alice.delivered(request_id, timeout_ms=300_000) == {"bob"}

    assert run_world(scenario).of("alice", MessageSendErrorEvent) == []


@pytest.mark.parametrize(
    ("send_s", "answer_s", "segments"), [(0.5, 0.0, 100), (20.0, 0.0, 5), (0.0, 0.5, 100), (0.0, 2.0, 70)]
)
def test_a_slow_line_that_loses_nothing_delivers(send_s: float, answer_s: float, segments: int) -> None:
    """Retransmission begins when a segment is in the network, and a node that answers in turn is not silent."""

    async def scenario(world: World) -> None:
        node, alice = await join_faulty(world)
        node.send_s, node.answer_s = send_s, answer_s
        line = asyncio.create_task(node.run_line())
        request_id = await alice.send(bytes(1_024 * segments))
        assert await alice.delivered(request_id, timeout_ms=600_000) == {"bob"}
        stats = alice.stats()
        assert stats.get("dispatch_failures", 0) == 0
        # Acknowledgements on the way may be outrun.
        assert stats.get("dispatched_retransmission", 0) <= segments // 10
        line.cancel()
        await close_channel(alice)

    run_world(scenario)


def test_a_send_of_the_node_that_never_returns_holds_up_nothing_for_ever() -> None:
    async def scenario(world: World) -> None:
        node, alice = await join_faulty(world)
        node.hangs = 1
        for number in range(3):
            request_id = await alice.send(b"%d" % number)
            assert await alice.delivered(request_id, timeout_ms=100_000) == {"bob"}
        await close_channel(alice)

    assert run_world(scenario).messages("bob") == [b"0", b"1", b"2"]


def test_what_a_node_never_answers_for_is_forgotten() -> None:
    reported: list[DispatchOutcome] = []

    class Numbering:
        max_message_size_bytes = 150_000
        count = 0

        async def send(self, envelope: MessageEnvelope) -> str:
            self.count += 1
            return str(self.count)

    async def scenario() -> None:
        node: Node = Numbering()  # type: ignore[assignment]
        requests = Requests(reported.append)
        dispatcher = Dispatcher(
            node, TOPIC, b"", Quota(), requests, lambda: True, lambda transmit: True, reported.append
        )
        task = asyncio.create_task(dispatcher.run())
        for number in range(1_000):
            transmit = Transmit(number + 1, TransmitKind.FIRST, f"{number}", b"x", "send", number, 0)
            dispatcher.submit(Sealed(transmit, transmit.payload))
        await asyncio.sleep(1)
        for number in range(1_000):
            requests.on_propagated(str(number + 1), b"h")
        task.cancel()

    run_virtual(scenario(), limit_ms=10_000)
    assert not any(isinstance(outcome, DispatchFailed) for outcome in reported)
    heard = [outcome.transmit.transmit_id for outcome in reported if isinstance(outcome, Propagated)]
    assert heard == list(range(1_001 - DISPATCHES_MAX, 1_001))


@pytest.mark.parametrize("stops", ["the node fails", "their epoch is over"])
def test_what_has_its_place_and_does_not_leave_keeps_its_turn_and_gives_the_place_back(stops: str) -> None:
    sent: list[bytes] = []
    given_back: list[Place] = []
    places = iter(Place((number,)) for number in range(1_000))
    stopped = [stops]

    class Noting:
        max_message_size_bytes = 150_000

        async def send(self, envelope: MessageEnvelope) -> str:
            sent.append(envelope.payload)
            return str(len(sent))

    class Placing(Quota):
        enabled = True

        async def take(self, kinds: Sequence[TransmitKind]) -> list[Place | None]:
            return [next(places) for _ in kinds]

        def is_current(self, place: Place) -> bool:
            is_over = bool(sent) and stopped == ["their epoch is over"]
            if is_over:
                stopped.clear()
            return not is_over

        def give_back(self, place: Place) -> None:
            given_back.append(place)

    async def scenario() -> None:
        node: Node = Noting()  # type: ignore[assignment]
        dispatcher = Dispatcher(
            node,
            TOPIC,
            b"",
            Placing(),
            Requests(lambda outcome: None),
            lambda: not sent or stopped != ["the node fails"],
            lambda transmit: True,
            lambda outcome: None,
        )
        for number in range(4):
            payload = b"%d" % number
            dispatcher.submit(Sealed(Transmit(number + 1, TransmitKind.FIRST, payload.decode(), payload), payload))
        task = asyncio.create_task(dispatcher.run())
        await asyncio.sleep(1)
        stopped.clear()
        dispatcher.resume()
        await asyncio.sleep(1)
        task.cancel()

    run_virtual(scenario(), limit_ms=10_000)
    assert sent == [b"0", b"1", b"2", b"3"]
    assert given_back == [Place((number,)) for number in range(1, 4)]


def test_a_send_that_swallows_its_cancellation_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    class Deaf(WrappedNode):
        is_deaf = True

        async def send(self, envelope: MessageEnvelope) -> str:
            is_deaf, self.is_deaf = self.is_deaf, False
            if is_deaf:
                for _ in range(2):
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(200)
            return await super().send(envelope)

    async def scenario(world: World) -> None:
        node = Deaf(await world.node("alice"))
        alice = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=SMALL)
        await world.join("bob")
        request_id = await alice.send(b"kept")
        await asyncio.sleep(60)
        assert said not in caplog.text
        # It comes all the same, once the first call has returned.
        assert await alice.delivered(request_id, timeout_ms=600_000) == {"bob"}
        await close_channel(alice)

    said = "the node's send goes on after its cancellation: nothing leaves until it returns"
    run_world(scenario)
    assert caplog.text.count(said) == 1
