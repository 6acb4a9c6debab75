"""What a channel tells of files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from shardwire.events.base import ChannelEvent
from shardwire.names import SenderId

FileReason = Literal["", "declined", "too_large", "name", "exists", "busy", "no_space", "failed", "changed"]


@dataclass(frozen=True, slots=True)
class FileProgressEvent(ChannelEvent):
    """How far a file is, at its sender for each receiver, and at its receiver; every few megabytes.

    The last one of a sender has all of the file. A receiver has `FileReceivedEvent` in place of that.

    Attributes:
        transfer_id: Hex; the same at both, and after a restart.
        file_name: What its sender calls it.
        size_bytes: Its size.
        done_bytes: What the receiver has of it, from the beginning, verified.
        sender_id: Who sends it.
        receiver_id: Who receives it.
    """

    names: ClassVar[tuple[str, ...]] = ("file:progress",)
    transfer_id: str
    file_name: str
    size_bytes: int
    done_bytes: int
    sender_id: SenderId
    receiver_id: SenderId


@dataclass(frozen=True, slots=True)
class FileReceivedEvent(ChannelEvent):
    """A file is whole, verified and durable at its place. Offered again it is told of again.

    Attributes:
        transfer_id: Hex.
        file_name: What its sender calls it.
        size_bytes: Its size.
        sender_id: Who sent it.
        path: Where it is.
    """

    names: ClassVar[tuple[str, ...]] = ("file:received",)
    transfer_id: str
    file_name: str
    size_bytes: int
    sender_id: SenderId
    path: Path


@dataclass(frozen=True, slots=True)
class FileFailedEvent(ChannelEvent):
    """A file that was offered is not received; nothing is left of it on disk.

    Attributes:
        transfer_id: Hex.
        file_name: What its sender calls it: anything, where the reason is "name".
        sender_id: Who offered it.
        reason: What its sender is told, or said.
        error: The same for people.
    """

    names: ClassVar[tuple[str, ...]] = ("file:failed",)
    transfer_id: str
    file_name: str
    sender_id: SenderId
    reason: FileReason
    error: str
