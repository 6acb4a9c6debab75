"""The command `shardwire` in processes of its own, as people have it in their terminals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 120.0


def environment(**changes: str) -> dict[str, str]:
    """What a command runs in: this tree, and nothing that names a node or a secret by chance."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHARDWIRE_")}
    path = os.pathsep.join((str(ROOT / "python"), os.environ.get("PYTHONPATH", "")))
    return {**kept, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **changes}


class Terminal:
    """One command that runs; a context manager that ends it.

    Attributes:
        out: Lines of its standard output so far.
        err: Lines of its standard error stream so far.

    Args:
        directory: Where it runs.
        arguments: What follows `shardwire`.
        settings: Environment variables.
    """

    def __init__(self, directory: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> None:
        self.out: list[str] = []
        self.err: list[str] = []
        self._arguments = arguments
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shardwire.cli", *arguments],
            cwd=directory,
            env=environment(**(settings or {})),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        if kind is None:
            assert not _faults(self.err), str(self)

    def type(self, text: str) -> None:
        """Writes to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def end_input(self) -> None:
        """Ctrl-D."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def events(self, name: str) -> list[dict[str, Any]]:
        """What it told with --json under a name."""
        return [told for line in list(self.out) if (told := json.loads(line))["event"] == name]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for what it tells.

        Raises:
            AssertionError: It ended before, or time is up.
        """
        deadline_s = time.monotonic() + PATIENCE_S
        with self._changed:
            while not condition():
                ended = not any(reader.is_alive() for reader in self._readers)
                left_s = deadline_s - time.monotonic()
                assert not ended or condition(), f"it ended before {what}: {self}"
                assert left_s > 0, f"not within {PATIENCE_S} s: {what}: {self}"
                self._changed.wait(min(left_s, 0.5))

    def until_event(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        """Waits until it told so many events of a name."""
        self.until(lambda: len(self.events(name)) >= count, f"{count} {name}")
        return self.events(name)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        code = self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return code

    def __str__(self) -> str:
        told = "\n".join([*(f"  | {line[:500]}" for line in self.out), *(f"  ! {line[:500]}" for line in self.err)])
        return f"shardwire {' '.join(self._arguments)}\n{told}"

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            with self._changed:
                lines.append(line.decode(errors="replace").rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()


def command(
    directory: Path, *arguments: str, given: bytes = b"", settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end, with an input."""
    answer = subprocess.run(
        [sys.executable, "-m", "shardwire.cli", *arguments],
        cwd=directory,
        env=environment(**(settings or {})),
        input=given,
        capture_output=True,
        check=False,
        timeout=2 * PATIENCE_S,
    )
    assert not _faults(answer.stderr.decode(errors="replace").splitlines()), answer.stderr
    return answer


def _faults(lines: Iterable[str]) -> list[str]:
    """What no command says: of a callback of its own that raises nothing but a line tells."""
    return [line for line in lines if "Traceback" in line or (": callback " in line and " raised " in line)]
