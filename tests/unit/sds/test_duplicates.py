"""What comes under an id that a content here has: when it is said again, what it answers, and what it is to others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, Reader, at, contents_of, hear, message, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.sds import ContentReceived, MessageDropped, TransmitKind

SEND = "5e" * 16
REAL = f"{1:032x}.0"
TIMEOUT_MS = LOGOS.sds.acknowledgement_timeout_ms
LATELY_MS = TIMEOUT_MS // 2
DUPLICATE = MessageDropped("duplicate")
BY_CONTENTS = replace(LOGOS.sds, message_id="content-sha256")


def receiver() -> tuple[Party, int]:
    """One that acknowledged a message, and when."""
    bob = Party("bob", sync=quiet_sync())
    hear(bob, message(1, sender="alice"))
    said_ms = bob.machine.acknowledgement_due_ms
    assert said_ms is not None
    bob.machine.handle_timeout(at(said_ms))
    assert [transmit.kind for transmit in bob.drain(at(said_ms))] == [TransmitKind.SYNC]
    assert bob.machine.acknowledgement_due_ms is None
    return bob, said_ms


@pytest.mark.parametrize(("later_ms", "speaks"), [(0, False), (LATELY_MS - 1, False), (LATELY_MS, True)])
@pytest.mark.parametrize("from_store", [False, True])
def test_what_its_sender_repeats_is_said_again_unless_it_was_said_lately(
    later_ms: int, speaks: bool, from_store: bool
) -> None:
    bob, said_ms = receiver()
    bob.machine.handle_message(message(1, sender="alice"), at(said_ms + later_ms), from_store=from_store)
    assert (bob.machine.acknowledgement_due_ms is not None) is (speaks and not from_store)


def test_what_waits_for_more_is_counted_on_though_a_store_repeats_it_or_it_was_said_lately() -> None:
    alice, bob = Party("alice", sync=quiet_sync()), Party("bob", sync=quiet_sync())
    alice.machine.send(SEND, contents_of("text", 9, 9), contents_needed=9, reserve=5)
    wires = [transmit.payload for transmit in alice.drain(at(0))]
    for data in wires[:5]:
        hear(bob, data)

    def said(from_ms: int) -> SdsMessage:
        due_ms = bob.machine.acknowledgement_due_ms
        assert due_ms is not None
        while True:
            bob.machine.handle_timeout(at(due_ms))
            syncs = [sent for sent in bob.drain(at(due_ms)) if sent.kind is TransmitKind.SYNC]
            if syncs:
                break
            due_ms = bob.machine.poll_timeout()
            assert due_ms is not None
        read = SdsMessage.decode(syncs[0].payload)
        assert read is not None
        said_ms.append(due_ms)
        return read

    said_ms: list[int] = []
    assert said(0).causal_history == ()
    bob.machine.handle_message(wires[0], at(said_ms[0] + 1))
    bob.machine.handle_message(wires[0], at(said_ms[0] + TIMEOUT_MS), from_store=True)
    hear(bob, wires[5], said_ms[0] + TIMEOUT_MS)
    after = said(said_ms[0] + TIMEOUT_MS)
    assert [entry.message_id for entry in after.repair_request] == [f"{SEND}.{9_999 - 3}"]
    assert after.causal_history == ()


def test_nobody_acknowledges_its_own_message_to_who_repeats_another_one_under_its_id() -> None:
    alice = Reader("alice", sync=quiet_sync())
    send_id = alice.send("real", at(0))
    for transmit in alice.drain(at(0)):
        alice.machine.handle_transmitted(transmit.transmit_id, None, at(0))
    forged = message(0, message_id=f"{send_id}.0", content=b"0/1/1|forged")
    for _ in range(2):
        hear(alice, forged, TIMEOUT_MS - 1)
    assert alice.of(MessageDropped) == [DUPLICATE]
    assert alice.machine.acknowledgement_due_ms is None


@pytest.mark.parametrize("sender", ["alice", "mallory"])
@pytest.mark.parametrize("by_contents", [False, True])
def test_an_equal_content_answers_who_asked_where_it_is_the_same_message(sender: str, by_contents: bool) -> None:
    bob = Reader("bob", sds=BY_CONTENTS if by_contents else LOGOS.sds, sync=quiet_sync())
    hear(bob, message(1, sender="alice"))
    hear(bob, message(0, sender="carol", message_id="asks", content=None, requests=[HistoryEntry(REAL, None, "alice")]))
    assert list(bob.machine.inspect()["repair_answers"]) == [REAL]
    hear(bob, message(1, sender=sender), 1_000)
    answers = list(bob.machine.inspect()["repair_answers"])
    assert answers == ([REAL] if sender == "mallory" and not by_contents else [])


def test_under_ids_made_of_contents_a_whole_message_that_waits_for_others_has_no_rivals() -> None:
    bob = Party("bob", sds=BY_CONTENTS, sync=quiet_sync())
    hear(bob, message(1, sender="alice", history=[HistoryEntry("0e" * 32)]))
    assert bob.delivered == []
    assert bob.machine.inspect()["incoming"] == (REAL,)
    hear(bob, message(1, sender="mallory"))
    assert len(bob.of(ContentReceived)) == 1
    assert bob.of(MessageDropped) == [DUPLICATE]


def test_rivals_are_handed_up_in_the_order_in_which_they_came() -> None:
    bob = Reader("bob", sync=quiet_sync())
    for text in ("first", "second", "third"):
        bob.machine.handle_message(message(1, sender=text, content=f"0/1/1|{text}".encode()), at(0))
    bob.drain(at(0))
    assert bob.delivered == ["first", "second", "third"]


@pytest.mark.parametrize("from_store", [False, True])
def test_what_is_held_is_sent_once_more_after_another_content_under_its_id_was_heard(from_store: bool) -> None:
    bob = Reader("bob", sync=quiet_sync())
    hear(bob, message(1, sender="alice"))
    bob.machine.handle_message(message(1, content=b"0/1/1|forged"), at(0), from_store=from_store)
    bob.drain(at(0))
    assert list(bob.machine.inspect()["repair_answers"]) == ([] if from_store else [REAL])


def recovered() -> Party:
    """Has a message whose second content it made of the others."""
    bob = Party("bob", sync=quiet_sync())
    for ordinal in (0, 2):
        content = f"{ordinal}/2/3|text".encode()
        hear(bob, message(0, sender="alice", message_id=f"{SEND}.{ordinal}", content=content))
    assert bob.delivered == ["text"]
    said_ms = bob.machine.acknowledgement_due_ms
    assert said_ms is not None
    bob.machine.handle_timeout(at(said_ms))
    bob.drain(at(said_ms))
    return bob


def test_a_recovered_content_that_comes_late_is_a_repetition_and_said_again() -> None:
    bob = recovered()
    bob.events.clear()
    hear(bob, message(0, sender="alice", message_id=f"{SEND}.1", content=b"1/2/3|text"), 2 * TIMEOUT_MS)
    assert bob.of(MessageDropped) == [DUPLICATE]
    assert bob.machine.acknowledgement_due_ms is not None


def test_what_came_of_another_under_the_id_of_a_recovered_content_is_not_asked_for() -> None:
    bob = recovered()
    hear(bob, message(0, sender="mallory", message_id=f"{SEND}.1", content=b"1/2/3|text"), 2 * TIMEOUT_MS)
    for sender, missing in (("mallory", []), ("nobody", [f"{SEND}.1"])):
        named = [HistoryEntry(f"{SEND}.1", None, sender)]
        hear(bob, message(0, sender="carol", message_id=f"names {sender}", content=None, history=named), 2 * TIMEOUT_MS)
        assert [entry.message_id for entry in bob.machine.missing()] == missing
