"""What a commit returned for is there after a kill and after a power cut, and half a commit never is."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shardwire.persistence import Changes, SqlitePersistence

WRITER = """
import os, sys
from shardwire.persistence import Changes, SqlitePersistence
persistence = SqlitePersistence(sys.argv[1])
state = persistence.load("a")
number = int.from_bytes(state.records["k", b"number"], "big") if state else 0
while True:
    number += 1
    value = number.to_bytes(8, "big")
    persistence.commit("a", Changes({("k", b"number"): value, ("k", value): os.urandom(number % 7 * 10_000)}))
    print(number, flush=True)
"""


def load(path: Path) -> dict[tuple[str, bytes], bytes] | None:
    persistence = SqlitePersistence(path)
    try:
        state = persistence.load("a")
        return None if state is None else dict(state.records)
    finally:
        persistence.close()


def test_whatever_was_committed_before_a_kill_is_there_after_it(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    rng = random.Random(5)
    reported = 0
    for _ in range(8):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for _ in range(rng.randint(1, 20)):
            reported = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        rest = writer.stdout.read()
        writer.wait()
        writer.stdout.close()
        # The last line may have been cut off in the middle.
        reported = max([reported, *(int(line) for line in rest.split("\n")[:-1] if line)])
        records = load(path)
        assert records is not None
        stored = int.from_bytes(records["k", b"number"], "big")
        assert stored in (reported, reported + 1)
        assert set(records) == {
            ("k", b"number"),
            *(("k", number.to_bytes(8, "big")) for number in range(1, stored + 1)),
        }


def test_a_log_cut_off_anywhere_gives_a_whole_number_of_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of it stays in the log.
    monkeypatch.setattr("shardwire.persistence.database.LOG_BYTES_MIN", 32 << 20)
    monkeypatch.setattr("shardwire.persistence.journal.JOURNAL_COMMITS_MAX", 0)
    path = tmp_path / "state.db"
    rng = random.Random(6)
    persistence = SqlitePersistence(path)
    states: list[dict[tuple[str, bytes], bytes] | None] = [None]
    log = path.with_name(path.name + "-wal")
    lengths = [0]
    records: dict[tuple[str, bytes], bytes] = {}
    for _ in range(20):
        changes: dict[tuple[str, bytes], bytes | None] = {}
        for _ in range(rng.randint(1, 5)):
            name = ("k", bytes([rng.randrange(8)]))
            changes[name] = rng.choice((None, rng.randbytes(rng.choice((0, 10, 20_000)))))
        persistence.commit("a", Changes(dict(changes)))
        for name, value in changes.items():
            if value is None:
                records.pop(name, None)
            else:
                records[name] = value
        states.append(dict(records))
        lengths.append(log.stat().st_size)
    full = log.read_bytes()
    main = path.read_bytes()
    persistence.close()
    cut = tmp_path / "cut.db"
    for trial in range(120):
        length = rng.choice(lengths) if trial % 2 else rng.randrange(len(full) + 1)
        for suffix in ("-wal", "-shm"):
            cut.with_name(cut.name + suffix).unlink(missing_ok=True)
        cut.write_bytes(main)
        cut.with_name(cut.name + "-wal").write_bytes(full[:length])
        commits = max(number for number, end in enumerate(lengths) if end <= length)
        assert load(cut) == states[commits], f"a log of {length} bytes"
    shutil.rmtree(tmp_path, ignore_errors=True)
