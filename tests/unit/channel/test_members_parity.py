"""Members repair each other with parity that the sender never sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from channel_world import World, run_world

from shardwire._native import HistoryEntry, SdsMessage
from shardwire.config import ChannelConfig, SegmentationConfig
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.node import MemoryNetwork, MessageEnvelope, NetworkConditions

SEGMENT = 512
DATA = 20
PAYLOAD = random.Random(5).randbytes(DATA * SEGMENT)
NAMES = ("bob", "carol", "dave", "erin")
LOST = NetworkConditions(loss=1.0)


def config(**changes: Any) -> ChannelConfig:
    chosen: dict[str, Any] = {"repair": "parity", "delivered_when": frozenset(NAMES), **changes}
    return ChannelConfig.logos(segmentation=SegmentationConfig(segment_size_bytes=SEGMENT), **chosen)


def decoded(payload: bytes) -> SdsMessage:
    message = SdsMessage.decode(payload, "spec")
    assert message is not None
    return message


def traced(world: World) -> list[tuple[str, SdsMessage]]:
    records = world.network.trace
    return [(record.sender, decoded(record.payload)) for record in records if record.payload is not None]


def made(world: World) -> list[str]:
    """Who sent parity of another one's message, each time."""
    return [sender for sender, message in traced(world) if message.kind == "ephemeral"]


def again(world: World) -> list[str]:
    """Who sent segments by name once the sender had sent them."""
    first = [message for sender, message in traced(world) if sender == "alice" and message.content]
    sent = [sender for sender, message in traced(world) if message.kind == "content"]
    return sent[len(first) :]


def run(scenario: Callable[[World], Any]) -> World:
    async def traced_scenario(world: World) -> None:
        world.network = MemoryNetwork(NetworkConditions(delay_ms=(5, 20)), seed=7, trace_payloads=True)
        world.network.store_online = False
        await scenario(world)

    return run_world(traced_scenario)


def lose_of_alice(world: World, lost: Callable[[str, int], bool]) -> None:
    """Who loses which of her segments."""

    def choose(envelope: MessageEnvelope) -> None:
        message = decoded(envelope.payload)
        for name, node in world.nodes.items():
            if name != "alice" and message.kind == "content":
                ordinal = int(message.message_id.rpartition(".")[2])
                node.conditions = LOST if lost(name, ordinal) else None

    world.nodes["alice"].send_fault = choose


async def gone_after_a_burst(
    world: World, lost: Callable[[str, int], bool], settings: ChannelConfig | None = None, **named: Any
) -> None:
    """Everybody is there; Alice sends, and is gone."""
    for name in ("alice", *NAMES):
        await world.join(name, settings or config(), **named)
    lose_of_alice(world, lost)
    await world.channels["alice"].send(PAYLOAD)
    await asyncio.sleep(0.2)
    await world.nodes["alice"].stop()
    for name in NAMES:
        world.nodes[name].conditions = None


def three_each(name: str, ordinal: int) -> bool:
    """Bob has it whole; each of the others loses three segments, none of them the same."""
    return name in NAMES[1:] and ordinal // 3 == NAMES.index(name)


def test_one_who_has_it_makes_all_others_whole_with_as_much_parity_as_one_of_them_lacks() -> None:
    async def scenario(world: World) -> None:
        await gone_after_a_burst(world, three_each)
        await asyncio.sleep(300)

    world = run(scenario)
    assert all(world.messages(name) == [PAYLOAD] for name in NAMES)
    assert (made(world), again(world)) == (["bob"] * 3, [])


def test_those_who_have_it_divide_what_is_lacking() -> None:
    async def scenario(world: World) -> None:
        await gone_after_a_burst(world, lambda name, ordinal: name in ("dave", "erin") and ordinal < 7)
        await asyncio.sleep(300)

    world = run(scenario)
    assert all(world.messages(name) == [PAYLOAD] for name in NAMES)
    assert (len(made(world)), again(world)) == (7, [])


def test_what_is_lost_of_parity_is_asked_for_again_and_not_by_name() -> None:
    async def scenario(world: World) -> None:
        await gone_after_a_burst(world, three_each)
        count = 0

        def choose(envelope: MessageEnvelope) -> None:
            nonlocal count
            count += decoded(envelope.payload).kind == "ephemeral"
            world.nodes["dave"].conditions = LOST if count in (1, 3) else None

        world.nodes["bob"].send_fault = choose
        await asyncio.sleep(300)

    world = run(scenario)
    assert all(world.messages(name) == [PAYLOAD] for name in NAMES)
    assert (made(world), again(world)) == (["bob"] * 5, [])


def test_a_member_answers_from_what_it_stored_before_a_crash() -> None:
    async def scenario(world: World) -> None:
        await gone_after_a_burst(world, three_each, on_disk=True)
        await world.crash("bob")
        await world.join("bob", config(), on_disk=True, listen=False)
        await asyncio.sleep(300)

    world = run(scenario)
    assert all(world.messages(name) == [PAYLOAD] for name in NAMES)
    assert made(world) == ["bob"] * 3


