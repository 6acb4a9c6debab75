"""What a bare reassembler saves: found by hash and by sender, deleted by set and by age, whole after any kill."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shardwire import keccak256
from shardwire.persistence import (
    Changes,
    MemoryPersistence,
    Persistence,
    SqlitePersistence,
    reassembly,
    reassembly_changes,
    reassembly_operations,
    tables,
)
from shardwire.segmentation import (
    PayloadReconstructed,
    Reassembler,
    ReassemblyLimits,
    SegmentationConfig,
    SegmentDiscarded,
    segment,
)

CONFIG = SegmentationConfig(
    segment_size_bytes=1_024,
    enable_reed_solomon=True,
    parity_rate=0.5,
    limits=ReassemblyLimits(timeout_ms=1_000),
)
HOUR_MS = 3_600_000


def payload_of(number: int) -> bytes:
    return random.Random(number).randbytes(4_000)


def saved(path: Path) -> tuple[SqlitePersistence, Reassembler]:
    """Two segments each of six payloads, of two senders; one is whole and one has a sender of a long name."""
    reassembler = Reassembler(CONFIG)
    for number, sender in enumerate(["alice", "bob", "alice", None, "a" * 100, "a" * 100 + "b"]):
        for data in segment(payload_of(number), CONFIG)[:2]:
            reassembler.receive(data, now_ms=HOUR_MS + number, sender=sender)
    persistence = SqlitePersistence(path)
    persistence.commit("bare", reassembly_changes(reassembler.poll_persist()))
    return persistence, reassembler


def test_segments_are_found_by_hash_and_by_sender(tmp_path: Path) -> None:
    persistence, _ = saved(tmp_path / "state.db")
    hashes = [keccak256(payload_of(number)) for number in range(6)]
    for value in hashes:
        assert len(persistence.find_segments("bare", entire_message_hash=value)) == 2
    assert persistence.find_segments("bare", entire_message_hash=bytes(32)) == []
    counts = {"alice": 4, "bob": 2, "": 0, "ali": 0, "a" * 100: 2, "a" * 100 + "b": 2, "a" * 64: 0}
    assert {sender: len(persistence.find_segments("bare", sender=sender)) for sender in counts} == counts
    assert len(persistence.find_segments("bare", entire_message_hash=hashes[0], sender="alice")) == 2
    assert persistence.find_segments("bare", entire_message_hash=hashes[0], sender="bob") == []
    assert persistence.find_segments("another", sender="alice") == []
    with pytest.raises(ValueError, match="give entire_message_hash, sender or both"):
        persistence.find_segments("bare")
    [(key, value), *_] = persistence.find_segments("bare", sender="bob")
    state = persistence.load("bare")
    assert state is not None
    assert state.records[reassembly.SEGMENT, key] == value
    persistence.close()


def test_searches_and_deletions_use_an_index(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence, _ = saved(path)
    persistence.close()
    connection = sqlite3.connect(path)

    def plan(statement: str, terms: Any) -> str:
        return " / ".join(str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", terms))

    assert "INDEX segment_by_hash (channel=? AND <expr>=?)" in plan(reassembly.BY_HASH, (1, bytes(32)))
    by_sender = plan(reassembly.BY_SENDER, (1, *reassembly.sender_range("alice")))
    assert "INDEX segment_by_sender (channel=? AND <expr>>? AND <expr><?)" in by_sender
    assert "(channel=? AND kind=? AND key>? AND key<?)" in plan(tables.DELETE_RECORDS, (1, "k", b"a", b"b"))
    assert "SCAN record" not in plan(reassembly.EXPIRE, {"channel": 1, "time": bytes(8)})
    connection.close()


def test_expiry_is_one_statement_and_takes_whole_sets(tmp_path: Path) -> None:
    persistence, _ = saved(tmp_path / "state.db")
    late = Reassembler(CONFIG)
    late.restore(reassembly_operations(persistence.load("bare")))
    # A third segment keeps the set of the first payload, whose others are as old as before.
    late.receive(segment(payload_of(0), CONFIG)[2], now_ms=HOUR_MS + 900, sender="alice")
    persistence.commit("bare", reassembly_changes(late.poll_persist()))
    assert persistence.expire_segments("bare", HOUR_MS - 1) == 0
    assert persistence.expire_segments("bare", HOUR_MS + 3) == 3 * 2
    assert len(persistence.find_segments("bare", sender="alice")) == 3
    assert persistence.expire_segments("bare", HOUR_MS + 900) == 2 * 2 + 3
    assert persistence.expire_segments("another", HOUR_MS + 900) == 0
    persistence.close()


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_a_set_that_is_done_is_deleted_by_its_prefix(kind: str, tmp_path: Path) -> None:
    persistence: Persistence = SqlitePersistence(tmp_path / "state.db") if kind == "sqlite" else MemoryPersistence()
    reassembler = Reassembler(CONFIG)
    other = {("app", b"\xff\xff"): b"", ("app", b"\xff"): b"", ("app", b"\xfe"): b"", ("kept", b"\xff"): b""}
    persistence.commit("bare", Changes({**other}))
    for number in range(2):
        for data in segment(payload_of(number), CONFIG)[:3]:
            reassembler.receive(data, now_ms=0)
    changes = reassembly_changes(reassembler.poll_persist())
    for _ in range(2):
        persistence.commit("bare", changes)
    done = reassembler.receive(segment(payload_of(0), CONFIG)[5], now_ms=1)
    assert isinstance(done, PayloadReconstructed)
    changes = reassembly_changes(reassembler.poll_persist())
    changes.deleted_prefixes.add(("app", b"\xff"))
    for _ in range(2):
        persistence.commit("bare", changes)
    state = persistence.load("bare")
    assert state is not None
    kinds = [kind for kind, _ in state.records]
    assert kinds.count(reassembly.SEGMENT) == 3
    assert kinds.count(reassembly.COMPLETED) == 1
    assert [key for key, _ in state.of_kind("app")] == [b"\xfe"]
    assert kinds.count("kept") == 1
    restarted = Reassembler(CONFIG)
    restarted.restore(reassembly_operations(state))
    again = restarted.receive(segment(payload_of(0), CONFIG)[0], now_ms=2)
    assert isinstance(again, SegmentDiscarded)
    assert again.reason == "AlreadyCompleted"
    assert isinstance(restarted.receive(segment(payload_of(1), CONFIG)[4], now_ms=2), PayloadReconstructed)
    persistence.close()


def arrivals() -> list[tuple[int, bytes]]:
    """Segments of 40 payloads, some lost, interleaved, with repeats."""
    rng = random.Random(31)
    sent = []
    for number in range(40):
        wire = segment(payload_of(number), CONFIG)
        kept = rng.sample(wire, len(wire) - rng.randint(0, 2))
        sent += [(number + rng.random() * 8, number, data) for data in [*kept, kept[0]]]
    return [(number, data) for _, number, data in sorted(sent)]


RECEIVER = """
import sys
sys.path[:0] = sys.argv[3:]
from tests.unit.persistence.test_stored_segments import CONFIG, arrivals
from shardwire.persistence import SqlitePersistence, reassembly_changes, reassembly_operations
from shardwire.segmentation import PayloadReconstructed, Reassembler
persistence = SqlitePersistence(sys.argv[1])
reassembler = Reassembler(CONFIG)
reassembler.restore(reassembly_operations(persistence.load("bare")))
for place, (number, data) in list(enumerate(arrivals()))[int(sys.argv[2]):]:
    outcome = reassembler.receive(data, now_ms=0, sender="alice")
    changes = reassembly_changes(reassembler.poll_persist())
    if isinstance(outcome, PayloadReconstructed):
        # The delivery is part of the transaction that completes the set, under a key that cannot come twice.
        changes.records["app", place.to_bytes(4, "big")] = outcome.payload
    persistence.commit("bare", changes)
    print(place, flush=True)
