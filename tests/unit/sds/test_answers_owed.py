"""Who answers a request, when, what is stored of it, and what is left of it after a restart (SDS-R)."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, at, hear, message, quiet_sync

from shardwire._native import HistoryEntry, repair_times_without_store, sds_limits
from shardwire.sds import TransmitKind

HELD = f"{1:032x}.0"
# Times that somebody has set: those that SDS-R lays down become shorter.
SET = replace(LOGOS.sds, repair_t_min_ms=29_000)
T_MAX_MS = SET.repair_t_max_ms
WINDOW_MS = LOGOS.sds.acknowledgement_timeout_ms // 4
ANSWERS_MAX = sds_limits()["REPAIR_BUFFER_MAX"]
HOUR_MS = 3_600_000
MIB = 1 << 20


def hash_of(text: str) -> int:
    """As @waku/sds takes it."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def response_ms(name: str, sender: str, message_id: str, t_max_ms: int = T_MAX_MS) -> int:
    return ((hash_of(name) ^ hash_of(sender)) * hash_of(message_id)) % t_max_ms


def asks(number: int, *ids: str) -> bytes:
    """Erin asks, who knows no senders."""
    wanted = [HistoryEntry(message_id) for message_id in ids or (HELD,)]
    return message(0, sender="erin", message_id=f"asks-{number}", content=None, requests=wanted)


def held(number: int = 1, size: int = 0) -> bytes:
    return message(number, sender="alice", content=b"0/1/1|%d|" % number + bytes(size))


def holding(name: str = "bob", **changes: object) -> Party:
    party = Party(name, sync=quiet_sync(), **{"sds": SET, **changes})  # type: ignore[arg-type]
    hear(party, held())
    return party


def owed(party: Party) -> dict[str, int]:
    return party.machine.inspect()["repair_answers"]


def stored(party: Party) -> set[str]:
    return {key.decode() for kind, key in party.records if kind == "sds.answer"}


def sent_by(name: str, **changes: object) -> tuple[Party, str]:
    """A party, and the id of a message of its own that has left."""
    party = Party(name, sync=quiet_sync(), **changes)  # type: ignore[arg-type]
    send_id = party.send("ours", at(0))
    for transmit in party.drain(at(0)):
        party.machine.handle_transmitted(transmit.transmit_id, None, at(0))
    return party, f"{send_id}.0"


# --- who --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_those_of_the_senders_group_answer_each_at_its_moment(groups: int) -> None:
    """H(me, id) mod groups as of the sender; T_resp is the distance of the two, times the hash of the id, mod T_max."""
    names, answering = [f"member-{number}" for number in range(20)], set()
    for name in names:
        party = holding(name, sds=replace(SET, repair_groups=groups))
        hear(party, asks(1), 1_000)
        if hash_of(name + HELD) % groups == hash_of("alice" + HELD) % groups:
            assert owed(party) == {HELD: 1_000 + response_ms(name, "alice", HELD)}
            answering.add(name)
        else:
            assert owed(party) == {}
    assert answering
    assert (answering == set(names)) == (groups == 1)


@pytest.mark.parametrize("members", [2, 42])
def test_under_the_times_of_sds_r_an_answer_leaves_as_soon_as_without_a_store(members: int) -> None:
    """Whoever asks has asked a store before, or there is none."""
    party = holding(sds=LOGOS.sds)
    for number in range(members - 2):
        hear(party, message(number, sender=f"member-{number}", message_id=f"of-{number}", content=b"0/1/1|x"), 500)
    hear(party, asks(1), 1_000)
    t_min_ms, t_max_ms = repair_times_without_store(members)
    assert (t_min_ms, t_max_ms) == {2: (500, 1_500), 42: (1_050, 3_150)}[members]
    assert owed(party) == {HELD: 1_000 + response_ms("bob", "alice", HELD, t_max_ms)}


def test_names_that_anybody_makes_up_make_no_group_slow() -> None:
    """No more than four hundred count, and none that was not heard for long."""
    party = holding(sds=LOGOS.sds)
    for number in range(1_000):
        hear(party, message(number, sender=f"made-up-{number}", message_id=f"by-{number}", content=None), 500)
    for now_ms, t_max_ms in ((1_000, 30_000), (1_000 + LOGOS.sync.participant_ttl_ms, 1_500)):
        hear(party, asks(now_ms), now_ms)
        assert owed(party) == {HELD: now_ms + response_ms("bob", "alice", HELD, t_max_ms)}
        party.drain(at(now_ms + t_max_ms))


@pytest.mark.parametrize("groups", [1, 5])
def test_the_sender_is_of_the_group_and_answers_at_once(groups: int) -> None:
    alice, sent = sent_by("alice", sds=replace(LOGOS.sds, repair_groups=groups, max_retransmissions=0))
    hear(alice, asks(1, sent), 1_000)
    assert alice.count(TransmitKind.REPAIR) == 1
    assert owed(alice) == {}


def test_what_has_not_left_yet_answers_itself() -> None:
    """A slow node may have it for long."""
    alice = Party("alice", sync=quiet_sync(), sds=replace(LOGOS.sds, max_retransmissions=0))
    send_id = alice.send("ours", at(0))
    (transmit,) = alice.drain(at(0))
    hear(alice, asks(1, f"{send_id}.0"), 1_000)
    assert (owed(alice), alice.count(TransmitKind.REPAIR)) == ({}, 0)
    alice.machine.handle_transmitted(transmit.transmit_id, None, at(2_000))
    hear(alice, asks(2, f"{send_id}.0"), 2_001)
    assert alice.count(TransmitKind.REPAIR) == 1


