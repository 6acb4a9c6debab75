"""Parity of a send on demand is not kept, since more like it can be made: what that means after a restart."""

from __future__ import annotations

import random

import pytest
from sds_exchange import Party, at, hear, message, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage, segment_message
from shardwire.config import SdsConfig, SegmentationConfig
from shardwire.sds import ContentAcknowledged, ContentsWanted, SendAcknowledged, SendGivenUp, Transmit, TransmitKind
from shardwire.segmentation.parameters import native_parameters

SEND = f"{7:032x}"
DATA = 10
PAYLOAD = random.Random(3).randbytes(DATA * 512)
NUMBERS = iter(range(1, 1_000_000))


def lacks(count: int, by: str = "bob") -> bytes:
    """Bob, or who it is, says how many segments he lacks."""
    entry = HistoryEntry(f"{SEND}.{9999 - count:04}", None, "alice")
    return message(next(NUMBERS), sender=by, content=None, requests=[entry])


def names(*ordinals: int) -> bytes:
    """Bob names segments that he has."""
    history = [HistoryEntry(f"{SEND}.{ordinal}", None, "alice") for ordinal in ordinals]
    return message(next(NUMBERS), sender="bob", content=None, history=history)


class Sender(Party):
    """Alice, who makes as much parity as is wanted."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type]
        self.left: list[Transmit] = []
        self.now_ms = self.arguments["now"].monotonic_ms  # type: ignore[attr-defined]

    def publish(self) -> list[int]:
        """Ordinals of the segments that leave now."""
        out = [transmit for transmit in self.drain(at(self.now_ms)) if transmit.send_id == SEND]
        for transmit in out:
            self.machine.handle_transmitted(transmit.transmit_id, None, at(self.now_ms))
        self.left += out
        return [transmit.ordinal or 0 for transmit in out]

    def wait(self, until: type[object]) -> bool:
        """Goes on until there is such an event, two minutes at most."""
        for _ in range(1_200):
            self.now_ms += 100
            self.machine.handle_timeout(at(self.now_ms))
            self.publish()
            if any(isinstance(event, until) for event in self.events):
                return True
        return False

    def later(self) -> list[int]:
        """What leaves when the timer of the send fires."""
        self.now_ms += 2 * SdsConfig().acknowledgement_timeout_ms
        self.machine.handle_timeout(at(self.now_ms))
        return self.publish()

    def make(self, count: int) -> None:
        assert self.machine.make_parity(SEND, count, "raw", "leopard", at(self.now_ms)) == count

    def again(self) -> Sender:
        twin = self.restarted(at(self.now_ms))
        assert isinstance(twin, Sender)
        return twin


def waiting(first_parity: int, *receivers: str) -> Sender:
    """Has a message that waits to leave, with so much parity at first."""
    everybody = frozenset(receivers or ("bob",))
    alice = Sender("alice", sds=SdsConfig(max_retransmissions=3), sync=quiet_sync(), delivered_when=everybody)
    parameters = native_parameters(SegmentationConfig(segment_size_bytes=512))
    contents, _, _, reserve = segment_message(PAYLOAD, parameters, first_parity * 1_000_000 // DATA)
    assert (len(contents), reserve) == (DATA + first_parity, DATA - first_parity)
    alice.machine.send(SEND, contents, contents_needed=DATA, reserve=reserve)
    return alice


def sent() -> Sender:
    """Of a message all data has left."""
    alice = waiting(0)
    assert alice.publish() == list(range(DATA))
    return alice


def wanted(alice: Sender, count: int) -> None:
    alice.events.clear()
    hear(alice, lacks(count), alice.now_ms + 1)
    assert alice.wait(ContentsWanted)
    assert [event.count for event in alice.events if isinstance(event, ContentsWanted)] == [count]


def repaired() -> Sender:
    """Three segments of parity have left, too."""
    alice = sent()
    wanted(alice, 3)
    alice.make(3)
    assert alice.publish() == [10, 11, 12]
    return alice


def bytes_of(alice: Party) -> set[str]:
    """Ids whose bytes are stored."""
    return {key.decode() for kind, key in alice.records if kind in ("sds.message", "sds.content")}


DATA_IDS = {f"{SEND}.{ordinal}" for ordinal in range(DATA)}


def test_bytes_of_data_alone_are_stored() -> None:
    alice = repaired()
    assert bytes_of(alice) == DATA_IDS
    hear(alice, lacks(0), alice.now_ms + 1)
    assert alice.of(SendAcknowledged)
    alice.drain(at(alice.now_ms))
    assert bytes_of(alice) == DATA_IDS
    alice = alice.again()
    alice.publish()
    assert bytes_of(alice) == DATA_IDS


def test_what_was_made_and_never_left_is_made_again_under_its_ids() -> None:
    alice = sent()
    wanted(alice, 3)
    alice.make(3)
    # Stored, and then the power fails.
    alice.records |= {name: value for name, value in alice.machine.poll_persist().items() if value is not None}
    # All of it twice: what is deleted of it stays deleted.
    for _ in range(2):
        alice = alice.again()
        alice.publish()
        assert not [name for name in alice.records if name[1].decode() in {f"{SEND}.{at}" for at in range(10, 20)}]
    wanted(alice, 2)
    alice.make(2)
    assert alice.publish() == [10, 11]
    alice = alice.again()
    wanted(alice, 8)
    alice.make(8)
    assert alice.publish() == list(range(12, 20))


def test_what_left_never_leaves_again_with_other_bytes() -> None:
    before = repaired()
    alice = before.again()
    wanted(alice, 4)
    alice.make(4)
    assert alice.publish() == [13, 14, 15, 16]
    wires: dict[str, bytes] = {}
    for transmit in (*before.left, *alice.left):
        assert wires.setdefault(transmit.message_id, transmit.payload) == transmit.payload


def test_once_all_parity_has_left_what_has_bytes_goes_again() -> None:
    alice = repaired().again()
    wanted(alice, 7)
    alice.make(7)
    assert alice.publish() == list(range(13, 20))
    alice = alice.again()
    hear(alice, lacks(9), alice.now_ms + 1)
    alice.wait(SendGivenUp)
    again = [transmit.ordinal for transmit in alice.left]
    assert again
    assert set(again) <= set(range(DATA))


def test_what_those_who_are_waited_for_lack_goes_again_first() -> None:
    alice = repaired().again()
    wanted(alice, 7)
    alice.make(7)
    alice.publish()
    alice = alice.again()
    history = [HistoryEntry(f"{SEND}.{ordinal}", None, "alice") for ordinal in range(5, DATA)]
    hear(alice, message(next(NUMBERS), content=None, history=history), alice.now_ms + 1)
    hear(alice, names(*range(5)), alice.now_ms + 2)
    alice.wait(SendGivenUp)
    assert [transmit.ordinal for transmit in alice.left][:5] == [5, 6, 7, 8, 9]


def test_who_asks_for_what_was_made_before_a_restart_gets_no_answer() -> None:
    alice = repaired().again()
    for ordinal in (10, 13):
        entry = HistoryEntry(f"{SEND}.{ordinal}", None, "alice")
        hear(alice, message(next(NUMBERS), sender="bob", content=None, requests=[entry]), alice.now_ms + 1)
    for _ in range(100):
        alice.now_ms += 100
        alice.machine.handle_timeout(at(alice.now_ms))
        alice.publish()
    assert not [transmit for transmit in alice.transmitted if transmit.message_id.endswith((".10", ".13"))]


def test_acknowledgements_count_after_a_restart() -> None:
    alice = repaired().again()
    hear(alice, names(10, 12), alice.now_ms + 1)
    assert [event.ordinal for event in alice.events if isinstance(event, ContentAcknowledged)] == [10, 12]
    alice = alice.again()
    hear(alice, names(*range(8)), alice.now_ms + 1)
    assert [event.by for event in alice.events if isinstance(event, SendAcknowledged)] == ["bob"]


def test_who_has_it_all_has_it_all_after_what_never_left_is_forgotten() -> None:
    alice = sent()
    wanted(alice, 3)
    alice.make(3)
    alice.records |= {name: value for name, value in alice.machine.poll_persist().items() if value is not None}
    alice = alice.again()
    hear(alice, names(*range(DATA)), alice.now_ms + 1)
    assert [event.by for event in alice.events if isinstance(event, SendAcknowledged)] == ["bob"]
    twin = alice.again()
    assert not twin.wait(ContentsWanted)
    assert twin.left == []


@pytest.mark.parametrize("leaves", [False, True])
def test_who_has_it_all_has_it_all_after_more_was_made_for_another(leaves: bool) -> None:
    alice = waiting(0, "bob", "carol")
    alice.publish()
    hear(alice, lacks(0), alice.now_ms + 1)
    hear(alice, lacks(2, "carol"), alice.now_ms + 2)
    assert alice.wait(ContentsWanted)
    alice.make(2)
    if leaves:
        assert alice.publish() == [10, 11]
    commit(alice)
    alice = alice.again()
    hear(alice, lacks(0, "carol"), alice.now_ms + 1)
    assert [event.by for event in alice.events if isinstance(event, SendAcknowledged)] == ["carol"]
    assert alice.machine.inspect()["acknowledged"] == {}
    assert not alice.wait(ContentsWanted)


def test_what_never_left_can_be_made_again_and_no_more_than_that() -> None:
    alice = sent()
    wanted(alice, 8)
    alice.make(8)
    assert alice.publish() == list(range(10, 18))
    wanted(alice, 2)
    alice.make(2)
    commit(alice)
    alice = alice.again()
    hear(alice, lacks(5), alice.now_ms + 1)
    assert alice.wait(ContentsWanted)
    assert [event.count for event in alice.events if isinstance(event, ContentsWanted)] == [2]


def test_what_was_made_waits_in_the_store_as_the_rest_does() -> None:
    alice = sent()
    wanted(alice, 2)
    alice.make(2)
    assert alice.publish() == [10, 11]
    for ordinal in range(12):
        alice.machine.handle_stored(SEND, ordinal, at(alice.now_ms))
    alice.events.clear()
    assert not alice.wait(ContentsWanted)
    assert alice.machine.stats()["outgoing_in_store"] == 12


@pytest.mark.parametrize("restarts", [False, True])
def test_a_message_that_is_taken_back_leaves_nothing(restarts: bool) -> None:
    alice = repaired()
    if restarts:
        alice = alice.again()
    assert alice.machine.withdraw(SEND)
    alice.publish()
    assert not [name for name in alice.records if name[0] in ("sds.send", "sds.outgoing", "sds.content")]
    assert not alice.again().wait(ContentsWanted)


def test_a_message_that_was_given_up_is_known_after_a_restart() -> None:
    alice = repaired()
    alice.machine.stop(SEND)
    alice.publish()
    assert alice.of(SendGivenUp)
    alice = alice.again()
    assert not alice.wait(ContentsWanted)
    assert alice.left == []
    hear(alice, lacks(0), alice.now_ms + 1)
    assert [event.by for event in alice.events if isinstance(event, SendAcknowledged)] == ["bob"]


def test_where_no_more_is_made_what_is_missing_of_the_data_goes_again() -> None:
    alice = repaired().again()
    wanted(alice, 2)
    alice.machine.make_parity(SEND, 0, "raw", "leopard", at(alice.now_ms))
    alice = alice.again()
    alice.events.clear()
    hear(alice, names(*range(2, DATA)), alice.now_ms + 1)
    alice.wait(SendGivenUp)
    again = {transmit.ordinal for transmit in alice.left}
    assert again
    assert again <= set(range(DATA))


def test_a_message_stands_once_in_the_order_though_no_more_is_made_before_what_was_made_has_left() -> None:
    alice = sent()
    wanted(alice, 3)
    alice.make(3)
    alice.machine.make_parity(SEND, 0, "raw", "leopard", at(alice.now_ms))
    after = alice.send("after", at(alice.now_ms))
    # What follows it leaves before the parity.
    assert alice.machine.poll_transmit(at(alice.now_ms), {TransmitKind.FIRST}) is not None
    assert alice.publish() == [10, 11, 12]
    assert alice.machine.ordered_ids() == (f"{SEND}.{DATA - 1}", f"{after}.0")
    assert alice.machine.inspect()["heads"] == (f"{after}.0",)


def test_what_is_made_later_names_what_the_rest_of_its_message_names() -> None:
    alice = waiting(0)
    alice.machine.handle_message(message(0, sender="bob", message_id=f"{8:032x}.0"), at(0))
    alice.publish()
    wanted(alice, 2)
    alice.make(2)
    alice.publish()
    histories = [[entry.message_id for entry in read(transmit).causal_history] for transmit in alice.left]
    assert histories == [[f"{8:032x}.0"]] * (DATA + 2)


def read(transmit: Transmit) -> SdsMessage:
    decoded = SdsMessage.decode(transmit.payload)
    assert decoded is not None
    return decoded


def commit(alice: Sender) -> None:
    for name, value in alice.machine.poll_persist().items():
        if value is None:
            alice.records.pop(name, None)
        else:
            alice.records[name] = value


def test_parity_that_leaves_at_first_is_stored_until_it_leaves() -> None:
    alice = waiting(3)
    commit(alice)
    assert bytes_of(alice) == DATA_IDS | {f"{SEND}.{ordinal}" for ordinal in (10, 11, 12)}
    alice = alice.again()
    assert alice.publish() == list(range(13))
    assert bytes_of(alice) == DATA_IDS
    hear(alice, lacks(0), alice.now_ms + 1)
    alice.publish()
    assert bytes_of(alice) == DATA_IDS
    again = alice.again()
    again.publish()
    assert again.records.keys() == alice.records.keys()


def test_parity_that_failed_to_leave_leaves_later_or_counts_as_lost_after_a_restart() -> None:
    alice = waiting(3)
    out = {transmit.ordinal: transmit for transmit in alice.drain(at(0))}
    for ordinal, transmit in out.items():
        if ordinal == 11:
            alice.machine.handle_transmit_failed(transmit.transmit_id, at(0))
        else:
            alice.machine.handle_transmitted(transmit.transmit_id, None, at(0))
    commit(alice)
    twin = alice.again()
    assert alice.publish() == [11]
    assert alice.left[-1].payload == out[11].payload
    assert twin.publish() == []
    wanted(twin, 2)
    twin.make(2)
    assert twin.publish() == [13, 14]
    hear(twin, lacks(0), twin.now_ms + 1)
    assert [event.by for event in twin.events if isinstance(event, SendAcknowledged)] == ["bob"]


def but(alice: Sender, *failed: int) -> Sender:
    """Everything leaves, but for these."""
    for transmit in alice.drain(at(0)):
        if transmit.ordinal in failed:
            alice.machine.handle_transmit_failed(transmit.transmit_id, at(0))
        else:
            alice.machine.handle_transmitted(transmit.transmit_id, None, at(0))
    return alice


@pytest.mark.parametrize("failed", [3, 11])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_failed_while_its_message_became_whole_holds_up_nothing(failed: int, restarts: bool) -> None:
    alice = but(waiting(3), failed)
    alice.machine.handle_message(lacks(0), at(1))
    if restarts:
        commit(alice)
        alice = alice.again()
        assert alice.machine.stats()["records_unreadable"] == 0
    after = alice.send("after", at(1))
    left = [transmit.send_id for transmit in alice.drain(at(1))]
    # Parity that is not stored has gone with the earlier life.
    assert left == ([after] if restarts and failed == 11 else [SEND, after])
    commit(alice)
    assert alice.again().machine.stats()["records_unreadable"] == 0


def test_what_may_not_have_left_goes_once_more_after_a_restart() -> None:
    alice = waiting(3)
    alice.drain(at(0))
    # Encoded and stored, and then the power fails: the node had none of it.
    commit(alice)
    alice = alice.again()
    # Parity is not stored once it is encoded: the message does without it.
    assert alice.machine.resume(SEND, range(3, 13), at(alice.now_ms)) == [10, 11, 12]
    assert alice.machine.resume("unknown", [0], at(alice.now_ms)) == []
    # Not at once: whoever crashes often does not send all of it each time.
    assert alice.publish() == []
    assert alice.later() == list(range(3, DATA))
    assert alice.publish() == []


def test_a_send_is_not_given_up_while_its_restored_segments_wait_to_leave() -> None:
    alice = waiting(0)
    alice.drain(at(0))
    commit(alice)
    alice = alice.again()
    alice.machine.resume(SEND, range(DATA), at(alice.now_ms))
    for _ in range(600):
        alice.now_ms += 1_000
        alice.machine.handle_timeout(at(alice.now_ms))
        # The node takes nothing, say.
        for transmit in alice.drain(at(alice.now_ms)):
            alice.machine.handle_transmit_failed(transmit.transmit_id, at(alice.now_ms))
    assert not alice.of(SendGivenUp)
    assert sorted(alice.publish()) == list(range(DATA))
    assert alice.wait(SendGivenUp)


def test_a_restored_segment_that_turns_out_to_be_there_does_not_go_again() -> None:
    alice = waiting(0)
    alice.drain(at(0))
    commit(alice)
    alice = alice.again()
    alice.machine.resume(SEND, range(DATA), at(alice.now_ms))
    alice.machine.handle_message(names(*range(5)), at(alice.now_ms))
    assert alice.later() == list(range(5, DATA))
    assert alice.wait(SendGivenUp)


@pytest.mark.parametrize("restarts", [0, 4])
def test_restarts_use_up_no_retransmission(restarts: int) -> None:
    alice = waiting(0)
    if restarts:
        alice.drain(at(0))
        commit(alice)
    else:
        alice.publish()
    for _ in range(restarts):
        alice = alice.again()
        alice.machine.resume(SEND, range(DATA), at(alice.now_ms))
        assert alice.later() == list(range(DATA))
        commit(alice)
    hear(alice, lacks(3), alice.now_ms + 1)
    assert alice.wait(ContentsWanted)
    # There is no code for it any more, say: from now on each segment goes again by itself.
    alice.machine.make_parity(SEND, 0, "raw", "leopard", at(alice.now_ms))
    alice.left.clear()
    assert alice.wait(SendGivenUp)
    assert len(alice.left) >= DATA


def test_what_follows_a_cancelled_send_names_nothing_that_nobody_keeps() -> None:
    alice = but(waiting(3), 10, 11, 12)
    assert alice.machine.cancel(SEND)
    alice.send("after", at(1))
    after = [SdsMessage.decode(transmit.payload) for transmit in alice.drain(at(1))]
    assert [entry.message_id for wire in after if wire is not None for entry in wire.causal_history] == []


def test_parity_made_later_was_never_stored_and_is_not_deleted() -> None:
    alice = sent()
    wanted(alice, 3)
    commit(alice)
    alice.make(3)
    while alice.machine.poll_transmit(at(alice.now_ms)) is not None:
        pass
    deleted = [key for (kind, key), value in alice.machine.poll_persist().items() if value is None]
    assert deleted == []


def test_what_follows_names_data_that_can_be_asked_for() -> None:
    alice = waiting(3)
    alice.publish()
    alice.send("after", at(1))
    after = [SdsMessage.decode(transmit.payload) for transmit in alice.drain(at(1))]
    named = [entry.message_id for wire in after if wire is not None for entry in wire.causal_history]
    assert named == [f"{SEND}.{DATA - 1}"]
    hear(alice, lacks(0), 2)
    entry = HistoryEntry(named[0], None, "alice")
    hear(alice, message(next(NUMBERS), sender="carol", content=None, requests=[entry]), 3)
    for _ in range(100):
        alice.now_ms += 100
        alice.machine.handle_timeout(at(alice.now_ms))
        alice.publish()
    answers = [out.message_id for out in alice.transmitted if out.kind is TransmitKind.REPAIR]
    assert answers == named


def test_parity_that_somebody_names_before_it_has_left_holds_up_nothing() -> None:
    """Its id can be guessed. What never left was waited for, and the send never given up."""
    alice = sent()
    wanted(alice, 3)
    alice.make(3)
    alice.machine.handle_message(names(10), at(alice.now_ms + 1))
    assert alice.publish() == [10, 11, 12]
    assert alice.wait(SendGivenUp)
