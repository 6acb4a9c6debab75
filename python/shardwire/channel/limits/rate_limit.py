"""How many messages may still leave in this epoch (specifications 003 and 004, Rate limit management).

Owns the count of the epoch. Epochs are floor(unix time / epoch size), as RLN counts them; the number only grows. A
clock that steps back into an epoch that was left finds it closed, but for acknowledgements: they take the reserve of
the newest epoch, the one on record, and only where what was counted in the earlier one is known too. A proof for one
message too many reveals the key that made it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from shardwire._native import Allowance
from shardwire.channel.storing.records import RATE, RateRecord, Records
from shardwire.config import RateLimitConfig
from shardwire.sds.outputs import TransmitKind

_ALL_KINDS = frozenset(TransmitKind)
_MANY = 1 << 62
_UNLIMITED = Allowance(
    free=_ALL_KINDS, left=_MANY, open_left=_MANY, sync_left=_MANY, ephemeral_left=_MANY, repairs=True
)
# Epochs that were left of which it is remembered how much was counted.
EARLIER_MAX = 1_000
_FREE_WHEN_MESSAGES_COUNT = frozenset({TransmitKind.FURTHER, TransmitKind.RETRANSMISSION})


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """The rate limit as it stands.

    Attributes:
        enabled: Whether it is enforced; the other fields are 0 where not.
        used: Messages counted in this epoch.
        total: The quota.
        resets_at_ms: Unix time in ms at which the next epoch begins.
        queued: Messages that wait to be dispatched for the first time.
        queued_bytes: Their bytes.
    """

    enabled: bool
    used: int
    total: int
    resets_at_ms: int
    queued: int
    queued_bytes: int


class RateLimiter:
    """Counts what leaves. The count must be durable (`poll_persist`) before what it counts is handed to a node.

    Args:
        config: The limit.
        stored: What `poll_persist` gave last, for a channel that is resumed.

    Attributes:
        enabled: Whether there is a limit.
        in_flight: How many counted messages a node holds of which nobody knows yet when they leave: they count in the
            next epoch too, should it begin meanwhile.
    """

    def __init__(self, config: RateLimitConfig, stored: RateRecord | None = None) -> None:
        self._config = config
        self.enabled = config.enabled
        self._quota = config.messages_per_epoch or 0
        # One place at least is left for messages, else a quota of 1 could never send any.
        self._reserve = min(_part(config.ack_reserve, self._quota), self._quota - 1) if self._quota else 0
        # What others ask for takes no more than half of the rest: our own messages leave in the same epoch.
        self._repairs_max = max(1, (self._quota - self._reserve) // 2)
        self._repairs = 0
        self._near = _part(config.ephemeral_drop_threshold, self._quota)
        self._epoch = 0
        self._used = 0
        self._changed = False
        self.in_flight: Callable[[], int] = lambda: 0
        # Whether a count was taken over, and the epoch whose count nobody here knows.
        self.is_known = False
        self._unknown_epoch = -1
        # What was counted in epochs before the open one, none where absent; before `_known_from` nobody knows.
        self._earlier: dict[int, int] = {}
        self._known_from = 0
        self._entered = -1
        # Places of the reserve that acknowledgements took while the clock stood in an earlier epoch.
        self._reserve_used = 0
        if stored is not None:
            self.add(stored.epoch, stored.epoch_size_ms, stored.used)

    def add(self, epoch: int, epoch_size_ms: int, used: int) -> None:
        """Takes over a count that was stored, on top of what was counted here in the same epoch."""
        # With another epoch size it is carried into the last epoch that the old one touched.
        stored_epoch = ((epoch + 1) * epoch_size_ms - 1) // self._config.epoch_size_ms
        self.is_known = True
        self._unknown_epoch = -1
        self._known_from = max(self._known_from, stored_epoch)
        if stored_epoch > self._epoch:
            self._leave_epoch()
            self._epoch, self._used = stored_epoch, used
        elif stored_epoch == self._epoch:
            self._used += used
        else:
            self._earlier[stored_epoch] = self._earlier.get(stored_epoch, 0) + used

    def close(self, epoch_ms: int) -> None:
        """Nothing is known of the count of this epoch: nothing more of it is spent unless that is learned."""
        self.advance(epoch_ms)
        self._unknown_epoch = self._epoch
        self._known_from = max(self._known_from, self._epoch)

    @property
    def epoch(self) -> int:
        """The newest epoch that was opened."""
        return self._epoch

    @property
    def used(self) -> int:
        return self._used if self._epoch != self._unknown_epoch else max(self._used, self._quota)

    @property
    def quota(self) -> int:
        return self._quota

    @property
    def open_quota(self) -> int:
        """What of it is not kept for acknowledgements."""
        return self._quota - self._reserve

    @property
    def resets_at_ms(self) -> int:
        """Unix time at which the next epoch begins."""
        return (self._epoch + 1) * self._config.epoch_size_ms

    def reopens_at_ms(self, epoch_ms: int) -> int:
        """Unix time from which more may leave, where nothing may now: earlier than the next epoch for a clock that
        stands in one that was left."""
        start_ms = self._epoch * self._config.epoch_size_ms
        return start_ms if epoch_ms < start_ms and self.used < self._quota else self.resets_at_ms

    def advance(self, epoch_ms: int) -> bool:
        """Opens the epoch of `epoch_ms` unless that or a later one is open already; True where one was opened."""
        epoch = self.epoch_of(epoch_ms)
        if epoch <= self._epoch:
            return False
        self._leave_epoch()
        self._epoch = epoch
        self._repairs = 0
        self._used = min(self.in_flight(), self._quota)
        self._changed = self._changed or self._used > 0
        return True

    @property
    def free_kinds(self) -> frozenset[TransmitKind]:
        """Kinds that take no place."""
        if not self.enabled:
            return _ALL_KINDS
        return _FREE_WHEN_MESSAGES_COUNT if self._config.counts == "message" else frozenset()

    def allowance(self, epoch_ms: int, left_to_others: int = 0, *, is_paused: bool = False) -> Allowance:
        """What may leave now.

        Args:
            epoch_ms: The time.
            left_to_others: Places that others may claim; acknowledgements take them all the same.
            is_paused: Whether nothing that counts leaves, though places are left.
        """
        if not self.enabled:
            return _UNLIMITED
        left = self._left(epoch_ms)
        open_left, sync_left = left - self._reserve - left_to_others, left
        if self.behind_ms(epoch_ms):
            open_left, sync_left = 0, self._left_behind(epoch_ms)
        if is_paused:
            open_left = sync_left = 0
        return Allowance(
            free=self.free_kinds,
            left=left,
            open_left=max(0, open_left),
            sync_left=sync_left,
            ephemeral_left=max(0, min(self._near - self._used, left - self._reserve)),
            repairs=self._repairs < self._repairs_max,
        )

    def counts(self, kind: TransmitKind) -> bool:
        """Whether an envelope of `kind` takes a place of the quota."""
        return self.enabled and (self._config.counts == "segment" or kind not in _FREE_WHEN_MESSAGES_COUNT)

    def count(self, kind: TransmitKind, epoch_ms: int) -> None:
        """Counts one envelope of `kind` that is about to leave."""
        if not self.counts(kind):
            return
        is_behind = self.behind_ms(epoch_ms) > 0
        self._used += 1
        self._repairs += kind is TransmitKind.REPAIR
        self._changed = True
        if is_behind:
            epoch = self.epoch_of(epoch_ms)
            self._earlier[epoch] = self._earlier.get(epoch, 0) + 1
            self._reserve_used += 1

    def give_back(self, count: int) -> None:
        """These were counted in the open epoch, or in one before it, and never left."""
        self._used = max(0, self._used - count)
        self._changed = True

    def behind_ms(self, epoch_ms: int) -> int:
        """How far the clock stands before the newest epoch: it was set back, or was ahead when that was opened."""
        self.advance(epoch_ms)
        return max(0, self._epoch * self._config.epoch_size_ms - epoch_ms) if self.enabled else 0

    def epoch_of(self, epoch_ms: int) -> int:
        return epoch_ms // self._config.epoch_size_ms

    def _left(self, epoch_ms: int) -> int:
        """Messages of the quota that are left at this time."""
        self.advance(epoch_ms)
        return max(0, self._quota - self.used) if self.epoch_of(epoch_ms) == self._epoch else 0

    def _left_behind(self, epoch_ms: int) -> int:
        """Places for acknowledgements at this time, in an epoch that was left."""
        epoch = self.epoch_of(epoch_ms)
        if epoch < self._known_from:
            return 0
        if epoch != self._entered:
            self._entered = epoch
            # Nobody knows when these leave.
            self._earlier[epoch] = self._earlier.get(epoch, 0) + self.in_flight()
        there = self._quota - self._earlier[epoch]
        return max(0, min(self._reserve - self._reserve_used, self._quota - self.used, there))

    def _leave_epoch(self) -> None:
        if self._used:
            self._earlier[self._epoch] = self._earlier.get(self._epoch, 0) + self._used
        self._entered, self._reserve_used = -1, 0
        while len(self._earlier) > EARLIER_MAX:
            oldest = min(self._earlier)
            del self._earlier[oldest]
            self._known_from = max(self._known_from, oldest + 1)

    def poll_persist(self) -> Records:
        """The count, where it changed since the last call."""
        if not self._changed:
            return {}
        self._changed = False
        return {(RATE, b""): self.record().encode()}

    def record(self) -> RateRecord:
        """The count as it stands."""
        return RateRecord(epoch=self._epoch, epoch_size_ms=self._config.epoch_size_ms, used=self.used)

    def status(self, epoch_ms: int, queued: int, queued_bytes: int) -> RateLimitStatus:
        if not self.enabled:
            return RateLimitStatus(False, 0, 0, 0, queued, queued_bytes)
        self.advance(epoch_ms)
        return RateLimitStatus(True, self.used, self._quota, self.resets_at_ms, queued, queued_bytes)


def _part(share: float, quota: int) -> int:
    """That share of the quota, rounded up: of the share as it is written, which a float only comes near to."""
    return math.ceil(Fraction(repr(float(share))) * quota)
