"""Waku messages, their hashes and shards equal those of the specification, js-waku and nim."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.vector_files import load

from shardwire._native import WakuMessage, message_hash, shard_of
from shardwire.errors import ConfigError

HASHES = load("message_hash")
SHARDS = load("autosharding")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _hash(case: dict[str, Any]) -> str:
    return message_hash(
        pubsub_topic=case["pubsub_topic"],
        payload=bytes.fromhex(case["payload_hex"]),
        content_topic=case["content_topic"],
        meta=_bytes(case["meta_hex"]),
        timestamp_ns=None if case["timestamp_ns"] is None else int(case["timestamp_ns"]),
    ).hex()


@pytest.mark.parametrize("case", HASHES["official"], ids=lambda case: case["name"])
def test_message_hashes_of_the_specification(case: dict[str, Any]) -> None:
    assert _hash(case) == case["hash_hex"]


@pytest.mark.parametrize("case", HASHES["extra_js"], ids=lambda case: case["name"])
def test_message_hashes_of_js(case: dict[str, Any]) -> None:
    if case["timestamp_ns"] == "0":
        # js leaves timestamp 0 out; nim and we hash eight zero bytes (sds_summary D30).
        assert _hash(case) in case["note"]
        assert _hash(case) != case["js_hash_hex"]
        return
    assert _hash(case) == case["js_hash_hex"]


@pytest.mark.parametrize("case", HASHES["waku_message_proto"]["cases"], ids=lambda case: case["name"])
def test_waku_messages_are_byte_equal_both_ways(case: dict[str, Any]) -> None:
    fields = case["fields"]
    message = WakuMessage(
        payload=bytes.fromhex(fields["payload_hex"]),
        content_topic=fields["content_topic"],
        version=fields["version"],
        timestamp_ns=None if fields["timestamp"] is None else int(fields["timestamp"]),
        meta=_bytes(fields["meta_hex"]),
        ephemeral=fields["ephemeral"],
    )
    wire = bytes.fromhex(case["wire_hex"])
    assert message.encode() == wire
    assert WakuMessage.decode(wire) == message


@pytest.mark.parametrize("case", SHARDS["shards"], ids=lambda case: f"{case['content_topic']}-{case['num_shards']}")
def test_shards_of_content_topics(case: dict[str, Any]) -> None:
    assert shard_of(case["content_topic"], case["num_shards"]) == case["shard"]


@pytest.mark.parametrize("case", SHARDS["invalid"], ids=lambda case: repr(case["content_topic"]))
def test_invalid_content_topics_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="content topic"):
        shard_of(case["content_topic"], 8)
