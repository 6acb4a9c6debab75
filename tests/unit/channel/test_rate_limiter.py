"""A limit that one channel has for itself: what its configuration means, its epochs, and what survives a restart.

The rules are tested beside them, in rust/core/src/rate_limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwire.channel.limits.limit import Limit
from shardwire.channel.limits.quota import Quota
from shardwire.channel.storing.records import RATE, RateRecord
from shardwire.config import RateLimitConfig
from shardwire.events import EphemeralDropReason
from shardwire.sds import ALL_KINDS, TransmitKind

EPOCH_MS = 10_000
CONFIG = RateLimitConfig(enabled=True, epoch_size_ms=EPOCH_MS, messages_per_epoch=10, counts="segment", ack_reserve=0.0)
# More than any quota here.
MANY = 1_000


class Alone:
    """A limit with one member, whose clock is set, and what of it is stored."""

    def __init__(self, config: RateLimitConfig, stored: RateRecord | None = None) -> None:
        self.stored = stored
        self._now_ms = 0
        self.limit = Limit(config, self._store, stored)
        self.member = self.limit.join(lambda: 0, lambda: self._now_ms)
        self.quota = Quota((self.limit, self.member))

    async def _store(self, count: Callable[[], RateRecord]) -> None:
        self.stored = count()

    def kinds(self, epoch_ms: int) -> frozenset[TransmitKind]:
        allowance = self.limit.allowance(self.member, epoch_ms)
        return frozenset(kind for kind in TransmitKind if allowance.allows(kind))

    def drop_reason(self, epoch_ms: int) -> EphemeralDropReason | None:
        return self.limit.allowance(self.member, epoch_ms).ephemeral_drop_reason()

    async def take(self, kind: TransmitKind, epoch_ms: int, count: int = MANY) -> int:
        """How many may leave of so many."""
        self._now_ms = epoch_ms
        return sum(place is not None for place in await self.quota.take([kind] * count))

    def spend(self, kind: TransmitKind, epoch_ms: int, count: int = MANY) -> int:
        return asyncio.run(self.take(kind, epoch_ms, count))

    @property
    def used(self) -> int:
        return self.limit.record().used


def test_quota_is_spent_and_comes_back_with_the_next_epoch() -> None:
    alone = Alone(CONFIG)
    assert alone.spend(TransmitKind.FIRST, 12_345) == 10
    assert alone.kinds(19_999) == frozenset()
    assert alone.quota.status(19_999).resets_at_ms == 20_000
    assert alone.kinds(20_000) == ALL_KINDS


def test_a_clock_that_steps_back_never_reopens_an_epoch() -> None:
    alone = Alone(CONFIG)
    assert alone.spend(TransmitKind.FIRST, 25_000) == 10
    assert alone.kinds(15_000) == frozenset()
    assert alone.kinds(29_999) == frozenset()
    assert alone.spend(TransmitKind.FIRST, 30_000) == 10
    assert alone.kinds(25_000) == frozenset()


def test_messages_count_once_and_their_further_segments_are_free() -> None:
    alone = Alone(replace(CONFIG, counts="message"))
    for kind in (TransmitKind.FURTHER, TransmitKind.RETRANSMISSION):
        assert alone.spend(kind, 0) == MANY
    assert alone.used == 0
    for kind in (TransmitKind.FIRST, TransmitKind.SYNC, TransmitKind.EPHEMERAL, TransmitKind.REPAIR):
        assert alone.spend(kind, 0, 1) == 1
    assert alone.used == 4
    assert alone.spend(TransmitKind.FIRST, 0) == 6
    assert alone.kinds(0) == {TransmitKind.FURTHER, TransmitKind.RETRANSMISSION}


@pytest.mark.parametrize("kind", list(TransmitKind))
def test_every_envelope_counts_under_the_segment_rule(kind: TransmitKind) -> None:
    alone = Alone(CONFIG)
    assert alone.spend(kind, 12_345, 1) == 1
    assert alone.used == 1


def test_ephemeral_messages_are_dropped_from_the_threshold_on() -> None:
    alone = Alone(replace(CONFIG, ephemeral_drop_threshold=0.9))
    assert alone.spend(TransmitKind.FIRST, 0, 8) == 8
    assert alone.drop_reason(0) is None
    assert alone.spend(TransmitKind.FIRST, 0, 1) == 1
    assert alone.drop_reason(0) == "rate_limit_approached"
    assert alone.spend(TransmitKind.FIRST, 0, 1) == 1
    assert alone.drop_reason(0) == "rate_limit_reached"
    assert alone.drop_reason(EPOCH_MS) is None


def test_disabled_limit_allows_everything_and_stores_nothing() -> None:
    quota = Quota()
    places = asyncio.run(quota.take([TransmitKind.FIRST] * MANY))
    assert None not in places
    assert all(quota.allows(kind, 0) for kind in TransmitKind)
    assert quota.poll_persist() == {}
    assert not quota.enabled
    status = quota.status(0, queued=3, queued_bytes=30)
    assert (status.enabled, status.total, status.queued, status.queued_bytes) == (False, 0, 3, 30)


def test_restart_continues_the_count_of_the_epoch() -> None:
    alone = Alone(CONFIG)
    assert alone.spend(TransmitKind.FIRST, 12_345, 7) == 7
    value = alone.quota.poll_persist()[RATE, b""]
    assert value is not None
    assert RateRecord.decode(value) == alone.stored
    assert alone.quota.poll_persist() == {}
    resumed = Alone(CONFIG, alone.stored)
    assert resumed.spend(TransmitKind.FIRST, 13_000) == 3
    assert resumed.spend(TransmitKind.FIRST, 20_000) == 10


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 200_000), st.sampled_from(list(TransmitKind)), st.booleans()), max_size=200
    ),
    quota=st.integers(1, 12),
    counts=st.sampled_from(["message", "segment"]),
    epoch_size_ms=st.sampled_from([1_000, 10_000, 60_000]),
    reserve=st.sampled_from([0.0, 0.5]),
)
def test_no_epoch_ever_carries_more_than_the_quota(
    steps: list[tuple[int, TransmitKind, bool]], quota: int, counts: str, epoch_size_ms: int, reserve: float
) -> None:
    """Counted by the epoch of the clock when each left, over restarts and clocks that go to and fro."""
    config = replace(CONFIG, messages_per_epoch=quota, counts=counts, epoch_size_ms=epoch_size_ms, ack_reserve=reserve)
    left: dict[int, int] = {}

    async def main() -> None:
        alone = Alone(config)
        for epoch_ms, kind, restart in steps:
            if restart:
                alone = Alone(config, alone.stored)
            granted = await alone.take(kind, epoch_ms, 1)
            if counts == "segment" or kind not in (TransmitKind.FURTHER, TransmitKind.RETRANSMISSION):
                epoch = epoch_ms // epoch_size_ms
                left[epoch] = left.get(epoch, 0) + granted

    asyncio.run(main())
    assert max(left.values(), default=0) <= quota


@pytest.mark.parametrize(("share", "quota", "part"), [(0.55, 100, 55), (0.07, 100, 7), (0.28, 25, 7), (0.1, 11, 2)])
def test_shares_of_the_quota_are_exact(share: float, quota: int, part: int) -> None:
    config = replace(CONFIG, messages_per_epoch=quota)
    alone = Alone(replace(config, ephemeral_drop_threshold=share))
    assert alone.spend(TransmitKind.EPHEMERAL, 12_345) == part
    for kind, places in ((TransmitKind.FIRST, quota - part), (TransmitKind.SYNC, part)):
        alone = Alone(replace(config, ack_reserve=share))
        assert alone.spend(kind, EPOCH_MS) == places
