"""Checksums of stored records."""

from __future__ import annotations

import zlib

from shardwire._native import crc32


def checksum_of(kind: str, key: bytes, value: bytes) -> int:
    """Covers what SQLite does not: it has no checksums of its own in the main file."""
    return crc32(value, zlib.crc32(key, zlib.crc32(kind.encode())))


def is_sound(kind: object, key: object, checksum: object, value: object) -> bool:
    # Damage can change the types too.
    typed = isinstance(kind, str) and isinstance(key, bytes) and isinstance(value, bytes)
    return typed and checksum == checksum_of(kind, key, value)  # type: ignore[arg-type]
