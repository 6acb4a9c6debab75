"""A persistence or a driver that fails: everybody hears of it, and the channel can be closed and made anew."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import pytest
from channel_world import Disk, Mount, World, join_released, run_world

from shardwire.channel import close_channel
from shardwire.channel.storing.records import DELIVERY
from shardwire.config import ChannelConfig, SdsConfig
from shardwire.errors import ChannelClosedError, PersistenceError
from shardwire.persistence import MemoryPersistence
from shardwire.persistence.protocol import Changes, ChannelState


def test_a_persistence_that_raises_anything_refuses_sends_until_it_stores_again() -> None:
    class Failing(MemoryPersistence):
        fails = False

        def commit(self, channel_id: str, changes: Changes) -> None:
            if self.fails:
                raise TimeoutError("the database server did not answer")
            super().commit(channel_id, changes)

    async def scenario(world: World) -> None:
        persistence = Failing()
        alice = await world.join("alice", ChannelConfig.logos(sds=SdsConfig(persistence=persistence)))
        await world.join("bob")
        persistence.fails = True
        for result in await asyncio.gather(*(alice.send(b"refused") for _ in range(2)), return_exceptions=True):
            assert isinstance(result, PersistenceError)
        persistence.fails = False
        await asyncio.sleep(60)
        assert await alice.delivered(await alice.send(b"stored"), timeout_ms=60_000) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"stored"]


def test_a_driver_that_fails_tells_everybody_who_waits_for_it() -> None:
    async def scenario(world: World) -> None:
        alice, persistence = await join_released(world, "alice")
        session = alice._session
        request_id = await alice.send(b"nobody listens")

        def broken(*_: object, **__: object) -> None:
            raise AssertionError("a broken invariant")

        session.engine.collect = broken
        calls = [alice.send(b"x"), alice.cancel("unknown"), alice.delivered(request_id, timeout_ms=1_000_000)]
        results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
        assert [type(result) for result in results if result is not False] == [ChannelClosedError] * (
            3 - results.count(False)
        )
        await close_channel(alice)
        assert persistence.released

    run_world(scenario)


@pytest.mark.parametrize("heals_after_ms", [50, 150, 300, 450, 600, 60_000])
def test_a_message_that_cannot_be_stored_for_its_hand_over_waits_for_the_next_life(
    heals_after_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob", on_disk=True)
        disk = world.disks["bob"]
        sending = asyncio.create_task(alice.send(b"x"))
        await asyncio.sleep(0.15)
        disk.fails_with = PersistenceError("disk full")
        await sending
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(close_channel(bob))
        await asyncio.sleep(heals_after_ms / 1_000)
        disk.fails_with = None
        await asyncio.wait_for(closing, 60)
        await world.join("bob", on_disk=True)
        await asyncio.sleep(60)

    assert run_world(scenario, commit_ms=100).messages("bob") == [b"x"]
    assert [record.message for record in caplog.records if record.levelno == logging.CRITICAL] == []


def test_a_driver_that_fails_while_somebody_waits_for_a_cycle_lets_the_channel_close() -> None:
    async def scenario(world: World) -> None:
        alice, persistence = await join_released(world, "alice")

        def broken(*_: object, **__: object) -> None:
            raise AssertionError("a broken invariant")

        alice._session.engine.on_stopped = broken
        async with asyncio.timeout(60):
            await alice.stop()
            await close_channel(alice)
        assert persistence.released

    run_world(scenario)


def test_one_commit_stores_what_came_while_nothing_could_be_stored() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob", on_disk=True, listen=False)
        disk = world.disks["bob"]
        disk.fails_with = PersistenceError("disk full")
        for number in range(3):
            await alice.send(b"%d" % number)
            # Each comes while another commit fails.
            await asyncio.sleep(2)
        disk.fails_with, disk.power_fails_after = None, disk.commits + 1
        await disk.power_failed.wait()
        assert len(disk.of_kind(DELIVERY)) == 3
        await world.crash("bob")

    run_world(scenario)


def test_who_waits_for_a_commit_is_not_kept_by_those_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    """What waits by itself is tried ever less often; callers hear soon that nothing is stored, or is again."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice", on_disk=True)
        disk = world.disks["alice"]
        undelivered = [await alice.send(b"%d" % number) for number in range(3)]
        loop = asyncio.get_running_loop()
        disk.fails_with = PersistenceError("disk full")
        for request_id in undelivered:
            await asyncio.sleep(120)
            send = partial(alice.send, b"refused")
            for call in (send, partial(alice.cancel, request_id), send):
                since = loop.time()
                with pytest.raises(PersistenceError, match="disk full"):
                    await call()
                assert loop.time() - since < 1
        caplog.clear()
        for _ in range(100):
            with pytest.raises(PersistenceError, match="disk full"):
                await alice.send(b"refused")
        assert sum("cannot be stored" in record.message for record in caplog.records) < 10
        await asyncio.sleep(120)
        disk.fails_with = None
        since = loop.time()
        await alice.send(b"taken")
        assert loop.time() - since < 1
        disk.fails_with = PersistenceError("disk full")
        await asyncio.sleep(120)
        since = loop.time()
        await alice.stop()
        assert loop.time() - since < 1
        disk.fails_with = None

    run_world(scenario, commit_ms=10)


def test_a_persistence_that_fails_is_tried_less_and_less_often_once_nobody_waits() -> None:
    tries = 0

    class Counting(Mount):
        def commit(self, channel_id: str, changes: Changes) -> None:
            nonlocal tries
            tries += 1
            super().commit(channel_id, changes)

    async def scenario(world: World) -> None:
        nonlocal tries
        disk = Disk()
        alice = await world.join("alice", ChannelConfig.logos(sds=SdsConfig(persistence=Counting(disk))))
        await alice.send(b"nobody listens")
        disk.fails_with = PersistenceError("disk full")
        with pytest.raises(PersistenceError):
            await alice.send(b"refused")
        tries = 0
        await asyncio.sleep(600)
        assert 0 < tries < 100
        disk.fails_with = None

    run_world(scenario)


def test_a_state_that_could_not_be_loaded_is_not_given_free() -> None:
    """Whoever has it has it still."""
    released: list[str] = []

    class InUse(MemoryPersistence):
        def load(self, channel_id: str) -> ChannelState | None:
            raise PersistenceError("another process has it")

        def release(self, channel_id: str) -> None:
            released.append(channel_id)

    async def scenario(world: World) -> None:
        with pytest.raises(PersistenceError, match="another process has it"):
            await world.join("alice", ChannelConfig.logos(sds=SdsConfig(persistence=InUse())))

    run_world(scenario)
    assert released == []
