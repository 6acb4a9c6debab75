"""An asyncio event loop in virtual time: when nothing is ready it jumps to the next timer instead of waiting for it.

Code that takes its time from the loop and its `VirtualClock` runs unchanged, as fast as the processor allows, and the
same inputs give the same run. Nothing may come from outside: no sockets, no other threads.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from typing import Any, TypeVar

from shardwire.errors import ConfigError
from shardwire.node.clock import NANOSECONDS_PER_MS

T = TypeVar("T")

# 2026-01-01T00:00:00Z
START_EPOCH_MS = 1_767_225_600_000
# Callbacks that keep scheduling one another without any time passing would otherwise never end.
STEPS_PER_INSTANT_MAX = 1_000_000

_NANOSECONDS_PER_SECOND = 1_000_000_000
_TASKS_NAMED_MAX = 20


class VirtualTimeError(RuntimeError):
    """The simulated program cannot go on: a deadlock, no passage of time, or the time limit."""


class VirtualClock:
    """The clocks of a virtual-time loop; several may share a loop, each with its own Unix time.

    Args:
        loop: The loop whose time this clock shows; None for the running one.
        start_epoch_ms: Unix time at the loop's time 0.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, *, start_epoch_ms: int = START_EPOCH_MS) -> None:
        self._loop = asyncio.get_running_loop() if loop is None else loop
        self._start_epoch_ns = start_epoch_ms * NANOSECONDS_PER_MS
        # Time stands still while callbacks run: what was read last is mostly what is read next.
        self._read_s = -1.0
        self._read_ns = 0

    def monotonic_ms(self) -> int:
        return self._elapsed_ns() // NANOSECONDS_PER_MS

    def epoch_ms(self) -> int:
        return self.epoch_ns() // NANOSECONDS_PER_MS

    def epoch_ns(self) -> int:
        return self._start_epoch_ns + self._elapsed_ns()

    def step(self, delta_ms: int) -> None:
        """Steps Unix time by `delta_ms`, forward or back, as an operator or NTP does; timers do not notice."""
        self._start_epoch_ns += delta_ms * NANOSECONDS_PER_MS

    def _elapsed_ns(self) -> int:
        # Rounded, since the loop's float may stand an ulp below the millisecond that a timer was set for.
        now_s = self._loop.time()
        if now_s != self._read_s:
            self._read_s = now_s
            self._read_ns = round(now_s * _NANOSECONDS_PER_SECOND)
        return self._read_ns


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop. `time()` starts at 0 and moves only when every ready callback has run.

    `run_in_executor`, and so `asyncio.to_thread`, runs the function on the loop itself once `executor_delay_ms` has
    passed, so that code which hands work to a thread in real time stays deterministic.

    Args:
        start_epoch_ms: Unix time of `clock` at the start.
        limit_ms: Virtual time after which the run fails; None for no limit.
        executor_delay_ms: Called for each piece of executor work: how long it takes. None for 0.
    """

    def __init__(
        self,
        *,
        start_epoch_ms: int = START_EPOCH_MS,
        limit_ms: int | None = None,
        executor_delay_ms: Callable[[], int] | None = None,
    ) -> None:
        self._virtual_selector = _VirtualSelector(self, limit_ms)
        super().__init__(self._virtual_selector)
        # Timers due within one nanosecond count as due: a jump lands on a whole one, up to half of it short.
        self._clock_resolution = 1e-9
        self._executor_delay_ms = executor_delay_ms
        self.clock = VirtualClock(self, start_epoch_ms=start_epoch_ms)

    def time(self) -> float:
        return self._virtual_selector.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except StopIteration as error:
                future.set_exception(RuntimeError(f"executor work raised {error!r}"))
            except Exception as error:  # the awaiter's to handle, as with a thread
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
        ConfigError: `limit_ms` is not positive.
    """
    if limit_ms is not None and limit_ms <= 0:
        coroutine.close()
        raise ConfigError(f"limit_ms is {limit_ms}: it must be None or at least 1")

    def new_loop() -> VirtualTimeLoop:
        return VirtualTimeLoop(start_epoch_ms=start_epoch_ms, limit_ms=limit_ms, executor_delay_ms=executor_delay_ms)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(coroutine)


class _VirtualSelector(selectors.BaseSelector):
    """Where the loop would sleep, time jumps. Registered files (the loop's own wake-up pipe) are never ready."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_ms: int | None) -> None:
        self.now = 0.0
        self._loop = loop
        self._limit_s = None if limit_ms is None else limit_ms / 1000
        self._steps_at_this_instant = 0
        self._keys: dict[int, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise VirtualTimeError(f"deadlock at {self.now:.3f} s: no timer is set and {self._waiting_tasks()}")
        if timeout <= 0:
            self._steps_at_this_instant += 1
            if self._steps_at_this_instant > STEPS_PER_INSTANT_MAX:
                self._steps_at_this_instant = 0
                raise VirtualTimeError(
                    f"no time passed in {STEPS_PER_INSTANT_MAX} steps at {self.now:.3f} s: {self._waiting_tasks()}"
                )
            return []
        self._steps_at_this_instant = 0
        # Whole nanoseconds, so that the rounding errors of many jumps do not add up.
        self.now = round(self.now + timeout, 9)
        if self._limit_s is not None and self.now > self._limit_s:
            # Lifted, so that the cancelled tasks can finish.
            limit_s, self._limit_s = self._limit_s, None
            raise VirtualTimeError(f"the run did not end within {limit_s:.3f} s of virtual time")
        return []

    def _waiting_tasks(self) -> str:
        names = sorted(
            f"{task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')})"
            for task in asyncio.all_tasks(self._loop)
        )
        named = ", ".join(names[:_TASKS_NAMED_MAX])
        return f"{len(names)} tasks wait: {named}{', ...' if len(names) > _TASKS_NAMED_MAX else ''}"

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        descriptor = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._keys[descriptor] = selectors.SelectorKey(fileobj, descriptor, events, data)
        return self._keys[descriptor]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj if isinstance(fileobj, int) else fileobj.fileno())

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()
