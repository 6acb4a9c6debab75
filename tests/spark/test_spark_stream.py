"""`reconstruct_stream` on a cluster: what `reconstruct` finds, once, also after the driver was killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.killed_driver import start
from spark.queries import run_to_end, until_ended
from spark.rows import CONFIG, payload_of, reassembled, without

from shardwire import ConfigError, _native, keccak256
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.segmentation import segment
from shardwire.spark import decrypt, reconstruct, reconstruct_stream, unfinished
from shardwire.spark.unfinished import unfinished_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def write(path: Path, columns: dict[str, Any], number: int) -> None:
    """One file of a source directory; the source takes files by their times, whatever the clock's resolution."""
    part = path / f"{number:03}.parquet"
    pq.write_table(pa.table(columns), part)
    os.utime(part, (1_000_000 + number, 1_000_000 + number))


def test_equals_the_plain_reassembler_and_reconstruct(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(1)
    rows: list[tuple[int, bytes | None]] = []
    for number in range(30):
        parts = segment(payload_of(1_000 + number, chance.choice([640, 5_000, 9_000])), CONFIG)
        lost = chance.sample(range(len(parts)), len(parts) * (3 if number % 4 == 0 else 1) // 4)
        rows += [(START + number * SECOND + place, part) for place, part in enumerate(without(parts, lost))]
    rows += [(START, chance.randbytes(200)) for _ in range(5)] + [(START, None)]
    chance.shuffle(rows)
    # The first file holds a row ten minutes ahead, so that all of the second lies behind the watermark; the last row of
    # all comes ten minutes later still, when what is short of segments expires.
    rows.insert(0, (START + 600 * SECOND, segment(b"ahead", CONFIG)[0]))
    rows.append((START + 1_200 * SECOND, segment(b"last", CONFIG)[0]))
    wanted = reassembled([part for _, part in rows if part is not None], CONFIG)
    (tmp_path / "in").mkdir()
    half = -(-len(rows) // 2)
    for number in range(2):
        times, parts_of = zip(*rows[number * half : (number + 1) * half], strict=True)
        write(tmp_path / "in", {"timestamp": times, "payload": pa.array(parts_of, pa.binary())}, number)
    schema = "timestamp bigint, payload binary"
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    run_to_end(reconstruct_stream(stream, CONFIG), tmp_path)

    found = spark.read.parquet(str(tmp_path / "out")).collect()
    plain = reconstruct(spark.read.parquet(str(tmp_path / "in")), CONFIG).collect()
    by_hash = {row["entire_message_hash"]: row for row in found if row["entire_message_hash"] is not None}
    assert len(by_hash) == sum(row["entire_message_hash"] is not None for row in found)
    assert {key: row["payload"] for key, row in by_hash.items() if row["payload"] is not None} == wanted
    short = {row["entire_message_hash"]: row for row in plain if row["status"] == "incomplete"}
    assert len(short) >= 5
    for key, row in short.items():
        # Nothing comes after these that could differ: the rows are equal in every column.
        assert by_hash[key] == row
    unread = [row for row in found if row["entire_message_hash"] is None]
    assert sum(row["segments_received"] for row in unread) == 5


def test_every_message_comes_out_once_though_the_driver_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(2)
    payloads = [payload_of(2_000 + number, 5_000) for number in range(60)]
    parts = [part for payload in payloads for part in without(segment(payload, CONFIG), [chance.randrange(12)])]
    # The messages lie over all files, and each comes again in part.
    chance.shuffle(parts)
    parts += chance.sample(parts, len(parts) // 3)
    (tmp_path / "in").mkdir()
    per_file = -(-len(parts) // 6)
    arrival = datetime.fromtimestamp(1_700_000_000, UTC)
    for number in range(6):
        values = parts[number * per_file : (number + 1) * per_file]
        columns = {
            "key": pa.nulls(len(values), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": ["segments"] * len(values),
            "partition": pa.array([0] * len(values), pa.int32()),
            "offset": pa.array(range(number * per_file, number * per_file + len(values)), pa.int64()),
            "timestamp": pa.array([arrival + timedelta(seconds=number)] * len(values), pa.timestamp("us", "UTC")),
        }
        write(tmp_path / "in", columns, number)

    run_until_killed(tmp_path)
    until_ended(lambda: start(spark, tmp_path))
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert Counter(bytes(row["payload"]) for row in found) == Counter(payloads)
    assert {row["topic"] for row in found} == {"segments"}


def test_messages_are_kept_apart_by_columns_with_dots_and_backticks(spark: SparkSession, tmp_path: Path) -> None:
    whole, short = (segment(payload_of(number, 5_000), CONFIG) for number in (1, 2))
    parts = [*whole, *short[:2]]
    (tmp_path / "in").mkdir()
    names = ["one"] * len(whole) + ["two"] * 2
    write(tmp_path / "in", {"a.b": names, "c`d": pa.array([7] * len(parts), pa.int32()), "payload": parts}, 0)
    stream = spark.readStream.schema("`a.b` string, `c``d` int, payload binary").parquet(str(tmp_path / "in"))
    # A watermark far behind, so that what is short of segments stays.
    messages = reconstruct_stream(stream, CONFIG, by=["a.b", "c`d"], watermark_delay_ms=3_600_000)
    run_to_end(messages, tmp_path)
    [found] = spark.read.parquet(str(tmp_path / "out")).collect()
    assert (found["a.b"], found["c`d"], found["payload"]) == ("one", 7, payload_of(1, 5_000))
    left = unfinished_messages(spark, str(tmp_path / "checkpoint"), CONFIG, by=["a.b", "c`d"])
    [held] = left.collect()
    assert (held["a.b"], held["c`d"], held["segments_received"]) == ("two", 7, 2)


def test_what_is_unfinished_is_kept_apart_by_times(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", {"payload": segment(payload_of(1, 5_000), CONFIG)[:2]}, 0)
    stream = spark.readStream.schema("payload binary").parquet(str(tmp_path / "in"))
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        day = "timestamp'2026-03-29 00:00:00'"
        timed = stream.selectExpr("payload", f"{day} as day", f"struct({day} as day, 1 as shard) as place")
        by = ["day", "place"]
        run_to_end(reconstruct_stream(timed, CONFIG, by=by, watermark_delay_ms=3_600_000), tmp_path)
        checkpoint = str(tmp_path / "checkpoint")
        [held] = unfinished_messages(spark, checkpoint, CONFIG, by=by).collect()
        with monkeypatch.context() as patched:
            patched.setattr(unfinished, "BUCKET", "what an earlier one had not")
            with pytest.raises(ConfigError, match="is of an earlier shardwire, and this one cannot read its state"):
                unfinished_messages(spark, checkpoint, CONFIG, by=by)
        for other in ([], ["day"], [*by, "hour"]):
            with pytest.raises(ConfigError, match=r"the query of checkpoint .* kept messages apart by other columns"):
                unfinished_messages(spark, checkpoint, CONFIG, by=other)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert (held["place"]["day"], held["segments_received"]) == (held["day"], 2)
    assert held["day"].timestamp() == datetime(2026, 3, 28, 15, tzinfo=UTC).timestamp()


def test_messages_are_kept_apart_by_times_of_an_hour_that_comes_twice(spark: SparkSession, tmp_path: Path) -> None:
    # In the zone of the session both are half past one.
    times = [datetime(2026, 11, 1, hour, 30, tzinfo=UTC) for hour in (5, 6)]
    parts = segment(payload_of(1, 5_000), CONFIG)
    (tmp_path / "in").mkdir()
    rows = [(time, part) for time, count in zip(times, (len(parts), 2), strict=True) for part in parts[:count]]
    moments, payloads = zip(*rows, strict=True)
    columns = {"at": pa.array(moments, pa.timestamp("us", "UTC")), "payload": pa.array(payloads, pa.binary())}
    write(tmp_path / "in", columns, 0)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        stream = spark.readStream.schema("at timestamp, payload binary").parquet(str(tmp_path / "in"))
        run_to_end(reconstruct_stream(stream, CONFIG, by=["at"], watermark_delay_ms=3_600_000), tmp_path)
        out = spark.read.parquet(str(tmp_path / "out"))
        left = unfinished_messages(spark, str(tmp_path / "checkpoint"), CONFIG, by=["at"])
        found, held = (rows.selectExpr("unix_seconds(at) at", "status").collect() for rows in (out, left))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert (found, held) == ([(times[0].timestamp(), "complete")], [(times[1].timestamp(), "incomplete")])


def test_what_is_unfinished_is_told_as_the_stream_tells_it_once_it_expires(spark: SparkSession, tmp_path: Path) -> None:
    payload, late = payload_of(4, 5_000), payload_of(5, 500)
    parts = segment(payload, CONFIG)
    digest, other = keccak256(payload), bytes(32)
    rival = parts[1][:-1] + bytes([parts[1][-1] ^ 1])
    # Of two messages: repeats, a rival and what is no segment, and only the latter. What comes last is an hour later.
    rows = [(digest, part, number) for number, part in enumerate([*parts[:4], parts[0], parts[0], rival, parts[2]])]
    rows += [
        (None, parts[0], 0),
        (b"short", b"", 0),
        (digest, b"no segment", 8),
        (other, b"neither", 9),
        (other, b"nor this", 10),
    ]
    rows += [(keccak256(late), part, 3_600) for part in segment(late, CONFIG)]
    columns = {
        "key": pa.array([key for key, _, _ in rows], pa.binary()),
        "payload": pa.array([part for _, part, _ in rows], pa.binary()),
        "timestamp": [START + seconds * SECOND for _, _, seconds in rows],
        "sender": [f"sender {seconds % 3}" for _, _, seconds in rows],
    }
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", columns, 0)
    schema = "key binary, payload binary, timestamp bigint, sender string"

    def messages(watermark_delay_ms: int) -> DataFrame:
        stream = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
        return reconstruct_stream(stream, CONFIG, key="key", watermark_delay_ms=watermark_delay_ms)

    run_to_end(messages(2 * 3_600_000), tmp_path)
    left = unfinished_messages(spark, str(tmp_path / "checkpoint"), CONFIG)
    (tmp_path / "expired").mkdir()
    run_to_end(messages(0), tmp_path / "expired")
    told = spark.read.parquet(str(tmp_path / "expired" / "out")).where("status not in ('complete', 'recovered')")
    no_keys, *wanted = sorted(told.collect(), key=lambda row: row["entire_message_hash"] or b"")
    # What is no segment of a message is told at once, as elsewhere.
    [elsewhere] = [
        row
        for row in reconstruct(spark.read.parquet(str(tmp_path / "in")), CONFIG, key="key").collect()
        if row["entire_message_hash"] is None
    ]
    assert (no_keys["segments_received"], no_keys) == (2, elsewhere)
    assert [(row["duplicates"], row["conflicts"], row["copies"], row["error"] is None) for row in wanted] == [
        (0, 0, 0, False),
        (3, 1, 1, False),
    ]
    assert sorted(left.collect(), key=lambda row: row["entire_message_hash"]) == wanted


def run_until_killed(directory: Path) -> None:
    """Runs the driver, the leader of its process group, until a task of its fourth micro-batch kills it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    script = [sys.executable, str(Path(__file__).parent / "killed_driver.py"), str(directory)]
    log = directory / "driver.log"
    with log.open("wb") as told:
        ended = subprocess.run(
            script, env=environment, stdout=told, stderr=told, start_new_session=True, timeout=250, check=False
        )
    assert ended.returncode == -signal.SIGKILL, log.read_text()
    batches = {path.name for path in (directory / "checkpoint" / "commits").iterdir() if path.name.isdigit()}
    assert batches == {"0", "1", "2"}


def test_unwraps_encryption_and_sds_and_tells_sends_apart(spark: SparkSession, tmp_path: Path) -> None:
    key = random.Random(3).randbytes(32)
    encryption = ChaCha20Poly1305Encryption([key])
    encryption.write_key_file(tmp_path / "channel.key")
    payload = payload_of(3, 5_000)
    rows = []
    for sender, send in (("alice", "a" * 32), ("bob", "b" * 32)):
        for place, part in enumerate(segment(payload, CONFIG)[3:]):
            message = _native.SdsMessage(
                sender_id=sender, message_id=f"{send}.{place}", channel_id="room", lamport_timestamp=1, content=part
            )
            rows.append(encryption.bind("room").encrypt(message.encode()))
    rows.append(b"hostile")
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", {"payload": pa.array(rows, pa.binary())}, 0)
    stream = spark.readStream.schema("payload binary").parquet(str(tmp_path / "in"))
    step = decrypt(key_file=tmp_path / "channel.key", channel_id="room")
    run_to_end(reconstruct_stream(stream, CONFIG, unwrap=[step, "sds"], include_payload=False), tmp_path)
    found = {row["send_id"]: row for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert set(found) == {"a" * 32, "b" * 32, None}
    for send, sender in (("a" * 32, "alice"), ("b" * 32, "bob")):
        row = found[send]
        assert (row["status"], row["senders"], row["payload_length"]) == ("recovered", [sender], 5_000)
        assert row["payload"] is None
    assert (found[None]["status"], found[None]["segments_received"]) == ("invalid", 1)
    for path in (tmp_path / "checkpoint").rglob("*"):
        assert path.is_dir() or not any(secret in path.read_bytes() for secret in (key, key.hex().encode()))


def test_wrong_arguments_are_refused_at_once(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("timestamp", "cast('x' as binary) payload")
    for match, arguments in {
        "watermark_delay_ms is -1": {"watermark_delay_ms": -1},
        "watermark_delay_ms is 0.5: it must be an integer": {"watermark_delay_ms": 0.5},
        "remember_ms is -1": {"remember_ms": -1},
        "remember_ms is .5.: it must be an integer": {"remember_ms": "5"},
        "payload names the column 'nothing'": {"payload": "nothing"},
        "a key needs bare segments": {"key": "payload", "unwrap": ["sds"]},
    }.items():
        with pytest.raises(ConfigError, match=match):
            reconstruct_stream(stream, CONFIG, **arguments)  # type: ignore[arg-type]
    for ours in ("shardwire_event_time", "shardwire_bucket"):
        with pytest.raises(ConfigError, match=f"by names the column '{ours}', which the result needs"):
            reconstruct_stream(stream.selectExpr("*", f"'' {ours}"), CONFIG, by=[ours])
    with pytest.raises(ConfigError, match=r"df has a watermark on the column 'timestamp'.*: leave withWatermark out"):
        reconstruct_stream(stream.withWatermark("timestamp", "1 minute"), CONFIG)
    with pytest.raises(ConfigError, match="use reconstruct"):
        reconstruct_stream(spark.createDataFrame([(b"",)], "payload binary"), CONFIG)
