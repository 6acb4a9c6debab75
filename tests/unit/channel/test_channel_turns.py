"""003 and 004, Rate limit management: the fewest places of a quota go round, so that nothing waits for ever."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace

import pytest
from channel_world import World, run_world

from shardwire.channel import ReliableChannel, create_reliable_channel
from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig, SyncConfig
from shardwire.events import MessageDeliveredEvent, RateLimitEvent
from shardwire.node import MemoryNetwork, NetworkConditions, NodeConfig, run_virtual

EPOCH_MS = 60_000
TOPIC = "/app/1/turns/proto"
# Nothing but what is sent takes of the quota of such a channel.
QUIET = ChannelConfig.logos(
    sds=SdsConfig(acknowledgement_timeout_ms=36_000_000, enable_repair=False),
    sync=SyncConfig(sync_min_interval_ms=0, acknowledgement_sync=False, query_on_connect=False),
)


def limit(places: int) -> RateLimitConfig:
    return RateLimitConfig(enabled=True, epoch_size_ms=EPOCH_MS, messages_per_epoch=places, counts="message")


async def join_three(
    network: MemoryNetwork, name: str, quota: RateLimitConfig, config: ChannelConfig
) -> list[ReliableChannel]:
    """A participant of three channels on a node with this quota."""
    node = network.create_node(name, NodeConfig(rate_limit_config=quota))
    await node.start()
    return [
        await create_reliable_channel(node, f"channel {number}", TOPIC, name, config=config, rng=random.Random(number))
        for number in range(3)
    ]


@pytest.mark.parametrize("places", [1, 2])
def test_syncs_of_each_epoch_keep_no_message_waiting_for_ever(places: int) -> None:
    """Of two places one is kept for syncs, of one none: a message may take one, and syncs come again and again."""
    config = ChannelConfig.logos(rate_limit=limit(places), sync=SyncConfig(sync_min_interval_ms=1_000))
    messages = [b"%d" % number for number in range(4)]

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        bob = await world.join("bob", config)
        for message in messages:
            await alice.send(message)
        await asyncio.sleep(6 * EPOCH_MS / 1000)
        # What is kept for syncs is theirs, and they have all of it where nothing else waits.
        assert alice.stats()["dispatched_sync"] >= places - 1
        assert bob.stats()["dispatched_sync"] > 0

    assert run_world(scenario).messages("bob") == messages


@pytest.mark.parametrize("places", [1, 2, 4])
def test_channels_of_a_node_that_are_more_than_its_places_take_turns(places: int) -> None:
    """Of more than one place one is kept for acknowledgements."""
    names = [f"channel {number}" for number in range(5)]
    heard: Counter[str] = Counter()

    async def scenario() -> None:
        network = MemoryNetwork(seed=7)
        sending = network.create_node("alice", NodeConfig(rate_limit_config=limit(places)))
        hearing = network.create_node("bob")
        for node in (sending, hearing):
            await node.start()
        channels = []
        for name in names:
            receiver = await create_reliable_channel(hearing, name, TOPIC, "bob", config=QUIET)
            receiver.on_message_received(lambda event: heard.update([event.message.decode()]))
            channels += [receiver, await create_reliable_channel(sending, name, TOPIC, "alice", config=QUIET)]
        # The first has more to say than all the time allows.
        for _ in range(100):
            await channels[1].send(names[0].encode())
        for name, sender in zip(names[1:], channels[3::2], strict=True):
            for _ in range(3):
                await sender.send(name.encode())
        epochs = 30 // max(1, places - 1)
        await asyncio.sleep(epochs * EPOCH_MS / 1000)
        for channel in channels:
            await channel.close()
        assert [heard[name] for name in names[1:]] == [3, 3, 3, 3]
        # Nothing is lost by that: each epoch carries what it may.
        assert heard.total() >= (epochs - 1) * max(1, places - 1)

    run_virtual(scenario(), limit_ms=10_000_000)


def test_syncs_of_some_channels_keep_messages_of_another_waiting_no_longer_than_a_few_epochs() -> None:
    """Of five places three are kept for syncs, and those of three channels would take them all."""
    quota = replace(limit(5), ack_reserve=0.5)
    config = ChannelConfig.logos(sync=SyncConfig(sync_min_interval_ms=5_000))
    heard: list[bytes] = []

    async def scenario() -> None:
        network = MemoryNetwork(NetworkConditions(delay_ms=(1, 50)), seed=1, store=False)
        channels = {name: await join_three(network, name, quota, config) for name in ("alice", "bob")}
        alice, bob = channels["alice"][-1], channels["bob"][-1]
        bob.on_message_received(lambda event: heard.append(event.message))
        for channel in channels["bob"]:
            await channel.send(b"so that there is something to name")
        await asyncio.sleep(10 * EPOCH_MS / 1000)
        for number in range(5):
            await alice.send(b"%d" % number)
        await asyncio.sleep(15 * EPOCH_MS / 1000)
        for channel in channels["alice"] + channels["bob"]:
            await channel.close()

    run_virtual(scenario(), limit_ms=10_000_000)
    assert heard == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("own", [None, 5])
def test_syncs_of_every_second_keep_nobodys_messages_waiting_for_ever(own: int | None) -> None:
    """Of three places two are kept for syncs: those that came too late for one epoch come first in the next."""
    quota = replace(limit(3), ack_reserve=0.5)
    sync = SyncConfig(sync_min_interval_ms=1_000)
    config = ChannelConfig.waku(sync=sync, rate_limit=RateLimitConfig() if own is None else limit(own))
    heard: dict[str, list[bytes]] = {}

    async def scenario() -> None:
        network = MemoryNetwork(NetworkConditions(loss=0.3, delay_ms=(1, 50)), seed=1)
        channels = {name: await join_three(network, name, quota, config) for name in ("alice", "bob")}
        for number, channel in enumerate(channels["bob"]):
            taken = heard[f"channel {number}"] = []
            channel.on_message_received(lambda event, taken=taken: taken.append(event.message))
        for number in range(4):
            for channel in channels["alice"]:
                await channel.send(b"%d" % number)
            await asyncio.sleep(2 * EPOCH_MS / 1000)
        await asyncio.sleep(60 * EPOCH_MS / 1000)
        for channel in channels["alice"] + channels["bob"]:
            await channel.close()

    run_virtual(scenario(), limit_ms=20_000_000)
    assert heard == {f"channel {number}": [b"0", b"1", b"2", b"3"] for number in range(3)}


def test_who_finds_no_place_in_one_epoch_has_its_turn_in_the_next() -> None:
    """It asks for none while there is none: others would be before it in the next epoch too."""
    heard: list[bytes] = []

    async def scenario() -> None:
        network = MemoryNetwork(seed=1)
        sending = network.create_node("alice", NodeConfig(rate_limit_config=limit(1)))
        hearing = network.create_node("bob")
        channels = []
        for node in (sending, hearing):
            await node.start()
            for name in ("first", "second"):
                channels.append(await create_reliable_channel(node, name, TOPIC, node.name, config=QUIET))
        first, second, *receivers = channels
        for receiver in receivers:
            receiver.on_message_received(lambda event: heard.append(event.message))
        await first.send(b"first, 0")
        await asyncio.sleep(1)
        await first.send(b"first, 1")
        await second.send(b"second, 0")
        await asyncio.sleep(3 * EPOCH_MS / 1000)
        for channel in channels:
            await channel.close()

    run_virtual(scenario(), limit_ms=10_000_000)
    assert heard == [b"first, 0", b"second, 0", b"first, 1"]


def test_acknowledgements_and_messages_share_an_epoch_over_its_time() -> None:
    """What others say asks for an acknowledgement every few seconds, which alone would take the epoch's places."""
    config = ChannelConfig.logos(rate_limit=limit(20))
    waited: dict[str, list[float]] = {"messages": [], "acknowledgements": []}
    began: dict[bytes | str, float] = {}
    told: list[RateLimitEvent] = []

    async def scenario(world: World) -> None:
        limited, other = await world.join("limited", config), await world.join("other")
        limited.on(RateLimitEvent, told.append)
        loop = asyncio.get_running_loop()
        other.on_message_received(lambda event: waited["messages"].append(loop.time() - began.pop(event.message)))
        other.on(
            MessageDeliveredEvent,
            lambda event: waited["acknowledgements"].append(loop.time() - began.pop(event.request_id)),
        )
        for second in range(3 * EPOCH_MS // 1000):
            began[await other.send(b"%d" % second)] = loop.time()
            if second % 5 == 0:
                began[message := b"own %d" % second] = loop.time()
                await limited.send(message)
            await asyncio.sleep(1)
        await asyncio.sleep(2 * EPOCH_MS / 1000)

    run_world(scenario)
    assert began == {}
    assert max(waited["messages"]) < 5
    assert max(waited["acknowledgements"]) < EPOCH_MS / 1000 / 2
    # Acknowledgements that wait for their turn are nothing to tell of.
    assert told == []
