"""A lost acknowledgement is no reason to send all of a message again (SDS, Periodic retransmission)."""

from __future__ import annotations

import statistics
from dataclasses import replace

from sds_exchange import LOGOS, Exchange, Party, at

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