def test_without_repair_nothing_is_answered_whatever_is_heard() -> None:
    alice, sent = sent_by("alice", sds=replace(LOGOS.sds, enable_repair=False))
    hear(alice, asks(1, sent), 1_000)
    # A content that is another one under its id, too.
    for sender in ("mallory", "alice"):
        hear(alice, message(0, sender=sender, message_id=sent, content=b"0/1/1|forged"), 1_001)
    assert owed(alice) == {}
    assert alice.count(TransmitKind.REPAIR) == 0


# --- what silences it, and for how long -------------------------------------------------------------------------------


@pytest.mark.parametrize(("later_ms", "answers"), [(1, True), (T_MAX_MS, True), (T_MAX_MS + 1, False)])
def test_what_comes_again_answers_a_request_within_t_max(later_ms: int, answers: bool) -> None:
    """After that its sender repeats it for want of an acknowledgement, which it is given."""
    party = Party("bob")
    hear(party, held())
    asked_ms = 10 * T_MAX_MS
    for now_ms in (WINDOW_MS, 2 * WINDOW_MS, asked_ms - 10_000):
        party.machine.handle_timeout(at(now_ms))
        party.drain(at(now_ms))
    assert party.machine.stats()["unsaid_acknowledgements"] == 0
    party.machine.handle_message(asks(1), at(asked_ms))
    party.machine.handle_message(held(), at(asked_ms + later_ms))
    assert party.machine.stats()["unsaid_acknowledgements"] == (0 if answers else 1)
    assert owed(party) == {}


def test_after_an_hour_in_which_nobody_asked_answers_are_as_free_as_at_first() -> None:
    alice, sent = sent_by("alice", sds=replace(LOGOS.sds, max_retransmissions=0))

    def answered(from_ms: int, count: int, distance_ms: int) -> int:
        before = alice.count(TransmitKind.REPAIR)
        for turn in range(count):
            now_ms = from_ms + turn * distance_ms
            hear(alice, asks(now_ms, sent), now_ms)
        return alice.count(TransmitKind.REPAIR) - before

    at_first = answered(10_000, 10, 10)
    assert at_first >= 3
    now_ms, pause_ms = 10_000 + 10 * (at_first - 1), 2 * WINDOW_MS
    while pause_ms < HOUR_MS // 2:
        now_ms += pause_ms
        assert answered(now_ms - 1, 1, 0) == 0
        assert answered(now_ms, 1, 0) == 1
        pause_ms *= 2
    assert answered(now_ms + 1, 3, 10) == 0
    assert answered(now_ms + HOUR_MS, 10, 10) == at_first


def test_answers_leave_at_a_pace() -> None:
    """So many bytes at once, and a mebibyte a second from then on."""
    count, size = 20, MIB
    party = Party("bob", sync=quiet_sync())
    wanted = [f"{number:032x}.0" for number in range(1, count + 1)]
    for number in range(1, count + 1):
        hear(party, held(number, size))
    party.machine.handle_message(asks(1, *wanted), at(0))
    now_ms = T_MAX_MS
    moments = []
    while owed(party):
        left = party.count(TransmitKind.REPAIR)
        party.drain(at(now_ms))
        moments += [now_ms] * (party.count(TransmitKind.REPAIR) - left)
        now_ms = max(now_ms, party.machine.poll_timeout() or 0)
        party.machine.handle_timeout(at(now_ms))
    first = [moment for moment in moments if moment == T_MAX_MS]
    assert len(first) == 8
    later = moments[len(first) :]
    assert len(later) == count - len(first)
    for before, moment in enumerate(later):
        # Each mebibyte takes 1,024 milliseconds, and its header one more.
        assert 1_024 * before <= moment - T_MAX_MS <= 1_025 * (before + len(first)) - 8_192


# --- what is stored ---------------------------------------------------------------------------------------------------


def flooded() -> Party:
    """More is asked for of what it holds than it answers."""
    party = Party("bob", sync=quiet_sync(), sds=SET)
    count = ANSWERS_MAX + 200
    for number in range(1, count + 1):
        party.machine.handle_message(held(number), at(0))
        if number % 100 == 0:
            party.drain(at(0))
    for start in range(1, count, 100):
        ids = [f"{number:032x}.0" for number in range(start, start + 100)]
        hear(party, asks(start, *ids))
    return party


def test_of_too_many_requests_those_are_answered_whose_moments_come_first_and_these_are_stored() -> None:
    party = flooded()
    moments = sorted(response_ms("bob", "alice", f"{number:032x}.0") for number in range(1, ANSWERS_MAX + 201))
    assert sorted(owed(party).values()) == [moment for moment in moments if moment][:ANSWERS_MAX]
    assert stored(party) == set(owed(party))


def test_a_restart_owes_what_was_owed_and_stores_none_of_it_anew() -> None:
    party = holding()
    hear(party, asks(1), 1_000)
    assert stored(party) == set(owed(party)) == {HELD}
    again = party.restarted(at(2_000))
    assert owed(again) == {HELD: 2_000 + response_ms("bob", "alice", HELD)}
    assert [name for name in again.machine.poll_persist() if name[0] == "sds.answer"] == []
    now_ms = 2_000 + T_MAX_MS
    again.drain(at(now_ms))
    assert again.count(TransmitKind.REPAIR) == 1
    assert stored(again) == set()


def test_a_life_without_repair_owes_nothing_and_leaves_no_record_of_it() -> None:
    party = holding()
    hear(party, asks(1), 1_000)
    party.sds = replace(LOGOS.sds, enable_repair=False)
    again = party.restarted(at(2_000))
    again.drain(at(2_000))
    assert owed(again) == {}
    assert stored(again) == set()
