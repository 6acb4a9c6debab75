"""The table of versions in the guide: what it says of the PySpark that is installed holds, row by row."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from spark.queries import run_to_end
from spark.rows import CONFIG, payload_of
from spark.submit import environment
from store_server import StoreServer, serving

from shardwire import ConfigError, _native, keccak256
from shardwire.encryption import AesGcmEncryption, ChaCha20Poly1305Encryption
from shardwire.node import MessageEnvelope
from shardwire.segmentation import segment
from shardwire.spark import (
    channel_report,
    decrypt,
    pandas_functions,
    reconstruct,
    reconstruct_archive,
    reconstruct_stream,
    register,
    segment_messages,
    versions,
    with_keccak256,
)
from shardwire.spark import functions as sw
from shardwire.spark.session import configure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide" / "spark_clusters.md"
MINOR = ".".join(map(str, versions.VERSION))
PAYLOAD = payload_of(77, 5_000)
PARTS = segment(PAYLOAD, CONFIG)
TIME = 1_700_000_000_000_000_001


def table() -> dict[str, dict[str, str]]:
    """The guide's table: by feature and version."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    start = next(n for n, line in enumerate(lines) if line.startswith("| what | 3.5 |"))
    rows = []
    for line in lines[start:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if rows and len(cells) != len(rows[0]):
            break
        rows.append(cells)
    header, _, *body = rows
    return {cells[0]: dict(zip(header[1:], cells[1:], strict=True)) for cells in body}


def functions_and_sql(spark: SparkSession, _: Path) -> None:
    register(spark)
    rows = [(part, TIME if place % 2 else None) for place, part in enumerate(PARTS)]
    df = spark.createDataFrame([*rows, (None, None)], "part binary, time bigint")
    topic = "/toychat/2/huilong/proto"
    for module in (sw, pandas_functions):
        found = df.selectExpr("part", "time", f"'{topic}' topic").select(
            "part",
            "time",
            module.keccak256("part").alias("keccak256"),
            module.decode_segment("part").alias("segment"),
            module.message_hash("topic", "part", "topic", None, "time").alias("hash"),
            module.shard_of("topic").alias("shard"),
        )
        for row in found.collect():
            if row["part"] is None:
                assert row["keccak256"] is row["hash"] is None
                continue
            assert bytes(row["keccak256"]) == keccak256(bytes(row["part"]))
            assert bytes(row["segment"]["entire_message_hash"]) == keccak256(PAYLOAD)
            # A null time counts as 0, and the others keep their last digit beside it.
            wanted = _native.message_hash(
                pubsub_topic=topic, payload=bytes(row["part"]), content_topic=topic, timestamp_ns=row["time"] or 0
            )
            assert (bytes(row["hash"]), row["shard"]) == (wanted, 3)
    df.createOrReplaceTempView("parts")
    assert spark.sql("select * from parts where decode_segment(part).is_parity").count() == 4


def wrapped(spark: SparkSession, directory: Path, cipher: Any = ChaCha20Poly1305Encryption) -> DataFrame:
    """Segments in SDS messages, in ciphertext, in Waku messages; the key lies in `directory`."""
    encryption = cipher([bytes(range(32))])
    encryption.write_key_file(directory / "channel.key")
    rows = []
    for place, part in enumerate(PARTS[2:]):
        message = _native.SdsMessage(
            sender_id="alice", message_id=f"{'a' * 32}.{place}", channel_id="room", lamport_timestamp=1, content=part
        )
        waku = _native.WakuMessage(
            payload=encryption.bind("room").encrypt(message.encode()),
            content_topic="/app/1/a/proto",
            timestamp_ns=TIME + place,
        )
        rows.append((waku.encode(), "relay"))
    return spark.createDataFrame(rows, "payload binary, via string")


def reconstruct_and_unwrap(spark: SparkSession, directory: Path) -> None:
    step = decrypt(key_file=directory / "channel.key", channel_id="room")
    by = ["via", "content_topic"]
    [message] = reconstruct(wrapped(spark, directory), CONFIG, by=by, unwrap=["waku", step, "sds"]).collect()
    assert (message["status"], bytes(message["payload"]), message["via"]) == ("recovered", PAYLOAD, "relay")
    # The rows have no such column: it is the topic that the Waku messages name.
    assert message["content_topic"] == "/app/1/a/proto"
    assert (message["first_timestamp"], message["send_id"]) == (TIME, "a" * 32)
    (directory / "aes").mkdir()
    step = decrypt(key_file=directory / "aes" / "channel.key", channel_id="room", cipher="aes-256-gcm")
    aes = wrapped(spark, directory / "aes", AesGcmEncryption)
    for module in (sw, pandas_functions):
        inner = module.decode_waku_message("payload").getField("payload")
        columns = aes.select(module.decrypt(inner, step).alias("told"), module.decrypt("payload", step).alias("not"))
        for row in columns.collect():
            assert (row["told"]["error"], row["not"]["content"]) == (None, None)
            assert _native.SdsMessage.decode(bytes(row["told"]["content"])).sender_id == "alice"
            assert row["not"]["error"].startswith("cannot be decrypted: ")
    [message] = reconstruct(aes, CONFIG, unwrap=["waku", step, "sds"]).collect()
    assert message["status"] == "recovered"
    df = spark.createDataFrame([(PAYLOAD,)], "payload binary")
    back = reconstruct(segment_messages(df, CONFIG), CONFIG, payload="segment", key=None).collect()
    assert [bytes(row["payload"]) for row in back] == [PAYLOAD]
    assert [bytes(row["keccak256"]) for row in with_keccak256(df).collect()] == [keccak256(PAYLOAD)]


def archive(spark: SparkSession, directory: Path) -> None:
    others = [segment(payload_of(n, 5_000), CONFIG) for n in range(6)]
    rows = [part for parts in others for part in parts]
    df = spark.createDataFrame([(n, part) for n, part in enumerate(rows)], "timestamp bigint, payload binary").coalesce(
        1
    )
    report = reconstruct_archive(spark, df, str(directory / "out"), CONFIG)
    assert report.messages == {"complete": 6}
    assert spark.read.parquet(str(directory / "out")).where("status = 'complete'").count() == 6


def report(spark: SparkSession, directory: Path) -> None:
    step = decrypt(key_file=directory / "channel.key", channel_id="room")
    found = channel_report(wrapped(spark, directory), unwrap=["waku", step])
    assert found.messages.count() == len(PARTS) - 2


def stream(spark: SparkSession, directory: Path) -> None:
    # Two micro-batches, the second after a restart from the checkpoint; half of the times are null.
    (directory / "in").mkdir()
    columns = "timestamp bigint, payload binary, n bigint"
    halves = PARTS[3:7], PARTS[7:11]
    messages = spark.readStream.schema(columns).parquet(str(directory / "in"))
    for half in halves:
        rows = [(TIME + n if n % 2 else None, part, 5) for n, part in enumerate(half)]
        spark.createDataFrame(rows, columns).coalesce(1).write.mode("append").parquet(str(directory / "in"))
        run_to_end(reconstruct_stream(messages, CONFIG, by=["n"]), directory)
    [message] = spark.read.parquet(str(directory / "out")).collect()
    assert (message["status"], bytes(message["payload"]), message["n"]) == ("recovered", PAYLOAD, 5)
    assert (message["first_timestamp"], message["last_timestamp"]) == (TIME + 1, TIME + 3)
    assert message["data_segments_recovered"] == 3


def store(spark: SparkSession, _: Path) -> None:
    versions.require_data_sources()
    register(spark)
    held = [(MessageEnvelope("/rc/1/a/proto", part), 1_000 + n) for n, part in enumerate(PARTS)]
    with serving(StoreServer("logos-delivery", held)) as server:
        df = spark.read.format("waku-store").option("url", server.url).load()
        [message] = reconstruct(df.where("timestamp >= 1002"), CONFIG).collect()
        assert (message["status"], message["segments_received"]) == ("recovered", len(PARTS) - 2)


def large_rows(spark: SparkSession, _: Path) -> None:
    """With the settings of `configure` no batch is larger than a few of these rows, whatever cuts it."""
    configure(spark)
    df = spark.range(600).selectExpr("id", "unhex(repeat('ab', 300000)) payload").coalesce(1)

    def widest(batches: Any) -> Any:
        for batch in batches:
            yield batch.from_pydict({"bytes": [batch.nbytes]})

    assert max(row["bytes"] for row in df.mapInArrow(widest, "bytes bigint").collect()) < 100 << 20


EXERCISES: dict[str, Callable[[SparkSession, Path], None]] = {
    "column functions, pandas functions, SQL": functions_and_sql,
    "`reconstruct` with every `unwrap`, `segment_messages`, `with_keccak256`": reconstruct_and_unwrap,
    "`reconstruct_archive`": archive,
    "`channel_report`": report,
    "`reconstruct_stream`": stream,
    "source `waku-store`": store,
    "a partition of many GB of large rows": large_rows,
}


def test_the_table_names_what_is_exercised_and_tested() -> None:
    found = table()
    assert set(found) == set(EXERCISES)
    assert {tuple(row) for row in found.values()} == {versions.TESTED}
    # Between two versions that are tested what works is the same on both sides.
    assert MINOR in versions.TESTED, f"PySpark {pyspark.__version__} is installed"


@pytest.mark.parametrize("feature", EXERCISES)
def test_what_the_table_says_holds(spark: SparkSession, feature: str, tmp_path: Path) -> None:
    said = table()[feature][MINOR]
    if said.startswith("yes"):
        EXERCISES[feature](spark, tmp_path)
        return
    assert said.startswith("no")
    with pytest.raises(ConfigError, match=f"PySpark {re.escape(pyspark.__version__)} has no .* use PySpark"):
        EXERCISES[feature](spark, tmp_path)


INTERRUPTED = """
import os, signal, sys, threading
from shardwire.spark import job_session
from shardwire.spark.job import run_job

def job():
    with job_session("interrupted", "local[1]") as spark:
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
        spark._jvm.java.lang.Thread.sleep(60_000)

sys.exit(run_job(job))
"""


def test_ctrl_c_within_a_call_to_spark_interrupts_a_job() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, "interrupted")


def test_versions_as_vendors_write_them() -> None:
    assert versions.version_of("3.5.2-amzn-1") == (3, 5)
    assert versions.version_of("4.1.0.dev0") == (4, 1)
    assert versions.version_of("preview") == (0, 0)


def test_rounded_times_are_refused_and_not_hashed() -> None:
    import pandas as pd

    from shardwire.spark.udfs import _array

    assert _array(pd.Series([5.0, None]), "bigint", "timestamp_ns").to_pylist() == [5, None]
    with pytest.raises(ConfigError, match="coalesce"):
        _array(pd.Series([float(TIME), None]), "bigint", "timestamp_ns")
