"""States that earlier versions stored are read, and the conversation in them goes on."""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path

import pytest
from channel_world import World, run_world
from stored_state import (
    BARE,
    DIGESTS,
    FROM_ALICE,
    FROM_BOB,
    FROM_CAROL,
    MEMBERS,
    MISSING,
    RECORDS,
    SEGMENTATION,
    SEGMENTED,
    STATES,
    digest_of,
    join,
    persistence_of,
)

from shardwire.events import IrretrievableMessageEvent, MessageDeliveredEvent, MessageSendErrorEvent
from shardwire.persistence import reassembly_operations
from shardwire.segmentation import PayloadReconstructed, Reassembler, segment

PACKED = sorted((Path(__file__).parents[2] / "vectors").glob("state_*.tar.xz"))
# Long after the kill, within the hours for which a channel repairs what is missing.
LATER_S = 600


@pytest.fixture(
    params=[(packed, state) for packed in PACKED for state in STATES],
    ids=lambda found: found[0].name[:-7] + "/" + found[1],
)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The state of each member, by name, and the digests beside them."""
    packed, state = request.param
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / state


def test_every_record_is_read_as_it_was_stored(directory: Path) -> None:
    digests = json.loads((directory.parent / DIGESTS).read_text())
    for name in (*MEMBERS, BARE):
        assert digest_of(directory / name / f"{name}.db", name) == digests[f"{directory.name}/{name}"], name
    persistence = persistence_of(BARE, directory)
    values, segments = persistence.load("values"), persistence.load("segments")
    assert values is not None
    expected = {**RECORDS, ("small", b"\x00\xff"): b"", ("small", b"1"): b"v"}
    del expected["kind", b"\x00"]
    assert dict(values.records) == expected
    reassembler = Reassembler(SEGMENTATION)
    reassembler.restore(reassembly_operations(segments))
    persistence.close()
    whole = reassembler.receive(segment(SEGMENTED, SEGMENTATION)[MISSING[0]], now_ms=10, sender="alice")
    assert isinstance(whole, PayloadReconstructed)
    assert whole.payload == SEGMENTED


def test_the_conversation_goes_on(directory: Path) -> None:
    async def scenario(world: World) -> None:
        await asyncio.sleep(LATER_S)
        for name in MEMBERS:
            world.listen(name, await join(world, name, directory))
        await asyncio.sleep(LATER_S)

    world = run_world(scenario)
    alice, bob, carol = (list(sent.values()) for sent in (FROM_ALICE, FROM_BOB, FROM_CAROL))
    received = {
        "alice": {"bob": bob, "carol": carol},
        "bob": {"alice": alice[1:], "carol": carol},
        "carol": {"alice": alice, "bob": bob},
    }
    for name, expected in received.items():
        heard = {sender: [e.message for e in world.received[name] if e.sender_id == sender] for sender in MEMBERS}
        assert {sender: messages for sender, messages in heard.items() if messages} == expected, name
        assert world.of(name, IrretrievableMessageEvent) == world.of(name, MessageSendErrorEvent) == []
    delivered = {name: len(world.of(name, MessageDeliveredEvent)) for name in MEMBERS}
    assert delivered == {"alice": len(alice[1:]), "bob": len(bob), "carol": len(carol)}
