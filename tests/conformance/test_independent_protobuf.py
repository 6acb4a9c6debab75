"""google.protobuf, compiled from `proto/` here, reads what we write and writes what we read, on every wire."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.message import Message as ProtobufMessage
from grpc_tools import protoc

from shardwire._native import (
    FileChunk,
    FileManifest,
    FileStatus,
    HistoryEntry,
    SdsMessage,
    WakuMessage,
    decode_file_message,
    encode_file_chunk,
    encode_file_manifest,
    encode_file_status,
    keccak256,
)
from shardwire.config import SegmentWireFormat
from shardwire.node.udp.datagram import FRAGMENT, FRAGMENT_HEADER_BYTES, HELLO, STATUS, Datagram, decode
from shardwire.segmentation import PayloadReconstructed, Reassembler, SegmentationConfig, inspect, segment

PROTO = Path(__file__).parents[2] / "proto"
NAMES = (
    "segment_raw",
    "segment_draft",
    "segment_lip243",
    "sds",
    "sds_nim",
    "waku_message",
    "udp_datagram",
    "file_transfer",
)
PAYLOAD = bytes(range(256)) * 9 + b"tail"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ModuleType]]:
    directory = tmp_path_factory.mktemp("proto")
    files = [str(PROTO / f"{name}.proto") for name in NAMES]
    assert protoc.main(["protoc", f"-I{PROTO}", f"--python_out={directory}", *files]) == 0
    sys.path.insert(0, str(directory))
    try:
        yield {name: importlib.import_module(f"{name}_pb2") for name in NAMES}
    finally:
        sys.path.remove(str(directory))
        for name in NAMES:
            sys.modules.pop(f"{name}_pb2", None)


def _parsed(module: ModuleType, name: str, data: bytes) -> ProtobufMessage:
    message: ProtobufMessage = getattr(module, name)()
    assert message.ParseFromString(data) == len(data)
    assert message.SerializeToString(deterministic=True) == data
    return message


def _config(wire_format: SegmentWireFormat) -> SegmentationConfig:
    return SegmentationConfig(
        segment_size_bytes=384, enable_reed_solomon=True, parity_rate=0.5, wire_format=wire_format
    )


@pytest.mark.parametrize("wire_format", ["raw", "draft", "lip243"])
def test_segments(compiled: dict[str, ModuleType], wire_format: SegmentWireFormat) -> None:
    module = compiled[f"segment_{wire_format}"]
    reassembler = Reassembler(_config(wire_format))
    outcomes = []
    for data in segment(PAYLOAD, _config(wire_format)):
        message = _parsed(module, "SegmentMessageProto", data)
        header = inspect(data, wire_format=wire_format)
        assert header is not None
        if wire_format == "lip243":
            assert message.original_payload_hash == keccak256(PAYLOAD)  # type: ignore[attr-defined]
            assert message.original_payload_length == len(PAYLOAD)  # type: ignore[attr-defined]
            assert message.segment_payload == header.segment_payload  # type: ignore[attr-defined]
        else:
            assert message.entire_message_hash == keccak256(PAYLOAD)  # type: ignore[attr-defined]
            assert message.payload == header.segment_payload  # type: ignore[attr-defined]
        # What google.protobuf writes is what the reassembler is given.
        outcomes.append(reassembler.receive(message.SerializeToString(), now_ms=0))
    [found] = [outcome for outcome in outcomes if isinstance(outcome, PayloadReconstructed)]
    assert found.payload == PAYLOAD


def test_sds_on_the_wire_of_the_specification(compiled: dict[str, ModuleType]) -> None:
    ours = SdsMessage(
        sender_id="alice",
        message_id="ид",
        channel_id="channel",
        lamport_timestamp=2**64 - 1,
        causal_history=[HistoryEntry("a", b"hint", "bob"), HistoryEntry("b"), HistoryEntry("c", b"", "")],
        bloom_filter=b"",
        repair_request=[HistoryEntry("d", None, "carol")],
        content=b"content",
    )
    message = _parsed(compiled["sds"], "Message", ours.encode("spec"))
    assert SdsMessage.decode(message.SerializeToString(), "spec") == ours


def test_sds_on_the_wire_of_nim(compiled: dict[str, ModuleType]) -> None:
    ours = SdsMessage(
        sender_id="alice",
        message_id="m",
        channel_id="channel",
        lamport_timestamp=7,
        causal_history=[HistoryEntry("a", b"hint", "bob"), HistoryEntry("b")],
        content=b"content",
    )
    message = _parsed(compiled["sds_nim"], "SdsMessage", ours.encode("nim"))
    entries = [_parsed(compiled["sds_nim"], "HistoryEntry", data) for data in message.causal_history]  # type: ignore[attr-defined]
    assert [entry.message_id for entry in entries] == [b"a", b"b"]  # type: ignore[attr-defined]
    assert SdsMessage.decode(message.SerializeToString(), "nim") == ours


def test_waku_messages(compiled: dict[str, ModuleType]) -> None:
    ours = WakuMessage(
        payload=b"payload", content_topic="/a/1/b/proto", version=0, timestamp_ns=-5, meta=b"", ephemeral=False
    )
    message = _parsed(compiled["waku_message"], "WakuMessage", ours.encode())
    assert WakuMessage.decode(message.SerializeToString()) == ours


@pytest.mark.parametrize(
    "datagram",
    [
        Datagram(to=1 << 63, sender=2, kind=HELLO, token=3, answer=1),
        Datagram(sender=2, kind=HELLO),
        Datagram(to=7, sender=8, kind=FRAGMENT, number=9, index=0, count=1, data=b"x"),
        Datagram(to=7, sender=8, kind=FRAGMENT, number=0xFFFFFFFF, index=63, count=64, data=bytes(1_168)),
        Datagram(to=7, sender=8, kind=STATUS, number=10, held=(1 << 64) - 1),
    ],
)
def test_udp_datagrams(compiled: dict[str, ModuleType], datagram: Datagram) -> None:
    message = _parsed(compiled["udp_datagram"], "UdpDatagram", datagram.encode())
    for name in Datagram.__slots__:
        assert getattr(message, name) == getattr(datagram, name), name
    assert decode(message.SerializeToString()) == datagram
    assert datagram.kind != FRAGMENT or len(datagram.encode()) <= FRAGMENT_HEADER_BYTES + len(datagram.data)


FILE_MAGIC = b"\x93swfile\x01"


def test_file_messages(compiled: dict[str, ModuleType]) -> None:
    module = compiled["file_transfer"]

    def parsed(message: bytes) -> ProtobufMessage:
        assert message.startswith(FILE_MAGIC)
        return _parsed(module, "FileMessage", message.removeprefix(FILE_MAGIC))

    offer, transfer_id = encode_file_manifest(
        name="a.bin",
        size_bytes=(1 << 63) - 1,
        chunk_size_bytes=1 << 20,
        chain_hash=bytes(range(32)),
        nonce=1 << 63,
        session=9,
    )
    encoded: bytes = parsed(offer).manifest
    manifest = _parsed(module, "FileManifest", encoded)
    assert keccak256(encoded) == transfer_id
    assert manifest == module.FileManifest(
        name="a.bin", size_bytes=(1 << 63) - 1, chunk_size_bytes=1 << 20, chain_hash=bytes(range(32))
    )
    read = decode_file_message(FILE_MAGIC + module.FileMessage(manifest=encoded, nonce=5).SerializeToString())
    assert isinstance(read, FileManifest)
    assert (read.name, read.transfer_id) == ("a.bin", transfer_id)

    chunk = encode_file_chunk(
        transfer_id=transfer_id, index=1 << 40, next_hash=bytes(32), data=PAYLOAD, nonce=2, session=9
    )
    expected = module.FileChunk(transfer_id=transfer_id, index=1 << 40, next_hash=bytes(32), data=PAYLOAD)
    assert parsed(chunk) == module.FileMessage(chunk=expected, nonce=2, session=9)
    assert isinstance(decode_file_message(chunk), FileChunk)

    for state in module.FileState.keys()[1:]:
        for reason in module.FileReason.keys():  # noqa: SIM118
            said = "" if reason == "FILE_REASON_UNSPECIFIED" else reason.lower()
            status = encode_file_status(
                transfer_id=transfer_id, state=state.lower(), reason=said, next_index=3, nonce=3, session=9
            )
            expected = module.FileStatus(
                transfer_id=transfer_id,
                state=module.FileState.Value(state),
                reason=module.FileReason.Value(reason),
                next_index=3,
            )
            assert parsed(status) == module.FileMessage(status=expected, nonce=3, session=9)
            back = decode_file_message(status)
            assert isinstance(back, FileStatus)
            assert (back.state, back.reason) == (state.lower(), said)
