"""What `create_reliable_channel` returns: awaited or entered, it gives the channel."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from shardwire.channel.reliable_channel import ReliableChannel
from shardwire.errors import ConfigError

_NOT_YET = "the channel is not there yet: write `channel = await create_reliable_channel(...)`"

_ALREADY = "it was awaited or entered already: keep the channel that it gave, or call create_reliable_channel() again"


class ChannelCreation(Coroutine[Any, Any, ReliableChannel]):
    """What `create_reliable_channel` returns: `await` it, or enter it with `async with`, which closes on leaving."""

    def __init__(self, creating: Coroutine[Any, Any, ReliableChannel]) -> None:
        self._creating = creating
        self._channel: ReliableChannel | None = None
        self._begun = False

    def __await__(self) -> Generator[Any, Any, ReliableChannel]:
        self._begin()
        return self._creating.__await__()

    async def __aenter__(self) -> ReliableChannel:
        self._begin()
        self._channel = await self._creating
        return self._channel

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._channel is not None:
            await self._channel.__aexit__(kind, error, traceback)

    def _begin(self) -> None:
        if self._begun:
            raise ConfigError(_ALREADY)
        self._begun = True

    # --- a coroutine for `asyncio.create_task` and whatever else asks for one ---

    def send(self, value: Any, /) -> Any:
        """Runs the creation up to its next wait, as an event loop does."""
        if value is not None:
            raise TypeError(_NOT_YET)
        return self._creating.send(value)

    def throw(self, *raised: Any) -> Any:
        """Raises an error where the creation waits, as an event loop does to cancel it."""
        return self._creating.throw(*raised)

    def close(self) -> None:
        """Gives the creation up where nothing was awaited."""
        self._creating.close()

    # Type checkers take a class with this method to have every attribute, those of the channel too.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if hasattr(ReliableChannel, name):
                raise AttributeError(_NOT_YET, name=name, obj=self)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
