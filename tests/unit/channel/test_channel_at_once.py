"""A channel that keeps its state in this process: `send` and the hand-over wait for nothing, and others run still."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from itertools import pairwise, takewhile
from typing import Any

import pytest
from channel_world import World, run_world
from stored_kinds import SEND

from shardwire import MemoryPersistence
from shardwire.channel.driver import AT_ONCE_MAX
from shardwire.channel.hooks import Begun
from shardwire.channel.receiving.reception import Arrival
from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig
from shardwire.errors import ChannelClosedError, ConfigError, PersistenceError, QueueFullError
from shardwire.events import MessageReceivedEvent
from shardwire.persistence.protocol import Changes
from shardwire.sds import Now

MESSAGES = 500


def result_of(call: Coroutine[Any, Any, str]) -> str | None:
    """What a call gives without a wait; None where it waits, and then it is given up."""
    try:
        call.send(None)
    except StopIteration as done:
        return str(done.value)
    call.close()
    return None


async def turns(counted: list[int], of: list[Any]) -> None:
    """Notes how many entries a list has whenever the loop has a turn."""
    while True:
        counted.append(len(of))
        await asyncio.sleep(0)


def longest_step(counted: list[int]) -> int:
    return max(later - earlier for earlier, later in pairwise(counted))


def kept_in(persistence: MemoryPersistence | None) -> ChannelConfig:
    return ChannelConfig.logos(sds=SdsConfig(persistence=persistence))


@pytest.mark.parametrize("persistence", [None, MemoryPersistence()])
def test_send_does_not_wait_where_nothing_is_stored_elsewhere(persistence: MemoryPersistence | None) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", kept_in(persistence))
        await world.join("bob")
        request_id = result_of(alice.send(b"at once"))
        assert request_id is not None
        assert await alice.delivered(request_id) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"at once"]


def test_a_message_that_did_not_wait_is_stored_when_send_returns() -> None:
    kept = MemoryPersistence()

    async def scenario(world: World) -> None:
        alice = await world.join("alice", kept_in(kept))
        await asyncio.sleep(0.1)
        assert result_of(alice.send(b"stored")) is not None
        state = kept.load(alice.channel_id)
        assert state is not None
        assert len(list(state.of_kind(SEND))) == 1
        assert any(b"stored" in value for value in state.records.values())

    run_world(scenario)


def test_a_message_that_cannot_be_stored_at_once_is_refused_and_never_leaves() -> None:
    class Failing(MemoryPersistence):
        failing = False

        def commit(self, channel_id: str, changes: Changes) -> None:
            if self.failing:
                raise PersistenceError("no room")
            super().commit(channel_id, changes)

    kept = Failing()

    async def scenario(world: World) -> None:
        alice = await world.join("alice", kept_in(kept))
        await world.join("bob")
        await alice.delivered(await alice.send(b"first"))
        kept.failing = True
        with pytest.raises(PersistenceError, match="no room"):
            result_of(alice.send(b"refused"))
        # Behind a commit that failed nothing is applied before the driver has tried again.
        assert result_of(alice.send(b"refused too")) is None
        await asyncio.sleep(1)
        kept.failing = False
        await asyncio.sleep(20)
        await alice.delivered(await alice.send(b"last"))

    assert run_world(scenario).messages("bob") == [b"first", b"last"]


def test_send_waits_for_the_commit_where_messages_are_stored() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", on_disk=True)
        await asyncio.sleep(0.1)
        assert result_of(alice.send(b"stored")) is None

    run_world(scenario)


@pytest.mark.parametrize("persistence", [None, MemoryPersistence()])
def test_a_sender_in_a_tight_loop_lets_others_run_and_loses_nothing(persistence: MemoryPersistence | None) -> None:
    sent: list[str] = []
    counted: list[int] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", kept_in(persistence))
        await world.join("bob")
        ticker = asyncio.create_task(turns(counted, sent))
        for number in range(MESSAGES):
            sent.append(await alice.send(b"%d" % number))
        ticker.cancel()
        for request_id in sent:
            await alice.delivered(request_id)

    world = run_world(scenario)
    assert world.messages("bob") == [b"%d" % number for number in range(MESSAGES)]
    assert longest_step(counted) == AT_ONCE_MAX + 1


@pytest.mark.parametrize("persistence", [None, MemoryPersistence()])
def test_messages_are_handed_over_one_at_a_time_and_others_run(persistence: MemoryPersistence | None) -> None:
    done: list[bytes] = []
    counted: list[int] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob", kept_in(persistence), listen=False)
        for number in range(MESSAGES):
            await alice.send(b"%d" % number)
        await asyncio.sleep(1)
        running = False

        async def take(event: MessageReceivedEvent) -> None:
            nonlocal running
            assert not running
            running = True
            if not len(done) % 7:
                await asyncio.sleep(0.001)
            done.append(event.message)
            running = False

        unsubscribe = bob.on_message_received(take)
        await asyncio.sleep(0.02)
        assert 0 < len(done) < MESSAGES // 2
        unsubscribe()
        bob.on_message_received(lambda event: done.append(event.message))
        while len(done) < MESSAGES:
            counted.append(len(done))
            await asyncio.sleep(0)

    run_world(scenario)
    assert done == [b"%d" % number for number in range(MESSAGES)]
    assert 1 < longest_step(counted) <= AT_ONCE_MAX + 1


def test_what_is_refused_at_once_is_raised_and_what_waits_for_room_waits() -> None:
    full = ChannelConfig.logos(
        sds=SdsConfig(outgoing_buffer_messages_max=1), rate_limit=RateLimitConfig(queue_bytes_max=10_000)
    )
    contents = ChannelConfig.logos(sds=SdsConfig(message_id="content-sha256"))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", full)
        await alice.send(b"fills the buffer")
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(alice.send(bytes(6_000)))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        with pytest.raises(QueueFullError):
            result_of(alice.send(bytes(12_000)))
        await alice.close()
        with pytest.raises(ChannelClosedError):
            await waiting
        carol, dave = await world.join("carol", contents), await world.join("dave", contents)
        await carol.send(b"said once")
        await asyncio.sleep(1)
        with pytest.raises(ConfigError, match="duplicate"):
            result_of(dave.send(b"said once"))

    run_world(scenario)


def test_a_send_that_did_not_wait_is_cancelled_before_anything_of_it_leaves() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        before = world.sent_by("alice")
        request_id = result_of(alice.send(b"taken back"))
        assert request_id is not None
        cancelled = await alice.cancel(request_id)
        assert cancelled.stopped
        assert cancelled.segments_sent == 0
        await asyncio.sleep(1)
        assert world.sent_by("alice") == before
        await alice.delivered(await alice.send(b"later"))

    assert run_world(scenario).messages("bob") == [b"later"]


def test_a_send_behind_inputs_that_wait_comes_after_them() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        order: list[str] = []
        session = alice._session
        session.driver.post(lambda now: order.append("posted"))
        session.driver.apply(lambda now: order.append("at once"))
        # In their order, without a turn of the driver.
        assert order == ["posted", "at once"]

        def outer(now: Now) -> None:
            session.driver.apply(lambda now: order.append("within"))
            order.append("outer")

        # None is applied in the middle of another.
        session.driver.apply(outer)
        assert order == ["posted", "at once", "outer"]
        await asyncio.sleep(0.1)
        assert order[-1] == "within"

    run_world(scenario)


def test_received_messages_are_taken_in_together_and_one_of_them_spoils_no_other() -> None:
    """A batch holds one that raises where it is taken in."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        engine = bob._session.engine
        receive = engine.receive

        def raising(arrivals: Sequence[Arrival], now: Now) -> Any:
            before = list(takewhile(lambda arrival: b"odd" not in arrival.data, arrivals))
            kept = receive(before, now)
            if len(before) < len(arrivals):
                raise ValueError("odd")
            return kept

        engine.receive = raising  # type: ignore[method-assign]
        for text in (b"one", b"odd", b"two", b"three"):
            await alice.send(text)
        await asyncio.sleep(0.1)
        assert bob.stats()["dropped_by_error"] == 1
        assert world.messages("bob") == [b"one"]

    run_world(scenario)


