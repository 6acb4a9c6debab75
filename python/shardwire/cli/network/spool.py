"""A directory that gets each message as a file, with what is known of it beside it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from shardwire.cli.network.interruption import Interruption
from shardwire.durable_files import appears_whole, sync_directory
from shardwire.events import MessageReceivedEvent

logger = logging.getLogger(__name__)

RETRY_PAUSE_S_MIN = 1.0
RETRY_PAUSE_S_MAX = 60.0
# Where messages lie that a command failed on.
FAILED_DIRECTORY = "failed"
MESSAGE_SUFFIX = ".message"
DESCRIPTION_SUFFIX = ".json"


class Spool:
    """Writes messages into a directory, which is made where it does not exist.

    Each becomes two files whose names sort in the order of arrival: `NAME.json` says who sent it, `NAME.message` is it.
    The message appears under its name last, whole and synced to the disk: who sees it may take both away.

    Args:
        directory: The directory.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._last_us = 0

    async def write(self, event: MessageReceivedEvent) -> Path:
        """Returns the file of the message, once it is durable.

        Raises:
            OSError: It cannot be written; nothing is left of it.
        """
        self._last_us = max(time.time_ns() // 1_000, self._last_us + 1)
        name = f"{self._last_us:017}-{event.message_id[:16]}"
        return await asyncio.to_thread(self._write, name, event)

    def _write(self, name: str, event: MessageReceivedEvent) -> Path:
        described = json.dumps(description_of(event)).encode() + b"\n"
        description, message = (self._directory / f"{name}{s}" for s in (DESCRIPTION_SUFFIX, MESSAGE_SUFFIX))
        try:
            _write_whole(description, described)
            _write_whole(message, event.message)
            sync_directory(self._directory)
        except OSError:
            # The message is written again, under another name: the one without a durable name would be a second one.
            message.unlink(missing_ok=True)
            description.unlink(missing_ok=True)
            raise
        return message


async def write_at_last(
    write: Callable[[MessageReceivedEvent], Awaitable[Path]], event: MessageReceivedEvent, interruption: Interruption
) -> Path | None:
    """The file that `write` gives, however often it has to be tried; None where the user ends it before."""
    pause_s = RETRY_PAUSE_S_MIN
    while True:
        try:
            return await write(event)
        except OSError as error:
            logger.warning("%s: %s: tried again", error.filename, error.strerror)
        if await interruption.wait(pause_s):
            return None
        pause_s = min(2 * pause_s, RETRY_PAUSE_S_MAX)


async def leave_to_next_life() -> None:
    """Never returns: the message in hand counts as interrupted once the channel closes, and is handed over again by the
    next command of its state."""
    await asyncio.Event().wait()


def description_of(event: MessageReceivedEvent) -> dict[str, Any]:
    """What is known of a message, without it."""
    return {
        "sender_id": event.sender_id,
        "message_id": event.message_id,
        "size_bytes": len(event.message),
        "redelivered": event.redelivered,
    }


def _write_whole(path: Path, content: bytes) -> None:
    with appears_whole(path) as file:
        file.write(content)
