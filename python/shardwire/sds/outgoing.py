"""Sends of this participant: the queue before dispatch, the outgoing buffer after it, and who acknowledged what."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from shardwire._native import HistoryEntry
from shardwire.config import DeliveredWhen, SdsConfig
from shardwire.sds.outputs import (
    ContentAcknowledged,
    ContentPossiblyAcknowledged,
    SdsEvent,
    SendAcknowledged,
    SendGivenUp,
)

# Contents of finished sends that still collect acknowledgements, so that `delivered_to` keeps growing.
FINISHED_CONTENTS_MAX = 4_096
# Participants whose acknowledgements one send keeps.
PARTICIPANTS_PER_SEND_MAX = 1_000
# The back-off between retransmissions: the period grows by half each time, up to eight times the first.
_BACK_OFF_LIMIT = 8


def resend_period_ms(acknowledgement_timeout_ms: int, attempts: int) -> int:
    """How long a content that was sent again `attempts` times waits for its acknowledgement."""
    # Beyond the limit the power is not needed, and it would grow without bound.
    growth = min(int(1.5 ** min(attempts, 16) * 16), _BACK_OFF_LIMIT * 16)
    return acknowledgement_timeout_ms * growth // 16


class OutgoingContent:
    """One content of a send of ours.

    Attributes:
        content: Its bytes until they are encoded.
        wire: The encoded message once it left first; every retransmission is these bytes.
        queued: Whether it waits for its first dispatch.
        attempts: Retransmissions so far.
        resend_ms: When it is sent again; None while queued, in a retransmission, or no longer tracked.
        carries_bloom: Whether the send's filter rides on it.
        requests: Repair requests that ride on it.
        possible: Participants whose bloom filter held it.
        in_flight: The transmission that has no answer yet; 0 for none.
    """

    __slots__ = (
        "attempts",
        "carries_bloom",
        "content",
        "in_flight",
        "lamport",
        "message_id",
        "ordinal",
        "possible",
        "queued",
        "requests",
        "resend_ms",
        "retrieval_hint",
        "send",
        "wire",
    )

    def __init__(self, send: OutgoingSend, ordinal: int, message_id: str, content: bytes) -> None:
        self.send = send
        self.ordinal = ordinal
        self.message_id = message_id
        self.content: bytes | None = content
        self.wire: bytes | None = None
        self.queued = True
        self.lamport = 0
        self.carries_bloom = False
        self.requests: list[HistoryEntry] = []
        self.retrieval_hint: bytes | None = None
        self.attempts = 0
        self.resend_ms: int | None = None
        self.possible: set[str] | None = None
        self.in_flight = 0


class OutgoingSend:
    """A group of contents that make one message.

    Attributes:
        history: Causal history that all its contents carry, fixed at its first dispatch.
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
        "history",
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
        self.history: tuple[HistoryEntry, ...] | None = None
        self.bloom_filter: bytes | None = None
        self.acknowledged: dict[str, int] = {}
        self.complete: dict[str, None] = {}
        self.dispatched = 0
        self.first_ms = 0
        self.finished = False
        self.given_up = False
        # Header bytes that repair requests may still take.
        self.header_left = 0


