"""Notices about the channel as a whole: told when a condition begins and when it ends, not each time it is met."""

from __future__ import annotations

import logging
from collections.abc import Callable

from shardwire._native import ChannelMachine
from shardwire.events import ChannelEvent, SenderIdConflictEvent, WithinReachEvent
from shardwire.quoting import quoted
from shardwire.sds import Now

logger = logging.getLogger(__name__)

# Another participant with our id is reported once in this time.
CONFLICT_INTERVAL_MS = 60_000


class Notices:
    """Notices of another participant with our id, and of nobody within reach.

    Args:
        sender_id: Ours.
        now: The moment of creation.
        tell: Given each event.
    """

    def __init__(self, sender_id: str, now: Now, tell: Callable[[ChannelEvent], None]) -> None:
        self._sender_id = sender_id
        self._next_conflict_ms = now.monotonic_ms
        self._told_conflict = False
        self._within_reach = True
        self._tell = tell

    def on_conflict(self, now: Now) -> None:
        """Another participant sends under our id; told once in `CONFLICT_INTERVAL_MS`, not for each of its messages."""
        if now.monotonic_ms >= self._next_conflict_ms:
            self._next_conflict_ms = now.monotonic_ms + CONFLICT_INTERVAL_MS
            self._tell(SenderIdConflictEvent(self._sender_id))
            if not self._told_conflict:
                self._told_conflict = True
                logger.warning(
                    "another live participant uses our sender id %s: give each participant one of its own",
                    quoted(self._sender_id),
                )

    def review_reach(self, machine: ChannelMachine) -> None:
        """Tells once that nobody is heard who lacks what waits in a store, and once that somebody is heard again."""
        in_store = machine.sends_in_store()
        if (in_store > 0) is self._within_reach:
            self._within_reach = not self._within_reach
            self._tell(WithinReachEvent(self._within_reach, in_store))
