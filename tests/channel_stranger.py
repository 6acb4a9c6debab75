"""Somebody on the topic of a channel who sends in the name of others."""

from __future__ import annotations

import asyncio

from channel_world import CHANNEL, TOPIC, World

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.node import MessageEnvelope


class Stranger:
    """Sends whatever it likes to bob, with ever another timestamp, so that the network takes nothing for known."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lamport = 1_760_000_000_000

    async def send(self, sender: str, message_id: str, content: bytes, *follows: str) -> None:
        self._lamport += 1
        message = SdsMessage(
            sender_id=sender,
            message_id=message_id,
            channel_id=CHANNEL,
            lamport_timestamp=self._lamport,
            causal_history=[HistoryEntry(name) for name in follows],
            content=content,
        )
        node = await self._world.node("stranger")
        await node.send(MessageEnvelope(TOPIC, message.encode()))
        await asyncio.sleep(0.1)
