"""A live `ReliableChannel` of @waku/sdk 0.0.36 in a Node process, in virtual time: 20 % of all copies are lost.

Both channels have the timers of specification 004, 30 s and more: our event loop drives the peer's clock too.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pytest
from interop.node_process import NodeProcess

from shardwire import ChannelConfig, close_channel, create_reliable_channel
from shardwire._native import SdsMessage, WakuMessage, message_hash
from shardwire.events import MessageDeliveredEvent, MessageReceivedEvent, MessageSendErrorEvent
from shardwire.node import ConnectionState, MessageEnvelope, NodeConfig, StorePage, StoreQuery, run_virtual
from shardwire.node.store import MessageStore
from shardwire.node.transport import Answer, OutgoingMessage, Published, Transport, TransportLink, TransportNode

TOPIC = "/test/1/room/proto"
MESSAGES = 200
LOSS = 0.2
DELAY_MS = (10, 120)
STORE_DELAY_MS = 50
SEED = 7


@dataclass
class Copies:
    """What one side put on the network."""

    published: Counter[str]
    lost: int = 0

    @property
    def again(self) -> int:
        return self.published.total() - len(self.published)


class PeerNetwork(Transport):
    """The peer, and the network and store between it and our node."""

    name = "waku-sdk"

    def __init__(self, process: NodeProcess, *, has_store: bool) -> None:
        self.has_store = has_store
        self.told: dict[str, list[str]] = {}
        self.ours, self.theirs = Copies(Counter()), Copies(Counter())
        self.sent_by_peer: list[bytes] = []
        self._process = process
        self._store = MessageStore()
        self._rng = random.Random(SEED)
        self._alarm: asyncio.TimerHandle | None = None
        self._link: TransportLink

    # --- Transport ---

    async def connect(self, link: TransportLink) -> None:
        self._link = link
        config = link.config
        self.call(
            "open",
            channelId="room",
            senderId="theirs",
            contentTopic=TOPIC,
            network={"clusterId": config.cluster_id, "numShardsInCluster": config.num_shards_in_cluster},
            hasStore=self.has_store,
            seed=SEED,
            options={},
        )
        link.connection(ConnectionState.CONNECTED)

    async def disconnect(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    async def subscribe(self, content_topic: str, pubsub_topic: str) -> None:
        self._pubsub_topic = pubsub_topic

    async def unsubscribe(self, content_topic: str, pubsub_topic: str) -> None:
        pass

    async def publish(self, message: OutgoingMessage) -> Answer:
        wire = message.encode()
        self._put(wire, self.ours, lambda: self.call("receive", wire=base64.b64encode(wire).decode()))
        return Published(stored=self.has_store)

    async def query_store(self, query: StoreQuery) -> StorePage:
        await asyncio.sleep(STORE_DELAY_MS / 1000)
        return self._store.query(query)

    # --- the peer ---

    def call(self, op: str, **arguments: Any) -> Any:
        """Lets the peer do something, and before it all that it was to do until now."""
        answer = self._process.call(op, nowMs=self._link.clock.epoch_ms(), **arguments)
        for name, detail in answer["events"]:
            self.told.setdefault(name, []).append(detail)
        for encoded in answer["out"]:
            wire = base64.b64decode(encoded)
            self._put(wire, self.theirs, lambda wire=wire: self._link.received_encoded(wire))
        loop = asyncio.get_running_loop()
        for query in answer["queries"]:
            loop.call_later(STORE_DELAY_MS / 1000, self._answer, query["number"], query["messageHashes"])
        if self._alarm is not None:
            self._alarm.cancel()
        if answer["wakeMs"] is not None:
            wait_ms = max(1, answer["wakeMs"] - self._link.clock.epoch_ms())
            self._alarm = loop.call_later(wait_ms / 1000, self.call, "wake")
        return answer["value"]

    def send(self, payload: bytes) -> None:
        """Lets the peer's application send a message."""
        self.sent_by_peer.append(payload)
        self.call("send", payload=base64.b64encode(payload).decode())

    def delivered(self) -> list[bytes]:
        """What the peer's SDS delivered, in its order, with what it delivered twice."""
        return [base64.b64decode(payload) for payload in self.told.get("sds:in:message-delivered", [])]

    def _answer(self, number: int, hashes: list[str]) -> None:
        """Gives the peer the page that it asked a store for."""
        found = [self._store.query(StoreQuery((bytes.fromhex(name),))).messages for name in hashes]
        wires = [
            WakuMessage(payload=stored.envelope.payload, content_topic=TOPIC, timestamp_ns=stored.timestamp_ns).encode()
            for messages in found
            for stored in messages
            if stored.envelope is not None
        ]
        self.call("page", number=number, wires=[base64.b64encode(wire).decode() for wire in wires])

    def _put(self, wire: bytes, copies: Copies, deliver: Callable[[], Any]) -> None:
        """Puts one message on the network, which stores it, and loses it or delays it."""
        message = WakuMessage.decode(wire)
        assert message is not None
        sds = SdsMessage.decode(message.payload)
        assert sds is not None
        is_lost = self._rng.random() < LOSS
        if sds.kind == "content":
            copies.published[sds.message_id] += 1
            copies.lost += is_lost
        timestamp_ns = message.timestamp_ns or 0
        name = message_hash(
            pubsub_topic=self._pubsub_topic, payload=message.payload, content_topic=TOPIC, timestamp_ns=timestamp_ns
        )
        self._store.add(name, timestamp_ns, MessageEnvelope(TOPIC, message.payload))
        if not is_lost:
            asyncio.get_running_loop().call_later(self._rng.randint(*DELAY_MS) / 1000, deliver)


