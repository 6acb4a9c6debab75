"""An asyncio event loop in virtual time: when nothing is ready it jumps to the next timer instead of waiting for it.

Code that takes its time from the loop and its `VirtualClock` runs unchanged, as fast as the processor allows, and the
same inputs give the same run. Nothing may come from outside: no sockets, no other threads.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, NoReturn, TypeVar

from shardwire.config.checks import check_integer, check_timeout_ms
from shardwire.errors import ConfigError
from shardwire.node.clock import NANOSECONDS_PER_MS

T = TypeVar("T")

# 2026-01-01T00:00:00Z
START_EPOCH_MS = 1_767_225_600_000
# Nanoseconds of Unix time are signed 64-bit values; this leaves two centuries for the run.
START_EPOCH_MS_MAX = 1 << 41
# Callbacks that keep scheduling one another without any time passing would otherwise never end.
STEPS_PER_INSTANT_MAX = 1_000_000

_NANOSECONDS_PER_SECOND = 1_000_000_000
_TASKS_NAMED_MAX = 20
# Cancelled timers are swept out when they are more than this and more than half of all.
_CANCELLED_MIN = 100


class VirtualTimeError(RuntimeError):
    """The simulated program cannot go on: a deadlock, no passage of time, or the time limit."""


class VirtualClock:
    """The clocks of a virtual-time loop; several may share a loop, each with its own Unix time.

    Args:
        loop: The loop whose time this clock shows; None for the running one.
        start_epoch_ms: Unix time at the loop's time 0.

    Raises:
        ConfigError: The running loop is no `VirtualTimeLoop`.
    """

    def __init__(self, loop: VirtualTimeLoop | None = None, *, start_epoch_ms: int = START_EPOCH_MS) -> None:
        running = _running_loop() if loop is None else loop
        if not isinstance(running, VirtualTimeLoop):
            raise ConfigError(f"VirtualClock on a {type(running).__name__}: make it inside of run_virtual")
        check_integer("start_epoch_ms", start_epoch_ms, 0, START_EPOCH_MS_MAX)
        self._loop = running
        self._start_epoch_ns = start_epoch_ms * NANOSECONDS_PER_MS

    def monotonic_ms(self) -> int:
        """Virtual milliseconds since the loop was made."""
        return self._loop.elapsed_ns // NANOSECONDS_PER_MS

    def epoch_ms(self) -> int:
        """Virtual Unix time in milliseconds; `step` moves it."""
        return (self._start_epoch_ns + self._loop.elapsed_ns) // NANOSECONDS_PER_MS

    def epoch_ns(self) -> int:
        """Virtual Unix time in nanoseconds; `step` moves it."""
        return self._start_epoch_ns + self._loop.elapsed_ns

    def step(self, delta_ms: int) -> None:
        """Steps Unix time by `delta_ms`, forward or back, as an operator or NTP does; timers do not notice."""
        self._start_epoch_ns += delta_ms * NANOSECONDS_PER_MS


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError("VirtualClock without an event loop: make it inside of run_virtual, or give a loop") from None


_NO_SOCKETS = "virtual time has no sockets: use a MemoryNetwork, or asyncio.run"


class _Handle(asyncio.Handle):
    """As the base class makes it, without looking for a debug mode: one is made for every step of every task."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _Timer(_Handle, asyncio.TimerHandle):
    """The same for timers; it stands in the heap of its loop while `_scheduled`."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        # As the base class does; spares the call.
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = True


class VirtualTimeLoop(asyncio.BaseEventLoop):
    """The loop. `time()` starts at 0 and moves only when every ready callback has run.

    Timers of one moment fire in the order in which they were set.

    `run_in_executor`, and so `asyncio.to_thread`, runs the function on the loop itself once `executor_delay_ms` has
    passed, so that code which hands work to a thread in real time stays deterministic.

    Args:
        start_epoch_ms: Unix time of `clock` at the start.
        limit_ms: Virtual time after which the run fails; None for no limit.
        executor_delay_ms: Called for each piece of executor work: how long it takes. None for 0.

    Attributes:
        elapsed_ns: Its time in whole nanoseconds, so that the rounding errors of many timers do not add up.

    Raises:
        ConfigError: An argument is of a wrong kind, or out of its limits.
    """

    # What the base class keeps and its `run_forever` looks at.
    _ready: deque[asyncio.Handle]
    _stopping: bool
    # True until the base class has made it, so that one whose arguments were refused is not taken for an open one.
    _closed: bool = True
    _debug: bool

    def __init__(
        self,
        *,
        start_epoch_ms: int = START_EPOCH_MS,
        limit_ms: int | None = None,
        executor_delay_ms: Callable[[], int] | None = None,
    ) -> None:
        check_integer("start_epoch_ms", start_epoch_ms, 0, START_EPOCH_MS_MAX)
        if limit_ms is not None:
            check_timeout_ms("limit_ms", limit_ms, "None or ", minimum=1)
        given: object = executor_delay_ms
        if given is not None and not callable(given):
            what = type(given).__name__
            raise ConfigError(f"executor_delay_ms is a {what}: it must be a function that gives milliseconds, or None")
        super().__init__()
        self.elapsed_ns = 0
        self._limit_ns = None if limit_ms is None else limit_ms * NANOSECONDS_PER_MS
        # Each with the nanosecond in which it is due.
        self._timers: list[tuple[int, int, _Timer]] = []
        self._timer_numbers = count()
        self._timers_cancelled = 0
        self._steps_at_this_instant = 0
        self._executor_delay_ms = executor_delay_ms
        self.clock = VirtualClock(self, start_epoch_ms=start_epoch_ms)

    def add_reader(self, *_: object) -> NoReturn:
        """Refuses whoever reads of a socket, writes to one or connects it: no packet comes in virtual time.

        Raises:
            NotImplementedError: Always, as loops of asyncio do that lack a call; it says what to use instead.
        """
        raise NotImplementedError(_NO_SOCKETS)

    add_writer = add_reader  # type: ignore[assignment]
    sock_connect = add_reader  # type: ignore[assignment]

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.elapsed_ns / _NANOSECONDS_PER_SECOND

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As of any event loop: `callback` runs in this moment of virtual time, after what is ready already."""
        if self._closed or self._debug:
            return super().call_soon(callback, *args, context=context)
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As of any event loop, `delay` virtual seconds from now."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        due_ns = self.elapsed_ns + round(delay * _NANOSECONDS_PER_SECOND)
        timer = _Timer(due_ns / _NANOSECONDS_PER_SECOND, callback, args, self, context)
        heappush(self._timers, (due_ns, next(self._timer_numbers), timer))
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As of any event loop, when virtual time has reached `when` seconds."""
        if self._closed:
            raise RuntimeError("Event loop is closed")
        due_ns = round(when * _NANOSECONDS_PER_SECOND)
        timer = _Timer(due_ns / _NANOSECONDS_PER_SECOND, callback, args, self, context)
        heappush(self._timers, (due_ns, next(self._timer_numbers), timer))
        return timer

    def _run_once(self) -> None:
        """Runs until the loop is to stop: for the base class, which asks after each call, one long step."""
        ready, timers = self._ready, self._timers
        while True:
            if not (ready or self._stopping):
                self._jump()
            elif self._steps_at_this_instant >= STEPS_PER_INSTANT_MAX:
                self._steps_at_this_instant = 0
                raise VirtualTimeError(
                    f"no time passed in {STEPS_PER_INSTANT_MAX} steps at {self.time():.3f} s: {self._waiting_tasks()}"
                )
            self._steps_at_this_instant += 1
            elapsed_ns = self.elapsed_ns
            while timers and timers[0][0] <= elapsed_ns:
                # As `_pop_timer` does; spares the call.
                timer = heappop(timers)[2]
                timer._scheduled = False
                if timer._cancelled:
                    self._timers_cancelled -= 1
                else:
                    ready.append(timer)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                try:
                    handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    message = f"Exception in callback {handle!r}"
                    self.call_exception_handler({"message": message, "exception": error, "handle": handle})
            if self._stopping:
                return

    def _jump(self) -> None:
        """Moves time to the next timer."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            self._pop_timer()
        if not timers:
            raise VirtualTimeError(f"deadlock at {self.time():.3f} s: no timer is set and {self._waiting_tasks()}")
        due_ns = timers[0][0]
        if due_ns <= self.elapsed_ns:
            return
        self._steps_at_this_instant = 0
        self.elapsed_ns = due_ns
        if self._limit_ns is not None and due_ns > self._limit_ns:
            # Lifted, so that the cancelled tasks can finish.
            limit_s, self._limit_ns = self._limit_ns / _NANOSECONDS_PER_SECOND, None
            raise VirtualTimeError(f"the run did not end within {limit_s:.3f} s of virtual time")

    def _pop_timer(self) -> _Timer:
        timer = heappop(self._timers)[2]
        timer._scheduled = False
        if timer._cancelled:
            self._timers_cancelled -= 1
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by a timer that is cancelled."""
        if not (isinstance(handle, _Timer) and handle._scheduled):
            return
        self._timers_cancelled += 1
        if self._timers_cancelled > _CANCELLED_MIN and 2 * self._timers_cancelled > len(self._timers):
            # In place: a step of the loop holds on to the list.
            self._timers[:] = [entry for entry in self._timers if not entry[2]._cancelled]
            heapify(self._timers)
            # This one is marked as cancelled only when we return.
            self._timers_cancelled = 1

    def _write_to_self(self) -> None:
        """Nothing to wake: the loop never sleeps."""

    def _waiting_tasks(self) -> str:
        names = sorted(
            f"{task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')})" for task in asyncio.all_tasks(self)
        )
        named = ", ".join(names[:_TASKS_NAMED_MAX])
        return f"{len(names)} tasks wait: {named}{', ...' if len(names) > _TASKS_NAMED_MAX else ''}"

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs `func` at once, in this thread: another thread would return at a time that no seed decides."""
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except StopIteration as error:
                future.set_exception(RuntimeError(f"executor work raised {error!r}"))
            except BaseException as error:  # the awaiter's to handle, as with a thread
                future.set_exception(error)
            else:
                future.set_result(result)

        delay_ms = self._executor_delay_ms() if self._executor_delay_ms is not None else 0
        self.call_later(delay_ms / 1000, run)
        return future


