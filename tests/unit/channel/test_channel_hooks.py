"""What the application supplies may raise anything, a cancellation of its own too: no loop of a channel ends by it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, Disk, Mount, World, run_world

from shardwire.channel import close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, SdsConfig
from shardwire.errors import PersistenceError
from shardwire.events import CallbackErrorEvent
from shardwire.node import (
    ConnectionStatus,
    MemoryNetwork,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSendError,
    MessageSent,
    MessagesMissed,
    NodeEvent,
    StorePage,
    StoreQuery,
    run_virtual,
)
from shardwire.persistence.protocol import Changes, ChannelState


class Odd(BaseException):
    """No `Exception`."""


async def end_cancelled() -> None:
    """Ends as an operation does whose connection was cancelled, while the task that awaits it was not."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def raise_odd() -> None:
    raise Odd


def raise_odd_at_once() -> str:
    raise Odd


FAILURES = pytest.mark.parametrize("fail", [end_cancelled, raise_odd])


class Cipher:
    """Fails once where it is armed, as its connection to a keeper of keys might."""

    def __init__(self, fail: Callable[[], Any]) -> None:
        self._fail = fail
        self.armed = ""

    async def _maybe_fail(self, call: str) -> None:
        if self.armed == call:
            self.armed = ""
            await self._fail()

    async def encrypt(self, content: bytes) -> bytes:
        await self._maybe_fail("encrypt")
        return content

    async def decrypt(self, payload: bytes) -> bytes:
        await self._maybe_fail("decrypt")
        return payload


@FAILURES
@pytest.mark.parametrize("call", ["encrypt", "decrypt"])
def test_a_cipher_that_fails_oddly_costs_one_message_at_most(call: str, fail: Callable[[], Any]) -> None:
    async def scenario(world: World) -> None:
        cipher = Cipher(fail)
        alice = await world.join("alice", encryption=cipher)
        await world.join("bob", encryption=cipher)
        cipher.armed = call
        await alice.send(b"one")
        await asyncio.sleep(5)
        assert not cipher.armed
        assert await alice.delivered(await alice.send(b"two"), timeout_ms=120_000) == {"bob"}

    assert b"two" in run_world(scenario).messages("bob")


async def say_later() -> str:
    return "alice"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("say", "told"),
    [
        (lambda: "\ud800", "gave a text with half of a surrogate pair: it must be"),
        (lambda: b"alice", "gave a bytes: it must be a plain method that gives a str, or None"),
        (say_later, "gave a coroutine: it must be"),
        (raise_odd_at_once, "raised Odd"),
    ],
)
def test_a_sender_that_a_cipher_tells_wrongly_is_as_good_as_none(
    say: Callable[[], Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Telling(Cipher):
        def sender_of(self, payload: bytes) -> Any:
            return say()

    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=Cipher(raise_odd))
        bob = await world.join("bob", encryption=Telling(raise_odd))
        assert await alice.delivered(await alice.send(b"x"), timeout_ms=60_000) == {"bob"}
        assert bob.stats()["sender_of_failed"] > 0
        gc.collect()

    assert run_world(scenario).messages("bob") == [b"x"]
    assert f"sender_of of the encryption {told}" in caplog.text
    assert "Traceback" not in caplog.text


@FAILURES
def test_a_send_of_the_node_that_fails_oddly_is_repeated(fail: Callable[[], Any]) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        node = world.nodes["alice"]
        send = node.send

        async def failing(envelope: MessageEnvelope) -> str:
            node.send = send  # type: ignore[method-assign]
            await fail()
            raise AssertionError

        node.send = failing  # type: ignore[method-assign]
        assert await alice.delivered(await alice.send(b"x"), timeout_ms=120_000) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"x"]


@FAILURES
def test_a_store_query_that_fails_oddly_is_repeated(fail: Callable[[], Any]) -> None:
    async def scenario(world: World) -> None:
        asked = 0

        async def query_store(query: StoreQuery) -> StorePage:
            nonlocal asked
            asked += 1
            await fail()
            raise AssertionError

        (await world.node("alice")).query_store = query_store  # type: ignore[method-assign]
        await world.join("alice")
        await asyncio.sleep(600)
        assert asked > 1

    run_world(scenario)


