"""One channel state belongs to one process."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, SqlitePersistence, read_channels
from shardwire.persistence.channel_files import file_of
from shardwire.persistence.channel_lock import ChannelLock, holder_of
from shardwire.persistence.held_channel import HeldChannel

HOLDER = """
import sys, time
from shardwire.persistence import Changes, SqlitePersistence
persistence = SqlitePersistence(sys.argv[1])
persistence.commit("a", Changes({("k", b"1"): b"theirs"}))
print("held", flush=True)
time.sleep(60)
"""


def start_holder(path: Path) -> subprocess.Popen[str]:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_second_process_is_told_who_holds_the_state_and_takes_over_when_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    holder = start_holder(path)
    try:
        persistence = SqlitePersistence(path)
        with pytest.raises(PersistenceError, match=f"in use by process {holder.pid}"):
            persistence.load("a")
        with pytest.raises(PersistenceError, match="in use"):
            persistence.commit("a", Changes({("k", b"1"): b"ours"}))
        # Other channels of the same database are free.
        persistence.commit("b", Changes({("k", b"1"): b"ours"}))
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()
    state = persistence.load("a")
    assert state is not None
    assert dict(state.records) == {("k", b"1"): b"theirs"}
    persistence.close()


def test_a_second_instance_in_this_process_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    first = SqlitePersistence(tmp_path / "state.db")
    second = SqlitePersistence(tmp_path / "state.db")
    first.commit("a", Changes({("k", b"1"): b"one"}))
    with pytest.raises(PersistenceError, match="in use by this process already"):
        second.load("a")
    first.close()
    assert second.load("a") is not None
    second.close()


def test_a_locked_database_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwire.persistence.database.BUSY_TIMEOUT_MS", 50)
    first = SqlitePersistence(tmp_path / "state.db")
    first.commit("a", Changes({("k", b"1"): b"one"}))
    second = SqlitePersistence(tmp_path / "state.db")
    second.commit("b", Changes({("k", b"1"): b"one"}))
    assert first._database is not None
    first._database.connection.execute("BEGIN IMMEDIATE")
    # That alone takes the file of its channel.
    second.commit("b", Changes({("k", b"1"): b"two"}))
    with pytest.raises(PersistenceError, match="holds the database locked"):
        second.commit("b", Changes({("k", b"1"): b"three"}, {("other", b"")}))
    first._database.connection.execute("ROLLBACK")
    second.commit("b", Changes({("k", b"1"): b"three"}, {("other", b"")}))
    state = second.load("b")
    assert state is not None
    assert dict(state.records) == {("k", b"1"): b"three"}
    first.close()
    second.close()


def test_by_whatever_name_it_is_opened_it_is_one_state(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    path, link = tmp_path / "disk" / "state.db", tmp_path / "link.db"
    link.symlink_to(path)
    first, second = SqlitePersistence(path), SqlitePersistence(link)
    first.commit("a", Changes({("k", b"1"): b"one"}))
    with pytest.raises(PersistenceError, match="in use by this process already"):
        second.load("a")
    [stored] = read_channels(link)
    assert stored.held_by == "this process already"
    first.close()
    second.load("a")
    second.close()
    assert sorted(os.listdir(tmp_path)) == ["disk", "link.db"]


def test_who_goes_to_another_directory_stores_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    persistence = SqlitePersistence("state.db")
    persistence.commit("a", Changes({("k", b"1"): b"one"}))
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in (b"2", b"3"):
        for channel_id in "ab":
            persistence.commit(channel_id, Changes({("k", name): b"more"}))
    assert os.listdir() == []
    assert os.fspath(persistence.path) == "state.db"
    persistence.close()
    assert [stored.kinds["k"].records for stored in read_channels(tmp_path / "state.db")] == [3, 2]


GUEST = """
import sys
from shardwire.persistence import Changes, SqlitePersistence
persistence = SqlitePersistence(sys.argv[1])
persistence.commit("guest", Changes({("k", b"1"): b"theirs"}))
persistence.close()
"""


def test_instances_of_one_process_keep_their_log_while_another_process_comes_and_goes(tmp_path: Path) -> None:
    """A process that takes itself for the last user of a database deletes its log."""
    path = tmp_path / "state.db"
    instances = [SqlitePersistence(path), SqlitePersistence(path)]
    for channel_id, persistence in zip("ab", instances, strict=True):
        persistence.commit(channel_id, Changes({("k", b"1"): b"ours"}))
    subprocess.run([sys.executable, "-c", GUEST, str(path)], check=True, timeout=60)
    assert path.with_name("state.db-wal").exists()
    for persistence in instances:
        persistence.close()
    assert [stored.lost_commits for stored in read_channels(path)] == [0, 0, 0]


FORKING = """
import os, sys
from shardwire._native import ChangedRecords, Wake
from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, SqlitePersistence
persistence = SqlitePersistence(sys.argv[1])
persistence.load("a")
for number in range(3):
    persistence.commit("a", Changes({("k", bytes([number])): b"stored"}))
