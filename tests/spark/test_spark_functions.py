"""Column functions: equal to the plain Python functions, null in null out, hostile bytes give an error."""

from __future__ import annotations

import inspect
import random
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from spark.rows import CONFIG, payload_of

from shardwire import ConfigError, SegmentationConfig, _native, keccak256, keccak256_many
from shardwire.archive.arrow import batch_of, parameters
from shardwire.segmentation import segment
from shardwire.spark import functions as sw
from shardwire.spark import pandas_functions as pandas_sw
from shardwire.spark import udfs

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

SEND_ID = "0123456789abcdef0123456789abcdef"
SDS = _native.SdsMessage(
    sender_id="alice",
    message_id=f"{SEND_ID}.7",
    channel_id="room",
    lamport_timestamp=1_700_000_000_000,
    causal_history=[_native.HistoryEntry("before", b"\x01\x02", "bob"), _native.HistoryEntry("first")],
    repair_request=[_native.HistoryEntry("gone")],
    bloom_filter=b"\x00" * 8,
    content=b"content",
)
WAKU = _native.WakuMessage(
    payload=b"payload", content_topic="/app/1/name/proto", timestamp_ns=1_700_000_000_000_000_001, meta=b"m"
)
NOISE = [random.Random(3).randbytes(length) for length in (1, 7, 300)]

# Views came with pyarrow 16.
VIEWS = [pa.binary_view()] if hasattr(pa, "binary_view") else []
LAYOUTS = [pa.binary(), pa.large_binary(), *VIEWS]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_keccak256_of_every_layout(layout: pa.DataType) -> None:
    data = [b"", None, b"abc", bytes(1_000_000), *NOISE]
    digests = sw.keccak256_array(pa.array(data, type=layout)).to_pylist()
    assert digests == [None if item is None else keccak256(item) for item in data]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_keccak256_of_a_slice_and_of_many_rows(layout: pa.DataType) -> None:
    data = [payload_of(number, number % 400) for number in range(3_000)]
    array = pa.array(data, type=layout).slice(17)
    assert sw.keccak256_array(array).to_pylist() == keccak256_many(data[17:])


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_every_kernel_takes_every_layout(layout: pa.DataType) -> None:
    rows: list[bytes | None] = [*segment(payload_of(4, 3_000), CONFIG), SDS.encode(), WAKU.encode(), None, *NOISE]
    plain, other = pa.array(rows, pa.binary()), pa.array(rows, layout)
    topics = pa.array(["/toychat/2/huilong/proto"] * len(rows))
    times = pa.array(range(len(rows)), pa.int64())

    def answers(data: Any) -> list[Any]:
        state = {"payload": data, **{name: pa.nulls(len(rows), pa.string()) for name in ("sender", "send_id", "error")}}
        batch = batch_of({**state, "timestamp": times})
        return [
            _native.arrow_decode_segment(data, "raw", 256, True),
            _native.arrow_decode_sds(data, "spec"),
            _native.arrow_decode_waku_message(data),
            _native.arrow_message_hash(topics, data, topics, data, times),
            _native.arrow_segment(data, parameters(CONFIG))[0],
            _native.arrow_segment_rows(data, parameters(CONFIG)),
            _native.arrow_unwrap_waku(batch),
            _native.arrow_unwrap_sds(batch, "spec"),
            _native.arrow_unwrap_segment(batch, "raw", 256),
        ]

    for one, wanted in zip(answers(other), answers(plain), strict=True):
        assert one.to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize("wire_format", ["raw", "draft", "lip243"])
def test_decode_segment_equals_inspect(wire_format: Any) -> None:
    config = SegmentationConfig(
        segment_size_bytes=640, enable_reed_solomon=True, parity_rate=0.5, wire_format=wire_format
    )
    parts = segment(payload_of(1, 3_000), config)
    decoded = _native.arrow_decode_segment(pa.array(parts), wire_format, 256, True).to_pylist()
    for part, row in zip(parts, decoded, strict=True):
        header = _native.inspect_segment(part, wire_format)
        assert header is not None
        assert row == {name: getattr(header, name, None) for name in row}
        assert row["error"] is None


def test_integers_that_pandas_made_floats_of_are_taken_as_far_as_they_are_exact() -> None:
    assert udfs._array(pd.Series([5.0, None]), "bigint", "timestamp_ns").to_pylist() == [5, None]
    with pytest.raises(ConfigError, match=r"pandas rounds the others: give coalesce\(argument, 0\)"):
        udfs._array(pd.Series([2.0**53 + 2, None]), "bigint", "timestamp_ns")


