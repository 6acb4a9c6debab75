"""Each failure of a state's files names what to do about it, and none shows a number of the system."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from shardwire import Changes, PersistenceError, SqlitePersistence
from shardwire.persistence.failures import cause_of

OF_SYSTEM = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EIO: "look into the log of the system",
    errno.EACCES: "let this user read and write it",
    errno.EROFS: "mount it writable, or move the state",
    errno.EMFILE: "raise the limit of open files",
    errno.ENOENT: "put back what is missing",
}
OF_SQLITE = {
    sqlite3.SQLITE_FULL: "make room",
    sqlite3.SQLITE_BUSY: "end it, or give each a database of its own",
    sqlite3.SQLITE_CANTOPEN: "let this user read and write it, and its directory",
    sqlite3.SQLITE_READONLY: "let this user write it, and its directory",
    sqlite3.SQLITE_IOERR: "look into the log of the system",
    sqlite3.SQLITE_PROTOCOL: "close the channel, and open it again",
}


@pytest.mark.parametrize("number", OF_SYSTEM, ids=errno.errorcode.get)
def test_errors_of_the_system(number: int) -> None:
    error = OSError(number, os.strerror(number), "state.sqlite-1.journal")
    told = cause_of(error, sqlite3.SQLITE_ERROR, is_directory=False)
    assert OF_SYSTEM[number] in told
    assert told.endswith(f"({os.strerror(number)}: 'state.sqlite-1.journal')")


@pytest.mark.parametrize("code", OF_SQLITE)
def test_errors_of_sqlite(code: int) -> None:
    assert OF_SQLITE[code] in cause_of(sqlite3.OperationalError("so"), code, is_directory=False)


def test_no_room_for_the_index_of_a_log_is_a_full_disk() -> None:
    """SQLite calls it an error of the disk."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    assert "the disk is full: make room" in cause_of(error, sqlite3.SQLITE_IOERR, is_directory=False)


def test_a_directory_in_its_place(tmp_path: Path) -> None:
    with pytest.raises(PersistenceError, match="it is a directory: name a file"):
        SqlitePersistence(tmp_path).commit("room", Changes({("kind", b"key"): b"value"}))
