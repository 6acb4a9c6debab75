"""Archives, local first: the messages of `reconstruct`, few bytes across the network, nothing double after failures."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.queries import run_to_end
from spark.rows import CONFIG, counted, hostile_archive, in_partitions, payload_of

from shardwire import ConfigError, SegmentationConfig, archive
from shardwire.segmentation import segment
from shardwire.spark import corrections, reconstruct, reconstruct_archive, reconstruct_stream
from shardwire.spark.reading import UNION_CONF, read_in_order
from shardwire.spark.schema import MESSAGE_FIELDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_archive(path: Path, messages: int, files: int, in_flight: int, seed: int = 1) -> list[bytes]:
    """Traffic in order of arrival, `in_flight` messages interleaved, cut into files; returns the payloads."""
    chance = random.Random(seed)
    payloads = [payload_of(seed * 1_000 + number, 5_000) for number in range(messages)]
    rows: list[bytes] = []
    for start in range(0, messages, in_flight):
        group = [part for payload in payloads[start : start + in_flight] for part in segment(payload, CONFIG)]
        chance.shuffle(group)
        rows += group
    # One in a hundred comes again a little later.
    for position in range(50, len(rows), 100):
        rows.insert(min(len(rows), position + 20), rows[position])
    path.mkdir()
    length = -(-len(rows) // files)
    for number in range(files):
        part = rows[number * length : (number + 1) * length]
        pq.write_table(
            pa.table({"timestamp": range(len(part)), "payload": pa.array(part, pa.binary())}),
            path / f"{number:03}.parquet",
        )
    return payloads


def identity(row: Any) -> tuple[Any, ...]:
    return (row["entire_message_hash"], row["payload"], row["status"] in ("complete", "recovered"))


def test_an_archive_gives_what_reconstruct_gives(spark: SparkSession, tmp_path: Path) -> None:
    payloads = write_archive(tmp_path / "in", messages=80, files=6, in_flight=2)
    report = reconstruct_archive(spark, str(tmp_path / "in"), str(tmp_path / "out"), CONFIG)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    plain = reconstruct(spark.read.parquet(str(tmp_path / "in")), CONFIG).collect()
    # Whatever reads the files one by one finds the columns of messages and no others.
    for file in (tmp_path / "out").rglob("*.parquet"):
        assert pq.read_schema(file).names == MESSAGE_FIELDS.names
    assert sorted(map(identity, found)) == sorted(map(identity, plain))
    assert counted(archive.reconstruct(tmp_path / "in", CONFIG).to_pylist()) == counted(plain) == counted(found)
    assert {row["payload"] for row in found} == set(payloads)
    assert sum(report.messages.values()) == len(payloads)
    assert report.payload_bytes == sum(map(len, payloads))
    assert report.messages_local >= 70
    # Only what lies at the edge of a file crosses the network.
    assert report.bytes_shuffled < 0.2 * report.payload_bytes
    assert not list(tmp_path.glob("*staging*"))


def test_repeats_noise_and_losses_in_other_partitions(spark: SparkSession, tmp_path: Path) -> None:
    whole, torn, lost = (segment(payload_of(number, 5_000), CONFIG) for number in (1, 2, 3))
    files = [
        [*whole, *torn[:5], b"noise", *lost[:2], lost[0], lost[0]],
        [*whole, *torn[5:8], b"more noise"],
        [whole[3], *lost[2:4]],
    ]
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(files):
        pq.write_table(pa.table({"payload": pa.array(rows, pa.binary())}), tmp_path / "in" / f"{number}.parquet")
    # A union keeps each file in a partition of its own, however small.
    paths = sorted(map(str, (tmp_path / "in").iterdir()))
    df = spark.read.parquet(paths[0])
    for path in paths[1:]:
        df = df.union(spark.read.parquet(path))
    report = reconstruct_archive(spark, df, str(tmp_path / "out"), CONFIG)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert report.messages == {"complete": 2, "incomplete": 1, "invalid": 1}
    by_payload = {row["payload"]: row for row in found if row["payload"] is not None}
    assert set(by_payload) == {payload_of(1, 5_000), payload_of(2, 5_000)}
    assert by_payload[payload_of(1, 5_000)]["found"] == "local"
    assert by_payload[payload_of(2, 5_000)]["found"] == "across"
    [unread] = [row for row in found if row["status"] == "invalid"]
    assert unread["segments_received"] == 2
    [incomplete] = [row for row in found if row["status"] == "incomplete"]
    assert (incomplete["segments_received"], incomplete["duplicates"]) == (4, 2)
    # What came again of the whole one crosses too, and is known there; what came thrice of the other crosses once.
    assert report.bytes_shuffled == sum(map(len, [*torn[:8], *lost[:4], whole[3]]))
    assert report.messages_local == 1
    assert report.payload_bytes == 10_000
    counted = spark.read.parquet(str(tmp_path / "out")).groupBy("status").count().collect()
    assert {row["status"]: row["count"] for row in counted} == report.messages


def test_the_columns_are_those_of_reconstruct_and_found(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(topic, part) for topic in ("a", "b") for part in (*segment(payload_of(5, 3_000), CONFIG), b"noise")]
    df = spark.createDataFrame(rows, "topic string, payload binary").coalesce(1)
    report = reconstruct_archive(spark, df, str(tmp_path / "out"), CONFIG, by=["topic"])
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.columns == [*reconstruct(df, CONFIG, by=["topic"]).columns, "found"]
    for path in (tmp_path / "out").rglob("*.parquet"):
        assert pq.read_schema(path).names == found.columns[:-1]
    # A row a topic for what nobody could read.
    assert report.messages == {"complete": 2, "invalid": 2}
    unread = {row["topic"]: row for row in found.where("entire_message_hash is null").collect()}
    assert {topic: (row["status"], row["segments_received"]) for topic, row in unread.items()} == {
        "a": ("invalid", 1),
        "b": ("invalid", 1),
    }


def test_unread_rows_of_many_partitions_name_no_more_senders_than_those_of_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = spark.range(0, 100, 1, 4).selectExpr("X'00' payload", "format_string('%02d', id) who")
    reconstruct_archive(spark, df, str(tmp_path / "out"), CONFIG, sender="who")
    [row] = spark.read.parquet(str(tmp_path / "out")).collect()
    assert (row["segments_received"], row["senders"]) == (100, [f"{number:02}" for number in range(64)])


def test_corrections_come_in_groups_that_an_executor_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corrections, "CORRECTIONS_MAX", 3)
    assert list(corrections._jobs({7: 9, 1: 2, 0: 2, 5: 1})) == [[0], [1, 5], [7]]


def test_large_messages_are_written_in_small_row_groups(spark: SparkSession, tmp_path: Path) -> None:
    """Parquet's writer looks at their size row by row, not every hundred: it would hold a hundred payloads."""
    config = SegmentationConfig(segment_size_bytes=100_000)
    rows = [(part,) for number in range(20) for part in segment(payload_of(number, 250_000), config)]
    spark.conf.set("parquet.block.size", "1000000")
    try:
        df = spark.createDataFrame(rows, "payload binary").coalesce(1)
        reconstruct_archive(spark, df, str(tmp_path / "out"), config)
    finally:
        spark.conf.unset("parquet.block.size")
    [path] = (tmp_path / "out" / "found=local").glob("*.parquet")
    assert pq.ParquetFile(path).num_row_groups >= 3


