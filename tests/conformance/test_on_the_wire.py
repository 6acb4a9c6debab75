"""What channels put on the network, as a node sees it: one envelope a segment, one topic, one hook, bounded sizes."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Awaitable
from dataclasses import replace

import pytest
from channel_world import TOPIC, World, run_world

from shardwire import keccak256
from shardwire._native import SdsMessage
from shardwire.channel import ReliableChannel
from shardwire.config import ChannelConfig, SegmentationConfig, SyncConfig
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.errors import DecryptionError, PayloadTooLargeError
from shardwire.node import MessageEnvelope, NetworkConditions
from shardwire.segmentation import inspect

PRESETS = {"logos": ChannelConfig.logos(), "waku": ChannelConfig.waku()}
PAYLOAD = random.Random(5).randbytes(350_000)


def tap(world: World, *names: str) -> list[MessageEnvelope]:
    """Every envelope that these participants hand to their nodes from now on."""
    envelopes: list[MessageEnvelope] = []
    for name in names:
        # A fault that never strikes sees every envelope before the network does.
        world.nodes[name].send_fault = envelopes.append  # type: ignore[assignment]
    return envelopes


def contents(envelopes: list[MessageEnvelope]) -> list[SdsMessage]:
    decoded = [SdsMessage.decode(envelope.payload) for envelope in envelopes]
    assert None not in decoded
    return [message for message in decoded if message is not None and message.content is not None]


@pytest.mark.parametrize("preset", PRESETS)
def test_one_envelope_a_segment_one_sds_message_each_one_topic(preset: str) -> None:
    seen: list[MessageEnvelope] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", PRESETS[preset])
        await world.join("bob", PRESETS[preset])
        seen.extend(await spoken(world, alice))

    async def spoken(world: World, alice: ReliableChannel) -> list[MessageEnvelope]:
        envelopes = tap(world, "alice")
        await alice.delivered(await alice.send(PAYLOAD), timeout_ms=120_000)
        return envelopes

    run_world(scenario)
    assert {envelope.content_topic for envelope in seen} == {TOPIC}
    messages = contents(seen)
    assert len(messages) == 4
    assert len({message.message_id for message in messages}) == 4
    headers = [
        inspect(message.content or b"", wire_format=PRESETS[preset].segmentation.wire_format) for message in messages
    ]
    assert [header and header.data_segment_index for header in headers] == [0, 1, 2, 3]
    assert {header and header.data_segment_count for header in headers} == {4}
    assert {header and header.entire_message_hash for header in headers} == {keccak256(PAYLOAD)}
    assert b"".join(header.segment_payload for header in headers if header) == PAYLOAD
    assert all(len(header.segment_payload) <= 102_400 for header in headers if header)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_segment_parity_too_carries_the_topic_and_the_marker_of_its_channel(preset: str) -> None:
    """001: a segment is an envelope of its own, with the metadata of the message it is a part of."""
    segmentation = replace(PRESETS[preset].segmentation, enable_reed_solomon=True, parity_rate=0.5)
    config = replace(PRESETS[preset], segmentation=segmentation, envelope_meta=b"marker")
    seen: list[MessageEnvelope] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob", config)
        captured = tap(world, "alice")
        await alice.send(PAYLOAD)
        await asyncio.sleep(1)
        seen.extend(captured)

    assert run_world(scenario).messages("bob") == [PAYLOAD]
    assert len({message.message_id for message in contents(seen)}) == 6
    assert {(envelope.content_topic, envelope.meta) for envelope in seen} == {(TOPIC, b"marker")}


@pytest.mark.parametrize("preset", PRESETS)
def test_default_settings_stay_below_150_kb_an_envelope_also_with_a_long_history_and_a_cipher(preset: str) -> None:
    segmentation = replace(PRESETS[preset].segmentation, enable_reed_solomon=True)
    config = replace(PRESETS[preset], segmentation=segmentation)

    async def scenario(world: World) -> None:
        encryption = ChaCha20Poly1305Encryption(bytes(range(32)))
        for name in ("alice", "bob"):
            await world.join(name, config, encryption=encryption)
        for number in range(5):
            for name, channel in world.channels.items():
                payload = PAYLOAD + name.encode() + bytes([number])
                await channel.delivered(await channel.send(payload), timeout_ms=1_800_000)

    world = run_world(scenario, NetworkConditions(loss=0.1))
    sizes = [record.size_bytes for record in world.network.trace]
    assert max(sizes) < 150_000
    assert max(sizes) > 102_400


def test_parity_costs_its_rate_on_the_wire() -> None:
    def sent_bytes(enable: bool) -> int:
        segmentation = SegmentationConfig(segment_size_bytes=10_240, enable_reed_solomon=enable, parity_rate=0.25)
        total: list[int] = []

        async def scenario(world: World) -> None:
            alice = await world.join("alice", ChannelConfig.logos(segmentation=segmentation))
            await world.join("bob", ChannelConfig.logos(segmentation=segmentation))
            await alice.delivered(await alice.send(bytes(1_024_000)))
            total.append(sum(record.size_bytes for record in world.network.trace if record.sender == "alice"))

        run_world(scenario)
        return total[0]

    assert sent_bytes(True) / sent_bytes(False) == pytest.approx(1.25, abs=0.02)


def test_with_a_hook_nothing_of_a_message_can_be_read_from_any_envelope() -> None:
    """Segments, syncs and ephemeral messages alike; without it, the same markers are in the clear."""
    rng = random.Random(16)
    # By chance none of them is found in what is encrypted.
    secret, ephemeral = rng.randbytes(16), rng.randbytes(16)
    sender, receiver = rng.randbytes(16).hex(), rng.randbytes(16).hex()
    payload = secret * 25_000

    def envelopes(encrypted: bool) -> list[MessageEnvelope]:
        seen: list[MessageEnvelope] = []

        async def scenario(world: World) -> None:
            encryption = ChaCha20Poly1305Encryption(bytes(range(32))) if encrypted else None
            alice = await world.join(sender, encryption=encryption)
            await world.join(receiver, encryption=encryption)
            captured = tap(world, sender, receiver)
            await alice.delivered(await alice.send(payload))
            await alice.send_ephemeral(ephemeral)
            await asyncio.sleep(60)
            seen.extend(captured)

        run_world(scenario)
        return seen

    markers = (secret, ephemeral, keccak256(payload), sender.encode(), receiver.encode())
    clear = envelopes(encrypted=False)
    assert all(any(marker in envelope.payload for envelope in clear) for marker in markers)
    hidden = envelopes(encrypted=True)
    assert len(hidden) >= 6
    assert not any(marker in envelope.payload for envelope in hidden for marker in markers)
    assert not any(marker in envelope.meta for envelope in hidden for marker in markers)


class Armour:
    """A hook of the caller's own: asynchronous, and its ciphertext is longer by a third."""

    def __init__(self) -> None:
        self.encrypted: list[bytes] = []
        self.decrypted: list[bytes] = []

    def encrypt(self, content: bytes) -> Awaitable[bytes]:
        async def later() -> bytes:
            await asyncio.sleep(0)
            self.encrypted.append(content)
            return b"armour" + base64.b64encode(content)

        return later()

    async def decrypt(self, payload: bytes) -> bytes:
        if not payload.startswith(b"armour"):
            raise DecryptionError("not in armour")
        self.decrypted.append(payload)
        return base64.b64decode(payload[6:])