begun = persistence.begin_commit("a", ChangedRecords({("k", b"begun"): b"stored"}), Wake())
assert begun is not None
child = os.fork()
if not child:
    refused = 0
    assert persistence.begin_commit("a", ChangedRecords(), Wake()) is None
    for call in (lambda: persistence.load("a"), lambda: persistence.commit("a", Changes({("k", b"child"): b"theirs"})),
                 lambda: persistence.end_commit("a", begun)):
        try:
            call()
        except PersistenceError as error:
            assert f"is in use by process {os.getppid()}, from which this one was forked" in str(error), error
            refused += 1
    persistence.release("a")
    persistence.close()
    os._exit(0 if refused == 3 else 1)
assert os.waitpid(child, 0)[1] == 0
persistence.end_commit("a", begun)
child = os.fork()
if not child:
    # No other is under way.
    os._exit(persistence.begin_commit("a", ChangedRecords({("k", b"child"): b"theirs"}), Wake()) is not None)
assert os.waitpid(child, 0)[1] == 0
persistence.commit("a", Changes({("k", b"last"): b"stored"}))
assert len(persistence.load("a").records) == 5
persistence.close()
persistence = SqlitePersistence(sys.argv[1])
assert len(persistence.load("a").records) == 5
assert not persistence.lost_commits
"""


def test_a_forked_process_touches_nothing_of_its_parents(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKING, str(tmp_path / "state.db")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr


FORKED_HOLDER = """
import os, sys
from shardwire.persistence import SqlitePersistence
from shardwire.persistence.channel_lock import holder_of
persistence = SqlitePersistence(sys.argv[1])
persistence.load("a")
child = os.fork()
if not child:
    # What it does with what it inherited changes nothing.
    persistence.release("a")
    persistence.close()
    print(os.getpid(), holder_of(persistence.path, "a") == f"process {os.getppid()}", flush=True)
    sys.stdin.read()
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_process_that_outlives_its_parent_keeps_no_state_from_anybody(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    command = [sys.executable, "-c", FORKED_HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        child, is_held = holder.stdout.readline().split()
        holder.kill()
        holder.wait()
        os.kill(int(child), 0)
        persistence = SqlitePersistence(path)
        assert persistence.load("a") is None
        persistence.close()
        assert is_held == "True"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_directory_that_cannot_be_written_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(path: Path, *_: int) -> int:
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PersistenceError) as raised:
        ChannelLock(tmp_path / "state.db", "a")
    told = str(raised.value)
    assert f"cannot be opened: {os.strerror(code)}: make its directory writable" in told
    assert str(tmp_path) in told


def test_files_of_another_user_are_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    ChannelLock(path, "a").release()

    def refuse(path: Path, *_: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PersistenceError, match="it is another user's, or write-protected: give the files of the state"):
        ChannelLock(path, "a")


FORBIDDEN = """
import os, sys
from shardwire import PersistenceError, SqlitePersistence
if not os.geteuid():
    os.setuid(65_534)
try:
    SqlitePersistence(sys.argv[1]).load("a")
except PersistenceError as error:
    print(error)
"""


def test_a_directory_that_cannot_be_entered_is_named_with_the_remedy(tmp_path: Path) -> None:
    directory = tmp_path / "closed"
    directory.mkdir(mode=0)
    command = [sys.executable, "-c", FORBIDDEN, str(directory / "state.db")]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    directory.chmod(0o700)
    assert str(directory) in told
    assert "Permission denied" in told
    assert "make its directory writable" in told or "let this user read and write it" in told


def test_a_database_that_is_read_only_is_refused_before_anything_is_made_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite would take it, and nothing would say so before the log is to be copied into it."""
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path)
    persistence.commit("a", Changes({("k", b"1"): b"one"}))
    persistence.close()
    access = os.access
    monkeypatch.setattr(os, "access", lambda place, mode, **how: place != path and access(place, mode, **how))
    monkeypatch.setattr(os, "supports_effective_ids", {os.access})
    with pytest.raises(PersistenceError, match="cannot be written: let this user read and write it"):
        SqlitePersistence(path).load("a")
    assert not list(tmp_path.glob("*-wal"))


def test_a_load_that_fails_keeps_the_state_from_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    first, second = SqlitePersistence(path), SqlitePersistence(path)
    first.commit("a", Changes({("k", b"1"): b"one"}))
    first.close()
    first = SqlitePersistence(path)
    first.acquire("b")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken, pytest.raises(PersistenceError, match="load of channel 'a'"):
        broken.setattr(HeldChannel, "number", fail)
        first.load("a")
    state = second.load("a")
    assert state is not None
    assert dict(state.records) == {("k", b"1"): b"one"}
    # What it has had before stays its own.
    with pytest.raises(PersistenceError, match="in use by this process already"):
        second.load("b")
    first.close()
    second.close()


def test_a_file_system_without_locks_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(PersistenceError, match=f"cannot be locked: {os.strerror(errno.ENOLCK)}"):
        ChannelLock(tmp_path / "state.db", "a")
    assert holder_of(tmp_path / "state.db", "a") is None


def test_a_disk_without_room_for_the_name_of_a_holder_has_one_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", fail)
        lock = ChannelLock(path, "a")
    with pytest.raises(PersistenceError, match="is in use by another process: one channel state"):
        ChannelLock(path, "a")
    lock.release()
    ChannelLock(path, "a").release()


def test_a_count_that_cannot_be_opened_keeps_the_state_from_nobody(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    count = file_of(path, "a", ".count")
    count.mkdir()
    with pytest.raises(PersistenceError, match=r"count file .+ cannot be opened: Is a directory"):
        SqlitePersistence(path).load("a")
    count.rmdir()
    persistence = SqlitePersistence(path)
    assert persistence.load("a") is None
    persistence.close()


def test_who_is_refused_leaves_no_file_open(tmp_path: Path) -> None:
    def next_descriptor() -> int:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        os.close(descriptor)
        return descriptor

    lock = ChannelLock(tmp_path / "state.db", "a")
    before = next_descriptor()
    for _ in range(3):
        with pytest.raises(PersistenceError, match="in use by this process already"):
            ChannelLock(tmp_path / "state.db", "a")
    assert next_descriptor() == before
    lock.release()


@pytest.mark.parametrize("others", [0, 1])
def test_the_last_release_of_a_state_gives_it_free(others: int, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    first, second = SqlitePersistence(path), SqlitePersistence(path)
    for number in range(others):
        first.acquire(f"other {number}")
    for _ in range(2):
        first.load("a")
    first.release("a")
    with pytest.raises(PersistenceError, match="in use by this process already"):
        second.load("a")
    first.release("a")
    assert second.load("a") is None
    first.close()
    second.close()
