"""What a channel makes of the parts and of the state that it is given."""

from __future__ import annotations

import asyncio

from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire.channel import close_channel
from shardwire.channel.storing.records import LAST_SEEN
from shardwire.config import ChannelConfig, SdsConfig, SyncConfig
from shardwire.node import running_clock
from shardwire.node.clock import NANOSECONDS_PER_MS

HOUR_MS = 3_600_000


class Marking:
    """A cipher that marks what it seals with the channel that it is bound to."""

    def __init__(self, channel_id: str = "none") -> None:
        self.mark = channel_id.encode() + b"|"

    def bind(self, channel_id: str) -> Marking:
        return Marking(channel_id)

    def encrypt(self, payload: bytes) -> bytes:
        return self.mark + payload

    def decrypt(self, payload: bytes) -> bytes:
        assert payload.startswith(self.mark)
        return payload.removeprefix(self.mark)


def test_a_cipher_is_bound_to_the_channel() -> None:
    async def scenario(world: World) -> None:
        listening = await world.node("eve")
        await listening.subscribe([TOPIC])
        alice = await world.join("alice", encryption=Marking())
        events = listening.events()
        await alice.send(b"x")
        async for event in events:
            if hasattr(event, "envelope"):
                assert event.envelope.payload.startswith(f"{CHANNEL}|".encode())
                break
        await close_channel(alice)

    run_world(scenario)


def test_a_time_of_the_future_at_which_all_was_seen_hides_nothing() -> None:
    """The clock was ahead when it was stored."""
    # The sender never resends, nobody repairs and nobody names what he heard: what arrives late came from the store.
    sds = SdsConfig(max_retransmissions=0, enable_repair=False, causal_history_size=0)
    store_only = ChannelConfig.logos(sds=sds, sync=SyncConfig(sync_min_interval_ms=0, acknowledgement_sync=False))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", store_only)
        await world.join("bob", store_only, on_disk=True)
        await asyncio.sleep(1)
        await world.crash("bob")
        await alice.send(b"missed")
        await asyncio.sleep(120)
        ahead_ns = (running_clock().epoch_ms() + 24 * HOUR_MS) * NANOSECONDS_PER_MS
        world.disks["bob"].records[LAST_SEEN, b""] = b'{"version":1,"timestamp_ns":%d}' % ahead_ns
        await world.join("bob", store_only, on_disk=True)
        await asyncio.sleep(20)

    assert run_world(scenario).messages("bob") == [b"missed"]
