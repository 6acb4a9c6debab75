"""Large values of a database in a file of their own: which go there, what is left at rest, and damage."""

from __future__ import annotations

import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from state_files import copy_of, large, places, values_files

from shardwire import keccak256
from shardwire._native import ChangedRecords
from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, SqlitePersistence, StoredKind, inspection, read_channels, schema
from shardwire.persistence.checksums import checksum_of
from shardwire.persistence.held_channel import HeldChannel
from shardwire.persistence.large_values import value_at

KEY = keccak256(b"key")
Records = dict[tuple[str, bytes], bytes]


def records_of(persistence: SqlitePersistence, channel_id: str = "a") -> Records | None:
    state = persistence.load(channel_id)
    return None if state is None else dict(state.records)


def test_who_closes_where_nothing_can_come_to_rest_leaves_no_file_open(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/fd"))
    persistence = SqlitePersistence(tmp_path / "state.db")
    persistence.commit("a", Changes(dict(large(1))))
    with patch.object(HeldChannel, "come_to_rest", side_effect=OSError):
        persistence.close()
    assert set(os.listdir("/dev/fd")) <= before


@pytest.mark.parametrize("key", [None, KEY])
def test_they_are_there_while_in_use_and_the_database_is_one_file_at_rest(key: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path, key=key)
    persistence.commit("a", Changes({("kind", b"small"): b"small", ("kind", b"large"): bytes(500_000)}))
    assert values_files(path) == []
    persistence.commit("a", Changes(dict(large(1))))
    (file,) = values_files(path)
    assert file.stat().st_size >= 600_000
    assert file.stat().st_mode & 0o777 == 0o600
    expected = {("kind", b"small"): b"small", ("kind", b"large"): bytes(500_000), **large(1)}
    assert any(value[-100:] in file.read_bytes() for value in large(1).values()) == (key is None)
    assert records_of(persistence) == expected
    size_bytes = sum(map(len, expected.values()))
    for stored in (read_channels(path, ("kind",), key=key), read_channels(path)):
        assert stored[0].kinds == {"kind": StoredKind(len(expected), size_bytes)}
    [found] = read_channels(path, ("kind",), key=key)
    assert dict(found.state.records) == expected
    persistence.close()
    assert values_files(path) == []
    assert places(path) == 0
    shutil.copy(path, tmp_path / "alone.db")
    again = SqlitePersistence(tmp_path / "alone.db", key=key)
    assert records_of(again) == expected
    again.close()


def test_what_statements_search_stays_among_the_records(tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db")
    segments = {("segmentation.segment", bytes([number])): bytes(200_000) for number in range(10)}
    persistence.commit("a", Changes({**segments, ("segmentation.completed", b""): bytes(600_000)}))
    assert values_files(tmp_path / "state.db") == []
    assert len(persistence.find_segments("a", entire_message_hash=bytes(32))) == 10
    persistence.close()


def test_a_channel_that_is_given_free_has_none_while_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    first, second = SqlitePersistence(path), SqlitePersistence(path)
    for persistence, channel_id in ((first, "a"), (first, "b"), (second, "c")):
        assert records_of(persistence, channel_id) is None
        persistence.commit(channel_id, Changes(dict(large(ord(channel_id)))))
    assert len(values_files(path)) == 3
    first.release("a")
    assert len(values_files(path)) == 2
    second.close()
    assert len(values_files(path)) == 1
    assert records_of(first, "b") == large(ord("b"))
    for channel_id in ("a", "c"):
        assert records_of(first, channel_id) == large(ord(channel_id))
    first.close()
    assert values_files(path) == []


def test_folding_and_deleting_by_prefix_hold_for_them(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes())
    persistence.commit("a", Changes(dict(large(1))))
    assert places(path) == 0
    # It folds.
    persistence.commit("a", Changes({}, {("other", b"")}))
    assert places(path) == 6
    persistence.commit(
        "a", Changes({("kind", b"\x00"): b"small now", ("kind", b"\x01"): None, ("kind", b"\x02"): bytes(9_000)})
    )
    expected = {**large(1), ("kind", b"\x00"): b"small now", ("kind", b"\x02"): bytes(9_000)}
    del expected["kind", b"\x01"]
    life = SqlitePersistence(copy_of(path, "first"))
    assert records_of(persistence) == records_of(life) == expected
    life.close()
    # Its places are among those that were given back.
    persistence.commit("a", Changes({("new", key): value for (_, key), value in large(2).items()}, {("kind", b"")}))
    expected = {("new", key): value for (_, key), value in large(2).items()}
    life = SqlitePersistence(copy_of(path, "second"))
    assert records_of(persistence) == records_of(life) == expected
    life.close()
    (file,) = values_files(path)
    persistence.commit("a", Changes(dict(large(3))))
    assert file.stat().st_size < 1_400_000
    persistence.close()


def test_a_value_that_was_among_the_records_and_comes_to_lie_apart_is_one(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes({name: value[:50_000] for name, value in large(1, 3).items()}))
    persistence.commit("a", Changes({name: value[:50] for name, value in large(1).items()}, {("fold", b"")}))
    persistence.commit("a", Changes({name: value[:50_000] for name, value in large(2, 3).items()}))
    persistence.commit("a", Changes(dict(large(3))))
    connection = sqlite3.connect(path)
    # Room of large values is given back at once.
    assert connection.execute("SELECT max(length(value)) FROM record").fetchone() == (50,)
    connection.close()
    for _ in range(2):
        assert records_of(persistence) == large(3)
        [stored] = read_channels(path, ("kind",))
        assert dict(stored.state.records) == large(3)
        assert stored.kinds["kind"] == StoredKind(6, 600_000)
        persistence.commit("a", Changes({}, {("fold", b"")}))
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM record").fetchone() == (0,)
    connection.close()
    persistence.close()


def test_they_lie_beside_the_database_itself_by_whatever_name_it_is_opened(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    path, link = tmp_path / "disk" / "state.db", tmp_path / "link.db"
    link.symlink_to(path)
    persistence = SqlitePersistence(link)
    persistence.commit("a", Changes(dict(large(1))))
    assert [file.parent for file in values_files(link)] == [path.parent]
    assert values_files(link) == values_files(path)
    assert set(tmp_path.iterdir()) == {path.parent, link}
    for name in (link, path):
        [stored] = read_channels(name, ("kind",))
        assert dict(stored.state.records) == large(1)
    persistence.close()
    assert values_files(path) == []


# --- damage ---


def damage_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[150_000] ^= 1
    file.write_bytes(content)


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:400_000])


@pytest.mark.parametrize("damage", [damage_a_byte, cut_short, Path.unlink])
@pytest.mark.parametrize("call", ["load", "commit"])
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("key", [None, KEY])
def test_damage_is_refused_and_kept_with_the_database(
    damage: Callable[[Path], None], call: str, folded: bool, key: bytes | None, tmp_path: Path
) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db", key=key)
    persistence.commit("a", Changes(dict(large(1))))
    if folded:
        persistence.commit("a", Changes({}, {("fold", b"")}))
    path = copy_of(tmp_path / "state.db", "killed")
    persistence.close()
    (file,) = values_files(path)
    damage(file)
    kept = file.read_bytes() if file.exists() else None
    [stored] = read_channels(path, ("kind",), key=key)
    assert stored.kinds["kind"].records == 6
    assert all(large(1)[name] == value for name, value in stored.state.records.items())
    again = SqlitePersistence(path, key=key)
    if call == "commit" and damage is damage_a_byte:
        # Nothing is read for it.
        again.commit("a", Changes({("kind", b"late"): b"value"}))
    else:
        with pytest.raises(PersistenceError, match="corrupt"):
            again.load("a") if call == "load" else again.commit("a", Changes({("kind", b"late"): b"value"}))
        assert not path.exists()
        assert values_files(path) == []
        aside = [found for found in path.parent.glob("state.db.corrupt-*") if found.suffix == ".values"]
        assert [found.read_bytes() for found in aside] == ([] if kept is None else [kept])
        # A sound copy in its place goes on, and needs nothing of it.
        shutil.copy(tmp_path / "state.db", path)
        assert records_of(again) == large(1)
    again.close()


def test_damage_that_nothing_names_is_none(tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db")
    persistence.commit("a", Changes(dict(large(1))))
    persistence.commit("a", Changes({("kind", b"\x01"): None}))
    expected = {name: value for name, value in large(1).items() if name[1] != b"\x01"}
    path = copy_of(tmp_path / "state.db", "killed")
    persistence.close()
    (file,) = values_files(path)
    damage_a_byte(file)
    again = SqlitePersistence(path)
    assert records_of(again) == expected
    again.close()
    assert values_files(path) == []


@pytest.mark.parametrize("change", ["deleted", "moved", "replaced"])
def test_nothing_is_stored_beside_a_file_that_is_no_longer_in_its_place(change: str, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes(dict(large(1))))
    (file,) = values_files(path)
    if change == "deleted":
        file.unlink()
    else:
        file.rename(tmp_path / "elsewhere")
    if change == "replaced":
        file.write_bytes(b"another")
    for changes in ({("kind", b"late"): b"value"}, large(2)):
        with pytest.raises(PersistenceError, match=r"values file .* was deleted, moved or replaced while it is in use"):
            persistence.commit("a", Changes(dict(changes)))
    persistence.commit("b", Changes({("kind", b"late"): b"value"}))
    if change == "moved":
        (tmp_path / "elsewhere").rename(file)
        persistence.commit("a", Changes({("kind", b"late"): b"value"}))
        assert records_of(persistence) == {**large(1), ("kind", b"late"): b"value"}
    persistence.close()
    # What was stored is still at hand, and what is not ours stays.
    assert file.exists() == (change == "replaced")
    again = SqlitePersistence(path)
    found = records_of(again)
    assert found is not None
    assert found.items() >= large(1).items()
    again.close()


@pytest.mark.parametrize("older", ["database", "values"])
def test_copies_of_different_moments_never_give_wrong_bytes(older: str, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    copies, states = [], []
    expected: Records = {}
    for number in range(6):
        changes: dict[tuple[str, bytes], bytes | None] = {
            (kind, bytes([number % 2, *key])): value for (kind, key), value in large(number).items()
        }
        persistence.commit("a", Changes(changes))
        expected = {**expected, **{name: value for name, value in changes.items() if value is not None}}
        states.append(expected)
        copies.append(copy_of(path, str(number)))
    persistence.close()
    refused = 0
    for first in range(6):
        for second in range(first + 1, 6):
            directory = tmp_path / f"{first}-{second}"
            shutil.copytree(copies[first if older == "database" else second].parent, directory)
            (file,) = values_files(copies[second if older == "database" else first])
            shutil.copy(file, directory)
            mixed = SqlitePersistence(directory / "state.db")
            try:
                assert records_of(mixed) == states[first if older == "database" else second]
            except PersistenceError:
                refused += 1
            mixed.close()
    assert refused > 8


def test_under_a_key_a_value_stands_in_no_others_place(tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db", key=KEY)
    persistence.commit("a", Changes(dict(large(1))))
    persistence.commit("a", Changes({}, {("fold", b"")}))
    path = copy_of(tmp_path / "state.db", "killed")
    persistence.close()
    (file,) = values_files(path)
    content = file.read_bytes()
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT key, start, size FROM place ORDER BY key").fetchall()
    for (key, _, _), (_, start, size) in zip(rows, [*rows[1:], rows[0]], strict=True):
        checksum = checksum_of("kind", key, content[start : start + size])
        connection.execute("UPDATE place SET start = ?, checksum = ? WHERE key = ?", (start, checksum, key))
    connection.commit()
    connection.close()
    with pytest.raises(PersistenceError, match="does not match"):
        SqlitePersistence(path, key=KEY).load("a")


@pytest.mark.parametrize("version", [6, 7])
@pytest.mark.parametrize("key", [None, KEY])
def test_a_database_that_an_earlier_release_left_goes_on(version: int, key: bytes | None, tmp_path: Path) -> None:
    """Its latest commits stood in a table: one of them says of a large value that it is among the records."""
    persistence = SqlitePersistence(tmp_path / "state.db", key=key)
    records: Records = {("kind", b"1"): bytes(50_000), ("kind", b"2"): b"small", ("kind", b"3"): b"old"}
    persistence.commit("a", Changes(dict(records)))
    path = copy_of(tmp_path / "state.db", "killed")
    database = persistence._database
    assert database is not None
    changes: list[dict[tuple[str, bytes], bytes | None]] = [
        {("kind", b"1"): None, ("kind", b"3"): b"new", ("kind", b"4"): b"put"},
        {("kind", b"2"): None, ("kind", b"4"): b"again"},
    ]
    first, second = (ChangedRecords(records).row() for records in changes)
    # What is done to the first record of the first row: it is elsewhere rather than deleted.
    assert first[0][8] == 1
    first = first[0][:8] + b"\x02" + first[0][9:], first[1]
    rows = []
    for commits, (head, values) in enumerate((first, second), 2):
        if database.cipher is not None:
            values = database.cipher.seal("a", ("journal", commits.to_bytes(8, "big") + head[8:]), values)
        rows.append(head + values)
    persistence.close()
    records = {("kind", b"1"): bytes(50_000), ("kind", b"3"): b"new", ("kind", b"4"): b"again"}
    connection = sqlite3.connect(path)
    connection.execute("ALTER TABLE channel DROP COLUMN journal")
    if version == 6:
        connection.execute("DROP TABLE place")
    connection.execute("UPDATE schema_version SET version = ?", (version,))
    for commits, row in enumerate(rows, 2):
        checksum = zlib.crc32(row, zlib.crc32(commits.to_bytes(8, "big")))
        connection.execute(
            "INSERT INTO journal (channel, commits, checksum, changes) VALUES (1, ?, ?, ?)", (commits, checksum, row)
        )
    connection.commit()
    connection.close()
    damaged = copy_of(path, "damaged")
    for life in ("first", "second", "third"):
        # As it is, and upgraded by who loads it and stores nothing.
        [stored] = read_channels(path, ("kind",), key=key)
        assert dict(stored.state.records) == records
        assert stored.lost_commits == 0
        again = SqlitePersistence(path, key=key)
        assert records_of(again) == records
        path = copy_of(path, life)
        again.close()
    again = SqlitePersistence(path, key=key)
    assert records_of(again) == records
    again.commit("a", Changes(dict(large(1))))
    again.commit("a", Changes({("kind", b"5"): b"last"}))
    assert records_of(again) == {**records, **large(1), ("kind", b"5"): b"last"}
    again.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT version FROM schema_version").fetchall() == [(schema.current_version(),)]
    assert connection.execute("SELECT commits FROM channel").fetchall() == [(5,)]
    assert connection.execute("SELECT count(*) FROM journal").fetchall() == [(0,)]
    connection.close()
    connection = sqlite3.connect(damaged)
    connection.execute("UPDATE journal SET changes = substr(changes, 1, length(changes) - 1) WHERE commits = 2")
    connection.commit()
    connection.close()
    with pytest.raises(PersistenceError, match="a row of the journal does not match its checksum"):
        SqlitePersistence(damaged, key=key).load("a")


def test_who_reads_beside_the_process_sees_one_moment(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes({**large(0), ("number", b""): b"\x00"}))
    written = 0

    def write_first(*arguments: object) -> bytes | None:
        nonlocal written
        # Two commits write over what the snapshot names; the last of them gives its file back.
        if written < 4:
            written += 2
            for number in (written - 1, written):
                persistence.commit("a", Changes({**large(number), ("number", b""): bytes([number])}))
        elif written == 4:
            written += 1
            persistence.close()
        return value_at(*arguments)  # type: ignore[arg-type]

    with patch.object(inspection, "value_at", write_first):
        [stored] = read_channels(path, ("kind", "number"))
    assert written == 5
    assert dict(stored.state.records) == {**large(4), ("number", b""): b"\x04"}