def text(author: str, number: int, answers: int | None) -> bytes:
    return json.dumps({"author": author, "number": number, "answers": answers}).encode()


def numbers_of(payloads: list[bytes], author: str) -> list[int]:
    """The numbers of an author's messages, in this order."""
    messages = [json.loads(payload) for payload in payloads]
    return [message["number"] for message in messages if message["author"] == author]


def answers_follow(payloads: list[bytes]) -> bool:
    """Whether each message stands after the one it answers."""
    seen: set[tuple[str, int]] = set()
    for message in map(json.loads, payloads):
        other = "theirs" if message["author"] == "ours" else "ours"
        if message["answers"] is not None and (other, message["answers"]) not in seen:
            return False
        seen.add((message["author"], message["number"]))
    return True


@dataclass
class Outcome:
    """What both sides saw."""

    received: list[bytes]
    delivered: list[str]
    errors: list[str]
    pending: int
    log_of_peer: list[bytes]


async def converse(network: PeerNetwork, pace_s: float) -> Outcome:
    """Both sides send at their pace, each message in answer to the newest one that it was delivered."""
    node = TransportNode(network, NodeConfig(), rng=random.Random(SEED))
    await node.start()
    channel = await create_reliable_channel(
        node, "room", TOPIC, "ours", config=ChannelConfig.waku(), rng=random.Random(SEED)
    )
    received: list[bytes] = []
    delivered: list[str] = []
    errors: list[str] = []
    channel.on(MessageReceivedEvent, lambda event: received.append(event.message))
    channel.on(MessageDeliveredEvent, lambda event: delivered.append(event.request_id))
    channel.on(MessageSendErrorEvent, lambda event: errors.append(event.error))

    for number in range(MESSAGES):
        await channel.send(text("ours", number, max(numbers_of(received, "theirs"), default=None)))
        await asyncio.sleep(pace_s / 2)
        newest = max(numbers_of(network.delivered(), "ours"), default=None)
        network.send(text("theirs", number, newest))
        await asyncio.sleep(pace_s / 2)
    # The peer sends ten times again, 30 s apart; both have ended before.
    await asyncio.sleep(400)
    log_of_peer = [base64.b64decode(payload) for payload in network.call("log")]
    pending = len(channel.pending())
    await close_channel(channel)
    await node.stop()
    return Outcome(received, delivered, errors, pending, log_of_peer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pace_s", "has_store", "again_for_each_lost_max"),
    [
        pytest.param(1.5, False, 1.5, id="chat"),
        pytest.param(1.5, True, 0.2, id="chat with a store"),
        # Acknowledgements of the peer are late in a burst: from 1.1 to 2.4 by the seed.
        pytest.param(0.1, False, 2.5, id="burst"),
        pytest.param(0.1, True, 1.5, id="burst with a store"),
    ],
)
def test_two_hundred_messages_each_way_through_loss(
    pace_s: float, has_store: bool, again_for_each_lost_max: float
) -> None:
    process = NodeProcess("waku_sdk_peer.mjs")
    network = PeerNetwork(process, has_store=has_store)
    try:
        outcome = run_virtual(converse(network, pace_s), limit_ms=3_600_000)
    finally:
        process.close()
    everything = list(range(MESSAGES))
    mine, told = network.ours, network.told

    assert mine.lost > MESSAGES * LOSS / 2
    assert network.theirs.lost > MESSAGES * LOSS / 2
    assert "sds:error-task" not in told
    assert "sending-message-irrecoverable-error" not in told
    # Everything arrives and is acknowledged, in both directions.
    assert outcome.errors == []
    assert outcome.pending == 0
    assert len(set(outcome.delivered)) == len(outcome.delivered) == MESSAGES
    assert set(told["message-acknowledged"]) == {sha256(payload).hexdigest() for payload in network.sent_by_peer}
    # Once each, and after its causes: each message of the peer names those before it.
    assert numbers_of(outcome.received, "theirs") == everything
    # The peer tells a delivery again when another copy comes, and may tell one before a cause that it holds in its
    # incoming buffer. Its log, in Lamport order, has everything once, each message after what it answers.
    assert set(numbers_of(network.delivered(), "ours")) == set(everything)
    assert numbers_of(outcome.log_of_peer, "ours") == numbers_of(outcome.log_of_peer, "theirs") == everything
    assert answers_follow(outcome.log_of_peer)
    assert mine.again <= again_for_each_lost_max * mine.lost
