"""The native short ways of the SDS machine do what its Python does: else equal worlds stay the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from sds_exchange import LOGOS, Exchange, Party, at, hint_of

from shardwire._native import BloomFilter, HistoryEntry, SdsMessage
from shardwire.config import DeliveredWhen, SdsConfig
from shardwire.sds import MessageChannel, Now, SendReleased, Transmit, TransmitKind

NAMES = ("alice", "bob", "carol")
SMALL = replace(
    LOGOS.sds,
    max_retransmissions=4,
    timeout_for_lost_messages_ms=40_000,
    repair_t_min_ms=2_000,
    repair_t_max_ms=20_000,
    incoming_buffer_messages_max=24,
    outgoing_buffer_messages_max=16,
    missing_messages_max=12,
    log_messages_max=40,
    bloom_filter_capacity=30,
)


class General:
    """Every short way refused, so that all is done in Python."""

    def __init__(self, machine: MessageChannel) -> None:
        self._machine = machine
        # It frees what it registered when it goes.
        self._outlet = machine.outlet

    def refuse(self, *_: object) -> None:
        return None

    register = dispatch = transmitted = take = release = refuse

    def acknowledge(self, message_ids: Iterable[str], by: str) -> None:
        outgoing = self._machine.outgoing
        for message_id in message_ids:
            if message_id in outgoing.by_id:
                outgoing.acknowledge(outgoing.by_id[message_id], by)


class GeneralParty(Party):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        machine: Any = self.machine
        machine.outlet = machine.intake = general = General(self.machine)
        machine._reception._acknowledge = general.acknowledge


def forged(rng: random.Random, known: list[str], sds: SdsConfig, now: Now) -> bytes:
    """A message of nobody: claimed send ids, clocks that are ahead, histories and filters of all kinds."""

    def some_id() -> str:
        send_id = rng.choice(known) if known and rng.random() < 0.2 else f"{rng.randrange(60):032x}"
        return rng.choice([f"{send_id}.0", f"{send_id}.0", f"{send_id}.1"])

    def some_entry() -> HistoryEntry:
        hint = rng.choice([None, b"", b"h" * 32, b"i" * 32, b"l" * 300])
        sender_id = rng.choice([None, "", "mallory", "alice", "zo\u00eb", "l" * 300])
        return HistoryEntry(rng.choice([some_id(), some_id(), "no place"]), hint, sender_id)

    bloom = BloomFilter(sds.bloom_filter_capacity, sds.bloom_filter_error_rate, sds.wire_format)
    bloom.insert_many([f"{send_id}.0" for send_id in known])
    history = [some_entry() for _ in range(rng.choice([0, 1, 2, 4, 4, 700]))]
    return SdsMessage(
        sender_id=rng.choice(["mallory", "mallory", "zo\u00eb", "alice"]),
        message_id=some_id(),
        channel_id=rng.choice(["room", "room", "room", "hall"]),
        lamport_timestamp=max(0, now.epoch_ms // (1000 if sds.wire_format == "nim" else 1) + rng.choice([0, 9, 10**7])),
        causal_history=history,
        bloom_filter=rng.choice([None, None, bloom.to_bytes()]),
        repair_request=[some_entry()] if sds.enable_repair and rng.random() < 0.1 else [],
        content=f"{rng.choice(['0/1/1', '0/1/1', '0/2/3'])}|forged {rng.random()}".encode(),
    ).encode(sds.wire_format)


def steps(exchange: Exchange, rng: random.Random, intruded: bool) -> None:
    """A life of bursts, failures, cancelled sends, silence, noise, forgeries and crashes."""
    known: list[str] = []
    for step in range(60):
        party = rng.choice(exchange.parties)
        now = at(exchange.now_ms)
        what = rng.random()
        if what < 0.45:
            sent = []
            for number in range(rng.choice([1, 1, 2, 9])):
                needed, count = rng.choice([(1, 1), (1, 1), (1, 1), (2, 3)])
                sent.append(party.send(f"m{step}.{number}", now, needed, count))
            known += sent
            if rng.random() < 0.2:
                party.machine.cancel(rng.choice(sent), now)
        elif what < 0.55:
            fail(party, known if intruded else [], now, rng)
        elif what < 0.65:
            party.machine.handle_message(rng.choice(NAMES).encode(), now)
            for _ in range(rng.choice([1, 1, 3, 20]) if intruded else 0):
                party.machine.handle_message(forged(rng, known, party.sds, now), now, b"hint", from_store=False)
        elif what < 0.7:
            exchange.replace_party(party.restarted(now, step))
        elif what < 0.8:
            exchange.loss, exchange.duplicate = rng.choice([(0.0, 0.0), (0.3, 0.2), (0.6, 0.0)])
        exchange.flush(exchange.party(party.name))
        exchange.run(exchange.now_ms + rng.choice([0, 3, 40, 700, 5_000, 40_000]))


def taken_ids(taken: list[Transmit]) -> list[str]:
    return [transmit.send_id for transmit in taken if transmit.send_id is not None]


def fail(party: Party, known: list[str], now: Now, rng: random.Random) -> None:
    """Some of what would leave fails, some is answered with another hint, and late."""
    party.send(f"failing {party.sends}", now)
    taken: list[Transmit] = []
    while (transmit := party.machine.poll_transmit(now, {TransmitKind.FIRST, TransmitKind.FURTHER})) is not None:
        taken.append(transmit)
    rng.shuffle(taken)
    if known:
        for _ in range(4):
            party.machine.handle_message(forged(rng, known + taken_ids(taken), party.sds, now), now)
    for transmit in taken:
        if rng.random() < 0.5:
            party.machine.handle_transmit_failed(transmit.transmit_id, now)
        else:
            party.machine.handle_transmitted(transmit.transmit_id, hint_of(transmit.payload), now)


def life(make: Callable[..., Party], seed: int, sds: SdsConfig, delivered_when: DeliveredWhen) -> list[object]:
    """All that comes out of a world, and what is held at its end."""
    sync = replace(LOGOS.sync, sweep_in_buf_interval_ms=500 if seed == 5 else 0)
    parties = [make(name, seed=seed, sds=sds, sync=sync, delivered_when=delivered_when) for name in NAMES]
    exchange = Exchange(parties, seed=seed, delay_ms=(1, 300), loss=0.3 if seed % 2 else 0.0)
    steps(exchange, random.Random(seed), seed % 2 == 1)
    exchange.loss = exchange.duplicate = 0.0
    exchange.run(exchange.now_ms + 200_000)
    out: list[object] = [exchange.bytes_sent, exchange.messages_sent]
    for party in exchange.parties:
        machine = party.machine
        out += [party.transmitted, party.events, party.delivered, party.records]
        out += [machine.stats(), machine.log.ordered_ids(), machine.bloom.filter.to_bytes(), machine.poll_timeout()]
        out += [machine.lamport_timestamp, list(machine.heads.by_key), machine.pending_sends(), machine.waiting()]
    return out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sds", [LOGOS.sds, SMALL, replace(SMALL, wire_format="nim", enable_repair=False)])
def test_worlds_are_the_same_with_and_without_the_short_ways(seed: int, sds: SdsConfig) -> None:
    delivered_when: DeliveredWhen = ("any", 2, frozenset({"bob", "carol"}))[seed % 3]
    short, general = (life(make, seed, sds, delivered_when) for make in (Party, GeneralParty))
    for one, other in zip(short, general, strict=True):
        assert one == other


Make = Callable[..., Party]
both_ways = pytest.mark.parametrize("make", [Party, GeneralParty])


def hear(party: Party, sender_id: str, message_id: str, monotonic_ms: int, named: Iterable[str], text: str) -> None:
    """`party` receives a content that names others, and does all that follows."""
    message = SdsMessage(
        sender_id=sender_id,
        message_id=message_id,
        channel_id="room",
        lamport_timestamp=at(monotonic_ms).epoch_ms,
        causal_history=[HistoryEntry(name) for name in named],
        content=text.encode(),
    )
    party.machine.handle_message(message.encode(), at(monotonic_ms))
    party.drain(at(monotonic_ms))


@both_ways
def test_a_send_that_finds_nothing_unsaid_ends_the_wait_for_an_acknowledgement_sync(make: Make) -> None:
    bob = make("bob")
    for text in ("first", "second, with the filter"):
        bob.send(text, at(0))
        bob.drain(at(0))
    bob.machine.acknowledgements.draw(at(10))
    assert bob.machine.acknowledgements.due_ms is not None
    bob.send("own", at(20))
    assert bob.machine.poll_transmit(at(20)) is not None
    assert bob.machine.acknowledgements.due_ms is None


@both_ways
def test_a_send_id_that_two_senders_claim_is_released_for_the_one_who_completed_it(make: Make) -> None:
    bob = make("bob")
    claimed = "c" * 32
    hear(bob, "mallory", f"{claimed}.0", 0, [], "0/2/3|partial")
    hear(bob, "zoe", f"{claimed}.1", 10, [], "0/1/1|whole")
    assert bob.of(SendReleased) == [SendReleased("zoe", claimed)]


@both_ways
def test_a_claimed_send_that_waited_becomes_a_head_under_its_own_id(make: Make) -> None:
    bob = make("bob")
    claimed, cause = "c" * 32, "d" * 32
    hear(bob, "carol", f"{'e' * 32}.0", 0, [], "0/1/1|first")
    hear(bob, "mallory", f"{claimed}.0", 10, [f"{'e' * 32}.0"], "0/2/3|partial")
    hear(bob, "carol", f"{'f' * 32}.0", 20, [f"{'e' * 32}.0", f"{cause}.0"], "0/1/1|names the cause")
    hear(bob, "zoe", f"{claimed}.1", 30, [f"{'f' * 32}.0", f"{cause}.0"], "0/1/1|whole")
    assert bob.delivered == ["first"]
    hear(bob, "carol", f"{cause}.0", 40, [f"{'e' * 32}.0"], "0/1/1|cause")
    assert bob.delivered == ["first", "cause", "names the cause", "whole"]
    assert list(bob.machine.heads.by_key) == [claimed]


@both_ways
def test_what_came_of_a_send_from_before_the_first_receipt_is_waited_for_no_longer(make: Make) -> None:
    bob = make("bob")
    first, second = "a" * 32, "b" * 32
    hear(bob, "alice", f"{second}.0", 0, [f"{first}.0"], "0/1/1|second")
    assert bob.machine.incoming.gaps.next_deadline() is not None
    hear(bob, "alice", f"{first}.0", 10, [], "0/1/1|first")
    assert bob.delivered == ["first", "second"]
    assert bob.machine.incoming.gaps.next_deadline() is None
