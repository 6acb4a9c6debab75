"""Contents of ours that a store holds: whoever is away finds them there, so they are not sent again meanwhile."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container

from shardwire._native import OutgoingContent

# Nobody is taken to be there when so many probes went unanswered.
SILENT_PROBES = 2
# So many acknowledgement timeouts without an acknowledgement show that the store does not help.
PATIENCE_PERIODS = 2
# What may wait so: beyond it the send that waits longest is given up.
WAITING_CONTENTS_MAX = 2_048
# Times of contents that nobody waits for any longer go when there are so many of them.
_STALE_MAX = 1_024


class StoredContents:
    """Holds back what a store has until somebody who lacks it is heard, and while the store helps him.

    Contents that wait so count against no room in the outgoing buffer and use up no retransmission. While nobody is
    heard contents of the newest send go as probes all the same, as often as one would go again without a store: a
    participant that is there, and only lost what was sent, learns from a probe's history what else it lacks.

    Args:
        probes_max: How many probes go while nobody is heard.
        live_ms: When each participant was heard last, other than from a store; the latest last.
        lacks: Whether a participant lacks a content.
        names: Those who must have it, or None where anybody may.

    Attributes:
        waiting: Those that are held back, the one that waits longest first. Acknowledged ones are taken out.
        is_silent: Whether nobody answered the first probes either.
    """

    __slots__ = (
        "_held_count",
        "_lacks",
        "_last_count",
        "_live_ms",
        "_names",
        "_patient_until_ms",
        "_probe_at_ms",
        "_probes",
        "_probes_max",
        "_since_ms",
        "_wants_probe",
        "is_silent",
        "waiting",
    )

    def __init__(
        self,
        live_ms: OrderedDict[str, int],
        lacks: Callable[[str, OutgoingContent], bool],
        names: frozenset[str] | None,
        probes_max: int,
    ) -> None:
        self._live_ms = live_ms
        self._lacks = lacks
        self._names = names
        self._probes_max = probes_max
        # Message id -> when a store had it.
        self._since_ms: dict[str, int] = {}
        # How many times were kept when stale ones were last left out.
        self._held_count = 0
        self.waiting: dict[str, OutgoingContent] = {}
        self._probes = 0
        self._probe_at_ms = 0
        self._wants_probe = False
        self.is_silent = False
        # How long the store is given since somebody was heard, and how many waited when that was said.
        self._patient_until_ms = 0
        self._last_count = 0

    def add(self, message_id: str, monotonic_ms: int, unacknowledged: Container[str]) -> None:
        """A store has it."""
        self._since_ms[message_id] = monotonic_ms
        if len(self._since_ms) > 2 * self._held_count + _STALE_MAX:
            held = [known for known in self._since_ms if known in self.waiting or known in unacknowledged]
            self._since_ms = {known: self._since_ms[known] for known in held}
            self._held_count = len(held)

    def discard(self, message_id: str) -> None:
        """Nobody waits for its acknowledgement any longer."""
        self._since_ms.pop(message_id, None)
        self.waiting.pop(message_id, None)

    def holds_back(self, content: OutgoingContent, monotonic_ms: int, period_ms: int) -> bool:
        """Whether a content that is due waits on.

        When somebody is heard the store comes first: what waited waits on for as long as acknowledgements keep coming.
        """
        message_id = content.message_id
        since_ms = self._since_ms.get(message_id)
        if since_ms is None:
            return False
        if not self._is_heard_since(since_ms, content):
            if not self.waiting:
                self._patient_until_ms = 0
            self.waiting[message_id] = content
            self._wants_probe = True
            return True
        self._probes = 0
        self.is_silent = False
        if message_id not in self.waiting:
            return False
        if not self._patient_until_ms or len(self.waiting) < self._last_count:
            self._patient_until_ms = monotonic_ms + PATIENCE_PERIODS * period_ms
            self._last_count = len(self.waiting)
        if monotonic_ms < self._patient_until_ms:
            return True
        self.discard(message_id)
        self._last_count -= 1
        return False

    def take_probe(self, monotonic_ms: int, period_ms: int) -> OutgoingContent | None:
        """A content to send again though nobody is heard; asked for when all that was due was looked at."""
        wanted, self._wants_probe = self._wants_probe, False
        if not wanted or not self.waiting or monotonic_ms < self._probe_at_ms:
            return None
        if self._probes >= min(SILENT_PROBES, self._probes_max):
            self.is_silent = True
        if self._probes >= self._probes_max:
            return None
        self._probes += 1
        self._probe_at_ms = monotonic_ms + period_ms
        newest = next(reversed(self.waiting.values()))
        # Of its send the first, which is data: parity alone may not even tell how large the send is.
        return next((content for content in newest.send.contents if content.message_id in self.waiting), newest)

    def overflow(self) -> OutgoingContent | None:
        """What waits longest, where more waits than may."""
        return next(iter(self.waiting.values())) if len(self.waiting) > WAITING_CONTENTS_MAX else None

    def _is_heard_since(self, since_ms: int, content: OutgoingContent) -> bool:
        live_ms = self._live_ms
        if self._names is not None:
            return any(live_ms.get(name, -1) > since_ms and self._lacks(name, content) for name in self._names)
        for name in reversed(live_ms):
            if live_ms[name] <= since_ms:
                break
            if self._lacks(name, content):
                return True
        return False
