"""`reconstruct` and `segment_messages` on a cluster: the same bytes as the plain Reassembler, whatever the rows are."""

from __future__ import annotations

import base64
import os
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from spark.conftest import ENV_KEY, KEY_ENV
from spark.rows import CONFIG, payload_of, reassembled, without

from shardwire import ConfigError, SegmentationConfig, _native, keccak256
from shardwire.archive import reconstruct as reconstruct_locally
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.segmentation import segment
from shardwire.spark import decrypt, reconstruct, segment_messages, with_keccak256

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANNEL_ID = "a room"
TOPICS = ("/app/1/a/proto", "/app/1/b/proto")


def archive(seed: int, messages: int = 30) -> list[tuple[str, int, bytes | None]]:
    """Rows (topic, timestamp, payload): every fourth message too short of segments, some repeats, noise and nulls."""
    chance = random.Random(seed)
    rows: list[tuple[str, int, bytes | None]] = []
    for number in range(messages):
        parts = segment(payload_of(seed * 1_000 + number, chance.choice([1, 640, 5_000, 9_000])), CONFIG)
        lost = chance.sample(range(len(parts)), len(parts) * (3 if number % 4 == 0 else 1) // 4)
        arrived = without(parts, lost)
        arrived += [part for part in arrived if chance.random() < 0.1]
        rows += [(chance.choice(TOPICS), number * 1_000 + place, part) for place, part in enumerate(arrived)]
    rows += [(TOPICS[0], 7, chance.randbytes(200)) for _ in range(5)]
    rows += [(TOPICS[1], 8, None) for _ in range(3)]
    chance.shuffle(rows)
    return rows


def frame(spark: SparkSession, rows: list[tuple[str, int, bytes | None]], partitions: int = 5) -> DataFrame:
    return spark.createDataFrame(rows, "topic string, timestamp bigint, payload binary").repartition(partitions)


def test_equals_the_plain_reassembler(spark: SparkSession) -> None:
    rows = archive(1)
    found = reconstruct(frame(spark, rows), CONFIG).collect()
    wanted = reassembled([part for _, _, part in rows if part is not None], CONFIG)
    assert {row["entire_message_hash"]: row["payload"] for row in found if row["payload"] is not None} == wanted
    assert len(wanted) > 15
    statuses = {row["status"] for row in found}
    assert statuses == {"complete", "recovered", "incomplete", "invalid"}
    [unread] = [row for row in found if row["entire_message_hash"] is None]
    assert (unread["status"], unread["segments_received"]) == ("invalid", 5)
    assert "no segment" in unread["error"]


def test_by_columns_keep_messages_apart(spark: SparkSession) -> None:
    rows = archive(2)
    found = reconstruct(frame(spark, rows), CONFIG, by=["topic"]).collect()
    for topic in TOPICS:
        wanted = reassembled([part for name, _, part in rows if part is not None and name == topic], CONFIG)
        mine = {r["entire_message_hash"]: r["payload"] for r in found if r["topic"] == topic and r["payload"]}
        assert mine == wanted


def test_the_hash_as_a_column_gives_the_same(spark: SparkSession) -> None:
    rows = [row for row in archive(3) if row[2] is not None]
    keyed = []
    for topic, timestamp, part in rows:
        try:
            header = _native.inspect_segment(part, "raw")
        except Exception:
            continue
        keyed.append((topic, timestamp, part, header.entire_message_hash if header else None))
    df = spark.createDataFrame(keyed, "topic string, timestamp bigint, payload binary, digest binary").repartition(4)
    names = ("entire_message_hash", "payload", "status", "segments_received", "duplicates", "first_timestamp", "copies")
    by_key = reconstruct(df, CONFIG, key="digest").select(*names).collect()
    bare = reconstruct(df.drop("digest"), CONFIG).select(*names).collect()
    assert sorted(by_key) == sorted(bare)


def test_a_key_that_is_no_hash_is_told_as_on_one_machine(spark: SparkSession) -> None:
    payload = payload_of(4, 1_000)
    parts = segment(payload, CONFIG)
    keys = [None, b"short", b"s" * 31, bytes(33), *[keccak256(payload)] * len(parts)]
    payloads = [*[parts[0]] * 4, *parts]
    df = spark.createDataFrame(list(zip(keys, payloads, strict=True)), "digest binary, payload binary").repartition(4)
    names = ("status", "entire_message_hash", "payload", "segments_received", "error")
    found = {tuple(row) for row in reconstruct(df, CONFIG, key="digest").select(*names).collect()}
    table = pa.table({"digest": pa.array(keys, pa.binary()), "payload": payloads})
    alone = reconstruct_locally(table, CONFIG, key="digest").select(list(names)).to_pylist()
    assert found == {tuple(row.values()) for row in alone}
    assert found == {
        ("complete", keccak256(payload), payload, len(parts), None),
        ("invalid", None, None, 4, "the key is no hash: entire_message_hash has 32 bytes"),
    }


def test_lengths_alone_and_times(spark: SparkSession) -> None:
    payload = payload_of(5, 3_000)
    rows = [(TOPICS[0], 10 + place, part) for place, part in enumerate(segment(payload, CONFIG))]
    [message] = reconstruct(frame(spark, rows), CONFIG, include_payload=False).collect()
    assert (message["payload"], message["payload_length"]) == (None, 3_000)
    assert (message["first_timestamp"], message["last_timestamp"]) == (10, 10 + len(rows) - 1)
    timestamped = frame(spark, rows).selectExpr("payload", "timestamp_micros(timestamp) as timestamp")
    [message] = reconstruct(timestamped, CONFIG).collect()
    assert message["first_timestamp"] == 10_000


def test_an_empty_frame_and_empty_partitions(spark: SparkSession) -> None:
    assert reconstruct(frame(spark, []), CONFIG).collect() == []
    payload = payload_of(6, 3_000)
    rows: list[tuple[str, int, bytes | None]] = [(TOPICS[0], 1, part) for part in segment(payload, CONFIG)]
    [message] = reconstruct(frame(spark, rows, partitions=40), CONFIG).collect()
    assert message["payload"] == payload


def test_large_arrow_types(spark: SparkSession) -> None:
    rows = archive(7)
    plain = reconstruct(frame(spark, rows), CONFIG, by=["topic"]).collect()
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        large = reconstruct(frame(spark, rows), CONFIG, by=["topic"]).collect()
        hashed = with_keccak256(frame(spark, rows)).where("payload is not null").first()
        assert hashed is not None
        assert hashed["keccak256"] == keccak256(hashed["payload"])
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert sorted(map(str, large)) == sorted(map(str, plain))


def test_a_hot_key_of_duplicates_stays_bounded(spark: SparkSession) -> None:
    payload = payload_of(8, 20_000)
    config = SegmentationConfig(segment_size_bytes=10_240)
    parts = segment(payload, config)
    flood = spark.range(20_000).selectExpr(f"unhex('{parts[0].hex()}') as payload")
    rest = spark.createDataFrame([(part,) for part in parts[1:]], "payload binary")
    [message] = reconstruct(flood.union(rest), config).collect()
    assert message["payload"] == payload
    assert message["duplicates"] == 19_999


def wrapped(encryption: ChaCha20Poly1305Encryption, sender: str, send: str, payload: bytes) -> Iterator[bytes]:
    """The Waku messages of one send through a channel, and a sync beside them."""
    bound = encryption.bind(CHANNEL_ID)

    def publish(content: bytes, timestamp_ns: int) -> bytes:
        return _native.WakuMessage(
            payload=bound.encrypt(content), content_topic=TOPICS[0], timestamp_ns=timestamp_ns
        ).encode()

    for place, part in enumerate(segment(payload, CONFIG)):
        message = _native.SdsMessage(
            sender_id=sender,
            message_id=f"{send}.{place}",
            channel_id=CHANNEL_ID,
            lamport_timestamp=100 + place,
            content=part,
        )
        yield publish(message.encode(), 1_000 + place)
    sync = _native.SdsMessage(sender_id=sender, message_id=f"sync-{send}", channel_id=CHANNEL_ID, lamport_timestamp=9)
    yield publish(sync.encode(), 5_000)


def test_unwraps_waku_encryption_and_sds(spark: SparkSession, tmp_path: Path) -> None:
    key = bytes(range(32))
    key_file = tmp_path / "channel.key"
    encryption = ChaCha20Poly1305Encryption([key])
    encryption.write_key_file(key_file)
    payload = payload_of(9, 5_000)
    first, second = "a" * 32, "b" * 32
    rows = [*wrapped(encryption, "alice", first, payload)][3:]
    rows += [*wrapped(encryption, "bob", second, payload)]
    rows += [*wrapped(ChaCha20Poly1305Encryption([bytes(32)]), "mallory", "c" * 32, payload)][:2]
    df = spark.createDataFrame([(row,) for row in rows], "payload binary").repartition(3)
    steps = ["waku", decrypt(key_file=key_file, channel_id=CHANNEL_ID), "sds"]
    messages = reconstruct(df, CONFIG, unwrap=steps)  # type: ignore[arg-type]
    found = {row["send_id"]: row for row in messages.collect()}
    assert set(found) == {first, second, None}
    assert found[first]["payload"] == found[second]["payload"] == payload
    assert (found[first]["status"], found[first]["data_segments_recovered"]) == ("recovered", 3)
    assert (found[second]["status"], found[second]["senders"]) == ("complete", ["bob"])
    assert (found[second]["first_timestamp"], found[second]["last_timestamp"]) == (1_000, 1_011)
    assert (found[None]["status"], found[None]["segments_received"]) == ("invalid", 2)
    assert "cannot be decrypted" in found[None]["error"]


def assert_told_nowhere(key: bytes, messages: DataFrame, capfd: Any) -> None:
    """Neither the plan, nor what was printed, nor a log of an executor holds the key in any writing."""
    messages.explain(mode="extended")
    told = capfd.readouterr()
    logs = [path.read_bytes() for path in Path(os.environ["SPARK_HOME"], "work").rglob("*") if path.is_file()]
    assert logs
    for text in [told.out.encode(), told.err.encode(), *logs]:
        assert not any(secret in text for secret in writings(key))


def writings(key: bytes) -> tuple[bytes, ...]:
    return key, key.hex().encode(), key.hex().upper().encode(), repr(key).encode(), base64.b64encode(key)


def test_keys_are_in_no_plan_and_no_log(spark: SparkSession, tmp_path: Path, capfd: Any) -> None:
    key = random.Random(10).randbytes(32)
    key_file = tmp_path / "channel.key"
    encryption = ChaCha20Poly1305Encryption([key])
    encryption.write_key_file(key_file)
    df = spark.createDataFrame(
        [(row,) for row in wrapped(encryption, "alice", "d" * 32, payload_of(10, 2_000))], "payload binary"
    )
    step = decrypt(key_file=key_file, channel_id=CHANNEL_ID)
    messages = reconstruct(df, CONFIG, unwrap=["waku", step, "sds"])
    assert [row["status"] for row in messages.collect()] == ["complete"]
    assert_told_nowhere(key, messages, capfd)
    for text in (pickle.dumps(step), repr(step).encode()):
        assert not any(secret in text for secret in writings(key))


def test_a_key_file_at_a_relative_path(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    encryption = ChaCha20Poly1305Encryption([bytes(range(1, 33))])
    rows = [*wrapped(encryption, "alice", "f" * 32, payload_of(12, 2_000))]
    df = spark.createDataFrame([(row,) for row in rows], "payload binary")

    def statuses(name: str) -> list[str]:
        step = decrypt(key_file=name, channel_id=CHANNEL_ID)
        return [row["status"] for row in reconstruct(df, CONFIG, unwrap=["waku", step, "sds"]).collect()]

    # Executors run in a directory of their own: it is found where the driver has it.
    encryption.write_key_file("relative.key")
    assert statuses("relative.key") == ["complete"]
    # It is found in their directory, where Spark ships it to.
    encryption.write_key_file("shipped.key")
    spark.sparkContext.addFile(str(tmp_path / "shipped.key"))
    df.groupBy().count().collect()
    assert statuses("shipped.key") == ["complete"]
    for name, where in (
        ("absent.key", f", neither in its own directory nor at '{tmp_path}/absent.key', where the driver looks"),
        (f"{tmp_path}/absent.key", ""),
    ):
        with pytest.raises(Exception, match="ConfigError: key file") as refused:
            statuses(name)
        told = (
            f"ConfigError: key file '{name}' is not on this executor{where}: give an absolute path that every executor "
            f"has, or ship it with SparkContext.addFile('{tmp_path}/absent.key') and name it 'absent.key'"
        )
        assert any(line.endswith(told) for line in str(refused.value).splitlines())


def test_keys_from_the_environment_of_the_executors(spark: SparkSession, capfd: Any) -> None:
    payload = payload_of(11, 2_000)
    rows = [*wrapped(ChaCha20Poly1305Encryption([ENV_KEY]), "alice", "e" * 32, payload)]
    df = spark.createDataFrame([(row,) for row in rows], "payload binary")
    step = decrypt(key_env=KEY_ENV, channel_id=CHANNEL_ID)
    messages = reconstruct(df, CONFIG, unwrap=["waku", step, "sds"])
    [message] = messages.collect()
    assert message["payload"] == payload
    assert_told_nowhere(ENV_KEY, messages, capfd)
    missing = decrypt(key_env="SHARDWIRE_NO_SUCH_KEYS", channel_id=CHANNEL_ID)
    with pytest.raises(Exception, match="SHARDWIRE_NO_SUCH_KEYS of an executor holds no key"):
        reconstruct(df, CONFIG, unwrap=["waku", missing, "sds"]).collect()


def test_segment_messages_there_and_back(spark: SparkSession) -> None:
    payloads = [payload_of(number, length) for number, length in enumerate([0, 1, 640, 641, 5_000, 20_000])]
    df = spark.createDataFrame([(number, p) for number, p in enumerate(payloads)], "id int, payload binary")
    segments = segment_messages(df.union(spark.createDataFrame([(99, None)], df.schema)), CONFIG)
    found = segments.orderBy("id", "segment_index").collect()
    for number, payload in enumerate(payloads):
        mine = [row for row in found if row["id"] == number]
        assert [row["segment"] for row in mine] == segment(payload, CONFIG)
        assert {row["entire_message_hash"] for row in mine} == {keccak256(payload)}
        assert sum(not row["is_parity"] for row in mine) == mine[0]["data_segment_count"]
    assert {row["id"] for row in found} == set(range(len(payloads)))
    back = reconstruct(segments, CONFIG, payload="segment", by=["id"]).orderBy("id").collect()
    assert [row["payload"] for row in back] == payloads


def test_segment_messages_says_what_does_not_fit(spark: SparkSession) -> None:
    df = spark.createDataFrame([(bytes(300_000),), (b"fits",)], "payload binary")
    refused, fits = sorted(segment_messages(df, CONFIG).collect(), key=lambda row: row["segment"] is not None)
    assert refused["segment"] is None
    assert "300000 bytes" in refused["error"]
    assert fits["error"] is None


def test_with_keccak256(spark: SparkSession) -> None:
    rows = [(number, payload_of(number, number * 10)) for number in range(50)]
    df = spark.createDataFrame(rows, "id int, payload binary").repartition(3)
    found = with_keccak256(df).collect()
    assert {(row["id"], row["payload"], row["keccak256"]) for row in found} == {(n, p, keccak256(p)) for n, p in rows}
    assert with_keccak256(df, keep_column=False, output="digest").columns == ["id", "digest"]


def test_wrong_arguments_are_refused_at_once(spark: SparkSession) -> None:
    df = spark.createDataFrame([("t", b"", "x")], "topic string, payload binary, status string")
    for match, arguments in {
        "payload names the column 'nothing'": {"payload": "nothing"},
        "payload names the column 'topic' of type string": {"payload": "topic"},
        "by is 'topic'": {"by": "topic"},
        "by names the column 'nothing'": {"by": ["nothing"]},
        "by names the column 'status', which the result needs": {"by": ["status"]},
        "twice": {"by": ["topic", "topic"]},
        "unwrap is 'sds'": {"unwrap": "sds"},
        "unwrap step 'tls' is unknown": {"unwrap": ["tls"]},
        "a key needs bare segments": {"key": "payload", "unwrap": ["sds"]},
        "key names the column 'topic' of type string": {"key": "topic"},
        "timestamp names the column 'topic'": {"timestamp": "topic"},
    }.items():
        with pytest.raises(ConfigError, match=match):
            reconstruct(df, CONFIG, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="rename them"):
        segment_messages(df.withColumnRenamed("status", "error"), CONFIG)
    with pytest.raises(ConfigError, match="output is 'topic'"):
        with_keccak256(df, output="topic")


def test_decrypt_takes_the_place_of_a_key_only() -> None:
    for arguments in ({}, {"key_file": "a", "key_env": "B"}):
        with pytest.raises(ConfigError, match="either key_file or key_env"):
            decrypt(**arguments)
    with pytest.raises(ConfigError, match="never the key") as refused:
        decrypt(key_env="AB" * 32)
    assert "AB" * 4 not in str(refused.value)
    with pytest.raises(ConfigError, match="cipher is 'rot13'"):
        decrypt(key_env="KEYS", cipher="rot13")  # type: ignore[arg-type]
