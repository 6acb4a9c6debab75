"""A command that gets each message on its standard input."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shardwire.events import MessageReceivedEvent

# Between being asked to end and being ended.
GRACE_S = 5.0


class CommandFailedError(Exception):
    """The command did not take a message."""


@dataclass(frozen=True, slots=True)
class MessageCommand:
    """Runs once for each message, which it reads from its standard input.

    What is known of the message it finds in the environment: `SHARDWIRE_SENDER_ID`, `SHARDWIRE_MESSAGE_ID`,
    `SHARDWIRE_SIZE_BYTES`, `SHARDWIRE_REDELIVERED` (0 or 1) and `SHARDWIRE_CHANNEL`.

    Attributes:
        arguments: The program and its arguments; no shell is between.
        channel: Id of the channel.
        timeout_s: How long it may take.
        hidden: Environment variables that it is not given: those that hold secrets.
        output_to_errors: Whether what it prints goes to the standard error stream, as the standard output is ours.
    """

    arguments: Sequence[str]
    channel: str
    timeout_s: float
    hidden: frozenset[str] = field(default_factory=frozenset)
    output_to_errors: bool = False

    async def run(self, event: MessageReceivedEvent) -> None:
        """Runs the program for one message, which it reads from its input.

        Raises:
            CommandFailedError: It cannot be run, took too long, or ended with another exit code than 0.
        """
        program = self.arguments[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *self.arguments,
                stdin=PIPE,
                stdout=sys.stderr if self.output_to_errors else None,
                env=self._environment(event),
                # Ctrl-C is for us: the command may finish what it has in hand.
                start_new_session=True,
            )
        except OSError as error:
            raise CommandFailedError(f"{program} cannot be run: {error.strerror}") from None
        try:
            async with asyncio.timeout(self.timeout_s):
                await process.communicate(event.message)
        except TimeoutError:
            raise CommandFailedError(f"{program} took longer than {self.timeout_s:g} s") from None
        finally:
            await _end(process)
        if process.returncode is not None and process.returncode < 0:
            number = -process.returncode
            # Those of the system for real time have no names.
            names = (known.name for known in signal.Signals if known == number)
            raise CommandFailedError(f"{program} was ended by {next(names, f'signal {number}')}")
        if process.returncode:
            raise CommandFailedError(f"{program} ended with {process.returncode}")

    def _environment(self, event: MessageReceivedEvent) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in self.hidden}
        return kept | {
            # The system's strings end at the first of these.
            "SHARDWIRE_SENDER_ID": event.sender_id.replace("\0", ""),
            "SHARDWIRE_MESSAGE_ID": event.message_id,
            "SHARDWIRE_SIZE_BYTES": str(len(event.message)),
            "SHARDWIRE_REDELIVERED": str(int(event.redelivered)),
            "SHARDWIRE_CHANNEL": self.channel.replace("\0", ""),
        }


async def _end(process: Process) -> None:
    """Ends a command that still runs, with what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            async with asyncio.timeout(GRACE_S):
                await process.wait()
        except TimeoutError:
            continue
