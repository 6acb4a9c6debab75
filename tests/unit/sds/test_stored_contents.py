"""Contents that a store has: held back while nobody is heard who lacks them, sent again where the store is no help."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sds_exchange import Exchange, Party, at

from shardwire.config import DeliveredWhen, SdsConfig, SyncConfig
from shardwire.sds import SendAcknowledged, SendGivenUp, Transmit, TransmitKind

PERIOD_MS = 5_000
QUIET = SyncConfig(sync_min_interval_ms=0)
SDS = SdsConfig(acknowledgement_timeout_ms=PERIOD_MS, max_retransmissions=5, enable_repair=False)


class Sender(Party):
    """Alice, with a store that takes everything."""

    def __init__(self, delivered_when: DeliveredWhen = "any", sds: SdsConfig = SDS) -> None:
        super().__init__("alice", sds=sds, sync=QUIET, delivered_when=delivered_when)
        self.wires: list[bytes] = []

    def publish(self, now_ms: int, *, stored: bool = True) -> list[Transmit]:
        """What leaves at this moment; it reaches the network and, unless it is to be otherwise, the store."""
        self.machine.handle_timeout(at(now_ms))
        out = self.drain(at(now_ms))
        for transmit in out:
            self.machine.handle_transmitted(transmit.transmit_id, bytes(32), at(now_ms))
            if transmit.kind is TransmitKind.FIRST:
                self.wires.append(transmit.payload)
            if stored:
                self.machine.handle_stored(transmit.send_id or "", transmit.ordinal or 0, at(now_ms))
        return out

    def retransmitted(self, from_ms: int, until_ms: int, *, stored: bool = True) -> list[tuple[int, str]]:
        """(moment, message id) of what is sent again, in steps of 100 ms."""
        found = []
        for now_ms in range(from_ms, until_ms, 100):
            for transmit in self.publish(now_ms, stored=stored):
                if transmit.kind is TransmitKind.RETRANSMISSION:
                    found.append((now_ms, transmit.message_id))
        return found


def hear(alice: Party, bob: Party, now_ms: int, *, from_store: bool = False) -> None:
    """Bob says something that acknowledges nothing."""
    bob.send(f"at {now_ms}", at(now_ms))
    for transmit in bob.drain(at(now_ms)):
        bob.machine.handle_transmitted(transmit.transmit_id, bytes(32), at(now_ms))
        alice.machine.handle_message(transmit.payload, at(now_ms), bytes(32), from_store=from_store)


def make(count: int, **arguments: object) -> Sender:
    alice = Sender(**arguments)  # type: ignore[arg-type]
    for number in range(count):
        alice.send(str(number), at(0))
    assert len(alice.publish(0)) == count
    return alice


def test_as_many_probes_leave_while_nobody_is_heard_as_one_content_would_go_again_each_the_newest() -> None:
    alice = make(20)
    newest = f"{alice.machine.sends()[-1]}.0"
    found = alice.retransmitted(100, 600_000)
    assert found == [(number * PERIOD_MS, newest) for number in range(1, SDS.max_retransmissions + 1)]
    assert alice.machine.stats()["outgoing_in_store"] == 20
    assert alice.machine.sends_in_store() == 20
    assert not [event for event in alice.events if isinstance(event, SendGivenUp)]


def test_nobody_counts_as_silent_before_two_probes_went_unanswered() -> None:
    alice = make(3)
    for now_ms in range(100, 3 * PERIOD_MS, 100):
        alice.publish(now_ms)
        assert alice.machine.sends_in_store() == 0
    alice.retransmitted(3 * PERIOD_MS, 4 * PERIOD_MS)
    assert alice.machine.sends_in_store() == 3


def test_what_no_store_has_is_sent_again_as_ever() -> None:
    alice = Sender()
    for number in range(3):
        alice.send(str(number), at(0))
    alice.publish(0, stored=False)
    assert len(alice.retransmitted(100, 60_000, stored=False)) == 3 * SDS.max_retransmissions
    assert len([event for event in alice.events if isinstance(event, SendGivenUp)]) == 3


def test_who_was_heard_meanwhile_is_sent_it_again_at_once() -> None:
    alice, bob = make(3), Party("bob", sds=SDS, sync=QUIET)
    hear(alice, bob, 1_000)
    assert [now_ms for now_ms, _ in alice.retransmitted(1_100, PERIOD_MS + 100)] == [PERIOD_MS] * 3


def test_who_comes_back_is_given_two_periods_to_fetch_it() -> None:
    alice, bob = make(3), Party("bob", sds=SDS, sync=QUIET)
    alice.retransmitted(100, 60_000)
    hear(alice, bob, 60_000)
    found = alice.retransmitted(60_100, 200_000, stored=False)
    first_ms = min(now_ms for now_ms, _ in found)
    assert 60_000 + 2 * PERIOD_MS <= first_ms <= 60_000 + 3 * PERIOD_MS
    # From then on it is as if no store had it, and comes to its end.
    assert len([event for event in alice.events if isinstance(event, SendGivenUp)]) == 3


def test_a_probe_uses_up_no_retransmission_and_one_that_failed_goes_again() -> None:
    alice, bob = make(1), Party("bob", sds=SDS, sync=QUIET)
    alice.machine.handle_timeout(at(PERIOD_MS))
    (probe,) = alice.drain(at(PERIOD_MS))
    alice.machine.handle_transmit_failed(probe.transmit_id, at(PERIOD_MS))
    assert len(alice.retransmitted(PERIOD_MS, 60_000)) == SDS.max_retransmissions
    hear(alice, bob, 60_000)
    assert len(alice.retransmitted(60_100, 200_000, stored=False)) == SDS.max_retransmissions


def test_without_retransmissions_there_are_no_probes() -> None:
    alice = make(3, sds=replace(SDS, max_retransmissions=0))
    assert alice.retransmitted(100, 60_000) == []
    assert alice.machine.sends_in_store() == 3


def test_acknowledgements_that_keep_coming_put_it_off_further() -> None:
    alice, bob = make(10), Party("bob", sds=SDS, sync=QUIET)
    wires = alice.wires
    alice.retransmitted(100, 60_000)
    for number, wire in enumerate(wires):
        now_ms = 60_000 + number * PERIOD_MS
        bob.machine.handle_message(wire, at(now_ms), bytes(32), from_store=True)
        bob.drain(at(now_ms))
        hear(alice, bob, now_ms)
        assert alice.retransmitted(now_ms + 100, now_ms + PERIOD_MS) == []
    assert len([event for event in alice.events if isinstance(event, SendAcknowledged)]) == 10
    assert alice.machine.stats()["outgoing_in_store"] == alice.machine.sends_in_store() == 0


@pytest.mark.parametrize("quorum", [frozenset({"bob"}), 2])
def test_only_who_lacks_it_counts_as_within_reach(quorum: DeliveredWhen) -> None:
    alice, carol = make(3, delivered_when=quorum), Party("carol", sds=SDS, sync=QUIET)
    for wire in alice.wires:
        carol.machine.handle_message(wire, at(100), bytes(32))
    carol.drain(at(100))
    found = []
    for now_ms in range(1_000, 200_000, 1_000):
        hear(alice, carol, now_ms)
        found += alice.retransmitted(now_ms + 100, now_ms + 1_000)
    assert len(found) == SDS.max_retransmissions
    hear(alice, Party("bob", sds=SDS, sync=QUIET), 200_000)
    assert alice.retransmitted(200_100, 230_000)


def test_what_a_store_brings_of_somebody_does_not_mean_that_he_is_there() -> None:
    alice, bob = make(3), Party("bob", sds=SDS, sync=QUIET)
    alice.retransmitted(100, 60_000)
    hear(alice, bob, 60_000, from_store=True)
    assert alice.retransmitted(60_100, 200_000) == []
    assert alice.machine.sends_in_store() == 3


def test_no_retransmission_is_used_up_and_no_room_is_taken() -> None:
    sds = SdsConfig(acknowledgement_timeout_ms=PERIOD_MS, max_retransmissions=0, outgoing_buffer_messages_max=3)
    alice = make(3, sds=sds)
    assert not alice.machine.has_room()
    assert alice.retransmitted(100, 60_000) == []
    assert alice.machine.has_room()
    assert not [event for event in alice.events if isinstance(event, SendGivenUp)]


def test_a_word_about_what_is_not_ours_or_acknowledged_changes_nothing() -> None:
    exchange = Exchange([Sender(), Party("bob", sds=SDS, sync=QUIET)])
    alice = exchange.party("alice")
    alice.send("x", at(0))
    exchange.run(20_000)
    (send_id,) = alice.machine.sends()
    for named, ordinal in ((send_id, 0), (send_id, 1), ("unknown", 0)):
        alice.machine.handle_stored(named, ordinal, at(20_000))
    exchange.run(100_000)
    assert alice.machine.stats()["outgoing_in_store"] == 0


def test_of_a_send_of_several_contents_the_first_is_the_probe() -> None:
    alice = Sender()
    alice.send("before", at(0))
    send_id = alice.send("several", at(0), needed=2, count=4)
    alice.publish(0)
    assert [message_id for _, message_id in alice.retransmitted(100, 60_000)] == [f"{send_id}.0"] * 5
