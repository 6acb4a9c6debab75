"""What a channel asks of a persistence backend: records by kind and key, changed in transactions.

Logos 003 Persistence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from shardwire.config.checks import check_text
from shardwire.errors import ConfigError

RecordName = tuple[str, bytes]
"""What names a record of one channel: its kind, and a key that is unique in that kind. The library makes both.

* The kind says what sort of thing is stored, as "sds.log" or "channel.send": up to 32 ASCII characters, of some twenty
  kinds. A later release may have others: a backend stores whatever comes.
* The key says which one: any bytes, NUL among them, up to 600. It is empty where a kind has one record. Ids are in it
  that participants chose, peers too, so it is never part of a path or of a statement. Keys sort by their bytes.

The value is opaque: from a few bytes up to a whole message, 26 MB by default. Another channel, by its id, may have
records of the same name.
"""


@dataclass(slots=True)
class Changes:
    """Records to put (a value) or delete (None). Applying the same changes twice is the same as once.

    Attributes:
        records: By name.
        deleted_prefixes: Every record of the kind whose key begins with the given one is deleted before `records`
            are applied.
    """

    records: dict[RecordName, bytes | None] = field(default_factory=dict)
    deleted_prefixes: set[RecordName] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.records or self.deleted_prefixes)


@dataclass(frozen=True, slots=True)
class ChannelState:
    """Everything that a persistence backend holds for one channel.

    Attributes:
        records: Values by kind and key.
    """

    records: Mapping[RecordName, bytes]

    def of_kind(self, kind: str) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of one kind, in ascending order of keys."""
        return iter(sorted((key, value) for (name, key), value in self.records.items() if name == kind))


@runtime_checkable
class Persistence(Protocol):
    """A backend. Calls for one channel come from one thread at a time.

    What is stored for one `channel_id`, a text of up to some 300 bytes, is nothing to that of another. The quota of a
    node with a rate limit is stored like a channel, under a name of its own.

    Optional: `release(channel_id)`, called when a channel that loaded its state is closed; the backend stays open.
    """

    def load(self, channel_id: str) -> ChannelState | None:
        """The stored state, or None for a channel that was never stored.

        Raises:
            PersistenceError: The state cannot be read: locked, corrupt, or of a newer schema.
        """

    def commit(self, channel_id: str, changes: Changes) -> None:
        """Applies `changes` in one transaction that survives a power cut once this returns.

        Raises:
            PersistenceError: Nothing was stored; the same call may be tried again.
        """

    def close(self) -> None:
        """Releases what the backend holds open; no call follows. Closing again does nothing."""


def check_commit(channel_id: object, changes: object) -> None:
    """The arguments of `Persistence.commit`.

    Raises:
        ConfigError: One is of a wrong kind.
    """
    check_text("channel_id", channel_id)
    if not isinstance(changes, Changes):
        raise ConfigError(f"changes is a {type(changes).__name__}: it must be a Changes")
