"""A live @waku/sds 0.0.8 in a Node process: both sides send a thousand messages through 20 % loss."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
from interop.node_process import NodeProcess

from shardwire.config import SdsConfig, SyncConfig
from shardwire.sds import (
    ContentAcknowledged,
    ContentReceived,
    MessageChannel,
    Now,
    SendGivenUp,
    SendReleased,
)

EPOCH_MS = 1_760_000_000_000
MESSAGES = 1_000
LOSS = 0.2
STEP_MS = 50
HISTORY = 20


class WakuSds:
    """The peer's process."""

    def __init__(self) -> None:
        self._process = NodeProcess("waku_sds_peer.mjs")
        self.now_ms = EPOCH_MS
        self.told: dict[str, list[str]] = {}

    def call(self, op: str, **arguments: Any) -> tuple[list[bytes], Any]:
        """(messages that left, value)."""
        answer = self._process.call(op, nowMs=self.now_ms, **arguments)
        for name, detail in answer["events"]:
            self.told.setdefault(name, []).append(detail)
        return [base64.b64decode(wire) for wire in answer["out"]], answer["value"]

    def close(self) -> None:
        self._process.close()


@pytest.fixture
def peer() -> Iterator[WakuSds]:
    process = WakuSds()
    yield process
    process.close()


def our_machine() -> MessageChannel:
    sds = SdsConfig(
        acknowledgement_timeout_ms=2_000,
        max_retransmissions=40,
        causal_history_size=HISTORY,
        bloom_interval_ms=0,
        # The peer names what it received late nowhere in its short history: its filter alone tells of it, and a
        # channel of two has one filter to go by.
        possible_acks_threshold=1,
        timeout_for_lost_messages_ms=0,
        message_id="content-sha256",
    )
    sync = SyncConfig(sync_min_interval_ms=30_000)
    now = Now(0, EPOCH_MS)
    return MessageChannel("room", "ours", sds, sync, now=now, rng=random.Random(1), header_bytes_max=60_000)


class Ours:
    """Our machine with the driver of a channel whose sends are one content each."""

    def __init__(self) -> None:
        self.machine = our_machine()
        self.delivered: list[str] = []
        self.acknowledged: set[str] = set()
        self.received: set[str] = set()
        self.given_up = 0

    def drain(self, now: Now) -> list[bytes]:
        machine = self.machine
        while (event := machine.poll_event()) is not None:
            if isinstance(event, ContentReceived):
                self.received.add(event.message_id)
                machine.handle_send_reconstructed(event.sender_id, event.message_id, 1, now)
            elif isinstance(event, SendReleased):
                self.delivered.append(event.send_id)
            elif isinstance(event, ContentAcknowledged):
                self.acknowledged.add(event.message_id)
            elif isinstance(event, SendGivenUp):
                self.given_up += 1
        out = []
        while (transmit := machine.poll_transmit(now)) is not None:
            out.append(transmit.payload)
            machine.handle_transmitted(transmit.transmit_id, None, now)
        machine.poll_persist()
        return out


def id_of(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


@pytest.mark.slow
def test_a_thousand_messages_each_way_through_loss(peer: WakuSds) -> None:
    rng = random.Random(7)
    ours = Ours()
    peer.call("open", channelId="room", senderId="theirs", options={"causalHistorySize": HISTORY})
    mine = [b"ours %d" % number for number in range(MESSAGES)]
    theirs = [b"theirs %d" % number for number in range(MESSAGES)]
    to_peer: list[tuple[int, bytes]] = []
    to_us: list[tuple[int, bytes]] = []
    lost = 0

    def put(link: list[tuple[int, bytes]], step: int, wires: list[bytes]) -> None:
        nonlocal lost
        for wire in wires:
            if rng.random() < LOSS:
                lost += 1
            else:
                link.append((step + rng.randrange(1, 5), wire))

    open_at_peer: list[str] = []
    for step in range(20_000):
        now = Now(step * STEP_MS, EPOCH_MS + step * STEP_MS)
        peer.now_ms = now.epoch_ms
        if step < MESSAGES:
            message_id = id_of(mine[step])
            ours.machine.send(message_id, [mine[step]], contents_needed=1)
            put(to_us, step, peer.call("send", payload=base64.b64encode(theirs[step]).decode())[0])
        for link in (to_peer, to_us):
            arrived = [wire for due, wire in link if due <= step]
            link[:] = [(due, wire) for due, wire in link if due > step]
            for wire in arrived:
                if link is to_us:
                    ours.machine.handle_message(wire, now)
                else:
                    put(to_us, step, peer.call("receive", wire=base64.b64encode(wire).decode())[0])
        ours.machine.handle_timeout(now)
        put(to_peer, step, ours.drain(now))
        if step % 10 == 0:
            put(to_us, step, peer.call("sync")[0])
            put(to_us, step, peer.call("sweep")[0])
        if step % 60 == 0:
            open_at_peer = peer.call("unacknowledged")[1]
            if step >= MESSAGES and not open_at_peer and not ours.machine.pending_sends():
                break
            for payload in open_at_peer[:-20] if step < MESSAGES else open_at_peer:
                put(to_us, step, peer.call("send", payload=base64.b64encode(bytes.fromhex(payload)).decode())[0])
    peer.call("sweep")

    my_ids, their_ids = {id_of(payload) for payload in mine}, {id_of(payload) for payload in theirs}
    assert lost > MESSAGES * LOSS
    assert "error" not in peer.told
    assert "undecodable" not in peer.told
    assert set(ours.delivered) == their_ids
    assert len(ours.delivered) == MESSAGES
    # D10: the peer may tell a delivery twice; all of ours are among them.
    assert set(peer.told["delivered"]) == my_ids
    assert set(peer.call("log")[1]) == set(ours.machine.inspect()["log"]) == my_ids | their_ids
    assert ours.given_up == 0
    assert ours.acknowledged == my_ids
    assert set(peer.told["acknowledged"]) == their_ids
