"""The check of ciphers: ours hold every promise, and of broken ones the promise is named."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import os
from typing import Any

import pytest

from shardwire.encryption import AesGcmEncryption, ChaCha20Poly1305Encryption
from shardwire.errors import DecryptionError
from shardwire.testing import ENCRYPTION_PROMISES, BrokenPromiseError, CheckReport, check_encryption

NAMES = [promise.name for promise in ENCRYPTION_PROMISES]
OVERHEAD_BYTES = 24


class Unbound:
    """As simple as one can be."""

    overhead_bytes = OVERHEAD_BYTES

    def __init__(self, key: bytes = b"ours", channel_id: str = "") -> None:
        self.key = key
        self.channel_id = channel_id

    def encrypt(self, content: bytes) -> Any:
        nonce = os.urandom(8)
        sealed = self.masked(nonce, content)
        return nonce + self.tag(nonce + sealed) + sealed

    def decrypt(self, payload: bytes) -> Any:
        nonce, tag, sealed = payload[:8], payload[8:OVERHEAD_BYTES], payload[OVERHEAD_BYTES:]
        if tag != self.tag(nonce + sealed):
            raise DecryptionError("altered")
        return self.masked(nonce, sealed)

    def sender_of(self, payload: bytes) -> Any:
        return None

    def tag(self, data: bytes) -> bytes:
        return hmac.digest(self.key, self.channel_id.encode() + data, "sha256")[:16]

    def masked(self, nonce: bytes, content: bytes) -> bytes:
        mask = hashlib.shake_256(self.key + nonce).digest(len(content))
        return (int.from_bytes(content, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(content), "big")


class Sealing(Unbound):
    """With every optional member."""

    def bind(self, channel_id: str) -> Any:
        return type(self)(self.key, channel_id)


class Bare:
    """Nothing that is optional, and both methods async."""

    def __init__(self) -> None:
        self.inner = Sealing()

    async def encrypt(self, content: bytes) -> bytes:
        await asyncio.sleep(0)
        return self.inner.encrypt(content)  # type: ignore[no-any-return]

    async def decrypt(self, payload: bytes) -> bytes:
        return self.inner.decrypt(payload)  # type: ignore[no-any-return]


class Deaf(Sealing):
    decrypt = None  # type: ignore[assignment]


class Uncounted(Sealing):
    overhead_bytes = -1


class Padding(Sealing):
    def decrypt(self, payload: bytes) -> Any:
        return super().decrypt(payload).rstrip(b"\0")


class Short(Sealing):
    def encrypt(self, content: bytes) -> Any:
        if len(content) > 65_535:
            raise ValueError("too long")
        return super().encrypt(content)


class Hexadecimal(Sealing):
    def encrypt(self, content: bytes) -> Any:
        return super().encrypt(content).hex()


class Listing(Sealing):
    def decrypt(self, payload: bytes) -> Any:
        return list(super().decrypt(payload))


class Signing(Sealing):
    def masked(self, nonce: bytes, content: bytes) -> bytes:
        return content


class OwnKey(Unbound):
    def __init__(self, key: bytes = b"ours") -> None:
        super().__init__(key + os.urandom(8))


class Ratchet(Unbound):
    """Reads nothing that was written before what it read last."""

    numbers = itertools.count(1)
    read = 0

    def encrypt(self, content: bytes) -> Any:
        return next(self.numbers).to_bytes(8, "big") + super().encrypt(content)

    def decrypt(self, payload: bytes) -> Any:
        content = super().decrypt(payload[8:])
        number = int.from_bytes(payload[:8], "big")
        if number <= self.read:
            raise DecryptionError("of the past")
        self.read = number
        return content

    overhead_bytes = OVERHEAD_BYTES + 8


class Believing(Sealing):
    def decrypt(self, payload: bytes) -> Any:
        return self.masked(payload[:8], payload[OVERHEAD_BYTES:])


class OtherErrors(Sealing):
    def decrypt(self, payload: bytes) -> Any:
        try:
            return super().decrypt(payload)
        except DecryptionError:
            raise ValueError("altered") from None


class OneForAll(Sealing):
    def __init__(self, key: bytes = b"ours", channel_id: str = "") -> None:
        super().__init__(b"the same", channel_id)


class Understating(Sealing):
    overhead_bytes = OVERHEAD_BYTES - 1


class BindsNothing(Sealing):
    def bind(self, channel_id: str) -> Any:
        return None


class BindsApart(Sealing):
    def bind(self, channel_id: str) -> Any:
        return Sealing(self.key, channel_id + os.urandom(8).hex())


class AsyncSender(Sealing):
    async def sender_of(self, payload: bytes) -> Any:
        return "alice"


class SenderAsBytes(Sealing):
    def sender_of(self, payload: bytes) -> Any:
        return b"alice"


BROKEN: list[tuple[str, type[Unbound]]] = [
    ("members", Deaf),
    ("members", Uncounted),
    ("round-trip", Padding),
    ("round-trip", Short),
    ("bytes", Hexadecimal),
    ("bytes", Listing),
    ("content-hidden", Signing),
    ("every-participant", OwnKey),
    ("any-order", Ratchet),
    ("altered", Believing),
    ("altered", OtherErrors),
    ("other-keys", OneForAll),
    ("overhead", Understating),
    ("bind", BindsNothing),
    ("bind", BindsApart),
    ("sender-of", AsyncSender),
    ("sender-of", SenderAsBytes),
]


def check(kind: Any, *keys: bytes) -> CheckReport:
    return asyncio.run(check_encryption(lambda: kind(*keys[:1]), stranger=lambda: kind(*keys[1:])))


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("promise", "kind"), BROKEN, ids=[kind.__name__ for _, kind in BROKEN])
def test_a_broken_promise_of_a_cipher_is_named(promise: str, kind: type[Unbound]) -> None:
    with pytest.raises(BrokenPromiseError, match=f"^{kind.__name__} breaks ") as caught:
        check(kind, b"ours", b"theirs")
    assert caught.value.promise.name == promise, str(caught.value)


def test_every_promise_of_a_cipher_has_one_that_breaks_it() -> None:
    assert {promise for promise, _ in BROKEN} == set(NAMES)


def test_a_right_cipher_holds_all_of_them() -> None:
    report = check(Sealing, b"ours", b"theirs")
    assert [promise.name for promise in report.held] == NAMES
    assert report.passed_over == ()


def test_what_is_optional_is_passed_over() -> None:
    report = asyncio.run(check_encryption(Bare))
    assert {promise.name for promise, _ in report.passed_over} == {"bind", "overhead", "sender-of", "other-keys"}
    assert len(report.held) == len(NAMES) - 4


@pytest.mark.parametrize("kind", [AesGcmEncryption, ChaCha20Poly1305Encryption])
def test_our_ciphers_hold_every_promise(kind: Any) -> None:
    report = check(kind, kind.generate_key(), kind.generate_key())
    assert [promise.name for promise, _ in report.passed_over] == ["sender-of"]
