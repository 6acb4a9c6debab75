"""What a view of a channel makes of each thing that it is told, at its limits and one past them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shardwire import SdsObservation, SegmentObservation
from shardwire._native import HistoryEntry
from shardwire.channel.limits.quota import RateLimitStatus
from shardwire.channel.observing.timeline import SegmentStage
from shardwire.events import (
    IrretrievableMessageEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    NodeFailingEvent,
)
from shardwire.monitor.view import (
    CAUSES_MAX,
    CELLS_MAX,
    MESSAGES_MAX,
    NAME_CHARACTERS_MAX,
    NAMED_MAX,
    ChannelView,
    name_of,
)


class ToldChannel:
    """In place of a channel: a test says what happens."""

    sender_id = "me"
    channel_id = "channel"
    content_topic = "/shardwire/1/test/proto"

    def __init__(self) -> None:
        self.of_messages: list[Callable[[SdsObservation], None]] = []
        self.of_segments: list[Callable[[SegmentObservation], None]] = []
        self.of_events: list[tuple[type, Callable[[Any], None]]] = []

    def observe_sds(self, observer: Callable[[SdsObservation], None]) -> Callable[[], None]:
        self.of_messages.append(observer)
        return self.of_messages.clear

    def observe(self, observer: Callable[[SegmentObservation], None]) -> Callable[[], None]:
        self.of_segments.append(observer)
        return self.of_segments.clear

    def on(self, kind: type, callback: Callable[[Any], None]) -> Callable[[], None]:
        self.of_events.append((kind, callback))
        return self.of_events.clear

    def tell(self, event: object) -> None:
        for kind, callback in self.of_events:
            if isinstance(event, kind):
                callback(event)

    def rate_limit_status(self) -> RateLimitStatus:
        return RateLimitStatus(False, 0, 0, 0, 0, 0)

    def stats(self) -> dict[str, int]:
        return {}

    def is_closed(self) -> bool:
        return False

    def is_started(self) -> bool:
        return True


class Shown:
    """A channel, and what a page shows of it."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.channel = ToldChannel()
        channel: Any = self.channel
        self.view = ChannelView(channel, lambda: self.now_ms)

    def message(self, sender: str, message_id: str = "m", **fields: Any) -> None:
        told = {
            "direction": "received",
            "kind": "content",
            "causal_history": (),
            "size_bytes": 10,
            "at_ms": 1,
            **fields,
        }
        direction, kind, history, size_bytes, at_ms = told.values()
        for observer in self.channel.of_messages:
            observer(SdsObservation(direction, kind, message_id, sender, 1, history, (), size_bytes, at_ms))

    def segment(
        self, stage: SegmentStage, ordinal: int = 0, by: str = "me", send: str = "s", of: int | None = 2, **fields: Any
    ) -> None:
        for observer in self.channel.of_segments:
            observer(SegmentObservation(stage, send, ordinal, by, 1, data_count=of, content_count=of, **fields))

    def tell(self, event: object) -> None:
        self.channel.tell(event)

    @property
    def row(self) -> dict[str, Any]:
        (row,) = self.snapshot["messages"]
        told: dict[str, Any] = row
        return told

    @property
    def snapshot(self) -> dict[str, Any]:
        return self.view.snapshot()


@pytest.fixture
def shown() -> Shown:
    return Shown()


def test_a_name_is_cut_behind_its_limit() -> None:
    assert name_of(NAME_CHARACTERS_MAX * "x") == NAME_CHARACTERS_MAX * "x"
    assert name_of(NAME_CHARACTERS_MAX * "x" + "y") == NAME_CHARACTERS_MAX * "x" + "..."


def test_bytes_and_messages_count_in_their_second_and_direction(shown: Shown) -> None:
    shown.message("me", direction="sent", size_bytes=5)
    for _ in range(2):
        shown.message("bob", size_bytes=20)
    shown.now_ms += 1_000
    shown.message("bob", size_bytes=1)
    assert shown.snapshot["seconds"][-2:] == [[5, 40, 1, 2], [0, 1, 0, 1]]


