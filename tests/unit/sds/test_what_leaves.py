"""Which contents of a sender may leave, what they carry, and what is known of them once they are acknowledged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, at, contents_of, hear, message, quiet_sync

from shardwire._native import BloomFilter, HistoryEntry, SdsMessage, sds_limits
from shardwire.config import DeliveredWhen
from shardwire.sds import ContentAcknowledged, MessageDropped, SenderIdConflict, Transmit, TransmitKind

SEND = "5e" * 16
FINISHED_MAX = sds_limits()["FINISHED_CONTENTS_MAX"]


def acknowledges(*message_ids: str, sender: str = "bob", number: int = 0) -> bytes:
    history = [HistoryEntry(message_id, None, "alice") for message_id in message_ids]
    return message(0, sender=sender, message_id=f"sync-{number}-{sender}", content=None, history=history)


def read(transmit: Transmit) -> SdsMessage:
    decoded = SdsMessage.decode(transmit.payload)
    assert decoded is not None
    return decoded


# --- room ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("taken", "count"), [(3, 2), (1, 4)])
def test_a_message_begins_once_there_is_room_for_all_of_it(taken: int, count: int) -> None:
    alice = Party("alice", sds=replace(LOGOS.sds, outgoing_buffer_messages_max=4), sync=quiet_sync())
    first = alice.send("first", at(0), taken, taken)
    second = alice.send("second", at(0), count, count)
    assert [transmit.send_id for transmit in alice.drain(at(0))] == [first] * taken
    hear(alice, acknowledges(*(f"{first}.{ordinal}" for ordinal in range(taken))), 1)
    assert [transmit.send_id for transmit in alice.transmitted if transmit.send_id != first] == [second] * count


def test_no_message_begins_while_none_may_begin() -> None:
    alice = Party("alice", sync=quiet_sync())
    alice.send("fresh", at(0), 2, 2)
    begun = frozenset({TransmitKind.FURTHER})
    assert alice.machine.poll_transmit(at(0), begun) is None
    first = alice.machine.poll_transmit(at(0), frozenset({TransmitKind.FIRST}))
    further = alice.machine.poll_transmit(at(0), begun)
    assert first is not None
    assert further is not None
    assert (first.ordinal, further.ordinal) == (0, 1)


def test_a_segment_that_is_left_out_does_not_leave_again() -> None:
    alice = Party("alice", sync=quiet_sync())
    send_id = alice.send("parts", at(0), 2, 4)
    for transmit in alice.drain(at(0)):
        alice.machine.handle_transmitted(transmit.transmit_id, None, at(0))
    alice.machine.leave_out(f"{send_id}.3")
    for now_ms in range(0, 3 * LOGOS.sds.acknowledgement_timeout_ms, 100):
        alice.machine.handle_timeout(at(now_ms))
        alice.drain(at(now_ms))
    again = {transmit.ordinal for transmit in alice.transmitted if transmit.kind is TransmitKind.RETRANSMISSION}
    assert again == {0, 1, 2}


def test_a_long_message_is_one_object_for_the_node_the_store_and_every_time_it_leaves() -> None:
    """Its memory is taken once."""
    alice = Party("alice", sync=quiet_sync())
    send_id = alice.send("long " * 2_000, at(0))
    (first,) = alice.drain(at(0))
    alice.machine.handle_transmitted(first.transmit_id, None, at(0))
    assert alice.records["sds.message", f"{send_id}.0".encode()] is first.payload
    alice.machine.handle_timeout(at(2 * LOGOS.sds.acknowledgement_timeout_ms))
    (again,) = alice.drain(at(2 * LOGOS.sds.acknowledgement_timeout_ms))
    assert again.kind is TransmitKind.RETRANSMISSION
    assert again.payload is first.payload
    content = read(again).content
    assert content == contents_of("long " * 2_000)[0]
    del alice, first
    assert read(again).content == content


def test_a_long_message_is_the_same_object_after_a_restart() -> None:
    alice = Party("alice", sync=quiet_sync())
    alice.send("long " * 2_000, at(0))
    (first,) = alice.drain(at(0))
    again = Party("alice", sync=quiet_sync(), records=alice.records)
    later = at(2 * LOGOS.sds.acknowledgement_timeout_ms)
    again.machine.handle_timeout(later)
    assert [transmit.payload is first.payload for transmit in again.drain(later)] == [True]


# --- what is carried ----------------------------------------------------------------------------------------------


def test_no_filter_has_what_a_message_can_do_without() -> None:
    """Not everybody gets its parity: who lacks that lacks nothing."""
    alice = Party("alice", sds=replace(LOGOS.sds, bloom_interval_ms=0), sync=quiet_sync())
    send_id = alice.send("parts", at(0), 2, 4)
    alice.drain(at(0))
    alice.send("after", at(0))
    alice.drain(at(0))
    filter_bytes = read(alice.transmitted[-1]).bloom_filter
    assert filter_bytes is not None
    ids = [f"{send_id}.{ordinal}" for ordinal in range(4)]
    assert BloomFilter().review(filter_bytes, ids) == [0, 1]


@pytest.mark.parametrize("delivered_when", ["any", frozenset({"bob"})])
def test_what_leaves_of_a_message_that_is_delivered_already_names_what_the_rest_names(
    delivered_when: DeliveredWhen,
) -> None:
    alice = Party("alice", sync=quiet_sync(), delivered_when=delivered_when)
    hear(alice, message(1, sender="bob"))
    alice.machine.send(SEND, contents_of("text", 4, 4), contents_needed=4, reserve=2)
    left: list[Transmit] = []
    for _ in range(4):
        transmit = alice.machine.poll_transmit(at(0))
        assert transmit is not None
        left.append(transmit)
        if len(left) == 2:
            whole = HistoryEntry(f"{SEND}.9999", None, "alice")
            said = message(0, sender="bob", message_id="whole", content=None, requests=[whole])
            alice.machine.handle_message(said, at(0))
    assert [transmit.ordinal for transmit in left] == [0, 1, 2, 3]
    histories = [[entry.message_id for entry in read(transmit).causal_history] for transmit in left]
    assert histories == [[f"{1:032x}.0"]] * 4


@pytest.mark.parametrize("is_heard", [True, False])
def test_what_was_taken_back_is_named_where_somebody_has_it(is_heard: bool) -> None:
    alice = Party("alice", sync=quiet_sync(), delivered_when=2)
    first = f"{alice.send('first', at(0))}.0"
    alice.drain(at(0))
    if is_heard:
        hear(alice, acknowledges(first))
    assert alice.machine.withdraw(first.removesuffix(".0"))
    alice.send("after", at(0))
    alice.drain(at(0))
    history = [entry.message_id for entry in read(alice.transmitted[-1]).causal_history]
    assert history == ([first] if is_heard else [])


# --- after the end ------------------------------------------------------------------------------------------------


def test_late_acknowledgements_count_for_so_many_contents_and_what_is_forgotten_is_still_ours() -> None:
    alice = Party("alice", sync=quiet_sync())
    ids = []
    for number in range(FINISHED_MAX + 1):
        ids.append(alice.send(f"m{number}", at(0)) + ".0")
        alice.drain(at(0))
        hear(alice, acknowledges(ids[-1], number=number))
    assert alice.machine.stats()["outgoing_finished_contents"] == FINISHED_MAX
    alice.events.clear()
    hear(alice, acknowledges(*ids, sender="carol"))
    late = [event.message_id for event in alice.of(ContentAcknowledged) if isinstance(event, ContentAcknowledged)]
    assert late == ids[1:]
    hear(alice, alice.transmitted[0].payload)
    assert alice.of(MessageDropped) == [MessageDropped("own")]
    assert alice.of(SenderIdConflict) == []


@pytest.mark.parametrize("enable_repair", [True, False])
def test_what_left_of_a_message_that_was_cancelled_meanwhile_is_kept_where_others_may_ask_for_it(
    enable_repair: bool,
) -> None:
    alice = Party("alice", sds=replace(LOGOS.sds, enable_repair=enable_repair), sync=quiet_sync())
    send_id = alice.send("parts", at(0), 2, 2)
    first = alice.machine.poll_transmit(at(0))
    assert first is not None
    assert alice.machine.cancel(send_id)
    alice.machine.handle_transmitted(first.transmit_id, None, at(0))
    alice.drain(at(0))
    kept = [key for kind, key in alice.records if kind == "sds.message"]
    assert kept == ([first.message_id.encode()] if enable_repair else [])
    request = HistoryEntry(first.message_id, None, "alice")
    hear(alice, message(0, sender="bob", message_id="sync", content=None, requests=[request]))
    assert alice.count(TransmitKind.REPAIR) == enable_repair