@pytest.mark.parametrize("result", [None, "text", 7, 10**15, [300], [1, 2]])
def test_what_a_cipher_makes_of_foreign_bytes_is_dropped_unless_it_is_bytes(result: object) -> None:
    class Lax(Cipher):
        async def decrypt(self, payload: bytes) -> Any:
            return result if payload == b"foreign" else memoryview(payload)

    async def scenario(world: World) -> None:
        cipher = Lax(raise_odd)
        bob = await world.join("bob", encryption=cipher)
        await (await world.node("stranger")).send(MessageEnvelope(TOPIC, b"foreign"))
        await asyncio.sleep(1)
        assert bob.stats()["dropped_undecryptable"] == 1
        alice = await world.join("alice", encryption=cipher)
        assert await alice.delivered(await alice.send(b"x")) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"x"]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_a_cipher_may_give_any_buffer(kind: Callable[[bytes], Any]) -> None:
    class Buffers(Cipher):
        async def encrypt(self, content: bytes) -> Any:
            return kind(content)

        async def decrypt(self, payload: bytes) -> Any:
            return kind(payload)

    async def scenario(world: World) -> None:
        cipher = Buffers(raise_odd)
        alice = await world.join("alice", encryption=cipher)
        await world.join("bob", encryption=cipher)
        assert await alice.delivered(await alice.send(b"x")) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"x"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", [Odd, asyncio.CancelledError, GeneratorExit])
def test_whatever_a_callback_or_an_observer_raises_ends_nothing(error: type[BaseException], is_async: bool) -> None:
    def fail(_: object) -> None:
        raise error

    async def fail_later(_: object) -> None:
        await asyncio.sleep(0.01)
        raise error

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        for channel in (alice, bob):
            channel.measure(fail)
            channel.observe(fail)
        bob.on_message_received(fail_later if is_async else fail)
        for message in (b"one", b"two"):
            assert await alice.delivered(await alice.send(message)) == {"bob"}
        await asyncio.sleep(60)
        assert not bob.is_closed()

    world = run_world(scenario)
    assert world.messages("bob") == [b"one", b"two"]
    assert [type(event.error) for event in world.of("bob", CallbackErrorEvent)] == [error, error]


def test_a_callback_that_waits_when_its_channel_is_collected_is_no_callback_that_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def leave_open() -> None:
        loop = asyncio.new_event_loop()

        async def main() -> None:
            world = World()
            bob = await world.join("bob")
            bob.on_message_received(lambda event: asyncio.sleep(1_000))
            bob.on_message_received(lambda event: called.append(event.message))
            await (await world.join("alice")).send(b"x")
            await asyncio.sleep(0.2)

        loop.run_until_complete(main())
        loop.close()

    called: list[bytes] = []
    leave_open()
    gc.collect()
    assert called == []
    assert "GeneratorExit" not in caplog.text


def with_fields(kind: type[NodeEvent], **fields: object) -> Callable[[NodeEvent], NodeEvent]:
    return lambda event: replace(event, **fields) if isinstance(event, kind) else event


def as_error(error: object) -> Callable[[NodeEvent], NodeEvent]:
    def change(event: NodeEvent) -> NodeEvent:
        return MessageSendError(event.request_id, error) if isinstance(event, MessagePropagated) else event  # type: ignore[arg-type]

    return change


