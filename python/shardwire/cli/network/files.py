"""Files of any size: what `shardwire send --as-file` and the option `--files` do."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from shardwire.cli.network.interruption import InterruptedByUserError, Interruption
from shardwire.cli.network.output import Output, time_of_day
from shardwire.cli.network.participation import CLOSING_MS, Member, Participation, taking_part
from shardwire.cli.network.send import NotDeliveredError, names_of
from shardwire.config.checks import TIMEOUT_MS_MAX
from shardwire.events import FileFailedEvent, FileProgressEvent, FileReceivedEvent, MessageReceivedEvent
from shardwire.files import is_file_message
from shardwire.quoting import printable

_GOES_ON = "the same command goes on where it stopped"


async def send_file(
    participation: Participation,
    interruption: Interruption,
    file: Path,
    *,
    name: str,
    size_bytes: int,
    timeout_s: float,
) -> int:
    """Offers a file by `name`, and waits until it was received.

    Returns:
        0.

    Raises:
        NotDeliveredError: It was not received in time.
        FileRefusedError: Whoever should have it does not take it.
        ShardwireError: It cannot be sent.
        OSError: It cannot be read.
        InterruptedByUserError: The user ended it.
    """
    async with taking_part(participation, interruption) as member:
        member.drain_ms = 0
        output, begun_s = member.output, time.monotonic()

        async def on_received(event: MessageReceivedEvent) -> None:
            # The transfer listens: what is none of it would be dropped.
            if not is_part_of_a_file(event):
                await member.show(event)

        member.channel.on_message_received(on_received)
        with _Bars(output) as bars:
            member.channel.on(FileProgressEvent, bars.advance)
            _tell_progress(member)
            timeout_ms = round(min(timeout_s * 1000, TIMEOUT_MS_MAX))
            try:
                sending = member.channel.send_file(file, name=name, timeout_ms=timeout_ms)
                receivers = await interruption.unless(sending)
            except TimeoutError as error:
                raise NotDeliveredError(f"{error}; whoever receives it needs --files") from None
            except InterruptedByUserError:
                output.remark(f"shardwire: {file} was not received before the interruption; {_GOES_ON}")
                raise
        output.event("file-delivered", file=str(file), size_bytes=size_bytes, delivered_to=sorted(receivers))
        took_s = time.monotonic() - begun_s
        output.result(f"{size_bytes:,} bytes delivered to {names_of(receivers)} in {took_s:.1f} s")
        # Receivers said it in a message, and wait for its acknowledgement.
        member.drain_ms = CLOSING_MS
    return 0


def take_files(member: Member, directory: Path, on_received: Callable[[], None] = lambda: None) -> None:
    """Takes every file that is offered into a directory, under its own name, and tells of it.

    Args:
        member: Who takes them.
        directory: Made where it does not exist.
        on_received: Called after each.

    Raises:
        OSError: The directory cannot be made.
    """
    directory.mkdir(parents=True, exist_ok=True)
    output = member.output

    def tell_received(event: FileReceivedEvent) -> None:
        output.event(
            "file-received",
            sender_id=event.sender_id,
            transfer_id=event.transfer_id,
            size_bytes=event.size_bytes,
            file=str(event.path),
        )
        sender = printable(event.sender_id)
        output.result(f"{time_of_day()} {sender}: {event.size_bytes:,} bytes, {printable(str(event.path))}")
        on_received()

    def tell_failed(event: FileFailedEvent) -> None:
        output.event(
            "file-failed",
            sender_id=event.sender_id,
            transfer_id=event.transfer_id,
            reason=event.reason,
            error=event.error,
        )
        output.remark(f"shardwire: a file of {printable(event.sender_id)} was not taken: {printable(event.error)}")

    _tell_progress(member)
    member.channel.on(FileReceivedEvent, tell_received)
    member.channel.on(FileFailedEvent, tell_failed)
    member.channel.receive_files(directory)


def is_part_of_a_file(event: MessageReceivedEvent) -> bool:
    """Whether a message is of a transfer, which is told of otherwise or concerns others."""
    return is_file_message(event.message)


def _tell_progress(member: Member) -> None:
    def tell(event: FileProgressEvent) -> None:
        member.output.event(
            "file-progress",
            transfer_id=event.transfer_id,
            sender_id=event.sender_id,
            receiver_id=event.receiver_id,
            done_bytes=event.done_bytes,
            size_bytes=event.size_bytes,
        )

    member.channel.on(FileProgressEvent, tell)


class _Bars:
    """How far each receiver is, on a terminal; a context manager around the transfer."""

    def __init__(self, output: Output) -> None:
        self._progress: Progress | None = None
        if not output.as_json and sys.stderr.isatty():
            self._progress = Progress(
                TextColumn("{task.description:12}"),
                BarColumn(bar_width=40),
                DownloadColumn(),
                TransferSpeedColumn(),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
            )
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> _Bars:
        (self._progress or nullcontext()).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def advance(self, event: FileProgressEvent) -> None:
        if self._progress is None:
            return
        name = event.receiver_id
        if name not in self._bars:
            # Square brackets would be markup.
            shown = printable(name).replace("[", "(").replace("]", ")")
            self._bars[name] = self._progress.add_task(shown, total=event.size_bytes)
        self._progress.update(self._bars[name], completed=event.done_bytes)
