"""One transaction of a database, rolled back where anything in it fails."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commits what is executed within it, or nothing of it.

    Raises:
        sqlite3.Error: As the statement that failed.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # Some failures, such as a full disk, have rolled back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
