"""Mistakes in what a channel is given are refused at once, by name; what types and protocols allow works."""

from __future__ import annotations

import asyncio
import ctypes
import enum
import pickle
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from channel_world import CHANNEL, TOPIC, World, run_world

from shardwire.channel import close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, RateLimitConfig, ReliableChannelOptions, SdsConfig
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.errors import ConfigError, NodeError, PersistenceError
from shardwire.node import MemoryNetwork, MessageEnvelope, NatsNode, Node, NodeConfig, StorePage, StoreQuery
from shardwire.node.protocol import NodeEvent
from shardwire.persistence import MemoryPersistence, SqlitePersistence
from shardwire.persistence.protocol import Changes, ChannelState


def make_cipher(result: object) -> object:
    class Cipher:
        def encrypt(self, content: bytes) -> object:
            return result

        def decrypt(self, payload: bytes) -> bytes:
            return payload

    return Cipher()


class BindsNothing(ChaCha20Poly1305Encryption):
    def bind(self, channel_id: str) -> Any:
        return None


class BindsLater(ChaCha20Poly1305Encryption):
    async def bind(self, channel_id: str) -> Any:
        return self


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("encryption", object(), r"encryption is a object without encrypt\(\): it must have both operations"),
        ("encryption", BindsNothing(bytes(32)), r"bind of the encryption gave a NoneType without encrypt\(\)"),
        ("encryption", BindsLater(bytes(32)), r"bind of the encryption gave a coroutine without encrypt\(\)"),
        ("encryption", ChaCha20Poly1305Encryption, "encryption is the class ChaCha20Poly1305Encryption"),
        ("encryption", make_cipher(None), "encrypt of the encryption gave a NoneType: it must give bytes"),
        ("encryption", make_cipher("text"), "encrypt of the encryption gave a str: it must give bytes"),
        (
            "config",
            {"auto_start": True},
            "config is a dict: it must be a ChannelConfig, ReliableChannelOptions or None",
        ),
    ],
)
def test_arguments_of_wrong_types_are_refused(name: str, value: object, message: str) -> None:
    async def scenario(world: World) -> None:
        arguments: dict[str, Any] = {name: value}
        with pytest.raises(ConfigError, match=message):
            await create_reliable_channel(await world.node("alice"), CHANNEL, TOPIC, "alice", **arguments)

    run_world(scenario)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("nats://localhost", "node is a text: make a node of an address with shardwire.node.create_node"),
        (NatsNode, "node is the class NatsNode: give an object of it"),
        (None, "node is a NoneType without config"),
    ],
)
def test_what_is_no_node_is_refused(node: Any, message: str) -> None:
    async def scenario(_: World) -> None:
        with pytest.raises(ConfigError, match=message):
            await create_reliable_channel(node, CHANNEL, TOPIC, "alice")

    run_world(scenario)


@pytest.mark.parametrize("size", [None, 0, "150000", True, 2**64])
def test_a_node_must_say_how_large_its_messages_are(size: object) -> None:
    async def scenario(world: World) -> None:
        node = await world.node("alice")
        node.max_message_size_bytes = size  # type: ignore[assignment]
        with pytest.raises(ConfigError, match=f"max_message_size_bytes of the node is {size!r}"):
            await create_reliable_channel(node, CHANNEL, TOPIC, "alice")

    run_world(scenario)


@pytest.mark.parametrize("config", [None, {}, ChannelConfig.logos()])
def test_a_node_must_have_a_configuration_of_its_own(config: object) -> None:
    async def scenario(world: World) -> None:
        node = await world.node("alice")
        node.config = config  # type: ignore[assignment]
        with pytest.raises(ConfigError, match=f"config of the node is a {type(config).__name__}: it must be a"):
            await create_reliable_channel(node, CHANNEL, TOPIC, "alice")

    run_world(scenario)


@pytest.mark.parametrize("name", ["segmentation_config", "sds_config", "rate_limit_config"])
def test_parts_of_a_node_config_must_be_configurations(name: str) -> None:
    arguments: dict[str, Any] = {name: 5}
    with pytest.raises(ConfigError, match=f"NodeConfig.{name} is 5: it must be a"):
        NodeConfig(**arguments)


@pytest.mark.parametrize("timeout", [None, "5", -1, 1.5, True])
def test_a_timeout_must_be_a_count_of_milliseconds(timeout: Any) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        with pytest.raises(ConfigError, match=f"timeout_ms is {timeout!r}"):
            await alice.delivered(await alice.send(b"x"), timeout_ms=timeout)

    run_world(scenario)


