"""Calls of the application's cipher, plain or asynchronous, and checks of what it gives."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

from shardwire.channel.hooks import CANCEL_AGAIN_S, awaited, end_tasks, frames
from shardwire.encryption.protocol import Encryption
from shardwire.errors import ConfigError

# What a cipher may take for one message.
CIPHER_TIMEOUT_MS = 60_000


async def await_cipher(result: Awaitable[bytes]) -> bytes:
    """What an asynchronous cipher gives; one that swallows its cancellation is left behind, in a task of its own.

    Raises:
        TimeoutError: It took longer than `CIPHER_TIMEOUT_MS`: the messages behind this one wait for it.
    """
    task = asyncio.create_task(awaited(result), name="a call of the encryption")
    task.add_done_callback(_retrieve)
    try:
        done, _ = await asyncio.wait({task}, timeout=CIPHER_TIMEOUT_MS / 1000)
    finally:
        await end_tasks([task], CANCEL_AGAIN_S)
    if not done and (not task.done() or task.cancelled()):
        raise TimeoutError
    return task.result()


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Nobody is warned of what a call ended with that nobody waits for."""
    if not task.cancelled():
        task.exception()


async def encrypted(encryption: Encryption, content: bytes) -> bytes:
    """What a cipher makes of a content.

    Raises:
        ConfigError: It gave no bytes; whatever else it raises goes through.
        TimeoutError: It took longer than `CIPHER_TIMEOUT_MS`.
    """
    ciphertext = encryption.encrypt(content)
    if inspect.isawaitable(ciphertext):
        ciphertext = await await_cipher(ciphertext)
    return as_bytes("encrypt", ciphertext)


def as_bytes(call: str, given: object) -> bytes:
    """What a call of a cipher gave.

    Raises:
        ConfigError: It is no buffer. `bytes` would make some of a list, and any amount of a number.
    """
    if type(given) is bytes:
        return given
    try:
        return bytes(memoryview(given))  # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(f"{call} of the encryption gave a {type(given).__name__}: it must give bytes") from None


def as_sender(given: object) -> str | None:
    """What `sender_of` of a cipher gave.

    Raises:
        ConfigError: It is no text, or holds half of a surrogate pair, which no id does.
    """
    if given is None:
        return None
    if isinstance(given, str):
        if given.isascii() or not any("\ud800" <= character <= "\udfff" for character in given):
            return given
        kind = "text with half of a surrogate pair"
    else:
        kind = type(given).__name__
        if inspect.iscoroutine(given):
            given.close()
    raise ConfigError(f"sender_of of the encryption gave a {kind}: it must be a plain method that gives a str, or None")


def told_of_cipher(error: BaseException, but: str) -> str:
    """An error of a cipher, to be told: what it says may quote a message, so its type is, and where it was raised.

    Args:
        error: The error; one of `as_bytes` or `as_sender` is told as it is.
        but: The file that called it.
    """
    return str(error) if type(error) is ConfigError else f"{type(error).__name__}{frames(error, but, __file__)}"
