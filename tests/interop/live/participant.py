"""One participant in a process of its own: `python -m interop.live.participant '{...}'`.

Takes commands as lines of JSON, and tells what happens as lines of JSON. The payload of a message follows from its
sender, its number and its size, so that whoever gets it knows whether it is intact.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
from typing import Any

import shardwire.node
from shardwire import ChannelConfig, SegmentationConfig, close_channel, create_reliable_channel
from shardwire.config import SdsConfig
from shardwire.events import (
    ChunkSentEvent,
    MessageDeliveredEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from shardwire.node import ConnectionStatus, NodeConfig
from shardwire.persistence import MemoryPersistence, SqlitePersistence

DRAIN_MS = 10_000
CONTENT_TOPIC = "/shardwire/1/live/proto"


def payload_of(sender: str, number: int, size: int) -> bytes:
    """A message: who sent it and which it is, then bytes that follow from both."""
    head = f"{sender} {number} {size}\n".encode()
    return head + random.Random(f"{sender} {number}").randbytes(max(0, size - len(head)))


def read_payload(message: bytes) -> tuple[int, bool]:
    """The number of a message, and whether it is intact."""
    head, _, _ = message.partition(b"\n")
    try:
        sender, number, size = head.decode().split(" ")
        return int(number), message == payload_of(sender, int(number), int(size))
    except (ValueError, UnicodeDecodeError):
        return -1, False


def tell(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class Participant:
    """A node and a channel, as the settings say.

    Args:
        settings: `node` (name of a class of `shardwire.node`), `arguments` of it, `config` of the node, `sender_id`,
            `state` (path of a database, or None), `parity`.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        kind = getattr(shardwire.node, settings["node"])
        config = settings.get("config")
        self._node = kind(**settings["arguments"], config=None if config is None else NodeConfig(**config))
        self._settings = settings
        # Request -> number of the message.
        self._numbers: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        settings = self._settings
        state = settings.get("state")
        config = ChannelConfig.logos(
            segmentation=SegmentationConfig(enable_reed_solomon=settings["parity"]),
            sds=SdsConfig(persistence=MemoryPersistence() if state is None else SqlitePersistence(state)),
        )
        await self._node.start()
        if not self._node.has_store:
            config = config.without_store(members=2)
        watching = asyncio.create_task(self._watch())
        self._channel = await create_reliable_channel(
            self._node, "live", CONTENT_TOPIC, settings["sender_id"], config=config
        )
        self._channel.on_message_received(self._on_received)
        self._channel.on(MessageDeliveredEvent, lambda event: self._tell_of("delivered", event.request_id))
        self._channel.on(MessageSentEvent, lambda event: self._tell_of("sent", event.request_id))
        self._channel.on(
            MessageSendErrorEvent,
            lambda event: self._tell_of("send_error", event.request_id, error=event.error, stage=event.stage),
        )
        self._channel.on(
            ChunkSentEvent,
            lambda event: self._tell_of("chunks", event.request_id, count=len(event.chunk_info.chunks)),
        )
        tell("ready")
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            command = json.loads(line)
            if command["do"] == "send":
                message = payload_of(settings["sender_id"], command["number"], command["size"])
                request = await self._channel.send(message)
                self._numbers[request] = command["number"]
                tell("accepted", number=command["number"], request=request)
            elif command["do"] == "tell":
                tell("counts", counts=dict(self._node.counts), state=self._node.connection_state.value)
            else:
                break
        await close_channel(self._channel, drain_timeout_ms=DRAIN_MS)
        watching.cancel()
        await self._node.stop()
        tell("closed")

    def _on_received(self, event: MessageReceivedEvent) -> None:
        number, intact = read_payload(event.message)
        tell("received", sender=event.sender_id, number=number, intact=intact, redelivered=event.redelivered)

    def _tell_of(self, what: str, request: str, **fields: Any) -> None:
        # What was sent before a restart is known by its request alone.
        tell(what, request=request, number=self._numbers.get(request), **fields)

    async def _watch(self) -> None:
        async for event in self._node.events():
            if isinstance(event, ConnectionStatus):
                tell("connection", state=event.state.value)


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(Participant(json.loads(sys.argv[1])).run())


if __name__ == "__main__":
    main()
