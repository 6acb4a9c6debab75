"""What a store holds for somebody who is away is safe there: not sent again, no error, delivered on his return."""

from __future__ import annotations

import asyncio

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world
from wrapped_node import WrappedNode

from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, DeliveredWhen, SdsConfig, SyncConfig
from shardwire.events import MessageDeliveredEvent, MessageSendErrorEvent, WithinReachEvent
from shardwire.node import MessageEnvelope, MessageSent, NetworkConditions, running_clock

SEGMENT_BYTES = 102_400
# While nobody is heard so many contents go again, over all messages.
PROBES_MAX = SdsConfig().max_retransmissions


def published_bytes(world: World, name: str) -> int:
    return sum(record.size_bytes for record in world.network.trace if record.sender == name)


async def part(world: World, config: ChannelConfig | None = None) -> ReliableChannel:
    """Alice and bob, who has spoken and goes away; a relay keeps alice connected."""
    await world.node("relay")
    alice = await world.join("alice", config)
    bob = await world.join("bob", config)
    await bob.send(b"good bye")
    await asyncio.sleep(2)
    world.nodes["bob"].go_offline()
    await asyncio.sleep(1)
    world.network.clear_trace()
    return alice


def reach(world: World) -> list[tuple[bool, int]]:
    return [(event.within_reach, event.in_store) for event in world.of("alice", WithinReachEvent)]


def test_sixty_megabytes_for_a_peer_that_is_away_are_published_once() -> None:
    message = bytes(20_000_000)

    async def scenario(world: World) -> None:
        alice = await part(world)
        requests = [await alice.send(message + bytes([number])) for number in range(3)]
        await asyncio.sleep(600)
        assert published_bytes(world, "alice") <= 1.1 * 60_000_000
        assert world.of("alice", MessageSendErrorEvent) == []
        assert [(entry.sent, entry.stored) for entry in alice.pending()] == [(True, True)] * 3
        assert reach(world) == [(False, 3)]
        world.nodes["bob"].go_online()
        for request_id in requests:
            assert await alice.delivered(request_id, timeout_ms=600_000) == {"bob"}
        await asyncio.sleep(60)
        # What he fetched he is not sent as well.
        assert published_bytes(world, "alice") <= 1.1 * 60_000_000
        assert reach(world) == [(False, 3), (True, 0)]

    world = run_world(scenario)
    assert [len(entry) for entry in world.messages("bob")] == [20_000_001] * 3
    assert len(world.of("alice", MessageDeliveredEvent)) == 3
    assert world.of("alice", MessageSendErrorEvent) == []


@pytest.mark.parametrize("count", [1, 300])
@pytest.mark.parametrize("delivered_when", ["any", 1, frozenset({"bob"})], ids=str)
def test_small_messages_wait_in_the_store_as_well(count: int, delivered_when: DeliveredWhen) -> None:
    config = ChannelConfig.logos(delivered_when=delivered_when)

    async def scenario(world: World) -> None:
        alice = await part(world, config)
        requests = [await alice.send(b"%d" % number) for number in range(count)]
        await asyncio.sleep(600)
        assert alice.stats().get("dispatched_retransmission", 0) <= PROBES_MAX
        assert reach(world) == [(False, count)]
        world.nodes["bob"].go_online()
        for request_id in requests:
            assert await alice.delivered(request_id, timeout_ms=60_000) == {"bob"}
        await asyncio.sleep(60)
        assert alice.stats().get("dispatched_retransmission", 0) <= PROBES_MAX
        assert reach(world) == [(False, count), (True, 0)]

    world = run_world(scenario)
    assert world.messages("bob") == [b"%d" % number for number in range(count)]
    assert world.of("alice", MessageSendErrorEvent) == []


def test_others_who_have_it_do_not_make_it_go_again_to_who_is_away() -> None:
    config = ChannelConfig.logos(delivered_when={"bob"})

    async def scenario(world: World) -> None:
        alice = await part(world, config)
        carol = await world.join("carol")
        await asyncio.sleep(5)
        request_id = await alice.send(bytes(5 * SEGMENT_BYTES))
        for number in range(60):
            await carol.send(b"%d" % number)
            await asyncio.sleep(5)
        assert alice.stats().get("dispatched_retransmission", 0) <= PROBES_MAX
        assert reach(world) == [(False, 1)]
        world.nodes["bob"].go_online()
        assert "bob" in await alice.delivered(request_id, timeout_ms=60_000)

    assert run_world(scenario).of("alice", MessageSendErrorEvent) == []


