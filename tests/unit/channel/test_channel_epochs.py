"""003 and 004, Rate limit management: what waits for the quota leaves when the next epoch begins, and not before."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

from channel_world import World, run_world

from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig, SegmentationConfig, SyncConfig
from shardwire.node import running_clock

EPOCH_MS = 60_000
# Nothing but what is sent wakes this channel or takes of its quota.
QUIET = ChannelConfig.logos(
    sds=SdsConfig(acknowledgement_timeout_ms=3_600_000, enable_repair=False),
    sync=SyncConfig(sync_min_interval_ms=0, acknowledgement_sync=False, query_on_connect=False),
    segmentation=SegmentationConfig(segment_size_bytes=1_024),
)


def limited(quota: int) -> ChannelConfig:
    limit = RateLimitConfig(
        enabled=True, epoch_size_ms=EPOCH_MS, messages_per_epoch=quota, counts="segment", ack_reserve=0.0
    )
    return replace(QUIET, rate_limit=limit)


async def into_epoch(into_ms: int) -> int:
    """Sleeps until so long after the beginning of the next epoch, and gives that beginning."""
    now_ms = running_clock().epoch_ms()
    begin_ms = now_ms - now_ms % EPOCH_MS + EPOCH_MS
    await asyncio.sleep((begin_ms + into_ms - now_ms) / 1000)
    return begin_ms


def left_ms(world: World, begin_ms: int) -> list[int]:
    return [record.time_ns // 1_000_000 - begin_ms for record in world.network.trace if record.sender == "alice"]


def test_what_waits_leaves_at_the_start_of_the_next_epoch() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", limited(2))
        await world.join("bob", QUIET)
        begin_ms = await into_epoch(10_000)
        for number in range(5):
            await alice.send(b"%d" % number)
        await asyncio.sleep(200)
        left = left_ms(world, begin_ms)
        assert [moment // 10 for moment in left] == [1_000, 1_000, 6_000, 6_000, 12_000]

    assert run_world(scenario).messages("bob") == [b"%d" % number for number in range(5)]


def test_a_message_takes_as_many_epochs_as_its_segments_need_and_no_more() -> None:
    """004, Segmentation and rate limits: each chunk takes one place of the quota."""
    quota, segments = 6, 20
    message = bytes(segments * 1_024)

    async def scenario(world: World) -> None:
        alice = await world.join("alice", limited(quota))
        await world.join("bob", QUIET)
        begin_ms = await into_epoch(0)
        await alice.send(message)
        await asyncio.sleep(600)
        by_epoch = Counter(moment // EPOCH_MS for moment in left_ms(world, begin_ms))
        assert by_epoch == {0: 6, 1: 6, 2: 6, 3: 2}

    assert run_world(scenario).messages("bob") == [message]
