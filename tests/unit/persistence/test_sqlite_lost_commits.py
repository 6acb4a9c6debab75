"""A database that is older than what was told of it is recognised, however it became so; no crash makes it look so."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from state_files import folded, journal_files, rows_of

from shardwire._native import ChangedRecords, Wake
from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.cli.app import run
from shardwire.config import ChannelConfig, SdsConfig
from shardwire.errors import PersistenceError
from shardwire.node import MemoryNetwork, run_virtual
from shardwire.persistence import Changes, SqlitePersistence, read_channels
from shardwire.persistence.commit_count import CommitCount

WARNING = "is older than what was told of it"

KILLED = """
import os, sys
from shardwire.persistence import Changes, SqlitePersistence
persistence = SqlitePersistence(sys.argv[1])
for number in range(int(sys.argv[2])):
    persistence.commit("a", Changes({("k", bytes([number])): b"value"}))
os._exit(1)
"""


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def commit_and_die(path: Path, commits: int) -> None:
    """What a process commits that is killed before its log was copied."""
    died = subprocess.run([sys.executable, "-c", KILLED, str(path), str(commits)], capture_output=True, text=True)
    assert died.stderr == ""


def make(path: Path, commits: int) -> None:
    persistence = SqlitePersistence(path)
    for number in range(commits):
        persistence.commit("a", Changes({("first", bytes([number])): b"value"}))
    persistence.close()


def lost(path: Path) -> dict[str, int]:
    persistence = SqlitePersistence(path)
    try:
        persistence.load("a")
        return dict(persistence.lost_commits)
    finally:
        persistence.close()
        assert persistence.lost_commits.keys() <= {"a"}


def delete_log(path: Path) -> None:
    log_of(path).unlink()


def damage_log(path: Path) -> None:
    """In the last of its frames."""
    content = bytearray(log_of(path).read_bytes())
    content[-100] ^= 1
    log_of(path).write_bytes(content)


def empty_log(path: Path) -> None:
    log_of(path).write_bytes(b"")


def replace_by_nothing(path: Path) -> None:
    delete_log(path)
    path.unlink()


def delete_journal(path: Path) -> None:
    journal_files(path)[0].unlink()


def damage_journal(path: Path) -> None:
    """In the last of its rows."""
    (file,) = journal_files(path)
    content = bytearray(file.read_bytes())
    content[len(content.rstrip(b"\0")) - 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "missing"),
    [
        # The first commit of that life begins its journal anew, which the log tells.
        (delete_log, 5),
        (damage_log, 5),
        (empty_log, 5),
        (replace_by_nothing, 8),
        (delete_journal, 4),
        (damage_journal, 1),
    ],
)
def test_what_a_log_lost_is_said_once_and_kept(
    damage: Callable[[Path], None], missing: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state.db"
    make(path, 3)
    commit_and_die(path, 5)
    damage(path)
    persistence = SqlitePersistence(path)
    state = persistence.load("a")
    assert (0 if state is None else len(state.records)) == 8 - missing
    assert persistence.lost_commits == {"a": missing}
    [record] = [record for record in caplog.records if WARNING in record.getMessage()]
    assert (record.levelno, f"{missing} commits are missing" in record.getMessage()) == (logging.WARNING, True)
    # It goes on from there.
    for value in (b"value", b"another"):
        persistence.commit("a", Changes({("k", b"later"): value}))
    persistence.close()
    assert persistence.lost_commits == {"a": missing}
    assert lost(path) == {}
    assert [stored.lost_commits for stored in read_channels(path)] == [missing]


def test_an_older_copy_put_in_its_place_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make(path, 4)
    shutil.copy(path, tmp_path / "copy")
    make(path, 3)
    shutil.copy(tmp_path / "copy", path)
    # Beside whoever uses it, before and after that is noticed.
    assert [stored.lost_commits for stored in read_channels(path)] == [3]
    assert lost(path) == {"a": 3}
    make(path, 1)
    shutil.copy(tmp_path / "copy", path)
    make(path, 1)
    assert [stored.lost_commits for stored in read_channels(path)] == [4]


def test_what_was_lost_at_several_times_is_summed_up(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make(path, 4)
    for lost_now in (3, 2):
        shutil.copy(path, tmp_path / "copy")
        make(path, lost_now)
        shutil.copy(tmp_path / "copy", path)
        make(path, 1)
    assert [stored.lost_commits for stored in read_channels(path)] == [5]


def test_a_state_that_nothing_happened_to_is_never_said_to_be_older(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for _ in range(6):
        commit_and_die(path, 5)
        assert [stored.lost_commits for stored in read_channels(path)] == [0]
        assert lost(path) == {}
    [count] = tmp_path.glob("*.count")
    # What a power cut may leave of the count.
    for content in (b"", b"\x00" * 12, b"\xff" * 12, count.read_bytes()[:7]):
        count.write_bytes(content)
        assert lost(path) == {}
        make(path, 1)
    count.unlink()
    assert lost(path) == {}


def test_the_count_is_written_when_the_commit_is_durable_and_before_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    seen: list[tuple[int, int]] = []
    write = CommitCount.write

    def noted(count: CommitCount, commits: int) -> None:
        # What others read was synced before.
        seen.append((commits, max([folded(path)[0], *(number for number, _ in rows_of(path))])))
        write(count, commits)

    monkeypatch.setattr(CommitCount, "write", noted)
    persistence = SqlitePersistence(path)
    persistence.load("a")
    for number in range(1, 7):
        changes = Changes({("k", b""): bytes(number)})
        if number < 4:
            persistence.commit("a", changes)
        else:
            begun = persistence.begin_commit("a", ChangedRecords(changes.records), Wake())
            assert begun is not None
            assert len(seen) == number - 1
            persistence.end_commit("a", begun)
        assert seen[-1] == (number, number)
    persistence.close()


def test_a_commit_that_failed_is_counted_by_nobody(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    make(path, 4)
    shutil.copy(path, tmp_path / "copy")
    make(path, 2)
    shutil.copy(tmp_path / "copy", path)
    persistence = SqlitePersistence(path)
    persistence.load("a")
    database = persistence._database
    assert database is not None
    (pages,) = database.connection.execute("PRAGMA page_count").fetchone()
    database.connection.execute(f"PRAGMA max_page_count = {pages}")
    for _ in range(3):
        with pytest.raises(PersistenceError, match="disk is full"):
            persistence.commit("a", Changes({("k", b""): os.urandom(500_000)}))
    database.connection.execute("PRAGMA max_page_count = 1000000")
    persistence.commit("a", Changes({("k", b""): b""}))
    persistence.close()
    assert persistence.lost_commits == {"a": 2}
    assert [stored.lost_commits for stored in read_channels(path)] == [2]
    assert lost(path) == {}


def test_a_channel_goes_on_and_the_command_tells(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "channels.sqlite"

    async def join(persistence: SqlitePersistence) -> ReliableChannel:
        node = MemoryNetwork().create_node("alice")
        await node.start()
        config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence))
        return await create_reliable_channel(node, "notes", "/app/1/notes/proto", "alice", None, config)

    async def live(messages: int) -> int:
        persistence = SqlitePersistence(path)
        channel = await join(persistence)
        for number in range(messages):
            await channel.send(b"%d" % number)
        pending = len(channel.pending())
        await close_channel(channel)
        persistence.close()
        return pending

    assert run_virtual(live(1), limit_ms=600_000) == 1
    shutil.copy(path, tmp_path / "copy")
    assert run_virtual(live(2), limit_ms=600_000) == 3
    assert WARNING not in caplog.text
    shutil.copy(tmp_path / "copy", path)
    assert run_virtual(live(1), limit_ms=600_000) == 2
    assert WARNING in caplog.text
    assert run(["state", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    [line] = [line for line in told.splitlines() if "lost commits" in line]
    assert "at some time it was older than what was told of it" in line
