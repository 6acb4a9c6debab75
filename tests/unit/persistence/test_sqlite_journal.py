"""The latest commits of a channel, in a file of their own before they are folded into its records."""

from __future__ import annotations

import errno
import itertools
import os
import random
import select
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from state_files import FailingFile, copy_of, folded, journal_files, rows_of

from shardwire._native import ChangedRecords, JournalFile, Wake
from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, SqlitePersistence, journal, read_channels
from shardwire.persistence.inspection import StoredKind

KEY = bytes(range(32))
Records = dict[tuple[str, bytes], bytes]


def records_of(persistence: SqlitePersistence) -> Records:
    state = persistence.load("a")
    assert state is not None
    return dict(state.records)


def begun(persistence: SqlitePersistence, changes: Changes) -> bool:
    """Whether it could be begun; committed in any case."""
    wake = Wake()
    commit = persistence.begin_commit("a", ChangedRecords(changes.records), wake)
    if commit is None:
        persistence.commit("a", changes)
        return False
    assert select.select([wake], [], [], 10)[0] == [wake]
    wake.clear()
    assert select.select([wake], [], [], 0)[0] == []
    persistence.end_commit("a", commit)
    return True


@pytest.mark.parametrize("begins", [False, True])
def test_it_is_folded_from_time_to_time_and_at_close(
    begins: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "JOURNAL_COMMITS_MAX", 10)
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.load("a")
    lengths, count_begun = [], 0
    for number in range(35):
        changes = Changes({("k", bytes([number])): b"value", ("k", bytes([number - 1 & 0xFF])): None})
        if begins:
            count_begun += begun(persistence, changes)
        else:
            persistence.commit("a", changes)
        lengths.append(len(rows_of(path)))
    assert max(lengths) == 10
    # The first commit of a channel, and each that the journal has no room for.
    assert [number for number, length in enumerate(lengths) if not length] == [0, 11, 22, 33]
    # All others but the one that makes the file.
    assert count_begun == (30 if begins else 0)
    assert records_of(persistence) == {("k", bytes([34])): b"value"}
    persistence.close()
    assert journal_files(path) == []
    assert folded(path)[0] == 35
    again = SqlitePersistence(path)
    assert records_of(again) == {("k", bytes([34])): b"value"}
    again.close()


