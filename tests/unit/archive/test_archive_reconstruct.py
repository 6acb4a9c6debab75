"""`shardwire.archive`: what the plain Reassembler finds, in any number of threads, in memory and beyond it."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark.rows import CONFIG, counted, hostile_archive, payload_of, reassembled

from shardwire import ConfigError, SegmentationConfig, ShardwireError, _native, keccak256
from shardwire.archive import Report, decrypt, reconstruct, reconstruct_files, summarize
from shardwire.archive import reconstruct as package_function
from shardwire.archive.arrow import MESSAGE_SCHEMA
from shardwire.encryption import AesGcmEncryption
from shardwire.segmentation import segment

engine = sys.modules["shardwire.archive.reconstruct"]


@pytest.fixture(autouse=True)
def a_thread_a_kilobyte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives of tests are small, and are read by many threads all the same."""
    monkeypatch.setattr(engine, "_STRETCH_BYTES_MIN", 1 << 10)


def write(path: Path, rows: list[bytes], files: int = 3, **columns: Any) -> str:
    path.mkdir()
    length = -(-len(rows) // files)
    for number in range(files):
        part = slice(number * length, (number + 1) * length)
        table = pa.table({"payload": pa.array(rows[part], pa.binary()), **{n: c[part] for n, c in columns.items()}})
        pq.write_table(table, path / f"{number:03}.parquet", row_group_size=20)
    return str(path)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("memory_bytes", [1 << 20, 3_000])
def test_threads_and_memory_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, memory_bytes: int
) -> None:
    rows = hostile_archive(3)
    source = write(tmp_path / "in", rows)
    wanted = counted(reconstruct(pa.table({"payload": rows}), CONFIG, unwrap=["sds"], threads=1).to_pylist())
    monkeypatch.setattr(engine, "_LEFTOVERS_BYTES", memory_bytes)
    report = reconstruct_files(source, tmp_path / "out", CONFIG, unwrap=["sds"], threads=threads)
    found = pq.read_table(tmp_path / "out")
    assert found.schema.names == MESSAGE_SCHEMA.names
    assert counted(found.to_pylist()) == wanted
    assert found.num_rows == len(wanted)
    messages = Counter(row["status"] for row in found.to_pylist() if row["entire_message_hash"] is not None)
    assert report.messages == messages
    assert report.unreadable == {key: value for key, value in wanted.items() if isinstance(key, str)}
    assert report.payload_bytes == sum(row["payload_length"] or 0 for row in found.to_pylist())
    # Neither the staging directory nor what lay on disk meanwhile is left.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), threads=st.integers(1, 5), window_bytes=st.sampled_from([0, 5_000, 1 << 26]))
def test_equals_the_plain_reassembler(seed: int, threads: int, window_bytes: int) -> None:
    chance = random.Random(seed)
    rows = []
    repeats: Counter[bytes] = Counter()
    for number in range(chance.randrange(1, 12)):
        payload = payload_of(seed + number, chance.choice([1, 639, 641, 3_000, 6_401]))
        parts = segment(payload, CONFIG)
        came = chance.choice([0.4, 0.85])
        arrived = [part for part in parts if chance.random() < came]
        again = [part for part in arrived if chance.random() < 0.2]
        rows += arrived + again
        repeats[keccak256(payload)] += len(again)
    chance.shuffle(rows)
    before = engine.WINDOW_BYTES
    engine.WINDOW_BYTES = window_bytes
    try:
        found = reconstruct(pa.table({"payload": pa.array(rows, pa.binary())}), CONFIG, threads=threads).to_pylist()
    finally:
        engine.WINDOW_BYTES = before
    assert {row["entire_message_hash"]: row["payload"] for row in found if row["payload"] is not None} == reassembled(
        rows, CONFIG
    )
    hashes = [row["entire_message_hash"] for row in found]
    assert len(hashes) == len(set(hashes))
    for row in found:
        # Of what is whole a stretch counts its own, and no more once the message left the window.
        if row["status"] == "incomplete":
            assert row["duplicates"] == repeats[row["entire_message_hash"]]
        parts = segment(row["payload"], CONFIG) if row["payload"] is not None else []
        if parts:
            data = parts[: row["data_segment_count"]]
            assert (row["status"] == "complete") == all(part in rows for part in data)
            assert row["data_segments_recovered"] == sum(part not in rows for part in data)


