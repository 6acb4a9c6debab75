"""Our sends: which event follows what, in which order, once each, and over a restart."""

from __future__ import annotations

from typing import Any

import pytest

from shardwire.channel.sending.outgoing import OutgoingSends, PendingSend
from shardwire.channel.sending.send_events import bits
from shardwire.channel.storing.records import SEND
from shardwire.config import DeliveredWhen
from shardwire.events import (
    ChannelEvent,
    ChunkAcknowledgedEvent,
    ChunkErrorEvent,
    ChunkSendingEvent,
    ChunkSentEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)


def make(delivered_when: DeliveredWhen = "any", data_count: int = 3, content_count: int = 4) -> OutgoingSends:
    sends = OutgoingSends(delivered_when, lambda kind: True)
    sends.register("s", "r", "m", data_count, content_count)
    return sends


def events(sends: OutgoingSends) -> list[ChannelEvent]:
    return [event for event, _ in sends.poll_events()]


def propagate(sends: OutgoingSends, count: int = 4) -> None:
    for ordinal in range(count):
        sends.on_dispatched("s", ordinal)
        sends.on_propagated("s", ordinal)


def test_chunk_events_are_cumulative_and_name_data_segments_only() -> None:
    sends = make()
    propagate(sends)
    told = events(sends)
    assert [event.chunk_info.chunks for event in told if isinstance(event, ChunkSendingEvent)] == [
        (0,),
        (0, 1),
        (0, 1, 2),
    ]
    assert [event.chunk_info.chunks for event in told if isinstance(event, ChunkSentEvent)] == [(0,), (0, 1), (0, 1, 2)]
    assert {event.chunk_info.total_chunks for event in told if isinstance(event, ChunkSentEvent)} == {3}


def test_acknowledged_progress_follows_the_specified_example() -> None:
    sends = make(data_count=5, content_count=5)
    for ordinal in (0, 1, 3, 2, 4):
        sends.on_acknowledged("s", ordinal, "bob")
    assert [event.chunk_info.chunks for event in events(sends) if isinstance(event, ChunkAcknowledgedEvent)] == [
        (0,),
        (0, 1),
        (0, 1, 3),
        (0, 1, 2, 3),
        (0, 1, 2, 3, 4),
    ]


def test_sent_needs_parity_too_and_comes_once() -> None:
    sends = make()
    propagate(sends, 3)
    assert not any(isinstance(event, MessageSentEvent) for event in events(sends))
    sends.on_propagated("s", 3)
    sends.on_propagated("s", 3)
    assert [event for event in events(sends) if isinstance(event, MessageSentEvent)] == [MessageSentEvent("r", "m")]


def test_delivered_waits_for_sent() -> None:
    sends = make()
    propagate(sends, 3)
    sends.on_reconstructible("s", "bob")
    assert not any(isinstance(event, MessageDeliveredEvent) for event in events(sends))
    sends.on_propagated("s", 3)
    names = [event.name for event in events(sends)]
    assert names == ["reliable:message:sent", "reliable:message:delivered"]


def test_delivered_when_counts_and_names_participants() -> None:
    two = make(2)
    named = make(frozenset({"bob", "carol"}))
    for sends in (two, named):
        propagate(sends)
        sends.on_reconstructible("s", "bob")
        sends.on_reconstructible("s", "bob")
        assert not any(isinstance(event, MessageDeliveredEvent) for event in events(sends))
        sends.on_reconstructible("s", "dave" if sends is two else "carol")
        (delivered,) = [event for event in events(sends) if isinstance(event, MessageDeliveredEvent)]
        assert len(delivered.delivered_to) == 2
        assert sends.pending_count() == 0


def test_what_a_participant_holds_was_propagated() -> None:
    sends = make()
    propagate(sends, 3)
    events(sends)
    sends.on_acknowledged("s", 3, "bob")
    assert [event.name for event in events(sends)] == ["reliable:message:sent"]


