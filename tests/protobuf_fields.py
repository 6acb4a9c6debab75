"""Flat protobuf messages field by field, read and written by hand, so that tests need no code of the project for it."""

from __future__ import annotations

Value = int | bytes


def varint(value: int) -> bytes:
    """A number in groups of seven bits, the least significant first."""
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])


def field(number: int, value: Value) -> bytes:
    """One field: a number, or bytes with their length before them."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def fields_of(data: bytes) -> list[tuple[int, Value]]:
    """The fields of a valid message in their order, each with its number."""
    found: list[tuple[int, Value]] = []
    position = 0

    def read() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(data):
        tag = read()
        value: Value = read()
        if tag & 7 == 2:
            position += int(value)
            value = data[position - int(value) : position]
        found.append((tag >> 3, value))
    return found
