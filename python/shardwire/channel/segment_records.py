"""The records of a reassembler in terms of a persistence: completions, and the segments that older releases stored.

Those wrote each segment under the reassembler's own key; they are read, and deleted when their set is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shardwire.channel.records import Records
from shardwire.persistence.protocol import RecordName
from shardwire.persistence.reassembly import COMPLETED, SEGMENT

# A segment's key begins with the key of its set, which is this long.
_SET_KEY_BYTES = 20


class SegmentRecords:
    """Knows which segments older releases stored for each set."""

    def __init__(self) -> None:
        self._keys_by_set: dict[bytes, set[bytes]] = {}

    def __bool__(self) -> bool:
        return bool(self._keys_by_set)

    def translate(self, operations: Iterable[tuple[str, bytes, bytes]]) -> Records:
        """What the reassembler polled, as records."""
        records: Records = {}
        for operation, key, value in operations:
            if operation == "put_completed":
                records[COMPLETED, key] = value
            elif operation == "delete_completed":
                records[COMPLETED, key] = None
            elif operation == "delete_set":
                for segment_key in self._keys_by_set.pop(key, ()):
                    records[SEGMENT, segment_key] = None
        return records

    def restore(self, records: Mapping[RecordName, bytes]) -> Iterator[tuple[str, bytes, bytes]]:
        """The stored records of both kinds, as a reassembler's `restore` takes them."""
        for (kind, key), value in records.items():
            if kind == SEGMENT:
                self._keys_by_set.setdefault(key[:_SET_KEY_BYTES], set()).add(key)
                yield "put_segment", key, value
            elif kind == COMPLETED:
                yield "put_completed", key, value
