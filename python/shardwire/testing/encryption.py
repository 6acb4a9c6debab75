"""The check of a cipher."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

from shardwire.channel.cipher_calls import as_bytes, await_cipher
from shardwire.encryption.protocol import Encryption
from shardwire.errors import ConfigError, DecryptionError
from shardwire.testing.promises import CheckReport, Promise, Trial, is_awaitable, raised, require_factory, shown

_SAYS = "docs/howto/keys.md, A cipher of your own"

ENCRYPTION_PROMISES = (
    Promise("members", "it has encrypt and decrypt, and overhead_bytes is a count where it has one", _SAYS),
    Promise("round-trip", "decrypt gives what encrypt was given, of any bytes and any length", _SAYS),
    Promise("bytes", "encrypt and decrypt give bytes", _SAYS),
    Promise("content-hidden", "the content does not stand in what encrypt gives", _SAYS),
    Promise("every-participant", "another instance with the same keys decrypts, also one made later", _SAYS),
    Promise("any-order", "messages decrypt in any order, though some never come", _SAYS),
    Promise("altered", "decrypt raises DecryptionError for what was altered, cut off, or never encrypted", _SAYS),
    Promise("other-keys", "decrypt raises DecryptionError for what other keys encrypted", _SAYS),
    Promise("overhead", "encrypt adds at most overhead_bytes", _SAYS),
    Promise("bind", "bind gives an Encryption, and those bound to one channel read one another", _SAYS),
    Promise("sender-of", "sender_of is a plain method that gives a text or None for what decrypts", _SAYS),
)

LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 1_000, 4_095, 4_096, 100_000, 150_000)
# Shorter ones may stand in a ciphertext by chance.
HIDDEN_BYTES = 32
MESSAGES_OUT_OF_ORDER = 10


async def check_encryption(
    create: Callable[[], Encryption],
    *,
    stranger: Callable[[], Encryption] | None = None,
    channel_id: str = "check",
) -> CheckReport:
    """Tries every promise that a channel needs of a cipher (Logos 003 Encryption).

    Args:
        create: Makes one with the keys of the channel, as each participant does.
        stranger: Makes one with other keys; None leaves `other-keys` out.
        channel_id: What it is bound to, where it has `bind`.

    Returns:
        What was tried.

    Raises:
        BrokenPromiseError: A promise is broken.
        ConfigError: `create` makes nothing.
    """
    require_factory("create", create)
    trial = Trial(ENCRYPTION_PROMISES)
    check = _Check(trial, create, channel_id)
    check.make()
    await check.round_trip()
    await check.others()
    await check.refusals(stranger)
    await check.optional_members()
    return trial.report()


class _Check:
    def __init__(self, trial: Trial, create: Callable[[], Encryption], channel_id: str) -> None:
        self._trial = trial
        self._create = create
        self._channel_id = channel_id
        # The same contents at each check.
        self._rng = random.Random(1)
        # One that is used, and another as another participant has it.
        self._cipher: Any = None
        self._reader: Any = None

    def make(self) -> None:
        trial = self._trial
        with trial.of("members"):
            trial.did("making it")
            unbound: Any = self._create()
            trial.made(unbound)
            self._require_members(unbound)
            overhead = getattr(unbound, "overhead_bytes", None)
            is_count = isinstance(overhead, int) and not isinstance(overhead, bool) and overhead >= 0
            trial.require(
                overhead is None or is_count, "overhead_bytes that is an int of at least 0, or none", overhead
            )
        if hasattr(unbound, "bind"):
            with trial.of("bind"):
                self._cipher = self._bound(unbound)
                self._reader = self._bound(self._create())
        else:
            trial.pass_over("bind", "it has no bind()")
            self._cipher = unbound

    async def round_trip(self) -> None:
        trial = self._trial
        with trial.of("bytes"):
            payload = await self._encrypt(self._cipher, b"content")
            await self._decrypt(self._cipher, payload)
        with trial.of("round-trip"):
            for length in LENGTHS:
                await self._exchange(self._cipher, self._cipher, self._rng.randbytes(length))
            for byte in (b"\0", b"\xff", b"a"):
                await self._exchange(self._cipher, self._cipher, byte * 100)
        with trial.of("content-hidden"):
            content = self._rng.randbytes(HIDDEN_BYTES)
            payload = await self._encrypt(self._cipher, content)
            trial.require(content not in payload, "that it is not in the ciphertext", "a ciphertext with it inside")

    async def others(self) -> None:
        trial = self._trial
        if self._reader is not None:
            with trial.of("bind"):
                await self._exchange(self._cipher, self._reader, b"content", "by another one bound to that channel")
        with trial.of("every-participant"):
            payload = await self._encrypt(self._cipher, b"content")
            for writer, reader in ((self._cipher, self._another()), (self._another(), self._cipher)):
                await self._exchange(writer, reader, b"content", "by another instance")
            trial.did("encrypt, and decrypt by an instance made later")
            content = await self._decrypt(self._another(), payload)
            trial.require(content == b"content", shown(b"content"), content)
        with trial.of("any-order"):
            contents = [b"content %d" % number for number in range(MESSAGES_OUT_OF_ORDER)]
            payloads = [await self._encrypt(self._cipher, content) for content in contents]
            reader = self._another()
            for number in reversed(range(0, MESSAGES_OUT_OF_ORDER, 3)):
                trial.did(f"encrypt of {MESSAGES_OUT_OF_ORDER} messages, and decrypt of every third, the last first")
                content = await self._decrypt(reader, payloads[number])
                trial.require(content == contents[number], shown(contents[number]), content)

    async def refusals(self, stranger: Callable[[], Encryption] | None) -> None:
        trial = self._trial
        with trial.of("altered"):
            payload = await self._encrypt(self._cipher, b"content")
            for position in range(len(payload)):
                altered = bytearray(payload)
                altered[position] ^= 1 << position % 8
                await self._refused(f"decrypt of a ciphertext of which byte {position} was altered", bytes(altered))
            for length in range(len(payload)):
                await self._refused(f"decrypt of the first {length} of {len(payload)} bytes", payload[:length])
            await self._refused("decrypt of a ciphertext with a byte behind it", payload + b"\0")
            await self._refused("decrypt of bytes that were never encrypted", self._rng.randbytes(200))
        if stranger is None:
            trial.pass_over("other-keys", "no stranger was given")
            return
        with trial.of("other-keys"):
            other: Any = stranger()
            if hasattr(other, "bind"):
                other = other.bind(self._channel_id)
            payload = await self._encrypt(other, b"content")
            await self._refused("decrypt of what the stranger encrypted", payload)

    async def optional_members(self) -> None:
        trial, cipher = self._trial, self._cipher
        overhead = getattr(cipher, "overhead_bytes", None)
        if overhead is None:
            trial.pass_over("overhead", "it has no overhead_bytes: a channel measures it")
        else:
            with trial.of("overhead"):
                for length in LENGTHS:
                    payload = await self._encrypt(cipher, bytes(length))
                    trial.require(
                        len(payload) <= length + overhead,
                        f"at most {length + overhead} bytes, with an overhead_bytes of {overhead}",
                        f"{len(payload)} bytes",
                    )
        if not hasattr(cipher, "sender_of"):
            trial.pass_over("sender-of", "it has no sender_of()")
            return
        with trial.of("sender-of"):
            payload = await self._encrypt(self._cipher, b"content")
            for reader in (self._cipher, self._another()):
                trial.did("sender_of of a ciphertext")
                sender: object = reader.sender_of(payload)
                trial.require(not is_awaitable(sender), "a plain method", "what an async one gives")
                trial.require(sender is None or isinstance(sender, str), "a str, or None", sender)

    # --- steps ---

    def _require_members(self, cipher: object) -> None:
        for name in ("encrypt", "decrypt"):
            self._trial.require(callable(getattr(cipher, name, None)), f"that it has {name}()", f"no {name}()")

    def _bound(self, cipher: Any) -> Any:
        self._trial.did(f"bind({self._channel_id!r})")
        bound = cipher.bind(self._channel_id)
        self._trial.require(not is_awaitable(bound), "a plain method", "what an async one gives")
        self._require_members(bound)
        return bound

    def _another(self) -> Any:
        cipher: Any = self._create()
        return cipher.bind(self._channel_id) if hasattr(cipher, "bind") else cipher

    async def _exchange(self, writer: Any, reader: Any, content: bytes, by: str = "") -> None:
        payload = await self._encrypt(writer, content)
        self._trial.did(f"encrypt of {shown(content)}, and decrypt of that {by}".rstrip())
        found = await self._decrypt(reader, payload)
        self._trial.require(found == content, shown(content), found)

    async def _encrypt(self, cipher: Any, content: bytes) -> bytes:
        self._trial.did(f"encrypt of {shown(content)}")
        given = cipher.encrypt(content)
        return self._as_bytes("encrypt", await await_cipher(given) if inspect.isawaitable(given) else given)

    async def _decrypt(self, cipher: Any, payload: bytes) -> bytes:
        given = cipher.decrypt(payload)
        return self._as_bytes("decrypt", await await_cipher(given) if inspect.isawaitable(given) else given)

    def _as_bytes(self, call: str, given: object) -> bytes:
        try:
            return as_bytes(call, given)
        except ConfigError:
            raise self._trial.breaks("bytes", "bytes", f"a {type(given).__name__} of {call}") from None

    async def _refused(self, done: str, payload: bytes) -> None:
        self._trial.did(done)
        try:
            found = await self._decrypt(self._cipher, payload)
        except DecryptionError:
            return
        except Exception as error:
            self._trial.require(False, "a DecryptionError", raised(error))
        else:
            self._trial.require(False, "a DecryptionError", f"{shown(found)} from decrypt")
