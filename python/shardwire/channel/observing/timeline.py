"""What happens to single segments and SDS messages, for pictures: observers are told at once, in the driver."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

from shardwire._native import SdsMessage, SegmentSeen, SendProgress
from shardwire.channel.hooks import observe_with, tell
from shardwire.config import SdsWireFormat
from shardwire.sds import ContentAcknowledged, Transmit

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
        message_id: Of the SDS message that carries it; None where parity brought it back.
    """

    stage: SegmentStage
    send_id: str
    ordinal: int
    participant: str
    at_ms: int
    attempt: int = 0
    data_count: int | None = None
    content_count: int | None = None
    message_id: str | None = None

    @classmethod
    def of(cls, seen: SegmentSeen, epoch_ms: int) -> Self:
        """What the machine saw of a segment that arrived, or that parity brought back."""
        return cls(
            seen.stage,
            seen.send_id,
            seen.ordinal,
            seen.sender_id,
            epoch_ms,
            data_count=seen.data_count,
            content_count=seen.content_count,
            message_id=seen.message_id,
        )


@dataclass(frozen=True, slots=True)
class SdsObservation:
    """One SDS message that left or arrived, as it says itself: of a peer's nothing is verified.

    Attributes:
        direction: "sent": handed to the node. "received": from the network or a store, once for each transmission.
        kind: "content", "sync" or "ephemeral".
        message_id: Its id; empty where a message has none.
        sender_id: Who made it.
        lamport_timestamp: Its place in the order of all; None where it takes none.
        causal_history: Ids of the messages that it follows.
        repair_request: Ids of the messages that its sender asks others for.
        size_bytes: The SDS message, before encryption.
        at_ms: Unix time in ms.
    """

    direction: Literal["sent", "received"]
    kind: Literal["content", "sync", "ephemeral"]
    message_id: str
    sender_id: str
    lamport_timestamp: int | None
    causal_history: tuple[str, ...]
    repair_request: tuple[str, ...]
    size_bytes: int
    at_ms: int


Observer = Callable[[SegmentObservation], None]
SdsObserver = Callable[[SdsObservation], None]


class Timeline:
    """The observers of one channel.

    Args:
        channel_id: Of the channel; messages of others are not told.
        sender_id: Ours.
        wire_format: Of its SDS messages.
    """

    def __init__(self, channel_id: str, sender_id: str, wire_format: SdsWireFormat) -> None:
        self._channel_id, self._sender_id, self._wire_format = channel_id, sender_id, wire_format
        self._observers: list[Observer] = []
        self._sds_observers: list[SdsObserver] = []

    def __bool__(self) -> bool:
        return bool(self._observers or self._sds_observers)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Adds an observer of segments; the returned function removes it."""
        return observe_with(observer, self._observers)

    def observe_sds(self, observer: SdsObserver) -> Callable[[], None]:
        """Adds an observer of SDS messages; the returned function removes it."""
        return observe_with(observer, self._sds_observers)

    def note_acknowledged(self, event: ContentAcknowledged, send: SendProgress | None, at_ms: int) -> None:
        """A participant acknowledged a segment of ours."""
        counts, message_id = _counts(send), event.message_id
        self.note(
            SegmentObservation("acknowledged", event.send_id, event.ordinal, event.by, at_ms, 0, *counts, message_id)
        )

    def note_transmit(
        self, stage: SegmentStage, transmit: Transmit, send: SendProgress | None, sender_id: str, at_ms: int
    ) -> None:
        """A message of ours leaves, or has left."""
        if stage == "dispatched":
            self._note_sds("sent", transmit.payload, at_ms)
        if transmit.send_id is not None and transmit.ordinal is not None:
            place = transmit.send_id, transmit.ordinal
            counts, attempt, message_id = _counts(send), transmit.attempt, transmit.message_id
            self.note(SegmentObservation(stage, *place, sender_id, at_ms, attempt, *counts, message_id))

    def note(self, observation: SegmentObservation) -> None:
        tell(self._observers, observation, "segment", logger)

    def note_arrival(self, data: bytes, at_ms: int) -> None:
        """A message arrives; told before any segment that it brings."""
        self._note_sds("received", data, at_ms)

    def _note_sds(self, direction: Literal["sent", "received"], data: bytes, at_ms: int) -> None:
        message = SdsMessage.decode(data, self._wire_format) if self._sds_observers else None
        if message is None or message.kind is None or message.channel_id != self._channel_id:
            return
        # Echoes of ours, and what others send in our name.
        if direction == "received" and message.sender_id == self._sender_id:
            return
        observation = SdsObservation(
            direction,
            message.kind,
            message.message_id,
            message.sender_id,
            message.lamport_timestamp,
            tuple(entry.message_id for entry in message.causal_history),
            tuple(entry.message_id for entry in message.repair_request),
            len(data),
            at_ms,
        )
        tell(self._sds_observers, observation, "SDS message", logger)


def _counts(send: SendProgress | None) -> tuple[int | None, int | None]:
    """Data segments of a send of ours, and all of its segments."""
    return (send.data_count, send.content_count) if send else (None, None)
