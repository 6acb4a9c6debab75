"""Lines on their way to a standard stream: a reader that pauses holds up a thread, never the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TextIO

# Of a line, at once: how slowly it is read shows before all of it is written.
_PIECE_BYTES = 1 << 16
# Between two attempts on a stream that does not block.
_PAUSE_S = 0.05


class LineWriter:
    """Writes lines in their order, in a thread of its own.

    Args:
        stream: Gets them.
        on_failed: Called in the event loop when it takes nothing more.
    """

    def __init__(self, stream: TextIO, on_failed: Callable[[OSError], None]) -> None:
        # Not through the buffer: its lock, held by a thread that waits for a reader, would hold up the end of Python.
        self._raw = getattr(stream.buffer, "raw", stream.buffer)
        self._encoding = stream.encoding or "utf-8"
        self._thread = threading.get_ident()
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._waiting: deque[asyncio.Future[bool]] = deque()
        self._is_over = False
        self._bytes_written = 0
        threading.Thread(target=self._run, name="shardwire output", daemon=True).start()

    @property
    def stands_at(self) -> int | None:
        """How many bytes are written, while there are more to write."""
        return self._bytes_written if self._waiting else None

    def put(self, line: str) -> None:
        """Hands over a line, also from another thread; it is dropped where none can be written any more."""
        if threading.get_ident() != self._thread:
            # A loop that has ended shows nothing more.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.put, line)
        elif not self._is_over:
            # What the stream cannot encode is no reason to end.
            encoded = f"{line}\n".encode(self._encoding, "backslashreplace")
            self._waiting.append(self._loop.create_future())
            self._lines.put(encoded.replace(b"\n", os.linesep.encode()))

    async def written(self) -> bool:
        """Whether every line so far was written; returns once that is known."""
        # Whoever waits may be cancelled; the line is not.
        return await asyncio.shield(self._waiting[-1]) if self._waiting else not self._is_over

    def end(self) -> None:
        """Gives up what is not written; the thread ends where no reader holds it up."""
        self._is_over = True
        self._lines.put(None)
        while self._waiting:
            self._waiting.popleft().set_result(False)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None and not self._is_over:
            failure = None
            try:
                self._write(line)
            except OSError as error:
                failure = error
            # A loop that has ended waits for nothing.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._settle, failure)

    def _write(self, line: bytes) -> None:
        left = memoryview(line)
        while left and not self._is_over:
            count = self._raw.write(left[:_PIECE_BYTES])
            if count is None:
                time.sleep(_PAUSE_S)
                continue
            self._bytes_written += count
            left = left[count:]

    def _settle(self, failure: OSError | None) -> None:
        if self._is_over:
            return
        if failure is None:
            self._waiting.popleft().set_result(True)
            return
        # Before those who wait go on, so that they find it said.
        self._on_failed(failure)
        self.end()
