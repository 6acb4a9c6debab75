"""What `shardwire serve` does: takes part for long, and hands each message to a command or to a spool directory."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from shardwire.cli.network.files import is_part_of_a_file, take_files
from shardwire.cli.network.handlers import CommandFailedError, MessageCommand
from shardwire.cli.network.interruption import Interruption
from shardwire.cli.network.output import Output, time_of_day
from shardwire.cli.network.participation import Participation, taking_part
from shardwire.cli.network.spool import (
    RETRY_PAUSE_S_MAX,
    RETRY_PAUSE_S_MIN,
    Spool,
    leave_to_next_life,
    write_at_last,
)
from shardwire.events import MessageReceivedEvent
from shardwire.quoting import printable

logger = logging.getLogger(__name__)


async def serve(
    participation: Participation,
    interruption: Interruption,
    *,
    command: MessageCommand | None,
    spool: Spool | None,
    files: Path | None,
    failed: Path,
    attempts: int,
) -> int:
    """Hands over messages, one at a time and in order, until the user ends it.

    Args:
        participation: Who takes part in what.
        interruption: When to end.
        command: Gets each message.
        spool: Gets each message before that.
        files: Directory that gets the files that are offered; None takes none.
        failed: Directory of messages that the command failed on; made with the first of them.
        attempts: How often the command is tried.
    """
    async with taking_part(participation, interruption) as member:
        handler = _Handler(member.output, interruption, command, spool, failed, attempts)
        member.channel.on_message_received(handler.handle)
        if files is not None:
            take_files(member, files)
        await interruption.wait()
        if handler.is_busy:
            member.output.remark("shardwire: waiting for the message in hand; once more Ctrl-C ends at once")
        await handler.idle()
    return 0


class _Handler:
    """What becomes of each message. None is done before a file or a command has it."""

    def __init__(
        self,
        output: Output,
        interruption: Interruption,
        command: MessageCommand | None,
        spool: Spool | None,
        failed: Path,
        attempts: int,
    ) -> None:
        self._output = output
        self._interruption = interruption
        self._command = command
        self._spool = spool
        self._failed = failed
        self._attempts = attempts
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def is_busy(self) -> bool:
        return not self._is_idle.is_set()

    async def idle(self) -> None:
        """Waits until the message in hand is done."""
        await self._is_idle.wait()

    async def handle(self, event: MessageReceivedEvent) -> None:
        if is_part_of_a_file(event):
            # What it brings is told of: no more of it than is read.
            await self._output.written()
            return
        if self._interruption.is_wanted:
            await leave_to_next_life()
        self._is_idle.clear()
        is_done = False
        try:
            is_done = await self._handle(event)
        finally:
            self._is_idle.set()
        if not is_done:
            await leave_to_next_life()

    async def _handle(self, event: MessageReceivedEvent) -> bool:
        """Whether the message is done."""
        places = {}
        if self._spool is not None:
            written = await write_at_last(self._spool.write, event, self._interruption)
            if written is None:
                return False
            places["file"] = str(written)
        if self._command is not None:
            error = await self._run(self._command, event)
            if error is not None:
                written = await write_at_last(self._set_aside, event, self._interruption)
                if written is None:
                    return False
                await self._tell(event, "failed", error=error, file=str(written))
                return True
        await self._tell(event, "handled", **places)
        return True

    async def _run(self, command: MessageCommand, event: MessageReceivedEvent) -> str | None:
        """Why the command failed, at last; None where it did not."""
        pause_s = RETRY_PAUSE_S_MIN
        for attempt in range(1, self._attempts + 1):
            try:
                await command.run(event)
                return None
            except CommandFailedError as failure:
                error = str(failure)
            logger.warning("message %s: %s (attempt %d of %d)", event.message_id, error, attempt, self._attempts)
            # One that ends does not try again: the message is kept.
            if attempt == self._attempts or await self._interruption.wait(pause_s):
                break
            pause_s = min(2 * pause_s, RETRY_PAUSE_S_MAX)
        return error

    async def _set_aside(self, event: MessageReceivedEvent) -> Path:
        return await Spool(self._failed).write(event)

    async def _tell(self, event: MessageReceivedEvent, outcome: str, **fields: str) -> None:
        self._output.event(
            outcome,
            sender_id=event.sender_id,
            message_id=event.message_id,
            size_bytes=len(event.message),
            redelivered=event.redelivered,
            **fields,
        )
        where = f", kept as {fields['file']}" if "file" in fields else ""
        why = f": {fields['error']}" if "error" in fields else ""
        sender = printable(event.sender_id)
        self._output.result(f"{time_of_day()} {outcome} {len(event.message):,} bytes of {sender}{where}{why}")
        # It is done, whether that is read or not.
        await self._output.written()
