"""`shardwire report`: figures that are right, and a page that is whole, sortable and safe."""

from __future__ import annotations

import importlib
import json
import re
import tempfile
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from channel_world import run_world
from hypothesis import given, settings
from hypothesis import strategies as st
from spark.rows import CONFIG, payload_of

from shardwire.archive import report_page, summarize
from shardwire.archive.report import Tally
from shardwire.cli.app import run
from shardwire.config import SegmentationConfig
from shardwire.node import NetworkConditions
from shardwire.segmentation import segment

# The package has a function of that name.
reconstruct_module = importlib.import_module("shardwire.archive.reconstruct")
SECOND_NS = 1_000_000_000
BEGIN_NS = 1_700_000_000 * SECOND_NS


def archive_of(path: Path, rows: list[tuple[bytes, int, str]], row_group_size: int | None = None) -> str:
    table = pa.table(
        {
            "payload": pa.array([row[0] for row in rows], pa.binary()),
            "timestamp": pa.array([row[1] for row in rows], pa.int64()),
            "who": pa.array([row[2] for row in rows], pa.string()),
        }
    )
    pq.write_table(table, path, row_group_size=row_group_size)
    return str(path)


def losses(tmp_path: Path) -> str:
    """Three messages of 8 data and 4 parity segments: whole, 2 lost, 6 lost; of the first one twice."""
    rows: list[tuple[bytes, int, str]] = []
    for number, lost in enumerate((0, 2, 6)):
        parts = segment(payload_of(number, 5_000), CONFIG)
        at = BEGIN_NS + number * 60 * SECOND_NS
        rows += [(part, at, "alice" if number < 2 else "<b>mallory</b>") for part in parts[lost:]]
    rows += [(rows[0][0], BEGIN_NS, "alice"), (b"noise", BEGIN_NS, "alice")]
    return archive_of(tmp_path / "archive.parquet", rows)


def test_figures_are_right(tmp_path: Path) -> None:
    summary = summarize(losses(tmp_path), CONFIG, timestamp="timestamp", sender="who")
    assert dict(summary.total.statuses) == {"complete": 1, "recovered": 1, "incomplete": 1}
    assert summary.total.segments == 3 * 8
    assert summary.total.missing == 4  # of the last message 6 of 12 came, and 8 are needed
    assert summary.total.duplicates == 1
    assert summary.total.recovered == 2
    assert set(summary.senders) == {"alice", "<b>mallory</b>"}
    assert summary.senders["alice"].missing == 2
    assert summary.senders["<b>mallory</b>"].loss == 2 / 8
    assert sum(sum(tally.statuses.values()) for tally in summary.times.values()) == 3
    assert min(summary.times) == BEGIN_NS
    assert [one["status"] for one in summary.unfinished] == ["incomplete"]
    assert sum(summary.unreadable.values()) == 1
    assert summary.kinds == {}


