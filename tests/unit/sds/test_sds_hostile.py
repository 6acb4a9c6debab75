"""Bytes from an enemy: no exception, and every limit holds."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from sds_exchange import LOGOS, Exchange, Party, at, hear, hint_of, message, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage, sds_limits
from shardwire.config import SdsConfig, SyncConfig
from shardwire.errors import ConfigError
from shardwire.sds import (
    ContentReceived,
    EphemeralReceived,
    MessageChannel,
    MessageDropped,
    SendAcknowledged,
    SenderIdConflict,
    SendReleased,
    TransmitKind,
)

LIMITS = sds_limits()
SMALL = replace(
    LOGOS.sds,
    incoming_buffer_messages_max=50,
    missing_messages_max=60,
    log_messages_max=100,
    outgoing_buffer_messages_max=8,
)


def test_random_and_mutated_bytes_raise_nothing() -> None:
    rng = random.Random(1)
    alice, bob = Party("alice"), Party("bob")
    exchange = Exchange([alice, bob], loss=0.3)
    for number in range(20):
        rng.choice([alice, bob]).send(f"m{number}", at(exchange.now_ms), 2, 3)
        exchange.run(exchange.now_ms + 500)
    seen = [transmit.payload for transmit in alice.transmitted + bob.transmitted]
    victim = Party("carol", sds=SMALL)
    for step in range(3_000):
        if rng.random() < 0.2:
            data = rng.randbytes(rng.randrange(200))
        else:
            mutated = bytearray(rng.choice(seen))
            for _ in range(rng.randrange(1, 6)):
                mutated[rng.randrange(len(mutated))] = rng.randrange(256)
            data = bytes(mutated[: rng.randrange(len(mutated) + 1)] if rng.random() < 0.2 else mutated)
        victim.machine.handle_message(data, at(step), rng.choice([None, b"", rng.randbytes(32), bytes(1_000)]))
        while (event := victim.machine.poll_event()) is not None:
            if isinstance(event, ContentReceived):
                victim.machine.handle_content_placed(
                    event.message_id, event.send_id or event.message_id, 0, 1, 1, at(step)
                )
                victim.machine.handle_send_reconstructed(
                    event.sender_id, event.send_id or event.message_id, 1, at(step)
                )
        while victim.machine.poll_transmit(at(step)) is not None:
            pass
        victim.machine.poll_persist()
        victim.machine.handle_timeout(at(step))
        stats = victim.machine.stats()
        assert stats["log"] <= 100 + 50
        assert stats["incoming_contents"] <= 50
        assert stats["missing"] <= 60
        assert stats["lost"] <= 60


def test_a_history_of_a_hundred_thousand_entries_is_bounded() -> None:
    bob = Party("bob")
    history = [HistoryEntry(f"{number:032x}.0") for number in range(1, 100_001)]
    hear(bob, message(0, history=history))
    stats = bob.machine.stats()
    assert stats["missing"] == LIMITS["UNKNOWN_PER_MESSAGE_MAX"]
    assert stats["incoming_contents"] == 1
    for sync in range(1, 30):
        hear(bob, message(0, message_id=f"sync-{sync}", content=None, history=history[sync * 900 : sync * 900 + 1_000]))
    assert bob.machine.stats()["missing"] <= LOGOS.sds.missing_messages_max


def test_what_a_full_table_forgot_is_asked_for_when_it_is_named_again() -> None:
    bob = Party("bob", sds=SMALL)
    hear(bob, message(0, sender="carol"))
    named = [HistoryEntry(f"{number:032x}.0") for number in range(1, 76)]
    hear(bob, message(0, sender="carol", message_id="sync-1", content=None, history=named))
    assert [entry.message_id for entry in bob.machine.missing()] == [entry.message_id for entry in named[15:]]
    for number in range(16, 76):
        hear(bob, message(number, sender="carol"))
    # Want of room is no loss: a content waits for what it names of these.
    hear(bob, message(100, sender="carol", content=b"0/1/1|after", history=named[:1]))
    assert bob.machine.missing() == (named[0],)
    assert "after" not in bob.delivered
    hear(bob, message(1, sender="carol"))
    assert bob.delivered[-1] == "after"


def test_a_long_history_keeps_no_memory_in_a_message_that_waits() -> None:
    """The work is bounded too: of 100,000 requests only the first ones cost more than being decoded."""
    bob = Party("bob")
    known_count = 2 * LIMITS["REQUESTS_HEARD_MAX"]
    for number in range(known_count):
        hear(bob, message(number, content=b"0/1/1|m%d" % number))
    known = [HistoryEntry(f"{number:032x}.0") for number in range(known_count)]
    history = [HistoryEntry(f"{number:032x}.0") for number in range(1_000, 101_000)]
    hear(bob, message(999, content=b"0/2/2|part", history=history, requests=known * 100))
    assert bob.machine.stats()["repair_answers"] == LIMITS["REQUESTS_HEARD_MAX"]
    assert bob.machine.stats()["missing"] == LIMITS["UNKNOWN_PER_MESSAGE_MAX"]
    assert sum(len(value) for (kind, _), value in bob.records.items() if kind == "sds.incoming") < 200_000


def test_one_sender_that_forges_many_stays_within_every_limit() -> None:
    """Each message under another name, naming others' ids, asking for repairs and saying false filters."""
    bob = Party("bob", sds=SMALL)
    for number in range(1, 600):
        forged = f"user{number}"
        history = [HistoryEntry(f"{number * 50 + place:032x}.0", bytes(32), f"user{place}") for place in range(30)]
        data = message(
            number, sender=forged, content=b"0/2/2|x", history=history, requests=history, bloom=bytes([255]) * 18_752
        )
        hear(bob, data, number)
        hear(bob, message(0, sender=forged, message_id=f"s{number}", content=None, history=history), number)
    stats = bob.machine.stats()
    assert stats["missing"] <= SMALL.missing_messages_max
    assert stats["lost"] <= SMALL.missing_messages_max
    assert stats["incoming_contents"] <= SMALL.incoming_buffer_messages_max
    assert stats["repair_requests"] <= SMALL.missing_messages_max
    assert stats["incoming_sends"] <= SMALL.incoming_buffer_messages_max + SMALL.missing_messages_max
    assert stats["log"] <= SMALL.log_messages_max + SMALL.incoming_buffer_messages_max
    assert bob.machine.stats()["unsaid_acknowledgements"] <= stats["log"]


