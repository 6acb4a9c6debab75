"""The summary that Spark counts is the one of a single machine, and makes the same page."""

from __future__ import annotations

import asyncio
import importlib
import random
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from channel_world import run_world
from spark.rows import CONFIG, payload_of

from shardwire import _native
from shardwire.archive import decrypt, report_page, summarize
from shardwire.archive.unwrap import UnwrapStep
from shardwire.config import ChannelConfig
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.node import MemoryNetwork, NetworkConditions
from shardwire.segmentation import segment
from shardwire.spark import summarize_archive
from shardwire.spark.summary import acknowledged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
SECOND_NS = 1_000_000_000
BEGIN_NS = 1_700_000_000 * SECOND_NS


def run(arguments: list[str]) -> int:
    """The command; only this much of the tests needs what it is made of."""
    return int(pytest.importorskip("shardwire.cli.app", reason="the command needs typer").run(arguments))


def archive_of(path: Path, rows: list[tuple[bytes, int, str | None]], row_group_size: int | None = None) -> str:
    columns: dict[str, Any] = {
        "payload": pa.array([row[0] for row in rows], pa.binary()),
        "timestamp": pa.array([row[1] for row in rows], pa.int64()),
        "who": pa.array([row[2] for row in rows], pa.string()),
    }
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return str(path)


def segments_with_losses(path: Path) -> str:
    """Forty messages of four senders, one of them without a name: of some segments are lost or come twice."""
    rows: list[tuple[bytes, int, str | None]] = []
    for number in range(40):
        parts = segment(payload_of(number, 5_000 + 100 * number), CONFIG)
        who = ("alice", "bob", "<b>mallory</b>", None)[number % 4]
        at = BEGIN_NS + number * 17 * SECOND_NS
        came = parts[number % 8 :]
        rows += [(came[0], at, who)] * (number % 3)
        rows += [(part, at + place, who) for place, part in enumerate(came)]
    # One message of which two senders sent parts, and what is no segment.
    parts = segment(payload_of(99, 4_000), CONFIG)
    rows += [(part, BEGIN_NS + 900 * SECOND_NS, ("alice", "bob")[place % 2]) for place, part in enumerate(parts)]
    rows += [(b"noise", BEGIN_NS, "alice"), (b"\x0a\x20short", BEGIN_NS, "alice")]
    return archive_of(path, rows)


def traffic_of_a_channel(path: Path, encryption: ChaCha20Poly1305Encryption | None = None) -> str:
    async def scenario(world: Any) -> None:
        conditions = NetworkConditions(delay_ms=(20, 90), loss=0.1)
        world.network = MemoryNetwork(conditions, seed=7, trace_payloads=True)
        config = ChannelConfig.logos(segmentation=CONFIG)
        channels = [await world.join(name, config, encryption=encryption) for name in ("alice", "bob", "carol")]
        for turn in range(4):
            for channel in channels:
                await channel.send(payload_of(turn, 1_500))
                await asyncio.sleep(0.7)
        await asyncio.sleep(30)

    world = run_world(scenario)
    rows = {record.message_hash: record for record in world.network.trace}
    ordered = sorted(rows.values(), key=lambda record: record.time_ns)
    return archive_of(path, [(record.payload or b"", record.time_ns, None) for record in ordered])


def same(one: Any, other: Any) -> None:
    told, expected = asdict(other), asdict(one)
    for summary in (told, expected):
        summary.pop("seconds")
        summary["unfinished"].sort(key=lambda row: row["hash"])
    assert told == expected
    assert report_page(one, "A") == report_page(other, "A")


def test_figures_of_segments_agree(tmp_path: Path, spark_session: SparkSession) -> None:
    archive = segments_with_losses(tmp_path / "archive.parquet")
    here = summarize(archive, CONFIG, timestamp="timestamp", sender="who")
    assert {"complete", "recovered", "incomplete"} <= set(here.total.statuses)
    assert {"(several)", "(unknown)", "alice"} <= set(here.senders)
    assert here.total.duplicates
    assert len(here.times) > 20
    df = spark_session.read.parquet(archive)
    same(here, summarize_archive(df, CONFIG, timestamp="timestamp", sender="who"))


@pytest.mark.parametrize("encrypted", [False, True])
def test_figures_of_a_channel_agree(tmp_path: Path, spark_session: SparkSession, encrypted: bool) -> None:
    encryption = ChaCha20Poly1305Encryption([bytes(range(32))]) if encrypted else None
    archive = traffic_of_a_channel(tmp_path / "archive.parquet", encryption)
    unwrap: list[UnwrapStep] = ["sds"]
    if encryption is not None:
        encryption.write_key_file(tmp_path / "channel.key")
        unwrap.insert(0, decrypt(key_file=tmp_path / "channel.key", channel_id="channel"))
    here = summarize(archive, CONFIG, unwrap=unwrap, timestamp="timestamp")
    assert here.latencies["alice"].acknowledged
    assert here.kinds["sync"].messages
    df = spark_session.read.parquet(archive)
    same(here, summarize_archive(df, CONFIG, unwrap=unwrap, timestamp="timestamp"))


