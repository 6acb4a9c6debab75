"""What is said of an archive: its intervals, its senders, what is not whole, and what SDS messages cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.rows import CONFIG, payload_of

from shardwire import SegmentationConfig, _native
from shardwire.archive import report, report_page, summarize
from shardwire.archive.report import INTERVALS_MAX, ArchiveSummary, KindTally, Latencies, Tally
from shardwire.segmentation import segment

BEGIN_NS = 1_700_000_000_000_000_000


def archive_of(
    path: Path, rows: Sequence[tuple[bytes, int | None, str | None]], row_group_size: int | None = None
) -> Path:
    columns: dict[str, Any] = {
        "payload": pa.array([row[0] for row in rows], pa.binary()),
        "timestamp": pa.array([row[1] for row in rows], pa.int64()),
        "who": pa.array([row[2] for row in rows], pa.string()),
    }
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


def one(number: int) -> bytes:
    """A message of one segment."""
    return segment(payload_of(number, 100), CONFIG)[0]


@pytest.mark.parametrize("span_ns", [0, 1, 59, 60, 61, 118, 119, 120, 6_000])
def test_a_span_of_any_length_has_no_more_intervals_than_are_shown(tmp_path: Path, span_ns: int) -> None:
    rows = [(one(number), BEGIN_NS + at, None) for number, at in enumerate((span_ns, 0))]
    summary = summarize(archive_of(tmp_path / "archive.parquet", rows), CONFIG)
    first, last = min(summary.times), max(summary.times)
    assert first == BEGIN_NS
    assert (last - first) // summary.interval_ns < INTERVALS_MAX
    assert last <= BEGIN_NS + span_ns < last + summary.interval_ns


def test_messages_without_one_sender_have_a_row_of_their_own_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "SENDERS_MAX", 3)
    parts = segment(payload_of(9, 1_000), CONFIG)
    rows = [(one(0), None, None), (parts[0], None, "alice"), (parts[1], None, "bob"), (one(1), None, "alice")]
    rows += [(one(2), None, "bob"), (one(3), None, "carol")]
    summary = summarize(archive_of(tmp_path / "archive.parquet", rows), CONFIG, sender="who")
    told = {name: sum(tally.statuses.values()) for name, tally in summary.senders.items()}
    assert sum(told.values()) == 5
    assert len(told) == 4
    assert set(told) >= {"(all others)"}
    assert summary.times == {}
    alone = summarize(archive_of(tmp_path / "alone.parquet", rows[:3]), CONFIG, sender="who")
    assert {name: tally.segments for name, tally in alone.senders.items()} == {"(unknown)": 1, "(several)": 2}


def test_a_message_that_is_false_is_listed_with_its_error(tmp_path: Path) -> None:
    false = one(0)[:-1] + b"?"
    summary = summarize(archive_of(tmp_path / "archive.parquet", [(false, None, "bob")]), CONFIG, sender="who")
    assert dict(summary.total.statuses) == {"invalid": 1}
    (listed,) = summary.unfinished
    assert (listed["status"], listed["sender"]) == ("invalid", "bob")
    assert listed["error"]


def test_every_sds_message_counts_with_its_bytes_wherever_it_is(tmp_path: Path) -> None:
    def sds(sender: str, message_id: str, content: bytes | None) -> bytes:
        return _native.SdsMessage(
            sender_id=sender, message_id=message_id, channel_id="room", lamport_timestamp=1, content=content
        ).encode()

    messages = [sds("alice", f"m{number}", number * b"x") for number in range(1, 8)]
    syncs = [sds("bob", f"s{number}", None) for number in range(4)]
    sent = [*messages, *messages[:2], *syncs, b"noise"]
    archive = archive_of(tmp_path / "archive.parquet", [(each, None, None) for each in sent], row_group_size=3)
    summary = summarize(archive, SegmentationConfig(), unwrap=["sds"])
    assert summary.kinds["content"] == KindTally(9, 2, sum(map(len, [*messages, *messages[:2]])), 28 + 3)
    assert summary.kinds["sync"] == KindTally(4, 0, sum(map(len, syncs)), 0)
    assert summary.unacknowledged == Counter(alice=7)
    assert summary.latencies == {}


def cells(page: str) -> list[list[tuple[str, str]]]:
    """What a page sorts each cell by, and what it shows."""
    rows = re.findall(r"<tr>(<td.*?)</tr>", page)
    return [re.findall(r'<td(?: class="number" data-value="(.*?)")?>(.*?)</td>', row) for row in rows]


def test_a_page_sorts_by_numbers_and_shows_what_nobody_knows() -> None:
    summary = ArchiveSummary(
        senders={"alice": Tally(Counter(complete=3), segments=8_000, missing=1)},
        times={10**30: Tally(Counter(complete=1))},
        interval_ns=1,
        unfinished=[
            {
                "hash": "ab" * 32,
                "status": "incomplete",
                "sender": "bob",
                "received": 1_234,
                "needed": None,
                "error": "<why>",
            }
        ],
        kinds={"content": KindTally(4, 1, 1_000, 250)},
        latencies={"alice": Latencies(2, 10.04, 20.0, 30.0), "carol": Latencies(1, None, None, None)},
        unacknowledged=Counter(bob=3),
    )
    time, sender, kind, alice, bob, carol, unfinished = cells(report_page(summary, "traffic"))
    # Of a time that no calendar has, its nanoseconds.
    assert time[0] == (str(10**30), str(10**30))
    assert [sort for sort, _ in sender] == ["", "3", "0", "0", "0", "8000", "1", "0.000125", "0", "0"]
    assert [text for _, text in sender][5:8] == ["8,000", "1", "0.01%"]
    assert kind[-1] == ("0.75", "75.00%")
    assert [text for _, text in alice] == ["alice", "2", "0", "10.0", "20.0", "30.0"]
    assert [text for _, text in bob] == ["bob", "0", "3", "-", "-", "-"]
    assert [text for _, text in carol] == ["carol", "1", "0", "-", "-", "-"]
    assert [text for _, text in unfinished] == ["ab" * 8, "incomplete", "bob", "1,234", "", "&lt;why&gt;"]


def test_the_bars_of_a_picture_stand_on_one_another_side_by_side_within_it() -> None:
    summary = ArchiveSummary(
        times={
            BEGIN_NS: Tally(Counter(complete=2, incomplete=2)),
            BEGIN_NS + 30: Tally(Counter(recovered=1)),
        },
        interval_ns=10,
    )
    bars = re.findall(r'<rect x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', report_page(summary, "traffic"))
    drawn = [tuple(map(float, bar)) for bar in bars if float(bar[3])]
    assert drawn == [(0, 80, 239, 80), (0, 0, 239, 80), (720, 120, 239, 40)]
