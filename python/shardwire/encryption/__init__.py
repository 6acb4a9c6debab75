"""Encryption of everything a channel sends: the `Encryption` protocol and two ciphers (extra `crypto`)."""

from __future__ import annotations

from shardwire.encryption.aead import AesGcmEncryption, ChaCha20Poly1305Encryption
from shardwire.encryption.protocol import Encryption
from shardwire.encryption.stored_keys import read_key_file, read_key_variable

__all__ = ["AesGcmEncryption", "ChaCha20Poly1305Encryption", "Encryption", "read_key_file", "read_key_variable"]