def test_many_bytes_fold_it_too(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    sizes = []
    for number in range(400):
        persistence.commit("a", Changes({("k", number.to_bytes(2, "big")): os.urandom(12_000)}))
        sizes.append(sum(len(changes) for _, changes in rows_of(path)))
    assert journal.JOURNAL_BYTES_MAX - 13_000 < max(sizes) <= journal.JOURNAL_BYTES_MAX
    assert sizes.count(0) == 3
    assert len(records_of(persistence)) == 400
    persistence.close()


def test_what_is_gone_before_it_is_folded_never_enters_the_database(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    for number in range(50):
        persistence.commit("a", Changes({("k", bytes([number])): os.urandom(100_000)}))
        persistence.commit("a", Changes({("k", bytes([number])): None, ("last", b""): bytes([number])}))
    connection = sqlite3.connect(path)
    (pages, page_bytes) = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    connection.close()
    assert pages * page_bytes < 500_000
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
    assert len(rows_of(path)) == 3
    persistence.close()
    again = SqlitePersistence(path)
    assert records_of(again) == expected
    again.close()


# --- what a commit takes ---


def test_most_commits_are_one_row_and_touch_the_database_not_at_all(tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db")
    persistence.commit("a", Changes({("k", b"1"): b"first"}))
    database = persistence._database
    assert database is not None
    statements: list[str] = []
    database.connection.set_trace_callback(statements.append)
    persistence.commit("a", Changes({("k", b"1"): None, ("k", b"2"): b"second"}))
    persistence.commit("a", Changes({("k", b"3"): bytes(100_000)}))
    assert statements == []
    persistence.commit("a", Changes({("k", b"4"): b"fourth"}, {("k", b"3")}))
    assert [statement.split()[0] for statement in (statements[0], statements[-1])] == ["BEGIN", "COMMIT"]
    assert records_of(persistence) == {("k", b"2"): b"second", ("k", b"4"): b"fourth"}
    persistence.close()


def test_a_commit_is_begun_only_where_a_write_is_all_it_takes(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    changes = Changes({("k", b"1"): b"value"})
    assert not persistence.begin_commit("a", ChangedRecords(changes.records), Wake())
    persistence.load("a")
    # A channel that was never stored, then one that has no file yet.
    for _ in range(2):
        assert not persistence.begin_commit("a", ChangedRecords(changes.records), Wake())
        persistence.commit("a", changes)
    assert begun(persistence, changes)
    assert not persistence.begin_commit("a", ChangedRecords({("k", b"2"): bytes(journal.BEGUN_BYTES_MAX + 1)}), Wake())
    first = persistence.begin_commit("a", ChangedRecords(changes.records), Wake())
    assert first is not None
    # One at a time.
    assert not persistence.begin_commit("a", ChangedRecords(changes.records), Wake())
    persistence.end_commit("a", first)
    # It is ended: there is nothing to wait for.
    persistence.end_commit("a", first)
    # More than the room that the file has.
    for number in range(3):
        begun(persistence, Changes({("k", bytes([number])): bytes(30_000)}))
    assert journal_files(path)[0].stat().st_size == 128 << 10
    assert begun(persistence, changes)
    (file,) = journal_files(path)
    for moved in (file, path):
        moved.rename(tmp_path / "elsewhere")
        assert not persistence.begin_commit("a", ChangedRecords(changes.records), Wake())
        with pytest.raises(PersistenceError, match="was deleted, moved or replaced while it is in use"):
            persistence.commit("a", changes)
        (tmp_path / "elsewhere").rename(moved)
    # What was refused before a byte of it was written casts no doubt on the rest.
    assert begun(persistence, changes)
    persistence.close()
    assert not persistence.begin_commit("a", ChangedRecords(changes.records), Wake())


def test_whatever_follows_a_commit_that_was_begun_waits_for_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.load("a")
    expected: Records = {}
    for number in range(60):
        name, value = ("k", bytes([number % 7])), os.urandom(2_000)
        expected[name] = value
        if commit := persistence.begin_commit("a", ChangedRecords({name: value}), Wake()):
            match number % 5:
                case 0:
                    persistence.commit("a", Changes({name: value}))
                case 1:
                    assert records_of(persistence) == expected
                case 2:
                    assert persistence.find_segments("a", sender="alice") == []
                case 3:
                    persistence.close()
                    persistence = SqlitePersistence(path)
                    persistence.load("a")
            persistence.end_commit("a", commit)
        else:
            persistence.commit("a", Changes({name: value}))
        assert records_of(persistence) == expected
    assert not persistence.lost_commits
    persistence.close()


# --- what fails ---


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_a_row_that_failed_is_left_behind_by_the_next_commit(begins: bool, killed: bool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.load("a")
    for number in range(3):
        persistence.commit("a", Changes({("k", bytes([number])): b"stored"}))
    held = persistence._held["a"]
    failing = FailingFile(held.journal._file)
    held.journal._file = cast(Any, failing)
    changes = Changes({("k", b"\x00"): None, ("k", b"late"): b"failed"})
    with pytest.raises(PersistenceError, match="the disk reported an error, nothing was stored"):
        if begins:
            commit = persistence.begin_commit("a", ChangedRecords(changes.records), Wake())
            assert commit is not None
            persistence.end_commit("a", commit)
        else:
            persistence.commit("a", changes)
    assert len(rows_of(path)) == 3
    assert records_of(persistence)["k", b"late"] == b"failed"
    # Nothing is appended behind a row of which nobody knows whether it is there.
    assert not persistence.begin_commit("a", ChangedRecords({("k", b"next"): b"stored"}), Wake())
    persistence.commit("a", Changes({("k", b"next"): b"stored"}))
    assert (folded(path)[0], rows_of(path)) == (5, [])
    failing.fails = False
    persistence.commit("a", Changes({("k", b"last"): b"stored"}))
    records = records_of(persistence)
    # The disk said of the one that failed that it is not there, and it was.
    expected: Records = {("k", bytes([number])): b"stored" for number in (1, 2)}
    expected |= {("k", b"late"): b"failed", ("k", b"next"): b"stored", ("k", b"last"): b"stored"}
    assert records == expected
    if killed:
        path = copy_of(path, "killed")
    persistence.close()
    again = SqlitePersistence(path)
    assert records_of(again) == expected
    assert not again.lost_commits
    again.close()


def test_a_row_is_synced(tmp_path: Path) -> None:
    """What takes every write, and refuses to sync it."""
    (tmp_path / "null").symlink_to(os.devnull)
    file = JournalFile(str(tmp_path / "null"), str(tmp_path / "state.db"))
    assert file.read(b"token", 0) == []
    with pytest.raises(OSError, match="Invalid argument") as caught:
        file.append(1, b"body")
    assert caught.value.errno == errno.EINVAL
    file.close()


FILLER = """
import os, resource, signal, sys
from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, SqlitePersistence
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
persistence = SqlitePersistence(sys.argv[1])
persistence.load("a")
records = {}
def commit(changes):
    persistence.commit("a", Changes(changes))
    records.update(changes)
for number in range(2):
    commit({("k", bytes([number])): bytes(100)})
room = max(os.stat(os.path.join(os.path.dirname(sys.argv[1]), name)).st_size
           for name in os.listdir(os.path.dirname(sys.argv[1])) if name.endswith(".journal"))
# No file may grow beyond what the journal has.
resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
for number in range(2, 250):
    try:
        commit({("k", bytes([number])): bytes(1_000)})
    except PersistenceError as error:
        assert "nothing was stored" in str(error), error
        break
else:
    raise SystemExit("the limit was never met")
assert number > 50
assert dict(persistence.load("a").records) == records, "a failed commit left something"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
commit({("k", b"last"): bytes(1_000)})
assert dict(persistence.load("a").records) == records
persistence.close()
persistence = SqlitePersistence(sys.argv[1])
assert dict(persistence.load("a").records) == records
persistence.close()
"""


def test_a_disk_without_room_for_a_row_stores_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILLER, str(tmp_path / "state.db")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("key", [None, KEY])
def test_a_power_cut_within_any_row_leaves_a_whole_number_of_commits(
    key: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a row that is not synced any sectors may be there, over whatever an earlier use of the file left."""
    monkeypatch.setattr(journal, "JOURNAL_COMMITS_MAX", 6)
    rng = random.Random(11)
    path = tmp_path / "life" / "state.db"
    path.parent.mkdir()
    persistence = SqlitePersistence(path, key=key)
    persistence.load("a")
    records: Records = {}
    cuts = rows_met = 0
    for number in range(40):
        before_files = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
        before = dict(records)
        changes: dict[tuple[str, bytes], bytes | None] = {
            ("k", bytes([rng.randrange(8)])): rng.choice((None, rng.randbytes(rng.choice((10, 900, 3_000)))))
            for _ in range(rng.randint(1, 4))
        }
        begun(persistence, Changes(dict(changes)))
        records = {name: value for name, value in records.items() if changes.get(name, value) is not None}
        records |= {name: value for name, value in changes.items() if value is not None}
        for name in [file.name for file in path.parent.glob("*.journal")]:
            after = (path.parent / name).read_bytes()
            old = before_files.get(name, b"").ljust(len(after), b"\0")
            torn = b"".join((after if rng.random() < 0.5 else old)[at : at + 512] for at in range(0, len(after), 512))
            cut = tmp_path / f"cut{number}"
            cut.mkdir()
            for other in path.parent.iterdir():
                if other.is_file() and not other.name.endswith((".lock", "-shm", ".count")):
                    shutil.copy(other, cut)
            (cut / name).write_bytes(torn)
            again = SqlitePersistence(cut / path.name, key=key)
            found = records_of(again)
            assert found in (before, records), number
            rows_met += found == before != records
            cuts += 1
            # It goes on from there.
            again.commit("a", Changes({("k", b"after"): b"cut"}))
            again.close()
    persistence.close()
    assert (cuts, rows_met > 5) == (39, True)


def test_damage_costs_the_commits_behind_it_and_is_told(tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db")
    persistence.load("a")
    states: list[Records] = []
    for number in range(30):
        persistence.commit("a", Changes({("k", bytes([number % 9])): bytes([number]) * 50}))
        states.append(records_of(persistence))
    sound = copy_of(tmp_path / "state.db", "killed")
    persistence.close()
    rng = random.Random(4)
    size = sum(16 + len(body) for _, body in rows_of(sound))
    lost = set()
    for trial in range(60):
        damaged = copy_of(sound, str(trial))
        (file,) = journal_files(damaged)
        content = bytearray(file.read_bytes())
        content[rng.randrange(size)] ^= 1 << rng.randrange(8)
        file.write_bytes(content)
        [stored] = read_channels(damaged, ["k"])
        again = SqlitePersistence(damaged)
        found = records_of(again)
        missing = again.lost_commits["a"]
        assert found == states[-1 - missing] == stored.state.records
        assert stored.lost_commits == missing
        again.close()
        lost.add(missing)
    assert len(lost) > 15


def test_a_journal_of_another_database_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for word in (b"old", b"new"):
        persistence = SqlitePersistence(path)
        persistence.load("a")
        for number in range(5):
            persistence.commit("a", Changes({("k", word): bytes([number])}))
        left = copy_of(path, word.decode())
        persistence.close()
        path.unlink()
        for count in tmp_path.glob("*.count"):
            count.unlink()
    # Where a commit of the other database stood, its row of the same number and length stands still.
    (file,) = journal_files(left)
    (other,) = journal_files(left.parent.with_name("old") / left.name)
    first = 16 + len(rows_of(left)[0][1])
    file.write_bytes(file.read_bytes()[:first] + other.read_bytes()[first:])
    for count in left.parent.glob("*.count"):
        count.unlink()
    persistence = SqlitePersistence(left)
    assert records_of(persistence) == {("k", b"new"): b"\x01"}
    persistence.close()


def test_what_stands_behind_a_damaged_row_never_comes_back(tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db")
    persistence.load("a")
    for number in range(5):
        persistence.commit("a", Changes({("k", bytes([number])): b"old"}))
    path = copy_of(tmp_path / "state.db", "killed")
    persistence.close()
    # As a power cut may leave it; so it tells of nothing that is missing.
    next(path.parent.glob("*.count")).unlink()
    [file] = journal_files(path)
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)
    persistence = SqlitePersistence(path)
    expected = {("k", b"\0"): b"old"}
    assert records_of(persistence) == expected
    # As long as the damaged one, and of the same number.
    begun(persistence, Changes({("k", b"n"): b"new"}))
    expected["k", b"n"] = b"new"
    again = SqlitePersistence(copy_of(path, "again"))
    assert records_of(again) == records_of(persistence) == expected
    again.close()
    persistence.close()


@pytest.mark.parametrize("part", ["name", "value", "order"])
def test_under_a_key_nobody_alters_it(part: str, tmp_path: Path) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db", key=KEY)
    persistence.load("a")
    for number in range(3):
        persistence.commit("a", Changes({("kind", b"name"): b"value %d" % number}))
    path = copy_of(tmp_path / "state.db", "killed")
    persistence.close()
    found = rows_of(path)
    assert len(found) == 2
    if part == "order":
        bodies = [found[1][1], found[0][1]]
    elif part == "name":
        bodies = [changes.replace(b"name", b"nane") for _, changes in found]
    else:
        bodies = [changes[:-1] + bytes([changes[-1] ^ 1]) for _, changes in found]
    altered = JournalFile(str(journal_files(path)[0]), str(path))
    commits, token = folded(path)
    assert token is not None
    altered.restart(token)
    for number, body in enumerate(bodies, commits + 1):
        altered.append(number, body)
    altered.close()
    assert [number for number, _ in rows_of(path)] == [2, 3]
    with pytest.raises(PersistenceError, match="a row of the journal was altered"):
        SqlitePersistence(path, key=KEY).load("a")
    assert journal_files(path) == []
    assert len(list(path.parent.glob("state.db.corrupt-*.journal"))) == 1


def test_who_reads_while_it_is_folded_misses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "JOURNAL_COMMITS_MAX", 3)
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.load("a")
    for number in range(3):
        persistence.commit("a", Changes({("k", b""): bytes([number])}))
    written = 3
    holder_of = read_channels.__globals__["read_journal"]

    def write_first(*arguments: Any) -> Any:
        nonlocal written
        if written < 20:
            # Folds, and writes over what the snapshot names.
            for _ in range(4):
                persistence.commit("a", Changes({("k", b""): bytes([written])}))
                written += 1
        return holder_of(*arguments)

    monkeypatch.setitem(read_channels.__globals__, "read_journal", write_first)
    [stored] = read_channels(path, ["k"])
    assert written > 20
    assert stored.lost_commits == 0
    assert stored.state.records == {("k", b""): bytes([written - 1])}
    persistence.close()


def test_a_journal_all_of_which_was_folded_is_deleted_at_rest(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    for number in range(3):
        persistence.commit("a", Changes({("k", bytes([number])): b"value"}))
    # That reads the table of records, and so folds.
    assert persistence.find_segments("a", sender="nobody") == []
    assert len(journal_files(path)) == 1
    persistence.close()
    assert journal_files(path) == []
    persistence = SqlitePersistence(path)
    state = persistence.load("a")
    assert state is not None
    assert len(state.records) == 3
    persistence.close()
