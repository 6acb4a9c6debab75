"""Runs one world: the real channel, SDS, persistence and memory node, in virtual time."""

from __future__ import annotations

import asyncio
import hashlib
import random
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from shardwire.config import ChannelConfig, DeliveredWhen, RateLimitConfig
from shardwire.events import MessageDeliveredEvent
from shardwire.node import STORE, MemoryNetwork, NetworkConditions, TraceRecord, VirtualTimeLoop
from shardwire.segmentation import segment
from tests.simulation.adversary import Hostile
from tests.simulation.bounds import exceeded
from tests.simulation.disk import MountedDisk
from tests.simulation.participants import Participant, Sent
from tests.simulation.standing_still import StandstillLoop, context_of
from tests.simulation.worlds import (
    AFTERMATH_MS,
    IDLE_MS,
    REPAIR_T_MAX_MS,
    SETTLE_MS,
    SYNC_MIN_INTERVAL_MS,
    ClockStep,
    Crash,
    Interval,
    PlannedSend,
    Standstill,
    World,
)

KEY = bytes(range(32))
# Small filters: at the default they are most of what a world sends.
BLOOM_CAPACITY = 500
LOST_TIMEOUT_MS = 300_000
# So often a message is sent again that shares its id with another one, after the first answer.
STOOD_BY = 3
# What only one participant received of a hostile one, and kept waiting for what was made up, comes late to the others.
# So often at most it is not quiet yet after the aftermath.
ECHOES_MAX = 2
# Hostile participants name more than this.
MISSING_MAX = 100
# How often what everyone holds is compared with its limits.
SAMPLE_MS = 5_000


# No repr: when the loop is closed, `signal` asks for that of the task, and so of its result.
@dataclass(slots=True, repr=False)
class Evidence:
    """What a world leaves for the checkers.

    Attributes:
        world: The world.
        participants: Applications with their logs.
        trace: Every envelope, with payload.
        settled_ms: Virtual time from which nothing more may change.
        ended_ms: Virtual time of the end.
        exceeded: What was held beyond its limit, sampled all along.
        dead: Participants whose channel had closed by itself in the end.
        false_deliveries: Delivered events that named someone who did not hold the message then.
        stats: `channel.stats()` of each participant at the end.
        pending: Number of sends still pending of each participant at the end.
        network: The network, for its store.
    """

    world: World
    participants: list[Participant]
    network: MemoryNetwork
    trace: list[TraceRecord] = field(default_factory=list)
    settled_ms: int = 0
    ended_ms: int = 0
    false_deliveries: list[str] = field(default_factory=list)
    stats: dict[str, dict[str, int]] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    exceeded: dict[str, None] = field(default_factory=dict)
    dead: list[str] = field(default_factory=list)
    # Where a message id is the hash of its content: by it, the number of the send.
    numbers: dict[str, int] = field(default_factory=dict)
    # What `wire_messages` read, so that each checker need not read it again.
    wire: list[Any] | None = None

    def send_of(self, message_id: str) -> str | None:
        """The key of the send that a message id belongs to; None where there is none."""
        if self.world.message_id == "content-sha256":
            number = self.numbers.get(message_id)
            return None if number is None else f"#{number}"
        send_id, dot, ordinal = message_id.rpartition(".")
        return send_id if dot and len(send_id) == 32 and ordinal.isdigit() else None

    def key_of(self, sent: Sent) -> str | None:
        """The key of a send; None where its id is unknown, as after a crash during `send`."""
        return f"#{sent.plan.number}" if self.world.message_id == "content-sha256" else sent.request_id


def payload_of(world: World, plan: PlannedSend) -> bytes:
    """A payload that no other send of the world has."""
    if not plan.size_bytes:
        return b""
    head = (
        plan.number.to_bytes(4, "big") + plan.sender.to_bytes(4, "big") + (world.seed & 0xFFFFFFFF).to_bytes(4, "big")
    )
    return head + random.Random(f"{world.seed}/{plan.number}").randbytes(max(0, plan.size_bytes - len(head)))


def named_receiver(world: World, index: int) -> str:
    """Whom a participant waits for where `delivered_when` names one."""
    return world.names[1 if index == 0 else 0]


