"""Which entry a full table of missing messages gives up."""

from __future__ import annotations

from shardwire._native import HistoryEntry, IncomingSend, LocalLog
from shardwire.sds.missing import MissingMessages


def send_of(key: str, *, held: bool, waited_for: bool = True) -> IncomingSend:
    send = IncomingSend(key, key, "", 0)
    if waited_for:
        send.dependents = [IncomingSend(f"after {key}", f"after {key}", "", 0)]
    if held:
        log = LocalLog(10, lambda _: None)
        send.contents.append(log.add(f"{key}.held", "alice", 0, None, 0))
    return send


def test_what_others_wait_for_goes_last() -> None:
    table = MissingMessages(4)
    named, partial = send_of("named", held=False), send_of("partial", held=True)
    alone = send_of("alone", held=False, waited_for=False)
    assert table.add(HistoryEntry("named.0"), named, "bob") is None
    assert table.add(HistoryEntry("partial.1"), partial, "bob") is None
    assert table.add(HistoryEntry("partial.2"), partial, "bob") is None
    assert table.add(HistoryEntry("alone.0"), alone, "bob") is None
    gone = [table.add(HistoryEntry(f"later.{number}"), named, "bob") for number in range(4)]
    assert [message and message.entry.message_id for message in gone] == [
        "alone.0",
        "partial.1",
        "partial.2",
        "named.0",
    ]


def test_a_participant_beyond_its_share_pays_for_itself() -> None:
    table = MissingMessages(4)
    named, partial = send_of("named", held=False), send_of("partial", held=True)
    table.add(HistoryEntry("honest.0"), partial, "alice")
    for number in range(3):
        table.add(HistoryEntry(f"flood.{number}"), named, "mallory")
    gone = table.add(HistoryEntry("flood.3"), named, "mallory")
    assert gone is not None
    assert gone.entry.message_id == "flood.0"
    assert "honest.0" in table.by_id


def test_who_named_most_gives_way_to_whoever_names_more() -> None:
    table = MissingMessages(10)
    honest, invented = send_of("honest", held=False), send_of("invented", held=False)
    for number in range(6):
        table.add(HistoryEntry(f"invented.{number}"), invented, "mallory")
    for number in range(4):
        table.add(HistoryEntry(f"honest.{number}"), honest, "alice")
    # Alice has more than an equal share of the table too, and bob has nothing in it yet.
    for name, number in (("alice", 0), ("bob", 1)):
        gone = table.add(HistoryEntry(f"more.{number}"), honest, name)
        assert gone is not None
        assert gone.entry.message_id == f"invented.{number}"