def test_ids_of_a_megabyte_are_dropped() -> None:
    bob = Party("bob")
    hear(bob, message(0, message_id="x" * (1 << 20)))
    hear(bob, message(1, sender="y" * (1 << 20)))
    assert bob.of(MessageDropped) == [MessageDropped("over-limit")] * 2
    hear(bob, message(2, history=[HistoryEntry("z" * (1 << 20)), HistoryEntry("a", bytes(1 << 20), "b" * (1 << 20))]))
    (entry,) = bob.machine.missing()
    assert entry == HistoryEntry("a")
    hear(bob, message(3, message_id="i" * LIMITS["MESSAGE_ID_BYTES_MAX"]))
    hear(bob, message(4, message_id="i" * (LIMITS["MESSAGE_ID_BYTES_MAX"] + 1)))
    assert bob.of(MessageDropped)[-1:] == [MessageDropped("over-limit")]
    assert len(bob.of(ContentReceived)) == 2


def test_one_flooding_sender_loses_its_own_entries_first() -> None:
    bob = Party("bob", sds=SMALL)
    honest = HistoryEntry(f"{7:032x}.0", bytes(32), "alice")
    hear(bob, message(1, sender="alice", history=[honest]))
    for number in range(2, 40):
        flood = [HistoryEntry(f"{number * 1000 + place:032x}.0") for place in range(20)]
        hear(bob, message(number, message_id=f"sync-{number}", content=None, history=flood))
    assert honest in bob.machine.missing()
    assert bob.machine.stats()["missing"] == 60


def test_a_full_incoming_buffer_lets_the_oldest_go_and_loses_nothing() -> None:
    bob = Party("bob", sds=SMALL)
    for number in range(1, 80):
        cause = [HistoryEntry(f"{number + 5000:032x}.0", None, "alice")]
        hear(bob, message(number, sender="alice", content=b"0/1/1|m%d" % number, history=cause))
    assert bob.delivered == [f"m{number}" for number in range(1, 30)]
    assert bob.machine.stats()["incoming_contents"] == 50


def test_incomplete_sends_that_fill_the_buffer_are_not_acknowledged_beyond_it() -> None:
    bob = Party("bob", sds=SMALL)
    for number in range(1, 80):
        hear(bob, message(number, content=b"0/2/2|m%d" % number))
    assert len(bob.of(ContentReceived)) == 50
    assert bob.of(MessageDropped) == [MessageDropped("over-limit")] * 29
    assert bob.machine.stats()["unsaid_acknowledgements"] <= 50


