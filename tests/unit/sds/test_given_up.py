"""What was given up, or never was of use, is acknowledged neither in histories nor in filters, nor after a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Exchange, Party, at, quiet_sync

from shardwire._native import BloomFilter, SdsMessage
from shardwire.sds import ContentReceived, MissingDetected, Now, SendAcknowledged, SendGivenUp, Transmit, TransmitKind

# One filter acknowledges as definitely as a history does, and every message carries one.
TELLTALE = replace(LOGOS.sds, possible_acks_threshold=1, bloom_interval_ms=0)


class Judge(Party):
    """Refuses contents of messages that begin with "bad" for good."""

    heard: Party

    def _on_content(self, event: ContentReceived, now: Now) -> None:
        if b"|bad" in event.content:
            sent = next(sent for sent in self.heard.transmitted if sent.message_id == event.message_id)
            self.machine.handle_content_refused(event.message_id, sent.payload, invalid=True)
        else:
            super()._on_content(event, now)


class Doubter(Party):
    """Has enough of a message with two contents, and needs a third to make it whole."""

    def _on_content(self, event: ContentReceived, now: Now) -> None:
        place = int(event.content.split(b"/")[0])
        send_id = event.send_id or ""
        self.machine.handle_content_placed(event.message_id, send_id, place, 3, 2, now)
        held = self.held.setdefault((event.sender_id, send_id), set())
        held.add(place)
        if len(held) == 2:
            self.machine.handle_content_doubted(event.message_id, event.sender_id, send_id)
        elif len(held) == 3:
            self.texts[event.sender_id, send_id] = "whole"
            self.machine.handle_send_reconstructed(event.sender_id, send_id, 3, now)


@pytest.mark.parametrize("restart", [False, True])
def test_nobody_who_gave_up_a_send_acknowledges_more_of_it_before_it_holds_all_again(restart: bool) -> None:
    alice, bob = (Party(name, sds=TELLTALE, sync=quiet_sync()) for name in ("alice", "bob"))
    exchange = Exchange([alice, bob])
    send_id = alice.send("parts", at(0), 4, 4)
    exchange.lose = lambda name, transmit: transmit.ordinal in (2, 3) and transmit.kind is not TransmitKind.REPAIR
    exchange.run(3_000)
    assert alice.machine.inspect()["acknowledged"] == {send_id: {"bob": 2}}
    assert bob.machine.handle_send_abandoned("alice", send_id, at(3_000))
    bob.drain(at(3_000))
    bob.held.clear()
    assert not any(bob.machine.holds(f"{send_id}.{place}") for place in (0, 1))
    if restart:
        bob = bob.restarted(at(3_000))
        exchange.replace_party(bob)
    exchange.lose = None
    exchange.run(LOGOS.sds.repair_t_min_ms)
    assert bob.held["alice", send_id] == {2, 3}
    assert alice.of(SendAcknowledged) == []
    ids = [f"{send_id}.{place}" for place in range(4)]
    assert BloomFilter().review(bob.machine.inspect()["bloom_filter"], ids) == []
    exchange.run(LOGOS.sds.repair_t_min_ms + 2_000)
    assert [event.send_id for event in alice.of(SendGivenUp)] == [send_id]
    # What it lacks now it asks for, and then says that it has the message.
    exchange.run(300_000)
    assert bob.delivered == ["parts"]
    assert alice.of(SendAcknowledged) == [SendAcknowledged(send_id, "bob")]
    assert bob.machine.stats()["given_up_sends"] == 0


def test_former_contents_are_asked_for_by_their_hints_when_the_send_goes_on() -> None:
    alice, bob = (Party(name, sds=TELLTALE, sync=quiet_sync()) for name in ("alice", "bob"))
    send_id = alice.send("parts", at(0), 3, 3)
    first, second, third = alice.drain(at(0))
    for number, transmit in enumerate((first, second)):
        bob.machine.handle_message(transmit.payload, at(0), bytes([number] * 32))
    bob.drain(at(0))
    assert bob.machine.handle_send_abandoned("alice", send_id, at(1_000))
    bob.held.clear()
    assert not bob.machine.missing()
    bob.machine.handle_message(third.payload, at(2_000), bytes([2] * 32))
    bob.drain(at(2_000))
    (detected,) = bob.of(MissingDetected)
    assert [(entry.message_id, entry.retrieval_hint) for entry in detected.entries] == [
        (f"{send_id}.0", bytes(32)),
        (f"{send_id}.1", bytes([1] * 32)),
    ]
    # Given up again it is no news.
    assert not bob.machine.handle_send_abandoned("alice", send_id, at(3_000))


def test_kept_messages_of_an_expired_send_are_taken_in_again() -> None:
    alice, bob = (Party(name, sds=TELLTALE, sync=quiet_sync()) for name in ("alice", "bob"))
    send_id = alice.send("parts", at(0), 3, 3)
    first, second, third = alice.drain(at(0))
    for transmit in (first, second):
        bob.machine.handle_message(transmit.payload, at(0), bytes(32))
    bob.drain(at(0))
    bob.machine.handle_send_abandoned("alice", send_id, at(1_000), keep_messages=True)
    bob.held.clear()
    bob.machine.handle_message(third.payload, at(2_000), bytes(32))
    bob.drain(at(2_000))
    reopened = bob.machine.poll_reopened()
    assert reopened == [(first.payload, bytes(32)), (second.payload, bytes(32))]
    for data, hint in reopened:
        bob.machine.handle_message(data, at(2_000), hint, from_store=True)
        bob.drain(at(2_000))
    assert (bob.delivered, bob.machine.missing()) == (["parts"], ())
    bob.drain(at(10_000))
    named = [SdsMessage.decode(sent.payload) for sent in bob.transmitted if sent.kind is TransmitKind.SYNC]
    assert {entry.message_id for entry in named[-1].causal_history} == {f"{send_id}.{place}" for place in range(3)}


@pytest.mark.parametrize("rule", ["send", "content-sha256"])
def test_an_invalid_content_is_not_acknowledged_and_holds_nothing_up(rule: str) -> None:
    sds = replace(TELLTALE, message_id=rule)
    alice, bob = Party("alice", sds=sds, sync=quiet_sync()), Judge("bob", sds=sds, sync=quiet_sync())
    bob.heard = alice
    exchange = Exchange([alice, bob])
    bad = alice.send("bad", at(0))
    exchange.run(100)
    good = alice.send("good", at(100))
    exchange.run(60_000)
    assert bob.delivered == ["good"]
    assert [event.send_id for event in alice.of(SendAcknowledged)] == [good]
    assert [event.send_id for event in alice.of(SendGivenUp)] == [bad]


def test_enough_contents_without_a_whole_message_are_no_acknowledgement() -> None:
    alice, bob = Party("alice", sds=TELLTALE, sync=quiet_sync()), Doubter("bob", sds=TELLTALE, sync=quiet_sync())
    exchange = Exchange([alice, bob])

    def lose_the_third(name: str, transmit: Transmit) -> bool:
        return transmit.ordinal == 2

    exchange.lose = lose_the_third
    send_id = alice.send("doubtful", at(0), 2, 3)
    exchange.run(12_000)
    assert bob.held["alice", send_id] == {0, 1}
    assert alice.of(SendAcknowledged) == []
    exchange.lose = None
    exchange.run(25_000)
    assert bob.delivered == ["whole"]
    assert alice.of(SendAcknowledged) == [SendAcknowledged(send_id, "bob")]


def test_what_waits_for_a_content_of_a_lost_send_goes_when_that_content_comes() -> None:
    sds = replace(TELLTALE, message_id="content-sha256", timeout_for_lost_messages_ms=300_000)
    alice, bob = (Party(name, sds=sds, sync=quiet_sync()) for name in ("alice", "bob"))
    alice.send("parts", at(0), 2, 2)
    first, second = alice.drain(at(0))
    alice.send("effect", at(0))
    (effect,) = alice.drain(at(0))
    for transmit, monotonic_ms in ((first, 0), (effect, 200_000)):
        bob.machine.handle_message(transmit.payload, at(monotonic_ms), bytes(32))
        bob.drain(at(monotonic_ms))
    # Of the two that the effect waits for this one has been quiet for too long.
    bob.machine.handle_timeout(at(310_000))
    bob.drain(at(310_000))
    assert bob.delivered == []
    bob.machine.handle_message(second.payload, at(320_000), bytes(32))
    bob.drain(at(320_000))
    assert sorted(bob.delivered) == ["effect", "parts"]


def test_contents_that_a_full_table_gave_up_are_asked_for_again() -> None:
    sds = replace(TELLTALE, missing_messages_max=2)
    alice, bob = (Party(name, sds=sds, sync=quiet_sync()) for name in ("alice", "bob"))
    alice.send("parts", at(0), 4, 4)
    transmits = {transmit.message_id: transmit for transmit in alice.drain(at(0))}
    first, *_ = transmits.values()
    bob.machine.handle_message(first.payload, at(0), bytes(32))
    now_ms = 0
    for wanted in (2, 1):
        bob.drain(at(now_ms))
        now_ms += sds.acknowledgement_timeout_ms
        bob.machine.handle_timeout(at(now_ms))
        missing = bob.machine.missing()
        assert len(missing) == wanted
        for entry in missing:
            bob.machine.handle_message(transmits[entry.message_id].payload, at(now_ms), bytes(32))
    bob.drain(at(now_ms))
    assert bob.delivered == ["parts"]


def test_doubted_contents_are_in_no_filter_after_a_restart() -> None:
    alice, bob = Party("alice", sds=TELLTALE, sync=quiet_sync()), Doubter("bob", sds=TELLTALE, sync=quiet_sync())
    send_id = alice.send("doubtful", at(0), 2, 3)
    for transmit in alice.drain(at(0))[:2]:
        bob.machine.handle_message(transmit.payload, at(0), bytes(32))
    bob.drain(at(0))
    again = bob.restarted(at(1_000))
    ids = [f"{send_id}.{place}" for place in range(2)]
    assert again.machine.inspect()["log"] == tuple(ids)
    assert BloomFilter().review(again.machine.inspect()["bloom_filter"], ids) == []


def test_kept_messages_are_taken_in_again_once_however_many_follow() -> None:
    alice, bob = (Party(name, sds=TELLTALE, sync=quiet_sync()) for name in ("alice", "bob"))
    send_id = alice.send("parts", at(0), 5, 5)
    wires = [transmit.payload for transmit in alice.drain(at(0))]
    for data in wires[:2]:
        bob.machine.handle_message(data, at(0), bytes(32))
    bob.drain(at(0))
    bob.machine.handle_send_abandoned("alice", send_id, at(1_000), keep_messages=True)
    bob.held.clear()
    for data in wires[2:4]:
        bob.machine.handle_message(data, at(2_000), bytes(32))
        bob.drain(at(2_000))
    assert [data for data, _ in bob.machine.poll_reopened()] == wires[:2]


def test_what_follows_a_send_that_was_given_up_in_an_earlier_life_waits_for_what_came_of_it_again() -> None:
    alice, bob, carol = (Party(name, sds=TELLTALE, sync=quiet_sync()) for name in ("alice", "bob", "carol"))
    send_id = alice.send("parts", at(0), 3, 3)
    wires = [transmit.payload for transmit in alice.drain(at(0))]
    bob.machine.handle_message(wires[0], at(0), bytes(32))
    bob.drain(at(0))
    bob.machine.handle_send_abandoned("alice", send_id, at(1_000))
    bob.drain(at(1_000))
    bob = bob.restarted(at(2_000))
    bob.held.clear()
    bob.machine.handle_message(wires[0], at(2_000), bytes(32))
    bob.drain(at(2_000))
    for data in wires:
        carol.machine.handle_message(data, at(2_000), bytes(32))
    carol.drain(at(2_000))
    carol.send("after", at(2_000))
    (after,) = carol.drain(at(2_000))
    bob.machine.handle_message(after.payload, at(2_000), bytes(32))
    bob.drain(at(2_000))
    assert bob.delivered == []
    for data in wires[1:]:
        bob.machine.handle_message(data, at(3_000), bytes(32))
        bob.drain(at(3_000))
    assert bob.delivered == ["parts", "after"]