def test_decode_segment_of_hostile_bytes() -> None:
    rows: list[bytes | None] = [None, b"", *NOISE, segment(b"good", CONFIG)[0]]
    decoded = _native.arrow_decode_segment(pa.array(rows, type=pa.binary()), "raw", 256, True).to_pylist()
    assert decoded[0] is None
    assert all(row["error"] and row["entire_message_hash"] is None for row in decoded[1:-1])
    assert decoded[-1]["segment_payload"] == b"good"


def test_decode_sds_gives_every_field() -> None:
    ephemeral = _native.SdsMessage(sender_id="a", message_id="x", channel_id="room", content=b"now")
    sync = _native.SdsMessage(sender_id="a", message_id="s", channel_id="room", lamport_timestamp=5)
    rows = [SDS.encode(), ephemeral.encode(), sync.encode(), None, b"\xff" * 9]
    content, now, synced, nothing, hostile = _native.arrow_decode_sds(pa.array(rows), "spec").to_pylist()
    assert content == {
        "sender_id": "alice",
        "message_id": f"{SEND_ID}.7",
        "channel_id": "room",
        "kind": "content",
        "lamport_timestamp": 1_700_000_000_000,
        "causal_history": [
            {"message_id": "before", "retrieval_hint": b"\x01\x02", "sender_id": "bob"},
            {"message_id": "first", "retrieval_hint": None, "sender_id": None},
        ],
        "repair_request": [{"message_id": "gone", "retrieval_hint": None, "sender_id": None}],
        "bloom_filter": b"\x00" * 8,
        "content": b"content",
        "send_id": SEND_ID,
        "segment_ordinal": 7,
        "error": None,
    }
    assert (now["kind"], now["send_id"], now["lamport_timestamp"]) == ("ephemeral", None, None)
    assert (synced["kind"], synced["content"]) == ("sync", None)
    assert nothing is None
    assert hostile["error"]
    assert hostile["message_id"] is None


def test_a_lamport_timestamp_beyond_63_bits_is_an_error() -> None:
    message = _native.SdsMessage(
        sender_id="a", message_id="x", channel_id="room", lamport_timestamp=2**64 - 1, content=b"c"
    )
    [row] = _native.arrow_decode_sds(pa.array([message.encode()]), "spec").to_pylist()
    assert row["lamport_timestamp"] is None
    assert "63 bits" in row["error"]
    assert row["content"] == b"c"


def test_decode_waku_message() -> None:
    rows = [WAKU.encode(), None, b"\x0a\xff"]
    message, nothing, hostile = _native.arrow_decode_waku_message(pa.array(rows)).to_pylist()
    assert message["payload"] == b"payload"
    assert message["timestamp"] == 1_700_000_000_000_000_001
    assert (message["meta"], message["ephemeral"], message["version"]) == (b"m", None, None)
    assert nothing is None
    assert hostile["payload"] is None
    assert hostile["error"]


def test_functions_on_a_cluster(spark: SparkSession) -> None:
    parts = segment(payload_of(2, 2_000), CONFIG)
    rows = [(part, SDS.encode(), WAKU.encode(), "/toychat/2/huilong/proto", b"m", 5) for part in parts]
    rows += [(None,) * 6, (b"\xff", b"\xff", b"\xff", "no topic", None, None)]  # type: ignore[list-item]
    df = spark.createDataFrame(
        rows, "part binary, sds binary, waku binary, topic string, meta binary, time bigint"
    ).repartition(3)
    for module in (sw, pandas_sw):
        found = df.select(
            "part",
            "topic",
            "meta",
            "time",
            module.keccak256("part").alias("keccak256"),
            module.decode_segment("part").alias("segment"),
            module.decode_sds("sds").alias("sds"),
            module.decode_waku_message("waku").alias("waku"),
            module.message_hash("topic", "part", "topic", "meta", "time").alias("hash"),
            module.message_hash("topic", "part", "topic").alias("bare_hash"),
            module.shard_of("topic", 8).alias("shard"),
            module.segment("part", SegmentationConfig(segment_size_bytes=64)).alias("segments"),
        ).collect()
        assert len(found) == len(rows)
        for row in found:
            if row["part"] is None:
                assert row["keccak256"] is row["hash"] is row["shard"] is row["segments"] is None
                for name in ("segment", "sds", "waku"):
                    # A pandas UDF has no null struct: all its fields are.
                    assert row[name] is None or not any(value is not None for value in row[name])
                continue
            data = bytes(row["part"])
            assert row["keccak256"] == keccak256(data)
            assert row["segments"] == segment(data, SegmentationConfig(segment_size_bytes=64))
            topic = row["topic"]
            assert row["bare_hash"] == _native.message_hash(pubsub_topic=topic, payload=data, content_topic=topic)
            if topic == "no topic":
                assert row["shard"] is None
                assert row["segment"]["error"]
                assert row["sds"]["error"]
                assert row["waku"]["error"]
                continue
            assert row["hash"] == _native.message_hash(
                pubsub_topic=topic, payload=data, content_topic=topic, meta=b"m", timestamp_ns=5
            )
            assert row["shard"] == 3
            assert row["segment"]["entire_message_hash"] == keccak256(payload_of(2, 2_000))
            assert row["sds"]["causal_history"][0]["retrieval_hint"] == b"\x01\x02"
            assert row["waku"]["payload"] == b"payload"


