"""What `async with` does with a node."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Lifetime(ABC):
    """A node that starts when `async with` is entered, and stops when it is left.

    A process that is forked meanwhile leaves it as it is: it belongs to the other one.
    """

    _entered_in: int | None = None

    @abstractmethod
    async def start(self) -> None:
        """Starts the node, until `stop`.

        Raises:
            NodeError: The node cannot be started.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Ends what was started; again it does nothing."""

    async def __aenter__(self) -> Self:
        await self.start()
        self._entered_in = os.getpid()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._entered_in in (None, os.getpid()):
            await self.stop()
