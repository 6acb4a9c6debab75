"""A message of which more can be made, and which a store has: when it waits there, and when its sender goes on."""

from __future__ import annotations

import pytest
from sds_exchange import LOGOS, Party, at, contents_of, hear, message, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.config import DeliveredWhen
from shardwire.sds import ContentsWanted, SendAcknowledged, TransmitKind

SEND = "5e" * 16
COUNT = 10
RESERVE = 8
PERIOD_MS = LOGOS.sds.acknowledgement_timeout_ms
WINDOW_MS = PERIOD_MS // 4
BOB = frozenset({"bob"})
BOTH = frozenset({"bob", "carol"})
# What is known to be lacking is looked at then.
ANSWER_MS = 2 * WINDOW_MS


class Sender(Party):
    """Alice, of whose message everything left at the first moment."""

    def __init__(self, delivered_when: DeliveredWhen) -> None:
        super().__init__("alice", sync=quiet_sync(), delivered_when=delivered_when)
        contents = contents_of("text", COUNT, COUNT)
        self.machine.send(SEND, contents, contents_needed=COUNT, reserve=RESERVE)
        self.asked: list[int] = []
        self.wanted: list[tuple[int, int]] = []
        self.again: list[int] = []
        self.step(0)

    def step(self, now_ms: int) -> None:
        self.events.clear()
        for transmit in self.drain(at(now_ms)):
            self.machine.handle_transmitted(transmit.transmit_id, None, at(now_ms))
            if transmit.kind is TransmitKind.RETRANSMISSION:
                self.again.append(transmit.ordinal or 0)
            elif transmit.kind is TransmitKind.SYNC:
                read = SdsMessage.decode(transmit.payload)
                assert read is not None
                self.asked += [now_ms] * bool(read.repair_request)
        self.wanted += [(now_ms, event.count) for event in self.events if isinstance(event, ContentsWanted)]

    def run(self, until_ms: int) -> None:
        while (now_ms := self.machine.poll_timeout()) is not None and now_ms <= until_ms:
            self.machine.handle_timeout(at(now_ms))
            self.step(now_ms)

    def store(self, now_ms: int, *ordinals: int) -> None:
        for ordinal in ordinals or range(COUNT):
            self.machine.handle_stored(SEND, ordinal, at(now_ms))

    def hear(self, lacking: int, now_ms: int, by: str = "bob") -> None:
        entry = HistoryEntry(f"{SEND}.{9_999 - lacking}", None, "alice")
        data = message(0, sender=by, message_id=f"{by} at {now_ms}", content=None, requests=[entry])
        self.machine.handle_message(data, at(now_ms))
        self.step(now_ms)

    @property
    def kept(self) -> int:
        """Contents that wait in the store."""
        return self.machine.stats()["outgoing_in_store"]


@pytest.mark.parametrize("stored", [False, True])
def test_while_a_store_has_it_and_nobody_is_there_nobody_is_asked_but_with_a_probe(stored: bool) -> None:
    alice = Sender(BOB)
    if stored:
        alice.store(10)
    alice.run(2 * PERIOD_MS - 1)
    asked = [PERIOD_MS] if stored else [PERIOD_MS, PERIOD_MS + PERIOD_MS // 2]
    assert (alice.asked, alice.again) == (asked, [0] if stored else [])
    assert alice.kept == (COUNT if stored else 0)


def test_an_acknowledgement_that_was_lost_is_asked_for_while_a_store_has_it() -> None:
    alice, bob = Party("alice", sync=quiet_sync(), delivered_when=BOB), Party("bob", sync=quiet_sync())
    alice.machine.send(SEND, contents_of("text", COUNT, COUNT), contents_needed=COUNT, reserve=RESERVE)
    lost = 0
    for now_ms in range(0, PERIOD_MS + 2 * WINDOW_MS, WINDOW_MS // 10):
        now = at(now_ms)
        for party, other in ((alice, bob), (bob, alice)):
            party.machine.handle_timeout(now)
            for transmit in party.drain(now):
                party.machine.handle_transmitted(transmit.transmit_id, None, now)
                if transmit.kind is TransmitKind.FURTHER or transmit.kind is TransmitKind.FIRST:
                    alice.machine.handle_stored(SEND, transmit.ordinal or 0, now)
                if party is bob and not lost:
                    lost = now_ms
                else:
                    hear(other, transmit.payload, now_ms)
    assert 0 < lost < PERIOD_MS
    assert SendAcknowledged(SEND, "bob") in alice.events
    assert alice.machine.stats()["outgoing_in_store"] == 0


@pytest.mark.parametrize(("heard_ms", "waits"), [(99, True), (100, True), (101, False)])
@pytest.mark.parametrize("delivered_when", [BOB, "any"])
def test_who_spoke_after_the_store_had_it_is_there(delivered_when: DeliveredWhen, heard_ms: int, waits: bool) -> None:
    alice = Sender(delivered_when)
    if heard_ms < 100:
        alice.hear(3, heard_ms)
    alice.store(100)
    if heard_ms >= 100:
        alice.hear(3, heard_ms)
    alice.run(ANSWER_MS)
    assert (alice.wanted, alice.kept) == (([], COUNT) if waits else ([(ANSWER_MS // 2, 3)], 0))


def test_the_store_has_it_once_it_has_the_last_of_it() -> None:
    alice = Sender(BOB)
    alice.store(10, *range(COUNT - 1))
    alice.hear(3, 100)
    alice.store(200, COUNT - 1)
    alice.run(ANSWER_MS)
    assert (alice.wanted, alice.kept) == ([], COUNT)


def test_what_is_sent_no_more_need_not_be_in_the_store() -> None:
    alice = Sender(BOB)
    alice.machine.leave_out(f"{SEND}.{COUNT - 1}")
    alice.store(10, *range(COUNT - 1))
    alice.run(PERIOD_MS)
    assert (alice.again, alice.kept) == ([0], COUNT - 1)


@pytest.mark.parametrize(("by_bob", "waits"), [(3, False), (0, True)])
def test_one_who_lacks_it_and_is_there_is_enough(by_bob: int, waits: bool) -> None:
    """Of Carol nothing is heard."""
    alice = Sender(BOTH)
    alice.store(10)
    alice.hear(by_bob, 100)
    alice.run(PERIOD_MS)
    assert (alice.again, alice.kept) == (([0], COUNT) if waits else ([], 0))


def test_once_the_store_was_no_help_it_takes_room_again_and_more_is_made() -> None:
    alice = Sender(BOB)
    alice.store(10)
    alice.run(3 * PERIOD_MS - 1)
    assert alice.kept == COUNT
    heard_ms = 3 * PERIOD_MS
    alice.hear(3, heard_ms)
    alice.run(heard_ms + 2 * PERIOD_MS - 1)
    assert (alice.wanted, alice.kept) == ([], COUNT)
    alice.run(heard_ms + 4 * PERIOD_MS)
    assert [count for _, count in alice.wanted] == [3]
    assert alice.kept == 0
    assert alice.machine.stats()["outgoing_unacknowledged"] == COUNT
