"""An output on a local file system: refused where it would destroy its input, made aside, renamed into its place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from shardwire.config.checks import check_path
from shardwire.errors import ConfigError


def require_utf_8(path: str) -> None:
    """Refuses what Arrow could not open.

    Raises:
        ConfigError: The path is not UTF-8.
    """
    # Bytes that are no UTF-8 are half of a surrogate pair each.
    if any("\ud800" <= character <= "\udfff" for character in path):
        raise ConfigError(f"the path {path!r} is not UTF-8, which pyarrow needs: rename it")


@contextmanager
def named_where_full(place: Path) -> Iterator[None]:
    """Names where something is written in what pyarrow raises of it, as on a full disk, which names no file.

    Raises:
        OSError: Something could not be written.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or not error.errno:
            raise
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(place)) from error


class Output:
    """A directory that comes into being as a whole.

    Args:
        path: The directory.
        inputs: What is read meanwhile.
        replace: Whether one that exists is replaced.

    Raises:
        ConfigError: It exists, or holds more than an earlier output where it is to be replaced; it overlaps an
            input, or is not UTF-8.
    """

    def __init__(self, path: str | os.PathLike[str], inputs: Iterable[str], *, replace: bool = False) -> None:
        check_path("the output", path, "a directory")
        own = Path(os.path.realpath(path))
        if not own.name:
            raise ConfigError(f"the output {os.fspath(path)!r} is the root of the file system: name a directory")
        require_utf_8(str(own))
        # What has no name of its own, as the working directory, has one in full.
        self.path = Path(path) if Path(path).name else own
        self.staging = self.path.with_name(f"{self.path.name}.shardwire-staging")
        self._replace = replace
        for name in inputs:
            given = Path(os.path.realpath(name))
            if own == given or own in given.parents or given in own.parents:
                raise ConfigError(
                    f"the output {os.fspath(path)!r} and the input {name!r} overlap: give an output outside the input"
                )
        self._replaced = self.path.with_name(f"{self.path.name}.shardwire-replaced")
        if os.path.lexists(self._replaced) and not os.path.lexists(self.path):
            # A run that was killed between the two renamings left it there.
            self._replaced.rename(self.path)
        if self.path.exists() and not replace:
            raise ConfigError(f"the output {os.fspath(path)!r} exists: give another one, or pass replace=True")
        if self.path.exists() and (foreign := _foreign(self.path)):
            raise ConfigError(
                f"the output {os.fspath(path)!r} is not replaced, since it {foreign}, which no reconstruction made: "
                "give another one, or remove it first"
            )
        shutil.rmtree(self.staging, ignore_errors=True)

    def __enter__(self) -> Output:
        try:
            self.staging.mkdir(parents=True)
        except OSError as error:
            if error.filename != str(self.staging):
                raise
            # The name of what is not whole yet says nothing to a reader.
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._publish()
        finally:
            shutil.rmtree(self.staging, ignore_errors=True)

    def _publish(self) -> None:
        old = self._replaced
        is_replaced = self._replace and self.path.exists()
        if is_replaced:
            _remove(old)
            self.path.rename(old)
        try:
            self.staging.rename(self.path)
        except BaseException:
            # As when another run took the place meanwhile.
            if is_replaced and not self.path.exists():
                old.rename(self.path)
            raise
        if is_replaced:
            _remove(old)


def _foreign(path: Path) -> str | None:
    """What shows that a path holds something else than an earlier output; None for one."""
    if not path.is_dir():
        return "is a file"
    for entry in sorted(path.iterdir()):
        if entry.suffix != ".parquet" or not entry.is_file():
            return f"holds {entry.name!r}"
    return None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
