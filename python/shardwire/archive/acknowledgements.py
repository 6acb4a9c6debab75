"""Which SDS messages another participant's history named, and when: sorted by message, in bounded memory."""

from __future__ import annotations

import hashlib
import heapq
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

OTHERS = "(all others)"
UNKNOWN = "(unknown)"
# Senders that have a row of their own; the rest share one. Their names are peers' own: there may be any number.
SENDERS_MAX = 1_000
# What is sorted at once; sorting copies it some times.
_SORTED_BYTES = 64 << 20
# How many records of all sorted files are read at once.
_READ = 1 << 18
# Ids and names may have any length and are peers' own; digests have one, and nobody finds two texts with one of them.
_EVENT = np.dtype(
    [("id", "<u8", 2), ("is_timed", "u1"), ("time", "<i8"), ("is_naming", "u1"), ("who", "<u8", 2)], align=True
)
_Numbers = np.ndarray[Any, Any]
_Who = tuple[int, int]
# Of one message in order: what has no time comes first, and what is sent before what names it at the same time.
_Event = tuple[_Who, int, int, int, _Who]


@dataclass(slots=True)
class Waited:
    """What is known of the messages with content of some senders.

    Attributes:
        acknowledged: How many another participant's history named.
        unacknowledged: How many none named.
        waited_ns: How long those waited of which both times are known.
    """

    acknowledged: int = 0
    unacknowledged: int = 0
    waited_ns: array[int] = field(default_factory=lambda: array("q"))


