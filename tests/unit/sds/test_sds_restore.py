"""A machine restored from its records goes on as the one that wrote them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Exchange, Party, at, hint_of, quiet_sync

from shardwire._native import SdsMessage
from shardwire.sds import ContentAcknowledged, SendAcknowledged, SenderIdConflict, TransmitKind

CONTENT_KINDS = frozenset({TransmitKind.FIRST, TransmitKind.FURTHER})


def busy_exchange(seed: int, loss: float = 0.3) -> Exchange:
    group = [Party(name, seed=seed, delivered_when=2) for name in ("alice", "bob", "carol")]
    exchange = Exchange(group, seed=seed, loss=loss, duplicate=0.1, delay_ms=(5, 400))
    rng = random.Random(seed)
    for step in range(40):
        needed, count = rng.choice([(1, 1), (4, 6)])
        rng.choice(group).send(f"m{step}", at(exchange.now_ms), needed, count)
        exchange.run(exchange.now_ms + rng.randint(0, 900))
    return exchange


@pytest.mark.parametrize("seed", range(6))
def test_restored_machine_gives_the_same_bytes_for_the_same_input(seed: int) -> None:
    exchange = busy_exchange(seed)
    bob = exchange.party("bob")
    now = at(exchange.now_ms)
    bob.drain(now)
    twin = bob.restarted(now)
    foreign = exchange.party("carol")
    foreign.send("foreign", now)
    payloads = [transmit.payload for transmit in foreign.drain(now) if transmit.kind in CONTENT_KINDS]
    out = []
    for party in (bob, twin):
        machine = party.machine
        encoded = []
        party.send("first", now, 2, 3)
        while (transmit := machine.poll_transmit(now, CONTENT_KINDS)) is not None:
            encoded.append(transmit.payload)
        for payload in payloads:
            machine.handle_message(payload, now, hint_of(payload))
        party.send("second", now)
        while (transmit := machine.poll_transmit(now, CONTENT_KINDS)) is not None:
            encoded.append(transmit.payload)
        events = []
        while (event := machine.poll_event()) is not None:
            events.append(event)
        for name, value in machine.poll_persist().items():
            if value is None:
                party.records.pop(name, None)
            else:
                party.records[name] = value
        missing = sorted(entry.message_id for entry in machine.missing())
        held = machine.inspect()
        # Timers restart.
        held["sync_due_ms"] = None
        held["repair_requests"] = dict.fromkeys(held["repair_requests"], 0)
        out.append((encoded, events, missing, held))
    assert out[0] == out[1]
    assert bob.records == twin.records


@pytest.mark.parametrize("seed", range(6))
def test_crashes_lose_and_repeat_nothing(seed: int) -> None:
    rng = random.Random(seed)
    sds = replace(LOGOS.sds, max_retransmissions=12)
    exchange = Exchange(
        [Party(name, seed=seed, sds=sds, delivered_when=2) for name in ("alice", "bob", "carol")],
        seed=seed,
        loss=0.2,
        delay_ms=(5, 400),
    )
    said: dict[str, str] = {}
    for step in range(40):
        party = rng.choice(exchange.parties)
        text = f"m{step}"
        said[text] = party.name
        needed, count = rng.choice([(1, 1), (3, 4)])
        party.send(text, at(exchange.now_ms), needed, count)
        exchange.run(exchange.now_ms + rng.randint(0, 900))
        if rng.random() < 0.3:
            crashed = rng.choice(exchange.parties)
            exchange.replace_party(crashed.restarted(at(exchange.now_ms), seed=step + 100))
    exchange.run(exchange.now_ms + 900_000)
    for party in exchange.parties:
        own = {text for text, by in said.items() if by == party.name}
        assert sorted(party.delivered) == sorted(set(said) - own)
        assert party.machine.pending_sends() == ()


def test_queue_attempts_and_acknowledgements_survive() -> None:
    alice, bob = Party("alice", sync=quiet_sync(), delivered_when=2), Party("bob", sync=quiet_sync())
    exchange = Exchange([alice, bob], lose=lambda name, transmit: transmit.ordinal == 1)
    send_id = alice.send("large", at(0), needed=2, count=2)
    exchange.run(12_000)
    attempts = alice.count(TransmitKind.RETRANSMISSION)
    assert attempts >= 2
    queued = alice.send("queued", at(12_000))
    for name, value in alice.machine.poll_persist().items():
        alice.records.pop(name, None) if value is None else alice.records.update({name: value})
    again = alice.restarted(at(12_000))
    assert again.machine.pending_sends() == (send_id, queued)
    assert again.machine.stats()["outgoing_queued"] == 1
    assert again.machine.lamport_timestamp >= alice.machine.lamport_timestamp
    exchange.replace_party(again)
    exchange.lose = None
    exchange.run(60_000)
    assert bob.delivered == ["large", "queued"]
    numbers = [transmit.attempt for transmit in again.transmitted if transmit.message_id == f"{send_id}.1"]
    assert numbers[0] > 1
    # Bob's acknowledgement of content 0 came before the crash: it is not told twice.
    told = [event for event in again.of(ContentAcknowledged) if event.message_id == f"{send_id}.0"]  # type: ignore[attr-defined]
    assert told == []
    assert SendAcknowledged(send_id, "bob") in again.events


def test_lamport_goes_on_above_what_was_sent() -> None:
    alice = Party("alice", sync=quiet_sync())
    alice.send("one", at(0))
    (first,) = alice.drain(at(0))
    sent = SdsMessage.decode(first.payload)
    # The clock stepped back while it was down.
    again = alice.restarted(at(0))
    again.send("two", at(0))
    second = SdsMessage.decode(again.drain(at(0))[0].payload)
    assert sent is not None
    assert second is not None
    assert (second.lamport_timestamp or 0) > (sent.lamport_timestamp or 0)


def test_unreadable_records_are_counted_and_passed_over() -> None:
    exchange = busy_exchange(3)
    bob = exchange.party("bob")
    rng = random.Random(5)
    now = at(exchange.now_ms)
    assert bob.restarted(now).machine.stats()["records_unreadable"] == 0
    for _ in range(200):
        records = dict(bob.records)
        # Of these each is read by itself.
        damaged = rng.sample(sorted(name for name in records if name[0] in ("sds.log", "sds.incoming")), 5)
        for name in damaged:
            value = bytearray(records[name])
            if rng.random() < 0.7:
                value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
            else:
                value = value[: rng.randrange(len(value))]
            records[name] = bytes(value)
        other = Party("bob", now=now, records=records)
        assert other.machine.stats()["records_unreadable"] == len(damaged)
        other.machine.poll_persist()
        other.machine.handle_timeout(at(exchange.now_ms + 1_000_000))


def test_damage_anywhere_raises_nothing() -> None:
    exchange = busy_exchange(3)
    bob = exchange.party("bob")
    rng = random.Random(5)
    for _ in range(200):
        records = dict(bob.records)
        for name in rng.sample(sorted(records), 5):
            value = bytearray(records[name])
            if value and rng.random() < 0.7:
                value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
            else:
                value = value[: rng.randrange(len(value) + 1)]
            records[name] = bytes(value)
        other = Party("bob", now=at(exchange.now_ms), records=records)
        other.machine.poll_persist()
        other.machine.handle_timeout(at(exchange.now_ms + 1_000_000))


def test_a_restart_knows_exactly_what_was_acknowledged() -> None:
    """A content message names what is delivered, not the part of a send that is still incomplete."""
    alice, bob = Party("alice", sync=quiet_sync()), Party("bob", sync=quiet_sync())
    alice.send("parts", at(0), 2, 2)
    part = alice.drain(at(0))[0]
    carol = Party("carol", sync=quiet_sync())
    carol.send("whole", at(0))
    (whole,) = carol.drain(at(0))
    for transmit in (part, whole):
        bob.machine.handle_message(transmit.payload, at(0))
    bob.drain(at(0))
    bob.send("mine", at(1))
    bob.drain(at(1))
    for party in (bob, bob.restarted(at(2))):
        assert party.machine.inspect()["unsaid"] == (part.message_id,)


def test_a_send_cut_by_a_restart_goes_on_where_it_was() -> None:
    alice = Party("alice", sync=quiet_sync())
    send_id = alice.send("parts", at(0), 2, 2)
    alice.records.update({k: v for k, v in alice.machine.poll_persist().items() if v is not None})
    assert {("sds.content", f"{send_id}.{part}".encode()) for part in (0, 1)} <= alice.records.keys()
    first = alice.machine.poll_transmit(at(0))
    alice.records.update(alice.machine.poll_persist())  # type: ignore[arg-type]
    assert alice.records["sds.content", f"{send_id}.0".encode()] is None
    alice.records = {name: value for name, value in alice.records.items() if value is not None}
    again = alice.restarted(at(1))
    (second,) = again.drain(at(1))
    assert first is not None
    assert (first.kind, second.kind) == (TransmitKind.FIRST, TransmitKind.FURTHER)
    again.send("after", at(2))
    (after,) = again.drain(at(2))
    decoded = SdsMessage.decode(after.payload)
    assert decoded is not None
    assert second.message_id in {entry.message_id for entry in decoded.causal_history}


@pytest.mark.parametrize("from_store", [True, False])
def test_our_own_past_of_which_no_state_was_kept_is_no_twin(from_store: bool) -> None:
    earlier = Party("alice", seed=1)
    earlier.send("old", at(1_000))
    old = earlier.drain(at(1_000)) + earlier.drain(at(61_000))
    assert {transmit.kind for transmit in old} >= {TransmitKind.FIRST, TransmitKind.SYNC}
    alice = Party("alice", seed=2, now=at(70_000))
    for transmit in old:
        alice.machine.handle_message(transmit.payload, at(71_000), from_store=from_store)
    alice.drain(at(71_000))
    assert alice.of(SenderIdConflict) == []
    twin = Party("alice", seed=3)
    twin.send("new", at(80_000))
    (transmit,) = twin.drain(at(80_000))
    alice.machine.handle_message(transmit.payload, at(80_000))
    alice.drain(at(80_000))
    assert alice.of(SenderIdConflict) == [SenderIdConflict(transmit.message_id)]


@pytest.mark.parametrize(("away_ms", "says_it"), [(1_000, False), (300_000, True)])
def test_who_was_away_says_its_filter_with_the_first_sync(away_ms: int, says_it: bool) -> None:
    """So that the others name what it lacks; who crashes again and again says it once an interval."""
    sds = replace(LOGOS.sds, bloom_interval_ms=120_000)
    exchange = Exchange([Party(name, sds=sds) for name in ("alice", "bob")])
    exchange.party("alice").send("before", at(0))
    exchange.run(20_000)
    back_ms = exchange.now_ms + away_ms
    bob = exchange.party("bob").restarted(at(back_ms))
    due_ms = bob.machine.inspect()["sync_due_ms"]
    assert due_ms is not None
    # The channel is silent meanwhile.
    bob.machine.handle_timeout(at(due_ms))
    syncs = [transmit for transmit in bob.drain(at(due_ms)) if transmit.kind is TransmitKind.SYNC]
    assert [SdsMessage.decode(sync.payload).bloom_filter is not None for sync in syncs[:1]] == [says_it]


def test_records_of_messages_that_came_in_part_stand_in_the_order_of_their_last_changes() -> None:
    alice, bob = Party("alice"), Party("bob")
    for label in ("a", "b", "c"):
        alice.send(label, at(0), 3, 3)
    by_send: dict[str, list[bytes]] = {}
    for transmit in alice.drain(at(0)):
        by_send.setdefault(transmit.send_id or "", []).append(transmit.payload)
    first, second, third = by_send.values()
    for payload in (first[0], second[0], third[0], first[1]):
        bob.machine.handle_message(payload, at(1))
    kept = [key.decode() for kind, key in bob.machine.poll_persist() if kind == "sds.incoming"]
    assert kept == [list(by_send)[place] for place in (1, 2, 0)]
    assert bob.machine.poll_persist() == {}
