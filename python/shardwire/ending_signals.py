"""What ends a program from outside: Ctrl-C, SIGTERM, a closed terminal."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

# With SIGHUP, which a terminal that is closed sends; Windows has none.
ENDING_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
EXIT_INTERRUPTED = 130


def end_by_ctrl_c() -> None:
    """While a program loads its modules Ctrl-C ends it by itself, without a traceback; `as_ctrl_c` changes that."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def as_ctrl_c() -> Iterator[None]:
    """Where no event loop runs: SIGTERM and a closed terminal raise KeyboardInterrupt, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    # What is ignored, as by `nohup`, stays so; Python lets the main thread alone set handlers.
    is_main = threading.current_thread() is threading.main_thread()
    raising = [number for number in ENDING_SIGNALS if is_main and signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in raising:
            signal.signal(number, interrupt)
        yield
    finally:
        for number in raising:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def interrupted_after() -> Iterator[None]:
    """What runs within ends before a signal has its effect: the first one that comes is raised anew after it."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in ENDING_SIGNALS if is_main}
    noted = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    try:
        for number in noted:
            signal.signal(number, note)
        yield
    finally:
        for number in noted:
            signal.signal(number, before[number])
        if came:
            signal.raise_signal(came[0])
