"""The same bytes again, under both rules of message ids."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from channel_world import World, run_world

from shardwire.config import ChannelConfig
from shardwire.errors import ConfigError
from shardwire.events import MessageDeliveredEvent, MessageSentEvent

WAKU = ChannelConfig.waku()


@pytest.mark.parametrize("payload", [b"again", bytes(250_000)])
def test_our_own_payload_again_shares_the_outcome_of_the_first_under_content_ids(payload: bytes) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", WAKU)
        await world.join("bob", WAKU)
        first = await alice.send(payload)
        await alice.delivered(first, timeout_ms=120_000)
        second = await alice.send(payload)
        assert second != first
        assert await alice.delivered(second) == {"bob"}
        await asyncio.sleep(60)
        for kind in (MessageSentEvent, MessageDeliveredEvent):
            assert [event.request_id for event in world.of("alice", kind)] == [first, second]

    assert run_world(scenario).messages("bob") == [payload]


def test_what_somebody_else_sent_is_refused_with_both_remedies_under_content_ids() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", WAKU)
        bob = await world.join("bob", WAKU)
        await bob.send(b"ok")
        await asyncio.sleep(10)
        assert world.messages("alice") == [b"ok"]
        with pytest.raises(ConfigError, match="change the payload, or use message_id='send'"):
            await alice.send(b"ok")
        assert alice.pending() == ()
        request_id = await alice.send(b"ok, too")
        assert await alice.delivered(request_id, timeout_ms=120_000) == {"bob"}

    run_world(scenario)


def test_waku_with_ids_by_send_repeats_as_often_as_it_is_asked() -> None:
    config = replace(WAKU, sds=replace(WAKU.sds, message_id="send"))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        bob = await world.join("bob", config)
        for _ in range(3):
            await alice.send(b"ok")
            await bob.send(b"ok")
            await asyncio.sleep(5)

    world = run_world(scenario)
    assert world.messages("alice") == world.messages("bob") == [b"ok"] * 3
