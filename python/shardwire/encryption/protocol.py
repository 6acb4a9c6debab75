"""The encryption hook (Logos 003 Encryption)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, runtime_checkable


@runtime_checkable
class Encryption(Protocol):
    """Turns every message of a channel into ciphertext and back; both methods may be plain or `async`.
    Messages keep their order, so each waits for those before it: an `async` method that has not returned within 60 s
    counts as failed.

    Optional members, used where present: `overhead_bytes: int`, what `encrypt` adds (measured once where absent);
    `bind(channel_id) -> Encryption`, called once by `create_reliable_channel`, whose result is used instead;
    `sender_of(payload) -> str | None`, the authenticated sender of a ciphertext.
    """

    def encrypt(self, content: bytes) -> bytes | Awaitable[bytes]:
        """Returns the ciphertext of `content`. Whatever it raises fails the message: plaintext never leaves."""

    def decrypt(self, payload: bytes) -> bytes | Awaitable[bytes]:
        """Returns what `payload` was made of.

        Raises:
            DecryptionError: The payload is not for any of our keys, or was altered.
        """
