"""How a channel reads what its node has at hand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from shardwire.channel.receiving.reception import RECEIVED_AT_ONCE_MAX, Arrival, Reception
from shardwire.node import MessageEnvelope, MessagePropagated, MessageReceived
from shardwire.node.protocol import NodeEvent
from shardwire.peer_log import PeerLog

TOPIC = "/test/1/room/proto"
COUNT = 1_000


def turns_while_reading(events: list[NodeEvent]) -> tuple[int, int]:
    """(how often others had the loop until all was read, how many messages were taken) where nothing has to wait."""
    taken: list[Arrival] = []

    async def at_hand() -> AsyncIterator[NodeEvent]:
        for event in events:
            yield event

    async def main() -> int:
        requests: Any = SimpleNamespace(on_propagated=lambda request_id, message_hash: None)
        peer_log = PeerLog(logging.getLogger("test"), lambda: 0)
        reception = Reception(
            TOPIC, b"", None, requests, taken.append, lambda state: None, lambda since_ns: None, peer_log
        )
        reading = asyncio.create_task(reception.run(at_hand()))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    return asyncio.run(main()), len(taken)


def test_others_have_the_loop_between_many_received_messages() -> None:
    received = [MessageReceived(MessageEnvelope(TOPIC, b"x"), n.to_bytes(32, "big"), n) for n in range(COUNT)]
    turns, taken = turns_while_reading(list(received))
    assert taken == COUNT
    assert turns >= COUNT // RECEIVED_AT_ONCE_MAX


def test_what_became_of_our_messages_does_not_wait() -> None:
    """The next message of ours names the hash of the last one."""
    turns, _ = turns_while_reading([MessagePropagated(f"r{n}", n.to_bytes(32, "big")) for n in range(COUNT)])
    assert turns <= 2
