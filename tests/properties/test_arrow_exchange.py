"""Arrow arrays of every type and shape go into the native core and come out of it as pyarrow sees them."""

from __future__ import annotations

import datetime
import decimal
import resource
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark.rows import CONFIG

from shardwire import _native, keccak256, keccak256_many
from shardwire.archive.arrow import parameters
from shardwire.segmentation import reassemble_many, segment_many
from shardwire.spark.reconstruct import Reconstruction

BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
TIMES = [
    pa.int64(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.timestamp("ns", "Europe/Zurich"),
]
UTC = datetime.UTC

# Values shorter and longer than what a view holds by itself.
byte_rows = st.lists(st.none() | st.binary(max_size=40), max_size=20)
text_rows = st.lists(st.none() | st.text(max_size=20), max_size=20)


@st.composite
def shaped(draw: st.DrawFn, rows: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of `rows`: as it is, or cut out of a longer one, so that its offset is not 0."""
    before, after = draw(st.integers(0, 9)), draw(st.integers(0, 3))
    filler = next((row for row in rows if row is not None), None)
    return pa.array([filler] * before + rows + [None] * after, kind).slice(before, len(rows))


@st.composite
def in_chunks(draw: st.DrawFn, rows: list[Any], kind: pa.DataType) -> pa.ChunkedArray:
    ends = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    bounds = list(zip([0, *ends], [*ends, len(rows)], strict=True))
    return pa.chunked_array([draw(shaped(rows[start:end], kind)) for start, end in bounds], kind)


@given(st.data(), byte_rows, st.sampled_from(BYTES))
def test_bytes_in_any_layout(data: st.DataObject, rows: list[bytes | None], kind: pa.DataType) -> None:
    expected = [None if row is None else keccak256(row) for row in rows]
    digests = keccak256_many(data.draw(shaped(rows, kind)))
    digests.validate(full=True)
    assert digests.type == pa.binary(32)
    assert digests.to_pylist() == expected
    assert _native.arrow_keccak256(data.draw(shaped(rows, kind))).to_pylist() == expected
    chunked = data.draw(in_chunks(rows, kind))
    many = keccak256_many(chunked)
    assert [len(chunk) for chunk in many.chunks] == [len(chunk) for chunk in chunked.chunks]
    assert many.to_pylist() == expected


@given(st.data(), st.integers(0, 40), st.integers(0, 12))
def test_bytes_of_one_size(data: st.DataObject, size: int, count: int) -> None:
    rows = [data.draw(st.none() | st.binary(min_size=size, max_size=size)) for _ in range(count)]
    digests = keccak256_many(data.draw(shaped(rows, pa.binary(size))))
    assert digests.to_pylist() == [None if row is None else keccak256(row) for row in rows]


@given(st.integers(0, 9), st.integers(0, 9))
def test_a_column_that_is_null_throughout(before: int, count: int) -> None:
    rows = pa.nulls(before + count).slice(before)
    assert keccak256_many(rows).to_pylist() == [None] * count
    assert _native.arrow_shard_of(rows, 8).to_pylist() == [None] * count


@given(st.data(), text_rows, st.sampled_from(TEXTS))
def test_text_in_any_layout(data: st.DataObject, names: list[str | None], kind: pa.DataType) -> None:
    topics = [None if name is None else f"/app/1/{name.replace('/', '-')}/proto" for name in names]
    shards = _native.arrow_shard_of(data.draw(shaped(topics, kind)), 8)

    def shard_of(topic: str | None) -> int | None:
        try:
            return None if topic is None else _native.shard_of(topic, 8)
        except ValueError:
            return None

    assert shards.to_pylist() == [shard_of(topic) for topic in topics]


@given(st.data(), byte_rows, st.sampled_from(BYTES), st.sampled_from(TEXTS), st.sampled_from(TIMES))
def test_columns_of_different_layouts_side_by_side(
    data: st.DataObject, payloads: list[bytes | None], kind: pa.DataType, text: pa.DataType, time: pa.DataType
) -> None:
    count = len(payloads)
    topics = [data.draw(st.none() | st.text(max_size=15)) for _ in range(count)]
    # What both units of a timestamp hold.
    times = [data.draw(st.none() | st.integers(-(1 << 53), 1 << 53)) for _ in range(count)]
    hashes = _native.arrow_message_hash(
        data.draw(shaped(topics, text)),
        data.draw(shaped(payloads, kind)),
        data.draw(shaped(topics, text)),
        pa.nulls(count),
        data.draw(shaped(times, pa.int64())).cast(time),
    )
    expected = [
        None
        if topic is None or payload is None
        else _native.message_hash(
            pubsub_topic=topic, payload=payload, content_topic=topic, meta=b"", timestamp_ns=time or 0
        )
        for topic, payload, time in zip(topics, payloads, times, strict=True)
    ]
    assert hashes.to_pylist() == expected


@settings(max_examples=50)
@given(st.data(), byte_rows, st.sampled_from([pa.list_, pa.large_list]), st.sampled_from([*BYTES]))
def test_lists_of_bytes(
    data: st.DataObject, payloads: list[bytes | None], of: Callable[[pa.DataType], pa.DataType], kind: pa.DataType
) -> None:
    batches = segment_many(data.draw(shaped(payloads, pa.binary())), CONFIG)
    batches.validate(full=True)
    rows = batches.to_pylist()
    assert reassemble_many(data.draw(shaped(rows, of(kind))), CONFIG).to_pylist() == payloads
    assert reassemble_many(data.draw(in_chunks(rows, of(kind))), CONFIG).to_pylist() == payloads


small = st.integers(-100, 100)
instants = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1))
# Every type that Spark has for a column.
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), small),
    (pa.int16(), small),
    (pa.int32(), small),
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.decimal128(10, 2), small.map(lambda value: decimal.Decimal(value).scaleb(-2))),
    (pa.date32(), instants.map(lambda instant: instant.date())),
    (pa.timestamp("us"), instants),
    (pa.timestamp("us", "UTC"), instants.map(lambda instant: instant.replace(tzinfo=UTC))),
    (pa.duration("us"), small.map(lambda value: datetime.timedelta(seconds=value))),
    *((kind, st.binary(max_size=30)) for kind in BYTES),
    *((kind, st.text(max_size=20)) for kind in TEXTS),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.list_(pa.int32()), st.lists(st.none() | small, max_size=3)),
    (pa.list_(pa.string()), st.lists(st.none() | st.text(max_size=5), max_size=3)),
    (
        pa.struct({"a": pa.int32(), "b": pa.string()}),
        st.fixed_dictionaries({"a": st.none() | small, "b": st.text(max_size=5)}),
    ),
    (
        pa.list_(pa.struct({"a": pa.list_(pa.binary())})),
        st.lists(st.fixed_dictionaries({"a": st.lists(st.binary(max_size=3), max_size=2)}), max_size=2),
    ),
]


@settings(max_examples=200)
@given(st.data(), st.sampled_from(KINDS))
def test_a_column_of_any_type_comes_back_with_its_message(
    data: st.DataObject, kind: tuple[pa.DataType, st.SearchStrategy[Any]]
) -> None:
    data_type, values = kind
    keys = data.draw(st.lists(st.none() | values, min_size=1, max_size=6))
    payloads = [bytes([place]) * 700 for place in range(len(keys))]
    parts = segment_many(payloads, CONFIG)
    rows = [
        (key, keccak256(payload), part)
        for key, payload, segments in zip(keys, payloads, parts, strict=True)
        for part in segments
    ]
    nulls = [None] * len(rows)
    columns = {
        "key": data.draw(shaped([row[0] for row in rows], data_type)),
        "hash": data.draw(shaped([row[1] for row in rows], data.draw(st.sampled_from(BYTES)))),
        "send_id": pa.array(nulls, pa.string()),
        "payload": data.draw(shaped([row[2] for row in rows], data.draw(st.sampled_from(BYTES)))),
        "timestamp": pa.array(nulls, pa.int64()),
        "sender": pa.array(nulls, pa.string()),
        "error": pa.array(nulls, pa.string()),
    }
    field = pa.field("key", data_type, metadata={"unit": "m"})
    schema = pa.schema([field, *(pa.field(name, column.type) for name, column in list(columns.items())[1:])])
    batch = pa.record_batch(list(columns.values()), schema=schema)
    cut = data.draw(st.integers(0, len(rows)))
    found = pa.Table.from_batches(Reconstruction(CONFIG, 1, True)([batch.slice(0, cut), batch.slice(cut)]))
    found.validate(full=True)
    assert found.schema.field("key") == field
    assert found.column("key").to_pylist() == keys
    assert found.column("payload").to_pylist() == payloads


def test_text_that_is_no_utf8_has_a_replacement_character() -> None:
    """Spark casts any bytes to text, and an archive may hold what a peer called itself."""
    names = pa.array([b"ann", b"b\xffb", None, b"\xe2\x82"])
    payload = b"x" * 700
    parts = segment_many([payload], CONFIG)[0]
    for kind in (pa.string(), pa.large_string()):
        offsets = pa.int64() if kind == pa.large_string() else pa.int32()
        same = names.cast(pa.large_binary() if offsets == pa.int64() else pa.binary())
        senders = pa.Array.from_buffers(kind, 4, same.buffers())
        rows = [part for part, _ in zip(parts * 4, range(4), strict=False)]
        nulls = pa.nulls(4, pa.string())
        batch = pa.record_batch(
            [
                senders,
                pa.array([keccak256(payload)] * 4),
                nulls,
                pa.array(rows),
                pa.nulls(4, pa.int64()),
                senders,
                nulls,
            ],
            names=["key", "hash", "send_id", "payload", "timestamp", "sender", "error"],
        )
        found = pa.Table.from_batches(Reconstruction(CONFIG, 1, True)([batch]))
        found.validate(full=True)
        wanted = ["ann", "b\ufffdb", None, "\ufffd"]
        assert found.column("key").to_pylist() == wanted
        assert found.column("senders").to_pylist() == [[] if name is None else [name] for name in wanted]


def test_what_is_no_batch_or_no_array_is_refused() -> None:
    with pytest.raises(TypeError, match=r"__arrow_c_array__ is required, such as a pyarrow array.* not list"):
        _native.arrow_keccak256([b"bytes"])
    with pytest.raises(TypeError, match="data has the Arrow type Utf8: it must be binary"):
        _native.arrow_keccak256(pa.array(["text"]))
    with pytest.raises(TypeError, match="an Arrow record batch is required, not an array of type Int64"):
        _native.arrow_unwrap_waku(pa.array([1]))
    with pytest.raises(ValueError, match="rows of a record batch are not null"):
        _native.arrow_unwrap_waku(pa.array([{"payload": b""}, None]))
    with pytest.raises(ValueError, match="is not read here"):
        _native.arrow_keccak256(pa.array([[b"a"]], pa.list_view(pa.binary())))


def test_nothing_that_crosses_is_kept() -> None:
    """What comes in goes back to pyarrow's pool, and what goes out is released with the last array that holds it."""
    before = pa.total_allocated_bytes()
    rows = pa.array([bytes(64)] * 20_000)
    batches = pa.chunked_array([rows.slice(0, 7), rows.slice(7)])

    def cross(rows: pa.Array, batches: pa.ChunkedArray, times: int) -> int:
        for _ in range(times):
            digests = keccak256_many(rows)
            assert len(digests) == len(rows) == len(keccak256_many(batches))
            with pytest.raises(TypeError, match="string"):
                _native.arrow_shard_of(rows, 8)
            assert len(_native.arrow_segment_rows(rows.slice(0, 50), parameters(CONFIG))) == 50
        unit_bytes = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes

    settled_bytes = cross(rows, batches, 3)
    # Each time gives two arrays of 640 kB.
    grown_bytes = cross(rows, batches, 200) - settled_bytes
    assert grown_bytes < 100_000_000, f"{grown_bytes} bytes more"
    del rows, batches
    assert pa.total_allocated_bytes() == before
