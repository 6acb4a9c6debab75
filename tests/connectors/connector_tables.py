"""Kafka, Delta and Iceberg with the packages that the guide names, against a real broker and real tables.

Not part of `make test`: `make interop` runs this file on PySpark 4.0, for which all three have packages; Spark itself
fetches them, and the broker, from Maven Central.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from spark.rows import CONFIG, payload_of, without
from spark.submit import ROOT, summary

from shardwire import ConfigError, _native
from shardwire.segmentation import segment
from shardwire.spark import reconstruct, reconstruct_archive, reconstruct_stream
from shardwire.spark.java import ensure_java
from shardwire.spark.session import configure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)

PAGE = ROOT / "docs" / "guide" / "spark_clusters.md"
KAFKA_BROKER = "org.apache.kafka:kafka_2.13:3.9.1"
WAIT_S = 120
OPTIONS = ("--segment-size-bytes", "640", "--parity-rate", "0.5")
PAYLOADS = [payload_of(4_000 + number, 5_000) for number in range(60)]


def packages() -> dict[str, str]:
    """The coordinates in the guide, by connector."""
    found = re.findall(r"^\| (Kafka|Delta|Iceberg) \| `([\w.:-]+)` \|", PAGE.read_text(), re.MULTILINE)
    return dict(found)


def ivy(path: Path) -> str:
    """Where Spark keeps what it has fetched."""
    return os.environ.get("SHARDWIRE_IVY", str(path))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    ensure_java()
    directory = tmp_path_factory.mktemp("tables")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.jars.packages": ",".join([*packages().values(), KAFKA_BROKER]),
        "spark.jars.ivy": ivy(directory / "ivy"),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(directory / "lake"),
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = configure(builder.getOrCreate())
    yield session
    session.stop()


def rows(seed: int, payloads: list[bytes] = PAYLOADS) -> list[bytes]:
    """Segments of all messages in random order, one of each lost, a third of them again."""
    chance = random.Random(seed)
    parts = [part for payload in payloads for part in without(segment(payload, CONFIG), [chance.randrange(12)])]
    chance.shuffle(parts)
    return parts + chance.sample(parts, len(parts) // 3)


def frame(spark: SparkSession, payloads: list[bytes]) -> DataFrame:
    return spark.createDataFrame([(payload,) for payload in payloads], "payload binary").repartition(4)


def found(df: DataFrame) -> Counter[bytes]:
    return Counter(bytes(row["payload"]) for row in df.where("payload is not null").collect())


def ended(messages: DataFrame, checkpoint: Path, write: Any) -> None:
    writer = messages.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    write(writer).awaitTermination()


@pytest.fixture(scope="module")
def broker(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker in KRaft mode; its classes are among what Spark fetched."""
    directory = tmp_path_factory.mktemp("kafka")
    jars = [path.removeprefix("file:") for path in spark.conf.get("spark.jars").split(",")]
    # Spark's own libraries complete what the session did not have to fetch.
    classpath = os.pathsep.join([*jars, str(Path(pyspark.__file__).parent / "jars" / "*")])
    ports = []
    with socket.socket() as one, socket.socket() as two:
        for free in (one, two):
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    address = f"127.0.0.1:{ports[0]}"
    properties = directory / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"controller.quorum.voters=1@127.0.0.1:{ports[1]}\nlisteners=PLAINTEXT://{address},CONTROLLER://127.0.0.1:{ports[1]}\n"
        f"advertised.listeners=PLAINTEXT://{address}\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"log.dirs={directory / 'log'}\noffsets.topic.replication.factor=1\nnum.partitions=3\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n"
    )
    java = [str(ensure_java()), "-cp", classpath]
    formatted = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(properties)]
    subprocess.run(formatted, check=True, capture_output=True)
    log = directory / "kafka.log"
    with log.open("wb") as told:
        process = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=told, stderr=told, cwd=directory)
    try:
        until = time.monotonic() + WAIT_S
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", ports[0]), timeout=1):
                break
            assert process.poll() is None, log.read_text()[-3_000:]
            assert time.monotonic() < until
            time.sleep(0.2)
        yield address
    finally:
        process.kill()
        process.wait()


