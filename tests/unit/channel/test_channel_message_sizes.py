"""The node may change the size of its messages while it runs: what is sent later follows, and nothing breaks."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world
from wrapped_node import WrappedNode

from shardwire.channel import close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, SdsConfig, SyncConfig
from shardwire.errors import ConfigError, NodeError
from shardwire.events import ChunkErrorEvent, MessageSendErrorEvent, MessageSentEvent
from shardwire.node import MemoryNetwork, NetworkConditions

SMALL, LARGE = 20_000, 150_000
MESSAGE = bytes(range(256)) * 1_000


def resize(world: World, name: str, size_bytes: int) -> None:
    world.nodes[name].max_message_size_bytes = size_bytes
    world.network.clear_trace()


def largest_by(world: World, name: str) -> int:
    return max(record.size_bytes for record in world.network.trace if record.sender == name)


@pytest.mark.parametrize("sizes", [(LARGE, SMALL), (SMALL, LARGE), (LARGE, 6_000), (6_000, LARGE)])
def test_later_sends_follow(sizes: tuple[int, int]) -> None:
    """Segments, headers and filters: each as large as it may be."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        for size_bytes in sizes:
            for name in ("alice", "bob"):
                resize(world, name, size_bytes)
            assert await alice.delivered(await alice.send(MESSAGE), timeout_ms=60_000) == {"bob"}
            assert await bob.delivered(await bob.send(b"short"), timeout_ms=60_000) == {"alice"}
            await asyncio.sleep(200)
            assert size_bytes // 4 < largest_by(world, "alice") <= size_bytes
            assert largest_by(world, "bob") <= size_bytes
            segment_size_bytes = alice.config.segmentation.segment_size_bytes
            assert segment_size_bytes == 102_400 if size_bytes == LARGE else segment_size_bytes < size_bytes

    world = run_world(scenario)
    assert world.messages("bob") == [MESSAGE, MESSAGE]
    assert world.of("alice", MessageSendErrorEvent) == []


def test_who_sends_nothing_acknowledges_all_the_same() -> None:
    """Its filter alone would take more than the node carries now."""

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        resize(world, "bob", 3_000)
        for number in range(100):
            assert await alice.delivered(await alice.send(b"%d" % number), timeout_ms=20_000) == {"bob"}
            await asyncio.sleep(2)
        assert largest_by(world, "bob") <= 3_000
        assert world.channels["bob"].stats().get("dispatch_failures", 0) <= 1

    run_world(scenario)


def test_what_was_segmented_before_and_no_longer_fits_fails_by_name() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        world.nodes["alice"].go_offline()
        await asyncio.sleep(1)
        too_large = await alice.send(MESSAGE)
        fits = await alice.send(b"fits")
        resize(world, "alice", SMALL)
        world.nodes["alice"].go_online()
        assert await alice.delivered(fits, timeout_ms=60_000) == {"bob"}
        (error,) = world.of("alice", MessageSendErrorEvent)
        assert (error.request_id, error.stage) == (too_large, "dispatch")
        assert "it is too large: 102442 bytes, the node carries" in error.error
        assert len(world.of("alice", ChunkErrorEvent)) == 1
        again = await alice.send(MESSAGE)
        assert await alice.delivered(again, timeout_ms=60_000) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"fits", MESSAGE]


def test_a_retransmission_that_no_longer_fits_is_an_error_of_delivery() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        # What is asked on connecting brings nothing of it.
        await asyncio.sleep(1)
        world.nodes["bob"].conditions = NetworkConditions(loss=1.0)
        await alice.send(MESSAGE)
        await asyncio.sleep(1)
        resize(world, "alice", SMALL)
        await asyncio.sleep(60)
        (error,) = world.of("alice", MessageSendErrorEvent)
        assert error.stage == "delivery"
        assert "it is too large" in error.error

    run_world(scenario)


def test_repairs_that_no_longer_fit_do_not_hold_up_what_does() -> None:
    config = ChannelConfig.logos(sds=SdsConfig(max_retransmissions=0)).without_store()

    async def scenario(world: World) -> None:
        world.network = MemoryNetwork(seed=7, store=False)
        alice = await world.join("alice", config)
        await world.join("bob", config)
        await world.join("carol", config)
        world.nodes["bob"].conditions = NetworkConditions(loss=1.0)
        await alice.send(MESSAGE)
        await asyncio.sleep(1)
        for name in ("alice", "carol"):
            resize(world, name, SMALL)
        world.nodes["bob"].conditions = None
        for number in range(20):
            # Bob asks for the segments, and nobody can send them.
            request_id = await alice.send(b"%d" % number)
            await asyncio.sleep(0.4)
            assert request_id in [event.request_id for event in world.of("alice", MessageSentEvent)]
            await asyncio.sleep(1)
        assert alice.stats()["dispatch_failures"] > 5

    run_world(scenario)


