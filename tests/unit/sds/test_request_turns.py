"""Whose missing messages are asked for first: nobody's inventions put off what others name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, at, hear, message, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage, request_offset_ms

SENDERS = ("alice", "carol")
T_MIN_MS = LOGOS.sds.repair_t_min_ms
T_MAX_MS = LOGOS.sds.repair_t_max_ms
AN_HOUR_BETWEEN_SYNCS = replace(LOGOS.sync, sync_min_interval_ms=3_600_000)


def named(number: int, sender: str, *ids: str) -> bytes:
    entries = [HistoryEntry(message_id, None, "dave") for message_id in ids]
    return message(0, sender=sender, message_id=f"sync-{number}", content=None, history=entries)


def ids(first: int, count: int) -> list[str]:
    return [f"{number:032x}.0" for number in range(first, first + count)]


def requested(party: Party, until_ms: int, answer: frozenset[str] = frozenset()) -> dict[str, int]:
    """When each message is first asked for, the party's timers alone running; those in `answer` come at once."""
    first_ms: dict[str, int] = {}
    while (due_ms := party.machine.poll_timeout()) is not None and due_ms <= until_ms:
        party.machine.handle_timeout(at(due_ms))
        for transmit in party.drain(at(due_ms)):
            party.machine.handle_transmitted(transmit.transmit_id, None, at(due_ms))
            sent = SdsMessage.decode(transmit.payload)
            for entry in sent.repair_request:
                first_ms.setdefault(entry.message_id, due_ms)
                if entry.message_id in answer:
                    content = b"0/1/1|" + entry.message_id.encode()
                    hear(party, message(0, sender="dave", message_id=entry.message_id, content=content), due_ms)
    return first_ms


HOUR_MS = 3_600_000


def last_request_ms(bob: Party, honest: list[str], until_ms: int = 2 * HOUR_MS) -> int:
    asked = requested(bob, until_ms, frozenset(honest))
    return max(asked[message_id] for message_id in honest)


@pytest.mark.parametrize("invented", [0, 900])
def test_what_one_participant_invents_puts_off_nobody(invented: int) -> None:
    bob, honest = Party("bob"), ids(1, 6)
    for at_ms in range(0, invented, 100):
        hear(bob, named(100 + at_ms, "mallory", *ids(10_000 + at_ms, 100)))
    for number, sender in enumerate(SENDERS):
        hear(bob, named(number, sender, *honest[3 * number : 3 * number + 3]), 1)
    # Behind 900 others, three in a sync, it would be five minutes more.
    assert last_request_ms(bob, honest) < 150_000


def test_many_names_have_one_share_between_them_beside_those_whose_messages_came() -> None:
    bob, known, later = Party("bob"), ids(1, 2), ids(50, 6)
    for number, sender in enumerate(SENDERS):
        hear(bob, named(number, sender, known[number]))
    last_request_ms(bob, known)
    start_ms = HOUR_MS * 2
    for number in range(900):
        hear(bob, named(1_000 + number, f"ghost {number}", *ids(10_000 + number, 1)), start_ms)
    for number, sender in enumerate(SENDERS):
        hear(bob, named(10 + number, sender, *later[3 * number : 3 * number + 3]), start_ms)
    assert last_request_ms(bob, later, start_ms + 2 * HOUR_MS) < start_ms + 150_000


@pytest.mark.parametrize("again_ms", [29_000, 60_000])
def test_what_others_name_too_is_in_the_smaller_share(again_ms: int) -> None:
    """Before it has a moment, and after."""
    bob, honest = Party("bob"), ids(1, 3)
    for number in range(0, 900, 100):
        hear(bob, named(100 + number, "mallory", *ids(10_000 + number, 100)))
    hear(bob, named(0, "mallory", *honest), 29_000)
    bob.machine.handle_timeout(at(again_ms))
    hear(bob, named(1, "alice", *honest), again_ms)
    assert last_request_ms(bob, honest) < 160_000


def test_a_full_buffer_loses_the_latest_of_who_named_most() -> None:
    bob, honest = Party("bob"), ids(1, 3)
    for number in range(30):
        hear(bob, named(100 + number, "mallory", *ids(10_000 + 100 * number, 100)))
    requested(bob, 130_000)
    hear(bob, named(1, "alice", *honest), 130_000)
    assert last_request_ms(bob, honest) < 300_000


def test_what_there_was_no_room_for_is_asked_for_once_it_is_named_again() -> None:
    bob, names = Party("bob", sync=quiet_sync()), ids(1, 1_003)
    for start in range(0, len(names), 100):
        hear(bob, named(start, "mallory", *names[start : start + 100]))
    bob.machine.handle_timeout(at(T_MIN_MS))
    asked_for = bob.machine.inspect()["repair_requests"]
    wanted, *others = sorted(set(names) - set(asked_for))
    assert len(others) == 2
    came = next(message_id for message_id in names if message_id in asked_for)
    hear(bob, message(0, sender="dave", message_id=came, content=b"0/1/1|came"), T_MIN_MS)
    hear(bob, named(10_000, "alice", wanted), T_MIN_MS)
    offset_ms = request_offset_ms("bob", wanted, T_MIN_MS, T_MAX_MS)
    assert bob.machine.inspect()["repair_requests"][wanted] == T_MIN_MS + offset_ms


