"""`channel_report` on traffic whose every answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shardwire import ConfigError, _native
from shardwire.spark import channel_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    df = spark.createDataFrame(rows, "timestamp bigint, payload binary").repartition(3)
    report = channel_report(df)
    # Every answer starts from these rows.
    report.messages.cache()

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


def test_wrong_arguments(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, b"")], "timestamp bigint, payload binary")
    for match, arguments in {
        "leave it out": {"unwrap": ["sds"]},
        "interval_ms is 0": {"interval_ms": 0},
        "payload names the column 'x'": {"payload": "x"},
    }.items():
        with pytest.raises(ConfigError, match=match):
            channel_report(df, **arguments)  # type: ignore[arg-type]
