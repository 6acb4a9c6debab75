"""Both backends against a plain dictionary, under any sequence of commits, reopenings and crashes."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from shardwire.persistence import Changes, MemoryPersistence, SqlitePersistence, journal, large_values, read_channels

CHANNELS = st.sampled_from(["a", "b", "\u00e4\x00\U0001f600"])
NAMES = st.tuples(st.sampled_from(["sds.log", "sds.meta", ""]), st.sampled_from([b"", b"\x00", b"\x01\xff"]))
CHANGES = st.dictionaries(NAMES, st.none() | st.binary(max_size=20), max_size=6)
# How many commits the journal holds, in how many bytes; from which size on a value is none of it, and from how many
# bytes of such values on they lie in a file of their own.
LIMITS = st.tuples(
    st.integers(0, 4),
    st.sampled_from([60, 1 << 20]),
    st.sampled_from([1, 10, 4_096]),
    st.sampled_from([1, 25, 1 << 20]),
)
KEYS = st.sampled_from([None, bytes(range(32))])
PREFIXES = st.sets(st.tuples(st.sampled_from(["sds.log", ""]), st.sampled_from([b"", b"\x00", b"\xff", b"\x01\xff"])))
STEPS = st.lists(st.one_of(st.tuples(CHANNELS, CHANGES, PREFIXES), st.sampled_from(["reopen", "crash"])), max_size=12)


def as_a_kill_leaves_it(path: Path, life: int) -> Path:
    """A copy of the files while they are open."""
    directory = path.parent.parent / str(life)
    directory.mkdir()
    for file in path.parent.iterdir():
        if not file.name.endswith((".lock", "-shm")):
            shutil.copy(file, directory)
    return directory / path.name


@given(STEPS, LIMITS, KEYS)
@settings(max_examples=60, deadline=None)
def test_a_backend_holds_what_a_dictionary_would(
    steps: list[tuple[str, dict[tuple[str, bytes], bytes | None], set[tuple[str, bytes]]] | str],
    limits: tuple[int, int, int, int],
    key: bytes | None,
) -> None:
    with contextlib.ExitStack() as patches:
        for name, limit in zip(("JOURNAL_COMMITS_MAX", "JOURNAL_BYTES_MAX", "LARGE_VALUE_BYTES"), limits, strict=False):
            patches.enter_context(patch.object(journal, name, limit))
        patches.enter_context(patch.object(large_values, "LARGE_BYTES_MIN", limits[3]))
        _compare(steps, key)


def _compare(
    steps: list[tuple[str, dict[tuple[str, bytes], bytes | None], set[tuple[str, bytes]]] | str], key: bytes | None
) -> None:
    expected: dict[str, dict[tuple[str, bytes], bytes]] = {}
    memory = MemoryPersistence()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "first" / "state.db"
        path.parent.mkdir()
        lives = [SqlitePersistence(path, key=key)]
        for step in steps:
            sqlite = lives[-1]
            if isinstance(step, str):
                if step == "crash" and path.exists():
                    path = as_a_kill_leaves_it(path, len(lives))
                else:
                    sqlite.close()
                sqlite = SqlitePersistence(path, key=key)
                lives.append(sqlite)
            else:
                channel_id, changes, prefixes = step
                for persistence in (memory, sqlite):
                    persistence.commit(channel_id, Changes(dict(changes), set(prefixes)))
                records = expected.setdefault(channel_id, {})
                for kind, prefix in prefixes:
                    for name in [name for name in records if name[0] == kind and name[1].startswith(prefix)]:
                        del records[name]
                for name, value in changes.items():
                    if value is None:
                        records.pop(name, None)
                    else:
                        records[name] = value
            for channel_id, records in expected.items():
                for persistence in (memory, sqlite):
                    state = persistence.load(channel_id)
                    assert state is not None
                    assert dict(state.records) == records
                    for kind in {kind for kind, _ in records}:
                        assert list(state.of_kind(kind)) == sorted(
                            (key, value) for (name, key), value in records.items() if name == kind
                        )
            if path.exists():
                kinds = {kind for records in expected.values() for kind, _ in records}
                for stored in read_channels(path, kinds, key=key):
                    assert dict(stored.state.records) == expected[stored.channel_id]
                for stored in read_channels(path):
                    counts = Counter(kind for kind, _ in expected[stored.channel_id])
                    assert {kind: found.records for kind, found in stored.kinds.items()} == counts
        assert not lives[-1].lost_commits
        for sqlite in reversed(lives):
            sqlite.close()
        # At rest a database needs no further file.
        assert not list(path.parent.glob("*.values"))
        alone = Path(directory) / "alone.db"
        if path.exists():
            shutil.copy(path, alone)
        again = SqlitePersistence(alone, key=key)
        for channel_id, records in expected.items():
            state = again.load(channel_id)
            assert state is not None
            assert dict(state.records) == records
        again.close()
