"""What a file of the state failed with, and what to do about it."""

from __future__ import annotations

import errno
import sqlite3

from shardwire.quoting import os_reason

_FULL = "the disk is full: make room, nothing was stored"
_DISK = (
    "the disk reported an error, nothing was stored: look into the log of the system, and move the state if it stays"
)
_LOCKED = "another process holds the database locked: end it, or give each a database of its own"
_OF_SYSTEM = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EIO: _DISK,
    errno.EACCES: "a file of the state is not accessible, nothing was stored: let this user read and write it",
    errno.EPERM: "a file of the state is not accessible, nothing was stored: let this user read and write it",
    errno.EROFS: "the volume is read-only, nothing was stored: mount it writable, or move the state",
    errno.EMFILE: "no file can be opened any more, nothing was stored: raise the limit of open files",
    errno.ENFILE: "no file can be opened any more, nothing was stored: raise the limit of open files",
}
_OF_SQLITE = {
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened: let this user read and write it, and its directory",
    sqlite3.SQLITE_READONLY: "the file, or one beside it, is read-only: let this user write it, and its directory",
    sqlite3.SQLITE_IOERR: _DISK,
}


def cause_of(error: sqlite3.Error | OSError, code: int, *, is_directory: bool) -> str:
    """One line about an error.

    Args:
        error: What was raised.
        code: The primary code of SQLite, where it is SQLite's.
        is_directory: Whether a directory stands where the database should.
    """
    if isinstance(error, OSError):
        gone = "a file of the state cannot be used, nothing was stored: put back what is missing beside the database"
        return f"{_OF_SYSTEM.get(error.errno or 0, gone)} ({os_reason(error)})"
    if is_full(error):
        return f"{_FULL} ({error})"
    if is_directory and code == sqlite3.SQLITE_CANTOPEN:
        return f"it is a directory: name a file ({error})"
    return f"{_OF_SQLITE.get(code, 'SQLite reported an error: close the channel, and open it again')} ({error})"


def is_full(error: sqlite3.Error) -> bool:
    """Whether SQLite found no room for the index of a log, of which it speaks as of a disk that fails."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) == sqlite3.SQLITE_IOERR_SHMSIZE
