"""What `shardwire listen` does: shows what a channel brings, or writes it to files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sys
from pathlib import Path

from shardwire.cli.network.files import is_part_of_a_file, take_files
from shardwire.cli.network.interruption import InterruptedByUserError, Interruption
from shardwire.cli.network.participation import Participation, taking_part
from shardwire.cli.network.spool import Spool, leave_to_next_life, write_at_last
from shardwire.cli.segment_files import STANDARD_OUTPUT
from shardwire.errors import ShardwireError
from shardwire.events import MessageReceivedEvent

LAST_ACKNOWLEDGEMENT_MS = 30_000


class TooFewMessagesError(ShardwireError):
    """Fewer messages came in the time given than were asked for."""


async def listen(
    participation: Participation,
    interruption: Interruption,
    *,
    count: int | None,
    timeout_s: float | None,
    directory: Path | None,
    files: Path | None,
) -> int:
    """Shows messages, and takes files, until enough came, time is up, or the user ends it.

    Args:
        participation: Who takes part in what.
        interruption: When to end.
        count: How many messages and files are enough; None for no end.
        timeout_s: When time is up; None for never.
        directory: Gets each message as a file; None to show it.
        files: Gets the files that are offered; None takes none.

    Returns:
        0: with a `count` where so many came, without one however it ends.

    Raises:
        TooFewMessagesError: Time was up before `count` messages were there.
        InterruptedByUserError: The user ended it before.
        ShardwireError: The state or the network cannot be used.
        OSError: The standard output, which would show them, is closed.
    """
    if directory is None and files is None and sys.stdout is None:
        # What is shown to nobody would count as handled.
        raise OSError(errno.EBADF, "it is closed", STANDARD_OUTPUT)
    spool = None if directory is None else Spool(directory)
    received = 0
    enough = asyncio.Event()

    async with taking_part(participation, interruption) as member:
        output = member.output

        def count_one() -> None:
            nonlocal received
            received += 1
            if count is not None and received >= count:
                enough.set()

        async def on_received(event: MessageReceivedEvent) -> None:
            if is_part_of_a_file(event):
                # What it brings is told of: no more of it than is read.
                await output.written()
                return
            if enough.is_set() or output.is_closed:
                # Not ours any more: the next life of the state is given it.
                await leave_to_next_life()
            written = None
            if spool is not None:
                written = await write_at_last(spool.write, event, interruption)
                if written is None:
                    await leave_to_next_life()
            await member.show(event, written)
            count_one()

        member.channel.on_message_received(on_received)
        if files is not None:
            take_files(member, files, count_one)
        with contextlib.suppress(TimeoutError, InterruptedByUserError):
            async with asyncio.timeout(timeout_s):
                await interruption.unless(enough.wait())
            # Whoever sent the last one waits for its acknowledgement; nobody here waits for anything.
            member.drain_ms = LAST_ACKNOWLEDGEMENT_MS
    if count is None or received >= count:
        return 0
    if interruption.is_wanted:
        raise InterruptedByUserError
    raise TooFewMessagesError(f"{received} of {count} messages came within {timeout_s:g} s")