def asked_in_turn(bob: Party, from_ms: int) -> list[str]:
    """What is asked for, one after the other, where all of it is due by then."""
    asked: list[str] = []
    while bob.machine.stats()["repair_requests"] > len(asked):
        bob.machine.handle_timeout(at(from_ms))
        for transmit in bob.drain(at(from_ms)):
            bob.machine.handle_transmitted(transmit.transmit_id, None, at(from_ms))
            asked += [entry.message_id for entry in SdsMessage.decode(transmit.payload).repair_request]
        from_ms += 1_000
    return asked


def test_participants_take_turns_however_much_each_names() -> None:
    bob = Party("bob", sync=quiet_sync())
    names = {"mallory": ids(1, 20), "alice": ids(100, 3), "carol": ids(200, 3)}
    for number, (sender, of_one) in enumerate(names.items()):
        hear(bob, named(number, sender, *of_one))
    asked = asked_in_turn(bob, T_MAX_MS)
    for place in range(0, 9, 3):
        turn = asked[place : place + 3]
        assert [len(set(turn) & set(of_one)) for of_one in names.values()] == [1, 1, 1]
    assert sorted(asked) == sorted(message_id for of_one in names.values() for message_id in of_one)
    # Of one participant's those come first that are due for longest.
    moments = [request_offset_ms("bob", message_id, T_MIN_MS, T_MAX_MS) for message_id in asked]
    of_mallory = [moment for moment, message_id in zip(moments, asked, strict=True) if message_id in names["mallory"]]
    assert of_mallory == sorted(of_mallory)


def test_nothing_that_others_ask_for_or_that_is_named_more_takes_a_turn_from_who_named_first() -> None:
    bob, alices = Party("bob", sync=quiet_sync()), ids(1, 20)
    hear(bob, named(0, "alice", *alices[:5]))
    for number in range(8):
        hear(bob, named(1 + number, f"ghost {number}", *ids(1_000 + 10 * number, 4)))
    asked: list[str] = []
    for turn in range(9):
        now_ms = T_MAX_MS + 1_000 * turn
        bob.machine.handle_message(named(100 + turn, "alice", alices[5 + turn]), at(now_ms))
        wanted = [HistoryEntry(alices[5 + turn], None, "dave")]
        bob.machine.handle_message(message(0, message_id=f"asks-{turn}", content=None, requests=wanted), at(now_ms))
        bob.machine.handle_timeout(at(now_ms))
        for transmit in bob.drain(at(now_ms)):
            asked += [entry.message_id for entry in SdsMessage.decode(transmit.payload).repair_request]
    # Nine have named something, and each message asks for three.
    assert len(set(asked[:9]) & set(alices)) == 1
    assert len(set(asked[:27]) & set(alices)) == 3


@pytest.mark.parametrize("is_asked_for", [True, False])
def test_who_named_what_was_asked_for_and_came_has_every_second_turn(is_asked_for: bool) -> None:
    bob, alices, came = Party("bob", sync=quiet_sync()), ids(100, 10), ids(50, 1)
    hear(bob, named(0, "alice", *came))
    before_ms = requested(bob, T_MAX_MS, frozenset(came))[came[0]] if is_asked_for else 1
    if not is_asked_for:
        hear(bob, message(50, sender="dave", content=b"0/1/1|came"), before_ms)
    for number in range(10):
        hear(bob, named(1 + number, f"ghost {number}", *ids(1_000 + number, 1)), before_ms)
    hear(bob, named(20, "alice", *alices), before_ms)
    asked = asked_in_turn(bob, before_ms + T_MAX_MS)
    assert len(asked) == 20
    if is_asked_for:
        # The turn before the first of these was theirs.
        assert set(asked[1::2]) == set(alices)
    else:
        # Its sender may have named it alone: eleven names take turns.
        assert len(set(asked[:11]) & set(alices)) == 1


def test_what_leaves_anyway_carries_first_what_a_sync_would_leave_for() -> None:
    """Of one participant; what was asked for twice in vain waits for it, however long it has been due."""
    bob, twice, once = Party("bob", sync=AN_HOUR_BETWEEN_SYNCS), ids(1, 3), ids(100, 3)
    hear(bob, named(0, "alice", *twice))
    for number, message_id in enumerate(twice):
        for turn in range(2):
            wanted = [HistoryEntry(message_id, None, "dave")]
            sync = f"asks-{2 * number + turn}"
            hear(bob, message(0, sender="carol", message_id=sync, content=None, requests=wanted), 1)
    later_ms = 2 * T_MAX_MS + 1
    bob.machine.handle_message(named(1, "alice", *once), at(later_ms))
    now_ms = later_ms + T_MAX_MS
    bob.machine.handle_timeout(at(now_ms))
    bob.send("ours", at(now_ms))
    carried = [SdsMessage.decode(transmit.payload).repair_request for transmit in bob.drain(at(now_ms))]
    asked = [[entry.message_id for entry in requests] for requests in carried]
    assert [sorted(of_one) for of_one in asked] == [once, twice]