def test_histories_that_name_each_other_do_not_wait_for_ever() -> None:
    bob = Party("bob", sync=quiet_sync())
    one, two = f"{1:032x}.0", f"{2:032x}.0"
    hear(bob, message(1, content=b"0/1/1|one", history=[HistoryEntry(two)]))
    hear(bob, message(2, content=b"0/1/1|two", history=[HistoryEntry(one)]))
    assert bob.delivered == []
    bob.machine.handle_timeout(at(2 * LOGOS.sds.timeout_for_lost_messages_ms))
    bob.drain(at(2 * LOGOS.sds.timeout_for_lost_messages_ms))
    assert sorted(bob.delivered) == ["one", "two"]


def test_a_repair_flood_is_bounded() -> None:
    bob = Party("bob")
    for number in range(1, 2_001):
        hear(bob, message(number, content=b"0/1/1|m%d" % number))
    for start in range(0, 2_000, 100):
        wanted = [HistoryEntry(f"{number:032x}.0", None, "carol") for number in range(start + 1, start + 101)]
        hear(bob, message(0, message_id=f"sync-{start}", content=None, requests=wanted, sender="eve"))
    assert bob.machine.stats()["repair_answers"] <= LIMITS["REPAIR_BUFFER_MAX"]
    history = [HistoryEntry(f"{number:032x}.0", None, "carol") for number in range(10_000, 20_000)]
    for start in range(0, 10_000, 1_000):
        hear(bob, message(0, message_id=f"s-{start}", content=None, history=history[start : start + 1_000]))
    bob.machine.handle_timeout(at(119_000))
    assert bob.machine.stats()["repair_requests"] <= LIMITS["REPAIR_BUFFER_MAX"]


def test_original_bytes_are_bounded() -> None:
    most = SdsConfig().log_bytes_max
    bob = Party("bob")
    for number in range(40):
        hear(bob, message(number, content=b"0/1/1|%d|" % number + bytes(1 << 20)))
    kept = bob.machine.inspect()["originals"]
    held = sum(len(bob.records["sds.message", name.encode()]) for name in kept)
    assert held == bob.machine.stats()["original_bytes"] <= most
    assert f"{39:032x}.0" in kept
    assert f"{0:032x}.0" not in kept


def test_forged_senders_are_bounded() -> None:
    bob = Party("bob")
    for number in range(LIMITS["PARTICIPANTS_MAX"] + 100):
        bob.machine.handle_message(message(number, sender=f"s{number}", message_id="x", content=None), at(number))
        bob.machine.poll_event()
    assert bob.machine.stats()["participants"] == LIMITS["PARTICIPANTS_MAX"]


def test_heads_are_bounded() -> None:
    bob = Party("bob")
    for number in range(LIMITS["HEADS_MAX"] + 50):
        hear(bob, message(number, sender=f"s{number}", content=b"0/1/1|m%d" % number))
    assert bob.machine.stats()["heads"] == LIMITS["HEADS_MAX"]


@pytest.mark.parametrize("lamport", [(1 << 64) - 1, (1 << 63), 1_760_000_000_000 + 10**9])
def test_lamport_far_in_the_future_is_capped(lamport: int) -> None:
    bob = Party("bob")
    for number in range(5):
        hear(bob, message(number, lamport=lamport))
    limit = at(0).epoch_ms + LOGOS.sds.max_lamport_skew_ms
    assert bob.machine.lamport_timestamp <= limit
    bob.send("mine", at(10))
    (mine,) = [transmit for transmit in bob.drain(at(10)) if transmit.kind is TransmitKind.FIRST]
    decoded = SdsMessage.decode(mine.payload)
    assert decoded is not None
    assert (decoded.lamport_timestamp or 0) <= limit + 6


def test_a_filter_of_another_size_says_nothing() -> None:
    alice = Party("alice", sync=quiet_sync())
    alice.send("hello", at(0))
    alice.drain(at(0))
    for bloom in (b"", b"\xff", b"\xff" * 128, b"\xff" * 18_753):
        hear(alice, message(0, message_id=f"sync-{len(bloom)}", content=None, bloom=bloom))
    assert alice.machine.stats()["outgoing_unacknowledged"] == 1
    assert not any(type(event).__name__.startswith("ContentPossibly") for event in alice.events)


