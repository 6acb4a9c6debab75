"""Messages on their way into the channel: refused, waiting for room, or registered with SDS."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from shardwire._native import ChannelMachine, OwnSends, SendProgress
from shardwire.channel.sending.cancellation import NOTHING_STOPPED, Cancellation
from shardwire.channel.sending.message_sizes import too_large_text
from shardwire.channel.sending.segmenter import EMPTY_REFUSED
from shardwire.errors import ConfigError, QueueFullError
from shardwire.sds import Now
from shardwire.sds.outputs import TransmitKind

Settled = Callable[[Exception | None], None]


@dataclass(slots=True)
class Submission:
    """A segmented message on its way into the channel.

    Attributes:
        send_id: Its send.
        request_id: What `send` returns.
        message_id: Hex Keccak-256 of the payload.
        contents: The segments; none of a message that can never be sent.
        data_count: How many of them hold data.
        settled: Called once: with None when the message is durable, with an error where it is refused.
        submitted_ms: Monotonic time at which it came.
        reserve: Parity that can be made on demand.
        form: Wire and code of that parity.
    """

    send_id: str
    request_id: str
    message_id: str
    contents: list[bytes] = field(repr=False)
    data_count: int
    settled: Settled
    submitted_ms: int = 0
    reserve: int = 0
    form: str = ""

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.contents))


class Submissions:
    """The way in.

    Args:
        machine: Where messages are registered.
        own_sends: Told about every one that is.
        queue_bytes_max: Bytes that may wait to leave.
        is_limited: Whether a rate limit holds, under which room may take epochs to come: then what has none is refused.
        ids_are_content: Whether message ids are made of contents, so that equal messages cannot be told apart.
        is_stored: Whether a message has to become durable; one that has not is settled when it is registered.
    """

    def __init__(
        self,
        machine: ChannelMachine,
        own_sends: OwnSends,
        queue_bytes_max: int,
        is_limited: bool,
        ids_are_content: bool,
        is_stored: bool,
    ) -> None:
        self._machine = machine
        self._own_sends = own_sends
        self._queue_bytes_max = queue_bytes_max
        self._is_limited = is_limited
        self._ids_are_content = ids_are_content
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

    def submit(self, submission: Submission, now: Now) -> None:
        """Registers a message, now or when there is room for it."""
        if not submission.contents:
            self._fail(submission, EMPTY_REFUSED)
            return
        size_bytes = submission.size_bytes
        if size_bytes > self._queue_bytes_max or (self._is_limited and not self._fits(size_bytes, self.queued_bytes)):
            submission.settled(self._queue_full(size_bytes, self.queued_bytes + size_bytes))
            return
        self._waiting.append(submission)
        self.register_waiting(now)

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
        request_id = submission.request_id
        self._own_sends.register(request_id, request_id, submission.message_id, submission.data_count, 1)
        self._own_sends.on_irrecoverable(request_id, 0, error)
        self._accept(submission)

    def _accept(self, submission: Submission) -> None:
        self._accepted.append(submission)
        if not self._is_stored:
            submission.settled(None)

    def register_waiting(self, now: Now) -> None:
        """Registers what waits, for as long as there is room."""
        machine = self._machine
        while self._waiting and machine.has_room() and self._fits(self._waiting[0].size_bytes, machine.queued_bytes):
            self._register(self._waiting.popleft(), now)

    def _register(self, submission: Submission, now: Now) -> None:
        size_bytes = max(map(len, submission.contents))
        if self.content_bytes_max is not None and size_bytes > self.content_bytes_max:
            # Segmented for larger messages, before it waited for room.
            self._fail(submission, too_large_text(size_bytes, self.content_bytes_max))
            return
        send_id = submission.send_id
        if send_id in self._own_sends and not self._own_sends.never_left(send_id):
            # The id rule cannot tell this message from one that is remembered: it shares that one's fate.
            self._own_sends.attach(send_id, submission.request_id)
        else:
            try:
                self._machine.send(
                    send_id,
                    submission.contents,
                    now,
                    contents_needed=submission.data_count,
                    reserve=submission.reserve,
                )
            except ConfigError as error:
                submission.settled(self._refusal(error))
                return
            self._own_sends.register(
                send_id,
                submission.request_id,
                submission.message_id,
                submission.data_count,
                len(submission.contents),
                submission.form,
            )
        self._accept(submission)
        self.counts["sends"] += 1

    def _refusal(self, error: ConfigError) -> ConfigError:
        if not self._ids_are_content:
            return error
        return ConfigError(
            "the message holds what this channel has sent or received already, and under "
            "SdsConfig.message_id='content-sha256' that is a duplicate: change the payload, or use message_id='send'"
        )

    def cancel(self, request_id: str, now: Now) -> Cancellation:
        """Lets nothing more of a send leave, first or again; what cannot be taken back is told."""
        for position, submission in enumerate(self._waiting):
            if submission.request_id == request_id:
                # Its room in the queue is free from here on.
                del self._waiting[position]
                return Cancellation(True, len(submission.contents))
        send_id = self._own_sends.send_id_of(request_id)
        send = self._own_sends.get(send_id) if send_id is not None else None
        if send_id is None or send is None or send.delivered or send.error_stage:
            # What may still be queued is parity that nobody needs.
            return NOTHING_STOPPED if send is None else _told(send, stopped=False)
        # Where the send is another request's too, it goes on for that one.
        if not self._own_sends.is_shared(request_id) and not self._machine.withdraw(send_id):
            return _told(send, stopped=False)
        self._own_sends.withdraw(request_id)
        return _told(send, stopped=True)

    def withdraw(self, request_id: str, now: Now) -> None:
        """Forgets a request whose id the caller of `send` never learns; nothing more leaves for it."""
        if self.cancel(request_id, now):
            return
        send_id = self._own_sends.send_id_of(request_id)
        # What becomes of a send that is its own and has left is still told.
        if send_id is not None and (self._own_sends.is_shared(request_id) or not self._machine.knows_send(send_id)):
            self._own_sends.withdraw(request_id)

    def refuse_waiting(self, error: Exception) -> None:
        """Refuses what still waits for room."""
        while self._waiting:
            self._waiting.popleft().settled(error)

    def poll_accepted(self) -> list[Submission]:
        """What was registered since the last call: durable with the next commit."""
        accepted, self._accepted = self._accepted, []
        return accepted


def _told(send: SendProgress, *, stopped: bool) -> Cancellation:
    sent = send.dispatched_count
    return Cancellation(stopped, send.content_count - sent, sent, frozenset(send.delivered_to))
