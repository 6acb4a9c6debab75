"""What a task sleeps on until another one has something for it."""

from __future__ import annotations

import asyncio


class Wake:
    """An `asyncio.Event` that costs less to wait for: what waits on one does so for every message.

    Await what `wait` returns before anything else is awaited.
    """

    __slots__ = ("_is_set", "_waiters")

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: list[asyncio.Future[None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Wakes whoever waits, and lets nobody wait until `clear`."""
        if self._is_set:
            return
        self._is_set = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def clear(self) -> None:
        self._is_set = False

    def wait(self) -> asyncio.Future[None]:
        """Done when it is set."""
        waiter = asyncio.get_running_loop().create_future()
        if self._is_set:
            waiter.set_result(None)
            return waiter
        if self._waiters:
            # Those whose task was cancelled stay until somebody looks.
            self._waiters = [other for other in self._waiters if not other.done()]
        self._waiters.append(waiter)
        return waiter