def test_two_senders_that_claim_one_send_id_are_two_sends() -> None:
    bob = Party("bob")
    send_id = f"{9:032x}"
    hear(bob, message(0, sender="mallory", message_id=f"{send_id}.1", content=b"1/2/2|forged"))
    hear(bob, message(0, sender="alice", message_id=f"{send_id}.0", content=b"0/2/2|real"))
    hear(bob, message(0, sender="alice", message_id=f"{send_id}.2", content=b"1/2/2|real"))
    assert bob.delivered == ["real"]


def test_another_content_under_a_known_id_is_handed_up_while_its_send_is_open() -> None:
    bob = Party("bob")
    hear(bob, message(1, content=b"0/2/2|forged"))
    hear(bob, message(1, content=b"0/2/2|real"))
    assert [event.content for event in bob.of(ContentReceived)] == [b"0/2/2|forged", b"0/2/2|real"]  # type: ignore[attr-defined]
    assert bob.machine.stats()["incoming_contents"] == 1


def test_our_own_messages_are_ignored_and_an_impostor_is_told() -> None:
    alice, bob = Party("alice"), Party("bob")
    bob.send("from bob", at(0))
    for transmit in bob.drain(at(0)):
        hear(alice, transmit.payload)
    alice.send("hello", at(0))
    alice.machine.send_ephemeral("e" * 32, b"0/1/1|typing")
    alice.drain(at(0))
    alice.drain(at(61_000))
    assert {transmit.kind for transmit in alice.transmitted} >= {TransmitKind.SYNC, TransmitKind.EPHEMERAL}
    for transmit in alice.transmitted:
        hear(alice, transmit.payload, 61_000)
    assert alice.of(SenderIdConflict) == []
    assert alice.of(EphemeralReceived) == []
    again = alice.restarted(at(62_000))
    for transmit in alice.transmitted:
        if transmit.kind is not TransmitKind.EPHEMERAL:
            hear(again, transmit.payload, 62_000)
    assert again.of(SenderIdConflict) == []
    hear(alice, message(5, sender="alice"), 62_000)
    assert alice.of(SenderIdConflict) == [SenderIdConflict(f"{5:032x}.0")]


def test_other_channels_are_isolated() -> None:
    bob = Party("bob")
    data = SdsMessage(
        sender_id="alice", message_id="m", channel_id="lobby", lamport_timestamp=1, content=b"0/1/1|x"
    ).encode()
    hear(bob, data)
    assert bob.of(MessageDropped) == [MessageDropped("other-channel")]
    assert bob.machine.stats()["participants"] == 0


def test_ephemeral_messages_leave_no_trace_and_come_once() -> None:
    alice, bob = Party("alice"), Party("bob")
    message_id = alice.machine.send_ephemeral("e" * 32, b"0/1/1|typing")
    (transmit,) = alice.drain(at(0))
    for _ in range(2):
        hear(bob, transmit.payload)
    assert bob.of(EphemeralReceived) == [EphemeralReceived(message_id, "alice", b"0/1/1|typing")]
    assert bob.machine.stats()["log"] == 0
    assert bob.machine.acknowledgement_due_ms is None
    assert alice.machine.stats()["outgoing_unacknowledged"] == 0
    decoded = SdsMessage.decode(transmit.payload)
    assert decoded is not None
    assert (decoded.lamport_timestamp, decoded.causal_history, decoded.bloom_filter) == (None, (), None)


def test_the_header_limit_holds_for_every_kind() -> None:
    for header_bytes_max in (1_300, 2_000, 24_000):
        group = [Party(name, header_bytes_max=header_bytes_max) for name in ("alice", "bob")]
        exchange = Exchange(group, loss=0.3, seed=header_bytes_max)
        for number in range(120):
            group[number % 2].send(f"m{number}", at(exchange.now_ms))
            if number % 17 == 0:
                exchange.run(exchange.now_ms + 900)
        exchange.run(exchange.now_ms + 200_000)
        for party in group:
            for transmit in party.transmitted:
                decoded = SdsMessage.decode(transmit.payload)
                assert decoded is not None
                assert len(transmit.payload) - len(decoded.content or b"") <= header_bytes_max
        assert {transmit.kind for party in group for transmit in party.transmitted} >= {
            TransmitKind.SYNC,
            TransmitKind.RETRANSMISSION,
        }


