"""How many commits of a channel were told of, in a small file beside the database.

It is written when a commit is durable and before whoever asked for it learns that. So no crash makes it say more than
the database: where it does, the database is older than what was told. It is not synced: after a power cut it may say
less, which says nothing.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path

from shardwire.errors import PersistenceError
from shardwire.persistence.channel_files import file_of

# The count and its checksum.
_COUNT_BYTES = 8
_SIZE_BYTES = _COUNT_BYTES + 4


class CommitCount:
    """The file, written by whoever has the channel's lock.

    Raises:
        PersistenceError: It cannot be made.
    """

    def __init__(self, database: Path, channel_id: str) -> None:
        path = file_of(database, channel_id, ".count")
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PersistenceError(
                f"count file {str(path)!r} cannot be opened: {error.strerror}: it must be a file this user may write"
            ) from None
        with contextlib.suppress(OSError):
            # Whatever the umask takes away, its owner opens it again.
            os.fchmod(self._descriptor, 0o600)

    def read(self) -> int:
        """0 where it says nothing."""
        return _read(self._descriptor)

    def write(self, count: int) -> None:
        # A commit that is durable does not fail because of it.
        with contextlib.suppress(OSError):
            text = count.to_bytes(_COUNT_BYTES, "big")
            os.pwrite(self._descriptor, text + zlib.crc32(text).to_bytes(4, "big"), 0)

    def close(self) -> None:
        os.close(self._descriptor)


def told_commits(database: Path, channel_id: str) -> int:
    """What the file says; 0 where there is none, or it says nothing."""
    try:
        descriptor = os.open(file_of(database, channel_id, ".count"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> int:
    try:
        content = os.pread(descriptor, _SIZE_BYTES, 0)
    except OSError:
        return 0
    count, checksum = content[:_COUNT_BYTES], content[_COUNT_BYTES:]
    # A power cut may leave anything.
    is_whole = len(content) == _SIZE_BYTES and zlib.crc32(count) == int.from_bytes(checksum, "big")
    return int.from_bytes(count, "big") if is_whole else 0
