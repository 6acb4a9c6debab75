"""What contents and syncs say beside the contents themselves, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sds_exchange import LOGOS, Party, at, contents_of, hear, message, quiet_sync

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.config import DeliveredWhen, SdsConfig
from shardwire.sds import ContentReceived, Now, Transmit, TransmitKind

SEND = "5e" * 16
COUNT = 40
WINDOW_MS = LOGOS.sds.acknowledgement_timeout_ms // 4
# After so long without a content a burst has ended.
GAP_MS = WINDOW_MS // 8
QUIET_MS = 4 * LOGOS.sds.acknowledgement_timeout_ms
SILENT = quiet_sync(acknowledgement_sync=False)


def decoded(transmit: Transmit) -> SdsMessage:
    read = SdsMessage.decode(transmit.payload)
    assert read is not None
    return read


def on_demand(count: int) -> list[Transmit]:
    """Contents of a send of alice that can have more of them."""
    alice = Party("alice", sync=quiet_sync())
    alice.machine.send(SEND, contents_of("text", count, count), contents_needed=count, reserve=5)
    return alice.drain(at(0))


def syncs(party: Party, from_ms: int, until_ms: int) -> list[tuple[int, SdsMessage]]:
    """Those that leave in this time, each with its moment."""
    found = []
    moment: int | None = from_ms
    while moment is not None and moment <= until_ms:
        party.machine.handle_timeout(at(moment))
        out = party.drain(at(moment))
        for transmit in out:
            party.machine.handle_transmitted(transmit.transmit_id, None, at(moment))
        found += [(moment, decoded(transmit)) for transmit in out if transmit.kind is TransmitKind.SYNC]
        due_ms = party.machine.poll_timeout()
        assert due_ms is None or due_ms > moment
        moment = due_ms
    return found


@pytest.mark.parametrize(("count", "asking"), [(COUNT, [0, COUNT // 2, COUNT - 1]), (5, [0, 2, 4]), (2, [0, 1])])
def test_the_first_the_middle_and_the_last_content_ask_what_is_lacking(count: int, asking: list[int]) -> None:
    asks = HistoryEntry(f"{SEND}.9999", None, "alice")
    requests = {transmit.ordinal: decoded(transmit).repair_request for transmit in on_demand(count)}
    assert requests == {ordinal: ((asks,) if ordinal in asking else ()) for ordinal in range(count)}


@pytest.mark.parametrize("seed", range(8))
def test_what_is_lacking_is_said_by_a_number_once_the_burst_has_ended(seed: int) -> None:
    bob = Party("bob", sync=quiet_sync(), seed=seed)
    contents = on_demand(COUNT)
    last_ms = 0
    said = []
    for number, transmit in enumerate(contents[:-3]):
        # Shorter than the pause that ends a burst, by one.
        last_ms = number * (GAP_MS - 1)
        said += syncs(bob, last_ms, last_ms)
        hear(bob, transmit.payload, last_ms)
        said += syncs(bob, last_ms, last_ms + GAP_MS - 2)
    assert said == []
    ((at_ms, sync),) = syncs(bob, last_ms + GAP_MS - 1, last_ms + 4 * WINDOW_MS)
    assert at_ms >= last_ms + GAP_MS
    assert sync.repair_request == (HistoryEntry(f"{SEND}.{9_999 - 3}", None, "alice"),)
    assert (sync.causal_history, sync.bloom_filter) == ((), None)


def test_what_came_of_a_single_message_is_named_beside_numbers() -> None:
    bob = Party("bob", sync=quiet_sync())
    for transmit in on_demand(COUNT)[:-3]:
        hear(bob, transmit.payload)
    hear(bob, message(1, sender="carol"))
    ((_, sync),) = syncs(bob, 0, WINDOW_MS)
    assert f"{1:032x}.0" in [entry.message_id for entry in sync.causal_history]
    assert not any(entry.message_id.startswith(SEND) for entry in sync.causal_history)


def test_no_two_syncs_have_one_id_over_a_restart_either() -> None:
    bob = Party("bob", sync=quiet_sync())
    ids = []
    for number in range(6):
        if number == 3:
            bob = bob.restarted(at(number * 10_000))
        hear(bob, message(number), number * 10_000)
        ids += [sync.message_id for _, sync in syncs(bob, number * 10_000, number * 10_000 + WINDOW_MS)]
    assert len(set(ids)) == len(ids) >= 6


@pytest.mark.parametrize(("bloom_interval_ms", "filters"), [(LOGOS.sds.bloom_interval_ms, False), (0, True)])
def test_a_request_takes_a_filter_along_only_where_every_message_has_one(bloom_interval_ms: int, filters: bool) -> None:
    bob = Party("bob", sds=replace(LOGOS.sds, bloom_interval_ms=bloom_interval_ms), sync=SILENT)
    hear(bob, message(0, history=[HistoryEntry(f"{1:032x}.0")]))
    due_ms = min(due_ms for _, due_ms in bob.machine.inspect()["repair_requests"].items())
    *_, (at_ms, sync) = syncs(bob, 0, due_ms)
    assert at_ms == due_ms
    assert [entry.message_id for entry in sync.repair_request] == [f"{1:032x}.0"]
    assert (sync.bloom_filter is not None) is filters


@pytest.mark.parametrize(("bloom_interval_ms", "riding"), [(LOGOS.sds.bloom_interval_ms, [2]), (0, [0, 1, 2])])
def test_the_filter_rides_on_the_last_content_or_on_every_one(bloom_interval_ms: int, riding: list[int]) -> None:
    alice = Party("alice", sds=replace(LOGOS.sds, bloom_interval_ms=bloom_interval_ms), sync=SILENT)
    hear(alice, message(0))
    alice.send("text", at(1), 3, 3)
    contents = alice.drain(at(1))
    assert [transmit.ordinal for transmit in contents if decoded(transmit).bloom_filter] == riding


def test_what_one_sync_has_no_room_for_the_next_one_says_in_its_own_time() -> None:
    sds = replace(LOGOS.sds, causal_history_size=0)
    bob = Party("bob", sds=sds, sync=quiet_sync(), header_bytes_max=1_300)
    for number in range(60):
        hear(bob, message(number))
    found = syncs(bob, 0, 4 * WINDOW_MS)
    moments = [moment for moment, _ in found]
    assert len(set(moments)) == len(moments) >= 3
    named = {entry.message_id for _, sync in found for entry in sync.causal_history}
    assert named == {f"{number:032x}.0" for number in range(60)}


def test_what_is_waited_for_is_waited_for_anew_after_a_restart() -> None:
    lost_ms = 2 * LOGOS.sds.repair_t_max_ms
    bob = Party("bob", sds=replace(LOGOS.sds, timeout_for_lost_messages_ms=lost_ms))
    hear(bob, message(0, sender="carol"))
    hear(bob, message(1, content=b"0/1/1|after", history=[HistoryEntry(f"{SEND}.0")]), 5)
    bob = bob.restarted(at(1_000))
    for monotonic_ms, delivered in ((1_000 + lost_ms - 1, False), (1_000 + lost_ms, True)):
        bob.machine.handle_timeout(at(monotonic_ms))
        bob.drain(at(monotonic_ms))
        assert ("after" in bob.delivered) is delivered


@pytest.mark.parametrize("restart", [False, True])
def test_a_store_is_believed_of_what_is_older_than_a_first_life_alone(restart: bool) -> None:
    bob = Party("bob", sds=SdsConfig(), sync=quiet_sync())
    if restart:
        hear(bob, message(0, sender="carol"))
        bob = bob.restarted(at(1))
    hear(bob, message(1, content=b"0/1/1|after", history=[HistoryEntry(f"{SEND}.0")]), 2)
    bob.machine.handle_irretrievable([f"{SEND}.0"])
    bob.drain(at(2))
    assert ("after" in bob.delivered) is not restart


def says_it_lacks(sender: str, count: int) -> bytes:
    entry = HistoryEntry(f"{SEND}.{9_999 - count}", None, "alice")
    return message(0, sender=sender, message_id=f"{sender} lacks {count}", content=None, requests=[entry])


@pytest.mark.parametrize(("others_lack", "speaks"), [(0, False), (1, True)])
def test_where_one_is_enough_nobody_repeats_that_it_has_all(others_lack: int, speaks: bool) -> None:
    bob = Party("bob", sync=quiet_sync())
    for transmit in on_demand(COUNT):
        hear(bob, transmit.payload)
    hear(bob, says_it_lacks("carol", others_lack))
    assert bool(syncs(bob, 0, 4 * WINDOW_MS)) is speaks


@pytest.mark.parametrize(
    ("others_lack", "heard_ms", "speaks"),
    [(2, GAP_MS, True), (3, GAP_MS, False), (5, GAP_MS, False), (5, GAP_MS - 1, True)],
)
def test_who_lacks_no_more_than_another_one_said_after_the_burst_is_silent(
    others_lack: int, heard_ms: int, speaks: bool
) -> None:
    bob = Party("bob", sync=quiet_sync(), delivered_when=frozenset({"bob", "carol"}))
    for transmit in on_demand(COUNT)[:-3]:
        hear(bob, transmit.payload)
    assert syncs(bob, 0, heard_ms - 1) == []
    hear(bob, says_it_lacks("carol", others_lack), heard_ms)
    assert bool(syncs(bob, heard_ms, 4 * WINDOW_MS)) is speaks
    # Asked by the sender it answers, whatever others said.
    asks = HistoryEntry(f"{SEND}.9999", None, "alice")
    hear(bob, message(0, sender="alice", message_id="asks", content=None, requests=[asks]), 5 * WINDOW_MS)
    assert [sync.repair_request[0].message_id for _, sync in syncs(bob, 5 * WINDOW_MS, 6 * WINDOW_MS)] == [
        f"{SEND}.{9_999 - 3}"
    ]


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize(("since_ms", "speaks"), [(1_000, False), (QUIET_MS - 1, False), (QUIET_MS, True)])
def test_who_said_that_it_has_all_is_silent_about_more_of_it_for_four_timeouts(
    since_ms: int, speaks: bool, is_repeated: bool
) -> None:
    bob = Party("bob", sync=quiet_sync())
    contents = on_demand(COUNT)
    for transmit in contents:
        hear(bob, transmit.payload)
    ((said_ms, _),) = syncs(bob, 0, 4 * WINDOW_MS)
    further = message(0, sender="alice", message_id=f"{SEND}.40", content=b"40/40/45|text")
    hear(bob, contents[0].payload if is_repeated else further, said_ms + since_ms)
    assert bool(syncs(bob, said_ms + since_ms, said_ms + since_ms + 2 * WINDOW_MS)) is speaks


def asks(number: int = 0) -> bytes:
    """Alice asks what is lacking."""
    entry = HistoryEntry(f"{SEND}.9999", None, "alice")
    return message(0, sender="alice", message_id=f"asks {number}", content=None, requests=[entry])


@pytest.mark.parametrize("sender", ["alice", "mallory"])
def test_who_has_anothers_message_under_a_send_id_does_not_say_that_it_has_the_one_asked_about(sender: str) -> None:
    bob = Party("bob", sync=quiet_sync())
    for ordinal in range(2):
        content = f"{ordinal}/2/2|text".encode()
        hear(bob, message(0, sender=sender, message_id=f"{SEND}.{ordinal}", content=content))
    assert bob.delivered == ["text"]
    syncs(bob, 0, 4 * WINDOW_MS)
    hear(bob, asks(), 5 * WINDOW_MS)
    said = [sync.repair_request for _, sync in syncs(bob, 5 * WINDOW_MS, 9 * WINDOW_MS)]
    assert bool(said) is (sender == "alice")


def test_what_its_sender_repeats_is_named_and_not_counted() -> None:
    """It sends again what nobody names, so it is to know which came."""
    bob = Party("bob", sync=quiet_sync())
    contents = on_demand(COUNT)
    for transmit in contents[:-3]:
        hear(bob, transmit.payload)
    ((_, counted),) = syncs(bob, 0, QUIET_MS - 1)
    assert (len(counted.repair_request), counted.causal_history) == (1, ())
    hear(bob, contents[0].payload, QUIET_MS)
    ((_, named),) = syncs(bob, QUIET_MS, QUIET_MS + 2 * WINDOW_MS)
    assert [entry.message_id for entry in named.causal_history] == [transmit.message_id for transmit in contents[:-3]]
    assert named.repair_request == ()


def test_nothing_is_said_of_a_message_that_was_given_up_whoever_asks() -> None:
    bob = Party("bob", sync=quiet_sync())
    contents = on_demand(COUNT)
    for transmit in contents[:-3]:
        hear(bob, transmit.payload)
    assert bob.machine.handle_send_abandoned("alice", SEND, at(1))
    bob.drain(at(1))
    hear(bob, contents[-1].payload, 2)
    hear(bob, asks(), 3)
    counts = [
        entry
        for _, sync in syncs(bob, 3, 8 * WINDOW_MS)
        for entry in sync.repair_request
        if entry.message_id not in {transmit.message_id for transmit in contents}
    ]
    assert counts == []


class Unsure(Party):
    """Does not know yet how large the messages are."""

    def _on_content(self, event: ContentReceived, now: Now) -> None:
        pass


def test_who_does_not_know_how_much_it_lacks_names_what_came_whatever_others_said() -> None:
    bob = Unsure("bob", sync=quiet_sync(), delivered_when=frozenset({"bob", "carol"}))
    hear(bob, on_demand(COUNT)[0].payload)
    hear(bob, says_it_lacks("carol", 5), GAP_MS)
    ((_, sync),) = syncs(bob, GAP_MS, 4 * WINDOW_MS)
    assert [entry.message_id for entry in sync.causal_history] == [f"{SEND}.0"]


@pytest.mark.parametrize("delivered_when", ["any", frozenset({"bob", "carol"})])
@pytest.mark.parametrize("counts", [False, True])
def test_others_speak_for_who_lacks_no_more_where_each_is_to_have_it_and_its_sender_counts(
    delivered_when: DeliveredWhen, counts: bool
) -> None:
    alice, bob = (Party(name, sync=quiet_sync(), delivered_when=delivered_when) for name in ("alice", "bob"))
    contents = contents_of("text", COUNT, COUNT)
    alice.machine.send(SEND, contents, contents_needed=COUNT, reserve=5 * counts)
    for transmit in alice.drain(at(0))[:-3]:
        hear(bob, transmit.payload)
    hear(bob, says_it_lacks("carol", 5), GAP_MS)
    assert bool(syncs(bob, GAP_MS, 4 * WINDOW_MS)) is not (counts and delivered_when != "any")


def test_who_was_asked_answers_whatever_others_say_meanwhile() -> None:
    bob = Party("bob", sync=quiet_sync(), delivered_when=frozenset({"bob", "carol"}))
    for transmit in on_demand(COUNT)[:-3]:
        hear(bob, transmit.payload)
    hear(bob, asks(), GAP_MS)
    hear(bob, says_it_lacks("carol", 5), GAP_MS)
    ((_, sync),) = syncs(bob, GAP_MS, 4 * WINDOW_MS)
    assert [entry.message_id for entry in sync.repair_request] == [f"{SEND}.{9_999 - 3}"]


@pytest.mark.parametrize("delivered_when", ["any", frozenset({"bob", "carol"})])
def test_what_comes_after_it_said_that_it_lacks_some_is_said(delivered_when: DeliveredWhen) -> None:
    bob = Party("bob", sync=quiet_sync(), delivered_when=delivered_when)
    contents = on_demand(COUNT)
    for transmit in contents[:-3]:
        hear(bob, transmit.payload)
    ((said_ms, _),) = syncs(bob, 0, 4 * WINDOW_MS)
    hear(bob, contents[-1].payload, said_ms + 1_000)
    ((_, sync),) = syncs(bob, said_ms + 1_000, said_ms + 1_000 + 2 * WINDOW_MS)
    assert [entry.message_id for entry in sync.repair_request] == [f"{SEND}.{9_999 - 2}"]


def further(number: int) -> bytes:
    """More of it, which others lack."""
    return message(0, sender="alice", message_id=f"{SEND}.{number}", content=f"{number}/40/45|text".encode())


def test_to_a_sender_that_does_not_count_more_is_named_as_it_comes() -> None:
    alice, bob = Party("alice", sync=quiet_sync()), Party("bob", sync=quiet_sync())
    alice.machine.send(SEND, contents_of("text", COUNT, COUNT), contents_needed=COUNT)
    for transmit in alice.drain(at(0)):
        hear(bob, transmit.payload)
    *_, (said_ms, _) = syncs(bob, 0, 4 * WINDOW_MS)
    hear(bob, further(40), said_ms + 1_000)
    ((_, sync),) = syncs(bob, said_ms + 1_000, said_ms + 1_000 + WINDOW_MS)
    assert f"{SEND}.40" in [entry.message_id for entry in sync.causal_history]


def test_who_was_told_in_an_earlier_life_is_told_again_when_more_comes() -> None:
    bob = Party("bob", sync=quiet_sync())
    for transmit in on_demand(COUNT):
        hear(bob, transmit.payload)
    ((said_ms, _),) = syncs(bob, 0, 4 * WINDOW_MS)
    bob.drain(at(said_ms))
    bob = bob.restarted(at(0))
    # She counts, as her question about another message shows.
    other = HistoryEntry(f"{'0e' * 16}.9999", None, "alice")
    hear(bob, message(0, sender="alice", message_id="asks", content=None, requests=[other]))
    hear(bob, further(40), 1_000)
    assert len(syncs(bob, 1_000, 1_000 + 2 * WINDOW_MS)) == 1


def test_who_was_not_heard_to_say_that_it_has_all_says_it_when_more_comes() -> None:
    bob = Party("bob", sync=quiet_sync())
    *contents, last = on_demand(COUNT)
    for transmit in contents:
        hear(bob, transmit.payload)
    ((said_ms, _),) = syncs(bob, 0, 4 * WINDOW_MS)
    again_ms = said_ms + 2 * WINDOW_MS
    hear(bob, contents[0].payload, again_ms)
    hear(bob, last.payload, again_ms)
    # Of what came since another one speaks, and so bob need not.
    hear(bob, says_it_lacks("carol", 0), again_ms)
    assert bob.machine.acknowledgement_due_ms is None
    hear(bob, further(40), again_ms)
    assert len(syncs(bob, again_ms, again_ms + 2 * WINDOW_MS)) == 1


def first_filter_ms(*, counts: bool = True, repeats: bool = False, heard_until_ms: int = 0) -> int:
    """When bob, who lacks some of a send, first says his filter; its sender is heard every five seconds."""
    bob = Party("bob", sync=quiet_sync())
    alice = Party("alice", sync=quiet_sync())
    contents = contents_of("text", COUNT, COUNT)
    alice.machine.send(SEND, contents, contents_needed=COUNT, reserve=5 if counts else 0)
    first, *others = alice.drain(at(0))
    # A sync leaves with what its sender delivered.
    hear(bob, message(1, sender="dave"))
    for transmit in [first, *others[:-3]]:
        hear(bob, transmit.payload)
    hear(bob, message(0, sender="carol", history=[HistoryEntry(f"{SEND}.{COUNT - 1}")]))
    if repeats:
        hear(bob, first.payload, 1)
    for heard_ms in range(0, 120_000, 5_000):
        if heard_ms <= heard_until_ms:
            hear(bob, message(0, sender="alice", message_id=f"lives-{heard_ms}", content=None), heard_ms)
        for said_ms, sync in syncs(bob, heard_ms, heard_ms + 4_999):
            if sync.bloom_filter is not None:
                return said_ms
    raise AssertionError("it said none")


def test_the_filter_waits_while_the_sender_of_what_is_missing_counts_it() -> None:
    settle_ms = 2 * LOGOS.sds.acknowledgement_timeout_ms
    # Beside names it rides at once.
    assert first_filter_ms(counts=False) <= WINDOW_MS
    # A sender that was not heard for four timeouts may be gone.
    alone_ms = first_filter_ms()
    assert 2 * settle_ms < alone_ms < 3 * settle_ms
    # What is lacking of a repeated send is told by the names of what came.
    assert first_filter_ms(repeats=True) == alone_ms
    assert first_filter_ms(heard_until_ms=15_000) == alone_ms + settle_ms
    # Who counts and sends nothing of it is not waited for any longer.
    assert first_filter_ms(heard_until_ms=120_000) == alone_ms + 3 * settle_ms
