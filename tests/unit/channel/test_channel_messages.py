"""Messages through whole channels on a memory network in virtual time (003: send, receive, sent, delivered)."""

from __future__ import annotations

import asyncio
import random

import pytest
from channel_world import TOPIC, World, run_world

from shardwire.channel import close_channel, create_reliable_channel
from shardwire.config import ChannelConfig, RateLimitConfig, SegmentationConfig
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.errors import ChannelClosedError, ConfigError, PayloadTooLargeError
from shardwire.events import (
    ChunkAcknowledgedEvent,
    ChunkErrorEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    RateLimitEvent,
)
from shardwire.node import MessageEnvelope, NetworkConditions, NodeConfig

LOSSY = NetworkConditions(loss=0.2, duplicate=0.05, delay_ms=(5, 40), reorder=0.1)


@pytest.mark.parametrize("payload", [b"", b"x", bytes(102_400), bytes(102_401), random.Random(1).randbytes(1_000_000)])
def test_a_message_arrives_and_is_reported_in_order(payload: bytes) -> None:
    requests: list[str] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        requests.append(await alice.send(payload))
        assert await alice.delivered(requests[0]) == {"bob"}
        assert alice.pending() == ()
        await asyncio.sleep(1)

    world = run_world(scenario)
    assert world.messages("bob") == [payload]
    assert world.received["bob"][0].sender_id == "alice"
    assert not world.received["bob"][0].redelivered
    outcomes = [event for event in world.events["alice"] if isinstance(event, MessageSentEvent | MessageDeliveredEvent)]
    assert [event.name for event in outcomes] == ["reliable:message:sent", "reliable:message:delivered"]
    assert {event.request_id for event in outcomes} == set(requests)
    assert {event.message_id for event in outcomes} == {world.received["bob"][0].message_id}
    assert world.messages("alice") == []


def test_ten_megabytes_through_a_lossy_network_with_parity_cipher_and_rate_limit() -> None:
    """The main job: 20 % loss, parity 0.5, ChaCha20-Poly1305, the rate limit counted by segment over epochs."""
    payload = random.Random(2).randbytes(10_000_000)
    config = ChannelConfig.logos(
        segmentation=SegmentationConfig(enable_reed_solomon=True, parity_rate=0.5),
        rate_limit=RateLimitConfig(enabled=True, epoch_size_ms=5_000, messages_per_epoch=60, counts="segment"),
        delivered_when=2,
    )
    observed: dict[str, list[str]] = {"alice": [], "bob": [], "carol": []}

    async def scenario(world: World) -> None:
        key = bytes(range(32))
        for name in ("alice", "bob", "carol"):
            channel = await world.join(name, config, encryption=ChaCha20Poly1305Encryption([key]))
            channel.observe(lambda observation, name=name: observed[name].append(observation.stage))
        request_id = await world.channels["alice"].send(payload)
        delivered_to = await world.channels["alice"].delivered(request_id, timeout_ms=600_000)
        assert delivered_to == {"bob", "carol"}
        await asyncio.sleep(5)

    world = run_world(scenario, LOSSY)
    assert world.messages("bob") == [payload]
    assert world.messages("carol") == [payload]
    assert "recovered" in observed["bob"]
    assert "acknowledged" in observed["alice"]
    assert world.of("alice", RateLimitEvent)
    assert len(world.of("alice", MessageSentEvent)) == len(world.of("alice", MessageDeliveredEvent)) == 1
    left: dict[tuple[str, int], int] = {}
    for record in world.network.trace:
        epoch = record.time_ns // 5_000_000_000
        left[record.sender, epoch] = left.get((record.sender, epoch), 0) + 1
    assert max(left.values()) <= 60
    assert len({epoch for sender, epoch in left if sender == "alice"}) >= 3


def test_parity_alone_closes_the_gap_without_retransmission_or_store() -> None:
    """k of k + m segments arrive, nothing is retransmitted, there is no store: delivered."""
    config = ChannelConfig.logos(segmentation=SegmentationConfig(enable_reed_solomon=True, parity_rate=0.5))
    payload = random.Random(3).randbytes(1_000_000)

    async def scenario(world: World) -> None:
        world.network.store_online = False
        alice = await world.join("alice", config)
        bob = await world.join("bob", config)
        world.lose("alice", "bob", {1, 4, 9})
        recovered: list[int] = []
        bob.observe(lambda o: recovered.append(o.ordinal) if o.stage == "recovered" else None)
        request_id = await alice.send(payload)
        await alice.delivered(request_id)
        assert recovered == [1, 4, 9]
        await asyncio.sleep(60)
        assert alice.stats().get("dispatched_retransmission", 0) == 0

    world = run_world(scenario)
    assert world.messages("bob") == [payload]


