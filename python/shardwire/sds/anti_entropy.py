"""What another participant's filter shows that it lacks, so that one sync tells it of all its gaps at once.

Histories alone reveal a gap link by link: each message that is repaired names only the few before it.
"""

from __future__ import annotations

from itertools import islice

from shardwire.sds.bloom_schedule import BloomSchedule
from shardwire.sds.local_log import LocalLog, LogEntry
from shardwire.sds.participants import Participants

# Newest entries of the log that a filter is asked for, and as many may wait to be named.
REVIEWED_MAX = 1_000


class AntiEntropy:
    """Entries that some member lacks, to be named by our next sync.

    Only what came after we first heard that member counts, so that a newcomer is not told of the past; only what
    came long enough ago, so that what is on its way is not told either; and each entry once in the period of a
    repair, so that one who cannot get it does not make the channel talk.
    """

    __slots__ = ("_bloom", "_log", "_named_ms", "_pause_ms", "_samples", "_settle_ms", "owed")

    def __init__(self, log: LocalLog, bloom: BloomSchedule, settle_ms: int, pause_ms: int) -> None:
        self._log = log
        self._bloom = bloom
        self._settle_ms = settle_ms
        self._pause_ms = pause_ms
        # (monotonic ms, log sequence then), the older one old enough to count.
        self._samples: list[tuple[int, int]] = []
        self._named_ms: dict[str, int] = {}
        self.owed: dict[str, LogEntry] = {}

    def review(self, bloom_filter: bytes, sender_id: str, participants: Participants, monotonic_ms: int) -> bool:
        """Compares a sync's filter with our log; whether something new is to be named."""
        settled = self._settled_sequence(monotonic_ms)
        since = participants.since.get(sender_id, settled)
        entries = [
            entry
            for entry in islice(self._log.newest_arrivals(), REVIEWED_MAX)
            if since < entry.sequence <= settled and entry.send is None and entry.sender_id != sender_id
        ]
        if not entries:
            return False
        held = self._bloom.filter.review(bloom_filter, [entry.message_id for entry in entries])
        if held is None or (not held and len(entries) > 1):
            # Another size, or a filter that knows nothing of what we have: not a member that lost some messages.
            return False
        positions = set(held)
        before = len(self.owed)
        for position, entry in enumerate(entries):
            if position not in positions and len(self.owed) < REVIEWED_MAX:
                named_ms = self._named_ms.get(entry.message_id)
                if named_ms is None or monotonic_ms - named_ms >= self._pause_ms:
                    self.owed[entry.message_id] = entry
        return len(self.owed) > before

    def named(self, message_ids: list[str], monotonic_ms: int) -> None:
        """Somebody, perhaps we, named these in a history."""
        if not self.owed:
            return
        for message_id in message_ids:
            if self.owed.pop(message_id, None) is not None:
                self._named_ms.pop(message_id, None)
                self._named_ms[message_id] = monotonic_ms
        while len(self._named_ms) > 2 * REVIEWED_MAX:
            del self._named_ms[next(iter(self._named_ms))]

    def forget(self, message_id: str) -> None:
        """The entry left the log."""
        self.owed.pop(message_id, None)

    def _settled_sequence(self, monotonic_ms: int) -> int:
        samples = self._samples
        if not samples or monotonic_ms - samples[-1][0] >= self._settle_ms:
            samples.append((monotonic_ms, self._log.sequence))
            del samples[:-3]
        settled = 0
        for at_ms, sequence in samples:
            if monotonic_ms - at_ms >= self._settle_ms:
                settled = sequence
        return settled
