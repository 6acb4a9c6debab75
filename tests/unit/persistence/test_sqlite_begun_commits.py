"""Commits that one thread begins while another calls the database too, or that nobody ends."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from state_files import FailingFile, copy_of, folded, rows_of

from shardwire._native import ChangedRecords, JournalFile, Wake
from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, SqlitePersistence
from shardwire.persistence.journal import Journal


def put(name: bytes) -> Changes:
    return Changes({("k", name): b"value"})


def in_use(path: Path) -> SqlitePersistence:
    """One whose channel has a journal."""
    persistence = SqlitePersistence(path)
    persistence.load("a")
    for name in (b"1", b"2", b"3"):
        persistence.commit("a", put(name))
    return persistence


def names_of(persistence: SqlitePersistence) -> set[bytes]:
    state = persistence.load("a")
    assert state is not None
    return {key for _, key in state.records}


def found_after_a_kill(path: Path, name: str) -> set[bytes]:
    again = SqlitePersistence(copy_of(path, name))
    names = names_of(again)
    assert not again.lost_commits
    again.close()
    return names


class PausingFile:
    """In place of a `JournalFile`: who waits for a row goes on when `goes_on` is set."""

    def __init__(self, file: JournalFile) -> None:
        self._file = file
        self.waits, self.goes_on = threading.Event(), threading.Event()

    def end(self) -> None:
        self.waits.set()
        assert self.goes_on.wait(10)
        self._file.end()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class InterruptedFile:
    """In place of a `JournalFile`: Ctrl-C, or another error, comes when one of its calls has been made."""

    def __init__(self, file: JournalFile, call: str, error: BaseException | None = None) -> None:
        self._file = file
        self._call = call
        self._error = error or KeyboardInterrupt()

    def __getattr__(self, name: str) -> Any:
        made = getattr(self._file, name)
        if name != self._call:
            return made

        def interrupted(*arguments: Any) -> None:
            made(*arguments)
            raise self._error

        return interrupted


def test_a_commit_beside_the_end_of_one_that_was_begun_goes_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = in_use(path)
    held = persistence._held["a"]
    pausing = PausingFile(held.journal._file)
    held.journal._file = cast(Any, pausing)
    begun = persistence.begin_commit("a", ChangedRecords(put(b"begun").records), Wake())
    ending = threading.Thread(target=persistence.end_commit, args=("a", begun))
    ending.start()
    assert pausing.waits.wait(10)
    committing = threading.Thread(target=persistence.commit, args=("a", put(b"committed")))
    committing.start()
    # Time to go wrong in.
    committing.join(0.1)
    assert len(rows_of(path)) <= 3
    pausing.goes_on.set()
    ending.join()
    committing.join()
    persistence.commit("a", put(b"last"))
    expected = {b"1", b"2", b"3", b"begun", b"committed", b"last"}
    assert found_after_a_kill(path, "killed") == expected
    persistence.close()


@pytest.mark.parametrize(
    "wait",
    [
        SqlitePersistence.close,
        lambda persistence: persistence.release("a"),
        lambda persistence: persistence.load("a"),
        lambda persistence: persistence.find_segments("a", sender="alice"),
        lambda persistence: persistence.commit("a", put(b"next")),
    ],
)
def test_who_began_a_commit_that_failed_is_told_whoever_waited_for_it_first(
    wait: Callable[[SqlitePersistence], object], tmp_path: Path
) -> None:
    persistence = in_use(tmp_path / "state.db")
    held = persistence._held["a"]
    failing = FailingFile(held.journal._file)
    held.journal._file = cast(Any, failing)
    begun = persistence.begin_commit("a", ChangedRecords(put(b"failed").records), Wake())
    assert begun is not None
    wait(persistence)
    with pytest.raises(PersistenceError, match=r"commit of channel 'a' .* nothing was stored: .* \(the disk says so\)"):
        persistence.end_commit("a", begun)
    persistence.close()


@pytest.mark.parametrize("call", ["begin", "end", "append", "restart"])
@pytest.mark.parametrize("goes_on", [True, False])
def test_ctrl_c_within_a_commit_costs_no_later_one(call: str, goes_on: bool, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = in_use(path)
    held = persistence._held["a"]
    file = held.journal._file
    held.journal._file = cast(Any, InterruptedFile(file, call))
    with pytest.raises(KeyboardInterrupt):
        if call in ("begin", "end"):
            begun = persistence.begin_commit("a", ChangedRecords(put(b"interrupted").records), Wake())
            assert begun is not None
            persistence.end_commit("a", begun)
        else:
            persistence.commit("a", Changes(put(b"interrupted").records, {("x", b"")} if call == "restart" else set()))
    held.journal._file = file
    expected = {b"1", b"2", b"3"}
    if goes_on:
        for name in (b"4", b"5", b"6"):
            persistence.commit("a", put(name))
            expected.add(name)
            assert found_after_a_kill(path, name.decode()) - {b"interrupted"} == expected
    persistence.close()
    again = SqlitePersistence(path)
    assert names_of(again) - {b"interrupted"} == expected
    assert not again.lost_commits
    again.close()


def test_what_is_read_beside_it_is_folded_once(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = in_use(path)
    persistence.find_segments("a", sender="alice")
    before = folded(path)
    persistence.find_segments("a", sender="alice")
    assert folded(path) == before
    persistence.close()


def test_a_commit_of_which_nobody_knows_is_no_success(tmp_path: Path) -> None:
    persistence = in_use(tmp_path / "state.db")
    held = persistence._held["a"]
    file = held.journal._file
    held.journal._file = cast(Any, InterruptedFile(file, "end"))
    begun = persistence.begin_commit("a", ChangedRecords(put(b"begun").records), Wake())
    assert begun is not None
    with pytest.raises(KeyboardInterrupt):
        persistence.find_segments("a", sender="alice")
    held.journal._file = file
    with pytest.raises(PersistenceError, match="it was interrupted"):
        persistence.end_commit("a", begun)
    persistence.close()


def test_a_commit_that_cannot_be_begun_is_made_without_that(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = in_use(path)
    held = persistence._held["a"]
    file = held.journal._file
    held.journal._file = cast(Any, InterruptedFile(file, "begin", BlockingIOError(errno.EAGAIN, "no thread")))
    assert persistence.begin_commit("a", ChangedRecords(put(b"4").records), Wake()) is None
    held.journal._file = file
    persistence.commit("a", put(b"4"))
    assert found_after_a_kill(path, "killed") == {b"1", b"2", b"3", b"4"}
    persistence.close()


def test_a_fold_that_fails_costs_no_later_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    persistence = in_use(path)
    fold = Journal.fold

    def failing(*arguments: Any) -> None:
        fold(*arguments)
        error = sqlite3.OperationalError("the disk says so")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    with monkeypatch.context() as broken, pytest.raises(PersistenceError, match="the disk says so"):
        broken.setattr(Journal, "fold", failing)
        persistence.find_segments("a", sender="alice")
    for name in (b"4", b"5"):
        persistence.commit("a", put(name))
    assert found_after_a_kill(path, "killed") == {b"1", b"2", b"3", b"4", b"5"}
    persistence.close()


def test_after_a_kill_the_first_commit_folds_and_the_next_are_rows_again(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    killed = in_use(path)
    again = SqlitePersistence(copy_of(path, "killed"))
    again.load("a")
    for name in (b"4", b"5", b"6"):
        again.commit("a", put(name))
    assert (folded(again.path)[0], len(rows_of(again.path))) == (4, 2)
    for persistence in (again, killed):
        persistence.close()
