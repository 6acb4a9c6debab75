"""A persistence of somebody's own that does what none may: it is named, and nothing passes for stored."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, Disk, Mount

from shardwire.channel import close_channel, create_reliable_channel
from shardwire.channel.storing.writer import Writer
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


@pytest.mark.parametrize("call", ["load", "release"])
def test_who_ends_the_process_in_a_call_ends_it(call: str) -> None:
    persistence = MemoryPersistence()
    setattr(persistence, call, lambda channel_id: sys.exit(3))

    async def main() -> None:
        await close_channel(await create(persistence))

    with pytest.raises(SystemExit):
        asyncio.run(main())


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


@pytest.mark.parametrize("kind", [MemoryPersistence, Disked])
def test_a_persistence_may_do_as_it_likes_with_the_changes_it_is_given(kind: type) -> None:
    """What is tried again after a failure is given anew."""

    class Odd(kind):  # type: ignore[misc]
        failures = 0

        def commit(self, channel_id: str, changes: Changes) -> None:
            given = Changes(dict(changes.records))
            changes.records.clear()
            if self.failures:
                self.failures -= 1
                raise PersistenceError("not yet")
            super().commit(channel_id, given)

    persistence = Odd()

    async def main() -> None:
        channel = await create(persistence)
        await channel.start()
        await channel.send(b"first")
        persistence.failures = 2
        with pytest.raises(PersistenceError, match="not yet"):
            await channel.send(b"refused")
        # Tried again by the channel, after 200 and 400 ms.
        await asyncio.sleep(1)
        await channel.send(b"last")
        state = persistence.load(channel.channel_id)
        assert [value for value in state.records.values() if b"first" in value]
        assert [value for value in state.records.values() if b"last" in value]
        await close_channel(channel)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_whoever_puts_a_commit_of_their_own_in_place_sees_all_of_them() -> None:
    persistence = MemoryPersistence()
    commit, seen = persistence.commit, []

    def watching(channel_id: str, changes: Changes) -> None:
        seen.extend(name for name, _ in changes.records)
        commit(channel_id, changes)

    async def main() -> None:
        persistence.commit = watching  # type: ignore[method-assign]
        channel = await create(persistence)
        await channel.start()
        await channel.send(b"message")
        await close_channel(channel)

    asyncio.run(asyncio.wait_for(main(), 30))
    assert {"channel.identity", "channel.send", "sds.log"} <= set(seen)


@pytest.mark.parametrize("kind", [MemoryPersistence, Disked])
def test_a_state_that_was_given_free_without_its_loop_is_given_free_once(kind: type) -> None:
    persistence: Any = kind()
    released: list[str] = []
    persistence.release = released.append
    writer = Writer(persistence, CHANNEL)
    asyncio.run(writer.load())
    if (done := writer.release_without_loop()) is not None:
        done.result(30)
    asyncio.run(writer.close())
    assert released == [CHANNEL]
