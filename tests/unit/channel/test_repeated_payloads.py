"""The same bytes again, under both rules of message ids."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from channel_world import World, run_world
from stored_kinds import FRAME, MESSAGE

from shardwire.config import ChannelConfig, RateLimitConfig
from shardwire.errors import ConfigError, NodeError, PersistenceError
from shardwire.events import MessageDeliveredEvent, MessageSendErrorEvent, MessageSentEvent
from shardwire.node import MessageEnvelope
from shardwire.node.protocol import RequestId

PRESET = ChannelConfig.waku()
WAKU = replace(PRESET, sds=replace(PRESET.sds, message_id="content-sha256"))


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


def requests_told(world: World, name: str) -> list[str]:
    """The requests that events were about, in the order of their first."""
    return list(dict.fromkeys(event.request_id for event in world.events[name] if hasattr(event, "request_id")))


def test_requests_that_share_a_send_are_all_refused_by_a_full_disk_and_nothing_leaves() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", WAKU, on_disk=True)
        await world.join("bob", WAKU)
        world.disks["alice"].fails_with = PersistenceError("disk full")
        sends = await asyncio.gather(*(alice.send(b"same") for _ in range(3)), return_exceptions=True)
        assert [str(error) for error in sends] == ["disk full"] * 3
        assert alice.pending() == ()
        world.disks["alice"].fails_with = None
        await asyncio.sleep(120)
        assert world.messages("bob") == []
        assert requests_told(world, "alice") == []
        request_id = await alice.send(b"same")
        assert await alice.delivered(request_id, timeout_ms=120_000) == {"bob"}
        assert requests_told(world, "alice") == [request_id]

    assert run_world(scenario).messages("bob") == [b"same"]


@pytest.mark.parametrize("pause_s", [0.1, 100])
def test_a_request_that_a_full_disk_refuses_leaves_the_send_that_it_would_share_to_the_others(pause_s: float) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", WAKU, on_disk=True)
        await world.join("bob", WAKU)
        first = await alice.send(b"same")
        await asyncio.sleep(pause_s)
        world.disks["alice"].fails_with = PersistenceError("disk full")
        with pytest.raises(PersistenceError, match="disk full"):
            await alice.send(b"same")
        world.disks["alice"].fails_with = None
        assert await alice.delivered(first, timeout_ms=120_000) == {"bob"}
        await asyncio.sleep(60)
        assert requests_told(world, "alice") == [first]
        for kind in (MessageSentEvent, MessageDeliveredEvent):
            assert [event.request_id for event in world.of("alice", kind)] == [first]
        await world.crash("alice")
        await world.join("alice", WAKU, on_disk=True)
        await asyncio.sleep(60)
        for kind in (MessageSentEvent, MessageDeliveredEvent):
            assert [event.request_id for event in world.of("alice", kind)] == [first]

    assert run_world(scenario).messages("bob") == [b"same"]


@pytest.mark.parametrize("cancelled", [[0], [1], [0, 1], [1, 0]])
def test_a_send_that_requests_share_leaves_for_those_that_were_not_cancelled(cancelled: list[int]) -> None:
    limit = RateLimitConfig(enabled=True, epoch_size_ms=60_000, messages_per_epoch=1, counts="segment", ack_reserve=0.0)

    async def scenario(world: World) -> None:
        alice = await world.join("alice", replace(WAKU, rate_limit=limit))
        await world.join("bob", WAKU)
        first = await alice.send(b"takes the epoch")
        await asyncio.sleep(1)
        requests = [await alice.send(b"same") for _ in range(2)]
        for number in cancelled:
            assert await alice.cancel(requests[number])
            assert not await alice.cancel(requests[number])
            with pytest.raises(NodeError, match="cancelled"):
                await alice.delivered(requests[number])
        left = [requests[number] for number in range(2) if number not in cancelled]
        assert [entry.request_id for entry in alice.pending() if entry.request_id != first] == left
        await asyncio.sleep(600)
        assert requests_told(world, "alice") == [first, *left]
        assert world.messages("bob") == [b"takes the epoch", *(b"same" for _ in left)]
        assert not await alice.cancel(first)

    run_world(scenario)


def test_a_shared_send_that_has_left_goes_on_for_the_request_that_was_not_cancelled() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", WAKU)
        await world.join("bob", WAKU)
        requests = [await alice.send(b"same") for _ in range(2)]
        await asyncio.sleep(1)
        assert await alice.cancel(requests[0])
        await asyncio.sleep(60)
        assert set(requests_told(world, "alice")) == set(requests)
        assert await alice.delivered(requests[1]) == {"bob"}

    run_world(scenario)


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("error", [NodeError("no membership", permanent=True), NodeError("busy")], ids=str)
@pytest.mark.parametrize("payload", [b"again", bytes(600_000)])
def test_a_payload_of_which_nothing_left_is_sent_anew(payload: bytes, error: NodeError, crashes: bool) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", WAKU, on_disk=True)
        await world.join("bob", WAKU)
        (await world.node("alice")).send_fault = lambda envelope: error
        failed = await alice.send(payload)
        with pytest.raises(NodeError, match=str(error)):
            await alice.delivered(failed, timeout_ms=1_200_000)
        await asyncio.sleep(100)
        assert world.sent_by("alice") == 0
        if crashes:
            await world.crash("alice")
            alice = await world.join("alice", WAKU, on_disk=True)
        (await world.node("alice")).send_fault = None
        again = await alice.send(payload)
        assert await alice.delivered(again, timeout_ms=120_000) == {"bob"}
        assert [entry.request_id for entry in alice.pending()] == []
        assert [event.request_id for event in world.of("alice", MessageSendErrorEvent)] == [failed]
        for kind in (MessageSentEvent, MessageDeliveredEvent):
            assert [event.request_id for event in world.of("alice", kind)] == [again]

    assert run_world(scenario).messages("bob") == [payload]


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("payload", [b"again", bytes(600), bytes(250_000)])
def test_a_payload_sent_again_as_it_is_cancelled_survives_a_crash(payload: bytes, waits: bool) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", WAKU, on_disk=True)
        await world.join("bob", WAKU)
        node = await world.node("alice")
        node.send_fault = lambda envelope: "busy"
        if waits:
            node.go_offline()
            await asyncio.sleep(1)
        first = await alice.send(payload)
        await asyncio.sleep(1)
        node.go_online()
        await asyncio.sleep(3)
        cancelled, second = await asyncio.gather(alice.cancel(first), alice.send(payload))
        assert cancelled
        disk = world.disks["alice"]
        assert disk.of_kind(MESSAGE) == disk.of_kind(FRAME) == [], "of the one that was cancelled"
        await world.crash("alice")
        alice = await world.join("alice", WAKU, on_disk=True)
        assert await alice.delivered(second, timeout_ms=120_000) == {"bob"}

    assert run_world(scenario).messages("bob") == [payload]


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_payload_of_which_something_may_have_left_is_not_begun_anew(is_answered: bool) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", WAKU)
        await world.join("bob", WAKU)
        node = await world.node("alice")
        take = node.send
        taken: list[MessageEnvelope] = []

        async def take_the_first(envelope: MessageEnvelope) -> RequestId:
            taken.append(envelope)
            if len(taken) > 1:
                node.send_fault = lambda envelope: NodeError("no membership", permanent=True)
            elif not is_answered:
                return RequestId("of which nothing is heard again")
            return await take(envelope)

        node.send = take_the_first  # type: ignore[method-assign]
        requests = [await alice.send(bytes(600_000))]
        await asyncio.sleep(100)
        node.send, node.send_fault = take, None  # type: ignore[method-assign]
        requests.append(await alice.send(bytes(600_000)))
        await asyncio.sleep(100)
        assert [event.request_id for event in world.of("alice", MessageSendErrorEvent)] == requests

    assert run_world(scenario).messages("bob") == []


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


def test_waku_repeats_as_often_as_it_is_asked() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", PRESET)
        bob = await world.join("bob", PRESET)
        for _ in range(3):
            await alice.send(b"ok")
            await bob.send(b"ok")
            await asyncio.sleep(5)

    world = run_world(scenario)
    assert world.messages("alice") == world.messages("bob") == [b"ok"] * 3