class Page(HTMLParser):
    """What a browser would load, and the tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [str(value) for name, value in attributes if name in ("src", "href", "action", "data")]

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def test_page_is_whole_and_shows_names_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "report.html"
    options = ("--timestamp", "timestamp", "--sender", "who", "--segment-size", "640")
    assert run(["report", losses(tmp_path), "-o", str(output), *options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["event"], told["messages"]["recovered"], told["senders"]) == ("reported", 1, 2)
    text = output.read_text()
    page = Page(text)
    assert page.loaded == []
    assert not re.search(r"https?://|@import|url\(", text)
    assert "b" in page.tags  # our own figures
    assert "<b>mallory" not in text
    assert "<b>mallory</b>" in page.cells
    assert page.tags.count("table") == 4
    assert "svg" in page.tags
    assert "@media print" in text
    assert 'addEventListener("click"' in text


def test_page_goes_to_the_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["report", losses(tmp_path), "-o", "-", "--segment-size", "640"]) == 0
    out, error = capfd.readouterr()
    assert out.startswith("<!doctype html>")
    assert "1 complete, 1 recovered, 1 incomplete, 0 invalid" in error


def test_acknowledgements_and_overhead_of_a_channel(tmp_path: Path) -> None:
    rows: list[tuple[bytes, int, str]] = []

    async def scenario(world: Any) -> None:
        world.network._trace_payloads = True
        alice, bob = await world.join("alice"), await world.join("bob")
        for number in range(5):
            await alice.delivered(await alice.send(b"%d" % number * 500))
        await bob.send(b"answer")
        await world.node("silent")
        import asyncio

        await asyncio.sleep(30)
        rows.extend((one.payload, one.timestamp_ns, one.sender) for one in world.network.trace)

    run_world(scenario, NetworkConditions(delay_ms=(20, 20)))
    summary = summarize(
        archive_of(tmp_path / "channel.parquet", rows), SegmentationConfig(), unwrap=["sds"], timestamp="timestamp"
    )
    assert summary.total.statuses["complete"] == 6
    assert summary.kinds["content"].messages >= 6
    assert 0 < summary.kinds["content"].overhead < 1
    assert summary.kinds["sync"].content_bytes == 0
    latencies = summary.latencies["alice"]
    assert latencies.acknowledged == 5
    assert 20 <= latencies.p50_ms <= latencies.p90_ms <= latencies.p99_ms < 5_000
    page = report_page(summary, "a & b")
    assert "<title>a &amp; b</title>" in page
    assert "Acknowledgement latency" in page


def test_parity_that_was_held_back_is_not_lost(tmp_path: Path) -> None:
    """A channel announces parity for every segment, and sends what is asked for: here nothing."""
    rows: list[tuple[bytes, int, str]] = []

    async def scenario(world: Any) -> None:
        world.network._trace_payloads = True
        alice, _ = await world.join("alice"), await world.join("bob")
        await alice.delivered(await alice.send(bytes(400_000)))
        rows.extend((one.payload, one.timestamp_ns, one.sender) for one in world.network.trace)

    run_world(scenario)
    summary = summarize(archive_of(tmp_path / "channel.parquet", rows), unwrap=["sds"])
    assert (summary.total.segments, summary.total.missing, summary.total.loss) == (4, 0, 0)


@st.composite
def archives(draw: st.DrawFn) -> tuple[list[tuple[bytes, int, str]], dict[str, Any]]:
    """Segments in any order, some lost and some several times; and what a report says, counted one by one."""
    arrived: list[tuple[bytes, str]] = []
    expected: dict[str, Any] = dict.fromkeys(("segments", "missing", "duplicates", "recovered"), 0)
    statuses: Counter[str] = Counter()
    several = 0
    for number in range(draw(st.integers(1, 5))):
        size = draw(st.integers(1_000, 5_000))
        parts = segment(payload_of(number, size), CONFIG)
        data_count = -(-size // CONFIG.segment_size_bytes)
        copies = [draw(st.sampled_from((0, 1, 1, 1, 3))) for _ in parts]
        came = [part for part, count in enumerate(copies) if count]
        if not came:
            continue
        sent = [(parts[part], draw(st.sampled_from(("alice", "bob")))) for part in came for _ in range(copies[part])]
        several += len({who for _, who in sent}) > 1
        arrived += sent
        lacking = data_count - sum(part < data_count for part in came)
        status = "complete" if not lacking else "recovered" if len(came) >= data_count else "incomplete"
        statuses[status] += 1
        expected["segments"] += data_count
        expected["missing"] += data_count - len(came) if status == "incomplete" else lacking
        expected["duplicates"] += sum(copies) - len(came)
        expected["recovered"] += lacking if status == "recovered" else 0
    rows = [(part, BEGIN_NS + at, who) for at, (part, who) in enumerate(draw(st.permutations(arrived)))]
    return rows, {**expected, "statuses": dict(statuses), "several": several}


@settings(max_examples=60, deadline=None)
@given(archives(), st.sampled_from((1, 2_000, 20_000)), st.integers(1, 4), st.sampled_from((1, 3_000, 1 << 28)))
def test_every_segment_counts_wherever_it_is(
    given: tuple[list[tuple[bytes, int, str]], dict[str, Any]], window_bytes: int, threads: int, memory_bytes: int
) -> None:
    rows, expected = given
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.setattr(reconstruct_module, "WINDOW_BYTES", window_bytes)
        patch.setattr(reconstruct_module, "_STRETCH_BYTES_MIN", 1_000)
        patch.setattr(reconstruct_module, "_COUNTED_BYTES", memory_bytes)
        archive = Path(archive_of(Path(directory) / "archive.parquet", rows, row_group_size=3))
        summary = summarize(archive, CONFIG, timestamp="timestamp", sender="who", threads=threads, directory=directory)
        assert list(Path(directory).iterdir()) == [archive]
    total = summary.total
    told = {name: getattr(total, name) for name in ("segments", "missing", "duplicates", "recovered")}
    several = sum(summary.senders.get("(several)", Tally()).statuses.values())
    assert {**told, "statuses": dict(total.statuses), "several": several} == expected


def test_the_messages_listed_are_the_first_by_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(segment(payload_of(number, 5_000), CONFIG)[0], BEGIN_NS, "alice") for number in range(40)]
    archive = archive_of(tmp_path / "archive.parquet", rows, row_group_size=3)
    hashes = sorted(one["hash"] for one in summarize(archive, CONFIG).unfinished)
    assert len(hashes) == 40
    monkeypatch.setattr("shardwire.archive.report.MESSAGES_LISTED_MAX", 5)
    monkeypatch.setattr(reconstruct_module, "_STRETCH_BYTES_MIN", 1_000)
    monkeypatch.setattr(reconstruct_module, "_COUNTED_BYTES", 1)
    for threads in (1, 3):
        assert [one["hash"] for one in summarize(archive, CONFIG, threads=threads).unfinished] == hashes[:5]


def test_the_messages_listed_are_in_order_where_columns_keep_them_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies together is sorted by the columns of `by`, which the page does not show."""
    parts = segment(payload_of(1, 5_000), CONFIG)
    table = pa.table({"payload": parts[:5] + parts[:3], "topic": ["a"] * 5 + ["b"] * 3})
    archive = tmp_path / "archive.parquet"
    pq.write_table(table, archive)
    assert [one["received"] for one in summarize(archive, CONFIG, by=["topic"]).unfinished] == [3, 5]
    monkeypatch.setattr("shardwire.archive.report.MESSAGES_LISTED_MAX", 1)
    assert [one["received"] for one in summarize(archive, CONFIG, by=["topic"]).unfinished] == [3]