def test_the_same_bytes_three_times_by_two_senders_arrive_six_times() -> None:
    async def scenario(world: World) -> None:
        for name in ("alice", "bob", "carol"):
            await world.join(name)
        for _ in range(3):
            for name in ("alice", "bob"):
                await world.channels[name].send(b"same")
        await asyncio.sleep(60)

    world = run_world(scenario, LOSSY)
    assert world.messages("carol") == [b"same"] * 6
    assert world.messages("alice") == world.messages("bob") == [b"same"] * 3


def test_a_send_id_is_unique_and_stands_for_one_request_of_the_node_a_segment() -> None:
    """003 ReliableSendId: also for equal payloads; "sent" comes with the last of its requests."""
    requests: list[str] = []

    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        node = world.nodes["alice"]
        send = node.send

        async def noted(envelope: MessageEnvelope) -> str:
            requests.append(await send(envelope))
            return requests[-1]

        node.send = noted  # type: ignore[method-assign]
        faults = [None, None, "busy"]
        node.send_fault = lambda envelope: faults.pop(0) if faults else None
        sends = [await alice.send(bytes(300_000))]
        await asyncio.sleep(0.2)
        assert [pending.segments_propagated for pending in alice.pending()] == [2]
        assert world.of("alice", MessageSentEvent) == []
        await asyncio.sleep(2)
        assert len(requests) == 4
        sends.append(await alice.send(bytes(300_000)))
        await asyncio.sleep(2)
        assert len(set(requests)) == len(requests) == 7
        assert len(set(sends)) == 2
        assert not set(sends) & set(requests)
        assert [event.request_id for event in world.of("alice", MessageSentEvent)] == sends

    assert run_world(scenario).messages("bob") == [bytes(300_000)] * 2


def test_nothing_is_retransmitted_on_a_network_without_loss() -> None:
    async def scenario(world: World) -> None:
        for name in ("alice", "bob", "carol"):
            await world.join(name)
        for number in range(20):
            await world.channels["alice"].send(bytes([number]) * 1_000)
        await asyncio.sleep(120)
        assert world.channels["alice"].stats().get("dispatched_retransmission", 0) == 0

    world = run_world(scenario, NetworkConditions(delay_ms=(5, 40)))
    assert len(world.messages("bob")) == 20


def test_many_messages_arrive_in_the_order_of_one_sender_under_loss() -> None:
    async def scenario(world: World) -> None:
        for name in ("alice", "bob"):
            await world.join(name)
        for number in range(100):
            await world.channels["alice"].send(b"%d" % number)
            await asyncio.sleep(0.2)
        await asyncio.sleep(400)

    world = run_world(scenario, LOSSY)
    assert world.messages("bob") == [b"%d" % number for number in range(100)]


def test_delivery_needs_the_quorum() -> None:
    config = ChannelConfig.logos(delivered_when=frozenset({"bob", "carol"}))

    async def scenario(world: World) -> None:
        alice = await world.join("alice", config)
        await world.join("bob", config)
        request_id = await alice.send(b"for both")
        with pytest.raises(TimeoutError):
            await alice.delivered(request_id, timeout_ms=10_000)
        await world.join("carol", config)
        assert await alice.delivered(request_id, timeout_ms=300_000) == {"bob", "carol"}

    run_world(scenario)


def test_giving_up_is_a_delivery_error() -> None:
    async def scenario(world: World) -> None:
        # Where a store has it, it waits there.
        world.network.store_online = False
        alice = await world.join("alice")
        await world.node("silent")
        request_id = await alice.send(b"nobody listens")
        with pytest.raises(TimeoutError, match="not acknowledged"):
            await alice.delivered(request_id, timeout_ms=300_000)
        assert alice.pending() == ()

    world = run_world(scenario)
    (error,) = world.of("alice", MessageSendErrorEvent)
    assert error.stage == "delivery"
    assert len(world.of("alice", MessageSentEvent)) == 1
    assert world.of("alice", MessageDeliveredEvent) == []


def test_chunk_events_end_complete() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        await world.join("bob")
        await alice.delivered(await alice.send(bytes(500_000)))
        await asyncio.sleep(5)

    world = run_world(scenario)
    last = world.of("alice", ChunkAcknowledgedEvent)[-1]
    assert last.chunk_info.chunks == (0, 1, 2, 3, 4)
    assert last.by == "bob"


def test_too_large_names_both_numbers() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", node_config=NodeConfig(max_message_size_bytes=4_096))
        with pytest.raises(PayloadTooLargeError, match=r"has 10000000 bytes and .* send_file\(\)") as error:
            await alice.send(bytes(10_000_000))
        assert error.value.payload_bytes == 10_000_000
        assert 0 < error.value.limit_bytes < 10_000_000
        await alice.send(bytes(error.value.limit_bytes))
        await asyncio.sleep(1)

    world = run_world(scenario)
    assert len(world.of("alice", ChunkErrorEvent)) == 1


