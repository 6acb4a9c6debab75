"""Ctrl-C, SIGTERM, a closed terminal: the first asks a command to end in order, the second ends it at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from shardwire.ending_signals import ENDING_SIGNALS

T = TypeVar("T")


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
        ignored = {number for number in ENDING_SIGNALS if signal.getsignal(number) is signal.SIG_IGN}
        self._heeded = [number for number in ENDING_SIGNALS if number.name != "SIGHUP" or number not in ignored]
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