def test_a_uri_is_for_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "s3a://bucket/archive", "-o", str(tmp_path / "report.html")]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "'s3a://bucket/archive'" in told
    assert "--spark MASTER" in told


@pytest.mark.parametrize("master", ["localx", "local[", "local[0]", "local[x]", "yarny", "spark://"])
def test_a_master_is_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], master: str
) -> None:
    assert run(["report", losses(tmp_path), "-o", str(tmp_path / "report.html"), "--spark", master]) == 2
    assert f"--spark is '{master}': it must be local[*]" in capsys.readouterr().err


def test_an_empty_archive_gives_a_page(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "empty.parquet", [])
    assert run(["report", archive, "-o", str(tmp_path / "report.html")]) == 0
    assert "The archive has no times" in (tmp_path / "report.html").read_text()


def test_an_archive_that_cannot_be_read_is_no_archive_without_loss(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "report.html"
    archive = archive_of(tmp_path / "noise.parquet", [(b"noise", BEGIN_NS, "alice"), (b"more", BEGIN_NS, "bob")])
    assert run(["report", archive, "-o", str(output)]) == 1
    told = " ".join(capsys.readouterr().err.split())
    assert "none of 2 rows is a segment" in told
    assert "--channel-id" in told
    assert "<b>?</b>of the data segments did not come" in output.read_text()
    assert "0.00%" not in told + output.read_text()


def test_a_page_is_replaced_only_when_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "report.html"
    output.write_text("precious")
    line = ["report", losses(tmp_path), "-o", str(output), "--segment-size", "640"]
    for options in ([], ["--spark", "local[1]"]):
        assert run([*line, *options]) == 2
        error = " ".join(capsys.readouterr().err.split())
        assert f"the output '{output}' exists: give another one, or --overwrite" in error
        assert output.read_text() == "precious"
    # What is no page is not replaced even then, but for a file that holds nothing.
    for options in ([], ["--spark", "local[1]"]):
        assert run([*line, *options, "--overwrite"]) == 2
        error = " ".join(capsys.readouterr().err.split())
        assert f"the output '{output}' is not replaced, since it is no page of shardwire report: give another" in error
        assert output.read_text() == "precious"
    output.write_text("")
    for _ in range(2):
        assert run([*line, "--overwrite"]) == 0
        assert output.read_text().startswith("<!doctype html>")
    # A device takes a page as ever.
    assert run([*line[:3], "/dev/null", *line[4:]]) == 0