def sds_message(sender: str, message_id: str, named: tuple[str, ...] = ()) -> bytes:
    history = [_native.HistoryEntry(message_id=one) for one in named]
    message = _native.SdsMessage(
        sender_id=sender,
        message_id=message_id,
        channel_id="channel",
        lamport_timestamp=1,
        causal_history=history,
        content=segment(message_id.encode() * 100, CONFIG)[0],
    )
    return message.encode()


def archive_of_acknowledgements(path: Path, *, has_times: bool) -> str:
    """Two senders with one id, a repeat, an acknowledgement of each, and one's own, which is none; not in order."""
    messages = [
        sds_message("carol", "c1", ("a1", "x")),
        sds_message("alice", "a1"),
        sds_message("alice", "x"),
        sds_message("bob", "x"),
        sds_message("alice", "x"),
        sds_message("bob", "b2", ("x", "b2")),
    ]
    times = (50, 10, 20, 30, 40, 90)
    table: dict[str, Any] = {"payload": pa.array(messages, pa.binary())}
    if has_times:
        table["timestamp"] = pa.array([BEGIN_NS + time * 1_000_000 for time in times], pa.int64())
    pq.write_table(pa.table(table), path)
    return str(path)


@pytest.mark.parametrize("has_times", [False, True])
def test_acknowledgements_agree(tmp_path: Path, spark_session: SparkSession, has_times: bool) -> None:
    archive = archive_of_acknowledgements(tmp_path / "archive.parquet", has_times=has_times)
    here = summarize(archive, CONFIG, unwrap=["sds"])
    assert (here.kinds["content"].messages, here.kinds["content"].repeats) == (6, 1)
    assert {name: one.acknowledged for name, one in here.latencies.items()} == {"alice": 2, "bob": 1}
    assert dict(here.unacknowledged) == {"bob": 1, "carol": 1}
    alice, bob = here.latencies["alice"], here.latencies["bob"]
    if has_times:
        assert (alice.p50_ms, alice.p99_ms, bob.p50_ms) == (30, 30, 20)
    else:
        assert {alice.p50_ms, alice.p90_ms, alice.p99_ms, bob.p50_ms} == {None}
        assert "<td>alice</td>" in report_page(here, "A")
        assert "<td>-</td>" in report_page(here, "A")
    same(here, summarize_archive(spark_session.read.parquet(archive), CONFIG, unwrap=["sds"]))


def test_any_times_agree(tmp_path: Path, spark_session: SparkSession) -> None:
    """Times are peers' own: those at both ends of what a column holds differ by more than it holds."""
    messages = [sds_message("alice", "a"), sds_message("bob", "b", ("a",)), sds_message("carol", "c", ("b",))]
    times = pa.array([-(2**63), 2**63 - 1, 7], pa.int64())
    archive = str(tmp_path / "archive.parquet")
    pq.write_table(pa.table({"payload": pa.array(messages, pa.binary()), "timestamp": times}), archive)
    here = summarize(archive, CONFIG, unwrap=["sds"])
    assert here.latencies["alice"].acknowledged == 1
    assert len(here.times) == 3
    same(here, summarize_archive(spark_session.read.parquet(archive), CONFIG, unwrap=["sds"]))


