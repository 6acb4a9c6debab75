"""Who of a group asks for parity of another's message, who makes it and when, and what becomes of it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from channel_machines import channel_machine
from sds_exchange import at

from shardwire._native import (
    HistoryEntry,
    SdsMessage,
    repair_times_without_store,
    request_offset_ms,
    segment_message,
)
from shardwire.config import ChannelConfig, ReassemblyLimits, SdsConfig, SegmentationConfig
from shardwire.sds import SdsEvent, SenderIdConflict, Transmit
from shardwire.segmentation import segment
from shardwire.segmentation.parameters import native_parameters

LOGOS = ChannelConfig.logos()
SEND = "5e" * 16
DATA = 20
SEGMENTATION = SegmentationConfig(segment_size_bytes=512)
PARAMETERS = native_parameters(SEGMENTATION)
PAYLOAD = random.Random(5).randbytes(DATA * 512)
NAMES = frozenset({"bob", "carol", "dave", "erin"})
TIMEOUT_MS = LOGOS.sds.acknowledgement_timeout_ms
WINDOW_MS = TIMEOUT_MS // 4
T_MIN_MS = LOGOS.sds.repair_t_min_ms
# Of who answers for another sender.
WITHIN_MS, _ = repair_times_without_store(2)
T_MAX_MS = LOGOS.sds.repair_t_max_ms
# Before that the sender of a message, and others who lack it, answer or ask.
SENDER_FIRST_MS = 3 * WINDOW_MS
EPOCH_MS = 1_760_000_000_000


def decoded(transmit: Transmit) -> SdsMessage:
    read = SdsMessage.decode(transmit.payload)
    assert read is not None
    return read


class Member:
    """One whose messages are handed on by the test."""

    def __init__(
        self,
        name: str,
        *,
        sds: SdsConfig = LOGOS.sds,
        parity: bool = True,
        seed: int = 0,
        limits: ReassemblyLimits = SEGMENTATION.limits,
    ) -> None:
        self.name = name
        config = replace(
            LOGOS,
            sds=sds,
            sync=replace(LOGOS.sync, sync_min_interval_ms=0),
            segmentation=replace(SEGMENTATION, limits=limits),
        )
        rng = random.Random(f"{seed}/{name}")
        self.machine = channel_machine(name, config, rng=rng, delivered_when=NAMES, members_make_parity=parity)
        self.sent: list[tuple[int, Transmit]] = []
        self.events: list[SdsEvent] = []
        self.now_ms = 0

    def step(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.events += self.machine.poll_events(at(now_ms))
        while (transmit := self.machine.poll_transmit(at(now_ms))) is not None:
            self.sent.append((now_ms, transmit))
            self.machine.handle_transmitted(transmit.transmit_id, None, at(now_ms))
        self.events += self.machine.poll_events(at(now_ms))

    def hear(self, now_ms: int, *messages: bytes) -> None:
        for data in messages:
            self.machine.handle_message(data, at(now_ms))
            self.step(now_ms)

    def run(self, until_ms: int) -> None:
        """Goes on to that moment; never back, though something may have been due before the last one."""
        turns = 0
        while (due_ms := self.machine.poll_timeout()) is not None and max(due_ms, self.now_ms) <= until_ms:
            turns = turns + 1 if due_ms <= self.now_ms else 0
            assert turns < 1_000, "a timer that stays due would spin"
            now_ms = max(due_ms, self.now_ms)
            self.machine.handle_timeout(at(now_ms))
            self.step(now_ms)

    @property
    def is_whole(self) -> bool:
        return self.machine.receiving_stats()["deliveries_waiting"] > 0

    @property
    def made(self) -> list[tuple[int, bytes]]:
        """Parity of others' messages that left, each with its moment."""
        return [(now_ms, sent.payload) for now_ms, sent in self.sent if decoded(sent).kind == "ephemeral"]

    @property
    def asked(self) -> list[tuple[int, list[HistoryEntry]]]:
        """What it asked others for, beside what it told the sender."""
        found = []
        for now_ms, sent in self.sent:
            entries = [entry for entry in decoded(sent).repair_request if not is_statement(entry)]
            if entries:
                found.append((now_ms, entries))
        return found


