"""Several contents under one message id: none of them makes another a duplicate."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, Reader, at, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage, is_rival, rival_name
from shardwire.sds import ContentReceived, MessageDropped, SendReleased

SEND = "5e" * 16
LAMPORT = 1_760_000_000_000


def sds_message(
    sender: str, message_id: str, content: bytes, history: tuple[HistoryEntry, ...] = (), lamport: int = LAMPORT
) -> bytes:
    return SdsMessage(
        sender_id=sender,
        message_id=message_id,
        channel_id="room",
        lamport_timestamp=lamport,
        causal_history=history,
        content=content,
    ).encode()


def message(
    sender: str, text: str, *, ordinal: int = 0, needed: int = 1, count: int = 1, lamport: int = LAMPORT
) -> bytes:
    content = f"{ordinal}/{needed}/{count}|{text}".encode()
    return sds_message(sender, f"{SEND}.{ordinal}", content, lamport=lamport)


def hear(party: Party, *messages: bytes) -> None:
    for data in messages:
        party.machine.handle_message(data, at(0))
        party.drain(at(0))


def test_who_repeats_an_id_first_makes_nobodys_message_a_duplicate() -> None:
    bob = Reader("bob")
    hear(bob, message("mallory", "forged"), message("alice", "real"))
    assert bob.delivered == ["forged", "real"]


def test_a_name_that_is_forged_too_hides_nothing() -> None:
    bob = Reader("bob")
    hear(bob, message("alice", "forged"), message("alice", "real"), message("alice", "another"))
    assert bob.delivered == ["forged", "real", "another"]


def test_each_content_is_handed_up_once_however_often_it_comes() -> None:
    bob = Reader("bob")
    hear(bob, message("mallory", "forged"), message("alice", "real"))
    for lamport in range(1_760_000_000_001, 1_760_000_000_005):
        hear(bob, message("alice", "real", lamport=lamport), message("mallory", "forged", lamport=lamport))
    assert bob.delivered == ["forged", "real"]
    assert bob.of(MessageDropped) == [MessageDropped("duplicate")] * 8


def test_a_message_of_several_contents_gets_whole_though_one_id_of_it_is_taken() -> None:
    bob = Reader("bob")
    hear(bob, message("mallory", "forged"))
    hear(bob, *(message("alice", "real", ordinal=ordinal, needed=3, count=3) for ordinal in range(3)))
    assert bob.delivered == ["forged", "real"]


def test_our_own_message_under_anothers_name_is_a_message_of_theirs() -> None:
    alice = Reader("alice")
    send_id = alice.send("real", at(0))
    alice.drain(at(0))
    forged = SdsMessage(
        sender_id="mallory",
        message_id=f"{send_id}.0",
        channel_id="room",
        lamport_timestamp=1_760_000_000_000,
        content=b"0/1/1|forged",
    )
    hear(alice, forged.encode())
    assert alice.delivered == ["forged"]
    assert alice.machine.stats()["outgoing_unacknowledged"] == 1


def test_an_equal_content_of_two_senders_is_one_message_under_ids_made_of_contents() -> None:
    bob = Party("bob", sds=replace(LOGOS.sds, message_id="content-sha256"))
    hear(bob, message("alice", "same"), message("carol", "same"))
    assert bob.delivered == ["same"]


def test_without_repair_a_rival_is_told_by_its_sender_alone() -> None:
    bob = Reader("bob", sds=replace(LOGOS.sds, enable_repair=False), sync=quiet_sync())
    hear(bob, message("mallory", "forged"), message("alice", "real"), message("mallory", "more"))
    assert bob.delivered == ["forged", "real"]


@pytest.mark.parametrize("limit", [1, 5])
def test_what_is_remembered_of_rivals_is_bounded(limit: int) -> None:
    bob = Reader("bob", sds=replace(LOGOS.sds, missing_messages_max=limit))
    hear(bob, *(message("mallory", f"forged {number}") for number in range(20)))
    assert len(bob.delivered) == 20
    assert bob.machine.stats()["rivals"] == limit
    assert len([name for kind, name in bob.records if kind == "sds.rival"]) == limit


def test_a_rival_that_was_refused_may_come_again() -> None:
    class Full(Reader):
        full = True

        def _on_content(self, event: ContentReceived, now: object) -> None:
            if self.full and is_rival(event.message_id):
                self.machine.handle_content_refused(event.message_id, message("alice", "real"))
            else:
                super()._on_content(event, now)

    bob = Full("bob")
    hear(bob, message("mallory", "forged"), message("alice", "real"))
    assert bob.delivered == ["forged"]
    assert bob.machine.inspect()["log"] == (f"{SEND}.0",)
    bob.full = False
    hear(bob, message("alice", "real"))
    assert bob.delivered == ["forged", "real"]


def test_no_message_comes_under_the_name_of_a_rival() -> None:
    bob = Reader("bob")
    name = rival_name(f"{SEND}.0", "alice", b"0/1/1|real")
    hear(bob, message("mallory", "forged"), sds_message("alice", name, b"0/1/1|false"), message("alice", "real"))
    assert bob.delivered == ["forged", "real"]
    assert bob.of(MessageDropped) == [MessageDropped("undecodable")]


def test_no_two_senders_and_contents_are_called_alike() -> None:
    assert rival_name("id", "alice", b"a\0b") != rival_name("id", "alice\0a", b"b")


def test_the_name_of_a_rival_in_a_history_names_nothing() -> None:
    """It is ours: on the wire no message has such an id, so nothing could ever answer for it."""
    bob = Reader("bob")
    named = HistoryEntry(rival_name(f"{SEND}.0", "alice", b"0/1/1|real"))
    other = sds_message("carol", f"{'ca' * 16}.0", b"0/1/1|other", (named,))
    hear(bob, message("mallory", "forged"), other, message("alice", "real"))
    assert bob.delivered == ["forged", "other", "real"]
    assert bob.machine.missing() == ()


def test_a_message_of_rivals_is_released_though_another_of_its_contents_is_missing() -> None:
    bob = Reader("bob")
    hear(bob, message("mallory", "forged", ordinal=1), message("mallory", "forged", ordinal=2))
    other = sds_message("carol", f"{'ca' * 16}.0", b"0/1/1|other", (HistoryEntry(f"{SEND}.0"),))
    hear(bob, other, *(message("alice", "real", ordinal=number, needed=2, count=3) for number in (1, 2)))
    assert bob.delivered == ["forged", "real", "other"]
    assert SendReleased("alice", SEND) in bob.events
    assert bob.machine.missing() == ()
    assert bob.machine.stats()["incoming_sends"] == 0


def test_a_name_that_is_forged_too_hides_no_content_of_a_larger_message() -> None:
    bob = Party("bob")
    taken: list[str] = []
    hear(bob, message("alice", "forged"))
    bob.texts.clear()
    bob.held.clear()
    hear(bob, *(message("alice", "real", ordinal=ordinal, needed=3, count=3) for ordinal in range(3)))
    taken = [event.content.decode() for event in bob.events if isinstance(event, ContentReceived)]
    assert taken == ["0/1/1|forged", "0/3/3|real", "1/3/3|real", "2/3/3|real"]


def test_an_open_message_hides_no_equal_content_of_another_sender_under_ids_made_of_contents() -> None:
    bob = Party("bob", sds=replace(LOGOS.sds, message_id="content-sha256"))
    contents = [(f"{number:064x}", f"{number}/3/3|same".encode()) for number in range(3)]
    hear(bob, sds_message("mallory", *contents[1]))
    hear(bob, *(sds_message("alice", *content) for content in contents))
    assert bob.delivered == ["same"]


def test_a_rival_that_was_taken_is_a_repetition_after_a_restart() -> None:
    bob = Reader("bob")
    hear(bob, message("mallory", "forged"), message("alice", "real"))
    bob = bob.restarted(bob.arguments["now"])  # type: ignore[arg-type,assignment]
    hear(bob, message("alice", "real", lamport=1_760_000_000_000 + 1))
    assert bob.of(ContentReceived) == []
    assert bob.of(MessageDropped) == [MessageDropped("duplicate")]


def test_two_messages_whose_contents_share_an_id_that_names_no_send_are_both_taken_to_their_end() -> None:
    bob = Party("bob", sds=replace(LOGOS.sds, message_id="content-sha256"))
    first, second = "1" * 64, "2" * 64
    hear(bob, sds_message("alice", first, b"0/2/2|forged"), sds_message("alice", first, b"0/2/2|real"))
    # The forged one expires, comes again, and expires again.
    for _ in range(2):
        assert bob.machine.handle_send_abandoned("alice", hashlib.sha256(b"forged").hexdigest(), at(0))
    hear(bob, sds_message("alice", first, b"0/2/2|real"), sds_message("alice", second, b"1/2/2|real"))
    assert bob.delivered == ["real"]
    assert bob.machine.stats()["incoming_sends"] == 0


def test_contents_that_a_forged_message_announced_hide_none() -> None:
    bob = Party("bob")
    hear(bob, message("alice", "forged", count=3))
    bob.texts.clear()
    bob.held.clear()
    hear(bob, *(message("alice", "real", ordinal=ordinal, needed=3, count=3) for ordinal in range(3)))
    assert bob.delivered == ["forged", "real"]


def refuse(party: Party, data: bytes, message_id: str, *, invalid: bool) -> None:
    party.machine.handle_message(data, at(0))
    while party.machine.poll_event() is not None:
        pass
    party.machine.handle_content_refused(message_id, data, invalid=invalid)
    party.drain(at(0))


@pytest.mark.parametrize("waits", [False, True])
def test_what_else_is_missing_of_a_send_is_asked_for_after_a_content_of_it_was_refused(waits: bool) -> None:
    bob = Party("bob")
    named = HistoryEntry(f"{SEND}.0", None, "alice")
    hear(bob, sds_message("carol", f"{1:032x}.0", b"0/1/1|after" if waits else b"", (named,)))
    refuse(bob, message("alice", "none", ordinal=1), f"{SEND}.1", invalid=True)
    assert bob.delivered == (["after"] if waits else [])
    assert bob.machine.missing() == (named,)
    hear(bob, message("alice", "real"))
    assert bob.delivered[-1] == "real"
    assert bob.machine.missing() == ()
    assert bob.machine.stats()["repair_requests"] == 0


def test_a_send_of_which_nothing_is_left_but_its_name_counts_as_lost_in_time() -> None:
    lost_ms = 2 * LOGOS.sds.repair_t_max_ms
    bob = Party("bob", sds=replace(LOGOS.sds, timeout_for_lost_messages_ms=lost_ms))
    hear(bob, sds_message("carol", f"{1:032x}.0", b"0/1/1|after", (HistoryEntry(f"{SEND}.0", None, "alice"),)))
    refuse(bob, message("alice", "no room", ordinal=1), f"{SEND}.1", invalid=False)
    for now_ms, delivered in ((lost_ms - 1, []), (lost_ms, ["after"])):
        bob.machine.handle_timeout(at(now_ms))
        bob.drain(at(now_ms))
        assert bob.delivered == delivered


@pytest.mark.parametrize("kept", [False, True])
def test_a_whole_message_is_no_rival_of_itself_nor_of_what_is_not_kept(kept: bool) -> None:
    bob = Party("bob", sds=replace(LOGOS.sds, enable_repair=kept), sync=quiet_sync())
    real, content = message("alice", "real"), b"0/1/1|real"
    hear(bob, real)
    bob.machine.handle_whole_content(f"{SEND}.0", "alice", content, real)
    assert bob.machine.stats()["rivals"] == 0
    assert not bob.machine.was_rival(f"{SEND}.0", "alice", content)
    # Another one is, where what it is a rival of can be told.
    bob.machine.handle_whole_content(f"{SEND}.0", "mallory", b"0/1/1|forged", message("mallory", "forged"))
    assert bob.machine.stats()["rivals"] == int(kept)
    assert bob.machine.was_rival(f"{SEND}.0", "mallory", b"0/1/1|forged") is kept
