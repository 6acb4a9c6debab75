"""The encryption hook: everything that leaves goes through it, and nothing leaves where it fails."""

from __future__ import annotations

import asyncio
import random

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire.config import ChannelConfig, SegmentationConfig
from shardwire.encryption import AesGcmEncryption, ChaCha20Poly1305Encryption
from shardwire.errors import NodeError
from shardwire.events import ChunkErrorEvent, MessageSendErrorEvent
from shardwire.node import MessageEnvelope, NetworkConditions

KEY = bytes(range(32))


class Mask:
    """A cipher of an application: one method plain, the other not; no optional member."""

    async def encrypt(self, content: bytes) -> bytes:
        await asyncio.sleep(0)
        return bytes(byte ^ 0x5A for byte in content)

    def decrypt(self, payload: bytes) -> bytes:
        return bytes(byte ^ 0x5A for byte in payload)


class Failing:
    """Encrypts nothing once armed."""

    def __init__(self) -> None:
        self.armed = False

    def encrypt(self, content: bytes) -> bytes:
        if self.armed:
            raise RuntimeError(content.hex())
        return content

    def decrypt(self, payload: bytes) -> bytes:
        return payload


class Hanging:
    """A key server that does not answer the first calls."""

    def __init__(self, encryptions: int = 0, decryptions: int = 0) -> None:
        self.encryptions, self.decryptions = encryptions, decryptions

    overhead_bytes = 0

    async def encrypt(self, content: bytes) -> bytes:
        self.encryptions -= 1
        if self.encryptions >= 0:
            await asyncio.Event().wait()
        return content

    async def decrypt(self, payload: bytes) -> bytes:
        self.decryptions -= 1
        if self.decryptions >= 0:
            await asyncio.Event().wait()
        return payload


class Understating:
    """Adds a little less, then a little more than it says."""

    overhead_bytes = 10
    adds = 10

    def encrypt(self, content: bytes) -> bytes:
        return content + bytes(self.adds)

    def decrypt(self, payload: bytes) -> bytes:
        return payload[: -self.adds]


def test_no_wire_message_exceeds_what_the_node_carries_though_the_cipher_understates() -> None:
    config = ChannelConfig.logos(segmentation=SegmentationConfig(segment_size_bytes=100_000))

    async def scenario(world: World) -> None:
        cipher = Understating()
        alice = await world.join("alice", config, encryption=cipher)
        await world.join("bob", config, encryption=cipher)
        payloads = record_payloads(world)
        assert await alice.delivered(await alice.send(bytes(100_000))) == {"bob"}
        cipher.adds = 60_000
        sent = len(payloads)
        with pytest.raises(NodeError, match=r"too large: 1[0-9]+ bytes, the node carries 149[0-9]+"):
            await alice.delivered(await alice.send(bytes(100_000)))
        assert all(len(payload) < 149_600 for payload in payloads[sent:])

    run_world(scenario)


def record_payloads(world: World) -> list[bytes]:
    payloads: list[bytes] = []
    for node in world.nodes.values():

        def note(envelope: MessageEnvelope) -> None:
            payloads.append(envelope.payload)

        node.send_fault = note
    return payloads


@pytest.mark.parametrize("cipher", [ChaCha20Poly1305Encryption, AesGcmEncryption])
def test_nothing_of_segments_or_sds_is_visible_on_the_wire(cipher: type[ChaCha20Poly1305Encryption]) -> None:
    """Content, parity, acknowledgement, ephemeral, repeated: no id, no hash and no text of ours in any payload."""
    config = ChannelConfig.logos(segmentation=SegmentationConfig(enable_reed_solomon=True, segment_size_bytes=1_024))
    captured: list[bytes] = []

    async def scenario(world: World) -> None:
        for name in ("alice", "bob"):
            await world.join(name, config, encryption=cipher([KEY]))
        captured.append(b"")
        payloads = record_payloads(world)
        request_id = await world.channels["alice"].send(b"plaintext " * 1_000)
        await world.channels["alice"].send_ephemeral(b"plaintext ephemeral")
        await world.channels["alice"].delivered(request_id, timeout_ms=120_000)
        await asyncio.sleep(60)
        message_id = world.received["bob"][-1].message_id
        secrets = (b"plaintext", b"alice", b"bob", CHANNEL.encode(), request_id.encode(), bytes.fromhex(message_id))
        assert len(payloads) > 10
        for payload in payloads:
            assert not any(secret in payload for secret in secrets)

    world = run_world(scenario, NetworkConditions(loss=0.2, delay_ms=(1, 20)))
    assert set(world.messages("bob")) >= {b"plaintext " * 1_000}


