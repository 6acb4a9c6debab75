"""The jobs on a standalone cluster of real processes, by `spark-submit`, with the packed environment of the guide.

Not part of `make test`: `make cluster-check` packs the wheel and runs this file. SHARDWIRE_CLUSTER_ENVIRONMENT names a
directory with the `environment` and its `environment.tar.gz`.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from spark.rows import payload_of, sent
from spark.submit import ROOT, summary

from shardwire import SegmentationConfig
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.segmentation import segment
from shardwire.spark.java import ensure_java

CONFIG = SegmentationConfig(segment_size_bytes=6_400, enable_reed_solomon=True, parity_rate=0.5)
OPTIONS = ("--segment-size-bytes", "6400", "--parity-rate", "0.5")
UNWRAP = ("--unwrap", "decrypt", "sds", "--key-file", "channel.key", "--channel-id", "room")
WAIT_S = 240
# Each executor unpacks the environment, on a slow machine for half a minute.
JOB_S = 600

pytestmark = pytest.mark.timeout(1_500)


class Cluster:
    """A master and two workers; what runs on a worker has nothing but what Spark hands it."""

    def __init__(self, directory: Path, environment: Path) -> None:
        self.directory = directory
        self.environment = environment
        self.spark_class = str(Path(sys.executable).parent / "spark-class")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"spark://127.0.0.1:{free.getsockname()[1]}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        port = self.url.rpartition(":")[2]
        self._run("master", "master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        for name in ("one", "two"):
            self.start_worker(name)

    def start_worker(self, name: str) -> None:
        work = (
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--work-dir",
            str(self.directory / name / "work"),
        )
        self._run(name, "worker.Worker", *work, self.url)
        self._await(name, "Successfully registered with master")

    def kill_worker(self, name: str) -> None:
        """The worker, its executors, and everything that they had shuffled."""
        worker = self.processes.pop(name)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        shutil.rmtree(self.directory / name, ignore_errors=True)

    def stop(self) -> None:
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def submit(self, job: str, *arguments: str, key: Path | None = None) -> subprocess.Popen[str]:
        """A job as the guide says, from the directory of the environment; its output goes to one pipe."""
        python = self.environment / "environment" / "bin" / "python"
        command = [
            str(Path(sys.executable).parent / "spark-submit"),
            *("--master", self.url, "--executor-memory", "512m"),
            *("--archives", f"{self.environment / 'environment.tar.gz'}#environment"),
            *("--conf", "spark.pyspark.python=./environment/bin/python"),
            *("--conf", f"spark.pyspark.driver.python={python}"),
            *("--conf", "spark.sql.shuffle.partitions=4", "--conf", "spark.driver.host=127.0.0.1"),
            *([] if key is None else ["--files", str(key)]),
            str(ROOT / "spark_jobs" / job),
            *arguments,
        ]
        return subprocess.Popen(
            command,
            env=self._clean(),
            cwd=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, job: str, *arguments: str, key: Path | None = None) -> tuple[int, str]:
        """Runs a job to its end: its exit code, and what it said."""
        process = self.submit(job, *arguments, key=key)
        said, _ = process.communicate(timeout=JOB_S)
        return process.returncode, said

    def _run(self, name: str, kind: str, *arguments: str) -> None:
        (self.directory / name).mkdir(parents=True, exist_ok=True)
        with (self.directory / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [self.spark_class, f"org.apache.spark.deploy.{kind}", *arguments],
                env=self._clean() | {"SPARK_LOCAL_DIRS": str(self.directory / name / "local")},
                cwd=self.directory,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await(self, name: str, text: str) -> None:
        until = time.monotonic() + WAIT_S
        log = self.directory / f"{name}.log"
        while text not in log.read_text():
            assert time.monotonic() < until, log.read_text()
            assert self.processes[name].poll() is None, log.read_text()
            time.sleep(0.1)

    @staticmethod
    def _clean() -> dict[str, str]:
        """Neither this project's sources nor its packages: executors have what the archive brings."""
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "JAVA_HOME", "LANG")}
        return kept | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(Path(pyspark.__file__).parent)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    ensure_java()
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), Path(os.environ["SHARDWIRE_CLUSTER_ENVIRONMENT"]))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def write_archive(path: Path, messages: int, key_file: Path, files: int = 8) -> list[bytes]:
    """Messages through an encrypted channel, one segment of each lost, in any order; returns the payloads."""
    chance = random.Random(messages)
    encryption = ChaCha20Poly1305Encryption([bytes(range(32))])
    if not key_file.exists():
        encryption.write_key_file(key_file)
    bound = encryption.bind("room")
    payloads = [payload_of(messages * 1_000 + number, 60_000) for number in range(messages)]
    rows = []
    for number, payload in enumerate(payloads):
        parts = segment(payload, CONFIG)
        lost = chance.randrange(len(parts))
        rows += [bound.encrypt(sent(f"{number:032x}", n, part)) for n, part in enumerate(parts) if n != lost]
    chance.shuffle(rows)
    path.mkdir()
    for number in range(files):
        pq.write_table(pa.table({"payload": pa.array(rows[number::files], pa.binary())}), path / f"{number}.parquet")
    return payloads


