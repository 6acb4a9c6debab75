"""The latest commits of a channel, before they are folded into its records."""

from __future__ import annotations

import itertools
import os
import sqlite3
from pathlib import Path

import pytest

from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, SqlitePersistence, journal, read_channels
from shardwire.persistence.inspection import StoredKind
from shardwire.persistence.journal_rows import checksum_of_row

KEY = bytes(range(32))


def rows(path: Path) -> list[tuple[int, bytes]]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT entry, changes FROM journal ORDER BY entry").fetchall()
    connection.close()
    return found


def records_of(persistence: SqlitePersistence) -> dict[tuple[str, bytes], bytes]:
    state = persistence.load("a")
    assert state is not None
    return dict(state.records)


def test_it_is_folded_from_time_to_time_and_at_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "JOURNAL_COMMITS_MAX", 10)
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    lengths = []
    for number in range(35):
        persistence.commit("a", Changes({("k", bytes([number])): b"value", ("k", bytes([number - 1 & 0xFF])): None}))
        lengths.append(len(rows(path)))
    assert max(lengths) == 10
    assert lengths.count(0) == 3
    assert records_of(persistence) == {("k", bytes([34])): b"value"}
    persistence.close()
    assert rows(path) == []
    again = SqlitePersistence(path)
    assert records_of(again) == {("k", bytes([34])): b"value"}
    again.close()


def test_many_bytes_fold_it_too(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    sizes = []
    for number in range(400):
        persistence.commit("a", Changes({("k", number.to_bytes(2, "big")): os.urandom(4_000) for number in (number,)}))
        sizes.append(sum(len(changes) for _, changes in rows(path)))
    assert max(sizes) < journal.JOURNAL_BYTES_MAX + 5_000
    assert 0 in sizes
    assert len(records_of(persistence)) == 400
    persistence.close()


def test_a_large_value_is_written_once_and_its_room_is_free_when_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    for number in range(50):
        persistence.commit("a", Changes({("k", bytes([number])): os.urandom(100_000)}))
        persistence.commit("a", Changes({("k", bytes([number])): None, ("last", b""): bytes([number])}))
    assert all(len(changes) < 200 for _, changes in rows(path))
    connection = sqlite3.connect(path)
    (pages, page_bytes) = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    connection.close()
    assert pages * page_bytes < 1_000_000
    assert records_of(persistence) == {("last", b""): bytes([49])}
    persistence.close()


def test_the_last_value_counts_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    small, large = b"small", bytes(journal.LARGE_VALUE_BYTES)
    histories = list(itertools.product([small, large, None], repeat=4))
    for step in range(4):
        changes: dict[tuple[str, bytes], bytes | None] = {
            ("k", bytes([number])): history[step] for number, history in enumerate(histories)
        }
        persistence.commit("a", Changes(changes))
        expected = {name: value for name, value in changes.items() if value is not None}
        assert records_of(persistence) == expected
        [stored] = read_channels(path, ["k"])
        assert dict(stored.state.records) == expected
        assert stored.kinds["k"] == StoredKind(len(expected), sum(map(len, expected.values())))
    assert len(rows(path)) == 4
    persistence.close()
    again = SqlitePersistence(path)
    assert records_of(again) == expected
    again.close()


def test_nothing_of_a_commit_that_failed_is_there_later(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes({("k", b""): b"first"}))
    database = persistence._database
    assert database is not None
    (pages,) = database.connection.execute("PRAGMA page_count").fetchone()
    database.connection.execute(f"PRAGMA max_page_count = {pages}")
    small = {("k", number.to_bytes(2, "big")): os.urandom(4_000) for number in range(256)}
    with pytest.raises(PersistenceError, match="disk is full"):
        persistence.commit("a", Changes({("k", b""): None, **small}))
    database.connection.execute("PRAGMA max_page_count = 1000000")
    assert records_of(persistence) == {("k", b""): b"first"}
    persistence.commit("a", Changes({("k", b"more"): b"second"}))
    persistence.close()
    again = SqlitePersistence(path)
    assert records_of(again) == {("k", b""): b"first", ("k", b"more"): b"second"}
    again.close()


@pytest.mark.parametrize("part", ["name", "value", "order"])
def test_under_a_key_nobody_alters_it(part: str, tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "life.db", key=KEY)
    for number in range(2):
        persistence.commit("a", Changes({("kind", b"name"): b"value %d" % number}))
    connection = sqlite3.connect(tmp_path / "life.db")
    connection.execute("VACUUM INTO ?", (str(tmp_path / "state.db"),))
    connection.close()
    persistence.close()
    connection = sqlite3.connect(tmp_path / "state.db")
    found = connection.execute("SELECT commits, changes FROM journal ORDER BY entry").fetchall()
    if part == "order":
        altered = [(found[0][0], found[1][1]), (found[1][0], found[0][1])]
    elif part == "name":
        altered = [(commits, changes.replace(b"name", b"nane")) for commits, changes in found]
    else:
        altered = [(commits, changes[:-1] + bytes([changes[-1] ^ 1])) for commits, changes in found]
    connection.execute("DELETE FROM journal")
    for commits, changes in altered:
        row = (1, commits, checksum_of_row(commits, changes), changes)
        connection.execute("INSERT INTO journal (channel, commits, checksum, changes) VALUES (?, ?, ?, ?)", row)
    connection.commit()
    connection.close()
    with pytest.raises(PersistenceError, match="a row of the journal does not match its checksum"):
        SqlitePersistence(tmp_path / "state.db", key=KEY).load("a")


def test_a_commit_of_one_row_is_one_statement_and_one_with_a_large_value_is_a_transaction(tmp_path: Path) -> None:
    """Whatever it takes, it is stored as a whole, and one that failed is made again."""
    persistence = SqlitePersistence(tmp_path / "state.db")
    persistence.commit("a", Changes({("k", b"1"): b"first"}))
    database = persistence._database
    assert database is not None
    statements: list[str] = []
    database.connection.set_trace_callback(statements.append)
    persistence.commit("a", Changes({("k", b"1"): None, ("k", b"2"): b"second"}))
    assert [statement.split()[0] for statement in statements] == ["INSERT"]
    statements.clear()
    persistence.commit("a", Changes({("k", b"3"): bytes(journal.LARGE_VALUE_BYTES), ("k", b"4"): b"small"}))
    assert [statement.split()[0] for statement in statements] == ["BEGIN", "INSERT", "INSERT", "COMMIT"]
    statements.clear()
    # What was large stands among the records, where it is taken out.
    persistence.commit("a", Changes({("k", b"3"): b"no longer large"}))
    assert statements[0].split()[0] == "BEGIN"
    database.connection.execute("CREATE TRIGGER full BEFORE INSERT ON journal BEGIN SELECT RAISE(ABORT, 'full'); END")
    with pytest.raises(PersistenceError):
        persistence.commit("a", Changes({("k", b"2"): b"third"}))
    assert records_of(persistence)[("k", b"2")] == b"second"
    database.connection.execute("DROP TRIGGER full")
    persistence.commit("a", Changes({("k", b"2"): b"third"}))
    expected = {("k", b"2"): b"third", ("k", b"3"): b"no longer large", ("k", b"4"): b"small"}
    assert records_of(persistence) == expected
    persistence.close()
    again = SqlitePersistence(tmp_path / "state.db")
    assert records_of(again) == expected
    again.close()
