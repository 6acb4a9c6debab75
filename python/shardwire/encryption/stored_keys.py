"""Keys in files and environment variables; what they hold is in no error."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from shardwire.config.checks import check_path
from shardwire.durable_files import sync_directory
from shardwire.errors import ConfigError

KEY_BYTES = 32


def read_key_file(path: str | os.PathLike[str]) -> tuple[bytes, ...]:
    """The keys in a file: one in hexadecimal digits a line, or one raw key, which is a file of exactly 32 bytes.

    Empty lines and lines that begin with `#` are passed over.

    Raises:
        ConfigError: The file cannot be read or holds something else.
    """
    check_path("path", path)
    name = os.fspath(path)
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"key file {name!r} cannot be read: {error.strerror}") from None
    if len(content) == KEY_BYTES:
        return (content,)
    keys = []
    for number, line in enumerate(content.splitlines(), start=1):
        text = line.strip()
        if text and not text.startswith(b"#"):
            keys.append(_parse_key(name, number, text))
    if not keys:
        raise ConfigError(
            f"key file {name!r} holds no key: write one into it, {2 * KEY_BYTES} hexadecimal digits a line"
        )
    return tuple(keys)


def write_key_file(path: str | os.PathLike[str], keys: Iterable[bytes]) -> None:
    """Writes keys as `read_key_file` reads them: what they seal is lost with them, so they are durable at once.

    Raises:
        OSError: It exists already, or cannot be written: then nothing is left of it.
        ConfigError: The path can be that of no file.
    """
    check_path("path", path)
    file_path = Path(path)
    descriptor = os.open(file_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.writelines(f"{key.hex()}\n" for key in keys)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(file_path.absolute().parent)
    except BaseException:
        file_path.unlink(missing_ok=True)
        raise


def read_key_variable(variable: str, *, place: str = "") -> tuple[bytes, ...]:
    """The keys in an environment variable: each in hexadecimal digits, with commas or white space between them.

    Args:
        variable: Its name.
        place: Where the environment is, for errors, as in " of an executor".

    Raises:
        ConfigError: It is not set or holds something else.
    """
    if not isinstance(variable, str):
        raise ConfigError(f"variable is a {type(variable).__name__}: it must name an environment variable")
    try:
        texts = os.environ.get(variable, "").replace(",", " ").split()
    except UnicodeEncodeError:
        # No variable has a name that holds half of a surrogate pair.
        texts = []
    if not texts:
        raise ConfigError(f"the environment variable {variable}{place} holds no key: set it to the keys' digits")
    try:
        keys = tuple(bytes.fromhex(text) for text in texts)
    except ValueError:
        keys = (b"",)
    if any(len(key) != KEY_BYTES for key in keys):
        raise ConfigError(
            f"the environment variable {variable}{place} holds something that is no key: "
            f"each is {2 * KEY_BYTES} hexadecimal digits"
        )
    return keys


def _parse_key(name: str, number: int, text: bytes) -> bytes:
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        raise ConfigError(
            f"key file {name!r}, line {number}: not a key: each line holds one in {2 * KEY_BYTES} hexadecimal digits"
        ) from None
    if len(key) != KEY_BYTES:
        raise ConfigError(f"key file {name!r}, line {number}: {len(key)} bytes: a key has {KEY_BYTES}")
    return key
