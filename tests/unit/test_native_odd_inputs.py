"""Odd and hostile arguments of hashing, erasure coding and segmentation: an answer or a clear exception."""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from shardwire import Keccak256, erasure, keccak256, keccak256_many
from shardwire.errors import ConfigError, NotEnoughShardsError
from shardwire.segmentation import SegmentationConfig, reassemble_many, segment, segment_many

SHARDS = [bytes([index]) * 64 for index in range(3)]
CONFIG = SegmentationConfig(segment_size_bytes=1_024, enable_reed_solomon=True)
PAYLOAD = bytes(range(256)) * 20


class _EndlessInName:
    """A sequence whose length is a lie."""

    def __init__(self, length: int = 1 << 40) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> bytes:
        return SHARDS[index]


class _ResizedWhileRead:
    """A buffer that has grown by the time it is read again."""

    def __iter__(self) -> Iterator[bytearray]:
        buffer = bytearray(b"x" * 100_000)
        yield buffer
        buffer.extend(b"y" * 100_000)
        yield buffer


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: erasure.encode([], 1), ConfigError, r"0 data shards: at least 1"),
        (lambda: erasure.encode([b"", b""], 1), ConfigError, r"0 bytes: at least 1"),
        (lambda: erasure.encode(SHARDS, -1), ConfigError, r"parity_count is -1: .* from 0 to 128, at most as many"),
        (lambda: erasure.encode(SHARDS, 1 << 70), ConfigError, r"parity_count is 1180591620717411303424"),
        (lambda: erasure.encode(SHARDS, 1 << 63), ConfigError, r"9223372036854775808 > 3; ask for fewer"),
        (lambda: erasure.encode(SHARDS, (1 << 64) - 1, "vandermonde"), ConfigError, r"at most 256 shards: 3 data"),
        (lambda: erasure.encode(SHARDS, 1.5), TypeError, r"parity_count must be an integer"),  # type: ignore[arg-type]
        (lambda: erasure.encode(SHARDS, None), TypeError, r"parity_count must be an integer"),  # type: ignore[arg-type]
        (lambda: erasure.encode([bytes(64)] * 200, 100), ConfigError, r"at most 256 shards: .* take fewer"),
        (lambda: erasure.encode([bytes(64), bytes(128)], 1), ConfigError, r"shard 1 has 128 bytes .* 64: pad"),
        (lambda: erasure.encode([bytes(65)] * 3, 1), ConfigError, r"65 is not; pad with zeros to 128, or take vander"),
        (lambda: erasure.encode(SHARDS[0], 1), TypeError, r"data_shards is bytes: it must be a list"),
        (lambda: erasure.encode(["text"], 1), TypeError, r"data_shards\[0\]: .*not str"),  # type: ignore[list-item]
        (lambda: erasure.encode(SHARDS, -1, "vandermonde"), ConfigError, r"parity_count is -1: .* from 0 to 255"),
        (lambda: erasure.encode(range(1 << 40), 1), ConfigError, r"data_shards has more than 65536"),  # type: ignore[arg-type]
        (lambda: erasure.encode(range(9), 1), TypeError, r"data_shards\[0\]: .*not int"),  # type: ignore[arg-type]
        (lambda: erasure.encode(_EndlessInName(), 1), ConfigError, r"data_shards has more than 65536"),  # type: ignore[arg-type]
        (lambda: keccak256_many(range(1 << 62)), ConfigError, r"buffers has more than 1099511627776 items"),
        (lambda: keccak256_many(_EndlessInName(1 << 64)), ConfigError, r"buffers has more than"),
        (lambda: erasure.encode(itertools.repeat(b"x"), 1), ConfigError, r"data_shards has more than 65536 items"),
        (lambda: erasure.reconstruct([], 0, 0), ConfigError, r"0 data shards"),
        (lambda: erasure.reconstruct(SHARDS, -1, 1), ConfigError, r"data_count is -1: .* from 1 to 65536"),
        (lambda: erasure.reconstruct(SHARDS, 2, 2), ConfigError, r"3 shards were given where there are 4"),
        (lambda: erasure.reconstruct([None] * 3, 2, 1), NotEnoughShardsError, r"2 shards are needed and 0"),
        (lambda: erasure.reconstruct([None] * 99 + [bytes(1 << 20)], 90, 10), NotEnoughShardsError, r"90 .* and 1 "),
        (lambda: erasure.reconstruct([None, *SHARDS, bytes(9)], 4, 1), ConfigError, r"shard 4 has 9 bytes"),
        (lambda: erasure.reconstruct(SHARDS, 1 << 63, 1 << 63), ConfigError, r"at most 65536 shards"),
        (lambda: keccak256_many(b"bytes"), TypeError, r"buffers is bytes: it must be a list"),  # type: ignore[call-overload]
        (lambda: keccak256_many([b"", None]), TypeError, r"buffers\[1\]: .*not NoneType"),
        (lambda: keccak256_many(None), TypeError, r"buffers is NoneType"),
        (lambda: keccak256_many(1 // 0 for _ in range(2)), ZeroDivisionError, r"by zero"),
        (lambda: keccak256_many(pa.array(["text"])), TypeError, r"buffers has the Arrow type Utf8: it must be binary"),
        (lambda: keccak256_many(pa.array([b"x"]).dictionary_encode()), TypeError, r"Dictionary.* must be binary"),
        (lambda: keccak256(np.array([object()])), TypeError, r"references to Python objects"),
        (lambda: segment(PAYLOAD, None), ConfigError, r"config is NoneType: it must be a SegmentationConfig"),  # type: ignore[arg-type]
        (lambda: segment(PAYLOAD, {}), ConfigError, r"config is dict: it must be a SegmentationConfig"),  # type: ignore[arg-type]
        (lambda: segment_many(PAYLOAD, CONFIG), TypeError, r"payloads is bytes"),
        (lambda: segment_many([PAYLOAD, "text"], CONFIG), TypeError, r"payloads\[1\]: .*not str"),
        (lambda: segment_many(pa.array([1]), CONFIG), TypeError, r"payloads has the Arrow type Int64"),
        (lambda: reassemble_many([PAYLOAD], CONFIG), TypeError, r"batches\[0\]: batch is bytes"),
        (lambda: reassemble_many([[PAYLOAD, 5]], CONFIG), TypeError, r"batches\[0\]: batch\[1\]: .*not int"),
        (lambda: reassemble_many([[]], None), ConfigError, r"config is NoneType: it must be a SegmentationConfig"),
        (lambda: reassemble_many(pa.array([PAYLOAD]), CONFIG), TypeError, r"list array of binary"),
    ],
)
def test_a_mistake_is_named(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_released_view_says_so() -> None:
    view = memoryview(b"released")
    view.release()
    with pytest.raises(ValueError, match="released"):
        keccak256(view)


def test_no_length_is_taken_on_trust() -> None:
    assert erasure.encode(_EndlessInName(60_000), 1) == erasure.encode(SHARDS, 1)  # type: ignore[arg-type]
    assert keccak256_many(_EndlessInName()) == keccak256_many(SHARDS)
    first, second = keccak256_many(_ResizedWhileRead())  # type: ignore[call-overload]
    assert first == keccak256(b"x" * 100_000)
    assert second == keccak256(b"x" * 100_000 + b"y" * 100_000)


def test_views_of_arrays_are_read_in_logical_order() -> None:
    matrix = np.arange(3 * 64, dtype=np.uint8).reshape(64, 3)
    expected = erasure.encode([column.tobytes() for column in matrix.T], 2)
    assert erasure.encode(list(matrix.T), 2) == expected
    assert erasure.encode(matrix.T, 2) == expected  # type: ignore[arg-type]
    record = np.zeros(3, [("Odd", "i4"), ("b", "f8")])
    assert keccak256(record) == keccak256(record.tobytes())


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_slices_and_nulls_of_arrow_arrays(kind: pa.DataType) -> None:
    rows = [bytes([index]) * index * 100 for index in range(20)]
    column = pa.array([None if index % 5 == 2 else row for index, row in enumerate(rows)], kind)
    for start, stop in [(0, 20), (3, 9), (2, 3), (19, 20), (20, 20)]:
        part = column[start:stop]
        values = part.to_pylist()
        assert keccak256_many(part).to_pylist() == [None if value is None else keccak256(value) for value in values]
        assert segment_many(part, CONFIG).to_pylist() == [
            None if value is None else segment(value, CONFIG) for value in values
        ]
    assert keccak256_many(pa.nulls(2)).to_pylist() == [None, None]
    lists = pa.array([[b"left out"], segment(PAYLOAD, CONFIG), None, [None]], pa.list_(kind))[1:]
    assert reassemble_many(lists, CONFIG).to_pylist() == [PAYLOAD, None, None]


def test_threads_share_a_hash() -> None:
    shared, piece, times = Keccak256(), bytes(100_000), 50
    threads = [threading.Thread(target=lambda: [shared.update(piece) for _ in range(times)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.copy().digest() == keccak256(piece * 2 * times)


def test_a_hash_is_copied_by_the_copy_module() -> None:
    shared = Keccak256(b"so far")
    for copied in (copy.copy(shared), copy.deepcopy([shared])[0]):
        copied.update(b", and on")
        assert copied.digest() == keccak256(b"so far, and on")
    assert shared.digest() == keccak256(b"so far")


_ENDLESS = """
import itertools, resource
from shardwire import keccak256_many
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (64 << 20), held + (64 << 20)))
try:
    keccak256_many(itertools.repeat(b""))
except MemoryError as error:
    print(error)
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="an address space is filled up to a limit, which only Linux holds a process to"
)
def test_an_iterable_without_an_end_is_a_memory_error() -> None:
    said = subprocess.run([sys.executable, "-c", _ENDLESS], capture_output=True, text=True, check=True).stdout
    assert said.startswith("buffers has more items than there is memory for")