@pytest.mark.parametrize("request_id", [5, None, b"x", ["x"], {}])
def test_a_request_must_be_named_by_its_id(request_id: Any) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        for ask in (alice.cancel, alice.delivered):
            with pytest.raises(ConfigError, match=r"request_id is .*: it must be what send"):
                await ask(request_id)
        await asyncio.sleep(1)
        assert not alice.is_closed()

    run_world(scenario)


@pytest.mark.parametrize("observer", [5, None, "print"])
def test_an_observer_must_be_callable(observer: Any) -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        for observe in (alice.observe, alice.measure):
            with pytest.raises(ConfigError, match=f"observer is a {type(observer).__name__}: it must be callable"):
                observe(observer)

    run_world(scenario)


def test_an_observer_takes_what_it_is_told_and_is_plain() -> None:
    async def waits(observation: object) -> None: ...

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        for observe in (alice.observe, alice.observe_sds, alice.measure):
            with pytest.raises(ConfigError, match=r"observer .*lambda> cannot be called with one argument"):
                observe(lambda: None)  # type: ignore[arg-type, misc]
            with pytest.raises(ConfigError, match=r"observer .*waits is async: it must be plain"):
                observe(waits)

    run_world(scenario)


def test_a_cancelled_or_refused_send_can_never_be_delivered() -> None:
    async def scenario(world: World) -> None:
        limit = RateLimitConfig(enabled=True, messages_per_epoch=1, epoch_size_ms=3_600_000)
        alice = await world.join("alice", ChannelConfig.logos(rate_limit=limit))
        await alice.send(b"leaves")
        request_id = await alice.send(b"waits")
        assert await alice.cancel(request_id)
        with pytest.raises(NodeError, match=f"message {request_id} was cancelled"):
            await alice.delivered(request_id)
        bob = await world.join("bob", ChannelConfig.waku())
        request_id = await bob.send(b"")
        for pause_s in (0, 1):
            await asyncio.sleep(pause_s)
            with pytest.raises(NodeError, match=f"message {request_id} was not sent: the message is empty"):
                await bob.delivered(request_id)
        with pytest.raises(ConfigError, match="request_id is 'unknown'"):
            await bob.delivered("unknown")

    run_world(scenario)


@dataclass
class DataNode:
    """Has no hash, and equals every other."""

    topics: set[str] = field(default_factory=set, compare=False)

    @property
    def config(self) -> NodeConfig:
        return NodeConfig()

    @property
    def max_message_size_bytes(self) -> int:
        return 150_000

    @property
    def has_store(self) -> bool:
        return True

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def subscribe(self, content_topics: Sequence[str]) -> None:
        self.topics.update(content_topics)

    async def unsubscribe(self, content_topics: Sequence[str]) -> None:
        self.topics.difference_update(content_topics)

    async def send(self, envelope: MessageEnvelope) -> str:
        raise NodeError("offline")

    async def query_store(self, query: StoreQuery) -> StorePage:
        return StorePage(())

    async def events(self) -> AsyncIterator[NodeEvent]:
        await asyncio.sleep(3_600)
        yield NodeEvent()


@dataclass
class SlotsNode(DataNode):
    __slots__ = ()


def test_nodes_are_told_apart_by_identity() -> None:
    async def scenario(world: World) -> None:
        nodes: list[Node] = [DataNode(), DataNode(), SlotsNode()]
        channels = [
            await create_reliable_channel(node, CHANNEL, TOPIC, f"sender {number}") for number, node in enumerate(nodes)
        ]
        channels.append(await create_reliable_channel(nodes[0], "other", TOPIC, "sender"))
        for node, channel in zip((*nodes, nodes[0]), channels, strict=True):
            assert isinstance(node, DataNode)
            assert node.topics == {TOPIC}
            await close_channel(channel)
            assert node.topics == ({TOPIC} if channel is channels[0] else set())

    run_world(scenario)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_one_state_belongs_to_one_channel(kind: str, tmp_path: Path) -> None:
    persistence = MemoryPersistence() if kind == "memory" else SqlitePersistence(tmp_path / "state.db")

    async def main() -> None:
        config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence))
        network = MemoryNetwork()
        node = network.create_node("alice")
        await node.start()
        first = await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config)
        with pytest.raises(PersistenceError, match=r"in use by this process already: close the other channel first"):
            await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config)
        other = await create_reliable_channel(node, "other", TOPIC, "alice", config=config)
        await close_channel(first)
        await close_channel(other)
        await close_channel(await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config))
        # Left open: what a loop held that has ended is free.
        await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config)

    for _ in range(2):
        asyncio.run(main())


