"""Ctrl-C, SIGTERM, a closed terminal: the first asks a command to end in order, the second ends it at once."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import NoReturn, Self, TypeVar

T = TypeVar("T")

# With SIGHUP, which a terminal that is closed sends; Windows has none.
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class InterruptedByUserError(Exception):
    """The user ended the command before it was done."""


class Interruption:
    """Whether the user, or who reads what is told, wants a command to end; a context manager around it."""

    def __init__(self) -> None:
        self._wanted = asyncio.Event()
        self._main: asyncio.Task[object] | None = None
        self._heeded: list[signal.Signals] = []

    def __enter__(self) -> Self:
        self._main = asyncio.current_task()
        # `nohup` has the closed terminal ignored.
        ignored = {number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_IGN}
        self._heeded = [number for number in _SIGNALS if number.name != "SIGHUP" or number not in ignored]
        for number in self._heeded:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in self._heeded:
            asyncio.get_running_loop().remove_signal_handler(number)

    @property
    def is_wanted(self) -> bool:
        return self._wanted.is_set()

    def want(self) -> None:
        """Asks the command to end."""
        self._wanted.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the command should end; False where time was up before."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wanted.wait()
        except TimeoutError:
            return False
        return True

    async def unless(self, call: Awaitable[T]) -> T:
        """The result of a call that is given up where the command should end.

        Raises:
            InterruptedByUserError: It should.
        """
        asked = asyncio.ensure_future(self._wanted.wait())
        called = asyncio.ensure_future(call)
        try:
            await asyncio.wait((asked, called), return_when=asyncio.FIRST_COMPLETED)
            if called.done():
                return called.result()
            raise InterruptedByUserError
        finally:
            asked.cancel()
            if not called.done():
                called.cancel()
                await asyncio.wait((called,))

    def _on_signal(self) -> None:
        if self._wanted.is_set() and self._main is not None:
            self._main.cancel()
        self._wanted.set()


@contextmanager
def as_ctrl_c() -> Iterator[None]:
    """Where no event loop runs: SIGTERM and a closed terminal raise KeyboardInterrupt, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    # What is ignored, as by `nohup`, stays so; Python lets the main thread alone set handlers.
    is_main = threading.current_thread() is threading.main_thread()
    raising = [number for number in _SIGNALS if is_main and signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in raising:
            signal.signal(number, interrupt)
        yield
    finally:
        for number in raising:
            signal.signal(number, signal.SIG_DFL)


def run_until_done(command: Callable[[Interruption], Awaitable[int]], *, interrupted: int) -> int:
    """Runs a command.

    Args:
        command: Gives the exit code.
        interrupted: The exit code of one that the user ended.
    """

    async def run() -> int:
        with Interruption() as interruption:
            try:
                return await command(interruption)
            except InterruptedByUserError:
                return interrupted
            except asyncio.CancelledError:
                if not interruption.is_wanted:
                    raise
                return interrupted

    return asyncio.run(run())
