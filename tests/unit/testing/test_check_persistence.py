"""The check of persistences: ours hold every promise, and of broken ones the promise is named."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from shardwire.errors import PersistenceError
from shardwire.persistence import Changes, ChannelState, MemoryPersistence, RecordName, SqlitePersistence
from shardwire.testing import PERSISTENCE_PROMISES, BrokenPromiseError, check_persistence

NAMES = [promise.name for promise in PERSISTENCE_PROMISES]
Place = dict[str, dict[RecordName, bytes]]


class Kept:
    """As simple as one can be; what it holds outlives it in `place`."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def load(self, channel_id: str) -> Any:
        records = self.place.get(channel_id)
        return None if records is None else ChannelState(dict(records))

    def commit(self, channel_id: str, changes: Changes) -> Any:
        records = dict(self.place.get(channel_id, {}))
        self.delete(records, changes)
        self.put(records, changes)
        self.place[channel_id] = records

    def delete(self, records: dict[RecordName, bytes], changes: Changes) -> None:
        for kind, prefix in changes.deleted_prefixes:
            for name in [name for name in records if name[0] == kind and name[1].startswith(prefix)]:
                del records[name]

    def put(self, records: dict[RecordName, bytes], changes: Changes) -> None:
        for name, value in changes.records.items():
            if value is None:
                records.pop(name, None)
            else:
                records[name] = value

    def close(self) -> Any:
        pass


class Renaming(Kept):
    """Files records under other names than those it is given."""

    def renamed(self, name: RecordName) -> RecordName:
        return name

    def put(self, records: dict[RecordName, bytes], changes: Changes) -> None:
        super().put(records, Changes({self.renamed(name): value for name, value in changes.records.items()}))


class AsyncLoad(Kept):
    async def load(self, channel_id: str) -> Any:
        return super().load(channel_id)


class AsyncCommit(Kept):
    async def commit(self, channel_id: str, changes: Changes) -> None:
        super().commit(channel_id, changes)


class Unclosable(Kept):
    close = None


class EmptyAtFirst(Kept):
    def load(self, channel_id: str) -> Any:
        return super().load(channel_id) or ChannelState({})


class GivesDict(Kept):
    def load(self, channel_id: str) -> Any:
        return self.place.get(channel_id)


class GivesViews(Kept):
    def load(self, channel_id: str) -> Any:
        records = self.place.get(channel_id)
        return records and ChannelState({name: bytearray(value) for name, value in records.items()})  # type: ignore[misc]


class KeepsTheObject(Kept):
    def commit(self, channel_id: str, changes: Changes) -> None:
        if channel_id in self.place or None in changes.records.values():
            super().commit(channel_id, changes)
        else:
            self.place[channel_id] = changes.records  # type: ignore[assignment]


class FirstStands(Kept):
    def put(self, records: dict[RecordName, bytes], changes: Changes) -> None:
        super().put(records, Changes({name: records.get(name, value) for name, value in changes.records.items()}))


class DeletesWhatIsThere(Kept):
    def put(self, records: dict[RecordName, bytes], changes: Changes) -> None:
        for name, value in changes.records.items():
            if value is None:
                del records[name]
            else:
                records[name] = value


class KeepsDeleted(Kept):
    def put(self, records: dict[RecordName, bytes], changes: Changes) -> None:
        super().put(records, Changes({name: value for name, value in changes.records.items() if value is not None}))


class KeysAsTexts(Renaming):
    def renamed(self, name: RecordName) -> RecordName:
        return name[0], name[1].decode(errors="replace").encode()


class ShortKeys(Renaming):
    def renamed(self, name: RecordName) -> RecordName:
        return name[0], name[1][:255]


class KindsOfOneCase(Renaming):
    def renamed(self, name: RecordName) -> RecordName:
        return name[0].lower(), name[1]


class IdsUpToNul(Kept):
    def load(self, channel_id: str) -> Any:
        return super().load(channel_id.partition("\0")[0])

    def commit(self, channel_id: str, changes: Changes) -> None:
        super().commit(channel_id.partition("\0")[0], changes)


class IdsAsFiles(Kept):
    def commit(self, channel_id: str, changes: Changes) -> None:
        if len(channel_id.encode()) > 255:
            raise PersistenceError("file name too long")
        super().commit(channel_id, changes)


class EmptyIsNone(Kept):
    def put(self, records: dict[RecordName, bytes], changes: Changes) -> None:
        super().put(records, Changes({name: value or None for name, value in changes.records.items()}))


