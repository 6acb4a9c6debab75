"""What a channel says stands in the way of a message, where several things could."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest
from channel_world import World, run_world

from shardwire.channel import ReliableChannel
from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig
from shardwire.errors import NodeError


async def why_not(alice: ReliableChannel, request_id: str, timeout_ms: int = 5_000) -> str:
    with pytest.raises(TimeoutError) as caught:
        await alice.delivered(request_id, timeout_ms)
    return str(caught.value)


def test_a_node_that_failed_once_is_named() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice")
        world.nodes["alice"].send_fault = lambda envelope: "no peers"
        text = await why_not(alice, await alice.send(b"x"), timeout_ms=100)
        assert "the node failed 1 times in a row to send a message; the network took 0 of its 1 segments" in text

    run_world(scenario)


def test_a_node_that_says_when_to_try_again_is_named_with_that_time() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice")
        world.nodes["alice"].send_fault = lambda envelope: NodeError("busy", retry_after_ms=60_000)
        text = await why_not(alice, await alice.send(b"x"), timeout_ms=1_000)
        held = re.search(
            r"the node refuses everything for another (\d+) ms; the network took 0 of its 1 segments", text
        )
        assert held is not None, text
        assert 0 < int(held[1]) <= 60_000

    run_world(scenario)


def test_the_rate_limit_is_named_with_what_is_left_of_its_epoch() -> None:
    limit = RateLimitConfig(enabled=True, messages_per_epoch=1, ack_reserve=0.0, epoch_size_ms=600_000)

    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice", ChannelConfig.logos(rate_limit=limit))
        await alice.send(b"first")
        held = re.search(r"for another (\d+) ms", await why_not(alice, await alice.send(b"second")))
        assert held is not None
        assert 0 < int(held[1]) <= 600_000

    run_world(scenario)


def test_of_several_who_must_have_it_so_many_are_said_to_have_it() -> None:
    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join("alice", replace(ChannelConfig.logos(), delivered_when=2))
        text = await why_not(alice, await alice.send(b"x"), timeout_ms=60_000)
        assert "only 1 of those who must have it acknowledged it (delivered_when)" in text

    run_world(scenario)


def test_as_many_as_are_named_are_all_of_those_who_lack_it() -> None:
    async def scenario(world: World) -> None:
        bob = await world.join("bob")
        await bob.send(b"here I am")
        alice = await world.join("alice", replace(ChannelConfig.logos(), delivered_when={"carol", "dave", "erin"}))
        await asyncio.sleep(1)
        text = await why_not(alice, await alice.send(b"x"))
        assert "'carol', 'dave', 'erin' did not acknowledge it" in text

    run_world(scenario)


def test_where_anybody_will_do_the_error_says_all() -> None:
    async def scenario(world: World) -> None:
        world.network.store_online = False
        # Takes it for the network, and acknowledges nothing.
        await world.node("silent")
        alice = await world.join("alice", ChannelConfig.logos(sds=SdsConfig(max_retransmissions=1)))
        request_id = await alice.send(b"x")
        await asyncio.sleep(300)
        text = await why_not(alice, request_id)
        assert "after the last retransmission" in text
        assert ";" not in text

    run_world(scenario)
