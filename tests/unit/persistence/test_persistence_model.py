"""Both backends against a plain dictionary, under any sequence of commits and reopenings."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from shardwire.persistence import Changes, MemoryPersistence, SqlitePersistence

CHANNELS = st.sampled_from(["a", "b", "\u00e4\x00\U0001f600"])
NAMES = st.tuples(st.sampled_from(["sds.log", "sds.meta", ""]), st.binary(max_size=2))
CHANGES = st.dictionaries(NAMES, st.none() | st.binary(max_size=20), max_size=6)
PREFIXES = st.sets(st.tuples(st.sampled_from(["sds.log", ""]), st.sampled_from([b"", b"\x00", b"\xff", b"\x01\xff"])))
STEPS = st.lists(st.one_of(st.tuples(CHANNELS, CHANGES, PREFIXES), st.just("reopen")), max_size=12)


@given(STEPS)
@settings(max_examples=30, deadline=None)
def test_a_backend_holds_what_a_dictionary_would(
    steps: list[tuple[str, dict[tuple[str, bytes], bytes | None], set[tuple[str, bytes]]] | str],
) -> None:
    expected: dict[str, dict[tuple[str, bytes], bytes]] = {}
    memory = MemoryPersistence()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "state.db"
        sqlite = SqlitePersistence(path)
        for step in steps:
            if isinstance(step, str):
                sqlite.close()
                sqlite = SqlitePersistence(path)
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
        sqlite.close()
