"""The encryption hook: everything that leaves goes through it, and nothing leaves where it fails."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire.channel import close_channel
from shardwire.config import ChannelConfig, SdsConfig, SegmentationConfig
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


class Deaf:
    """Tries again whatever happens to its first calls, for half an hour."""

    def __init__(self, encryptions: int = 0, decryptions: int = 0) -> None:
        self.encryptions, self.decryptions = encryptions, decryptions

    async def encrypt(self, content: bytes) -> bytes:
        self.encryptions -= 1
        return await self._answer(content, self.encryptions >= 0)

    async def decrypt(self, payload: bytes) -> bytes:
        self.decryptions -= 1
        return await self._answer(payload, self.decryptions >= 0)

    async def _answer(self, given: bytes, is_late: bool) -> bytes:
        until = asyncio.get_running_loop().time() + 1_800
        while is_late and (left := until - asyncio.get_running_loop().time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        return given


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


def record_payloads(world: World, *names: str) -> list[bytes]:
    payloads: list[bytes] = []
    for node in (world.nodes[name] for name in names or world.nodes):

        def note(envelope: MessageEnvelope) -> None:
            payloads.append(envelope.payload)

        node.send_fault = note
    return payloads


@pytest.mark.parametrize("cipher", [ChaCha20Poly1305Encryption, AesGcmEncryption])
def test_nothing_of_segments_or_sds_is_visible_on_the_wire(cipher: type[ChaCha20Poly1305Encryption]) -> None:
    """Content, parity, acknowledgement, ephemeral, repeated: no id, no hash and no text of ours in any payload."""
    config = ChannelConfig.logos(segmentation=SegmentationConfig(enable_reed_solomon=True, segment_size_bytes=1_024))
    rng = random.Random(16)
    # By chance none of them is found in what is encrypted.
    text, ephemeral = rng.randbytes(16), rng.randbytes(16)
    sender, receiver, channel_id = (rng.randbytes(16).hex() for _ in range(3))

    async def scenario(world: World) -> None:
        for name in (sender, receiver):
            await world.join(name, config, encryption=cipher([KEY]), channel_id=channel_id)
        alice = world.channels[f"{sender}/{channel_id}"]
        payloads = record_payloads(world)
        request_id = await alice.send(text * 600)
        await alice.send_ephemeral(ephemeral)
        await alice.delivered(request_id, timeout_ms=120_000)
        await asyncio.sleep(60)
        assert alice.stats()["dispatched_retransmission"] > 0
        message_id = world.received[receiver][-1].message_id
        names = (sender, receiver, channel_id, request_id)
        secrets = (text, ephemeral, bytes.fromhex(message_id), *(name.encode() for name in names))
        assert len(payloads) > 10
        for payload in payloads:
            assert not any(secret in payload for secret in secrets)

    world = run_world(scenario, NetworkConditions(loss=0.3, delay_ms=(1, 20)))
    assert set(world.messages(receiver)) >= {text * 600}


def test_repairs_go_through_the_hook() -> None:
    """What a participant repairs others with is a message of somebody else, and no less secret."""
    marker = random.Random(16).randbytes(16)
    # Nobody else has it to give.
    config = ChannelConfig.logos(sds=SdsConfig(max_retransmissions=0))

    async def scenario(world: World) -> None:
        world.network.store_online = False
        for name in ("alice", "bob", "carol"):
            await world.join(name, config, encryption=ChaCha20Poly1305Encryption([KEY]))
        alice, bob = world.channels["alice"], world.channels["bob"]
        await alice.send(b"known")
        await asyncio.sleep(10)
        world.lose("alice", "carol", {0})
        payloads = record_payloads(world, "bob")
        await alice.send(marker)
        await asyncio.sleep(1)
        assert world.messages("carol") == [b"known"]
        await alice.stop()
        world.nodes["carol"].conditions = None
        await bob.send(b"follows it")
        await asyncio.sleep(900)
        assert bob.stats()["dispatched_repair"] > 0
        assert not any(marker in payload for payload in payloads)

    assert run_world(scenario).messages("carol") == [b"known", marker, b"follows it"]


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
    assert f"encryption failed: RuntimeError at {__file__}:" in caplog.text


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


def test_a_cipher_that_swallows_its_cancellation_holds_up_nothing_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        slow = Deaf()
        alice = await world.join("alice", encryption=slow)
        bob = await world.join("bob", encryption=Deaf(decryptions=1))
        slow.encryptions = 1
        lost = await alice.send(b"lost")
        kept = await alice.send(b"kept")
        with pytest.raises(NodeError, match="encryption failed: TimeoutError"):
            await alice.delivered(lost, timeout_ms=65_000)
        assert await alice.delivered(kept, timeout_ms=600_000) == {"bob"}
        assert bob.stats()["dropped_undecryptable"] == 1

    run_world(scenario)
    said = "a call of the encryption did not end within 2 s of its cancellation: it is left behind"
    assert [record.getMessage() for record in caplog.records].count(said) == 2


def test_a_cipher_that_swallows_its_cancellation_is_measured_in_time_and_lets_the_channel_close() -> None:
    async def scenario(world: World) -> None:
        loop = asyncio.get_running_loop()
        since = loop.time()
        slow = Deaf(encryptions=1)
        alice = await world.join("alice", encryption=slow)
        assert loop.time() - since < 70
        slow.encryptions = 1
        await alice.send(b"x")
        await asyncio.sleep(1)
        since = loop.time()
        await close_channel(alice)
        assert loop.time() - since < 10

    run_world(scenario)


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


def told_of_keys(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "do all participants have this key and cipher?" in line]


def test_a_key_that_reads_nothing_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=ChaCha20Poly1305Encryption([KEY]))
        await world.join("bob", encryption=ChaCha20Poly1305Encryption([bytes(32)]))
        for number in range(10):
            await alice.send(b"%d" % number)
        await asyncio.sleep(600)
        assert world.channels["bob"].stats()["dropped_undecryptable"] > 3

    run_world(scenario)
    # Bob, and alice of what he says, if he says anything.
    assert 1 <= len(told_of_keys(caplog)) <= 2


def wrong(payload: bytes) -> Any:
    raise AttributeError(payload.hex())


@pytest.mark.parametrize(
    ("decrypt", "told"),
    [
        (lambda payload: None, " The last one: decrypt of the encryption gave a NoneType: it must give bytes"),
        (lambda payload: payload.hex(), " The last one: decrypt of the encryption gave a str: it must give bytes"),
        (wrong, f" The last one: AttributeError at {__file__}:"),
    ],
)
def test_a_cipher_that_is_wrong_is_told_beside_the_key(
    decrypt: Callable[[bytes], Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrong(Mask):
        async def encrypt(self, content: bytes) -> bytes:
            return content

        def decrypt(self, payload: bytes) -> Any:
            return decrypt(payload)

    async def scenario(world: World) -> None:
        await world.join("bob", encryption=Wrong())
        stranger = await world.node("stranger")
        for number in range(3):
            await stranger.send(MessageEnvelope(TOPIC, b"secret %d" % number))
        await asyncio.sleep(1)

    run_world(scenario)
    (line,) = told_of_keys(caplog)
    assert told in line
    assert b"secret".hex() not in line


def test_what_strangers_publish_beside_readable_messages_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        for name in ("alice", "bob"):
            await world.join(name, encryption=ChaCha20Poly1305Encryption([KEY]))
        alice, bob = world.channels["alice"], world.channels["bob"]
        assert await alice.delivered(await alice.send(b"x")) == {"bob"}
        assert await bob.delivered(await bob.send(b"y")) == {"alice"}
        eve = await world.node("eve")
        for number in range(10):
            await eve.send(MessageEnvelope(TOPIC, b"junk %d" % number))
        await asyncio.sleep(1)
        assert alice.stats()["dropped_undecryptable"] == 10

    run_world(scenario)
    assert told_of_keys(caplog) == []
