"""What peers send, in the log: a warning a minute however much it is, and nothing of theirs but printable text."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire._native import MessageFault, NodeHolds, SdsMessage, TransmitFailed
from shardwire.channel.sending.sealing import Sealer
from shardwire.config import ChannelConfig, ReassemblyLimits, SegmentationConfig
from shardwire.config.segmentation import SegmentWireFormat
from shardwire.errors import NodeError
from shardwire.node import MessageEnvelope, MessageReceived
from shardwire.peer_log import WARNING_INTERVAL_MS, PeerLog
from shardwire.quoting import one_line, quoted
from shardwire.sds import Now, TransmitKind
from shardwire.segmentation import Reassembler, segment

# Ends a line, clears a terminal, runs backwards; and far too long.
HOSTILE = "\n2026-11-22 CRITICAL all is lost\r\x1b[2J\x9b31m\u202e\u2028" + "y" * 120
RAW = SegmentationConfig(segment_size_bytes=1_024, enable_reed_solomon=False)
PARITY = SegmentationConfig(segment_size_bytes=1_024, enable_reed_solomon=True, parity_rate=0.5)


class Mallory:
    """Publishes on the topic whatever it likes, each message another one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sent = 0

    async def send(self, content: bytes, sender: str = HOSTILE, message_id: str | None = None) -> None:
        self._sent += 1
        message = SdsMessage(
            sender_id=sender,
            message_id=f"{HOSTILE}{self._sent}" if message_id is None else message_id,
            channel_id=CHANNEL,
            lamport_timestamp=1_760_000_000_000 + self._sent,
            causal_history=[],
            content=content,
        )
        node = await self._world.node("mallory")
        await node.send(MessageEnvelope(TOPIC, message.encode()))


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    """What is logged from here on; all of it is printable."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("shardwire")
    logger.addHandler(handler)
    with caplog.at_level(logging.DEBUG, "shardwire"):
        yield records
    logger.removeHandler(handler)
    lines = [record.getMessage() for record in records]
    assert lines
    assert [line for line in lines if not line.isprintable() or "y" * 65 in line] == []


def warnings(records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if record.levelno >= logging.WARNING]


def flipped(segment_bytes: bytes) -> bytes:
    """With another payload."""
    place = len(segment_bytes) // 2
    return segment_bytes[:place] + bytes([segment_bytes[place] ^ 1]) + segment_bytes[place + 1 :]


def test_a_flood_costs_a_warning_a_minute_that_says_how_many_there_were(told: list[logging.LogRecord]) -> None:
    hostile = 5_000

    async def scenario(world: World) -> None:
        bob = await world.join("bob", ChannelConfig.logos(segmentation=RAW))
        mallory = Mallory(world)
        told.clear()
        for number in range(hostile):
            invalid, false = b"\x0a\xff", flipped(segment(b"%0200d" % number, RAW)[0])
            await mallory.send((invalid, false)[number % 2], f"mallory {number % 7}")
            await asyncio.sleep(0.12)
        stats = bob.stats()
        assert stats["segments_discarded"] == hostile // 2
        assert stats["HashMismatch"] >= hostile // 2

    run_world(scenario)
    lines = warnings(told)
    # Ten minutes.
    assert 10 <= len(lines) <= 11
    assert all(line.startswith(f"channel {CHANNEL!r}: ") for line in lines)
    assert "more since" not in lines[0]
    since = [int(line.rpartition("(")[2].split()[0]) for line in lines[1:]]
    debug = sum(record.levelno == logging.DEBUG for record in told if record.name == "shardwire.channel.peers")
    assert debug + len(lines) == hostile
    assert sum(since) <= debug <= sum(since) + max(since)
    assert min(since) > 400


def test_what_segments_say_is_told_printable(told: list[logging.LogRecord]) -> None:
    limits = ReassemblyLimits(timeout_ms=5_000)

    async def scenario(world: World) -> None:
        bob = await world.join("bob", ChannelConfig.logos(segmentation=replace(PARITY, limits=limits)))
        mallory = Mallory(world)
        payload = random.Random(1).randbytes(3_000)
        contents = segment(payload, PARITY)
        other = segment(payload, replace(PARITY, parity_rate=1.0))
        send = "5e" * 16
        await mallory.send(b"\x0a\xff")
        await mallory.send(b"\x0a\x20" + bytes(32))
        await mallory.send(flipped(segment(b"small" * 100, PARITY)[0]))
        # One false segment of three, put right by parity.
        for ordinal, content in enumerate([flipped(contents[0]), *contents[1:]]):
            await mallory.send(content, message_id=f"{send}.{ordinal}")
        # Counts that change within a set, and a set that never gets whole.
        await mallory.send(contents[0], message_id=f"{'5f' * 16}.0")
        await mallory.send(other[1], message_id=f"{'5f' * 16}.1")
        await asyncio.sleep(30)
        stats = bob.stats()
        assert stats["bad_segments"] == 1
        assert stats["segments_discarded"] >= 3

    run_world(scenario)
    text = "\n".join(record.getMessage() for record in told)
    for phrase in ("invalid: ", "does not have its hash", "false segments", "CountMismatch", "dropped: Expired"):
        assert phrase in text, phrase
    assert "\\n2026-11-22 CRITICAL" in text


def test_what_cannot_be_repaired_or_released_is_told_printable(told: list[logging.LogRecord]) -> None:
    """Messages of others on their way out, texts of a node that quote them, and what breaks an invariant."""

    async def scenario(world: World) -> None:
        bob = await world.join("bob")
        engine = bob._session.engine
        now = Now(1, 1)
        for kind in (TransmitKind.REPAIR, TransmitKind.FIRST):
            transmit = cast(
                Any, SimpleNamespace(kind=kind, message_id=HOSTILE, transmit_id=1 << 40, send_id=None, ordinal=None)
            )
            engine._on_event(TransmitFailed(HOSTILE, kind, HOSTILE[:80], False), now)
            engine._on_event(NodeHolds(60_000, HOSTILE[:80]), now)
            sizes = cast(Any, SimpleNamespace(payload_bytes_max=1))
            sealer = Sealer(None, sizes, bool, bool, told.append, bool, engine.peer_log)  # type: ignore[arg-type]
            transmit.payload = b"too long"
            sealer.submit(transmit)
        engine._on_event(MessageFault("message-not-held", HOSTILE, HOSTILE, ""), now)
        bob._session._retrieval._on_no_answer(NodeError(HOSTILE[:80]))
        assert bob.stats()["released_without_payload"] == 1

    run_world(scenario)
    text = "\n".join(record.getMessage() for record in told)
    for phrase in ("was not sent", "cannot leave", "everything waits", "is not held", "no store answered"):
        assert phrase in text, phrase
    # Ours are told one by one, those of others are not.
    assert sum("was not sent" in line for line in warnings(told)) == 2
    assert sum("cannot leave" in line for line in warnings(told)) == 1


def test_what_a_node_hands_on_malformed_is_counted_and_told_once(told: list[logging.LogRecord]) -> None:
    async def scenario(world: World) -> None:
        node = await world.node("bob")
        bob = await world.join("bob")
        for _ in range(100):
            envelope = MessageEnvelope(TOPIC, b"x")
            node._streams.put(MessageReceived(envelope, b"", cast(Any, HOSTILE)))
        await asyncio.sleep(1)
        assert bob.stats()["node_events_malformed"] == 100

    run_world(scenario)
    assert sum("a MessageReceived whose message_hash is 0 bytes" in line for line in warnings(told)) == 1


def test_a_reassembler_alone_goes_by_the_time_that_it_is_given(told: list[logging.LogRecord]) -> None:
    reassembler = Reassembler(RAW)
    for number in range(600):
        reassembler.receive(b"\x0a\xff", now_ms=number * 1_000, sender=HOSTILE)
        reassembler.receive(flipped(segment(b"%0200d" % number, RAW)[0]), now_ms=number * 1_000, sender=HOSTILE)
    assert len(warnings(told)) == 10
    assert len(told) == 1_200


def test_the_log_warns_again_when_the_clock_has_moved_on(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 5
    log = PeerLog(logging.getLogger("shardwire.test"), lambda: now_ms, "channel 'c': ")
    for now_ms in (5, 6, 4 + WARNING_INTERVAL_MS, 5 + WARNING_INTERVAL_MS, 6 + WARNING_INTERVAL_MS):
        log.tell("%s sent %d", "mallory", now_ms)
    assert [record.getMessage() for record in caplog.records] == [
        "channel 'c': mallory sent 5",
        "channel 'c': mallory sent 60005 (2 more since the last warning)",
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("alice", "'alice'"),
        (None, "None"),
        (b"alice", "a bytes"),
        ("a\nb\x1b[0m", r"'a\nb\x1b[0m'"),
        ("\ud800", r"'\ud800'"),
        ("z" * 64, f"'{'z' * 64}'"),
        ("z" * 65, f"'{'z' * 64}'... (65 characters)"),
    ],
)
def test_names_are_quoted_and_cut(name: object, shown: str) -> None:
    assert quoted(name) == shown


def test_sentences_stay_on_their_line() -> None:
    assert one_line("the store said\n  'no'\x1b[2J\u202e") == r"the store said 'no'\x1b[2J\u202e"
    assert one_line("a" * 1_000) == "a" * 300
    assert one_line(NodeError("")) == ""


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "3 messages here are no SDS messages of this channel's wire: do all participants have the same key"),
        ({"envelope_meta": b"rooms"}, "none of the first 3 messages has the envelope_meta of this channel"),
    ],
)
def test_what_the_first_messages_that_nobody_can_read_mean_is_told_once(
    told: list[logging.LogRecord], changes: dict[str, Any], text: str
) -> None:
    async def scenario(world: World) -> None:
        # It would give the same messages again.
        world.network.store_online = False
        await world.join("alice", ChannelConfig.logos(**changes))
        node = await world.node("stranger")
        for number in range(5):
            await node.send(MessageEnvelope(TOPIC, b"sealed %d" % number))
            await asyncio.sleep(1)
            lines = [record for record in told if text in record.getMessage()]
            assert len(lines) == (number >= 2)
            assert all(record.levelno == logging.WARNING for record in lines)

    run_world(scenario)


@pytest.mark.parametrize(
    ("theirs", "ours"), [("draft", "raw"), ("raw", "draft"), ("lip243", "raw"), ("draft", "lip243")]
)
def test_a_segment_of_another_wire_tells_what_is_behind_it(
    told: list[logging.LogRecord], theirs: SegmentWireFormat, ours: SegmentWireFormat
) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.logos(segmentation=SegmentationConfig(wire_format=theirs)))
        await world.join("bob", ChannelConfig.logos(segmentation=SegmentationConfig(wire_format=ours)))
        await alice.send(b"small")
        await asyncio.sleep(5)

    run_world(scenario)
    [line] = [line for line in warnings(told) if "discarded segment" in line]
    assert line.endswith("; do all participants have the same preset, or wire_format of segmentation?")


def test_an_ephemeral_message_of_no_use_is_told_and_counted(told: list[logging.LogRecord]) -> None:
    async def scenario(world: World) -> None:
        theirs = ChannelConfig.logos(segmentation=SegmentationConfig(wire_format="lip243"))
        alice, bob = await world.join("alice", theirs), await world.join("bob")
        await alice.send_ephemeral(b"typing")
        await asyncio.sleep(5)
        assert bob.stats()["segments_discarded"] == 1

    run_world(scenario)
    [line] = [line for line in warnings(told) if "discarded segment" in line]
    assert " of sender 'alice' as invalid: " in line
