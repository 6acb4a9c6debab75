"""Statements on the tables of records, and of places of values that lie apart. A name is in one of both at most."""

from __future__ import annotations

ALL_RECORDS = "SELECT kind, key, checksum, value FROM record WHERE channel = ?"
PUT_RECORD = (
    "INSERT INTO record (channel, kind, key, checksum, value) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (channel, kind, key) DO UPDATE SET checksum = excluded.checksum, value = excluded.value"
)
DELETE_RECORD = "DELETE FROM record WHERE channel = ? AND kind = ? AND key = ?"
# Bounds of the key, rather than its beginning, are what the primary key is searched by.
DELETE_RECORDS = "DELETE FROM record WHERE channel = ? AND kind = ? AND key >= ? AND key < ?"

ALL_PLACES = "SELECT kind, key, start, size, checksum FROM place WHERE channel = ?"
PUT_PLACE = "INSERT OR REPLACE INTO place (channel, kind, key, start, size, checksum) VALUES (?, ?, ?, ?, ?, ?)"
DELETE_PLACE = "DELETE FROM place WHERE channel = ? AND kind = ? AND key = ?"
DELETE_PLACES = "DELETE FROM place WHERE channel = ? AND kind = ? AND key >= ? AND key < ?"
EMPTY_PLACES = "DELETE FROM place WHERE channel = ?"


def key_behind(prefix: bytes) -> bytes:
    """The least key behind those that begin with `prefix`; where there is none, one longer than keys are."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else b"\xff" * 1_024