def test_functions_in_sql(spark: SparkSession) -> None:
    from shardwire.spark import register

    register(spark)
    part = segment(b"in SQL", CONFIG)[0]
    rows = [(1, part, SDS.encode(), WAKU.encode(), "/toychat/2/huilong/proto"), (2, *[None] * 4)]
    rows += [(3 + n, noise, noise, noise, "no topic") for n, noise in enumerate(NOISE)]  # type: ignore[misc]
    schema = "id int, part binary, sds binary, waku binary, topic string"
    spark.createDataFrame(rows, schema).createOrReplaceTempView("rows_in_sql")
    found = spark.sql(
        "select keccak256(part) hash, decode_segment(part) raw, decode_segment_draft(part) draft, "
        "decode_segment_lip243(part) lip243, decode_sds(sds) sds, decode_sds_nim(sds) nim, "
        "decode_waku_message(waku) waku, message_hash(topic, part, topic, part, 7L) message, shard_of(topic) shard, "
        "segment(part) segments from rows_in_sql order by id"
    ).collect()
    good, nothing, *hostile = found
    assert (good["hash"], good["raw"]["segment_payload"]) == (keccak256(part), b"in SQL")
    assert (good["sds"]["content"], good["waku"]["payload"], good["shard"]) == (b"content", b"payload", 3)
    topic = "/toychat/2/huilong/proto"
    assert good["message"] == _native.message_hash(
        pubsub_topic=topic, payload=part, content_topic=topic, meta=part, timestamp_ns=7
    )
    assert good["segments"] == segment(part, SegmentationConfig())
    # A pandas UDF, which stands in for an Arrow one before PySpark 4.1, has no null struct: all its fields are null.
    assert all(value is None or not any(field is not None for field in value) for value in nothing)
    assert len(hostile) == len(NOISE)
    for row in hostile:
        for name in ("raw", "lip243", "sds", "waku"):
            assert row[name]["error"], name
            assert all(value is None for field, value in row[name].asDict().items() if field != "error")
        # Under draft what is no segment is a whole message.
        assert row["draft"]["segment_payload"] is not None or row["draft"]["error"]
        assert row["shard"] is None


def mutated(chance: random.Random, rows: list[bytes]) -> bytes:
    """Bytes of one of the rows, or of two, with a few of them changed, left out or made up."""
    data = bytearray(chance.choice(rows))
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[at : at + chance.randrange(40)]
            case 2:
                data[at:at] = chance.choice([b"\xff" * 9, b"\x80" * 5, bytes(3), chance.randbytes(20)])
            case _:
                data[at:] = chance.choice(rows)[at:]
    return bytes(data)


