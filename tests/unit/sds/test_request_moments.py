"""When each missing message is asked for: T_req, every T_max, ever rarer, and what may change that (SDS-R)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, at, hear, message, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage, request_offset_ms, sds_limits

WANTED = f"{1:032x}.0"
T_MIN_MS = LOGOS.sds.repair_t_min_ms
T_MAX_MS = LOGOS.sds.repair_t_max_ms
OFFSET_MS = request_offset_ms("bob", WANTED, T_MIN_MS, T_MAX_MS)
PERIOD_MS = T_MAX_MS + OFFSET_MS
REQUESTS_PER_MESSAGE = 3
# After so many requests of ours in vain their distance doubles with every second one.
STEADY = 4
DAY_MS = 24 * 3_600_000


def named(number: int, *ids: str, sender: str = "alice") -> bytes:
    entries = [HistoryEntry(message_id, None, "dave") for message_id in ids]
    return message(0, sender=sender, message_id=f"names-{number}", content=None, history=entries)


def asks(number: int, message_id: str = WANTED) -> bytes:
    wanted = [HistoryEntry(message_id, None, "dave")]
    return message(0, sender="carol", message_id=f"asks-{number}", content=None, requests=wanted)


def ids(first: int, count: int) -> list[str]:
    return [f"{number:032x}.0" for number in range(first, first + count)]


def bob(**changes: object) -> Party:
    return Party("bob", sync=quiet_sync(), **changes)  # type: ignore[arg-type]


def missing_from(monotonic_ms: int) -> Party:
    party = bob()
    hear(party, named(0, WANTED), monotonic_ms)
    return party


def due_ms(party: Party, message_id: str = WANTED) -> int:
    return party.machine.inspect()["repair_requests"][message_id]


def requests(party: Party, monotonic_ms: int) -> list[list[str]]:
    """What each message asks for that leaves now."""
    asked = []
    for transmit in party.drain(at(monotonic_ms)):
        party.machine.handle_transmitted(transmit.transmit_id, None, at(monotonic_ms))
        sent = SdsMessage.decode(transmit.payload)
        assert sent is not None
        asked.append([entry.message_id for entry in sent.repair_request])
    return asked


def ask(party: Party, times: int) -> int:
    """Goes on until it asked so often in vain; when it did last."""
    now_ms = 0
    while times > 0:
        due = party.machine.poll_timeout()
        assert due is not None
        now_ms = max(due, now_ms)
        party.machine.handle_timeout(at(now_ms))
        times -= sum(map(len, requests(party, now_ms)))
    return now_ms


def wait_ms(asked: int) -> int:
    return PERIOD_MS << max(asked - STEADY, 0) // 2


@pytest.mark.parametrize("asked", range(1, 9))
def test_after_each_request_the_next_one_has_its_distance(asked: int) -> None:
    party = missing_from(0)
    last_ms = ask(party, asked)
    assert due_ms(party) == last_ms + wait_ms(asked)


@pytest.mark.parametrize("asked", range(1, STEADY + 1))
def test_what_is_asked_for_every_t_max_is_hastened_by_no_further_name(asked: int) -> None:
    party = missing_from(0)
    last_ms = ask(party, asked)
    hear(party, named(1, WANTED, sender="carol"), last_ms + 1)
    assert due_ms(party) == last_ms + PERIOD_MS


def test_what_is_named_again_is_asked_for_as_soon_as_at_first_and_put_off_by_no_name() -> None:
    party = missing_from(0)
    last_ms = ask(party, STEADY + 4)
    named_ms = last_ms + 10
    hear(party, named(1, WANTED, sender="carol"), named_ms)
    assert due_ms(party) == named_ms + OFFSET_MS
    for number, later_ms in enumerate(range(named_ms, named_ms + OFFSET_MS, 1_000)):
        hear(party, named(2 + number, WANTED, sender="carol"), later_ms)
    assert due_ms(party) == named_ms + OFFSET_MS


@pytest.mark.parametrize("heard_ms", [1, T_MIN_MS - 1, T_MIN_MS, OFFSET_MS - 1])
def test_what_another_one_asked_for_is_asked_for_a_period_later_missing_however_long(heard_ms: int) -> None:
    """Also where it is missing for less than T_min here: who asks has missed it for longer."""
    party = missing_from(0)
    party.machine.handle_timeout(at(heard_ms))
    hear(party, asks(1), heard_ms)
    assert due_ms(party) == heard_ms + PERIOD_MS
    # It is put off, and not forgotten.
    assert ask(party, 1) == heard_ms + PERIOD_MS


def test_what_another_one_asked_for_is_asked_for_no_sooner() -> None:
    party = missing_from(0)
    last_ms = ask(party, STEADY + 4)
    hear(party, asks(1), last_ms + 1)
    assert due_ms(party) == last_ms + wait_ms(STEADY + 4)


def test_what_nobody_has_is_asked_for_no_more_once_a_day_would_pass_between_requests() -> None:
    party = missing_from(0)
    asked = STEADY
    while wait_ms(asked) <= DAY_MS:
        asked += 1
    ask(party, asked - 1)
    assert [entry.message_id for entry in party.machine.missing()] == [WANTED]
    last_ms = ask(party, 1)
    assert party.machine.missing() == ()
    assert party.machine.inspect()["repair_requests"] == {}
    hear(party, named(1, WANTED, sender="carol"), last_ms)
    assert due_ms(party) == last_ms + OFFSET_MS


# --- how many, and on what they ride ----------------------------------------------------------------------------------


def test_a_message_carries_three_requests_at_most() -> None:
    party, wanted = bob(), ids(1, 10)
    hear(party, named(0, *wanted))
    asked: list[str] = []
    now_ms = T_MAX_MS
    for _ in range(4):
        party.machine.handle_timeout(at(now_ms))
        for of_one in requests(party, now_ms):
            assert len(of_one) <= REQUESTS_PER_MESSAGE
            asked += of_one
        now_ms += 1_000
    assert sorted(asked) == wanted


def test_requests_go_as_far_as_a_message_has_room() -> None:
    """Each of them takes more than a third of it."""
    header_bytes_max = 1_400
    party = bob(header_bytes_max=header_bytes_max)
    entries = [HistoryEntry(f"{number:0250}", bytes(200), "d" * 200) for number in range(4)]
    for number, entry in enumerate(entries):
        hear(party, message(0, message_id=f"names-{number}", content=None, history=[entry]))
    now_ms, asked = T_MAX_MS, 0
    while asked < len(entries):
        party.machine.handle_timeout(at(now_ms))
        for transmit in party.drain(at(now_ms)):
            sent = SdsMessage.decode(transmit.payload)
            assert sent is not None
            assert len(transmit.payload) <= header_bytes_max
            assert sent.repair_request
            asked += len(sent.repair_request)
        now_ms += 1_000
    assert asked == len(entries)


def test_a_request_rides_on_what_leaves_before_a_timer_ran() -> None:
    party = missing_from(0)
    party.send("ours", at(T_MAX_MS))
    assert [WANTED] in requests(party, T_MAX_MS)


def test_what_comes_before_t_min_takes_no_place_from_what_is_asked_for() -> None:
    """More is missing for a moment than is ever asked for at once, and some of it for longer."""
    first, later = ids(1_000, 500), ids(2_000, 900)
    assert len(first) + len(later) > sds_limits()["REPAIR_BUFFER_MAX"]
    party = bob()
    for start in range(0, 500, 100):
        hear(party, named(start, *first[start : start + 100]))
    party.machine.handle_timeout(at(T_MIN_MS - 1_000))
    for start in range(0, 900, 100):
        hear(party, named(1_000 + start, *later[start : start + 100]), T_MIN_MS - 1_000)
    party.machine.handle_timeout(at(T_MIN_MS))
    for number in range(2_000, 2_800):
        hear(party, message(number, sender="dave", content=b"0/1/1|%d" % number), T_MIN_MS + 1_000)
    party.machine.handle_timeout(at(2 * T_MIN_MS))
    asked_for = party.machine.inspect()["repair_requests"]
    assert set(asked_for) | {request for sent in party.transmitted for request in asked_in(sent.payload)} == {
        *first,
        *later[800:],
    }


def asked_in(payload: bytes) -> list[str]:
    sent = SdsMessage.decode(payload)
    return [] if sent is None else [entry.message_id for entry in sent.repair_request]


# --- a restart --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [1, 3, 8])
def test_a_restart_goes_on_where_the_asking_was(asked: int) -> None:
    party = missing_from(0)
    now_ms = ask(party, asked) + 1_000
    again = party.restarted(at(now_ms))
    assert due_ms(again) == now_ms + wait_ms(asked)
    again.machine.handle_timeout(at(now_ms + T_MIN_MS))
    assert due_ms(again) == now_ms + wait_ms(asked)


def test_what_is_named_again_after_a_restart_is_asked_for_as_soon_as_at_first() -> None:
    party = missing_from(0)
    now_ms = ask(party, STEADY + 4)
    again = party.restarted(at(now_ms))
    hear(again, named(1, WANTED, sender="carol"), now_ms + 500)
    assert due_ms(again) == now_ms + 500 + OFFSET_MS


def test_a_life_without_repair_forgets_not_how_often_was_asked() -> None:
    party = missing_from(0)
    now_ms = ask(party, 8)
    sds = party.sds
    party.sds = replace(sds, enable_repair=False)
    without = party.restarted(at(now_ms))
    # What is known of it changes, and so what is stored.
    entry = HistoryEntry(WANTED, bytes(32), "dave")
    hear(without, message(0, sender="carol", message_id="names-1", content=None, history=[entry]), now_ms)
    assert without.machine.inspect()["repair_requests"] == {}
    without.sds = sds
    again = without.restarted(at(now_ms))
    assert due_ms(again) == now_ms + wait_ms(8)


def test_without_haste_what_was_given_up_is_asked_for_by_what_leaves_anyway() -> None:
    """It was asked for while it was waited for."""
    hour_ms = 3_600_000
    sync = replace(LOGOS.sync, sync_min_interval_ms=hour_ms, acknowledgement_sync=False)
    party = Party("bob", sync=sync)
    hear(party, message(1, sender="alice", content=b"0/3/3|parts"))
    party.machine.handle_send_abandoned("alice", WANTED[:32], at(1), keep_messages=True)
    party.drain(at(1))
    lacking = [f"{1:032x}.{ordinal}" for ordinal in (1, 2)]
    assert [entry.message_id for entry in party.machine.missing()] == lacking
    now_ms = 1
    while (due := party.machine.poll_timeout()) is not None and due <= 2 * T_MAX_MS:
        now_ms = max(due, now_ms)
        party.machine.handle_timeout(at(now_ms))
        assert requests(party, now_ms) == []
    now_ms = 2 * T_MAX_MS
    assert party.machine.inspect()["sync_due_ms"] > now_ms
    party.send("ours", at(now_ms))
    assert sorted(lacking) in [sorted(asked) for asked in requests(party, now_ms)]
