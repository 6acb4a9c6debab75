"""What a message waits for, and what it goes on without."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, Reader, at, hear, message, quiet_sync

from shardwire._native import HistoryEntry
from shardwire.config import SdsConfig
from shardwire.sds import ContentReceived, DependencyLost, MessageDropped, Now

QUIET_MS = LOGOS.sds.acknowledgement_timeout_ms
BY_CONTENT = replace(LOGOS.sds, message_id="content-sha256")


def id_of(number: int, ordinal: int = 0) -> str:
    return f"{number:032x}.{ordinal}"


def part(number: int, ordinal: int, *, needed: int = 2, sender: str = "alice", **changes: object) -> bytes:
    """A segment of the message `m<number>`, which has as many as it needs."""
    content = f"{ordinal}/{needed}/{needed}|m{number}".encode()
    return message(number, sender=sender, message_id=id_of(number, ordinal), content=content, **changes)  # type: ignore[arg-type]


def after(*message_ids: str, number: int = 100, named: str | None = None) -> bytes:
    """Carol's message that follows these, which she says are of `named`."""
    history = [HistoryEntry(message_id, None, named) for message_id in message_ids]
    return message(number, sender="carol", content=b"0/1/1|after", history=history)


def sync(*message_ids: str, number: int = 200, named: str | None = None) -> bytes:
    history = [HistoryEntry(message_id, None, named) for message_id in message_ids]
    return message(number, sender="carol", content=None, history=history)


def missing(party: Party) -> list[str]:
    return [entry.message_id for entry in party.machine.missing()]


def wait(party: Party, monotonic_ms: int) -> None:
    party.machine.handle_timeout(at(monotonic_ms))
    party.drain(at(monotonic_ms))


# --- segments of one message --------------------------------------------------------------------------------------


def test_a_segment_that_names_another_of_its_message_does_not_wait_for_it() -> None:
    """As of an implementation that sends the segments of a message one after another, as messages of their own."""
    bob = Party("bob", sds=BY_CONTENT)
    hear(bob, message(2, message_id="second", content=b"1/2/2|text", history=[HistoryEntry("first")]))
    hear(bob, message(1, message_id="first", content=b"0/2/2|text"))
    assert bob.delivered == ["text"]


class Recovering(Party):
    """Makes a message of one of its two segments, and knows the other one's id then."""

    def _on_content(self, event: ContentReceived, now: Now) -> None:
        if event.content.startswith(b"0/1/2|"):
            self.texts[event.sender_id, "send"] = "text"
            self.machine.handle_content_placed(event.message_id, "send", 0, 2, 1, now)
            ids = ["first", "second"]
            self.machine.handle_send_reconstructed(event.sender_id, "send", 2, now, inferred_message_ids=ids)
        else:
            super()._on_content(event, now)


def test_what_follows_a_segment_that_was_recovered_follows_its_message() -> None:
    bob = Recovering("bob", sds=BY_CONTENT)
    hear(bob, after("second"))
    assert (bob.delivered, missing(bob)) == ([], ["second"])
    hear(bob, message(1, message_id="first", content=b"0/1/2|text"))
    assert (bob.delivered, missing(bob)) == (["text", "after"], [])


def test_nothing_is_asked_for_of_a_message_that_comes_just_now_though_another_one_names_it() -> None:
    """Its other segments are on their way, or parity makes up for them."""
    bob = Party("bob", sync=quiet_sync())
    hear(bob, part(1, 0, needed=3))
    hear(bob, after(id_of(1, 1), named="alice"))
    assert (bob.delivered, missing(bob)) == ([], [])
    wait(bob, QUIET_MS)
    assert missing(bob) == [id_of(1, 1), id_of(1, 2)]


def test_a_newcomer_waits_for_what_came_in_part_as_for_anything_else() -> None:
    bob = Party("bob", sync=quiet_sync())
    hear(bob, message(9, sender="alice"))
    hear(bob, after(id_of(1), named="dave"), QUIET_MS + 1_000)
    hear(bob, part(1, 0, sender="dave"), QUIET_MS + 1_010)
    for monotonic_ms in (QUIET_MS + 1_010, 2 * QUIET_MS + 1_010, 10 * QUIET_MS):
        wait(bob, monotonic_ms)
        assert "after" not in bob.delivered
    hear(bob, part(1, 1, sender="dave"), 10 * QUIET_MS)
    assert bob.delivered == ["text", "m1", "after"]


def test_what_is_only_named_is_not_the_oldest_message_of_a_full_buffer() -> None:
    """Else nothing would be taken of any that is here in part, and none would ever be whole."""
    bob = Party("bob", sds=replace(LOGOS.sds, incoming_buffer_messages_max=2))
    hear(bob, sync(id_of(7)))
    hear(bob, part(1, 0))
    hear(bob, part(2, 0))
    hear(bob, part(1, 1))
    assert bob.delivered == ["m1"]
    assert bob.of(MessageDropped) == []


# --- what came under our own name ---------------------------------------------------------------------------------