def test_ten_thousand_hostile_rows_fail_no_task(spark: SparkSession) -> None:
    chance = random.Random(17)
    configs = [
        SegmentationConfig(segment_size_bytes=640, enable_reed_solomon=True, wire_format=wire)  # type: ignore[arg-type]
        for wire in ("raw", "draft", "lip243")
    ]
    good = [
        *[SDS.encode(), SDS.encode("nim"), WAKU.encode()] * 10,
        *(part for config in configs for part in segment(payload_of(9, 900), config)),
    ]
    rows = [(number, mutated(chance, good)) for number in range(10_000)]
    df = spark.createDataFrame(rows, "id int, data binary")

    def decoded(module: Any) -> dict[str, Column]:
        return {
            **{wire: module.decode_segment("data", wire) for wire in ("raw", "draft", "lip243")},
            **{wire: module.decode_sds("data", wire) for wire in ("spec", "nim")},
            "waku": module.decode_waku_message("data"),
            "shard": module.shard_of(F.decode("data", "iso-8859-1")),
            "hash": module.message_hash(F.decode("data", "iso-8859-1"), "data", F.lit("/a/1/b/c")),
        }

    forms = {"arrow": decoded(sw), "pandas": decoded(pandas_sw)}
    found = df.select(*(column.alias(f"{form}_{name}") for form in forms for name, column in forms[form].items()))
    # Each row has its fields or says why not; both happen often among these.
    key = {"raw": "entire_message_hash", "lip243": "entire_message_hash", "spec": "message_id", "nim": "message_id"}
    counts: dict[str, Column] = {}
    for name, field in {**key, "waku": "payload"}.items():
        error, value = F.col(f"arrow_{name}.error"), F.col(f"arrow_{name}.{field}")
        counts[f"{name} read"] = F.count_if(error.isNull() & value.isNotNull())
        counts[f"{name} hostile"] = F.count_if(error.isNotNull() & value.isNull())
    for wire in ("raw", "draft", "lip243"):
        row = F.col(f"arrow_{wire}")
        counts[f"{wire} both"] = F.count_if(row["error"].isNotNull() & row["segment_payload"].isNotNull())
    for name in forms["arrow"]:
        counts[f"{name} differs"] = F.count_if(~F.col(f"arrow_{name}").eqNullSafe(F.col(f"pandas_{name}")))
    told = found.agg(*(count.alias(name) for name, count in counts.items())).collect()[0].asDict()
    assert all(count > 0 for name, count in told.items() if name.endswith((" read", " hostile"))), told
    assert not any(count for name, count in told.items() if name.endswith((" both", " differs"))), told


def test_both_forms_have_every_name() -> None:
    names = "keccak256 decode_segment decode_sds decode_waku_message message_hash shard_of segment decrypt"
    for name in names.split():
        forms = [inspect.signature(getattr(module, name)) for module in (sw, pandas_sw)]
        assert forms[0] == forms[1], name


def test_a_payload_that_does_not_fit_fails_the_query(spark: SparkSession) -> None:
    df = spark.createDataFrame([(bytes(100_000),)], "payload binary")
    with pytest.raises(Exception, match=r"PayloadTooLargeError.*100000 bytes"):
        df.select(sw.segment("payload", SegmentationConfig(segment_size_bytes=64))).collect()


@pytest.mark.parametrize("functions", [sw, pandas_sw])
def test_a_column_of_another_type_fails_the_query_with_its_name(spark: SparkSession, functions: Any) -> None:
    frame = spark.createDataFrame([(None, None), ("text", 7)], "text string, number bigint").coalesce(1)
    number = "(bigint|int64|float64)"
    refusals = [
        (functions.decode_segment("text"), "data is of type string: it must be binary; decode it before, from base64"),
        (functions.keccak256("number"), f"data is of type {number}: it must be binary; cast it before"),
        (functions.shard_of("number"), f"content_topic is of type {number}: it must be string; cast it before"),
    ]
    for column, refusal in refusals:
        with pytest.raises(Exception, match=f"ConfigError: column {refusal}"):
            frame.select(column).collect()


def test_wrong_options_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="'raw', 'draft', 'lip243'"):
        sw.decode_segment("payload", "waku")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'spec', 'nim'"):
        sw.decode_sds("payload", "raw")  # type: ignore[arg-type]
    wrong: Any
    for wrong in (0, "8", True, 1 << 31):
        for functions in (sw, pandas_sw):
            with pytest.raises(ConfigError, match=f"num_shards_in_cluster is {wrong!r}: it must be an integer from 1"):
                functions.shard_of("topic", wrong)
            with pytest.raises(ConfigError, match=f"max_total_segments is {wrong!r}: it must be an integer from 1"):
                functions.decode_segment("payload", max_total_segments=wrong)
    with pytest.raises(ConfigError, match="include_payload is 'no': it must be True or False"):
        sw.decode_segment("payload", include_payload="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [sw, pandas_sw])
def test_columns_of_one_argument_are_told_apart_by_their_names(spark: SparkSession, columns: Any) -> None:
    rows = spark.createDataFrame([(b"x", "/app/1/name/proto")], "payload binary, content_topic string")
    selected = rows.select(
        columns.keccak256("payload"), columns.decode_segment("payload"), columns.shard_of("content_topic")
    )
    assert selected.columns == ["keccak256(payload)", "decode_segment(payload)", "shard_of(content_topic)"]