class Cuts(Kept):
    def put(self, records: dict[RecordName, bytes], changes: Changes) -> None:
        super().put(records, Changes({name: value and value[: 16 << 20] for name, value in changes.records.items()}))


class FewParameters(Kept):
    def commit(self, channel_id: str, changes: Changes) -> None:
        if len(changes.records) > 999:
            raise PersistenceError("too many variables")
        super().commit(channel_id, changes)


class PrefixesOfAnyKind(Kept):
    def delete(self, records: dict[RecordName, bytes], changes: Changes) -> None:
        for _, prefix in changes.deleted_prefixes:
            for name in [name for name in records if name[1].startswith(prefix)]:
                del records[name]


class PrefixesAsRanges(Kept):
    """Up to the prefix with its last byte counted up, which 255 has none for."""

    def delete(self, records: dict[RecordName, bytes], changes: Changes) -> None:
        for kind, prefix in changes.deleted_prefixes:
            end = prefix[:-1] + bytes([(prefix[-1] + 1) % 256]) if prefix else b"\xff" * 9
            for name in [name for name in records if name[0] == kind and prefix <= name[1] < end]:
                del records[name]


class PrefixesLast(Kept):
    def commit(self, channel_id: str, changes: Changes) -> None:
        records = dict(self.place.get(channel_id, {}))
        self.put(records, changes)
        self.delete(records, changes)
        self.place[channel_id] = records


class Once(Kept):
    last: tuple[str, dict[RecordName, bytes | None]] | None = None

    def commit(self, channel_id: str, changes: Changes) -> None:
        if self.last == (channel_id, changes.records):
            raise PersistenceError("made already")
        self.last = channel_id, dict(changes.records)
        super().commit(channel_id, changes)


class RefusesNothing(Kept):
    def commit(self, channel_id: str, changes: Changes) -> None:
        if not changes:
            raise PersistenceError("an empty statement")
        super().commit(channel_id, changes)


class InPlace(Kept):
    def commit(self, channel_id: str, changes: Changes) -> None:
        records = self.place.setdefault(channel_id, {})
        self.delete(records, changes)
        self.put(records, changes)


class WritesLater(Kept):
    """What failed is in its memory, and written with the next commit."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.memory: Place = {}

    def commit(self, channel_id: str, changes: Changes) -> None:
        records = self.memory.setdefault(channel_id, dict(self.place.get(channel_id, {})))
        self.delete(records, changes)
        self.put(records, changes)
        self.place[channel_id] = dict(records)


class WritesUnlessLoaded(WritesLater):
    def load(self, channel_id: str) -> Any:
        self.memory.pop(channel_id, None)
        return super().load(channel_id)


class OneThread(Kept):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.thread = threading.get_ident()

    def commit(self, channel_id: str, changes: Changes) -> None:
        if threading.get_ident() != self.thread:
            raise RuntimeError("made in another thread")
        super().commit(channel_id, changes)


class OneChannelAtATime(Kept):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.threads = {threading.current_thread()}

    def commit(self, channel_id: str, changes: Changes) -> None:
        self.threads.add(threading.current_thread())
        if sum(thread.is_alive() for thread in self.threads) > 2:
            raise PersistenceError("locked")
        super().commit(channel_id, changes)


class ReleasesAll(Kept):
    released = False

    def load(self, channel_id: str) -> Any:
        if self.released:
            raise PersistenceError("closed")
        return super().load(channel_id)

    def release(self, channel_id: str) -> None:
        self.released = True


class Forgets(Kept):
    def __init__(self, place: Place) -> None:
        super().__init__({})


class KnowsWhatItLoaded(Kept):
    """Writes a channel's file anew, with what it has of it in memory."""

    def __init__(self, place: Place) -> None:
        super().__init__({})
        self.files = place

    def load(self, channel_id: str) -> Any:
        if channel_id not in self.place and channel_id in self.files:
            self.place[channel_id] = self.files[channel_id]
        return super().load(channel_id)

    def commit(self, channel_id: str, changes: Changes) -> None:
        super().commit(channel_id, changes)
        self.files[channel_id] = self.place[channel_id]


class ClosesOnce(Kept):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise PersistenceError("closed already")
        self.closed = True


