"""A message on its way out of a node."""

from __future__ import annotations

from dataclasses import dataclass

from shardwire._native import WakuMessage, message_hash
from shardwire.node.protocol import MessageEnvelope, RequestId


@dataclass(slots=True, eq=False)
class OutgoingMessage:
    """What a transport publishes; the outbox changes it between attempts.

    Attributes:
        request_id: Under which its outcome is told.
        envelope: What was handed to the node.
        pubsub_topic: Where its content topic lies (autosharding).
        accepted_ms: When it was accepted, monotonic.
        number: Its place among all messages of the node.
        timestamp_ns: Its stamp, nanoseconds since the Unix epoch; 0 before the first attempt.
        stamped_ms: When it was stamped, monotonic.
        message_hash: Deterministic hash (14/WAKU2-MESSAGE) under this stamp, 32 bytes.
        attempts: How often it was handed to the transport before this time.
        restamps: `Restamp` answers so far.
        may_have_left: Whether an attempt under this stamp was ambiguous: a transport that can find out whether the
            network has it should, before it publishes the same bytes again.
        error: Of the last attempt that failed.
    """

    request_id: RequestId
    envelope: MessageEnvelope
    pubsub_topic: str
    accepted_ms: int
    number: int
    timestamp_ns: int = 0
    stamped_ms: int = 0
    message_hash: bytes = b""
    attempts: int = 0
    restamps: int = 0
    may_have_left: bool = False
    error: str = ""

    def stamp(self, timestamp_ns: int, now_ms: int) -> None:
        """Gives it a timestamp, and so a hash."""
        envelope = self.envelope
        self.timestamp_ns = timestamp_ns
        self.stamped_ms = now_ms
        self.may_have_left = False
        self.message_hash = message_hash(
            pubsub_topic=self.pubsub_topic,
            payload=envelope.payload,
            content_topic=envelope.content_topic,
            meta=envelope.meta or None,
            timestamp_ns=timestamp_ns,
        )

    def encode(self) -> bytes:
        """The WakuMessage on the wire, for transports that carry bytes."""
        envelope = self.envelope
        return WakuMessage(
            payload=envelope.payload,
            content_topic=envelope.content_topic,
            timestamp_ns=self.timestamp_ns,
            meta=envelope.meta or None,
            ephemeral=envelope.ephemeral or None,
        ).encode()
