"""How participants find out what they lack, and how few of them say so."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Exchange, Party, at, quiet_sync

from shardwire._native import BloomFilter, HistoryEntry, SdsMessage
from shardwire.sds import DependencyLost, Transmit, TransmitKind

SDS = replace(LOGOS.sds, bloom_filter_capacity=500)
# The bound on convergence.
SETTLE_MS = 2 * SDS.repair_t_max_ms


def parties(count: int, **arguments: object) -> list[Party]:
    return [Party(f"p{number}", sds=SDS, **arguments) for number in range(count)]  # type: ignore[arg-type]


def messages_of(transmits: list[Transmit]) -> Iterator[SdsMessage]:
    for transmit in transmits:
        message = SdsMessage.decode(transmit.payload)
        assert message is not None
        yield message


def filters_said(group: list[Party]) -> int:
    return sum(message.bloom_filter is not None for party in group for message in messages_of(party.transmitted))


def filter_of(*message_ids: str) -> bytes:
    bloom_filter = BloomFilter(500)
    bloom_filter.insert_many(message_ids)
    return bloom_filter.to_bytes()


def sync_of(sender: str, number: int, bloom_filter: bytes | None, *named: str) -> bytes:
    return SdsMessage(
        sender_id=sender,
        message_id=f"{sender}-sync-{number}",
        channel_id="room",
        lamport_timestamp=1,
        causal_history=[HistoryEntry(name) for name in named],
        bloom_filter=bloom_filter,
    ).encode()


@pytest.mark.parametrize("seed", range(5))
def test_sides_of_a_healed_partition_have_everything_within_two_repair_periods(seed: int) -> None:
    """No store, and nobody sends after the healing."""
    group = parties(4, seed=seed)
    exchange = Exchange(group, seed=seed)
    for number, party in enumerate(group):
        party.send(f"before {number}", at(0))
    exchange.run(60_000)
    side = {"p0": 0, "p1": 0, "p2": 1, "p3": 1}
    exchange.lose = lambda receiver, transmit: side[receiver] != side[sender_of(transmit)]
    for step in range(20):
        for party in group:
            party.send(f"{party.name} {step}", at(exchange.now_ms))
        exchange.run(exchange.now_ms + 3_000)
    exchange.lose = None
    exchange.run(exchange.now_ms + SETTLE_MS)
    assert {len(party.delivered) for party in group} == {3 + 3 * 20}


def sender_of(transmit: Transmit) -> str:
    """Of what is no repair answer."""
    message = SdsMessage.decode(transmit.payload)
    assert message is not None
    return message.sender_id


def test_at_rest_equal_filters_set_nothing_off() -> None:
    group = parties(5)
    exchange = Exchange(group)
    for number in range(20):
        group[number % 5].send(f"m{number}", at(0))
    exchange.run(300_000)
    before = sum(len(party.transmitted) for party in group)
    exchange.run(300_000 + 1_200_000)
    # The periodic ones are at least 30 s apart; two may fall together.
    assert sum(len(party.transmitted) for party in group) - before <= 40 + 2


def test_what_a_filter_lacks_is_named_at_growing_distances() -> None:
    (alice,) = parties(1, sync=quiet_sync())
    alice.machine.handle_message(sync_of("bob", 0, filter_of("x")), at(0))
    send_id = alice.send("unheard by bob", at(1_000))
    for number in range(SDS.causal_history_size + 1):
        alice.send(f"heard by bob {number}", at(1_000))
    held = [transmit.message_id for transmit in alice.drain(at(1_000)) if transmit.send_id != send_id]
    named_ms = []
    for number in range(720):
        now = at(60_000 + 10_000 * number)
        alice.machine.handle_message(sync_of("bob", number, filter_of("x", *held)), now)
        for step in range(0, 5_000, 500):
            later = at(now.monotonic_ms + step)
            alice.machine.handle_timeout(later)
            for message in messages_of(alice.drain(later)):
                if message.kind == "sync" and any(entry.message_id[:32] == send_id for entry in message.causal_history):
                    named_ms.append(later.monotonic_ms)
    # For two hours the same filter is heard every ten seconds.
    distances = [after - before for before, after in itertools.pairwise(named_ms)]
    assert 5 <= len(named_ms) <= 10
    assert distances[0] >= 30_000
    assert all(after >= 1.7 * before for before, after in itertools.pairwise(distances))


@pytest.mark.parametrize("header_bytes_max", [1_300, 4_000])
def test_what_a_filter_lacks_is_named_where_causal_history_alone_fills_a_sync(header_bytes_max: int) -> None:
    sds = replace(SDS, causal_history_size=200)
    alice = Party("alice", sds=sds, sync=quiet_sync(), header_bytes_max=header_bytes_max)
    alice.machine.handle_message(sync_of("bob", 0, filter_of("x")), at(0))
    unheard = alice.send("unheard by bob", at(1_000))
    for number in range(200):
        alice.send(f"heard by bob {number}", at(1_000))
    held = [transmit.message_id for transmit in alice.drain(at(1_000)) if transmit.send_id != unheard]
    alice.drain(at(30_000))
    alice.machine.handle_message(sync_of("bob", 1, filter_of("x", *held)), at(60_000))
    syncs = []
    for second in range(60, 120):
        alice.machine.handle_timeout(at(1_000 * second))
        left = messages_of(alice.drain(at(1_000 * second)))
        syncs += [message for message in left if message.kind == "sync"]
    assert unheard in {entry.message_id[:32] for entry in syncs[0].causal_history}
    # Nothing is left to say but to the schedule.
    assert len(syncs) <= 2


def test_a_filter_that_holds_more_makes_ours_heard_once_and_not_for_ever() -> None:
    alice, bob = parties(2, sync=quiet_sync())
    bob.send("known", at(0))
    for transmit in bob.drain(at(0)):
        alice.machine.handle_message(transmit.payload, at(0))
    said_ms: list[int] = []
    for second in range(1_800):
        now = at(1_000 * second)
        if second % 30 == 15:
            # What bob's filter has too many is never named, so this difference stays.
            alice.machine.handle_message(sync_of(bob.name, second, filter_of("only bob's")), now)
        alice.machine.handle_timeout(now)
        said_ms += [now.monotonic_ms for message in messages_of(alice.drain(now)) if message.bloom_filter is not None]
    assert 1 <= len(said_ms) <= 5
    assert any(15_000 < moment < 60_000 for moment in said_ms)


def test_a_filter_that_holds_no_more_than_ours_speaks_for_us() -> None:
    """Of many who lack the same, one says its filter."""
    group = parties(12, sync=quiet_sync(), seed=3)
    exchange = Exchange(group)
    group[0].send("first", at(0))
    exchange.run(100_000)
    exchange.lose = lambda receiver, transmit: receiver != "p1"
    for number in range(5):
        group[0].send(f"lost {number}", at(exchange.now_ms))
        exchange.run(exchange.now_ms + 5_000)
    # Those who have them are not heard for now.
    exchange.lose = lambda receiver, transmit: sender_of(transmit) in ("p0", "p1")
    exchange.run(200_000)
    assert {len(party.delivered) for party in group[2:]} == {1}
    before = filters_said(group[2:])
    # p1 has them, so it was acknowledged; its sync names the newest only.
    newest = group[1].machine.ordered_ids()[-1:]
    for party in group[2:]:
        party.machine.handle_message(sync_of("p1", 99, None, *newest), at(exchange.now_ms))
    exchange.run(260_000)
    assert 1 <= filters_said(group[2:]) - before <= 3
    exchange.lose = None
    exchange.run(exchange.now_ms + SETTLE_MS)
    assert {len(party.delivered) for party in group[2:]} == {6}


# --- repair: who answers ------------------------------------------------------------------------


def request_of(message_id: str, number: int = 0) -> bytes:
    return SdsMessage(
        sender_id="carol",
        message_id=f"carol-sync-{number}",
        channel_id="room",
        lamport_timestamp=1,
        causal_history=[],
        repair_request=[HistoryEntry(message_id, None, "alice")],
    ).encode()


def asked_holder() -> tuple[Party, Transmit]:
    """bob, who holds a message of alice, and is asked for it."""
    alice, bob = parties(2, sync=quiet_sync())
    alice.send("wanted", at(0))
    (transmit,) = alice.drain(at(0))
    bob.machine.handle_message(transmit.payload, at(0))
    bob.drain(at(5_000))
    bob.machine.handle_message(request_of(transmit.message_id), at(10_000))
    assert bob.machine.stats()["repair_answers"] == 1
    return bob, transmit


def answers_by(party: Party, until_ms: int) -> int:
    before = party.count(TransmitKind.REPAIR)
    for moment in range(10_000, until_ms, 1_000):
        party.machine.handle_timeout(at(moment))
        party.drain(at(moment))
    return party.count(TransmitKind.REPAIR) - before


def test_an_answer_heard_from_another_cancels_ours_though_the_message_is_known() -> None:
    bob, transmit = asked_holder()
    bob.machine.handle_message(transmit.payload, at(10_000))
    assert answers_by(bob, 200_000) == 0


def test_what_a_store_gave_cancels_no_answer() -> None:
    bob, transmit = asked_holder()
    bob.machine.handle_message(transmit.payload, at(10_000), from_store=True)
    assert answers_by(bob, 200_000) == 1


def test_the_original_sender_does_not_answer_what_another_answered() -> None:
    (alice,) = parties(1, sync=quiet_sync())
    alice.send("wanted", at(0))
    (transmit,) = alice.drain(at(0))
    alice.machine.handle_transmitted(transmit.transmit_id, None, at(0))
    alice.machine.handle_message(request_of(transmit.message_id), at(1_000))
    alice.machine.handle_message(transmit.payload, at(1_000))
    assert [sent.kind for sent in alice.drain(at(1_000))] == []


def test_the_original_sender_answers_at_once() -> None:
    (alice,) = parties(1, sync=quiet_sync())
    alice.send("wanted", at(0))
    (transmit,) = alice.drain(at(0))
    alice.machine.handle_transmitted(transmit.transmit_id, None, at(0))
    alice.machine.handle_message(request_of(transmit.message_id), at(1_000))
    assert [(sent.kind, sent.payload) for sent in alice.drain(at(1_000))] == [(TransmitKind.REPAIR, transmit.payload)]


# --- chorus -------------------------------------------------------------------------------------


def test_few_of_a_large_group_acknowledge_where_one_is_enough() -> None:
    """Delays are up to a fifth of the window in which they draw, so that a uniform draw would let seven speak."""
    group = parties(30, sync=quiet_sync())
    exchange = Exchange(group, delay_ms=(200, 300))
    for party in group:
        party.send(f"hello of {party.name}", at(0))
    # By then everyone knows of everyone, and nothing is repeated any more.
    exchange.run(60_000)
    before = sum(party.count(TransmitKind.SYNC) for party in group)
    for number in range(8):
        group[number].send(f"again {number}", at(exchange.now_ms))
        exchange.run(exchange.now_ms + 10_000)
    assert (sum(party.count(TransmitKind.SYNC) for party in group) - before) / 8 <= 3.5


def test_a_newcomer_goes_on_without_the_past_and_asks_for_all_that_is_named_of_it() -> None:
    past = [HistoryEntry(f"{1:032x}.{ordinal}", None, "alice") for ordinal in range(3)]

    def told(message_id: str, content: bytes | None) -> bytes:
        return SdsMessage(
            sender_id="alice",
            message_id=message_id,
            channel_id="room",
            lamport_timestamp=1,
            causal_history=past,
            content=content,
        ).encode()

    bob = Party("bob", sync=quiet_sync())
    bob.machine.handle_message(told(f"{2:032x}.0", b"0/1/1|hello"), at(0))
    bob.drain(at(0))
    assert bob.delivered == []
    # Lost: it may be older than bob, and nothing brought it in the time of a sender's retries.
    bob.machine.handle_timeout(at(30_000))
    bob.drain(at(30_000))
    assert bob.delivered == ["hello"]
    assert len(bob.of(DependencyLost)) == 1
    assert [entry.message_id for entry in bob.machine.missing()] == [entry.message_id for entry in past]
    bob.machine.handle_message(told("sync-1", None), at(400_000))
    bob.machine.handle_timeout(at(400_000))
    bob.drain(at(400_000))
    assert [entry.message_id for entry in bob.machine.missing()] == [entry.message_id for entry in past]
    assert len(bob.of(DependencyLost)) == 1


def test_what_a_filter_lacks_is_named_once_it_is_settled_and_again_at_growing_distances() -> None:
    """Ten seconds settle it; what did not help is named again after 30 seconds, after 60, and so on."""
    bob = Party("bob", sds=SDS, sync=quiet_sync())
    ids = [f"{number:032x}.0" for number in range(9)]
    for number, message_id in enumerate(ids):
        data = SdsMessage(
            sender_id="alice",
            message_id=message_id,
            channel_id="room",
            lamport_timestamp=at(0).epoch_ms + number,
            content=b"0/1/1|m%d" % number,
        )
        bob.machine.handle_message(data.encode(), at(0))
        bob.drain(at(0))

    def named_at(*moments: int) -> list[int]:
        """When bob names the third message, after carol's filter without it came at each of these."""
        named = []
        for number, moment in enumerate(moments):
            until_ms = moments[number + 1] if number + 1 < len(moments) else moment + 2_000
            bob.machine.handle_message(sync_of("carol", moment, filter_of(*ids[:2], *ids[3:])), at(moment))
            now_ms: int | None = moment
            while now_ms is not None and now_ms < until_ms:
                bob.machine.handle_timeout(at(now_ms))
                for sync in messages_of(bob.drain(at(now_ms))):
                    named += [now_ms for entry in sync.causal_history if entry.message_id == ids[2]]
                now_ms = bob.machine.poll_timeout()
        return named

    # What came is acknowledged meanwhile.
    assert named_at(2_000)
    bob.drain(at(10_000))
    assert named_at(15_000, 19_999) == []
    (first_ms,) = named_at(20_000)
    (second_ms,) = named_at(first_ms + 29_999, first_ms + 30_000)
    assert second_ms >= first_ms + 30_000
    (third_ms,) = named_at(second_ms + 59_999, second_ms + 60_000)
    assert third_ms >= second_ms + 60_000
    assert named_at(third_ms + 119_999) == []


