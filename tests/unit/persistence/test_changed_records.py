"""What one commit changes, as the core hands it on: a mapping, a row of a journal, and what many amount to."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwire._native import ChangedRecords, RecordTable, sizes_in_rows, split_row
from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, MemoryPersistence, RecordName

Records = dict[RecordName, bytes | None]

# Ids that peers chose are in keys: any bytes.
NAMES = st.tuples(st.sampled_from(["sds.log", "sds.message", "ü"]), st.binary(max_size=3))
CHANGES = st.dictionaries(NAMES, st.none() | st.binary(max_size=5), max_size=6)


def row_of(changes: ChangedRecords) -> bytes:
    return b"".join(changes.row())


def parts_of(row: bytes) -> tuple[bytes, bytes]:
    parts = split_row(row)
    assert parts is not None
    return parts


@given(CHANGES)
def test_it_is_a_mapping(records: Records) -> None:
    changed = ChangedRecords(records)
    assert isinstance(changed, Mapping)
    assert (len(changed), bool(changed), dict(changed)) == (len(records), bool(records), records)
    assert (list(changed), list(changed.values()), list(changed.items())) == (
        list(records),
        list(records.values()),
        list(records.items()),
    )
    for name in (*records, ("sds.log", b"none")):
        assert (name in changed, changed.get(name, b"default")) == (name in records, records.get(name, b"default"))
    assert changed == records
    assert changed == ChangedRecords(records)
    assert changed != {("other", b""): b""}
    assert changed.value_bytes == sum(len(value) for value in records.values() if value is not None)
    with pytest.raises(KeyError):
        changed["sds.log", b"none"]
    with pytest.raises(TypeError):
        hash(changed)


def test_a_dict_of_it_is_its_owners() -> None:
    changed = ChangedRecords({("kind", b"key"): b"value"})
    changed.to_dict().clear()
    assert changed == {("kind", b"key"): b"value"}


def test_what_is_no_record_is_refused() -> None:
    for records in ({"name": b"value"}, {("kind", "key"): b"value"}, {("kind", b"key"): "value"}):
        with pytest.raises((TypeError, ValueError)):
            ChangedRecords(records)  # type: ignore[arg-type]


@given(st.lists(CHANGES, max_size=5))
def test_of_many_the_last_of_each_record_counts(all_changes: list[Records]) -> None:
    merged = ChangedRecords()
    there_is, changed = RecordTable(), RecordTable(keeps_deleted=True)
    by_rows, taking = RecordTable(keeps_deleted=True), RecordTable(keeps_deleted=True)
    expected: Records = {}
    for records in all_changes:
        changes = ChangedRecords(records)
        merged = merged.merged(changes)
        there_is.apply(changes)
        changed.apply(changes)
        assert by_rows.apply_row(*parts_of(row_of(changes)))
        taken = ChangedRecords(records)
        taking.take(taken)
        assert (bool(taken), taken.value_bytes, dict(taken)) == (False, 0, {})
        expected |= records
    left = {name: value for name, value in expected.items() if value is not None}
    assert merged == expected
    assert (there_is.values(), len(there_is)) == (left, len(left))
    assert changed.values() == by_rows.values() == taking.values() == expected
    sizes = {name: None if value is None else len(value) for name, value in expected.items()}
    assert sizes_in_rows([row_of(ChangedRecords(records)) for records in all_changes]) == sizes


@given(CHANGES, st.data())
def test_values_may_lie_apart(records: Records, data: st.DataObject) -> None:
    put = [name for name, value in records.items() if value is not None]
    chosen = data.draw(st.sets(st.sampled_from(put))) if put else set()
    places = {name: (2**63 + number, 28 + number, 2**32 - 1) for number, name in enumerate(chosen)}
    changes = ChangedRecords(records)
    head, values = changes.row(places, 28)
    here = {name: value for name, value in records.items() if name not in chosen}
    assert values == b"".join(value for value in here.values() if value is not None)
    applied, read = RecordTable(keeps_deleted=True), RecordTable(keeps_deleted=True)
    applied.apply(changes, places)
    assert read.apply_row(head, values)
    for table in (applied, read):
        assert (table.values(), table.places()) == (here, places)
    apart = {name: size - 28 for name, (_, size, _) in places.items()}
    sizes = sizes_in_rows([head + values])
    assert {name: sizes[name] for name in chosen} == apart


@given(CHANGES, st.data())
def test_what_is_cut_or_altered_is_read_to_an_end(records: Records, data: st.DataObject) -> None:
    head, values = ChangedRecords(records).row()
    table = RecordTable()
    if values:
        assert not table.apply_row(head, values[:-1])
    assert not table.apply_row(head[:-1], values)
    assert len(table) == 0
    at = data.draw(st.integers(0, len(head) - 1))
    altered = head[:at] + bytes([head[at] ^ data.draw(st.integers(1, 255))]) + head[at + 1 :]
    table.apply_row(altered, values)
    sizes_in_rows([altered + values, b"", head])
    assert split_row(head[:7]) is None


def test_records_are_deleted_by_prefix() -> None:
    table = RecordTable()
    table.apply(ChangedRecords({("a", b"x1"): b"", ("a", b"x2"): b"", ("a", b"y"): b"", ("b", b"x"): b""}))
    table.delete_prefix("a", b"x")
    assert set(table.values()) == {("a", b"y"), ("b", b"x")}


def test_memory_takes_what_a_channel_changed_as_it_is() -> None:
    persistence = MemoryPersistence()
    value = bytes(10_000)
    changed = ChangedRecords({("kind", b"large"): value, ("kind", b"gone"): b"x"})
    for taking in (False, True):
        assert len(dict(changed)) == 2
        persistence.apply("a", changed, taking=taking)
    assert not changed
    persistence.commit("a", Changes({("kind", b"gone"): None}))
    state = persistence.load("a")
    assert state is not None
    assert dict(state.records) == {("kind", b"large"): value}
    assert state.records["kind", b"large"] is value
    persistence.close()
    with pytest.raises(PersistenceError, match="closed"):
        persistence.apply("a", ChangedRecords())
