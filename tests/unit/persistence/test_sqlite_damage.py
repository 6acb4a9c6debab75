"""Corrupt files, full disks and other versions of the schema."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from shardwire.errors import ConfigError, PersistenceError
from shardwire.persistence import Changes, SqlitePersistence, read_channels, schema
from shardwire.persistence.database import PAGE_BYTES

SQLITE_HEADER = b"SQLite format 3\0"
RECORDS = {("kind", bytes([number])): bytes([number]) * (50 * number) for number in range(100)}


def make_database(path: Path) -> None:
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes(dict(RECORDS)))
    persistence.close()


def kept_files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(path.name + ".corrupt-*"))


@pytest.mark.parametrize("content", [b"x", b"a text that somebody named by mistake" * 500, b"\xff" * 10_000])
def test_a_file_that_never_was_a_database_stays_as_it_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(PersistenceError, match="is no SQLite database: give the path of another file"):
            SqlitePersistence(path).load("a")
    assert path.read_bytes() == content
    assert not kept_files(path)


@pytest.mark.parametrize("path", ["", ".", "/", ":memory:"])
def test_a_path_must_name_a_file(path: str) -> None:
    with pytest.raises(ConfigError, match=f"path is {path!r}"):
        SqlitePersistence(path)


@pytest.mark.parametrize("change", ["deleted", "moved", "replaced"])
def test_nothing_is_stored_in_a_file_that_is_no_longer_in_its_place(change: str, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes(dict(RECORDS)))
    if change == "deleted":
        path.unlink()
    else:
        path.rename(tmp_path / "elsewhere")
    if change == "replaced":
        path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(PersistenceError, match="was deleted, moved or replaced while it is in use"):
            persistence.commit("a", Changes({("kind", b"late"): b"value"}))
    if change == "moved":
        (tmp_path / "elsewhere").rename(path)
        persistence.commit("a", Changes({("kind", b"late"): b"value"}))
        state = persistence.load("a")
        assert state is not None
        assert dict(state.records) == {**RECORDS, ("kind", b"late"): b"value"}
    persistence.close()


def test_a_file_that_is_damaged_throughout_is_kept_aside_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    content = SQLITE_HEADER + b"\xff" * 10_000
    path.write_bytes(content)
    with pytest.raises(PersistenceError, match="corrupt"):
        SqlitePersistence(path).load("a")
    assert not path.exists()
    (kept,) = kept_files(path)
    assert kept.read_bytes() == content
    # A restart must not take the loss for a new channel.
    with pytest.raises(PersistenceError, match="was found corrupt and kept as"):
        SqlitePersistence(path).load("a")
    with pytest.raises(PersistenceError, match="was found corrupt and kept as"):
        SqlitePersistence(path).commit("a", Changes({("k", b"1"): b"one"}))
    assert kept.read_bytes() == content
    kept.rename(tmp_path / "elsewhere")
    persistence = SqlitePersistence(path)
    assert persistence.load("a") is None
    persistence.close()


def test_one_of_ours_that_no_longer_begins_as_a_database_is_damaged_and_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make_database(path)
    content = bytes(16) + path.read_bytes()[16:]
    path.write_bytes(content)
    with pytest.raises(PersistenceError, match="corrupt"):
        SqlitePersistence(path).load("a")
    (kept,) = kept_files(path)
    assert kept.read_bytes() == content


def test_a_corrupt_file_that_cannot_be_renamed_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(SQLITE_HEADER + b"\xff" * 10_000)

    def fail(*_: object) -> Path:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "rename", fail)
    persistence = SqlitePersistence(path)
    for _ in range(2):
        with pytest.raises(PersistenceError, match=r"is corrupt \(.+\); it could not be renamed \(.+\): put "):
            persistence.load("a")
    assert path.exists()


def test_through_a_link_the_database_itself_is_kept_aside_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    path, link = tmp_path / "disk" / "state.db", tmp_path / "link.db"
    link.symlink_to(path)
    persistence = SqlitePersistence(tmp_path / "life.db")
    for number in range(3):
        persistence.commit("a", Changes({("k", bytes([number])): b"value"}))
    for file in tmp_path.glob("life.db*"):
        if not file.name.endswith((".lock", "-shm")):
            shutil.copy(file, path.with_name(file.name.replace("life", "state")))
    persistence.close()
    path.write_bytes(SQLITE_HEADER + b"\xff" * 10_000)
    for name in (link, path):
        with pytest.raises(PersistenceError, match="corrupt"):
            SqlitePersistence(name).load("a")
    assert {file.suffix for file in path.parent.glob("state.db.corrupt-*")} >= {".journal"}
    assert not path.exists()
    assert list(path.parent.glob("state.db-*.journal")) == []
    assert link.is_symlink()


def test_what_is_said_of_a_corrupt_file_stands_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make_database(path)
    content = bytearray(path.read_bytes())
    content[PAGE_BYTES : 2 * PAGE_BYTES] = b"\x55" * PAGE_BYTES
    path.write_bytes(content)
    with pytest.raises(PersistenceError) as raised:
        SqlitePersistence(path).load("a")
    assert "in database main" in str(raised.value)
    assert str(raised.value).isprintable()


def test_a_sound_copy_in_place_of_a_corrupt_file_is_used(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make_database(path)
    copy = tmp_path / "copy"
    shutil.copy(path, copy)
    path.write_bytes(SQLITE_HEADER + b"\xff" * 10_000)
    with pytest.raises(PersistenceError, match="corrupt"):
        SqlitePersistence(path).load("a")
    shutil.copy(copy, path)
    persistence = SqlitePersistence(path)
    state = persistence.load("a")
    assert state is not None
    assert dict(state.records) == RECORDS
    persistence.close()


def test_whatever_bytes_are_damaged_the_state_is_exact_or_refused(tmp_path: Path) -> None:
    sound = tmp_path / "sound.db"
    make_database(sound)
    connection = sqlite3.connect(sound)
    # Damage to pages that are free is none.
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = sound.read_bytes()
    rng = random.Random(7)
    refused = 0
    for trial in range(300):
        damaged = bytearray(content)
        for _ in range(rng.choice((1, 1, 4, 64))):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path = tmp_path / f"{trial}.db"
        path.write_bytes(damaged)
        persistence = SqlitePersistence(path)
        try:
            state = persistence.load("a")
        except PersistenceError:
            refused += 1
        else:
            assert state is not None
            assert dict(state.records) == RECORDS, f"trial {trial}"
        finally:
            persistence.close()
    assert refused > 200


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("DELETE FROM schema_version", "schema_version does not hold one version"),
        ("INSERT INTO schema_version VALUES (3)", "schema_version does not hold one version"),
        ("UPDATE schema_version SET version = 'x'", "schema_version does not hold one version"),
        ("UPDATE schema_version SET version = 0", "schema_version does not hold one version"),
        ("INSERT INTO protection VALUES (1, x'00')", "protection does not hold one salt and one proof"),
        (
            "INSERT INTO protection VALUES (x'00', x'00'), (x'00', x'00')",
            "protection does not hold one salt and one proof",
        ),
        ("UPDATE channel SET journal = 5", "a channel has no number"),
        ("UPDATE channel SET commits = 'x'", "a channel has no number of commits"),
        ("UPDATE channel SET commits = -1", "a channel has no number of commits"),
        ("UPDATE channel SET commits = 9223372036854775807", "a channel has no number of commits"),
        ("UPDATE record SET key = 'x' WHERE key = x'01'", "a record does not match its checksum"),
        ("INSERT INTO journal VALUES (1, 1, 'x', 0, x'00')", "a row of the journal does not match its checksum"),
        ("INSERT INTO journal VALUES (1, 1, -1, 0, x'00')", "a row of the journal does not match its checksum"),
        ("INSERT INTO place VALUES (1, 'k', x'01', 0, 'x', 0)", "a place of a value is none"),
        ("INSERT INTO place VALUES (1, 'k', x'01', -4096, 10, 0)", "a place of a value is none"),
        ("INSERT INTO place VALUES (1, 'k', x'01', 1, 10, 0)", "values are missing in their file"),
    ],
)
def test_what_no_table_of_ours_holds_is_damage(statement: str, finding: str, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make_database(path)
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    # Who looks beside the process that uses it need not find it; whatever he finds, he is told.
    with contextlib.suppress(PersistenceError):
        read_channels(path)
    with pytest.raises(PersistenceError, match=rf"the database is corrupt \({finding}\); it was kept as"):
        SqlitePersistence(path).load("a")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make_database(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(PersistenceError, match="corrupt"):
        SqlitePersistence(path).load("a")
    assert len(kept_files(path)) == 1


FILLER = """
import os, resource, signal, sys
from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, SqlitePersistence
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
persistence = SqlitePersistence(sys.argv[1])
for number in range(1000):
    try:
        persistence.commit("a", Changes({("k", number.to_bytes(2, "big")): os.urandom(50_000)}))
    except PersistenceError as error:
        break
