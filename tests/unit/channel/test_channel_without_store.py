"""Networks without a store: who was away gets what it missed from the others, within seconds of its return."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire.channel import close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, SdsConfig, SegmentationConfig, SyncConfig
from shardwire.errors import ConfigError
from shardwire.node import MemoryNetwork, NetworkConditions, NodeConfig

AWAY_S = 60
REPAIRED_WITHIN_S = 10


async def split_network(world: World, seed: int = 7, loss: float = 0.0) -> None:
    """A network without a store, in which nobody is alone when one participant is away."""
    world.network = MemoryNetwork(NetworkConditions(delay_ms=(20, 80), loss=loss), seed=seed, store=False)
    for relay in ("first relay", "second relay"):
        await world.node(relay)


async def go_on_without_bob(world: World, config: ChannelConfig) -> None:
    """Alice, Bob and Carol know each other, and Bob goes away."""
    await split_network(world)
    for name in ("alice", "bob", "carol"):
        await world.join(name, config)
    await world.channels["alice"].send(b"before")
    await asyncio.sleep(20)
    world.nodes["bob"].go_offline()


@pytest.mark.parametrize(
    ("members", "missed", "loss"),
    [
        *((members, missed, loss) for members in (2, 3, 10, 40) for missed in (1, 20) for loss in (0.0, 0.05)),
        *((members, 50, 0.0) for members in (2, 3, 10)),
    ],
)
def test_who_was_away_for_a_minute_is_repaired_within_seconds(members: int, missed: int, loss: float) -> None:
    names = ["alice", "bob", *(f"member {number}" for number in range(members - 2))]
    config = ChannelConfig.logos().without_store(members=max(2, members))

    async def scenario(world: World) -> None:
        await split_network(world, loss=loss)
        for name in names:
            await world.join(name, config)
        alice, bob = world.channels["alice"], world.channels["bob"]
        await alice.send(b"before")
        await bob.send(b"before, too")
        await asyncio.sleep(20)
        world.nodes["bob"].go_offline()
        for number in range(missed):
            await alice.send(b"missed %d" % number)
            await asyncio.sleep(AWAY_S / missed)
        world.nodes["bob"].go_online()
        await asyncio.sleep(REPAIRED_WITHIN_S)
        assert world.messages("bob") == [b"before", *(b"missed %d" % number for number in range(missed))]

    run_world(scenario)


def test_a_large_message_is_repaired_as_quickly() -> None:
    """Fifty segments, each of them asked for."""
    config = replace(ChannelConfig.logos().without_store(), segmentation=SegmentationConfig(segment_size_bytes=10_240))
    message = bytes(500_000)

    async def scenario(world: World) -> None:
        await go_on_without_bob(world, config)
        request_id = await world.channels["alice"].send(message)
        assert await world.channels["alice"].delivered(request_id) == {"carol"}
        await asyncio.sleep(AWAY_S)
        world.nodes["bob"].go_online()
        await asyncio.sleep(REPAIRED_WITHIN_S)
        assert world.messages("bob") == [b"before", message]

    run_world(scenario)


def test_what_is_new_waits_for_a_long_past_half_a_minute() -> None:
    """Which the others repair from its newest message to its oldest."""
    past = [b"past %d" % number for number in range(1_000)]
    new = [b"new %d" % number for number in range(40)]
    config = ChannelConfig.logos().without_store()

    async def scenario(world: World) -> None:
        await split_network(world)
        alice = await world.join("alice", config)
        for message in past:
            await alice.send(message)
            await asyncio.sleep(0.1)
        await world.join("bob", config)
        for message in new:
            await alice.send(message)
            await asyncio.sleep(1)
        came = [message for message in world.messages("bob") if message in new]
        assert came == new[: len(came)]
        assert len(came) >= len(new) - 32
        await asyncio.sleep(300)

    world = run_world(scenario)
    came = world.messages("bob")
    assert sorted(came) == sorted(past + new)
    assert [message for message in came if message in new] == new


def test_who_came_back_without_noticing_is_repaired_within_half_a_minute() -> None:
    """Its node was connected all the while, to others than those who had what it missed."""

    async def scenario(world: World) -> None:
        await split_network(world)
        for name in ("alice", "bob", "carol"):
            await world.join(name, ChannelConfig.logos().without_store())
        await asyncio.sleep(20)
        world.network.partition([{"bob", "second relay"}])
        for number in range(20):
            await world.channels["alice"].send(b"%d" % number)
            await asyncio.sleep(AWAY_S / 20)
        world.network.heal()
        await asyncio.sleep(30)
        assert world.messages("bob") == [b"%d" % number for number in range(20)]

    run_world(scenario)


@pytest.mark.parametrize("speaks", [True, False])
def test_a_busy_group_brings_back_who_was_away_for_a_minute_within_half_a_minute(speaks: bool) -> None:
    """Its gap of a thousand messages lies behind all that came since; three are asked for in a message."""
    config = ChannelConfig.logos().without_store(members=3)
    sent: list[bytes] = []

    async def scenario(world: World) -> None:
        await split_network(world)
        for name in ("alice", "bob", "carol"):
            await world.join(name, config, on_disk=True)

        async def talk(name: str, seconds: int) -> None:
            for number in range(10 * seconds):
                message = b"%d of %s at %d" % (number, name.encode(), asyncio.get_running_loop().time())
                if name != "bob":
                    sent.append(message)
                await world.channels[name].send(message)
                await asyncio.sleep(0.1)

        await asyncio.gather(*(talk(name, 5) for name in ("alice", "bob", "carol")))
        await world.crash("bob")
        await asyncio.gather(talk("alice", AWAY_S), talk("carol", AWAY_S))
        missed = list(sent)
        await world.join("bob", config, on_disk=True)
        speaking = [talk("bob", 30)] if speaks else []
        await asyncio.gather(talk("alice", 30), talk("carol", 30), *speaking)
        assert set(missed) <= set(world.messages("bob"))

    run_world(scenario)


@pytest.mark.parametrize(("log_bytes_max", "has_all"), [(32 << 20, True), (100_000, False)])
def test_others_answer_with_as_many_bytes_as_they_keep(log_bytes_max: int, has_all: bool) -> None:
    config = ChannelConfig.logos(sds=SdsConfig(log_bytes_max=log_bytes_max)).without_store(members=3)

    async def scenario(world: World) -> None:
        await go_on_without_bob(world, config)
        missed = [bytes([number]) * 10_000 for number in range(30)]
        for message in missed:
            await world.channels["alice"].send(message)
            await asyncio.sleep(1)
        assert world.channels["carol"].stats()["original_bytes"] <= log_bytes_max
        world.nodes["bob"].go_online()
        await asyncio.sleep(30)
        assert (set(missed) <= set(world.messages("bob"))) is has_all

    run_world(scenario)


async def _config_of(world: World, config: ChannelConfig | None, node_config: NodeConfig) -> ChannelConfig:
    node = await world.node("alice", node_config)
    channel = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config)
    await close_channel(channel)
    return replace(channel.config, segmentation=SegmentationConfig())


def test_it_is_chosen_where_no_configuration_is_given_and_the_node_has_no_store() -> None:
    preset = ChannelConfig.logos().without_store()
    chosen: list[Any] = []

    async def scenario(world: World, store: bool, config: ChannelConfig | None, node_config: NodeConfig) -> None:
        world.network = MemoryNetwork(seed=7, store=store)
        chosen.append(await _config_of(world, config, node_config))

    for store, config, node_config in (
        (False, None, NodeConfig()),
        (True, None, NodeConfig()),
        (False, ChannelConfig.logos(), NodeConfig()),
        (False, None, NodeConfig(sds_config=SdsConfig(max_retransmissions=9, repair_t_max_ms=60_000))),
    ):
        run_world(lambda world, store=store, c=config, n=node_config: scenario(world, store, c, n))  # type: ignore[misc]
    of_its_own, with_a_store, as_given, with_parts = chosen
    assert of_its_own == preset
    assert with_a_store == as_given == ChannelConfig.logos()
    assert (with_parts.sds.max_retransmissions, with_parts.sds.repair_t_max_ms) == (9, 60_000)
    assert with_parts.sds.bloom_interval_ms == preset.sds.bloom_interval_ms


@pytest.mark.parametrize("preset", [ChannelConfig.logos(), ChannelConfig.waku()])
@pytest.mark.parametrize("members", [2, 20, 200, 1_000, 1_000_000])
def test_groups_of_any_size_have_valid_times_that_grow_with_them(preset: ChannelConfig, members: int) -> None:
    small, config = preset.without_store(2), preset.without_store(members)
    assert small.sds.repair_t_max_ms <= config.sds.repair_t_max_ms <= preset.sds.repair_t_max_ms
    assert small.sync.sync_min_interval_ms <= config.sync.sync_min_interval_ms <= preset.sync.sync_min_interval_ms
    lost_ms = config.sds.timeout_for_lost_messages_ms
    assert lost_ms == preset.sds.timeout_for_lost_messages_ms
    assert not lost_ms or lost_ms >= 2 * config.sds.repair_t_max_ms
    assert config.segmentation == preset.segmentation


def test_what_was_set_stays() -> None:
    sds = SdsConfig(
        repair_t_min_ms=1, repair_t_max_ms=7_000, causal_history_size=3, bloom_interval_ms=4, enable_repair=False
    )
    config = ChannelConfig.logos(sds=sds, sync=SyncConfig(sync_min_interval_ms=0))
    assert config.without_store() == config


@pytest.mark.parametrize(
    ("config", "store", "warned"),
    [
        (ChannelConfig.logos(), False, 1),
        (ChannelConfig.waku(), False, 1),
        (ChannelConfig.logos(), True, 0),
        (None, False, 0),
        (ChannelConfig.logos().without_store(2), False, 0),
        (ChannelConfig.logos(sds=SdsConfig(repair_t_max_ms=60_000)), False, 0),
        (ChannelConfig.logos(sds=SdsConfig(enable_repair=False)), False, 0),
    ],
    ids=["logos", "waku", "with a store", "none given", "without a store", "times of its own", "no repair"],
)
def test_a_configuration_that_waits_for_a_store_is_told_of_once(
    config: ChannelConfig | None,
    store: bool,
    warned: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shardwire.channel.arguments._warned", set())

    async def scenario(world: World) -> None:
        world.network = MemoryNetwork(seed=7, store=store)
        for name in ("alice", "bob"):
            channel = await create_reliable_channel(await world.node(name), CHANNEL, TOPIC, name, config=config)
            await close_channel(channel)

    with caplog.at_level(logging.WARNING):
        run_world(scenario)
    told = "up to 30 s later; without_store(members=...) of it tells within seconds"
    assert sum(told in record.message for record in caplog.records) == warned


@pytest.mark.parametrize("members", [1, 0, -1, None, 2.5, "20", True])
def test_a_group_has_two_members_at_least(members: Any) -> None:
    with pytest.raises(ConfigError, match=f"members is {members!r}: it must be an integer of at least 2"):
        ChannelConfig.logos().without_store(members)


@pytest.mark.parametrize("members", [30, 100])
def test_a_group_that_lacks_the_same_does_not_ask_or_answer_in_chorus(members: int) -> None:
    """Half of the group missed ten messages whose sender has left."""
    names = [f"member {number}" for number in range(members)]
    config = ChannelConfig.logos().without_store(members)

    async def scenario(world: World) -> None:
        await split_network(world)
        for name in names:
            await world.join(name, config)
        alice = await world.join("alice", config)
        await asyncio.sleep(60)
        away, present = names[: members // 2], {"alice", "first relay", *names[members // 2 :]}
        world.network.partition([present])
        missed = [b"missed %d" % number for number in range(10)]
        for message in missed:
            await alice.send(message)
        await asyncio.sleep(30)
        await close_channel(world.channels.pop("alice"))
        world.network.heal()
        world.network.clear_trace()
        await asyncio.sleep(60)
        assert all(world.messages(name) == missed for name in away)
        # Ten repairs and as many requests, their doubles, and the syncs of a minute.
        assert len(world.network.trace) <= 60

    run_world(scenario)
