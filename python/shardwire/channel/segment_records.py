"""The records of a reassembler in terms of a persistence: sets are deleted whole there, by exact name here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shardwire.channel.records import Records
from shardwire.persistence.protocol import RecordName

SEGMENT = "segmentation.segment"
COMPLETED = "segmentation.completed"

# A segment's key begins with the key of its set, which is this long.
_SET_KEY_BYTES = 20


class SegmentRecords:
    """Knows which segments are stored for each set."""

    def __init__(self) -> None:
        self._keys_by_set: dict[bytes, set[bytes]] = {}

    def translate(self, operations: Iterable[tuple[str, bytes, bytes]]) -> Records:
        """What `poll_persist` of a reassembler gave, as records."""
        records: Records = {}
        for operation, key, value in operations:
            if operation == "put_segment":
                self._keys_by_set.setdefault(key[:_SET_KEY_BYTES], set()).add(key)
                records[SEGMENT, key] = value
            elif operation == "delete_set":
                for segment_key in self._keys_by_set.pop(key, ()):
                    records[SEGMENT, segment_key] = None
            elif operation == "put_completed":
                records[COMPLETED, key] = value
            elif operation == "delete_completed":
                records[COMPLETED, key] = None
        return records

    def restore(self, records: Mapping[RecordName, bytes]) -> Iterator[tuple[str, bytes, bytes]]:
        """The stored records of both kinds, as a reassembler's `restore` takes them."""
        for (kind, key), value in records.items():
            if kind == SEGMENT:
                self._keys_by_set.setdefault(key[:_SET_KEY_BYTES], set()).add(key)
                yield "put_segment", key, value
            elif kind == COMPLETED:
                yield "put_completed", key, value
