"""Two participants claim one send id: what the second began goes on as one send, whatever becomes of the first."""

from __future__ import annotations

import pytest
from sds_exchange import LOGOS, Reader, at, hear, message

from shardwire._native import HistoryEntry
from shardwire.sds import DependencyLost

SEND = f"{1:032x}"
PARTS = 4


def part(ordinal: int) -> bytes:
    """A content of alice's message."""
    return message(1, sender="alice", content=b"%d/4/4|large" % ordinal, message_id=f"{SEND}.{ordinal}")


def claim(ordinal: int) -> bytes:
    """One of the two contents of mallory's message."""
    return message(1, content=b"%d/2/2|forged" % (ordinal - 5), message_id=f"{SEND}.{ordinal}")


def sync(*entries: HistoryEntry) -> bytes:
    return message(0, sender="carol", message_id="sync-1", content=None, history=list(entries))


def after(*entries: HistoryEntry) -> bytes:
    return message(2, sender="carol", content=b"0/1/1|after", history=list(entries))


def named(ordinal: int, sender_id: str | None = "alice") -> HistoryEntry:
    return HistoryEntry(f"{SEND}.{ordinal}", None, sender_id)


def begun(*ordinals: int) -> Reader:
    """Bob heard these of alice's message while mallory's had its id, and then the rest of mallory's."""
    bob = Reader("bob")
    hear(bob, claim(5))
    for ordinal in ordinals:
        hear(bob, part(ordinal))
    hear(bob, claim(6))
    assert bob.delivered == ["forged"]
    return bob


def assert_nothing_left(bob: Reader) -> None:
    stats = bob.machine.stats()
    assert (stats["incoming_contents"], stats["incoming_pairs"], stats["missing"]) == (0, 0, 0)
    assert bob.machine.inspect()["incoming"] == ()
    assert not [key for kind, key in bob.records if kind == "sds.incoming"]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_came_before_and_after_the_other_one_was_delivered_is_one_message(count: int, restart: bool) -> None:
    bob = begun(*range(count))
    if restart:
        bob = bob.restarted(at(0))
    for ordinal in range(count, PARTS):
        hear(bob, part(ordinal))
    assert bob.delivered == ["forged", "large"]
    assert_nothing_left(bob)


def test_one_participant_under_two_names_fills_no_room_of_the_buffer() -> None:
    """Each pair of names would leave a content there for good, until there is no room for anybody."""
    bob = Reader("bob")
    for number in range(10, 30):
        for sender, ordinal in (("one", 5), ("two", 0), ("one", 6), ("two", 1)):
            content = b"%d/2/2|%s" % (ordinal % 5, sender.encode())
            hear(bob, message(number, sender=sender, content=content, message_id=f"{number:032x}.{ordinal}"))
    assert len(bob.delivered) == 40
    assert_nothing_left(bob)


def test_what_follows_it_waits_until_all_of_it_is_here() -> None:
    bob = begun(1, 3)
    hear(bob, after(named(1)))
    for ordinal in (0, 2):
        assert bob.delivered == ["forged"]
        hear(bob, part(ordinal))
    assert bob.delivered == ["forged", "large", "after"]
    assert_nothing_left(bob)


@pytest.mark.parametrize("sender_id", ["alice", None])
def test_what_others_name_of_it_is_asked_for_until_it_comes(sender_id: str | None) -> None:
    bob = begun(1, 3)
    hear(bob, after(named(2, sender_id)))
    # Who is said to have sent it tells that parity may bring it.
    assert bool(bob.machine.missing()) == (sender_id is None)
    now_ms = LOGOS.sds.acknowledgement_timeout_ms
    bob.machine.handle_timeout(at(now_ms))
    bob.drain(at(now_ms))
    assert f"{SEND}.2" in [entry.message_id for entry in bob.machine.missing()]
    for ordinal in (2, 0):
        assert bob.delivered == ["forged"]
        hear(bob, part(ordinal), now_ms)
    assert bob.delivered == ["forged", "large", "after"]
    assert_nothing_left(bob)
    later_ms = 10 * LOGOS.sds.timeout_for_lost_messages_ms
    bob.machine.handle_timeout(at(later_ms))
    bob.drain(at(later_ms))
    assert bob.of(DependencyLost) == []


@pytest.mark.parametrize("ordinal", range(PARTS))
def test_what_follows_what_came_whole_does_not_wait_for_what_another_began_under_its_id(ordinal: int) -> None:
    """Nobody sends the rest of it, so that everything that follows the message would wait until that is lost."""
    bob = Reader("bob")
    hear(bob, message(1, content=b"0/2/2|forged", message_id=f"{SEND}.{ordinal}"))
    for number in range(PARTS):
        hear(bob, part(number))
    assert bob.delivered == ["large"]
    hear(bob, after(named(ordinal)))
    assert bob.delivered == ["large", "after"]


def test_what_follows_it_waits_for_what_its_sender_began_beside_anothers() -> None:
    bob = Reader("bob")
    hear(bob, message(1, content=b"0/2/2|forged", message_id=f"{SEND}.0"))
    for number in range(PARTS - 1):
        hear(bob, part(number))
    hear(bob, after(named(0)))
    assert bob.delivered == []
    hear(bob, part(PARTS - 1))
    assert bob.delivered == ["large", "after"]


def test_what_is_given_up_of_it_is_forgotten() -> None:
    bob = begun(0, 1)
    assert bob.machine.handle_send_abandoned("alice", SEND, at(0))
    bob.drain(at(0))
    assert_nothing_left(bob)
    assert not bob.machine.holds(f"{SEND}.0")


def test_what_came_of_it_under_ids_that_are_named_as_anothers_is_one_message_with_the_rest() -> None:
    """Histories say that two contents are dave's, who is still asked for them, and say nothing of the others."""
    bob = Reader("bob")
    hear(bob, sync(named(0, "dave"), named(2, "dave")))
    for ordinal in range(PARTS):
        hear(bob, part(ordinal))
    assert bob.delivered == ["large"]
    assert bob.machine.stats()["incoming_contents"] == 0
    assert {entry.message_id for entry in bob.machine.missing()} == {f"{SEND}.0", f"{SEND}.2"}


def test_rivals_that_come_again_after_they_were_given_up_are_given_up_once() -> None:
    """Others may hold them and send them again and again: a loss that was told is no news."""
    bob = Reader("bob")
    hear(bob, part(0))
    for is_first in (True, False):
        hear(bob, message(1, content=b"0/2/2|forged", message_id=f"{SEND}.0"))
        assert bob.machine.handle_send_abandoned("mallory", SEND, at(0)) == is_first
    bob = bob.restarted(at(0))
    assert not bob.machine.handle_send_abandoned("mallory", SEND, at(0))