def commits_at_each_hand_over(count: int) -> list[int]:
    """How many commits there had been when each of so many messages that waited was handed over."""
    commits: list[int] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob", listen=False, on_disk=True)
        for number in range(count):
            await alice.send(b"%d" % number)
        await asyncio.sleep(1)
        bob.on_message_received(lambda event: commits.append(world.disks["bob"].commits))
        await asyncio.sleep(1)

    run_world(scenario)
    assert len(commits) == count
    return commits


def test_a_stored_message_is_handed_over_when_it_is_durable_that_the_last_one_is_done() -> None:
    assert len(set(commits_at_each_hand_over(8))) == 8


def test_where_many_stored_messages_wait_one_commit_lets_several_be_handed_over() -> None:
    assert len(set(commits_at_each_hand_over(400))) < 50


def test_a_batch_of_received_messages_takes_no_more_room_than_there_is() -> None:
    config = ChannelConfig.logos(sds=SdsConfig(incoming_buffer_messages_max=5))

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob", config, listen=False)
        for number in range(40):
            await alice.send(b"%d" % number)
        await asyncio.sleep(0.01)
        assert bob.stats()["deliveries_waiting"] == 5
        assert bob.stats()["dropped_by_backpressure"] == 35
        world.listen("bob", bob)
        await asyncio.sleep(600)

    # Their order is that of who came again when it was given up.
    assert set(run_world(scenario).messages("bob")) == {b"%d" % number for number in range(40)}


def test_observers_are_told_of_each_message_of_a_batch_with_its_segments() -> None:
    told: list[str] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        bob.observe_sds(lambda seen: told.append(seen.kind) if seen.direction == "received" else None)
        bob.observe(lambda seen: told.append(seen.stage) if seen.stage == "received" else None)
        for number in range(20):
            await alice.send(b"%d" % number)
        await asyncio.sleep(0.01)

    run_world(scenario)
    assert told[:40] == ["content", "received"] * 20


def test_a_hook_that_was_begun_goes_on_as_if_it_were_awaited() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        ended: list[str] = []

        async def hook(future: asyncio.Future[str]) -> str:
            try:
                return await future + await asyncio.sleep(0, "!")
            except BaseException as error:
                ended.append(type(error).__name__)
                if isinstance(error, ValueError):
                    return "mended"
                raise

        there: asyncio.Future[str] = loop.create_future()
        there.set_result("there")
        first = Begun(hook(there))
        assert not first.is_done
        assert await first == "there!"
        assert Begun(asyncio.sleep(0, "x")).is_done is False

        async def at_once() -> str:
            return "at once"

        assert Begun(at_once()).is_done
        assert Begun(at_once()).result == "at once"
        # An error that it waits for, a cancellation, and its end reach it.
        failing: asyncio.Future[str] = loop.create_future()
        second = Begun(hook(failing))
        failing.set_exception(ValueError())
        assert await second == "mended"

        async def wait_for(begun: Begun[str]) -> str:
            return await begun

        task = asyncio.create_task(wait_for(Begun(hook(loop.create_future()))))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        waiting = wait_for(Begun(hook(loop.create_future())))
        waiting.send(None)
        waiting.close()
        assert ended == ["ValueError", "CancelledError", "GeneratorExit"]

    asyncio.run(scenario())
