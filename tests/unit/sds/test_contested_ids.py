"""Several messages under one id: nothing but the one that histories speak of ends the asking for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Exchange, Party, Reader, at, hear, message, quiet_sync

from shardwire._native import HistoryEntry
from shardwire.config import ChannelConfig
from shardwire.sds import ContentReceived, DependencyLost, Now, TransmitKind

REAL = f"{1:032x}.0"
ALICES = HistoryEntry(REAL, None, "alice")
T_MAX_MS = LOGOS.sds.repair_t_max_ms
WAKU = ChannelConfig.waku()


def named(*entries: HistoryEntry, number: int = 100, sender: str = "carol") -> bytes:
    """A sync."""
    return message(0, sender=sender, message_id=f"sync-{number}", content=None, history=list(entries))


def forged(sender: str = "mallory") -> bytes:
    return message(1, sender=sender, content=b"0/1/1|forged")


def real() -> bytes:
    return message(1, sender="alice", content=b"0/1/1|real")


def missing(party: Party) -> list[str]:
    return [entry.message_id for entry in party.machine.missing()]


def test_anothers_message_under_a_missing_id_does_not_end_the_asking() -> None:
    bob = Reader("bob")
    hear(bob, named(ALICES))
    hear(bob, forged())
    assert bob.delivered == ["forged"]
    assert missing(bob) == [REAL]
    hear(bob, real())
    assert bob.delivered == ["forged", "real"]
    assert missing(bob) == []


def test_a_message_that_came_before_it_was_named_as_anothers_is_asked_for() -> None:
    bob = Reader("bob")
    hear(bob, forged())
    hear(bob, named(ALICES))
    assert missing(bob) == [REAL]
    hear(bob, real())
    hear(bob, named(ALICES, number=101))
    assert bob.delivered == ["forged", "real"]
    assert missing(bob) == []


@pytest.mark.parametrize("liars", [1, 2, 8])
def test_who_names_himself_first_and_sends_under_the_id_ends_no_asking(liars: int) -> None:
    """What was named meanwhile as alice's is asked for, however many senders were named before and after."""
    bob = Reader("bob")
    names = [f"mallory {number}" for number in range(liars)]
    claims = [HistoryEntry(REAL, None, name) for name in names]
    hear(bob, named(*claims[: liars // 2 + 1], sender="mallory"))
    hear(bob, named(ALICES, number=101))
    hear(bob, named(*claims, number=102, sender="mallory"))
    for name in names:
        hear(bob, forged(name))
    assert bob.delivered == ["forged"] * liars
    assert missing(bob) == [REAL]
    hear(bob, real())
    assert bob.delivered[-1] == "real"
    # Of more names than are kept nobody knows which came: it is asked for as what nobody has.
    assert missing(bob) == ([] if liars < 5 else [REAL])


@pytest.mark.parametrize("first", ["alice", "mallory"])
def test_what_two_are_said_to_have_sent_is_asked_for_until_both_came(first: str) -> None:
    bob = Reader("bob")
    hear(bob, named(ALICES, HistoryEntry(REAL, None, "mallory")))
    for sender in (first, "mallory" if first == "alice" else "alice"):
        assert missing(bob) == [REAL]
        hear(bob, real() if sender == "alice" else forged())
    assert missing(bob) == []


def test_what_follows_an_id_goes_on_with_what_came_under_it() -> None:
    """A liar who names another sender first holds up nothing, and tells of no loss."""
    bob = Reader("bob")
    hear(bob, named(HistoryEntry(REAL, None, "nobody"), sender="mallory"))
    hear(bob, message(2, sender="alice", content=b"0/1/1|after", history=[ALICES]))
    assert bob.delivered == []
    hear(bob, real())
    assert bob.delivered == ["real", "after"]
    bob.machine.handle_timeout(at(10 * LOGOS.sds.timeout_for_lost_messages_ms))
    bob.drain(at(10 * LOGOS.sds.timeout_for_lost_messages_ms))
    assert bob.of(DependencyLost) == []


def test_what_came_is_asked_for_no_more_after_a_restart() -> None:
    bob = Reader("bob")
    for data in (named(ALICES), forged(), real()):
        hear(bob, data)
    again = bob.restarted(at(1_000))
    hear(again, named(ALICES, number=101), 1_000)
    assert missing(again) == []


def test_an_asking_that_goes_on_goes_on_after_a_restart() -> None:
    bob = Reader("bob")
    for data in (named(ALICES), forged()):
        hear(bob, data)
    again = bob.restarted(at(1_000))
    assert missing(again) == [REAL]
    hear(again, real(), 1_000)
    assert again.delivered == ["forged", "real"]
    assert missing(again) == []


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_segment_of_a_message_whose_first_id_another_took_is_asked_for(gone: int) -> None:
    bob = Reader("bob")
    parts = [
        message(1, sender="alice", content=b"%d/4/4|large" % ordinal, message_id=f"{1:032x}.{ordinal}")
        for ordinal in range(4)
    ]
    hear(bob, forged())
    for ordinal, data in enumerate(parts):
        if ordinal != gone:
            hear(bob, data)
    now_ms = LOGOS.sds.acknowledgement_timeout_ms
    bob.machine.handle_timeout(at(now_ms))
    bob.drain(at(now_ms))
    assert f"{1:032x}.{gone}" in missing(bob)
    hear(bob, parts[gone], now_ms)
    assert bob.delivered == ["forged", "large"]
    assert missing(bob) == []


def lost_once(first: str, forgery: str, config: ChannelConfig) -> tuple[Exchange, Reader]:
    """Bob loses what alice sends, hears a forged message under its id with everybody, and nothing else is lost."""
    alice, bob, carol = (Reader(name, sds=config.sds, sync=config.sync) for name in ("alice", "bob", "carol"))
    exchange = Exchange([alice, bob, carol])
    exchange.run(1_000)
    exchange.lose = lambda name, transmit: name == "bob"
    send_id = alice.send("real", at(exchange.now_ms))
    exchange.run(2_000)
    exchange.lose = None
    sync = named(HistoryEntry(f"{send_id}.0", None, "alice"))
    forged_message = message(0, sender=forgery, content=b"0/1/1|forged", message_id=f"{send_id}.0")
    for data in (sync, forged_message) if first == "named" else (forged_message, sync):
        for party in (alice, bob, carol):
            party.machine.handle_message(data, at(exchange.now_ms))
            exchange.flush(party)
    exchange.run(3_600_000)
    return exchange, bob


@pytest.mark.parametrize("config", [LOGOS, WAKU], ids=["logos", "waku"])
@pytest.mark.parametrize("forgery", ["mallory", "alice", "bob"])
@pytest.mark.parametrize("first", ["named", "forged"])
def test_a_message_that_another_one_stood_in_for_arrives(first: str, forgery: str, config: ChannelConfig) -> None:
    _, bob = lost_once(first, forgery, config)
    assert sorted(bob.delivered) == (["real"] if forgery == "bob" else ["forged", "real"])
    assert missing(bob) == []


def test_who_holds_another_content_sends_it_again_a_few_times_at_most() -> None:
    """Each forgery costs its bytes; what it makes the others send is bounded by the pauses of answers."""
    alice, bob = Reader("alice"), Reader("bob")
    exchange = Exchange([alice, bob])
    send_id = alice.send("real", at(0))
    exchange.run(60_000)
    for number in range(600):
        exchange.run(60_000 + 6_000 * number)
        forgery = message(0, content=b"0/1/1|%d" % number, message_id=f"{send_id}.0")
        for party in (alice, bob):
            party.machine.handle_message(forgery, at(exchange.now_ms))
            exchange.flush(party)
    repairs = alice.count(TransmitKind.REPAIR) + bob.count(TransmitKind.REPAIR)
    assert 4 <= repairs <= 40


def asked(party: Party, until_ms: int, from_ms: int = 0) -> int:
    """How many syncs leave until then."""
    before = party.count(TransmitKind.SYNC)
    party.drain(at(from_ms))
    while (due_ms := party.machine.poll_timeout()) is not None and due_ms <= until_ms:
        party.machine.handle_timeout(at(due_ms))
        for transmit in party.drain(at(due_ms)):
            party.machine.handle_transmitted(transmit.transmit_id, bytes(32), at(due_ms))
    return party.count(TransmitKind.SYNC) - before


def test_a_restart_does_not_begin_to_ask_anew() -> None:
    """Two requests of each invented id have a sync of their own: after those none has, in whichever life."""
    invented = [HistoryEntry(f"{number:032x}.0", None, "nobody") for number in range(1_000, 1_030)]
    bob, untroubled = Party("bob"), Party("bob")
    hear(bob, named(*invented))
    hear(untroubled, named())
    hours = 2 * 3_600_000
    asked(bob, hours), asked(untroubled, hours)
    again, peaceful = bob.restarted(at(hours)), untroubled.restarted(at(hours))
    more = asked(again, hours + 600_000, hours) - asked(peaceful, hours + 600_000, hours)
    assert len(missing(again)) == 30
    assert more <= 5


def repairs(exchange: Exchange) -> int:
    return sum(party.count(TransmitKind.REPAIR) for party in exchange.parties)


def test_the_same_content_in_anothers_name_answers_nobody() -> None:
    alice, bob, carol = (Reader(name) for name in ("alice", "bob", "carol"))
    exchange = Exchange([alice, bob, carol])
    exchange.run(1_000)
    exchange.lose = lambda name, transmit: name == "bob"
    send_id = alice.send("real", at(exchange.now_ms))
    exchange.run(2_000)
    exchange.lose = None
    copy = message(0, content=b"0/1/1|real", message_id=f"{send_id}.0")
    for _ in range(100):
        for party in exchange.parties:
            party.machine.handle_message(copy, at(exchange.now_ms))
            exchange.flush(party)
        exchange.run(exchange.now_ms + 5_000)
    assert bob.delivered == ["real", "real"]
    assert {sender for sender, _ in bob.texts} == {"alice", "mallory"}


def test_members_that_hold_different_contents_do_not_answer_each_other_for_ever() -> None:
    """Under more ids than rivals are remembered."""
    sds = replace(LOGOS.sds, missing_messages_max=5)
    alice, bob = (Reader(name, sds=sds, sync=quiet_sync()) for name in ("alice", "bob"))
    exchange = Exchange([alice, bob])
    for number in range(1, 21):
        for party, content in ((alice, b"0/1/1|one"), (bob, b"0/1/1|other")):
            hear(party, message(number, sender="dave", content=content))
    for number in range(1, 21):
        hear(bob, message(number, sender="dave", content=b"0/1/1|one"))
    exchange.run(6 * 3_600_000)
    before = repairs(exchange)
    exchange.run(12 * 3_600_000)
    assert before > 0
    assert repairs(exchange) - before <= 40


@pytest.mark.parametrize("invalid", [False, True], ids=["no room", "invalid"])
def test_a_rival_that_was_refused_is_asked_for_when_it_is_named_again(invalid: bool) -> None:
    class Refusing(Reader):
        data: bytes | None = None

        def _on_content(self, event: ContentReceived, now: Now) -> None:
            if self.data is None:
                super()._on_content(event, now)
            else:
                self.machine.handle_content_refused(event.message_id, self.data, invalid=invalid)

    bob = Refusing("bob")
    hear(bob, forged())
    hear(bob, named(ALICES))
    bob.data = real()
    hear(bob, bob.data)
    bob.data = None
    again = bob.restarted(at(1_000))
    for party in (bob, again):
        hear(party, named(ALICES, number=101), 1_000)
        assert missing(party) == [REAL]
        hear(party, real(), 2_000)
        assert party.delivered == ["forged", "real"]
        assert missing(party) == []


def test_another_forgery_under_an_id_puts_off_no_asking_for_it() -> None:
    """It is nobody's request, which would be put off by it (SDS-R)."""
    bob = Reader("bob", sync=quiet_sync())
    hear(bob, forged())
    hear(bob, named(ALICES))
    due_ms = bob.machine.inspect()["repair_requests"][REAL]
    for now_ms in range(LOGOS.sds.repair_t_min_ms, due_ms, 1_000):
        bob.machine.handle_timeout(at(now_ms))
        hear(bob, message(1, content=b"0/1/1|forged %d" % now_ms), now_ms)
    assert bob.machine.inspect()["repair_requests"][REAL] == due_ms