@pytest.mark.parametrize("slow", ["load", "commit"])
def test_a_creation_that_is_cancelled_gives_the_state_free_that_its_thread_still_uses(slow: str) -> None:
    class Slow:
        """Does one thing when it is told to."""

        def __init__(self) -> None:
            self.is_asked = threading.Event()
            self.may_go_on = threading.Event()
            self.calls: list[str] = []

        def _call(self, name: str) -> None:
            if name == slow:
                self.is_asked.set()
                self.may_go_on.wait(60)
            self.calls.append(name)

        def load(self, channel_id: str) -> ChannelState | None:
            self._call("load")
            return None

        def commit(self, channel_id: str, changes: Changes) -> None:
            self._call("commit")

        def release(self, channel_id: str) -> None:
            self._call("release")

        def close(self) -> None: ...

    async def main() -> None:
        persistence = Slow()
        config = ChannelConfig.logos(sds=SdsConfig(persistence=persistence))
        node = MemoryNetwork().create_node("alice")
        await node.start()
        creating = asyncio.create_task(create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config))
        await asyncio.to_thread(persistence.is_asked.wait, 60)
        creating.cancel()
        await asyncio.sleep(0)
        persistence.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await creating
        assert persistence.calls[-2:] == [slow, "release"]
        await close_channel(await create_reliable_channel(node, CHANNEL, TOPIC, "alice", config=config))

    asyncio.run(main())


def test_a_memory_persistence_pickles_as_a_copy_of_its_state() -> None:
    original = MemoryPersistence()
    original.commit(CHANNEL, Changes({("kind", b"key"): b"value"}))
    copy = pickle.loads(pickle.dumps(original))
    original.commit(CHANNEL, Changes({("kind", b"key"): None}))
    state = copy.load(CHANNEL)
    assert state is not None
    assert dict(state.records) == {("kind", b"key"): b"value"}


def test_receivers_may_be_named_in_any_set_and_callbacks_may_give_values() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.logos(delivered_when={"bob"}))
        bob = await world.join("bob")
        got: list[bytes] = []

        async def take(event: object) -> int:
            return 3

        bob.on("message-received", lambda event: len(event.message))
        bob.on("message-received", take)
        bob.on_message_received(lambda event: got.append(event.message))
        assert await alice.delivered(await alice.send(b"x")) == {"bob"}
        assert got == [b"x"]

    run_world(scenario)


def test_the_options_of_the_older_text_are_a_configuration() -> None:
    options = ReliableChannelOptions(auto_start=False, timeout_for_lost_messages_ms=1_000)

    async def scenario(world: World) -> None:
        channel = await create_reliable_channel(await world.node("alice"), CHANNEL, TOPIC, "alice", config=options)
        world.channels["alice"] = channel
        assert not channel.is_started()
        assert channel.config.sds == options.to_config().sds

    run_world(scenario)


def test_repair_comes_within_a_short_lost_timeout() -> None:
    """Bob misses the first message, and no store has it: carol answers within the two seconds that he waits."""
    options = ReliableChannelOptions(
        timeout_for_lost_messages_ms=2_000, sweep_in_buf_interval_ms=0, process_task_min_elapse_ms=0
    )

    async def scenario(world: World) -> None:
        world.network = MemoryNetwork(seed=7, store=False)
        for name in ("alice", "bob", "carol"):
            await world.join(name, options.to_config())
        alice = world.channels["alice"]
        await alice.send(b"before")
        await asyncio.sleep(1)
        world.lose("alice", "bob", {0})
        await alice.send(b"first")
        await asyncio.sleep(0.1)
        await alice.send(b"second")
        await asyncio.sleep(2)
        assert world.messages("bob") == [b"before", b"first", b"second"]

    run_world(scenario)


@pytest.mark.parametrize("topic", ["/photos/1/room/proto", "/0/photos/1/room/proto"])
def test_a_topic_and_a_sender_in_each_others_place_are_refused_by_name(topic: str) -> None:
    async def scenario(world: World) -> None:
        node = await world.node("alice")
        with pytest.raises(ConfigError, match=f"content_topic is 'alice' and sender_id is '{topic}'"):
            await create_reliable_channel(node, CHANNEL, "alice", topic)
        # Senders may like slashes.
        for sender_id in (topic, "org/alice"):
            await close_channel(await create_reliable_channel(node, CHANNEL, topic, sender_id))

    run_world(scenario)


