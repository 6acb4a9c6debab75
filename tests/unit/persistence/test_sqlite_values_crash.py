"""Large values in a file of their own: what a commit returned for is there after kills, power cuts and full disks."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from state_files import journal_files, values_files

from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, SqlitePersistence, held_channel, journal, large_values, values
from shardwire.persistence.free_space import in_blocks
from shardwire.persistence.transaction import transaction

Records = dict[tuple[str, bytes], bytes]

# Whose values tell what they are: those of commit n stand under its number, and replace those of commit n - 3.
WRITER = """
import os, signal, sys
from shardwire.persistence import Changes, SqlitePersistence, values
path, channel_id, moment = sys.argv[1:]
persistence = SqlitePersistence(path)
state = persistence.load(channel_id)
number = int.from_bytes(state.records["k", b"number"], "big") if state else 0
if moment != "any":
    # Dies in the middle of the third commit.
    name, part, left = ("_sync", 0, 3) if moment == "before the sync" else ("_write", 1, 3)
    original = getattr(values, name)
    def die(*arguments):
        global left
        left -= 1
        if left == 0:
            if part:
                descriptor, start, parts = arguments
                original(descriptor, start, parts[: len(parts) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        original(*arguments)
    setattr(values, name, die)
for _ in range(500):
    number += 1
    records = {("k", bytes([part, number % 3])): b"%d " % number * 30_000 for part in range(9)}
    persistence.commit(channel_id, Changes({**records, ("k", b"number"): number.to_bytes(8, "big")}))
    print(number, flush=True)
"""


def written(number: int) -> Records:
    """What the writer's commits amount to."""
    records = {("k", b"number"): number.to_bytes(8, "big")}
    for last in range(max(1, number - 2), number + 1):
        records |= {("k", bytes([part, last % 3])): b"%d " % last * 30_000 for part in range(9)}
    return records


def start(path: Path, channel_id: str, moment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), channel_id, moment], stdout=subprocess.PIPE, text=True
    )


def end(writer: subprocess.Popen[str], reported: int, *, kill: bool) -> int:
    """Which commit it told of last."""
    assert writer.stdout is not None
    if kill:
        os.kill(writer.pid, signal.SIGKILL)
    rest = writer.stdout.read()
    assert writer.wait() == -signal.SIGKILL
    writer.stdout.close()
    # The last line may have been cut off in the middle.
    return max([reported, *(int(line) for line in rest.split("\n")[:-1] if line)])


def check(path: Path, channel_id: str, reported: int) -> None:
    persistence = SqlitePersistence(path)
    state = persistence.load(channel_id)
    assert state is not None
    stored = int.from_bytes(state.records["k", b"number"], "big")
    assert stored in (reported, reported + 1)
    assert dict(state.records) == written(stored)
    assert not persistence.lost_commits
    if stored % 2:
        # Another life goes on with the file that this one leaves.
        shutil.copytree(path.parent, path.parent.with_name("other"), dirs_exist_ok=True)
        persistence.close()
        for file in path.parent.with_name("other").iterdir():
            shutil.move(file, path.parent / file.name)
    else:
        persistence.close()
        assert not [file for file in values_files(path) if channel_id == "a"]


def test_whatever_was_committed_before_a_kill_is_there_after_it(tmp_path: Path) -> None:
    path = tmp_path / "life" / "state.db"
    path.parent.mkdir()
    rng = random.Random(5)
    reported = 0
    for moment in ("any", "before the sync", "in a write", "any", "in a write", "before the sync", "any", "any"):
        writer = start(path, "a", moment)
        assert writer.stdout is not None
        if moment == "any":
            for _ in range(rng.randint(1, 8)):
                reported = int(writer.stdout.readline())
            time.sleep(rng.random() * 0.02)
        reported = end(writer, reported, kill=moment == "any")
        check(path, "a", reported)


def test_two_processes_on_two_channels_of_one_database_are_killed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for round_ in range(2):
        writers = {channel_id: start(path, channel_id, "any") for channel_id in ("a", "b")}
        reported = {}
        for channel_id, writer in writers.items():
            assert writer.stdout is not None
            for _ in range(4):
                reported[channel_id] = int(writer.stdout.readline())
        for channel_id, writer in writers.items():
            reported[channel_id] = end(writer, reported[channel_id], kill=True)
        persistence = SqlitePersistence(path)
        for channel_id, number in reported.items():
            state = persistence.load(channel_id)
            assert state is not None
            stored = int.from_bytes(state.records["k", b"number"], "big")
            assert stored in (number, number + 1)
            assert dict(state.records) == written(stored), round_
        persistence.close()
        assert values_files(path) == []