@pytest.mark.parametrize(
    ("by_sync", "from_store", "named"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_only_the_filter_of_a_sync_that_is_heard_shows_what_its_sender_lacks(
    by_sync: bool, from_store: bool, named: bool
) -> None:
    """One out of a store is of long ago, and a content left before what its sender received meanwhile."""
    bob = Party("bob", sds=SDS, sync=quiet_sync())
    ids = [f"{number:032x}.0" for number in range(9)]
    for message_id in ids:
        bob.machine.handle_message(hears(message_id), at(0))
        bob.drain(at(0))
    for now_ms in (2_000, 10_000, 15_000):
        bob.machine.handle_message(sync_of("carol", now_ms, filter_of(*ids)), at(now_ms))
        bob.machine.handle_timeout(at(now_ms))
        bob.drain(at(now_ms))
    bob.transmitted.clear()
    lacking = filter_of(*ids[:2], *ids[3:])
    data = sync_of("carol", 30_000, lacking) if by_sync else hears(f"{99:032x}.0", "carol", lacking)
    bob.machine.handle_message(data, at(30_000), from_store=from_store)
    for now_ms in range(30_000, 33_000, 100):
        bob.machine.handle_timeout(at(now_ms))
        bob.drain(at(now_ms))
    histories = [entry.message_id for sync in messages_of(bob.transmitted) for entry in sync.causal_history]
    assert (histories.count(ids[2]) > histories.count(ids[3])) is named


def hears(message_id: str, sender: str = "alice", bloom_filter: bytes | None = None) -> bytes:
    return SdsMessage(
        sender_id=sender,
        message_id=message_id,
        channel_id="room",
        lamport_timestamp=at(0).epoch_ms + int(message_id[:32], 16),
        bloom_filter=bloom_filter,
        content=f"0/1/1|{message_id}".encode(),
    ).encode()


def test_who_lacks_the_only_message_there_is_hears_of_it() -> None:
    """A filter that holds none of several is no member's; one that lacks a single message may be."""
    bob = Party("bob", sds=SDS, sync=quiet_sync())
    only = f"{1:032x}.0"
    bob.machine.handle_message(hears(only), at(0))
    bob.drain(at(0))
    for now_ms in (2_000, 10_000, 15_000):
        bob.machine.handle_message(sync_of("carol", now_ms, filter_of(only)), at(now_ms))
        bob.machine.handle_timeout(at(now_ms))
        bob.drain(at(now_ms))
    bob.transmitted.clear()
    bob.machine.handle_message(sync_of("carol", 30_000, filter_of()), at(30_000))
    for now_ms in range(30_000, 33_000, 100):
        bob.machine.handle_timeout(at(now_ms))
        bob.drain(at(now_ms))
    histories = [entry.message_id for sync in messages_of(bob.transmitted) for entry in sync.causal_history]
    assert histories == [only]
