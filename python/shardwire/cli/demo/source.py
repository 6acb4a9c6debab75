"""The file that the demo sends: the user's, or a real binary that every machine has."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from shardwire.cli.demo.settings import largest_file_bytes, plan_demo
from shardwire.errors import ShardwireError

DEFAULT_BYTES_MIN = 5_000_000
PREFIX_BYTES = 8_000_000


@dataclass(frozen=True, slots=True)
class Source:
    """What is sent.

    Attributes:
        name: What to call it on screen.
        payload: Its bytes.
    """

    name: str
    payload: bytes


def load_source(file: Path | None) -> Source:
    """Reads `file`, or where it is None the default input.

    Raises:
        PayloadTooLargeError: The file is larger than one message holds; names both numbers.
        ShardwireError: It is too small, or no regular file.
        OSError: It cannot be read.
    """
    if file is None:
        return default_source(python_binaries())
    # Refused by its size, before it is read.
    plan_demo(regular_size_bytes(file))
    return Source(str(file), file.read_bytes())


def regular_size_bytes(file: Path) -> int:
    """The size of a file.

    Raises:
        ShardwireError: It is no regular file.
        OSError: It cannot be looked at.
    """
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ShardwireError(f"{file} is no regular file: the demo sends one file")
    return status.st_size


def default_source(candidates: list[Path]) -> Source:
    """The first candidate of 5 to 13 MB whole; else the first 8 MB of the largest.

    Raises:
        ShardwireError: There is no candidate of the demo's least size.
    """
    limit_bytes = largest_file_bytes()
    sizes = {path: path.stat().st_size for path in candidates}
    for path, size in sizes.items():
        if DEFAULT_BYTES_MIN <= size <= limit_bytes:
            return Source(str(path), path.read_bytes())
    if not sizes:
        raise ShardwireError("no binary of this Python was found to send: name a file")
    largest = max(sizes, key=lambda path: sizes[path])
    with largest.open("rb") as file:
        payload = file.read(PREFIX_BYTES)
    plan_demo(len(payload))
    name = str(largest) if len(payload) == sizes[largest] else f"the first {len(payload):,} bytes of {largest}"
    return Source(name, payload)


def python_binaries() -> list[Path]:
    """The running Python's executable and shared library, as far as they can be read."""
    library_directory = Path(sysconfig.get_config_var("LIBDIR") or sys.base_prefix)
    candidates = [Path(sys.executable)]
    for variable in ("INSTSONAME", "LDLIBRARY"):
        name = sysconfig.get_config_var(variable)
        if name:
            candidates += [library_directory / name, Path(sys.base_prefix) / name]
    found = {path.resolve(): None for path in candidates if path.is_file() and os.access(path, os.R_OK)}
    return list(found)