def test_mistakes_of_the_user_are_refused_at_once() -> None:
    alice = Party("alice")
    machine = alice.machine
    for send_id in ("short", "G" * 32, "A" * 32):
        with pytest.raises(ConfigError, match="32 lower-case hex"):
            machine.send(send_id, [b"x"], contents_needed=1)
    for contents, needed in (([], 1), ([b"x"], 2), ([b"x"], 0)):
        with pytest.raises(ConfigError, match="contents"):
            machine.send("a" * 32, contents, contents_needed=needed)
    with pytest.raises(ConfigError, match="empty"):
        machine.send("a" * 32, [b"x", b""], contents_needed=1)
    machine.send("a" * 32, [b"x"], contents_needed=1)
    with pytest.raises(ConfigError, match="in use"):
        machine.send("a" * 32, [b"x"], contents_needed=1)
    sds, sync = SdsConfig(), SyncConfig()
    for given, said in (((sync, sds), "config is a SyncConfig: .* SdsConfig"), ((sds, None), "sync is a NoneType")):
        swapped: Any = given
        with pytest.raises(ConfigError, match=said):
            MessageChannel("c", "alice", *swapped, now=at(0), rng=random.Random(1))
    with pytest.raises(ConfigError, match="header_bytes_max"):
        Party("alice", header_bytes_max=100)
    for name in ("", "x" * 300):
        with pytest.raises(ConfigError, match="sender_id"):
            Party(name)
    assert hint_of(b"")


@pytest.mark.parametrize("named_first", [True, False])
@pytest.mark.parametrize("from_store", [True, False])
def test_nothing_waits_for_what_came_under_our_own_name(named_first: bool, from_store: bool) -> None:
    """Of a life whose state was lost, or made up: it is never taken in, whoever names it."""
    alice = Party("alice")
    own = message(1, sender="alice")
    honest = message(2, sender="bob", history=[HistoryEntry(f"{1:032x}.0")], content=b"0/1/1|honest")
    for data in (honest, own) if named_first else (own, honest):
        alice.machine.handle_message(data, at(0), from_store=from_store)
        alice.drain(at(0))
    assert alice.delivered == ["honest"]
    assert alice.machine.missing() == ()


def test_a_crowd_of_acknowledgements_leaves_the_named_members_their_place() -> None:
    alice = Party("alice", delivered_when=frozenset({"bob"}), sync=quiet_sync())
    send_id = alice.send("for bob", at(0), needed=2, count=3)
    alice.drain(at(0))

    def acknowledge(sender: str, ordinals: range) -> None:
        sync = SdsMessage(
            sender_id=sender,
            message_id=f"sync-of-{sender}",
            channel_id="room",
            lamport_timestamp=1,
            causal_history=[HistoryEntry(f"{send_id}.{ordinal}") for ordinal in ordinals],
        )
        alice.machine.handle_message(sync.encode(), at(0))

    crowd = sds_limits()["PARTICIPANTS_PER_SEND_MAX"]
    for number in range(crowd + 1):
        acknowledge(f"forged-{number}", range(1))
    acknowledge("bob", range(3))
    alice.drain(at(0))
    assert [event.by for event in alice.of(SendAcknowledged)] == ["bob"]  # type: ignore[attr-defined]
    assert len(alice.machine.inspect()["acknowledged"].get(send_id, {})) <= crowd + 1


@pytest.mark.parametrize("liar", ["bob", "mallory"])
def test_only_the_content_itself_ends_the_asking_for_it(liar: str) -> None:
    """In our own name, or with what the owner refuses as invalid."""
    bob = Party("bob")
    wanted = f"{7:032x}.0"
    lie = message(0, sender=liar, message_id=wanted, content=b"no segment")
    for round_ms in (0, 1_000, 2_000, 3_000):
        bob.machine.handle_message(lie, at(round_ms))
        while (event := bob.machine.poll_event()) is not None:
            if isinstance(event, ContentReceived):
                bob.machine.handle_content_refused(event.message_id, lie, invalid=True)
            elif isinstance(event, SendReleased):
                bob.delivered.append(event.send_id)
        if round_ms == 0:
            naming = message(1, sender="carol", history=[HistoryEntry(wanted, sender_id="alice")])
            bob.machine.handle_message(naming, at(500))
            bob.drain(at(500))
        assert bob.machine.is_missing(wanted)
    # Nothing waits for what may be a forgery.
    assert len(bob.delivered) == 1
    asked = []
    for now_ms in range(3_000, 300_000, 1_000):
        bob.machine.handle_timeout(at(now_ms))
        for transmit in bob.drain(at(now_ms)):
            asked += [entry.message_id for entry in SdsMessage.decode(transmit.payload).repair_request]
    assert wanted in asked
    bob.machine.handle_message(message(7, sender="alice"), at(300_000))
    bob.drain(at(300_000))
    assert len(bob.delivered) == 2
    assert not bob.machine.is_missing(wanted)
