"""Observers of SDS messages: what leaves and arrives, and which message brought which segment."""

from __future__ import annotations

import asyncio
import random

import pytest
from channel_world import World, run_world

from shardwire import ConfigError, SdsObservation, SegmentObservation
from shardwire._native import SegmentSeen
from shardwire.channel import ReliableChannel
from shardwire.channel.engine import Engine
from shardwire.config import ChannelConfig, SegmentationConfig
from shardwire.sds import Now, SdsEvent


def watch(channel: ReliableChannel) -> tuple[list[SdsObservation], list[SegmentObservation]]:
    messages: list[SdsObservation] = []
    segments: list[SegmentObservation] = []
    channel.observe_sds(messages.append)
    channel.observe(segments.append)
    return messages, segments


def test_messages_are_told_with_what_they_follow() -> None:
    config = ChannelConfig.logos(segmentation=SegmentationConfig(segment_size_bytes=64))

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice", config), await world.join("bob", config)
        (of_alice, segments_of_alice), (of_bob, segments_of_bob) = watch(alice), watch(bob)
        first = await alice.send(b"first")
        await alice.delivered(first)
        payload = random.Random(1).randbytes(150)
        await bob.delivered(await bob.send(payload))
        await asyncio.sleep(60)
        [sent] = [one for one in of_alice if one.direction == "sent" and one.kind == "content"]
        [arrived] = [one for one in of_bob if one.message_id == sent.message_id]
        assert (arrived.direction, arrived.sender_id, arrived.size_bytes) == ("received", "alice", sent.size_bytes)
        assert (sent.causal_history, sent.sender_id) == ((), "alice")
        answers = [one for one in of_bob if one.direction == "sent" and one.kind == "content"]
        assert len(answers) == 3
        assert sent.message_id in answers[0].causal_history
        assert answers[0].lamport_timestamp is not None
        assert sent.lamport_timestamp is not None
        assert answers[0].lamport_timestamp > sent.lamport_timestamp
        # A member that has nothing to send says what it received by a sync.
        assert any(one.kind == "sync" and one.sender_id == "alice" for one in of_bob)
        # Each segment names the message that carried it.
        received = {one.message_id: one.ordinal for one in segments_of_alice if one.stage == "received"}
        assert received == {one.message_id: number for number, one in enumerate(answers)}
        acknowledged = {one.message_id for one in segments_of_bob if one.stage == "acknowledged"}
        assert acknowledged == set(received)
        # Nobody is told of messages of its own as if they came.
        assert all((one.direction == "sent") == (one.sender_id == "alice") for one in of_alice)

    run_world(scenario)


def test_an_observer_that_raises_ends_nothing_and_one_that_left_hears_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        heard: list[SdsObservation] = []

        def fail(observation: SdsObservation) -> None:
            raise ValueError(observation)

        bob.observe_sds(fail)
        leave = bob.observe_sds(heard.append)
        await alice.delivered(await alice.send(b"one"))
        count = len(heard)
        assert count
        leave()
        leave()
        await alice.delivered(await alice.send(b"two"))
        assert len(heard) == count
        with pytest.raises(ConfigError, match="observer"):
            bob.observe_sds("nothing")  # type: ignore[arg-type]

    world = run_world(scenario)
    assert world.messages("bob") == [b"one", b"two"]
    # By its name and with where it was, without its text, which may quote what was observed.
    name = f"{test_an_observer_that_raises_ends_nothing_and_one_that_left_hears_nothing.__name__}.<locals>.scenario"
    assert f"SDS message observer {name}.<locals>.fail raised ValueError at {__file__}:" in caplog.text
    assert "SdsObservation" not in caplog.text


def test_messages_of_other_channels_and_what_is_none_are_not_told() -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob")
        messages, _ = watch(bob)
        timeline = bob._session.engine.timeline
        for data in (b"", b"\xff" * 40, b"\x0a\x05alice"):
            timeline.note_arrival(data, 1)
        assert messages == []
        await alice.delivered(await alice.send(b"one"))
        assert messages

    run_world(scenario)


def test_what_one_event_of_the_machine_raises_takes_no_other_one_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect in one answer costs that answer: the message that the same segment made whole is handed over."""
    answer = Engine._on_event
    raised = []

    def raise_once(self: Engine, event: SdsEvent, now: Now) -> None:
        if isinstance(event, SegmentSeen) and not raised:
            raised.append(event)
            raise RuntimeError("planted")
        answer(self, event, now)

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        bob.observe(lambda observation: None)
        monkeypatch.setattr(Engine, "_on_event", raise_once)
        await alice.send(b"whole")
        await asyncio.sleep(5)
        assert bob.stats()["dropped_by_error"] == 1

    assert run_world(scenario).messages("bob") == [b"whole"]
    assert len(raised) == 1