def test_messages_that_are_too_small_for_anything_are_refused_by_name_until_they_are_not() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        resize(world, "alice", 100)
        for call in (alice.send, alice.send_ephemeral):
            with pytest.raises(ConfigError, match=r"max_message_size_bytes of the node is 100: .* at least"):
                await call(b"x")
        await asyncio.sleep(60)
        resize(world, "alice", LARGE)
        assert await alice.delivered(await alice.send(b"y"), timeout_ms=60_000) == {"bob"}

    assert run_world(scenario).messages("bob") == [b"y"]


class OddNode(WrappedNode):
    """Says what it is told to of its messages' size."""

    said: Any = LARGE

    @property
    def max_message_size_bytes(self) -> Any:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said

    @max_message_size_bytes.setter
    def max_message_size_bytes(self, value: Any) -> None: ...


@pytest.mark.parametrize("said", [None, "150000", 0, -5, 1.5, True, RuntimeError("broken")], ids=repr)
def test_what_is_no_size_changes_nothing(said: Any) -> None:
    async def scenario(world: World) -> None:
        node = OddNode(await world.node("alice"))
        alice = await create_reliable_channel(node, CHANNEL, TOPIC, "alice")
        await world.join("bob")
        node.said = said
        assert await alice.delivered(await alice.send(MESSAGE), timeout_ms=60_000) == {"bob"}
        await close_channel(alice)

    assert run_world(scenario).messages("bob") == [MESSAGE]


@pytest.mark.parametrize("says", [(SMALL, None), (SMALL, LARGE, None), (2**70,), (2**31,)], ids=repr)
def test_a_node_that_says_something_else_each_time_is_taken_at_a_word_that_is_a_size(says: tuple[Any, ...]) -> None:
    class Changing(WrappedNode):
        asked = -1

        @property
        def max_message_size_bytes(self) -> Any:
            if self.asked < 0:
                return LARGE
            self.asked += 1
            if (said := says[self.asked % len(says)]) is None:
                raise RuntimeError("broken")
            return said

        @max_message_size_bytes.setter
        def max_message_size_bytes(self, value: Any) -> None: ...

    async def scenario(world: World) -> None:
        node = Changing(await world.node("alice"))
        alice = await create_reliable_channel(node, CHANNEL, TOPIC, "alice")
        await world.join("bob")
        for asked in range(8):
            node.asked = asked
            assert await alice.delivered(await alice.send(b"%d" % asked), timeout_ms=60_000) == {"bob"}
            node.asked = asked
            await alice.send_ephemeral(b"e")
            await asyncio.sleep(1)
        await close_channel(alice)

    run_world(scenario)


class Base64Cipher:
    """Adds a third."""

    def encrypt(self, content: bytes) -> bytes:
        return base64.b64encode(content)

    def decrypt(self, payload: bytes) -> bytes:
        return base64.b64decode(payload, validate=True)


@pytest.mark.parametrize("sizes", [(LARGE, SMALL), (SMALL, LARGE)])
def test_a_cipher_that_adds_in_proportion_is_measured_again(sizes: tuple[int, int]) -> None:
    quiet = replace(ChannelConfig.logos(), sync=SyncConfig(sync_min_interval_ms=0))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", quiet, encryption=Base64Cipher())
        await world.join("bob", quiet, encryption=Base64Cipher())
        for size_bytes in sizes:
            for name in ("alice", "bob"):
                resize(world, name, size_bytes)
            assert await alice.delivered(await alice.send(MESSAGE), timeout_ms=60_000) == {"bob"}
            assert largest_by(world, "alice") <= size_bytes
        assert alice.stats().get("dispatch_failures", 0) == 0

    run_world(scenario)


def test_a_cipher_that_hangs_while_it_is_measured_holds_up_nothing_for_ever() -> None:
    class Hanging(Base64Cipher):
        hangs = False

        async def encrypt(self, content: bytes) -> bytes:  # type: ignore[override]
            if self.hangs:
                await asyncio.Event().wait()
            return base64.b64encode(content)

    cipher = Hanging()

    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=cipher)
        await world.join("bob", encryption=Base64Cipher())
        cipher.hangs = True
        resize(world, "alice", SMALL)
        sending = asyncio.create_task(alice.send(b"x"))
        await asyncio.sleep(30)
        cipher.hangs = False
        await asyncio.sleep(31)
        # As much as the cipher added to larger messages, in proportion, is left for it.
        assert await alice.delivered(await sending, timeout_ms=60_000) == {"bob"}
        cipher.hangs = True
        resize(world, "alice", LARGE)
        # Alice is about to acknowledge it.
        await world.channels["bob"].send(b"y")
        await asyncio.sleep(5)
        tasks = {task for task in asyncio.all_tasks() if "MessageSizes" in repr(task)}
        assert tasks
        await close_channel(world.channels.pop("alice"))
        await asyncio.sleep(0)
        assert not tasks & asyncio.all_tasks()

    run_world(scenario)


