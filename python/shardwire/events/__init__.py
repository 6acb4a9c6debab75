"""What a channel tells its application. Each class lists in `names` the strings that subscribe to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from shardwire._native import HistoryEntry
from shardwire.events.base import ChannelEvent
from shardwire.events.files import FileFailedEvent, FileProgressEvent, FileReason, FileReceivedEvent
from shardwire.names import MessageId, ReliableSendId, SenderId

__all__ = [
    "CallbackErrorEvent",
    "ChannelEvent",
    "ChunkAcknowledgedEvent",
    "ChunkErrorEvent",
    "ChunkInfo",
    "ChunkPossiblyAcknowledgedEvent",
    "ChunkSendingEvent",
    "ChunkSentEvent",
    "EphemeralDropReason",
    "EphemeralDroppedEvent",
    "FileFailedEvent",
    "FileProgressEvent",
    "FileReason",
    "FileReceivedEvent",
    "IrretrievableMessageEvent",
    "MessageDeliveredEvent",
    "MessageReceivedEvent",
    "MessageSendErrorEvent",
    "MessageSentEvent",
    "NodeFailingEvent",
    "RateLimitEvent",
    "SendErrorStage",
    "SenderIdConflictEvent",
    "WithinReachEvent",
]

SendErrorStage = Literal["dispatch", "delivery"]
EphemeralDropReason = Literal["rate_limit_approached", "rate_limit_reached"]


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """Progress of one message (Waku 004 ChunkInfo): cumulative, data segments only.

    Attributes:
        chunks: Ascending indices of the data segments concerned so far.
        total_chunks: Number of data segments.
    """

    chunks: tuple[int, ...]
    total_chunks: int


@dataclass(frozen=True, slots=True)
class MessageReceivedEvent(ChannelEvent):
    """A complete message of another participant (Logos 003; Waku 004 message-received), in causal order.

    Attributes:
        message: The payload.
        sender_id: Its sender.
        message_id: Hex Keccak-256 of the payload.
        redelivered: True where a crash came after a hand-over of it had begun, so that the application may know it.
    """

    names: ClassVar[tuple[str, ...]] = ("reliable:message:received", "message-received")
    message: bytes
    sender_id: SenderId
    message_id: MessageId
    redelivered: bool = False

    def __repr__(self) -> str:
        # Events are printed and logged, payloads never.
        return (
            f"{type(self).__name__}(message=<{len(self.message)} bytes>, sender_id={self.sender_id!r}, "
            f"message_id={self.message_id!r}, redelivered={self.redelivered})"
        )


@dataclass(frozen=True, slots=True)
class MessageSentEvent(ChannelEvent):
    """Every initially scheduled segment of a send was propagated (Logos 003).

    Attributes:
        request_id: What `send` returned.
        message_id: Hex Keccak-256 of the payload.
    """

    names: ClassVar[tuple[str, ...]] = ("reliable:message:sent",)
    request_id: ReliableSendId
    message_id: MessageId


@dataclass(frozen=True, slots=True)
class MessageDeliveredEvent(ChannelEvent):
    """As many participants as `delivered_when` asks can reconstruct the message (Logos 003). Never before sent.

    Attributes:
        request_id: What `send` returned.
        message_id: Hex Keccak-256 of the payload.
        delivered_to: Who can reconstruct it, as far as they have said so.
    """

    names: ClassVar[tuple[str, ...]] = ("reliable:message:delivered",)
    request_id: ReliableSendId
    message_id: MessageId
    delivered_to: frozenset[SenderId]


@dataclass(frozen=True, slots=True)
class MessageSendErrorEvent(ChannelEvent):
    """A send failed: it could not be dispatched, or delivery was given up after the last retransmission (Logos 003).

    `delivered` follows where those who have it all the same say so later.

    Attributes:
        request_id: What `send` returned.
        message_id: Hex Keccak-256 of the payload.
        error: What happened, for people.
        stage: "dispatch" where it never left, "delivery" where nobody acknowledged it.
    """

    names: ClassVar[tuple[str, ...]] = (
        "reliable:message:send-error",
        "reliable:message:delivery-error",
    )
    request_id: ReliableSendId
    message_id: MessageId
    error: str
    stage: SendErrorStage


@dataclass(frozen=True, slots=True)
class ChunkSendingEvent(ChannelEvent):
    """A chunk, which is a data segment, is being sent (Waku 004 sending-message).

    Attributes:
        message_id: Hex Keccak-256 of the payload.
        request_id: What `send` returned.
        chunk_info: Which data segments this holds for so far.
    """

    names: ClassVar[tuple[str, ...]] = ("sending-message",)
    message_id: MessageId
    request_id: ReliableSendId
    chunk_info: ChunkInfo


@dataclass(frozen=True, slots=True)
class ChunkSentEvent(ChannelEvent):
    """A chunk was sent over the wire (Waku 004 message-sent); told again where it is sent again.

    Attributes:
        message_id: Hex Keccak-256 of the payload.
        request_id: What `send` returned.
        chunk_info: Which data segments this holds for so far.
    """

    names: ClassVar[tuple[str, ...]] = ("message-sent",)
    message_id: MessageId
    request_id: ReliableSendId
    chunk_info: ChunkInfo


@dataclass(frozen=True, slots=True)
class ChunkPossiblyAcknowledgedEvent(ChannelEvent):
    """A bloom filter of another participant holds a chunk (Waku 004 message-possibly-acknowledged).

    Attributes:
        message_id: Hex Keccak-256 of the payload.
        request_id: What `send` returned.
        chunk_info: Which data segments this holds for so far.
    """

    names: ClassVar[tuple[str, ...]] = ("message-possibly-acknowledged",)
    message_id: MessageId
    request_id: ReliableSendId
    chunk_info: ChunkInfo


@dataclass(frozen=True, slots=True)
class ChunkAcknowledgedEvent(ChannelEvent):
    """Another participant acknowledged a chunk (Waku 004 message-acknowledged).

    Attributes:
        message_id: Hex Keccak-256 of the payload.
        request_id: What `send` returned.
        chunk_info: Which data segments this holds for so far.
        by: The participant whose message acknowledged it.
    """

    names: ClassVar[tuple[str, ...]] = ("message-acknowledged",)
    message_id: MessageId
    request_id: ReliableSendId
    chunk_info: ChunkInfo
    by: SenderId


@dataclass(frozen=True, slots=True)
class ChunkErrorEvent(ChannelEvent):
    """A chunk cannot be sent and will not be tried again (Waku 004 sending-message-irrecoverable-error).

    Attributes:
        message_id: Hex Keccak-256 of the payload.
        request_id: What `send` returned.
        chunk_info: Which data segments this holds for so far.
        error: What happened, for people.
    """

    names: ClassVar[tuple[str, ...]] = ("sending-message-irrecoverable-error",)
    message_id: MessageId
    request_id: ReliableSendId
    chunk_info: ChunkInfo
    error: str


# What becomes of our sends; the core knows each by the first of its `names`.
SEND_EVENTS: tuple[type[ChannelEvent], ...] = (
    ChunkSendingEvent,
    ChunkSentEvent,
    ChunkPossiblyAcknowledgedEvent,
    ChunkAcknowledgedEvent,
    ChunkErrorEvent,
    MessageSentEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
)


@dataclass(frozen=True, slots=True)
class IrretrievableMessageEvent(ChannelEvent):
    """A missing message could not be retrieved (Waku 004 irretrievable-message).

    What became irretrievable in one moment is told by one event. It may still come: what follows it goes on without it.

    Attributes:
        history_entry: What the histories of others name it.
        others: Further messages that became irretrievable in the same moment.
    """

    names: ClassVar[tuple[str, ...]] = ("irretrievable-message",)
    history_entry: HistoryEntry
    others: tuple[HistoryEntry, ...] = ()

    @property
    def history_entries(self) -> tuple[HistoryEntry, ...]:
        """Every message that became irretrievable in this moment: `history_entry`, then `others`."""
        return (self.history_entry, *self.others)


@dataclass(frozen=True, slots=True)
class EphemeralDroppedEvent(ChannelEvent):
    """An ephemeral message was not sent because of the rate limit (Waku 004 ephemeral-message-dropped).

    Attributes:
        message_id: Hex Keccak-256 of the payload.
        request_id: What `send_ephemeral` returned.
        reason: Whether the quota was approached (`ephemeral_drop_threshold`) or used up.
    """

    names: ClassVar[tuple[str, ...]] = ("ephemeral-message-dropped",)
    message_id: MessageId
    request_id: ReliableSendId
    reason: EphemeralDropReason


@dataclass(frozen=True, slots=True)
class RateLimitEvent(ChannelEvent):
    """The rate limit holds something back.

    Attributes:
        used: Messages counted in this epoch.
        total: The quota.
        resets_at_ms: Unix time in ms at which the next epoch begins, or more may leave.
        queued: Messages that wait.
        clock_behind_ms: How far the clock stands before an epoch that was counted already: it was set back, and until
            it is there again nothing leaves but acknowledgements, for which there is the reserve; 0 where it was not.
    """

    names: ClassVar[tuple[str, ...]] = ("rate-limit",)
    used: int
    total: int
    resets_at_ms: int
    queued: int
    clock_behind_ms: int = 0


@dataclass(frozen=True, slots=True)
class NodeFailingEvent(ChannelEvent):
    """The node takes nothing: told when it failed several times in a row, and once more when it takes a message again.

    What waits is tried again, later each time; a send that failed too often ends with `MessageSendErrorEvent`.

    Attributes:
        failing: Whether it fails.
        failures: How many times in a row; 0 where it takes messages again.
        error: What it said last; empty where it takes messages again.
    """

    names: ClassVar[tuple[str, ...]] = ("node-failing",)
    failing: bool
    failures: int
    error: str


@dataclass(frozen=True, slots=True)
class WithinReachEvent(ChannelEvent):
    """Whether anybody is heard who lacks messages of ours: told when that changes, and once for all of them.

    While nobody is, a store has them: they are not sent again and do not fail.

    Attributes:
        within_reach: Whether somebody is.
        in_store: Messages that wait in a store; 0 where somebody is.
    """

    names: ClassVar[tuple[str, ...]] = ("within-reach",)
    within_reach: bool
    in_store: int


@dataclass(frozen=True, slots=True)
class SenderIdConflictEvent(ChannelEvent):
    """Another live participant uses our sender id: messages of either may be taken for the other's.

    Attributes:
        sender_id: The id.
    """

    names: ClassVar[tuple[str, ...]] = ("sender-id-conflict",)
    sender_id: SenderId


@dataclass(frozen=True, slots=True)
class CallbackErrorEvent(ChannelEvent):
    """A callback of the application raised.

    Attributes:
        event: What it was called with.
        error: What it raised.
    """

    names: ClassVar[tuple[str, ...]] = ("callback-error",)
    event: ChannelEvent
    error: BaseException