def channel_config(world: World, index: int, persistence: MountedDisk | None, life: int = 0) -> ChannelConfig:
    """The configuration of one participant in one of its lives."""
    choices: dict[str, DeliveredWhen] = {
        "any": "any",
        "all": world.participants - 1,
        "one named": frozenset({named_receiver(world, index)}),
    }
    limit = world.rate_limit
    preset = ChannelConfig.waku() if world.preset == "waku" else ChannelConfig.logos()
    wires: dict[str, Any] = {}
    if world.preset == "logos":
        wires = {"erasure_code": world.erasure_code, "wire_format": world.wire_format}
    config = replace(
        preset,
        segmentation=replace(
            preset.segmentation,
            segment_size_bytes=world.segment_size_bytes,
            enable_reed_solomon=world.enable_reed_solomon,
            parity_rate=world.parity_rate,
            **wires,
        ),
        sds=replace(
            preset.sds,
            persistence=persistence,
            bloom_filter_capacity=BLOOM_CAPACITY,
            repair_t_max_ms=REPAIR_T_MAX_MS,
            # Also in worlds of 004, which waits for ever: hostile participants name what never was.
            timeout_for_lost_messages_ms=LOST_TIMEOUT_MS,
            missing_messages_max=MISSING_MAX,
            message_id=world.message_id,
        ),
        sync=replace(
            preset.sync,
            sync_min_interval_ms=SYNC_MIN_INTERVAL_MS,
            process_task_min_elapse_ms=max(preset.sync.process_task_min_elapse_ms, world.process_ms),
        ),
        rate_limit=RateLimitConfig()
        if limit is None
        else RateLimitConfig(
            enabled=True,
            epoch_size_ms=limit.epoch_size_ms,
            messages_per_epoch=limit.messages_per_epoch,
            counts=limit.counts,
        ),
        delivered_when=choices[world.delivered_when],
        redelivery="at-most-once" if world.at_most_once else "at-least-once",
        repair=world.repair,
        envelope_meta=world.envelope_meta,
    )
    if not world.variations:
        return config
    variation = world.variations[index][life % len(world.variations[index])]
    config = replace(
        config,
        segmentation=replace(config.segmentation, **variation.segmentation),
        sds=replace(config.sds, **variation.sds),
        sync=replace(config.sync, **variation.sync),
        rate_limit=replace(config.rate_limit, **variation.rate_limit),
        repair=variation.repair,
        auto_start=variation.auto_start,
    )
    return config.without_store(world.participants) if world.adapted else config


def run_world(world: World) -> Evidence:
    """Runs a world to its end.

    Raises:
        VirtualTimeError: It stands still or does not end.
    """
    commit_rng = random.Random(f"commits/{world.seed}")
    least_ms, most_ms = world.commit_delay_ms
    loop = (StandstillLoop if world.standstills else VirtualTimeLoop)(
        limit_ms=world.awake_at_ms + settle_ms(world) + (1 + ECHOES_MAX) * (aftermath_ms(world) + IDLE_MS) + 600_000,
        executor_delay_ms=lambda: commit_rng.randint(least_ms, most_ms),
    )
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_simulate(world))


def settle_ms(world: World) -> int:
    """How long after the last fault everything must have converged.

    A dependency that was never sent in full is waited for until it counts as lost: hostile participants name such, and
    what is taken back is one.
    Where histories are as short as one entry, or no store helps, what was missed is found link by link; where little
    may be held of what is not whole, one message after the other.
    """
    is_lacking = world.hostile_at_ms or any(plan.cancelled_ms is not None for plan in world.sends)
    return SETTLE_MS * (4 if world.variations else 1) + (LOST_TIMEOUT_MS if is_lacking else 0)


def aftermath_ms(world: World) -> int:
    """How long after that it may take until all is quiet.

    What is asked for may come late, and with it a history that names what a hostile participant made up: that is asked
    for then. What shares its id with another message is sent again a few times, up to two T_max apart.
    """
    if not world.hostile_at_ms:
        return AFTERMATH_MS
    return AFTERMATH_MS + max(LOST_TIMEOUT_MS, 2 * (1 + STOOD_BY) * REPAIR_T_MAX_MS)


def _contents_on_the_way(participants: list[Participant]) -> int:
    """How many contents came to participants that did not have them, or were sent again for others.

    What is here under the number of another segment is asked for by that number, and comes again as it is.
    """
    counted = ("segments_received", "segments_discarded", "dispatched_repair")
    stats = [participant.channel.stats() for participant in participants if participant.channel is not None]
    return sum(sizes[what] for sizes in stats for what in counted)


