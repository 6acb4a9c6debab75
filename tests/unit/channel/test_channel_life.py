"""Life of channels: start, stop, close, drain, listeners, several channels on a node, back-pressure."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire.channel import close_channel, create_reliable_channel
from shardwire.channel.receiving import reception
from shardwire.channel.receiving.node_events import is_well_formed
from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig, SegmentationConfig
from shardwire.errors import ChannelClosedError, ConfigError, NodeError
from shardwire.events import CallbackErrorEvent, MessageReceivedEvent, MessageSentEvent, SenderIdConflictEvent
from shardwire.node import (
    MemoryNetwork,
    MessageEnvelope,
    MessageReceived,
    NetworkConditions,
    NodeConfig,
    run_virtual,
)
from shardwire.persistence import MemoryPersistence


def test_leaving_the_context_drains_then_closes() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        async with await world.join("alice") as alice:
            request_id = await alice.send(b"last words")
        assert not alice.is_started()
        with pytest.raises(ChannelClosedError):
            await alice.send(b"too late")
        assert alice.pending() == ()
        assert await alice.delivered(request_id) == {"bob"}
        await asyncio.sleep(1)

    world = run_world(scenario, NetworkConditions(loss=0.3, delay_ms=(5, 40)))
    assert world.messages("bob") == [b"last words"]


def test_an_error_in_the_context_closes_at_once() -> None:
    async def scenario(world: World) -> None:
        await world.node("silent")
        started = asyncio.get_running_loop().time()
        with pytest.raises(ValueError, match="the application's"):
            async with await world.join("alice") as alice:
                await alice.send(b"x")
                raise ValueError("the application's")
        assert asyncio.get_running_loop().time() - started < 1

    run_world(scenario)


@pytest.mark.parametrize("drain_timeout_ms", [0, 5_000])
def test_draining_ends_in_time_though_nobody_answers(drain_timeout_ms: int) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.node("silent")
        request_id = await alice.send(b"x")
        waiter = asyncio.create_task(alice.delivered(request_id, timeout_ms=60_000))
        await asyncio.sleep(0)
        started = asyncio.get_running_loop().time()
        await close_channel(alice, drain_timeout_ms)
        assert asyncio.get_running_loop().time() - started == pytest.approx(drain_timeout_ms / 1000, abs=0.1)
        with pytest.raises(ChannelClosedError):
            await waiter
        await close_channel(alice)

    run_world(scenario)


@pytest.mark.parametrize(
    ("persistence", "becomes"),
    [(None, "lost: SdsConfig.persistence is not set"), (MemoryPersistence(), "sent on by its next life")],
    ids=["nowhere", "in memory"],
)
def test_a_drain_that_ends_in_vain_says_what_is_left(
    persistence: MemoryPersistence | None, becomes: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with MemoryNetwork(store=False).create_node("alice") as node:
            config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence)).without_store()
            async with create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config) as alice:
                await alice.send(b"to nobody")
                await alice.send(b"and nobody")

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    said = [record.getMessage() for record in caplog.records if "closes after" in record.getMessage()]
    assert said == [
        f"channel {CHANNEL!r} closes after 30000 ms: 2 messages are not delivered, and {becomes}; "
        "it is still being sent: the network took 0 of its 1 segments"
    ]


def test_a_receiver_acknowledges_before_it_leaves() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        request_id = await alice.send(b"x")
        await asyncio.sleep(0.01)
        assert world.sent_by("bob") == 0
        await close_channel(bob, drain_timeout_ms=10_000)
        assert await alice.delivered(request_id, timeout_ms=1) == {"bob"}

    run_world(scenario)


@pytest.mark.parametrize("timeout", [-1, 1.5, "5"])
def test_a_drain_must_be_a_count_of_milliseconds(timeout: object) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ConfigError, match=f"drain_timeout_ms is {timeout!r}"):
            await close_channel(await world.join("alice"), timeout)  # type: ignore[arg-type]

    run_world(scenario)


@pytest.mark.parametrize("event", ["received", "sent"])
def test_a_callback_may_close_its_own_channel(event: str) -> None:
    async def scenario(world: World) -> None:
        closed = asyncio.Event()
        channel = await world.join("bob" if event == "received" else "alice")
        other = await world.join("alice" if event == "received" else "bob")

        async def close(_: object) -> None:
            await close_channel(channel)
            closed.set()

        channel.on(MessageReceivedEvent if event == "received" else MessageSentEvent, close)
        await (other if event == "received" else channel).send(b"x")
        await asyncio.wait_for(closed.wait(), 10)
        await close_channel(channel)
        assert not channel.is_started()
        await close_channel(other)
        await asyncio.sleep(1)
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("shardwire")] == []

    run_world(scenario)


def test_stop_keeps_what_is_pending_and_start_continues() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        request_id = await alice.send(b"x")
        await alice.stop()
        assert world.nodes["alice"].subscriptions == ()
        await world.join("bob")
        await asyncio.sleep(60)
        before = world.sent_by("alice")
        await asyncio.sleep(600)
        assert world.sent_by("alice") == before
        await alice.start()
        assert await alice.delivered(request_id, timeout_ms=60_000) == {"bob"}

    run_world(scenario)


def test_topic_subscriptions_are_counted_over_the_channels_of_a_node() -> None:
    async def scenario(world: World) -> None:
        one = await world.join("alice", channel_id="one", node="shared")
        two = await world.join("alice", channel_id="two", node="shared")
        await world.join("bob", channel_id="two")
        node = world.nodes["shared"]
        assert node.subscriptions == (TOPIC,)
        await close_channel(one)
        assert node.subscriptions == (TOPIC,)
        assert await two.delivered(await two.send(b"for two")) == {"bob"}
        await close_channel(two)
        assert node.subscriptions == ()

    run_world(scenario)


def test_channels_of_a_node_do_not_mix() -> None:
    async def scenario(world: World) -> None:
        for channel_id in ("one", "two"):
            for name in ("alice", "bob"):
                await world.join(name, channel_id=channel_id, listen=False)
        heard: dict[str, list[bytes]] = {"one": [], "two": []}
        for channel_id, messages in heard.items():
            world.channels[f"bob/{channel_id}"].on_message_received(lambda event, m=messages: m.append(event.message))
        for number in range(10):
            for channel_id in heard:
                channel = world.channels[f"alice/{channel_id}"]
                await channel.send(f"{channel_id} {number}".encode())
        await asyncio.sleep(120)
        for channel_id, messages in heard.items():
            assert messages == [f"{channel_id} {number}".encode() for number in range(10)]

    run_world(scenario, NetworkConditions(loss=0.2, delay_ms=(5, 40)))


def test_a_node_that_cannot_subscribe_leaves_nothing_behind() -> None:
    async def scenario(world: World) -> None:
        node = world.network.create_node("alice", NodeConfig())
        tasks = len(asyncio.all_tasks())
        with pytest.raises(NodeError, match="not started"):
            await create_reliable_channel(node, CHANNEL, TOPIC, "alice")
        assert len(asyncio.all_tasks()) == tasks

    run_world(scenario)


def test_close_ends_every_task_and_stream() -> None:
    async def scenario(world: World) -> None:
        before = len(asyncio.all_tasks())
        alice = await world.join("alice")
        await world.join("bob")
        await alice.send(b"x")
        await asyncio.sleep(1)
        await close_channel(alice)
        await close_channel(world.channels["bob"])
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == before
        assert world.nodes["alice"]._streams.live() == []

    run_world(scenario)


# --- listening -----------------------------------------------------------------------------------


def test_messages_wait_until_somebody_listens() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob", listen=False)
        await alice.delivered(await alice.send(b"early"))
        assert bob.stats()["deliveries_waiting"] == 1
        world.listen("bob", bob)
        await asyncio.sleep(1)

    assert run_world(scenario).messages("bob") == [b"early"]


def test_who_listens_to_a_closed_channel_is_told_that_it_is_closed() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await alice.close()
        for subscribe in (
            lambda: alice.on("message-received", print),
            lambda: alice.on_message_sent(print),
        ):
            with pytest.raises(ChannelClosedError, match="is closed: create it again"):
                subscribe()
        # What iterates is at the end, as it would be had it begun before.
        assert [event async for event in alice.messages()] == []
        assert [event async for event in alice.events()] == []

    run_world(scenario)


def test_events_are_iterated_in_order() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", listen=False)
        bob = await world.join("bob", listen=False)
        seen: list[bytes] = []

        async def read() -> None:
            async for event in bob.events():
                if isinstance(event, MessageReceivedEvent):
                    seen.append(event.message)
                    if len(seen) == 3:
                        break

        reader = asyncio.create_task(read())
        for number in range(3):
            await alice.send(b"%d" % number)
        await asyncio.wait_for(reader, 60)
        assert seen == [b"0", b"1", b"2"]
        bob.on_message_received(lambda event: seen.append(event.message))
        await alice.send(b"3")
        await asyncio.sleep(1)
        assert seen == [b"0", b"1", b"2", b"3"]

    run_world(scenario)


def test_a_callback_may_answer_and_wait_for_the_outcome() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob", listen=False)
        answered = asyncio.Event()

        async def answer(event: MessageReceivedEvent) -> None:
            await bob.delivered(await bob.send(b"re: " + event.message))
            answered.set()

        bob.on_message_received(answer)
        await alice.send(b"question")
        await asyncio.wait_for(answered.wait(), 60)

    assert run_world(scenario).messages("alice") == [b"re: question"]


def test_a_broken_callback_is_reported_and_nothing_stops() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")

        def broken(event: MessageReceivedEvent) -> None:
            raise RuntimeError("broken")

        bob.on_message_received(broken)
        for number in range(3):
            await alice.send(b"%d" % number)
        await asyncio.sleep(10)

    world = run_world(scenario)
    assert world.messages("bob") == [b"0", b"1", b"2"]
    assert [type(event.error) for event in world.of("bob", CallbackErrorEvent)] == [RuntimeError] * 3


def test_a_slow_application_holds_back_what_comes_and_loses_nothing() -> None:
    """What is held: the bytes that may wait for it, and as many messages as may wait for their causes."""
    config = ChannelConfig.logos(
        sds=SdsConfig(incoming_buffer_messages_max=20, incoming_buffer_bytes_max=50_000),
    )
    messages = [bytes([number]) * 10_000 for number in range(80)]

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob", config, listen=False)
        heard: list[bytes] = []
        most = 0

        async def slow(event: MessageReceivedEvent) -> None:
            nonlocal most
            most = max(most, bob.stats()["deliveries_waiting_bytes"])
            await asyncio.sleep(3)
            heard.append(event.message)

        bob.on_message_received(slow)
        for message in messages:
            await alice.send(message)
            await asyncio.sleep(0.1)
        await asyncio.sleep(1_200)
        assert sorted(heard) == messages
        assert most <= 50_000 + 21 * 10_000
        assert bob.stats()["dropped_by_backpressure"] > 0

    run_world(scenario)


def test_participants_of_one_channel_on_one_node_hear_each_other() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", node="shared")
        bob = await world.join("bob", node="shared")
        assert await alice.delivered(await alice.send(b"to bob")) == {"bob"}
        assert await bob.delivered(await bob.send(b"to alice")) == {"alice"}

    world = run_world(scenario)
    assert (world.messages("alice"), world.messages("bob")) == ([b"to alice"], [b"to bob"])


def test_another_participant_with_our_id_is_reported() -> None:
    async def scenario(world: World) -> None:
        await world.join("alice", node="one")
        twin = await world.join("alice", node="two", listen=False)
        await world.join("bob")
        await twin.send(b"not mine")
        await asyncio.sleep(1)

    world = run_world(scenario)
    assert [event.sender_id for event in world.of("alice", SenderIdConflictEvent)] == ["alice"]


# --- configuration -------------------------------------------------------------------------------


def test_without_a_config_the_node_says_what_differs_from_the_defaults() -> None:
    segmentation = SegmentationConfig(segment_size_bytes=2_048)
    limit = RateLimitConfig(enabled=True, messages_per_epoch=3, queue_bytes_max=5_000)

    async def scenario(world: World) -> None:
        node_config = NodeConfig(segmentation_config=segmentation, rate_limit_config=limit)
        node = await world.node("alice", node_config)
        channel = await create_reliable_channel(node, CHANNEL, TOPIC, "alice")
        # The quota is the node's; how much may wait for it is the channel's.
        rate_limit = RateLimitConfig(queue_bytes_max=5_000)
        assert channel.config == replace(ChannelConfig.logos(), segmentation=segmentation, rate_limit=rate_limit)
        status = channel.rate_limit_status()
        assert (status.enabled, status.total) == (True, 3)
        await close_channel(channel)
        given = ChannelConfig.logos()
        channel = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", None, given)
        assert channel.config == given
        await close_channel(channel)
        with pytest.raises(ConfigError, match="must be a ChannelConfig"):
            await create_reliable_channel(node, CHANNEL, TOPIC, "alice", None, {})  # type: ignore[arg-type]

    run_world(scenario)


def test_the_default_persistence_warns_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwire.channel.arguments._warned", set())

    async def scenario(world: World) -> None:
        for name in ("alice", "bob", "carol"):
            await world.join(name)

    with caplog.at_level(logging.WARNING):
        run_world(scenario)
    assert sum("kept in memory" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("meta", [b"RELIABLE-CHANNEL-API/1", None])
def test_the_marker_is_stamped_and_required(meta: bytes | None) -> None:
    async def scenario(world: World) -> None:
        marked = ChannelConfig.logos(envelope_meta=meta)
        await world.join("alice", marked)
        await world.join("bob", marked)
        await world.join("carol")
        await world.channels["alice"].send(b"marked")
        await world.channels["carol"].send(b"plain")
        await asyncio.sleep(10)

    world = run_world(scenario)
    assert (b"plain" in world.messages("bob")) is (meta is None)
    assert b"marked" in world.messages("bob")
    assert b"marked" in world.messages("carol")


def test_a_channel_that_starts_again_takes_its_node_for_connected() -> None:
    """Nobody tells how the connection is before it changes."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        world.nodes["alice"].go_offline()
        await asyncio.sleep(1)
        await alice.stop()
        world.nodes["alice"].go_online()
        await asyncio.sleep(1)
        await alice.start()
        assert await alice.delivered(await alice.send(b"x")) == {"bob"}

    run_world(scenario)


def test_a_message_wakes_the_channels_of_its_topic_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[MessageReceived] = []

    def look(event: MessageReceived) -> bool:
        seen.append(event)
        return is_well_formed(event)

    async def scenario() -> None:
        network = MemoryNetwork()
        node, other = network.create_node("alice"), network.create_node("bob")
        await node.start()
        await other.start()
        channels = [
            await create_reliable_channel(node, f"{CHANNEL}{number}", f"/test/1/topic{number}/proto", "alice")
            for number in range(5)
        ]
        await asyncio.sleep(1)
        await other.send(MessageEnvelope("/test/1/topic3/proto", b"x"))
        await asyncio.sleep(1)
        for channel in channels:
            await close_channel(channel)

    monkeypatch.setattr(reception, "is_well_formed", look)
    run_virtual(scenario())
    assert len(seen) == 1
