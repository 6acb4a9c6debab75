"""Datagrams on the wire (`proto/udp_datagram.proto`), read as what a stranger may have sent."""

from __future__ import annotations

import struct
from dataclasses import dataclass

HELLO = 1
FRAGMENT = 2
STATUS = 3

# The bits of `held`.
FRAGMENTS_MAX = 64
# Everything of a FRAGMENT beside its data: `to`, `sender`, `kind`, `number`, `index`, `count`, tag and length.
FRAGMENT_HEADER_BYTES = 9 + 9 + 2 + 5 + 2 + 2 + 4

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Field number -> name, wire type.
_FIELDS = {
    1: ("to", _FIXED64),
    2: ("sender", _FIXED64),
    3: ("kind", _VARINT),
    4: ("number", _FIXED32),
    5: ("index", _VARINT),
    6: ("count", _VARINT),
    7: ("data", _BYTES),
    8: ("held", _FIXED64),
    9: ("token", _FIXED64),
    10: ("answer", _VARINT),
}
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_VARINT_BITS_MAX = 63


@dataclass(slots=True)
class Datagram:
    """One datagram; fields as in the `.proto`."""

    to: int = 0
    sender: int = 0
    kind: int = 0
    number: int = 0
    index: int = 0
    count: int = 0
    data: bytes = b""
    held: int = 0
    token: int = 0
    answer: int = 0

    @property
    def is_valid(self) -> bool:
        """Whether its fields make sense together; a datagram of a kind that we do not know makes none."""
        if not self.sender:
            return False
        if self.kind == HELLO:
            return self.answer <= 1
        if self.kind == FRAGMENT:
            return bool(self.data) and self.index < self.count <= FRAGMENTS_MAX
        return self.kind == STATUS

    def encode(self) -> bytes:
        """The bytes, as every protobuf library writes them."""
        parts: list[bytes] = []
        for tag, value in (((1 << 3) | _FIXED64, self.to), ((2 << 3) | _FIXED64, self.sender)):
            if value:
                parts += (bytes((tag,)), _U64.pack(value))
        parts.append(bytes(((3 << 3) | _VARINT, self.kind)))
        if self.number:
            parts += (bytes(((4 << 3) | _FIXED32,)), _U32.pack(self.number))
        if self.index:
            parts.append(bytes(((5 << 3) | _VARINT, self.index)))
        if self.count:
            parts.append(bytes(((6 << 3) | _VARINT, self.count)))
        if self.data:
            parts += (bytes(((7 << 3) | _BYTES,)), _varint(len(self.data)), self.data)
        for tag, value in (((8 << 3) | _FIXED64, self.held), ((9 << 3) | _FIXED64, self.token)):
            if value:
                parts += (bytes((tag,)), _U64.pack(value))
        if self.answer:
            parts.append(bytes(((10 << 3) | _VARINT, 1)))
        return b"".join(parts)


def decode(data: bytes) -> Datagram | None:
    """Reads a datagram; None where it is none of ours. Fields that we do not know are passed over."""
    datagram = Datagram()
    end = len(data)
    at = 0
    while at < end:
        # All fields that we know have tags of one byte.
        tag = data[at]
        if tag < 0x80:
            at += 1
        else:
            found = _read_varint(data, at)
            if found is None:
                return None
            tag, at = found
        number, wire = tag >> 3, tag & 7
        value: int | bytes
        if wire == _FIXED64:
            if at + 8 > end:
                return None
            value = _U64.unpack_from(data, at)[0]
            at += 8
        elif wire == _FIXED32:
            if at + 4 > end:
                return None
            value = _U32.unpack_from(data, at)[0]
            at += 4
        elif wire in (_VARINT, _BYTES):
            found = _read_varint(data, at)
            if found is None:
                return None
            value, at = found
            if wire == _BYTES:
                length = value
                if length > end - at:
                    return None
                value = data[at : at + length]
                at += length
        else:
            return None
        known = _FIELDS.get(number)
        if known is None:
            if not number:
                return None
            continue
        name, wanted = known
        if wire != wanted:
            return None
        setattr(datagram, name, value)
    return datagram if datagram.is_valid else None


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _read_varint(data: bytes, at: int) -> tuple[int, int] | None:
    value, shift = 0, 0
    while at < len(data) and shift <= _VARINT_BITS_MAX:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    return None
