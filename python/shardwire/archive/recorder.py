"""Live traffic into an archive: what a node hears, as Parquet, a row a message."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet

from shardwire.config.checks import INTEGER_MAX, INTEGER_MIN, check_integer, check_path
from shardwire.durable_files import appears_whole, sync_directory
from shardwire.errors import ConfigError
from shardwire.node.protocol import MessageReceived, MessagesMissed, Node, NodeEvent
from shardwire.node.waku_message import check_topics
from shardwire.quoting import os_reason

logger = logging.getLogger(__name__)

_FIELDS: list[pa.Field[Any]] = [
    pa.field("content_topic", pa.string(), nullable=False),
    pa.field("timestamp", pa.int64(), nullable=False),  # nanoseconds since the Unix epoch
    pa.field("payload", pa.binary(), nullable=False),
    pa.field("meta", pa.binary(), nullable=False),
    pa.field("message_hash", pa.binary(), nullable=False),
]
SCHEMA = pa.schema(_FIELDS)
BYTES_PER_FILE = 64 << 20
# Between a file that cannot be written and the next attempt.
_RETRY_S = 1.0


class Recorder:
    """Writes what a node hears of some topics into a directory of Parquet files, for as long as it is entered.

        async with Recorder(node, ["/app/1/notes/proto"], "archive") as recorder:
            await asyncio.sleep(3_600)

    A row has `content_topic`, `timestamp` (ns, as the sender tells it), `payload` (of a channel an SDS message,
    encrypted where it is), `meta` and `message_hash`. Files appear whole and synced, under names that sort by time; a
    directory that has some gets more. Give the recorder a node of its own: on one that it shares, a channel that closes
    ends its topic for the recorder too.

    Args:
        node: A started node; it stays the caller's, and subscribed.
        content_topics: What is recorded.
        directory: Gets the files; made where it does not exist.
        rows_per_file: A file is written when so many messages wait for it, or 64 MiB of them.
        interval_ms: Or when the first of them has waited for so long: what a crash loses at most.

    Attributes:
        rows_written: Messages in files so far.
        gaps: How often the node said that messages may have passed it by.

    Raises:
        ConfigError: An argument is out of its limits, or the directory is a file.
    """

    def __init__(
        self,
        node: Node,
        content_topics: Sequence[str],
        directory: str | os.PathLike[str],
        *,
        rows_per_file: int = 10_000,
        interval_ms: int = 60_000,
    ) -> None:
        for name, value in (("rows_per_file", rows_per_file), ("interval_ms", interval_ms)):
            check_integer(name, value, 1)
        check_topics(content_topics)
        if not content_topics:
            raise ConfigError("content_topics is empty: name the topics that are recorded")
        if not isinstance(node, Node):
            raise ConfigError(f"node is a {type(node).__name__}: it must be a shardwire.node.Node, started")
        check_path("directory", directory, "a directory")
        self._directory = Path(directory)
        if self._directory.exists() and not self._directory.is_dir():
            raise ConfigError(f"directory is {str(self._directory)!r}, a file: give a directory")
        self.rows_written = 0
        self.gaps = 0
        self._node = node
        self._topics = tuple(content_topics)
        self._rows_per_file = rows_per_file
        self._interval_s = interval_ms / 1_000
        self._rows: list[MessageReceived] = []
        self._bytes = 0
        self._last_us = 0
        self._due, self._room = asyncio.Event(), asyncio.Event()
        self._ended = False
        self._hearing: asyncio.Task[None] | None = None

    @property
    def is_hearing(self) -> bool:
        """Whether it is entered, and the node goes on: one that was stopped, or failed, is heard no more; nor is any
        where something else than the disk kept a file from being written."""
        return self._hearing is not None and not self._hearing.done()

    async def __aenter__(self) -> Self:
        if self._hearing is not None and not self._ended:
            raise ConfigError("the recorder is entered already: make another one, or leave it first")
        self._directory.mkdir(parents=True, exist_ok=True)
        events = self._node.events()
        await self._node.subscribe(self._topics)
        self._ended = False
        self._hearing = asyncio.create_task(self._hear(events), name="recorder: hear")
        self._writing = asyncio.create_task(self._write_files(), name="recorder: write")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Writes the rest.

        Raises:
            OSError: It cannot be written.
            Exception: What ended the hearing or the writing before.
        """
        # What the node has queued is taken in this step.
        await asyncio.sleep(0)
        assert self._hearing is not None
        self._hearing.cancel()
        await asyncio.wait((self._hearing,))
        self._ended = True
        self._due.set()
        await self._writing
        if not self._hearing.cancelled() and (failed := self._hearing.exception()) is not None:
            raise failed

    async def _hear(self, events: AsyncIterator[NodeEvent]) -> None:
        try:
            async for event in events:
                if isinstance(event, MessagesMissed):
                    self.gaps += 1
                    logger.warning("messages may have passed the recorder by: its archive has a gap")
                elif isinstance(event, MessageReceived) and event.envelope.content_topic in self._topics:
                    self._rows.append(event)
                    self._bytes += len(event.envelope.payload)
                    if self._is_full():
                        self._due.set()
                    if self._bytes > 2 * BYTES_PER_FILE or len(self._rows) > 2 * self._rows_per_file:
                        # The disk is slower than the network: the node has a bounded queue, and says what it drops.
                        self._room.clear()
                        await self._room.wait()
            logger.info("the node was stopped: the recorder hears nothing more")
        except Exception as error:
            logger.error("the recorder hears nothing more: %s", error)
            raise

    def _is_full(self) -> bool:
        return len(self._rows) >= self._rows_per_file or self._bytes >= BYTES_PER_FILE

    async def _write_files(self) -> None:
        try:
            await self._write_what_comes()
        except Exception as error:
            if not self._ended:
                logger.error("the recorder writes nothing more: %s: %s", type(error).__name__, error)
                assert self._hearing is not None
                self._hearing.cancel()
            raise

    async def _write_what_comes(self) -> None:
        fails = False
        while not (self._ended and not self._rows):
            # What could not be written has waited for its time already.
            if not self._ended and not self._is_full() and not fails:
                self._due.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._interval_s):
                        await self._due.wait()
            waiting = len(self._rows)
            while waiting > 0:
                rows = self._rows[: self._rows_per_file]
                try:
                    await asyncio.to_thread(self._write, rows)
                except OSError as error:
                    if self._ended:
                        raise
                    if not fails:
                        logger.error("the recorder cannot write, and tries again: %s", os_reason(error))
                    fails = True
                    await asyncio.sleep(_RETRY_S)
                    break
                fails = False
                del self._rows[: len(rows)]
                self._bytes -= sum(len(row.envelope.payload) for row in rows)
                self.rows_written += len(rows)
                waiting -= len(rows)
                self._room.set()

    def _write(self, rows: Sequence[MessageReceived]) -> None:
        self._last_us = max(time.time_ns() // 1_000, self._last_us + 1)
        path = self._directory / f"{self._last_us:017}-{os.getpid()}.parquet"
        columns = [
            [row.envelope.content_topic for row in rows],
            # What a peer tells may be beyond what a column holds.
            [max(INTEGER_MIN, min(row.timestamp_ns, INTEGER_MAX)) for row in rows],
            [row.envelope.payload for row in rows],
            [row.envelope.meta for row in rows],
            [row.message_hash for row in rows],
        ]
        with appears_whole(path) as file:
            pa.parquet.write_table(pa.table(columns, schema=SCHEMA), file)
        sync_directory(self._directory)
