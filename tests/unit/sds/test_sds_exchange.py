"""Machines among themselves: everything arrives, in causal order, once, and no more is said than needed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Exchange, Party, at, contents_of, parties, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.sds import (
    ContentAcknowledged,
    ContentPossiblyAcknowledged,
    DependencyLost,
    MissingDetected,
    SendAcknowledged,
    SendGivenUp,
    TransmitKind,
)


def test_a_message_arrives_and_is_acknowledged_in_time() -> None:
    alice, bob = parties("alice", "bob", sync=quiet_sync())
    exchange = Exchange([alice, bob])
    send_id = alice.send("hello", at(0))
    exchange.run(4_000)
    assert bob.delivered == ["hello"]
    assert alice.of(ContentAcknowledged) == [ContentAcknowledged(send_id, 0, f"{send_id}.0", "bob")]
    assert alice.of(SendAcknowledged) == [SendAcknowledged(send_id, "bob")]
    assert alice.machine.pending_sends() == ()
    assert bob.count(TransmitKind.SYNC) == 1


def test_nothing_is_retransmitted_without_loss_and_a_burst_takes_one_acknowledgement() -> None:
    alice, bob = parties("alice", "bob", sync=quiet_sync())
    exchange = Exchange([alice, bob])
    for number in range(50):
        alice.send(f"m{number}", at(0))
    exchange.run(60_000)
    assert bob.delivered == [f"m{number}" for number in range(50)]
    assert alice.count(TransmitKind.RETRANSMISSION) == 0
    assert bob.count(TransmitKind.SYNC) == 1
    assert len(alice.of(SendAcknowledged)) == 50
    # What was acknowledged takes no room in the outgoing buffer.
    assert alice.machine.pending_sends() == ()


@pytest.mark.parametrize("size", [3, 12])
def test_a_group_does_not_answer_in_chorus(size: int) -> None:
    group = parties("alice", *(f"p{number}" for number in range(size)), sync=quiet_sync())
    exchange = Exchange(group, delay_ms=(1, 3))
    group[0].send("hello", at(0))
    exchange.run(60_000)
    syncs = sum(party.count(TransmitKind.SYNC) for party in group)
    assert 1 <= syncs <= 3


def test_idle_channel_is_quiet() -> None:
    group = parties("alice", "bob", "carol")
    exchange = Exchange(group, delay_ms=(1, 3))
    group[0].send("hello", at(0))
    exchange.run(60_000)
    before = exchange.messages_sent
    exchange.run(60_000 + 600_000)
    assert exchange.messages_sent - before <= 600_000 // 30_000
    silent = parties("alice", "bob", sync=quiet_sync())
    exchange = Exchange(silent)
    silent[0].send("hello", at(0))
    exchange.run(10_000)
    before = exchange.messages_sent
    exchange.run(3_600_000)
    assert exchange.messages_sent == before


@pytest.mark.parametrize("seed", range(12))
def test_everything_arrives_once_and_in_causal_order_through_loss(seed: int) -> None:
    rng = random.Random(seed)
    names = ["alice", "bob", "carol"]
    # Enough attempts that none of some hundred round trips at 36 % failure runs out of them.
    sds = replace(LOGOS.sds, max_retransmissions=12)
    group = [Party(name, seed=seed, sds=sds, delivered_when=2) for name in names]
    exchange = Exchange(group, seed=seed, loss=0.2, duplicate=0.05, delay_ms=(5, 400))
    causes: dict[str, set[str]] = {}
    said: dict[str, str] = {}
    for step in range(60):
        party = rng.choice(group)
        text = f"m{step}"
        needed, count = rng.choice([(1, 1), (1, 1), (4, 6), (3, 3)])
        # What its sender said and saw before is what the application may answer to.
        causes[text] = set(party.delivered) | {known for known, by in said.items() if by == party.name}
        said[text] = party.name
        party.send(text, at(exchange.now_ms), needed, count)
        exchange.run(exchange.now_ms + rng.randint(0, 800))
    exchange.run(exchange.now_ms + 900_000)
    for party in group:
        own = {text for text, by in said.items() if by == party.name}
        assert len(party.delivered) == len(set(party.delivered))
        assert set(party.delivered) == set(causes) - own
        assert not party.of(DependencyLost)
        place = {text: index for index, text in enumerate(party.delivered)}
        for text in party.delivered:
            late = [cause for cause in causes[text] if cause in place and place[cause] > place[text]]
            assert late == [], f"{text} came before {late}"
        assert not party.of(SendGivenUp)
        assert party.machine.pending_sends() == ()
        stats = party.machine.stats()
        assert stats["incoming_sends"] == stats["missing"] == stats["outgoing_unacknowledged"] == 0


def test_k_of_n_closes_the_gap_without_a_word() -> None:
    alice, bob = parties("alice", "bob", sync=quiet_sync())
    # Of ten data and five parity contents five data contents are lost for good.
    exchange = Exchange([alice, bob], lose=lambda name, transmit: name == "bob" and transmit.ordinal in {0, 3, 4, 7, 9})
    send_id = alice.send("large", at(0), needed=10, count=15)
    exchange.run(600_000)
    assert bob.delivered == ["large"]
    assert alice.count(TransmitKind.RETRANSMISSION) == 0
    assert not bob.of(MissingDetected)
    assert bob.machine.missing() == ()
    assert alice.of(SendAcknowledged) == [SendAcknowledged(send_id, "bob")]
    assert {event.ordinal for event in alice.of(ContentAcknowledged)} == set(range(15))
    exchange.lose = None
    # A message that follows names the send by whatever content; nothing is asked for.
    alice.send("after", at(exchange.now_ms))
    exchange.run(exchange.now_ms + 10_000)
    assert bob.delivered == ["large", "after"]
    assert not bob.of(MissingDetected)


def test_a_gap_beyond_parity_is_asked_for_once_the_send_is_quiet() -> None:
    alice, bob = parties("alice", "bob", sync=quiet_sync(), sds=replace(LOGOS.sds, max_retransmissions=0))
    exchange = Exchange([alice, bob], lose=lambda name, transmit: transmit.ordinal in {0, 1})
    alice.send("large", at(0), needed=3, count=4)
    exchange.run(4_900)
    assert not bob.of(MissingDetected)
    exchange.run(6_000)
    (missing,) = bob.of(MissingDetected)
    assert [entry.message_id[-2:] for entry in missing.entries] == [".0", ".1"]
    assert {entry.sender_id for entry in missing.entries} == {"alice"}


def test_resending_stops_at_the_limit_and_is_told() -> None:
    alice, bob = parties("alice", "bob", sync=quiet_sync())
    exchange = Exchange([alice, bob], lose=lambda name, transmit: True)
    send_id = alice.send("hello", at(0))
    exchange.run(3_600_000)
    assert alice.count(TransmitKind.RETRANSMISSION) == 5
    assert alice.of(SendGivenUp) == [SendGivenUp(send_id, (0,))]
    payloads = {transmit.payload for transmit in alice.transmitted if transmit.ordinal == 0}
    assert len(payloads) == 1


def test_acknowledgement_after_giving_up_still_counts() -> None:
    alice, bob = parties("alice", "bob", sync=quiet_sync())
    exchange = Exchange([alice, bob], lose=lambda name, transmit: name == "alice")
    send_id = alice.send("hello", at(0))
    exchange.run(600_000)
    assert len(alice.of(SendGivenUp)) == 1
    exchange.lose = None
    bob.send("late answer", at(exchange.now_ms))
    exchange.run(exchange.now_ms + 5_000)
    assert alice.of(SendAcknowledged) == [SendAcknowledged(send_id, "bob")]


def test_quorum_of_names_is_waited_for() -> None:
    alice, bob, carol = parties("alice", "bob", "carol", sync=quiet_sync(), delivered_when=frozenset({"carol"}))
    blocked = True
    exchange = Exchange([alice, bob, carol], lose=lambda name, transmit: blocked and name == "carol")
    send_id = alice.send("hello", at(0))
    exchange.run(4_000)
    assert alice.of(SendAcknowledged) == [SendAcknowledged(send_id, "bob")]
    assert alice.machine.pending_sends() == (send_id,)
    blocked = False
    exchange.run(60_000)
    assert carol.delivered == ["hello"]
    assert alice.machine.pending_sends() == ()
    assert alice.count(TransmitKind.RETRANSMISSION) == 1


def test_each_of_several_names_is_waited_for() -> None:
    alice, bob, carol = parties("alice", "bob", "carol", sync=quiet_sync(), delivered_when=frozenset({"bob", "carol"}))
    blocked = True
    exchange = Exchange([alice, bob, carol], lose=lambda name, transmit: blocked and name == "carol")
    send_id = alice.send("hello", at(0))
    exchange.run(4_000)
    assert alice.of(SendAcknowledged) == [SendAcknowledged(send_id, "bob")]
    assert alice.machine.pending_sends() == (send_id,)
    blocked = False
    exchange.run(60_000)
    assert carol.delivered == ["hello"]
    assert alice.machine.pending_sends() == ()


@pytest.mark.parametrize("content_count", [None, 3])
def test_what_others_name_of_a_send_that_is_partly_here_is_asked_for(content_count: int | None) -> None:
    alice, bob, carol = (Party(name).machine for name in ("alice", "bob", "carol"))
    send_id = "5" * 32
    alice.send(send_id, contents_of("x", 3, 3), contents_needed=3)
    sent = []
    while (transmit := alice.poll_transmit(at(0))) is not None:
        sent.append(transmit)
    for machine, received in ((bob, sent[2:]), (carol, sent)):
        for transmit in received:
            machine.handle_message(transmit.payload, at(10))
            ordinal = transmit.ordinal
            machine.handle_content_placed(transmit.message_id, send_id, ordinal, content_count, 3, at(10))
    carol.handle_send_reconstructed("alice", send_id, 3, at(10))
    due_ms = carol.poll_timeout()
    assert due_ms is not None
    sync = carol.poll_transmit(at(due_ms))
    assert sync is not None
    bob.handle_message(sync.payload, at(due_ms))
    quiet_ms = due_ms + LOGOS.sds.acknowledgement_timeout_ms
    bob.handle_timeout(at(quiet_ms))
    assert [entry.message_id for entry in bob.missing()] == [f"{send_id}.0", f"{send_id}.1"]
    for transmit in sent[:2]:
        bob.handle_message(transmit.payload, at(quiet_ms))
    assert bob.missing() == ()


@pytest.mark.parametrize("waits_as_due", [False, True])
def test_what_the_nearest_receiver_holds_is_sent_again_once_another_is_nearer(waits_as_due: bool) -> None:
    machine = Party("alice").machine
    send_id = "5" * 32
    machine.send(send_id, contents_of("x", 3, 3), contents_needed=3)
    left: list[int | None] = []

    def pass_time(until_ms: int) -> None:
        while (due_ms := machine.poll_timeout()) is not None and due_ms <= until_ms:
            machine.handle_timeout(at(due_ms))
            while (transmit := machine.poll_transmit(at(due_ms))) is not None:
                left.append(transmit.ordinal)
                machine.handle_transmitted(transmit.transmit_id, None, at(due_ms))

    while (transmit := machine.poll_transmit(at(0))) is not None:
        machine.handle_transmitted(transmit.transmit_id, None, at(0))
    period_ms = LOGOS.sds.acknowledgement_timeout_ms

    def acknowledge(by: str, *ordinals: int) -> None:
        named = [HistoryEntry(f"{send_id}.{ordinal}") for ordinal in ordinals]
        sync = SdsMessage(
            sender_id=by, message_id=f"{by}-sync", channel_id="room", lamport_timestamp=1, causal_history=named
        )
        machine.handle_message(sync.encode(), at(period_ms))

    if waits_as_due:
        machine.handle_timeout(at(period_ms))
    acknowledge("bob", 1)
    pass_time(period_ms + 1)
    acknowledge("carol", 0, 2)
    left.clear()
    pass_time(100 * period_ms)
    assert [ordinal for ordinal in left if ordinal is not None] == [1] * LOGOS.sds.max_retransmissions
    assert machine.pending_sends() == (), "given up"


def test_intervals_are_equal_and_back_off_where_asked() -> None:
    for percent, waits in (
        (0, [5_000] * 6),
        (50, [5_000, 7_500, 11_250, 16_875, 25_312, 37_968]),
        (900, [5_000] + [40_000] * 5),
    ):
        alice = Party("alice", sync=quiet_sync(), sds=replace(LOGOS.sds, back_off_percent=percent))
        alice.send("hello", at(0))
        now = 0
        for wait in waits:
            (transmit,) = alice.drain(at(now))
            alice.machine.handle_transmitted(transmit.transmit_id, None, at(now))
            assert alice.machine.poll_timeout() == now + wait
            now += wait
            alice.machine.handle_timeout(at(now))
        assert alice.drain(at(now)) == []
        assert len(alice.of(SendGivenUp)) == 1
        assert alice.machine.poll_timeout() is None


def test_possibly_acknowledged_contents_wait_twice_as_long() -> None:
    alice, bob = parties("alice", "bob", sync=quiet_sync(acknowledgement_sync=False))
    alice.send("hello", at(0))
    bob.send("other", at(0))
    (transmit,) = alice.drain(at(0))
    bob.machine.handle_message(transmit.payload, at(0))
    bob.drain(at(0))
    # A filter that holds the content and a history that does not name it.
    told = SdsMessage(
        sender_id="bob",
        message_id="sync-1",
        channel_id="room",
        lamport_timestamp=1,
        bloom_filter=bob.machine.inspect()["bloom_filter"],
    )
    alice.machine.handle_message(told.encode(), at(100))
    alice.machine.handle_message(told.encode(), at(200))
    alice.drain(at(200))
    (possible,) = alice.of(ContentPossiblyAcknowledged)
    assert (possible.by, possible.count) == ("bob", 1)  # type: ignore[attr-defined]
    alice.machine.handle_transmitted(transmit.transmit_id, None, at(300))
    assert alice.machine.poll_timeout() == 10_300
    # A second participant's filter makes it an acknowledgement.
    other = SdsMessage(
        sender_id="carol",
        message_id="sync-2",
        channel_id="room",
        lamport_timestamp=1,
        bloom_filter=bob.machine.inspect()["bloom_filter"],
    )
    alice.machine.handle_message(other.encode(), at(400))
    alice.drain(at(400))
    assert {event.by for event in alice.of(SendAcknowledged)} == {"bob", "carol"}  # type: ignore[attr-defined]
    assert alice.machine.stats()["outgoing_unacknowledged"] == 0


def test_any_content_of_a_delivered_send_stands_for_it() -> None:
    """A peer may name a parity content that never came here and that nobody could infer."""
    alice, bob = Party("alice", sync=quiet_sync()), Party("bob", sync=quiet_sync())
    send_id = alice.send("first", at(0))
    for transmit in alice.drain(at(0)):
        bob.machine.handle_message(transmit.payload, at(0))
    bob.drain(at(0))
    data = SdsMessage(
        sender_id="carol",
        message_id=f"{1:032x}.0",
        channel_id="room",
        lamport_timestamp=at(1).epoch_ms,
        causal_history=[HistoryEntry(f"{send_id}.7", None, "alice")],
        content=b"0/1/1|second",
    ).encode()
    bob.machine.handle_message(data, at(1))
    bob.drain(at(1))
    assert bob.delivered == ["first", "second"]
    assert bob.machine.missing() == ()


def test_nothing_waits_for_an_incomplete_send_that_is_lost_already() -> None:
    alice, bob = Party("alice", sync=quiet_sync()), Party("bob", sync=quiet_sync())
    alice.send("parts", at(0), 3, 3)
    bob.machine.handle_message(alice.drain(at(0))[0].payload, at(0))
    bob.drain(at(0))
    lost_ms = LOGOS.sds.timeout_for_lost_messages_ms
    for moment in (LOGOS.sds.acknowledgement_timeout_ms, lost_ms):
        bob.machine.handle_timeout(at(moment))
    bob.drain(at(lost_ms))
    assert bob.of(DependencyLost) == []
    assert len(bob.machine.missing()) == 2
    alice.send("after", at(lost_ms + 1))
    (after,) = [transmit for transmit in alice.drain(at(lost_ms + 1)) if transmit.kind is TransmitKind.FIRST]
    bob.machine.handle_message(after.payload, at(lost_ms + 1))
    bob.drain(at(lost_ms + 1))
    assert bob.delivered == ["after"]


def test_a_sync_repeats_an_acknowledgement_twice_and_not_what_another_gave() -> None:
    def named_by(bob: Party, message_id: str) -> int:
        syncs = [SdsMessage.decode(sent.payload) for sent in bob.transmitted if sent.kind is TransmitKind.SYNC]
        assert len(syncs) >= 5
        return sum(message_id in {entry.message_id for entry in sync.causal_history} for sync in syncs if sync)

    for others, times in ((("bob",), 3), (("bob", "carol"), None)):
        group = parties("alice", *others, sync=quiet_sync())
        exchange = Exchange(group)
        first = f"{group[0].send('first', at(0))}.0"
        for number in range(1, 9):
            exchange.run(number * 1_500)
            for place in range(3):
                group[0].send(f"m{number}/{place}", at(exchange.now_ms))
        exchange.run(20_000)
        if times is not None:
            assert named_by(group[1], first) == times
        else:
            assert min(sum(first.encode() in t.payload for t in p.transmitted) for p in group[1:]) <= 1


def test_an_ephemeral_message_that_waits_is_taken_back_alone() -> None:
    alice = Party("alice", sync=quiet_sync())
    for number in range(3):
        alice.machine.send_ephemeral(f"{number:032x}", b"m%d" % number)
    assert alice.machine.cancel(f"{1:032x}")
    assert not alice.machine.cancel(f"{1:032x}")
    assert [transmit.send_id for transmit in alice.drain(at(0))] == [f"{0:032x}", f"{2:032x}"]
    assert not alice.machine.cancel(f"{0:032x}")