def test_the_outgoing_buffer_has_room_for_others_while_they_wait() -> None:
    config = ChannelConfig.logos(sds=SdsConfig(outgoing_buffer_messages_max=10))

    async def scenario(world: World) -> None:
        alice = await part(world, config)
        for number in range(100):
            await asyncio.wait_for(alice.send(b"%d" % number), 60)
        world.nodes["bob"].go_online()
        await asyncio.sleep(60)
        assert alice.pending() == ()

    world = run_world(scenario)
    assert sorted(world.messages("bob"), key=int) == [b"%d" % number for number in range(100)]


def test_what_a_store_does_not_have_is_sent_again() -> None:
    """Three of a hundred, of which nobody says that a store has them."""

    async def scenario(world: World) -> None:
        alice = await part(world)
        outage = {5, 50, 99}
        for number in range(100):
            world.network.store_online = number not in outage
            await alice.send(b"%d" % number)
            await asyncio.sleep(0.01)
        world.network.store_online = True
        await asyncio.sleep(4)
        assert alice.stats().get("dispatched_retransmission", 0) == 0
        await asyncio.sleep(3)
        assert alice.stats()["dispatched_retransmission"] in range(3, 6)
        assert all(entry.stored for entry in alice.pending())

    assert run_world(scenario).of("alice", MessageSendErrorEvent) == []


def test_a_restart_sends_nothing_again_that_a_store_has() -> None:
    async def scenario(world: World) -> None:
        await world.node("relay")
        alice = await world.join("alice", on_disk=True)
        await world.join("bob")
        await asyncio.sleep(1)
        world.nodes["bob"].go_offline()
        world.network.clear_trace()
        request_id = await alice.send(bytes(50 * SEGMENT_BYTES))
        await asyncio.sleep(3)
        await world.crash("alice")
        alice = await world.join("alice", on_disk=True)
        await asyncio.sleep(120)
        assert published_bytes(world, "alice") <= 1.01 * (50 + PROBES_MAX) * SEGMENT_BYTES
        assert [entry.stored for entry in alice.pending()] == [True]
        world.nodes["bob"].go_online()
        assert await alice.delivered(request_id, timeout_ms=120_000) == {"bob"}

    assert run_world(scenario).of("alice", MessageSendErrorEvent) == []


def test_who_is_there_and_only_lost_it_gets_it_as_soon_as_without_a_store() -> None:
    took: dict[bool, float] = {}

    async def scenario(world: World, store: bool) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        await alice.delivered(await alice.send(b"heard"))
        await asyncio.sleep(60)
        world.network.store_online = store
        world.nodes["bob"].conditions = NetworkConditions(loss=1.0)
        request_id = await alice.send(b"lost")
        await asyncio.sleep(1)
        world.nodes["bob"].conditions = None
        began_ms = running_clock().monotonic_ms()
        await alice.delivered(request_id, timeout_ms=60_000)
        took[store] = running_clock().monotonic_ms() - began_ms

    for store in (True, False):
        run_world(lambda world, store=store: scenario(world, store))  # type: ignore[misc]
    assert took[True] <= took[False] + 1_500


def test_who_is_there_and_loses_copy_after_copy_of_the_first_message_gets_one_within_seconds() -> None:
    """Bob never said anything, and nothing that reached him shows him that there is something to ask the store for."""

    config = ChannelConfig.logos(sync=SyncConfig(sync_min_interval_ms=0))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob", config)
        # What is asked on connecting brings nothing of it.
        await asyncio.sleep(1)
        world.nodes["bob"].conditions = NetworkConditions(loss=1.0)
        request_id = await alice.send(b"first")
        await asyncio.sleep(24)
        assert [entry.stored for entry in alice.pending()] == [True]
        world.nodes["bob"].conditions = None
        assert await alice.delivered(request_id, timeout_ms=5_000) == {"bob"}

    run_world(scenario)


def test_who_is_there_and_loses_every_copy_gets_it_by_the_schedule_of_syncs() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        # What is asked on connecting brings nothing of it.
        await asyncio.sleep(1)
        world.nodes["bob"].conditions = NetworkConditions(loss=1.0)
        request_id = await alice.send(b"first")
        await asyncio.sleep(300)
        assert alice.stats()["dispatched_retransmission"] == PROBES_MAX
        world.nodes["bob"].conditions = None
        # A sync leaves at most two intervals after the one before.
        assert await alice.delivered(request_id, timeout_ms=65_000) == {"bob"}

    run_world(scenario)


