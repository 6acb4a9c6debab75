"""Messages on their way into the channel: refused, waiting for room, or registered with SDS."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from shardwire._native import ChannelMachine
from shardwire.channel.sending.cancellation import NOTHING_STOPPED, Cancellation
from shardwire.channel.sending.message_sizes import too_large_text
from shardwire.channel.sending.segmenter import EMPTY_REFUSED, Prepared
from shardwire.errors import ConfigError, QueueFullError
from shardwire.sds import TransmitKind

Settled = Callable[[Exception | None], None]


@dataclass(slots=True)
class Submission:
    """A segmented message on its way into the channel.

    Attributes:
        send_id: Its send.
        request_id: What `send` returns.
        prepared: Its segments; none of a message that can never be sent.
        settled: Called once: with None when the message is durable, with an error where it is refused.
        submitted_ms: Monotonic time at which it came.
    """

    send_id: str
    request_id: str
    prepared: Prepared
    settled: Settled
    submitted_ms: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.prepared.contents))


class Submissions:
    """The way in.

    Args:
        machine: Where messages are registered.
        queue_bytes_max: Bytes that may wait to leave.
        is_limited: Whether a rate limit holds, under which room may take epochs to come: then what has none is refused.
        is_stored: Whether a message has to become durable; one that has not is settled when it is registered.
    """

    def __init__(
        self,
        machine: ChannelMachine,
        queue_bytes_max: int,
        is_limited: bool,
        is_stored: bool,
    ) -> None:
        self._machine = machine
        self._queue_bytes_max = queue_bytes_max
        self._is_limited = is_limited
        self._is_stored = is_stored
        self._waiting: deque[Submission] = deque()
        self._accepted: list[Submission] = []
        # The largest content that fits the node's messages; None for those it was segmented for.
        self.content_bytes_max: int | None = None
        self.counts: dict[str, int] = {"sends": 0}

    @property
    def queued_messages(self) -> int:
        """Contents that were never dispatched, and messages that wait for room."""
        waiting = self._machine.waiting()
        return waiting[TransmitKind.FIRST] + waiting[TransmitKind.FURTHER] + len(self._waiting)

    @property
    def queued_bytes(self) -> int:
        queued_bytes = self._machine.queued_bytes
        # Taken in one step: views of a channel are read from other threads too.
        return queued_bytes + sum(entry.size_bytes for entry in tuple(self._waiting)) if self._waiting else queued_bytes

    def submit(self, submission: Submission) -> None:
        """Registers a message, now or when there is room for it."""
        if not submission.prepared.contents:
            self._fail(submission, EMPTY_REFUSED)
            return
        size_bytes = submission.size_bytes
        if size_bytes > self._queue_bytes_max or (self._is_limited and not self._fits(size_bytes, self.queued_bytes)):
            submission.settled(self._queue_full(size_bytes, self.queued_bytes + size_bytes))
            return
        self._waiting.append(submission)
        self.register_waiting()

    def _queue_full(self, size_bytes: int, queued_bytes: int) -> QueueFullError:
        limit = f"RateLimitConfig.queue_bytes_max is {self._queue_bytes_max}"
        if size_bytes > self._queue_bytes_max:
            return QueueFullError(
                f"the segments of the message have {size_bytes} bytes, {limit}, with a rate limit or without: raise "
                "the limit"
            )
        return QueueFullError(
            f"the queue that waits for the rate limit would hold {queued_bytes} bytes, {limit}: wait until earlier "
            "messages left, as `await channel.delivered(...)` does of one, or raise the limit"
        )

    def _fits(self, size_bytes: int, queued_bytes: int) -> bool:
        return queued_bytes + size_bytes <= self._queue_bytes_max

    def _fail(self, submission: Submission, error: str) -> None:
        """Registers that a message can never be sent (004, Irrecoverable errors), a send of its own under any rule."""
        prepared = submission.prepared
        self._machine.refuse(submission.request_id, prepared.message_id, prepared.data_count, error)
        self._accept(submission)

    def _accept(self, submission: Submission) -> None:
        self._accepted.append(submission)
        if not self._is_stored:
            submission.settled(None)

    def register_waiting(self) -> None:
        """Registers what waits, for as long as there is room."""
        machine = self._machine
        while self._waiting and machine.has_room() and self._fits(self._waiting[0].size_bytes, machine.queued_bytes):
            self._register(self._waiting.popleft())

    def _register(self, submission: Submission) -> None:
        prepared = submission.prepared
        size_bytes = max(map(len, prepared.contents))
        if self.content_bytes_max is not None and size_bytes > self.content_bytes_max:
            # Segmented for larger messages, before it waited for room.
            self._fail(submission, too_large_text(size_bytes, self.content_bytes_max))
            return
        try:
            self._machine.submit(
                submission.send_id,
                submission.request_id,
                prepared.message_id,
                prepared.contents,
                data_count=prepared.data_count,
                reserve=prepared.reserve,
            )
        except ConfigError as error:
            submission.settled(error)
            return
        self._accept(submission)
        self.counts["sends"] += 1

    def cancel(self, request_id: str) -> Cancellation:
        """Lets nothing more of a send leave, first or again; what cannot be taken back is told."""
        if (waiting := self._take_out(request_id)) is not None:
            return Cancellation(True, len(waiting.prepared.contents))
        cancelled = self._machine.cancel_request(request_id)
        if cancelled is None:
            return NOTHING_STOPPED
        stopped, send = cancelled
        left = send.dispatched_count
        return Cancellation(stopped, send.content_count - left, left, frozenset(send.delivered_to))

    def withdraw(self, request_id: str) -> None:
        """Forgets a request whose id the caller of `send` never learns; nothing more leaves for it."""
        if not self._take_out(request_id):
            self._machine.withdraw_request(request_id)

    def _take_out(self, request_id: str) -> Submission | None:
        """The message of a request, where it waits for room; its room in the queue is free from here on."""
        for position, submission in enumerate(self._waiting):
            if submission.request_id == request_id:
                del self._waiting[position]
                return submission
        return None

    def refuse_waiting(self, error: Exception) -> None:
        """Refuses what still waits for room."""
        while self._waiting:
            self._waiting.popleft().settled(error)

    def poll_accepted(self) -> list[Submission]:
        """What was registered since the last call: durable with the next commit."""
        accepted, self._accepted = self._accepted, []
        return accepted