else:
    raise SystemExit("the limit was never met")
assert len(persistence.load("a").records) == number, "a failed commit left something"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
persistence.commit("a", Changes({("k", number.to_bytes(2, "big")): os.urandom(50_000)}))
assert len(persistence.load("a").records) == number + 1
persistence.close()
print(number)
"""


def test_a_disk_that_takes_no_more_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run = subprocess.run([sys.executable, "-c", FILLER, str(path)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 5
    persistence = SqlitePersistence(path)
    state = persistence.load("a")
    assert state is not None
    assert len(state.records) == int(run.stdout) + 1
    persistence.close()


MAKER = """
import resource, signal, sys
from shardwire.errors import PersistenceError
from shardwire.persistence import SqlitePersistence
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    SqlitePersistence(sys.argv[1]).load("a")
except PersistenceError as error:
    print(error)
else:
    raise SystemExit("the limit was never met")
"""


@pytest.mark.parametrize("room_bytes", [16 << 10, 40 << 10, 100 << 10])
def test_a_disk_without_room_for_a_new_database_is_told_as_that(tmp_path: Path, room_bytes: int) -> None:
    command = [sys.executable, "-c", MAKER, str(tmp_path / "state.db"), str(room_bytes)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert "nothing was stored" in run.stdout


def test_an_empty_database_of_another_application_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 5")
    connection.close()
    with pytest.raises(PersistenceError, match="is not shardwire's: give the path of another file"):
        SqlitePersistence(path).load("a")


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make_database(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE schema_version SET version = 1000")
    connection.commit()
    connection.close()
    with pytest.raises(PersistenceError, match="schema version 1000, this release reads versions 1 to"):
        SqlitePersistence(path).load("a")
    assert path.exists()
    assert kept_files(path) == []


def test_a_database_of_version_1_is_upgraded_in_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    connection = sqlite3.connect(path)
    connection.executescript((Path(__file__).parent / "schema_version_1.sql").read_text())
    connection.close()

    def add_column(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE record ADD COLUMN extra INTEGER NOT NULL DEFAULT 5")

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE record")
        error = sqlite3.OperationalError("the disk went away")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    before, present = dump_of(path), schema.MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", (*present, add_column, fail))
    with pytest.raises(PersistenceError, match="the disk went away"):
        SqlitePersistence(path).load("a")
    assert dump_of(path) == before
    monkeypatch.setattr(schema, "MIGRATIONS", (*present, add_column))
    assert_holds_version_1_content(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT version FROM schema_version").fetchall() == [(len(present) + 2,)]
    assert connection.execute("SELECT DISTINCT extra FROM record").fetchall() == [(5,)]
    connection.close()


def test_a_database_of_version_1_becomes_one_of_the_present_version(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    connection = sqlite3.connect(path)
    connection.executescript((Path(__file__).parent / "schema_version_1.sql").read_text())
    connection.close()
    assert_holds_version_1_content(path)
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes({("sds.log", b"\x00\x01"): b"newer", ("sds.meta", b""): None}))
    persistence.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT version FROM schema_version").fetchall() == [(schema.current_version(),)]
    assert connection.execute("SELECT rowid, kind, value FROM record").fetchall() == [(1, "sds.log", b"newer")]
    connection.close()


def dump_of(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def assert_holds_version_1_content(path: Path) -> None:
    persistence = SqlitePersistence(path)
    state = persistence.load("a")
    assert state is not None
    assert dict(state.records) == {("sds.log", b"\x00\x01"): b"value", ("sds.meta", b""): b""}
    persistence.close()
