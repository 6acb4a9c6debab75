"""The events of our own sends: one for each request of a send."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shardwire.channel.storing.records import SendRecord
from shardwire.events import (
    ChannelEvent,
    ChunkAcknowledgedEvent,
    ChunkErrorEvent,
    ChunkInfo,
    ChunkPossiblyAcknowledgedEvent,
    ChunkSendingEvent,
    ChunkSentEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    SendErrorStage,
)

# A send, one of its outcomes, "sent", "delivered" or "error", and one of its requests: unannounced until the
# application was told.
Outcome = tuple[str, str, str]


def unannounced(outcome: str, request_id: str) -> str:
    """How `SendRecord.unannounced` names an outcome that a request waits for."""
    return f"{outcome} {request_id}"


def bits(mask: int) -> tuple[int, ...]:
    """Positions of the set bits, ascending."""
    return tuple(position for position in range(mask.bit_length()) if mask >> position & 1)


class SendEvents:
    """Events in the order in which they happened.

    Args:
        wants: Whether anybody listens to a class of events; chunk events nobody wants are not made.
    """

    def __init__(self, wants: Callable[[type[ChannelEvent]], bool]) -> None:
        self._wants = wants
        self._events: list[tuple[ChannelEvent, Outcome | None]] = []

    def poll(self) -> list[tuple[ChannelEvent, Outcome | None]]:
        """Events since the last call; with the outcome where it stays unannounced until told."""
        events, self._events = self._events, []
        return events

    def add_outcome(
        self, send_id: str, record: SendRecord, outcome: str, request_ids: Iterable[str], *, waits: bool = False
    ) -> None:
        """Each of the events is unannounced until the application was told it.

        Where nobody listens there is nobody to tell, unless it waits until somebody does.
        """
        for request_id in request_ids:
            event: ChannelEvent
            if outcome == "sent":
                event = MessageSentEvent(request_id, record.message_id)
            elif outcome == "delivered":
                event = MessageDeliveredEvent(request_id, record.message_id, frozenset(record.delivered_to))
            else:
                stage: SendErrorStage = "delivery" if record.error_stage == "delivery" else "dispatch"
                event = MessageSendErrorEvent(request_id, record.message_id, record.error, stage)
            self._events.append((event, (send_id, outcome, request_id)))
            if waits or self._wants(type(event)):
                record.unannounced.append(unannounced(outcome, request_id))

    def add_chunks(
        self,
        kind: type[ChunkSendingEvent] | type[ChunkSentEvent] | type[ChunkPossiblyAcknowledgedEvent],
        record: SendRecord,
        mask: int,
    ) -> None:
        """004: `mask` has a bit for each segment that has come so far, those before included."""
        if self._wants(kind):
            info = ChunkInfo(bits(mask & ((1 << record.data_count) - 1)), record.data_count)
            for request_id in record.request_ids:
                self._events.append((kind(record.message_id, request_id, info), None))

    def add_acknowledged(self, record: SendRecord, by: str) -> None:
        if self._wants(ChunkAcknowledgedEvent):
            info = ChunkInfo(bits(record.acknowledged), record.data_count)
            for request_id in record.request_ids:
                self._events.append((ChunkAcknowledgedEvent(record.message_id, request_id, info, by), None))

    def add_chunk_error(self, record: SendRecord, failed: int, error: str) -> None:
        if failed and self._wants(ChunkErrorEvent):
            info = ChunkInfo(bits(failed), record.data_count)
            for request_id in record.request_ids:
                self._events.append((ChunkErrorEvent(record.message_id, request_id, info, error), None))
