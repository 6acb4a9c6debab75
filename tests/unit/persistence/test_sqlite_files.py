"""The files of a database: nobody else's to read, and no larger than what they hold asks for."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from state_files import journal_files

from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, SqlitePersistence, journal, large_values, read_channels
from shardwire.persistence.database import LOG_BYTES_MIN, PAGE_BYTES

MADE = """
import os, sys
os.umask(int(sys.argv[2], 8))
from shardwire.persistence import Changes, SqlitePersistence
persistence = SqlitePersistence(sys.argv[1])
persistence.commit("a", Changes({("k", b"1"): b"one"}))
for name in sorted(os.listdir(os.path.dirname(sys.argv[1]))):
    print(name.partition(".db")[2], oct(os.stat(os.path.join(os.path.dirname(sys.argv[1]), name)).st_mode & 0o777))
"""


def sizes(path: Path) -> tuple[int, int]:
    """Of the file and of its log."""
    log = path.with_name(path.name + "-wal")
    return path.stat().st_size, log.stat().st_size if log.exists() else 0


@pytest.mark.parametrize("umask", ["000", "022", "377", "777"])
def test_what_is_made_is_its_owners_alone(umask: str, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for _ in range(2):
        made = subprocess.run([sys.executable, "-c", MADE, str(path), umask], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        modes = dict(line.rsplit(" ", 1) for line in made.stdout.splitlines())
        assert {"", "-wal", "-shm"} < modes.keys()
        assert any(name.endswith(".lock") for name in modes)
        assert set(modes.values()) == {"0o600"}, modes


def test_a_mode_that_somebody_gave_stays(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch()
    path.chmod(0o640)
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes({("k", b"1"): b"one"}))
    assert {stat.S_IMODE(path.with_name(path.name + suffix).stat().st_mode) for suffix in ("", "-wal")} == {0o640}
    persistence.close()


def test_many_small_commits_take_little_room(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes())
    largest = 0
    for number in range(3_000):
        persistence.commit("a", Changes({("k", bytes([number % 7])): b"tiny", ("n", b""): bytes(number % 50)}))
        largest = max(largest, *sizes(path))
    (file,) = journal_files(path)
    # Of a thousand commits, doubled from 64 KB on.
    assert file.stat().st_size == 128 << 10
    assert largest < LOG_BYTES_MIN
    persistence.close()
    assert journal_files(path) == []


def test_a_log_may_grow_as_the_file_does_and_a_large_commit_gives_its_room_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of it goes through the log.
    monkeypatch.setattr(large_values, "LARGE_BYTES_MIN", 1 << 30)
    monkeypatch.setattr(journal, "JOURNAL_COMMITS_MAX", 0)
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    for number in range(100):
        persistence.commit("a", Changes({("k", bytes([number])): os.urandom(50_000)}))
        file, log = sizes(path)
        assert log < max(LOG_BYTES_MIN, file) + 8 * PAGE_BYTES
    assert sizes(path)[0] > 2_000_000
    persistence.commit("a", Changes({("large", bytes([number])): os.urandom(100_000) for number in range(200)}))
    assert sizes(path)[1] > 20_000_000
    for number in range(250):
        persistence.commit("a", Changes({("large", bytes([number % 200])): None}))
    file, log = sizes(path)
    assert log <= file
    persistence.close()


def test_deleting_a_large_value_takes_no_room_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    large = Changes({("k", bytes([number])): os.urandom(100_000) for number in range(40)})
    persistence.commit("a", large)
    persistence.close()
    persistence = SqlitePersistence(path)
    persistence.load("a")
    persistence.commit("a", Changes(dict.fromkeys(large.records)))
    assert sizes(path)[1] < 20 * PAGE_BYTES
    persistence.commit("a", large)
    assert persistence.load("a") is not None
    persistence.close()


def test_closing_empties_the_log_also_where_others_have_the_file_open(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    first, second = SqlitePersistence(path), SqlitePersistence(path)
    first.acquire("a")
    second.acquire("b")
    first.commit("a", Changes({("k", b"1"): bytes(300_000)}))
    second.commit("b", Changes({("k", b"1"): bytes(300_000)}))
    assert sizes(path)[1] > 600_000
    first.close()
    assert sizes(path)[1] == 0
    second.commit("b", Changes({("k", b"2"): b"two"}))
    second.close()
    assert [stored.kinds["k"].records for stored in read_channels(path)] == [1, 2]


def test_opening_empties_the_log_that_a_killed_process_left(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    killed = MADE.replace('b"one"', "os.urandom(500_000)") + "os._exit(1)\n"
    subprocess.run([sys.executable, "-c", killed, str(path), "022"], capture_output=True, check=False)
    assert sizes(path)[1] > 500_000
    persistence = SqlitePersistence(path)
    state = persistence.load("a")
    assert state is not None
    assert len(state.records["k", b"1"]) == 500_000
    assert sizes(path)[1] == 0
    persistence.close()


def test_a_state_at_rest_is_read_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes({("kind", b"1"): b"one"}))
    persistence.close()
    # Whoever runs the tests may write everywhere: the log's place is taken, so SQLite cannot make it either.
    path.with_name("state.db-wal").mkdir()
    with pytest.raises(PersistenceError, match=r"cannot be read: unable to open database file$"):
        read_channels(path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    [stored] = read_channels(path, ("kind",))
    assert stored.state.records == {("kind", b"1"): b"one"}


def test_reading_a_state_at_rest_leaves_one_file(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes({("kind", b"1"): b"one"}))
    persistence.close()
    before = {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in tmp_path.iterdir()}
    [stored] = read_channels(path, ("kind",))
    assert stored.state.records == {("kind", b"1"): b"one"}
    assert {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in tmp_path.iterdir()} == before


def test_reading_leaves_the_log_of_a_killed_process_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    subprocess.run([sys.executable, "-c", MADE + "os._exit(1)\n", str(path), "022"], capture_output=True, check=False)
    log = path.with_name("state.db-wal").read_bytes()
    assert log
    read_channels(path)
    assert path.with_name("state.db-wal").read_bytes() == log


def test_a_state_that_was_left_in_use_where_nothing_can_be_written_is_to_be_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    path.touch()
    path.with_name("state.db-wal").touch()
    modes: list[str] = []

    def refuse(address: str, **_: object) -> None:
        modes.append(address.partition("?")[2])
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    monkeypatch.setattr(sqlite3, "connect", refuse)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PersistenceError, match=r"unable to open database file: its directory cannot be written, look"):
        read_channels(path)
    assert modes == ["mode=ro"]  # its log counts
