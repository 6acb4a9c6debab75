"""What a message costs through real channels on an in-process network, in virtual time and from a seed."""

from __future__ import annotations

import asyncio
import logging
import random
import statistics
from dataclasses import dataclass, field

from benches.repair.bound import Loss
from shardwire import ChannelConfig, close_channel, create_reliable_channel
from shardwire._native import SdsMessage
from shardwire.config import SegmentationConfig
from shardwire.events import MessageDeliveredEvent, MessageSendErrorEvent
from shardwire.node import MemoryNetwork, NetworkConditions, TraceRecord, run_virtual
from shardwire.node.clock import running_clock

TOPIC = "/shardwire/1/bench/proto"
LIMIT_MS = 3_600_000
# Segments so far apart are of different rounds.
ROUND_MS = 1_000
LATENCY_MS = (20, 60)
# Messages of a steady channel: first those that it learns of the loss from, then those that are measured.
EARLIER, MEASURED = 24, 8
# What is still said when everybody has everything, such as answers that are under way.
AFTERMATH_MS = 10_000


@dataclass(frozen=True)
class Case:
    """One message to everybody.

    Attributes:
        repair: How losses are repaired; `arq-0` is `arq` without parity, `parity-steady` stands for messages of a
            channel that has carried others.
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
    """What one message took, or several on average.

    Attributes:
        segments: Sent by anyone, repeated ones and answers to requests included.
        needless: Those of them that nobody lacked when they left: each receiver had that one, or as many as there are
            data segments.
        rounds: In how many waves.
        in_one_round: Share of the messages that took one wave.
        whole_ms: From `send` until the last receiver had the message.
        delivered: Whether the sender learnt that all have it.
        bytes: All that was sent.
        control_bytes: What of it carried no segment.
    """

    segments: float
    needless: float
    rounds: float
    in_one_round: float
    whole_ms: float
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
    # On demand there is none at first that the channel did not learn of.
    parity_rate = 0.125 if case.repair == "arq" else 0.0
    return ChannelConfig.logos(
        segmentation=SegmentationConfig(
            segment_size_bytes=case.segment_bytes, enable_reed_solomon=parity_rate > 0, parity_rate=parity_rate
        ),
        repair="parity" if case.repair.startswith("parity") else "arq",
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
    outcomes: list[object] = []
    end = asyncio.Event()

    def on_settled(event: object) -> None:
        outcomes.append(event)
        end.set()

    sender.on(MessageDeliveredEvent, on_settled)
    sender.on(MessageSendErrorEvent, on_settled)
    earlier, measured = (EARLIER, MEASURED) if case.repair == "parity-steady" else (0, 1)
    took: list[Took] = []
    for number in range(earlier + measured):
        if number == earlier:
            outcomes.clear()
        before = len(network.trace)
        whole.clear()
        everybody.clear()
        end.clear()
        payload = random.Random(f"{seed}/{number}").randbytes(case.data_count * case.segment_bytes)
        began_ms = running_clock().monotonic_ms()
        await sender.send(payload)
        await everybody.wait()
        await end.wait()
        await asyncio.sleep(AFTERMATH_MS / 1_000)
        if number >= earlier:
            took.append(took_of(network.trace[before:], case, max(whole.values()) - began_ms))
    for channel in channels:
        await close_channel(channel)
    return Cost(
        statistics.fmean(one.segments for one in took),
        statistics.fmean(one.needless for one in took),
        statistics.fmean(one.rounds for one in took),
        statistics.fmean(one.rounds == 1 for one in took),
        statistics.fmean(one.whole_ms for one in took),
        all(isinstance(outcome, MessageDeliveredEvent) for outcome in outcomes),
        sum(one.bytes for one in took),
        sum(one.control_bytes for one in took),
    )


@dataclass(frozen=True)
class Took:
    """What one message took; as `Cost`."""

    segments: int
    needless: int
    rounds: int
    whole_ms: int
    bytes: int
    control_bytes: int


def took_of(trace: list[TraceRecord], case: Case, whole_ms: int) -> Took:
    """What one message took, of all that was sent. A filter that rides on a segment is control as well."""
    segments = needless = rounds = total = control = 0
    last_ns: int | None = None
    held: dict[str, set[bytes]] = {f"r{number:02}": set() for number in range(case.receivers)}
    for record in trace:
        assert record.payload is not None
        message = SdsMessage.decode(record.payload, "spec")
        total += len(record.payload)
        if message is None or message.content is None:
            control += len(record.payload)
            continue
        control += len(message.bloom_filter or b"")
        segments += 1
        # The same segment has the same content, whoever sends it.
        content = message.content
        needless += all(content in has or len(has) >= case.data_count for has in held.values())
        for outcome in record.outcomes:
            if outcome.outcome == "delivered" and outcome.receiver in held:
                held[outcome.receiver].add(content)
        rounds += last_ns is None or record.time_ns - last_ns >= ROUND_MS * 1_000_000
        last_ns = record.time_ns
    return Took(segments, needless, rounds, whole_ms, total, control)
