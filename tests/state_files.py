"""Files of a database, as a test looks at them."""

from __future__ import annotations

import errno
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

from shardwire._native import JournalFile, read_journal
from shardwire.persistence.channel_files import state_files
from shardwire.persistence.journal_rows import Row


def values_files(path: Path) -> list[Path]:
    return [file for file in state_files(path) if file.suffix == ".values"]


def journal_files(path: Path) -> list[Path]:
    return [file for file in state_files(path) if file.suffix == ".journal"]


def large(seed: int, count: int = 6, kind: str = "kind") -> dict[tuple[str, bytes], bytes]:
    """So many bytes that a commit of them has a file."""
    rng = random.Random(seed)
    return {(kind, bytes([number])): rng.randbytes(100_000) for number in range(count)}


def places(path: Path) -> int:
    """How many large values the database names that lie in a file of their own."""
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT count(*) FROM place").fetchone()[0])
    finally:
        connection.close()


def copy_of(path: Path, name: str) -> Path:
    """The files as a kill leaves them, in another directory."""
    directory = path.parent / name
    directory.mkdir()
    for file in path.parent.iterdir():
        if file.is_file() and not file.name.endswith((".lock", "-shm")):
            shutil.copy(file, directory)
    return directory / path.name


class FailingFile:
    """In place of a `JournalFile`, which it is but for writing.

    Args:
        file: The file.
        fails: Whether a row that is written then counts as not written: the disk says so, whatever it did.
    """

    def __init__(self, file: JournalFile, *, fails: bool = True) -> None:
        self._file = file
        self.fails = fails

    def append(self, number: int, body: bytes) -> None:
        self._file.append(number, body)
        self._fail()

    def end(self) -> None:
        self._file.end()
        self._fail()

    def _fail(self) -> None:
        if self.fails:
            raise OSError(errno.EIO, "the disk says so")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def folded(path: Path) -> tuple[int, bytes | None]:
    """Up to which commit all of the one channel is folded, and the token of its journal."""
    connection = sqlite3.connect(path)
    commits, token = connection.execute("SELECT commits, journal FROM channel").fetchone()
    connection.close()
    return commits, token


def rows_of(path: Path) -> list[Row]:
    """What stands in the journal of the one channel."""
    commits, token = folded(path)
    files = journal_files(path)
    return read_journal(str(files[0]), token, commits) if files and token else []
