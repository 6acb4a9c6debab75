"""Records have the names that `RecordName` promises to backends, whatever ids participants chose."""

from __future__ import annotations

import asyncio
import re

from channel_world import TOPIC, World, run_world

from shardwire.channel import create_reliable_channel
from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig, SegmentationConfig
from shardwire.node import NetworkConditions, NodeConfig
from shardwire.persistence import Changes, MemoryPersistence, RecordName


class Watched(MemoryPersistence):
    """Remembers every name that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: set[str] = set()
        self.names: set[RecordName] = set()

    def commit(self, channel_id: str, changes: Changes) -> None:
        self.channels.add(channel_id)
        self.names |= changes.records.keys() | changes.deleted_prefixes
        super().commit(channel_id, changes)


def test_names_are_as_a_backend_is_told() -> None:
    watched = Watched()
    # The longest ids that are taken.
    channel_id, senders = "c" * 256, [letter * 256 for letter in "ab"]
    limit = RateLimitConfig(enabled=True, epoch_size_ms=60_000, messages_per_epoch=500, counts="segment")

    async def scenario(world: World) -> None:
        channels = []
        for name in senders:
            node = world.network.create_node(name, NodeConfig(rate_limit_config=limit))
            await node.start()
            config = ChannelConfig.logos(
                sds=SdsConfig(persistence=watched if name == senders[0] else None),
                segmentation=SegmentationConfig(segment_size_bytes=1_024, enable_reed_solomon=True),
            )
            channels.append(await create_reliable_channel(node, channel_id, TOPIC, name, config=config))
        for _ in range(5):
            requests = [await channel.send(b"x" * 20_000) for channel in channels]
            for channel, request_id in zip(channels, requests, strict=True):
                await channel.delivered(request_id, timeout_ms=600_000)
        await asyncio.sleep(60)
        for channel in channels:
            await channel.close()

    run_world(scenario, NetworkConditions(loss=0.3, delay_ms=(5, 40)))
    kinds = {kind for kind, _ in watched.names}
    assert {"channel.identity", "channel.send", "sds.log", "node.rate"} <= kinds
    assert 10 < len(kinds) < 30
    assert [kind for kind in kinds if not re.fullmatch(r"[a-z]+\.[a-z_-]{1,25}", kind) or len(kind) > 32] == []
    assert max(len(key) for _, key in watched.names) <= 600
    assert ("channel.identity", b"") in watched.names
    assert len(watched.channels) == 2
    assert max(len(name.encode()) for name in watched.channels) <= 300