def test_layers_topics_times_and_senders(tmp_path: Path) -> None:
    encryption = AesGcmEncryption([bytes(range(32))])
    encryption.write_key_file(tmp_path / "channel.key")
    payload = payload_of(9, 5_000)
    rows = []
    for topic in ("/app/1/a/proto", "/app/1/b/proto"):
        for place, part in enumerate(segment(payload, CONFIG)[3:]):
            message = _native.SdsMessage(
                sender_id="alice",
                message_id=f"{'a' * 32}.{place}",
                channel_id="room",
                lamport_timestamp=1,
                content=part,
            )
            bytes_of = encryption.bind("room").encrypt(message.encode())
            rows.append(_native.WakuMessage(payload=bytes_of, content_topic=topic, timestamp_ns=7 + place).encode())
    step = decrypt(key_file=tmp_path / "channel.key", channel_id="room", cipher="aes-256-gcm")
    source = write(tmp_path / "in", rows, via=["relay"] * len(rows))
    by = ["content_topic", "via"]
    found = reconstruct(source, CONFIG, by=by, unwrap=["waku", step, "sds"]).to_pylist()
    assert {(row["content_topic"], row["via"], row["status"]) for row in found} == {
        ("/app/1/a/proto", "relay", "recovered"),
        ("/app/1/b/proto", "relay", "recovered"),
    }
    assert {(row["first_timestamp"], row["last_timestamp"], *row["senders"]) for row in found} == {(7, 15, "alice")}


def test_keys_lengths_alone_and_times_in_any_unit(tmp_path: Path) -> None:
    payload = payload_of(5, 3_000)
    parts = segment(payload, CONFIG)
    digests = [keccak256(payload)] * len(parts)
    times = pa.array([1_700_000_000_000_001 + n for n in range(len(parts))], pa.timestamp("us", "UTC"))
    table = pa.table({"payload": parts, "digest": digests, "arrived": times, "who": ["bob"] * len(parts)})
    [row] = reconstruct(
        table, CONFIG, key="digest", include_payload=False, timestamp="arrived", sender="who"
    ).to_pylist()
    assert (row["payload"], row["payload_length"], row["status"], row["senders"]) == (None, 3_000, "complete", ["bob"])
    assert row["first_timestamp"] == 1_700_000_000_000_001_000
    # Beyond the year 2262 a time has no nanoseconds.
    late = pa.array([1 << 61] * len(parts), pa.timestamp("us"))
    [row] = reconstruct(table.append_column("timestamp", late), CONFIG).to_pylist()
    assert row["first_timestamp"] is None


