from __future__ import annotations

from typing import Any

import pytest

from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, MemoryPersistence, RecordName


def test_a_loaded_state_does_not_change_with_later_commits() -> None:
    persistence = MemoryPersistence()
    persistence.commit("a", Changes({("k", b"1"): b"one"}))
    state = persistence.load("a")
    persistence.commit("a", Changes({("k", b"1"): b"two"}))
    assert state is not None
    assert dict(state.records) == {("k", b"1"): b"one"}


class Unreadable(dict[RecordName, "bytes | None"]):
    """Reads as far as its first record."""

    def items(self) -> Any:
        yield next(iter(super().items()))
        raise OSError("no further")


def test_of_changes_that_cannot_be_read_none_is_made() -> None:
    persistence = MemoryPersistence()
    persistence.commit("a", Changes({("k", b"1"): b"one", ("l", b"1"): b"one"}))
    with pytest.raises(OSError, match="no further"):
        persistence.commit("a", Changes(Unreadable({("k", b"1"): b"two", ("k", b"2"): b"two"}), {("l", b"")}))
    state = persistence.load("a")
    assert state is not None
    assert dict(state.records) == {("k", b"1"): b"one", ("l", b"1"): b"one"}


def test_closed_refuses() -> None:
    persistence = MemoryPersistence()
    persistence.close()
    with pytest.raises(PersistenceError, match="closed"):
        persistence.load("a")
    with pytest.raises(PersistenceError, match="closed"):
        persistence.commit("a", Changes())
