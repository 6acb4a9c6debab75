"""The demo from end to end, on a small file: live channels in real time, then Spark on real executors."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwire import keccak256


@pytest.mark.spark
@pytest.mark.slow
def test_demo_sends_archives_and_reconstructs(tmp_path: Path) -> None:
    payload = random.Random(7).randbytes(300_001)
    (tmp_path / "file.bin").write_bytes(payload)
    answer = subprocess.run(
        [sys.executable, "-m", "shardwire.cli", "demo", "file.bin", "--output", "output"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    said = answer.stdout + answer.stderr
    assert answer.returncode == 0, said
    assert keccak256(payload).hex() in answer.stdout
    for expected in ("event sent", "event delivered", "delivered to bob, carol", "recovered", "Everything matched"):
        assert expected in answer.stdout
    assert "needed no parity" not in answer.stdout
    assert "Traceback" not in said
    assert "WARN" not in said
    assert (tmp_path / "output" / "demo.png").read_bytes().startswith(b"\x89PNG")
    # The archive is ciphertext, and no key stays behind.
    table = pq.read_table(tmp_path / "output" / "archive.parquet")
    assert table.schema.field("timestamp").type == pa.int64()
    assert table.column_names == ["content_topic", "timestamp", "payload", "meta", "message_hash"]
    assert payload[:64] not in b"".join(table["payload"].to_pylist())
    assert "Exception" not in (tmp_path / "output" / "spark.log").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.bin", "output"]
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == [
        "archive.parquet",
        "demo.png",
        "spark.log",
    ]
