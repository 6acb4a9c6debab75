"""One channel state, one process: a lock file for each channel of a database."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import weakref
from pathlib import Path

from shardwire.errors import PersistenceError
from shardwire.persistence.channel_files import file_of

_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class ChannelLock:
    """An advisory lock that the system releases when its holder closes it or dies, however it dies.

    Args:
        database: Path of the database.
        channel_id: The channel to lock.

    Raises:
        PersistenceError: Another holder has it, in this process or another, or the file cannot be made.
    """

    # Not open.
    _descriptor = -1

    def __init__(self, database: Path, channel_id: str) -> None:
        path = file_of(database, channel_id, ".lock")
        _LOCKS.add(self)
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PersistenceError(
                f"lock file {str(path)!r} cannot be opened: {error.strerror}{_remedy(error, path)}"
            ) from None
        try:
            # Whatever the umask takes away, its owner opens it again.
            os.fchmod(self._descriptor, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_holder(self._descriptor)
            self.release()
            raise PersistenceError(
                f"the state of channel {channel_id!r} in {str(database)!r} is in use by {holder}: one channel state "
                "belongs to one process; close the other one, or use another database"
            ) from None
        except OSError as error:
            self.release()
            raise PersistenceError(f"lock file {str(path)!r} cannot be locked: {error.strerror}") from None
        # Information only: a full disk keeps nobody from taking it.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        # The file stays: removing it would let two holders lock two different files of one name.
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _remedy(error: OSError, path: Path) -> str:
    if error.errno not in _FORBIDDEN:
        return ""
    if error.errno != errno.EROFS and os.path.exists(path):
        # As after a command that root or another user was for once.
        return ": it is another user's, or write-protected: give the files of the state to this user, or use another"
    return ": make its directory writable, or use another"


_LOCKS: weakref.WeakSet[ChannelLock] = weakref.WeakSet()


def _close_in_child() -> None:
    # A lock lasts as long as any copy of its descriptor: a worker that outlives its parent would keep it.
    for lock in list(_LOCKS):
        lock.release()


os.register_at_fork(after_in_child=_close_in_child)


def holder_of(database: Path, channel_id: str) -> str | None:
    """Who has a channel's lock; None where nobody has, or it cannot be told."""
    try:
        descriptor = os.open(file_of(database, channel_id, ".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
    return None


def _read_holder(descriptor: int) -> str:
    # Information only: the holder may be writing it just now.
    text = os.pread(descriptor, 20, 0)
    if not text.isdigit():
        return "another process"
    return "this process already" if int(text) == os.getpid() else f"process {int(text)}"
