"""From when on a store is asked for what passed by, and when."""

from __future__ import annotations

from shardwire.channel.receiving.catch_up import (
    FIRST_QUERY_RANGE_MS,
    QUERY_MARGIN_MS,
    RETRY_MS_MAX,
    RETRY_MS_MIN,
    CatchUp,
    Span,
)

NS = 1_000_000
EPOCH_MS = 1_764_000_000_000
HOUR_MS = 3_600_000
INTERVAL_MS = 300_000


def answered(since_ms: int = 0) -> CatchUp:
    """One that a store answered, asked at `EPOCH_MS` and 5 s by the clock that nobody sets."""
    catch_up = CatchUp(True, INTERVAL_MS, since_ms * NS)
    catch_up.begin(EPOCH_MS, 5_000)
    catch_up.on_answered(EPOCH_MS, 5_000)
    return catch_up


def test_who_never_received_anything_asks_for_thirty_days() -> None:
    catch_up = CatchUp(True, INTERVAL_MS, 0)
    assert catch_up.next_ms() == 0
    assert catch_up.begin(EPOCH_MS, 5_000) == Span(EPOCH_MS - FIRST_QUERY_RANGE_MS, thorough=False)
    assert CatchUp(True, INTERVAL_MS, 0).begin(HOUR_MS, 5_000) == Span(0, thorough=False)


def test_who_was_away_asks_for_all_since_the_last_message_that_was_seen() -> None:
    catch_up = CatchUp(True, INTERVAL_MS, (EPOCH_MS - HOUR_MS) * NS)
    assert catch_up.open_since_ns == (EPOCH_MS - HOUR_MS) * NS
    assert catch_up.begin(EPOCH_MS, 5_000) == Span(EPOCH_MS - HOUR_MS - QUERY_MARGIN_MS, thorough=True)
    assert catch_up.next_ms() is None


def test_an_answer_is_good_for_an_interval() -> None:
    catch_up = answered(EPOCH_MS - HOUR_MS)
    assert catch_up.open_since_ns is None
    assert catch_up.next_ms() == 5_000 + INTERVAL_MS
    later = catch_up.begin(EPOCH_MS + INTERVAL_MS, 5_000 + INTERVAL_MS)
    assert later == Span(EPOCH_MS - 2 * QUERY_MARGIN_MS, thorough=False)


def test_a_clock_that_is_set_back_leaves_nothing_out() -> None:
    set_back = answered().begin(EPOCH_MS - HOUR_MS, 5_000 + INTERVAL_MS)
    # So long ago is the answer by the clock that nobody sets.
    assert set_back == Span(EPOCH_MS - HOUR_MS - INTERVAL_MS - QUERY_MARGIN_MS, thorough=False)


def test_a_clock_that_is_set_forward_leaves_nothing_out() -> None:
    set_forward = answered().begin(EPOCH_MS + HOUR_MS, 5_000 + INTERVAL_MS)
    assert set_forward == Span(EPOCH_MS - 2 * QUERY_MARGIN_MS, thorough=False)


def test_the_earliest_of_several_gaps_is_asked_for() -> None:
    catch_up = answered()
    catch_up.on_gap((EPOCH_MS - HOUR_MS) * NS)
    catch_up.on_gap(EPOCH_MS * NS)
    assert catch_up.next_ms() == 0
    assert catch_up.open_since_ns == (EPOCH_MS - HOUR_MS) * NS
    assert catch_up.begin(EPOCH_MS, 6_000) == Span(EPOCH_MS - HOUR_MS - QUERY_MARGIN_MS, thorough=True)
    # What opens meanwhile is asked for behind it.
    catch_up.on_store_near()
    assert catch_up.next_ms() is None
    catch_up.on_gap((EPOCH_MS + 1_000) * NS)
    assert catch_up.open_since_ns == (EPOCH_MS - HOUR_MS) * NS
    catch_up.on_answered(EPOCH_MS, 6_000)
    assert catch_up.open_since_ns == (EPOCH_MS + 1_000) * NS
    assert catch_up.next_ms() == 0


def test_a_gap_that_no_store_answered_for_stays_one() -> None:
    catch_up = CatchUp(True, INTERVAL_MS, (EPOCH_MS - HOUR_MS) * NS)
    now_ms, pauses = 5_000, []
    for _ in range(8):
        first = catch_up.begin(EPOCH_MS, now_ms)
        catch_up.on_failed(now_ms)
        assert first == Span(EPOCH_MS - HOUR_MS - QUERY_MARGIN_MS, thorough=True)
        assert catch_up.open_since_ns == (EPOCH_MS - HOUR_MS) * NS
        assert catch_up.fails
        next_ms = catch_up.next_ms()
        assert next_ms == catch_up.retry_at_ms
        pauses.append(next_ms - now_ms)
        now_ms = next_ms
    assert pauses == [min(RETRY_MS_MAX, RETRY_MS_MIN * 2**failures) for failures in range(8)]
    catch_up.on_recovered()
    assert not catch_up.fails
    assert catch_up.next_ms() == 0


def test_a_store_that_comes_near_is_asked_at_once() -> None:
    catch_up = answered()
    catch_up.on_failed(10_000)
    assert catch_up.next_ms() == 5_000 + INTERVAL_MS
    catch_up.on_store_near()
    assert catch_up.next_ms() == 0
    assert not catch_up.fails
    # Who asks for nothing that passed by asks for what is missing.
    catch_up = CatchUp(False, INTERVAL_MS, 0)
    catch_up.on_failed(10_000)
    catch_up.on_store_near()
    assert catch_up.retry_at_ms == 0


def test_what_found_no_room_is_asked_for_again() -> None:
    catch_up = answered()
    catch_up.on_gap(EPOCH_MS * NS)
    catch_up.begin(EPOCH_MS, 6_000)
    catch_up.put_off(7_000)
    assert catch_up.next_ms() == 7_000
    assert catch_up.open_since_ns == EPOCH_MS * NS
    assert not catch_up.fails
    # Also where nothing is known to have passed by.
    catch_up = answered()
    catch_up.on_store_near()
    catch_up.begin(EPOCH_MS, 6_000)
    catch_up.put_off(7_000)
    assert catch_up.next_ms() == 7_000


def test_an_answer_ends_the_pauses_after_failures() -> None:
    catch_up = answered()
    for _ in range(3):
        catch_up.on_failed(5_000 + INTERVAL_MS)
    catch_up.begin(EPOCH_MS, 6_000 + INTERVAL_MS)
    catch_up.on_answered(EPOCH_MS, 0)
    assert not catch_up.fails
    assert catch_up.next_ms() == INTERVAL_MS


def test_who_asks_no_store_has_no_gap() -> None:
    catch_up = CatchUp(False, INTERVAL_MS, (EPOCH_MS - HOUR_MS) * NS)
    catch_up.on_gap(EPOCH_MS * NS)
    catch_up.on_store_near()
    assert catch_up.next_ms() is None
    assert catch_up.open_since_ns is None
