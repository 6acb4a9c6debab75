"""The boundary takes any buffer, lets go of the GIL, and raises the project's errors with their numbers."""

from __future__ import annotations

import array
import mmap
import pickle
import random
import threading
import time
import zlib
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from shardwire import Keccak256, _native, erasure, keccak256, keccak256_many
from shardwire.errors import ConfigError, InvalidSegmentError, NotEnoughShardsError, PayloadTooLargeError
from shardwire.segmentation import Reassembler, SegmentationConfig, inspect, reassemble_many, segment, segment_many

DATA = bytes(range(256)) * 40


def _mapped(directory: Path) -> mmap.mmap:
    path = directory / "payload"
    path.write_bytes(DATA)
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def test_every_kind_of_buffer_gives_the_same_segments(tmp_path: Path) -> None:
    config = SegmentationConfig(segment_size_bytes=1_024, enable_reed_solomon=True)
    expected = segment(DATA, config)
    interleaved = memoryview(bytes(byte for pair in zip(DATA, DATA[::-1], strict=True) for byte in pair))[::2]
    assert not interleaved.contiguous
    buffers: list[Any] = [
        bytearray(DATA),
        memoryview(DATA),
        interleaved,
        array.array("I", DATA),
        memoryview(DATA).cast("B", (64, len(DATA) // 64)),
        _mapped(tmp_path),
    ]
    for buffer in buffers:
        assert segment(buffer, config) == expected
        assert _native.keccak256(buffer) == _native.keccak256(DATA)
    assert segment_many(buffers, config) == [expected] * len(buffers)


def test_a_mutable_buffer_is_copied_before_it_is_read() -> None:
    payload = bytearray(DATA)
    config = SegmentationConfig(segment_size_bytes=64 * 1_024, wire_format="draft")
    [unmodified] = segment(payload, config)
    payload[0] ^= 0xFF
    assert unmodified == DATA


@pytest.mark.parametrize("wrong", ["text", 5, None, [1, 2], object()])
def test_what_is_no_buffer_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="bytes-like"):
        _native.keccak256(wrong)
    with pytest.raises(TypeError):
        segment(wrong, SegmentationConfig())


TAKERS: dict[str, Callable[[Any], Any]] = {
    "segment": lambda text: segment(text, SegmentationConfig()),
    "segment_many": lambda text: segment_many([text], SegmentationConfig()),
    "reassemble_many": lambda text: reassemble_many([[text]], SegmentationConfig()),
    "inspect": inspect,
    "Reassembler.receive": lambda text: Reassembler().receive(text, now_ms=0),
    "Reassembler.receive of a message key": lambda text: Reassembler().receive(b"", now_ms=0, message_key=text),
    "keccak256": keccak256,
    "keccak256_many": lambda text: keccak256_many([text]),
    "Keccak256": Keccak256,
    "Keccak256.update": lambda text: Keccak256().update(text),
    "erasure.encode": lambda text: erasure.encode([text], 1),
    "erasure.reconstruct": lambda text: erasure.reconstruct([text, None], 1, 1),
}


@pytest.mark.parametrize("name", TAKERS)
def test_text_in_place_of_bytes_is_told_to_be_encoded(name: str) -> None:
    with pytest.raises(TypeError, match=r'not str: encode the text, as in "text"\.encode\(\)') as caught:
        TAKERS[name]("secret")
    assert "secret" not in str(caught.value)
    with pytest.raises(TypeError, match="not list: give bytes"):
        TAKERS[name]([1, 2])


def test_errors_carry_their_numbers() -> None:
    config = SegmentationConfig(segment_size_bytes=64, max_total_segments=4)
    with pytest.raises(PayloadTooLargeError, match=r"193 bytes: at most 192") as too_large:
        segment(bytes(193), config)
    assert (too_large.value.payload_bytes, too_large.value.limit_bytes) == (193, 192)
    with pytest.raises(NotEnoughShardsError, match="2") as not_enough:
        erasure.reconstruct([bytes(64), None, None], 2, 1)
    assert (not_enough.value.shards_present, not_enough.value.shards_needed) == (1, 2)
    with pytest.raises(InvalidSegmentError, match="raw"):
        _native.inspect_segment(b"\xff", "raw")
    with pytest.raises(ConfigError, match=r"wire_format is \"cooked\""):
        _native.inspect_segment(b"", "cooked")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"erasure_code is \"raid\""):
        erasure.encode([bytes(64)], 1, "raid")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="64"):
        erasure.encode([bytes(63), bytes(63)], 1, "leopard")
    with pytest.raises(ConfigError, match="capacity is 0"):
        _native.BloomFilter(0)
    with pytest.raises(ConfigError, match="ephemeral"):
        _native.SdsMessage(sender_id="s", message_id="m", channel_id="c", content=b"x").encode("nim")