def test_the_addresses_of_python_objects_are_not_sent() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        with pytest.raises(TypeError, match="message is a py_object_Array_1: it must be bytes"):
            await alice.send((ctypes.py_object * 1)(object()))
        assert alice.pending() == ()

    run_world(scenario)


def test_timeouts_have_an_end() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        request_id = await alice.send(b"x")
        with pytest.raises(ConfigError, match="timeout_ms is too large: it must be at most 1000000000000"):
            await alice.delivered(request_id, timeout_ms=10**400)
        with pytest.raises(ConfigError, match="drain_timeout_ms is too large"):
            await alice.close(10**400)

    run_world(scenario)


class Who(enum.StrEnum):
    ALICE = "alice"


class Length(enum.IntEnum):
    EPOCH_MS = 60_000


@pytest.mark.parametrize("on_disk", [False, True])
def test_members_of_enumerations_are_the_texts_and_numbers_that_they_are(on_disk: bool) -> None:
    limit = RateLimitConfig(enabled=True, epoch_size_ms=Length.EPOCH_MS, messages_per_epoch=10)
    config = ChannelConfig.logos(rate_limit=limit)

    async def scenario(world: World) -> None:
        await world.join("bob")
        alice = await world.join(Who.ALICE, config, on_disk=on_disk)
        await alice.delivered(await alice.send(b"first"))
        if on_disk:
            await world.crash(Who.ALICE)
            alice = await world.join("alice", config, on_disk=True)
            assert alice.rate_limit_status().used > 0
        await alice.delivered(await alice.send(b"second"))
        assert world.messages("bob") == [b"first", b"second"]

    run_world(scenario)


def test_who_shares_the_configuration_of_its_group_need_not_acknowledge_its_own_messages() -> None:
    async def scenario(world: World) -> None:
        group = ChannelConfig.logos(delivered_when={"alice", "bob"})
        alice, _ = await world.join("alice", group), await world.join("bob", group)
        assert alice.config.delivered_when == {"bob"}
        assert await alice.delivered(await alice.send(b"x")) == {"bob"}
        # Who is the only one that must have the messages of others may have none of its own.
        assert (await world.join("carol", ChannelConfig.logos(delivered_when={"carol"}))).config.delivered_when == {
            "carol"
        }

    run_world(scenario)


def test_who_forgets_to_await_is_told_what_was_called() -> None:
    creation = [create_reliable_channel(MemoryNetwork().create_node("alice"), CHANNEL, TOPIC, "alice")]
    with pytest.warns(RuntimeWarning, match="coroutine 'create_reliable_channel' was never awaited"):
        creation.clear()


def test_a_request_id_that_is_no_unicode_is_one_that_is_not_known() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        assert not await alice.cancel("\ud800")
        with pytest.raises(ConfigError, match="request_id is"):
            await alice.delivered("\ud800")
        with pytest.raises(ConfigError, match=r"request_id is 'x{64}'\.\.\. \(10000 characters\): it must"):
            await alice.delivered("x" * 10_000)
        assert alice.is_started()
        assert await alice.cancel(await alice.send(b"of use still"))

    run_world(scenario)


def test_a_channel_is_not_entered_on_another_loop() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        raised: list[BaseException] = []

        async def enter() -> None:
            async with alice:
                pass

        def elsewhere() -> None:
            try:
                asyncio.run(asyncio.wait_for(enter(), 5))
            except Exception as error:
                raised.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert [type(error) for error in raised] == [ConfigError]
        assert alice.is_started()
        await alice.send(b"of use still")

    run_world(scenario)


@pytest.mark.parametrize("of_node", [False, True])
@pytest.mark.parametrize(("enabled", "quota"), [(False, 5), (True, 5), (False, None)])
def test_a_quota_that_is_not_enforced_is_told_of(
    of_node: bool, enabled: bool, quota: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    limit = RateLimitConfig(enabled=enabled, messages_per_epoch=quota)

    async def scenario(world: World) -> None:
        await world.node("alice", NodeConfig(rate_limit_config=limit) if of_node else None)
        await world.join("alice", None if of_node else ChannelConfig.logos(rate_limit=limit))

    run_world(scenario)
    name = "NodeConfig.rate_limit_config" if of_node else "ChannelConfig.rate_limit"
    told = [line for line in caplog.messages if "nothing is limited" in line]
    assert [line.split(" and ")[0] for line in told] == [f"{name}.messages_per_epoch is 5"] * (
        quota == 5 and not enabled
    )
