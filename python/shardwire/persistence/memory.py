"""State kept in this process only."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

from shardwire._native import ChangedRecords, RecordTable
from shardwire.config.checks import check_text
from shardwire.errors import PersistenceError
from shardwire.persistence.protocol import Changes, ChannelState, RecordName, check_commit


class MemoryPersistence:
    """Keeps state for as long as this object lives; a channel made again with the same object continues.

    Nothing survives the process. Long values are kept as they are handed over, without a copy. A pickled one carries a
    copy of the state, which goes its own way.
    """

    def __init__(self) -> None:
        self._channels: dict[str, RecordTable] = {}
        # Channels may commit from threads of their own.
        self._lock = threading.Lock()
        self._closed = False

    def load(self, channel_id: str) -> ChannelState | None:
        """Returns a copy of the state, or None for a channel that was never stored.

        Raises:
            PersistenceError: This object is closed.
            ConfigError: An argument is of a wrong kind.
        """
        check_text("channel_id", channel_id)
        with self._lock:
            self._require_open()
            records = self._channels.get(channel_id)
            return None if records is None else ChannelState(_listed(records))

    def commit(self, channel_id: str, changes: Changes) -> None:
        """Applies `changes`: all of them, or none.

        Raises:
            PersistenceError: This object is closed.
            ConfigError: An argument is of a wrong kind.
        """
        check_commit(channel_id, changes)
        # Read before anything is changed: what cannot be read changes nothing then.
        prefixes, changed = list(changes.deleted_prefixes), ChangedRecords(dict(changes.records.items()))
        self.apply(channel_id, changed, prefixes)

    def apply(
        self,
        channel_id: str,
        changed: ChangedRecords,
        deleted_prefixes: Collection[RecordName] = (),
        *,
        taking: bool = False,
    ) -> None:
        """As `commit`, of changes in the form in which a channel has them; with `taking` it leaves none of them there.

        Raises:
            PersistenceError: This object is closed.
        """
        with self._lock:
            self._require_open()
            records = self._channels.get(channel_id)
            if records is None:
                records = self._channels[channel_id] = RecordTable()
            for kind, prefix in deleted_prefixes:
                records.delete_prefix(kind, prefix)
            if taking:
                records.take(changed)
            else:
                records.apply(changed)

    def close(self) -> None:
        """Refuses further calls; what is stored is gone."""
        with self._lock:
            self._closed = True
            self._channels.clear()

    def __getstate__(self) -> dict[str, object]:
        with self._lock:
            channels = {channel_id: _listed(records) for channel_id, records in self._channels.items()}
            return {**self.__dict__, "_channels": channels, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._channels = {channel_id: RecordTable() for channel_id in state["_channels"]}
        for channel_id, records in state["_channels"].items():
            self._channels[channel_id].apply(ChangedRecords(records))

    def _require_open(self) -> None:
        if self._closed:
            raise PersistenceError("this MemoryPersistence is closed: make a new one")


def _listed(records: RecordTable) -> dict[RecordName, bytes]:
    return {name: value for name, value in records.values().items() if value is not None}
