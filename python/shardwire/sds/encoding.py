"""Compact bytes for stored records: nested tuples of integers, strings, bytes and None, and nothing executable."""

from __future__ import annotations

from collections.abc import Sequence

_NONE, _INTEGER, _NEGATIVE, _BYTES, _TEXT, _LIST = range(6)
_DEPTH_MAX = 8


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def pack(value: object) -> bytes:
    """The bytes of `value`: None, an int, str, bytes or a sequence of these."""
    if value is None:
        return bytes((_NONE,))
    if isinstance(value, int):
        return bytes((_INTEGER,)) + _varint(value) if value >= 0 else bytes((_NEGATIVE,)) + _varint(-value)
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return bytes((_TEXT,)) + _varint(len(data)) + data
    if isinstance(value, bytes):
        return bytes((_BYTES,)) + _varint(len(value)) + value
    if isinstance(value, Sequence):
        return bytes((_LIST,)) + _varint(len(value)) + b"".join(map(pack, value))
    raise TypeError(f"{type(value).__name__} has no stored form")


class _Reader:
    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, depth: int = 0) -> object:
        kind = self._take(1)[0]
        if kind == _NONE:
            return None
        number = self._varint()
        if kind == _INTEGER:
            return number
        if kind == _NEGATIVE:
            return -number
        if kind == _BYTES:
            return self._take(number)
        if kind == _TEXT:
            return self._take(number).decode("utf-8", "surrogatepass")
        if kind == _LIST and depth < _DEPTH_MAX and number <= len(self._data):
            return tuple(self.value(depth + 1) for _ in range(number))
        raise ValueError("unknown kind of value")

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise ValueError("truncated")
        data = self._data[self._at : end]
        self._at = end
        return data

    def done(self) -> bool:
        return self._at == len(self._data)


def unpack(data: bytes) -> object:
    """What `pack` was given, sequences as tuples.

    Raises:
        ValueError: The bytes are not what `pack` makes.
    """
    reader = _Reader(data)
    value = reader.value()
    if not reader.done():
        raise ValueError("trailing bytes")
    return value
