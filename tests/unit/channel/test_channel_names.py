"""The names that a channel is made with: at their limits and one past them, and what is said of those refused."""

from __future__ import annotations

from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire.channel import close_channel, create_reliable_channel
from shardwire.channel.limits.node_limits import COUNT_NAME_PREFIX
from shardwire.config.channel import ID_BYTES_MAX
from shardwire.errors import ConfigError

# One more byte than characters.
AT_LIMIT = "\u00e9" + (ID_BYTES_MAX - 2) * "x"


@pytest.mark.parametrize("name", ["channel_id", "sender_id"])
@pytest.mark.parametrize(("value", "is_taken"), [("x", True), (AT_LIMIT, True), (AT_LIMIT + "x", False), ("", False)])
def test_a_name_has_so_many_bytes(name: str, value: str, is_taken: bool) -> None:
    async def scenario(world: World) -> None:
        names: dict[str, Any] = {"channel_id": CHANNEL, "content_topic": TOPIC, "sender_id": "alice", name: value}
        creating = create_reliable_channel(await world.node("alice"), **names)
        if is_taken:
            await close_channel(await creating)
            return
        with pytest.raises(ConfigError, match=f"{name} is .*: it must be a text of 1 to {ID_BYTES_MAX} bytes"):
            await creating

    run_world(scenario)


def test_a_long_name_that_is_refused_is_shown_by_its_beginning() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ConfigError) as caught:
            await create_reliable_channel(await world.node("alice"), 1_000_000 * "x", TOPIC, "alice")
        assert len(str(caught.value)) < 200

    run_world(scenario)


def test_a_name_that_begins_like_that_of_a_count_is_refused_and_one_that_holds_it_is_not() -> None:
    async def scenario(world: World) -> None:
        node = await world.node("alice")
        with pytest.raises(ConfigError, match="are not for channels"):
            await create_reliable_channel(node, f"{COUNT_NAME_PREFIX}x", TOPIC, "alice")
        await close_channel(await create_reliable_channel(node, f"x {COUNT_NAME_PREFIX}", TOPIC, "alice"))

    run_world(scenario)


def test_a_topic_with_a_generation_is_no_sender_id() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ConfigError, match="they stand in each other's place"):
            await create_reliable_channel(await world.node("alice"), CHANNEL, "alice", "/0/shardwire/1/test/proto")

    run_world(scenario)
