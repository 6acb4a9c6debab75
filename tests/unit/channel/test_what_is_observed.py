"""What observers are told, what is measured once, and what is said from time to time."""

from __future__ import annotations

import asyncio
import logging

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire import SdsObservation, SegmentObservation
from shardwire._native import HistoryEntry, SdsMessage
from shardwire.channel import Measurement
from shardwire.channel.observing import metrics
from shardwire.channel.observing.notices import CONFLICT_INTERVAL_MS
from shardwire.config import ChannelConfig, SdsConfig
from shardwire.events import SenderIdConflictEvent
from shardwire.node import MessageEnvelope


def test_of_the_messages_of_others_those_of_the_channel_are_told_with_what_they_ask_for() -> None:
    async def scenario(world: World) -> None:
        alice, peer = await world.join("alice"), await world.node("peer")
        seen: list[SdsObservation] = []
        alice.observe_sds(seen.append)
        for number, (channel, sender) in enumerate(
            [(CHANNEL, "bob"), ("another channel", "bob"), (CHANNEL, "alice"), (CHANNEL, "carol")]
        ):
            message = SdsMessage(
                sender_id=sender,
                message_id=f"m{number}",
                channel_id=channel,
                lamport_timestamp=5,
                causal_history=[],
                repair_request=[HistoryEntry("lost1", None, "dave"), HistoryEntry("lost2", None, "dave")],
            )
            await peer.send(MessageEnvelope(TOPIC, message.encode()))
        await asyncio.sleep(1)
        told = [(one.message_id, one.sender_id, one.repair_request) for one in seen if one.direction == "received"]
        assert told == [("m0", "bob", ("lost1", "lost2")), ("m3", "carol", ("lost1", "lost2"))]

    run_world(scenario)


def test_a_segment_that_leaves_again_is_told_with_its_attempt_and_measured_as_one() -> None:
    async def scenario(world: World) -> None:
        world.network.store_online = False
        # Takes it for the network, and acknowledges nothing.
        await world.node("silent")
        alice = await world.join("alice", ChannelConfig.logos(sds=SdsConfig(max_retransmissions=2)))
        seen: list[SegmentObservation] = []
        measured: list[Measurement] = []
        alice.observe(seen.append)
        alice.measure(measured.append)
        await alice.send(b"x")
        await asyncio.sleep(600)
        assert [one.attempt for one in seen if one.stage == "dispatched"] == [0, 1, 2]
        names = [one.name for one in measured]
        assert names.count("segment_size_bytes") == 3
        assert names.count("queue_wait_ms") == 1
        assert "delivered_ms" not in names

    run_world(scenario)


def test_so_many_sends_are_measured_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FOLLOWED_SENDS_MAX", 2)

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        measured: list[Measurement] = []
        alice.measure(measured.append)
        sent = [await alice.send(b"%d" % number) for number in range(3)]
        await world.join("bob")
        for request_id in sent:
            await alice.delivered(request_id, timeout_ms=600_000)
        assert [one.name for one in measured].count("delivered_ms") == 2

    run_world(scenario)


def test_another_participant_with_our_id_is_told_of_from_time_to_time(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await world.join("alice", node="one")
        twin = await world.join("alice", node="two", listen=False)
        await world.join("bob")
        for told in (1, 2):
            for number in range(20):
                await twin.send(b"not mine %d" % number)
                await asyncio.sleep(0.1)
            assert len(world.of("alice", SenderIdConflictEvent)) == told
            await asyncio.sleep(CONFLICT_INTERVAL_MS / 1_000)

    with caplog.at_level(logging.WARNING):
        run_world(scenario)
    assert sum("another live participant uses our sender id" in one.getMessage() for one in caplog.records) == 1
