"""`channel_report` on traffic whose every answer is known."""

from __future__ import annotations

import shutil
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shardwire import ConfigError, _native
from shardwire.spark import channel_report
from shardwire.spark.report_plot import draw_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What draws is none of what Spark needs: PySpark 3.5 is tested without it.
Text = pytest.importorskip("matplotlib.text", reason="a report is drawn with matplotlib, which is not installed").Text
MS = 1_000_000


def sds(sender: str, message_id: str, history: tuple[str, ...] = (), content: bytes | None = b"content") -> bytes:
    return _native.SdsMessage(
        sender_id=sender,
        message_id=message_id,
        channel_id="room",
        lamport_timestamp=1,
        causal_history=[_native.HistoryEntry(entry) for entry in history],
        content=content,
    ).encode()


TRAFFIC = [
    (0, sds("alice", "a1")),
    (10, sds("alice", "a2", ("a1",))),
    # bob acknowledges a1 after 30 ms and names m1, which comes late, and m2, which never comes.
    (30, sds("bob", "b1", ("a1", "m1", "m2"))),
    (40, sds("alice", "a2", ("a1",))),
    (50, sds("carol", "m1")),
    (60, sds("bob", "sync-1", ("a2",), None)),
    (61_000, sds("alice", "a3", ("b1", "m2"))),
]


def test_every_answer(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(5 * 60_000 * MS + at * MS, message) for at, message in TRAFFIC] + [(1, b"\xff"), (2, None)]
    spark.createDataFrame(rows, "timestamp bigint, payload binary").repartition(3).write.parquet(str(tmp_path / "in"))
    # As `reconstruct` names the layers of the same archive.
    report = channel_report(spark.read.parquet(str(tmp_path / "in")), unwrap=["sds"])
    report.decoded.persist()
    assert report.decoded.count() == len(TRAFFIC) + 1
    # Every answer starts from those rows: none reads the archive again.
    shutil.rmtree(tmp_path / "in")

    traffic = {(r["sender_id"], r["kind"], r["interval_start"] // (60_000 * MS)): r for r in report.traffic.collect()}
    assert set(traffic) == {
        ("alice", "content", 5),
        ("bob", "content", 5),
        ("bob", "sync", 5),
        ("carol", "content", 5),
        ("alice", "content", 6),
    }
    first = traffic["alice", "content", 5]
    assert (first["messages"], first["repeats"], first["content_bytes"]) == (3, 1, 21)
    assert first["bytes"] == sum(len(message) for at, message in TRAFFIC if at in (0, 10, 40))

    overhead = {row["kind"]: row for row in report.overhead.collect()}
    assert overhead["sync"]["overhead_share"] == 1.0
    assert (overhead["content"]["messages"], overhead["content"]["content_bytes"]) == (6, 42)

    gaps = {row["message_id"]: row for row in report.gaps.collect()}
    assert {name: (row["state"], row["named_by"]) for name, row in gaps.items()} == {
        "m1": ("late", 1),
        "m2": ("lost", 2),
    }
    assert (gaps["m1"]["arrived"] - gaps["m1"]["named_first"]) == 20 * MS

    acknowledged = {row["sender_id"]: row for row in report.acknowledgements.collect()}
    alice = acknowledged["alice"]
    # a1 after 30 ms, a2 after 50 ms by bob's sync; a3 by nobody.
    assert (alice["messages"], alice["acknowledged"], alice["latency_p50_ms"]) == (3, 2, 40.0)
    assert acknowledged["bob"]["latency_p50_ms"] == 61_000 - 30
    assert (acknowledged["carol"]["messages"], acknowledged["carol"]["acknowledged"]) == (1, 0)

    [unread] = report.unread.collect()
    assert unread["messages"] == 1
    report.plot(tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    report.decoded.unpersist()


def texts(figure: Any) -> set[str]:
    """Everything that is written in a picture."""
    return {text.get_text().strip() for text in figure.findobj(Text) if text.get_visible()}


def test_the_picture_tells_the_answers_and_bears_hostile_names() -> None:
    interval_ns = 60_000 * MS
    traffic = [
        {"sender_id": name, "interval_start": start * interval_ns, "bytes": size}
        for name, start, size in (("alice", 10, 60 << 20), ("_$x$_{", 10, 5), ("alice", 14, 1), (None, 12, 3))
    ]
    overhead = [{"kind": "sync", "messages": 1_200, "bytes": 4_096, "content_bytes": 0, "overhead_share": 1.0}]
    latency = {"latency_p50_ms": 5.0, "latency_p90_ms": 6.0, "latency_p99_ms": 7.0}
    acknowledgements = [
        {"sender_id": "n" * 400, "messages": 8, "acknowledged": 6, **latency},
        {"sender_id": "mute", "messages": 1, "acknowledged": 0, **dict.fromkeys(latency)},
    ]
    gaps = [{"state": "lost", "interval_start": 12 * interval_ns, "messages": 3}]
    figure = draw_report(traffic, overhead, acknowledgements, gaps, interval_ns)
    figure.savefig(BytesIO())
    told = texts(figure)
    assert {"alice", "all others", "MiB/s", "100.0% overhead, 1,200 messages", "KiB"} <= told
    assert {"75% of 8 acknowledged", "3 never came", "0 came late"} <= told
    assert not any("nnnnnnnnnnnnnnnnnnn" in text or "mute" in text for text in told)
    stacked = figure.axes[0].collections[0].get_paths()[0].get_extents()
    # 60 MiB in a minute, and intervals without traffic between.
    assert stacked.y1 == 1.0
    assert stacked.width * 86_400 == pytest.approx(5 * 60)


def test_a_picture_of_nothing() -> None:
    figure = draw_report([], [], [], [], 1)
    figure.savefig(BytesIO())
    assert "nothing to show" in texts(figure)


def test_wrong_arguments(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, b"")], "timestamp bigint, payload binary")
    for match, arguments in {
        "sds is 'nim' and unwrap names the wire 'spec': leave one out": {"unwrap": ["sds"], "sds": "nim"},
        "sds is 'spec' and unwrap names the wire 'nim': leave one out": {"unwrap": ["sds-nim"], "sds": "spec"},
        "interval_ms is 0": {"interval_ms": 0},
        "interval_ms is 9223372036855: it must be an integer from 1 to 9223372036854": {"interval_ms": 9223372036855},
        "interval_ms is .5.: it must be an integer": {"interval_ms": "5"},
        "payload names the column 'x'": {"payload": "x"},
    }.items():
        with pytest.raises(ConfigError, match=match):
            channel_report(df, **arguments)  # type: ignore[arg-type]


def test_times_that_peers_make_up_fail_no_answer(spark: SparkSession, tmp_path: Path) -> None:
    least, most = -(1 << 63), (1 << 63) - 1
    rows = [
        (least, sds("alice", "a1")),
        (most, sds("bob", "b1", ("a1",))),
        (0, sds("alice", "a2")),
        (MS, sds("bob", "b2", ("a2",))),
    ]
    report = channel_report(spark.createDataFrame(rows, "timestamp bigint, payload binary"), interval_ms=60_000)
    # Before this time no interval of a minute begins.
    assert {row["interval_start"] for row in report.traffic.where("sender_id = 'alice'").collect()} == {None, 0}
    acknowledged = {row["sender_id"]: row for row in report.acknowledgements.collect()}
    # A wait of more than 64 bits is no time.
    assert (acknowledged["alice"]["acknowledged"], acknowledged["alice"]["latency_p99_ms"]) == (2, 1.0)
    report.plot(tmp_path / "report.png")
