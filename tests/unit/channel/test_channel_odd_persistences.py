"""A persistence of somebody's own that does what none may: it is named, and nothing passes for stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, Disk, Mount

from shardwire.channel import close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, SdsConfig
from shardwire.errors import ConfigError, PersistenceError
from shardwire.node import MemoryNetwork
from shardwire.persistence import MemoryPersistence
from shardwire.persistence.protocol import Changes, ChannelState


class Disked(Mount):
    """In a thread, as a persistence of somebody's own is."""

    def __init__(self) -> None:
        super().__init__(Disk())


async def create(persistence: Any) -> Any:
    node = MemoryNetwork(seed=1).create_node("alice")
    await node.start()
    config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence))
    return await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config)


async def asynchronous() -> None:
    pass


def raising(error: Exception) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


@pytest.mark.parametrize("kind", [MemoryPersistence, Disked])
@pytest.mark.parametrize(
    ("give", "told"),
    [
        (asynchronous, "load of the persistence is async: it must be a plain method"),
        (dict, "load of the persistence gave dict: it must give a ChannelState, or None"),
        (raising(KeyError("x")), "load of the persistence raised KeyError"),
        (raising(PersistenceError("locked")), "locked"),
        (lambda: ChannelState({"sds.log": b""}), "a record of str with bytes"),  # type: ignore[dict-item]
        (lambda: ChannelState({("sds.log", "k"): b""}), r"a record of \(str, str\) with bytes"),  # type: ignore[dict-item]
        (
            lambda: ChannelState({("sds.log", b"k"): memoryview(b"")}),  # type: ignore[dict-item]
            r"a record of \(str, bytes\) with memoryview: it must give what was committed",
        ),
    ],
)
def test_what_is_loaded_is_a_state(kind: type, give: Callable[[], Any], told: str) -> None:
    class Odd(kind):  # type: ignore[misc]
        def load(self, channel_id: str) -> Any:
            return give()

    async def main() -> None:
        with pytest.raises(PersistenceError, match=f"^{told}"):
            await create(Odd())

    told = told if told.startswith(("load", "locked")) else f"load of the persistence gave {told}"
    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("kind", [MemoryPersistence, Disked])
def test_a_commit_that_raises_at_first_is_an_error_of_the_persistence(kind: type) -> None:
    class Odd(kind):  # type: ignore[misc]
        def commit(self, channel_id: str, changes: Changes) -> None:
            raise KeyError("x")

    async def main() -> None:
        with pytest.raises(PersistenceError, match=r"^commit of the persistence raised KeyError") as caught:
            await create(Odd())
        assert isinstance(caught.value.__cause__, KeyError)

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("kind", [MemoryPersistence, Disked])
def test_a_commit_that_is_async_stores_nothing(kind: type) -> None:
    class Odd(kind):  # type: ignore[misc]
        is_async = True

        def commit(self, channel_id: str, changes: Changes) -> Any:
            if self.is_async:
                return asynchronous()
            return super().commit(channel_id, changes)

    async def main() -> None:
        persistence = Odd()
        told = "commit of the persistence is async: it must be a plain method, done when it returns"
        with pytest.raises(PersistenceError, match=told):
            await create(persistence)
        persistence.is_async = False
        channel = await create(persistence)
        persistence.is_async = True
        with pytest.raises(PersistenceError, match=told):
            await channel.send(b"refused")
        persistence.is_async = False
        await close_channel(channel)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_method_that_is_missing_is_named() -> None:
    class Unclosed:
        load = commit = print

    with pytest.raises(ConfigError, match=r"it must be None or a Persistence, .*; it has no close\(\)$"):
        SdsConfig(persistence=Unclosed())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"SqlitePersistence\(path\)$"):
        SdsConfig(persistence="state.sqlite")  # type: ignore[arg-type]
