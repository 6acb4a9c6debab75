"""What the page shows of a channel: taken from its observers and events, bounded, and without any content."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from shardwire.channel import ReliableChannel, SdsObservation, SegmentObservation
from shardwire.events import (
    IrretrievableMessageEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    NodeFailingEvent,
)
from shardwire.quoting import one_line, printable

# Newest first to stay; what is older is forgotten.
MESSAGES_MAX = 50
PARTICIPANTS_MAX = 50
CELLS_MAX = 512
# SDS messages of which it is remembered what they follow and which message they are part of.
SDS_MESSAGES_MAX = 4_096
CAUSES_MAX = 16
NAMED_MAX = 8
SECONDS_SHOWN = 120
NAME_CHARACTERS_MAX = 64
# Of a cell, which is a segment.
WAITS, LEAVING, SENT, AGAIN, ACKNOWLEDGED, RECEIVED, RECOVERED = b".dslarp"
# What `stats` counts that says how the channel does.
_SHOWN = (
    "missing",
    "lost",
    "outgoing_unacknowledged",
    "outgoing_queued",
    "repair_requests",
    "repair_answers",
    "deliveries_waiting",
    "bytes_held",
)

K = TypeVar("K")
V = TypeVar("V")


def name_of(text: str) -> str:
    """A name that a peer chose, cut, with what it could do to a line escaped."""
    shown = printable(text[:NAME_CHARACTERS_MAX])
    return shown if len(text) <= NAME_CHARACTERS_MAX else f"{shown}..."


@dataclass(slots=True)
class _Row:
    """One message."""

    number: int
    sender: str
    is_own: bool
    at_ms: int
    cells: bytearray = field(default_factory=bytearray)
    segments: int | None = None
    data_segments: int | None = None
    beyond: int = 0
    outcome: str = ""
    who: set[str] = field(default_factory=set)
    causes: dict[int, None] = field(default_factory=dict)

    def here(self) -> int:
        return sum(cell in (RECEIVED, RECOVERED, ACKNOWLEDGED) for cell in self.cells)

    def state(self) -> str:
        if self.outcome:
            return self.outcome
        is_whole = self.data_segments is not None and self.here() + self.beyond >= self.data_segments
        if self.is_own:
            return "acknowledged" if is_whole else "on its way"
        return "whole" if is_whole else "incomplete"


@dataclass(slots=True)
class _Participant:
    """Who was heard."""

    name: str
    heard_ms: int = 0
    messages: int = 0
    syncs: int = 0
    size_bytes: int = 0
    acknowledged: int = 0


class ChannelView:
    """Watches a channel and tells what a page shows of it.

    What peers chose, ids and names, is kept cut or as a hash: whatever they send, this takes some hundred KB.

    Args:
        channel: The channel. Its received messages are left to the application.
        clock_ms: Unix time in ms.

    Attributes:
        version: Grows with everything that happens.
    """

    def __init__(
        self, channel: ReliableChannel, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._channel = channel
        self._clock_ms = clock_ms
        self.version = 0
        self._rows: OrderedDict[int, _Row] = OrderedDict()
        self._numbers = 0
        self._participants: OrderedDict[int, _Participant] = OrderedDict()
        self._histories: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._row_of: OrderedDict[int, int] = OrderedDict()
        # By second: bytes sent, bytes received, messages sent, messages received.
        self._seconds: OrderedDict[int, list[int]] = OrderedDict()
        self._irretrievable = 0
        self._trouble = ""
        self._ends = [
            channel.observe_sds(self._on_message),
            channel.observe(self._on_segment),
            channel.on(MessageSentEvent, self._on_outcome),
            channel.on(MessageDeliveredEvent, self._on_outcome),
            channel.on(MessageSendErrorEvent, self._on_outcome),
            channel.on(IrretrievableMessageEvent, self._on_irretrievable),
            channel.on(NodeFailingEvent, self._on_node_failing),
        ]

    def close(self) -> None:
        """Stops watching."""
        while self._ends:
            self._ends.pop()()

    # --- what happens ---

    def _on_message(self, seen: SdsObservation) -> None:
        self.version += 1
        is_sent = seen.direction == "sent"
        second = _put(self._seconds, self._clock_ms() // 1000, lambda: [0, 0, 0, 0], SECONDS_SHOWN)
        second[not is_sent] += seen.size_bytes
        second[2 + (not is_sent)] += 1
        one = self._participant(seen.sender_id)
        one.heard_ms = seen.at_ms
        one.size_bytes += seen.size_bytes
        if seen.kind == "sync":
            one.syncs += 1
        else:
            one.messages += 1
        if seen.kind == "content":
            causes = tuple(map(hash, seen.causal_history[-CAUSES_MAX:]))
            _put(self._histories, hash(seen.message_id), lambda: causes, SDS_MESSAGES_MAX)

    def _on_segment(self, seen: SegmentObservation) -> None:
        self.version += 1
        is_own = seen.stage in ("dispatched", "propagated", "acknowledged")
        sender = self._channel.sender_id if is_own else seen.participant
        key = hash((is_own, sender, seen.send_id))
        row = self._rows.get(key)
        if row is None:
            if seen.stage == "acknowledged":
                # Of a message that is forgotten.
                return
            self._numbers += 1
            number = self._numbers
            row = _put(self._rows, key, lambda: _Row(number, name_of(sender), is_own, seen.at_ms), MESSAGES_MAX)
        row.segments = seen.content_count or row.segments
        row.data_segments = seen.data_count or row.data_segments
        if seen.stage == "acknowledged":
            self._participant(seen.participant).acknowledged += 1
            if len(row.who) < NAMED_MAX:
                row.who.add(name_of(seen.participant))
        if seen.message_id is not None and seen.stage in ("dispatched", "received"):
            self._place(hash(seen.message_id), key, row)
        _mark(row, seen)

    def _place(self, message: int, key: int, row: _Row) -> None:
        """An SDS message is part of a message, which so follows what that follows."""
        _put(self._row_of, message, lambda: key, SDS_MESSAGES_MAX)
        for cause in self._histories.get(message, ()):
            if self._row_of.get(cause) != key and len(row.causes) < CAUSES_MAX:
                row.causes[cause] = None

    def _on_outcome(self, event: MessageSentEvent | MessageDeliveredEvent | MessageSendErrorEvent) -> None:
        self.version += 1
        # Ids made of contents name the message, all others the request.
        for send_id in (event.request_id, event.message_id):
            row = self._rows.get(hash((True, self._channel.sender_id, send_id)))
            if row is None:
                continue
            if isinstance(event, MessageDeliveredEvent):
                row.outcome = "delivered"
                row.who.update(sorted(map(name_of, event.delivered_to))[: NAMED_MAX - len(row.who)])
            elif isinstance(event, MessageSendErrorEvent):
                row.outcome = "failed"
            elif not row.outcome:
                row.outcome = "sent"

    def _on_irretrievable(self, event: IrretrievableMessageEvent) -> None:
        self.version += 1
        self._irretrievable += len(event.history_entries)

    def _on_node_failing(self, event: NodeFailingEvent) -> None:
        self.version += 1
        self._trouble = f"the network takes nothing: {one_line(event.error)}" if event.failing else ""

    def _participant(self, sender_id: str) -> _Participant:
        key = hash(sender_id)
        one = _put(self._participants, key, lambda: _Participant(name_of(sender_id)), PARTICIPANTS_MAX)
        self._participants.move_to_end(key)
        return one

    # --- what is shown ---

    def snapshot(self) -> dict[str, Any]:
        """Everything that the page shows, as JSON takes it."""
        channel, now_ms = self._channel, self._clock_ms()
        quota, stats = channel.rate_limit_status(), channel.stats()
        own = name_of(channel.sender_id)
        return {
            "channel": name_of(channel.channel_id),
            "topic": name_of(channel.content_topic),
            "sender": own,
            "state": "closed" if channel.is_closed() else "started" if channel.is_started() else "stopped",
            "trouble": self._trouble,
            "now_ms": now_ms,
            "irretrievable": self._irretrievable,
            "stats": {name: stats.get(name, 0) for name in _SHOWN},
            "quota": {
                "enabled": quota.enabled,
                "used": quota.used,
                "total": quota.total,
                "resets_at_ms": quota.resets_at_ms,
                "queued": quota.queued,
            },
            "participants": [
                {
                    "name": one.name,
                    "own": one.name == own,
                    "heard_ms": one.heard_ms,
                    "messages": one.messages,
                    "syncs": one.syncs,
                    "bytes": one.size_bytes,
                    "acknowledged": one.acknowledged,
                }
                for one in reversed(self._participants.values())
            ],
            "messages": [self._shown(row) for row in reversed(self._rows.values())],
            "seconds": [
                self._seconds.get(second, (0, 0, 0, 0))
                for second in range(now_ms // 1000 - SECONDS_SHOWN + 1, now_ms // 1000 + 1)
            ],
        }

    def _shown(self, row: _Row) -> dict[str, Any]:
        rows = [self._rows.get(self._row_of.get(cause, 0)) for cause in row.causes]
        causes = {cause.number for cause in rows if cause is not None and cause is not row}
        return {
            "number": row.number,
            "sender": row.sender,
            "own": row.is_own,
            "at_ms": row.at_ms,
            "cells": row.cells.decode(),
            "segments": row.segments,
            "data_segments": row.data_segments,
            "beyond": row.beyond,
            "state": row.state(),
            "who": sorted(row.who),
            "follows": sorted(causes),
            "unseen": sum(cause is None for cause in rows),
        }


def _mark(row: _Row, seen: SegmentObservation) -> None:
    """Enters into a row what became of one segment. Its place and its counts are what peers say."""
    known = min(row.segments or 0, CELLS_MAX)
    row.cells.extend(b"." * (max(known, min(seen.ordinal + 1, CELLS_MAX)) - len(row.cells)))
    at = seen.ordinal
    if at >= CELLS_MAX:
        row.beyond += seen.stage in ("received", "recovered", "acknowledged")
        return
    cell = row.cells[at]
    match seen.stage:
        case "dispatched" if cell != ACKNOWLEDGED:
            row.cells[at] = AGAIN if seen.attempt else LEAVING
        case "propagated" if cell == LEAVING:
            row.cells[at] = SENT
        case "acknowledged":
            row.cells[at] = ACKNOWLEDGED
        case "received":
            row.cells[at] = RECEIVED
        case "recovered":
            row.cells[at] = RECOVERED
        case _:
            pass


def _put(table: OrderedDict[K, V], key: K, make: Callable[[], V], entries_max: int) -> V:
    """The entry of a key, made where there is none; the oldest goes where there are too many."""
    found = table.get(key)
    if found is None:
        found = table[key] = make()
        if len(table) > entries_max:
            table.popitem(last=False)
    return found
