"""Our sends as the machine of a channel tells of them: which event follows what, while others acknowledge."""

from __future__ import annotations

import random
from dataclasses import replace

from channel_machines import channel_machine
from sds_exchange import at

from shardwire._native import Allowance, BloomFilter, ChannelMachine, OwnSends, SdsMessage
from shardwire.config import ChannelConfig, SegmentationConfig
from shardwire.events import (
    SEND_EVENTS,
    ChannelEvent,
    ChunkAcknowledgedEvent,
    ChunkErrorEvent,
    ChunkPossiblyAcknowledgedEvent,
    ChunkSendingEvent,
    ChunkSentEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from shardwire.segmentation import segment

CONFIG = ChannelConfig.logos()
PLAIN = replace(CONFIG.segmentation, segment_size_bytes=1_024, enable_reed_solomon=False)
SILENT = replace(CONFIG, segmentation=PLAIN, sync=replace(CONFIG.sync, sync_min_interval_ms=0))
WITH_PARITY = replace(PLAIN, enable_reed_solomon=True)
SEND, REQUEST, MESSAGE = "a" * 32, "request", "ab" * 32
# By then whoever has something said so.
SPOKEN_MS = CONFIG.sds.acknowledgement_timeout_ms // 2


def machine(
    sender_id: str, records: dict[tuple[str, bytes], bytes] | None = None, *, config: ChannelConfig | None = None
) -> ChannelMachine:
    made = channel_machine(sender_id, config or SILENT, records)
    # Somebody listens to everything.
    made.listen_for([kind.names[0] for kind in SEND_EVENTS])
    return made


class Conversation:
    """Alice sends a message of some data segments; Bob hears what he is given."""

    def __init__(
        self, data_count: int, segmentation: SegmentationConfig = PLAIN, *, config: ChannelConfig | None = None
    ) -> None:
        self.alice, self.bob = machine("alice", config=config), machine("bob")
        self.sends: OwnSends = self.alice.own_sends()
        contents = segment(random.Random(3).randbytes(900 * data_count), segmentation)
        self.content_count = len(contents)
        self.alice.submit(SEND, REQUEST, MESSAGE, contents, data_count=data_count)
        self.payloads: list[bytes] = []
        self.transmit_ids: list[int] = []
        self.now_ms = 0

    def leave(self, count: int | None = None, *, propagate: int | None = None) -> None:
        """So many segments are handed to the node, and it has taken so many of them."""
        count = self.content_count if count is None else count
        places = Allowance(free=(), left=count, open_left=count, sync_left=count, ephemeral_left=count, repairs=True)
        transmits, *_ = self.alice.poll_transmits([places], at(self.now_ms))
        assert len(transmits) == count
        self.payloads += [transmit.payload for transmit in transmits]
        self.transmit_ids += [transmit.transmit_id for transmit in transmits]
        self.propagate(*range(count if propagate is None else propagate))

    def propagate(self, *ordinals: int) -> None:
        """The network takes these."""
        for ordinal in ordinals:
            self.alice.handle_propagated(self.transmit_ids[ordinal], bytes(32), at(self.now_ms))

    def hear(self, *ordinals: int) -> None:
        """Bob gets these, and Alice what Bob says then."""
        for ordinal in ordinals:
            self.bob.handle_message(self.payloads[ordinal], at(self.now_ms))
        self.bob.poll_events(at(self.now_ms))
        self.now_ms += SPOKEN_MS
        self.bob.handle_timeout(at(self.now_ms))
        while (transmit := self.bob.poll_transmit(at(self.now_ms))) is not None:
            self.bob.handle_transmitted(transmit.transmit_id, bytes(32), at(self.now_ms))
            self.alice.handle_message(transmit.payload, at(self.now_ms))
        self.alice.poll_events(at(self.now_ms))

    def told(self) -> list[ChannelEvent]:
        return [event for event, _ in self.sends.poll_events()]


def test_chunk_events_are_cumulative_and_name_data_segments_only() -> None:
    talk = Conversation(3, WITH_PARITY)
    assert talk.content_count == 4
    talk.leave()
    told = talk.told()
    for kind in (ChunkSendingEvent, ChunkSentEvent):
        chunks = [(event.message_id, event.request_id, event.chunk_info) for event in told if isinstance(event, kind)]
        assert [info.chunks for _, _, info in chunks] == [(0,), (0, 1), (0, 1, 2)]
        assert {(message_id, request_id, info.total_chunks) for message_id, request_id, info in chunks} == {
            (MESSAGE, REQUEST, 3)
        }


def test_acknowledged_progress_follows_the_specified_example() -> None:
    talk = Conversation(5)
    talk.leave()
    for ordinal in (0, 1, 3, 2, 4):
        talk.hear(ordinal)
    told = [event for event in talk.told() if isinstance(event, ChunkAcknowledgedEvent)]
    assert [event.chunk_info.chunks for event in told] == [
        (0,),
        (0, 1),
        (0, 1, 3),
        (0, 1, 2, 3),
        (0, 1, 2, 3, 4),
    ]
    assert {event.by for event in told} == {"bob"}


def test_a_possible_acknowledgement_never_follows_the_final_one() -> None:
    """Bob has the first content; from Carol, whose filter holds both, it is awaited all the same."""
    talk = Conversation(2, config=replace(SILENT, delivered_when=frozenset({"bob", "carol"})))
    talk.leave()
    talk.hear(0)
    told = [event for event in talk.told() if isinstance(event, ChunkAcknowledgedEvent)]
    assert [event.chunk_info.chunks for event in told] == [(0,)]
    bloom = BloomFilter(CONFIG.sds.bloom_filter_capacity, CONFIG.sds.bloom_filter_error_rate)
    for payload in talk.payloads:
        bloom.insert(SdsMessage.decode(payload).message_id)
    heard = SdsMessage(
        sender_id="carol",
        message_id="m1",
        channel_id=talk.alice.channel_id,
        lamport_timestamp=5,
        bloom_filter=bloom.to_bytes(),
    )
    talk.alice.handle_message(heard.encode(), at(talk.now_ms))
    talk.alice.poll_events(at(talk.now_ms))
    possibly = [event for event in talk.told() if isinstance(event, ChunkPossiblyAcknowledgedEvent)]
    assert [event.chunk_info.chunks for event in possibly] == [(1,)]


def test_sent_needs_parity_too_and_comes_once() -> None:
    talk = Conversation(3, WITH_PARITY)
    talk.leave(propagate=3)
    assert not [event for event in talk.told() if isinstance(event, MessageSentEvent)]
    talk.propagate(3)
    talk.propagate(3)
    assert talk.told() == [MessageSentEvent(REQUEST, MESSAGE)]


def test_delivered_waits_for_sent() -> None:
    talk = Conversation(3, WITH_PARITY)
    talk.leave(propagate=3)
    talk.told()
    # Who can reconstruct it speaks for all of it, also for what the node said nothing of.
    talk.hear(0, 1, 2)
    delivered = MessageDeliveredEvent(REQUEST, MESSAGE, frozenset({"bob"}))
    assert [event for event in talk.told() if not isinstance(event, ChunkAcknowledgedEvent)] == [
        MessageSentEvent(REQUEST, MESSAGE),
        delivered,
    ]
    progress = talk.sends.of_request(REQUEST)
    assert progress is not None
    assert (progress.delivered, progress.delivered_to, talk.sends.pending()) == (True, ["bob"], [])


def test_giving_up_names_the_stage_and_a_late_acknowledgement_still_delivers() -> None:
    talk = Conversation(2)
    talk.leave()
    talk.told()
    talk.alice.stop(SEND)
    talk.alice.poll_events(at(0))
    (error,) = talk.told()
    assert isinstance(error, MessageSendErrorEvent)
    assert (error.stage, error.error[:6]) == ("delivery", "2 of 2")
    assert talk.sends.pending_count() == 0
    talk.hear(0, 1)
    assert [event for event in talk.told() if isinstance(event, MessageDeliveredEvent)]


def test_an_irrecoverable_segment_fails_the_message() -> None:
    talk = Conversation(3)
    talk.leave(2, propagate=1)
    talk.told()
    talk.alice.handle_failed(talk.transmit_ids[1], "no proof", at(0), permanent=True)
    chunk, message = talk.told()
    assert isinstance(chunk, ChunkErrorEvent)
    assert (chunk.chunk_info.chunks, chunk.error) == ((1,), "no proof")
    assert message == MessageSendErrorEvent(REQUEST, MESSAGE, "no proof", "dispatch")


def test_an_outcome_that_was_told_is_told_no_more_by_a_later_life() -> None:
    talk = Conversation(1)
    talk.leave()
    talk.hear(0)
    outcomes = [outcome for _, outcome in talk.sends.poll_events() if outcome is not None]
    assert outcomes == [(SEND, "sent", REQUEST), (SEND, "delivered", REQUEST)]
    assert talk.sends.is_unannounced(*outcomes[0])
    talk.sends.on_announced(*outcomes[0])
    assert not talk.sends.is_unannounced(*outcomes[0])
    records = {name: value for name, value in talk.alice.poll_persist().to_dict().items() if value is not None}
    later = machine("alice", records).own_sends()
    assert [outcome for _, outcome in later.poll_events()] == [(SEND, "delivered", REQUEST)]
    progress = later.get(SEND)
    assert progress is not None
    assert (progress.request_ids, progress.sent, progress.propagated_count) == ([REQUEST], True, 1)


def test_names_that_are_none_are_none() -> None:
    sends = Conversation(1).sends
    assert 5 not in sends
    assert "unknown" not in sends
    assert not sends.is_unannounced(SEND, "lost", REQUEST)
    sends.on_announced(SEND, "lost", REQUEST)
