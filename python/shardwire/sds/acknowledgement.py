"""What this participant received and has not said yet, and when it must say so."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable

from shardwire.config import SdsConfig
from shardwire.sds.feedback import feedback_delay_ms
from shardwire.sds.local_log import LogEntry
from shardwire.sds.now import Now
from shardwire.sds.participants import Participants

# What is said once is repeated by syncs for three acknowledgement timeouts, and no more than fills a header.
_REPEATED_WINDOWS = 12
REPEATED_MAX = 600


class Acknowledgements:
    """Received contents that no message of ours has named since they came.

    Delivered ones ride on any message; those of a send that is still incomplete only on syncs, since in the history
    of a content message they would make it wait, at every receiver, for a send that it does not follow.
    An acknowledgement sync is due at a random moment in the first quarter of the acknowledgement timeout; where one
    participant's is enough, the moments of a large group crowd towards the end, so that few speak.
    """

    __slots__ = (
        "_enabled",
        "_heard",
        "_participants",
        "_rng",
        "_suppress",
        "_window_ms",
        "changed",
        "delivered",
        "due_ms",
        "incomplete",
        "said_before",
    )

    def __init__(
        self,
        config: SdsConfig,
        enabled: bool,
        suppress: bool,
        participants: Participants,
        rng: random.Random,
    ) -> None:
        self._window_ms = config.acknowledgement_timeout_ms // 4
        self._enabled = enabled
        # Another participant's acknowledgement counts for ours where any one of them is enough.
        self._suppress = suppress
        self._participants = participants
        self._rng = rng
        self.delivered: dict[str, LogEntry] = {}
        self.incomplete: dict[str, LogEntry] = {}
        self._heard: set[str] = set()
        # Said once already: a sync repeats it while it is young, since the message that said it may be lost.
        self.said_before: OrderedDict[str, LogEntry] = OrderedDict()
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
            self._draw(now)

    def _draw(self, now: Now) -> None:
        members = len(self._participants.heard_ms) if self._suppress else 1
        self.due_ms = now.monotonic_ms + feedback_delay_ms(self._rng, self._window_ms, members)

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

    def heard(self, message_ids: Iterable[str], by: str) -> None:
        """`by` acknowledged these, save its own, which it names in its history as a matter of course."""
        if not self._suppress:
            return
        delivered, incomplete = self.delivered, self.incomplete
        for message_id in message_ids:
            entry = delivered.get(message_id) or incomplete.get(message_id)
            if entry is not None and entry.sender_id != by:
                self._heard.add(message_id)
        if len(self._heard) == len(delivered) + len(incomplete):
            self.due_ms = None

    def forget(self, message_id: str) -> None:
        """The content left the log."""
        self.said_before.pop(message_id, None)
        if self.delivered.pop(message_id, None) or self.incomplete.pop(message_id, None):
            self._heard.discard(message_id)
            self.changed[message_id] = False

    def said(self, entries: list[LogEntry], now: Now, by_sync: bool) -> None:
        """A message of ours that leaves now names these.

        What a sync said, syncs repeat for a while. A content that gets lost is sent again and says it again.
        """
        for entry in entries:
            message_id = entry.message_id
            if self.delivered.pop(message_id, None) or self.incomplete.pop(message_id, None):
                self._heard.discard(message_id)
                self.changed[message_id] = False
                entry.spoken_ms = now.monotonic_ms
                if by_sync:
                    self.said_before[message_id] = entry
        self._forget_old(now)
        left = len(self.delivered) + len(self.incomplete)
        if left == len(self._heard):
            self.due_ms = None
        elif self.due_ms is not None and self.due_ms <= now.monotonic_ms:
            # More than one message can name: the rest follows in its own time.
            self._draw(now)

    def _forget_old(self, now: Now) -> None:
        said_before = self.said_before
        oldest_ms = now.monotonic_ms - _REPEATED_WINDOWS * self._window_ms
        while said_before:
            oldest = next(iter(said_before.values()))
            if len(said_before) <= REPEATED_MAX and oldest.spoken_ms >= oldest_ms:
                return
            said_before.popitem(last=False)

    def repeated(self, now: Now) -> Iterable[LogEntry]:
        """What a sync names once more."""
        self._forget_old(now)
        return self.said_before.values()

    def __contains__(self, message_id: str) -> bool:
        return message_id in self.delivered or message_id in self.incomplete

    def __len__(self) -> int:
        return len(self.delivered) + len(self.incomplete)