def test_kafka_with_a_driver_killed_in_a_micro_batch(spark: SparkSession, broker: str, tmp_path: Path) -> None:
    kafka = {"kafka.bootstrap.servers": broker}
    sent = frame(spark, rows(1)).selectExpr("payload as value")
    sent.write.format("kafka").options(**kafka, topic="segments").save()
    arguments = [
        *("kafka", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "checkpoint"), "--by", "topic", "--once"),
        *("--option", f"kafka.bootstrap.servers={broker}", "--option", "subscribe=segments"),
        *("--option", "startingOffsets=earliest", "--option", "maxOffsetsPerTrigger=150"),
    ]
    command = [
        *(str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"),
        *("--packages", packages()["Kafka"], "--conf", f"spark.jars.ivy={spark.conf.get('spark.jars.ivy')}"),
        *("--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.driver.host=127.0.0.1"),
        *(str(ROOT / "spark_jobs" / "reconstruct_stream.py"), *arguments, *OPTIONS),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"SPARK_HOME": str(Path(pyspark.__file__).parent), "PYSPARK_PYTHON": sys.executable}
    environment |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (tmp_path / "job.log").open("wb") as told:
        job = subprocess.Popen(command, env=environment, stdout=told, stderr=told, start_new_session=True)
    until = time.monotonic() + WAIT_S
    # The third micro-batch has begun and is not committed.
    while not (tmp_path / "checkpoint" / "offsets" / "2").exists():
        assert job.poll() is None, (tmp_path / "job.log").read_text()
        assert time.monotonic() < until
        time.sleep(0.01)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    assert not (tmp_path / "checkpoint" / "commits" / "2").exists()
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    assert summary(again.stdout)["messages unfinished"] == 0
    assert found(spark.read.parquet(str(tmp_path / "out"))) == Counter(PAYLOADS)


def test_delta_as_source_sink_stream_and_merge(spark: SparkSession, tmp_path: Path) -> None:
    archive, sink = str(tmp_path / "archive"), str(tmp_path / "messages")
    frame(spark, rows(2)).write.format("delta").save(archive)
    # A row that is overwritten stays in a file that the table no longer has.
    frame(spark, [*rows(2), b"noise"]).write.format("delta").mode("overwrite").save(archive)
    with pytest.raises(ConfigError, match="is a table of Delta"):
        reconstruct_archive(spark, archive, str(tmp_path / "out"), CONFIG)
    table = spark.read.format("delta").load(archive)
    report = reconstruct_archive(spark, table, str(tmp_path / "out"), CONFIG)
    assert report.messages["invalid"] == 1
    assert found(spark.read.parquet(str(tmp_path / "out"))) == Counter(PAYLOADS)
    reconstruct(table, CONFIG).where("payload is not null").write.format("delta").save(sink)
    # The same once more, by MERGE: nothing comes twice.
    more = [*PAYLOADS[:10], *(payload_of(5_000 + number, 5_000) for number in range(5))]
    reconstruct(frame(spark, rows(3, more)), CONFIG).createOrReplaceTempView("fresh")
    spark.sql(
        f"merge into delta.`{sink}` known using fresh on known.entire_message_hash = fresh.entire_message_hash "
        "when not matched then insert *"
    )
    assert found(spark.read.format("delta").load(sink)) == Counter([*PAYLOADS, *more[10:]])
    stream = reconstruct_stream(
        spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(archive).where("length(payload) > 9"),
        CONFIG,
    )
    streamed = str(tmp_path / "streamed")
    ended(stream, tmp_path / "checkpoint", lambda writer: writer.format("delta").start(streamed))
    assert found(spark.read.format("delta").load(streamed)) == Counter(PAYLOADS)


def test_iceberg_batch_and_stream(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql("create namespace if not exists lake.traffic")
    frame(spark, rows(4)).writeTo("lake.traffic.archive").using("iceberg").create()
    reconstruct(spark.table("lake.traffic.archive"), CONFIG).writeTo("lake.traffic.messages").create()
    assert found(spark.table("lake.traffic.messages")) == Counter(PAYLOADS)
    files = Path(spark.conf.get("spark.sql.catalog.lake.warehouse")) / "traffic" / "archive"
    with pytest.raises(ConfigError, match="is a table of Iceberg"):
        reconstruct_archive(spark, str(files), str(tmp_path / "out"), CONFIG)
    messages = reconstruct_stream(spark.readStream.table("lake.traffic.archive"), CONFIG)
    empty = spark.createDataFrame([], messages.schema)
    empty.writeTo("lake.traffic.streamed").create()
    ended(messages, tmp_path / "checkpoint", lambda writer: writer.toTable("lake.traffic.streamed"))
    assert found(spark.table("lake.traffic.streamed")) == Counter(PAYLOADS)


def test_waku_messages_in_kafka_keep_their_topics_apart(spark: SparkSession, broker: str) -> None:
    topics = ("/app/1/a/proto", "/app/1/b/proto")
    sent = [
        _native.WakuMessage(payload=part, content_topic=topic, timestamp_ns=1).encode()
        for topic in topics
        for part in segment(PAYLOADS[0], CONFIG)
    ]
    values = frame(spark, sent).selectExpr("payload as value")
    values.write.format("kafka").options(**{"kafka.bootstrap.servers": broker}, topic="waku").save()
    read = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": broker}, subscribe="waku").load()
    messages = reconstruct(read, CONFIG, payload="value", by=["topic", "content_topic"], unwrap=["waku"]).collect()
    assert sorted((row["topic"], row["content_topic"], row["status"]) for row in messages) == [
        ("waku", topic, "complete") for topic in topics
    ]
