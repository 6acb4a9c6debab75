"""A log at its limit: what it forgets, and what goes with that."""

from __future__ import annotations

from dataclasses import replace

from sds_exchange import LOGOS, Party, at

from shardwire._native import HistoryEntry, SdsMessage


def message_id(number: int) -> str:
    return f"{number:032x}.0"


def hear(party: Party, number: int, *after: int) -> None:
    data = SdsMessage(
        sender_id="alice",
        message_id=message_id(number),
        channel_id="room",
        lamport_timestamp=1_760_000_000_000 + number,
        causal_history=[HistoryEntry(message_id(cause)) for cause in after],
        content=b"0/1/1|%d" % number,
    ).encode()
    party.machine.handle_message(data, at(number))


def test_what_waits_stays_in_a_log_that_is_full_of_it() -> None:
    bob = Party("bob", sds=replace(LOGOS.sds, log_messages_max=3))
    machine = bob.machine
    for number in range(8):
        # Each waits for what nobody sent so far: were it forgotten, it would be taken in anew.
        hear(bob, number, 100 + number)
        bob.drain(at(number))
    assert list(machine.inspect()["log"]) == [message_id(number) for number in range(8)]
    for number in (*range(100, 108), *range(200, 220)):
        hear(bob, number)
        bob.drain(at(number))
    assert list(machine.inspect()["log"]) == [message_id(number) for number in range(217, 220)]


def test_what_is_forgotten_leaves_no_message_and_no_record() -> None:
    bob = Party("bob", sds=replace(LOGOS.sds, log_messages_max=5))
    machine = bob.machine
    for number in range(40):
        hear(bob, number)
        if number % 4 == 0:
            # Others come and go between two calls of it.
            bob.drain(at(number))
    bob.drain(at(40))
    held = [message_id(number) for number in range(35, 40)]
    assert list(machine.inspect()["log"]) == held
    for kind in ("sds.log", "sds.message"):
        assert sorted(key.decode() for name, key in bob.records if name == kind) == held
    assert list(machine.inspect()["originals"]) == held
    stored = [value for (kind, _), value in bob.records.items() if kind == "sds.message"]
    assert machine.stats()["original_bytes"] == sum(map(len, stored))
