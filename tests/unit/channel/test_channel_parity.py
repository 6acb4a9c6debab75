"""Repair by parity on demand: one segment for losses that differ at every receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from channel_world import World, run_world

from shardwire._native import SdsMessage
from shardwire.config import (
    ChannelChanges,
    ChannelConfig,
    RateLimitConfig,
    ReliableChannelOptions,
    SdsConfig,
    SegmentationConfig,
)
from shardwire.errors import ConfigError
from shardwire.events import MessageDeliveredEvent, MessageSendErrorEvent, MessageSentEvent
from shardwire.node import MemoryNetwork, MessageEnvelope, NetworkConditions, NodeConfig
from shardwire.segmentation import PayloadReconstructed, Reassembler

SEGMENT = 512
NAMES = ("bob", "carol", "dave")
LOST = NetworkConditions(loss=1.0)


def config(**changes: Any) -> ChannelConfig:
    segmentation = SegmentationConfig(segment_size_bytes=SEGMENT, **changes.pop("segmentation", {}))
    chosen: dict[str, Any] = {"repair": "parity", "delivered_when": frozenset(NAMES), **changes}
    return ChannelConfig.logos(segmentation=segmentation, **chosen)


def payload_of(count: int) -> bytes:
    return bytes((at * 7 + at // 251) % 256 for at in range(count * SEGMENT))


def traced(world: World) -> list[tuple[str, SdsMessage]]:
    messages = []
    for record in world.network.trace:
        assert record.payload is not None
        message = SdsMessage.decode(record.payload, "spec")
        assert message is not None
        messages.append((record.sender, message))
    return messages


def segments_of(world: World, sender: str = "alice") -> list[SdsMessage]:
    return [message for name, message in traced(world) if name == sender and message.content]


def lose(world: World, lost: Callable[[str, SdsMessage], bool], sender: str = "alice") -> None:
    """Makes those receivers lose an envelope of `sender` for which `lost` says so."""

    def choose(envelope: MessageEnvelope) -> None:
        message = SdsMessage.decode(envelope.payload, "spec")
        assert message is not None
        for name, node in world.nodes.items():
            if name != sender:
                node.conditions = LOST if lost(name, message) else None

    world.nodes[sender].send_fault = choose


async def meet(world: World, names: tuple[str, ...] = NAMES, **changes: Any) -> None:
    world.network.store_online = False
    for name in (*names, "alice"):
        await world.join(name, config(delivered_when=frozenset(names), **changes))


def run(scenario: Callable[[World], Any]) -> World:
    async def traced_scenario(world: World) -> None:
        world.network = MemoryNetwork(NetworkConditions(delay_ms=(5, 20)), seed=7, trace_payloads=True)
        await scenario(world)

    return run_world(traced_scenario)


def place(message: SdsMessage) -> int:
    return int(message.message_id.rpartition(".")[2])


def test_one_parity_segment_repairs_another_loss_at_each_receiver() -> None:
    async def scenario(world: World) -> None:
        await meet(world)
        lose(world, lambda name, message: bool(message.content) and place(message) == NAMES.index(name))
        await world.channels["alice"].send(payload_of(10))
        await asyncio.sleep(20)

    world = run(scenario)
    assert all(world.messages(name) == [payload_of(10)] for name in NAMES)
    assert [place(message) for message in segments_of(world)] == list(range(11))
    assert len(world.of("alice", MessageDeliveredEvent)) == 1
    assert world.channels["alice"].stats()["parity_on_demand"] == 1


def test_the_largest_need_is_sent_and_no_more() -> None:
    async def scenario(world: World) -> None:
        await meet(world)
        most = {"bob": 1, "carol": 4, "dave": 2}
        lose(world, lambda name, message: bool(message.content) and place(message) < most[name])
        await world.channels["alice"].send(payload_of(20))
        await asyncio.sleep(20)

    world = run(scenario)
    assert len(segments_of(world)) == 24
    assert len(world.of("alice", MessageDeliveredEvent)) == 1


def test_silence_is_asked_about_and_costs_no_segment() -> None:
    async def scenario(world: World) -> None:
        await meet(world, ("bob",))
        heard = 0

        def first_two(name: str, message: SdsMessage) -> bool:
            nonlocal heard
            heard += message.kind == "sync"
            return heard <= 2

        lose(world, first_two, "bob")
        await world.channels["alice"].send(payload_of(10))
        await asyncio.sleep(30)

    world = run(scenario)
    assert len(segments_of(world)) == 10
    assert len(world.of("alice", MessageDeliveredEvent)) == 1


def test_what_is_lacking_is_said_by_a_number() -> None:
    async def scenario(world: World) -> None:
        await meet(world, ("bob",))
        lose(world, lambda _, message: bool(message.content) and place(message) in (3, 5))
        await world.channels["alice"].send(payload_of(30))
        await asyncio.sleep(10)

    world = run(scenario)
    send_id = segments_of(world)[0].message_id.partition(".")[0]
    said = [message for name, message in traced(world) if name == "bob"]
    numbers = [entry.message_id for message in said for entry in message.repair_request]
    assert numbers[0] == f"{send_id}.{9_999 - 2}"
    assert numbers[-1] == f"{send_id}.9999"
    # Neither all that came nor a filter.
    assert max(len(message.causal_history) for message in said) <= 2
    assert not any(message.bloom_filter for message in said)


@pytest.mark.parametrize("wire_format", ["raw", "lip243"])
@pytest.mark.parametrize("code", ["leopard", "vandermonde"])
def test_a_receiver_of_segments_alone_reconstructs(wire_format: str, code: str) -> None:
    """The header is that of any message with parity: nothing of it is new to a peer."""
    segmentation = {"wire_format": wire_format, "erasure_code": code}

    async def scenario(world: World) -> None:
        await meet(world, ("bob",), segmentation=segmentation)
        lose(world, lambda _, message: bool(message.content) and place(message) in (0, 4, 9))
        await world.channels["alice"].send(payload_of(8))
        await asyncio.sleep(20)

    world = run(scenario)
    kept = [message for message in segments_of(world) if place(message) not in (0, 4)]
    reassembler = Reassembler(config(segmentation=segmentation).segmentation)
    outcomes = [reassembler.receive(message.content or b"", now_ms=0) for message in kept]
    whole = [outcome for outcome in outcomes if isinstance(outcome, PayloadReconstructed)]
    assert [outcome.payload for outcome in whole] == [payload_of(8)]
    assert world.messages("bob") == [payload_of(8)]


def test_a_message_of_one_segment_is_sent_again() -> None:
    async def scenario(world: World) -> None:
        await meet(world, ("bob",))
        world.lose("alice", "bob", {0})
        await world.channels["alice"].send(b"small")
        await asyncio.sleep(20)

    world = run(scenario)
    assert world.messages("bob") == [b"small"]
    assert [place(message) for message in segments_of(world)] == [0, 0]


def test_when_there_is_no_more_parity_what_is_missing_is_sent_again() -> None:
    async def scenario(world: World) -> None:
        await meet(world, ("bob",))
        clock = world.network.clock
        until_ms = clock.monotonic_ms() + 15_000
        # Of two data segments one comes, and of two parity segments none.
        lose(world, lambda _, message: clock.monotonic_ms() < until_ms and bool(message.content) and place(message) > 0)
        await world.channels["alice"].send(payload_of(2))
        await asyncio.sleep(90)

    world = run(scenario)
    assert world.messages("bob") == [payload_of(2)]
    assert max(place(message) for message in segments_of(world)) == 3
    assert len(world.of("alice", MessageDeliveredEvent)) == 1


def test_a_receiver_that_never_answers_is_given_up() -> None:
    async def scenario(world: World) -> None:
        await meet(world, ("bob",), sds=SdsConfig(max_retransmissions=2))
        lose(world, lambda *_: True)
        await world.channels["alice"].send(payload_of(10))
        await asyncio.sleep(60)

    world = run(scenario)
    assert len(world.of("alice", MessageSendErrorEvent)) == 1
    # A segment after every two questions, one more each time.
    assert len(segments_of(world)) == 10 + 1 + 2


@pytest.mark.parametrize("later", [{}, {"erasure_code": "vandermonde"}])
def test_parity_is_made_over_a_restart_as_the_message_was_segmented(later: dict[str, str]) -> None:
    async def scenario(world: World) -> None:
        world.network.store_online = False
        wanted = config(delivered_when=frozenset({"bob"}))
        await world.join("bob", wanted)
        await world.join("alice", wanted, on_disk=True)
        lose(world, lambda _, message: bool(message.content) and place(message) in (1, 2))
        await world.channels["alice"].send(payload_of(10))
        await asyncio.sleep(1)
        await world.crash("alice")
        world.nodes["bob"].conditions = None
        await world.join("alice", replace(wanted, segmentation=replace(wanted.segmentation, **later)), on_disk=True)
        await asyncio.sleep(40)

    world = run(scenario)
    assert world.messages("bob") == [payload_of(10)]
    assert sorted({place(message) for message in segments_of(world)})[-2:] == [10, 11]
    assert len(world.of("alice", MessageDeliveredEvent)) == 1


def numbers_of(world: World, sender: str) -> list[int]:
    """How many segments it said that it lacks, each time."""
    said = [entry for name, message in traced(world) if name == sender for entry in message.repair_request]
    return [9_999 - int(entry.message_id.rpartition(".")[2]) for entry in said]


def test_who_lacks_no_more_than_another_one_said_is_silent() -> None:
    names = tuple(f"r{number}" for number in range(12))

    async def scenario(world: World) -> None:
        await meet(world, names)
        # Each loses three others.
        lost = {name: {(7 * number + at) % 40 for at in (0, 11, 23)} for number, name in enumerate(names)}
        lose(world, lambda name, message: bool(message.content) and place(message) in lost[name])
        await world.channels["alice"].send(payload_of(40))
        await asyncio.sleep(20)

    world = run(scenario)
    assert all(world.messages(name) == [payload_of(40)] for name in names)
    said = [number for name in names for number in numbers_of(world, name)]
    assert 1 <= sum(number > 0 for number in said) <= 4
    assert sum(number == 0 for number in said) == len(names)
    assert len(segments_of(world)) == 43


def test_who_has_everything_and_said_so_is_silent_about_what_others_lack() -> None:
    async def scenario(world: World) -> None:
        await meet(world)
        lose(world, lambda name, message: name == "bob" and bool(message.content) and place(message) in (1, 2, 30, 31))
        await world.channels["alice"].send(payload_of(30))
        await asyncio.sleep(20)

    world = run(scenario)
    assert world.messages("bob") == [payload_of(30)]
    assert [number for number in numbers_of(world, "bob") if number] == [2, 2]
    # Once, and perhaps once more by the sync of the schedule.
    assert all(numbers_of(world, name) in ([0], [0, 0]) for name in ("carol", "dave"))


def test_an_inquiry_names_who_is_silent() -> None:
    names = (*NAMES, "erin", "frank", "grace")

    async def scenario(world: World) -> None:
        await meet(world, names)
        # All that bob says at first is lost, and what is said until somebody else speaks.
        spoken: list[str] = []

        def hear(name: str) -> None:
            def choose(_: MessageEnvelope) -> None:
                spoken.append(name)
                world.nodes["alice"].conditions = LOST if name == "bob" and spoken.count(name) == 1 else None

            world.nodes[name].send_fault = choose

        for name in names:
            hear(name)
        await world.channels["alice"].send(payload_of(30))
        await asyncio.sleep(20)

    world = run(scenario)
    assert len(segments_of(world)) == 30
    assert len(world.of("alice", MessageDeliveredEvent)) == 1
    asked = [message for name, message in traced(world) if name == "alice" and message.kind == "sync"]
    hints = [entry.retrieval_hint for message in asked for entry in message.repair_request]
    assert hints == [sha256(b"bob").digest()[:4]]
    assert numbers_of(world, "bob") == [0, 0]
    assert all(numbers_of(world, name) == [0] for name in names if name != "bob")


def test_what_is_lacking_is_said_once_a_burst_has_ended() -> None:
    """A number from the middle of a burst would make the sender send that much."""

    async def scenario(world: World) -> None:
        await meet(world)
        for name in NAMES:
            world.nodes[name].conditions = NetworkConditions(delay_ms=(5, 2_000), reorder=1.0)
        await world.channels["alice"].send(payload_of(100))
        await asyncio.sleep(30)

    world = run(scenario)
    assert {number for name in NAMES for number in numbers_of(world, name)} == {0}
    assert len(segments_of(world)) == 100


def test_once_all_parity_has_left_what_is_named_as_missing_goes_again() -> None:
    early = 0

    async def scenario(world: World) -> None:
        await meet(world, ("bob", "carol"))
        nonlocal early
        is_early = True

        def lost(name: str, message: SdsMessage) -> bool:
            return name == "bob" and is_early and bool(message.content) and place(message) not in (0, 1, 5, 9)

        lose(world, lost)
        await world.channels["alice"].send(payload_of(8))
        await asyncio.sleep(9)
        is_early, early = False, len(segments_of(world))
        await asyncio.sleep(60)

    world = run(scenario)
    assert world.messages("bob") == [payload_of(8)]
    places = [place(message) for message in segments_of(world)]
    assert sorted(places[:16]) == list(range(16))
    # Four of those that came are lacking for the message: no more than twice that goes again each time that it is asked
    # for, first while all of it is lost, and then when it comes.
    assert early <= 16 + 8
    assert len(places) - early <= 8
    assert len(world.of("alice", MessageDeliveredEvent)) == 1


def first_burst(world: World, after: int) -> int:
    """How many segments of the message after so many envelopes left before anybody answered."""
    count = 0
    for record in world.network.trace[after:]:
        assert record.payload is not None
        message = SdsMessage.decode(record.payload, "spec")
        if message is None or record.sender != "alice" or not message.content:
            break
        count += 1
    return count


def test_first_parity_follows_what_was_lost_over_a_restart() -> None:
    bursts: list[int] = []

    async def scenario(world: World) -> None:
        world.network.store_online = False
        wanted = config(delivered_when=frozenset({"bob"}), sds=SdsConfig(bloom_interval_ms=3_600_000))
        await world.join("bob", wanted)
        await world.join("alice", wanted, on_disk=True)

        async def send(count: int) -> None:
            for _ in range(count):
                before = len(world.network.trace)
                await world.channels["alice"].send(payload_of(32) + bytes([len(bursts)]))
                await asyncio.sleep(60)
                bursts.append(first_burst(world, before))

        # Of every message the same four segments are lost.
        lose(world, lambda _, message: bool(message.content) and place(message) in (1, 5, 6, 30))
        await send(12)
        await world.crash("alice")
        await world.join("alice", wanted, on_disk=True)
        lose(world, lambda _, message: bool(message.content) and place(message) in (1, 5, 6, 30))
        await send(2)
        lose(world, lambda *_: False)
        await send(40)

    world = run(scenario)
    assert len(world.messages("bob")) == 54
    # Nothing is known at first, then what makes a second round needless, and none where nothing is lost.
    assert bursts[0] == 33
    assert all(36 <= burst <= 38 for burst in bursts[10:14])
    assert bursts[-1] == 33


def test_parity_that_is_configured_leaves_at_first() -> None:
    bursts: list[int] = []

    async def scenario(world: World) -> None:
        await meet(world, ("bob",), segmentation={"enable_reed_solomon": True, "parity_rate": 0.25})
        await world.channels["alice"].send(payload_of(32))
        await asyncio.sleep(20)
        bursts.append(first_burst(world, 0))

    assert run(scenario).messages("bob") == [payload_of(32)]
    assert bursts == [40]


def test_whoever_lacks_nearly_all_drives_first_parity_to_its_bound_alone() -> None:
    bursts: list[int] = []

    async def scenario(world: World) -> None:
        await meet(world, ("bob",))
        lose(world, lambda _, message: bool(message.content) and 1 < place(message) < 32)
        for number in range(20):
            before = len(world.network.trace)
            await world.channels["alice"].send(payload_of(31) + bytes([number]))
            await asyncio.sleep(60)
            bursts.append(first_burst(world, before))

    assert len(run(scenario).messages("bob")) == 20
    assert bursts[0] == 32
    assert bursts[-1] == 32 + 16


def test_repair_never_starves_new_messages() -> None:
    """Of a node's quota that is smaller than what is lacking, new messages take every other place."""
    epoch_ms = 60_000
    limit = RateLimitConfig(enabled=True, epoch_size_ms=epoch_ms, messages_per_epoch=10, counts="segment")
    took_ms: list[int] = []

    async def scenario(world: World) -> None:
        world.network.store_online = False
        wanted = config(delivered_when=frozenset({"bob"}))
        await world.join("bob", wanted)
        await world.join("alice", wanted, node_config=NodeConfig(rate_limit_config=limit))
        repairs, sent = asyncio.Event(), asyncio.Event()

        def lost(_: str, message: SdsMessage) -> bool:
            if message.content and place(message) >= 60:
                repairs.set()
            return bool(message.content) and 1 < place(message) < 60

        lose(world, lost)
        alice = world.channels["alice"]
        alice.on(MessageSentEvent, lambda _: sent.set())
        await alice.send(payload_of(60))
        # All data has left, and bob lacks 58 segments: more than six epochs' worth.
        await repairs.wait()
        assert world.messages("bob") == []
        for number in range(4):
            began_ms = world.network.clock.monotonic_ms()
            sent.clear()
            await alice.send(b"small %d" % number)
            await sent.wait()
            took_ms.append(world.network.clock.monotonic_ms() - began_ms)
        assert payload_of(60) not in world.messages("bob")
        await asyncio.sleep(30 * epoch_ms / 1_000)

    world = run(scenario)
    assert max(took_ms) <= epoch_ms + 2_000
    assert set(world.messages("bob")) == {payload_of(60), *(b"small %d" % number for number in range(4))}


