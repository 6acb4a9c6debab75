"""What a message costs through real channels on an in-process network, in virtual time and from a seed."""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field

from benches.repair.bound import Loss
from shardwire import ChannelConfig, close_channel, create_reliable_channel
from shardwire._native import SdsMessage
from shardwire.config import SegmentationConfig
from shardwire.events import MessageDeliveredEvent, MessageSendErrorEvent
from shardwire.node import MemoryNetwork, NetworkConditions, run_virtual
from shardwire.node.clock import running_clock

TOPIC = "/shardwire/1/bench/proto"
LIMIT_MS = 3_600_000
# Segments so far apart are of different rounds.
ROUND_MS = 1_000
LATENCY_MS = (20, 60)
# What is still said when everybody has everything, such as answers that are under way.
AFTERMATH_MS = 10_000


@dataclass(frozen=True)
class Case:
    """One message to everybody.

    Attributes:
        repair: How losses are repaired; `arq-0` is `arq` without parity.
        data_count: Data segments of the message.
        receivers: All of whom are to have it.
        loss: Of each receiver, the sender of the message too.
        segment_bytes: Size of a segment.
    """

    repair: str
    data_count: int
    receivers: int
    loss: Loss
    segment_bytes: int = 1_024


@dataclass(frozen=True)
class Cost:
    """What one message took.

    Attributes:
        segments: Sent by anyone, repeated ones and answers to requests included.
        rounds: In how many waves.
        whole_ms: From `send` until the last receiver had the message.
        delivered: Whether the sender learnt that all have it.
        bytes: All that was sent.
        control_bytes: What of it carried no segment.
    """

    segments: int
    rounds: int
    whole_ms: int
    delivered: bool
    bytes: int
    control_bytes: int


@dataclass(frozen=True, slots=True)
class Bursts(NetworkConditions):
    """The losses of one receiver, each after the one before."""

    model: Loss = field(default_factory=lambda: Loss(0.0))
    last: list[bool | None] = field(default_factory=lambda: [None])

    def draw_arrivals(self, rng: random.Random) -> tuple[tuple[int, bool], ...]:
        arrivals = NetworkConditions.draw_arrivals(self, rng)
        self.last[0] = self.model.draw(self.last[0], rng)
        return () if self.last[0] else arrivals


def config_of(case: Case, names: frozenset[str]) -> ChannelConfig:
    parity_rate = 0.0 if case.repair == "arq-0" else 0.125
    return ChannelConfig.logos(
        segmentation=SegmentationConfig(
            segment_size_bytes=case.segment_bytes, enable_reed_solomon=parity_rate > 0, parity_rate=parity_rate
        ),
        repair=case.repair.removesuffix("-0"),
        delivered_when=names,
    )


def measure(case: Case, seed: int) -> Cost:
    """The cost of one message."""
    # That there is no store is meant.
    logging.getLogger("shardwire").setLevel(logging.ERROR)
    return run_virtual(_measure(case, seed), limit_ms=LIMIT_MS)


async def _measure(case: Case, seed: int) -> Cost:
    network = MemoryNetwork(NetworkConditions(delay_ms=LATENCY_MS), seed=seed, trace_payloads=True)
    # Everything is repaired by participants.
    network.store_online = False
    names = [f"r{number:02}" for number in range(case.receivers)]
    config = config_of(case, frozenset(names))
    whole: dict[str, int] = {}
    everybody = asyncio.Event()
    channels = []
    for name in ("sender", *names):
        node = network.create_node(name)
        await node.start()
        channel = await create_reliable_channel(
            node, "bench", TOPIC, name, None, config, rng=random.Random(f"{seed}/{name}")
        )
        channels.append(channel)
        if name != "sender":

            def on_received(_: object, name: str = name) -> None:
                whole[name] = running_clock().monotonic_ms()
                if len(whole) == case.receivers:
                    everybody.set()

            channel.on_message_received(on_received)
        node.conditions = Bursts(delay_ms=LATENCY_MS, model=case.loss)
    sender = channels[0]
    settled: list[object] = []
    end = asyncio.Event()

    def on_settled(event: object) -> None:
        settled.append(event)
        end.set()

    sender.on(MessageDeliveredEvent, on_settled)
    sender.on(MessageSendErrorEvent, on_settled)
    payload = random.Random(seed).randbytes(case.data_count * case.segment_bytes)
    began_ms = running_clock().monotonic_ms()
    await sender.send(payload)
    await everybody.wait()
    await end.wait()
    await asyncio.sleep(AFTERMATH_MS / 1_000)
    for channel in channels:
        await close_channel(channel)
    segments = rounds = total = control = 0
    last_ns = -ROUND_MS * 1_000_000
    for record in network.trace:
        assert record.payload is not None
        message = SdsMessage.decode(record.payload, "spec")
        total += len(record.payload)
        if message is None or message.content is None:
            control += len(record.payload)
            continue
        segments += 1
        rounds += record.time_ns - last_ns >= ROUND_MS * 1_000_000
        last_ns = record.time_ns
    return Cost(
        segments, rounds, max(whole.values()) - began_ms, isinstance(settled[0], MessageDeliveredEvent), total, control
    )
