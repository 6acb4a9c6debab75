"""How a channel reads what its node has at hand."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from channel_world import World, run_world

from shardwire.channel.receiving.reception import RECEIVED_AT_ONCE_MAX, Arrival, Reception
from shardwire.node import MessageEnvelope, MessagePropagated, MessageReceived, run_virtual
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


class Waiting:
    """A cipher and a channel, each of which lets a message wait for ever where it is told to."""

    def __init__(self, waits: str) -> None:
        self.waits = waits
        self.taken: list[bytes] = []

    def encrypt(self, content: bytes) -> bytes:
        return content

    async def decrypt(self, payload: bytes) -> bytes:
        if self.waits == "cipher":
            await asyncio.Event().wait()
        return payload

    async def take(self, arrival: Arrival) -> None:
        if self.waits == "room":
            await asyncio.Event().wait()
        self.taken.append(arrival.data)


@pytest.mark.parametrize("waits", ["cipher", "room"])
@pytest.mark.parametrize("is_encrypted", [True, False])
def test_a_message_that_was_not_taken_in_before_the_channel_stopped_may_come_again(
    waits: str, is_encrypted: bool
) -> None:
    async def at_hand() -> AsyncIterator[NodeEvent]:
        yield MessageReceived(MessageEnvelope(TOPIC, b"x"), bytes(32), 1)

    async def main() -> list[bytes]:
        both = Waiting(waits)
        requests: Any = SimpleNamespace()
        cipher: Any = both if is_encrypted else None
        peer_log = PeerLog(logging.getLogger("test"), lambda: 0)
        reception = Reception(
            TOPIC, b"", cipher, requests, both.take, lambda state: None, lambda since_ns: None, peer_log
        )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reception.run(at_hand()), 1)
        both.waits = ""
        await reception.run(at_hand())
        # One that was taken in is known.
        await reception.run(at_hand())
        return both.taken

    assert run_virtual(main()) == [b"x"]


def test_the_echo_of_what_we_sent_is_not_decrypted() -> None:
    class Counting:
        decrypted = 0

        def encrypt(self, payload: bytes) -> bytes:
            return payload

        def decrypt(self, payload: bytes) -> bytes:
            self.decrypted += 1
            return payload

    async def scenario(world: World) -> None:
        cipher = Counting()
        alice = await world.join("alice", encryption=cipher)
        for number in range(3):
            await alice.send(b"%d" % number)
        await asyncio.sleep(60)
        assert world.sent_by("alice") >= 3
        assert cipher.decrypted == 0

    run_world(scenario)