BROKEN: list[tuple[str, type[Kept]]] = [
    ("plain-methods", AsyncLoad),
    ("plain-methods", AsyncCommit),
    ("plain-methods", Unclosable),
    ("never-stored", EmptyAtFirst),
    ("round-trip", GivesDict),
    ("round-trip", GivesViews),
    ("round-trip", KeepsTheObject),
    ("last-commit-stands", FirstStands),
    ("deletion", DeletesWhatIsThere),
    ("deletion", KeepsDeleted),
    ("any-key", KeysAsTexts),
    ("any-key", ShortKeys),
    ("any-kind", KindsOfOneCase),
    ("any-channel-id", IdsUpToNul),
    ("any-channel-id", IdsAsFiles),
    ("empty-values", EmptyIsNone),
    ("large-values", Cuts),
    ("many-records", FewParameters),
    ("deleted-prefixes", PrefixesOfAnyKind),
    ("deleted-prefixes", PrefixesAsRanges),
    ("prefixes-first", PrefixesLast),
    ("same-changes-again", Once),
    ("no-changes", RefusesNothing),
    ("all-or-nothing", InPlace),
    ("all-or-nothing", WritesLater),
    ("all-or-nothing", WritesUnlessLoaded),
    ("other-threads", OneThread),
    ("channels-at-once", OneChannelAtATime),
    ("release", ReleasesAll),
    ("reopening", Forgets),
    ("commit-before-load", KnowsWhatItLoaded),
    ("closing-again", ClosesOnce),
]


@pytest.mark.parametrize(("promise", "kind"), BROKEN, ids=[kind.__name__ for _, kind in BROKEN])
def test_a_broken_promise_is_named(promise: str, kind: type[Kept]) -> None:
    place: Place = {}
    with pytest.raises(BrokenPromiseError, match=f"^{kind.__name__} breaks ") as caught:
        check_persistence(lambda: kind(place))
    assert caught.value.promise.name == promise, str(caught.value)
    for part in (caught.value.done, caught.value.expected, caught.value.came, caught.value.promise.where):
        assert part
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_promise_has_one_that_breaks_it() -> None:
    assert {promise for promise, _ in BROKEN} == set(NAMES)


def test_a_right_one_holds_all_of_them() -> None:
    place: Place = {}
    report = check_persistence(lambda: Kept(place))
    assert [promise.name for promise in report.held] == [name for name in NAMES if name != "release"]
    assert [(promise.name, reason) for promise, reason in report.passed_over] == [("release", "it has no release()")]
    lines = str(report).splitlines()
    assert lines[0] == f"Kept: {len(NAMES) - 1} promises held"
    assert lines[-1].split() == ["release", "not", "tried:", "it", "has", "no", "release()"]
    assert len(lines) == 1 + len(NAMES)


def test_memory_persistence_holds_what_it_can() -> None:
    report = check_persistence(MemoryPersistence, durable=False)
    assert {promise.name for promise, _ in report.passed_over} == {"release", "reopening", "commit-before-load"}


@pytest.mark.parametrize("key", [None, bytes(range(32))])
def test_sqlite_persistence_holds_every_promise(key: bytes | None, tmp_path: Path) -> None:
    report = check_persistence(lambda: SqlitePersistence(tmp_path / "state.db", key=key))
    assert [promise.name for promise in report.held] == NAMES


def test_one_that_is_broken_is_closed(tmp_path: Path) -> None:
    made: list[Kept] = []

    class Watched(ClosesOnce, FirstStands):
        pass

    def open_store() -> Kept:
        made.append(Watched({}))
        return made[-1]

    with pytest.raises(BrokenPromiseError):
        check_persistence(open_store)
    assert [store.closed for store in made] == [True]  # type: ignore[attr-defined]


def test_one_that_waits_for_ever_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwire.testing.persistence.THREAD_WAIT_S", 0.05)
    end = threading.Event()

    class Waiting(Kept):
        def commit(self, channel_id: str, changes: Changes) -> None:
            if threading.current_thread() is not threading.main_thread():
                end.wait()
            super().commit(channel_id, changes)

    place: Place = {}
    with pytest.raises(BrokenPromiseError, match=r"what came is nothing within 0.05 s") as caught:
        check_persistence(lambda: Waiting(place))
    end.set()
    assert caught.value.promise.name == "other-threads"


@pytest.mark.parametrize("error", [OSError("no such place"), KeyboardInterrupt()])
def test_a_factory_that_raises(error: BaseException) -> None:
    def open_store() -> Any:
        raise error

    expected: type[BaseException] = KeyboardInterrupt
    if isinstance(error, Exception):
        expected = BrokenPromiseError
    with pytest.raises(expected, match="no such place" if isinstance(error, Exception) else None) as caught:
        check_persistence(open_store)
    if isinstance(error, Exception):
        assert caught.value.__cause__ is error
