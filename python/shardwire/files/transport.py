"""What a file transfer needs of the channel under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from shardwire.events import ChannelEvent


class Pending(Protocol):
    """A message that is neither delivered nor failed."""

    @property
    def request_id(self) -> str:
        """What `send` returned for it."""

    @property
    def sent(self) -> bool:
        """Whether the network took all of it."""


class FileChannel(Protocol):
    """The part of `ReliableChannel` that transfers use."""

    @property
    def channel_id(self) -> str:
        """The id of the channel that carries the files."""

    @property
    def sender_id(self) -> str:
        """The id under which this participant sends."""

    async def send(self, message: bytes, /) -> str:
        """Sends a message reliably and returns its request id; waits for room."""

    def on(self, event: type[ChannelEvent], callback: Callable[[Any], object], /) -> Callable[[], None]:
        """Calls `callback` with every event of a class; returns a function that unsubscribes."""

    def pending(self) -> Sequence[Pending]:
        """Messages that are neither delivered nor failed, oldest first."""

    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""


Announce = Callable[[ChannelEvent], None]
NewNonce = Callable[[], int]
FileState = Literal["requested", "held", "received", "refused", "unknown", "withdrawn"]
