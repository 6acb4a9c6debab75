"""The table of places of large values: what it names after they were deleted, and others lie where they lay."""

from __future__ import annotations

from pathlib import Path

from state_files import copy_of, large, places

from shardwire.persistence import Changes, SqlitePersistence


def test_a_place_of_what_was_deleted_is_named_by_nothing_once_others_lie_in_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    fold = Changes({}, {("other", b"")})
    persistence.commit("a", Changes())
    puts, deletes = Changes(dict(large(1, kind="old"))), Changes(dict.fromkeys(large(1, kind="old")))
    for changes in (puts, deletes):
        persistence.commit("a", changes)
        persistence.commit("a", fold)
    assert places(path) == 0
    expected = large(2, kind="new")
    persistence.commit("a", Changes(dict(expected)))
    persistence.commit("a", fold)
    life = SqlitePersistence(copy_of(path, "killed"))
    for each in (life, persistence):
        state = each.load("a")
        assert state is not None
        assert state.records == expected
        each.close()