def test_who_is_within_reach_and_never_acknowledges_is_given_up_on() -> None:
    """Carol speaks, and whatever alice sends passes her by."""
    config = ChannelConfig.logos(sds=SdsConfig(enable_repair=False))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        carol = await world.join("carol", config)
        await carol.send(b"hello")
        await asyncio.sleep(1)
        world.nodes["carol"].conditions = NetworkConditions(loss=1.0)

        async def answer_nothing(*arguments: object) -> None:
            raise OSError

        world.nodes["carol"].query_store = answer_nothing  # type: ignore[method-assign,assignment]
        await alice.send(b"x")
        for number in range(60):
            await carol.send(b"%d" % number)
            await asyncio.sleep(5)
        (error,) = world.of("alice", MessageSendErrorEvent)
        assert error.stage == "delivery"
        assert error.error.endswith("after the last retransmission; a store has the message")
        assert alice.pending() == ()

    run_world(scenario)


def test_closing_waits_for_nobody_who_is_away() -> None:
    async def scenario(world: World) -> None:
        alice = await part(world)
        await alice.send(b"x")
        await asyncio.sleep(30)
        began_ms = running_clock().monotonic_ms()
        await close_channel(world.channels.pop("alice"), drain_timeout_ms=30_000)
        assert running_clock().monotonic_ms() - began_ms < 1_000

    run_world(scenario)


def test_waiting_for_delivery_says_that_a_store_has_it() -> None:
    async def scenario(world: World) -> None:
        alice = await part(world)
        request_id = await alice.send(b"x")
        with pytest.raises(TimeoutError, match="not delivered within 60000 ms: a store has it, for whoever is away"):
            await alice.delivered(request_id, timeout_ms=60_000)

    run_world(scenario)


def test_a_backlog_without_end_gives_up_its_oldest_messages() -> None:
    async def scenario(world: World) -> None:
        alice = await part(world)
        for number in range(2_600):
            await asyncio.wait_for(alice.send(b"%d" % number), 60)
        await asyncio.sleep(60)
        stats = alice.stats()
        assert stats["outgoing_in_store"] <= 2_048
        errors = [event.request_id for event in world.of("alice", MessageSendErrorEvent)]
        assert len(errors) == 2_600 - stats["outgoing_in_store"] - stats["outgoing_unacknowledged"]
        world.nodes["bob"].go_online()
        await asyncio.sleep(120)
        # Also what was given up is delivered in the end.
        assert len(world.of("alice", MessageDeliveredEvent)) == 2_600

    run_world(scenario)


class EarlyNode(WrappedNode):
    """Tells that a store has a message before `send` returns, and never that it reached the network."""

    async def send(self, envelope: MessageEnvelope) -> str:
        request_id = await self._inner.send(envelope)
        await asyncio.sleep(1)
        return request_id

    def events(self):  # type: ignore[no-untyped-def]
        async def filtered():  # type: ignore[no-untyped-def]
            async for event in self._inner.events():
                if type(event).__name__ != "MessagePropagated":
                    yield event

        return filtered()


def test_what_a_store_has_reached_the_network() -> None:
    async def scenario(world: World) -> None:
        node = EarlyNode(await world.node("alice"))
        alice = await create_reliable_channel(node, CHANNEL, TOPIC, "alice")
        await world.join("bob")
        assert await alice.delivered(await alice.send(b"x"), timeout_ms=30_000) == {"bob"}
        # Nobody waits for another word of it.
        await asyncio.sleep(100)
        assert alice.stats().get("dispatch_failures", 0) == 0
        await close_channel(alice)

    run_world(scenario)


@pytest.mark.parametrize("event", [MessageSent(5, bytes(32)), MessageSent("x", "0x")])  # type: ignore[arg-type]
def test_a_malformed_word_of_a_store_is_dropped_and_counted(event: MessageSent) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        world.nodes["alice"]._streams.put(event, MessageSent("unknown", bytes(32)))
        await asyncio.sleep(1)
        assert alice.stats()["node_events_malformed"] == 1

    run_world(scenario)
