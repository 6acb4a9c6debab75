"""What this participant received and has not said yet, and when it must say so."""

from __future__ import annotations

import random
from collections.abc import Iterable

from shardwire._native import AcknowledgementDue, LocalLog, LogEntry, Now, note_said, still_repeated
from shardwire.config import SdsConfig
from shardwire.sds.feedback import feedback_delay_ms
from shardwire.sds.participants import Participants

# What a sync said once is said again by so many further syncs within three acknowledgement timeouts, since the first
# one may be lost: at a loss of 20 % one in 125 is then still unheard, and its sender asks by sending it again.
REPEATS_MAX = 2
_REPEATED_WINDOWS = 12
REPEATED_MAX = 600


class Acknowledgements(AcknowledgementDue):
    """Received contents that no message of ours has named since they came.

    Delivered ones ride on any message; those of a send that is still incomplete only on syncs, since in the history
    of a content message they would make it wait, at every receiver, for a send that it does not follow.
    An acknowledgement sync is due at a random moment in the first quarter of the acknowledgement timeout; where one
    participant's is enough, the moments of a large group crowd towards the end, so that few speak.

    Entries are numbered as they become unsaid. What is stored is that number, with the entry, and the highest number
    up to which all was said (`said_order`): to say everything costs no record.
    """

    __slots__ = (
        "_heard",
        "_log",
        "_participants",
        "_rng",
        "_suppress",
        "_window_ms",
        "delivered",
        "incomplete",
        "prompt",
        "said_before",
    )

    def __init__(
        self,
        config: SdsConfig,
        enabled: bool,
        suppress: bool,
        log: LocalLog,
        participants: Participants,
        rng: random.Random,
    ) -> None:
        self._window_ms = config.acknowledgement_timeout_ms // 4
        # Whether acknowledgements have a time of their own.
        self.prompt = enabled
        # Another participant's acknowledgement counts for ours where any one of them is enough.
        self._suppress = suppress
        self._log = log
        self._participants = participants
        self._rng = rng
        self.delivered: dict[str, LogEntry] = {}
        self.incomplete: dict[str, LogEntry] = {}
        self._heard: set[str] = set()
        # Said by a sync, and to be said again: the oldest first.
        self.said_before: dict[str, LogEntry] = {}

    def received(self, entry: LogEntry, now: Now) -> None:
        """A content came, for the first time or again because its sender heard no acknowledgement."""
        message_id = entry.message_id
        if not entry.unsaid:
            self.order = entry.unsaid = self.order + 1
            self._log.touch(entry)
        if entry.send is None:
            self.delivered[message_id] = entry
        else:
            self.incomplete[message_id] = entry
        if self._heard:
            self._heard.discard(message_id)
        if self.due_ms is None and self.prompt:
            self.draw(now)

    def draw(self, now: Now) -> None:
        """Draws the moment of the next acknowledgement sync."""
        members = len(self._participants.heard_ms) if self._suppress else 1
        self.due_ms = now.monotonic_ms + feedback_delay_ms(self._rng, self._window_ms, members)

    def restore(self, entries: Iterable[LogEntry], said_order: int, now: Now) -> None:
        """Takes back what of the log's `entries` is unsaid; the timer restarts."""
        self.said_order = self.order = said_order
        unsaid: list[LogEntry] = []
        for entry in entries:
            if entry.unsaid > said_order:
                unsaid.append(entry)
            else:
                entry.unsaid = 0
        for entry in sorted(unsaid, key=lambda entry: entry.unsaid):
            self.order = entry.unsaid
            self.received(entry, now)

    def send_delivered(self, entries: list[LogEntry]) -> None:
        """The contents' send was delivered: any message may name them."""
        incomplete = self.incomplete
        for entry in entries:
            if incomplete.pop(entry.message_id, None) is not None:
                self.delivered[entry.message_id] = entry

    def heard(self, entry: LogEntry) -> None:
        """Another participant than its sender acknowledged `entry`."""
        if not self._suppress:
            return
        entry.repeats = 0
        if entry.unsaid:
            self._heard.add(entry.message_id)
            if len(self._heard) == len(self.delivered) + len(self.incomplete):
                self.due_ms = None

    def forget(self, message_id: str) -> None:
        """The content left the log, or must not be said."""
        self.said_before.pop(message_id, None)
        entry = self.delivered.pop(message_id, None) or self.incomplete.pop(message_id, None)
        if entry is not None:
            entry.unsaid = 0
            self._heard.discard(message_id)
            if len(self._heard) == len(self):
                self.due_ms = None

    def said(self, entries: list[LogEntry], now: Now, by_sync: bool) -> list[LogEntry]:
        """A message of ours that leaves now names these; returns those that were unsaid.

        What a sync said, syncs repeat for a while, unless another participant said it too. A content that gets lost
        is sent again and says it again.
        """
        delivered, incomplete = self.delivered, self.incomplete
        newly, numbers = note_said(
            entries,
            now.monotonic_ms,
            by_sync,
            REPEATS_MAX,
            delivered,
            incomplete,
            self.said_before,
            self._heard,
        )
        if newly:
            self._note_said(newly, numbers)
        left = len(delivered) + len(incomplete)
        if left == len(self._heard):
            self.due_ms = None
        elif self.due_ms is not None and self.due_ms <= now.monotonic_ms:
            # More than one message can name: the rest follows in its own time.
            self.draw(now)
        return newly

    def _note_said(self, newly: list[LogEntry], numbers: list[int]) -> None:
        """Stores that these were said: by `said_order` where nothing before them is left, else with each."""
        if self._heard:
            self._heard.difference_update(entry.message_id for entry in newly)
        if not self.delivered:
            # What is incomplete stands in the order of its numbers.
            first = next(iter(self.incomplete.values()), None)
            self.said_order = self.order if first is None else max(self.said_order, first.unsaid - 1)
        for entry, number in zip(newly, numbers, strict=True):
            if number > self.said_order:
                self._log.touch(entry)

    def repeated(self, now: Now) -> list[LogEntry]:
        """What a sync names once more."""
        oldest_ms = now.monotonic_ms - _REPEATED_WINDOWS * self._window_ms
        return still_repeated(self.said_before, oldest_ms, REPEATED_MAX)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self.delivered or message_id in self.incomplete

    def __len__(self) -> int:
        return len(self.delivered) + len(self.incomplete)
