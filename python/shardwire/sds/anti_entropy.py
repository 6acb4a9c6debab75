"""What another participant's filter shows that it lacks, so that one sync tells it of all its gaps at once.

Histories alone reveal a gap link by link: each message that is repaired names only the few before it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from shardwire._native import LocalLog, LogEntry
from shardwire.config import SdsConfig
from shardwire.sds.bloom_schedule import BloomSchedule
from shardwire.sds.feedback import feedback_delay_ms
from shardwire.sds.participants import Participants

# Newest entries of the log that a filter is asked for, and as many may wait to be named.
REVIEWED_MAX = 1_000
# What is on its way has come after two acknowledgement timeouts, or after this.
SETTLE_MS_MAX = 10_000
# An entry that was named is not named again before this, doubled with every time that did not help.
NAMED_AGAIN_MS = 30_000
_DOUBLINGS_MAX = 16


class AntiEntropy:
    """Entries that some member lacks, to be named by our next sync unless another participant names them first.

    Only what came long enough ago counts, so that what is on its way is not told; and each entry at growing distances,
    so that one who cannot or will not get it does not make the channel talk. A newcomer is told of the past as well:
    where no store has it, the others do.
    """

    __slots__ = (
        "_bloom",
        "_log",
        "_named",
        "_participants",
        "_prompt",
        "_rng",
        "_samples",
        "_settle_ms",
        "_window_ms",
        "due_ms",
        "owed",
        "sample_ms",
    )

    def __init__(
        self,
        config: SdsConfig,
        prompt: bool,
        log: LocalLog,
        bloom: BloomSchedule,
        participants: Participants,
        rng: random.Random,
    ) -> None:
        # Whether a sync may be sent for this, or the next periodic one must do.
        self._prompt = prompt
        self._log = log
        self._bloom = bloom
        self._participants = participants
        self._rng = rng
        self._settle_ms = min(2 * config.acknowledgement_timeout_ms, SETTLE_MS_MAX)
        self._window_ms = config.acknowledgement_timeout_ms // 4
        # (monotonic ms, log sequence then), the older one old enough to count; when the next one is to be taken.
        self._samples: list[tuple[int, int]] = []
        self.sample_ms = 0
        # (monotonic ms, how often) each was named.
        self._named: dict[str, tuple[int, int]] = {}
        self.owed: dict[str, LogEntry] = {}
        # When a sync is to name what is owed; None while nothing is.
        self.due_ms: int | None = None

    def review(self, bloom_filter: bytes, sender_id: str, monotonic_ms: int) -> None:
        """Compares a sync's filter with our log, and makes a sync due where there is something new to name."""
        settled = self._settled_sequence(monotonic_ms)
        if not settled:
            return
        # Nothing for another size, or a filter that knows nothing of what we have: no member that lost some messages.
        lacking = self._bloom.filter.lacking(bloom_filter, self._log, REVIEWED_MAX, settled, sender_id)
        if not lacking:
            return
        for entry in lacking:
            if len(self.owed) < REVIEWED_MAX:
                named_ms, times = self._named.get(entry.message_id, (0, 0))
                if not times or monotonic_ms - named_ms >= NAMED_AGAIN_MS << min(times - 1, _DOUBLINGS_MAX):
                    self.owed[entry.message_id] = entry
        if self.owed and self.due_ms is None and self._prompt:
            members = len(self._participants.heard_ms)
            self.due_ms = monotonic_ms + feedback_delay_ms(self._rng, self._window_ms, members)

    def named(self, message_ids: Sequence[str], monotonic_ms: int) -> None:
        """Somebody, perhaps we, named these in a history."""
        if not self.owed:
            return
        for message_id in message_ids:
            if self.owed.pop(message_id, None) is not None:
                _, times = self._named.pop(message_id, (0, 0))
                self._named[message_id] = (monotonic_ms, times + 1)
        while len(self._named) > 2 * REVIEWED_MAX:
            del self._named[next(iter(self._named))]
        if not self.owed:
            self.due_ms = None

    def put_off(self, monotonic_ms: int) -> None:
        """A sync left that had no room for all that is owed."""
        if self.due_ms is not None:
            self.due_ms = monotonic_ms + self._window_ms

    def forget(self, message_id: str) -> None:
        """The entry left the log."""
        if self.owed.pop(message_id, None) is not None and not self.owed:
            self.due_ms = None

    def sample(self, monotonic_ms: int) -> None:
        """Notes how far the log is; called often, at the earliest at `sample_ms`."""
        self._samples.append((monotonic_ms, self._log.sequence))
        del self._samples[:-3]
        self.sample_ms = monotonic_ms + self._settle_ms

    def _settled_sequence(self, monotonic_ms: int) -> int:
        settled = 0
        for at_ms, sequence in self._samples:
            if monotonic_ms - at_ms >= self._settle_ms:
                settled = sequence
        return settled