"""


def test_a_receiver_killed_at_any_moment_has_every_stored_segment_and_delivers_each_payload_once(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    rng = random.Random(4)
    sent = arrivals()
    reached = -1
    kills = 0
    while reached + 1 < len(sent):
        # What came shortly before the kill comes again.
        start = max(0, reached - rng.randint(0, 5))
        arguments = [sys.executable, "-c", RECEIVER, str(path), str(start), *sys.path]
        receiver = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        assert receiver.stdout is not None
        lines = [receiver.stdout.readline() for _ in range(rng.randint(1, len(sent) // 4))]
        time.sleep(rng.random() / 200)
        if receiver.poll() is None:
            os.kill(receiver.pid, signal.SIGKILL)
            kills += 1
        lines += receiver.stdout.read().split("\n")
        assert receiver.wait() in (0, -signal.SIGKILL)
        receiver.stdout.close()
        reported = [int(line) for line in lines[:-1] if line.strip()]
        reached = max(reported, default=reached)
        persistence = SqlitePersistence(path)
        state = persistence.load("bare")
        persistence.close()
        restarted = Reassembler(CONFIG)
        restarted.restore(reassembly_operations(state))
        assert restarted.stats()["restore_ignored"] == 0
        for _, data in sent[: reached + 1]:
            outcome = restarted.receive(data, now_ms=0, sender="alice")
            assert isinstance(outcome, SegmentDiscarded), "a stored segment is missing"
            assert outcome.reason in ("Duplicate", "AlreadyCompleted")
    assert kills >= 4
    assert state is not None
    delivered = [value for _, value in state.of_kind("app")]
    assert sorted(delivered) == sorted(payload_of(number) for number in range(40))
