"""What the node says of an error decides what the channel does, whatever its text says: fail, try again, or wait."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world
from wrapped_node import WrappedNode

from shardwire.channel import close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, SegmentationConfig
from shardwire.errors import ConfigError, NodeError
from shardwire.events import (
    ChunkErrorEvent,
    EphemeralDroppedEvent,
    MessageSendErrorEvent,
    NodeFailingEvent,
    RateLimitEvent,
)
from shardwire.node import (
    MemoryNode,
    MessageEnvelope,
    MessagePropagated,
    MessageSendError,
    NodeEvent,
    running_clock,
)

EPOCH_MS = 600_000
SMALL = ChannelConfig.logos(segmentation=SegmentationConfig(segment_size_bytes=1_024))
# What is final by its text and passes, and the other way round.
PASSING = "RLN proof too large"
FINAL = "busy"


class RefusingNode(WrappedNode):
    """A memory node that may refuse.

    Attributes:
        error: What `send` raises; None while it refuses nothing.
        tries: How often it was called.
    """

    def __init__(self, inner: MemoryNode) -> None:
        super().__init__(inner)
        self.error: NodeError | None = None
        self.tries = 0

    async def send(self, envelope: MessageEnvelope) -> str:
        self.tries += 1
        if self.error is not None:
            raise self.error
        return await super().send(envelope)


class LaterRefusingNode(RefusingNode):
    """One that refuses by an event."""

    async def send(self, envelope: MessageEnvelope) -> str:
        self.tries += 1
        self._inner.send_fault = lambda envelope: self.error
        return await self._inner.send(envelope)


class LaggingNode(RefusingNode):
    """One that answers slowly for the first eight messages, and refuses all others meanwhile."""

    def __init__(self, inner: MemoryNode) -> None:
        super().__init__(inner)
        self.refused_ms: list[int] = []

    async def send(self, envelope: MessageEnvelope) -> str:
        self.tries += 1
        if self.tries > 8 and self.error is not None:
            self.refused_ms.append(round(asyncio.get_running_loop().time() * 1_000))
            raise self.error
        return await self._inner.send(envelope)

    async def events(self) -> AsyncIterator[NodeEvent]:
        async for event in self._inner.events():
            if isinstance(event, MessagePropagated) and self.error is not None:
                await asyncio.sleep(0.005)
            yield event


BOTH_WAYS = pytest.mark.parametrize("kind", [RefusingNode, LaterRefusingNode], ids=["raised", "by event"])


async def join_refusing(world: World, kind: type[RefusingNode]) -> tuple[RefusingNode, Any]:
    node = kind(await world.node("alice"))
    channel = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=SMALL, rng=random.Random(7))
    world.listen("alice", channel)
    await world.join("bob", SMALL)
    return node, channel


@BOTH_WAYS
def test_a_permanent_error_fails_the_message_at_once(kind: type[RefusingNode]) -> None:
    async def scenario(world: World) -> None:
        node, alice = await join_refusing(world, kind)
        node.error = NodeError(FINAL, permanent=True)
        request_id = await alice.send(b"x")
        with pytest.raises(NodeError, match=FINAL):
            await alice.delivered(request_id, timeout_ms=1_000)
        assert len(world.of("alice", ChunkErrorEvent)) == 1
        node.error = None
        assert await alice.delivered(await alice.send(b"y"), timeout_ms=60_000) == {"bob"}
        await close_channel(alice)

    assert run_world(scenario).messages("bob") == [b"y"]


def test_answers_for_earlier_messages_shorten_the_pause_after_a_failure_and_do_not_end_it() -> None:
    async def scenario(world: World) -> None:
        node, alice = await join_refusing(world, LaggingNode)
        assert isinstance(node, LaggingNode)
        await asyncio.sleep(1)
        node.error, node.tries = NodeError(PASSING), 0
        for number in range(20):
            await alice.send(b"%d" % number)
        await asyncio.sleep(0.49)
        # At once, once more since it answers for others, and then not for a while.
        assert len(set(node.refused_ms)) == 2
        node.error = None
        await asyncio.sleep(10)
        await close_channel(alice)

    assert run_world(scenario).messages("bob") == [b"%d" % number for number in range(20)]


@BOTH_WAYS
def test_a_node_that_takes_nothing_is_told_once_and_so_is_its_end(kind: type[RefusingNode]) -> None:
    async def scenario(world: World) -> None:
        node, alice = await join_refusing(world, kind)
        for number in range(2):
            node.error = NodeError(PASSING)
            request_id = await alice.send(b"%d" % number)
            # Long before the send itself fails.
            await asyncio.sleep(20)
            assert [event.failing for event in world.of("alice", NodeFailingEvent)] == [True, False] * number + [True]
            assert world.of("alice", MessageSendErrorEvent) == []
            node.error = None
            assert await alice.delivered(request_id, timeout_ms=60_000) == {"bob"}
        # One failure says nothing.
        node.error = NodeError(PASSING)
        await alice.send(b"last")
        await asyncio.sleep(0.2)
        node.error = None
        await asyncio.sleep(60)
        await close_channel(alice)

    told = run_world(scenario).of("alice", NodeFailingEvent)
    assert [(event.failing, event.failures, event.error) for event in told] == [(True, 3, PASSING), (False, 0, "")] * 2


@BOTH_WAYS
def test_a_node_that_takes_nothing_is_one_warning_however_much_waits(
    kind: type[RefusingNode], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "shardwire")

    async def scenario(world: World) -> None:
        node, alice = await join_refusing(world, kind)
        node.error = NodeError(PASSING)
        requests = [await alice.send(b"%d" % number) for number in range(50)]
        await asyncio.sleep(20)
        assert node.tries > 2
        node.error = None
        for request_id in requests:
            assert await alice.delivered(request_id, timeout_ms=60_000) == {"bob"}
        await close_channel(alice)

    run_world(scenario)
    assert caplog.text.count("was not sent") == 1
    assert caplog.text.count("the node takes messages again, after ") == 1


@BOTH_WAYS
def test_an_error_that_passes_puts_the_message_back(kind: type[RefusingNode]) -> None:
    async def scenario(world: World) -> None:
        node, alice = await join_refusing(world, kind)
        node.error = NodeError(PASSING)
        request_id = await alice.send(bytes(5_000))
        await asyncio.sleep(10)
        assert node.tries > 1
        node.error = None
        assert await alice.delivered(request_id, timeout_ms=60_000) == {"bob"}
        await close_channel(alice)

    world = run_world(scenario)
    assert world.of("alice", ChunkErrorEvent) == []
    assert world.of("alice", RateLimitEvent) == []


@BOTH_WAYS
@pytest.mark.parametrize("size", [1, 100_000])
def test_everything_waits_for_the_next_epoch_and_nothing_counts_as_a_failure(
    kind: type[RefusingNode], size: int
) -> None:
    """An epoch outlasts what a node has to answer, every retransmission and every failure that is allowed."""

    async def scenario(world: World) -> None:
        node, alice = await join_refusing(world, kind)
        bob = world.channels["bob"]
        await asyncio.sleep(5)
        began_ms = running_clock().epoch_ms()
        node.error = NodeError("NonceLimitReached: please wait for the next epoch", retry_after_ms=EPOCH_MS)
        tries = node.tries
        requests = [await alice.send(bytes([number]) * size) for number in range(3)]
        await asyncio.sleep(1)
        refused = node.tries - tries
        assert refused <= 64
        # An acknowledgement of this waits as well.
        await bob.send(b"hello")
        await asyncio.sleep(EPOCH_MS / 1_000 - 10)
        assert node.tries - tries == refused
        assert alice.stats().get("dispatch_failures", 0) == 0
        (event,) = world.of("alice", RateLimitEvent)
        assert began_ms + EPOCH_MS <= event.resets_at_ms <= began_ms + EPOCH_MS + 2_000
        node.error = None
        for request_id in requests:
            assert await alice.delivered(request_id, timeout_ms=30_000) == {"bob"}
        await close_channel(alice)

    world = run_world(scenario)
    assert sorted(world.messages("bob")) == [bytes([number]) * size for number in range(3)]
    assert world.messages("alice") == [b"hello"]
    assert world.of("alice", MessageSendErrorEvent) == []


@BOTH_WAYS
def test_an_ephemeral_message_does_not_wait_for_the_next_epoch(kind: type[RefusingNode]) -> None:
    async def scenario(world: World) -> None:
        node, alice = await join_refusing(world, kind)
        node.error = NodeError("wait", retry_after_ms=EPOCH_MS)
        for message in (b"refused", b"not tried"):
            await alice.send_ephemeral(message)
            await asyncio.sleep(1)
        await close_channel(alice)

    dropped = run_world(scenario).of("alice", EphemeralDroppedEvent)
    assert [event.reason for event in dropped] == ["rate_limit_reached"] * 2


def test_each_epoch_in_which_the_node_refuses_is_told_once_and_none_ends_a_message() -> None:
    async def scenario(world: World) -> None:
        node, alice = await join_refusing(world, RefusingNode)
        node.error = NodeError("wait", retry_after_ms=EPOCH_MS)
        request_id = await alice.send(bytes(10_000))
        # More epochs than failures of a node are allowed.
        await asyncio.sleep(10 * EPOCH_MS / 1_000 + 1)
        assert len(world.of("alice", RateLimitEvent)) == 11
        node.error = None
        assert await alice.delivered(request_id, timeout_ms=EPOCH_MS) == {"bob"}
        await close_channel(alice)

    run_world(scenario, limit_ms=4 * 3_600_000)


def test_a_node_that_promises_too_much_is_asked_less_and_less_often() -> None:
    async def scenario(world: World) -> None:
        node, alice = await join_refusing(world, RefusingNode)
        node.error = NodeError("at once", retry_after_ms=0)
        request_id = await alice.send(b"x")
        tries = node.tries
        await asyncio.sleep(600)
        assert node.tries - tries < 40
        assert len(world.of("alice", RateLimitEvent)) < 40
        node.error = None
        assert await alice.delivered(request_id, timeout_ms=60_000) == {"bob"}
        await close_channel(alice)

    assert run_world(scenario).of("alice", MessageSendErrorEvent) == []


class KeepingNode(WrappedNode):
    """A node that keeps its first message until it is told to release it, and refuses what comes after it."""

    def __init__(self, inner: MemoryNode) -> None:
        super().__init__(inner)
        self.kept: MessageEnvelope | None = None
        self.refuses = True
        self._released: dict[str, str] = {}

    async def send(self, envelope: MessageEnvelope) -> str:
        if self.kept is None:
            self.kept = envelope
            return "kept"
        if self.refuses:
            raise NodeError("wait for the next epoch", retry_after_ms=EPOCH_MS)
        return await self._inner.send(envelope)

    async def release(self) -> None:
        assert self.kept is not None
        self._released[await self._inner.send(self.kept)] = "kept"

    async def events(self) -> AsyncIterator[NodeEvent]:
        async for event in self._inner.events():
            if isinstance(event, MessagePropagated) and event.request_id in self._released:
                event = MessagePropagated(self._released[event.request_id], event.message_hash)
            yield event


def test_what_the_node_keeps_over_an_epoch_is_awaited_for_as_long() -> None:
    async def scenario(world: World) -> None:
        node = KeepingNode(await world.node("alice"))
        alice = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=SMALL)
        world.listen("alice", alice)
        await world.join("bob", SMALL)
        requests = [await alice.send(message) for message in (b"kept", b"refused")]
        await asyncio.sleep(EPOCH_MS / 1_000 - 1)
        assert alice.stats().get("dispatch_failures", 0) == 0
        node.refuses = False
        await node.release()
        for request_id in requests:
            assert await alice.delivered(request_id, timeout_ms=30_000) == {"bob"}
        # Nothing of it was sent twice.
        assert alice.stats()["dispatched_first"] == 2
        await close_channel(alice)

    assert run_world(scenario).messages("bob") == [b"kept", b"refused"]


@pytest.mark.parametrize(
    "change",
    [
        lambda event: MessageSendError(event.request_id, "x", None, "yes"),
        lambda event: MessageSendError(event.request_id, "x", None, False, "600"),
        lambda event: MessageSendError(event.request_id, "x", None, False, -1),
        lambda event: MessageSendError(event.request_id, "x", None, False, True),
        lambda event: MessageSendError(event.request_id, "x", None, False, 1.5),
    ],
)
def test_an_error_with_facts_of_wrong_types_is_dropped_and_counted(change: Callable[[Any], NodeEvent]) -> None:
    class Odd(LaterRefusingNode):
        async def events(self) -> AsyncIterator[NodeEvent]:
            async for event in self._inner.events():
                yield change(event) if isinstance(event, MessageSendError) else event

    async def scenario(world: World) -> None:
        node, alice = await join_refusing(world, Odd)
        node.error = NodeError("refused")
        request_id = await alice.send(b"x")
        await asyncio.sleep(1)
        assert alice.stats()["node_events_malformed"] >= 1
        node.error = None
        assert await alice.delivered(request_id, timeout_ms=120_000) == {"bob"}
        await close_channel(alice)

    run_world(scenario)


def test_attributes_of_wrong_types_of_a_raised_error_say_nothing() -> None:
    async def scenario(world: World) -> None:
        node, alice = await join_refusing(world, RefusingNode)
        node.error = NodeError("odd")
        node.error.permanent, node.error.retry_after_ms = "yes", -5  # type: ignore[assignment]
        request_id = await alice.send(b"x")
        await asyncio.sleep(1)
        node.error = None
        assert await alice.delivered(request_id, timeout_ms=60_000) == {"bob"}
        await close_channel(alice)

    assert run_world(scenario).of("alice", RateLimitEvent) == []


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_a_node_must_say_whether_it_has_a_store(value: object) -> None:
    async def scenario(world: World) -> None:
        node = WrappedNode(await world.node("alice"))
        node.has_store = value  # type: ignore[assignment]
        with pytest.raises(ConfigError, match=f"has_store of the node is {value!r}: it must be True or False"):
            await create_reliable_channel(node, CHANNEL, TOPIC, "alice")
        del node.has_store
        with pytest.raises(ConfigError, match="node is a WrappedNode without has_store"):
            await create_reliable_channel(node, CHANNEL, TOPIC, "alice")

    run_world(scenario)


class SilentNode(WrappedNode):
    """Does not say whether it has a store where it is armed."""

    armed = 0
    said = True

    @property
    def has_store(self) -> bool:
        if self.armed:
            self.armed -= 1
            raise NodeError("not connected yet")
        return self.said

    @has_store.setter
    def has_store(self, said: bool) -> None:
        self.said = said


@pytest.mark.parametrize("times", [1, 1_000_000])
def test_a_node_that_does_not_say_whether_it_has_a_store_is_taken_for_what_it_said_last(times: int) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        node = SilentNode(await world.node("bob"))
        async with create_reliable_channel(node, CHANNEL, TOPIC, "bob") as bob:
            node.armed = times
            assert await alice.delivered(await alice.send(b"one")) == {"bob"}
            await asyncio.sleep(600)
            assert node.armed < times
            assert not bob.is_closed()
            assert await alice.delivered(await alice.send(b"two")) == {"bob"}

    run_world(scenario)


class EndingNode(WrappedNode):
    """Its events end before there was any."""

    async def events(self) -> AsyncIterator[NodeEvent]:
        return
        yield


class NamelessNode(WrappedNode):
    """Gives no id for what it takes."""

    async def send(self, envelope: MessageEnvelope) -> str:
        await super().send(envelope)
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (EndingNode, "events() of the node ended and had given none"),
        (NamelessNode, "send() of the node returned a NoneType: it must be a str"),
    ],
)
def test_a_node_that_keeps_not_to_the_protocol_is_told_at_once(
    kind: type[WrappedNode], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        alice = await create_reliable_channel(kind(await world.node("alice")), CHANNEL, TOPIC, "alice", config=SMALL)
        await alice.send(b"x")
        await asyncio.sleep(1)
        assert told in caplog.text
        await close_channel(alice)

    run_world(scenario)


@pytest.mark.parametrize("call", ["subscribe", "send", "query_store"])
def test_a_method_of_a_node_that_is_not_async_is_told_by_name(call: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        node = WrappedNode(await world.node("alice"))
        node.has_store = True
        setattr(node, call, lambda given: "nothing to await")
        try:
            alice = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=SMALL)
            await alice.send(b"x")
            await asyncio.sleep(1)
            await close_channel(alice)
        except NodeError as error:
            logging.getLogger("shardwire").error("%s", error)
        assert f"{call}() of the node returned a str at once: it must be `async def`" in caplog.text
        assert "Traceback" not in caplog.text

    run_world(scenario)


class Code(enum.StrEnum):
    REFUSED = "refused for good"


class Coded(NodeError):
    def __str__(self) -> str:
        return Code.REFUSED


def test_a_text_of_a_class_derived_from_str_ends_its_message_alone() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", on_disk=True)
        bob = await world.join("bob")
        world.nodes["alice"].send_fault = lambda envelope: Coded("", permanent=True)
        await alice.send(b"x")
        await asyncio.sleep(1)
        world.nodes["alice"].send_fault = None
        await alice.delivered(await alice.send(b"y"))
        assert bob.is_started()
        (failed,) = world.of("alice", MessageSendErrorEvent)
        assert "refused for good" in failed.error

    run_world(scenario)


@pytest.mark.parametrize("ephemeral", [False, True])
def test_a_text_that_no_utf_8_has_is_an_error_as_any_other(ephemeral: bool) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        world.nodes["alice"].send_fault = lambda envelope: NodeError("no \ud800 proof", permanent=True)
        await (alice.send_ephemeral(b"x") if ephemeral else alice.send(b"x"))
        await asyncio.sleep(1)
        world.nodes["alice"].send_fault = None
        await alice.delivered(await alice.send(b"y"))
        assert bob.is_started()
        (failed,) = world.of("alice", ChunkErrorEvent)
        assert failed.error.encode().startswith(b"no ")

    run_world(scenario)
