"""When a periodic sync is due (specification 004, Synchronisation messages)."""

from __future__ import annotations

import random
from collections.abc import Sized

from shardwire._native import Now, SyncDue
from shardwire.sds.feedback import late_share

AFTER_START = 1.0
AFTER_CONTENT_SENT = 1.0
AFTER_SYNC_RECEIVED = 1.0
AFTER_CONTENT_RECEIVED = 0.5
AFTER_FAILURE = 2.0


class SyncTimer(SyncDue):
    """The schedule is shared by the channel: whoever speaks moves everyone's next sync.

    While no content passes, syncs keep at least `sync_min_interval_ms` between them.
    """

    __slots__ = ("_last_sync_ms", "_members", "interval_ms", "random", "sooner_ms")

    def __init__(self, sync_min_interval_ms: int, rng: random.Random, now: Now, members: Sized = ()) -> None:
        self.interval_ms = sync_min_interval_ms
        self.sooner_ms = round(sync_min_interval_ms * AFTER_CONTENT_RECEIVED)
        self.random = rng.random
        # The other participants.
        self._members = members
        self._last_sync_ms: int | None = None
        self._schedule(now, AFTER_START)

    def on_content_sent(self, now: Now) -> None:
        self.content_since_sync = True
        if self.interval_ms:
            # As `_schedule` does after content; spares the call.
            self.due_ms = now.monotonic_ms + round(self.random() * self.interval_ms * AFTER_CONTENT_SENT)

    def on_content_received(self, now: Now) -> None:
        """Sooner than after a content of ours; a sync that is due as soon already stays where it is."""
        self.content_since_sync = True
        due_ms = self.due_ms
        if due_ms is not None and due_ms - now.monotonic_ms > self.sooner_ms:
            self._schedule(now, AFTER_CONTENT_RECEIVED)

    def on_sync_received(self, now: Now) -> None:
        self._sync_passed(now, AFTER_SYNC_RECEIVED)

    def on_sync_sent(self, now: Now) -> None:
        self._sync_passed(now, AFTER_START)

    def on_sync_failed(self, now: Now) -> None:
        self._schedule(now, AFTER_FAILURE)

    def on_nothing_to_say(self, now: Now) -> None:
        """An empty sync is not sent; the schedule goes on."""
        self._schedule(now, AFTER_START)

    def _sync_passed(self, now: Now, multiplier: float) -> None:
        self._last_sync_ms = now.monotonic_ms
        self.content_since_sync = False
        self._schedule(now, multiplier)

    def _schedule(self, now: Now, multiplier: float) -> None:
        if self.interval_ms == 0:
            return
        share = self.random()
        wait_ms = 0
        if self._last_sync_ms is not None and not self.content_since_sync:
            # The random part comes on top and falls late for most of a large group, so that participants do not fall
            # due together.
            share = late_share(share, len(self._members))
            wait_ms = max(0, self._last_sync_ms + self.interval_ms - now.monotonic_ms)
        wait_ms += round(share * self.interval_ms * multiplier)
        self.due_ms = now.monotonic_ms + wait_ms