def test_what_a_store_has_waits_there_for_whoever_is_away() -> None:
    async def scenario(world: World) -> None:
        wanted = config(delivered_when=frozenset({"bob"}))
        await world.node("relay")
        await world.join("bob", wanted)
        alice = await world.join("alice", wanted)
        await world.channels["bob"].send(b"good bye")
        await asyncio.sleep(2)
        world.nodes["bob"].go_offline()
        await asyncio.sleep(1)
        request_id = await alice.send(payload_of(30))
        await asyncio.sleep(600)
        # A few go again, so that whoever is back says so; no parity.
        assert max(place(message) for message in segments_of(world)) == 29
        assert len(segments_of(world)) <= 30 + SdsConfig().max_retransmissions
        assert world.of("alice", MessageSendErrorEvent) == []
        world.nodes["bob"].go_online()
        assert await alice.delivered(request_id, timeout_ms=600_000) == {"bob"}

    assert payload_of(30) in run(scenario).messages("bob")


def test_channels_of_specification_004_say_nothing_new() -> None:
    """What is lost there is asked for and acknowledged by ids, with a filter on all that names or carries a message."""

    async def scenario(world: World) -> None:
        world.network.store_online = False
        wanted = replace(ReliableChannelOptions().to_config(), segmentation=SegmentationConfig(wire_format="draft"))
        for name in ("bob", "carol", "alice"):
            await world.join(name, wanted)
        sent = 0

        def lost(name: str, message: SdsMessage) -> bool:
            nonlocal sent
            sent += bool(message.content) and name == "bob"
            return bool(message.content) and sent in ((2, 3) if name == "bob" else (3, 5))

        lose(world, lost)
        await world.channels["alice"].send(bytes(700_000))
        await asyncio.sleep(200)

    world = run(scenario)
    assert world.messages("bob") == world.messages("carol") == [bytes(700_000)]
    messages = [message for _, message in traced(world)]
    known = {message.message_id for message in messages if message.content}
    named = [entry for message in messages for entry in (*message.repair_request, *message.causal_history)]
    assert named
    assert {entry.message_id for entry in named} <= known
    assert all(message.bloom_filter for message in messages)