def test_by_columns_and_an_empty_archive(spark: SparkSession, tmp_path: Path) -> None:
    schema = "topic string, payload binary"
    rows = [(topic, part) for topic in ("a", "b") for part in segment(payload_of(4, 3_000), CONFIG)]
    reconstruct_archive(
        spark, spark.createDataFrame(rows, schema).repartition(2), str(tmp_path / "out"), CONFIG, by=["topic"]
    )
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert {(row["topic"], row["payload"]) for row in found} == {(t, payload_of(4, 3_000)) for t in ("a", "b")}
    report = reconstruct_archive(spark, spark.createDataFrame([], schema), str(tmp_path / "none"), CONFIG)
    assert (report.messages, report.bytes_shuffled) == ({}, 0)
    assert spark.read.parquet(str(tmp_path / "none")).count() == 0


def test_a_sink_that_exists_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="exists: give another one"):
        reconstruct_archive(spark, spark.createDataFrame([], "payload binary"), str(tmp_path / "out"), CONFIG)


def test_a_failed_job_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write_archive(tmp_path / "in", messages=4, files=2, in_flight=1)
    df = spark.read.parquet(str(tmp_path / "in")).selectExpr("payload", "raise_error('broken row') as topic")
    with pytest.raises(Exception, match="broken row"):
        reconstruct_archive(
            spark, df.selectExpr("payload", "cast(topic as string) topic"), str(tmp_path / "out"), CONFIG, by=["topic"]
        )
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_statuses_and_unreadable_rows_do_not_depend_on_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    rows = hostile_archive(7)
    df = in_partitions(spark, 5, rows)
    wanted = counted(reconstruct(df, CONFIG, unwrap=["sds"]).collect())
    statuses = Counter(value[0] for value in wanted.values() if isinstance(value, tuple))
    assert set(statuses) == {"complete", "recovered", "incomplete"}
    reasons = {reason: count for reason, count in wanted.items() if isinstance(reason, str)}
    assert reasons.pop("no segment of this wire, but one of lip243: is the wire format right?") >= 3
    assert sum(reasons.values()) == 77
    assert len(reasons) < 8
    # A message that a partition recovers has its missing segments elsewhere: they were shuffled.
    report = reconstruct_archive(spark, df, str(tmp_path / "out"), CONFIG, unwrap=["sds"])
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert counted(found) == wanted
    assert len(found) == len(wanted)
    assert sum(report.messages.values()) == len(found)
    assert {status: report.messages[status] for status in statuses} == statuses
    assert report.payload_bytes == sum(row["payload_length"] or 0 for row in found)
    one = reconstruct_archive(spark, df.coalesce(1), str(tmp_path / "one"), CONFIG, unwrap=["sds"])
    assert one.messages == report.messages
    assert counted(spark.read.parquet(str(tmp_path / "one")).collect()) == wanted
    df.write.parquet(str(tmp_path / "in"))
    # Without Spark: the same columns too.
    alone = archive.reconstruct(tmp_path / "in", CONFIG, unwrap=["sds"], threads=2)
    assert counted(alone.to_pylist()) == wanted
    assert alone.schema.names == reconstruct(df, CONFIG, unwrap=["sds"]).columns
    stream = spark.readStream.schema(df.schema).option("maxFilesPerTrigger", 2).parquet(str(tmp_path / "in"))
    run_to_end(reconstruct_stream(stream, CONFIG, unwrap=["sds"]), tmp_path, "streamed")
    streamed = Counter()
    for row in spark.read.parquet(str(tmp_path / "streamed")).where("entire_message_hash is null").collect():
        streamed[row["error"]] += row["segments_received"]
    assert dict(streamed) == {reason: count for reason, count in wanted.items() if isinstance(reason, str)}