def test_parameters_refuse_what_a_config_would() -> None:
    def parameters(**changes: Any) -> _native.SegmentationParameters:
        settings: dict[str, Any] = {
            "segment_size_bytes": 1_024,
            "enable_reed_solomon": True,
            "parity_rate": 0.125,
            "parity_for_single_segment": False,
            "erasure_code": "leopard",
            "wire_format": "raw",
            "max_total_segments": 256,
            "max_tail_candidates": 1_024,
        }
        return _native.SegmentationParameters(**{**settings, **changes})

    assert parameters().chunk_size_bytes == 1_024
    assert parameters(wire_format="lip243").chunk_size_bytes == 896
    assert parameters().segment_counts(1_025) == (2, 1)
    for changes in (
        {"segment_size_bytes": -1},
        {"segment_size_bytes": 1_000},
        {"parity_rate": float("nan")},
        {"max_total_segments": 257},
        {"max_tail_candidates": 0},
        {"wire_format": "lip243", "segment_size_bytes": 191},
    ):
        with pytest.raises(ConfigError, match=next(reversed(changes))):
            parameters(**changes)


def test_the_gil_is_released_above_4_kib() -> None:
    payload = bytes(64 << 20)
    done = threading.Event()

    def hash_it() -> None:
        _native.keccak256(payload)
        done.set()

    thread = threading.Thread(target=hash_it)
    thread.start()
    ticks = 0
    # With the GIL held for the whole hash this loop would get no turn before the end.
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks > 5


def test_records_compare_by_value_and_show_no_payload() -> None:
    config = SegmentationConfig(segment_size_bytes=64)
    [first, _] = segment(b"secret payload " * 8, config)
    one, other = _native.inspect_segment(first, "raw"), _native.inspect_segment(bytearray(first), "raw")
    assert one == other
    assert one != object()
    assert "secret" not in repr(one)
    assert "segment_payload=<64 bytes>" in repr(one)
    message = _native.SdsMessage(sender_id="a", message_id="m", channel_id="c", content=b"secret")
    assert "secret" not in repr(message)
    entry = _native.HistoryEntry("m", b"hint")
    assert {entry: 1}[_native.HistoryEntry("m", b"hint", None)] == 1
    match entry:
        case _native.HistoryEntry(message_id, hint, sender_id):
            assert (message_id, hint, sender_id) == ("m", b"hint", None)
    message = _native.SdsMessage(
        sender_id="a",
        message_id="m",
        channel_id="c",
        lamport_timestamp=1,
        causal_history=[entry],
        bloom_filter=b"\x01",
        repair_request=[_native.HistoryEntry("n", None, "b")],
        content=b"secret",
    )
    for record in (entry, message):
        assert pickle.loads(pickle.dumps(record)) == copy(record) == record


def test_keccak_in_pieces_and_in_batches() -> None:
    pieces = _native.Keccak256(DATA[:100])
    first = pieces.copy()
    pieces.update(DATA[100:])
    assert pieces.digest() == pieces.digest() == _native.keccak256(DATA)
    assert first.digest() == _native.keccak256(DATA[:100])
    assert _native.keccak256_many([b"", DATA]) == [_native.keccak256(b""), _native.keccak256(DATA)]


def test_arrow_arrays_are_hashed_in_one_call() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    for kind in (pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary_view()):
        digests = _native.keccak256_many(pyarrow.array([b"", None, DATA], kind))
        assert digests.type == pyarrow.binary(32)
        assert digests.to_pylist() == [_native.keccak256(b""), None, _native.keccak256(DATA)]
    with pytest.raises(TypeError, match="binary"):
        _native.keccak256_many(pyarrow.array([1, 2]))


@pytest.mark.parametrize("size", [0, 1, 100, 4_096, 102_400, 1 << 20, (1 << 20) + 7])
def test_checksums_are_those_of_zlib(size: int) -> None:
    data = random.Random(size).randbytes(size)
    for before in (0, 1, 0xFFFF_FFFF):
        assert _native.crc32(data, before) == zlib.crc32(data, before)
    assert _native.crc32(memoryview(data)[::2]) == zlib.crc32(data[::2])
    assert _native.crc32(data[size // 3 :], _native.crc32(bytearray(data[: size // 3]))) == zlib.crc32(data)
