"""What one input may cost, now and later: what somebody merely announces, names or asks for is bounded work."""

from __future__ import annotations

from dataclasses import replace

from sds_exchange import LOGOS, Exchange, Party, at, hear, message

from shardwire._native import HistoryEntry, sds_limits
from shardwire.config import ChannelConfig
from shardwire.sds import DependencyLost, TransmitKind

LIMITS = sds_limits()
QUIET_MS = LOGOS.sds.acknowledgement_timeout_ms
RELEASED_AT_ONCE = 512
ANNOUNCED_AT_ONCE = 8


def part(number: int, ordinal: int, count: int, sender: str = "mallory") -> bytes:
    content = b"%d/%d/%d|m%d" % (ordinal, count, count, number)
    return message(number, sender=sender, content=content, message_id=f"{number:032x}.{ordinal}")


def settle(party: Party, monotonic_ms: int) -> None:
    """Lets a party do all that is due, and counts the steps that took."""
    for _ in range(10_000):
        due_ms = party.machine.poll_timeout()
        if due_ms is None or due_ms > monotonic_ms:
            return
        party.machine.handle_timeout(at(monotonic_ms))
        party.drain(at(monotonic_ms))
    raise AssertionError("a party is never done")


def test_what_a_header_announces_is_asked_for_a_few_at_a_time() -> None:
    bob = Party("bob")
    hear(bob, part(1, 0, 255))
    settle(bob, QUIET_MS)
    allowed = ANNOUNCED_AT_ONCE + 2
    assert bob.machine.stats()["missing"] == allowed
    # Without progress it is others that are asked for next.
    settle(bob, 2 * QUIET_MS)
    assert bob.machine.stats()["missing"] == 2 * allowed
    asked = {entry.message_id for entry in bob.machine.missing()}
    assert asked == {f"{1:032x}.{ordinal}" for ordinal in range(1, 2 * allowed + 1)}


def test_who_sent_most_of_a_message_gets_all_of_the_rest_asked_for() -> None:
    bob = Party("bob")
    for ordinal in range(0, 200, 2):
        hear(bob, part(1, ordinal, 200))
    settle(bob, QUIET_MS)
    assert bob.machine.stats()["missing"] == 100


def test_a_header_that_announces_65536_contents_costs_no_more() -> None:
    bob = Party("bob")
    hear(bob, part(1, 0, 65_536))
    for round_ in range(1, 4):
        settle(bob, round_ * QUIET_MS)
    assert bob.machine.stats()["missing"] <= 3 * (ANNOUNCED_AT_ONCE + 2)


def test_everything_announced_is_asked_for_in_time() -> None:
    """Its sender may be gone, and others hold any of it."""
    bob = Party("bob", sds=replace(LOGOS.sds, timeout_for_lost_messages_ms=0))
    hear(bob, part(1, 3, 60))
    for round_ in range(1, 10):
        settle(bob, round_ * QUIET_MS)
    assert {entry.message_id for entry in bob.machine.missing()} == {
        f"{1:032x}.{ordinal}" for ordinal in range(60) if ordinal != 3
    }


def test_sets_of_one_sender_do_not_take_each_others_place_for_ever() -> None:
    sds = replace(LOGOS.sds, missing_messages_max=40)
    bob = Party("bob", sds=sds)
    for number in range(1, 20):
        hear(bob, part(number, 0, 255))
    hear(bob, part(100, 0, 4, "carol"))
    settle(bob, QUIET_MS)
    asked = [entry.message_id for entry in bob.machine.missing()]
    # Others still have a place in a full table.
    assert [f"{100:032x}.{ordinal}" in asked for ordinal in (1, 2, 3)] == [True] * 3
    settle(bob, 2 * QUIET_MS)
    settle(bob, 3 * QUIET_MS)
    later = [entry.message_id for entry in bob.machine.missing()]
    assert len(set(asked) - set(later)) <= ANNOUNCED_AT_ONCE + 2


def test_a_web_of_messages_that_wait_is_bounded() -> None:
    """Each of 400 messages follows 1,000 that nobody has: 400,000 pairs."""
    bob = Party("bob")
    causes = [HistoryEntry(f"{number:032x}.0", None, "carol") for number in range(100_000, 101_000)]
    for number in range(400):
        hear(bob, message(number, content=b"0/1/1|m%d" % number, history=causes), number)
    stats = bob.machine.stats()
    assert stats["incoming_sends"] >= 400
    # The last ones wait for 32 each.
    assert LIMITS["WAITING_PAIRS_MAX"] <= stats["incoming_pairs"] <= LIMITS["WAITING_PAIRS_MAX"] + 400 * 32
    assert bob.delivered == []


def test_very_many_that_become_free_go_in_several_steps() -> None:
    """All of them wait for one message, which comes."""
    count = 3 * RELEASED_AT_ONCE
    bob = Party("bob")
    cause = HistoryEntry(f"{100_000:032x}.0", None, "carol")
    for number in range(count):
        hear(bob, message(number, content=b"0/1/1|m%d" % number, history=[cause]))
    assert bob.delivered == []
    bob.machine.handle_message(message(100_000, sender="carol", content=b"0/1/1|cause"), at(1))
    bob.drain(at(1))
    assert RELEASED_AT_ONCE <= len(bob.delivered) <= RELEASED_AT_ONCE + 1
    assert bob.machine.poll_timeout() <= 1  # type: ignore[operator]
    # A crash in between loses none of them.
    again = bob.restarted(at(2))
    settle(again, 2)
    again.drain(at(2))
    settle(bob, 1)
    expected = ["cause", *(f"m{number}" for number in range(count))]
    assert bob.delivered == expected
    assert sorted(again.delivered) == sorted(expected)