@pytest.mark.parametrize(
    "change",
    [
        with_fields(MessagePropagated, message_hash="0x1234"),
        with_fields(MessagePropagated, message_hash=bytearray(32)),
        with_fields(MessagePropagated, request_id=[]),
        with_fields(MessageReceived, message_hash="0x1234"),
        with_fields(MessageReceived, message_hash=b""),
        with_fields(MessageReceived, message_hash=bytes(65)),
        with_fields(MessageReceived, timestamp_ns=None),
        with_fields(MessageReceived, envelope=None),
        with_fields(MessageReceived, envelope=MessageEnvelope(TOPIC, bytearray(8))),  # type: ignore[arg-type]
        as_error(None),
        as_error(ValueError("x")),
        lambda event: ConnectionStatus("Disconnected") if isinstance(event, MessageReceived) else event,
    ],
)
def test_a_malformed_event_of_the_node_is_dropped_and_counted(change: Callable[[NodeEvent], NodeEvent]) -> None:
    async def scenario(world: World) -> None:
        node = await world.node("alice")
        open_events, malformed = node.events, True

        async def events() -> AsyncIterator[NodeEvent]:
            async for event in open_events():
                yield change(event) if malformed else event

        node.events = events  # type: ignore[method-assign]
        alice = await world.join("alice")
        bob = await world.join("bob")
        await alice.send(b"one")
        await bob.send(b"two")
        await asyncio.sleep(200)
        assert alice.stats()["node_events_malformed"] > 0
        malformed = False
        assert await alice.delivered(await alice.send(b"three"), timeout_ms=200_000) == {"bob"}

    world = run_world(scenario)
    assert world.messages("bob") == [b"one", b"three"]
    assert world.messages("alice") == [b"two"]


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        (MessageReceived(MessageEnvelope(TOPIC, b"x"), b"", 1), "message_hash is 0 bytes: it must be 1 to 64 bytes"),
        (
            MessageReceived(MessageEnvelope(TOPIC, b"x"), "ff", 1),
            "message_hash is of type str: it must be 1 to 64 bytes",
        ),  # type: ignore[arg-type]
        (
            MessageReceived(MessageEnvelope(TOPIC, "x"), bytes(32), 1),
            "envelope.payload is of type str: it must be bytes",
        ),  # type: ignore[arg-type]
        (
            MessageReceived(MessageEnvelope(TOPIC, b"x"), bytes(32), 1.5),
            "timestamp_ns is of type float: it must be an int",
        ),  # type: ignore[arg-type]
        (MessagePropagated(7, bytes(32)), "request_id is of type int: it must be a str"),  # type: ignore[arg-type]
        (MessageSent("r", bytes(65)), "message_hash is 65 bytes: it must be 1 to 64 bytes"),
        (MessageSendError("r", "no", permanent=1), "permanent is of type int: it must be a bool"),  # type: ignore[arg-type]
        (MessageSendError("r", "no", retry_after_ms=-1), "retry_after_ms is negative: it must be None or an int"),
        (MessagesMissed(True), "since_ns is of type bool: it must be an int of at least 0"),
        (ConnectionStatus("Connected"), "state is of type str: it must be a ConnectionState"),  # type: ignore[arg-type]
    ],
)
def test_a_malformed_event_is_told_with_the_name_of_its_field(
    event: NodeEvent, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        node = await world.node("alice")
        alice = await world.join("alice")
        node._streams.put(event)
        await asyncio.sleep(1)
        assert alice.stats()["node_events_malformed"] == 1

    run_world(scenario)
    assert f"the node gave a {type(event).__name__} whose {fault}" in caplog.text


class Stopping(Mount):
    """Raises, out of the calls it is told to, what a thread cannot hand to the event loop, or is no `Exception`."""

    stop: type[BaseException] = StopIteration
    stops_in = ""
    released = False

    def load(self, channel_id: str) -> ChannelState | None:
        self._maybe_stop("load")
        return super().load(channel_id)

    def commit(self, channel_id: str, changes: Changes) -> None:
        self._maybe_stop("commit")
        super().commit(channel_id, changes)

    def release(self, channel_id: str) -> None:
        self.released = True
        self._maybe_stop("release")

    def _maybe_stop(self, call: str) -> None:
        if self.stops_in == call:
            raise self.stop


@pytest.mark.parametrize("run", [asyncio.run, run_virtual])
@pytest.mark.parametrize("error", [StopIteration, GeneratorExit, asyncio.CancelledError, Odd])
def test_a_persistence_that_stops_in_its_thread_leaves_nobody_waiting(
    error: type[BaseException], run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def main() -> None:
        persistence = Stopping(Disk())
        persistence.stop = error
        node = MemoryNetwork(seed=1).create_node("alice")
        await node.start()
        config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence))
        for call in ("load", "commit"):
            persistence.stops_in = call
            with pytest.raises(PersistenceError, match=f"^{call} of the persistence raised {error.__name__}"):
                await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config)
        persistence.stops_in = ""
        channel = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config)
        persistence.stops_in = "commit"
        with pytest.raises(PersistenceError, match=f"the persistence raised {error.__name__}"):
            await channel.send(b"refused")
        persistence.stops_in = ""
        await channel.send(b"stored")
        persistence.stops_in, persistence.released = "release", False
        await close_channel(channel)
        assert persistence.released
        await node.stop()

    # In real time commits have a thread.
    run(asyncio.wait_for(main(), 30))