def test_what_several_partitions_hold_whole_is_written_once_and_does_not_cross(
    spark: SparkSession, tmp_path: Path
) -> None:
    payloads = [payload_of(600 + number, 5_000) for number in range(30)]
    parts = [part for payload in payloads for part in segment(payload, CONFIG)]
    alone = [part for payload in payloads[:10] for part in segment(payload, CONFIG)]
    # The second and the third partition repeat messages of the first; the fourth has its own alone.
    own = [part for number in range(5) for part in segment(payload_of(700 + number, 5_000), CONFIG)]
    df = spark.createDataFrame([(part,) for part in parts], "payload binary").coalesce(1)
    for more in (parts, alone, own):
        df = df.union(spark.createDataFrame([(part,) for part in more], "payload binary").coalesce(1))
    # As Spark calls the files that its tasks write.
    sink = str(tmp_path / "part-9-of-10")
    report = reconstruct_archive(spark, df, sink, CONFIG)
    assert (report.messages, report.messages_local) == ({"complete": 35}, 35)
    assert report.bytes_shuffled == 0
    assert report.payload_bytes == 35 * 5_000
    found = [row["payload"] for row in spark.read.parquet(sink).collect()]
    assert len(found) == len(set(found)) == 35


def test_neighbouring_files_share_a_task(spark: SparkSession, tmp_path: Path) -> None:
    payloads = write_archive(tmp_path / "in", messages=60, files=30, in_flight=3)
    spark.conf.set(UNION_CONF, "false")
    try:
        partitions = read_in_order(spark, str(tmp_path / "in")).rdd.getNumPartitions()
    finally:
        spark.conf.unset(UNION_CONF)
    assert 4 <= partitions < 10
    report = reconstruct_archive(spark, str(tmp_path / "in"), str(tmp_path / "out"), CONFIG)
    assert sum(report.messages.values()) == len(payloads)
    assert report.messages_local > 40
    # Several tasks wrote them; what was corrected lies together.
    assert len({path.name[:10] for path in (tmp_path / "out" / "found=local").glob("part-*")}) >= 2


