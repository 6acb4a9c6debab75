"""Reads the byte-exact vectors of other implementations; `tests/vectors/README.md` gives each file's source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_DIRECTORY = Path(__file__).parents[1] / "vectors"


def load(name: str) -> Any:
    """The content of `tests/vectors/<name>.json`."""
    return json.loads((_DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))


def data_shards(data_count: int, shard_bytes: int) -> list[bytes]:
    """The shards of the erasure vectors: byte i of shard j is (31 i + 17 j + 7 (i >> 8) + 11) mod 256."""
    return [bytes((i * 31 + j * 17 + (i >> 8) * 7 + 11) & 0xFF for i in range(shard_bytes)) for j in range(data_count)]
