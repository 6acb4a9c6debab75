"""What is older than a participant: how long it is waited for, and whom it takes at their word."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, at, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.sds import DependencyLost

PAST = HistoryEntry(f"{1:032x}.0", bytes(32), "alice")
# Six waits of five seconds; the lost timeout; twice `repair_t_max_ms`.
RETRIES_MS, LOST_MS, REPAIR_MS = 30_000, 300_000, 240_000


def message(sender: str, number: int, *history: HistoryEntry) -> bytes:
    return SdsMessage(
        sender_id=sender,
        message_id=f"{number:032x}.0",
        channel_id="room",
        lamport_timestamp=number,
        causal_history=list(history),
        content=b"0/1/1|" + sender.encode(),
    ).encode()


def newcomer(**changes: object) -> Party:
    return Party("bob", sds=replace(LOGOS.sds, **changes), sync=quiet_sync())  # type: ignore[arg-type]


def hear(party: Party, data: bytes, monotonic_ms: int) -> None:
    party.machine.handle_message(data, at(monotonic_ms))
    party.drain(at(monotonic_ms))


def without(party: Party, monotonic_ms: int) -> Party:
    """The store does not have the past."""
    party.machine.handle_irretrievable([PAST.message_id])
    party.drain(at(monotonic_ms))
    return party


def released_ms(party: Party, since_ms: int) -> int:
    """How long after `since_ms` alice's message goes without its cause."""
    for wait_ms in (RETRIES_MS, REPAIR_MS, LOST_MS):
        party.machine.handle_timeout(at(since_ms + wait_ms - 1))
        party.drain(at(since_ms + wait_ms - 1))
        assert "alice" not in party.delivered
        party.machine.handle_timeout(at(since_ms + wait_ms))
        party.drain(at(since_ms + wait_ms))
        if "alice" in party.delivered:
            assert party.of(DependencyLost) == [DependencyLost(PAST)]
            return wait_ms
    raise AssertionError(f"nothing was released within {LOST_MS} ms")


def test_a_newcomer_waits_for_the_past_no_longer_than_retries_last() -> None:
    bob = newcomer()
    hear(bob, message("alice", 2, PAST), 0)
    assert released_ms(bob, 0) == RETRIES_MS


def test_who_was_told_everything_waits_the_whole_lost_timeout() -> None:
    bob = newcomer()
    bob.machine.handle_caught_up()
    hear(bob, message("alice", 2, PAST), 0)
    assert released_ms(without(bob, 10), 0) == LOST_MS


def test_a_newcomer_believes_a_store_that_has_not_what_is_named_at_first() -> None:
    bob = newcomer()
    hear(bob, message("alice", 2, PAST), 0)
    assert without(bob, 10).delivered == ["alice"]


@pytest.mark.parametrize("timeout_for_lost_messages_ms", [0, LOST_MS])
def test_what_is_named_later_may_have_been_kept_away_and_others_are_asked(timeout_for_lost_messages_ms: int) -> None:
    bob = newcomer(timeout_for_lost_messages_ms=timeout_for_lost_messages_ms)
    hear(bob, message("carol", 3), 0)
    # Of the other side of a partition that has just healed.
    hear(bob, message("alice", 2, PAST), 20_000)
    assert without(bob, 20_010).delivered == ["carol"]
    assert released_ms(bob, 20_000) == REPAIR_MS


def test_without_repair_only_a_store_can_help_and_it_is_believed() -> None:
    bob = newcomer(enable_repair=False)
    hear(bob, message("carol", 3), 0)
    hear(bob, message("alice", 2, PAST), 20_000)
    assert without(bob, 20_010).delivered == ["carol", "alice"]


def test_who_comes_back_after_a_crash_may_have_missed_what_a_store_has_not() -> None:
    bob = newcomer()
    hear(bob, message("carol", 3), 0)
    again = bob.restarted(at(8_000))
    hear(again, message("alice", 2, PAST), 8_000)
    assert without(again, 8_010).delivered == ["carol"]
    assert released_ms(again, 8_000) == REPAIR_MS


def test_what_gave_way_to_others_for_want_of_room_is_asked_for_when_it_is_named_again() -> None:
    bob = newcomer(missing_messages_max=10)
    hear(bob, message("alice", 2, PAST), 0)
    # Lost, and asked for all the same.
    assert without(bob, 10).machine.missing() == (PAST,)

    def told(number: int, *history: HistoryEntry) -> bytes:
        return SdsMessage(
            sender_id="alice",
            message_id=f"sync-{number}",
            channel_id="room",
            lamport_timestamp=number,
            causal_history=list(history),
        ).encode()

    hear(bob, told(3, PAST), 1_000)
    assert bob.machine.missing() == (PAST,)
    hear(bob, told(4, *(HistoryEntry(f"{number:032x}.0") for number in range(100, 110))), 2_000)
    assert PAST not in bob.machine.missing()
    hear(bob, told(5, PAST), 3_000)
    assert PAST in bob.machine.missing()


@pytest.mark.parametrize(("since_first_ms", "wait_ms"), [(0, RETRIES_MS), (5_000, RETRIES_MS), (5_001, 2 * RETRIES_MS)])
def test_without_a_store_its_sender_may_send_again_what_is_named(since_first_ms: int, wait_ms: int) -> None:
    """Repairs come within seconds there, and a sender waits longer before it sends again."""
    bob = newcomer(repair_t_min_ms=500, repair_t_max_ms=1_500)
    hear(bob, message("carol", 3), 0)
    hear(bob, message("alice", 2, PAST), since_first_ms)
    bob.machine.handle_timeout(at(since_first_ms + wait_ms - 1))
    bob.drain(at(since_first_ms + wait_ms - 1))
    assert "alice" not in bob.delivered
    bob.machine.handle_timeout(at(since_first_ms + wait_ms))
    bob.drain(at(since_first_ms + wait_ms))
    assert "alice" in bob.delivered
