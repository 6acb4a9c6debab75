"""A channel that nobody closed: Python tells of it as of a file or a socket that nobody closed."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC

from shardwire import ReliableChannel, close_channel, create_reliable_channel
from shardwire.node import MemoryNetwork, MemoryNode, run_virtual

pytestmark = pytest.mark.filterwarnings("always:unclosed:ResourceWarning")


def test_a_channel_that_is_dropped_while_it_is_open_is_told_of_and_goes_on() -> None:
    received: list[bytes] = []

    async def main() -> None:
        network = MemoryNetwork(seed=7)
        async with network.create_node("alice") as one, network.create_node("bob") as other:
            held = [await create_reliable_channel(other, CHANNEL, TOPIC, "bob")]
            held[0].on_message_received(lambda event: received.append(event.message))
            with pytest.warns(
                ResourceWarning, match=r"unclosed <ReliableChannel .*'bob', started>: it goes on .*close"
            ):
                held.clear()
            async with create_reliable_channel(one, CHANNEL, TOPIC, "alice") as alice:
                await alice.delivered(await alice.send(b"still there"))

    run_virtual(main())
    assert received == [b"still there"]


def test_nothing_is_kept_of_nodes_whose_loop_ended_with_their_channels() -> None:
    async def main() -> weakref.ref[MemoryNode]:
        node = MemoryNetwork(seed=7).create_node("alice")
        await node.start()
        await create_reliable_channel(node, CHANNEL, TOPIC, "alice")
        return weakref.ref(node)

    # Whoever records a warning keeps what it is about.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = [asyncio.run(main()) for _ in range(5)]
        gc.collect()
    # That of the last one goes with the next channel.
    assert [node() for node in nodes[:-1]] == [None] * 4


def test_a_channel_that_was_closed_is_dropped_in_silence() -> None:
    async def main() -> None:
        async with MemoryNetwork(seed=7).create_node("alice") as node:
            alice = await create_reliable_channel(node, CHANNEL, TOPIC, "alice")
            await close_channel(alice)
            async with create_reliable_channel(node, CHANNEL, TOPIC, "alice"):
                pass

    # What tests before this one left behind is not of it.
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_virtual(main())
        gc.collect()


@pytest.mark.parametrize("given", [(), ("alice",)])
def test_a_channel_that_could_not_be_made_is_dropped_in_silence(given: tuple[Any, ...]) -> None:
    # `PytestUnraisableExceptionWarning` is an error here.
    with pytest.raises((TypeError, AttributeError)):
        ReliableChannel(*given)
    gc.collect()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_channel_and_its_iterators_cannot_be_copied(duplicate: Callable[[object], object]) -> None:
    async def main() -> None:
        async with (
            MemoryNetwork(seed=7).create_node("alice") as node,
            create_reliable_channel(node, CHANNEL, TOPIC, "alice") as alice,
        ):
            messages = alice.messages()
            for one in (alice, messages):
                with pytest.raises(TypeError, match="cannot be copied or pickled: "):
                    duplicate(one)
            await messages.aclose()

    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_virtual(main())
        gc.collect()