def test_parity_of_members_is_encrypted() -> None:
    async def scenario(world: World) -> None:
        for name in ("alice", *NAMES):
            await world.join(name, config(), encryption=ChaCha20Poly1305Encryption(bytes(32)))
        world.nodes["carol"].go_offline()
        await world.channels["alice"].send(PAYLOAD)
        await asyncio.sleep(0.2)
        world.nodes["carol"].go_online()
        await asyncio.sleep(300)

    world = run(scenario)
    assert world.messages("carol") == [PAYLOAD]
    assert all(SdsMessage.decode(record.payload or b"", "spec") is None for record in world.network.trace)


@pytest.mark.parametrize("settings", [config(repair="arq"), ChannelConfig.waku()], ids=["arq", "waku"])
def test_where_parity_is_not_on_demand_nothing_new_is_sent(settings: ChannelConfig) -> None:
    async def scenario(world: World) -> None:
        await gone_after_a_burst(world, lambda name, ordinal: name == "erin" and ordinal == 0, settings)
        await asyncio.sleep(300)

    world = run(scenario)
    assert not made(world)
    numbers = [entry for _, message in traced(world) for entry in message.repair_request if ".99" in entry.message_id]
    assert not numbers


def test_while_the_sender_is_there_no_member_makes_any() -> None:
    async def scenario(world: World) -> None:
        for name in ("alice", *NAMES):
            await world.join(name, config())
        for name in NAMES[1:]:
            world.nodes[name].conditions = NetworkConditions(loss=0.3, delay_ms=(5, 20))
        for _ in range(5):
            await world.channels["alice"].send(PAYLOAD)
            await asyncio.sleep(60)

    world = run(scenario)
    assert all(len(world.messages(name)) == 5 for name in NAMES)
    assert not made(world)


def test_where_one_is_enough_the_sender_repairs_the_others_with_parity() -> None:
    async def scenario(world: World) -> None:
        for name in ("alice", *NAMES):
            await world.join(name, config(delivered_when="any"))
        lose_of_alice(world, three_each)
        await world.channels["alice"].send(PAYLOAD)
        await asyncio.sleep(0.2)
        for name in NAMES:
            world.nodes[name].conditions = None
        await asyncio.sleep(300)

    world = run(scenario)
    assert all(world.messages(name) == [PAYLOAD] for name in NAMES)
    assert (made(world), again(world)) == (["alice"] * 3, [])


async def forge(world: World, content: bytes, send_id: str, number: int, sender: str = "alice") -> None:
    """Mallory says that she has Alice's message, and sends this as parity of it."""
    message = SdsMessage(
        sender_id="mallory",
        message_id=f"forged-{number}",
        channel_id="channel",
        repair_request=(HistoryEntry(f"{send_id}.9999", None, sender),),
        content=content,
    )
    node = world.nodes["mallory"]
    await node.send(MessageEnvelope("/shardwire/1/test/proto", message.encode("spec")))


def test_forged_parity_makes_nothing_of_nothing_and_keeps_nobody_from_a_message() -> None:
    async def scenario(world: World) -> None:
        await world.node("mallory")
        await gone_after_a_burst(world, three_each)
        segments = [message for sender, message in traced(world) if sender == "alice" and message.content]
        send_id = segments[0].message_id.partition(".")[0]
        content = segments[0].content
        assert content is not None
        # What Bob makes tells how a header of parity looks.
        await asyncio.sleep(0.1)
        for number in range(60):
            damaged = bytearray(content)
            damaged[-1 - number] ^= 0xFF
            await forge(world, bytes(damaged), send_id, number)
            await forge(world, bytes(damaged), f"{number:032x}", 100 + number)
            await forge(world, b"no segment", send_id, 200 + number)
        held = {name: world.channels[name].stats()["sets_held"] for name in NAMES}
        assert held == {"bob": 0, "carol": 1, "dave": 1, "erin": 1}
        await asyncio.sleep(300)

    world = run(scenario)
    assert all(world.messages(name) == [PAYLOAD] for name in NAMES)


def test_forged_parity_with_the_right_header_neither_completes_nor_stops_a_message() -> None:
    async def scenario(world: World) -> None:
        await world.node("mallory")
        await gone_after_a_burst(world, three_each)
        first = next(message for sender, message in traced(world) if sender == "alice" and message.content)
        send_id = first.message_id.partition(".")[0]

        forged = False

        def choose(envelope: MessageEnvelope) -> None:
            nonlocal forged
            message = decoded(envelope.payload)
            if message.kind != "ephemeral" or forged:
                return
            forged = True
            assert message.content is not None
            for number in range(4):
                # Parity of Bob's index, of Mallory's bytes; it comes first. The header is on both sides of those.
                content = message.content[:200] + bytes([number]) * 64 + message.content[264:]
                asyncio.get_running_loop().create_task(forge(world, content, send_id, number))

        world.nodes["bob"].send_fault = choose
        await asyncio.sleep(900)

    world = run(scenario)
    assert all(world.messages(name) == [PAYLOAD] for name in NAMES)
