"""The jobs, as a user starts them: plain `spark-submit` against Parquet in and out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.rows import payload_of

from shardwire import SegmentationConfig, _native
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.segmentation import segment
from shardwire.spark.java import ensure_java

ROOT = Path(__file__).parents[2]
CONFIG = SegmentationConfig(segment_size_bytes=6_400, enable_reed_solomon=True, parity_rate=0.5)
OPTIONS = ("--segment-size-bytes", "6400", "--parity-rate", "0.5")


def submit(job: str, *arguments: str, submitted: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs a job by `spark-submit`, or by Python where Spark is not reached anyway."""
    ensure_java()
    script = str(ROOT / "spark_jobs" / job)
    python = Path(sys.executable)
    command = [str(python.parent / "spark-submit"), "--master", "local[2]"] if submitted else [str(python)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"PATH": f"{python.parent}:{environment['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        [*command, script, *arguments], capture_output=True, text=True, env=environment, timeout=280, check=False
    )


def summary(output: str) -> dict[str, int]:
    """The table at the end of a job."""
    lines = [line.rsplit(None, 1) for line in output.splitlines() if line.startswith("  ")]
    return {name.strip(): int(value.replace(",", "")) for name, value in lines}


def test_segment_and_reconstruct_by_spark_submit(tmp_path: Path) -> None:
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

    found = submit(
        "reconstruct_messages.py",
        str(tmp_path / "segments"),
        str(tmp_path / "messages"),
        *("--payload", "segment", "--by", "id"),
        *OPTIONS,
    )
    assert found.returncode == 0, found.stderr
    table = summary(found.stdout)
    assert (table["messages complete"], table["messages invalid"]) == (40, 0)
    assert table["bytes of payloads"] == sum(map(len, payloads))
    messages = {row["id"]: row["payload"] for row in pq.read_table(tmp_path / "messages").to_pylist()}
    assert messages == dict(enumerate(payloads))


def test_an_encrypted_archive_with_losses(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("job", ["segment_messages.py", "reconstruct_messages.py"])
def test_help_and_wrong_arguments(job: str) -> None:
    helped = submit(job, "--help", submitted=False)
    assert helped.returncode == 0
    assert "Parquet files or directory" in helped.stdout
    refused = submit(job, "in", "out", "--segment-size-bytes", "0", submitted=False)
    assert refused.returncode == 2
    assert refused.stderr.strip().startswith("error: SegmentationConfig.segment_size_bytes is 0")
    assert "Traceback" not in refused.stderr


def test_a_missing_input_is_one_line(tmp_path: Path) -> None:
    missing = submit("reconstruct_messages.py", str(tmp_path / "nothing"), str(tmp_path / "out"))
    assert missing.returncode == 2
    assert "error: [PATH_NOT_FOUND]" in missing.stdout
    assert "Traceback" not in missing.stdout + missing.stderr
