"""The delivered sends that no delivered send follows yet."""

from __future__ import annotations

from collections.abc import Iterable

from shardwire._native import LocalLog, LogEntry, deliver_head
from shardwire.sds.identity import SEND_ID_LENGTH

# As many participants speaking at once keep exact causal order; beyond, the oldest heads are left to the history.
HEADS_MAX = 256


class Heads:
    """What a message must name so that, through it, everything delivered here before comes first everywhere.

    The configured causal history alone misses what lies further back in the log and nothing else names.
    """

    __slots__ = ("_by_send", "by_key")

    def __init__(self, by_send: bool) -> None:
        self._by_send = by_send
        self.by_key: dict[str, LogEntry] = {}

    def deliver(self, entry: LogEntry, history: Iterable[str]) -> None:
        """`entry` stands for a send delivered now, which follows everything its `history` names."""
        deliver_head(self.by_key, entry, history, self._by_send, HEADS_MAX)

    def withdraw(self, log: LocalLog, message_ids: Iterable[str], history: Iterable[str]) -> None:
        """These were encoded and will never be heard: a history that named one would make receivers wait in vain.

        What they followed, as their `history` says, is followed by nothing again.
        """
        for message_id in message_ids:
            entry = log.withdraw(message_id)
            key = message_id[:SEND_ID_LENGTH] if self._by_send else message_id
            if entry is not None and self.by_key.get(key) is entry:
                del self.by_key[key]
                self.restore(log.entries[named] for named in history if named in log.entries)

    def restore(self, entries: Iterable[LogEntry]) -> None:
        for entry in entries:
            self.deliver(entry, ())