def test_late_repeats_and_parity_agree(
    tmp_path: Path, spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("shardwire.archive.reconstruct")
    monkeypatch.setattr(module, "WINDOW_BYTES", 2_000)
    monkeypatch.setattr(module, "_STRETCH_BYTES_MIN", 1_000)
    all_parts = [segment(payload_of(number, 5_000), CONFIG) for number in range(20)]
    early: list[tuple[bytes, int, str | None]] = [
        (part, BEGIN_NS, "alice") for parts in all_parts for part in parts[:8]
    ]
    late = [(part, BEGIN_NS + SECOND_NS, "bob") for parts in all_parts for part in (parts[0], *parts[8:])]
    archive = archive_of(tmp_path / "archive.parquet", early + late, row_group_size=10)
    here = summarize(archive, CONFIG, timestamp="timestamp", sender="who", threads=2)
    assert (here.total.missing, here.total.duplicates) == (0, 20)
    df = spark_session.read.parquet(archive)
    same(here, summarize_archive(df, CONFIG, timestamp="timestamp", sender="who"))


def test_the_command_writes_the_same_page(
    tmp_path: Path, spark_session: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = segments_with_losses(tmp_path / "archive.parquet")
    line = ["report", archive, "-s", str(CONFIG.segment_size_bytes), "--timestamp", "timestamp", "--sender", "who"]
    assert run([*line, "-o", str(tmp_path / "here.html")]) == 0
    assert run([*line, "-o", str(tmp_path / "spark.html"), "--spark", "local[2]"]) == 0
    assert (tmp_path / "here.html").read_bytes() == (tmp_path / "spark.html").read_bytes()
    capsys.readouterr()
    assert run([*line, "-o", str(tmp_path / "no.html"), "--spark", "locl[2]"]) == 2
    assert "--spark is 'locl[2]': it must be local[*]" in capsys.readouterr().err
    line[1] = Path(archive).as_uri()
    assert run([*line, "-o", str(tmp_path / "uri.html"), "--spark", "local[2]"]) == 0
    assert (tmp_path / "uri.html").read_bytes() == (tmp_path / "spark.html").read_bytes()
    capsys.readouterr()
    line[1] = str(tmp_path / "absent.parquet")
    assert run([*line, "-o", str(tmp_path / "no.html"), "--spark", "local[2]"]) == 2
    assert "there is no file or directory" in capsys.readouterr().err


def rows_of_plan(df: DataFrame) -> int:
    """The most rows that a step of an executed plan gave."""
    most = 0

    def visit(node: Any) -> None:
        nonlocal most
        metric = node.metrics().get("numOutputRows")
        if metric.isDefined():
            most = max(most, metric.get().value())
        name = node.getClass().getSimpleName()
        if name == "AdaptiveSparkPlanExec":
            visit(node.executedPlan())
        elif name.endswith("QueryStageExec"):
            visit(node.plan())
        children = node.children()
        for place in range(children.size()):
            visit(children.apply(place))

    visit(df._jdf.queryExecution().executedPlan())  # type: ignore[operator]
    return most


def test_work_grows_with_the_sum_of_senders_and_namers(spark_session: SparkSession) -> None:
    """As many senders that claim one message id as messages that name it: their product is four million."""
    sent = spark_session.range(2_000).selectExpr("'m' as message_id", "concat('s', id) as sender", "id as sent")
    named = spark_session.range(2_000).selectExpr("'m' as message_id", "concat('n', id) as who", "2000 + id as time")
    heard = acknowledged(sent, named)
    assert {(row["is_named"], row["waited"] > 0) for row in heard.collect()} == {(True, True)}
    assert 2_000 <= rows_of_plan(heard) <= 10_000


def test_acknowledgements_of_any_rows_agree(tmp_path: Path, spark_session: SparkSession) -> None:
    """Some senders, ids and times, all of which meet in every way."""
    generator = random.Random(5)
    names, ids = ("alice", "bob", "carol", ""), [f"m{number}" for number in range(300)]
    messages, times = [], []
    for _ in range(2_500):
        named = tuple(generator.sample(ids, generator.randrange(3)))
        messages.append(sds_message(generator.choice(names), generator.choice(ids), named))
        times.append(generator.choice([None, *range(6)]))
    columns: dict[str, Any] = {"payload": pa.array(messages, pa.binary()), "timestamp": pa.array(times, pa.int64())}
    archive = str(tmp_path / "archive.parquet")
    pq.write_table(pa.table(columns), archive)
    here = summarize(archive, CONFIG, unwrap=["sds"])
    assert here.latencies.keys() == here.unacknowledged.keys() == {"alice", "bob", "carol", "(unknown)"}
    same(here, summarize_archive(spark_session.read.parquet(archive), CONFIG, unwrap=["sds"]))


def test_the_command_tells_what_spark_cannot_do_in_one_line(
    tmp_path: Path, spark_session: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    segments_with_losses(tmp_path / "archive.parquet")
    (tmp_path / "notes.parquet").write_text("no Parquet at all")
    for option, reason in {
        "archive.parquet notes.parquet": "notes.parquet', which is no Parquet file, or damaged: take it away\n",
        "s3a://bucket/archive": "Spark failed: java.lang.RuntimeException: java.lang.ClassNotFoundException",
    }.items():
        named = [one if "://" in one else str(tmp_path / one) for one in option.split()]
        assert run(["report", *named, "-o", str(tmp_path / "no.html"), "--spark", "local[2]"]) == 2
        told = capsys.readouterr().err
        assert reason in told
        assert told.count("\n") == 1
        assert "defect" not in told
    assert not (tmp_path / "no.html").exists()
