"""Records as they lie on disk under a key: each value sealed by itself, bound to its channel, kind and record key.

A sealed value is laid out as: nonce (12 bytes), ciphertext, tag (16 bytes), ChaCha20-Poly1305 under a key that
HKDF-SHA256 derives from the given one and the salt of the database. Nonces are random: 2**32 values
written to one database keep the chance of a repeated one below 2**-32.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shardwire.errors import ConfigError, MissingLibraryError

if TYPE_CHECKING:
    from shardwire.persistence.protocol import RecordName

KEY_BYTES = 32
SALT_BYTES = 16
NONCE_BYTES = 12
TAG_BYTES = 16
# What a sealed value has beside the value.
SEAL_BYTES = NONCE_BYTES + TAG_BYTES

# Separates our keys and associated data from any other use of the same key.
_DOMAIN = b"shardwire/state/1\x00"
_PROOF = _DOMAIN + b"proof"


def check_key(key: object) -> None:
    """Refuses what is no key, without showing it.

    Raises:
        ConfigError: `key` has not 32 bytes, or the library `cryptography` is missing.
    """
    if not isinstance(key, bytes | bytearray | memoryview):
        raise ConfigError(f"key is a {type(key).__name__}: it must be {KEY_BYTES} bytes")
    if memoryview(key).nbytes != KEY_BYTES:
        raise ConfigError(f"key has {memoryview(key).nbytes} bytes: it must have {KEY_BYTES}")
    RecordCipher(bytes(key), bytes(SALT_BYTES))


class RecordCipher:
    """Seals and opens the values of one database.

    Args:
        key: 32 bytes.
        salt: Of the database.

    Raises:
        MissingLibraryError: `cryptography` is not installed.
    """

    def __init__(self, key: bytes, salt: bytes) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF
        except ImportError:
            raise MissingLibraryError(
                "a key for the state needs the library 'cryptography': pip install 'shardwire[crypto]'"
            ) from None
        self._cipher = ChaCha20Poly1305(HKDF(SHA256(), KEY_BYTES, salt, _DOMAIN).derive(bytes(key)))
        self._invalid = InvalidTag

    def seal(self, channel_id: str, name: RecordName, value: bytes) -> bytes:
        return self._seal(value, _associated_data(channel_id, name))

    def open(self, channel_id: str, name: RecordName, sealed: bytes) -> bytes | None:
        """The value; None where it was altered, or belongs to another record."""
        return self._open(sealed, _associated_data(channel_id, name))

    def proof(self) -> bytes:
        """What tells later whether a key is the one of the database."""
        return self._seal(b"", _PROOF)

    def proves(self, proof: bytes) -> bool:
        """Whether `proof` was made with the same key."""
        return self._open(proof, _PROOF) is not None

    def _seal(self, value: bytes, associated_data: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value, associated_data)

    def _open(self, sealed: bytes, associated_data: bytes) -> bytes | None:
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated_data)
        except (self._invalid, ValueError):
            # ValueError: too short for a nonce.
            return None


def _associated_data(channel_id: str, name: RecordName) -> bytes:
    """Unambiguous: the lengths of what is in front stand before it."""
    channel, kind = (text.encode("utf-8", "surrogatepass") for text in (channel_id, name[0]))
    return b"".join((_DOMAIN, len(channel).to_bytes(4, "big"), channel, len(kind).to_bytes(4, "big"), kind, name[1]))
