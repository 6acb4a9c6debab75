"""What a command tells: lines for people, or lines of JSON for scripts."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from shardwire import quoting
from shardwire.cli.network.interruption import Interruption
from shardwire.cli.network.line_writer import LineWriter
from shardwire.cli.segment_files import STANDARD_OUTPUT
from shardwire.events import MessageReceivedEvent

# Of a message that is shown to people.
CHARACTERS_SHOWN_MAX = 10_000
# A command that is to end waits so long for a reader who takes nothing.
UNREAD_S = 2.0


def indented(text: str) -> str:
    """A text of a peer for a terminal: nothing in it moves the cursor, changes colours or runs backwards.

    Lines after the first are indented, so that none looks like a message of its own.
    """
    lines = text.replace("\t", "    ").split("\n")
    return "\n    ".join(map(quoting.printable, lines))


def shown(message: bytes) -> str | None:
    """A message as people read it; None where it is no text, or a long one."""
    if len(message) > 4 * CHARACTERS_SHOWN_MAX:
        return None
    try:
        text = message.decode()
    except UnicodeDecodeError:
        return None
    is_text = all(character.isprintable() or character in "\r\n\t" for character in text)
    return indented(text.rstrip("\r\n")) if is_text and len(text) <= CHARACTERS_SHOWN_MAX else None


def content_of(message: bytes) -> dict[str, str]:
    """A message as JSON holds it: `text` where it is UTF-8, else `base64`."""
    try:
        return {"text": message.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(message).decode()}


def json_line(name: str, fields: Mapping[str, Any]) -> str:
    """An event as a line of JSON. What is no Unicode in the name of a file is escaped: others read no such JSON."""
    return json.dumps(_unicode({"event": name, **fields}), ensure_ascii=True)


def _unicode(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case Mapping():
            return {_unicode(name): _unicode(field) for name, field in value.items()}
        case list() | tuple():
            return [_unicode(item) for item in value]
    return value


class _Errors:
    """The standard error stream, in a thread of its own while an event loop runs."""

    def __init__(self) -> None:
        self.stream: TextIO | None = None
        self.writer: LineWriter | None = None

    def tell(self, line: str) -> None:
        # While bars are drawn another stream is there, which puts lines above them.
        if self.writer is not None and sys.stderr is self.stream:
            self.writer.put(line)
        elif sys.stderr is not None:
            print(line, file=sys.stderr, flush=True)


_errors = _Errors()


@asynccontextmanager
async def errors_without_blocking(interruption: Interruption) -> AsyncIterator[None]:
    """As `Output.without_blocking`, for remarks, complaints and what the library logs."""
    if sys.stderr is None:
        yield
        return
    _errors.stream = sys.stderr
    _errors.writer = writer = LineWriter(sys.stderr, lambda error: None)
    giving_up = asyncio.create_task(_give_up(writer, interruption, lambda: None))
    try:
        yield
    finally:
        try:
            await writer.written()
        finally:
            giving_up.cancel()
            _errors.writer = None
            writer.end()


async def _give_up(writer: LineWriter, interruption: Interruption, on_given_up: Callable[[], None]) -> None:
    await interruption.wait()
    while True:
        stood_at = writer.stands_at
        await asyncio.sleep(UNREAD_S)
        if stood_at is not None and writer.stands_at == stood_at:
            on_given_up()
            writer.end()
            return


class Output:
    """Where a command tells what happens.

    Results go to the standard output, remarks to the standard error stream; with `as_json` each is a line of JSON on
    the standard output, and people are told nothing.

    Args:
        as_json: Whether scripts read it.
        quiet: Whether people are told what they asked for, and nothing beside.
        on_closed: Called once when the standard output takes nothing more: nobody reads it, or its disk is full. None
            where the command ends with that anyway.

    Attributes:
        failure: Why it cannot be written, where that is another reason than that nobody reads it.
    """

    def __init__(self, *, as_json: bool, quiet: bool = False, on_closed: Callable[[], None] | None = None) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.is_closed = False
        self.failure: OSError | None = None
        self._on_closed = on_closed
        self._writer: LineWriter | None = None
        self._was_given_up = False

    @asynccontextmanager
    async def without_blocking(self, interruption: Interruption) -> AsyncIterator[None]:
        """While an event loop runs: nothing that is told waits for who reads it.

        The end does, for as long as it takes; once the command should end, for no longer than nothing is read within
        `UNREAD_S`. What is not written by then never is.

        Raises:
            OSError: The standard output takes nothing more, and not because its reader left.
        """
        async with errors_without_blocking(interruption):
            if sys.stdout is None:
                yield
                return
            self._writer = LineWriter(sys.stdout, self._close)
            giving_up = asyncio.create_task(_give_up(self._writer, interruption, self._on_given_up))
            try:
                yield
            finally:
                try:
                    await self._writer.written()
                finally:
                    giving_up.cancel()
                    self._writer.end()
                    self._writer = None
                    if self.failure is not None:
                        # What it was for could not be told, however it ended.
                        raise self.failure from None

    async def written(self) -> bool:
        """Whether all that was told so far is written; returns once that is known."""
        return not self.is_closed if self._writer is None else await self._writer.written()

    def _on_given_up(self) -> None:
        self._was_given_up = self.is_closed = True

    def event(self, name: str, **fields: Any) -> None:
        """Something happened: a line of JSON."""
        if self.as_json:
            self._write(json_line(name, fields))

    def result(self, line: str, message: str = "") -> None:
        """What people asked for, and after it a message as `shown` gives it, which may have several lines."""
        if not self.as_json:
            self._write(quoting.printable(line) + message)

    def remark(self, line: str) -> None:
        """What people should know beside it."""
        if not self.as_json and not self.quiet:
            _errors.tell(quoting.printable(line))

    def complain(self, line: str) -> None:
        """What nobody may miss: on the standard error stream, for scripts and the quiet, too."""
        _errors.tell(f"shardwire: {quoting.printable(line)}")

    @property
    def why_closed(self) -> str:
        """Why what comes is not shown any more, for people."""
        if self._was_given_up:
            return "the standard output was not read until the end"
        if self.failure is None:
            return "nobody reads the standard output any more"
        return f"the standard output takes nothing more ({self.failure.strerror})"

    def _write(self, line: str) -> None:
        # Closed from the beginning it is as the null device.
        if self.is_closed or sys.stdout is None:
            return
        if self._writer is not None:
            self._writer.put(line)
            return
        try:
            # What standard output cannot encode is no reason to end.
            encoding = sys.stdout.encoding or "utf-8"
            print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)
        except OSError as error:
            # Python would write what is left once more when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._close(error)
            if self._on_closed is None and self.failure is not None:
                raise self.failure from None

    def _close(self, error: OSError) -> None:
        self.is_closed = True
        if not isinstance(error, BrokenPipeError):
            self.failure = OSError(error.errno, error.strerror, STANDARD_OUTPUT)
        if self._on_closed is not None:
            self._on_closed()


def time_of_day() -> str:
    return datetime.now().strftime("%H:%M:%S")


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
    output.result(f"{time_of_day()} {quoting.printable(event.sender_id)}{again}: ", text)


def log_level(*, verbose: bool, quiet: bool) -> int:
    """From which level on `told_warnings` shows what the library logs."""
    return logging.INFO if verbose else logging.ERROR if quiet else logging.WARNING


class _ErrorLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _errors.tell(self.format(record))


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = " ".join(record.getMessage().split())
        return f"shardwire: {quoting.printable(text)}"


@contextmanager
def told_warnings(level: int) -> Iterator[None]:
    """Shows what the library logs from a level on, a line each, on the standard error stream.

    The server of the live page complains of requests, which are others' fault: only its errors are shown, unless more
    than warnings are.
    """
    levels = {"shardwire": level, "uvicorn": level if level < logging.WARNING else max(level, logging.ERROR)}
    handler = _ErrorLines()
    handler.setFormatter(_OneLine())
    before: list[tuple[logging.Logger, int, bool]] = []
    for name, shown_from in levels.items():
        logger = logging.getLogger(name)
        before.append((logger, logger.level, logger.propagate))
        logger.addHandler(handler)
        logger.setLevel(shown_from)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, own_level, propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(own_level)
            logger.propagate = propagate
