"""What happens to single segments, for progress bars and pictures: observers are told at once, in the driver."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from shardwire.channel.hooks import ends_process
from shardwire.channel.records import SendRecord
from shardwire.sds.outputs import ContentAcknowledged, Transmit

logger = logging.getLogger(__name__)

SegmentStage = Literal["dispatched", "propagated", "received", "recovered", "acknowledged"]


@dataclass(frozen=True, slots=True)
class SegmentObservation:
    """One thing that happened to one segment.

    Attributes:
        stage: "dispatched": handed to the node. "propagated": the network took it. "received": it arrived, from
            the network or a store, for the first time. "recovered": parity brought it back; it never arrived.
            "acknowledged": `participant` holds it.
        send_id: The send it belongs to; under the "send" rule of message ids the request id of its sender.
        ordinal: Index of a data segment, or the number of data segments plus the index of a parity segment.
        participant: The other side: the sender of what was received or recovered, who acknowledged; our own sender
            id where a segment of ours left.
        attempt: 0 the first time a segment leaves, then the number of the retransmission.
        at_ms: Unix time in ms.
        data_count: Data segments of the send; None where the wire does not say.
        content_count: Data and parity segments; None where the wire does not say.
    """

    stage: SegmentStage
    send_id: str
    ordinal: int
    participant: str
    at_ms: int
    attempt: int = 0
    data_count: int | None = None
    content_count: int | None = None


Observer = Callable[[SegmentObservation], None]


class Timeline:
    """The observers of one channel."""

    def __init__(self) -> None:
        self._observers: list[Observer] = []

    def __bool__(self) -> bool:
        return bool(self._observers)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Adds an observer; the returned function removes it."""
        self._observers.append(observer)

        def remove() -> None:
            if observer in self._observers:
                self._observers.remove(observer)

        return remove

    def note_acknowledged(self, event: ContentAcknowledged, record: SendRecord | None, at_ms: int) -> None:
        """A participant acknowledged a segment of ours."""
        counts = (record.data_count, record.content_count) if record else (None, None)
        self.note(SegmentObservation("acknowledged", event.send_id, event.ordinal, event.by, at_ms, 0, *counts))

    def note_transmit(
        self, stage: SegmentStage, transmit: Transmit, record: SendRecord | None, sender_id: str, at_ms: int
    ) -> None:
        """A segment of ours leaves, or has left."""
        send_id, ordinal = transmit.send_id, transmit.ordinal
        if send_id is not None and ordinal is not None:
            counts = (record.data_count, record.content_count) if record else (None, None)
            self.note(SegmentObservation(stage, send_id, ordinal, sender_id, at_ms, transmit.attempt, *counts))

    def note(self, observation: SegmentObservation) -> None:
        for observer in list(self._observers):
            try:
                observer(observation)
            except BaseException as error:
                if ends_process(error):
                    raise
                logger.error("a segment observer raised %s", type(error).__name__)
