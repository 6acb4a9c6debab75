"""Files that are whole or not there, also after a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def appears_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which is on the disk and has its name once the block ends; `sync_directory` keeps that name.

    Raises:
        OSError: It could not be done, and nothing is left of it; it names `path`.
    """
    hidden = path.with_name(f".{path.name}.part")
    try:
        with hidden.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
    except BaseException as error:
        hidden.unlink(missing_ok=True)
        # The name of what is not whole yet says nothing to a reader.
        if isinstance(error, OSError) and error.strerror and error.filename in (None, str(hidden)):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable.

    Raises:
        OSError: It could not be done.
    """
    if os.name == "nt":
        # A directory cannot be opened there; renames are in the journal.
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
