"""Columns of any names and types: what Spark would read as something else, and what clashes."""

from __future__ import annotations

import re
import runpy
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.rows import CONFIG, payload_of

from shardwire import ConfigError, _native
from shardwire.archive import reconstruct as local_reconstruct
from shardwire.segmentation import segment
from shardwire.spark import (
    channel_report,
    dead_letters,
    reconstruct,
    reconstruct_archive,
    reconstruct_stream,
    register,
    segment_messages,
    summarize_archive,
    with_keccak256,
)
from shardwire.spark.schema import MESSAGE_FIELDS
from shardwire.spark.store_options import StoreOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAYLOAD = payload_of(1, 3_000)
ROOT = Path(__file__).parents[2]


def test_names_with_dots_and_backticks(spark: SparkSession) -> None:
    rows = [("t", at, bytes(part)) for at, part in enumerate(segment(PAYLOAD, CONFIG))]
    df = spark.createDataFrame(rows, "topic string, at bigint, wire binary").toDF("a.b", "rx.`time`", "w.p")
    [found] = reconstruct(df, CONFIG, payload="w.p", by=["a.b"], timestamp="rx.`time`").collect()
    assert (found["a.b"], found["payload"]) == ("t", PAYLOAD)
    assert (found["first_timestamp"], found["last_timestamp"]) == (0, len(rows) - 1)
    hashed = with_keccak256(df, "w.p").collect()
    assert {bytes(row["w.p"]) for row in hashed} == {row[2] for row in rows}
    whole = spark.createDataFrame([("t", PAYLOAD)], "topic string, payload binary").toDF("a.b", "w.p")
    made = segment_messages(whole, CONFIG, payload="w.p").collect()
    assert {(row["a.b"], bytes(row["segment"])) for row in made} == {("t", row[2]) for row in rows}


@pytest.mark.parametrize("given", [pandas.DataFrame({"payload": [PAYLOAD]}), "archive.parquet", None])
def test_what_is_no_dataframe_of_spark_is_refused(given: Any) -> None:
    for call in (
        lambda: reconstruct(given),
        lambda: reconstruct(given, by=["payload"]),
        lambda: segment_messages(given),
        lambda: with_keccak256(given),
        lambda: channel_report(given),
        lambda: dead_letters(given),
        lambda: summarize_archive(given),
        lambda: reconstruct_stream(given),
    ):
        with pytest.raises(
            ConfigError, match=f"df is a {type(given).__name__}( of pandas)?: it must be a DataFrame of Spark"
        ):
            call()


