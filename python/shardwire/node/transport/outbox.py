"""What waits to be published: in order, tried again with growing back-off, and answered for within a minute."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from shardwire.errors import NodeError
from shardwire.node.clock import Clock
from shardwire.node.transport.answers import (
    Ambiguous,
    Answer,
    Passing,
    PassingUntil,
    Permanent,
    Published,
    Restamp,
    fault_of_answer,
)
from shardwire.node.transport.message import OutgoingMessage
from shardwire.node.transport.stamps import Stamps
from shardwire.node.wake import Wake
from shardwire.node.waku_message import encoded_size_bytes
from shardwire.quoting import one_line

logger = logging.getLogger(__name__)

# A channel gives a message up 60 s after it, or a later one, was last heard of; the node speaks first, by this margin.
ANSWER_TIMEOUT_MS = 55_000
RETRY_PAUSE_MS_MIN = 500
RETRY_PAUSE_MS_MAX = 10_000
# From so many failed attempts on a message goes behind the others: it may be the message that the node does not like.
ATTEMPTS_IN_FRONT = 2
# Older stamps are renewed before an attempt: nodes that prove want a time within 20 s, stores file messages by it, and
# a network that has seen the same bytes drops them silently.
STAMP_AGE_MS_MAX = 5_000
MESSAGES_MAX = 1_024
BYTES_MAX = 256 << 20
# So long a message waits for room; a channel waits a minute for its node.
ROOM_TIMEOUT_S = 30


class OutcomeReport(Protocol):
    """Told what became of each message, once."""

    def on_published(self, message: OutgoingMessage, stored: bool) -> None: ...

    def on_failed(
        self, message: OutgoingMessage, error: str, *, permanent: bool = False, retry_after_ms: int | None = None
    ) -> None: ...


class Outbox:
    """Publishes the messages of one node.

    A failure pauses all of them, since it is nearly always the node's or the network's: after the pause the oldest
    goes first. One log line tells that publishing fails, and one that it works again.

    Args:
        name: Names the node in the log.
        publish: Makes one attempt; what it raises counts as `Ambiguous`, and so does what it returns that is no answer.
        clock: Both times.
        stamps: Timestamps.
        size_bytes_max: Tells the largest encoded message at present.
        report: Told every outcome.
        publishes_at_once: Attempts that may be under way at the same time.
        publish_timeout_ms: After which an attempt is cancelled and counts as `Ambiguous`.
    """

    def __init__(
        self,
        name: str,
        publish: Callable[[OutgoingMessage], Awaitable[Answer]],
        clock: Clock,
        stamps: Stamps,
        size_bytes_max: Callable[[], int],
        report: OutcomeReport,
        *,
        publishes_at_once: int,
        publish_timeout_ms: int,
    ) -> None:
        self._name = name
        self._publish = publish
        self._clock = clock
        self._stamps = stamps
        self._size_bytes_max = size_bytes_max
        self._report = report
        self._publishes_at_once = publishes_at_once
        self._publish_timeout_ms = publish_timeout_ms
        # By number, which is the order of acceptance, but for those that failed often.
        self._waiting: deque[OutgoingMessage] = deque()
        self._in_hand: set[OutgoingMessage] = set()
        self._bytes = 0
        self._number = 0
        self._drained = Wake()
        self._turn = asyncio.Lock()
        self._freed = Wake()
        # When a message was last published, and the latest place of one.
        self._published_ms = 0
        self._published_number = 0
        self._pause_until_ms = 0
        self._pause_timer: asyncio.TimerHandle | None = None
        # Until when the node refuses everything, as it said itself, and what it said.
        self._held_until_ms = 0
        self._held_error = ""
        self._failures_in_row = 0
        self._failed_ms = -1
        self._failing_since_ms: int | None = None
        # The loudest level at which this failure was told.
        self._failing_told = logging.NOTSET
        self._expiry_timer: asyncio.TimerHandle | None = None
        # One for each attempt under way; None while none may begin.
        self._attempts: set[asyncio.Task[None]] | None = None
        self.retries = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_hand)

    def start(self) -> None:
        self._attempts = set()
        self._begin_attempts()

    async def wait_for_room(self, size_bytes: int) -> None:
        """Returns when there is room for a message, or nothing waits any more; who came first goes first.

        Many channels share a node: refused, each would come back later and later, while others leave.

        Raises:
            NodeError: There was none for `ROOM_TIMEOUT_S`.
        """
        if self._has_room(size_bytes) and not self._turn.locked():
            return
        limit = asyncio.timeout(ROOM_TIMEOUT_S)
        try:
            async with limit, self._turn:
                while not self._has_room(size_bytes):
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            if not limit.expired():
                raise
            raise NodeError(
                f"send: {len(self)} messages of {self._bytes} bytes wait in {self._name} already, {MESSAGES_MAX} "
                f"messages and {BYTES_MAX} bytes may: send again when some of them are published"
            ) from None

    def _has_room(self, size_bytes: int) -> bool:
        return not len(self) or (len(self) < MESSAGES_MAX and self._bytes + size_bytes <= BYTES_MAX)

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def add(self, message: OutgoingMessage) -> None:
        """Queues a message; while the node refuses everything for too long, it is answered for at once."""
        self._waiting.append(message)
        self._bytes += len(message.envelope.payload)
        held_ms = self._held_until_ms - self._clock.monotonic_ms()
        if held_ms > 0:
            self._fail_held()
        if self._waiting:
            self._set_expiry_timer()
            self._begin_attempts()

    def hold(self, wait_ms: int, error: str) -> None:
        """Publishes nothing for so long; what cannot wait is answered for at once."""
        now_ms = self._clock.monotonic_ms()
        if not self._failures_in_row and self._held_until_ms <= now_ms:
            logger.warning("%s: nothing is published for %d ms: %s", self._name, wait_ms, one_line(error))
        self._held_until_ms, self._held_error = now_ms + wait_ms, error
        self._pause(self._held_until_ms)
        self._fail_held()

    def resume(self) -> None:
        """The network is in reach again: what failed is tried at once."""
        if self._held_until_ms <= self._clock.monotonic_ms():
            self._failures_in_row = 0
            self._pause(0)

    async def drain(self, timeout_ms: int) -> None:
        """Returns when everything is answered for, or after `timeout_ms`."""
        timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._drained.set)
        try:
            self._drained.clear()
            if len(self):
                await self._drained.wait()
        finally:
            timer.cancel()

    async def stop(self, error: str) -> None:
        """Ends the attempts; what is left fails with `error`."""
        attempts, self._attempts = self._attempts or set(), None
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        for timer in (self._pause_timer, self._expiry_timer):
            if timer is not None:
                timer.cancel()
        left = [*sorted(self._in_hand, key=lambda message: message.number), *self._waiting]
        self._in_hand.clear()
        self._waiting.clear()
        for message in left:
            self._fail(message, error)

    # --- attempts ---

    def _begin_attempts(self) -> None:
        """Lets leave what may leave now."""
        attempts = self._attempts
        if attempts is None or self._pause_until_ms > self._clock.monotonic_ms():
            return
        while self._waiting and len(attempts) < self._publishes_at_once:
            message = self._waiting.popleft()
            self._in_hand.add(message)
            task = asyncio.create_task(self._make_attempt(message), name=f"{self._name} outbox {message.number}")
            attempts.add(task)
            task.add_done_callback(self._on_attempt_done)

    def _on_attempt_done(self, task: asyncio.Task[None]) -> None:
        if self._attempts is not None:
            self._attempts.discard(task)
            self._begin_attempts()

    async def _make_attempt(self, message: OutgoingMessage) -> None:
        begun_ms = self._clock.monotonic_ms()
        answer = await self._attempt(message, begun_ms)
        self._in_hand.discard(message)
        self._take(message, answer, begun_ms)

    async def _attempt(self, message: OutgoingMessage, now_ms: int) -> Answer:
        envelope = message.envelope
        if not message.timestamp_ns or now_ms - message.stamped_ms > STAMP_AGE_MS_MAX:
            message.stamp(self._stamps.next_ns(envelope.content_topic), now_ms)
        size_bytes = encoded_size_bytes(envelope, message.timestamp_ns)
        if size_bytes > (limit := self._size_bytes_max()):
            # The limit changed while it waited.
            return Permanent(f"the encoded message is {size_bytes} bytes, the node carries {limit}")
        timeout_ms = max(1, min(self._publish_timeout_ms, self._deadline_ms(message) - now_ms))
        limit_s = asyncio.timeout(timeout_ms / 1000)
        try:
            async with limit_s:
                answer = await self._publish(message)
            fault = fault_of_answer(answer)
            return answer if fault is None else Ambiguous(fault)
        except TimeoutError:
            return Ambiguous(f"no answer within {timeout_ms} ms" if limit_s.expired() else "no answer in time")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Of the transport's own, say of a connection whose reader was cancelled.
            return Ambiguous("the transport cancelled the attempt")
        except Exception as error:
            if not self._failures_in_row:
                logger.exception("%s: publish of the transport raised %s", self._name, type(error).__name__)
            return Ambiguous(f"the transport raised {type(error).__name__}")
        finally:
            message.attempts += 1

    def _take(self, message: OutgoingMessage, answer: Answer, begun_ms: int) -> None:
        if isinstance(answer, Published):
            self._on_published(message, answer)
        elif isinstance(answer, Permanent):
            self._fail(message, answer.error, permanent=True)
        elif isinstance(answer, PassingUntil):
            # The answer is about the node.
            self._requeue(message, attempts_in_front=message.attempts + 1)
            self.hold(max(answer.wait_ms, RETRY_PAUSE_MS_MIN), answer.error)
        else:
            self._on_passing(message, answer, begun_ms)
        self._set_expiry_timer()

    def _on_published(self, message: OutgoingMessage, answer: Published) -> None:
        now_ms = self._clock.monotonic_ms()
        self._published_ms = now_ms
        self._published_number = max(self._published_number, message.number)
        if self._failing_since_ms is not None:
            logger.info("%s: publishing works again after %d ms", self._name, now_ms - self._failing_since_ms)
            self._failing_since_ms = None
            self._failing_told = logging.NOTSET
        self._failures_in_row = 0
        if self._pause_until_ms and self._held_until_ms <= now_ms:
            self._pause(0)
        self._release(message)
        self._report.on_published(message, answer.stored)

    def _on_passing(self, message: OutgoingMessage, answer: Passing | Ambiguous | Restamp, begun_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        message.error = answer.error
        if isinstance(answer, Ambiguous):
            message.may_have_left = True
        elif isinstance(answer, Restamp):
            message.restamps += 1
            message.timestamp_ns = 0
            if answer.attempts_max is not None and message.restamps >= answer.attempts_max:
                self._fail(message, answer.error, permanent=True)
                return
        self.retries += 1
        # What was under way when another attempt was answered says nothing new by failing too.
        if begun_ms >= self._published_ms and (begun_ms > self._failed_ms or not self._failures_in_row):
            if self._failing_since_ms is None:
                self._failing_since_ms = now_ms
            self._tell_failing(answer)
            pause_ms = min(RETRY_PAUSE_MS_MAX, RETRY_PAUSE_MS_MIN << min(self._failures_in_row, 16))
            self._failures_in_row += 1
            self._failed_ms = now_ms
            self._pause(max(self._held_until_ms, now_ms + pause_ms))
        if self._deadline_ms(message) <= now_ms:
            self._fail(message, f"not published within {ANSWER_TIMEOUT_MS} ms: {answer.error}")
        else:
            self._requeue(message)

    def _tell_failing(self, answer: Passing | Ambiguous | Restamp) -> None:
        # Whoever sends before the others came does nothing wrong, and is not warned; whoever still does when they had
        # the time to come has to learn that it reaches nobody. Each is told once.
        is_early = isinstance(answer, Passing) and answer.is_early
        level = logging.INFO if is_early else logging.WARNING
        if level > self._failing_told:
            self._failing_told = level
            logger.log(level, "%s: publishing fails and is tried again: %s", self._name, one_line(answer.error))

    def _requeue(self, message: OutgoingMessage, attempts_in_front: int = ATTEMPTS_IN_FRONT) -> None:
        """Back to its place, before which few can be that are older, or behind the others."""
        if message.attempts >= attempts_in_front:
            self._waiting.append(message)
            return
        index = 0
        while index < len(self._waiting) and self._waiting[index].number < message.number:
            index += 1
        self._waiting.insert(index, message)

    # --- time ---

    def _pause(self, until_ms: int) -> None:
        """Lets nothing leave before; a time that is over lets everything leave."""
        self._pause_until_ms = until_ms
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None
        left_ms = until_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            self._begin_attempts()
        else:
            self._pause_timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._on_pause_over)

    def _on_pause_over(self) -> None:
        self._pause_timer = None
        left_ms = self._pause_until_ms - self._clock.monotonic_ms()
        # Timers and clocks differ by less than a millisecond.
        if left_ms > 0:
            self._pause(self._pause_until_ms)
        else:
            self._begin_attempts()

    def _deadline_ms(self, message: OutgoingMessage) -> int:
        """When a message has to be answered for: as a channel counts, from when it could have come to its turn."""
        since_ms = message.accepted_ms
        if message.number >= self._published_number:
            since_ms = max(since_ms, self._published_ms)
        return since_ms + ANSWER_TIMEOUT_MS

    def _set_expiry_timer(self) -> None:
        if self._expiry_timer is None and self._waiting:
            left_ms = min(map(self._deadline_ms, self._waiting)) - self._clock.monotonic_ms()
            loop = asyncio.get_running_loop()
            self._expiry_timer = loop.call_later(max(1, left_ms) / 1000, self._on_expiry_timer)

    def _on_expiry_timer(self) -> None:
        self._expiry_timer = None
        now_ms = self._clock.monotonic_ms()
        for message in [message for message in self._waiting if self._deadline_ms(message) <= now_ms]:
            self._waiting.remove(message)
            self._fail(message, f"not published within {ANSWER_TIMEOUT_MS} ms: {message.error or 'it had no turn'}")
        self._set_expiry_timer()

    # --- outcomes ---

    def _fail_held(self) -> None:
        """Whatever would have to be answered for before the node takes anything again is answered for now."""
        now_ms = self._clock.monotonic_ms()
        for message in [message for message in self._waiting if self._deadline_ms(message) < self._held_until_ms]:
            self._waiting.remove(message)
            self._fail(message, self._held_error, retry_after_ms=self._held_until_ms - now_ms)

    def _fail(
        self, message: OutgoingMessage, error: str, *, permanent: bool = False, retry_after_ms: int | None = None
    ) -> None:
        self._release(message)
        self._report.on_failed(message, error, permanent=permanent, retry_after_ms=retry_after_ms)

    def _release(self, message: OutgoingMessage) -> None:
        self._bytes -= len(message.envelope.payload)
        self._freed.set()
        if not len(self):
            self._drained.set()