def test_very_many_that_are_lost_at_once_go_in_several_steps() -> None:
    lost_ms = LOGOS.sds.timeout_for_lost_messages_ms
    bob = Party("bob")
    for number in range(3):
        named = [HistoryEntry(f"{number * 1_000 + place:032x}.0", None, "carol") for place in range(1_000, 2_000)]
        hear(bob, message(number, content=b"0/1/1|m%d" % number, history=named))
    bob.machine.handle_timeout(at(lost_ms))
    first = list(iter(bob.machine.poll_event, None))
    assert RELEASED_AT_ONCE <= len(first) <= 2 * RELEASED_AT_ONCE
    settle(bob, lost_ms)
    assert len(bob.of(DependencyLost)) == 3_000 - sum(isinstance(event, DependencyLost) for event in first)
    assert sorted(bob.delivered) == ["m0", "m1", "m2"]


def request(number: int, message_id: str, sender: str = "mallory") -> bytes:
    sync = f"sync-{number}"
    return message(0, sender=sender, message_id=sync, content=None, requests=[HistoryEntry(message_id, None, "alice")])


def answers_to(requests: list[tuple[int, bytes]], until_ms: int) -> int:
    """How often one content is sent again, where these are heard at their times."""
    alice, bob = Party("alice"), Party("bob")
    exchange = Exchange([alice, bob])
    alice.send("wanted", at(0))
    exchange.run(60_000)
    for heard_ms, data in requests:
        exchange.run(60_000 + heard_ms)
        alice.machine.handle_message(data, at(exchange.now_ms))
    exchange.run(60_000 + until_ms)
    return alice.count(TransmitKind.REPAIR)


def wanted_id() -> str:
    alice = Party("alice")
    alice.send("wanted", at(0))
    (first, *_) = alice.drain(at(0))
    return first.message_id


def test_a_recorded_request_is_heeded_once() -> None:
    replayed = request(1, wanted_id())
    assert answers_to([(60_000 * minute, replayed) for minute in range(60)], 3_600_000) == 1


def test_requests_for_one_message_are_answered_less_and_less_often() -> None:
    """Somebody with the key asks anew every second for an hour."""
    wanted = wanted_id()
    asked = [(1_000 * second, request(second, wanted)) for second in range(3_600)]
    answers = answers_to(asked, 3_600_000)
    assert 3 <= answers <= 16


def test_whoever_missed_an_answer_has_another_one_soon() -> None:
    wanted = wanted_id()
    t_max_ms = LOGOS.sds.repair_t_max_ms
    asked = [(t_max_ms * number, request(number, wanted, f"peer{number}")) for number in range(3)]
    assert answers_to(asked, 4 * t_max_ms) == 3


def test_answers_leave_at_a_pace_and_none_is_forgotten() -> None:
    """Somebody asks for all that is held: 200 requests of 80 bytes, for 20 MB."""
    mib, count, size_bytes = 1 << 20, 200, 100_000
    alice, bob = Party("alice"), Party("bob")
    exchange = Exchange([alice, bob])
    for number in range(count):
        alice.send(str(number % 10) * size_bytes, at(0))
    exchange.run(60_000)
    wanted = [transmit.message_id for transmit in alice.transmitted if transmit.kind is TransmitKind.FIRST]
    assert len(wanted) == count
    for number, message_id in enumerate(wanted):
        alice.machine.handle_message(request(number, message_id), at(exchange.now_ms))
    answered = 0
    for second in range(1, 20):
        exchange.run(60_000 + 1_000 * second)
        answered = alice.count(TransmitKind.REPAIR)
        assert answered * size_bytes <= (8 + second) * mib + size_bytes
        if second == 1:
            # What a member asks for who lost a burst is not held back.
            assert answered * size_bytes >= 8 * mib
    assert answered == count


def test_what_follows_a_message_that_nobody_has_is_handed_over_in_bounded_time() -> None:
    """`waku()` counts nothing as lost: one forged message would close the channel for good."""
    waku = ChannelConfig.waku()
    bob = Party("bob", sds=waku.sds, sync=waku.sync)
    hear(bob, message(10, content=b"0/1/1|before"))
    hear(bob, message(11, sender="alice", content=b"0/1/1|too"))
    made_up = HistoryEntry("nobody has this", None, "carol")
    hear(bob, message(1, content=b"0/1/1|forged", history=[made_up]))
    hear(bob, message(2, sender="alice", content=b"0/1/1|honest", history=[HistoryEntry(f"{1:032x}.0")]))
    settle(bob, 599_000)
    assert bob.delivered == ["before", "too"]
    bound_ms = 2 * (1 + waku.sds.max_retransmissions) * waku.sds.acknowledgement_timeout_ms
    settle(bob, bound_ms + 10_000)
    assert bob.delivered == ["before", "too", "forged", "honest"]
    # It is still asked for.
    assert bob.machine.missing() == (made_up,)
