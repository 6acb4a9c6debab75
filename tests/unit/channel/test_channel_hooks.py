"""What the application supplies may raise anything, a cancellation of its own too: no loop of a channel ends by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from channel_world import TOPIC, World, run_world

from shardwire.events import CallbackErrorEvent
from shardwire.node import MessageEnvelope, StorePage, StoreQuery


class Odd(BaseException):
    """No `Exception`."""


async def end_cancelled() -> None:
    """Ends as an operation does whose connection was cancelled, while the task that awaits it was not."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def raise_odd() -> None:
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


@pytest.mark.parametrize("error", [Odd, asyncio.CancelledError])
def test_whatever_a_callback_or_an_observer_raises_ends_nothing(error: type[BaseException]) -> None:
    def fail(_: object) -> None:
        raise error

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        for channel in (alice, bob):
            channel.measure(fail)
            channel.observe(fail)
        bob.on_message_received(fail)
        for message in (b"one", b"two"):
            assert await alice.delivered(await alice.send(message)) == {"bob"}
        await asyncio.sleep(60)

    world = run_world(scenario)
    assert world.messages("bob") == [b"one", b"two"]
    assert [type(event.error) for event in world.of("bob", CallbackErrorEvent)] == [error, error]