class OutgoingBuffer:
    """Dispatched, unacknowledged contents, with their timers; sends that wait for dispatch."""

    def __init__(
        self,
        config: SdsConfig,
        delivered_when: DeliveredWhen,
        emit: Callable[[SdsEvent], None],
        on_finished: Callable[[OutgoingContent], None],
    ) -> None:
        self._timeout_ms = config.acknowledgement_timeout_ms
        self._attempts_max = config.max_retransmissions
        self._messages_max = config.outgoing_buffer_messages_max
        self._threshold = config.possible_acks_threshold
        self._delivered_when = delivered_when
        self._quorum = 1 if delivered_when == "any" else delivered_when
        self._emit = emit
        self._on_finished = on_finished
        self.sends: dict[str, OutgoingSend] = {}
        self.by_id: dict[str, OutgoingContent] = {}
        self.unacknowledged: dict[str, OutgoingContent] = {}
        self._review_ids: list[str] | None = []
        self.fresh: deque[OutgoingSend] = deque()
        self.started: deque[OutgoingSend] = deque()
        self._turn_started = True
        self._finished: deque[OutgoingSend] = deque()
        self._finished_contents = 0
        self._timers: list[tuple[int, int, OutgoingContent]] = []
        self._timer_count = 0
        self.due: deque[OutgoingContent] = deque()
        self.queued_bytes = 0
        self.queued_contents = 0
        # For poll_persist.
        self.changed_sends: dict[str, None] = {}
        self.changed_contents: dict[str, None] = {}
        self.new_contents: dict[str, bytes] = {}

    # --- queue ----------------------------------------------------------------------------------

    def add(self, send: OutgoingSend, contents: Sequence[tuple[str, bytes]]) -> None:
        """Queues a send; its message ids are new."""
        for ordinal, (message_id, data) in enumerate(contents):
            content = OutgoingContent(send, ordinal, message_id, data)
            send.contents.append(content)
            send.queue.append(content)
            self.by_id[message_id] = content
            self.changed_contents[message_id] = None
            self.new_contents[message_id] = data
            self.queued_bytes += len(data)
        self.queued_contents += len(send.contents)
        self.sends[send.send_id] = send
        self.changed_sends[send.send_id] = None
        self.fresh.append(send)

    def has_room(self) -> bool:
        return len(self.unacknowledged) < self._messages_max

    def next_queued(self, first: bool, further: bool, monotonic_ms: int) -> OutgoingContent | None:
        """The content to dispatch next, taken from the queue.

        A send goes out whole while it is young, so that what follows it can name it; one that has been under way for
        longer than the acknowledgement timeout shares its turns with sends that have not begun.
        """
        if not self.has_room():
            return None
        started = self._clean(self.started) if further else None
        fresh = self._clean(self.fresh) if first else None
        if started is not None and fresh is not None:
            young = monotonic_ms - started.first_ms < self._timeout_ms
            if young or self._turn_started:
                self._turn_started = young
                fresh = None
            else:
                self._turn_started = True
                started = None
        send = fresh or started
        if send is None:
            return None
        content = send.queue.popleft()
        content.queued = False
        self.queued_contents -= 1
        self.queued_bytes -= len(content.content or content.wire or b"")
        if fresh is not None:
            self.fresh.popleft()
            send.first_ms = monotonic_ms
            if send.queue:
                self.started.append(send)
        elif not send.queue:
            self.started.popleft()
        elif monotonic_ms - send.first_ms >= self._timeout_ms:
            self.started.rotate(-1)
        return content

    def _clean(self, queue: deque[OutgoingSend]) -> OutgoingSend | None:
        while queue:
            if queue[0].queue:
                return queue[0]
            queue.popleft()
        return None

    def put_back(self, content: OutgoingContent) -> None:
        """The first transmission of `content` failed: it waits at the head of its send's queue."""
        send = content.send
        if self.sends.get(send.send_id) is not send:
            return
        self._untrack(content)
        waiting = bool(send.queue)
        send.queue.appendleft(content)
        content.queued = True
        self.changed_contents[content.message_id] = None
        self.queued_contents += 1
        self.queued_bytes += len(content.wire or b"")
        if not waiting:
            self.started.appendleft(send)

    def cancel(self, send: OutgoingSend) -> bool:
        """Drops what was not dispatched and stops resending the rest; False when all of it had left."""
        if not send.queue:
            return False
        for content in send.queue:
            self.queued_contents -= 1
            self.queued_bytes -= len(content.content or content.wire or b"")
        send.queue.clear()
        self._forget(send)
        return True

    # --- dispatch -------------------------------------------------------------------------------

    def on_dispatched(self, content: OutgoingContent, monotonic_ms: int) -> None:
        """`content` leaves now: it stands in the outgoing buffer until it is acknowledged."""
        if not content.send.finished:
            self.unacknowledged[content.message_id] = content
            self._review_ids = None
            self._set_timer(content, monotonic_ms)
        self.changed_contents[content.message_id] = None

    def on_propagated(self, content: OutgoingContent, retrieval_hint: bytes | None, monotonic_ms: int) -> None:
        if retrieval_hint is not None:
            content.retrieval_hint = retrieval_hint
        if content.message_id in self.unacknowledged:
            self._set_timer(content, monotonic_ms)
        self.changed_contents[content.message_id] = None

    def _set_timer(self, content: OutgoingContent, monotonic_ms: int) -> None:
        period = resend_period_ms(self._timeout_ms, content.attempts)
        if content.possible:
            # SDS: possibly acknowledged messages are rebroadcast at a longer period.
            period *= 2
        content.resend_ms = monotonic_ms + period
        self._timer_count += 1
        heappush(self._timers, (content.resend_ms, self._timer_count, content))
        if len(self._timers) > 4 * len(self.unacknowledged) + 64:
            self._timers = [timer for timer in self._timers if timer[2].resend_ms == timer[0]]
            heapify(self._timers)

    def next_deadline(self) -> int | None:
        timers = self._timers
        while timers:
            at_ms, _, content = timers[0]
            if content.resend_ms == at_ms:
                return at_ms
            heappop(timers)
        return None

    def on_timeout(self, monotonic_ms: int) -> None:
        while (at_ms := self.next_deadline()) is not None and at_ms <= monotonic_ms:
            _, _, content = heappop(self._timers)
            content.resend_ms = None
            if not self._wanted(content):
                continue
            if content.attempts < self._attempts_max:
                self.due.append(content)
            else:
                self._give_up(content.send)

    def next_due(self) -> OutgoingContent | None:
        """The content to send again, counted as an attempt."""
        while self.due:
            content = self.due.popleft()
            if content.message_id in self.unacknowledged and self._wanted(content):
                content.attempts += 1
                return content
        return None

    def _wanted(self, content: OutgoingContent) -> bool:
        """Whether one of those the send must reach still lacks `content`."""
        send = content.send
        if send.finished:
            return False
        bit = 1 << content.ordinal
        quorum = self._quorum
        if isinstance(quorum, frozenset):
            return any(not send.acknowledged.get(name, 0) & bit for name in quorum)
        if len(send.acknowledged) < quorum:
            return True
        nearest = sorted(send.acknowledged.values(), key=int.bit_count, reverse=True)[:quorum]
        return any(not held & bit for held in nearest)

    def _give_up(self, send: OutgoingSend) -> None:
        if send.given_up:
            return
        send.given_up = True
        held = 0
        for bits in send.acknowledged.values():
            held |= bits
        missing = tuple(content.ordinal for content in send.contents if not held >> content.ordinal & 1)
        self._finish(send)
        self._emit(SendGivenUp(send.send_id, missing))

    # --- acknowledgement ------------------------------------------------------------------------

    def acknowledge(self, content: OutgoingContent, by: str) -> None:
        """`by` named `content` in a causal history (SDS, Review ACK Status)."""
        send = content.send
        held = send.acknowledged.get(by, 0)
        bit = 1 << content.ordinal
        if held & bit or (not held and len(send.acknowledged) >= PARTICIPANTS_PER_SEND_MAX):
            return
        held |= bit
        self._emit(ContentAcknowledged(send.send_id, content.ordinal, content.message_id, by))
        complete = held.bit_count() >= send.contents_needed
        if complete:
            # Enough to reconstruct: `by` holds the others too, without having received them.
            for other in send.contents:
                if not held >> other.ordinal & 1:
                    self._emit(ContentAcknowledged(send.send_id, other.ordinal, other.message_id, by))
            held = (1 << len(send.contents)) - 1
        send.acknowledged[by] = held
        self.changed_sends[send.send_id] = None
        if complete:
            send.complete[by] = None
            self._emit(SendAcknowledged(send.send_id, by))
            if not send.finished and self._delivered(send):
                self._finish(send)

    def _delivered(self, send: OutgoingSend) -> bool:
        if isinstance(self._quorum, frozenset):
            return self._quorum <= send.complete.keys()
        return len(send.complete) >= self._quorum

    def review_ids(self) -> list[str]:
        """Ids that a received bloom filter is asked for."""
        if self._review_ids is None:
            self._review_ids = list(self.unacknowledged)
        return self._review_ids

    def possibly_acknowledge(self, message_id: str, by: str) -> None:
        """`by`'s filter holds the content; at the threshold of distinct participants it counts as acknowledged."""
        content = self.unacknowledged.get(message_id)
        if content is None:
            return
        send = content.send
        if send.acknowledged.get(by, 0) >> content.ordinal & 1:
            return
        if content.possible is None:
            content.possible = set()
        if by in content.possible or len(content.possible) >= PARTICIPANTS_PER_SEND_MAX:
            return
        content.possible.add(by)
        self.changed_contents[message_id] = None
        count = len(content.possible)
        self._emit(ContentPossiblyAcknowledged(send.send_id, content.ordinal, message_id, by, count))
        if count >= self._threshold:
            for name in sorted(content.possible):
                self.acknowledge(content, name)

    # --- the end of a send ----------------------------------------------------------------------

    def _finish(self, send: OutgoingSend) -> None:
        """Resending stops; acknowledgements are still collected, for a bounded number of sends."""
        send.finished = True
        for content in send.contents:
            self._untrack(content)
            self.changed_contents[content.message_id] = None
            if content.wire is not None:
                self._on_finished(content)
        self.changed_sends[send.send_id] = None
        self._finished.append(send)
        self._finished_contents += len(send.contents)
        while self._finished_contents > FINISHED_CONTENTS_MAX and not self._finished[0].queue:
            oldest = self._finished.popleft()
            self._finished_contents -= len(oldest.contents)
            self._forget(oldest)

    def take_back(self, send: OutgoingSend, monotonic_ms: int) -> None:
        """Restores a stored send; sends come in the order of their numbers."""
        self.sends[send.send_id] = send
        for content in send.contents:
            self.by_id[content.message_id] = content
            if content.queued:
                send.queue.append(content)
                self.queued_contents += 1
                self.queued_bytes += len(content.content or content.wire or b"")
            elif not send.finished:
                self.on_dispatched(content, monotonic_ms)
        if send.queue:
            send.first_ms = monotonic_ms
            (self.started if send.dispatched else self.fresh).append(send)
        if send.finished:
            self._finished.append(send)
            self._finished_contents += len(send.contents)
        self.changed_contents.clear()

    def _untrack(self, content: OutgoingContent) -> None:
        if self.unacknowledged.pop(content.message_id, None) is not None:
            self._review_ids = None
        content.resend_ms = None

    def _forget(self, send: OutgoingSend) -> None:
        self.sends.pop(send.send_id, None)
        self.changed_sends[send.send_id] = None
        for content in send.contents:
            self._untrack(content)
            if self.by_id.get(content.message_id) is content:
                del self.by_id[content.message_id]
            self.changed_contents[content.message_id] = None
