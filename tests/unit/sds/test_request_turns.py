"""Whose missing messages are asked for first: nobody's inventions put off what others name."""

from __future__ import annotations

import pytest
from sds_exchange import Party, at, hear, message

from shardwire._native import HistoryEntry, SdsMessage

SENDERS = ("alice", "carol")


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
    hear(bob, named(1, "alice", *honest), again_ms)
    assert last_request_ms(bob, honest) < 160_000


def test_a_full_buffer_loses_the_latest_of_who_named_most() -> None:
    bob, honest = Party("bob"), ids(1, 3)
    for number in range(30):
        hear(bob, named(100 + number, "mallory", *ids(10_000 + 100 * number, 100)))
    requested(bob, 130_000)
    hear(bob, named(1, "alice", *honest), 130_000)
    assert last_request_ms(bob, honest) < 300_000
