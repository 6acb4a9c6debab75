"""A store that is checked, beside what should be in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from shardwire.persistence.protocol import Changes, ChannelState, Persistence, RecordName
from shardwire.testing.promises import Trial, is_awaitable, shown

Records = dict[RecordName, bytes]


class CheckedStore:
    """Makes every call of one store, and knows what should come of it.

    Args:
        trial: The check.
        open_store: Opens it.
        opened: Closes whatever was opened.

    Attributes:
        expected: What should be stored, by channel.
    """

    def __init__(self, trial: Trial, open_store: Callable[[], Persistence], opened: contextlib.ExitStack) -> None:
        self.expected: dict[str, Records] = {}
        self._trial = trial
        self._open_store = open_store
        self._opened = opened
        self._store: Any = None

    def open(self) -> None:
        """Opens it, and looks whether it has all of its methods."""
        trial = self._trial
        trial.did("open_store()")
        self._store = store = self._open_store()
        trial.made(store)
        for name in ("load", "commit", "close"):
            trial.require(callable(getattr(store, name, None)), f"that it has {name}()", f"no {name}()")
        self._opened.callback(_close_quietly, store)

    def close(self) -> None:
        """Closes it, as often as that is asked for."""
        self.call("close")

    def has(self, method: str) -> bool:
        """Whether it has an optional method."""
        return hasattr(self._store, method)

    def reopen(self) -> None:
        """Closes it, and opens it anew."""
        self._trial.did("close, and open_store")
        self._store.close()
        self._store = self._open_store()
        self._opened.callback(_close_quietly, self._store)

    def call(self, method: str, *arguments: object) -> Any:
        """Calls a method of the persistence; what it gives.

        Raises:
            BrokenPromiseError: The method is async.
        """
        given = getattr(self._store, method)(*arguments)
        if is_awaitable(given):
            raise self._trial.breaks("plain-methods", "a plain method", f"what an async {method} gives")
        return given

    def load(self, channel_id: str) -> Records | None:
        """What it gives of a channel."""
        given = self.call("load", channel_id)
        if given is None:
            return None
        if not isinstance(given, ChannelState):
            raise self._trial.breaks("round-trip", "a ChannelState or None", f"a {type(given).__name__}")
        return dict(given.records)

    def commit(self, channel_id: str, changes: Changes) -> None:
        """Makes a commit, here and there."""
        self.apply(channel_id, changes)
        self._trial.did(
            f"a commit for channel {channel_id!r} of {shown(changes.records)}, deleted_prefixes "
            f"{shown(tuple(sorted(changes.deleted_prefixes)))}"
        )
        given = Changes(dict(changes.records), set(changes.deleted_prefixes))
        self.call("commit", channel_id, given)
        # What was stored stays as it was, whatever becomes of the object.
        given.records.clear()

    def apply(self, channel_id: str, changes: Changes) -> None:
        """Makes a commit here alone, as it was made there by other means."""
        records = self.expected.setdefault(channel_id, {})
        for kind, prefix in changes.deleted_prefixes:
            for name in [name for name in records if name[0] == kind and name[1].startswith(prefix)]:
                del records[name]
        for name, value in changes.records.items():
            if value is None:
                records.pop(name, None)
            else:
                records[name] = value

    def verify(self, channel_id: str, *, keep_done: bool = False) -> None:
        """Requires that what is stored is what should be; nothing at all may be no state as well."""
        if not keep_done:
            self._trial.did(f"{self._trial.done}, and load of channel {channel_id!r}")
        expected = self.expected.get(channel_id, {})
        found = self.load(channel_id) or {}
        for name, value in found.items():
            self._trial.require(_is_right(name, value), "records of (str, bytes) with bytes", _types(name, value))
        if found == expected:
            return
        wrong = {name: found[name] for name in found if name not in expected or found[name] != expected[name]}
        missing = {name: expected[name] for name in expected if name not in found or found[name] != expected[name]}
        self._trial.require(
            False,
            f"{shown(missing)} among {len(expected)} records" if missing else f"no more than {shown(expected)}",
            f"{shown(wrong)} in its place" if wrong else "nothing in its place" if missing else shown(found),
        )


class Midway(dict[RecordName, "bytes | None"]):
    """Records whose reading fails behind the second."""

    def __iter__(self) -> Iterator[RecordName]:
        return self._some(super().__iter__())

    def keys(self) -> Any:
        return _Some(self, super().keys())

    def values(self) -> Any:
        return _Some(self, super().values())

    def items(self) -> Any:
        return _Some(self, super().items())

    def _some(self, names: Iterator[Any]) -> Iterator[Any]:
        for number, name in enumerate(names):
            if number == 2:
                raise OSError("as if the disk were full")
            yield name


class _Some:
    """A view of such records."""

    def __init__(self, records: Midway, view: Any) -> None:
        self._records = records
        self._view = view

    def __iter__(self) -> Iterator[Any]:
        return self._records._some(iter(self._view))

    def __len__(self) -> int:
        return len(self._view)

    def __contains__(self, item: object) -> bool:
        return item in self._view


def _is_right(name: object, value: object) -> bool:
    match name:
        case (str(), bytes()) if isinstance(value, bytes):
            return True
    return False


def _types(name: object, value: object) -> str:
    parts = name if isinstance(name, tuple) else (name,)
    return f"one of ({', '.join(type(part).__name__ for part in parts)}) with {type(value).__name__}"


def _close_quietly(store: Persistence) -> None:
    with contextlib.suppress(Exception):
        store.close()
