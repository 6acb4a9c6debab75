"""Many messages in a short time are acknowledged sooner than a few: their sender waits for room in its buffer."""

from __future__ import annotations

import pytest
from sds_exchange import LOGOS, START, Exchange, Party, contents_of, hear, message, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage, sds_limits
from shardwire.sds import TransmitKind

TOGETHER = sds_limits()["TOGETHER_MAX"]
WINDOW_MS = LOGOS.sds.acknowledgement_timeout_ms // 4
SOONER_MS = WINDOW_MS // 8


def receiver() -> Party:
    """One that would acknowledge a single message later than a burst of them."""
    for seed in range(100):
        bob = Party("bob", sync=quiet_sync(), seed=seed)
        hear(bob, message(0))
        if due_ms(bob) > WINDOW_MS // 2:
            return bob
    raise AssertionError("no seed draws a late moment")


def due_ms(party: Party) -> int:
    due = party.machine.acknowledgement_due_ms
    assert due is not None
    return due


def hear_messages(bob: Party, numbers: range) -> None:
    for number in numbers:
        hear(bob, message(number))


def names(sender: str, numbers: range) -> bytes:
    """A sync of `sender` that acknowledges messages."""
    history = [HistoryEntry(f"{number:032x}.0") for number in numbers]
    return message(1_000_000, sender=sender, content=None, message_id="sync", history=history)


def test_a_burst_is_acknowledged_sooner_from_its_limit_on() -> None:
    bob = receiver()
    usual_ms = due_ms(bob)
    hear_messages(bob, range(1, TOGETHER - 1))
    assert due_ms(bob) == usual_ms
    hear_messages(bob, range(TOGETHER - 1, TOGETHER))
    assert due_ms(bob) <= SOONER_MS


def test_what_comes_again_and_segments_of_one_message_are_no_burst() -> None:
    bob = receiver()
    usual_ms = due_ms(bob)
    hear_messages(bob, range(1, TOGETHER - 1))
    hear_messages(bob, range(TOGETHER - 1))
    send_id = f"{5:032x}"
    for ordinal, content in enumerate(contents_of("large", 2 * TOGETHER, 2 * TOGETHER)):
        if ordinal:
            hear(bob, message(0, content=content, message_id=f"{send_id}.{ordinal}"))
    assert due_ms(bob) == usual_ms


def test_the_rest_of_a_burst_that_another_participant_acknowledged_has_its_usual_time() -> None:
    bob = receiver()
    usual_ms = due_ms(bob)
    hear_messages(bob, range(1, TOGETHER + 10))
    assert due_ms(bob) <= SOONER_MS
    hear(bob, names("carol", range(1, 12)))
    assert due_ms(bob) == usual_ms
    hear(bob, names("carol", range(TOGETHER + 10)))
    assert bob.machine.acknowledgement_due_ms is None


def test_who_has_just_spoken_has_its_usual_time_for_the_next_messages() -> None:
    """Though more came than its acknowledgement could name, others name the rest."""
    late = 0
    for seed in range(20):
        bob = Party("bob", sync=quiet_sync(), seed=seed, header_bytes_max=2_000)
        hear_messages(bob, range(3 * TOGETHER))
        exchange = Exchange([bob])
        exchange.run(due_ms(bob))
        hear(bob, message(3 * TOGETHER), exchange.now_ms)
        hear(bob, names("carol", range(3 * TOGETHER)), exchange.now_ms)
        late += due_ms(bob) - exchange.now_ms > SOONER_MS
    assert late > 10


def test_what_one_acknowledgement_cannot_name_of_a_burst_follows_as_soon() -> None:
    bob = Party("bob", sync=quiet_sync(), header_bytes_max=2_000)
    hear_messages(bob, range(4 * TOGETHER))
    first_ms = due_ms(bob)
    assert first_ms <= SOONER_MS
    said: set[str] = set()
    moments = []
    exchange = Exchange([bob])
    while bob.machine.acknowledgement_due_ms is not None:
        moments.append(due_ms(bob))
        exchange.run(moments[-1])
        for transmit in bob.transmitted:
            sync = SdsMessage.decode(transmit.payload)
            assert sync is not None
            assert transmit.kind is TransmitKind.SYNC
            said.update(entry.message_id for entry in sync.causal_history)
        left = 4 * TOGETHER - len(said)
        if left >= TOGETHER:
            assert due_ms(bob) - moments[-1] <= SOONER_MS
    assert len(moments) > 3
    assert len(said) == 4 * TOGETHER


@pytest.mark.parametrize("delay_ms", [(1, 5), (40, 60), (100, 200), (200, 400)])
@pytest.mark.parametrize(("count", "spoken_max"), [(5, 4), (20, 9), (60, 14)])
def test_few_of_a_group_acknowledge_a_burst(count: int, spoken_max: int, delay_ms: tuple[int, int]) -> None:
    """Where any acknowledgement is enough, who hears one keeps quiet, however long that takes to come."""
    members = [Party(f"member{number}", sync=quiet_sync()) for number in range(count)]
    alice = Party("alice", sync=quiet_sync())
    exchange = Exchange([alice, *members], delay_ms=delay_ms)
    for party in members:
        # Everybody has heard of everybody.
        for number, other in enumerate(members):
            if other is not party:
                hear(party, message(number, sender=other.name, content=None, message_id=f"hello{number}"))
    for number in range(2 * TOGETHER):
        alice.send(f"text {number}", START)
    exchange.run(2 * WINDOW_MS)
    spoken = [party.name for party in members if party.count(TransmitKind.SYNC)]
    assert 1 <= len(spoken) <= spoken_max
    assert alice.machine.stats()["outgoing_unacknowledged"] == 0
