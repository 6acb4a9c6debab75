"""The table of places of large values: what it names after they were deleted, and others lie where they lay."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

from state_files import copy_of

from shardwire.persistence import Changes, SqlitePersistence


def large(seed: int, kind: str) -> dict[tuple[str, bytes], bytes]:
    """So many bytes that a commit of them has a file."""
    rng = random.Random(seed)
    return {(kind, bytes([number])): rng.randbytes(100_000) for number in range(6)}


def places(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT count(*) FROM place").fetchone()[0])
    finally:
        connection.close()


def test_a_place_of_what_was_deleted_is_named_by_nothing_once_others_lie_in_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    fold = Changes({}, {("other", b"")})
    persistence.commit("a", Changes())
    puts, deletes = Changes(dict(large(1, "old"))), Changes(dict.fromkeys(large(1, "old")))
    for changes in (puts, deletes):
        persistence.commit("a", changes)
        persistence.commit("a", fold)
    assert places(path) == 0
    expected = large(2, "new")
    persistence.commit("a", Changes(dict(expected)))
    persistence.commit("a", fold)
    life = SqlitePersistence(copy_of(path, "killed"))
    for each in (life, persistence):
        state = each.load("a")
        assert state is not None
        assert state.records == expected
        each.close()