def run_virtual(
    coroutine: Coroutine[Any, Any, T],
    *,
    start_epoch_ms: int = START_EPOCH_MS,
    limit_ms: int | None = None,
    executor_delay_ms: Callable[[], int] | None = None,
) -> T:
    """Runs `coroutine` to its end in virtual time, as `asyncio.run` does in real time, and returns its result.

    Inside, `running_clock()` gives the loop's `VirtualClock`.

    Args:
        coroutine: The whole simulated program.
        start_epoch_ms: Unix time at the start.
        limit_ms: Virtual time after which the run fails; None for no limit.
        executor_delay_ms: How long each piece of executor work takes.

    Raises:
        VirtualTimeError: Every task waits for something that no timer will bring, time stands still for
            `STEPS_PER_INSTANT_MAX` steps, or `limit_ms` passed.
        ConfigError: `coroutine` is none, or another argument is of a wrong kind or out of its limits.
        RuntimeError: An event loop runs already, as in a notebook.
    """
    given: object = coroutine
    if not asyncio.iscoroutine(given):
        hint = ": call it, as in run_virtual(main())" if inspect.iscoroutinefunction(given) else ""
        raise ConfigError(f"coroutine is a {type(given).__name__}: it must be what an async function gives{hint}")
    if asyncio._get_running_loop() is not None:
        coroutine.close()
        raise RuntimeError(
            "run_virtual cannot be called from a running event loop: await the coroutine, or in a notebook, whose loop "
            "always runs, call run_virtual in another thread"
        )
    try:
        loop = VirtualTimeLoop(start_epoch_ms=start_epoch_ms, limit_ms=limit_ms, executor_delay_ms=executor_delay_ms)
    except ConfigError:
        coroutine.close()
        raise
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(coroutine)