def test_parity_on_demand_takes_nothing_from_what_a_message_can_hold() -> None:
    async def scenario(world: World) -> None:
        await meet(world, ("bob",), segmentation={"enable_reed_solomon": True})
        await world.channels["alice"].send(payload_of(255))
        await asyncio.sleep(10)

    assert run(scenario).messages("bob") == [payload_of(255)]


def test_what_cannot_announce_parity_is_refused() -> None:
    with pytest.raises(ConfigError, match="draft"):
        config(segmentation={"wire_format": "draft"})
    with pytest.raises(ConfigError, match="content-sha256"):
        config(sds=SdsConfig(message_id="content-sha256"))
    assert ReliableChannelOptions().to_config().repair == "arq"


@pytest.mark.parametrize(
    "changes",
    [
        {"segmentation": SegmentationConfig(wire_format="draft")},
        {"segmentation": SegmentationConfig(segment_size_bytes=1_000)},
        {"sds": SdsConfig(message_id="content-sha256")},
        {"sds": SdsConfig(enable_repair=False)},
        {"repair": "arq"},
    ],
)
def test_where_parity_does_not_work_segments_go_again_by_default(changes: ChannelChanges) -> None:
    assert ChannelConfig.logos().parity_on_demand
    assert not ChannelConfig.logos(**changes).parity_on_demand


def test_a_segment_size_that_cannot_be_coded_stays_what_it_is() -> None:
    async def scenario(world: World) -> None:
        config = ChannelConfig.logos(segmentation=SegmentationConfig(segment_size_bytes=1_000))
        alice = await world.join("alice", config)
        await world.join("bob", config)
        await alice.send(bytes(255_000))
        await asyncio.sleep(10)

    assert run(scenario).messages("bob") == [bytes(255_000)]


def test_a_single_segment_has_its_parity_with_it() -> None:
    async def scenario(world: World) -> None:
        paired = SegmentationConfig(enable_reed_solomon=True, parity_for_single_segment=True)
        alice = await world.join("alice", ChannelConfig.logos(segmentation=paired))
        await world.join("bob")
        world.lose("alice", "bob", {0})
        await alice.send(b"short")
        await asyncio.sleep(0.5)
        assert world.messages("bob") == [b"short"]

    run(scenario)
