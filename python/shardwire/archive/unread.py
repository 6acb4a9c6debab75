"""Rows that are no segment, counted by reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute

from shardwire._native import SENDERS_MAX


@dataclass(slots=True)
class _Counted:
    by: tuple[Any, ...]
    reason: str
    rows: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    senders: set[str] = field(default_factory=set)

    def add(self, rows: int, first: int | None, last: int | None, senders: Sequence[str]) -> None:
        self.rows += rows
        known = [time for time in (self.first_timestamp, first) if time is not None]
        self.first_timestamp = min(known, default=None)
        known = [time for time in (self.last_timestamp, last) if time is not None]
        self.last_timestamp = max(known, default=None)
        self.senders.update(senders)
        if len(self.senders) > SENDERS_MAX:
            self.senders = set(sorted(self.senders)[:SENDERS_MAX])


class Unread:
    """Counts by reason and by the values of `by`."""

    def __init__(self, by: Sequence[str]) -> None:
        self._by = list(by)
        self._counted: dict[str, _Counted] = {}

    def taken_from(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Takes the rows without a hash; returns the others."""
        digest = messages.column("entire_message_hash")
        if not digest.null_count:
            return messages
        is_read: Any = digest.is_valid()
        names = [*self._by, "error", "segments_received", "first_timestamp", "last_timestamp", "senders"]
        for row in pa.Table.from_batches([messages.filter(pa.compute.invert(is_read))]).select(names).to_pylist():
            self._of(tuple(row[name] for name in self._by), row["error"]).add(
                row["segments_received"], row["first_timestamp"], row["last_timestamp"], row["senders"]
            )
        return messages.filter(is_read)

    def merge(self, other: Unread) -> None:
        """Adds what another one counted."""
        for one in other._counted.values():
            self._of(one.by, one.reason).add(one.rows, one.first_timestamp, one.last_timestamp, sorted(one.senders))

    def by_reason(self) -> dict[str, int]:
        """Rows by reason."""
        found: Counter[str] = Counter()
        for one in self._counted.values():
            found[one.reason] += one.rows
        return dict(sorted(found.items()))

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """A row for each."""
        rows = [
            {
                **dict(zip(self._by, one.by, strict=True)),
                "status": "invalid",
                "segments_received": one.rows,
                "duplicates": 0,
                "conflicts": 0,
                "first_timestamp": one.first_timestamp,
                "last_timestamp": one.last_timestamp,
                "senders": sorted(one.senders),
                "copies": 0,
                "error": one.reason,
            }
            for _, one in sorted(self._counted.items())
        ]
        columns: list[Any] = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _of(self, by: tuple[Any, ...], reason: str) -> _Counted:
        # Values of `by` need not be hashable.
        return self._counted.setdefault(repr((by, reason)), _Counted(by, reason))