class Acknowledgements:
    """Messages with content and the histories that name them.

    Two senders with one message id sent two messages. One's own history acknowledges nothing, nor does one that came
    before the message. The time that this takes grows with the number of events, whatever ids and names peers choose;
    memory with the senders that claim one message id, and by 8 bytes an acknowledged message.

    Args:
        directory: Where events go beyond 64 MB; the caller removes it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: list[_Numbers] = []
        self._held_bytes = 0
        self._runs: list[Path] = []
        self._labels: dict[_Who, str] = {}
        self.repeats = 0
        self.senders: dict[str, Waited] = {}

    def add(self, messages: pa.StructArray, times: pa.Array[Any]) -> None:
        """Takes in a batch of SDS messages, none of them null, with the time of each in ns, or null."""
        names: Any = pa.compute.fill_null(messages.field("sender_id"), pa.scalar(""))
        is_unknown: Any = pa.compute.equal(names, pa.scalar(""))
        names = pa.compute.if_else(is_unknown, UNKNOWN, names)
        who = self._senders(names)
        is_timed = times.is_valid().to_numpy(zero_copy_only=False)
        known: Any = pa.compute.fill_null(times, pa.scalar(0))
        at = known.to_numpy(zero_copy_only=False)
        kinds: Any = messages.field("kind")
        is_content = pa.compute.equal(kinds, pa.scalar("content"))
        sent = np.flatnonzero(is_content.to_numpy(zero_copy_only=False))
        history: Any = messages.field("causal_history")
        entries: Any = pa.compute.list_flatten(history)
        named: Any = pa.compute.list_parent_indices(history).to_numpy()
        for ids, rows, is_naming in (
            (_digests(messages.field("message_id"))[sent], sent, 0),
            (_digests(entries.field("message_id")), named, 1),
        ):
            events = np.zeros(len(rows), _EVENT)
            events["id"], events["who"] = ids, who[rows]
            events["is_timed"], events["time"], events["is_naming"] = is_timed[rows], at[rows], is_naming
            self._held.append(events)
            self._held_bytes += events.nbytes
        if self._held_bytes > _SORTED_BYTES:
            self._write()

    def finish(self) -> None:
        """Counts what was taken in: `repeats` and `senders` are known then."""
        if self._runs:
            self._write()
            runs = [_read(path, max(64, _READ // len(self._runs))) for path in self._runs]
        else:
            runs = [_events(_sorted(self._held))]
        self._held.clear()
        message: _Message | None = None
        for event in heapq.merge(*runs) if len(runs) > 1 else runs[0]:
            if message is None or message.id != event[0]:
                if message is not None:
                    message.finish(self)
                message = _Message(event[0])
            message.handle(self, event)
        if message is not None:
            message.finish(self)

    def of(self, who: _Who) -> Waited:
        """What is known of the messages of a sender, or of all those that share a row."""
        return self.senders.setdefault(self._labels.get(who, OTHERS), Waited())

    def _senders(self, names: Any) -> _Numbers:
        encoded = names.dictionary_encode()
        digests = _digests_of(encoded.dictionary)
        if len(self._labels) < SENDERS_MAX:
            for place, (high, low) in enumerate(digests.tolist()):
                if len(self._labels) < SENDERS_MAX and (high, low) not in self._labels:
                    self._labels[high, low] = encoded.dictionary[place].as_py()
        told: _Numbers = digests[encoded.indices.to_numpy()]
        return told

    def _write(self) -> None:
        path = self._directory / f"events-{len(self._runs):05}"
        _sorted(self._held).tofile(path)
        self._runs.append(path)
        self._held.clear()
        self._held_bytes = 0


@dataclass(slots=True)
class _Message:
    """One message id: who sent it, and who named it. Events come in order."""

    id: _Who
    # Senders whose message nobody named since, with the time of the first one.
    pending: dict[_Who, int] = field(default_factory=dict)
    sent: set[_Who] = field(default_factory=set)
    sent_without_time: set[_Who] = field(default_factory=set)
    # The first two that differ say for every sender whether another one named it.
    namers: list[_Who] = field(default_factory=list)
    namers_without_time: list[_Who] = field(default_factory=list)

    def handle(self, found: Acknowledgements, event: _Event) -> None:
        _, is_timed, time, is_naming, who = event
        if is_naming:
            namers = self.namers if is_timed else self.namers_without_time
            if not namers or (len(namers) == 1 and namers[0] != who):
                namers.append(who)
            if is_timed and self.pending:
                own = self.pending.pop(who, None)
                for sender, since in self.pending.items():
                    waited = found.of(sender)
                    waited.acknowledged += 1
                    # Times are peers' own: what 64 bits do not hold nobody waited.
                    if time - since < 1 << 63:
                        waited.waited_ns.append(time - since)
                self.pending.clear()
                if own is not None:
                    self.pending[who] = own
        elif not is_timed:
            found.repeats += who in self.sent_without_time
            self.sent_without_time.add(who)
        elif who in self.sent:
            found.repeats += 1
        else:
            found.repeats += who in self.sent_without_time
            self.sent_without_time.discard(who)
            self.sent.add(who)
            self.pending[who] = time

    def finish(self, found: Acknowledgements) -> None:
        for senders, namers in (
            (self.pending, self.namers_without_time),
            (self.sent_without_time, [*self.namers_without_time, *self.namers]),
        ):
            for sender in senders:
                if any(namer != sender for namer in namers):
                    found.of(sender).acknowledged += 1
                else:
                    found.of(sender).unacknowledged += 1


def percentiles_ms(waited: Waited, shares: tuple[int, ...]) -> list[float | None]:
    """The waits, in ms, that such shares in percent did not exceed."""
    if not waited.waited_ns:
        return [None] * len(shares)
    ordered = np.sort(np.frombuffer(waited.waited_ns, np.int64))
    return [float(ordered[(len(ordered) - 1) * share // 100]) / 1_000_000 for share in shares]


def _digests(texts: Any) -> _Numbers:
    encoded = texts.dictionary_encode()
    digests: _Numbers = _digests_of(encoded.dictionary)[encoded.indices.to_numpy()]
    return digests


def _digests_of(texts: Any) -> _Numbers:
    digests = bytearray().join(hashlib.blake2b(text.as_buffer(), digest_size=16).digest() for text in texts)
    return np.frombuffer(digests, np.uint64).reshape(-1, 2) if digests else np.zeros((0, 2), np.uint64)


def _sorted(held: list[_Numbers]) -> _Numbers:
    events = np.concatenate(held) if held else np.zeros(0, _EVENT)
    ids, who = events["id"], events["who"]
    by = (who[:, 1], who[:, 0], events["is_naming"], events["time"], events["is_timed"], ids[:, 1], ids[:, 0])
    return events[np.lexsort(by)]


def _read(path: Path, count: int) -> Iterator[_Event]:
    # Opened for each piece: there may be more files than a process may have open.
    place = 0
    while (events := np.fromfile(path, _EVENT, count, offset=place)).size:
        yield from _events(events)
        place += events.nbytes


def _events(events: _Numbers) -> Iterator[_Event]:
    for start in range(0, len(events), _READ):
        part = events[start : start + _READ]
        ids, is_timed, times, is_naming, who = (part[name].tolist() for name in _EVENT.names or ())
        yield from zip(map(tuple, ids), is_timed, times, is_naming, map(tuple, who), strict=True)