def test_who_can_reconstruct_holds_every_chunk() -> None:
    sends = make()
    propagate(sends)
    sends.on_acknowledged("s", 1, "bob")
    events(sends)
    sends.on_reconstructible("s", "bob")
    acknowledged = [event for event in events(sends) if isinstance(event, ChunkAcknowledgedEvent)]
    assert [event.chunk_info.chunks for event in acknowledged] == [(0, 1, 2)]


def test_giving_up_names_the_stage_and_a_late_acknowledgement_still_delivers() -> None:
    sends = make()
    propagate(sends)
    events(sends)
    sends.on_given_up("s", (0, 1))
    sends.on_given_up("s", (0, 1))
    (error,) = events(sends)
    assert isinstance(error, MessageSendErrorEvent)
    assert error.stage == "delivery"
    assert sends.pending_count() == 0
    sends.on_reconstructible("s", "bob")
    assert any(isinstance(event, MessageDeliveredEvent) for event in events(sends))


def test_giving_up_before_everything_left_is_a_dispatch_error() -> None:
    sends = make()
    propagate(sends, 2)
    events(sends)
    sends.on_given_up("s", range(4))
    (error,) = events(sends)
    assert isinstance(error, MessageSendErrorEvent)
    assert error.stage == "dispatch"
    assert error.error.startswith("2 of 4")


def test_an_irrecoverable_segment_fails_the_message() -> None:
    sends = make()
    sends.on_irrecoverable("s", 1, "no proof")
    chunk, message = events(sends)
    assert isinstance(chunk, ChunkErrorEvent)
    assert chunk.chunk_info.chunks == (1,)
    assert isinstance(message, MessageSendErrorEvent)
    assert message.stage == "dispatch"


def test_a_retransmission_that_can_never_be_sent_fails_the_delivery() -> None:
    sends = make()
    propagate(sends)
    events(sends)
    sends.on_irrecoverable("s", 1, "no proof")
    chunk, message = events(sends)
    assert isinstance(chunk, ChunkErrorEvent)
    assert chunk.chunk_info.chunks == (1,)
    assert isinstance(message, MessageSendErrorEvent)
    assert message.stage == "delivery"
    sends.on_irrecoverable("s", 2, "no proof")
    assert events(sends) == []


def test_what_the_network_did_not_take_is_named_when_a_message_is_given_up() -> None:
    sends = make()
    propagate(sends, 1)
    events(sends)
    sends.on_undispatched("s", "busy")
    chunk, message = events(sends)
    assert isinstance(chunk, ChunkErrorEvent)
    assert chunk.chunk_info.chunks == (1, 2)
    assert isinstance(message, MessageSendErrorEvent)
    assert message.stage == "dispatch"


def test_a_message_is_sent_without_the_parity_that_can_never_be_and_a_restart_knows_it() -> None:
    sends = make(content_count=5)
    assert [sends.is_parity("s", ordinal) for ordinal in (2, 3)] == [False, True]
    sends.on_left_out("s", 3)
    propagate(sends, 3)
    assert not any(isinstance(event, MessageSentEvent) for event in events(sends))
    stored = {key: value for (kind, key), value in sends.poll_persist().items() if kind == SEND and value is not None}
    resumed = OutgoingSends("any", lambda kind: True)
    resumed.restore(stored)
    resumed.on_propagated("s", 4)
    assert [type(event) for event in events(resumed)] == [MessageSentEvent]


def test_a_restart_keeps_progress_and_repeats_what_was_not_announced() -> None:
    sends = make()
    propagate(sends)
    sends.on_reconstructible("s", "bob")
    outcomes = [outcome for _, outcome in sends.poll_events() if outcome is not None]
    assert outcomes == [("s", "sent", "r"), ("s", "delivered", "r")]
    sends.on_announced("s", "sent", "r")
    stored = {key: value for (kind, key), value in sends.poll_persist().items() if kind == SEND and value is not None}
    resumed = OutgoingSends("any", lambda kind: True)
    resumed.restore(stored)
    assert [event.name for event in events(resumed)] == ["reliable:message:delivered"]
    record = resumed.of_request("r")
    assert record is not None
    assert record.delivered_to == ["bob"]
    assert resumed.pending_count() == 0