def test_what_came_under_our_own_name_is_not_waited_for_when_it_is_named_again() -> None:
    alice = Party("alice")
    hear(alice, after(id_of(1)))
    hear(alice, message(1, sender="alice"))
    hear(alice, message(3, sender="bob", content=b"0/1/1|again", history=[HistoryEntry(id_of(1))]))
    assert (alice.delivered, missing(alice)) == (["after", "again"], [])


def test_a_segment_forged_in_our_name_ends_no_waiting_for_the_message_it_names() -> None:
    bob = Party("bob")
    hear(bob, part(1, 0))
    hear(bob, after(id_of(1)))
    hear(bob, part(1, 1, sender="bob"))
    assert bob.delivered == []
    hear(bob, part(1, 1))
    assert bob.delivered == ["m1", "after"]


# --- several messages under one id --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sds",
    [
        # Nobody but a store could have the other one, and a store is asked by id alone.
        replace(LOGOS.sds, enable_repair=False),
        # Whoever sent it, it is the same content.
        BY_CONTENT,
    ],
    ids=["without-repair", "content-sha256"],
)
def test_the_sender_that_a_history_names_makes_no_other_message_of_what_is_here(sds: SdsConfig) -> None:
    bob = Reader("bob", sds=sds)
    hear(bob, message(1, sender="mallory"))
    hear(bob, after(id_of(1), named="alice"))
    assert (bob.delivered, missing(bob)) == (["text", "after"], [])


def test_a_segment_that_came_under_a_taken_id_leaves_the_others_of_its_message_asked_for() -> None:
    bob = Reader("bob")
    hear(bob, message(1, sender="mallory"))
    hear(bob, sync(id_of(1, 0), id_of(1, 1), named="alice"))
    hear(bob, part(1, 0))
    assert missing(bob) == [id_of(1, 1)]


def test_what_came_under_one_id_says_nothing_of_another_id() -> None:
    bob = Reader("bob")
    for number in (1, 2):
        hear(bob, message(number, sender="mallory"))
    hear(bob, message(1, sender="alice", content=b"0/1/1|real"))
    hear(bob, sync(id_of(1), id_of(2), named="alice"))
    assert missing(bob) == [id_of(2)]


def test_a_segment_that_was_recovered_and_comes_with_other_bytes_is_handed_up() -> None:
    """Nobody saw what was recovered under its id: whether it is the same only the owner can tell."""
    bob = Party("bob")
    for ordinal in (0, 2):
        hear(bob, message(1, message_id=id_of(1, ordinal), content=b"%d/2/3|text" % ordinal))
    assert bob.delivered == ["text"]
    hear(bob, message(1, message_id=id_of(1, 1), content=b"1/2/3|text"))
    received = [event for event in bob.of(ContentReceived) if isinstance(event, ContentReceived)]
    assert received[-1].content == b"1/2/3|text"


# --- what is given up ---------------------------------------------------------------------------------------------


def test_what_gives_way_in_a_full_table_is_no_loss_while_more_of_its_message_is_asked_for() -> None:
    bob = Party("bob", sds=replace(LOGOS.sds, missing_messages_max=2))
    hear(bob, sync(id_of(1, 0), id_of(1, 1), named="alice"))
    hear(bob, sync(id_of(2, 0), number=201, named="alice"))
    assert missing(bob) == [id_of(1, 1), id_of(2, 0)]
    assert bob.of(DependencyLost) == []


def test_nothing_waits_for_a_segment_of_a_message_that_was_given_up() -> None:
    bob = Party("bob", sds=BY_CONTENT)
    hear(bob, message(1, message_id="first", content=b"0/3/3|text"))
    hear(bob, message(2, message_id="second", content=b"1/3/3|text"))
    bob.machine.handle_send_abandoned("mallory", hashlib.sha256(b"text").hexdigest(), at(0))
    hear(bob, after("second"))
    assert bob.delivered == ["after"]


def test_what_a_message_lacks_is_asked_for_when_it_is_given_up_before_that_is_told() -> None:
    bob = Party("bob", sync=quiet_sync())
    hear(bob, part(1, 0, needed=4))
    hear(bob, part(1, 1, needed=4))
    assert missing(bob) == []
    bob.machine.handle_send_abandoned("alice", id_of(1).removesuffix(".0"), at(0), keep_messages=True)
    bob.drain(at(0))
    assert missing(bob) == [id_of(1, 2), id_of(1, 3)]


def test_what_was_asked_for_and_came_as_no_content_is_asked_for_still() -> None:
    bob = Refusing("bob")
    hear(bob, after(id_of(1), named="alice"))
    bob.bad = message(1, sender="alice", content=b"bad")
    hear(bob, bob.bad)
    assert (bob.delivered, missing(bob)) == (["after"], [id_of(1)])
    hear(bob, message(1, sender="alice", content=b"0/1/1|good"))
    assert (bob.delivered, missing(bob)) == (["after", "good"], [])


class Refusing(Party):
    """Has no use for a content that is `bad`."""

    bad = b""

    def _on_content(self, event: ContentReceived, now: Now) -> None:
        if event.content == b"bad":
            self.machine.handle_content_refused(event.message_id, self.bad, invalid=True)
        else:
            super()._on_content(event, now)
