"""From received contents to whole messages: which send a content belongs to, and what is complete but not released.

A content goes to the reassembler on receipt; SDS is told where it belongs, when its send can be reconstructed and what
became of what was not kept. SDS alone decides when a complete message may be released.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from shardwire._native import HistoryEntry, is_rival, keccak256
from shardwire.channel.records import Records, payload_key, split_payload_key
from shardwire.channel.restored_bytes import StoredSegment
from shardwire.channel.segment_records import SegmentRecords
from shardwire.channel.shared_bytes import SharedBytes
from shardwire.channel.timeline import SegmentObservation, SegmentStage, Timeline
from shardwire.channel.whole_messages import WholeMessages
from shardwire.config import SegmentationConfig
from shardwire.errors import InvalidSegmentError, ShardwireError
from shardwire.peer_log import PeerLog
from shardwire.persistence.protocol import RecordName
from shardwire.quoting import one_line, quoted
from shardwire.sds import MessageChannel, Now
from shardwire.sds.outputs import ContentReceived
from shardwire.segmentation import (
    PayloadReconstructed,
    Reassembler,
    SegmentDiscarded,
    SegmentHeader,
    SegmentStored,
    SetDropped,
    inspect,
    segment,
)

# Reasons of SegmentDiscarded after which the content is of no use, whoever sends it again.
_UNUSABLE = frozenset({"Undecodable", "Invalid", "Oversized", "CountMismatch"})
_HASH_PREFIX_BYTES = 4


class Incoming:
    """Contents that are being put together, and messages that wait for their release.

    Args:
        machine: The SDS machine that hears about every content.
        reassembler: Holds the segments.
        segmentation: How segments are read.
        shared: Keeps the bytes of segments and of whole messages.
        timeline: Told about single segments.
        now: The moment of creation.

    Attributes:
        whole: Complete messages that wait for their causes.
        peer_log: Told what is wrong with what peers send.
        refused: Whether a content was refused for want of room since this was set to False.
    """

    def __init__(
        self,
        machine: MessageChannel,
        reassembler: Reassembler,
        segmentation: SegmentationConfig,
        shared: SharedBytes,
        *,
        timeline: Timeline,
        peer_log: PeerLog,
        now: Now,
    ) -> None:
        self._machine = machine
        self._reassembler = reassembler
        self._segmentation = segmentation
        self._shared = shared
        self._timeline = timeline
        self.peer_log = peer_log
        # What older releases stored of a set says when it was last heard of, and the monotonic clock does not outlive
        # a machine: the reassembler counts from the Unix time of this start, and steps of that clock do not move it.
        self._time_offset_ms = now.epoch_ms - now.monotonic_ms
        self._segment_records = SegmentRecords()
        self.refused = False
        self._given_up: list[HistoryEntry] = []
        self.whole = WholeMessages(shared, peer_log)
        # Keys of partial sets -> what they are called in SDS, to tell it when one is dropped.
        self._partial: dict[bytes, tuple[str, str]] = {}
        names = ("segments_received", "segments_recovered", "segments_discarded", "messages")
        self.counts = dict.fromkeys(names, 0)

    def stats(self) -> dict[str, int]:
        return {**self.counts, **self._reassembler.stats(), "messages_waiting_for_causes": len(self.whole)}

    def has_partial(self) -> bool:
        """Whether some of a message is here that is not whole."""
        return bool(self._partial)

    def on_content(self, event: ContentReceived, wire: bytes, authenticated: bool, now: Now) -> None:
        """Takes a content that SDS received for the first time.

        Args:
            event: The content.
            wire: The SDS message that brought it.
            authenticated: Whether its sender is proven.
            now: The time.
        """
        try:
            header = inspect(event.content, wire_format=self._segmentation.wire_format)
        except InvalidSegmentError as error:
            self._discard(event, wire, "invalid", str(error))
            return
        alone = header is None or header.data_segment_count == 1
        if alone and self._machine.was_rival(event.message_id, event.sender_id, event.content):
            self._machine.handle_content_surplus(event.message_id)
            return
        if (header is None or (alone and not header.is_parity)) and self._is_of_larger(event):
            name = self._machine.handle_content_apart(event.message_id, event.sender_id, event.content, wire)
            event = ContentReceived(name, event.sender_id, event.content, event.send_id, event.ordinal)
        if header is None:
            self._on_whole(event, wire, now)
        else:
            self._on_segment(event, wire, header, authenticated, now)

    def _is_of_larger(self, event: ContentReceived) -> bool:
        """Whether the id is that of a content of a message that has several."""
        if event.send_id is None or is_rival(event.message_id):
            return False
        return bool(event.ordinal) or payload_key(event.sender_id, event.send_id) in self._partial

    def _on_whole(self, event: ContentReceived, wire: bytes, now: Now) -> None:
        """`draft` sends small payloads as they are."""
        send_id = event.message_id if is_rival(event.message_id) else event.send_id or event.message_id
        self._note("received", event, send_id, 0, 1, 1, now)
        self._machine.handle_content_placed(event.message_id, event.sender_id, send_id, 0, 1, 1, now)
        last = (event.message_id, 0, wire)
        told = self.whole.keep(event.sender_id, send_id, event.content, keccak256(event.content), 1, last)
        if told is None:
            self._machine.handle_content_surplus(event.message_id)
            return
        self.counts["messages"] += 1
        self._machine.handle_whole_content(event.message_id, event.sender_id, event.content, wire)
        self._machine.handle_send_reconstructed(event.sender_id, told, 1, now)

    def _on_segment(
        self, event: ContentReceived, wire: bytes, header: SegmentHeader, authenticated: bool, now: Now
    ) -> None:
        data_count, content_count, ordinal = _place(header)
        single = data_count == 1 and content_count == 1
        if single and is_rival(event.message_id):
            # Of the messages that share an id each is one of its own.
            send_id = event.message_id
        else:
            # A peer whose ids name no send: one message for each id where it fits one segment, else for each hash.
            send_id = event.send_id or (event.message_id if single else header.entire_message_hash.hex())
        key = payload_key(event.sender_id, send_id)
        outcome = self._reassembler.receive(
            event.content,
            now_ms=now.monotonic_ms + self._time_offset_ms,
            sender=event.sender_id,
            authenticated=authenticated,
            message_key=key,
        )
        if isinstance(outcome, SegmentDiscarded) and outcome.reason in _UNUSABLE:
            self._discard(event, wire, outcome.reason, outcome.detail)
            return
        if isinstance(outcome, SegmentDiscarded) and outcome.reason == "QuotaExceeded":
            # Not acknowledged: it may come again when there is room.
            self.counts["segments_discarded"] += 1
            self.refused = True
            self._machine.handle_content_refused(event.message_id, wire)
            return
        if isinstance(outcome, SetDropped):
            self._machine.handle_rival_refused(event.message_id)
            self._drop(event.sender_id, send_id, outcome, now)
            return
        released = (event.sender_id, send_id) not in self.whole
        if isinstance(outcome, SegmentDiscarded) and outcome.reason == "AlreadyCompleted" and released:
            # Its id does not say to which message it belongs: to SDS it would begin another that never gets whole.
            self.counts["segments_discarded"] += 1
            self._machine.handle_rival_refused(event.message_id)
            self._machine.handle_content_surplus(event.message_id)
            return
        ordinal = event.ordinal if ordinal is None else ordinal
        self._note("received", event, send_id, ordinal or 0, data_count, content_count, now)
        self.counts["segments_received"] += 1
        self._machine.handle_content_placed(
            event.message_id, event.sender_id, send_id, ordinal, content_count, data_count, now
        )
        if isinstance(outcome, SegmentStored):
            self._partial[key] = (event.sender_id, send_id)
            # Parity of `draft` alone does not tell how much of it there must be.
            if outcome.hash_mismatch or outcome.segments_needed is None:
                self._machine.handle_content_doubted(event.message_id, event.sender_id, send_id)
            index = None if header.is_parity else header.data_segment_index
            payload_hash = header.entire_message_hash
            self._shared.keep_segment(event, send_id, wire, payload_hash, index, authenticated)
        elif isinstance(outcome, PayloadReconstructed):
            self._partial.pop(key, None)
            self._on_reconstructed(event, wire, send_id, header, outcome, now)
        for dropped in self._reassembler.poll_dropped():
            self._on_dropped(dropped, now)

    def _on_reconstructed(
        self,
        event: ContentReceived,
        wire: bytes,
        send_id: str,
        header: SegmentHeader,
        outcome: PayloadReconstructed,
        now: Now,
    ) -> None:
        data_count = outcome.data_segment_count
        content_count = data_count + outcome.parity_segment_count
        recovered = outcome.data_segments_recovered
        self.counts["segments_recovered"] += len(recovered)
        for ordinal in recovered:
            self._note("recovered", event, send_id, ordinal, data_count, content_count, now)
        if outcome.bad_segments:
            name, sender = _prefix(outcome.entire_message_hash), quoted(event.sender_id)
            false = len(outcome.bad_segments)
            self.peer_log.tell("message %s of sender %s: %d false segments were set aside", name, sender, false)
        as_sent = data_count if not recovered and not outcome.bad_segments else None
        last = (event.message_id, None if header.is_parity else header.data_segment_index, wire)
        told = self.whole.keep(event.sender_id, send_id, outcome.payload, outcome.entire_message_hash, as_sent, last)
        if told is None:
            self._machine.handle_content_surplus(event.message_id)
            return
        self.counts["messages"] += 1
        if content_count == 1:
            self._machine.handle_whole_content(event.message_id, event.sender_id, event.content, wire)
        inferred = self._inferred_ids(outcome, header) if recovered and _is_content_id(event) else ()
        self._machine.handle_send_reconstructed(
            event.sender_id, told, content_count, now, inferred_message_ids=inferred
        )

    def _inferred_ids(self, outcome: PayloadReconstructed, header: SegmentHeader) -> tuple[str, ...]:
        """SHA-256 of recovered data segments, made again as the sender made them.

        Possible where the length of a segment's payload is known: that of any data segment but the last, or of parity.
        """
        if not header.is_parity and header.data_segment_index == outcome.data_segment_count - 1:
            return ()
        config = replace(
            self._segmentation,
            segment_size_bytes=max(1, header.segment_payload_length),
            enable_reed_solomon=False,
        )
        try:
            contents = segment(outcome.payload, config)
        except ShardwireError:
            return ()
        if len(contents) != outcome.data_segment_count:
            return ()
        return tuple(hashlib.sha256(contents[index]).hexdigest() for index in outcome.data_segments_recovered)

    def read_ephemeral(self, content: bytes) -> tuple[str, bytes] | None:
        """(hex hash, payload) of an ephemeral content: one whole segment, or bytes as they are; None where neither."""
        try:
            header = inspect(content, wire_format=self._segmentation.wire_format)
        except InvalidSegmentError:
            header = None
            if self._segmentation.wire_format != "draft":
                return None
        payload = content if header is None else header.segment_payload
        payload_hash = keccak256(payload)
        if header is not None and (header.data_segment_count != 1 or header.entire_message_hash != payload_hash):
            return None
        return payload_hash.hex(), payload

    def expire(self, now: Now) -> None:
        """Drops partial sets that nothing new came for (001, 002, timeouts)."""
        for dropped in self._reassembler.expire(now.monotonic_ms + self._time_offset_ms):
            self._on_dropped(dropped, now)

    def next_expiry_ms(self) -> int | None:
        """Monotonic time at which the next partial set expires."""
        expiry_ms = self._reassembler.next_expiry_ms()
        return None if expiry_ms is None else expiry_ms - self._time_offset_ms

    def _on_dropped(self, dropped: SetDropped, now: Now) -> None:
        place = self._partial.pop(dropped.message_key, None) if dropped.message_key is not None else None
        if place is None and dropped.message_key is not None:
            place = split_payload_key(dropped.message_key)
        if place is not None:
            self._drop(*place, dropped, now)

    def _drop(self, sender_id: str, send_id: str, dropped: SetDropped, now: Now) -> None:
        key = payload_key(sender_id, send_id)
        self._partial.pop(key, None)
        for name in self._shared.drop_segments(key, dropped.entire_message_hash):
            # What SDS knows by its log it forgets below.
            self._machine.handle_rival_refused(name)
        name, sender = _prefix(dropped.entire_message_hash), quoted(sender_id)
        self.peer_log.tell("partial message %s of sender %s was dropped: %s", name, sender, dropped.reason)
        # Where it was false or there was no room, it is not taken up again from what is kept.
        keep = dropped.reason == "Expired"
        if self._machine.handle_send_abandoned(sender_id, send_id, now, keep_messages=keep):
            self._given_up.append(HistoryEntry(dropped.entire_message_hash.hex(), None, sender_id))

    def _discard(self, event: ContentReceived, wire: bytes, reason: str, detail: str) -> None:
        self.counts["segments_discarded"] += 1
        # What the reassembler itself found invalid it has told.
        if reason not in ("Invalid", "Undecodable"):
            name, sender = quoted(event.message_id), quoted(event.sender_id)
            self.peer_log.tell("discarded segment %s of sender %s, %s: %s", name, sender, reason, one_line(detail))
        # Not acknowledged: what is of no use here is not delivered.
        self._machine.handle_content_refused(event.message_id, wire, invalid=True)

    def _note(
        self,
        stage: SegmentStage,
        event: ContentReceived,
        send_id: str,
        ordinal: int,
        data_count: int | None,
        content_count: int | None,
        now: Now,
    ) -> None:
        if self._timeline:
            self._timeline.note(
                SegmentObservation(
                    stage,
                    send_id,
                    ordinal,
                    event.sender_id,
                    now.epoch_ms,
                    data_count=data_count,
                    content_count=content_count,
                    message_id=event.message_id if stage == "received" else None,
                )
            )

    def poll_given_up(self) -> list[HistoryEntry]:
        """Partial messages given up since the last call, named by their hash (004, irretrievable-message)."""
        given_up, self._given_up = self._given_up, []
        return given_up

    def poll_persist(self) -> Records:
        reassembler = self._reassembler
        operations = reassembler.poll_persist() if self._segment_records else reassembler.poll_completions()
        return self._segment_records.translate(operations) if operations else {}

    def restore(
        self,
        records: Mapping[RecordName, bytes],
        segments: list[StoredSegment],
        payloads: dict[bytes, bytes],
        queued: set[bytes],
        now: Now,
    ) -> None:
        """Takes back partial sets, and the `PAYLOAD` records of messages that no delivery in `queued` holds."""
        self._reassembler.restore(self._segment_records.restore(records))
        self.whole.restore(payloads, queued)
        for stored in segments:
            self._receive_again(stored, now)

    def _receive_again(self, stored: StoredSegment, now: Now) -> None:
        record = stored.record
        key = payload_key(record.sender_id, record.send_id)
        # As if it came now: while nobody listened nothing could come, and the clock may have been set meanwhile.
        outcome = self._reassembler.receive(
            stored.content,
            now_ms=now.monotonic_ms + self._time_offset_ms,
            sender=record.sender_id,
            authenticated=record.authenticated,
            message_key=key,
        )
        if isinstance(outcome, SegmentStored):
            self._partial[key] = (record.sender_id, record.send_id)
        elif isinstance(outcome, PayloadReconstructed):
            # With a larger work budget than the earlier life had.
            self._partial.pop(key, None)
            payload, payload_hash = outcome.payload, outcome.entire_message_hash
            told = self.whole.keep(record.sender_id, record.send_id, payload, payload_hash, None, None)
            content_count = outcome.data_segment_count + outcome.parity_segment_count
            if told is not None:
                self.counts["messages"] += 1
                self._machine.handle_send_reconstructed(record.sender_id, told, content_count, now)
        elif isinstance(outcome, SetDropped):
            self._drop(record.sender_id, record.send_id, outcome, now)


def _place(header: SegmentHeader) -> tuple[int | None, int | None, int | None]:
    """(data segments, all segments, ordinal) as far as the wire says; ordinal = data index, or k + parity index."""
    data_count = header.data_segment_count or None
    parity_count = header.parity_segment_count
    content_count = data_count + (parity_count or 0) if data_count is not None and parity_count is not None else None
    if not header.is_parity:
        return data_count, content_count, header.data_segment_index
    if data_count is None or header.parity_segment_index is None:
        return data_count, content_count, None
    return data_count, content_count, data_count + header.parity_segment_index


def _prefix(payload_hash: bytes) -> str:
    return payload_hash[:_HASH_PREFIX_BYTES].hex()


def _is_content_id(event: ContentReceived) -> bool:
    """Whether the sender names messages by the SHA-256 of their contents, so that those of recovered segments are known
    when they are computed."""
    return event.message_id == hashlib.sha256(event.content).hexdigest()
