"""What `send` and `send_ephemeral` refuse for its size costs the event loop nothing."""

from __future__ import annotations

import asyncio
import threading

import pytest

from shardwire import close_channel, create_reliable_channel, keccak256
from shardwire.channel.sending import segmenter
from shardwire.errors import PayloadTooLargeError
from shardwire.events import ChunkErrorEvent
from shardwire.node import MemoryNetwork, NodeConfig

PAYLOAD = bytes(segmenter.THREAD_BYTES_MIN)


@pytest.mark.parametrize("call", ["send", "send_ephemeral"])
def test_a_message_refused_for_its_size_is_hashed_in_a_thread(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    segmented: list[threading.Thread] = []
    segment = segmenter.segment

    def hash_noted(payload: bytes) -> bytes:
        threads.append(threading.current_thread())
        return keccak256(payload)

    def segment_noted(*arguments: object) -> list[bytes]:
        segmented.append(threading.current_thread())
        return segment(*arguments)  # type: ignore[arg-type]

    async def scenario() -> list[ChunkErrorEvent]:
        network = MemoryNetwork()
        node = network.create_node("alice", NodeConfig(max_message_size_bytes=2_048))
        await node.start()
        channel = await create_reliable_channel(node, "channel", "/app/1/channel/proto", "alice")
        errors: list[ChunkErrorEvent] = []
        told = asyncio.Event()

        def note(event: ChunkErrorEvent) -> None:
            errors.append(event)
            told.set()

        channel.on(ChunkErrorEvent, note)  # type: ignore[arg-type]
        with pytest.raises(PayloadTooLargeError):
            await getattr(channel, call)(PAYLOAD)
        await told.wait()
        await close_channel(channel)
        return errors

    monkeypatch.setattr(segmenter, "keccak256", hash_noted)
    monkeypatch.setattr(segmenter, "segment", segment_noted)
    (error,) = asyncio.run(scenario())
    assert error.message_id == keccak256(PAYLOAD).hex()
    main = threading.main_thread()
    assert len(threads) == 1
    assert main not in threads
    assert main not in segmented
