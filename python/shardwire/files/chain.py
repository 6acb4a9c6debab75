"""The hash chain of a file (`proto/file_transfer.proto`).

The hash of a chunk covers the chunk and the hash of the next one, so the first hash covers the whole file, and who has
it can check each chunk as it comes, in order. Chains are made from the end.
"""

from __future__ import annotations

import io
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO

from shardwire._native import Keccak256
from shardwire.errors import ConfigError, FileChangedError

HASH_BYTES = 32
# Stands behind the last chunk.
END_OF_CHAIN = bytes(HASH_BYTES)
# Hashes of the chunks of 32 GiB at 1 MiB a chunk; of larger files they lie in a temporary file.
_HASHES_IN_MEMORY_BYTES = 1 << 20


def chunk_count_of(size_bytes: int, chunk_size_bytes: int) -> int:
    return -(-size_bytes // chunk_size_bytes)


def chunk_hash(data: bytes, next_hash: bytes) -> bytes:
    hasher = Keccak256()
    hasher.update(data)
    hasher.update(next_hash)
    return hasher.digest()


def file_has_chain(path: Path, size_bytes: int, chunk_size_bytes: int, chain_hash: bytes) -> bool:
    """Whether `path` is a file of this size and chain.

    Raises:
        OSError: It cannot be read.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        return False
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != size_bytes:
            return False
        last = END_OF_CHAIN
        for index in reversed(range(chunk_count_of(size_bytes, chunk_size_bytes))):
            file.seek(index * chunk_size_bytes)
            last = chunk_hash(file.read(chunk_size_bytes), last)
    return last == chain_hash


def check_regular(path: Path) -> None:
    """Refuses a directory, and a pipe: opening that would wait for who writes to it.

    Raises:
        ConfigError: It is no regular file.
        OSError: It is not there.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ConfigError(f"path is {str(path)!r}: it must be a regular file")


class FileSource:
    """A file that is sent, and the hashes of its chunks. It is opened when it is scanned.

    Raises:
        ConfigError: It is no regular file.
        OSError: It is not there, or cannot be looked at.
    """

    def __init__(self, path: Path, chunk_size_bytes: int) -> None:
        self.path = path
        self.chunk_size_bytes = chunk_size_bytes
        check_regular(path)
        self.size_bytes = path.stat().st_size
        self.chunk_count = chunk_count_of(self.size_bytes, chunk_size_bytes)
        self._file: BinaryIO = io.BytesIO()
        self._hashes = tempfile.SpooledTemporaryFile(max_size=_HASHES_IN_MEMORY_BYTES)  # noqa: SIM115

    def scan(self) -> bytes:
        """Reads the file once, from its end, and gives its chain hash.

        Raises:
            FileChangedError: It changed meanwhile, or has another size than it says.
            OSError: It cannot be opened or read, or there is no room for its hashes.
        """
        self._file = self.path.open("rb")
        last = END_OF_CHAIN
        for index in reversed(range(self.chunk_count)):
            self._hashes.seek(index * HASH_BYTES)
            last = chunk_hash(self._read_chunk(index), last)
            self._hashes.write(last)
        self._file.seek(self.size_bytes)
        if self._file.read(1):
            raise self._resized()
        return last

    def read(self, index: int) -> tuple[bytes, bytes]:
        """A chunk, and the hash of the next one.

        Raises:
            FileChangedError: It is not what it was.
            OSError: It cannot be read.
        """
        data = self._read_chunk(index)
        next_hash = self._hash_of(index + 1)
        if chunk_hash(data, next_hash) != self._hash_of(index):
            raise self._changed()
        return data, next_hash

    def close(self) -> None:
        self._file.close()
        self._hashes.close()

    def _hash_of(self, index: int) -> bytes:
        if index == self.chunk_count:
            return END_OF_CHAIN
        self._hashes.seek(index * HASH_BYTES)
        return self._hashes.read(HASH_BYTES)

    def _read_chunk(self, index: int) -> bytes:
        start = index * self.chunk_size_bytes
        self._file.seek(start)
        data = self._file.read(self.chunk_size_bytes)
        is_whole = len(data) == min(self.chunk_size_bytes, self.size_bytes - start)
        if not is_whole or not self._has_its_size():
            raise self._resized()
        return data

    def _has_its_size(self) -> bool:
        return os.fstat(self._file.fileno()).st_size == self.size_bytes

    def _resized(self) -> FileChangedError:
        if not self._has_its_size():
            return self._changed()
        return FileChangedError(
            f"{str(self.path)!r} does not have the {self.size_bytes} bytes that it says it has, as files of /proc and "
            "/sys: send a copy of it"
        )

    def _changed(self) -> FileChangedError:
        return FileChangedError(
            f"{str(self.path)!r} changed while it was sent: send it again when nothing writes to it any more"
        )
