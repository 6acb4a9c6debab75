"""Messages of file transfers at the boundary: what a peer sends is read within limits or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protobuf_fields import field

from shardwire import ConfigError, keccak256
from shardwire._native import (
    FileChunk,
    FileManifest,
    FileStatus,
    decode_file_message,
    encode_file_chunk,
    encode_file_manifest,
    encode_file_status,
    is_file_message,
)

MAGIC = b"\x93swfile\x01"
ID, HASH = bytes(range(32)), bytes(range(32, 64))


def manifest(**changes: Any) -> tuple[bytes, bytes]:
    settings = {
        "name": "a.bin",
        "size_bytes": 9_999,
        "chunk_size_bytes": 4_096,
        "chain_hash": HASH,
        "nonce": 1,
        "session": 9,
    }
    return encode_file_manifest(**{**settings, **changes})


def test_messages_are_read_as_they_were_written() -> None:
    message, transfer_id = manifest()
    offer = decode_file_message(message)
    assert isinstance(offer, FileManifest)
    assert (offer.name, offer.size_bytes, offer.chunk_size_bytes) == ("a.bin", 9_999, 4_096)
    assert (offer.chain_hash, offer.transfer_id, offer.session) == (HASH, transfer_id, 9)
    body = field(1, b"a.bin") + field(2, 9_999) + field(3, 4_096) + field(4, HASH)
    assert transfer_id == keccak256(body)
    assert message.startswith(MAGIC + field(1, body))

    data = bytes(range(200))
    chunk = decode_file_message(
        encode_file_chunk(transfer_id=ID, index=7, next_hash=HASH, data=data, nonce=2, session=9)
    )
    assert isinstance(chunk, FileChunk)
    assert (chunk.transfer_id, chunk.index, chunk.next_hash, chunk.data) == (ID, 7, HASH, data)
    assert chunk.session == 9
    assert "200 bytes" in repr(chunk)
    assert repr(data)[2:20] not in repr(chunk)

    status = decode_file_message(
        encode_file_status(transfer_id=ID, state="refused", reason="no_space", next_index=3, nonce=3, session=9)
    )
    assert isinstance(status, FileStatus)
    assert (status.transfer_id, status.state, status.reason, status.next_index) == (ID, "refused", "no_space", 3)
    assert status.session == 9


def test_the_nonce_makes_another_message_of_the_same_transfer() -> None:
    (message, transfer_id), (again, same) = manifest(nonce=1), manifest(nonce=2)
    assert message != again
    assert transfer_id == same


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": ""}, "the length of name is 0: it must be 1 to 255 bytes long"),
        ({"name": "é" * 128}, "the length of name is 256"),
        ({"size_bytes": 1 << 63}, "size_bytes is 9223372036854775808: it must be below"),
        ({"chunk_size_bytes": 4_095}, "chunk_size_bytes is 4095: it must be from 4096 to 16777216"),
        ({"chunk_size_bytes": (16 << 20) + 1}, "chunk_size_bytes is 16777217"),
        ({"chain_hash": bytes(31)}, "chain_hash has 31 bytes: it must have 32"),
    ],
)
def test_what_is_out_of_its_limits_is_not_written_and_not_read(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        manifest(**changes)
    values: dict[str, Any] = {
        "name": "a.bin",
        "size_bytes": 9,
        "chunk_size_bytes": 4_096,
        "chain_hash": HASH,
        **changes,
    }
    name = values["name"].encode()
    body = field(1, name) + field(2, values["size_bytes"]) + field(3, values["chunk_size_bytes"])
    assert decode_file_message(MAGIC + field(1, body + field(4, values["chain_hash"]))) is None


def test_states_and_reasons_are_those_of_the_wire() -> None:
    with pytest.raises(ConfigError, match='state is "gone": it must be requested, held'):
        encode_file_status(transfer_id=ID, state="gone", nonce=1, session=9)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match='reason is "why"'):
        encode_file_status(transfer_id=ID, state="held", reason="why", nonce=1, session=9)  # type: ignore[arg-type]


def test_what_is_no_message_of_this_version_is_told_apart() -> None:
    message, _ = manifest()
    later = message.replace(MAGIC, MAGIC[:-1] + b"\x02", 1)
    assert is_file_message(message)
    assert is_file_message(later)
    assert decode_file_message(later) is None
    for other in (b"", b"hello", b"{}", message[1:], MAGIC[:-2]):
        assert not is_file_message(other)
        assert decode_file_message(other) is None
    assert decode_file_message(MAGIC) is None


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for message in (body, MAGIC + body, MAGIC + field(1, body), MAGIC + field(2, body), MAGIC + field(3, body)):
        found = decode_file_message(message)
        assert found is None or len(found.transfer_id) == 32
