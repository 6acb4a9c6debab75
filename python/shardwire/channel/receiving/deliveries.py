"""Messages released to the application: which waits, which is being handed over, which is done.

At-least-once: the record of a message goes when its hand-over is done, so a crash repeats the one in progress and no
other. At-most-once: it goes before the hand-over begins, so a crash can cost that one and repeats none.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from shardwire._native import payload_key
from shardwire.channel.storing.records import (
    DELIVERY,
    HANDOVER,
    DeliveryRecord,
    Records,
    sequence_key,
)
from shardwire.config import Redelivery
from shardwire.errors import PersistenceError
from shardwire.events import MessageReceivedEvent
from shardwire.persistence.protocol import RecordName


@dataclass(slots=True)
class Delivery:
    """One message for the application; not frozen, as one is made for each.

    Attributes:
        sequence: Its place in the order of deliveries.
        sender_id: Its sender.
        send_id: The send it is; None for an ephemeral message, which is never stored.
        message_id: Hex Keccak-256 of the payload.
        payload: The payload.
        redelivered: Whether a crash interrupted an earlier hand-over.
        released_ms: Monotonic time at which it was queued; None for one of an earlier life.
    """

    sequence: int
    sender_id: str
    send_id: str | None
    message_id: str
    payload: bytes = field(repr=False)
    redelivered: bool = False
    released_ms: int | None = None

    def event(self) -> MessageReceivedEvent:
        return MessageReceivedEvent(self.payload, self.sender_id, self.message_id, self.redelivered)

    def record(self) -> bytes:
        """Its record; not of an ephemeral message."""
        assert self.send_id is not None
        return DeliveryRecord(self.sender_id, self.send_id, self.message_id).encode()


class Deliveries:
    """The queue of deliveries, in order, and the one in progress.

    Args:
        redelivery: What a crash during a hand-over means.
        messages_max: Deliveries from which the channel takes in no more (`is_full`).
        bytes_max: Bytes from which it does not either.
        is_stored: Whether what changes is to be stored; `poll_persist` gives nothing where it is not.
    """

    def __init__(self, redelivery: Redelivery, *, messages_max: int, bytes_max: int, is_stored: bool = True) -> None:
        self._is_stored = is_stored
        self._redelivery = redelivery
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._queue: deque[Delivery] = deque()
        self._current: Delivery | None = None
        self._bytes = 0
        self._next_sequence = 0
        # What is queued is encoded when it is to be stored.
        self._changes: dict[RecordName, Delivery | bytes | None] = {}
        self._delivered: list[bytes] = []

    def is_full(self, held_bytes: int = 0, coming: int = 0) -> bool:
        """Whether the channel should take in no more until the application has caught up.

        Args:
            held_bytes: Complete messages that wait for their causes. Alone they fill nothing: their causes must come.
            coming: Messages that are about to be queued.
        """
        if not self._queue and self._current is None and not coming:
            return False
        return self.waiting + coming >= self._messages_max or self._bytes + held_bytes >= self._bytes_max

    @property
    def waiting(self) -> int:
        """Messages not handed over, the one in progress included."""
        return len(self._queue) + (self._current is not None)

    @property
    def waiting_bytes(self) -> int:
        return self._bytes

    def append(
        self, sender_id: str, send_id: str | None, message_id: str, payload: bytes, released_ms: int | None = None
    ) -> None:
        """Queues a released message; its bytes are stored already, or with the same commit."""
        delivery = Delivery(self._next_sequence, sender_id, send_id, message_id, payload, released_ms=released_ms)
        self._next_sequence += 1
        self._queue.append(delivery)
        self._bytes += len(payload)
        if send_id is not None and self._is_stored:
            self._changes[DELIVERY, sequence_key(delivery.sequence)] = delivery

    def may_begin(self) -> bool:
        """Whether a message waits and none is in progress."""
        return bool(self._queue) and self._current is None

    def begin(self) -> Delivery | None:
        """The next delivery, now in progress: hand it over once `poll_persist` is durable. None where none waits."""
        if self._current is not None or not self._queue:
            return None
        self._current = self._queue.popleft()
        if self._current.send_id is None:
            return self._current
        if self._redelivery == "at-most-once":
            self._delete(self._current)
        elif self._is_stored:
            self._changes[HANDOVER, b""] = sequence_key(self._current.sequence)
        return self._current

    def finish(self) -> None:
        """The delivery in progress is done."""
        done, self._current = self._current, None
        if done is None:
            return
        self._bytes -= len(done.payload)
        if done.send_id is not None and self._redelivery == "at-least-once":
            self._delete(done)
            if self._is_stored:
                self._changes[HANDOVER, b""] = None

    def poll_persist(self) -> Records:
        changes, self._changes = self._changes, {}
        return {name: change.record() if isinstance(change, Delivery) else change for name, change in changes.items()}

    def poll_delivered(self) -> list[bytes]:
        """Keys of the messages whose bytes are needed no more, once what `poll_persist` gives is durable."""
        delivered, self._delivered = self._delivered, []
        return delivered

    def restore(self, deliveries: dict[bytes, bytes], payloads: dict[bytes, bytes], handover: bytes | None) -> None:
        """Takes back the records of kind `DELIVERY` and the `HANDOVER` one; `payloads` are the bytes by key.

        Raises:
            PersistenceError: A delivery has no payload.
        """
        for key, value in deliveries.items():
            record = DeliveryRecord.decode(value)
            payload = payloads.get(payload_key(record.sender_id, record.send_id))
            if payload is None:
                raise PersistenceError(
                    f"message {record.message_id} waits for delivery without its payload: restore the database from "
                    "a copy"
                )
            sequence = int.from_bytes(key, "big")
            interrupted = self._redelivery == "at-least-once" and key == handover
            self._queue.append(
                Delivery(sequence, record.sender_id, record.send_id, record.message_id, payload, interrupted)
            )
            self._bytes += len(payload)
            self._next_sequence = sequence + 1

    def _delete(self, delivery: Delivery) -> None:
        assert delivery.send_id is not None
        if self._is_stored:
            self._changes[DELIVERY, sequence_key(delivery.sequence)] = None
        self._delivered.append(payload_key(delivery.sender_id, delivery.send_id))