def test_wrong_arguments_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [b"x"], files=1, topic=["t"])
    cases: dict[str, dict[str, Any]] = {
        "payload names the column 'nothing': the archive has payload, topic": {"payload": "nothing"},
        "payload names the column 'topic' of type string": {"payload": "topic"},
        "by is 'topic'": {"by": "topic"},
        "by names the column 'nothing'": {"by": ["nothing"]},
        "by names the column 'status', which the result needs": {"by": ["status"]},
        "twice": {"by": ["topic", "topic"]},
        "unwrap step 'tls' is unknown": {"unwrap": ["tls"]},
        "a key needs bare segments": {"key": "payload", "unwrap": ["sds"]},
        "timestamp names the column 'topic' of type string": {"timestamp": "topic"},
        "threads is 0": {"threads": 0},
    }
    for match, arguments in cases.items():
        with pytest.raises(ConfigError, match=match):
            reconstruct_files(source, tmp_path / "out", CONFIG, **arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_an_output_never_destroys_its_input(tmp_path: Path) -> None:
    source = write(tmp_path / "in", segment(b"x" * 2_000, CONFIG), files=1)
    for output in ("in", "in/below", "."):
        with pytest.raises(ConfigError, match="overlap"):
            reconstruct_files(source, tmp_path / output, CONFIG, replace=True)
    # Nor by another name of either.
    (tmp_path / "link").symlink_to(source)
    for named, output in ((source, "link"), (source, "link/below"), (tmp_path / "link", "in")):
        with pytest.raises(ConfigError, match="overlap"):
            reconstruct_files(named, tmp_path / output, CONFIG, replace=True)
    (tmp_path / "link").unlink()
    reconstruct_files(source, tmp_path / "out", CONFIG)
    with pytest.raises(ConfigError, match="exists"):
        reconstruct_files(source, tmp_path / "out", CONFIG)
    assert isinstance(reconstruct_files(source, tmp_path / "out", CONFIG, replace=True), Report)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    # A run that fails leaves what was there.
    with pytest.raises(ConfigError, match="cannot be read"):
        step = decrypt(key_file=tmp_path / "no.key")
        reconstruct_files(source, tmp_path / "out", CONFIG, unwrap=[step], replace=True)
    assert pq.read_table(tmp_path / "out").num_rows == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_an_output_that_cannot_take_its_place_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in", segment(b"x" * 2_000, CONFIG), files=1)
    reconstruct_files(source, tmp_path / "out", CONFIG)
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if path.name.endswith("staging"):
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output error"):
        reconstruct_files(source, tmp_path / "out", CONFIG, replace=True)
    assert pq.read_table(tmp_path / "out").num_rows == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_a_full_disk_is_told_with_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        # What pyarrow raises names no file.
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    source = write(tmp_path / "in", segment(payload_of(5, 5_000), CONFIG), files=1)
    monkeypatch.setattr(pq.ParquetWriter, "write_batch", full)
    for call, named in (
        (lambda: reconstruct_files(source, tmp_path / "out", CONFIG), tmp_path / "out"),
        (lambda: summarize(source, CONFIG, directory=tmp_path), tmp_path),
    ):
        with pytest.raises(OSError, match="No space left on device") as raised:
            call()
        assert (raised.value.filename, raised.value.strerror) == (str(named), os.strerror(errno.ENOSPC))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_what_cannot_be_read_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and so on")
    (tmp_path / "empty").mkdir()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "notes.txt").write_text("what these files are")
    table = tmp_path / "table"
    (table / "_delta_log").mkdir(parents=True)
    (table / "_delta_log" / "0.json").write_text("{}")
    for source, match in (
        ("damaged.parquet", "damaged.parquet cannot be read as Parquet: "),
        ("empty", "has no Parquet files"),
        ("nothing", "there is no file or directory"),
        ("table", "is a table of Delta, whose files are not all its rows"),
        ("mixed", "notes.txt cannot be read as Parquet: .* name those: 'DIRECTORY/\\*.parquet'"),
    ):
        with pytest.raises(ShardwireError, match=match) as refused:
            reconstruct(str(tmp_path / source), CONFIG)
        assert "\n" not in str(refused.value)
    with pytest.raises(ShardwireError, match="is no path of this machine: read it as an Arrow table"):
        reconstruct("s3a://bucket/archive", CONFIG)


def test_an_empty_archive(tmp_path: Path) -> None:
    source = write(tmp_path / "in", [], files=1)
    assert reconstruct(source, CONFIG).num_rows == 0
    report = reconstruct_files(source, tmp_path / "out", CONFIG)
    assert (report.messages, report.unreadable) == ({}, {})
    assert pq.read_table(tmp_path / "out").schema.names == MESSAGE_SCHEMA.names


def test_it_needs_neither_spark_nor_pandas() -> None:
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] in ('pyspark', 'pandas', 'py4j'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import shardwire.archive, pyarrow as pa\n"
        "from shardwire.segmentation import SegmentationConfig, segment\n"
        "rows = segment(b'x' * 5000, SegmentationConfig(segment_size_bytes=1024))\n"
        "print(shardwire.archive.reconstruct(pa.table({'payload': rows})).column('status').to_pylist())\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.stdout.strip() == "['complete']", answer.stderr
    assert package_function is reconstruct


def test_without_its_libraries_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['pyarrow'] = None\nimport shardwire.archive"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (
        "MissingLibraryError: shardwire.archive needs the library pyarrow: pip install 'shardwire[archive]'"
        in answer.stderr
    )