def payloads_in(path: Path) -> list[bytes]:
    return sorted(row["payload"] for row in pq.read_table(path, columns=["payload", "status"]).to_pylist())


def test_segments_streams_and_reports(cluster: Cluster, tmp_path: Path) -> None:
    key = tmp_path / "channel.key"
    payloads = write_archive(tmp_path / "in", 60, key)
    output, checkpoint = str(tmp_path / "streamed"), str(tmp_path / "checkpoint")
    arguments = (str(tmp_path / "in"), output, "--once", "--checkpoint", checkpoint, *UNWRAP, *OPTIONS)
    code, said = cluster.run("reconstruct_stream.py", *arguments, key=key)
    assert code == 0, said
    assert payloads_in(Path(output)) == sorted(payloads)
    pq.write_table(pa.table({"payload": payloads}), tmp_path / "payloads.parquet")
    code, said = cluster.run("segment_messages.py", str(tmp_path / "payloads.parquet"), str(tmp_path / "out"), *OPTIONS)
    assert (code, summary(said)["different payloads"]) == (0, 60), said
    picture = tmp_path / "report.png"
    arguments = (str(tmp_path / "in"), str(tmp_path / "report"), "--unwrap", "decrypt", *UNWRAP[3:])
    code, said = cluster.run("channel_report.py", *arguments, "--picture", str(picture), key=key)
    assert code == 0, said
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_worker_and_its_shuffle_files_are_gone_in_the_middle(cluster: Cluster, tmp_path: Path) -> None:
    key = tmp_path / "channel.key"
    payloads = write_archive(tmp_path / "in", 400, key, files=24)
    arguments = (str(tmp_path / "in"), str(tmp_path / "out"), *UNWRAP, *OPTIONS)
    process = cluster.submit("reconstruct_messages.py", *arguments, key=key)
    try:
        local = cluster.directory / "two" / "local"
        until = time.monotonic() + WAIT_S
        while not any(re.match(r"shuffle_\d+_\d+_0\.data", path.name) for path in local.rglob("shuffle_*.data")):
            assert process.poll() is None, process.stdout and process.stdout.read()
            assert time.monotonic() < until
            time.sleep(0.02)
        cluster.kill_worker("two")
        cluster.start_worker("two")
        said, _ = process.communicate(timeout=JOB_S)
    finally:
        process.kill()
    assert process.returncode == 0, said
    table = summary(said)
    assert table["messages complete"] + table["messages recovered"] == 400
    assert payloads_in(tmp_path / "out") == sorted(payloads)
    assert not list(tmp_path.glob("*staging*"))
