"""A database with a key: nothing of a value on disk, the same answers, and refusals that name the remedy."""

from __future__ import annotations

import copy
import logging
import pickle
import sqlite3
import sys
from pathlib import Path

import pytest

from shardwire import keccak256
from shardwire.channel import close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, SdsConfig
from shardwire.errors import ConfigError, MissingLibraryError, PersistenceError
from shardwire.node import MemoryNetwork, run_virtual
from shardwire.persistence import Changes, SqlitePersistence, StoredKind, read_channels, reassembly_changes
from shardwire.persistence.checksums import checksum_of
from shardwire.segmentation import Reassembler, SegmentationConfig, segment

# The same in every process: names of tests tell them.
KEY, OTHER_KEY, MARKER = (keccak256(name) for name in (b"key", b"other key", b"marker"))
RECORDS = {("kind", bytes([number])): MARKER * number for number in range(20)}


def everything_on_disk(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(directory.iterdir()))


def made(path: Path, key: bytes | None) -> SqlitePersistence:
    persistence = SqlitePersistence(path, key=key)
    persistence.commit("a", Changes(dict(RECORDS)))
    return persistence


def test_nothing_of_a_value_is_on_disk_while_in_use_and_after(tmp_path: Path) -> None:
    persistence = made(tmp_path / "state.db", KEY)
    assert MARKER not in everything_on_disk(tmp_path)
    persistence.close()
    assert MARKER not in everything_on_disk(tmp_path)
    again = SqlitePersistence(tmp_path / "state.db", key=bytearray(KEY))
    state = again.load("a")
    assert state is not None
    assert dict(state.records) == RECORDS
    again.close()
    # The marker would be found without a key.
    (tmp_path / "plain").mkdir()
    made(tmp_path / "plain" / "state.db", None).close()
    assert MARKER in everything_on_disk(tmp_path / "plain")


def test_a_channel_keeps_its_messages_to_itself_and_goes_on(tmp_path: Path) -> None:
    async def live(send: bool) -> None:
        network = MemoryNetwork()
        node = network.create_node("alice")
        await node.start()
        persistence = SqlitePersistence(tmp_path / "state.db", key=KEY)
        config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence))
        channel = await create_reliable_channel(node, "channel", "/shardwire/1/test/proto", "alice", None, config)
        if send:
            await channel.send(MARKER * 50_000)
        assert len(channel.pending()) == 1
        await close_channel(channel)
        persistence.close()

    for send in (True, False):
        run_virtual(live(send), limit_ms=600_000)
        assert MARKER not in everything_on_disk(tmp_path)


def test_a_bare_reassembler_finds_and_expires_its_segments(tmp_path: Path) -> None:
    config = SegmentationConfig(segment_size_bytes=1_024)
    found = []
    for key in (None, KEY):
        reassembler = Reassembler(config)
        for number, sender in enumerate(["alice", "bob", "alice"]):
            for data in segment(bytes([number]) * 4_000, config)[:2]:
                reassembler.receive(data, now_ms=number * 1_000, sender=sender)
        persistence = SqlitePersistence(tmp_path / f"{key is None}.db", key=key)
        persistence.commit("bare", reassembly_changes(reassembler.poll_persist()))
        first = keccak256(bytes(4_000))
        found.append(
            (
                persistence.find_segments("bare", sender="alice"),
                persistence.find_segments("bare", entire_message_hash=first),
                persistence.find_segments("bare", entire_message_hash=first, sender="bob"),
                persistence.expire_segments("bare", 1_000),
                persistence.find_segments("bare", sender="alice"),
                persistence.expire_segments("another", 1_000),
            )
        )
        persistence.close()
    assert found[0] == found[1]
    assert [len(part) if isinstance(part, list) else part for part in found[1]] == [4, 2, 0, 4, 2, 0]


def test_another_key_or_none_is_refused_by_name_and_the_state_is_left_alone(tmp_path: Path) -> None:
    sealed, plain = tmp_path / "sealed.db", tmp_path / "plain.db"
    made(sealed, KEY).close()
    made(plain, None).close()
    before = [path.read_bytes() for path in (sealed, plain)]
    for path, key, complaint in (
        (sealed, OTHER_KEY, "is encrypted under another key than the one given: give the key it began with"),
        (sealed, None, "is encrypted, and no key was given: give the key it began with"),
        (plain, KEY, "is not encrypted, and a key was given: open it without one, or give the path of a new"),
    ):
        for call in ("load", "commit", "acquire", "read"):
            persistence = SqlitePersistence(path, key=key)
            with pytest.raises(PersistenceError, match=complaint) as caught:
                if call == "commit":
                    persistence.commit("a", Changes({("kind", b"late"): b"value"}))
                elif call == "read":
                    read_channels(path, ("kind",), key=key)
                else:
                    getattr(persistence, call)("a")
            assert key is None or key.hex() not in str(caught.value)
            persistence.close()
    assert [path.read_bytes() for path in (sealed, plain)] == before


