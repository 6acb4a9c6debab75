"""State kept in this process only."""

from __future__ import annotations

import threading

from shardwire.errors import PersistenceError
from shardwire.persistence.protocol import Changes, ChannelState, RecordName


class MemoryPersistence:
    """Keeps state for as long as this object lives; a channel made again with the same object continues.

    Nothing survives the process. Values are kept as they are handed over, without a copy. A pickled one carries a copy
    of the state, which goes its own way.
    """

    def __init__(self) -> None:
        self._channels: dict[str, dict[RecordName, bytes]] = {}
        # Channels may commit from threads of their own.
        self._lock = threading.Lock()
        self._closed = False

    def load(self, channel_id: str) -> ChannelState | None:
        """Returns a copy of the state, or None for a channel that was never stored.

        Raises:
            PersistenceError: This object is closed.
        """
        with self._lock:
            self._require_open()
            records = self._channels.get(channel_id)
            return None if records is None else ChannelState(dict(records))

    def commit(self, channel_id: str, changes: Changes) -> None:
        """Applies `changes`: all of them, or none.

        Raises:
            PersistenceError: This object is closed.
        """
        # Read before anything is changed: what cannot be read changes nothing then.
        prefixes, changed = list(changes.deleted_prefixes), list(changes.records.items())
        with self._lock:
            self._require_open()
            records = self._channels.setdefault(channel_id, {})
            for kind, prefix in prefixes:
                for name in [name for name in records if name[0] == kind and name[1].startswith(prefix)]:
                    del records[name]
            for name, value in changed:
                if value is None:
                    records.pop(name, None)
                else:
                    records[name] = value

    def close(self) -> None:
        """Refuses further calls; what is stored is gone."""
        with self._lock:
            self._closed = True
            self._channels.clear()

    def __getstate__(self) -> dict[str, object]:
        with self._lock:
            channels = {channel_id: dict(records) for channel_id, records in self._channels.items()}
            return {**self.__dict__, "_channels": channels, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def _require_open(self) -> None:
        if self._closed:
            raise PersistenceError("this MemoryPersistence is closed: make a new one")
