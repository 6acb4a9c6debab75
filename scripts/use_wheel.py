"""Uses an installed or unpacked shardwire without any extra, as a user would: `python scripts/use_wheel.py`."""

from __future__ import annotations

import asyncio

import shardwire
from shardwire.node import MemoryNetwork
from shardwire.segmentation import PayloadReconstructed, Reassembler, SegmentationConfig, segment


def reconstruct() -> None:
    config = SegmentationConfig(segment_size_bytes=1024, enable_reed_solomon=True, parity_rate=0.5)
    payload = bytes(range(256)) * 100
    reassembler = Reassembler(config)
    outcomes = [reassembler.receive(one, now_ms=0, sender="wheel") for one in segment(payload, config)[2:]]
    assert payload in [outcome.payload for outcome in outcomes if isinstance(outcome, PayloadReconstructed)]
    assert shardwire.keccak256(b"").hex().startswith("c5d2460186f7")


async def deliver() -> None:
    network = MemoryNetwork()
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    channels = []
    for name in ("alice", "bob"):
        node = network.create_node(name)
        await node.start()
        channels.append(await shardwire.create_reliable_channel(node, "wheel", "/wheel/1/check/proto", name))
    channels[1].on_message_received(lambda event: received.set_result(event.message))
    message = bytes(range(256)) * 2_000
    request_id = await channels[0].send(message)
    assert await asyncio.wait_for(received, 30) == message
    assert await channels[0].delivered(request_id) == {"bob"}
    for channel in channels:
        await shardwire.close_channel(channel)


if __name__ == "__main__":
    reconstruct()
    asyncio.run(deliver())