def test_no_wire_message_exceeds_the_maximum_of_a_small_node() -> None:
    config = ChannelConfig.logos(segmentation=SegmentationConfig(enable_reed_solomon=True))

    async def scenario(world: World) -> None:
        for name in ("alice", "bob", "carol"):
            await world.join(
                name,
                config,
                encryption=ChaCha20Poly1305Encryption([bytes(32)]),
                node_config=NodeConfig(max_message_size_bytes=2_500),
            )
        for name in ("alice", "bob", "carol"):
            await world.channels[name].send(random.Random(name).randbytes(20_000))
        await asyncio.sleep(120)

    world = run_world(scenario, LOSSY)
    assert len(world.messages("bob")) == 2
    assert max(record.size_bytes for record in world.network.trace) <= 2_500


@pytest.mark.parametrize(
    ("maximum", "size", "count", "loss"),
    [(1_800, 20_000, 3, 0.0), (1_800, 20_000, 8, 0.1), (10_000, 100, 300, 0.0)],
)
def test_what_arrived_is_delivered_where_no_filter_fits_a_message(
    maximum: int, size: int, count: int, loss: float
) -> None:
    async def scenario(world: World) -> None:
        node_config = NodeConfig(max_message_size_bytes=maximum)
        for name in ("alice", "bob"):
            await world.join(name, ChannelConfig.waku(), node_config=node_config)
        payloads = [number.to_bytes(2, "big") * (size // 2) for number in range(count)]
        sent = [await world.channels["alice"].send(payload) for payload in payloads]
        for request_id in sent:
            assert await world.channels["alice"].delivered(request_id, timeout_ms=600_000) == {"bob"}

    world = run_world(scenario, NetworkConditions(loss=loss), seed=2)
    assert len(world.messages("bob")) == count
    assert world.of("alice", MessageSendErrorEvent) == []


def test_send_needs_a_started_channel() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.logos(auto_start=False))
        assert not alice.is_started()
        with pytest.raises(ChannelClosedError, match="not started"):
            await alice.send(b"x")
        await alice.start()
        await alice.start()
        assert alice.is_started()
        await world.join("bob")
        await alice.delivered(await alice.send(b"x"))
        await alice.stop()
        await alice.stop()
        assert not alice.is_started()
        await close_channel(alice)
        with pytest.raises(ChannelClosedError, match="closed"):
            await alice.send(b"x")
        with pytest.raises(ChannelClosedError):
            await alice.start()

    run_world(scenario)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("channel_id", ""),
        ("sender_id", "x" * 100_000),
        ("sender_id", "x" * 257),
        ("content_topic", ""),
        ("sender_id", "\ud800"),
    ],
)
def test_ids_are_checked(field: str, value: str) -> None:
    async def scenario(world: World) -> None:
        arguments = {"channel_id": "c", "content_topic": TOPIC, "sender_id": "alice", field: value}
        with pytest.raises(ConfigError, match=field) as caught:
            await create_reliable_channel(await world.node("alice"), **arguments)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 400

    run_world(scenario)


def test_a_node_without_the_operations_of_one_is_refused() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ConfigError, match=r"node is a NoneType without config"):
            await create_reliable_channel(None, "c", TOPIC, "alice")  # type: ignore[arg-type]

    run_world(scenario)


def test_a_message_is_any_buffer_and_no_text() -> None:
    async def scenario(world: World) -> None:
        alice = await world.join("alice")
        bob = await world.join("bob")
        received: list[bytes] = []
        bob.on_message_received(lambda event: received.append(event.message))
        for message in (b"abcdef", bytearray(b"abcdef"), memoryview(b"a-b-c-d-e-f")[::2]):
            await alice.delivered(await alice.send(message))
        assert received == [b"abcdef"] * 3
        with pytest.raises(TypeError, match=r"message is a str: send message\.encode\(\)"):
            await alice.send("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="message is a NoneType: it must be bytes"):
            await alice.send_ephemeral(None)  # type: ignore[arg-type]

    run_world(scenario)


def test_only_the_first_segment_of_a_message_counts_toward_the_rate_limit() -> None:
    """003, Rate Limit Manager, by the network's own trace: two places carry two messages of three segments."""
    limit = RateLimitConfig(enabled=True, epoch_size_ms=60_000, messages_per_epoch=2, ack_reserve=0.0)

    async def scenario(world: World) -> None:
        alice = await world.join("alice", ChannelConfig.logos(rate_limit=limit))
        await world.join("bob")
        # To the beginning of an epoch.
        await asyncio.sleep(60)
        world.network.clear_trace()
        for _ in range(3):
            await alice.send(bytes(250_000))
        await asyncio.sleep(50)
        assert world.sent_by("alice") == 2 * 3
        assert alice.rate_limit_status().used == 2
        await asyncio.sleep(60)
        assert world.messages("bob") == [bytes(250_000)] * 3

    run_world(scenario)
