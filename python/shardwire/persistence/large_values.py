"""Large values of a channel that lie in a file of their own, by the names of their records.

A second file is a second sync, which a small commit would wait for longer than it saves: only commits with many bytes
of large values have theirs here. A database at rest has none: what is left is brought back into its records.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping

from shardwire.persistence import reassembly
from shardwire.persistence.checksums import checksum_of
from shardwire.persistence.database import corruption, opened
from shardwire.persistence.protocol import RecordName
from shardwire.persistence.record_cipher import RecordCipher
from shardwire.persistence.tables import ALL_PLACES, EMPTY_PLACES, PUT_RECORD
from shardwire.persistence.values import Place, ValueFile

# From so many bytes of large values in one commit on.
LARGE_BYTES_MIN = 512 << 10
# Their values are searched by statements.
_SEARCHED = frozenset({reassembly.SEGMENT, reassembly.COMPLETED})

Values = Mapping[RecordName, bytes | Place | None]


class LargeValues:
    """The large values of one channel that lie in a file of their own, as its database names them.

    Args:
        channel_id: The channel.
        file: Where they lie.
    """

    def __init__(self, channel_id: str, file: ValueFile) -> None:
        self._channel_id = channel_id
        self._file = file
        # Of the values that count.
        self._places: dict[RecordName, Place] = {}
        # What the table of places names, be it so no longer by a later commit.
        self.listed: set[RecordName] = set()
        # Free when the commit is durable that no longer names them.
        self._freed: list[Place] = []

    @property
    def holds_any(self) -> bool:
        return bool(self._places)

    def takes(self, value_bytes: int) -> bool:
        """Whether a commit with so many bytes may have some of them here."""
        return value_bytes >= LARGE_BYTES_MIN

    def look(self, connection: sqlite3.Connection, number: int | None, latest: Values) -> None:
        """Learns where the values are.

        Args:
            connection: To the database.
            number: Of the channel; None where it was never stored.
            latest: What is not among the records and places yet.

        Raises:
            sqlite3.Error: They cannot lie there.
            OSError: The file cannot be opened.
        """
        listed = listed_places(connection, number)
        if listed is None:
            raise corruption("a place of a value is none")
        places: dict[RecordName, bytes | Place | None] = {**listed, **latest}
        self._places = {name: place for name, place in places.items() if isinstance(place, Place)}
        self.listed = set(listed)
        self._freed = []
        if not self._file.keep(list(self._places.values())):
            raise corruption("values are missing in their file")

    def store(self, cipher: RecordCipher | None, records: Mapping[RecordName, bytes]) -> dict[RecordName, Place]:
        """Writes large values of a commit, where they are enough; durable when this returns, and named by nobody yet.

        Raises:
            OSError: Nothing was stored.
        """
        chosen = {name: value for name, value in records.items() if name[0] not in _SEARCHED}
        if not self.takes(sum(map(len, chosen.values()))):
            return {}
        if cipher is not None:
            chosen = {name: cipher.seal(self._channel_id, name, value) for name, value in chosen.items()}
        starts = self._file.write(list(chosen.values()))
        return {
            name: Place(start, len(value), checksum_of(*name, value))
            for start, (name, value) in zip(starts, chosen.items(), strict=True)
        }

    def note(self, names: Iterable[RecordName], placed: Mapping[RecordName, Place]) -> None:
        """A commit changes these records, and places some of their values."""
        if self._places:
            for name in names:
                if (old := self._places.pop(name, None)) is not None:
                    self._freed.append(old)
        self._places.update(placed)

    def note_prefix(self, kind: str, prefix: bytes) -> None:
        """A commit deletes what begins with it."""
        self.note([name for name in self._places if name[0] == kind and name[1].startswith(prefix)], {})

    def settle(self) -> None:
        """The commits that were noted are durable."""
        if self._freed:
            self._file.free(self._freed)
            self._freed = []

    def read(self, cipher: RecordCipher | None) -> Iterator[tuple[RecordName, bytes]]:
        """All values.

        Raises:
            sqlite3.Error: One is damaged.
            OSError: The file cannot be read.
        """
        for name, place in self._places.items():
            value = value_at(self._file, cipher, self._channel_id, name, place)
            if value is None:
                raise corruption("a value in a file of its own does not match its checksum")
            yield name, value

    def bring_back(self, connection: sqlite3.Connection, number: int) -> None:
        """Moves all of them into the table of records, within a transaction behind which the file is of no use.

        Raises:
            sqlite3.Error: As for `read`, or it cannot be written.
            OSError: The file cannot be read.
        """
        # As they are stored: a record would be sealed in the same way.
        connection.executemany(
            PUT_RECORD,
            ((number, *name, self._places[name].checksum, value) for name, value in self._stored(sorted(self._places))),
        )
        connection.execute(EMPTY_PLACES, (number,))
        self.listed = set()
        self._places = {}

    def _stored(self, names: Iterable[RecordName]) -> Iterator[tuple[RecordName, bytes]]:
        for name in names:
            place = self._places[name]
            value = self._file.read(place)
            if value is None or checksum_of(*name, value) != place.checksum:
                raise corruption("a value in a file of its own does not match its checksum")
            yield name, value


def value_at(
    file: ValueFile, cipher: RecordCipher | None, channel_id: str, name: RecordName, place: Place
) -> bytes | None:
    """A value, as it was given; None for one that is damaged or missing.

    Raises:
        OSError: The file cannot be read.
    """
    stored = file.read(place)
    found = None if stored is None else opened(cipher, channel_id, (*name, place.checksum, stored))
    return None if found is None else found[1]


def listed_places(connection: sqlite3.Connection, number: int | None) -> dict[RecordName, Place] | None:
    """What the table of places says of a channel; None where it says what cannot be."""
    places = {}
    for kind, key, *numbers in connection.execute(ALL_PLACES, (number,)):
        typed = isinstance(kind, str) and isinstance(key, bytes) and all(isinstance(part, int) for part in numbers)
        if not typed or min(numbers) < 0:
            return None
        places[kind, key] = Place(*numbers)
    return places