def test_settled_sends_are_forgotten_beyond_the_bound(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("shardwire.channel.sending.outgoing.SETTLED_REMEMBERED_MAX", 2)
    sends = OutgoingSends("any", lambda kind: False)
    for number in range(4):
        sends.register(f"s{number}", f"r{number}", "m", 1, 1)
        sends.on_propagated(f"s{number}", 0)
        sends.on_reconstructible(f"s{number}", "bob")
    assert [number for number in range(4) if f"s{number}" in sends] == [2, 3]
    assert sends.poll_persist()[SEND, b"s0"] is None
    assert sends.of_request("r0") is None


def test_equal_content_shares_one_send_and_its_outcomes() -> None:
    sends = make(data_count=1, content_count=1)
    propagate(sends, 1)
    sends.on_reconstructible("s", "bob")
    events(sends)
    sends.attach("s", "r2")
    assert [getattr(event, "request_id", None) for event in events(sends)] == ["r2", "r2"]


def test_equal_content_shares_the_error_of_a_send_that_failed() -> None:
    sends = make(data_count=1, content_count=1)
    sends.on_irrecoverable("s", 0, "no proof")
    events(sends)
    sends.attach("s", "r2")
    (error,) = events(sends)
    assert isinstance(error, MessageSendErrorEvent)
    assert (error.request_id, error.error, error.stage) == ("r2", "no proof", "dispatch")


def test_of_requests_that_share_a_send_those_are_told_after_a_restart_that_were_not_before_it() -> None:
    sends = make(data_count=1, content_count=1)
    sends.attach("s", "r2")
    propagate(sends, 1)
    assert [outcome for _, outcome in sends.poll_events() if outcome] == [("s", "sent", "r"), ("s", "sent", "r2")]
    sends.on_reconstructible("s", "bob")
    sends.attach("s", "r3")
    for request_id in ("r", "r", "r2", "unknown"):
        sends.on_announced("s", "sent", request_id)
    sends.on_announced("s", "delivered", "r2")
    stored = {key: value for (kind, key), value in sends.poll_persist().items() if kind == SEND and value is not None}
    resumed = OutgoingSends("any", lambda kind: True)
    resumed.restore(stored)
    told = [outcome for _, outcome in resumed.poll_events()]
    assert told == [("s", "delivered", "r"), ("s", "sent", "r3"), ("s", "delivered", "r3")]
    # As an earlier release stored it.
    resumed.restore({b"s": stored[b"s"].replace(b'"sent r3"', b'"sent"')})
    told = [outcome for _, outcome in resumed.poll_events()]
    assert [("s", "sent", request_id) in told for request_id in ("r", "r2", "r3")] == [True] * 3


def test_nothing_waits_to_be_told_of_a_request_that_was_withdrawn() -> None:
    sends = make(data_count=1, content_count=1)
    sends.on_irrecoverable("s", 0, "no proof")
    sends.attach("s", "r2")
    sends.withdraw("r2")
    sends.on_announced("s", "error", "r")
    assert sends.never_left("s")


def test_bits() -> None:
    assert bits(0) == ()
    assert bits(0b1011) == (0, 1, 3)


def test_what_is_pending_may_be_read_while_sends_come_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    outgoing = OutgoingSends("any", lambda kind: False)

    def show(*fields: Any) -> PendingSend:
        # As the loop's thread does it, where it has its turn in the middle of a view.
        outgoing.register(f"send {len(fields)} {len(seen)}", "new", "m", 1, 1)
        seen.append(PendingSend(*fields))
        return seen[-1]

    seen: list[PendingSend] = []
    for number in range(3):
        outgoing.register(f"{number}", f"request {number}", "m", 1, 1)
    monkeypatch.setattr("shardwire.channel.sending.outgoing.PendingSend", show)
    assert [send.request_id for send in outgoing.pending()] == ["request 0", "request 1", "request 2"]
