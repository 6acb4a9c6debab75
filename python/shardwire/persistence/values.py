"""A file of a channel for its large values, beside the database.

SQLite writes a large value twice, first to its log and then to the database, and looks at each byte on the way. Here it
is written once, over what is no longer of use: pages that the system has at hand already. What is in the file, and
where, the database alone tells.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from shardwire.errors import PersistenceError
from shardwire.persistence.channel_files import file_of
from shardwire.persistence.free_space import BLOCK_BYTES, FreeSpace, in_blocks

# A file that is longer than twice what is in use is cut, but never below this.
KEPT_BYTES = 32 << 20
# Parts of one call; systems allow 1,024.
_PARTS_MAX = 1_000
_ZEROS = memoryview(bytes(BLOCK_BYTES))


class Place(NamedTuple):
    """Where a value lies.

    Attributes:
        start: Its first byte.
        size: Its bytes, as they are stored.
        checksum: As that of a record.
    """

    start: int
    size: int
    checksum: int


class ValueFile:
    """The file, written by whoever has the channel's lock; made on first need.

    Args:
        database: Path of the database.
        channel_id: The channel whose values these are.
        read_only: For whoever has not the lock.
    """

    def __init__(self, database: Path, channel_id: str, *, read_only: bool = False) -> None:
        self._path = file_of(database, channel_id, ".values")
        self._flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC
        self._descriptor: int | None = None
        self._is_in_directory = False
        self._free_space = FreeSpace()

    @property
    def exists(self) -> bool:
        return self._descriptor is not None or self._path.exists()

    def keep(self, places: Sequence[Place]) -> bool:
        """These are in use, and all else is free. False where they cannot be: damage.

        Raises:
            OSError: The file cannot be opened.
        """
        try:
            self._free_space = FreeSpace((place.start, place.size) for place in places)
        except ValueError:
            return False
        if not places:
            return True
        descriptor = self._open()
        return descriptor is not None and os.fstat(descriptor).st_size >= max(
            place.start + place.size for place in places
        )

    def write(self, values: Sequence[bytes]) -> list[int]:
        """Where each of them lies; durable when this returns.

        Raises:
            OSError: Nothing was stored.
        """
        descriptor = self._made()
        starts = [self._free_space.take(len(value)) for value in values]
        try:
            for start, parts in _runs(starts, values):
                _write(descriptor, start, parts)
            _sync(descriptor)
        except BaseException:
            for start, value in zip(starts, values, strict=True):
                self._free_space.give_back(start, len(value))
            with contextlib.suppress(OSError):
                # A full disk needs the room.
                os.ftruncate(descriptor, self._free_space.end)
            raise
        return starts

    def read(self, place: Place) -> bytes | None:
        """What lies there, whatever it is; None where the file is missing or too short.

        Raises:
            OSError: It cannot be read.
        """
        descriptor = self._open()
        # Damage of a place must not ask for memory.
        if descriptor is None or place.start + place.size > os.fstat(descriptor).st_size:
            return None
        content = os.pread(descriptor, place.size, place.start)
        return content if len(content) == place.size else None

    def free(self, places: Iterable[Place]) -> None:
        """Nothing that is durable names them any more."""
        for place in places:
            self._free_space.give_back(place.start, place.size)
        if self._descriptor is None:
            return
        needed = max(self._free_space.end, KEPT_BYTES)
        # A file that is too long does no harm.
        with contextlib.suppress(OSError):
            if os.fstat(self._descriptor).st_size > 2 * needed:
                os.ftruncate(self._descriptor, needed)

    def require_in_place(self) -> None:
        """What is written to a file that was deleted or moved away nobody finds again.

        Raises:
            PersistenceError: It was.
        """
        if self._descriptor is not None and not self._is_in_place():
            raise PersistenceError(
                f"values file {str(self._path)!r} was deleted, moved or replaced while it is in use: nothing was "
                "stored; put it back in its place, or close its channel"
            )

    def remove(self) -> None:
        """Deletes it: nothing names any of it.

        Raises:
            OSError: It cannot be deleted.
        """
        # One that somebody put in its place stays.
        if self._descriptor is None or self._is_in_place():
            self._path.unlink(missing_ok=True)
        self.close()
        self._free_space = FreeSpace()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int | None:
        """None where there is none."""
        if self._descriptor is None:
            with contextlib.suppress(FileNotFoundError):
                self._descriptor = os.open(self._path, self._flags)
        return self._descriptor

    def _made(self) -> int:
        descriptor = self._open()
        if descriptor is None:
            descriptor = self._descriptor = os.open(self._path, self._flags | os.O_CREAT, 0o600)
            with contextlib.suppress(OSError):
                # Whatever the umask takes away, its owner opens it again.
                os.fchmod(descriptor, 0o600)
        if not self._is_in_directory:
            # After a power cut it is found under its name only when that is durable.
            directory = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
            self._is_in_directory = True
        return descriptor

    def _is_in_place(self) -> bool:
        assert self._descriptor is not None
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._descriptor))
        except OSError:
            return False


def _runs(starts: Sequence[int], values: Sequence[bytes]) -> Iterator[tuple[int, list[bytes | memoryview]]]:
    """Where to write what, in few calls: what lies side by side as one.

    Each is filled up to whole blocks: of a page that is written in part the rest would be read from the disk first.
    """
    parts: list[bytes | memoryview] = []
    begin = end = -1
    for start, value in sorted(zip(starts, values, strict=True), key=lambda found: found[0]):
        if start != end or len(parts) >= _PARTS_MAX:
            if parts:
                yield begin, parts
            begin, parts = start, []
        parts.append(value)
        end = start + in_blocks(len(value))
        if padding := end - start - len(value):
            parts.append(_ZEROS[:padding])
    if parts:
        yield begin, parts


def _write(descriptor: int, start: int, parts: Sequence[bytes | memoryview]) -> None:
    written = os.pwritev(descriptor, parts, start)
    if written < sum(map(len, parts)):
        # Little room is left, or a call has a bound.
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            start += written
            written = os.pwrite(descriptor, rest, start)
            rest = rest[written:]


def _sync(descriptor: int) -> None:
    if sys.platform == "darwin":
        # There the others do not reach the disk.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)
