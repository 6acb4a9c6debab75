"""A participant that wishes the others ill: replays, garbage, and well-formed messages that lie about themselves.

Without authentication anybody can claim to be anybody, and no protocol can then tell a forged acknowledgement from a
true one. So where the channel is not encrypted it lies under its own name only.
"""

from __future__ import annotations

import asyncio
import random

from shardwire import segmentation
from shardwire._native import HistoryEntry, SdsMessage
from shardwire.config import SegmentationConfig
from shardwire.node import MemoryNetwork, MessageEnvelope, MessageReceived
from tests.simulation.participants import CHANNEL_ID, CONTENT_TOPIC
from tests.simulation.worlds import World

NAME = "mallory"
HEARD_MAX = 200
U64_MAX = (1 << 64) - 1


class Hostile:
    """Hears everything, sends at the planned times."""

    def __init__(self, world: World, network: MemoryNetwork) -> None:
        self._world = world
        self._rng = random.Random(f"hostile/{world.seed}")
        self._network = network
        self._heard: list[bytes] = []
        self._segmentation = SegmentationConfig(
            segment_size_bytes=world.segment_size_bytes, wire_format=world.wire_format
        )

    async def run(self) -> None:
        """Lives until the world is calm."""
        node = self._network.create_node(NAME)
        await node.start()
        await node.subscribe([CONTENT_TOPIC])
        stream = node.events()
        listening = asyncio.create_task(self._listen(stream))
        loop = asyncio.get_running_loop()
        for at_ms in self._world.hostile_at_ms:
            await asyncio.sleep(max(0.0, at_ms / 1000 - loop.time()))
            await node.send(MessageEnvelope(CONTENT_TOPIC, self._payload()))
        listening.cancel()
        await node.stop()

    async def _listen(self, stream: object) -> None:
        async for event in stream:  # type: ignore[attr-defined]
            if isinstance(event, MessageReceived):
                self._heard.append(event.envelope.payload)
                del self._heard[:-HEARD_MAX]

    def _payload(self) -> bytes:
        kinds = [self._garbage]
        if self._heard:
            kinds += [self._replay, self._truncation]
        if self._world.encrypted:
            kinds += [self._alteration] if self._heard else []
        else:
            kinds += [self._lying_message] * 4
        return self._rng.choice(kinds)()

    def _garbage(self) -> bytes:
        return self._rng.randbytes(self._rng.choice((0, 1, 33, self._rng.randint(0, 3_000))))

    def _replay(self) -> bytes:
        return self._rng.choice(self._heard)

    def _truncation(self) -> bytes:
        heard = self._rng.choice(self._heard)
        return heard[: self._rng.randint(0, len(heard))]

    def _alteration(self) -> bytes:
        altered = bytearray(self._rng.choice(self._heard) or b"\x00")
        altered[self._rng.randrange(len(altered))] ^= 1 << self._rng.randrange(8)
        return bytes(altered)

    def _lying_message(self) -> bytes:
        rng = self._rng
        send_id = rng.randbytes(16).hex()
        now_ms = self._network.clock.epoch_ms()
        return SdsMessage(
            sender_id=NAME,
            message_id=rng.choice((f"{send_id}.{rng.choice((0, 1, 255, 10**9))}", send_id, "", "x" * 5_000)),
            channel_id=rng.choice((CHANNEL_ID, CHANNEL_ID, CHANNEL_ID, "another")),
            lamport_timestamp=rng.choice((None, 0, now_ms, now_ms, now_ms + 10**6, U64_MAX)),
            causal_history=[self._lying_entry() for _ in range(rng.choice((0, 0, 1, 20)))],
            bloom_filter=rng.choice((None, b"", b"\xff" * 128, rng.randbytes(rng.randint(0, 500)))),
            repair_request=[self._lying_entry() for _ in range(rng.choice((0, 0, 1, 20)))],
            content=rng.choice((None, b"", self._garbage(), self._lying_segment())),
        ).encode()

    def _lying_entry(self) -> HistoryEntry:
        rng = self._rng
        message_id = f"{rng.randbytes(16).hex()}.{rng.randrange(3)}"
        return HistoryEntry(message_id, rng.choice((None, rng.randbytes(32), b"short")), rng.choice((None, NAME)))

    def _lying_segment(self) -> bytes:
        """One of a set that never becomes whole, or whose hash is wrong."""
        rng = self._rng
        payload = rng.randbytes(rng.randint(1, 5 * self._world.segment_size_bytes))
        segment = bytearray(rng.choice(segmentation.segment(payload, self._segmentation)))
        if rng.random() < 0.5:
            # Into the hash, which every wire puts first.
            segment[2 + rng.randrange(32)] ^= 1
        return bytes(segment)
