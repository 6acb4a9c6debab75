"""Arrow capsules that were not made as the protocol says: a clear error, and everything released exactly once."""

from __future__ import annotations

import ctypes
import gc
import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwire import _native, keccak256, keccak256_many

Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Schema(ctypes.Structure):
    """`struct ArrowSchema`."""


class Array(ctypes.Structure):
    """`struct ArrowArray`."""


Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", Release),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", Release),
    ("private_data", ctypes.c_void_p),
]

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Producer:
    """A binary array of `rows` whose structures count how often they are released.

    Its capsules have no destructors, as one whose maker releases the structures: what nobody took over is not released.
    """

    def __init__(
        self, rows: list[bytes], schema_name: bytes = b"arrow_schema", array_name: bytes = b"arrow_array"
    ) -> None:
        ends = [sum(len(row) for row in rows[:count]) for count in range(len(rows) + 1)]
        self.offsets = (ctypes.c_int32 * len(ends))(*ends)
        self.values = ctypes.create_string_buffer(b"".join(rows))
        self.buffers = (ctypes.c_void_p * 3)(None, ctypes.addressof(self.offsets), ctypes.addressof(self.values))
        self.releases = {"schema": 0, "array": 0}
        self.release_schema = Release(lambda at: self._release("schema", Schema.from_address(at)))
        self.release_array = Release(lambda at: self._release("array", Array.from_address(at)))
        self.schema = Schema(format=b"z", name=b"", release=self.release_schema)
        buffers = ctypes.cast(self.buffers, ctypes.POINTER(ctypes.c_void_p))
        self.array = Array(length=len(rows), n_buffers=3, buffers=buffers, release=self.release_array)
        self.names = (schema_name, array_name)

    def _release(self, what: str, structure: Schema | Array) -> None:
        self.releases[what] += 1
        structure.release = Release()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        schema, array = (ctypes.byref(structure) for structure in (self.schema, self.array))
        addresses = [ctypes.cast(at, ctypes.c_void_p).value for at in (schema, array)]
        capsules = [new_capsule(at, name, None) for at, name in zip(addresses, self.names, strict=True)]
        return capsules[0], capsules[1]


ROWS = [b"one", b"", b"three"]
DIGESTS = [keccak256(row) for row in ROWS]


def test_an_array_is_released_once_when_the_call_is_over() -> None:
    producer = Producer(ROWS)
    assert keccak256_many(producer).to_pylist() == DIGESTS
    assert producer.releases == {"schema": 0, "array": 1}
    assert not producer.array.release


def test_an_array_is_released_when_what_holds_it_is_gone() -> None:
    producer = Producer(ROWS)
    chunks = pa.chunked_array([pa.array(producer)])
    assert producer.releases["array"] == 0
    digests = keccak256_many(chunks)
    del chunks
    gc.collect()
    assert producer.releases["array"] == 1
    assert digests.to_pylist() == DIGESTS


def test_capsules_of_other_names_are_left_alone() -> None:
    for names in ((b"arrow_schema", b"array"), (b"schema", b"arrow_array"), (b"arrow_array", b"arrow_schema")):
        producer = Producer(ROWS, *names)
        with pytest.raises(ValueError, match="PyCapsule_GetPointer called with incorrect name"):
            keccak256_many(producer)
        assert producer.releases == {"schema": 0, "array": 0}


@pytest.mark.parametrize("returned", [None, (), (1, 2), [], (b"", b"", b"")])
def test_what_is_no_pair_of_capsules_is_refused(returned: object) -> None:
    class Odd:
        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return returned

    with pytest.raises((TypeError, ValueError)):
        keccak256_many(Odd())


def test_an_error_of_the_producer_is_what_is_raised() -> None:
    class Failing:
        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            raise LookupError("the table is gone")

    with pytest.raises(LookupError, match="the table is gone"):
        keccak256_many(Failing())
    with pytest.raises(LookupError, match="the table is gone"):
        _native.arrow_keccak256(Failing())


def test_an_array_is_given_once() -> None:
    producer = Producer(ROWS)
    capsules = producer.__arrow_c_array__()

    class Again:
        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return capsules

    assert keccak256_many(Again()).to_pylist() == DIGESTS
    with pytest.raises(ValueError, match="an array of type Binary was released"):
        keccak256_many(Again())
    producer.release_schema(ctypes.addressof(producer.schema))
    with pytest.raises(ValueError, match="the schema was released"):
        keccak256_many(Again())
    assert producer.releases == {"schema": 1, "array": 1}


@given(st.binary(max_size=12).filter(lambda text: 0 not in text))
@example(b"w:-1")
@example(b"+w:-1")
@example(b"+s")
@example(b"+l")
@example(b"+m")
@example(b"+r")
@example(b"+ud:0,0")
@example(b"d:99,-99,7")
@example(b"tsu:nowhere")
@example(b"\xff")
def test_any_format_is_read_or_refused(text: bytes) -> None:
    producer = Producer(ROWS)
    producer.schema.format = text
    try:
        keccak256_many(producer)
    except (TypeError, ValueError):
        pass
    else:
        assert text == b"z"
    assert producer.releases == {"schema": 0, "array": 1}


LIES = {
    "length": (-1, -(1 << 63), 1 << 31, 1 << 62, (1 << 63) - 1),
    "offset": (-1, -(1 << 63)),
    "null_count": (-2, 1, 4, 1 << 62),
    "n_buffers": (-1, 0, 1, 2, 4, 1 << 62),
    "n_children": (-1, 1, 1 << 62),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in LIES.items() for value in values])
def test_numbers_that_no_such_array_has_are_refused(field: str, value: int) -> None:
    producer = Producer(ROWS)
    setattr(producer.array, field, value)
    with pytest.raises(ValueError, match=f"an array of type Binary .*{value if value != 1 << 31 else 'rows'}"):
        keccak256_many(producer)
    assert producer.releases == {"schema": 0, "array": 1}


@given(st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=4, max_size=4), st.integers(0, 8))
def test_offsets_name_what_is_there_or_are_refused(offsets: list[int], last: int) -> None:
    producer = Producer(ROWS)
    # The last one is what says how many bytes there are.
    producer.offsets[:] = [*offsets[:3], last]
    values = b"".join(ROWS)
    ascends = 0 <= offsets[0] <= offsets[1] <= offsets[2] <= last
    if ascends:
        rows = [values[start:end] for start, end in itertools.pairwise([*offsets[:3], last])]
        assert keccak256_many(producer).to_pylist() == [keccak256(row) for row in rows]
    else:
        with pytest.raises(ValueError, match=r"[Oo]ffset"):
            keccak256_many(producer)
    assert producer.releases == {"schema": 0, "array": 1}


class Stream:
    """Hands out one capsule."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.capsule


def test_a_stream_that_fails_says_why() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [b"one"]})
        raise LookupError("the disk is gone")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.binary()}), batches())
    with pytest.raises(ValueError, match="the disk is gone"):
        keccak256_many(Stream(reader.__arrow_c_stream__()))


def test_a_stream_is_read_once_and_by_its_name() -> None:
    stream = Stream(pa.chunked_array([ROWS]).__arrow_c_stream__())
    assert keccak256_many(stream).to_pylist() == DIGESTS
    with pytest.raises(ValueError, match="the stream was released"):
        keccak256_many(stream)
    schema = pa.schema({"a": pa.binary()}).__arrow_c_schema__()
    with pytest.raises(ValueError, match="PyCapsule_GetPointer called with incorrect name"):
        keccak256_many(Stream(schema))
    with pytest.raises(TypeError):
        keccak256_many(Stream(None))
