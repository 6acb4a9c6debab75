"""The one task that owns a channel's state: it takes inputs in turn, commits what they change, and only then acts.

Inputs are queued by any task of the event loop. While a commit is being written in its thread, inputs gather; the next
commit covers them all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from shardwire.channel.awake_clock import AwakeClock
from shardwire.channel.commits import COMMIT_PAUSE_MS_MIN, Commits
from shardwire.channel.engine import Engine
from shardwire.channel.receiving.reception import Arrival
from shardwire.node.wake import Wake
from shardwire.sds import Now

Input = Callable[[Now], None]

# What one commit covers at most, so that the first of many inputs does not wait for the last.
INPUTS_PER_CYCLE_MAX = 256
# Inputs that are applied where they come before the driver has its turn.
AT_ONCE_MAX = 64
# Received messages that are taken in by one call.
BATCH_MESSAGES_MAX = 32
BATCH_BYTES_MAX = 32 << 10
# A batch that took longer is followed by a single message: the sender decides what one costs.
BATCH_MS_MAX = 1
# After this long other tasks have the loop: a cycle takes no further inputs, and yields before its next step.
STEP_MS_MAX = 5
# Received bytes that wait for the driver before readers of the network wait themselves.
QUEUED_INPUT_BYTES_MAX = 16 << 20


class Driver:
    """Drives one engine; `connect` comes before everything else.

    Args:
        engine: The state; nobody else touches it but to read.
        commits: Make durable what cycles give, and carry it out.
        clock: Both times.
        process_task_min_elapse_ms: Least time between two batches of received messages.
    """

    _take_in: Callable[[Sequence[Arrival], Now], None]
    _may_transmit: Callable[[], bool]
    _may_hand_over: Callable[[], bool]

    def __init__(
        self, engine: Engine, commits: Commits, clock: AwakeClock, process_task_min_elapse_ms: int = 0
    ) -> None:
        self._engine = engine
        self._commits = commits
        self._clock = clock
        self._inputs: deque[Input] = deque()
        # Whether a step of a cycle, or an input that is applied at once, is being run.
        self._is_busy = False
        # Inputs that were applied at once since the last cycle began, and when the first of them was.
        self._at_once = 0
        self._at_once_since_ms = 0
        self._received: deque[Arrival | Input] = deque()
        self._received_bytes = 0
        self._batch_max = 1
        # How many of a batch of received messages are left to the next cycle.
        self._batch_left = 0
        self._room = asyncio.Event()
        self._room.set()
        self._wake = Wake()
        self._last_received_ms = -(1 << 62)
        # When the engine has something to do by itself, and a timer that fires then or before.
        self._due_ms: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        # Set while received messages wait for their time: they wake nobody before it.
        self._received_timer: asyncio.TimerHandle | None = None
        self._flushes: list[asyncio.Future[None]] = []
        self._closed = asyncio.Event()
        # Set while somebody waits for the next commit, which comes soon then though others failed; and at the end.
        self._hurry = asyncio.Event()
        self._ended = False
        self._process_task_min_elapse_ms = process_task_min_elapse_ms

    def connect(
        self,
        *,
        take_in: Callable[[Sequence[Arrival], Now], None],
        may_transmit: Callable[[], bool],
        may_hand_over: Callable[[], bool],
    ) -> None:
        """Names the parts that cycles call. They are made after the driver, since they post to it.

        Args:
            take_in: Given received messages, in order.
            may_transmit: Whether anything may be encoded now.
            may_hand_over: Whether the application takes messages now.
        """
        self._take_in = take_in
        self._may_transmit = may_transmit
        self._may_hand_over = may_hand_over

    def now(self) -> Now:
        clock = self._clock
        return Now(clock.monotonic_ms(), clock.epoch_ms())

    def post(self, action: Input) -> None:
        """Queues an input."""
        self._inputs.append(action)
        self._wake.set()

    def post_for_caller(self, action: Input) -> None:
        """Queues an input whose caller waits until it is durable, or cannot be stored."""
        self.post(action)
        self._hurry.set()

    def apply(self, action: Input) -> None:
        """Applies an input at once, after those that are queued, where commits are immediate.

        Elsewhere it is queued for a caller that waits. It is queued too while a cycle runs, and after `AT_ONCE_MAX`
        inputs or `STEP_MS_MAX` without a turn of the driver: other tasks must have the loop.
        """
        if self._is_busy or self._ended or not self._commits.may_commit_at_once:
            self.post_for_caller(action)
            return
        now = self.now()
        if not self._at_once:
            self._at_once_since_ms = now.monotonic_ms
        elif self._at_once >= AT_ONCE_MAX or now.monotonic_ms - self._at_once_since_ms >= STEP_MS_MAX:
            self.post(action)
            return
        self._at_once += 1
        self._wake.set()
        self._is_busy = True
        try:
            if self._inputs and not self._apply_ahead(now):
                self.post(action)
                return
            action(now)
            if self._commits.stores:
                # What leaves, leaves with the driver's turn: many messages then go together.
                self._collect(now, may_transmit=False)
                self._commits.commit_at_once()
                self._commits.carry_out()
        finally:
            self._is_busy = False

    def _apply_ahead(self, now: Now) -> bool:
        """Applies the queued inputs; False where some are left.

        So a caller that sends in a loop does not wait for a turn of the driver each time.
        """
        self._at_once += len(self._inputs)
        try:
            self._apply_queued(now, self._at_once_since_ms + STEP_MS_MAX)
        except BaseException as error:
            # Not the caller's fault: it ends the driver, as if it had been raised there.
            self._inputs.appendleft(partial(_raise, error))
        return not self._inputs

    def post_received(self, received: Arrival | Input) -> Awaitable[None] | None:
        """Queues a received message, or a function that is called when the messages before it are taken in.

        Returns:
            What the reader awaits while there is no room, so that further messages wait in the node; None where there
            is room.
        """
        if self._received_bytes >= QUEUED_INPUT_BYTES_MAX:
            return self._post_with_room(received)
        self._queue_received(received)
        return None

    @property
    def queued(self) -> tuple[int, int]:
        """Received messages that wait, and their bytes."""
        return len(self._received), self._received_bytes

    async def _post_with_room(self, received: Arrival | Input) -> None:
        await self._room.wait()
        self._queue_received(received)

    def _queue_received(self, received: Arrival | Input) -> None:
        self._received.append(received)
        if isinstance(received, Arrival):
            self._received_bytes += len(received.data)
        if self._received_bytes >= QUEUED_INPUT_BYTES_MAX:
            self._room.clear()
        if self._process_task_min_elapse_ms:
            self._wake_for_received()
        else:
            self._wake.set()

    async def flush(self) -> None:
        """Returns when everything posted before is applied, and durable unless the persistence fails."""
        if self._ended:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append(future)
        self._wake.set()
        self._hurry.set()
        await future

    async def run(self) -> None:
        """Cycles until `close`, and then once more so that everything posted before is durable."""
        try:
            await self._run()
        finally:
            self._ended = True
            if self._timer is not None:
                self._timer.cancel()
            self._resolve_flushes(len(self._flushes))

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            self._at_once = 0
            flushes = len(self._flushes)
            self._is_busy = True
            now = self._apply_inputs()
            self._is_busy = False
            closing = self._closed.is_set()
            if self._inputs:
                flushes = 0
            else:
                self._hurry.clear()
            failed_before = self._commits.failures > 0
            await self._let_others_run(now.monotonic_ms)
            collecting_ms = self._clock.monotonic_ms()
            self._is_busy = True
            self._collect(now, may_transmit=True)
            self._is_busy = False
            await self._let_others_run(collecting_ms)
            await self._commits.commit()
            self._is_busy = True
            self._commits.carry_out()
            self._is_busy = False
            if flushes:
                self._resolve_flushes(flushes)
            if closing and (self._commits.failures or not self._inputs):
                return
            if self._commits.failures:
                await self._pause()
                continue
            # After a recovery there is everything to send that failing commits held back.
            received_due = self._received and self._received_due(self._clock.monotonic_ms())
            if self._inputs or failed_before or received_due:
                # Others must run between two cycles, or a busy driver would starve the node it serves.
                await asyncio.sleep(0)
                continue
            if self._received:
                self._wake_for_received()
            now = self.now()
            self._set_timer(self._engine.next_wake_ms(now), now.monotonic_ms)
            await self._wake.wait()

    def close(self) -> None:
        """Ends `run`; what is received and not yet processed is as if lost."""
        self._closed.set()
        self._received.clear()
        self._batch_left = 0
        if self._received_timer is not None:
            self._received_timer.cancel()
        self._room.set()
        self._wake.set()
        self._hurry.set()

    def _resolve_flushes(self, count: int) -> None:
        """Resolves the oldest ones."""
        for future in self._flushes[:count]:
            if not future.done():
                future.set_result(None)
        del self._flushes[:count]

    async def _let_others_run(self, since_ms: int) -> None:
        """Yields between two steps of a cycle where those since `since_ms` took long, as peers can make them."""
        if self._clock.monotonic_ms() - since_ms >= STEP_MS_MAX:
            await asyncio.sleep(0)

    # --- one cycle ---

    def _apply_inputs(self) -> Now:
        now = self.now()
        until_ms = now.monotonic_ms + STEP_MS_MAX
        received = self._received
        self._apply_queued(now, until_ms)
        if received and self._received_due(now.monotonic_ms):
            throttled = self._process_task_min_elapse_ms > 0
            count = self._batch_left or len(received)
            if not throttled:
                count = min(len(received), INPUTS_PER_CYCLE_MAX)
            left = self._apply_received(count, now, until_ms)
            self._batch_left = left if throttled else 0
            if self._received_bytes < QUEUED_INPUT_BYTES_MAX:
                self._room.set()
        self._engine.handle_time(now)
        return now

    def _apply_queued(self, now: Now, until_ms: int) -> None:
        inputs, monotonic_ms = self._inputs, self._clock.monotonic_ms
        for _ in range(min(len(inputs), INPUTS_PER_CYCLE_MAX)):
            inputs.popleft()(now)
            if monotonic_ms() >= until_ms:
                return

    def _apply_received(self, count: int, now: Now, until_ms: int) -> int:
        """Takes in up to `count` received messages, until a time; returns how many of them are left."""
        received, monotonic_ms = self._received, self._clock.monotonic_ms
        at_ms = monotonic_ms()
        while count and at_ms < until_ms:
            batch: list[Arrival] = []
            size_bytes = 0
            most = min(count, self._batch_max)
            while len(batch) < most and size_bytes < BATCH_BYTES_MAX and isinstance(first := received[0], Arrival):
                received.popleft()
                batch.append(first)
                size_bytes += len(first.data)
            if batch:
                count -= len(batch)
                self._received_bytes -= size_bytes
                self._last_received_ms = now.monotonic_ms
                self._take_in(batch, now)
            elif not isinstance(reached := received.popleft(), Arrival):
                count -= 1
                reached(now)
            since_ms, at_ms = at_ms, monotonic_ms()
            took_long = at_ms - since_ms > BATCH_MS_MAX
            self._batch_max = 1 if took_long else min(2 * self._batch_max, BATCH_MESSAGES_MAX)
        return count

    def _received_due(self, monotonic_ms: int) -> bool:
        """004, Performance considerations: received messages are processed no more often than configured.

        A batch that was begun goes on.
        """
        return self._batch_left > 0 or self._received_wait_ms(monotonic_ms) <= 0

    def _received_wait_ms(self, monotonic_ms: int) -> int:
        if not self._process_task_min_elapse_ms:
            return 0
        return self._last_received_ms + self._process_task_min_elapse_ms - monotonic_ms

    def _wake_for_received(self) -> None:
        """Wakes the driver when received messages may be processed next."""
        if self._received_timer is not None:
            return
        wait_ms = self._received_wait_ms(self._clock.monotonic_ms())
        if wait_ms <= 0:
            self._wake.set()
        else:
            loop = asyncio.get_running_loop()
            self._received_timer = loop.call_later(wait_ms / 1000, self._on_received_timer)

    def _on_received_timer(self) -> None:
        self._received_timer = None
        self._wake.set()

    def _collect(self, now: Now, *, may_transmit: bool) -> None:
        # While commits fail nothing new is encoded: it could not leave, and would count against the rate limit.
        may_transmit = may_transmit and self._commits.failures == 0 and self._may_transmit()
        collected = self._engine.collect(now, may_transmit=may_transmit, may_hand_over=self._may_hand_over)
        self._commits.add(collected)

    async def _pause(self) -> None:
        """Waits before the next commit after one that failed: briefly where a caller waits, not while closing."""
        pause_ms = self._commits.pause_ms
        for over, wait_ms in ((self._closed, COMMIT_PAUSE_MS_MIN), (self._hurry, pause_ms - COMMIT_PAUSE_MS_MIN)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), wait_ms / 1000)

    def _set_timer(self, due_ms: int | None, now_ms: int) -> None:
        """Wakes the driver at `due_ms`.

        A timer that fires too early stays: many cycles put off what is due, few let it come.
        """
        self._due_ms = due_ms
        if due_ms is None or (self._timer is not None and self._timer_ms <= due_ms):
            self._clock.expect(None if self._timer is None else self._timer_ms)
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        self._clock.expect(due_ms)
        self._timer = asyncio.get_running_loop().call_later(max(1, due_ms - now_ms) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        if self._due_ms is None or self._due_ms > now_ms:
            self._set_timer(self._due_ms, now_ms)
        else:
            # A cycle follows, until whose end there may be no timer.
            self._clock.expect(now_ms)
            self._wake.set()


def _raise(error: BaseException, now: Now) -> None:
    raise error