def test_other_readers_read_the_result(tmp_path: Path) -> None:
    import duckdb
    import pandas
    import polars

    payloads = [payload_of(number, 5_000) for number in range(5)]
    source = write(tmp_path / "in", [part for payload in payloads for part in segment(payload, CONFIG)])
    reconstruct_files(source, tmp_path / "out", SegmentationConfig(segment_size_bytes=640))
    pattern = str(tmp_path / "out" / "*.parquet")
    [(count,)] = duckdb.sql(f"select count(*) from '{pattern}' where status = 'complete'").fetchall()
    assert count == 5
    assert set(polars.read_parquet(pattern)["payload"].to_list()) == set(payloads)
    assert set(pandas.read_parquet(tmp_path / "out")["payload"]) == set(payloads)


def test_a_relative_key_file_is_that_of_where_the_step_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    encryption = AesGcmEncryption(bytes(range(2, 34)))
    encryption.write_key_file("relative.key")
    sealed = pa.table({"payload": [encryption.encrypt(part) for part in segment(b"x" * 2_000, CONFIG)]})
    step = decrypt(key_file="relative.key", cipher="aes-256-gcm")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert reconstruct(sealed, CONFIG, unwrap=[step])["status"].to_pylist() == ["complete"]
    with pytest.raises(ConfigError, match=r"key file 'no\.key' cannot be read: No such file or directory$"):
        reconstruct(sealed, CONFIG, unwrap=[decrypt(key_file="no.key")])


ROWS = segment(payload_of(5, 5_000), CONFIG)
STORED: dict[str, tuple[list[Any], Any]] = {
    "categories of pandas": (["a", "b"], pa.dictionary(pa.int8(), pa.string())),
    "views": (["a", "b"], pa.string_view()),
    "half floats": ([1.5, -1.5], pa.float16()),
    "zeros": ([0.0, -0.0], pa.float64()),
    "zeros of 32 bits": ([0.0, -0.0], pa.float32()),
}


@pytest.mark.parametrize("memory_bytes", [1 << 20, 1_000])
@pytest.mark.parametrize("name", STORED)
def test_values_keep_messages_apart_however_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, memory_bytes: int
) -> None:
    monkeypatch.setattr(engine, "_LEFTOVERS_BYTES", memory_bytes)
    apart, kind = STORED[name]
    values = pa.array(apart * len(ROWS)).cast(kind)
    # Of each message every other segment lies in another file.
    rows = [row for row in ROWS for _ in range(2)]
    source = write(tmp_path / "in", rows, files=6, a=values)
    for one in (source, pa.table({"payload": pa.array(rows, pa.binary()), "a": values})):
        found = reconstruct(one, CONFIG, by=["a"], threads=6).to_pylist()
        assert sorted((str(row["a"]), row["payload"]) for row in found) == sorted(
            (str(value), payload_of(5, 5_000)) for value in apart
        )


def test_payloads_and_senders_may_be_dictionaries_or_views(tmp_path: Path) -> None:
    senders = pa.array(["a"] * len(ROWS))
    for kind, text in ((pa.dictionary(pa.int32(), pa.binary()), pa.string_view()), (pa.binary_view(), pa.string())):
        table = pa.table({"payload": pa.array(ROWS, pa.binary()).cast(kind), "who": senders.cast(text)})
        pq.write_table(table, tmp_path / "in.parquet")
        for one in (table, tmp_path / "in.parquet"):
            [found] = reconstruct(one, CONFIG, sender="who").to_pylist()
            assert (found["payload"], found["senders"]) == (payload_of(5, 5_000), ["a"])


