"""The fields of stored records as JSON, the quickest encoder at hand: lists, integers, text, None, and bytes as hex."""

from __future__ import annotations

import json

_BYTES_KEY = "x"


def _encode_bytes(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {_BYTES_KEY: value.hex()}
    raise TypeError(f"{type(value).__name__} has no stored form")


def _decode_bytes(value: dict[str, str]) -> bytes:
    return bytes.fromhex(value[_BYTES_KEY])


_encoder = json.JSONEncoder(separators=(",", ":"), default=_encode_bytes)
_decoder = json.JSONDecoder(object_hook=_decode_bytes)


def pack(value: object) -> bytes:
    """The bytes of `value`: None, an int, str, bytes or a sequence of these."""
    return _encoder.encode(value).encode()


def unpack(data: bytes) -> object:
    """What `pack` was given, sequences as lists.

    Raises:
        ValueError: The bytes are not what `pack` makes.
    """
    try:
        return _decoder.decode(data.decode())
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError("not a stored record") from error
