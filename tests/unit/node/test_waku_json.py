"""Waku messages in JSON as the boundary reads and writes them, and the record that tells what a node serves."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stub_waku_node import enr

from shardwire._native import WakuJsonReader, decode_store_json, encode_waku_json
from shardwire.node.rest.enr import RelayShards, relay_shards

TOPIC = "/app/1/room/proto"
Message = tuple[bytes, str, int, bytes, bool]


def read(data: bytes, chunk: int, ours: set[tuple[int, str]] | None = None) -> tuple[list[Message], WakuJsonReader]:
    reader = WakuJsonReader(element_bytes_max=1_000)
    found: list[Message] = []
    for begin in range(0, len(data), chunk):
        found += reader.feed(data[begin : begin + chunk], ours or set())
    return found, reader


def answer(*messages: Message) -> bytes:
    return b"[" + b",".join(written(message) for message in messages) + b"]"


def written(message: Message) -> bytes:
    payload, topic, timestamp_ns, meta, ephemeral = message
    return encode_waku_json(
        payload=payload, content_topic=topic, timestamp_ns=timestamp_ns, meta=meta, ephemeral=ephemeral
    )


MESSAGES: list[Message] = [
    (b"", TOPIC, 0, b"", False),
    (bytes(range(256)), '/t\u00f6pic/1/"x\\/y', -(1 << 63), b"meta", True),
    (b"x" * 200, TOPIC, (1 << 63) - 1, b"m" * 64, False),
]


@pytest.mark.parametrize("chunk", [1, 7, 64, 10_000])
def test_what_is_written_is_read_however_it_comes(chunk: int) -> None:
    found, reader = read(answer(*MESSAGES), chunk)
    reader.finish()
    assert found == MESSAGES
    assert (reader.echoes, reader.malformed) == (0, 0)


def test_what_is_written_is_json() -> None:
    said = json.loads(written(MESSAGES[1]))
    assert said == {
        "payload": base64.b64encode(MESSAGES[1][0]).decode(),
        "contentTopic": MESSAGES[1][1],
        "timestamp": -(1 << 63),
        "meta": "bWV0YQ==",
        "ephemeral": True,
    }
    assert "meta" not in json.loads(written(MESSAGES[0]))


def test_messages_of_ours_are_passed_over_undecoded() -> None:
    others = json.dumps({"payload": "not base64", "contentTopic": TOPIC, "timestamp": 5}).encode()
    data = b"[" + others + b"," + written(MESSAGES[2]) + b"]"
    found, reader = read(data, 50, {(5, TOPIC)})
    assert (found, reader.echoes, reader.malformed) == ([MESSAGES[2]], 1, 0)
    found, reader = read(data, 50, {(5, "/another/1/topic/proto"), (6, TOPIC)})
    assert (found, reader.echoes, reader.malformed) == ([MESSAGES[2]], 0, 1)


def test_an_element_that_is_none_is_counted_and_the_others_are_read() -> None:
    data = b'[{"contentTopic":5},' + written(MESSAGES[0]) + b',{},{"contentTopic":"x","timestamp":1.5}]'
    found, reader = read(data, 3)
    assert (found, reader.malformed) == ([MESSAGES[0]], 3)


@pytest.mark.parametrize("data", [b"{}", b"<html>", b"[1]", b"[[]]", b'"text"', b"[{}}", b"nul!"])
def test_what_is_no_array_of_objects_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no array of messages"):
        read(data, 2)


def test_an_element_has_a_largest_size_and_an_answer_an_end() -> None:
    fitting = b'[{"contentTopic":"' + b"x" * (1_000 - 19) + b'"}]'
    assert len(fitting) == 1_002
    assert len(read(fitting, 10)[0]) == 1
    with pytest.raises(ValueError, match="longer than 1000 bytes"):
        read(fitting.replace(b"xx", b"xxx", 1), 10)
    for data in (b"", b"[", b'[{"a":', b"[{},"):
        _, reader = read(data, 10)
        with pytest.raises(ValueError, match="ends before it is whole"):
            reader.finish()


def test_an_answer_of_a_store_is_checked() -> None:
    name = bytes(range(32))
    entry = {"message_hash": base64.b64encode(name).decode(), "message": json.loads(written(MESSAGES[1]))}
    said = {"status_code": 200, "status_desc": "OK", "messages": [entry], "pagination_cursor": "0x" + name.hex()}
    assert decode_store_json(json.dumps(said).encode()) == (200, "OK", [(name, None, MESSAGES[1])], name)
    assert decode_store_json(b'{"messages":null}') == (None, None, [], None)
    for wrong in (b"[]", b"null", b"{", b'{"messages":[{"messageHash":"0x12"}]}', b'{"paginationCursor":"xy"}'):
        with pytest.raises(ValueError, match="no answer of a store"):
            decode_store_json(wrong)
    entry["message"]["payload"] = "%"
    with pytest.raises(ValueError, match="no answer of a store"):
        decode_store_json(json.dumps(said).encode())


# As a go-waku node told it that serves all shards of cluster 1.
GO_WAKU = (
    "enr:-Ki4QPI6buVXB7_KFxbXaV2_LcLPlmm7FTF0MAVnG-Dnp0iEb-bW6DiCW6BAC98VbpIgZGXTA34p9yteuYS8ZV_ltN2GAaIEGfL5gmlkgnY0gml"
    "whH8AAAGCcnOTAAEIAAcAAAABAAIAAwAEAAUABolzZWNwMjU2azGhAlCAO1LO8HKb1gWbwD6WbQHRD5bZZFosGOhJGkIfQME8g3RjcIJIqYV3YWt1Mg0"
)


def test_a_record_tells_what_a_node_serves() -> None:
    assert relay_shards(GO_WAKU) == RelayShards(1, frozenset(range(8)))
    assert relay_shards(enr(16, (0, 32, 1_000))) == RelayShards(16, frozenset({0, 32, 1_000}))
    for other in ("", "enr:", "enr:%%%", "enr:AAAA", GO_WAKU[:60], enr(1)[:-9]):
        assert relay_shards(other) is None


@given(st.binary(max_size=400))
def test_no_record_harms(data: bytes) -> None:
    relay_shards("enr:" + base64.urlsafe_b64encode(data).decode())
    relay_shards(data.decode("latin-1"))