def test_who_was_heard_last_comes_first_with_all_that_came_of_it(shown: Shown) -> None:
    shown.message("bob", at_ms=5)
    shown.message("carol", kind="sync", at_ms=6)
    shown.message("bob", kind="ephemeral", at_ms=7)
    shown.segment("dispatched")
    shown.segment("acknowledged", by="carol")
    shown.message("bob", kind="sync", at_ms=8)
    told = shown.snapshot["participants"]
    assert [
        (one["name"], one["own"], one["heard_ms"], one["messages"], one["syncs"], one["bytes"]) for one in told
    ] == [
        ("bob", False, 8, 2, 1, 30),
        ("carol", False, 6, 0, 1, 10),
    ]
    assert [one["acknowledged"] for one in told] == [0, 1]


def test_an_acknowledgement_of_what_is_not_shown_shows_nothing(shown: Shown) -> None:
    shown.segment("acknowledged", by="bob")
    assert shown.snapshot["messages"] == []


def test_a_message_follows_the_latest_of_its_history(shown: Shown) -> None:
    history = tuple(f"c{number}" for number in range(CAUSES_MAX + 1))
    for number in (0, CAUSES_MAX):
        shown.message("bob", f"c{number}")
        shown.segment("received", by="bob", send=f"{number}", message_id=f"c{number}")
    shown.message("me", "m0", direction="sent", causal_history=history)
    shown.segment("dispatched", message_id="m0")
    # Its second segment follows its first, which says nothing.
    shown.message("me", "m1", direction="sent", causal_history=("m0",))
    shown.segment("dispatched", 1, message_id="m1")
    row, latest, _ = shown.snapshot["messages"]
    assert row["follows"] == [latest["number"]]
    assert row["unseen"] == CAUSES_MAX - 1


def test_so_many_are_named_who_have_a_message(shown: Shown) -> None:
    shown.segment("dispatched")
    names = [f"p{number}" for number in range(NAMED_MAX + 1)]
    for name in names[:2]:
        shown.segment("acknowledged", by=name)
    shown.tell(MessageDeliveredEvent("s", "hash", frozenset(names[2:])))
    assert shown.row["who"] == names[:NAMED_MAX]
    for name in names:
        shown.segment("acknowledged", by=name)
    assert shown.row["who"] == names[:NAMED_MAX]


def test_acknowledgements_alone_name_no_more(shown: Shown) -> None:
    shown.segment("dispatched")
    for number in range(NAMED_MAX + 1):
        shown.segment("acknowledged", by=f"p{number}")
    assert len(shown.row["who"]) == NAMED_MAX


def test_the_outcome_that_comes_last_is_not_the_one_that_says_least(shown: Shown) -> None:
    shown.segment("dispatched")
    assert shown.row["state"] == "on its way"
    shown.tell(MessageSentEvent("s", "hash"))
    assert shown.row["state"] == "sent"
    shown.tell(MessageDeliveredEvent("s", "hash", frozenset({"bob"})))
    shown.tell(MessageSentEvent("s", "hash"))
    assert shown.row["state"] == "delivered"
    shown.tell(MessageSendErrorEvent("s", "hash", "nobody", "delivery"))
    assert shown.row["state"] == "failed"


def test_irretrievable_messages_are_counted_each(shown: Shown) -> None:
    shown.tell(IrretrievableMessageEvent(HistoryEntry("a"), (HistoryEntry("b"), HistoryEntry("c"))))
    assert shown.snapshot["irretrievable"] == 3


def test_a_network_that_takes_nothing_is_shown_until_it_does(shown: Shown) -> None:
    shown.tell(NodeFailingEvent(True, 3, "no peers"))
    assert shown.snapshot["trouble"] == "the network takes nothing: no peers"
    shown.tell(NodeFailingEvent(False, 0, ""))
    assert shown.snapshot["trouble"] == ""


def test_a_message_of_more_segments_than_are_shown_is_whole_when_all_are_here(shown: Shown) -> None:
    count = CELLS_MAX + 2
    for ordinal in range(count - 1):
        shown.segment("received", ordinal, by="bob", of=count)
    assert (shown.row["state"], shown.row["beyond"], len(shown.row["cells"])) == ("incomplete", 1, CELLS_MAX)
    shown.segment("recovered", count - 1, by="bob", of=count)
    assert (shown.row["state"], shown.row["beyond"]) == ("whole", 2)


