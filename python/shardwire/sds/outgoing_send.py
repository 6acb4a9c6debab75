"""A send of this participant and its contents."""

from __future__ import annotations

from collections import deque

from shardwire.config import SdsConfig

# Back-off ends at this many times the first period.
_BACK_OFF_LIMIT = 8


def resend_period_ms(config: SdsConfig, attempts: int) -> int:
    """How long a content that was sent again `attempts` times waits for its acknowledgement.

    Equal intervals unless the configuration asks for back-off (specification 004, Message retries).
    """
    period_ms = config.acknowledgement_timeout_ms
    if config.back_off_percent == 0:
        return period_ms
    limit_ms = _BACK_OFF_LIMIT * period_ms
    for _ in range(attempts):
        if period_ms >= limit_ms:
            break
        period_ms += max(1, period_ms * config.back_off_percent // 100)
    return min(period_ms, limit_ms)


class OutgoingContent:
    """One content of a send of ours.

    Attributes:
        content: Its bytes until they are encoded.
        wire: The encoded message once it left first; every retransmission is these bytes. Given away when its send is
            finished.
        queued: Whether it waits for its first dispatch.
        attempts: Retransmissions so far.
        resend_ms: When it is sent again; None while queued, in a retransmission, or no longer tracked.
        timer_ms: When its timer in the heap goes off, at `resend_ms` or before; None where it has none.
        possible: Participants whose bloom filter held it.
        in_flight: The transmission that has no answer yet; 0 for none.
    """

    __slots__ = (
        "attempts",
        "content",
        "in_flight",
        "lamport",
        "message_id",
        "ordinal",
        "possible",
        "queued",
        "resend_ms",
        "send",
        "size_bytes",
        "timer_ms",
        "wire",
    )

    def __init__(self, send: OutgoingSend, ordinal: int, message_id: str, content: bytes) -> None:
        self.send = send
        self.ordinal = ordinal
        self.message_id = message_id
        self.content: bytes | None = content
        self.size_bytes = len(content)
        self.wire: bytes | None = None
        self.queued = True
        self.lamport = 0
        self.attempts = 0
        self.resend_ms: int | None = None
        self.timer_ms: int | None = None
        self.possible: set[str] | None = None
        self.in_flight = 0


class OutgoingSend:
    """A group of contents that make one message.

    Attributes:
        history_ids: The causal history that all its contents carry, fixed at its first dispatch; None before.
        history_fields: The same as it stands in each message.
        bloom_filter: The filter that its last content carries, fixed then too; None for none.
        acknowledged: For each participant the set of acknowledged ordinals, as bits.
        complete: Participants that can reconstruct the message.
        dispatched: Contents that left.
        first_ms: When the first one left.
        finished: Delivered to the quorum, given up or cancelled: no longer resent.
    """

    __slots__ = (
        "acknowledged",
        "bloom_filter",
        "complete",
        "contents",
        "contents_needed",
        "dispatched",
        "finished",
        "first_ms",
        "given_up",
        "header_left",
        "history_fields",
        "history_ids",
        "number",
        "queue",
        "send_id",
    )

    def __init__(self, send_id: str, number: int, contents_needed: int) -> None:
        self.send_id = send_id
        self.number = number
        self.contents_needed = contents_needed
        self.contents: list[OutgoingContent] = []
        self.queue: deque[OutgoingContent] = deque()
        self.history_ids: tuple[str, ...] | None = None
        self.history_fields = b""
        self.bloom_filter: bytes | None = None
        self.acknowledged: dict[str, int] = {}
        self.complete: dict[str, None] = {}
        self.dispatched = 0
        self.first_ms = 0
        self.finished = False
        self.given_up = False
        # Header bytes that repair requests may still take.
        self.header_left = 0
