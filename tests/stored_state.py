"""The state of three members in the middle of a conversation, as files that later versions have to read.

`python tests/stored_state.py FILE.tar.xz` has the members talk and packs what lies on their disks then: `in_use` as a
kill leaves it, `at_rest` after they have closed. Packed files are never made anew: a version that stores something else
gets a file of its own beside them, and reads all of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from channel_world import World, run_world
from state_files import copy_of

from shardwire import keccak256
from shardwire.channel import ReliableChannel, close_channel
from shardwire.config import ChannelConfig, RateLimitConfig, SdsConfig
from shardwire.persistence import Changes, SqlitePersistence, read_channels, reassembly_changes
from shardwire.persistence.protocol import RecordName
from shardwire.segmentation import Reassembler, SegmentationConfig, segment

MEMBERS = ("alice", "bob", "carol")
STATES = ("in_use", "at_rest")
# Bob's disk tells nothing without it.
KEYS: Mapping[str, bytes | None] = {"alice": None, "bob": keccak256(b"state"), "carol": None}
SEGMENT_SIZE_BYTES = 1_024
# What has no channel of its own.
BARE = "bare"


def text(name: str, size_bytes: int = 3_000) -> bytes:
    """A message that its name tells, of several segments."""
    return random.Random(name).randbytes(size_bytes)


# In the order in which they are sent. The first was handed over to bob; the others wait for something.
FROM_ALICE = {
    "read": text("read"),
    "whole": text("whole"),
    "unheard": b"unheard",
    "partial": text("partial"),
    "behind": b"behind the partial one",
}
FROM_BOB = {"answer": text("answer")}
FROM_CAROL = {"queued": b"queued", "long and queued": text("long and queued")}
SEGMENTED = text("segmented", 5 * SEGMENT_SIZE_BYTES)
SEGMENTATION = SegmentationConfig(segment_size_bytes=SEGMENT_SIZE_BYTES, enable_reed_solomon=True, parity_rate=0.5)
# A commit with so much of large values places them in a file of their own.
RECORDS: Mapping[RecordName, bytes] = {("kind", bytes([number])): b"%d." % number * 50_000 for number in range(7)}


# Of the bare segments, data and parity, those that have not come.
MISSING = (0, 1, 2, 3)
# Of the records in each database.
DIGESTS = "digests.json"


def persistence_of(name: str, directory: Path) -> SqlitePersistence:
    return SqlitePersistence(directory / name / f"{name}.db", key=KEYS.get(name))


async def join(world: World, name: str, directory: Path) -> ReliableChannel:
    """A member on its disk, who does not listen yet."""
    config = ChannelConfig.logos(
        segmentation=SegmentationConfig(segment_size_bytes=SEGMENT_SIZE_BYTES),
        sds=SdsConfig(persistence=persistence_of(name, directory)),
        rate_limit=RateLimitConfig(enabled=True, messages_per_epoch=500),
        delivered_when=len(MEMBERS) - 1,
    )
    return await world.join(name, config, listen=False)


def digest_of(path: Path, name: str) -> str:
    """Of every record of each channel in a database, read beside whoever uses it; each name and value counts."""
    kinds = {kind for channel in read_channels(path, key=KEYS.get(name)) for kind in channel.kinds}
    digest = hashlib.sha256()
    for channel in read_channels(path, sorted(kinds), key=KEYS.get(name)):
        assert channel.state is not None
        for (kind, key), value in sorted(channel.state.records.items()):
            digest.update(repr((channel.channel_id, kind, key, value)).encode())
    return digest.hexdigest()


async def _talk(world: World, directory: Path) -> None:
    # It would have at once what a member did not hear.
    world.network.store_online = False
    for name in MEMBERS:
        await join(world, name, directory)
    alice, bob, carol = (world.channels[name] for name in MEMBERS)
    read = asyncio.Event()
    unsubscribe = bob.on_message_received(lambda event: read.set())
    await alice.send(FROM_ALICE["read"])
    await read.wait()
    unsubscribe()
    await asyncio.sleep(5)
    world.nodes["carol"].go_offline()
    await alice.send(FROM_ALICE["whole"])
    # Its acknowledgement leaves meanwhile: later it would be among what is lost.
    await asyncio.sleep(60)
    # All of the one and a segment of the next.
    world.lose("alice", "bob", {0, 2})
    for name in ("unheard", "partial", "behind"):
        await alice.send(FROM_ALICE[name])
    # Stored before it leaves, and then heard by nobody.
    world.nodes["bob"].go_offline()
    await asyncio.sleep(1)
    await bob.send(FROM_BOB["answer"])
    world.lose("bob", "alice", set(range(100)))
    world.nodes["bob"].go_online()
    for payload in FROM_CAROL.values():
        await carol.send(payload)
    await asyncio.sleep(1)
    # The next one is in the application's hands when the kill comes.
    bob.on_message_received(lambda event: asyncio.Event().wait())
    await asyncio.sleep(1)


def _store_bare(persistence: SqlitePersistence) -> None:
    """Values of an application's own and those of a reassembler: in rows, in tables, in a file of their own."""
    persistence.commit("values", Changes(dict(RECORDS)))
    persistence.commit("values", Changes({("kind", b"\x00"): None, ("small", b"\x00\xff"): b"", ("small", b"1"): b"v"}))
    reassembler = Reassembler(SEGMENTATION)
    for number, content in enumerate(segment(SEGMENTED, SEGMENTATION)):
        if number not in MISSING:
            reassembler.receive(content, now_ms=number, sender="alice")
            persistence.commit("segments", reassembly_changes(reassembler.poll_persist()))


def make(packed: Path) -> None:
    """Has the members talk, and packs what they store."""
    with tempfile.TemporaryDirectory() as temporary:
        live, states = Path(temporary, "live"), Path(temporary, "states")

        def keep(state: str) -> None:
            for name in (*MEMBERS, BARE):
                (states / state).mkdir(parents=True, exist_ok=True)
                copy_of(live / name / f"{name}.db", "copy").parent.rename(states / state / name)

        async def scenario(world: World) -> None:
            await _talk(world, live)
            keep("in_use")
            for name in MEMBERS:
                await close_channel(world.channels.pop(name))

        for name in (*MEMBERS, BARE):
            (live / name).mkdir(parents=True)
        bare = persistence_of(BARE, live)
        _store_bare(bare)
        run_world(scenario, seed=8)
        bare.close()
        keep("at_rest")
        places = [(state, name) for state in STATES for name in (*MEMBERS, BARE)]
        digests = {f"{state}/{name}": digest_of(states / state / name / f"{name}.db", name) for state, name in places}
        (states / DIGESTS).write_text(json.dumps(digests, indent=1) + "\n")
        with tarfile.open(packed, "x:xz") as archive:
            # What SQLite shares between processes is none of the state; reading made it.
            for file in sorted(file for file in states.rglob("*") if not file.name.endswith("-shm")):
                archive.add(file, file.relative_to(states), recursive=False, filter=_without_owner)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    make(Path(sys.argv[1]))
