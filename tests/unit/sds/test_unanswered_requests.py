"""What is missing is asked for until somebody answers, ever less often, and at no cost to a quiet channel."""

from __future__ import annotations

import itertools
from dataclasses import replace

from sds_exchange import LOGOS, Party, at, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.sds import DependencyLost, TransmitKind

CAUSE = HistoryEntry(f"{1:032x}.0", None, "alice")
HOUR_MS = 3_600_000


def message(sender: str, number: int, *history: HistoryEntry, content: bytes | None = b"0/1/1|follows") -> bytes:
    return SdsMessage(
        sender_id=sender,
        message_id=f"{number:032x}.0",
        channel_id="room",
        lamport_timestamp=number,
        causal_history=list(history),
        content=content,
    ).encode()


def live(party: Party, from_ms: int, until_ms: int) -> list[int]:
    """Runs timers alone; gives the moments at which a message asked for `CAUSE`."""
    asked = []
    now_ms = from_ms
    while (due_ms := party.machine.poll_timeout()) is not None and due_ms <= until_ms:
        now_ms = max(due_ms, now_ms)
        party.machine.handle_timeout(at(now_ms))
        for transmit in party.drain(at(now_ms)):
            party.machine.handle_transmitted(transmit.transmit_id, None, at(now_ms))
            sent = SdsMessage.decode(transmit.payload)
            if sent is not None and CAUSE.message_id in [entry.message_id for entry in sent.repair_request]:
                asked.append(now_ms)
    return asked


def waiting(party: Party) -> Party:
    # Heard before, so that alice's cause is not taken for older than bob.
    party.machine.handle_message(message("alice", 9, content=b"0/1/1|earlier"), at(0))
    party.drain(at(0))
    party.machine.handle_caught_up()
    party.machine.handle_message(message("alice", 2, CAUSE), at(1))
    party.drain(at(1))
    return party


def test_what_is_lost_is_told_once_and_asked_for_all_the_same() -> None:
    bob = waiting(Party("bob"))
    asked = live(bob, 1, 2 * HOUR_MS)
    lost_ms = LOGOS.sds.timeout_for_lost_messages_ms
    assert bob.of(DependencyLost) == [DependencyLost(CAUSE)]
    assert bob.delivered == ["earlier", "follows"]
    assert len([at_ms for at_ms in asked if at_ms > lost_ms]) >= 4
    # And delivered when it comes at last.
    bob.machine.handle_message(message("alice", 1, content=b"0/1/1|cause"), at(2 * HOUR_MS))
    bob.drain(at(2 * HOUR_MS))
    assert bob.delivered == ["earlier", "follows", "cause"]
    assert bob.machine.missing() == ()


def test_requests_become_rarer_and_end() -> None:
    bob = waiting(Party("bob"))
    asked = live(bob, 1, 400 * HOUR_MS)
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert gaps[-1] > 12 * HOUR_MS
    assert len(asked) < 40
    assert bob.machine.missing() == ()
    # Whoever names it again may hold it.
    moment_ms = 400 * HOUR_MS
    bob.machine.handle_message(message("carol", 3, CAUSE, content=None), at(moment_ms))
    bob.drain(at(moment_ms))
    assert len(live(bob, moment_ms, moment_ms + HOUR_MS)) >= 4


def test_a_message_named_again_is_asked_for_as_soon_as_at_first() -> None:
    bob = waiting(Party("bob"))
    live(bob, 1, 10 * HOUR_MS)
    bob.machine.handle_message(message("carol", 3, CAUSE, content=None), at(10 * HOUR_MS))
    bob.drain(at(10 * HOUR_MS))
    soon_ms = LOGOS.sds.repair_t_max_ms + LOGOS.sync.sync_min_interval_ms
    assert live(bob, 10 * HOUR_MS, 10 * HOUR_MS + soon_ms)


def test_only_the_first_requests_have_syncs_of_their_own() -> None:
    sync = replace(LOGOS.sync, sync_min_interval_ms=HOUR_MS, acknowledgement_sync=False)
    bob = waiting(Party("bob", sync=sync, sds=replace(LOGOS.sds, bloom_filter_capacity=100)))
    asked = live(bob, 1, HOUR_MS // 2)
    assert len(asked) == 2
    syncs = bob.count(TransmitKind.SYNC)
    live(bob, HOUR_MS // 2, 20 * HOUR_MS)
    # The periodic ones, and no more.
    assert bob.count(TransmitKind.SYNC) - syncs <= 21


def test_where_nothing_leaves_by_itself_requests_go_on_alone() -> None:
    bob = waiting(Party("bob", sync=quiet_sync()))
    assert len(live(bob, 1, 2 * HOUR_MS)) > 4


def test_requests_of_others_silence_ours_no_sooner() -> None:
    bob = waiting(Party("bob"))
    for number in range(200):
        request = SdsMessage(
            sender_id="mallory",
            message_id=f"sync-{number}",
            channel_id="room",
            lamport_timestamp=number,
            repair_request=[CAUSE],
        ).encode()
        bob.machine.handle_message(request, at(2 + number))
        bob.drain(at(2 + number))
    assert len(live(bob, 300, 2 * HOUR_MS)) >= 4


def test_without_repair_what_is_lost_is_asked_of_the_store_when_it_is_named_again() -> None:
    bob = waiting(Party("bob", sds=replace(LOGOS.sds, enable_repair=False), sync=quiet_sync()))
    live(bob, 1, HOUR_MS)
    assert bob.of(DependencyLost) == [DependencyLost(CAUSE)]
    assert bob.machine.missing() == ()
    bob.machine.handle_message(message("carol", 3, CAUSE, content=None), at(HOUR_MS))
    bob.drain(at(HOUR_MS))
    assert bob.machine.missing() == (CAUSE,)


def test_what_a_partial_send_lacks_is_asked_for_after_it_was_given_up() -> None:
    alice, bob = Party("alice", sync=quiet_sync()), Party("bob", sync=quiet_sync())
    send_id = alice.send("parts", at(0), 2, 2)
    first, second = alice.drain(at(0))
    bob.machine.handle_message(first.payload, at(0))
    bob.drain(at(0))
    live(bob, 0, LOGOS.sds.timeout_for_lost_messages_ms)
    moment_ms = LOGOS.sds.timeout_for_lost_messages_ms + 1
    bob.machine.handle_send_abandoned("alice", send_id, at(moment_ms), keep_messages=True)
    bob.drain(at(moment_ms))
    assert [entry.message_id for entry in bob.machine.missing()] == [f"{send_id}.1"]
    # What comes takes the message up again, with the content that is kept for repair.
    bob.held.clear()
    bob.machine.handle_message(second.payload, at(moment_ms + 1))
    bob.drain(at(moment_ms + 1))
    for data, hint in bob.machine.poll_reopened():
        bob.machine.handle_message(data, at(moment_ms + 1), hint or None, from_store=True)
        bob.drain(at(moment_ms + 1))
    assert bob.delivered == ["parts"]
