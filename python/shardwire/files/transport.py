"""What a file transfer needs of the channel under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from shardwire.events import ChannelEvent


class Pending(Protocol):
    """A message that is neither delivered nor failed."""

    @property
    def request_id(self) -> str: ...


class FileChannel(Protocol):
    """The part of `ReliableChannel` that transfers use."""

    @property
    def sender_id(self) -> str: ...
    async def send(self, message: bytes, /) -> str: ...
    def on(self, event: type[ChannelEvent], callback: Callable[[Any], object], /) -> Callable[[], None]: ...
    def pending(self) -> Sequence[Pending]: ...
    def is_closed(self) -> bool: ...


Announce = Callable[[ChannelEvent], None]
NewNonce = Callable[[], int]
FileState = Literal["requested", "held", "received", "refused", "unknown", "withdrawn"]