@pytest.mark.parametrize("call_s", [1, 3_600])
def test_a_channel_is_made_though_its_cipher_cannot_be_measured_in_time(
    call_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(Base64Cipher):
        def __init__(self) -> None:
            self.call_s = call_s

        async def encrypt(self, content: bytes) -> bytes:  # type: ignore[override]
            await asyncio.sleep(self.call_s)
            return base64.b64encode(content)

    cipher = Slow()

    async def scenario(world: World) -> None:
        began_s = asyncio.get_running_loop().time()
        alice = await world.join("alice", encryption=cipher)
        assert asyncio.get_running_loop().time() - began_s == 60
        assert "the encryption raised TimeoutError when its overhead was measured" in caplog.text
        await world.join("bob", encryption=Base64Cipher())
        cipher.call_s = 0
        assert await alice.delivered(await alice.send(b"x"), timeout_ms=60_000) == {"bob"}

    run_world(scenario)


class SlowCipher(Base64Cipher):
    takes_s = 0

    async def encrypt(self, content: bytes) -> bytes:  # type: ignore[override]
        await asyncio.sleep(self.takes_s)
        return base64.b64encode(content)


def test_who_gives_up_while_the_cipher_is_measured_leaves_that_to_the_next() -> None:
    cipher = SlowCipher()

    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=cipher)
        await world.join("bob", encryption=Base64Cipher())
        cipher.takes_s = 10
        resize(world, "alice", SMALL)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(alice.send(MESSAGE), 1)
        cipher.takes_s = 0
        assert await alice.delivered(await alice.send(MESSAGE), timeout_ms=60_000) == {"bob"}
        assert largest_by(world, "alice") <= SMALL

    assert run_world(scenario).messages("bob") == [MESSAGE]


def test_who_sends_while_the_cipher_is_measured_waits_for_that() -> None:
    cipher = SlowCipher()

    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=cipher)
        await world.join("bob", encryption=Base64Cipher())
        cipher.takes_s = 1
        resize(world, "alice", SMALL)
        for request_id in await asyncio.gather(*(alice.send(MESSAGE + bytes([number])) for number in range(3))):
            assert await alice.delivered(request_id, timeout_ms=600_000) == {"bob"}
        assert largest_by(world, "alice") <= SMALL

    run_world(scenario)


def test_a_cipher_that_gives_no_bytes_while_it_is_measured_is_taken_as_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Odd(Base64Cipher):
        is_odd = False

        def encrypt(self, content: bytes) -> bytes:
            return None if self.is_odd else super().encrypt(content)  # type: ignore[return-value]

    cipher = Odd()

    async def scenario(world: World) -> None:
        alice = await world.join("alice", encryption=cipher)
        await world.join("bob", encryption=Base64Cipher())
        cipher.is_odd = True
        resize(world, "alice", SMALL)
        with pytest.raises(NodeError, match="encryption failed: encrypt of the encryption gave a NoneType"):
            await alice.delivered(await alice.send(b"x"), timeout_ms=60_000)
        cipher.is_odd = False
        assert await alice.delivered(await alice.send(MESSAGE), timeout_ms=60_000) == {"bob"}

    run_world(scenario)
    (told,) = [text for text in caplog.messages if "cannot be measured" in text]
    assert told.endswith("in proportion: encrypt of the encryption gave a NoneType: it must give bytes")


def test_messages_that_wait_for_room_follow_too() -> None:
    config = ChannelConfig.logos(sds=SdsConfig(outgoing_buffer_messages_max=4))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob", config)
        world.nodes["bob"].conditions = NetworkConditions(loss=1.0)
        for word in (b"fills", b"all", b"the", b"buffer"):
            await alice.send(word)
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(alice.send(MESSAGE))
        behind = asyncio.create_task(alice.send(b"and what follows"))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        resize(world, "alice", SMALL)
        world.nodes["bob"].conditions = None
        request_id = await waiting
        await behind
        await asyncio.sleep(30)
        assert [event.request_id for event in world.of("alice", MessageSendErrorEvent)] == [request_id]

    # Nothing waits for what never leaves.
    assert run_world(scenario).messages("bob") == [b"fills", b"all", b"the", b"buffer", b"and what follows"]


def test_a_message_that_acknowledges_many_keeps_to_the_size() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        # Bob's carries a filter, so that none is due below.
        for channel in (alice, bob):
            await channel.send(b"first")
            await asyncio.sleep(2)
        resize(world, "bob", 60_000)
        for number in range(1_000):
            await alice.send(b"%d" % number)
        # Before a sync names them: there is room for few of what the answer could name.
        await asyncio.sleep(0.01)
        assert await bob.delivered(await bob.send(bytes(39_000)), timeout_ms=30_000) == {"alice"}
        assert len(world.messages("bob")) == 1_001
        assert 50_000 < largest_by(world, "bob") <= 60_000
        assert bob.stats().get("dispatch_failures", 0) == 0

    run_world(scenario)


def test_what_waits_for_its_acknowledgement_outlives_every_change() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        world.nodes["bob"].conditions = NetworkConditions(loss=1.0)
        requests = [await alice.send(b"%d" % number) for number in range(3)]
        for size_bytes in (SMALL, LARGE, SMALL, LARGE):
            resize(world, "alice", size_bytes)
            requests.append(await alice.send(b"after"))
            await asyncio.sleep(1)
        world.nodes["bob"].conditions = None
        for request_id in requests:
            assert await alice.delivered(request_id, timeout_ms=60_000) == {"bob"}

    assert len(run_world(scenario).messages("bob")) == 7
