"""What leaves where `sync_min_interval_ms` is 0: what the guide says, and nothing at all without repair."""

from __future__ import annotations

import asyncio

import pytest
from channel_world import World, run_world

from shardwire._native import SdsMessage
from shardwire.config import ReliableChannelOptions
from shardwire.node import MemoryNetwork, NetworkConditions

HOUR_S = 3_600
NAMES = ("alice", "bob", "carol")


def what_left(enable_repair: bool, loss: float) -> tuple[int, list[SdsMessage]]:
    """Messages and syncs of three participants within an hour, of whom one is away for a while."""
    options = ReliableChannelOptions(sync_min_interval_ms=0, enable_repair=enable_repair)
    conditions = NetworkConditions(loss=loss, delay_ms=(5, 40))
    messages: list[SdsMessage] = []

    async def scenario(world: World) -> None:
        world.network = MemoryNetwork(conditions, seed=7, store=False, trace_payloads=True)
        for name in NAMES:
            await world.join(name, options.to_config())
        for number in range(30):
            if number == 10 and loss:
                world.nodes["carol"].go_offline()
            if number == 20 and loss:
                world.nodes["carol"].go_online()
            await world.channels[NAMES[number % 2]].send(b"%d" % number)
            await asyncio.sleep(HOUR_S / 30)
        for record in world.network.trace:
            assert record.payload is not None
            message = SdsMessage.decode(record.payload)
            assert message is not None
            messages.append(message)

    run_world(scenario, limit_ms=2 * HOUR_S * 1_000)
    syncs = [message for message in messages if message.content is None]
    return len(messages) - len(syncs), syncs


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_without_repair_nothing_leaves_but_messages(loss: float) -> None:
    contents, syncs = what_left(enable_repair=False, loss=loss)
    assert contents >= 30
    assert syncs == []


def test_with_repair_nothing_but_messages_leaves_while_nothing_is_missing() -> None:
    assert what_left(enable_repair=True, loss=0.0)[1] == []


def test_with_repair_syncs_ask_for_what_is_missing_say_the_filter_and_name_what_another_lacks() -> None:
    _, syncs = what_left(enable_repair=True, loss=0.3)
    assert any(sync.repair_request for sync in syncs)
    assert [sync for sync in syncs if not (sync.repair_request or sync.bloom_filter or sync.causal_history)] == []
