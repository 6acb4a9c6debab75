"""How a channel is written with: `async with`, `messages()`, and what is said where something is used wrongly."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.errors import ChannelClosedError, ConfigError, NodeError
from shardwire.event_names import EVENT_TYPES_BY_NAME
from shardwire.events import MessageReceivedEvent
from shardwire.node import MemoryNetwork, MessageEnvelope, NetworkConditions, NodeConfig
from shardwire.persistence import SqlitePersistence


def test_creating_is_awaited_or_entered_or_run_as_a_task() -> None:
    async def scenario(world: World) -> None:
        node = await world.node("alice")
        async with create_reliable_channel(node, CHANNEL, TOPIC, "alice") as entered:
            assert entered.is_started()
        assert entered.is_closed()
        awaited = await create_reliable_channel(node, CHANNEL, TOPIC, "alice")
        await awaited.close()
        task = asyncio.create_task(create_reliable_channel(node, CHANNEL, TOPIC, "alice"))
        await (await task).close()
        (gathered,) = await asyncio.gather(create_reliable_channel(node, CHANNEL, TOPIC, "alice"))
        await gathered.close()
        unused = create_reliable_channel(node, CHANNEL, TOPIC, "alice")
        unused.close()

    run_world(scenario)


def test_entering_waits_for_messages_on_leaving_and_not_after_an_error() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        node = await world.node("alice")
        async with create_reliable_channel(node, CHANNEL, TOPIC, "alice") as alice:
            await alice.send(b"last words")
        assert alice.pending() == ()
        with pytest.raises(ValueError, match="the application's"):
            async with create_reliable_channel(node, CHANNEL, TOPIC, "alice") as alice:
                raise ValueError("the application's")
        assert alice.is_closed()
        with pytest.raises(ConfigError, match="channel_id"):
            async with create_reliable_channel(node, "", TOPIC, "alice"):
                pytest.fail("it was made")

    world = run_world(scenario, NetworkConditions(loss=0.3, delay_ms=(5, 40)))
    assert world.messages("bob") == [b"last words"]


def test_messages_gives_received_messages_one_at_a_time_and_ends_with_the_channel() -> None:
    async def scenario(world: World) -> None:
        bob = await world.join("bob", listen=False)
        alice = await world.join("alice")
        for number in range(3):
            await alice.send(b"%d" % number)
        heard: list[bytes] = []
        async for event in bob.messages():
            assert isinstance(event, MessageReceivedEvent)
            heard.append(event.message)
            # The next one is handed over when this one is done.
            await asyncio.sleep(1)
            assert bob.stats()["deliveries_waiting"] == 3 - int(event.message)
            if len(heard) == 3:
                break
        assert heard == [b"0", b"1", b"2"]
        rest = bob.messages()
        await bob.close()
        assert [event async for event in rest] == []

    run_world(scenario)


def test_an_iterator_of_messages_alone_makes_nobody_listen_to_other_events() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", listen=False)
        messages = alice.messages()
        subscriptions = alice._session.subscriptions
        from shardwire.events import ChunkSentEvent

        assert subscriptions.wants(MessageReceivedEvent)
        assert not subscriptions.wants(ChunkSentEvent)
        await messages.aclose()
        assert not subscriptions.wants(MessageReceivedEvent)

    run_world(scenario)


# --- why not delivered ---------------------------------------------------------------------------


async def why(world: World, config: ChannelConfig | None = None, node_config: NodeConfig | None = None) -> str:
    world.network.store_online = False
    alice = await world.join("alice", config, node_config=node_config)
    return await why_not(alice, await alice.send(b"x"))


async def why_not(alice: object, request_id: str) -> str:
    with pytest.raises(TimeoutError) as caught:
        await alice.delivered(request_id, timeout_ms=5_000)  # type: ignore[attr-defined]
    return str(caught.value)


def test_delivered_says_that_nobody_is_heard() -> None:
    async def scenario(world: World) -> None:
        await world.node("silent")
        assert "not delivered within 5000 ms: it was sent; nobody else is heard" in await why(world)

    run_world(scenario)


def test_delivered_says_that_the_node_is_away() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        world.nodes["alice"].go_offline()
        assert "the node is not connected" in await why_not(alice, await alice.send(b"x"))

    run_world(scenario)


def test_delivered_names_a_few_of_those_who_did_not_acknowledge_it_and_says_what_could_not_be_read() -> None:
    async def scenario(world: World) -> None:
        names = {"bob", "carol", "dave", "erin", "frank"}
        alice = await world.join("alice", replace(ChannelConfig.logos(), delivered_when=names))
        bob = await world.join("bob")
        await bob.send(b"here I am")
        assert "has it, for whoever is away; 'carol', 'dave', 'erin' and 1 more did not" in await why_not(
            alice, await alice.send(b"x")
        )
        stranger = await world.node("stranger")
        for number in range(3):
            await stranger.send(MessageEnvelope(alice.content_topic, b"sealed %d" % number))
        text = await why_not(alice, await alice.send(b"y"))
        assert "; 3 messages here could not be read: do all have the same key" in text

    run_world(scenario)


def test_delivered_says_that_what_the_rate_limit_leaves_is_kept_for_acknowledgements() -> None:
    limit = RateLimitConfig(enabled=True, messages_per_epoch=5, ack_reserve=0.2, epoch_size_ms=600_000)

    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice", ChannelConfig.logos(rate_limit=limit))
        *_, last = [await alice.send(b"%d" % number) for number in range(5)]
        text = await why_not(alice, last)
        assert "the rate limit holds it for another " in text
        assert "4 of 5 used, the rest is kept for acknowledgements; the network took 0 of its 1 segments" in text

    run_world(scenario)


def test_delivered_says_that_the_rate_limit_holds_it() -> None:
    limit = RateLimitConfig(enabled=True, messages_per_epoch=1, ack_reserve=0.0, epoch_size_ms=600_000)

    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice", ChannelConfig.logos(rate_limit=limit))
        await alice.delivered(await alice.send(b"first"))
        text = await why_not(alice, await alice.send(b"second"))
        assert "the rate limit holds it for another " in text
        assert "1 of 1 used; the network took 0 of its 1 segments" in text

    run_world(scenario)


def test_delivered_says_that_the_node_fails() -> None:
    async def scenario(world: World) -> None:
        def refuse(envelope: object) -> None:
            from shardwire.errors import NodeError

            raise NodeError("no peers")

        (await world.node("alice")).send_fault = refuse  # type: ignore[assignment]
        text = await why(world)
        assert "times in a row" in text

    run_world(scenario)


def test_delivered_says_that_others_are_wanted_and_that_attempts_ended() -> None:
    async def scenario(world: World) -> None:
        world.network.store_online = False
        await world.join("bob")
        config = replace(ChannelConfig.logos(), delivered_when={"bob", "carol"})
        alice = await world.join("alice", config)
        request_id = await alice.send(b"x")
        assert "it was sent; 'carol' did not acknowledge it (delivered_when)" in await why_not(alice, request_id)
        await alice.stop()
        assert "the channel is not started" in await why_not(alice, request_id)

    run_world(scenario)


def test_delivered_says_that_attempts_ended() -> None:
    async def scenario(world: World) -> None:
        bob = await world.join("bob")
        alice = await world.join("alice", ChannelConfig.logos(sds=SdsConfig(max_retransmissions=1)))
        await alice.delivered(await alice.send(b"heard"))
        await bob.stop()
        world.network.store_online = False
        request_id = await alice.send(b"x")
        await asyncio.sleep(120)
        assert "retransmi" in await why_not(alice, request_id)

    run_world(scenario)


def test_delivered_names_those_who_did_not_acknowledge_it_when_attempts_have_ended_too() -> None:
    """Somebody may have all of it, so that no segment counts as not acknowledged."""

    async def scenario(world: World) -> None:
        world.network.store_online = False
        await world.join("bob")
        config = ChannelConfig.logos(delivered_when={"bob", "carol"}, sds=SdsConfig(max_retransmissions=1))
        alice = await world.join("alice", config)
        request_id = await alice.send(b"x")
        await asyncio.sleep(300)
        text = await why_not(alice, request_id)
        assert "after the last retransmission; 'carol' did not acknowledge it (delivered_when)" in text

    run_world(scenario)


# --- told in the log -----------------------------------------------------------------------------


def test_an_iterator_that_nobody_reads_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        bob = await world.join("bob", listen=False)
        unread = bob.events()
        alice = await world.join("alice", listen=False)
        for number in range(3):
            await alice.send(b"%d" % number)
            await asyncio.sleep(100)
        assert len([record for record in caplog.records if "not asked for the next" in record.message]) == 1
        await unread.aclose()

    run_world(scenario)
    assert "channel 'channel': messages wait for events() or messages(), not asked for the next for 60 s" in caplog.text


def test_a_reader_who_reads_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        bob = await world.join("bob")
        alice = await world.join("alice")
        messages = bob.messages()
        for number in range(3):
            await alice.send(b"%d" % number)
            assert (await anext(messages)).message == b"%d" % number
            await asyncio.sleep(40)
        await messages.aclose()
        await asyncio.sleep(200)

    run_world(scenario)
    assert "not asked for" not in caplog.text


def test_two_participants_with_one_id_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await world.join("alice", node="one")
        twin = await world.join("alice", node="two", listen=False)
        for number in range(5):
            await twin.send(b"%d" % number)
            await asyncio.sleep(100)

    run_world(scenario)
    told = [record.message for record in caplog.records if "another live participant" in record.message]
    # Each of the two hears the other, and says it once.
    assert len(told) in (1, 2)
    assert "'alice'" in told[0]


def test_a_callback_that_does_not_return_is_told_of_once_a_delivery(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob", listen=False)
        go_on = asyncio.Event()

        async def keep(event: MessageReceivedEvent) -> None:
            await go_on.wait()

        async def take(event: MessageReceivedEvent) -> None:
            await asyncio.sleep(20)

        bob.on_message_received(take)
        bob.on_message_received(keep)
        for number in range(2):
            await alice.send(b"%d" % number)
        await asyncio.sleep(300)
        assert len([record for record in caplog.records if "has not returned" in record.message]) == 1
        go_on.set()

    with caplog.at_level(logging.WARNING):
        run_world(scenario)
    (told,) = [record.message for record in caplog.records if "has not returned" in record.message]
    assert told.startswith("channel 'channel': callback ")
    assert ".keep for reliable:message:received has not returned for 30 s: further ones wait" in told


def test_a_second_event_loop_is_refused_by_an_error_and_told_of_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        node = network.create_node("alice")
        await node.start()
        channel = await create_reliable_channel(node, CHANNEL, TOPIC, "alice")
        messages = channel.messages()
        refused: list[str] = []

        async def elsewhere() -> None:
            for call in (
                lambda: channel.send(b"x"),
                lambda: channel.send_ephemeral(b"x"),
                lambda: channel.delivered("x"),
                lambda: channel.cancel("x"),
                channel.start,
                channel.stop,
                channel.close,
                # As by an exit stack that is closed in an `asyncio.run()` of its own.
                lambda: channel.__aexit__(None, None, None),
                lambda: anext(messages),
            ):
                with pytest.raises(ConfigError, match="another event loop than the one it was made on"):
                    await call()  # type: ignore[operator]
                refused.append("once")
            for listen in (
                lambda: channel.on_message_received(print),
                channel.messages,
                channel.events,
                lambda: channel.observe(print),
                lambda: channel.observe_sds(print),
                lambda: channel.measure(print),
            ):
                with pytest.raises(ConfigError, match="another event loop than the one it was made on"):
                    listen()
                refused.append("once")

        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert len(refused) == 15
        await channel.close()
        with pytest.raises(ChannelClosedError):
            await channel.send(b"x")
        await node.stop()

    asyncio.run(main())
    assert [record for record in caplog.records if "another event loop" in record.message] == []


def test_a_channel_is_not_made_on_a_node_that_channels_of_another_event_loop_use() -> None:
    """Where the topic is the same the node would not be asked, and the channel hear nothing."""

    async def main() -> None:
        node = MemoryNetwork(seed=1).create_node("alice")
        await node.start()

        async def join() -> ReliableChannel:
            return await create_reliable_channel(node, CHANNEL, TOPIC, "alice")

        async with await join():
            with pytest.raises(NodeError, match="used by channels on another event loop than this one: make all"):
                await asyncio.to_thread(asyncio.run, join())
        await node.stop()

    asyncio.run(main())


def test_a_node_is_entered_and_left() -> None:
    async def scenario(world: World) -> None:
        async with world.network.create_node("entered") as node:
            assert node.connected
            async with create_reliable_channel(node, CHANNEL, TOPIC, "entered") as channel:
                await channel.send(b"x")
        assert node.stopped

    run_world(scenario)


def test_a_channel_says_what_it_is() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        assert repr(alice) == "<ReliableChannel 'channel' of 'alice', started>"
        await alice.stop()
        assert repr(alice).endswith("stopped>")
        await alice.close()
        assert repr(alice).endswith("closed>")

    run_world(scenario)


def test_what_was_not_awaited_says_so() -> None:
    async def scenario(world: World) -> None:
        creation = create_reliable_channel(await world.node("alice"), CHANNEL, TOPIC, "alice")
        with pytest.raises(AttributeError, match=r"await create_reliable_channel"):
            creation.on_message_received(print)  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match=r"await create_reliable_channel"):
            creation.send(b"x")
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            creation.nothing  # type: ignore[attr-defined]  # noqa: B018
        with pytest.raises(ConfigError, match="channel is a ChannelCreation"):
            await close_channel(creation)  # type: ignore[arg-type]
        await (await creation).close()

    run_world(scenario)


def test_a_creation_is_awaited_or_entered_once() -> None:
    async def scenario(world: World) -> None:
        for number, first_awaited in enumerate((True, False)):
            name = f"alice {number}"
            creation = create_reliable_channel(await world.node(name), CHANNEL, TOPIC, name)
            if first_awaited:
                await (await creation).close()
            else:
                async with creation:
                    pass
            with pytest.raises(ConfigError, match="was awaited or entered already: keep the channel that it gave"):
                await creation
            with pytest.raises(ConfigError, match="was awaited or entered already"):
                async with creation:
                    pass

    run_world(scenario)


def test_none_in_the_place_of_a_path_or_of_keys_is_refused() -> None:
    with pytest.raises(ConfigError, match="path is a NoneType"):
        SqlitePersistence(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="keys is a NoneType: it must be 32 bytes"):
        ChaCha20Poly1305Encryption(None)  # type: ignore[arg-type]

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        with pytest.raises(ConfigError, match="path is a NoneType"):
            await alice.send_file(None)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="channel is a NoneType"):
            await close_channel(None)  # type: ignore[arg-type]

    run_world(scenario)


def test_the_guide_names_events_as_on_takes_them() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "channel.md").read_text()
    rows = re.findall(r"^\| `(\w+Event)` \| ([^|]+) \|", guide, re.MULTILINE)
    assert len(rows) >= 7
    for kind, names in rows:
        assert {EVENT_TYPES_BY_NAME[name].__name__ for name in re.findall(r"`([^`]+)`", names)} == {kind}
