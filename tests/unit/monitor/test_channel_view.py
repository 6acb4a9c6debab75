"""What is kept of a channel for the page: bounded, cut and without contents, whatever peers send."""

from __future__ import annotations

import asyncio
import json
import random

from channel_world import World, run_world

from shardwire import ChannelConfig, SdsObservation, SegmentationConfig, SegmentObservation
from shardwire.monitor.view import (
    CAUSES_MAX,
    CELLS_MAX,
    MESSAGES_MAX,
    NAMED_MAX,
    PARTICIPANTS_MAX,
    SDS_MESSAGES_MAX,
    SECONDS_SHOWN,
    ChannelView,
)


def test_rows_of_sent_and_received_messages() -> None:
    config = ChannelConfig.logos(
        segmentation=SegmentationConfig(segment_size_bytes=1024, enable_reed_solomon=True, parity_rate=0.5)
    )

    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice", config), await world.join("bob", config)
        of_alice, of_bob = ChannelView(alice), ChannelView(bob)
        # What is asked on connecting brings nothing of it.
        await asyncio.sleep(1)
        world.lose("alice", "bob", {0, 3})
        await alice.delivered(await alice.send(random.Random(2).randbytes(6_000)))
        await bob.delivered(await bob.send(b"an answer"))
        await asyncio.sleep(60)
        answer, sent = of_alice.snapshot()["messages"]
        assert (sent["own"], sent["sender"], sent["state"], sent["who"]) == (True, "alice", "delivered", ["bob"])
        assert (sent["data_segments"], sent["segments"]) == (6, 9)
        assert set(sent["cells"]) == {"a"}
        assert (answer["own"], answer["sender"], answer["state"]) == (False, "bob", "whole")
        assert answer["follows"] == [sent["number"]]
        [_, arrived] = of_bob.snapshot()["messages"]
        assert (arrived["state"], arrived["cells"].count("p")) == ("whole", 2)
        assert [arrived["cells"][at] for at in (0, 3)] == ["p", "p"]
        assert of_bob.snapshot()["participants"][0]["name"] in ("alice", "bob")
        of_alice.close()
        version = of_alice.version
        await bob.delivered(await bob.send(b"another"))
        assert of_alice.version == version

    run_world(scenario)


def test_application_that_listens_later_misses_nothing() -> None:
    async def scenario(world: World) -> None:
        alice, bob = await world.join("alice"), await world.join("bob", listen=False)
        view = ChannelView(bob)
        await alice.delivered(await alice.send(b"early"))
        await asyncio.sleep(10)
        received: list[bytes] = []
        bob.on_message_received(lambda event: received.append(event.message))
        await asyncio.sleep(10)
        assert received == [b"early"]
        view.close()

    run_world(scenario)


def test_what_strangers_send_takes_no_more_than_its_place() -> None:
    async def scenario(world: World) -> None:
        view = ChannelView(await world.join("alice"), clock_ms=lambda: 1_000_000)
        for number in range(2 * SDS_MESSAGES_MAX):
            name = f"{number}" + "\u202e\n<b>" * 2_000
            causes = tuple(f"{number - back}" for back in range(100))
            view._on_message(SdsObservation("received", "content", f"{number}", name, 2**63, causes, (), 10, 1))
            view._on_segment(
                SegmentObservation("received", name, 2**32 - 1 - number, name, 1, 0, 2**32 - 1, 2**32 - 1, f"{number}")
            )
            view._on_segment(SegmentObservation("acknowledged", name, 2**31, name, 1, 0, 1, 1, f"{number}"))
        told = view.snapshot()
        assert len(told["messages"]) == MESSAGES_MAX
        assert len(told["participants"]) == PARTICIPANTS_MAX
        assert len(told["seconds"]) == SECONDS_SHOWN
        assert all(len(row["cells"]) <= CELLS_MAX for row in told["messages"])
        assert all(len(row["follows"]) + row["unseen"] <= CAUSES_MAX for row in told["messages"])
        assert all(len(row["who"]) <= NAMED_MAX for row in told["messages"])
        assert len(view._histories) == len(view._row_of) == SDS_MESSAGES_MAX
        encoded = json.dumps(told)
        assert len(encoded) < 100_000
        assert "\n" not in encoded
        assert "\\u202e\\" not in encoded.replace("\\\\u202e", "")
        view.close()

    run_world(scenario)


def test_contents_and_keys_are_in_no_snapshot() -> None:
    async def scenario(world: World) -> None:
        alice, _ = await world.join("alice"), await world.join("bob")
        view = ChannelView(alice)
        await alice.delivered(await alice.send(b"plain to see"))
        assert "plain to see" not in json.dumps(view.snapshot())
        assert b"plain to see".hex() not in json.dumps(view.snapshot())

    run_world(scenario)
