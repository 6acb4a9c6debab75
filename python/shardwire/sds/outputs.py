"""What leaves the SDS machine: messages to transmit, and events.

One or more are made for every message, so they are plain slotted classes: a frozen one takes four times as long to
make. Whoever polls one owns it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from shardwire._native import HistoryEntry


class TransmitKind(Enum):
    """Why a message leaves; the rate limit treats each kind in its own way."""

    FIRST = "first"  # the first content of a send to be dispatched
    FURTHER = "further"  # any other content of a send, for the first time
    RETRANSMISSION = "retransmission"
    SYNC = "sync"
    EPHEMERAL = "ephemeral"
    REPAIR = "repair"

    # Members are singletons: hashing them by identity spares a call for every `in`.
    __hash__ = object.__hash__


@dataclass(slots=True)
class Transmit:
    """An encoded message that must leave, once everything polled by `poll_persist` after it is durable.

    The caller answers with `handle_transmitted` or `handle_transmit_failed`, naming `transmit_id`.

    Attributes:
        transmit_id: Unique for each transmission of one machine.
        kind: Why it leaves.
        message_id: SDS message id.
        payload: The encoded SDS message.
        send_id: The send it belongs to; None for syncs and for repair answers to others' messages.
        ordinal: Its place in that send.
        attempt: 0 the first time, then the number of the retransmission.
    """

    transmit_id: int
    kind: TransmitKind
    message_id: str
    payload: bytes = field(repr=False)
    send_id: str | None = None
    ordinal: int | None = None
    attempt: int = 0


@dataclass(slots=True)
class SdsEvent:
    """Base of what `poll_event` gives."""


@dataclass(slots=True)
class ContentReceived(SdsEvent):
    """A new content of another participant, on receipt: its dependencies may still be missing.

    The caller owes `handle_content_placed` (to which send it belongs) and, once the send's message can be
    reconstructed, `handle_send_reconstructed`.
    """

    message_id: str
    sender_id: str
    content: bytes = field(repr=False)
    # What the id itself says under the "send" rule; None where it says nothing.
    send_id: str | None = None
    ordinal: int | None = None


@dataclass(slots=True)
class EphemeralReceived(SdsEvent):
    """An ephemeral message: no order, no acknowledgement."""

    message_id: str
    sender_id: str
    content: bytes = field(repr=False)


@dataclass(slots=True)
class SendReleased(SdsEvent):
    """A reconstructed send whose every dependency outside itself was delivered or declared lost: deliver it now."""

    sender_id: str
    send_id: str


@dataclass(slots=True)
class ContentAcknowledged(SdsEvent):
    """`by` holds one content of a send of ours; once for each content and participant."""

    send_id: str
    ordinal: int
    message_id: str
    by: str


@dataclass(slots=True)
class ContentPossiblyAcknowledged(SdsEvent):
    """`by`'s bloom filter holds one content of a send of ours; `count` participants' filters do so far."""

    send_id: str
    ordinal: int
    message_id: str
    by: str
    count: int


@dataclass(slots=True)
class SendAcknowledged(SdsEvent):
    """`by` can reconstruct the send: it acknowledged `contents_needed` of its contents. Once a participant."""

    send_id: str
    by: str


@dataclass(slots=True)
class SendGivenUp(SdsEvent):
    """`max_retransmissions` passed for some content and nobody is waited for any longer."""

    send_id: str
    unacknowledged: tuple[int, ...]


@dataclass(slots=True)
class MissingDetected(SdsEvent):
    """Dependencies that are not here: fetch them, by `retrieval_hint` where there is one."""

    entries: tuple[HistoryEntry, ...]


@dataclass(slots=True)
class DependencyLost(SdsEvent):
    """A dependency stayed missing for `timeout_for_lost_messages_ms`; its dependents go on without it."""

    entry: HistoryEntry


@dataclass(slots=True)
class SyncReceived(SdsEvent):
    """A sync message of another participant."""

    sender_id: str


@dataclass(slots=True)
class SenderIdConflict(SdsEvent):
    """A message under our sender id that we never sent."""

    message_id: str


@dataclass(slots=True)
class MessageDropped(SdsEvent):
    """A received message that is not processed: "undecodable", "other-channel", "own", "duplicate", "over-limit"."""

    reason: str