def test_the_hook_gets_one_sds_message_and_the_node_gets_its_result() -> None:
    hooks = {"alice": Armour(), "bob": Armour()}
    seen: list[MessageEnvelope] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=hooks["alice"])
        await world.join("bob", encryption=hooks["bob"])
        hooks["alice"].encrypted.clear()
        captured = tap(world, "alice")
        await alice.delivered(await alice.send(PAYLOAD))
        seen.extend(captured)

    world = run_world(scenario)
    assert world.messages("bob") == [PAYLOAD]
    # Encrypt, then dispatch: what the node was given is what the hook made, once for each, of an SDS message.
    assert [envelope.payload for envelope in seen] == [
        b"armour" + base64.b64encode(content) for content in hooks["alice"].encrypted[: len(seen)]
    ]
    messages = [SdsMessage.decode(content) for content in hooks["alice"].encrypted]
    # What does not fit beside the hook's overhead is not sent: the segments became smaller.
    segments = [message for message in messages if message is not None and message.content is not None]
    assert len(segments) >= 4
    assert max(record.size_bytes for record in world.network.trace) <= 150_000
    # Decrypt comes first on receipt.
    assert hooks["bob"].decrypted[: len(seen)] == [envelope.payload for envelope in seen]


def test_without_the_hook_a_participant_reads_nothing_and_goes_on() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=ChaCha20Poly1305Encryption(bytes(range(32))))
        await world.join("bob", encryption=ChaCha20Poly1305Encryption(bytes(range(32))))
        eve = await world.join("eve")
        mallory = await world.join("mallory", encryption=ChaCha20Poly1305Encryption(bytes(32)))
        await alice.delivered(await alice.send(PAYLOAD))
        await eve.send(b"in the clear")
        await mallory.send(b"under another key")
        await asyncio.sleep(10)
        await alice.delivered(await alice.send(b"still here"))

    world = run_world(scenario)
    assert world.messages("bob") == [PAYLOAD, b"still here"]
    assert world.messages("alice") == []
    assert world.messages("eve") == []
    assert world.messages("mallory") == []


def test_a_larger_message_than_the_operator_allows_is_refused_before_anything_is_sent() -> None:
    segmentation = SegmentationConfig(segment_size_bytes=1_024, max_total_segments=11)

    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.logos(segmentation=segmentation))
        await world.join("bob")
        with pytest.raises(PayloadTooLargeError, match="10241") as caught:
            await alice.send(bytes(10_241))
        assert (caught.value.payload_bytes, caught.value.limit_bytes) == (10_241, 10_240)
        assert world.sent_by("alice") == 0
        await alice.delivered(await alice.send(bytes(10_240)))

    assert len(run_world(scenario).messages("bob")) == 1


def test_syncs_hold_no_content_but_history_and_filter_and_keep_to_the_topic() -> None:
    config = ChannelConfig.logos(sync=SyncConfig(sync_min_interval_ms=5_000))
    seen: list[MessageEnvelope] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob", config)
        captured = tap(world, "bob")
        await alice.delivered(await alice.send(b"one"))
        await asyncio.sleep(60)
        seen.extend(captured)

    run_world(scenario)
    assert {envelope.content_topic for envelope in seen} == {TOPIC}
    syncs = [SdsMessage.decode(envelope.payload) for envelope in seen]
    assert syncs
    for sync in syncs:
        assert sync is not None
        assert sync.kind == "sync"
        assert sync.content is None
        assert sync.causal_history
    assert any(sync is not None and sync.bloom_filter for sync in syncs)


def test_the_public_channel_has_no_function_of_the_store() -> None:
    public = [name for name in dir(ReliableChannel) if not name.startswith("_")]
    assert not [name for name in public if "store" in name or "query" in name or "retrieve" in name]
    assert {"send", "send_ephemeral", "on", "events", "start", "stop", "is_started"} <= set(public)
