"""A file that is being received: its chunks so far, on disk under a hidden name beside the destination.

Nothing is written by what an offer claims, and the destination's name appears when the file is whole, verified and
durable. What a crash leaves is verified again from the first byte, so nothing depends on what reached the disk in which
order.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from shardwire._native import FileChunk, FileManifest
from shardwire.durable_files import sync_directory
from shardwire.files.chain import END_OF_CHAIN, HASH_BYTES, chunk_count_of, chunk_hash, file_has_chain

# What a file system without hard links answers.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK})


class PartialFile:
    """The first chunks of one file.

    Args:
        destination: Where it appears when it is whole.
        manifest: What was offered.
        receiver_mark: Tells apart who receives it: each writes files of its own, also where several receive the same
            file in one directory.

    Attributes:
        next_index: The first chunk that is not held.
    """

    def __init__(self, destination: Path, manifest: FileManifest, receiver_mark: str) -> None:
        self.destination = destination
        self.manifest = manifest
        self.chunk_count = chunk_count_of(manifest.size_bytes, manifest.chunk_size_bytes)
        self.next_index = 0
        self._next_hash = manifest.chain_hash
        stem = f".{manifest.transfer_id.hex()}.{receiver_mark}"
        self._data = destination.with_name(f"{stem}.part")
        # The hashes that came with the chunks: without them what a crash leaves could not be verified.
        self._hashes = destination.with_name(f"{stem}.hashes")

    @property
    def is_whole(self) -> bool:
        return self.next_index == self.chunk_count and self._next_hash == END_OF_CHAIN

    @property
    def held_bytes(self) -> int:
        return min(self.next_index * self.manifest.chunk_size_bytes, self.manifest.size_bytes)

    def resume(self) -> None:
        """Takes up what an earlier life left, as far as it is right.

        Raises:
            OSError: The directory cannot be written to, or not read.
        """
        with self._data.open("a+b") as data, self._hashes.open("a+b") as hashes:
            data.seek(0)
            hashes.seek(0)
            while self.next_index < self.chunk_count:
                chunk, next_hash = data.read(self._chunk_bytes(self.next_index)), hashes.read(HASH_BYTES)
                if not self._is_next(chunk, next_hash):
                    break
                self._advance(next_hash)
            data.truncate(self.held_bytes)
            hashes.truncate(self.next_index * HASH_BYTES)

    def fits(self, chunk: FileChunk) -> bool:
        """Whether it is the next chunk of this file."""
        return chunk.index == self.next_index and self._is_next(chunk.data, chunk.next_hash)

    def write(self, chunk: FileChunk) -> None:
        """Adds the next chunk.

        Raises:
            OSError: It could not be written.
        """
        for path, start, data in (
            (self._data, self.held_bytes, chunk.data),
            (self._hashes, self.next_index * HASH_BYTES, chunk.next_hash),
        ):
            with path.open("r+b") as file:
                file.seek(start)
                file.write(data)
        self._advance(chunk.next_hash)

    def finish(self) -> None:
        """Makes the whole file durable, then gives it its name, unless somebody else has put this very file there.

        Raises:
            FileExistsError: There is another file of that name.
            OSError: It could not be done.
        """
        with self._data.open("r+b") as file:
            os.fsync(file.fileno())
        try:
            self._name()
        except FileExistsError:
            # Another receiver in this directory may have had it first.
            if not self.is_there():
                raise
            return
        self._hashes.unlink(missing_ok=True)
        sync_directory(self.destination.parent)

    def _name(self) -> None:
        try:
            # Unlike a rename, a link never takes the place of a file.
            os.link(self._data, self.destination)
            self._data.unlink()
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if os.path.lexists(self.destination):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.destination)) from None
            self._data.rename(self.destination)

    def is_there(self) -> bool:
        """Whether the destination has this very file; then it is durable, and what was received is removed.

        Raises:
            FileExistsError: It has another one.
            OSError: It cannot be read, or not be made durable; or nothing can be of that name.
        """
        manifest, path = self.manifest, self.destination
        try:
            path.lstat()
        except FileNotFoundError:
            return False
        if path.is_dir():
            text = "the place chosen is a directory: choose the path of a file in it"
            raise FileExistsError(errno.EEXIST, text, str(path))
        if not file_has_chain(path, manifest.size_bytes, manifest.chunk_size_bytes, manifest.chain_hash):
            raise FileExistsError(errno.EEXIST, "there is another file of that name", str(path))
        # A crash between the two names of a finished file leaves both; and who put it there may not have made it
        # durable.
        self._accept()
        return True

    def _accept(self) -> None:
        with self.destination.open("rb") as file:
            os.fsync(file.fileno())
        sync_directory(self.destination.parent)
        self.discard()

    def discard(self) -> None:
        """Removes what was received."""
        for path in (self._data, self._hashes):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _chunk_bytes(self, index: int) -> int:
        size = self.manifest.chunk_size_bytes
        return min(size, self.manifest.size_bytes - index * size)

    def _is_next(self, data: bytes, next_hash: bytes) -> bool:
        index = self.next_index
        if index >= self.chunk_count or len(data) != self._chunk_bytes(index):
            return False
        if index == self.chunk_count - 1 and next_hash != END_OF_CHAIN:
            return False
        return chunk_hash(data, next_hash) == self._next_hash

    def _advance(self, next_hash: bytes) -> None:
        self.next_index += 1
        self._next_hash = next_hash
