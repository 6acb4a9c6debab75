"""When a sender makes more of a message, how much, and for whom."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, at, contents_of, message, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.config import DeliveredWhen
from shardwire.sds import ContentReceived, ContentsWanted, MessageDropped, SendAcknowledged, TransmitKind

SEND = "5e" * 16
COUNT = 10
RESERVE = 8
PERIOD_MS = LOGOS.sds.acknowledgement_timeout_ms
WINDOW_MS = PERIOD_MS // 4
NUMBERS = itertools.count()


class Sender(Party):
    """Alice, of whose message everything left at the first moment, and who notes what is wanted of it and when.

    Somebody else is there, and says nothing of it, unless `is_alone`.
    """

    def __init__(
        self,
        delivered_when: DeliveredWhen,
        reserve: int = RESERVE,
        back_off_percent: int = 0,
        *,
        is_alone: bool = False,
    ) -> None:
        sds = replace(LOGOS.sds, back_off_percent=back_off_percent)
        super().__init__("alice", sds=sds, sync=quiet_sync(), delivered_when=delivered_when)
        if not is_alone:
            self.machine.handle_message(names(0, "erin"), at(0))
        contents = contents_of("text", COUNT, COUNT)
        self.machine.send(SEND, contents, contents_needed=COUNT, reserve=reserve)
        self.wanted: list[tuple[int, int]] = []
        self.asked: list[int] = []
        self.again: list[tuple[int, int]] = []
        self.step(0)

    def step(self, now_ms: int) -> None:
        self.events.clear()
        for transmit in self.drain(at(now_ms)):
            self.machine.handle_transmitted(transmit.transmit_id, None, at(now_ms))
            if transmit.kind is TransmitKind.SYNC:
                read = SdsMessage.decode(transmit.payload)
                assert read is not None
                self.asked += [now_ms for entry in read.repair_request if entry.message_id == f"{SEND}.9999"]
            elif transmit.kind is TransmitKind.RETRANSMISSION:
                self.again.append((now_ms, transmit.ordinal or 0))
        self.wanted += [(now_ms, event.count) for event in self.events if isinstance(event, ContentsWanted)]

    def run(self, from_ms: int, until_ms: int) -> None:
        now_ms: int | None = from_ms
        while now_ms is not None and now_ms <= until_ms:
            self.machine.handle_timeout(at(now_ms))
            self.step(now_ms)
            now_ms = self.machine.poll_timeout()

    def hear(self, data: bytes, now_ms: int) -> None:
        self.machine.handle_message(data, at(now_ms))
        self.step(now_ms)

    def hears(self, heard: list[tuple[int, bytes]]) -> list[tuple[int, int]]:
        """What is wanted of it in a period in which it hears these, and when."""
        now_ms = 0
        for heard_ms, data in heard:
            self.run(now_ms, heard_ms - 1)
            self.hear(data, heard_ms)
            now_ms = heard_ms
        self.run(now_ms, PERIOD_MS)
        return self.wanted


def lacks(count: int, by: str = "bob") -> bytes:
    entry = HistoryEntry(f"{SEND}.{9_999 - count}", None, "alice")
    return message(0, sender=by, message_id=f"sync {next(NUMBERS)}", content=None, requests=[entry])


def names(count: int, by: str = "bob", first: int = 0) -> bytes:
    history = [HistoryEntry(f"{SEND}.{ordinal}", None, "alice") for ordinal in range(first, first + count)]
    return message(0, sender=by, message_id=f"sync {next(NUMBERS)}", content=None, history=history)


DUPLICATE = MessageDropped("duplicate")
BOB = frozenset({"bob"})
BOTH = frozenset({"bob", "carol"})


@pytest.mark.parametrize(
    ("delivered_when", "heard", "wanted"),
    [
        # A number goes as soon as all who were asked had time to answer.
        (BOB, [(100, lacks(3))], (2 * WINDOW_MS, 3)),
        (BOB, [(2 * WINDOW_MS + 700, lacks(3))], (2 * WINDOW_MS + 700, 3)),
        (BOB, [(100, lacks(3)), (200, lacks(2))], (2 * WINDOW_MS, 2)),
        # Overtaken on its way: nobody loses what it had.
        (BOB, [(100, lacks(2)), (200, lacks(3))], (2 * WINDOW_MS, 2)),
        # Who lacks no more than another one said may be silent.
        (BOTH, [(100, lacks(3))], (2 * WINDOW_MS, 3)),
        (BOTH, [(100, lacks(3)), (200, lacks(5, "carol"))], (2 * WINDOW_MS, 5)),
        (BOTH, [(100, lacks(3)), (200, lacks(0, "carol"))], (2 * WINDOW_MS, 3)),
        # Who is not to have it does not count.
        (BOB, [(100, lacks(2)), (200, lacks(7, "mallory"))], (2 * WINDOW_MS, 2)),
        # More than there is to be made is not.
        (BOB, [(100, lacks(10))], (2 * WINDOW_MS, RESERVE)),
        # Who names half of it or more names all that came; what is named goes once it had time to say it all.
        (BOB, [(100, names(7))], (100 + WINDOW_MS, 3)),
        (BOB, [(100, names(5))], (100 + WINDOW_MS, 5)),
        (BOB, [(100, names(4)), (300, names(4, first=4))], (300 + WINDOW_MS, 2)),
        (BOTH, [(100, names(7)), (200, names(6, "carol"))], (200 + WINDOW_MS, 4)),
        # Of somebody nothing is known.
        (BOTH, [(100, names(7))], (PERIOD_MS, 3)),
        # Of so many the nearest count.
        (2, [(100, lacks(5)), (200, lacks(2, "carol")), (300, lacks(3, "dave"))], (2 * WINDOW_MS, 3)),
        ("any", [(100, lacks(5)), (200, lacks(2, "carol"))], (2 * WINDOW_MS, 2)),
    ],
)
def test_what_is_known_to_be_lacking_is_wanted_in_time(
    delivered_when: DeliveredWhen, heard: list[tuple[int, bytes]], wanted: tuple[int, int]
) -> None:
    assert Sender(delivered_when).hears(heard) == [wanted]


@pytest.mark.parametrize(
    ("delivered_when", "heard", "wanted"),
    [
        (BOB, [(100, lacks(3))], (WINDOW_MS, 3)),
        (BOB, [(WINDOW_MS + 700, lacks(3))], (WINDOW_MS + 700, 3)),
        ("any", [(100, lacks(5)), (200, lacks(2, "carol"))], (WINDOW_MS, 2)),
        # Carol is waited for.
        (BOTH, [(100, lacks(3))], (2 * WINDOW_MS, 3)),
    ],
)
def test_it_is_wanted_sooner_where_all_have_said_a_number(
    delivered_when: DeliveredWhen, heard: list[tuple[int, bytes]], wanted: tuple[int, int]
) -> None:
    assert Sender(delivered_when, is_alone=True).hears(heard) == [wanted]


def test_who_names_little_is_asked_and_answered_once_all_had_time_to() -> None:
    alice = Sender(BOB)
    alice.hear(names(4), 100)
    alice.run(100, PERIOD_MS)
    assert (alice.wanted, alice.asked) == ([], [PERIOD_MS])
    alice.hear(lacks(6), PERIOD_MS + 100)
    alice.run(PERIOD_MS + 100, 2 * PERIOD_MS - 1)
    assert alice.wanted == [(PERIOD_MS + 2 * WINDOW_MS, 6)]


def test_who_is_silent_is_asked_again_at_half_the_period_and_then_sent_more() -> None:
    alice = Sender(BOB)
    alice.run(0, 4 * PERIOD_MS)
    assert alice.asked[:2] == [PERIOD_MS, PERIOD_MS + PERIOD_MS // 2]
    assert alice.wanted[0] == (2 * PERIOD_MS, 1)


@pytest.mark.parametrize(("back_off_percent", "next_ms"), [(0, 3 * PERIOD_MS), (100, 4 * PERIOD_MS)])
def test_a_round_takes_longer_after_each_one_without_news_where_back_off_is_configured(
    back_off_percent: int, next_ms: int
) -> None:
    alice = Sender(BOB, back_off_percent=back_off_percent)
    alice.run(0, 2 * PERIOD_MS)
    assert alice.wanted == [(2 * PERIOD_MS, 1)]
    assert alice.machine.poll_timeout() == next_ms


def test_nothing_is_made_for_who_has_all() -> None:
    alice = Sender(BOB)
    alice.hear(lacks(3), 100)
    alice.machine.handle_message(lacks(0), at(200))
    alice.drain(at(200))
    assert alice.of(SendAcknowledged) == [SendAcknowledged(SEND, "bob")]
    alice.run(200, 4 * PERIOD_MS)
    assert (alice.wanted, alice.asked, alice.again) == ([], [], [])


@pytest.mark.parametrize(
    ("ordinal", "taken"), [(0, False), (COUNT - 1, False), (COUNT + RESERVE - 1, False), (COUNT + RESERVE, True)]
)
def test_nobody_takes_an_id_that_a_content_of_ours_has_or_will_have(ordinal: int, taken: bool) -> None:
    alice = Party("alice", sync=quiet_sync())
    contents = contents_of("text", COUNT, COUNT)
    alice.machine.send(SEND, contents, contents_needed=COUNT, reserve=RESERVE)
    alice.machine.handle_message(message(0, sender="mallory", message_id=f"{SEND}.{ordinal}"), at(0))
    events = list(iter(alice.machine.poll_event, None))
    assert [event for event in events if isinstance(event, MessageDropped)] == ([] if taken else [DUPLICATE])
    assert any(isinstance(event, ContentReceived) for event in events) is taken