def test_any_object_with_both_methods_will_do() -> None:
    async def scenario(world: World) -> None:
        for name in ("alice", "bob"):
            await world.join(name, encryption=Mask())  # type: ignore[arg-type]
        payload = random.Random(1).randbytes(300_000)
        assert await world.channels["alice"].delivered(await world.channels["alice"].send(payload)) == {"bob"}
        await asyncio.sleep(1)
        assert world.messages("bob") == [payload]

    run_world(scenario)


def test_a_failing_encrypt_is_a_send_error_and_nothing_leaves(caplog: pytest.LogCaptureFixture) -> None:
    cipher = Failing()

    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=cipher)
        await world.join("bob")
        cipher.armed = True
        request_id = await alice.send(b"secret")
        with pytest.raises(NodeError, match="encryption failed: RuntimeError"):
            await alice.delivered(request_id)
        await asyncio.sleep(60)

    world = run_world(scenario)
    assert world.sent_by("alice") == 0
    (error,) = world.of("alice", MessageSendErrorEvent)
    assert error.stage == "dispatch"
    assert len(world.of("alice", ChunkErrorEvent)) == 1
    assert b"secret".hex() not in caplog.text


def test_an_encrypt_that_never_returns_holds_up_nothing_for_ever() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=Hanging(encryptions=1))
        await world.join("bob", encryption=Hanging())
        lost = await alice.send(b"lost")
        kept = await alice.send(b"kept")
        with pytest.raises(NodeError, match="encryption failed: TimeoutError"):
            await alice.delivered(lost, timeout_ms=61_000)
        assert await alice.delivered(kept) == {"bob"}
        # It names the lost one, for which bob waits first.
        await asyncio.sleep(400)

    assert run_world(scenario).messages("bob") == [b"kept"]


def test_a_decrypt_that_never_returns_holds_up_nothing_for_ever() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=Hanging())
        bob = await world.join("bob", encryption=Hanging(decryptions=1))
        await alice.send(b"message")
        await asyncio.sleep(100)
        assert bob.stats()["dropped_undecryptable"] == 1

    assert run_world(scenario).messages("bob") == [b"message"]


def test_what_cannot_be_decrypted_is_dropped_and_counted() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=ChaCha20Poly1305Encryption([KEY]))
        await world.join("bob", encryption=ChaCha20Poly1305Encryption([bytes(32)]))
        await alice.send(b"not for bob")
        stranger = await world.node("stranger")
        for payload in (b"", b"x", bytes(100)):
            await stranger.send(MessageEnvelope(TOPIC, payload))
        await asyncio.sleep(1)
        assert world.channels["bob"].stats()["dropped_undecryptable"] == 4

    assert run_world(scenario).messages("bob") == []


def test_keys_can_be_replaced() -> None:
    new = bytes(reversed(range(32)))

    async def scenario(world: World) -> None:
        old = await world.join("alice", encryption=ChaCha20Poly1305Encryption([KEY]))
        await world.join("bob", encryption=ChaCha20Poly1305Encryption([new, KEY]))
        await old.send(b"old")
        await world.channels["bob"].send(b"new")
        await asyncio.sleep(1)

    world = run_world(scenario)
    assert world.messages("bob") == [b"old"]
    assert world.messages("alice") == []


@pytest.mark.parametrize("wire_format", ["raw", "draft", "lip243"])
def test_random_bytes_end_no_channel(wire_format: str) -> None:
    rng = random.Random(4)

    async def scenario(world: World) -> None:
        config = ChannelConfig.logos(segmentation=SegmentationConfig(wire_format=wire_format))  # type: ignore[arg-type]
        alice = await world.join("alice", config)
        await world.join("bob", config)
        stranger = await world.node("stranger")
        from shardwire._native import SdsMessage

        for number in range(200):
            noise = rng.randbytes(rng.randrange(200))
            message = SdsMessage(
                sender_id=rng.choice(["alice", "mallory", ""]),
                message_id=rng.choice(["m", f"{number}", f"{rng.getrandbits(128):032x}.{number % 5}", "x" * 300]),
                channel_id=rng.choice([CHANNEL, "other"]),
                lamport_timestamp=rng.choice([None, 0, 1 << 63, (1 << 64) - 1]),
                bloom_filter=noise,
                content=noise,
            )
            await stranger.send(MessageEnvelope(TOPIC, rng.choice([noise, message.encode()])))
        await alice.send(b"still here")
        await asyncio.sleep(400)
        assert world.channels["bob"].stats().get("dropped_by_error", 0) == 0

    assert b"still here" in run_world(scenario).messages("bob")
