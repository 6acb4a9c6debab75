"""What `shardwire serve --spool` leaves where a disk fails."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from shardwire.cli.network import spool
from shardwire.events import MessageReceivedEvent


def test_a_message_whose_name_is_not_durable_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written again, so it would be there twice."""

    def fail(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    into = spool.Spool(tmp_path)
    event = MessageReceivedEvent(b"content", "alice", "ab" * 32)
    with monkeypatch.context() as patched:
        patched.setattr(spool, "sync_directory", fail)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            asyncio.run(into.write(event))
    assert list(tmp_path.iterdir()) == []
    written = asyncio.run(into.write(event))
    assert sorted(tmp_path.iterdir()) == [written.with_suffix(".json"), written]
