"""What `shardwire send` does: one message, and its receipt."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from shardwire.channel.sending.segment_size import divide_message
from shardwire.cli.network.interruption import InterruptedByUserError, Interruption
from shardwire.cli.network.output import Output
from shardwire.cli.network.participation import Member, Participation, taking_part
from shardwire.cli.segment_files import standard_input
from shardwire.config import SegmentationConfig
from shardwire.errors import PayloadTooLargeError, ShardwireError
from shardwire.events import (
    ChunkAcknowledgedEvent,
    ChunkSentEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from shardwire.node import ConnectionState, UdpNode
from shardwire.quoting import printable
from shardwire.segmentation import segment

STANDARD_INPUT = "-"
Until = Literal["sent", "delivered"]


class NotDeliveredError(ShardwireError):
    """A message was not sent, or not delivered, within the time given."""


def read_message(file: Path, participation: Participation) -> bytes:
    """The message: a file's bytes, or those of the standard input; read before anything of the network is used.

    Raises:
        PayloadTooLargeError: They are more than one message holds.
        OSError: The file cannot be read.
    """
    limit = message_bytes_max(participation)
    if str(file) == STANDARD_INPUT:
        # No more than needed of an input without an end.
        message = standard_input().read(limit + 1)
        if len(message) > limit:
            raise _too_large("the standard input", None, limit)
        return message
    with file.open("rb") as stream:
        message = stream.read(limit + 1)
    if len(message) > limit:
        # A device or a pipe has no size that it would tell.
        raise _too_large(str(file), file.stat().st_size if file.is_file() else None, limit)
    return message


def message_bytes_max(participation: Participation) -> int:
    """What one message holds, as far as is known before the node starts."""
    config = participation.config
    segmentation = _segmentation(participation)
    if config.parity_on_demand:
        # However much parity it is to leave with, it takes no room.
        segmentation = replace(segmentation, enable_reed_solomon=False)
    beyond = segmentation.segment_size_bytes * segmentation.max_total_segments
    try:
        segment(bytes(beyond), segmentation)
    except PayloadTooLargeError as error:
        return error.limit_bytes
    return beyond


def _segmentation(participation: Participation) -> SegmentationConfig:
    node, config = participation.node, participation.config
    if not isinstance(node, UdpNode):
        # What a server carries, it says once it is there; until then segments have the configured size.
        return config.segmentation
    cipher = participation.encryption
    return divide_message(
        config.without_store(),
        max_message_size_bytes=node.max_message_size_bytes,
        content_topic=participation.topic,
        channel_id=participation.channel,
        sender_id=participation.sender,
        cipher_bytes=0 if cipher is None else getattr(cipher, "overhead_bytes", 0),
    ).segmentation


def _too_large(name: str, size_bytes: int | None, limit: int) -> PayloadTooLargeError:
    size = "more bytes" if size_bytes is None else f"{size_bytes:,} bytes, more"
    return PayloadTooLargeError(
        f"{name} has {size} than the {limit:,} that one message holds: send it with --as-file to whoever "
        f"takes --files, or in parts, as `split -b {limit}` makes them",
        size_bytes or limit + 1,
        limit,
    )


async def send(
    participation: Participation, interruption: Interruption, message: bytes, *, until: Until, timeout_s: float
) -> int:
    """Sends a message and waits for its receipt.

    Returns:
        0.

    Raises:
        NotDeliveredError: There was none in time.
        ShardwireError: The message cannot be sent.
        InterruptedByUserError: The user ended it.
    """
    async with taking_part(participation, interruption) as member:
        # After the receipt nothing is left to wait for, and without it as long was waited as was asked for.
        member.drain_ms = 0
        await _Sending(member, message, until, timeout_s).run()
    return 0


class _Sending:
    """One message on its way."""

    def __init__(self, member: Member, message: bytes, until: Until, timeout_s: float) -> None:
        self._member = member
        self._channel = member.channel
        self._output = member.output
        self._message = message
        self._until = until
        self._timeout_s = timeout_s
        self._request_id = ""
        self._begun_s = time.monotonic()
        # By request: outcomes may be told before `send` has returned the request's id.
        self._sent: set[str] = set()
        self._delivered: dict[str, frozenset[str]] = {}
        self._errors: dict[str, str] = {}
        self._told = asyncio.Event()

    async def run(self) -> None:
        self._output.result(await self._receipt_in_time())

    async def _receipt_in_time(self) -> str:
        interruption = self._member.interruption
        with _bar(self._output) as bar:
            self._listen(bar)
            try:
                async with asyncio.timeout(self._timeout_s):
                    self._request_id = await interruption.unless(self._channel.send(self._message))
                    self._output.event("accepted", request_id=self._request_id, size_bytes=len(self._message))
                    return await interruption.unless(self._receipt())
            except TimeoutError:
                raise NotDeliveredError(self._why_not("within " + _seconds(self._timeout_s))) from None
            except PayloadTooLargeError as error:
                raise _too_large("the message", error.payload_bytes, error.limit_bytes) from None
            except InterruptedByUserError:
                self._output.remark(f"shardwire: {self._why_not('before the interruption')}")
                raise

    def _listen(self, bar: _Bar | None) -> None:
        output, channel = self._output, self._channel
        earlier = {send.request_id for send in channel.pending()}

        def on_progress(event: ChunkSentEvent | ChunkAcknowledgedEvent) -> None:
            stage = "sent" if isinstance(event, ChunkSentEvent) else "acknowledged"
            count, total = len(event.chunk_info.chunks), event.chunk_info.total_chunks
            output.event("progress", request_id=event.request_id, stage=stage, segments=count, segments_total=total)
            if bar is not None and event.request_id == self._request_id:
                bar.advance(stage, count, total)

        def on_sent(event: MessageSentEvent) -> None:
            output.event("sent", request_id=event.request_id, message_id=event.message_id)
            self._sent.add(event.request_id)
            self._told.set()

        def on_delivered(event: MessageDeliveredEvent) -> None:
            output.event(
                "delivered",
                request_id=event.request_id,
                message_id=event.message_id,
                delivered_to=sorted(event.delivered_to),
            )
            self._delivered[event.request_id] = event.delivered_to
            self._told.set()
            if event.request_id in earlier:
                output.remark(f"an earlier message was delivered to {names_of(event.delivered_to)}")

        def on_error(event: MessageSendErrorEvent) -> None:
            output.event(
                "send-error",
                request_id=event.request_id,
                message_id=event.message_id,
                stage=event.stage,
                error=event.error,
            )
            self._errors[event.request_id] = event.error
            self._told.set()
            if event.request_id in earlier:
                output.remark(f"an earlier message failed: {event.error}")

        channel.on(ChunkSentEvent, on_progress)
        channel.on(ChunkAcknowledgedEvent, on_progress)
        channel.on(MessageSentEvent, on_sent)
        channel.on(MessageDeliveredEvent, on_delivered)
        channel.on(MessageSendErrorEvent, on_error)

    async def _receipt(self) -> str:
        request_id = self._request_id
        while True:
            if request_id in self._errors:
                raise NotDeliveredError(f"the message failed: {self._errors[request_id]}")
            # Whoever acknowledges at once does not change the receipt that was asked for.
            if self._until == "sent" and request_id in self._sent:
                return f"{self._size()} sent in {self._elapsed()}"
            if request_id in self._delivered:
                receivers = names_of(self._delivered[request_id])
                return f"{self._size()} delivered to {receivers} in {self._elapsed()}"
            self._told.clear()
            await self._told.wait()

    def _why_not(self, when: str) -> str:
        pending = {send.request_id: send for send in self._channel.pending()}.get(self._request_id)
        kept = self._member.participation.kept
        if pending is None:
            return f"the message was not accepted {when}"
        total = pending.segments_total
        if not pending.sent:
            alone = self._alone()
            return f"{pending.segments_propagated} of {total} segments were sent {when}{alone}; {kept}"
        if pending.stored:
            return f"nobody acknowledged the message {when}; a store has it for whoever is away; {kept}"
        some = f"only {names_of(pending.delivered_to)}" if pending.delivered_to else "nobody"
        return f"{some} acknowledged the message {when}; {kept}"

    def _alone(self) -> str:
        """Says it where nobody is there to send to: the log tells that only after a while, or not at all with -q."""
        node = self._member.participation.node
        if not isinstance(node, UdpNode) or node.connection_state is not ConnectionState.DISCONNECTED:
            return ""
        return f": nobody is in reach of {node.name}, see that another participant runs, and that the URL leads to it"

    def _size(self) -> str:
        return f"{len(self._message):,} bytes"

    def _elapsed(self) -> str:
        return _seconds(time.monotonic() - self._begun_s)


def names_of(participants: frozenset[str]) -> str:
    return ", ".join(printable(name) for name in sorted(participants))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds % 1 else f"{seconds:.0f} s"


class _Bar:
    """Segments sent and acknowledged, on a terminal."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:12}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            # Receipts are for whoever reads the standard output.
            redirect_stdout=False,
        )
        self._tasks = {stage: self._progress.add_task(stage, total=None) for stage in ("sent", "acknowledged")}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def advance(self, stage: str, count: int, total: int) -> None:
        self._progress.update(self._tasks[stage], completed=count, total=total)


def _bar(output: Output) -> AbstractContextManager[_Bar | None]:
    return _Bar() if not output.as_json and sys.stderr.isatty() else nullcontext()
