"""What is missing: who asks for it, when, and until when."""

from __future__ import annotations

from dataclasses import replace

from sds_exchange import LOGOS, Exchange, Party, at, parties, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.sds import TransmitKind


def test_a_repair_is_asked_for_answered_once_and_suppressed() -> None:
    sds = replace(LOGOS.sds, max_retransmissions=0)
    group = parties("alice", "bob", "carol", "dave", sync=quiet_sync(), sds=sds)
    # Dave never hears the message from alice; bob and carol hold it, and alice is gone afterwards.
    exchange = Exchange(group, lose=lambda name, transmit: name == "dave" and transmit.message_id == first)
    group[3].machine.handle_caught_up()
    first = f"{group[0].send('first', at(0))}.0"
    exchange.run(10_000)
    exchange.parties = group[1:]
    group[1].send("second", at(10_000))
    exchange.lose = None
    exchange.run(10_000 + 300_000)
    dave = group[3]
    assert dave.delivered == ["first", "second"]
    transmitted = [transmit for party in group[1:] for transmit in party.transmitted]
    repairs = [transmit for transmit in transmitted if transmit.kind is TransmitKind.REPAIR]
    original = next(transmit.payload for transmit in group[0].transmitted if transmit.message_id == first)
    assert [transmit.payload for transmit in repairs] == [original]
    assert dave.machine.stats()["repair_requests"] == 0


def test_an_unanswered_repair_is_asked_for_again() -> None:
    dave = Party("dave", sync=quiet_sync())
    dave.machine.handle_caught_up()
    gone = HistoryEntry(f"{1:032x}.0", None, "alice")
    told = SdsMessage(
        sender_id="bob", message_id="sync-1", channel_id="room", lamport_timestamp=1, causal_history=[gone]
    )
    dave.machine.handle_message(told.encode(), at(0))
    dave.drain(at(0))
    asked = []
    for second in range(299):
        now = at(second * 1_000)
        dave.machine.handle_timeout(now)
        for transmit in dave.drain(now):
            decoded = SdsMessage.decode(transmit.payload)
            assert decoded is not None
            assert decoded.repair_request == (gone,)
            asked.append(second)
    assert len(asked) == 2
    assert 30 <= asked[0] <= 121
    assert asked[1] - asked[0] >= 120


def test_what_arrives_is_asked_for_no_longer() -> None:
    """One id goes with each; the others keep their time, whether something of the send was held before or not."""
    alice, bob = Party("alice", sync=quiet_sync()), Party("bob", sync=quiet_sync())
    alice.send("parts", at(0), 3, 3)
    alice.send("after", at(0))
    first, second, third, after = [transmit.payload for transmit in alice.drain(at(0))]

    def missing() -> list[str]:
        return [entry.message_id[32:] for entry in bob.machine.missing()]

    bob.machine.handle_message(after, at(0))
    bob.drain(at(0))
    assert missing() == [".2"]
    bob.machine.handle_message(first, at(10))
    bob.drain(at(10))
    assert missing() == [".2"]
    bob.machine.handle_timeout(at(10 + LOGOS.sds.acknowledgement_timeout_ms))
    assert missing() == [".2", ".1"]
    bob.machine.handle_message(second, at(6_000))
    bob.drain(at(6_000))
    assert missing() == [".2"]
    bob.machine.handle_message(third, at(6_001))
    bob.drain(at(6_001))
    assert bob.delivered == ["parts", "after"]
    assert missing() == []
