"""What was delivered and left the log is not delivered again by who repeats it, with or without the key."""

from __future__ import annotations

from dataclasses import replace

from sds_exchange import EPOCH_MS, LOGOS, Reader, at, hear, message

from shardwire._native import HistoryEntry
from shardwire.config import SdsConfig
from shardwire.sds import MessageDropped, Now

LOG_MAX = 10
SDS = replace(LOGOS.sds, log_messages_max=LOG_MAX)
DAY_MS = 24 * 3_600_000


def sent(number: int, sender: str = "alice", lamport: int | None = None) -> bytes:
    content = b"0/1/1|%s %d" % (sender.encode(), number)
    return message(number, sender=sender, content=content, lamport=EPOCH_MS + number if lamport is None else lamport)


def bob(sds: SdsConfig = SDS, count: int = 30) -> Reader:
    """Has heard so much of alice that only the last of it is in his log."""
    party = Reader("bob", sds=sds)
    for number in range(1, count + 1):
        hear(party, sent(number), number)
    assert len(party.delivered) == count
    return party


def dropped(party: Reader) -> list[str]:
    return [event.reason for event in party.of(MessageDropped)]


def test_what_left_the_log_is_not_delivered_again() -> None:
    party = bob()
    for number in (1, 15, 30):
        hear(party, sent(number), 100)
    assert dropped(party) == ["replayed", "replayed", "duplicate"]
    assert len(party.delivered) == 30


def test_a_restart_does_not_forget_what_left_the_log() -> None:
    """What is stored may be a minute older, so that not every message writes it."""
    party = Reader("bob", sds=SDS)
    for number in range(1, 31):
        hear(party, sent(number, lamport=EPOCH_MS + 120_000 * number), 120_000 * number)
    again = party.restarted(at(4_000_000))
    for number in range(1, 20):
        hear(again, sent(number, lamport=EPOCH_MS + 120_000 * number), 4_000_000)
    assert dropped(again) == ["replayed"] * 19
    assert len(again.delivered) == 30


def test_who_never_sent_so_much_is_not_concerned() -> None:
    party = bob()
    hear(party, sent(1, "carol"), 100)
    assert party.delivered[-1] == "carol 1"
    assert dropped(party) == []


def test_what_a_history_names_is_taken_however_old_it_is() -> None:
    party = bob()
    hear(party, message(99, sender="carol", content=None, history=[HistoryEntry(f"{0:032x}.0", None, "alice")]), 100)
    hear(party, sent(0), 101)
    assert party.delivered[-1] == "alice 0"


def test_what_belongs_to_a_message_that_is_here_in_part_is_taken() -> None:
    party = bob(count=0)
    hear(
        party, message(500, sender="alice", content=b"1/2/2|late", message_id=f"{500:032x}.1", lamport=EPOCH_MS + 2), 1
    )
    for number in range(3, 40):
        hear(party, sent(number), number)
    hear(
        party, message(500, sender="alice", content=b"0/2/2|late", message_id=f"{500:032x}.0", lamport=EPOCH_MS + 1), 50
    )
    assert party.delivered[-1] == "late"


def test_what_a_store_has_is_taken_however_old_it_is() -> None:
    party = bob()
    party.machine.handle_message(sent(0), at(100), from_store=True)
    party.drain(at(100))
    assert party.delivered[-1] == "alice 0"


def test_a_newcomer_with_a_window_takes_nothing_that_is_older() -> None:
    windowed = replace(SDS, replay_window_ms=7 * DAY_MS)
    now = Now(1, EPOCH_MS + 30 * DAY_MS)
    for sds, expected in ((windowed, []), (SDS, ["alice 1"])):
        party = Reader("bob", sds=sds, now=Now(0, now.epoch_ms))
        party.machine.handle_message(sent(1), now)
        party.drain(now)
        assert party.delivered == expected
    party = Reader("bob", sds=windowed, now=Now(0, now.epoch_ms))
    party.machine.handle_message(sent(1, lamport=now.epoch_ms - 6 * DAY_MS), now)
    party.drain(now)
    assert party.delivered == ["alice 1"]
