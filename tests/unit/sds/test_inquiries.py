"""A lost acknowledgement is no reason to send all of a message again (SDS, Periodic retransmission)."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable
from dataclasses import replace

from sds_exchange import LOGOS, Exchange, Party, at, hear, message

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.sds import SendAcknowledged, SendGivenUp, Transmit, TransmitKind

TIMEOUT_MS = LOGOS.sds.acknowledgement_timeout_ms
SHORT_MS = TIMEOUT_MS // 5
CONTENTS, NEEDED = 72, 64
# As many contents as ask what is missing.
ASKING = 3


def pair(**changes: object) -> tuple[Party, Party]:
    sds = replace(LOGOS.sds, enable_repair=False, **changes)  # type: ignore[arg-type]
    return Party("alice", sds=sds), Party("bob", sds=sds)


def test_a_lost_acknowledgement_costs_a_few_contents() -> None:
    alice, bob = pair()
    lost: list[Transmit] = []

    def lose(receiver: str, transmit: Transmit) -> bool:
        if receiver == "alice" and not lost and transmit.kind is TransmitKind.SYNC:
            lost.append(transmit)
        return receiver == "alice" and transmit in lost

    exchange = Exchange([alice, bob], lose=lose)
    alice.send("message", at(0), NEEDED, CONTENTS)
    exchange.run(3 * TIMEOUT_MS)
    assert lost
    assert len(alice.of(SendAcknowledged)) == 1
    assert alice.count(TransmitKind.RETRANSMISSION) == ASKING


def test_what_is_missing_goes_once_it_is_known() -> None:
    """Of the first burst bob lacks twenty, and every acknowledgement of it is lost."""
    alice, bob = pair()

    def lose(receiver: str, transmit: Transmit) -> bool:
        if transmit.kind is TransmitKind.SYNC:
            return exchange.now_ms < TIMEOUT_MS
        return transmit.kind is not TransmitKind.RETRANSMISSION and (transmit.ordinal or 0) < 20

    exchange = Exchange([alice, bob], lose=lose)
    alice.send("message", at(0), NEEDED, CONTENTS)
    exchange.run(3 * TIMEOUT_MS)
    assert bob.delivered == ["message"]
    assert len(alice.of(SendAcknowledged)) == 1
    assert 20 <= alice.count(TransmitKind.RETRANSMISSION) <= 20 + ASKING


def test_everything_goes_after_two_inquiries_that_nobody_answers() -> None:
    alice, bob = pair()
    exchange = Exchange([alice, bob], lose=lambda receiver, _: exchange.now_ms < int(2.9 * TIMEOUT_MS))
    alice.send("message", at(0), NEEDED, CONTENTS)
    exchange.run(2 * TIMEOUT_MS + SHORT_MS)
    assert alice.count(TransmitKind.RETRANSMISSION) == 2 * ASKING
    exchange.run(3 * TIMEOUT_MS + SHORT_MS)
    assert bob.delivered == ["message"]
    assert alice.count(TransmitKind.RETRANSMISSION) == 2 * ASKING + CONTENTS


def test_a_send_is_given_up_when_its_retransmissions_are_used_up() -> None:
    """An inquiry that nobody answers counts for all that waited for the answer."""
    alice, _ = pair(max_retransmissions=4)
    exchange = Exchange([alice])
    alice.send("message", at(0), NEEDED, CONTENTS)
    exchange.run(5 * TIMEOUT_MS - SHORT_MS)
    assert alice.of(SendGivenUp) == []
    exchange.run(6 * TIMEOUT_MS)
    assert len(alice.of(SendGivenUp)) == 1
    assert alice.count(TransmitKind.RETRANSMISSION) == 3 * ASKING + CONTENTS


def asked_by(transmit: Transmit) -> list[bytes | None]:
    """Hints of the requests by which a sync asks what came of a send; a mark is four bytes of a participant."""
    read = SdsMessage.decode(transmit.payload)
    assert read is not None
    return [entry.retrieval_hint for entry in read.repair_request if entry.message_id.endswith(".9998")]


def three(lose: Callable[[Exchange, str, Transmit], bool]) -> tuple[list[Party], Exchange]:
    """Alice, who is to reach bob and carol, and what is lost on the way."""
    parties = [Party(name, delivered_when=frozenset({"bob", "carol"})) for name in ("alice", "bob", "carol")]
    exchange = Exchange(parties, lose=lambda receiver, transmit: lose(exchange, receiver, transmit))
    return parties, exchange


def test_a_sync_asks_who_was_silent_and_no_content_goes_again() -> None:
    """The first acknowledgements of carol are lost, and all that she has is said by one number."""

    def lose(exchange: Exchange, receiver: str, transmit: Transmit) -> bool:
        return receiver == "alice" and transmit in carol.transmitted and exchange.now_ms < TIMEOUT_MS

    (alice, _, carol), exchange = three(lose)
    alice.send("message", at(0), NEEDED, CONTENTS)
    exchange.run(2 * TIMEOUT_MS)
    assert len(alice.of(SendAcknowledged)) == 2
    assert alice.count(TransmitKind.RETRANSMISSION) == 0
    [[mark]] = [asked for transmit in alice.transmitted if (asked := asked_by(transmit))]
    assert mark == hashlib.sha256(b"carol").digest()[:4]


def test_who_is_asked_by_a_sync_names_what_came() -> None:
    """Of the first burst carol lacks twenty, and her acknowledgements of it are lost."""

    def lose(exchange: Exchange, receiver: str, transmit: Transmit) -> bool:
        if exchange.now_ms >= TIMEOUT_MS:
            return False
        is_lost = receiver == "carol" and (transmit.ordinal or 0) < 20
        return is_lost or (receiver == "alice" and transmit in carol.transmitted)

    (alice, _, carol), exchange = three(lose)
    alice.send("message", at(0), NEEDED, CONTENTS)
    exchange.run(3 * TIMEOUT_MS)
    assert carol.delivered == ["message"]
    assert len(alice.of(SendAcknowledged)) == 2
    assert alice.count(TransmitKind.RETRANSMISSION) == 20


def test_who_does_not_answer_syncs_gets_a_few_contents() -> None:
    """As a participant that does not know the question."""

    def lose(_: Exchange, receiver: str, transmit: Transmit) -> bool:
        is_first_answer = receiver == "alice" and transmit in carol.transmitted and not asked
        is_question = receiver == "carol" and transmit in alice.transmitted and bool(asked_by(transmit))
        if is_question:
            asked.append(transmit)
        return is_question or is_first_answer

    asked: list[Transmit] = []
    (alice, _, carol), exchange = three(lose)
    alice.send("message", at(0), NEEDED, CONTENTS)
    exchange.run(3 * TIMEOUT_MS)
    assert len(asked) == 3
    assert len(alice.of(SendAcknowledged)) == 2
    assert alice.count(TransmitKind.RETRANSMISSION) == ASKING


def test_what_is_named_in_the_middle_of_a_burst_is_not_all_that_came() -> None:
    """Carol says soon that something came, and what she says later is lost."""

    def lose(exchange: Exchange, receiver: str, transmit: Transmit) -> bool:
        return receiver == "alice" and transmit in carol.transmitted and exchange.now_ms < TIMEOUT_MS

    (alice, _, carol), exchange = three(lose)
    send_id = alice.send("message", at(0), NEEDED, CONTENTS)
    exchange.run(60)
    soon = [HistoryEntry(f"{send_id}.0", None, "alice")]
    hear(alice, message(0, sender="carol", message_id="soon", content=None, history=soon), 60)
    exchange.run(3 * TIMEOUT_MS)
    assert len(alice.of(SendAcknowledged)) == 2
    assert alice.count(TransmitKind.RETRANSMISSION) == 0


def test_few_contents_are_repeated_at_once() -> None:
    alice, bob = pair()
    exchange = Exchange([alice, bob], lose=lambda receiver, _: receiver == "alice" and exchange.now_ms < TIMEOUT_MS)
    alice.send("message", at(0), 6, 8)
    exchange.run(TIMEOUT_MS + SHORT_MS)
    assert alice.count(TransmitKind.RETRANSMISSION) == 8


def test_at_a_loss_of_five_percent_little_is_sent_twice() -> None:
    """64 data contents and 8 of parity to one receiver."""
    sent = []
    for seed in range(40):
        alice, bob = Party("alice"), Party("bob")
        exchange = Exchange([alice, bob], seed=seed, loss=0.05)
        alice.send("message", at(0), NEEDED, CONTENTS)
        exchange.run(10 * TIMEOUT_MS)
        assert bob.delivered == ["message"]
        assert len(alice.of(SendAcknowledged)) == 1
        sent.append(CONTENTS + alice.count(TransmitKind.RETRANSMISSION))
    assert statistics.mean(sent) < 74
