"""Files of a channel beside a database, one for each purpose."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

# Those that belong to the state itself, in use or left by whoever was killed.
_STATE_SUFFIXES = (".journal", ".values")
_DIGITS = 16


def file_of(database: Path, channel_id: str, suffix: str) -> Path:
    """A file of a channel, beside the database itself as its log is: it is the same one for whoever opens that under
    another name."""
    real = Path(os.path.realpath(database))
    digest = hashlib.sha256(channel_id.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return real.with_name(f"{real.name}-{digest}{suffix}")


def state_files(database: Path) -> list[Path]:
    """Files of the states of all channels of a database."""
    real = Path(os.path.realpath(database))
    name = f"{real.name}-"
    return [
        path
        for path in real.parent.iterdir()
        if path.name.startswith(name) and path.suffix in _STATE_SUFFIXES and len(path.stem) == len(name) + _DIGITS
    ]
