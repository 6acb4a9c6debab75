"""Limits of the protocol's tables and messages, at each of them and one past it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, at, hear, message, quiet_sync

from shardwire._native import BloomFilter, HistoryEntry, SdsMessage, sds_limits
from shardwire.config import SdsConfig
from shardwire.errors import ConfigError
from shardwire.sds import MessageDropped, TransmitKind

LIMITS = sds_limits()
LOST_MS = 2 * LOGOS.sds.repair_t_max_ms
# As the core estimates them: what frames an entry, and a message without history.
ENTRY_FRAME_BYTES = 14
BASE_BYTES = 48 + len("bob") + len("room") + 38


def name_of(number: int, ordinal: int = 0) -> str:
    return f"{number:032x}.{ordinal}"


def sent(party: Party, kind: TransmitKind, monotonic_ms: int) -> SdsMessage:
    (payload,) = [out.payload for out in party.drain(at(monotonic_ms)) if out.kind is kind]
    decoded = SdsMessage.decode(payload)
    assert decoded is not None
    return decoded


@pytest.mark.parametrize(("missing", "count"), [(0, 24), (1, 23)])
def test_a_history_names_as_much_as_its_header_has_room_for(missing: int, count: int) -> None:
    entry_bytes = ENTRY_FRAME_BYTES + len(name_of(0))
    sds = replace(LOGOS.sds, causal_history_size=0)
    room = BASE_BYTES + 24 * entry_bytes - missing
    bob = Party("bob", sds=sds, sync=quiet_sync(acknowledgement_sync=False), header_bytes_max=room)
    for number in range(40):
        hear(bob, message(number))
    bob.send("ours", at(1))
    assert len(sent(bob, TransmitKind.FIRST, 1).causal_history) == count


@pytest.mark.parametrize(("missing", "count"), [(0, 5), (1, 4)])
def test_entries_of_a_history_with_sender_and_hint_take_room_for_both(missing: int, count: int) -> None:
    entry_bytes = ENTRY_FRAME_BYTES + len(name_of(0)) + len("s" * 100) + 90
    room = BASE_BYTES + 5 * entry_bytes - missing
    sds = replace(LOGOS.sds, causal_history_size=9)
    bob = Party("bob", sds=sds, sync=quiet_sync(acknowledgement_sync=False), header_bytes_max=room)
    for number in range(9):
        bob.machine.handle_message(message(number, sender="s" * 100), at(0), bytes(90))
        bob.drain(at(0))
    bob.send("ours", at(1))
    history = [entry for entry in sent(bob, TransmitKind.FIRST, 1).causal_history if entry.sender_id]
    assert [entry.message_id for entry in history] == [name_of(number) for number in range(9 - count, 9)]
    assert {(entry.sender_id, entry.retrieval_hint) for entry in history} == {("s" * 100, bytes(90))}


def test_the_least_header_is_enough_and_one_byte_less_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        Party("alice", header_bytes_max=100)
    least = max(int(number) for number in re.findall(r"\d+", str(refused.value)))
    Party("alice", header_bytes_max=least)
    with pytest.raises(ConfigError, match=str(least)):
        Party("alice", header_bytes_max=least - 1)


def least_header(sender: str, sds: SdsConfig) -> int:
    with pytest.raises(ConfigError) as refused:
        Party(sender, sds=sds, header_bytes_max=100)
    return max(int(number) for number in re.findall(r"\d+", str(refused.value)))


@pytest.mark.parametrize(("rule", "id_bytes"), [("send", 38), ("content-sha256", 64)])
def test_the_least_header_has_room_for_an_entry(rule: str, id_bytes: int) -> None:
    sds = replace(LOGOS.sds, message_id=rule)
    least = least_header("bob", sds)
    longest = LIMITS["MESSAGE_ID_BYTES_MAX"]
    assert least == 48 + len("bob") + len("room") + id_bytes + ENTRY_FRAME_BYTES + 4 * longest
    bob = Party("bob", sds=sds, sync=quiet_sync(acknowledgement_sync=False), header_bytes_max=least)
    data = message(0, sender="s" * LIMITS["SENDER_ID_BYTES_MAX"], message_id="i" * longest)
    bob.machine.handle_message(data, at(0), bytes(256))
    bob.drain(at(0))
    bob.send("ours", at(1))
    (entry,) = sent(bob, TransmitKind.FIRST, 1).causal_history
    assert (len(entry.message_id), entry.retrieval_hint) == (longest, bytes(256))


@pytest.mark.parametrize(
    ("hint_bytes", "sender_bytes", "kept"), [(256, 256, True), (257, 5, False), (5, 257, False), (257, 257, False)]
)
def test_what_is_too_long_for_a_hint_or_a_sender_is_not_kept(hint_bytes: int, sender_bytes: int, kept: bool) -> None:
    bob = Party("bob")
    named = HistoryEntry(name_of(1), bytes(hint_bytes), "s" * sender_bytes)
    hear(bob, message(0, message_id="sync", content=None, history=[named]))
    assert bob.machine.missing() == ((named,) if kept else (HistoryEntry(name_of(1)),))


def test_a_full_buffer_still_takes_what_makes_its_oldest_send_whole() -> None:
    bob = Party("bob", sds=replace(LOGOS.sds, incoming_buffer_messages_max=3))

    def part(number: int, ordinal: int) -> bytes:
        return message(number, message_id=name_of(number, ordinal), content=b"%d/3/3|m%d" % (ordinal, number))

    for number, ordinal in ((1, 0), (2, 0), (2, 1)):
        hear(bob, part(number, ordinal))
    hear(bob, part(2, 2))
    assert bob.of(MessageDropped) == [MessageDropped("over-limit")]
    for ordinal in (1, 2):
        hear(bob, part(1, ordinal))
    assert bob.delivered == ["m1"]
    # The other one is the oldest now.
    hear(bob, part(3, 0))
    hear(bob, part(3, 1))
    assert bob.of(MessageDropped) == [MessageDropped("over-limit")] * 2
    hear(bob, part(2, 2))
    assert bob.delivered == ["m1", "m2"]


def test_messages_that_follow_each_other_wait_twice_as_long_as_for_a_lost_one() -> None:
    bob = Party("bob", sds=replace(LOGOS.sds, timeout_for_lost_messages_ms=LOST_MS))
    # What a sender speaks of first may be older than bob.
    hear(bob, message(0, content=b"0/1/1|m0"))
    for number, other in ((1, 2), (2, 1)):
        hear(bob, message(number, content=b"0/1/1|m%d" % number, history=[HistoryEntry(name_of(other))]))
    for monotonic_ms, delivered in ((2 * LOST_MS - 1, ["m0"]), (2 * LOST_MS, ["m0", "m1", "m2"])):
        bob.machine.handle_timeout(at(monotonic_ms))
        bob.drain(at(monotonic_ms))
        assert bob.delivered == delivered


def test_who_acknowledged_a_message_is_kept_of_so_many_and_of_those_who_are_waited_for() -> None:
    most = LIMITS["PARTICIPANTS_PER_SEND_MAX"]
    alice = Party("alice", sync=quiet_sync(), delivered_when=("last",))
    send_id = alice.send("hello", at(0), 2, 2)
    alice.drain(at(0))

    def acknowledge(by: str) -> int:
        hear(alice, message(0, sender=by, message_id=by, content=None, history=[HistoryEntry(f"{send_id}.0")]))
        return len(alice.machine.inspect()["acknowledged"][send_id])

    for number in range(most - 1):
        acknowledge(f"p{number}")
    assert acknowledge("at the limit") == most
    assert acknowledge("one past it") == most
    assert acknowledge("last") == most + 1
    assert acknowledge("one more") == most + 1


def test_an_echo_of_an_ephemeral_message_is_known_as_long_as_it_is_remembered() -> None:
    bob = Party("bob", sds=replace(LOGOS.sds, outgoing_buffer_messages_max=4))
    echoes = [message(number, lamport=None) for number in range(5)]
    for data in (*echoes[:4], echoes[0]):
        hear(bob, data)
    assert len(bob.of(MessageDropped)) == 1, "four are remembered"
    # The oldest has to go for a fifth.
    for data, dropped in ((echoes[4], 1), (echoes[1], 2), (echoes[0], 2)):
        hear(bob, data)
        assert len(bob.of(MessageDropped)) == dropped


def test_a_full_filter_is_made_anew_of_the_newest_four_fifths_and_is_the_same_after_a_restart() -> None:
    capacity = 500
    bob = Party("bob", sds=replace(LOGOS.sds, bloom_filter_capacity=capacity), sync=quiet_sync())
    ids = [name_of(number) for number in range(capacity * 6 // 5)]

    def held(party: Party) -> list[int]:
        return BloomFilter(capacity).review(party.machine.inspect()["bloom_filter"], ids)

    for number in range(len(ids) - 1):
        hear(bob, message(number, content=b"0/1/1|m%d" % number))
    assert held(bob)[: len(ids) - 1] == list(range(len(ids) - 1))
    hear(bob, message(len(ids) - 1, content=b"0/1/1|the last"))
    kept = held(bob)
    assert kept[-400:] == list(range(200, 600))
    # Of those that were left out one in a thousand is there by accident.
    assert len(kept) <= 402
    assert held(bob.restarted(at(0))) == kept


def test_the_filters_of_so_many_members_are_remembered() -> None:
    most = LIMITS["FILTERS_REMEMBERED_MAX"]
    alice = Party("alice", sds=replace(LOGOS.sds, bloom_filter_capacity=10), sync=quiet_sync())
    bloom = bytes(BloomFilter(10).size_bytes)
    for number, remembered in ((most - 1, most), (most, most)):
        for place in range(number):
            data = message(0, sender=f"p{place}", message_id=f"sync-{place}", content=None, bloom=bloom)
            alice.machine.handle_message(data, at(0))
        hear(alice, message(0, sender=f"last {number}", message_id=f"sync {number}", content=None, bloom=bloom))
        assert alice.machine.stats()["filters_remembered"] == remembered


def ask(party: Party, numbers: range) -> None:
    requests = [HistoryEntry(name_of(number)) for number in numbers]
    hear(party, message(0, sender="carol", message_id=f"sync {numbers}", content=None, requests=requests))


def owed_by(party: Party) -> set[str]:
    return set(party.machine.inspect()["repair_answers"])


def test_so_many_answers_are_owed_and_no_more_and_after_a_restart_as_well() -> None:
    most = LIMITS["REPAIR_BUFFER_MAX"]
    bob = Party("bob", sync=quiet_sync(), sds=replace(LOGOS.sds, repair_t_min_ms=29_000))
    for number in range(most + 1):
        hear(bob, message(number, content=b"0/1/1|m%d" % number))
    for number in range(0, most, 100):
        ask(bob, range(number, number + 100))
    names = {name_of(number) for number in range(most)}
    assert owed_by(bob) == owed_by(bob.restarted(at(0))) == names
    ask(bob, range(most, most + 1))
    assert len(owed_by(bob)) == most
    bob = bob.restarted(at(0))
    assert len(owed_by(bob)) == most
    # Somebody else answers.
    answered = min(owed_by(bob))
    number = int(answered[:32], 16)
    hear(bob, message(number, content=b"0/1/1|m%d" % number))
    assert answered not in owed_by(bob)
    assert answered not in owed_by(bob.restarted(at(0)))


@pytest.mark.parametrize(("sender", "name"), [(256, 256), (257, 1), (1, 257)])
def test_ids_of_senders_and_messages_have_so_many_bytes(sender: int, name: int) -> None:
    bob = Party("bob")
    hear(bob, message(0, sender="s" * sender, message_id="n" * name))
    legal = sender <= LIMITS["SENDER_ID_BYTES_MAX"] and name <= LIMITS["MESSAGE_ID_BYTES_MAX"]
    assert len(bob.of(MessageDropped)) == (not legal)


def test_under_the_nim_wire_the_skew_of_a_timestamp_counts_in_seconds() -> None:
    sds = replace(LOGOS.sds, wire_format="nim", max_lamport_skew_ms=60_000)
    bob = Party("bob", sds=sds)
    far = SdsMessage(
        sender_id="mallory",
        message_id=name_of(1),
        channel_id="room",
        lamport_timestamp=at(0).epoch_ms,
        content=b"0/1/1|far",
    )
    hear(bob, far.encode("nim"))
    assert bob.delivered == ["far"]
    assert bob.machine.lamport_timestamp == at(0).epoch_ms // 1_000 + 60


@pytest.mark.parametrize(("age_ms", "taken"), [(60_000, True), (60_001, False)])
def test_what_is_as_old_as_the_replay_window_is_taken(age_ms: int, taken: bool) -> None:
    bob = Party("bob", sds=replace(LOGOS.sds, replay_window_ms=60_000), now=at(100_000))
    hear(bob, message(1, lamport=at(100_000).epoch_ms - age_ms), 100_000)
    assert bob.delivered == (["text"] if taken else [])
    assert bob.of(MessageDropped) == ([] if taken else [MessageDropped("replayed")])
