"""003 and 004, Rate limit management: the fewest places of a quota go round, so that nothing waits for ever."""

from __future__ import annotations

import asyncio

import pytest
from channel_world import World, run_world

from shardwire.config import ChannelConfig, RateLimitConfig, SyncConfig

EPOCH_MS = 60_000


def limit(places: int) -> RateLimitConfig:
    return RateLimitConfig(enabled=True, epoch_size_ms=EPOCH_MS, messages_per_epoch=places, counts="message")


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
