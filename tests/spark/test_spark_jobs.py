"""The jobs, as a user starts them: plain `spark-submit` against Parquet in and out."""

from __future__ import annotations

import runpy
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.rows import payload_of
from spark.submit import ROOT, command, environment, submit, summary

from shardwire import SegmentationConfig, _native
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.segmentation import segment
from shardwire.spark.job import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = SegmentationConfig(segment_size_bytes=6_400, enable_reed_solomon=True, parity_rate=0.5)
OPTIONS = ("--segment-size-bytes", "6400", "--parity-rate", "0.5")


def in_process(job: str, *arguments: str) -> int:
    """Runs a job in the session of the tests; its exit code."""
    return int(runpy.run_path(str(ROOT / "spark_jobs" / job))["main"](list(arguments)))


def test_segment_and_reconstruct(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    payloads = [payload_of(number, 1_000 * number + 1) for number in range(40)]
    pq.write_table(pa.table({"id": range(40), "payload": payloads}), tmp_path / "in.parquet")

    made = submit("segment_messages.py", str(tmp_path / "in.parquet"), str(tmp_path / "segments"), *OPTIONS)
    assert made.returncode == 0, made.stderr
    table = summary(made.stdout)
    parts = [part for payload in payloads for part in segment(payload, CONFIG)]
    assert table["different payloads"] == 40
    assert table["data segments"] + table["parity segments"] == len(parts)
    assert table["bytes of segments"] == sum(map(len, parts))
    # spark-submit gives what a driver in Python writes to stderr on stdout.
    assert "done in" in made.stdout

    # Spark's own description of the columns, which the file carries, would hide those that are added.
    segments = pq.read_table(tmp_path / "segments").replace_schema_metadata(None)
    arrived = pa.array(range(segments.num_rows), pa.int64())
    who = pa.array(["alice"] * segments.num_rows)
    pq.write_table(segments.append_column("arrived", arrived).append_column("who", who), tmp_path / "arrived.parquet")
    paths = str(tmp_path / "arrived.parquet"), str(tmp_path / "messages")
    columns = ("--payload", "segment", "--by", "id", "--timestamp", "arrived", "--sender", "who")
    assert in_process("reconstruct_messages.py", *paths, *columns, *OPTIONS) == 0
    table = summary(capsys.readouterr().out)
    assert (table["messages complete"], table["messages invalid"]) == (40, 0)
    assert table["bytes of payloads"] == sum(map(len, payloads))
    rows = pq.read_table(tmp_path / "messages").to_pylist()
    assert {row["id"]: row["payload"] for row in rows} == dict(enumerate(payloads))
    assert {sender for row in rows for sender in row["senders"]} == {"alice"}
    assert max(row["last_timestamp"] for row in rows) == segments.num_rows - 1
    assert spark.range(3).count() == 3, "a job stopped a session that was not its own"


STOPS = """
from shardwire.spark import job_session

with job_session("stops") as spark:
    print("rows", spark.range(3).count())
try:
    spark.range(3).count()
except Exception as error:
    print("stopped", type(error).__name__)
"""


def test_a_job_stops_its_session(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(STOPS)
    said = submit(str(tmp_path / "job.py")).stdout.splitlines()
    assert said[0] == "rows 3"
    assert said[1].startswith("stopped")


def test_an_encrypted_archive_with_losses_by_spark_submit(tmp_path: Path) -> None:
    key = bytes(range(7, 39))
    encryption = ChaCha20Poly1305Encryption([key])
    encryption.write_key_file(tmp_path / "channel.key")
    payload, lost_one = payload_of(1, 60_000), payload_of(2, 60_000)
    rows = []
    for send, (sent, kept) in {"a" * 32: (payload, slice(3, None)), "b" * 32: (lost_one, slice(0, 4))}.items():
        for place, part in list(enumerate(segment(sent, CONFIG)))[kept]:
            message = _native.SdsMessage(
                sender_id="alice", message_id=f"{send}.{place}", channel_id="room", lamport_timestamp=1, content=part
            )
            rows.append(encryption.bind("room").encrypt(message.encode()))
    pq.write_table(pa.table({"payload": rows}), tmp_path / "archive.parquet")
    found = submit(
        "reconstruct_messages.py",
        str(tmp_path / "archive.parquet"),
        str(tmp_path / "messages"),
        *("--unwrap", "decrypt", "sds", "--key-file", str(tmp_path / "channel.key"), "--channel-id", "room"),
        *OPTIONS,
    )
    assert found.returncode == 1, found.stderr
    table = summary(found.stdout)
    assert (table["messages recovered"], table["messages incomplete"]) == (1, 1)
    assert table["data segments recovered"] == 3
    [recovered] = [r for r in pq.read_table(tmp_path / "messages").to_pylist() if r["status"] == "recovered"]
    assert recovered["payload"] == payload
    for secret in (key.hex(), str(key)):
        assert secret not in found.stdout
        assert secret not in found.stderr


WRONG = {
    "segment_messages.py": (("--segment-size-bytes", "0"), "SegmentationConfig.segment_size_bytes is 0"),
    "reconstruct_messages.py": (("--unwrap", "decrypt"), "--unwrap decrypt needs either --key-file or --key-env"),
    "channel_report.py": (("--unwrap", "decrypt"), "--unwrap decrypt needs either --key-file or --key-env"),
    "reconstruct_stream.py": (("--checkpoint", "c", "--interval-ms", "-1"), "--interval-ms is -1"),
}


@pytest.mark.parametrize("job", WRONG)
def test_help_and_wrong_arguments(job: str) -> None:
    helped = submit(job, "--help", submitted=False)
    assert helped.returncode == 0
    assert "Parquet" in helped.stdout
    arguments, reason = WRONG[job]
    refused = submit(job, "in", "out", *arguments, submitted=False)
    assert refused.returncode == 2
    assert refused.stderr.strip().startswith(f"error: {reason}")
    assert "Traceback" not in refused.stderr


def test_every_job_has_its_test_of_arguments() -> None:
    assert {path.name for path in (ROOT / "spark_jobs").glob("*.py")} == set(WRONG)


def test_channel_report(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    def sds(sender: str, message_id: str, *history: str) -> bytes:
        entries = [_native.HistoryEntry(entry) for entry in history]
        return _native.SdsMessage(
            sender_id=sender,
            message_id=message_id,
            channel_id="room",
            lamport_timestamp=1,
            causal_history=entries,
            content=b"content",
        ).encode()

    rows = [sds("alice", "a1"), sds("bob", "b1", "a1", "late", "lost"), sds("alice", "a1"), sds("bob", "late"), b"\xff"]
    times = [1_700_000_000_000_000_000 + n * 20_000_000 for n in range(len(rows))]
    pq.write_table(pa.table({"timestamp": times, "payload": rows}), tmp_path / "in.parquet")
    output, picture = tmp_path / "out", tmp_path / "report.png"
    assert in_process("channel_report.py", str(tmp_path / "in.parquet"), str(output), "--picture", str(picture)) == 0
    table = summary(capsys.readouterr().out)
    assert (table["messages"], table["repeats"], table["bytes of content"]) == (4, 1, 28)
    assert (table["messages that came late"], table["messages lost"]) == (1, 1)
    assert table["messages that could not be read"] == 1
    acknowledged = {row["sender_id"]: row for row in pq.read_table(output / "acknowledgements").to_pylist()}
    assert acknowledged["alice"]["latency_p50_ms"] == 20.0
    assert {row["message_id"]: row["state"] for row in pq.read_table(output / "gaps").to_pylist()} == {
        "late": "late",
        "lost": "lost",
    }
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_stream_by_spark_submit_ends_when_told(tmp_path: Path) -> None:
    payloads = [payload_of(number, 20_000) for number in range(6)]
    parts = [part for payload in payloads for part in segment(payload, CONFIG)]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"payload": parts}), tmp_path / "in" / "0.parquet")
    stop_file = tmp_path / "stop"
    arguments = [str(tmp_path / name) for name in ("in", "out")]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint"), "--stop-file", str(stop_file), *OPTIONS]
    job = subprocess.Popen(
        command("reconstruct_stream.py", *arguments),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        # It would go on for ever: the file is set as soon as a micro-batch is done.
        while not (tmp_path / "checkpoint" / "commits" / "0").exists() and job.poll() is None:
            time.sleep(0.05)
        stop_file.touch()
        told, _ = job.communicate(timeout=120)
    finally:
        job.kill()
    assert job.returncode == 0, told
    table = summary(told)
    assert (table["messages complete"], table["messages incomplete"]) == (6, 0)
    assert (table["rows read"], table["micro-batches"]) == (len(parts), 1)
    assert table["bytes of payloads"] == sum(map(len, payloads))
    assert f"micro-batch 0: {len(parts)} rows" in told


UNREADABLE = {
    "no such directory": ("nothing", (), "[PATH_NOT_FOUND]"),
    "no files": ("empty", (), "the input has no Parquet files"),
    "no Parquet": ("text.parquet", (), "Could not read footer"),
    "an output that exists": ("in.parquet", ("--payload", "payload"), "give another output, or --overwrite"),
    "a misspelt column": (
        "in.parquet",
        ("--payload", "paylod"),
        "payload names the column 'paylod': the DataFrame has",
    ),
    "a column of text": ("in.parquet", ("--payload", "topic"), "'topic' of type string: it must be binary"),
    "no key file": (
        "in.parquet",
        ("--overwrite", "--unwrap", "decrypt", "--key-file", "/no/such/key"),
        "/no/such/key",
    ),
    "no key": ("in.parquet", ("--overwrite", "--unwrap", "decrypt", "--key-env", "NO_SUCH_KEYS"), "holds no key"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_one_line(spark: SparkSession, case: str, tmp_path: Path, capsys: Any) -> None:
    for directory in ("empty", "out"):
        (tmp_path / directory).mkdir()
    (tmp_path / "text.parquet").write_text("no Parquet at all")
    pq.write_table(pa.table({"payload": [b"x"], "topic": ["t"]}), tmp_path / "in.parquet")
    name, arguments, reason = UNREADABLE[case]
    assert in_process("reconstruct_messages.py", str(tmp_path / name), str(tmp_path / "out"), *arguments) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(told) == 1
    assert reason in told[0]


def test_an_input_without_rows(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    pq.write_table(pa.table({"payload": pa.array([], pa.binary())}), tmp_path / "in.parquet")
    assert in_process("reconstruct_messages.py", str(tmp_path / "in.parquet"), str(tmp_path / "out")) == 0
    assert set(summary(capsys.readouterr().out).values()) == {0}


def test_the_reason_out_of_what_spark_says() -> None:
    missing = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "serializers.py", line 1, in loads
    return cloudpickle.loads(obj)
ModuleNotFoundError: No module named 'shardwire'
    at org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory"""
    assert reason_of(missing).startswith(
        "ModuleNotFoundError: No module named 'shardwire'; the executors' Python needs"
    )
    java = "An error occurred while calling o32.parquet.\n: org.apache.spark.SparkException: no footer\n\tat org.A"
    assert reason_of(java) == "org.apache.spark.SparkException: no footer"
    assert reason_of("[PATH_NOT_FOUND] nothing there\n\tat org.A") == "[PATH_NOT_FOUND] nothing there"
