"""Who named which SDS message, and when: as the definition says, at a cost that no choice of ids and names raises."""

from __future__ import annotations

import sys
import tempfile
from array import array
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwire import SegmentationConfig, _native
from shardwire.archive import acknowledgements, summarize
from shardwire.archive.acknowledgements import Acknowledgements, Waited, percentiles_ms

# Sender, message id, the ids that it names, and when it came; nothing is sent where there is no message id.
Row = tuple[str, str | None, tuple[str, ...], int | None]
NAMES = st.sampled_from(("", "alice", "bob", "carol"))
IDS = st.sampled_from(("m", "n", ""))
ROWS = st.lists(
    st.tuples(NAMES, st.none() | IDS, st.lists(IDS, max_size=2).map(tuple), st.none() | st.integers(-3, 9)), max_size=20
)


def encoded(row: Row) -> bytes:
    sender, message_id, named, _ = row
    return _native.SdsMessage(
        sender_id=sender,
        message_id="" if message_id is None else message_id,
        channel_id="channel",
        lamport_timestamp=1,
        causal_history=[_native.HistoryEntry(message_id=one) for one in named],
        content=None if message_id is None else b"content",
    ).encode()


def decoded(rows: list[Row]) -> tuple[pa.StructArray, pa.Array[Any]]:
    messages = _native.arrow_decode_sds(pa.array([encoded(row) for row in rows], pa.binary()), "spec")
    return messages, pa.array([row[3] for row in rows], pa.int64())


def by_the_definition(rows: list[Row]) -> tuple[int, dict[str, tuple[int, int, list[int]]]]:
    """Every message with content beside every history that names it."""
    sent: dict[tuple[str, str], list[int | None]] = defaultdict(list)
    for sender, message_id, _, time in rows:
        if message_id is not None:
            sent[message_id, sender or "(unknown)"].append(time)
    found: dict[str, tuple[int, int, list[int]]] = {}
    for (message_id, sender), times in sent.items():
        since = min((time for time in times if time is not None), default=None)
        heard = [
            time
            for namer, _, named, time in rows
            if message_id in named and (namer or "(unknown)") != sender
            if time is None or since is None or time >= since
        ]
        known = [time for time in heard if time is not None]
        yes, no, waited = found.get(sender, (0, 0, []))
        waits = [min(known) - since] if known and since is not None else []
        found[sender] = (yes + bool(heard), no + (not heard), sorted(waited + waits))
    return sum(len(times) - 1 for times in sent.values()), found


def counted(found: Acknowledgements) -> tuple[int, dict[str, tuple[int, int, list[int]]]]:
    senders = {
        name: (one.acknowledged, one.unacknowledged, sorted(one.waited_ns)) for name, one in found.senders.items()
    }
    return found.repeats, senders


@settings(max_examples=300, deadline=None)
@given(st.lists(ROWS, max_size=4), st.sampled_from((0, 300, 1 << 20)), st.sampled_from((1, 1 << 18)))
def test_as_the_definition_says(batches: list[list[Row]], sorted_bytes: int, read: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.setattr(acknowledgements, "_SORTED_BYTES", sorted_bytes)
        patch.setattr(acknowledgements, "_READ", read)
        found = Acknowledgements(Path(directory))
        for rows in batches:
            found.add(*decoded(rows))
        found.finish()
    assert counted(found) == by_the_definition([row for rows in batches for row in rows])


def test_no_time_is_too_far_from_another(tmp_path: Path) -> None:
    found = Acknowledgements(tmp_path)
    found.add(*decoded([("alice", "m", (), -(2**63)), ("bob", "n", ("m",), 2**63 - 1), ("carol", None, ("n",), None)]))
    found.finish()
    assert counted(found) == (0, {"alice": (1, 0, []), "bob": (1, 0, [])})


def test_senders_beyond_the_limit_share_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgements, "SENDERS_MAX", 2)
    found = Acknowledgements(tmp_path)
    found.add(*decoded([(f"s{number}", f"m{number}", (), 1) for number in range(5)]))
    found.add(*decoded([("s9", None, ("m0", "m4"), 3)]))
    found.finish()
    assert counted(found) == (0, {"s0": (1, 0, [2]), "s1": (0, 1, []), "(all others)": (1, 2, [2])})


def test_events_beyond_the_memory_go_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgements, "_SORTED_BYTES", 10_000)
    found = Acknowledgements(tmp_path)
    held = []
    for number in range(50):
        found.add(*decoded([("alice", f"m{number}", ("m",) * 60, 1)]))
        held.append(sum(events.nbytes for events in found._held))
    assert max(held) <= 10_000
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) + held[-1] == 50 * 61 * 56
    # Each as large as may be.
    assert len(list(tmp_path.iterdir())) == 50 // 3


@pytest.mark.parametrize(
    ("waits_ms", "told"),
    [
        ([], [None] * 3),
        ([7], [7, 7, 7]),
        ([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], [5, 9, 9]),
        ([*range(101, 0, -1)], [51, 91, 100]),
    ],
)
def test_a_percentile_is_a_wait_that_was(waits_ms: list[int], told: list[float | None]) -> None:
    waited = Waited(waited_ns=array("q", [wait * 1_000_000 for wait in waits_ms]))
    assert percentiles_ms(waited, (50, 90, 99)) == told


def hostile(path: Path, count: int) -> str:
    """As many senders that claim one message id as messages that name it."""
    rows: list[Row] = [(f"sender-{number}", "m", (), number) for number in range(count)]
    rows += [(f"namer-{number}", None, ("m",), count + number) for number in range(count)]
    columns: dict[str, Any] = {
        "payload": pa.array([encoded(row) for row in rows], pa.binary()),
        "timestamp": pa.array([row[3] for row in rows], pa.int64()),
    }
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_work_grows_with_the_sum_of_senders_and_namers(tmp_path: Path) -> None:
    """Lines of Python are counted, not time: their product is four million."""
    archive, work = hostile(tmp_path / "hostile.parquet", 2_000), Counter[str]()

    class TooMuch(Exception):
        pass

    def trace(frame: Any, event: str, argument: Any) -> Any:
        if "shardwire/archive" not in frame.f_code.co_filename:
            return None
        work["lines"] += event == "line"
        if work["lines"] > 400_000:
            raise TooMuch
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        summary = summarize(archive, SegmentationConfig(), unwrap=["sds"], threads=1)
    finally:
        sys.settrace(before)
    told = sum(one.acknowledged for one in summary.latencies.values())
    assert (told, sum(summary.unacknowledged.values()), len(summary.latencies)) == (2_000, 0, 1_001)
    assert summary.latencies["sender-0"].p50_ms == 2_000 / 1_000_000