@pytest.mark.skipif(not hasattr(pa, "uuid"), reason="pyarrow has UUIDs from 18 on")
def test_categories_of_polars_and_types_that_name_others_keep_messages_apart() -> None:
    """Polars has the names of its categories as views; Parquet has UUIDs, which are bytes."""
    names = pa.array(["a", "b"]).cast(pa.string_view())
    categories = pa.DictionaryArray.from_arrays(pa.array([0, 1] * len(ROWS), pa.uint32()), names)
    apart = {"a": categories, "id": pa.array([bytes(16), bytes(range(16))] * len(ROWS), pa.uuid())}
    rows = pa.array([row for row in ROWS for _ in range(2)])
    # Short of segments, which alone are sorted by what keeps them apart.
    table = pa.table({"payload": rows, **apart}).slice(2 * (len(ROWS) // 2 + 1))
    found = reconstruct(table, CONFIG, by=["a", "id"], sender="a").to_pylist()
    assert sorted((row["a"], row["id"], row["status"], *row["senders"]) for row in found) == [
        ("a", bytes(16), "incomplete", "a"),
        ("b", bytes(range(16)), "incomplete", "b"),
    ]


@pytest.mark.parametrize("kinds", [("string", "large_string"), ("large_string", "string"), ("large_binary", "binary")])
def test_files_of_several_writers_may_have_other_offsets(tmp_path: Path, kinds: tuple[str, str]) -> None:
    first, second = (getattr(pa, kind)() for kind in kinds)
    for number, kind in enumerate((first, second)):
        half = ROWS[number::2]
        names = pa.array(["a"] * len(half)).cast(kind)
        pq.write_table(pa.table({"payload": half, "a": names}), tmp_path / f"{number}.parquet")
    found = reconstruct(tmp_path, CONFIG, by=["a"])
    assert found["payload"].to_pylist() == [payload_of(5, 5_000)]
    assert found["a"].type == first


def test_a_column_whose_name_is_a_path_into_another(tmp_path: Path) -> None:
    rows = len(ROWS)
    table = pa.table({"payload": ROWS, "a.b": ["t"] * rows, "a": [{"b": "u"}] * rows})
    pq.write_table(table, tmp_path / "in.parquet")
    assert reconstruct(tmp_path / "in.parquet", CONFIG, by=["a.b"]).column("a.b").to_pylist() == ["t"]


@pytest.mark.parametrize("value", [["a"], {"b": 1}, pa.MonthDayNano([1, 2, 3])])
def test_lists_structs_and_intervals_keep_nothing_apart(value: Any) -> None:
    table = pa.table({"payload": ROWS, "a": [value] * len(ROWS)})
    with pytest.raises(ConfigError, match=r"'a' of type .*: it must hold single values, .* make a text"):
        reconstruct(table, CONFIG, by=["a"])


def test_a_dict_is_no_archive() -> None:
    columns: Any = {"payload": ROWS}
    with pytest.raises(ConfigError, match="the archive is a dict: give paths or an Arrow table"):
        reconstruct(columns, CONFIG)


def test_columns_are_named_in_one_line_and_of_many_some() -> None:
    table = pa.table({"pay\nload\x1b[31m": [b"x"], **{f"c{number}": [1] for number in range(1_000)}})
    with pytest.raises(ConfigError) as refused:
        reconstruct(table)
    told = str(refused.value)
    assert told.startswith(r"payload names the column 'payload': the archive has pay\nload\x1b[31m, c0, c1, ")
    assert told.endswith(", c48 ... (1,001 in all)")


class Lazy:
    """Knows its columns at a price, and is no rows yet."""

    @property
    def columns(self) -> list[str]:
        raise AssertionError("nobody needs them to see what this is")

    def __iter__(self) -> Any:
        raise AssertionError


def test_what_hands_over_arrow_data_is_told_how_it_becomes_a_table() -> None:
    table = pa.table({"payload": [b"x"]})
    makes = r"which pyarrow\.table\(\) makes of it$"
    for rows in (table.to_reader(), table.to_batches()[0]):
        told = f"the archive is a {type(rows).__name__}: give paths or an Arrow table, {makes}"
        with pytest.raises(ConfigError, match=told):
            reconstruct(rows)
        assert reconstruct(pa.table(rows)).num_rows == 1
    with pytest.raises(ConfigError, match=r"the archive is a Lazy: give paths or an Arrow table$"):
        reconstruct(Lazy())
