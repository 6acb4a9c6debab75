"""Participants as their tests see them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 120.0
LINE_BYTES_MAX = 1 << 20


class Process:
    """A participant's process; it may be killed, and started again with the same settings.

    Attributes:
        told: What it told, over all its lives.
        lives: How often it was started.

    Args:
        directory: For its database and its log.
        settings: As `participant.Participant` takes them.
    """

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name: str = settings["sender_id"]
        self.told: list[dict[str, Any]] = []
        self.lives = 0
        self._directory = directory
        self._settings = settings
        self._changed = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        # Request -> number, over all lives.
        self._numbers: dict[str, int] = {}

    async def start(self) -> None:
        """Starts it; returns when its channel is there."""
        self.lives += 1
        begun = len(self.told)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "python"), str(ROOT / "tests")))}
        with (self._directory / f"{self.name}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "interop.live.participant",
                json.dumps(self._settings),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment,
                limit=LINE_BYTES_MAX,
            )
        self._reading = asyncio.create_task(self._read(self._process))
        await self.until(lambda: any(line["event"] == "ready" for line in self.told[begun:]), "it is ready")

    async def send(self, first: int, count: int, size: int) -> None:
        """Sends messages with these numbers; returns when they are accepted."""
        for number in range(first, first + count):
            self._write({"do": "send", "number": number, "size": size})
        wanted = set(range(first, first + count))
        await self.until(lambda: wanted <= self.numbers("accepted"), f"it accepted {count} messages")

    async def close(self) -> None:
        """Lets it close its channel and its node."""
        self._write({"do": "close"})
        await self.until(lambda: self.told[-1]["event"] == "closed", "it closed")
        assert self._process is not None
        await self._process.wait()
        self._process = None

    async def kill(self) -> None:
        """Ends it as a crash does."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        if self._reading is not None:
            await self._reading

    def pause(self) -> None:
        """Stops it: the machine sleeps."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def numbers(self, event: str) -> set[int]:
        """Numbers of the messages that it told such an event of."""
        return {line["number"] for line in self.told if line["event"] == event and line["number"] is not None}

    def chunks(self, number: int) -> int:
        """How many chunks of a message left."""
        counts = [line["count"] for line in self.told if line["event"] == "chunks" and line["number"] == number]
        return max(counts, default=0)

    def check_received(self, wanted: set[int]) -> None:
        """Every message came intact and once; only what a crash interrupted comes again, and says so."""
        lines = [line for line in self.told if line["event"] == "received"]
        assert all(line["intact"] for line in lines), f"{self.name} received a broken message"
        assert {line["number"] for line in lines} == wanted, f"{self.name} received other messages than were sent"
        times = Counter(line["number"] for line in lines if not (line["redelivered"] and self.lives > 1))
        again = [number for number, count in times.items() if count > 1]
        assert not again, f"{self.name} received {again} more than once"

    async def until(self, condition: Callable[[], bool], what: str, *, within_s: float = PATIENCE_S) -> None:
        """Waits until what it told meets a condition.

        Raises:
            AssertionError: It ended, or time is up.
        """
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    assert self._reading is None or not self._reading.done(), f"{self._where()} ended before {what}"
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            counts = Counter(line["event"] for line in self.told)
            raise AssertionError(f"{self._where()}: not within {within_s} s: {what}; it told {counts}") from None

    def _where(self) -> str:
        log = self._directory / f"{self.name}.log"
        last = log.read_text(errors="replace")[-3_000:] if log.exists() else ""
        return f"{self.name} (last of its log:\n{last})"

    def _write(self, command: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            told = json.loads(line)
            if told["event"] == "accepted":
                self._numbers[told["request"]] = told["number"]
            elif told.get("number") is None and "request" in told:
                told["number"] = self._numbers.get(told["request"])
            self.told.append(told)
            self._changed.set()
        self._changed.set()
