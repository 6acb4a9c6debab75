"""What `shardwire chat` does: each line that is typed is a message, and what others send is shown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError

from shardwire.cli.network.files import is_part_of_a_file
from shardwire.cli.network.interruption import Interruption
from shardwire.cli.network.output import time_of_day
from shardwire.cli.network.participation import CLOSING_MS, Member, Participation, taking_part
from shardwire.cli.network.send import names_of
from shardwire.errors import PayloadTooLargeError
from shardwire.events import MessageDeliveredEvent, MessageReceivedEvent, MessageSendErrorEvent
from shardwire.quoting import printable

_READ_BYTES = 1 << 16
LINE_BYTES_MAX = 1 << 20
# Lines that were typed and not sent yet.
_LINES_WAITING_MAX = 100
# Of a message in its receipt.
_SHOWN_CHARACTERS_MAX = 40


async def chat(participation: Participation, interruption: Interruption, *, timeout_s: float) -> int:
    """Sends lines of the standard input and shows what comes, until the input ends or the user ends it.

    At the end of the input it waits for receipts, for `timeout_s` at most.

    Returns:
        0, or 1 where a line was not delivered.
    """
    async with taking_part(participation, interruption) as member:
        return await _Chat(member, timeout_s).run()


class _Chat:
    def __init__(self, member: Member, timeout_s: float) -> None:
        self._member = member
        self._channel = member.channel
        self._output = member.output
        self._timeout_s = timeout_s
        # By request, what is not delivered yet.
        self._lines: dict[str, str] = {}
        self._failed = False
        self._settled = asyncio.Event()

    async def run(self) -> int:
        self._listen()
        if os.isatty(0):
            self._output.remark("type a line and Enter to send it; Ctrl-D ends")
        lines: asyncio.Queue[bytes | None] = asyncio.Queue(_LINES_WAITING_MAX)
        read_lines(lines)
        sending = asyncio.ensure_future(self._send_all(lines))
        ending = asyncio.ensure_future(self._member.interruption.wait())
        await asyncio.wait((sending, ending), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            ending.cancel()
            sending.result()
        else:
            sending.cancel()
            await asyncio.wait((sending,))
            await self._receipts(CLOSING_MS / 1000)
        if self._lines:
            count = "1 line was" if len(self._lines) == 1 else f"{len(self._lines)} lines were"
            self._output.remark(f"shardwire: {count} not delivered; {self._member.participation.kept}")
            self._failed = self._failed or not self._member.interruption.is_wanted
            # They were waited for, and what becomes of them is told.
            self._member.drain_ms = 0
        return int(self._failed)

    async def _send_all(self, lines: asyncio.Queue[bytes | None]) -> None:
        while (line := await lines.get()) is not None:
            # What is typed is told of: no more of it than is read.
            await self._output.written()
            if not line:
                continue
            try:
                request_id = await self._channel.send(line)
            except PayloadTooLargeError as error:
                # An event, which may come after the end, tells people.
                self._failed = True
                self._output.event("refused", error=str(error))
                continue
            text = line.decode(errors="replace")
            self._lines[request_id] = text
            self._output.event("accepted", request_id=request_id, size_bytes=len(line))
            self._forget_settled()
        await self._receipts(self._timeout_s)

    async def _receipts(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._lines:
                    self._settled.clear()
                    await self._settled.wait()

    def _forget_settled(self) -> None:
        # An outcome may be told before `send` has returned.
        pending = {send.request_id for send in self._channel.pending()}
        for request_id in self._lines.keys() - pending:
            del self._lines[request_id]

    def _listen(self) -> None:
        output = self._output

        async def on_received(event: MessageReceivedEvent) -> None:
            if not is_part_of_a_file(event):
                await self._member.show(event)

        def on_delivered(event: MessageDeliveredEvent) -> None:
            output.event(
                "delivered",
                request_id=event.request_id,
                message_id=event.message_id,
                delivered_to=sorted(event.delivered_to),
            )
            line = self._settle(event.request_id)
            output.remark(f"{time_of_day()} delivered to {names_of(event.delivered_to)}{line}")

        def on_error(event: MessageSendErrorEvent) -> None:
            self._failed = True
            output.event(
                "send-error",
                request_id=event.request_id,
                message_id=event.message_id,
                stage=event.stage,
                error=event.error,
            )
            output.remark(f"shardwire: not delivered{self._settle(event.request_id)}: {event.error}")

        self._channel.on_message_received(on_received)
        self._channel.on_message_delivered(on_delivered)
        self._channel.on_message_send_error(on_error)

    def _settle(self, request_id: str) -> str:
        line = self._lines.pop(request_id, None)
        self._settled.set()
        if line is None:
            return ""
        short = line if len(line) <= _SHOWN_CHARACTERS_MAX else line[: _SHOWN_CHARACTERS_MAX - 3] + "..."
        return f": {printable(short)}"


def read_lines(lines: asyncio.Queue[bytes | None], descriptor: int = 0) -> None:
    """Reads lines of a file, a pipe or a terminal into a queue, None at their end, in a thread of its own.

    What is longer than `LINE_BYTES_MAX` becomes several lines.
    """
    loop = asyncio.get_running_loop()

    def put(line: bytes | None) -> None:
        putting = lines.put(line)
        try:
            asyncio.run_coroutine_threadsafe(putting, loop).result()
        except RuntimeError:
            putting.close()
            raise

    def read() -> None:
        # Where the loop ends first nobody wants the lines.
        with contextlib.suppress(RuntimeError, CancelledError):
            with contextlib.suppress(OSError):
                _split(lambda: os.read(descriptor, _READ_BYTES), put)
            put(None)

    # Not through `sys.stdin`: its lock, held by a thread that waits for a line, would hold up the end of Python.
    threading.Thread(target=read, name="lines", daemon=True).start()


def _split(read: Callable[[], bytes], put: Callable[[bytes], None]) -> None:
    rest = b""
    while piece := read():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            line = line.rstrip(b"\r")
            for begin in range(0, max(1, len(line)), LINE_BYTES_MAX):
                put(line[begin : begin + LINE_BYTES_MAX])
        while len(rest) > LINE_BYTES_MAX:
            put(rest[:LINE_BYTES_MAX])
            rest = rest[LINE_BYTES_MAX:]
    if rest:
        put(rest)