def test_records_are_counted_without_a_key_and_read_with_it(tmp_path: Path) -> None:
    persistence = made(tmp_path / "state.db", KEY)
    [stored] = read_channels(tmp_path / "state.db")
    assert stored.kinds["kind"].records == len(RECORDS)
    [stored] = read_channels(tmp_path / "state.db", ("kind",), key=KEY)
    assert dict(stored.state.records) == RECORDS
    persistence.close()


@pytest.mark.parametrize("change", ["altered", "renamed", "moved"])
def test_a_value_that_was_altered_or_put_in_anothers_place_is_no_value(change: str, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    persistence = made(path, KEY)
    persistence.commit("b", Changes({("kind", b"\x05"): b"another"}))
    persistence.close()
    connection = sqlite3.connect(path)
    (value,) = connection.execute("SELECT value FROM record WHERE channel = 1 AND key = x'04'").fetchone()
    channel, key = (2, b"\x05") if change == "moved" else (1, b"\x05" if change == "renamed" else b"\x04")
    if change == "altered":
        value = value[:-1] + bytes([value[-1] ^ 1])
    connection.execute(
        "UPDATE record SET value = ?, checksum = ? WHERE channel = ? AND key = ?",
        (value, checksum_of("kind", key, value), channel, key),
    )
    connection.commit()
    connection.close()
    with pytest.raises(PersistenceError, match="corrupt"):
        SqlitePersistence(path, key=KEY).load("b" if change == "moved" else "a")


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        (b"", "key has 0 bytes: it must have 32"),
        (KEY[:-1], "key has 31 bytes: it must have 32"),
        (KEY + b"x", "key has 33 bytes: it must have 32"),
        (KEY.hex(), "key is a str: it must be 32 bytes"),
        (7, "key is a int: it must be 32 bytes"),
    ],
)
def test_a_wrong_key_is_refused_at_once_and_not_shown(key: bytes, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        SqlitePersistence(tmp_path / "state.db", key=key)
    assert str(caught.value) == complaint
    with pytest.raises(ConfigError, match=complaint):
        read_channels(made(tmp_path / "state.db", None).path, key=key)


def test_a_key_is_never_shown_or_pickled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    persistence = made(tmp_path / "state.db", KEY)
    shown = repr(persistence) + repr(ChannelConfig.logos(sds=SdsConfig(persistence=persistence))) + caplog.text
    assert "state.db', encrypted)" in shown
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="holds a key and cannot be pickled") as caught:
            attempt(persistence)
        shown += str(caught.value)
    persistence.close()
    with pytest.raises(PersistenceError, match="is closed") as closed:
        persistence.load("a")
    shown += str(closed.value)
    for text in (KEY.hex(), repr(KEY), repr(KEY)[2:-1]):
        assert text not in shown


def test_one_whose_arguments_were_refused_can_be_shown(tmp_path: Path) -> None:
    refused = object.__new__(SqlitePersistence)
    for path, key in ((7, None), (tmp_path / "state.db", b"short")):
        with pytest.raises((ConfigError, TypeError)):
            refused.__init__(path, key=key)  # type: ignore[misc]
        assert repr(refused).startswith("SqlitePersistence(")


def test_the_library_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'shardwire\[crypto\]'"):
        SqlitePersistence(tmp_path / "state.db", key=KEY)
    made(tmp_path / "state.db", None).close()


@pytest.mark.parametrize("key", [None, KEY])
def test_sizes_are_those_of_the_values_wherever_they_lie(tmp_path: Path, key: bytes | None) -> None:
    """In the journal, and folded into rows of their own, where a sealed value is 28 bytes longer."""
    path = tmp_path / "state.db"
    persistence = SqlitePersistence(path, key=key)
    persistence.commit("room", Changes({("kind", b"one"): bytes(100), ("kind", b"two"): b""}))
    for number in range(200):
        persistence.commit("room", Changes({("other", b"often"): bytes(number)}))
    places = set()
    for _ in range(3):
        [stored] = read_channels(path, key=key)
        assert stored.kinds["kind"] == StoredKind(2, 100)
        assert stored.kinds["other"] == StoredKind(1, 199)
        with sqlite3.connect(path) as connection:
            places.add(connection.execute("SELECT count(*) FROM record WHERE kind = 'kind'").fetchone())
        persistence.close()
        persistence = SqlitePersistence(path, key=key)
        persistence.load("room")
        persistence.commit("room", Changes({("more", b""): bytes(3_000_000)}))
    persistence.close()
    assert places >= {(2,)}
