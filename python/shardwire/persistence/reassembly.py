"""What a bare `Reassembler` saves, as records of a persistence, and how a database finds it.

persistence.commit(name, reassembly_changes(reassembler.poll_persist()))
reassembler.restore(reassembly_operations(persistence.load(name)))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardwire.persistence.protocol import Changes, ChannelState

SEGMENT = "segmentation.segment"
COMPLETED = "segmentation.completed"

# Bytes of a sender's name that are indexed, behind its length.
_SENDER_INDEXED_BYTES = 64
# Where a stored segment's value has the flags, the time, and the length of the sender's name before the name.
_FLAGS = 1
_HAS_SENDER = 1
_UPDATED_BYTES = 8
_SENDER_LENGTH = slice(58, 62)
_SENDER = 62
_HASH = slice(2, 34)
_UPDATED = slice(34, 42)
# A set is named by so many bytes at the beginning of the keys of its segments.
_SET_BYTES = 20

# The terms, and the literal kind, are those of the indexes. Without statistics SQLite would search all segments.
BY_HASH = (
    "SELECT kind, key, checksum, value FROM record INDEXED BY segment_by_hash "
    "WHERE channel = ? AND kind = 'segmentation.segment' AND substr(value, 3, 32) = ? ORDER BY key"
)
BY_SENDER = (
    "SELECT kind, key, checksum, value FROM record INDEXED BY segment_by_sender "
    "WHERE channel = ? AND kind = 'segmentation.segment' AND substr(value, 59, 68) BETWEEN ? AND ? ORDER BY key"
)
ALL = "SELECT kind, key, checksum, value FROM record WHERE channel = ? AND kind = 'segmentation.segment' ORDER BY key"
# A set is as recent as its last segment.
EXPIRE = (
    "DELETE FROM record WHERE channel = :channel AND kind = 'segmentation.segment' AND substr(key, 1, 20) IN ("
    "SELECT substr(key, 1, 20) FROM record WHERE channel = :channel AND kind = 'segmentation.segment' "
    "GROUP BY substr(key, 1, 20) HAVING max(substr(value, 35, 8)) <= :time)"
)


def reassembly_changes(operations: Iterable[tuple[str, bytes, bytes]]) -> Changes:
    """What one `Reassembler.poll_persist` gave, as changes to commit before those of the next.

    Committing them twice is the same as once.
    """
    changes = Changes()
    for operation, key, value in operations:
        match operation:
            case "put_segment":
                changes.records[SEGMENT, key] = value
            case "delete_set":
                changes.deleted_prefixes.add((SEGMENT, key))
            case "put_completed":
                changes.records[COMPLETED, key] = value
            case "delete_completed":
                changes.records[COMPLETED, key] = None
    return changes


def reassembly_operations(state: ChannelState | None) -> Iterator[tuple[str, bytes, bytes]]:
    """The stored records of a reassembler, as its `restore` takes them."""
    if state is not None:
        for operation, kind in (("put_segment", SEGMENT), ("put_completed", COMPLETED)):
            for key, value in state.of_kind(kind):
                yield operation, key, value


def sender_range(sender: str) -> tuple[bytes, bytes]:
    """The least and the greatest indexed term that segments of a sender can have."""
    name = sender.encode()
    least = len(name).to_bytes(4, "big") + name[:_SENDER_INDEXED_BYTES]
    return least, least.ljust(4 + _SENDER_INDEXED_BYTES, b"\xff")


def is_sender(value: bytes, sender: str) -> bool:
    """Whether a stored segment came from this sender."""
    length = int.from_bytes(value[_SENDER_LENGTH], "big")
    return bool(value[_FLAGS] & _HAS_SENDER) and value[_SENDER : _SENDER + length] == sender.encode()


def is_of_message(value: bytes, entire_message_hash: bytes) -> bool:
    """Whether a stored segment claims this hash."""
    return value[_HASH] == entire_message_hash


def expired(segments: Iterable[tuple[bytes, bytes]], at_or_before_ms: int) -> list[bytes]:
    """Keys of the stored segments that `EXPIRE` would delete."""
    keys: dict[bytes, list[bytes]] = {}
    updated: dict[bytes, bytes] = {}
    for key, value in segments:
        name = key[:_SET_BYTES]
        keys.setdefault(name, []).append(key)
        updated[name] = max(updated.get(name, b""), value[_UPDATED])
    limit = time_term(at_or_before_ms)
    return [key for name, last in updated.items() if last <= limit for key in keys[name]]


def time_term(time_ms: int) -> bytes:
    """A time as values hold it, for times that are not negative."""
    return min(max(time_ms, 0), 2**63 - 1).to_bytes(_UPDATED_BYTES, "big")
