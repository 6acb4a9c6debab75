"""What `shardwire listen` does: shows what a channel brings, or writes it to files."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from shardwire.cli.network.interruption import InterruptedByUserError, Interruption
from shardwire.cli.network.output import Output, content_of, printable, shown, time_of_day
from shardwire.cli.network.participation import Participation, taking_part
from shardwire.cli.network.spool import Spool
from shardwire.errors import ShardwireError
from shardwire.events import MessageReceivedEvent


class TooFewMessagesError(ShardwireError):
    """Fewer messages came in the time given than were asked for."""


async def listen(
    participation: Participation,
    interruption: Interruption,
    *,
    count: int | None,
    timeout_s: float | None,
    directory: Path | None,
) -> int:
    """Shows messages until enough came, time is up, or the user ends it.

    Returns:
        0: with a `count` where so many came, without one however it ends.

    Raises:
        TooFewMessagesError: Time was up before `count` messages were there.
        InterruptedByUserError: The user ended it before.
        ShardwireError: The state or the network cannot be used.
    """
    spool = None if directory is None else Spool(directory)
    received = 0
    enough = asyncio.Event()

    async with taking_part(participation, interruption) as member:
        output = member.output

        async def on_received(event: MessageReceivedEvent) -> None:
            nonlocal received
            if enough.is_set() or output.is_closed:
                # Not ours any more: the next life of the state is given it.
                await asyncio.Event().wait()
            written = None if spool is None else await spool.write(event)
            tell_received(output, event, written)
            if output.is_closed:
                await asyncio.Event().wait()
            received += 1
            if count is not None and received >= count:
                enough.set()

        member.channel.on_message_received(on_received)
        with contextlib.suppress(TimeoutError, InterruptedByUserError):
            async with asyncio.timeout(timeout_s):
                await interruption.unless(enough.wait())
    if count is None or received >= count:
        return 0
    if interruption.is_wanted:
        raise InterruptedByUserError
    raise TooFewMessagesError(f"{received} of {count} messages came within {timeout_s:g} s")


def tell_received(output: Output, event: MessageReceivedEvent, written: Path | None) -> None:
    """Tells a message that came in, and the file that holds it where there is one."""
    content = content_of(event.message) if written is None and output.as_json else {}
    if written is not None:
        content = {"file": str(written)}
    output.event(
        "received",
        sender_id=event.sender_id,
        message_id=event.message_id,
        size_bytes=len(event.message),
        redelivered=event.redelivered,
        **content,
    )
    if output.as_json:
        return
    text = shown(event.message) if written is None else None
    if text is None:
        place = f"Keccak-256 {event.message_id}" if written is None else str(written)
        text = f"{len(event.message):,} bytes, {place}"
    again = " (again, after a crash)" if event.redelivered else ""
    output.result(f"{time_of_day()} {printable(event.sender_id)}{again}: {text}")