def test_a_stream_is_refused_where_an_archive_is_wanted(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.schema("payload binary, timestamp bigint").parquet(str(tmp_path))
    for call in (
        lambda: reconstruct(stream),
        lambda: summarize_archive(stream),
        lambda: channel_report(stream),
        lambda: reconstruct_archive(spark, stream, str(tmp_path / "out")),
    ):
        with pytest.raises(
            ConfigError, match=r"^df is streaming: read it with spark\.read, or use reconstruct_stream$"
        ):
            call()


def test_names_that_differ_in_case_alone_clash(spark: SparkSession, tmp_path: Path) -> None:
    columns = "Status string, SHARDWIRE_HASH string, Found string, shardwire_kind string, Error string, payload binary"
    df = spark.createDataFrame([], columns)
    for name in ("Status", "SHARDWIRE_HASH"):
        with pytest.raises(ConfigError, match=f"by names the column '{name}', which the result needs"):
            reconstruct(df, by=[name])
    for name in ("Found", "shardwire_kind"):
        with pytest.raises(ConfigError, match=f"by names the column '{name}', which the result needs"):
            reconstruct_archive(spark, df, str(tmp_path / "sink"), by=[name])
    with pytest.raises(ConfigError, match="output is 'PAYLOAD'"):
        with_keccak256(df, output="PAYLOAD")
    with pytest.raises(ConfigError, match="the columns Error"):
        segment_messages(df)


UNSORTED = {
    "map<string,int>": "map('a', 1)",
    "struct<a:array<map<int,int>>>": "struct(array(map(1, 2)) as a)",
    "interval month": "interval 1 month",
    "string collate UTF8_LCASE": "'a' collate UTF8_LCASE",
    "variant": "parse_json('1')",
}


@pytest.mark.parametrize("kind", UNSORTED)
def test_values_that_do_not_keep_messages_apart_are_refused(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    df = spark.createDataFrame([(PAYLOAD,)], "payload binary").selectExpr("payload", f"{UNSORTED[kind]} as odd")
    told = f"by names the column 'odd' of type {kind}, whose values do not keep messages apart: cast it to string"
    with pytest.raises(ConfigError, match=re.escape(told)):
        reconstruct(df, by=["odd"])
    with pytest.raises(ConfigError, match=re.escape(told)):
        reconstruct_archive(spark, df, str(tmp_path / "sink"), by=["odd"])


def test_a_stream_refuses_what_its_state_does_not_take(spark: SparkSession) -> None:
    arriving = spark.readStream.format("rate").load()
    for value in ("array(1)", "interval 1 day", "struct(array(1) as a)", "1.5D", "struct(1.5F as a)"):
        df = arriving.selectExpr("cast('a' as binary) as payload", f"{value} as odd")
        with pytest.raises(ConfigError, match=r"'odd' of type .*, whose values do not keep messages apart in a stream"):
            reconstruct_stream(df, by=["odd"])


def test_values_that_spark_takes_for_one_keep_messages_apart(spark: SparkSession, tmp_path: Path) -> None:
    parts = [bytes(part) for part in segment(PAYLOAD, CONFIG)]
    rows = [(part, zero) for part in parts for zero in (0.0, -0.0)]
    df = spark.createDataFrame(rows, "payload binary, zero double").repartition(3)
    for given in (df, df.selectExpr("payload", "array(struct(zero)) as zero")):
        found = reconstruct(given, CONFIG, by=["zero"]).collect()
        assert [(row["status"], row["segments_received"]) for row in found] == [("complete", len(parts))] * 2
    report = reconstruct_archive(spark, df, str(tmp_path / "sink"), CONFIG, by=["zero"])
    assert report.messages == {"complete": 2}


def test_a_column_without_a_type_parts_no_message(spark: SparkSession, tmp_path: Path) -> None:
    first, *rest = (bytes(part) for part in segment(PAYLOAD, CONFIG))
    # Whole by parity in one partition, and complete by what the other holds.
    rows = spark.sparkContext.parallelize([(part,) for part in (*rest, *[first] * len(rest))], 2)
    df = spark.createDataFrame(rows, "payload binary").selectExpr("payload", "null as nothing")
    report = reconstruct_archive(spark, df, str(tmp_path / "sink"), CONFIG, by=["nothing"])
    assert report.messages == {"complete": 1}


def test_names_that_several_columns_have_are_refused(spark: SparkSession) -> None:
    df = spark.createDataFrame([(b"", b"", 1, 2)], "payload binary, other binary, a int, b int")
    for names in (["payload", "payload", "a", "b"], ["payload", "PAYLOAD", "a", "b"]):
        twice = df.toDF(*names)
        for call in (reconstruct, segment_messages, with_keccak256, dead_letters, channel_report):
            with pytest.raises(ConfigError, match="'payload', of which the DataFrame has several: rename all but one"):
                call(twice)  # type: ignore[operator]
    with pytest.raises(ConfigError, match="by names the column 'a', of which the DataFrame has several"):
        reconstruct(df.toDF("payload", "other", "a", "a"), by=["a"])
    with pytest.raises(ConfigError, match="by names a column twice: a, a"):
        reconstruct(df, by=["a", "a"])
    # The one is of the rows, the other of the Waku messages; Spark tells them apart no more than the names above.
    with pytest.raises(ConfigError, match="by names a column twice: content_topic, Content_Topic"):
        reconstruct(
            df.toDF("payload", "Content_Topic", "a", "b"), unwrap=["waku"], by=["content_topic", "Content_Topic"]
        )
    for call in (segment_messages, with_keccak256, dead_letters):
        with pytest.raises(ConfigError, match="the DataFrame has several columns 'A', and all are kept: rename all"):
            call(df.toDF("payload", "other", "a", "A"))  # type: ignore[operator]


def test_columns_are_given_by_name(spark: SparkSession) -> None:
    df = spark.createDataFrame([(b"",)], "payload binary")
    column: Any = df["payload"]
    for role, arguments in {
        "payload": {"payload": column},
        "key": {"key": column},
        "timestamp": {"timestamp": column},
        "sender": {"sender": column},
        "a column of by": {"by": [column]},
    }.items():
        with pytest.raises(ConfigError, match=f"{role} is a Column: it must be a text"):
            reconstruct(df, **arguments)
    with pytest.raises(ConfigError, match="output is a Column: it must be a text"):
        with_keccak256(df, output=column)


def test_flags_are_true_or_false(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([(b"",)], "payload binary")
    arriving = spark.readStream.format("rate").load().selectExpr("cast('a' as binary) as payload")
    no: Any = "no"
    for call in (
        lambda: reconstruct(df, include_payload=no),
        lambda: reconstruct_archive(spark, df, str(tmp_path / "sink"), include_payload=no),
        lambda: reconstruct_stream(arriving, include_payload=no),
    ):
        with pytest.raises(ConfigError, match="include_payload is 'no': it must be True or False"):
            call()
    with pytest.raises(ConfigError, match="keep_column is 'no': it must be True or False"):
        with_keccak256(df, keep_column=no)


def test_times_that_nanoseconds_cannot_tell_are_null(spark: SparkSession) -> None:
    times = [datetime(9999, 12, 31, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]
    parts = segment(PAYLOAD, CONFIG)
    rows = [(times[place % 2], bytes(part)) for place, part in enumerate(parts)]
    df = spark.createDataFrame(rows, "timestamp timestamp, payload binary")
    [found] = reconstruct(df, CONFIG).collect()
    assert found["payload"] == PAYLOAD
    assert found["last_timestamp"] == int(times[1].timestamp()) * 10**9
    with pytest.raises(ConfigError, match="of type date: it must be"):
        reconstruct(df.selectExpr("cast(timestamp as date) as timestamp", "payload"))


@pytest.mark.parametrize("is_ansi", ["true", "false"])
def test_times_without_a_zone_are_of_utc_whatever_the_session_says(
    spark: SparkSession, tmp_path: Path, is_ansi: str
) -> None:
    # At the second of them clocks in New York go from 2 to 3; of the last there are no nanoseconds.
    times = [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2026, 3, 8, 2, 30), datetime(9999, 1, 1)]
    rows = pa.table(
        {
            "payload": [bytes(part) for part in segment(PAYLOAD, CONFIG)[:3]],
            "timestamp": pa.array(times),
            "at": [0, 1, 2],
        }
    )
    pq.write_table(rows, tmp_path / "archive.parquet")
    settings = {"spark.sql.session.timeZone": "America/New_York", "spark.sql.ansi.enabled": is_ansi}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        df = spark.read.parquet(str(tmp_path))
        assert df.schema["timestamp"].dataType.simpleString() == "timestamp_ntz"
        found = {row["at"]: row["first_timestamp"] for row in reconstruct(df, CONFIG, by=["at"]).collect()}
    finally:
        for name, earlier in before.items():
            spark.conf.set(name, str(earlier))
    local = local_reconstruct(tmp_path, CONFIG, by=["at"])
    expected = {0: -1_000, 1: int(times[1].replace(tzinfo=UTC).timestamp()) * 10**9, 2: None}
    assert found == dict(zip(local["at"].to_pylist(), local["first_timestamp"].to_pylist(), strict=True)) == expected


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_in_nanoseconds_as_pandas_writes_them_are_read(
    spark: SparkSession, tmp_path: Path, zone: str | None
) -> None:
    parts = [bytes(part) for part in segment(PAYLOAD, CONFIG)]
    times = pandas.date_range("2026-01-01", periods=len(parts), freq="s", tz=zone)
    pandas.DataFrame({"payload": parts, "timestamp": times}).to_parquet(tmp_path / "archive.parquet")
    assert "[ns" in str(pq.read_schema(tmp_path / "archive.parquet").field("timestamp").type)
    [found] = reconstruct(spark.read.parquet(str(tmp_path)), CONFIG).collect()
    assert (found["payload"], found["first_timestamp"]) == (PAYLOAD, times[0].value)


def test_a_literal_time_in_sql(spark: SparkSession) -> None:
    register(spark)
    prefix = next(row.function for row in spark.sql("show user functions").collect() if "message_hash" in row.function)
    [row] = spark.sql(f"select {prefix}('a', X'00', 'b', X'', 0) as hash").collect()
    assert row["hash"] == _native.message_hash(pubsub_topic="a", payload=b"\x00", content_topic="b", meta=b"")


def test_a_topic_named_twice_is_read_once() -> None:
    asked = StoreOptions.of({"url": "http://127.0.0.1:1", "contentTopics": "/a/1/b/c, /a/1/b/c,/a/1/d/c"})
    assert asked.range.content_topics == ("/a/1/b/c", "/a/1/d/c")


def test_options_of_a_stream_job_are_names_and_values() -> None:
    job: dict[str, Any] = runpy.run_path(str(ROOT / "spark_jobs" / "reconstruct_stream.py"))
    assert job["source_options"](["a=b=c", "d="], "in") == {"a": "b=c", "d": ""}
    with pytest.raises(ConfigError, match="--option is 'foo': it must be NAME=VALUE"):
        job["source_options"](["foo"], "in")
    with pytest.raises(ConfigError, match="is the url already"):
        job["source_options"](["URL=x"], "http://127.0.0.1:1")


def test_the_page_of_columns_names_them_all_with_their_types() -> None:
    page = (ROOT / "docs" / "guide" / "spark_columns.md").read_text()
    told = re.findall(r"^\| `(\w+)` \| ([\w<>]+) \|", page, re.MULTILINE)
    assert told == [(field.name, field.dataType.simpleString()) for field in MESSAGE_FIELDS.fields]
