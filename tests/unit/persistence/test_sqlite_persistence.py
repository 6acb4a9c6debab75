from __future__ import annotations

import os
import pickle
import sqlite3
from pathlib import Path

import pytest

from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, SqlitePersistence


def records_of(persistence: SqlitePersistence, channel_id: str = "a") -> dict[tuple[str, bytes], bytes] | None:
    state = persistence.load(channel_id)
    return None if state is None else dict(state.records)


def test_a_channel_with_an_empty_commit_is_stored(tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db")
    persistence.commit("a", Changes())
    assert records_of(persistence) == {}
    persistence.close()


def test_every_commit_is_synced_to_a_write_ahead_log(tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db")
    persistence.commit("a", Changes({("k", b"1"): b"one"}))
    database = persistence._database
    assert database is not None
    connection = database.connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    # 2 is FULL.
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    persistence.close()


def test_nothing_is_opened_before_first_use_and_it_pickles_as_its_path(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    copy = pickle.loads(pickle.dumps(persistence))
    assert not path.exists()
    assert copy.path == path
    persistence.commit("a", Changes({("k", b"1"): b"one"}))
    copy = pickle.loads(pickle.dumps(persistence))
    persistence.close()
    assert records_of(copy) == {("k", b"1"): b"one"}
    copy.close()


def test_closed_refuses(tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db")
    persistence.close()
    with pytest.raises(PersistenceError, match="is closed"):
        persistence.load("a")
    with pytest.raises(PersistenceError, match="is closed"):
        persistence.commit("a", Changes())


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "absent" / "state.db")
    with pytest.raises(PersistenceError, match="directory does not exist"):
        persistence.load("a")


def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PersistenceError, match="it is a directory: name a file"):
        SqlitePersistence(tmp_path).load("a")


def test_another_applications_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    with pytest.raises(PersistenceError, match="not shardwire's"):
        SqlitePersistence(path).load("a")
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
    connection.close()


def test_a_failed_commit_stores_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db")
    persistence.commit("a", Changes({("k", b"1"): b"one"}))
    database = persistence._database
    assert database is not None
    connection = database.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    # What is deleted by a prefix is deleted among the records.
    changes = Changes({("k", b"1"): None, ("k", b"2"): os.urandom(500_000)}, {("other", b"")})
    with pytest.raises(PersistenceError, match="disk is full"):
        persistence.commit("a", changes)
    with pytest.raises(PersistenceError, match="disk is full"):
        persistence.commit("new channel", changes)
    assert records_of(persistence) == {("k", b"1"): b"one"}
    assert records_of(persistence, "new channel") is None
    connection.execute("PRAGMA max_page_count = 1000000")
    persistence.commit("a", changes)
    persistence.commit("new channel", changes)
    assert set(records_of(persistence) or ()) == {("k", b"2")}
    assert set(records_of(persistence, "new channel") or ()) == {("k", b"2")}
    persistence.close()
