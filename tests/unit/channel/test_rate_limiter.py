"""The rate limit: epochs, both counting rules, the reserve, the ephemeral threshold, and what survives a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwire.channel.limits.rate_limit import RateLimiter
from shardwire.channel.storing.records import RATE, RateRecord
from shardwire.config import RateLimitConfig
from shardwire.events import EphemeralDropReason
from shardwire.sds import ALL_KINDS
from shardwire.sds.outputs import TransmitKind

EPOCH_MS = 10_000
CONFIG = RateLimitConfig(enabled=True, epoch_size_ms=EPOCH_MS, messages_per_epoch=10, counts="segment", ack_reserve=0.0)


def stored(limiter: RateLimiter) -> RateRecord:
    value = limiter.poll_persist()[RATE, b""]
    assert value is not None
    return RateRecord.decode(value)


def allowed_kinds(limiter: RateLimiter, epoch_ms: int) -> frozenset[TransmitKind]:
    allowance = limiter.allowance(epoch_ms)
    return frozenset(kind for kind in TransmitKind if allowance.allows(kind))


def drop_reason(limiter: RateLimiter, epoch_ms: int) -> EphemeralDropReason | None:
    return limiter.allowance(epoch_ms).ephemeral_drop_reason()


def spend(limiter: RateLimiter, kind: TransmitKind, epoch_ms: int) -> int:
    count = 0
    while kind in allowed_kinds(limiter, epoch_ms) and count < 1_000:
        limiter.count(kind, epoch_ms)
        count += 1
    return count


def test_quota_is_spent_and_comes_back_with_the_next_epoch() -> None:
    limiter = RateLimiter(CONFIG)
    assert spend(limiter, TransmitKind.FIRST, 12_345) == 10
    assert allowed_kinds(limiter, 19_999) == frozenset()
    assert limiter.resets_at_ms == 20_000
    assert allowed_kinds(limiter, 20_000) == ALL_KINDS


def test_a_clock_that_steps_back_never_reopens_an_epoch() -> None:
    limiter = RateLimiter(CONFIG)
    assert spend(limiter, TransmitKind.FIRST, 25_000) == 10
    assert allowed_kinds(limiter, 15_000) == frozenset()
    assert allowed_kinds(limiter, 29_999) == frozenset()
    assert spend(limiter, TransmitKind.FIRST, 30_000) == 10
    assert allowed_kinds(limiter, 25_000) == frozenset()


def test_answers_to_repair_requests_leave_room_for_our_own_messages() -> None:
    limiter = RateLimiter(replace(CONFIG, ack_reserve=0.2))
    assert spend(limiter, TransmitKind.REPAIR, 25_000) == 4
    assert spend(limiter, TransmitKind.FIRST, 25_000) == 4
    assert spend(limiter, TransmitKind.SYNC, 25_000) == 2
    assert spend(limiter, TransmitKind.REPAIR, 35_000) == 4


def test_an_epoch_that_was_left_stays_closed_though_the_open_one_has_room() -> None:
    limiter = RateLimiter(CONFIG)
    assert allowed_kinds(limiter, 25_000) == ALL_KINDS
    assert allowed_kinds(limiter, 15_000) == frozenset()
    assert drop_reason(limiter, 15_000) == "rate_limit_reached"
    assert limiter.reopens_at_ms(15_000) == 20_000
    assert allowed_kinds(limiter, 20_000) == ALL_KINDS


def test_acknowledgements_take_the_reserve_of_the_epoch_on_record_while_the_clock_stands_before_it() -> None:
    limiter = RateLimiter(replace(CONFIG, ack_reserve=0.3))
    assert spend(limiter, TransmitKind.FIRST, 5_000) == 7
    assert spend(limiter, TransmitKind.FIRST, 95_000) == 7
    # It was ahead, and is set right: in epochs in which nothing left there is room, and the reserve is one.
    assert limiter.behind_ms(41_000) == 49_000
    assert allowed_kinds(limiter, 41_000) == {TransmitKind.SYNC}
    assert spend(limiter, TransmitKind.SYNC, 41_000) == 3
    assert allowed_kinds(limiter, 51_000) == allowed_kinds(limiter, 95_000) == frozenset()
    assert limiter.used == 10
    assert limiter.behind_ms(100_000) == 0
    assert allowed_kinds(limiter, 100_000) == ALL_KINDS


def test_an_epoch_that_is_full_or_unknown_takes_no_acknowledgement_either() -> None:
    config = replace(CONFIG, ack_reserve=0.3)
    limiter = RateLimiter(config, RateRecord(epoch=3, epoch_size_ms=EPOCH_MS, used=2))
    assert spend(limiter, TransmitKind.SYNC, 55_000) == 10
    assert allowed_kinds(limiter, 75_000) == ALL_KINDS
    assert allowed_kinds(limiter, 55_000) == frozenset()
    assert allowed_kinds(limiter, 29_999) == frozenset()
    assert allowed_kinds(limiter, 30_000) == {TransmitKind.SYNC}
    # What a node holds may leave there, too.
    limiter.in_flight = lambda: 10
    assert allowed_kinds(limiter, 45_000) == frozenset()
    restarted = RateLimiter(config, RateRecord(epoch=7, epoch_size_ms=EPOCH_MS, used=2))
    assert allowed_kinds(restarted, 69_999) == frozenset()


def test_messages_count_once_and_their_further_segments_are_free() -> None:
    limiter = RateLimiter(replace(CONFIG, counts="message"))
    for kind in (TransmitKind.FURTHER, TransmitKind.RETRANSMISSION):
        assert spend(limiter, kind, 0) == 1_000
    assert limiter.used == 0
    for kind in (TransmitKind.FIRST, TransmitKind.SYNC, TransmitKind.EPHEMERAL, TransmitKind.REPAIR):
        limiter.count(kind, 0)
    assert limiter.used == 4
    assert spend(limiter, TransmitKind.FIRST, 0) == 6
    assert allowed_kinds(limiter, 0) == {TransmitKind.FURTHER, TransmitKind.RETRANSMISSION}


@pytest.mark.parametrize("kind", list(TransmitKind))
def test_every_envelope_counts_under_the_segment_rule(kind: TransmitKind) -> None:
    limiter = RateLimiter(CONFIG)
    limiter.count(kind, 12_345)
    assert limiter.used == 1


@pytest.mark.parametrize(
    ("quota", "share", "reserve"), [(10, 0.1, 1), (11, 0.1, 2), (100, 0.1, 10), (1, 0.1, 0), (2, 0.9, 1), (5, 0.0, 0)]
)
def test_reserve_is_left_for_syncs_and_never_the_whole_quota(quota: int, share: float, reserve: int) -> None:
    limiter = RateLimiter(replace(CONFIG, messages_per_epoch=quota, ack_reserve=share))
    assert spend(limiter, TransmitKind.FIRST, 0) == quota - reserve
    assert spend(limiter, TransmitKind.SYNC, 0) == reserve
    assert limiter.used == quota


def test_syncs_may_use_all_of_the_quota() -> None:
    limiter = RateLimiter(replace(CONFIG, ack_reserve=0.5))
    assert spend(limiter, TransmitKind.SYNC, 0) == 10


def test_ephemeral_messages_are_dropped_from_the_threshold_on() -> None:
    limiter = RateLimiter(replace(CONFIG, ephemeral_drop_threshold=0.9))
    for _ in range(8):
        limiter.count(TransmitKind.FIRST, 0)
    assert drop_reason(limiter, 0) is None
    limiter.count(TransmitKind.FIRST, 0)
    assert drop_reason(limiter, 0) == "rate_limit_approached"
    limiter.count(TransmitKind.FIRST, 12_345)
    assert drop_reason(limiter, 0) == "rate_limit_reached"
    assert drop_reason(limiter, EPOCH_MS) is None


def test_disabled_limit_allows_everything_and_stores_nothing() -> None:
    limiter = RateLimiter(RateLimitConfig())
    assert spend(limiter, TransmitKind.FIRST, 0) == 1_000
    assert limiter.poll_persist() == {}
    assert drop_reason(limiter, 0) is None
    assert not limiter.status(0, 3, 30).enabled


def test_restart_continues_the_count_of_the_epoch() -> None:
    limiter = RateLimiter(CONFIG)
    allowed_kinds(limiter, 12_000)
    for _ in range(7):
        limiter.count(TransmitKind.FIRST, 12_345)
    resumed = RateLimiter(CONFIG, stored(limiter))
    assert spend(resumed, TransmitKind.FIRST, 13_000) == 3
    assert spend(resumed, TransmitKind.FIRST, 20_000) == 10


def test_status_names_the_numbers() -> None:
    limiter = RateLimiter(CONFIG)
    allowed_kinds(limiter, 12_000)
    limiter.count(TransmitKind.FIRST, 12_345)
    status = limiter.status(12_000, queued=4, queued_bytes=400)
    assert (status.used, status.total, status.resets_at_ms, status.queued, status.queued_bytes) == (
        1,
        10,
        20_000,
        4,
        400,
    )


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
    limiter = RateLimiter(config)
    record: RateRecord | None = None
    left: dict[int, int] = {}
    for epoch_ms, kind, restart in steps:
        if restart:
            limiter = RateLimiter(config, record)
        if kind not in allowed_kinds(limiter, epoch_ms):
            continue
        limiter.count(kind, epoch_ms)
        changes = limiter.poll_persist()
        if changes:
            value = changes[RATE, b""]
            assert value is not None
            record = RateRecord.decode(value)
        if counts == "segment" or kind not in (TransmitKind.FURTHER, TransmitKind.RETRANSMISSION):
            epoch = epoch_ms // epoch_size_ms
            left[epoch] = left.get(epoch, 0) + 1
    assert max(left.values(), default=0) <= quota


def test_a_changed_epoch_size_does_not_reopen_what_was_used() -> None:
    record = RateRecord(epoch=1, epoch_size_ms=60_000, used=10)
    limiter = RateLimiter(CONFIG, record)
    assert allowed_kinds(limiter, 70_000) == frozenset()
    assert allowed_kinds(limiter, 120_000) == ALL_KINDS


@pytest.mark.parametrize(("share", "quota", "part"), [(0.55, 100, 55), (0.07, 100, 7), (0.28, 25, 7), (0.1, 11, 2)])
def test_shares_of_the_quota_are_exact(share: float, quota: int, part: int) -> None:
    config = replace(CONFIG, messages_per_epoch=quota)
    limiter = RateLimiter(replace(config, ephemeral_drop_threshold=share))
    assert spend(limiter, TransmitKind.EPHEMERAL, 12_345) == part
    limiter = RateLimiter(replace(config, ack_reserve=share))
    assert spend(limiter, TransmitKind.FIRST, 12_345) == quota - part