def test_what_a_source_may_not_be(spark: SparkSession, tmp_path: Path) -> None:
    write_archive(tmp_path / "in", messages=2, files=1, in_flight=1)
    for sink in ("in", "in/below", "."):
        with pytest.raises(ConfigError, match=r"exists|overlap"):
            reconstruct_archive(spark, str(tmp_path / "in"), str(tmp_path / sink), CONFIG)
    (tmp_path / "in" / "_delta_log").mkdir()
    (tmp_path / "in" / "_delta_log" / "00000000000000000000.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"a table of Delta.*format\('delta'\)\.load"):
        reconstruct_archive(spark, str(tmp_path / "in"), str(tmp_path / "out"), CONFIG)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


NO_ARCHIVE = {
    "nowhere": "the archive '.*nowhere' is not there: give a directory or a file that exists",
    "empty": "the archive '.*empty' has no Parquet files: give a directory or a file of them",
    "text.parquet": "holds '.*text.parquet', which is no Parquet file, or damaged: take it away",
    "strange://host/archive": "'strange://host/archive' is no path that this Spark reaches .*strange.*: correct it",
    "": "'' is no path that this Spark reaches .*empty string.*: correct it",
}


@pytest.mark.parametrize("name", NO_ARCHIVE)
def test_what_is_no_archive_is_told_in_our_words(spark: SparkSession, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.parquet").write_text("no Parquet at all")
    source = name if not name or "://" in name else str(tmp_path / name)
    with pytest.raises(ConfigError, match=NO_ARCHIVE[name]) as raised:
        reconstruct_archive(spark, source, str(tmp_path / "out"), CONFIG)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.glob("*out*"))


ODD_FILES: dict[str, Any] = {
    "is no Parquet file, or damaged: take it away; spark.*ignoreCorruptFiles=true leaves such files out": b"notes",
    "has a column of another type than the first file: write it anew as that is": pa.table({"timestamp": ["now"]}),
}


@pytest.mark.parametrize("reason", ODD_FILES)
def test_one_odd_file_is_told_by_its_name(spark: SparkSession, tmp_path: Path, reason: str) -> None:
    write_archive(tmp_path / "in", messages=4, files=3, in_flight=1)
    odd, content = tmp_path / "in" / "odd file.parquet", ODD_FILES[reason]
    if isinstance(content, bytes):
        odd.write_bytes(content)
    else:
        pq.write_table(content, odd)
    told = rf"the archive '.*in' holds '.*/odd(%20| )file\.parquet', which {reason}"
    with pytest.raises(ConfigError, match=told) as raised:
        reconstruct_archive(spark, str(tmp_path / "in"), str(tmp_path / "out"), CONFIG)
    assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


SECOND = 1_700_000_000
TIMES = {
    "ns": lambda count: pa.array([SECOND * 10**9] * count, pa.int64()),
    "us": lambda count: pa.array([SECOND * 10**6] * count, pa.timestamp("us", "UTC")),
    "ms": lambda count: pa.array([SECOND * 10**3] * count, pa.timestamp("ms")),
}


def write_timed(directory: Path, *kinds: str | None) -> None:
    """A file a message, each with times of its own kind, or with none."""
    directory.mkdir()
    for number, kind in enumerate(kinds):
        parts = segment(payload_of(number, 2_000), CONFIG)
        times = {} if kind is None else {"timestamp": TIMES[kind](len(parts))}
        # What nobody asks for may differ.
        note = pa.array([str(number)] if number else [number]).take(pa.array([0] * len(parts)))
        odd = {"note": note} if None not in kinds else {}
        pq.write_table(
            pa.table({"payload": pa.array(parts, pa.binary()), **times, **odd}), directory / f"{number}.parquet"
        )


@pytest.mark.parametrize("kinds", [("ns", None), (None, "ns"), (None, "us"), ("us", "ms")])
def test_a_file_may_lack_the_times_that_others_have(
    spark: SparkSession, tmp_path: Path, kinds: tuple[str | None, ...]
) -> None:
    write_timed(tmp_path / "in", *kinds)
    reconstruct_archive(spark, str(tmp_path / "in"), str(tmp_path / "out"), CONFIG)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    local = archive.reconstruct(tmp_path / "in", CONFIG).to_pylist()
    wanted = {payload_of(number, 2_000): kind and SECOND * 10**9 for number, kind in enumerate(kinds)}
    for found in (rows, local):
        assert {bytes(row["payload"]): row["first_timestamp"] for row in found} == wanted


@pytest.mark.parametrize("kinds", [("ns", "us"), ("ms", "ns")])
def test_numbers_and_times_in_one_column_are_not_taken_for_one(
    spark: SparkSession, tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    write_timed(tmp_path / "in", *kinds)
    with pytest.raises(ConfigError, match=r"has 'timestamp' as numbers .* and as times in others"):
        reconstruct_archive(spark, str(tmp_path / "in"), str(tmp_path / "out"), CONFIG)
    local = archive.reconstruct(tmp_path / "in", CONFIG).to_pylist()
    assert [row["first_timestamp"] for row in local] == [SECOND * 10**9] * 2


@pytest.mark.parametrize("kind", [pa.time32("ms"), pa.time64("us")])
def test_times_of_day_are_what_this_spark_does_not_read(spark: SparkSession, tmp_path: Path, kind: pa.DataType) -> None:
    parts = segment(payload_of(1, 2_000), CONFIG)
    table = pa.table({"payload": pa.array(parts, pa.binary()), "at": pa.array([5] * len(parts), kind)})
    pq.write_table(table, tmp_path / "in.parquet")
    with pytest.raises(ConfigError, match=r"has a column of a type that this Spark does not read, as times of day"):
        reconstruct_archive(spark, str(tmp_path / "in.parquet"), str(tmp_path / "out"), CONFIG)
    [found] = archive.reconstruct(tmp_path / "in.parquet", CONFIG, by=["at"]).to_pylist()
    assert found["payload"] == payload_of(1, 2_000)


def test_arguments_of_wrong_kinds(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"payload": [b"x"]}), tmp_path / "in.parquet")
    source, sink = str(tmp_path / "in.parquet"), str(tmp_path / "out")
    given: Any
    for given in (5, None, ["in.parquet"]):
        with pytest.raises(ConfigError, match=f"is a {type(given).__name__}: it must be a DataFrame of Spark"):
            reconstruct_archive(spark, given, sink, CONFIG)
    with pytest.raises(ConfigError, match="sink is a int: it must be a text"):
        reconstruct_archive(spark, source, 5, CONFIG)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="replace is 'yes': it must be True or False"):
        reconstruct_archive(spark, source, sink, CONFIG, replace="yes")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="spark is a NoneType: it must be a SparkSession"):
        reconstruct_archive(None, source, sink, CONFIG)  # type: ignore[arg-type]


def test_small_files_of_this_machine_are_not_listed_by_jobs(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(400):
        pq.write_table(pa.table({"payload": [b"x"]}), tmp_path / f"{number:03}.parquet")
    threshold = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    before = spark.conf.get(threshold)
    context = spark.sparkContext
    context.setJobGroup("reading", "")
    try:
        assert read_in_order(spark, str(tmp_path)).count() == 400
        # Columns are read by one, and rows by those of the count.
        assert all(
            stage is None or stage.numTasks < 20
            for job in context.statusTracker().getJobIdsForGroup("reading")
            for stage in map(context.statusTracker().getStageInfo, context.statusTracker().getJobInfo(job).stageIds)
        )
    finally:
        context._jsc.clearJobGroup()
    assert spark.conf.get(threshold) == before
