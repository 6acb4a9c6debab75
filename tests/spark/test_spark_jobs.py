"""The jobs, as a user starts them: plain `spark-submit` against Parquet in and out."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.clientserver import ClientServerConnection
from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JError, Py4JNetworkError
from spark.rows import payload_of
from spark.submit import ROOT, command, environment, run_until_served, submit, summary

from shardwire import ConfigError, SegmentationConfig, _native, keccak256
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.segmentation import segment
from shardwire.spark import job_session, reconstruct_archive
from shardwire.spark.failures import failures_told, reason_of
from shardwire.spark.files import SinkFiles
from shardwire.spark.job import (
    Progress,
    add_column_arguments,
    add_config_arguments,
    add_output_arguments,
    add_unwrap_arguments,
)
from shardwire.spark.stream_job import follow, secret_of
from shardwire.spark.unfinished import unfinished_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = SegmentationConfig(segment_size_bytes=6_400, enable_reed_solomon=True, parity_rate=0.5)
OPTIONS = ("--segment-size-bytes", "6400", "--parity-rate", "0.5")
# On a busy machine the start of a Spark and the first task on it take minutes.
SLOW = pytest.mark.timeout(900)


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
from shardwire.spark import job_session, reconstruct_archive

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


def test_a_job_in_a_thread_leaves_the_session_that_is_there_as_it_is(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[object] = []
    monkeypatch.setattr(type(spark), "stop", lambda session: stopped.append(session))
    monkeypatch.setattr(type(spark.sparkContext), "setLogLevel", lambda context, level: stopped.append(level))
    monkeypatch.setattr(type(spark.conf), "get", lambda conf, name, default: default)

    def run() -> bool:
        with job_session("in a thread") as used:
            return used.sparkContext is spark.sparkContext

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(run).result()
    assert stopped == []


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
    "segment_messages.py": (("--segment-size", "0"), "--segment-size is 0: it must"),
    "reconstruct_messages.py": (("--unwrap", "decrypt"), "--unwrap decrypt needs either --key-file or --key-env"),
    "reconstruct_archive.py": (("--partition-by", "day"), "reconstruct_archive writes Parquet without --partition-by"),
    "channel_report.py": (("--unwrap", "decrypt"), "--unwrap decrypt needs either --key-file or --key-env"),
    "reconstruct_stream.py": (("--checkpoint", "c", "--interval-ms", "-1"), "--interval-ms is -1"),
}


@pytest.mark.parametrize("job", WRONG)
def test_help_and_wrong_arguments(job: str) -> None:
    helped = submit(job, "--help", submitted=False)
    assert helped.returncode == 0
    assert "--dry-run" in helped.stdout
    arguments, reason = WRONG[job]
    refused = submit(job, "in", "out", *arguments, submitted=False)
    assert refused.returncode == 2
    assert refused.stderr.strip().startswith(f"error: {reason}")
    assert "Traceback" not in refused.stderr


def test_lists_are_given_one_by_one_as_on_the_command_line_or_at_once() -> None:
    parser = argparse.ArgumentParser()
    for add in (add_column_arguments, add_output_arguments, add_unwrap_arguments, add_config_arguments):
        add(parser)
    line = "out --by a --by b c --unwrap waku --unwrap sds --partition-by a --partition-by b --segment-size 64"
    found = parser.parse_args(line.split())
    assert (found.by, found.unwrap, found.partition_by) == (["a", "b", "c"], ["waku", "sds"], ["a", "b"])
    assert found.segment_size_bytes == 64


def test_places_after_a_list_are_told_where_to_stand(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        in_process("reconstruct_messages.py", "--by", "a", "b", "in", "out")
    told = "required: input, output; --partition-by and --by and --unwrap take all that follows: give input and output "
    assert told in capsys.readouterr().err


def test_a_stop_file_that_is_there_is_refused(tmp_path: Path, capsys: Any) -> None:
    arguments = [str(tmp_path / name) for name in ("in", "out")]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint"), "--stop-file", str(tmp_path)]
    assert in_process("reconstruct_stream.py", *arguments) == 2
    told = f"error: --stop-file is {str(tmp_path)!r}, which is there already: take it away\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("job", WRONG)
def test_ctrl_c_while_modules_load_is_no_traceback(job: str, tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    answer = subprocess.run(
        command(job, "in", "out", submitted=False),
        env=environment() | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (-signal.SIGINT, "")


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
    arguments = ("--unwrap", "sds", "--picture", str(picture))
    assert in_process("channel_report.py", str(tmp_path / "in.parquet"), str(output), *arguments) == 1
    table = summary(capsys.readouterr().out)
    assert (table["messages"], table["repeats"], table["bytes of content"]) == (4, 1, 28)
    # A lost message gives 1, as in every job.
    assert (table["messages that came late"], table["messages lost"]) == (1, 1)
    assert table["messages that could not be read"] == 1
    acknowledged = {row["sender_id"]: row for row in pq.read_table(output / "acknowledgements").to_pylist()}
    assert acknowledged["alice"]["latency_p50_ms"] == 20.0
    assert {row["message_id"]: row["state"] for row in pq.read_table(output / "gaps").to_pylist()} == {
        "late": "late",
        "lost": "lost",
    }
    assert picture.read_bytes().startswith(b"\x89PNG")


@SLOW
def test_a_stream_by_spark_submit_ends_when_told(tmp_path: Path) -> None:
    payloads = [payload_of(number, 20_000) for number in range(6)]
    parts = [part for payload in payloads for part in segment(payload, CONFIG)]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"payload": parts}), tmp_path / "in" / "0.parquet")
    stop_file = tmp_path / "stop"
    arguments = [str(tmp_path / name) for name in ("in", "out")]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint"), "--stop-file", str(stop_file), *OPTIONS]

    def run() -> tuple[int, str]:
        stop_file.unlink(missing_ok=True)
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
            told, _ = job.communicate()
        finally:
            job.kill()
        return job.returncode, told

    code, told = run_until_served(run)
    assert code == 0, told
    table = summary(told)
    assert (table["messages complete"], table["messages incomplete"]) == (6, 0)
    assert (table["rows read"], table["micro-batches"]) == (len(parts), 1)
    assert table["bytes of payloads"] == sum(map(len, payloads))
    assert f"micro-batch 0: {len(parts)} rows" in told


UNREADABLE = {
    "no such directory": ("nothing", (), "is not there: give a directory"),
    "no files": ("empty", (), "has no Parquet files: give a directory"),
    "no Parquet": ("text.parquet", (), "is no Parquet file, or damaged"),
    "an output that exists": (
        "in.parquet",
        ("--payload", "payload"),
        "exists: give another one, or pass --overwrite",
    ),
    "a misspelt column": (
        "in.parquet",
        ("--payload", "paylod"),
        "error: --payload names the column 'paylod': the DataFrame has",
    ),
    "a column of text": (
        "in.parquet",
        ("--payload", "topic"),
        "it must be binary; decode it before, from base64",
    ),
    "no key file": (
        "in.parquet",
        ("--overwrite", "--unwrap", "decrypt", "--key-file", "/no/such/key"),
        "/no/such/key",
    ),
    "no key": ("in.parquet", ("--overwrite", "--unwrap", "decrypt", "--key-env", "NO_SUCH_KEYS"), "holds no key"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_one_line(spark: SparkSession, case: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "empty").mkdir()
    if case == "an output that exists":
        (tmp_path / "out").mkdir()
    (tmp_path / "text.parquet").write_text("no Parquet at all")
    pq.write_table(pa.table({"payload": [b"x"], "topic": ["t"]}), tmp_path / "in.parquet")
    name, arguments, reason = UNREADABLE[case]
    assert in_process("reconstruct_messages.py", str(tmp_path / name), str(tmp_path / "out"), *arguments) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(told) == 1
    assert reason in told[0]
    # Nothing is left behind, and what was there is as it was.
    assert not list(tmp_path.glob("*shardwire*"))


def test_json_is_an_output_like_others(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    archive(tmp_path / "in", 1, 2)
    arguments = (str(tmp_path / "in"), str(tmp_path / "out"), "--output-format", "json", *OPTIONS)
    for overwrite in ((), ("--overwrite",)):
        assert in_process("reconstruct_messages.py", *arguments, *overwrite) == 0
        table = summary(capsys.readouterr().out)
        assert (table["messages complete"], table["bytes of payloads"]) == (2, 40_000)
    assert in_process("reconstruct_messages.py", *arguments) == 2
    assert "exists: give another one" in capsys.readouterr().err


def test_an_output_is_replaced_once_all_is_written_however_its_format_is_spelt(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    archive(tmp_path / "in", 1)
    arguments = (str(tmp_path / "in"), str(tmp_path / "out"), "--overwrite", "--output-format", "Parquet")
    assert in_process("segment_messages.py", *arguments) == 0
    before = sorted(path.name for path in (tmp_path / "out").iterdir())
    # Its first page is damaged and its footer is not: it fails while it is read.
    file = tmp_path / "in" / "0.parquet"
    file.write_bytes(b"PAR1" + bytes(100) + file.read_bytes()[104:])
    assert in_process("segment_messages.py", *arguments) == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before


@pytest.mark.parametrize("job", ["reconstruct_messages.py", "reconstruct_stream.py"])
def test_a_job_reads_the_columns_of_every_file(spark: SparkSession, tmp_path: Path, job: str) -> None:
    archive(tmp_path / "in", 1)
    table = pq.read_table(tmp_path / "in" / "0.parquet")
    pq.write_table(table.append_column("timestamp", pa.array([5] * len(table))), tmp_path / "in" / "1.parquet")
    options = ["--once", "--checkpoint", str(tmp_path / "checkpoint")] if "stream" in job else []
    assert in_process(job, str(tmp_path / "in"), str(tmp_path / "out"), *OPTIONS, *options) == 0
    [found] = spark.read.parquet(str(tmp_path / "out")).collect()
    assert found["last_timestamp"] == 5


@pytest.mark.parametrize("kind", ["json", "delta"])
def test_an_input_is_destroyed_in_no_format(spark: SparkSession, tmp_path: Path, capsys: Any, kind: str) -> None:
    archive(tmp_path / "in", 1)
    arguments = (str(tmp_path / "in"), str(tmp_path), "--overwrite", "--output-format", kind)
    assert in_process("reconstruct_messages.py", *arguments) == 2
    assert "overlap: give an output outside the input" in capsys.readouterr().err


JOBS = ["segment_messages.py", "reconstruct_messages.py", "reconstruct_archive.py", "channel_report.py"]


@pytest.mark.parametrize("job", [*JOBS, "reconstruct_stream.py"])
def test_a_summary_that_cannot_be_written_is_refused_before_the_work(
    spark: SparkSession, job: str, tmp_path: Path, capsys: Any
) -> None:
    archive(tmp_path / "in", 1)
    arguments = [str(tmp_path / "in"), str(tmp_path / "out")]
    named = {"reconstruct_stream.py": ["checkpoint", "flush"], "reconstruct_messages.py": ["dead-letters"]}.get(job, [])
    for name in named:
        arguments += [f"--{name}", str(tmp_path / name)]
    if job == "reconstruct_stream.py":
        arguments += ["--once"]
    if job != "channel_report.py":
        arguments += OPTIONS
    for place, told in {
        Path("/proc"): "a directory: give a file",
        Path("/proc/summary.json"): "nothing can be written",
        # It would destroy the one, and none of the others could be read again.
        tmp_path / "in" / "0.parquet": "overlaps",
        tmp_path / "out": "overlaps",
        **{tmp_path / name / "summary.json": "overlaps" for name in ("out", *named)},
    }.items():
        assert in_process(job, *arguments, "--summary", str(place)) == 2
        [error] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
        assert error.startswith(f"error: --summary is {str(place)!r}, ")
        assert told in error
        assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere /proc is no file system of its own")
@pytest.mark.parametrize("job", JOBS)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    spark: SparkSession, job: str, tmp_path: Path, capsys: Any
) -> None:
    archive(tmp_path / "in", 1)
    # Who looks at the columns has begun the work.
    wrong = ["--payload", "nothing"]
    assert in_process(job, str(tmp_path / "in"), "/proc/out", *wrong) == 2
    assert "error: the output is '/proc/out', where nothing can be written (" in capsys.readouterr().err
    # Trying that leaves nothing: no file, and no directory above it.
    assert in_process(job, str(tmp_path / "in"), str(tmp_path / "a" / "b" / "out"), *wrong) == 2
    assert "names the column 'nothing'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_key_that_no_layer_uses_is_refused(capsys: Any) -> None:
    for option in ("--key-file", "--key-env", "--channel-id"):
        assert in_process("reconstruct_messages.py", "in", "out", option, "x", "--unwrap", "sds") == 2
        assert f"error: {option} is of --unwrap decrypt, which is missing: give that, too" in capsys.readouterr().err


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_work(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    archive(tmp_path / "in", 1)
    for place in (tmp_path, tmp_path / "none" / "picture.png"):
        arguments = [str(tmp_path / "in"), str(tmp_path / "out"), "--picture", str(place)]
        assert in_process("channel_report.py", *arguments) == 2
        assert f"error: --picture is {str(place)!r}: give a file" in capsys.readouterr().err
    arguments = [str(tmp_path / "in"), str(tmp_path / "out"), "--payload", "nothing", "--picture", "/proc/a.png"]
    assert in_process("channel_report.py", *arguments) == 2
    assert "error: /proc/a.png: " in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    # The output takes the place of all that is in it.
    for place, told in {
        tmp_path / "out" / "a.png": "in the output",
        tmp_path / "a.parquet": "has no ending that",
    }.items():
        arguments = [str(tmp_path / "in"), str(tmp_path / "out"), "--overwrite", "--picture", str(place)]
        assert in_process("channel_report.py", *arguments) == 2
        assert told in capsys.readouterr().err
    (tmp_path / "out").rmdir()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_stream_of_one_file_is_refused_before_it_has_a_checkpoint(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    archive(tmp_path / "in", 1)
    arguments = [str(tmp_path / name) for name in ("in/0.parquet", "out")]
    arguments += ["--checkpoint", str(tmp_path / "kept"), "--once"]
    assert in_process("reconstruct_stream.py", *arguments, *OPTIONS) == 2
    assert "0.parquet' is a file: give a directory, or a pattern of files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    arguments[0] = str(tmp_path / "in" / "*.parquet")
    assert in_process("reconstruct_stream.py", *arguments, *OPTIONS) == 0


def test_the_output_of_a_stream_does_not_lie_in_its_checkpoint(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    archive(tmp_path / "in", 1)
    for output in ("kept", "kept/out"):
        arguments = [str(tmp_path / "in"), str(tmp_path / output), "--checkpoint", str(tmp_path / "kept"), "--once"]
        assert in_process("reconstruct_stream.py", *arguments, *OPTIONS) == 2
        assert "would lie in it: give another directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    ("job", "option"), [("messages", "--dead-letters"), ("stream", "--flush"), ("stream", "--checkpoint")]
)
def test_a_place_that_is_taken_is_refused_by_its_option(
    spark: SparkSession, tmp_path: Path, capsys: Any, job: str, option: str
) -> None:
    archive(tmp_path / "in", 1)
    given = [str(tmp_path / name) for name in ("in", "out")]
    kept = ["--once", "--checkpoint", str(tmp_path / "kept")] if option == "--flush" else []
    for place in given if option != "--checkpoint" else given[:1]:
        assert in_process(f"reconstruct_{job}.py", *given, option, place, *kept) == 2
        assert f"error: {option} is {place!r}, and overlaps {place!r}: give one outside it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_bytes_name_no_directories(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    archive(tmp_path / "in", 1)
    for name, kind in {"payload": "binary", "senders": "array<string>"}.items():
        arguments = (str(tmp_path / "in"), str(tmp_path / "out"), "--partition-by", "status", name)
        assert in_process("reconstruct_messages.py", *arguments, *OPTIONS) == 2
        told = f"--partition-by names the column {name!r} of type {kind}, which names no directories: there are "
        assert f"{told}payload_length, status, data_segment_count, " in capsys.readouterr().err


def test_a_checkpoint_of_no_stream_is_told(spark: SparkSession, tmp_path: Path) -> None:
    for checkpoint in (str(tmp_path), str(tmp_path / "none"), "nothing://a/b"):
        told = f"checkpoint {checkpoint!r} is none of a query of reconstruct_stream"
        with pytest.raises(ConfigError, match=re.escape(told)):
            unfinished_messages(spark, checkpoint)
    with pytest.raises(ConfigError, match=r"checkpoint is .*: it must be a text"):
        unfinished_messages(spark, tmp_path)  # type: ignore[arg-type]


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
    assert reason_of(Exception(missing)).startswith(
        "ModuleNotFoundError: No module named 'shardwire'; the executors' Python needs"
    )
    java = "An error occurred while calling o32.parquet.\n: org.apache.spark.SparkException: no footer\n\tat org.A"
    assert reason_of(Exception(java)) == "org.apache.spark.SparkException: no footer"
    assert reason_of(Exception("[PATH_NOT_FOUND] nothing there\n\tat org.A")) == "[PATH_NOT_FOUND] nothing there"
    source = '[PYTHON_DATA_SOURCE_ERROR] no: Traceback (most recent call last):\n  File "x"\nConfigError: no option\n'
    assert reason_of(Exception(f"{source} SQLSTATE: 38000")) == "ConfigError: no option"
    twice = "[STREAM_FAILED] with exception: Multiple streaming queries are concurrently using file:/c/sources/0."
    assert reason_of(Exception(twice)).startswith(f"{twice}; another run has this checkpoint: end it first")
    full = "[TASK_WRITE_FAILED] while writing rows\n\tat org.A\nCaused by: java.io.IOException: No space left on device"
    assert reason_of(Exception(full)).startswith("[TASK_WRITE_FAILED] while writing rows; the disk is full: make room")
    starved = "[STREAM_FAILED] with exception: Python worker failed to connect back."
    assert reason_of(Exception(starved)).startswith(f"{starved}; Spark waits 10 s for its driver's Python to start")
    unknown = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta."
    told = reason_of(Exception(f"An error occurred while calling o\n: org.apache.spark.SparkException: {unknown}\n"))
    assert told.startswith(f"{unknown}; where that is its name, --packages brings the connector")
    refused = "java.io.IOException: Mkdirs failed to create file:/out"
    assert reason_of(Exception(refused)).startswith(
        f"{refused}; give a place where this user may write, and --partition-by"
    )
    refused = "java.io.IOException: mkdir of file:/out/_spark_metadata failed"
    assert reason_of(Exception(refused)) == f"{refused}; give a place where this user may write"
    ours = 'Traceback (most recent call last):\n  File "x"\nshardwire.errors.NodeError: the store did not answer\n'
    assert reason_of(Exception(ours)) == "the store did not answer"
    assert reason_of(KeyError()) == "KeyError"
    for died in (Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "Connection refused")):
        later = Py4JError("An error occurred while calling o1.stop")
        later.__context__ = died
        for error in (died, later):
            assert reason_of(error).startswith("Spark's Java has ended, as it does where it lacks memory: give it more")


def archive(path: Path, *messages: int, lost: tuple[int, ...] = (), name: str = "0") -> None:
    """A file of an archive with these messages, without segments at these places."""
    path.mkdir(exist_ok=True)
    parts = [segment(payload_of(number, 20_000), CONFIG) for number in messages]
    rows = [part for all_of_one in parts for place, part in enumerate(all_of_one) if place not in lost]
    pq.write_table(pa.table({"payload": pa.array(rows, pa.binary())}), path / f"{name}.parquet")


@pytest.mark.parametrize("job", JOBS)
def test_an_input_is_never_destroyed(spark: SparkSession, job: str, tmp_path: Path, capsys: Any) -> None:
    archive(tmp_path / "in", 1)
    before = {path: path.read_bytes() for path in (tmp_path / "in").iterdir()}
    for output in ("in", "in/below", "."):
        # Also where the advice would be to overwrite it.
        for overwrite in ((), ("--overwrite",)):
            assert in_process(job, str(tmp_path / "in"), str(tmp_path / output), *overwrite) == 2
            assert "overlap: give an output outside the input" in capsys.readouterr().err
    # A job that fails half way leaves what it would have replaced.
    archive(tmp_path / "out", 2)
    (tmp_path / "in" / "1.parquet").write_bytes(b"PAR1 damaged")
    assert in_process(job, str(tmp_path / "in"), str(tmp_path / "out"), "--overwrite") == 2
    [told] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "--skip-corrupt leaves such files out" in told
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["0.parquet"]
    (tmp_path / "in" / "1.parquet").unlink()
    assert {path: path.read_bytes() for path in (tmp_path / "in").iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_a_table_keeps_its_lines_whatever_columns_are_called(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    pq.write_table(pa.table({"payload": [b""], "of\nwhom\x1b[31m": [1]}), tmp_path / "in.parquet")
    arguments = (str(tmp_path / "in.parquet"), str(tmp_path / "out"), "--by", "of\nwhom\x1b[31m", *OPTIONS)
    assert in_process("reconstruct_messages.py", *arguments, "--dry-run") == 0
    [told] = [line for line in capsys.readouterr().out.splitlines() if line.lstrip().startswith("columns ")]
    assert r" of\nwhom\x1b[31m, entire_message_hash, " in told
    assert in_process("reconstruct_messages.py", *arguments, "--payload", "nothing") == 2
    [told] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert told.endswith(r"the DataFrame has payload, of\nwhom\x1b[31m")


def test_a_dry_run_checks_columns_and_leaves_another_run_alone(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    archive(tmp_path / "in", 1)
    (tmp_path / "out.shardwire-staging").mkdir()
    (tmp_path / "out.shardwire-staging" / "of the run at work").touch()
    before = sorted(tmp_path.rglob("*"))
    arguments = [str(tmp_path / "in"), str(tmp_path / "out"), "--dry-run", *OPTIONS]
    for job in ("segment_messages.py", "reconstruct_messages.py", "reconstruct_archive.py"):
        assert in_process(job, *arguments) == 0
    assert in_process("channel_report.py", *arguments[:3]) == 0
    for job in ("segment_messages.py", "reconstruct_messages.py"):
        assert in_process(job, *arguments, "--partition-by", "day") == 2
        assert "error: --partition-by names the column 'day': there are " in capsys.readouterr().err
    assert in_process("reconstruct_stream.py", *arguments, "--checkpoint", str(tmp_path / "checkpoint")) == 0
    assert "entire_message_hash, payload, " in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before


def test_what_an_interrupted_run_would_have_replaced_comes_back(
    spark: SparkSession, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"day": ["mon"], "payload": pa.array([b"first"], pa.binary())}), tmp_path / "in.parquet")
    arguments = [str(tmp_path / "in.parquet"), str(tmp_path / "out"), "--overwrite"]
    by_day = ["--partition-by", "day"]
    assert in_process("segment_messages.py", *arguments, *by_day) == 0
    before = spark.read.parquet(str(tmp_path / "out")).collect()

    def interrupted(files: SinkFiles, source: str, target: Any) -> None:
        renamed(files, source, target)
        if "-replaced" in str(target.toString()):
            raise KeyboardInterrupt

    renamed = SinkFiles._rename
    monkeypatch.setattr(SinkFiles, "_rename", interrupted)
    for options in (by_day, []):
        assert in_process("segment_messages.py", *arguments, *options) == 130
        assert spark.read.parquet(str(tmp_path / "out")).collect() == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "out"]


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_a_killed_run_would_have_replaced_comes_back_with_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_whole: bool
) -> None:
    class Killed(BaseException):
        pass

    def killed(files: SinkFiles, source: str, target: Any) -> None:
        # From here on the process does nothing any more.
        if "-replaced" in source or "/result" in source:
            raise Killed
        renamed(files, source, target)

    place = tmp_path / "out" if is_whole else tmp_path / "out" / "day=mon" / "hour=1"
    place.mkdir(parents=True)
    (place / "part-0.parquet").write_text("first")
    made = tmp_path / "out.shardwire-staging" / "result"
    (made if is_whole else made / "day=mon" / "hour=1").mkdir(parents=True)
    renamed = SinkFiles._rename
    files = SinkFiles(spark, str(tmp_path / "out"), replace=True)
    with monkeypatch.context() as broken, pytest.raises(Killed):
        broken.setattr(SinkFiles, "_rename", killed)
        files.publish("result") if is_whole else files.publish_below("result", 2)
    assert not place.exists()
    if is_whole:
        with pytest.raises(ConfigError, match="where a run that was killed left it: move it to its place"):
            SinkFiles(spark, str(tmp_path / "out"))
    files = SinkFiles(spark, str(tmp_path / "out"), replace=True)
    # As in a dry run: it may be that another one is at work.
    assert not place.exists()
    with files.staged():
        assert (place / "part-0.parquet").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_formats_that_cannot_be_read_again_are_refused_before_anything_is_done(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    archive(tmp_path / "in", 1)
    arguments = [str(tmp_path / name) for name in ("in", "out")]
    stream = ["--checkpoint", str(tmp_path / "checkpoint"), "--once"]
    reasons = dict.fromkeys(("console", "memory", "noop"), "of which nothing is kept")
    reasons |= dict.fromkeys(("csv", "text", "xml"), "which holds no bytes as they are")
    for output_format, reason in reasons.items():
        for job, further in (("reconstruct_stream.py", stream), ("reconstruct_messages.py", [])):
            given = output_format.upper()
            assert in_process(job, *arguments, *further, "--output-format", given, *OPTIONS) == 2
            assert f"--output-format is '{output_format}', {reason}" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_what_is_unfinished_takes_the_place_of_nothing_else(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    archive(tmp_path / "in", 1)
    precious = tmp_path / "notes" / "precious.txt"
    precious.parent.mkdir()
    precious.write_text("mine")
    arguments = [str(tmp_path / name) for name in ("in", "out")]
    for place in (precious.parent, precious):
        flush = ["--checkpoint", str(tmp_path / "checkpoint"), "--once", "--flush", str(place)]
        assert in_process("reconstruct_stream.py", *arguments, *flush, *OPTIONS) == 2
        assert "is not replaced, since it holds 'precious.txt'" in capsys.readouterr().err
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("job", JOBS)
def test_only_what_a_job_wrote_is_overwritten(spark: SparkSession, tmp_path: Path, capsys: Any, job: str) -> None:
    archive(tmp_path / "in", 1)
    precious = tmp_path / "out" / "precious.txt"
    precious.parent.mkdir()
    precious.write_text("mine")
    for output in (precious.parent, precious):
        assert in_process(job, str(tmp_path / "in"), str(output), "--overwrite") == 2
        told = f"error: the output {str(output)!r} is not replaced, since it holds 'precious.txt', which no job wrote"
        assert told in capsys.readouterr().err
    with pytest.raises(ConfigError, match="which no job wrote: give another"):
        reconstruct_archive(spark, str(tmp_path / "in"), str(precious.parent), replace=True)
    assert precious.read_text() == "mine"
    precious.unlink()
    # What it wrote itself, directories of its own too, it does replace.
    for _ in range(2):
        assert in_process(job, str(tmp_path / "in"), str(precious.parent), "--overwrite") in (0, 1)


def test_an_output_that_comes_to_be_meanwhile_is_left_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    files = SinkFiles(spark, str(tmp_path / "out"))
    with files.staged():
        (tmp_path / "out.shardwire-staging" / "result").mkdir(parents=True)
        (tmp_path / "out").mkdir()
        with pytest.raises(ConfigError, match=r"the output .* came to be meanwhile: give another one"):
            files.publish("result")
    assert not list((tmp_path / "out").iterdir())


def test_an_output_that_would_not_be_found_again_is_refused(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    archive(tmp_path / "in", 1)
    arguments = (str(tmp_path / "in"), str(tmp_path / "outs" / "out[1]"))
    stream = ("--checkpoint", str(tmp_path / "checkpoint"), "--once")
    for job, further in (
        ("reconstruct_archive.py", ()),
        ("reconstruct_messages.py", ()),
        ("reconstruct_stream.py", stream),
    ):
        assert in_process(job, *arguments, *further, *OPTIONS) == 2
        assert "out[1]' is a pattern to Spark, which reads it again: give a name" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_stream_writes_every_format_of_files(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    archive(tmp_path / "in", 1, lost=(0, 1, 2, 3))
    arguments = [str(tmp_path / "in"), str(tmp_path / "out"), "--checkpoint", str(tmp_path / "checkpoint")]
    arguments += ["--once", "--output-format", "json", *OPTIONS]
    # Of JSON without a row, or without a value in it, a reader finds no column by itself.
    assert in_process("reconstruct_stream.py", *arguments) == 1
    assert summary(capsys.readouterr().out)["messages unfinished"] == 1
    archive(tmp_path / "in", 1, 2, name="1")
    assert in_process("reconstruct_stream.py", *arguments) == 0
    assert summary(capsys.readouterr().out)["bytes of payloads"] == 40_000


def test_what_a_stream_reads_and_writes_belongs_together(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    def stream(output: str, checkpoint: str, *options: str) -> int:
        arguments = [str(tmp_path / "in"), str(tmp_path / output), "--checkpoint", str(tmp_path / checkpoint)]
        return in_process("reconstruct_stream.py", *arguments, "--once", *options, *OPTIONS)

    archive(tmp_path / "in", 1)
    archive(tmp_path / "other", 2)
    log = tmp_path / "in" / "_delta_log"
    log.mkdir()
    (log / "0.json").touch()
    assert stream("out", "checkpoint") == 2
    assert "is a table of Delta, whose files are not all its rows" in capsys.readouterr().err
    shutil.rmtree(log)
    assert stream("other", "checkpoint") == 2
    assert "exists: give another one, or the checkpoint of the query that made it" in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    assert stream("out", "checkpoint") == 0
    archive(tmp_path / "in", 3, name="1")
    # Spark would pass over what the first one has, or write what nobody can read.
    for output, checkpoint in (("out", "new"), ("new", "checkpoint")):
        assert stream(output, checkpoint) == 2
        assert "are not those of one query: give the two that belong together" in capsys.readouterr().err
        assert not (tmp_path / "new").exists()
    # A driver may be killed when a micro-batch is written, and before the checkpoint says that it ended.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(commits.glob("[0-9]*"), key=lambda path: int(path.name)).name
    for name in (last, f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)
    assert stream("out", "checkpoint") == 0
    assert spark.read.parquet(str(tmp_path / "out")).count() == 2
    # What the state is kept by does not change on the way.
    pq.write_table(pa.table({"payload": pa.array([b""], pa.binary()), "day": ["mon"]}), tmp_path / "in" / "2.parquet")
    (tmp_path / "in" / "0.parquet").unlink()
    (tmp_path / "in" / "1.parquet").unlink()
    assert stream("out", "checkpoint", "--by", "day") == 2
    assert (
        capsys.readouterr()
        .err.rstrip()
        .endswith("or a new checkpoint and a new output, as where an earlier shardwire made it")
    )


def test_the_archive_job_its_summary_and_corrupt_files(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    archive(tmp_path / "in", 1, 2, 3)
    archive(tmp_path / "in", 4, lost=(0,), name="1")
    (tmp_path / "in" / "2.parquet").write_bytes(b"PAR1 damaged")
    arguments = [
        str(tmp_path / "in"),
        str(tmp_path / "out"),
        "--summary",
        str(tmp_path / "told" / "summary.json"),
        *OPTIONS,
    ]
    assert in_process("reconstruct_archive.py", *arguments, "--skip-corrupt", "--dry-run") == 0
    assert "would write" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    try:
        assert in_process("reconstruct_archive.py", *arguments, "--skip-corrupt") == 0
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
    table = summary(capsys.readouterr().out)
    assert (table["messages complete"], table["messages recovered"]) == (3, 1)
    told = json.loads((tmp_path / "told" / "summary.json").read_text())
    assert (told["job"], told["exit_code"], told["values"]) == ("reconstruct_archive", 0, table)
    assert {row["payload"] for row in pq.read_table(tmp_path / "out").to_pylist()} == {
        payload_of(number, 20_000) for number in (1, 2, 3, 4)
    }


def test_days_are_replaced_one_by_one_and_dead_letters_are_told(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    def day(name: str, *payloads: bytes) -> str:
        path = tmp_path / f"in-{name}.parquet"
        pq.write_table(pa.table({"day": [name] * len(payloads), "payload": pa.array(payloads, pa.binary())}), path)
        return str(path)

    output, letters = str(tmp_path / "out"), str(tmp_path / "letters")
    options = ("--by", "day", "--partition-by", "day", "--overwrite", "--partitions", "1", *OPTIONS)
    first = day("mon", *segment(payload_of(1, 20_000), CONFIG), *segment(payload_of(2, 20_000), CONFIG)[:2])
    assert in_process("reconstruct_messages.py", first, output, *options) == 1
    second = day("tue", *segment(payload_of(3, 20_000), CONFIG), b"noise")
    assert in_process("reconstruct_messages.py", second, output, *options, "--dead-letters", letters) == 1
    assert summary(capsys.readouterr().out)["rows: no segment: not protobuf of one"] == 1
    [letter] = spark.read.parquet(letters).collect()
    assert (letter["day"], letter["payload"], letter["reason"]) == ("tue", b"noise", "no segment: not protobuf of one")
    assert letter["file"].endswith("in-tue.parquet")
    # Monday again, with what had been missing: Tuesday stays, and is told of no more.
    again = day("mon", *segment(payload_of(1, 20_000), CONFIG), *segment(payload_of(2, 20_000), CONFIG))
    for path, complete in ((again, 2), (day("wed"), 0)):
        assert in_process("reconstruct_messages.py", path, output, *options) == 0
        table = summary(capsys.readouterr().out)
        assert (table["messages complete"], table["bytes of payloads"]) == (complete, complete * 20_000)
    found = spark.read.parquet(output).where("entire_message_hash is not null").collect()
    assert sorted((row["day"], row["status"], row["payload"]) for row in found) == sorted(
        [
            ("mon", "complete", payload_of(1, 20_000)),
            ("mon", "complete", payload_of(2, 20_000)),
            ("tue", "complete", payload_of(3, 20_000)),
        ]
    )


def test_a_stream_read_once_counts_and_flushes_what_is_unfinished(
    spark: SparkSession, tmp_path: Path, capsys: Any
) -> None:
    archive(tmp_path / "in", 1, 2)
    archive(tmp_path / "in", 3, lost=(0, 1, 2), name="1")
    arguments = [str(tmp_path / name) for name in ("in", "out")]
    arguments += ["--once", "--checkpoint", str(tmp_path / "checkpoint"), "--flush", str(tmp_path / "left"), *OPTIONS]
    assert in_process("reconstruct_stream.py", *arguments) == 1
    table = summary(capsys.readouterr().out)
    assert (table["messages complete"], table["messages unfinished"]) == (2, 1)
    [left] = spark.read.parquet(str(tmp_path / "left")).collect()
    assert (left["status"], left["segments_received"]) == ("incomplete", 3)
    assert left["entire_message_hash"] == keccak256(payload_of(3, 20_000))
    # What comes later still makes it whole, once.
    parts = segment(payload_of(3, 20_000), CONFIG)[:3]
    pq.write_table(pa.table({"payload": pa.array(parts, pa.binary())}), tmp_path / "in" / "2.parquet")
    assert in_process("reconstruct_stream.py", *arguments) == 0
    table = summary(capsys.readouterr().out)
    assert (table["messages complete"], table["messages unfinished"]) == (3, 0)
    assert spark.read.parquet(str(tmp_path / "left")).count() == 0


def test_a_stream_read_once_before_anything_came_is_well(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    archive(tmp_path / "in", 1)
    arguments = [str(tmp_path / name) for name in ("in", "out")]
    arguments += ["--once", "--checkpoint", str(tmp_path / "checkpoint"), "--flush", str(tmp_path / "left"), *OPTIONS]
    for options, messages in ((("--option", "pathGlobFilter=none"), 0), ((), 1)):
        assert in_process("reconstruct_stream.py", *arguments, *options) == 0
        table = summary(capsys.readouterr().out)
        assert (table["micro-batches"], table["messages complete"], table["messages unfinished"]) == (
            messages,
            messages,
            0,
        )


def test_secrets_of_a_source_come_from_files_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("sesame\n")
    monkeypatch.setenv("KAFKA_LOGIN", "open")
    assert secret_of(f"@file:{tmp_path / 'secret'}", "a") == "sesame"
    assert secret_of("@env:KAFKA_LOGIN", "a") == "open"
    assert secret_of("plain", "a") == "plain"
    with pytest.raises(ConfigError, match="'NO_SUCH_LOGIN', which is not set"):
        secret_of("@env:NO_SUCH_LOGIN", "a")
    with pytest.raises(ConfigError, match="No such file"):
        secret_of("@file:/no/such/file", "a")


def test_wrong_wires_are_told_by_name(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    archive(tmp_path / "in", 1)
    arguments = (str(tmp_path / "in"), str(tmp_path / "out"), "--wire-format", "lip243", *OPTIONS)
    assert in_process("reconstruct_messages.py", *arguments) == 1
    told = capsys.readouterr().out
    assert "no segment of this wire, but one of raw: is the wire format right?" in told


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return False


def test_progress_off_a_terminal_says_each_stage_once(spark: SparkSession) -> None:
    screen = Screen()
    progress = Progress(spark, screen)
    for _ in range(3):
        progress._say([(1, 0, 4), (2, 0, 8)])
    assert screen.getvalue() == "stage 1: 4 tasks\nstage 2: 8 tasks\n"


def test_progress_leaves_it_to_the_job_to_tell_that_java_died(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = Progress(spark, Screen())

    def died(_: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(type(progress._tracker), "getActiveStageIds", died)
    progress._watch()


def test_without_its_extra_the_package_says_what_to_install() -> None:
    code = "import sys; sys.modules['pyspark'] = None\nimport shardwire.spark"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "shardwire.spark needs the library pyspark: pip install 'shardwire[spark]'" in answer.stderr


def test_a_picture_is_refused_before_the_work(
    spark: SparkSession, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    arguments = ("nothing", str(tmp_path / "out"), "--picture", str(tmp_path / "report.png"))
    assert in_process("channel_report.py", *arguments) == 2
    assert "a picture needs the library 'matplotlib': pip install matplotlib" in capsys.readouterr().err


def test_what_interrupts_a_call_to_spark_is_not_logged_with_frames(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Closed:
        def getsockname(self) -> tuple[str, int]:
            return ("127.0.0.1", 1)

        getpeername = getsockname

        def sendall(self, _: bytes) -> None:
            raise BrokenPipeError

    class Interrupted:
        socket, stream, is_connected = Closed(), io.BytesIO(), True
        shutdown_socket = ClientServerConnection.shutdown_socket

        def send_command(self, *_: object) -> str:
            raise KeyboardInterrupt

    client = GatewayClient()
    monkeypatch.setattr(client, "_get_connection", Interrupted)
    both = ["KeyboardInterrupt while sending command.", "Exception occurred while shutting down connection"]
    for context, told in ((nullcontext(), both), (failures_told(), []), (nullcontext(), both)):
        caplog.clear()
        with context, suppress(KeyboardInterrupt):
            client.send_command("")
        assert [record.message for record in caplog.records] == told


def test_what_spark_raises_after_an_interruption_is_an_interruption(tmp_path: Path, monkeypatch: Any) -> None:
    def interrupted(*_: object) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            # As what leaves a block meets a connection that the interruption closed.
            raise Py4JError("Answer from Java side is empty")

    with pytest.raises(KeyboardInterrupt), failures_told():
        interrupted()
    spark_check = pytest.importorskip("shardwire.cli.demo.spark_check", reason="the demo needs rich")
    monkeypatch.setattr(spark_check, "_reconstruct", interrupted)
    with pytest.raises(KeyboardInterrupt):
        spark_check.reconstruct_on_spark(tmp_path, tmp_path, CONFIG, tmp_path / "spark.log")


def end_once(said: str, number: signal.Signals, job: str, *arguments: str) -> tuple[int, str]:
    """Runs a job and ends it by a signal once it has `said` that; its exit code, and all that it told."""
    process = subprocess.Popen(
        command(job, *arguments, submitted=False),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    told = ""
    try:
        while said not in told and process.poll() is None:
            told += process.stdout.readline()
        # A terminal interrupts all that runs in it. What ended by itself has nothing left to be ended.
        if process.poll() is None:
            os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        told += process.communicate()[0]
    finally:
        process.kill()
    return process.returncode, told


@SLOW
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_interrupts_a_job_is_one_line_and_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    payloads = pa.array([b"payload" * 40], pa.binary()).take(pa.array([0] * 400_000))
    pq.write_table(pa.table({"payload": payloads}), tmp_path / "in.parquet")
    arguments = [str(tmp_path / name) for name in ("in.parquet", "out")]
    code, told = end_once(" tasks\n", number, "segment_messages.py", *arguments)
    assert code == 130, told
    assert told.splitlines()[-1] == "interrupted"
    assert "Traceback" not in told
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


def started_by(group: int) -> list[str]:
    """The commands of a group's processes that run."""
    table = subprocess.run(["ps", "-ww", "-e", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True)
    rows = [row.split(maxsplit=2) for row in table.stdout.splitlines()]
    return [told for of, state, told in rows if int(of) == group and not state.startswith("Z")]


LOCAL_CLUSTER = "from shardwire.spark import local_cluster_session as begin; begin()"


# Where nobody handles the signal Python ends by it.
@pytest.mark.parametrize(("is_job", "code"), [(True, 130), (False, -signal.SIGINT)])
def test_ctrl_c_while_java_starts_leaves_no_java(tmp_path: Path, is_job: bool, code: int) -> None:
    job = command("segment_messages.py", "none", "out", submitted=False)
    process = subprocess.Popen(
        job if is_job else [job[0], "-c", LOCAL_CLUSTER],
        env=environment(),
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # Before it looks for its main class another Java finds out how it is started.
    while not any("SparkSubmit" in told and "launcher.Main" not in told for told in started_by(process.pid)):
        assert process.poll() is None
        time.sleep(0.05)
    # Before it has its libraries Java ends with those of a local cluster, which go with the driver.
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == code
    deadline = time.monotonic() + 20
    while started_by(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = started_by(process.pid)
    if left:
        os.killpg(process.pid, signal.SIGKILL)
    assert left == []


def test_a_stream_that_is_told_to_end_while_it_begins_does_so_after_its_first_micro_batch() -> None:
    class Beginning:
        isActive, lastProgress, recentProgress = True, None, ()

        def __init__(self) -> None:
            self.to_come = [("Initializing sources", False), ("Processing new data", True), ("Waiting for data", False)]

        @property
        def status(self) -> dict[str, object]:
            message, is_active = self.to_come.pop(0)
            return {"message": message, "isTriggerActive": is_active}

        def awaitTermination(self, *_: float) -> None:
            pass

        def stop(self) -> None:
            self.isActive = False

    stop, query = threading.Event(), Beginning()
    stop.set()
    follow(query, stop)  # type: ignore[arg-type]
    assert query.to_come == []


@SLOW
def test_ctrl_c_ends_a_stream_between_two_micro_batches(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"payload": segment(payload_of(1, 20_000), CONFIG)}), tmp_path / "in" / "0.parquet")
    arguments = [str(tmp_path / name) for name in ("in", "out")]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint"), "--partitions", "2", *OPTIONS]
    job = "reconstruct_stream.py", *arguments
    code, told = run_until_served(lambda: end_once("micro-batch 0", signal.SIGINT, *job))
    assert code == 0, told
    # Spark's bars would write over the lines of the job.
    assert "[Stage" not in told
    assert summary(told)["messages complete"] == 1
