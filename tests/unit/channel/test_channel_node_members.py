"""A node of somebody else's whose members are no methods, or raise, is told so by name when a channel is made of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world
from wrapped_node import WrappedNode

from shardwire.channel import create_reliable_channel
from shardwire.errors import ConfigError, NodeError
from shardwire.node import MemoryNode, NodeEvent


@pytest.mark.parametrize("name", ["subscribe", "unsubscribe", "send", "query_store", "events"])
def test_a_method_of_a_node_that_is_none_is_refused(name: str) -> None:
    async def scenario(world: World) -> None:
        node = WrappedNode(await world.node("alice"))
        setattr(node, name, None)
        with pytest.raises(ConfigError, match=f"{name} of the node is a NoneType: it must be a method"):
            await create_reliable_channel(node, CHANNEL, TOPIC, "alice")

    run_world(scenario)


class MuteNode(WrappedNode):
    """Raises where it is asked for one of its members, once that was said so often."""

    def __init__(self, inner: MemoryNode, name: str, said: int) -> None:
        super().__init__(inner)
        self._name, self._said = name, said

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name == self._name:
            self._said -= 1
            if self._said < 0:
                raise RuntimeError("not connected\nyet")
        return super().__getattribute__(name)


@pytest.mark.parametrize("name", ["config", "max_message_size_bytes", "has_store"])
def test_a_member_of_a_node_that_raises_is_told_by_name(name: str) -> None:
    async def scenario(world: World) -> None:
        node = MuteNode(await world.node("alice"), name, 0)
        with pytest.raises(
            ConfigError, match=f"^{name} of the node raised RuntimeError: not connected yet: it must be"
        ):
            await create_reliable_channel(node, CHANNEL, TOPIC, "alice")

    run_world(scenario)


@pytest.mark.parametrize("name", ["config", "max_message_size_bytes", "has_store"])
def test_a_member_of_a_node_is_asked_for_once(name: str) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        node = MuteNode(await world.node("bob"), name, 1)
        async with create_reliable_channel(node, CHANNEL, TOPIC, "bob"):
            assert await alice.delivered(await alice.send(b"one")) == {"bob"}

    run_world(scenario)


def test_a_node_whose_events_raises_is_told_so() -> None:
    async def scenario(world: World) -> None:
        node = WrappedNode(await world.node("alice"))

        def events() -> AsyncIterator[NodeEvent]:
            raise RuntimeError("not connected\nyet")

        node.events = events  # type: ignore[method-assign]
        with pytest.raises(NodeError, match=r"^events of the node raised RuntimeError: not connected yet$"):
            await create_reliable_channel(node, CHANNEL, TOPIC, "alice")

    run_world(scenario)


class Late:
    """Events of which there is no iterator at first."""

    def __init__(self, inner: AsyncIterator[NodeEvent], failures: list[str]) -> None:
        self._inner, self._failures = inner, failures

    def __aiter__(self) -> AsyncIterator[NodeEvent]:
        if self._failures:
            raise RuntimeError(self._failures.pop())
        return self._inner

    async def __anext__(self) -> NodeEvent:
        raise AssertionError


def test_events_that_give_no_iterator_are_asked_for_again() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        node = WrappedNode(await world.node("bob"))
        inner, failures = node.events, ["away", "away still"]
        node.events = lambda: Late(inner(), failures)  # type: ignore[method-assign]
        async with create_reliable_channel(node, CHANNEL, TOPIC, "bob") as bob:
            await asyncio.sleep(10)
            assert not bob.is_closed()
            assert bob.stats()["node_events_failed"] == 2
            assert await alice.delivered(await alice.send(b"one")) == {"bob"}

    run_world(scenario)