def test_channels_of_one_database_commit_at_once(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    failures: list[BaseException] = []

    def write(channel_id: str) -> None:
        try:
            for number in range(1, 8):
                records = {("k", bytes([part, number % 3])): b"%d " % number * 30_000 for part in range(9)}
                persistence.commit(channel_id, Changes({**records, ("k", b"number"): number.to_bytes(8, "big")}))
                state = persistence.load(channel_id)
                assert state is not None
                assert dict(state.records) == written(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(channel_id,)) for channel_id in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    persistence.close()
    again = SqlitePersistence(path)
    for channel_id in "abc":
        state = again.load(channel_id)
        assert state is not None
        assert dict(state.records) == written(7)
    again.close()


class PowerCuts:
    """What the disk has at any moment at which the power may fail: what was synced, and some of what was not."""

    def __init__(self, path: Path, directory: Path, rng: random.Random) -> None:
        self._path = path
        self._directory = directory
        self._rng = rng
        self._synced = b""
        self._sync = values._sync
        self._truncate = os.ftruncate
        # What may be there: what was told durable, and what the commit in progress makes of it.
        self.committed: Records | None = None
        self.next: Records | None = None
        self.cuts = self.truncated = 0

    def sync(self, descriptor: int) -> None:
        """In place of that of the file."""
        (file,) = values_files(self._path)
        content = file.read_bytes()
        self.check(self._torn(content))
        self._sync(descriptor)
        self._synced = content
        # The row that names it is not there yet.
        self.check(content)

    def truncate(self, descriptor: int, length: int) -> None:
        """In place of that of the file."""
        self._truncate(descriptor, length)
        for file in values_files(self._path):
            if os.path.samestat(file.stat(), os.fstat(descriptor)):
                self.check(file.read_bytes())
                self.truncated += 1

    def check(self, content: bytes | None = None) -> None:
        """The power fails now."""
        self.cuts += 1
        cut = self._directory / f"cut{self.cuts}" / self._path.name
        cut.parent.mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(self._path.with_name(self._path.name + suffix), cut.with_name(cut.name + suffix))
        for file in journal_files(self._path):
            shutil.copy(file, cut.parent)
        for file in values_files(self._path):
            (cut.parent / file.name).write_bytes(self._synced if content is None else content)
        persistence = SqlitePersistence(cut)
        state = persistence.load("a")
        assert (None if state is None else dict(state.records)) in (self.committed, self.next)
        persistence.close()
        shutil.rmtree(cut.parent)

    def _torn(self, content: bytes) -> bytes:
        """Of what was not synced any sectors may be there."""
        length = self._rng.randint(min(len(self._synced), len(content)), len(content))
        parts = []
        for at in range(0, length, 512):
            parts.append((content if self._rng.random() < 0.5 else self._synced.ljust(length, b"\0"))[at : at + 512])
        return b"".join(parts)[:length]


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_any_moment_leaves_a_whole_number_of_commits(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_values, "LARGE_BYTES_MIN", 20_000)
    monkeypatch.setattr(journal, "JOURNAL_COMMITS_MAX", 7)
    monkeypatch.setattr(values, "KEPT_BYTES", 100_000)
    path = tmp_path / "life" / "state.db"
    path.parent.mkdir()
    rng = random.Random(seed)
    cuts = PowerCuts(path, tmp_path, rng)
    persistence = SqlitePersistence(path)
    persistence.acquire("a")
    # A life that opens what was cut syncs and truncates too.
    living = True

    def during(call: Callable[..., None]) -> Callable[..., None]:
        def done(*arguments: int) -> None:
            nonlocal living
            if living:
                living = False
                call(*arguments)
                living = True

        return done

    monkeypatch.setattr(values, "_sync", during(cuts.sync))
    monkeypatch.setattr(os, "ftruncate", during(cuts.truncate))
    records: Records = {}
    for number in range(40):
        changes: dict[tuple[str, bytes], bytes | None] = {}
        for _ in range(rng.randint(1, 6)):
            size = rng.choice((10, 5_000, 20_000, 40_000))
            changes["k", bytes([rng.randrange(8)])] = rng.choice((None, rng.randbytes(size), rng.randbytes(size)))
        prefixes = {("k", bytes([rng.randrange(8)]))} if number % 9 == 8 else set()
        records = {name: value for name, value in records.items() if name not in prefixes}
        records |= {name: value for name, value in changes.items() if value is not None}
        records = {name: value for name, value in records.items() if changes.get(name, value) is not None}
        cuts.next = records
        persistence.commit("a", Changes(changes, prefixes))
        cuts.committed = records
        # What was named has been synced before.
        cuts.check()
    persistence.close()
    assert cuts.cuts > 80
    assert cuts.truncated > 0
    again = SqlitePersistence(path)
    state = again.load("a")
    assert state is not None
    assert dict(state.records) == records
    again.close()


FILLER = """
import os, resource, signal, sys
from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, SqlitePersistence
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, resource.RLIM_INFINITY))
persistence = SqlitePersistence(sys.argv[1])
records = {}
for number in range(1000):
    more = {("k", bytes([number, part])): os.urandom(100_000) for part in range(6)}
    try:
        persistence.commit("a", Changes(dict(more)))
    except PersistenceError as error:
        assert "the disk is full: make room, nothing was stored" in str(error), error
        break
    records |= more
else:
    raise SystemExit("the limit was never met")
assert dict(persistence.load("a").records) == records, "a failed commit left something"
# What is deleted makes room.
persistence.commit("a", Changes({("k", bytes([0, part])): None for part in range(6)}))
persistence.commit("a", Changes(dict(more)))
records |= more
records = {name: value for name, value in records.items() if name[1][0] != 0}
assert dict(persistence.load("a").records) == records
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
persistence.close()
persistence = SqlitePersistence(sys.argv[1])
assert dict(persistence.load("a").records) == records
persistence.close()
print(number)
"""


def test_a_full_disk_stores_nothing_and_room_helps(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run = subprocess.run([sys.executable, "-c", FILLER, str(path)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 5
    assert values_files(path) == []


@pytest.mark.parametrize("committed", [False, True])
def test_a_commit_whose_row_failed_gives_its_places_back(
    committed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "JOURNAL_COMMITS_MAX", 0)
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    first = {("k", bytes([part])): os.urandom(100_000) for part in range(6)}
    if committed:
        persistence.commit("a", Changes(dict(first)))
    else:
        persistence.load("a")
    database = persistence._database
    assert database is not None
    database.connection.execute(
        "CREATE TEMP TRIGGER full BEFORE UPDATE ON main.channel BEGIN SELECT RAISE(ABORT, 'full'); END"
    )
    second = {("k", bytes([part])): os.urandom(100_000) for part in range(6)}
    for _ in range(5):
        with pytest.raises(PersistenceError):
            persistence.commit("a", Changes(dict(second)))
    state = persistence.load("a")
    assert (None if state is None else dict(state.records)) == (first if committed else None)
    database.connection.execute("DROP TRIGGER full")
    persistence.commit("a", Changes(dict(second)))
    (file,) = values_files(path)
    # Twelve places, filled up, at most.
    assert file.stat().st_size <= 12 * in_blocks(100_000)
    state = persistence.load("a")
    assert state is not None
    assert dict(state.records) == second
    persistence.close()


def test_what_cannot_be_brought_back_stays_for_the_next_life(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    records = {("k", bytes([part])): os.urandom(100_000) for part in range(6)}
    persistence.commit("a", Changes(dict(records)))
    database = persistence._database
    assert database is not None
    (pages,) = database.connection.execute("PRAGMA page_count").fetchone()
    database.connection.execute(f"PRAGMA max_page_count = {pages}")
    persistence.close()
    assert len(values_files(path)) == 1
    again = SqlitePersistence(path)
    state = again.load("a")
    assert state is not None
    assert dict(state.records) == records
    again.close()
    assert values_files(path) == []


def test_what_a_commit_that_failed_was_to_free_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    persistence = SqlitePersistence(tmp_path / "state.db")
    values = {("k", bytes([number])): os.urandom(large_values.LARGE_BYTES_MIN) for number in range(4)}
    names = list(values)
    persistence.commit("a", Changes({names[0]: values[names[0]]}))

    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR

    @contextlib.contextmanager
    def fail(connection: sqlite3.Connection) -> Iterator[None]:
        with transaction(connection):
            yield
            raise error

    with monkeypatch.context() as failing, pytest.raises(PersistenceError):
        failing.setattr(held_channel, "transaction", fail)
        # What deletes by a prefix is no row of the journal.
        persistence.commit("a", Changes({names[0]: None}, {("other", b"")}))
    # Each of them lies where there is room.
    for name in names[1:]:
        persistence.commit("a", Changes({name: values[name]}))
    state = persistence.load("a")
    assert state is not None
    assert dict(state.records) == values
    persistence.close()