def is_statement(entry: HistoryEntry) -> bool:
    return entry.retrieval_hint is None and int(entry.message_id.rpartition(".")[2]) > 9_000


def message(sender: str, message_id: str, **fields: Any) -> bytes:
    return SdsMessage(
        **{
            "sender_id": sender,
            "message_id": message_id,
            "channel_id": "room",
            "lamport_timestamp": EPOCH_MS,
            **fields,
        }
    ).encode()


def number(lacking: int, made: int = 0) -> HistoryEntry:
    """Asks anybody for so many."""
    return HistoryEntry(f"{SEND}.{9_999 - lacking}", b"*" + bytes([made]), "alice")


def asks(lacking: int, by: str = "carol", moment: int = 0) -> bytes:
    return message(by, f"{by} asks at {moment}", repair_request=[number(lacking)])


def segments(first_parity: int = 0) -> list[bytes]:
    """Alice's messages that bring it."""
    alice = Member("alice")
    contents, _, _, reserve = segment_message(PAYLOAD, PARAMETERS, first_parity * 1_000_000 // DATA)
    alice.machine.send(SEND, contents, contents_needed=DATA, reserve=reserve)
    alice.step(0)
    return [sent.payload for _, sent in alice.sent]


SEGMENTS = segments()


def whole(name: str = "bob", **named: Any) -> Member:
    member = Member(name, **named)
    member.hear(0, *SEGMENTS)
    assert member.is_whole
    return member


def partial(name: str, *lost: int, **named: Any) -> Member:
    member = Member(name, **named)
    member.hear(0, *(data for ordinal, data in enumerate(SEGMENTS) if ordinal not in lost))
    return member


# --- asking -----------------------------------------------------------------------------------------------------------


def test_one_number_asks_for_all_that_is_lacking_and_names_follow_where_nobody_answers() -> None:
    carol = partial("carol", 1, 2, 3)
    carol.run(2 * T_MAX_MS)
    (first_ms, first), *others = carol.asked
    assert first == [number(3)]
    # Each is named once parity had time to come, or later at its own time.
    assert all(entry.retrieval_hint is None for _, entries in others for entry in entries)
    named = {entry.message_id for _, entries in others for entry in entries}
    assert named == {f"{SEND}.{ordinal}" for ordinal in (1, 2, 3)}
    assert others[0][0] == first_ms + SENDER_FIRST_MS + T_MIN_MS + WINDOW_MS


def test_several_that_are_due_together_are_one_number() -> None:
    carol = partial("carol", *range(1, 12))
    carol.run(2 * TIMEOUT_MS)
    # She does not get to speak before all of them are due.
    carol.machine.handle_timeout(at(T_MAX_MS))
    carol.step(T_MAX_MS)
    assert carol.asked == [(T_MAX_MS, [number(11)])]


@pytest.mark.parametrize(("name", "parity"), [("carol", False), ("dave", True)])
def test_where_members_make_none_or_where_it_is_late_contents_are_named(name: str, parity: bool) -> None:
    """Dave's moments lie in the second half of what SDS-R leaves: names could not follow a number within T_max."""
    member = partial(name, 1, 2, 3, parity=parity)
    member.run(2 * T_MAX_MS)
    assert member.asked
    assert not [entry for _, entries in member.asked for entry in entries if entry.retrieval_hint]


def test_where_the_sender_announced_no_parity_contents_are_named() -> None:
    alice, carol = Member("alice"), Member("carol")
    contents = segment(PAYLOAD, replace(SEGMENTATION, enable_reed_solomon=False))
    alice.machine.send(SEND, contents, contents_needed=DATA)
    alice.step(0)
    carol.hear(0, *(sent.payload for _, sent in alice.sent[4:]))
    carol.run(2 * T_MAX_MS)
    assert {entry.message_id for _, entries in carol.asked for entry in entries} == {
        f"{SEND}.{ordinal}" for ordinal in range(4)
    }


@pytest.mark.parametrize(("others_lack", "waits"), [(2, False), (3, True), (20, True)])
def test_who_lacks_no_more_than_another_one_asked_for_leaves_the_asking_to_it(others_lack: int, waits: bool) -> None:
    usual, carol = partial("carol", 1, 2, 3), partial("carol", 1, 2, 3)
    usual.run(T_MAX_MS)
    asked_ms = usual.asked[0][0]
    carol.run(asked_ms - 1)
    carol.hear(asked_ms - 1, asks(others_lack, "dave"))
    carol.run(T_MAX_MS)
    first_ms = carol.asked[0][0]
    assert first_ms == (asked_ms - 1 + SENDER_FIRST_MS + T_MIN_MS + WINDOW_MS if waits else asked_ms)


# How long a number that asks anybody keeps names waiting.
NAMES_WAIT_MS = SENDER_FIRST_MS + T_MIN_MS + WINDOW_MS
MANY = range(1, 12)


def test_others_who_ask_on_and_on_put_off_the_asking_once() -> None:
    usual, carol = partial("carol", *MANY), partial("carol", *MANY)
    usual.run(T_MAX_MS)
    heard_ms = usual.asked[0][0] - 1
    carol.run(heard_ms)
    for now_ms in range(heard_ms, heard_ms + T_MAX_MS, 1_000):
        carol.run(now_ms)
        carol.hear(now_ms, asks(20, "dave", now_ms))
    asked_ms, asked = carol.asked[0]
    assert (asked_ms, asked) == (heard_ms + NAMES_WAIT_MS, [number(11)])


def test_another_one_who_asks_makes_nobody_ask_sooner() -> None:
    usual, carol = partial("carol", 2), partial("carol", 2)
    usual.run(T_MAX_MS)
    asked_ms = usual.asked[0][0]
    heard_ms = asked_ms - NAMES_WAIT_MS - 1_000
    assert heard_ms > TIMEOUT_MS
    carol.run(heard_ms)
    carol.hear(heard_ms, asks(20, "dave"))
    carol.run(T_MAX_MS)
    assert carol.asked[0][0] == asked_ms


def test_names_wait_for_what_a_number_brings_though_another_one_had_asked_before() -> None:
    usual, carol = partial("carol", *MANY), partial("carol", *MANY)
    usual.run(T_MAX_MS)
    heard_ms = usual.asked[0][0] - 1
    carol.run(heard_ms)
    carol.hear(heard_ms, asks(20, "dave"))
    carol.run(2 * T_MAX_MS)
    asked_ms = heard_ms + NAMES_WAIT_MS
    (first_ms, first), (next_ms, _), *_ = carol.asked
    assert (first_ms, first) == (asked_ms, [number(11)])
    assert next_ms >= asked_ms + NAMES_WAIT_MS


def test_names_wait_for_what_the_number_of_another_one_brings_after_ours() -> None:
    usual, carol = partial("carol", *MANY), partial("carol", *MANY)
    usual.run(T_MAX_MS)
    heard_ms = usual.asked[0][0] + NAMES_WAIT_MS - 1_000
    carol.run(heard_ms)
    assert len(carol.asked) == 1
    carol.hear(heard_ms, asks(20, "dave"))
    carol.run(2 * T_MAX_MS)
    assert carol.asked[1][0] >= heard_ms + NAMES_WAIT_MS


def test_what_was_named_once_is_named_again_though_a_number_could_ask_for_it() -> None:
    """Anybody is asked by a number at the first time alone: names follow where that was in vain."""
    early_ms = (T_MIN_MS + T_MAX_MS) // 2
    offsets_ms = {ordinal: offset_ms("carol", ordinal) for ordinal in range(1, DATA)}
    ordinal, first_ms = next(found for found in offsets_ms.items() if found[1] <= early_ms)
    entry = HistoryEntry(f"{SEND}.{ordinal}", None, "alice")
    carol = Member("carol")
    carol.hear(0, message("dave", "names it", causal_history=[entry]))
    again_ms = first_ms + T_MAX_MS + first_ms
    carol.run(again_ms - 1)
    carol.hear(again_ms - 1, SEGMENTS[0])
    carol.run(again_ms)
    assert carol.asked == [(first_ms, [entry]), (again_ms, [entry])]


def offset_ms(name: str, ordinal: int) -> int:
    return request_offset_ms(name, f"{SEND}.{ordinal}", T_MIN_MS, T_MAX_MS)


def test_what_members_made_already_counts_in_what_repairs_both() -> None:
    """She lacks three, of which one was made: what two repair repairs her."""
    usual, carol = partial("carol", 1, 2, 3), partial("carol", 1, 2, 3)
    (_, parity), *_ = answers(1)
    for member in (usual, carol):
        member.run(20_000)
        member.hear(20_000, parity)
    usual.run(T_MAX_MS)
    asked_ms, asked = usual.asked[0]
    assert asked == [number(3, 1)]
    carol.run(asked_ms - 1)
    carol.hear(asked_ms - 1, asks(2, "dave"))
    carol.run(asked_ms + WINDOW_MS)
    assert carol.asked == []


def answers(count: int, seed: int = 0) -> list[tuple[int, bytes]]:
    """As much parity as Bob makes of Alice's message."""
    bob = whole("bob", seed=seed)
    bob.hear(20_000, asks(count, "dave"))
    bob.run(100_000)
    assert len(bob.made) == count
    return bob.made


def test_where_too_little_came_it_is_asked_for_more_once_what_came_with_it_had_time_to() -> None:
    waits_ms = set()
    for seed in range(5):
        carol = partial("carol", 1, 2, 3, seed=seed)
        carol.run(20_000)
        carol.hear(20_000, answers(1)[0][1])
        carol.run(T_MIN_MS)
        ((asked_ms, asked),) = carol.asked
        assert asked == [number(3, 1)]
        assert WINDOW_MS // 2 <= asked_ms - 20_000 <= WINDOW_MS // 2 + WINDOW_MS
        waits_ms.add(asked_ms)
        # Names wait as long as after a number of its own.
        carol.run(T_MAX_MS)
        assert carol.asked[1][0] >= asked_ms + SENDER_FIRST_MS + T_MIN_MS + WINDOW_MS
    assert len(waits_ms) > 1


def test_more_is_asked_for_so_often_and_then_no_more_by_numbers() -> None:
    """Parity comes again and again, and is never enough."""
    carol = partial("carol", *range(1, 20))
    made = answers(18)
    for turn, (_, parity) in enumerate(made):
        now_ms = 20_000 + turn * 2 * WINDOW_MS
        carol.run(now_ms)
        carol.hear(now_ms, parity)
    carol.run(20_000 + 18 * 2 * WINDOW_MS)
    numbers = [entries for _, entries in carol.asked if entries[0].retrieval_hint]
    assert numbers == [[number(19, made)] for made in range(1, 17)]


# --- answering --------------------------------------------------------------------------------------------------------


def first_answer(bob: Member, *, heard_ms: int = 20_000, lacking: int = 3) -> int | None:
    """How long after the question the first parity left."""
    bob.run(heard_ms - 1)
    before = len(bob.made)
    bob.hear(heard_ms, asks(lacking, moment=heard_ms))
    bob.run(heard_ms + T_MAX_MS)
    later = bob.made[before:]
    assert len(later) in (0, lacking)
    return later[0][0] - heard_ms if later else None


@pytest.mark.parametrize("name", ["bob", "dave", "erin"])
def test_who_has_it_answers_within_t_min_after_the_time_of_its_sender(name: str) -> None:
    waits_ms = first_answer(whole(name))
    assert waits_ms is not None
    assert SENDER_FIRST_MS <= waits_ms < SENDER_FIRST_MS + WITHIN_MS


def test_nobody_answers_of_what_it_has_in_part_or_not_at_all_or_where_members_make_none() -> None:
    assert first_answer(partial("bob", *range(5))) is None
    assert first_answer(Member("bob")) is None
    assert first_answer(whole("bob", parity=False)) is None


def test_who_has_it_answers_though_it_waits_for_what_it_follows() -> None:
    bob = Member("bob")
    contents, _, _, reserve = segment_message(PAYLOAD, PARAMETERS, 0)
    alice = Member("alice")
    alice.hear(0, message("carol", f"{'0c' * 16}.0", content=b"none of ours"))
    alice.hear(0, *[sent.payload for _, sent in earlier().sent])
    alice.machine.send(SEND, contents, contents_needed=DATA, reserve=reserve)
    alice.step(0)
    bob.hear(0, *(sent.payload for _, sent in alice.sent))
    assert not bob.is_whole
    assert first_answer(bob) is not None


def earlier() -> Member:
    """Carol, who sent a message that Alice follows and Bob lacks."""
    carol = Member("carol")
    contents, *_ = segment_message(b"earlier", PARAMETERS, 0)
    carol.machine.send("0c" * 16, contents, contents_needed=1)
    carol.step(0)
    return carol


def test_who_is_of_another_group_leaves_the_answer_to_those_of_the_senders() -> None:
    sds = replace(LOGOS.sds, repair_groups=4)
    answering = {name: first_answer(whole(name, sds=sds)) is not None for name in ("b", "c", "d", "e", "f", "g", "h")}
    assert set(answering.values()) == {True, False}


def test_the_sender_itself_answers_first() -> None:
    alice = Member("alice")
    contents, _, _, reserve = segment_message(PAYLOAD, PARAMETERS, 0)
    alice.machine.send(SEND, contents, contents_needed=DATA, reserve=reserve)
    alice.step(0)
    for name in NAMES:
        has_all = [HistoryEntry(f"{SEND}.9999", None, "alice")]
        alice.hear(100, message(name, f"{name} has all", repair_request=has_all))
    assert first_answer(alice) == 2 * WINDOW_MS


def test_who_answered_lately_answers_soon_and_not_in_chorus() -> None:
    waits = []
    for seed in range(6):
        bob = whole("bob", seed=seed)
        first_ms = first_answer(bob)
        assert first_ms is not None
        left_ms = 20_000 + first_ms
        again_ms = left_ms + 4 * TIMEOUT_MS - 1
        waits.append(first_answer_at(bob, again_ms))
        # Once that was long ago, it is as at first.
        later_ms = bob.made[-1][0] + 4 * TIMEOUT_MS
        assert first_answer_at(bob, later_ms) == first_ms
    assert all(2 * WINDOW_MS <= wait_ms <= 3 * WINDOW_MS for wait_ms in waits)
    assert len(set(waits)) > 1


def first_answer_at(bob: Member, now_ms: int) -> int:
    before = len(bob.made)
    bob.run(now_ms - 1)
    bob.hear(now_ms, asks(3, moment=now_ms))
    bob.run(now_ms + SENDER_FIRST_MS + T_MIN_MS)
    return bob.made[before][0] - now_ms


def test_who_answered_often_lately_rests() -> None:
    bob = whole("bob")
    now_ms, moments = 20_000, []
    for turn in range(8):
        bob.run(now_ms)
        bob.hear(now_ms, asks(1, moment=turn))
        before = len(bob.made)
        bob.run(now_ms + SENDER_FIRST_MS + WITHIN_MS)
        moments.append(len(bob.made) - before)
        now_ms += SENDER_FIRST_MS + WITHIN_MS
    assert moments[:2] == [1, 1]
    assert sum(moments) < 8


def test_nobody_makes_what_was_heard_already() -> None:
    """Some of it left Alice, and some another member: each seed begins elsewhere."""
    heard = segments(first_parity=8)[DATA:]
    of_dave = [parity for _, parity in answers(5, seed=3)]
    for seed in range(6):
        bob = whole("bob", seed=seed)
        bob.hear(0, *heard)
        bob.hear(20_000, asks(20))
        bob.run(20_001)
        renamed = [rename(parity, "dave", place) for place, parity in enumerate(of_dave)]
        bob.hear(20_002, *renamed)
        bob.run(100_000)
        contents = [SdsMessage.decode(parity) for _, parity in bob.made]
        indexes = [content.content for content in contents if content is not None]
        known = {read.content for data in (*heard, *renamed) if (read := SdsMessage.decode(data)) is not None}
        assert not known & set(indexes)
        assert len(set(indexes)) == len(indexes) > 0


def rename(parity: bytes, sender: str, place: int) -> bytes:
    """The same of another member."""
    read = SdsMessage.decode(parity)
    assert read is not None
    fields = {"lamport_timestamp": None, "repair_request": read.repair_request, "content": read.content}
    return message(sender, f"{sender} made {place}", **fields)


def test_parity_that_comes_back_to_who_made_it_is_no_second_user_of_its_name() -> None:
    bob = whole("bob")
    assert first_answer(bob) is not None
    bob.hear(100_000, *(parity for _, parity in bob.made))
    assert [event for event in bob.events if isinstance(event, SenderIdConflict)] == []


# --- what comes -------------------------------------------------------------------------------------------------------


def test_each_begins_elsewhere_so_that_what_two_make_at_once_is_of_use() -> None:
    firsts = set()
    for seed in range(6):
        read = SdsMessage.decode(answers(1, seed=seed)[0][1])
        assert read is not None
        firsts.add(read.content)
    assert len(firsts) > 2


def test_a_sender_that_is_heard_after_the_question_is_left_time_to_answer_itself() -> None:
    erin = whole("erin")
    erin.run(20_000)
    erin.hear(20_000, asks(3))
    erin.hear(21_000, message("alice", "is there"))
    erin.run(100_000)
    assert [now_ms for now_ms, _ in erin.made] == [21_000 + 4 * TIMEOUT_MS] * 3


def test_answers_keep_a_pace_in_which_making_them_counts() -> None:
    """Of large messages a member makes and sends so many bytes in a time, whoever asks for whichever."""
    bob, alice = Member("bob"), Member("alice")
    size_bytes, count = 100 * 102_400, 30
    contents, _, _, reserve = segment_message(bytes(size_bytes), native_parameters(SegmentationConfig()), 0)
    questions = []
    for number in range(3):
        send_id = f"{number:032x}"
        alice.machine.send(send_id, contents, contents_needed=100, reserve=reserve)
        entry = HistoryEntry(f"{send_id}.{9_999 - count}", b"*\0", "alice")
        questions.append(message("carol", f"asks {number}", repair_request=[entry]))
    alice.step(0)
    bob.hear(0, *(sent.payload for _, sent in alice.sent))
    bob.run(20_000)
    bob.hear(20_000, *questions)
    # It does not get to answer before all of them are due.
    bob.machine.handle_timeout(at(100_000))
    bob.step(100_000)
    bob.run(200_000)
    moments = [now_ms for now_ms, _ in bob.made]
    assert len(moments) == 3 * count
    # 8 MiB may leave at once, and from then on a KiB each ms.
    work_bytes, burst_bytes = size_bytes // 8, 8_192 * 1_024
    left_bytes = [len(payload) for _, payload in bob.made]
    before_last = sum(left_bytes[:-1]) + 3 * work_bytes
    assert before_last > burst_bytes
    assert before_last <= burst_bytes + (moments[-1] - moments[0]) * 1_024
    assert before_last > burst_bytes + (moments[-1] - moments[0] - 1_000) * 1_024


@pytest.mark.parametrize("lacking", [0, 1])
def test_an_ephemeral_message_is_parity_where_its_first_request_says_so(lacking: int) -> None:
    """Another one, of whatever, may stand behind it."""
    carol = partial("carol", 1)
    read = SdsMessage.decode(answers(1)[0][1])
    assert read is not None
    entries = [
        HistoryEntry(f"{SEND}.{9_999 - lacking}", None, "alice"),
        HistoryEntry(f"{'0e' * 16}.9999", None, "frank"),
    ]
    data = message("bob", "made", lamport_timestamp=None, repair_request=entries, content=read.content)
    carol.hear(20_000, data)
    assert carol.is_whole is (lacking == 0)


def test_of_a_whole_message_or_one_of_which_nothing_is_here_no_parity_is_kept() -> None:
    (_, parity), *_ = answers(1)
    for member, needed in ((whole("carol"), False), (Member("carol"), False), (partial("carol", 1, 2), True)):
        before = member.machine.receiving_stats()
        member.hear(20_000, parity)
        after = member.machine.receiving_stats()
        counts = (after["segments_received"], after["segments_discarded"])
        assert counts == (before["segments_received"] + needed, before["segments_discarded"])


def forged(index: int, by: str = "mallory") -> bytes:
    """Looks like parity of Alice's message, and is none of it."""
    read = SdsMessage.decode(ALL_PARITY[index])
    assert read is not None
    assert read.content is not None
    # The header stands before and behind what is altered.
    content = read.content[:200] + index.to_bytes(1, "big") * 64 + read.content[264:]
    entries = [HistoryEntry(f"{SEND}.9999", None, "alice")]
    return message(by, f"{by} {index}", lamport_timestamp=None, repair_request=entries, content=content)


ALL_PARITY = segments(first_parity=DATA)[DATA:]


def genuine(index: int, by: str = "dave") -> bytes:
    read = SdsMessage.decode(ALL_PARITY[index])
    assert read is not None
    entries = [HistoryEntry(f"{SEND}.9999", None, "alice")]
    return message(by, f"{by} {index}", lamport_timestamp=None, repair_request=entries, content=read.content)


def test_parity_of_members_enters_no_log_and_is_not_acknowledged() -> None:
    carol = partial("carol", 1, 2, 3)
    carol.run(20_000)
    before = carol.machine.inspect()
    carol.hear(20_000, genuine(0))
    after = carol.machine.inspect()
    for name in ("log", "incoming", "unsaid", "originals", "bloom_filter"):
        assert after[name] == before[name]
    assert carol.machine.acknowledgement_due_ms is None
    carol.hear(20_000, genuine(1), genuine(2))
    assert carol.is_whole
    # Its sender is told that it is whole, and nothing of who made it.
    carol.run(20_000 + WINDOW_MS)
    sync = decoded(carol.sent[-1][1])
    assert [entry.message_id for entry in sync.repair_request] == [f"{SEND}.9999"]
    assert not [entry for entry in sync.causal_history if entry.sender_id != "alice"]


def test_what_is_no_parity_of_it_is_not_counted_once_enough_of_it_came() -> None:
    carol = partial("carol", 1, 2, 3)
    carol.run(20_000)
    carol.hear(20_000, forged(0), forged(1))
    assert carol.machine.receiving_stats()["segments_discarded"] == 0
    carol.hear(20_000, forged(2))
    assert not carol.is_whole
    carol.run(T_MIN_MS)
    assert carol.asked[0][1] == [number(3, 0)]
    carol.hear(T_MIN_MS, genuine(0), genuine(1, "bob"), genuine(2))
    assert carol.is_whole


def test_what_forged_parity_may_cost_is_spent_once_and_not_each_time() -> None:
    carol = partial("carol", 1)
    for turn in range(400):
        carol.hear(20_000, forged(turn % DATA, f"mallory-{turn}"))
    assert not carol.is_whole
    # Nothing that members make is of use for this message any more: its own sender's segments are.
    before = carol.machine.receiving_stats()["segments_discarded"]
    assert before > 0
    carol.hear(20_000, genuine(5))
    assert carol.machine.receiving_stats()["segments_discarded"] == before + 1
    carol.hear(20_000, SEGMENTS[1])
    assert carol.is_whole


def test_parity_of_members_takes_the_room_of_nothing() -> None:
    """Messages in part of senders whom nobody knows would make room for a segment of Alice."""
    limits = replace(SEGMENTATION.limits, sets_max=4)
    carol = partial("carol", 1, 2, 3, limits=limits)
    for sender in ("frank", "grace", "heidi"):
        other = Member(sender)
        contents, _, _, reserve = segment_message(random.Random(sender).randbytes(DATA * 512), PARAMETERS, 0)
        other.machine.send(sender.encode().hex().ljust(32, "0"), contents, contents_needed=DATA, reserve=reserve)
        other.step(0)
        carol.hear(0, other.sent[0][1].payload)
    before = carol.machine.receiving_stats()
    carol.hear(0, genuine(0))
    after = carol.machine.receiving_stats()
    for name in ("sets_held", "bytes_held", "Evicted", "displaced"):
        assert after[name] == before[name]
    assert after["segments_discarded"] == before["segments_discarded"] + 1


@pytest.mark.parametrize("heard", [0, 1, 3])
def test_what_another_one_answers_meanwhile_is_not_made_again(heard: int) -> None:
    bob = whole("bob")
    bob.hear(20_000, asks(3))
    bob.hear(20_001, *(genuine(index) for index in range(heard)))
    bob.run(100_000)
    assert len(bob.made) == 3 - heard
