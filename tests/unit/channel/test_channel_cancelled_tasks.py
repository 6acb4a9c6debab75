"""A task of a channel that is cancelled by what it calls goes on or ends the channel, but never ends in silence."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire.channel import close_channel, create_reliable_channel
from shardwire.config import ChannelConfig
from shardwire.errors import ChannelClosedError
from shardwire.events import CallbackErrorEvent, MessageReceivedEvent, MessageSentEvent
from shardwire.node import MemoryNetwork, MessageEnvelope


def cancel_own_task(*_: object) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def cancel_and_wait(event: object) -> None:
    cancel_own_task()
    await asyncio.sleep(1)


async def cancel_and_swallow(event: object) -> None:
    cancel_own_task()
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        return


async def be_cancelled_by_another(event: object) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_later(0.1, task.cancel)
    await asyncio.sleep(1)


@pytest.mark.parametrize("cancel", [cancel_own_task, cancel_and_wait, cancel_and_swallow, be_cancelled_by_another])
@pytest.mark.parametrize(("name", "kind"), [("bob", MessageReceivedEvent), ("alice", MessageSentEvent)])
def test_a_callback_that_cancels_the_task_it_runs_in_is_reported_and_the_next_event_comes(
    name: str, kind: type[Any], cancel: Callable[[Any], Any]
) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        world.channels[name].on(kind, cancel)
        for message in (b"one", b"two"):
            assert await alice.delivered(await alice.send(message)) == {"bob"}
        await asyncio.sleep(10)
        assert not world.channels[name].is_closed()

    world = run_world(scenario)
    assert world.messages("bob") == [b"one", b"two"]
    assert len(world.of("alice", MessageSentEvent)) == 2
    errors = world.of(name, CallbackErrorEvent)
    assert [(type(event.event), type(event.error)) for event in errors] == [(kind, asyncio.CancelledError)] * 2


def test_closing_ends_a_callback_as_before() -> None:
    ended: list[str] = []

    async def wait(event: object) -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            ended.append("cancelled")

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        bob.on_message_received(wait)
        await alice.send(b"x")
        await asyncio.sleep(1)
        await asyncio.wait_for(close_channel(bob), 1)

    assert run_world(scenario).of("bob", CallbackErrorEvent) == []
    assert ended == ["cancelled"]


@pytest.mark.parametrize("culprit", ["callback", "node"])
def test_a_task_that_is_cancelled_where_nobody_can_be_told_closes_the_channel(
    culprit: str, caplog: pytest.LogCaptureFixture
) -> None:
    def cancel_later(event: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(1, task.cancel)

    async def cancelling_send(envelope: MessageEnvelope) -> str:
        await cancel_and_wait(envelope)
        raise AssertionError

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        if culprit == "node":
            world.nodes["alice"].send = cancelling_send  # type: ignore[method-assign]
        else:
            alice.on_message_sent(cancel_later)
        await alice.send(b"x")
        await asyncio.sleep(10)
        assert alice.is_closed()
        with pytest.raises(ChannelClosedError):
            await alice.send(b"y")

    run_world(scenario)
    (record,) = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "was cancelled from outside, the channel closes" in record.getMessage()


def test_an_event_loop_that_ends_with_a_channel_open_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = MemoryNetwork(seed=1).create_node("alice")
        await node.start()
        channel = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=ChannelConfig.logos())
        channel.on(MessageReceivedEvent, print)
        # The loop ends when this has.
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.3)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_channel_all_tasks_of_which_are_cancelled_closes(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await world.node("alice")
        before = asyncio.all_tasks()
        alice = await world.join("alice")
        for task in asyncio.all_tasks() - before:
            task.cancel()
        await asyncio.sleep(10)
        assert alice.is_closed()
        with pytest.raises(ChannelClosedError):
            await alice.send(b"x")

    run_world(scenario)
    assert "was cancelled from outside, the channel closes" in caplog.text


def test_what_a_commit_was_to_make_durable_when_the_driver_was_cancelled_is_not_told_as_that() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", on_disk=True)
        disk = world.disks["alice"]
        await asyncio.sleep(1)
        commits = disk.commits
        sending = asyncio.create_task(alice.send(b"x"))
        await asyncio.sleep(0.05)
        (driver,) = [task for task in asyncio.all_tasks() if task.get_name().endswith("driver")]
        driver.cancel()
        with pytest.raises(ChannelClosedError):
            await sending
        assert disk.commits == commits
        assert world.sent_by("alice") == 0
        await close_channel(alice)

    run_world(scenario, commit_ms=100)
