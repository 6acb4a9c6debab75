"""Who was away finds what it missed in the store, whatever its clock says and however it came back."""

from __future__ import annotations

import asyncio

import pytest
from channel_world import World, run_world

from shardwire.config import ChannelConfig, SdsConfig
from shardwire.events import IrretrievableMessageEvent
from shardwire.node import StorePage, StoreQuery
from shardwire.node.virtual_time import VirtualClock

# The sender never resends, and nobody repairs: what arrives late came from the store.
STORE_ONLY = ChannelConfig.logos(sds=SdsConfig(max_retransmissions=0, enable_repair=False))
HOUR_MS = 3_600_000


def test_a_channel_that_was_stopped_offline_and_starts_online_asks_for_what_passed_by() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        bob = await world.join("bob", STORE_ONLY)
        world.nodes["bob"].go_offline()
        await asyncio.sleep(1)
        await bob.stop()
        await alice.send(b"missed")
        await asyncio.sleep(1)
        await alice.stop()
        world.nodes["bob"].go_online()
        await asyncio.sleep(1)
        await bob.start()
        await asyncio.sleep(5)

    assert run_world(scenario).messages("bob") == [b"missed"]


@pytest.mark.parametrize("step_ms", [-HOUR_MS, -24 * HOUR_MS, HOUR_MS])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_is_set_meanwhile_hides_nothing(step_ms: int, restarts: bool) -> None:
    async def scenario(world: World) -> None:
        clock = VirtualClock()
        clock.step(-step_ms)
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY, on_disk=True, clock=clock)
        await alice.send(b"first")
        await asyncio.sleep(20)
        clock.step(step_ms)
        await alice.send(b"second")
        await asyncio.sleep(20)
        if restarts:
            await world.crash("bob")
        else:
            world.nodes["bob"].go_offline()
        await alice.send(b"missed")
        await asyncio.sleep(1)
        # Nobody is left who would name it.
        await alice.stop()
        await asyncio.sleep(400)
        if restarts:
            await world.join("bob", STORE_ONLY, on_disk=True, clock=clock)
        else:
            world.nodes["bob"].go_online()
        await asyncio.sleep(20)

    assert run_world(scenario).messages("bob") == [b"first", b"second", b"missed"]


def test_a_clock_that_is_behind_hides_nothing() -> None:
    """By it, what was missed has not been sent yet."""

    async def scenario(world: World) -> None:
        clock = VirtualClock()
        clock.step(-HOUR_MS)
        alice = await world.join("alice", STORE_ONLY)
        await alice.send(b"missed")
        await asyncio.sleep(1)
        await alice.stop()
        await world.join("bob", STORE_ONLY, clock=clock)
        await asyncio.sleep(20)

    assert run_world(scenario).messages("bob") == [b"missed"]


def test_a_query_that_never_returns_does_not_end_retrieval(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        node = await world.node("bob")
        answer, asked = node.query_store, []

        async def query_store(query: StoreQuery) -> StorePage:
            asked.append(query)
            if len(asked) == 1:
                await asyncio.Event().wait()
            return await answer(query)

        node.query_store = query_store  # type: ignore[method-assign]
        alice = await world.join("alice", STORE_ONLY)
        await world.join("bob", STORE_ONLY)
        node.go_offline()
        await alice.send(b"missed")
        await asyncio.sleep(1)
        await alice.stop()
        node.go_online()
        await asyncio.sleep(120)

    assert run_world(scenario).messages("bob") == [b"missed"]
    assert "query_store of the node did not return within 60000 ms" in caplog.text


def test_a_channel_that_is_stopped_while_it_asks_a_store_asks_again_when_it_starts() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", STORE_ONLY)
        bob = await world.join("bob", STORE_ONLY)
        node = world.nodes["bob"]
        node.go_offline()
        await asyncio.sleep(1)
        await alice.send(b"missed")
        await asyncio.sleep(1)
        await alice.stop()
        query_store, asking = node.query_store, asyncio.Event()

        async def hang(query: StoreQuery) -> StorePage:
            asking.set()
            await asyncio.Event().wait()
            raise AssertionError

        node.query_store = hang  # type: ignore[method-assign]
        node.go_online()
        await asking.wait()
        await bob.stop()
        node.query_store = query_store  # type: ignore[method-assign]
        await bob.start()
        await asyncio.sleep(5)

    assert run_world(scenario).messages("bob") == [b"missed"]


@pytest.mark.parametrize("restarts", [False, True])
def test_who_was_away_for_longer_than_the_logs_of_others_reach_is_heard_at_once(restarts: bool) -> None:
    """What it names was delivered and forgotten: nobody waits for it, or asks the store for all the past."""
    log_messages_max = 20
    # The last record of what left the log is full: what no record tells of is asked for in the next life.
    sends = 4 * 64 + log_messages_max - 2
    config = ChannelConfig.logos(sds=SdsConfig(log_messages_max=log_messages_max))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config, on_disk=True)
        bob = await world.join("bob", config, on_disk=True)
        await alice.send(b"before")
        await bob.send(b"before, too")
        await asyncio.sleep(20)
        world.nodes["bob"].go_offline()
        for number in range(sends):
            await alice.send(b"meanwhile %d" % number)
            await asyncio.sleep(0.05)
        if restarts:
            await world.crash("alice")
            alice = await world.join("alice", config, on_disk=True)
        await asyncio.sleep(20)
        world.nodes["bob"].go_online()
        await bob.send(b"back")
        await asyncio.sleep(5)
        assert world.messages("alice")[-1] == b"back"
        assert alice.stats()["missing"] == 0
        await asyncio.sleep(400)
        assert world.of("alice", IrretrievableMessageEvent) == []
        assert len(world.messages("bob")) == sends + 1

    run_world(scenario)
