"""Authenticated encryption with shared keys, for channels whose members all hold them.

A ciphertext is laid out as: version (1 byte), key id (4 bytes), nonce (12 bytes), ciphertext, tag (16 bytes). Version
and key id are authenticated together with the channel id. The key proves that its holder wrote a message, not which
holder did, so there is no `sender_of`.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, NoReturn, Protocol, Self

from shardwire.encryption.stored_keys import KEY_BYTES, read_key_file, read_key_variable, write_key_file
from shardwire.errors import ConfigError, DecryptionError, MissingLibraryError

KEY_ID_BYTES = 4
NONCE_BYTES = 12
TAG_BYTES = 16
OVERHEAD_BYTES = 1 + KEY_ID_BYTES + NONCE_BYTES + TAG_BYTES

_VERSION = 1
_KEYS_MAX = 256
# Separates our associated data and key ids from any other use of the same key.
_DOMAIN = b"shardwire/encryption/1\x00"


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes | memoryview, associated_data: bytes | None) -> bytes: ...


class AeadEncryption(ABC):
    """What the ciphers share; use `ChaCha20Poly1305Encryption` or `AesGcmEncryption`.

    Nonces are random: 2**32 messages under one key keep the chance of a repeated one below 2**-32. Replace the key
    by then: put the new one first and keep the old one behind it for reading.

    Args:
        keys: One key of 32 bytes, or several: the first encrypts, all of them decrypt.

    Raises:
        ConfigError: No key, more than 256, one that is not 32 bytes, the same one twice, or the library
            `cryptography` is missing.
    """

    overhead_bytes: ClassVar[int] = OVERHEAD_BYTES
    _cipher_name: ClassVar[str]

    def __init__(self, keys: bytes | Iterable[bytes]) -> None:
        self._keys = _checked_keys(type(self).__name__, keys)
        # By key id, the encrypting key first.
        self._ciphers = {self._key_id(key): self._make_cipher(key) for key in self._keys}
        if len(self._ciphers) < len(self._keys):
            raise ConfigError(f"{type(self).__name__}: two keys share an id: generate another key")
        self._write_id = next(iter(self._ciphers))
        self._channel_id: str | None = None

    @classmethod
    def from_key_file(cls, path: str | os.PathLike[str]) -> Self:
        """Reads keys as `write_key_file` writes them: one in hexadecimal digits a line, the first encrypts.

        Empty lines and lines that begin with `#` are passed over; a file of exactly 32 bytes is one raw key.

        Raises:
            ConfigError: The file cannot be read or holds something else; its content is never quoted.
        """
        return cls(read_key_file(path))

    @classmethod
    def from_environment(cls, variable: str, *, place: str = "") -> Self:
        """Reads keys from an environment variable: each in hexadecimal digits, with commas or white space between them.

        Args:
            variable: Its name; the first key in it encrypts.
            place: Where the environment is, for errors, as in " of an executor".

        Raises:
            ConfigError: It is not set or holds something else, which is never quoted.
        """
        return cls(read_key_variable(variable, place=place))

    @staticmethod
    def generate_key() -> bytes:
        """A new random key."""
        return os.urandom(KEY_BYTES)

    def write_key_file(self, path: str | os.PathLike[str]) -> None:
        """Writes the keys to a new file that only its owner may read; durable when this returns.

        Raises:
            ConfigError: The file exists already or cannot be written; nothing is left of it then.
        """
        try:
            write_key_file(path, self._keys)
        except OSError as error:
            raise ConfigError(f"key file {os.fspath(path)!r} cannot be written: {error.strerror}") from None

    def bind(self, channel_id: str) -> Self:
        """The same keys for one channel: a message of another channel does not decrypt.

        Raises:
            ConfigError: The id is no text.
        """
        if not isinstance(channel_id, str):
            raise ConfigError(f"channel_id is a {type(channel_id).__name__}: it must be a text")
        bound = type(self).__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._channel_id = channel_id
        return bound

    def encrypt(self, content: bytes) -> bytes:
        """Adds `overhead_bytes`."""
        header = bytes((_VERSION,)) + self._write_id
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._ciphers[self._write_id].encrypt(nonce, content, self._associated_data(header))
        return b"".join((header, nonce, sealed))

    def decrypt(self, payload: bytes) -> bytes:
        """The content of a payload that `encrypt` of a holder of one of the keys made for this channel.

        Raises:
            DecryptionError: Not of this format, not for these keys or this channel, or altered.
        """
        if len(payload) < OVERHEAD_BYTES:
            raise DecryptionError(
                f"{len(payload)} bytes are too few for a ciphertext: it has {OVERHEAD_BYTES} or more",
                reason="too short for a ciphertext",
            )
        header = bytes(payload[: 1 + KEY_ID_BYTES])
        if header[0] != _VERSION:
            raise DecryptionError(
                f"ciphertext version {header[0]} is unknown: this release reads version {_VERSION}",
                reason=f"no ciphertext of version {_VERSION}",
            )
        cipher = self._ciphers.get(header[1:])
        if cipher is None:
            raise DecryptionError(f"no key with id {header[1:].hex()} is held", reason="no key with its id is held")
        view = memoryview(payload)[len(header) :]
        try:
            return cipher.decrypt(bytes(view[:NONCE_BYTES]), view[NONCE_BYTES:], self._associated_data(header))
        except _invalid_tag():
            raise DecryptionError(
                "the ciphertext was altered or belongs to another channel", reason="altered, or of another channel"
            ) from None

    def __repr__(self) -> str:
        if not hasattr(self, "_write_id"):
            # As a debugger finds it whose constructor refused the keys.
            return f"{type(self).__name__}(no keys)"
        ids = ", ".join(key_id.hex() for key_id in self._ciphers)
        return f"{type(self).__name__}(key ids: {ids}, channel_id={self._channel_id!r})"

    def __reduce__(self) -> NoReturn:
        # A pickle ends up in job plans and caches, where keys must not be.
        raise TypeError(f"{type(self).__name__} holds keys and cannot be pickled: hand over the path of the key file")

    @classmethod
    @abstractmethod
    def _make_cipher(cls, key: bytes) -> _Cipher: ...

    @classmethod
    def _key_id(cls, key: bytes) -> bytes:
        # A hash, so that the id says nothing about the key; named by cipher, so that keys do not mix between them.
        return hashlib.sha256(_DOMAIN + cls._cipher_name.encode() + b"\x00" + key).digest()[:KEY_ID_BYTES]

    def _associated_data(self, header: bytes) -> bytes:
        # An unbound encryption differs from one bound to the empty channel id.
        channel = b"\x00" if self._channel_id is None else b"\x01" + self._channel_id.encode("utf-8", "surrogatepass")
        return _DOMAIN + header + channel


class ChaCha20Poly1305Encryption(AeadEncryption):
    """ChaCha20-Poly1305 (RFC 8439); see `AeadEncryption` for keys, format and limits."""

    _cipher_name = "chacha20-poly1305"

    @classmethod
    def _make_cipher(cls, key: bytes) -> _Cipher:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        except ImportError:
            raise _missing_library(cls.__name__) from None
        return ChaCha20Poly1305(key)


class AesGcmEncryption(AeadEncryption):
    """AES-256-GCM (NIST SP 800-38D); see `AeadEncryption` for keys, format and limits."""

    _cipher_name = "aes-256-gcm"

    @classmethod
    def _make_cipher(cls, key: bytes) -> _Cipher:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise _missing_library(cls.__name__) from None
        return AESGCM(key)


def _missing_library(name: str) -> MissingLibraryError:
    return MissingLibraryError(f"{name} needs the library 'cryptography': pip install 'shardwire[crypto]'")


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag


def _checked_keys(owner: str, keys: bytes | Iterable[bytes]) -> tuple[bytes, ...]:
    if not isinstance(keys, Iterable):
        raise ConfigError(f"{owner}: keys is a {type(keys).__name__}: it must be {KEY_BYTES} bytes, or several keys")
    given = (keys,) if isinstance(keys, bytes | bytearray | memoryview) else tuple(keys)
    if not 1 <= len(given) <= _KEYS_MAX:
        raise ConfigError(f"{owner}: {len(given)} keys were given: it takes 1 to {_KEYS_MAX}")
    for position, key in enumerate(given):
        if not isinstance(key, bytes | bytearray | memoryview):
            raise ConfigError(f"{owner}: key {position} is a {type(key).__name__}: it must be bytes")
        if len(key) != KEY_BYTES:
            raise ConfigError(f"{owner}: key {position} has {len(key)} bytes: it must have {KEY_BYTES}")
    checked = tuple(bytes(key) for key in given)
    if len(set(checked)) < len(checked):
        raise ConfigError(f"{owner}: a key was given twice: give each once")
    return checked