async def _simulate(world: World) -> Evidence:
    network = MemoryNetwork(_conditions(world, calm=False), seed=world.seed, store=world.store, trace_payloads=True)
    participants: list[Participant] = []
    evidence = Evidence(world, participants, network)

    def check_delivered(sender: Participant, event: MessageDeliveredEvent) -> None:
        evidence.false_deliveries += _false_claims(evidence, sender, event)

    for index in range(world.participants):
        participants.append(
            Participant(
                world,
                index,
                network,
                partial(channel_config, world, index),
                KEY if world.encrypted else None,
                check_delivered,
            )
        )
    tasks = [
        asyncio.create_task(_live(world, participant), context=context_of(participant.name))
        for participant in participants
    ]
    tasks += [asyncio.create_task(_hold(network, interval)) for interval in world.partitions]
    tasks += [asyncio.create_task(_hold_store(network, interval)) for interval in world.store_outages]
    tasks += [asyncio.create_task(_step_clock(participants, step)) for step in world.clock_steps]
    tasks += [asyncio.create_task(_hold_still(participants, standstill)) for standstill in world.standstills]
    if world.message_id == "content-sha256":
        evidence.numbers = _numbers(world)
    for plan in world.sends:
        reply_to = None if plan.reply_to is None else payload_of(world, world.sends[plan.reply_to])
        payload = payload_of(world, plan)
        sender = participants[plan.sender]
        tasks.append(asyncio.create_task(sender.send(plan, payload, reply_to), context=context_of(sender.name)))
    for plan in world.aside:
        sender = participants[plan.sender]
        tasks.append(
            asyncio.create_task(sender.send_aside(plan, payload_of(world, plan)), context=context_of(sender.name))
        )
    if world.hostile_at_ms:
        tasks.append(asyncio.create_task(Hostile(world, network).run()))
    sampling = asyncio.create_task(_sample(evidence))
    await _sleep_until(world.calm_at_ms)
    network.conditions = _conditions(world, calm=True)
    await _sleep_until(world.awake_at_ms)
    await _gather(tasks)
    await asyncio.sleep(settle_ms(world) / 1000)
    evidence.settled_ms = _now_ms()
    await asyncio.sleep(aftermath_ms(world) / 1000)
    for _ in range(1 + ECHOES_MAX):
        before = _contents_on_the_way(participants)
        await asyncio.sleep(IDLE_MS / 1000)
        if not world.hostile_at_ms or _contents_on_the_way(participants) == before:
            break
        await asyncio.sleep(aftermath_ms(world) / 1000)
    evidence.ended_ms = _now_ms()
    sampling.cancel()
    evidence.trace = network.trace
    for participant in participants:
        if participant.channel is not None:
            evidence.stats[participant.name] = participant.channel.stats()
            evidence.pending[participant.name] = len(participant.channel.pending())
        if participant.channel is None or participant.channel.is_closed():
            evidence.dead.append(participant.name)
    for participant in participants:
        await participant.leave()
    return evidence


def _numbers(world: World) -> dict[str, int]:
    lives = len(world.variations[0]) if world.variations else 1
    return {
        hashlib.sha256(content).hexdigest(): plan.number
        for plan in world.sends
        for life in range(lives)
        for content in segment(payload_of(world, plan), channel_config(world, plan.sender, None, life).segmentation)
    }


async def _sample(evidence: Evidence) -> None:
    while True:
        await asyncio.sleep(SAMPLE_MS / 1000)
        for participant in evidence.participants:
            if participant.channel is not None and (found := exceeded(participant.name, participant.channel)):
                evidence.exceeded.update(dict.fromkeys(found))


async def _gather(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        await task


def _now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


async def _sleep_until(at_ms: int) -> None:
    await asyncio.sleep(max(0, at_ms - _now_ms()) / 1000)


def _conditions(world: World, *, calm: bool) -> NetworkConditions:
    if calm:
        return NetworkConditions(delay_ms=world.delay_ms)
    return NetworkConditions(
        loss=world.loss,
        duplicate=world.duplicate,
        delay_ms=world.delay_ms,
        reorder=world.reorder,
        reorder_delay_ms=world.reorder_delay_ms,
        store_delay_ms=world.delay_ms,
    )


async def _live(world: World, participant: Participant) -> None:
    await _sleep_until(world.joins_at_ms[participant.index])
    await participant.join()
    crashes: list[Crash] = [crash for crash in world.crashes if crash.participant == participant.index]
    for crash in sorted(crashes, key=lambda crash: crash.at_ms):
        await _sleep_until(crash.at_ms)
        await participant.crash(orderly=crash.orderly)
        await _sleep_until(crash.back_at_ms)
        await participant.join()


async def _hold(network: MemoryNetwork, interval: Interval) -> None:
    await _sleep_until(interval.at_ms)
    groups = [{f"p{index:02}" for index in group} for group in interval.groups]
    groups[interval.store_group].add(STORE)
    network.partition(groups)
    await _sleep_until(interval.until_ms)
    network.heal()


async def _hold_store(network: MemoryNetwork, interval: Interval) -> None:
    await _sleep_until(interval.at_ms)
    network.store_online = False
    await _sleep_until(interval.until_ms)
    network.store_online = True


async def _step_clock(participants: list[Participant], step: ClockStep) -> None:
    await _sleep_until(step.at_ms)
    participants[step.participant].clock.step(step.delta_ms)


async def _hold_still(participants: list[Participant], standstill: Standstill) -> None:
    await _sleep_until(standstill.at_ms)
    participant, loop = participants[standstill.participant], asyncio.get_running_loop()
    assert isinstance(loop, StandstillLoop)
    loop.hold(participant.name)
    await _sleep_until(standstill.until_ms)
    stood_ms = loop.release(participant.name, slept=standstill.slept)
    if standstill.slept:
        participant.clock.slept_ms += stood_ms


def _false_claims(evidence: Evidence, sender: Participant, event: MessageDeliveredEvent) -> list[str]:
    """Whom the event names although it does not hold the message: neither in its application nor on its disk."""
    by_name = {participant.name: participant for participant in evidence.participants}
    payload = sender.payload_of_request(event.request_id)
    false = []
    for name in sorted(event.delivered_to):
        receiver = by_name.get(name)
        if receiver is None or payload is None:
            continue
        if not receiver.holds(sender.name, payload):
            false.append(f"{sender.name} counts {event.request_id} as delivered to {name}, who does not hold it")
    return false