def test_what_only_leaves_is_not_here_beyond_the_cells_either(shown: Shown) -> None:
    shown.segment("dispatched", CELLS_MAX, of=CELLS_MAX + 1)
    shown.segment("propagated", CELLS_MAX, of=CELLS_MAX + 1)
    assert (shown.row["state"], shown.row["beyond"]) == ("on its way", 0)


def test_a_segment_has_the_cell_of_what_became_of_it(shown: Shown) -> None:
    cells = []
    for stage, attempt in (("dispatched", 0), ("propagated", 0), ("dispatched", 1), ("propagated", 1)):
        shown.segment(stage, 1, attempt=attempt)  # type: ignore[arg-type]
        cells.append(shown.row["cells"])
    shown.segment("acknowledged", 1, by="bob")
    cells.append(shown.row["cells"])
    for stage in ("dispatched", "propagated"):
        shown.segment(stage, 1)  # type: ignore[arg-type]
        cells.append(shown.row["cells"])
    assert cells == [".d", ".s", ".l", ".l", ".a", ".a", ".a"]


def test_a_segment_of_a_message_of_unknown_size_has_a_cell(shown: Shown) -> None:
    shown.segment("received", 3, by="bob", of=None)
    assert (shown.row["cells"], shown.row["state"]) == ("...r", "incomplete")


def test_a_message_is_whole_by_what_parity_brought_back_too(shown: Shown) -> None:
    shown.segment("received", 0, by="bob")
    assert (shown.row["cells"], shown.row["state"]) == ("r.", "incomplete")
    shown.segment("recovered", 1, by="bob")
    assert (shown.row["cells"], shown.row["state"]) == ("rp", "whole")


def test_what_a_segment_does_not_say_is_known_from_those_before_it(shown: Shown) -> None:
    shown.segment("received", 0, by="bob", of=3)
    shown.segment("received", 1, by="bob", of=None)
    assert (shown.row["segments"], shown.row["data_segments"], shown.row["cells"]) == (3, 3, "rr.")


def test_a_message_does_not_follow_a_segment_of_its_own_that_comes_later(shown: Shown) -> None:
    shown.message("bob", "m1", causal_history=("m0",))
    shown.segment("received", 1, by="bob", message_id="m1")
    assert (shown.row["follows"], shown.row["unseen"]) == ([], 1)
    shown.message("bob", "m0")
    shown.segment("received", 0, by="bob", message_id="m0")
    assert (shown.row["follows"], shown.row["unseen"]) == ([], 0)


def test_the_oldest_message_is_forgotten_for_the_first_that_is_too_many(shown: Shown) -> None:
    for number in range(MESSAGES_MAX):
        shown.segment("received", by="bob", send=f"{number}")
    assert [row["number"] for row in shown.snapshot["messages"]] == [*range(MESSAGES_MAX, 0, -1)]
    shown.segment("received", by="bob", send="another")
    assert [row["number"] for row in shown.snapshot["messages"]] == [*range(MESSAGES_MAX + 1, 1, -1)]


def test_who_watches_is_told_apart(shown: Shown) -> None:
    shown.message("bob")
    shown.message("me", direction="sent")
    assert [(one["name"], one["own"]) for one in shown.snapshot["participants"]] == [("me", True), ("bob", False)]


def test_whatever_happens_is_news(shown: Shown) -> None:
    """A browser is told nothing as long as nothing is."""
    happens: list[Callable[[], None]] = [
        lambda: shown.message("bob"),
        lambda: shown.message("bob", kind="sync"),
        lambda: shown.segment("dispatched"),
        lambda: shown.tell(MessageSentEvent("s", "hash")),
        lambda: shown.tell(IrretrievableMessageEvent(HistoryEntry("a"))),
        lambda: shown.tell(NodeFailingEvent(True, 3, "no peers")),
    ]
    for version, happen in enumerate(happens, shown.view.version + 1):
        happen()
        assert shown.view.version == version
