"""What this participant received and has not said yet, and when it must say so."""

from __future__ import annotations

import random
from collections.abc import Iterable

from shardwire.sds.local_log import LogEntry
from shardwire.sds.now import Now


class Acknowledgements:
    """Received contents that no message of ours has named since they came.

    Delivered ones ride on any message; those of a send that is still incomplete only on syncs, since in the history
    of a content message they would make it wait, at every receiver, for a send that it does not follow.
    An acknowledgement sync is due at a random moment in the first quarter of the acknowledgement timeout.
    """

    __slots__ = (
        "_enabled",
        "_heard",
        "_rng",
        "_suppress",
        "_window_ms",
        "changed",
        "delivered",
        "due_ms",
        "incomplete",
    )

    def __init__(self, acknowledgement_timeout_ms: int, enabled: bool, suppress: bool, rng: random.Random) -> None:
        self._window_ms = acknowledgement_timeout_ms // 4
        self._enabled = enabled
        # Another participant's acknowledgement counts for ours where any one of them is enough.
        self._suppress = suppress
        self._rng = rng
        self.delivered: dict[str, LogEntry] = {}
        self.incomplete: dict[str, LogEntry] = {}
        self._heard: set[str] = set()
        self.due_ms: int | None = None
        # For poll_persist: True where the id became unsaid, False where it was said.
        self.changed: dict[str, bool] = {}

    def received(self, entry: LogEntry, now: Now) -> None:
        """A content came, for the first time or again because its sender heard no acknowledgement."""
        message_id = entry.message_id
        if entry.send is None:
            self.delivered[message_id] = entry
        else:
            self.incomplete[message_id] = entry
        self._heard.discard(message_id)
        self.changed[message_id] = True
        if self.due_ms is None and self._enabled:
            self.due_ms = now.monotonic_ms + round(self._rng.random() * self._window_ms)

    def restore(self, entry: LogEntry, now: Now) -> None:
        """Takes back a stored unsaid entry; the timer restarts."""
        self.received(entry, now)
        self.changed.clear()

    def send_delivered(self, entries: list[LogEntry]) -> None:
        """The contents' send was delivered: any message may name them."""
        incomplete = self.incomplete
        if not incomplete:
            return
        for entry in entries:
            if incomplete.pop(entry.message_id, None) is not None:
                self.delivered[entry.message_id] = entry

    def heard(self, message_ids: Iterable[str]) -> None:
        """Another participant acknowledged these."""
        if not self._suppress:
            return
        delivered, incomplete = self.delivered, self.incomplete
        for message_id in message_ids:
            if message_id in delivered or message_id in incomplete:
                self._heard.add(message_id)
        if len(self._heard) == len(delivered) + len(incomplete):
            self.due_ms = None

    def forget(self, message_id: str) -> None:
        """The content left the log."""
        if self.delivered.pop(message_id, None) or self.incomplete.pop(message_id, None):
            self._heard.discard(message_id)
            self.changed[message_id] = False

    def said(self, entries: list[LogEntry], now: Now) -> None:
        """A message of ours that leaves now names these."""
        for entry in entries:
            message_id = entry.message_id
            entry.spoken_ms = now.monotonic_ms
            if self.delivered.pop(message_id, None) or self.incomplete.pop(message_id, None):
                self._heard.discard(message_id)
                self.changed[message_id] = False
        left = len(self.delivered) + len(self.incomplete)
        if left == len(self._heard):
            self.due_ms = None
        elif self.due_ms is not None and self.due_ms <= now.monotonic_ms:
            # More than one message can name: the rest follows in its own time.
            self.due_ms = now.monotonic_ms + round(self._rng.random() * self._window_ms)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self.delivered or message_id in self.incomplete

    def __len__(self) -> int:
        return len(self.delivered) + len(self.incomplete)
