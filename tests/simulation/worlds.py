"""The distribution of simulated worlds: everything that a seed decides, in one place.

A world is a channel with its participants, its configuration, what they send and what goes wrong until `calm_at_ms`.
From then on the network is perfect, everyone who did not leave is back, and nobody sends any more, but for those that
stand still: they do so when they go on.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from typing import Any

from shardwire.config import (
    ErasureCode,
    MessageIdRule,
    RateCounts,
    ReassemblyLimits,
    Repair,
    SdsWireFormat,
    SegmentWireFormat,
)

FAULT_KINDS = (
    "loss",
    "duplication",
    "reorder",
    "partition",
    "store outage",
    "late joiner",
    "restart",
    "slow callback",
    "hostile participant",
    "clock step",
)
# Each kind in each world with this chance, so that every kind is in well over a fifth of the worlds.
FAULT_SHARE = 0.35

SENDS_MIN = 30
SENDS_MAX = 40
# At least a fifth of the sends of a world have several segments.
LARGE_SEND_SHARE = 0.25
SEGMENTS_MAX = 12
TRAFFIC_MS = (30_000, 120_000)
LOSS_MAX = 0.5

# Worlds under the preset of specification 004; the others are under that of 003.
WAKU_SHARE = 0.2
# How long received messages are gathered before they are processed (004, Performance considerations), by how many
# participants there are at most. Every receipt in a cycle of its own is what large worlds would spend their time on.
PROCESS_MS = ((5, (0, 0, 0, 100)), (15, (0, 100, 250)), (50, (250, 500, 1_000)))

# From this seed on participants are few, and each is configured in its own way in every life.
VARIED_FROM = 1_000_000
# How long processes stand still there: as under load, as at a breakpoint, as a laptop that is shut.
STANDSTILL_MS = ((1_000, 10_000), (1_000, 10_000), (10_000, 150_000), (150_000, 1_800_000), (1_800_000, 7_200_000))
# How long they run in between, at least and at most where it is late.
AWAKE_MS = (1_000, 60_000)

REPAIR_T_MAX_MS = 120_000
# The bound on convergence once loss ends.
SETTLE_MS = 2 * REPAIR_T_MAX_MS
# Answers to the last repair requests may still be on their way for this long; they repeat what everyone has.
AFTERMATH_MS = 90_000
IDLE_MS = 120_000
SYNC_MIN_INTERVAL_MS = 30_000


@dataclass(frozen=True, slots=True)
class PlannedSend:
    """One message of the application.

    Attributes:
        number: Its place in the plan; part of its payload.
        at_ms: When it is sent, at the earliest.
        sender: Index of the participant.
        size_bytes: Length of the payload.
        reply_to: Number of the message whose receipt it waits for (for `REPLY_PATIENCE_MS` at most); None for none.
        ephemeral: Whether it is an ephemeral message.
        abandoned_ms: How long its application waits for the call to return, and then cancels it; None for as long as
            it takes.
        cancelled_ms: How long after the call returned the message is taken back; None for never.
    """

    number: int
    at_ms: int
    sender: int
    size_bytes: int
    reply_to: int | None = None
    ephemeral: bool = False
    abandoned_ms: int | None = None
    cancelled_ms: int | None = None


REPLY_PATIENCE_MS = 20_000


@dataclass(frozen=True, slots=True)
class Crash:
    """A participant dies at `at_ms`, with whatever was not committed, and is back at `back_at_ms`.

    One that leaves in an `orderly` way closes its channel first.
    """

    participant: int
    at_ms: int
    back_at_ms: int
    orderly: bool = False


@dataclass(frozen=True, slots=True)
class Interval:
    """A partition or an outage of the store.

    Attributes:
        at_ms: Its beginning.
        until_ms: Its end.
        groups: Indices of the participants on each side of a partition.
        store_group: The side on which the store is.
    """

    at_ms: int
    until_ms: int
    groups: tuple[tuple[int, ...], ...] = ()
    store_group: int = 0


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A participant's Unix time jumps."""

    participant: int
    at_ms: int
    delta_ms: int


@dataclass(frozen=True, slots=True)
class Standstill:
    """A participant's process stands still, while the network and the others go on.

    Where its machine `slept`, its monotonic time and its timers did too.
    """

    participant: int
    at_ms: int
    until_ms: int
    slept: bool


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The quota of every participant."""

    epoch_size_ms: int
    messages_per_epoch: int
    counts: RateCounts


@dataclass(frozen=True, slots=True)
class Variation:
    """What a participant is configured with in one of its lives, otherwise than the world: fields of each part."""

    segmentation: dict[str, Any]
    sds: dict[str, Any]
    sync: dict[str, Any]
    repair: Repair
    rate_limit: dict[str, Any] = field(default_factory=dict)
    auto_start: bool = True


@dataclass(frozen=True, slots=True)
class World:
    """What happens; see the module."""

    seed: int
    participants: int
    faults: frozenset[str]
    # Network.
    loss: float
    duplicate: float
    delay_ms: tuple[int, int]
    reorder: float
    reorder_delay_ms: int
    commit_delay_ms: tuple[int, int]
    # Channel.
    segment_size_bytes: int
    wire_format: SegmentWireFormat
    enable_reed_solomon: bool
    parity_rate: float
    erasure_code: ErasureCode
    encrypted: bool
    at_most_once: bool
    delivered_when: str
    rate_limit: RateLimit | None
    # Plan.
    calm_at_ms: int
    sends: tuple[PlannedSend, ...] = field(repr=False)
    joins_at_ms: tuple[int, ...] = ()
    crashes: tuple[Crash, ...] = ()
    partitions: tuple[Interval, ...] = ()
    store_outages: tuple[Interval, ...] = ()
    clock_steps: tuple[ClockStep, ...] = ()
    callback_ms: tuple[int, ...] = ()
    hostile_at_ms: tuple[int, ...] = ()
    preset: str = "logos"
    repair: Repair = "arq"
    process_ms: int = 0
    message_id: MessageIdRule = "send"
    store: bool = True
    envelope_meta: bytes | None = None
    max_message_size_bytes: int | None = None
    # By participant, what its lives have in turn; none where all are configured alike.
    variations: tuple[tuple[Variation, ...], ...] = ()
    standstills: tuple[Standstill, ...] = ()
    sds_wire_format: SdsWireFormat = "spec"
    # As of a network that has no store, where it has none.
    adapted: bool = False
    # When whom sends what on a second channel of the same nodes and topic.
    aside: tuple[PlannedSend, ...] = field(default=(), repr=False)
    names: tuple[str, ...] = field(init=False, repr=False)

    @property
    def awake_at_ms(self) -> int:
        """When the network is calm and nobody stands still any more."""
        return max([self.calm_at_ms, *(standstill.until_ms for standstill in self.standstills)])

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(f"p{index:02}" for index in range(self.participants)))


def make_world(seed: int) -> World:
    """The world of a seed."""
    rng = random.Random(f"world/{seed}")
    preset = _draw_preset(seed)
    participants = _draw_participants(rng) if seed < VARIED_FROM else rng.randint(2, 6)
    faults = frozenset(kind for kind in FAULT_KINDS if rng.random() < FAULT_SHARE)
    calm_at_ms = rng.randint(*TRAFFIC_MS)
    segment_size_bytes = 64 * rng.randint(4, 32)
    sends = _draw_sends(rng, participants, calm_at_ms, segment_size_bytes)
    joins_at_ms = _draw_joins(rng, participants, calm_at_ms, "late joiner" in faults)
    least_delay_ms = rng.randint(0, 50)
    rate_limit = _draw_rate_limit(rng, sends, calm_at_ms, segment_size_bytes) if rng.random() < 0.25 else None
    # An epoch is never reopened: a clock that steps back by an hour rightly stops a limited sender for an hour.
    step_max_ms = 3_600_000 if rate_limit is None else 10_000
    world = World(
        seed=seed,
        participants=participants,
        faults=faults,
        loss=rng.uniform(0.05, LOSS_MAX) if "loss" in faults else 0.0,
        duplicate=rng.uniform(0.05, 0.3) if "duplication" in faults else 0.0,
        delay_ms=(least_delay_ms, least_delay_ms + rng.randint(0, 250)),
        reorder=rng.uniform(0.1, 0.5) if "reorder" in faults else 0.0,
        reorder_delay_ms=rng.randint(100, 3_000),
        commit_delay_ms=rng.choice(((0, 0), (0, 5), (1, 40))),
        segment_size_bytes=segment_size_bytes,
        wire_format="lip243" if rng.random() < 0.2 else "raw",
        enable_reed_solomon=rng.random() < 0.5,
        parity_rate=rng.choice((0.125, 0.25, 0.5, 1.0)),
        erasure_code="leopard" if rng.random() < 0.5 else "vandermonde",
        encrypted=rng.random() < 0.3,
        at_most_once=rng.random() < 0.2,
        delivered_when=_draw_delivered_when(rng, preset),
        rate_limit=rate_limit,
        calm_at_ms=calm_at_ms,
        sends=sends,
        joins_at_ms=joins_at_ms,
        crashes=_draw_crashes(rng, joins_at_ms, calm_at_ms) if "restart" in faults else (),
        partitions=_draw_partitions(rng, participants, calm_at_ms) if "partition" in faults else (),
        store_outages=_draw_outages(rng, calm_at_ms) if "store outage" in faults else (),
        clock_steps=_draw_clock_steps(rng, participants, calm_at_ms, step_max_ms) if "clock step" in faults else (),
        callback_ms=_draw_callbacks(rng, participants, "slow callback" in faults),
        hostile_at_ms=_draw_hostile(rng, calm_at_ms) if "hostile participant" in faults else (),
        preset=preset,
        repair=_draw_repair(seed, preset),
        process_ms=_draw_process_ms(seed, participants),
        # Ids of 004 are those of @waku/sds.
        message_id="content-sha256" if preset == "waku" else "send",
    )
    return world if seed < VARIED_FROM else _limit(_estrange(_vary(world)))


def _vary(world: World) -> World:
    """The world with what those before `VARIED_FROM` never have."""
    rng = random.Random(f"variety/{world.seed}")
    message_id: MessageIdRule = world.message_id
    if rng.random() < 0.2:
        message_id = "send" if message_id == "content-sha256" else "content-sha256"
    repair: Repair = world.repair if message_id == "send" else "arq"
    # By the size of a node's messages segments are cut, and ids made of contents with them.
    is_narrow = message_id == "send" and rng.random() < 0.3
    # Of the smallest segments, and as many parity segments, a message has no more; an ephemeral one has one.
    bytes_max = 16_000 if is_narrow else 30_000
    sends = [
        replace(send, size_bytes=min(send.size_bytes, 64 if send.ephemeral else bytes_max)) for send in world.sends
    ]
    large, empty = rng.sample(range(len(sends)), 2)
    if not sends[large].ephemeral:
        sends[large] = replace(sends[large], size_bytes=min(5 * sends[large].size_bytes, bytes_max))
    if world.preset == "logos" and not sends[empty].ephemeral:
        # The wire of 004 has none of these.
        sends[empty] = replace(sends[empty], size_bytes=0)
    alike = {
        # Filters of several sizes ignore each other; one that holds less than a log shows what it let go as lacking.
        "bloom_filter_capacity": rng.choice((1_000, 2_000)),
        # What a life with more room left to the next one would be too much there.
        "outgoing_buffer_messages_max": rng.choice((4, 30, 1_024)),
    }
    return replace(
        world,
        sends=tuple(sends),
        crashes=tuple(replace(crash, orderly=rng.random() < 0.5) for crash in world.crashes),
        repair=repair,
        message_id=message_id,
        # Under ids made of contents nothing says how many segments of an older message there are to ask for.
        store=rng.random() < 0.7 or "store outage" in world.faults or message_id == "content-sha256",
        # A hostile participant would not know it.
        envelope_meta=b"varied" if not world.hostile_at_ms and rng.random() < 0.2 else None,
        max_message_size_bytes=rng.randint(2_500, 6_000) if is_narrow else None,
        variations=tuple(
            tuple(_draw_variation(rng, world, message_id, repair, alike) for _ in range(2))
            for _ in range(world.participants)
        ),
    )


def _draw_variation(
    rng: random.Random, world: World, message_id: MessageIdRule, repair: Repair, alike: dict[str, int]
) -> Variation:
    segmentation: dict[str, Any] = {
        "segment_size_bytes": 64 * rng.randint(4, 32),
        "enable_reed_solomon": rng.random() < 0.5,
        "parity_rate": rng.choice((0.125, 0.25, 0.5, 1.0)),
        "parity_for_single_segment": rng.random() < 0.2,
    }
    if world.preset == "logos":
        segmentation["erasure_code"] = rng.choice(("leopard", "vandermonde"))
    if segmentation.get("erasure_code") == "vandermonde":
        segmentation["segment_size_bytes"] += rng.randrange(64)
    sds = {
        **alike,
        "causal_history_size": rng.choice((1, 2, 10, 200)),
        "bloom_interval_ms": rng.choice((0, 5_000, 30_000)),
        "back_off_percent": rng.choice((0, 0, 50, 200)),
        "log_messages_max": rng.choice((1_000, 100_000)),
        "incoming_buffer_bytes_max": rng.choice((4_000, 50_000, 1 << 28)),
        "missing_messages_max": rng.choice((100, 10_000)),
    }
    sync = {
        "query_on_connect": rng.random() < 0.7 or message_id == "content-sha256",
        "store_queries_per_minute_max": rng.choice((2, 10, 120)),
        "retrieve_frequency_ms": rng.choice((100, 1_000, 20_000)),
        "sweep_in_buf_interval_ms": rng.choice((0, 0, 500, 5_000)),
    }
    # Under ids made of contents, and in 004, there is no parity on demand.
    choices: tuple[Repair, ...] = ("arq", "parity") if repair == "parity" else ("arq",)
    return Variation(segmentation, sds, sync, rng.choice(choices))


def _estrange(world: World) -> World:
    """A varied world with what the options of `_vary` leave out, and what processes and applications do besides."""
    rng = random.Random(f"strangeness/{world.seed}")
    members = range(world.participants)
    wire_format = world.wire_format
    sds_wire_format: SdsWireFormat = "spec"
    if world.preset == "logos" and not world.hostile_at_ms:
        # Hostile participants speak the other wires.
        sds_wire_format = "nim" if rng.random() < 0.15 else "spec"
        if world.repair == "arq" and rng.random() < 0.2:
            wire_format = "draft"
    sends = list(world.sends)
    if wire_format == "draft":
        # It has no empty messages.
        sends = [replace(send, size_bytes=max(12, send.size_bytes)) for send in sends]
    if rng.random() < 0.3:
        for number in rng.sample(range(len(sends)), rng.randint(1, 8)):
            after_ms = rng.choice((0, rng.randint(0, 50), rng.randint(50, 20_000)))
            if rng.random() < 0.3:
                sends[number] = replace(sends[number], abandoned_ms=min(after_ms, 50))
            elif not sends[number].ephemeral:
                sends[number] = replace(sends[number], cancelled_ms=after_ms)
    standstills = _draw_standstills(rng, world) if rng.random() < 0.5 else ()
    alike: dict[str, Any] = {
        "wire_format": sds_wire_format,
        "bloom_filter_error_rate": rng.choice((0.001, 0.001, 0.02)),
        "repair_groups": rng.choice((1, 1, 2)),
        # Whoever repairs sooner repairs alone.
        **rng.choice(({}, {"repair_t_min_ms": 1_000, "repair_t_max_ms": 5_000})),
        # A sender whose clock stands in the past is not heard.
        "replay_window_ms": rng.choice((0, 0, 60_000, 600_000)) if not world.clock_steps else 0,
    }
    return replace(
        world,
        wire_format=wire_format,
        sds_wire_format=sds_wire_format,
        sends=tuple(sends),
        standstills=standstills,
        adapted=not world.store and rng.random() < 0.5,
        aside=_draw_aside(rng, world) if rng.random() < 0.2 else (),
        variations=tuple(
            tuple(_draw_more(rng, world, variation, alike) for variation in world.variations[index])
            for index in members
        ),
    )


def _limit(world: World) -> World:
    """A varied world whose participants may remember few whole messages, and sync at paces of their own."""
    rng = random.Random(f"limits/{world.seed}")

    def limited(variation: Variation) -> Variation:
        limits = variation.segmentation["limits"]
        if rng.random() < 0.5:
            limits = replace(limits, completed_remembered_max=rng.choice((0, 3, 30)))
        sync = variation.sync
        # What a hostile participant names is asked for as often as by others, in fewer syncs of the schedule.
        if not world.hostile_at_ms:
            sync = {**sync, "sync_min_interval_ms": rng.choice((30_000, 60_000))}
        return replace(variation, segmentation={**variation.segmentation, "limits": limits}, sync=sync)

    return replace(world, variations=tuple(tuple(map(limited, lives)) for lives in world.variations))


def _draw_standstills(rng: random.Random, world: World) -> tuple[Standstill, ...]:
    standstills = []
    for participant in rng.sample(range(world.participants), rng.randint(1, world.participants)):
        at_ms = 0
        for _ in range(rng.randint(1, 2)):
            at_ms = rng.randint(at_ms, max(at_ms + AWAKE_MS[1], world.calm_at_ms))
            until_ms = at_ms + rng.randint(*rng.choice(STANDSTILL_MS))
            standstills.append(Standstill(participant, at_ms, until_ms, slept=rng.random() < 0.3))
            at_ms = until_ms + AWAKE_MS[0]
    return tuple(standstills)


def _draw_aside(rng: random.Random, world: World) -> tuple[PlannedSend, ...]:
    return tuple(
        PlannedSend(number, rng.randrange(world.calm_at_ms), rng.randrange(world.participants), rng.randint(12, 3_000))
        for number in range(len(world.sends), len(world.sends) + 8)
    )


def _draw_more(rng: random.Random, world: World, variation: Variation, alike: dict[str, Any]) -> Variation:
    sds = {
        **variation.sds,
        **alike,
        "acknowledgement_timeout_ms": rng.choice((1_000, 5_000, 15_000)),
        "max_retransmissions": rng.choice((1, 5, 8)),
        "possible_acks_threshold": rng.choice((1, 2, 2, 3)),
        "max_lamport_skew_ms": rng.choice((10_000, 300_000)),
        "incoming_buffer_messages_max": rng.choice((200, 10_000)),
    }
    sync = {
        **variation.sync,
        "query_on_connect_interval_ms": rng.choice((10_000, 300_000)),
        "participant_ttl_ms": rng.choice((300_000, 600_000)),
    }
    if world.preset == "logos":
        sync["acknowledgement_sync"] = rng.random() < 0.85
    limits = {
        "sets_max": rng.choice((20, 1_000)),
        "sets_per_sender_max": rng.choice((5, 100)),
        # Four of the largest messages with as much parity, from those whose names nobody vouches for.
        "buffered_bytes_max": rng.choice((500_000, 256 << 20)),
        "candidates_per_slot_max": rng.choice((1, 4)),
        "timeout_ms": rng.choice((5_000, 300_000)),
        "work_budget": rng.choice((1, 32)),
    }
    if world.max_message_size_bytes is not None or world.rate_limit is not None or world.hostile_at_ms:
        # What is given up for want of room comes late under a quota, and is displaced by inventions; on a node too
        # narrow for filters nobody hears of it.
        limits.update(sets_max=1_000, sets_per_sender_max=100)
    segmentation = {
        **variation.segmentation,
        "limits": ReassemblyLimits(**limits),
        "max_tail_candidates": rng.choice((None, None, 1)),
    }
    rate_limit = {
        "ephemeral_drop_threshold": rng.choice((0.0, 0.5, 0.9, 1.0)),
        "ack_reserve": rng.choice((0.0, 0.1, 0.6)),
    }
    repair = "auto" if variation.repair == "parity" and rng.random() < 0.5 else variation.repair
    return Variation(segmentation, sds, sync, repair, rate_limit, auto_start=rng.random() < 0.8)


def _draw_preset(seed: int) -> str:
    return "waku" if random.Random(f"specification/{seed}").random() < WAKU_SHARE else "logos"


def _draw_repair(seed: int, preset: str) -> Repair:
    # Parity on demand is no part of specification 004.
    return "parity" if preset == "logos" and random.Random(f"repair/{seed}").random() < 0.5 else "arq"


def _draw_delivered_when(rng: random.Random, preset: str) -> str:
    drawn = rng.choice(("any", "all", "one named"))
    # Without acknowledgement syncs everyone has spoken only after many intervals; 004 asks for no more than one.
    return "any" if preset == "waku" else drawn


def _draw_process_ms(seed: int, participants: int) -> int:
    choices = next(choices for most, choices in PROCESS_MS if participants <= most)
    return random.Random(f"process/{seed}").choice(choices)


def _draw_participants(rng: random.Random) -> int:
    share = rng.random()
    if share < 0.70:
        return rng.randint(2, 5)
    return rng.randint(6, 15) if share < 0.95 else rng.randint(16, 50)


def _draw_sends(
    rng: random.Random, participants: int, calm_at_ms: int, segment_size_bytes: int
) -> tuple[PlannedSend, ...]:
    count = rng.randint(SENDS_MIN, SENDS_MAX)
    large = set(rng.sample(range(count), math.ceil(count * LARGE_SEND_SHARE)))
    times_ms = sorted(rng.randint(0, calm_at_ms - 1) for _ in range(count))
    sends = []
    for number, at_ms in enumerate(times_ms):
        if number in large:
            size = rng.randint(segment_size_bytes + 1, SEGMENTS_MAX * segment_size_bytes)
        else:
            size = rng.randint(12, segment_size_bytes // 2)
        if number and rng.random() < 0.1:
            # Two at once.
            at_ms = times_ms[number - 1]
        reply_to = rng.randrange(number) if number and rng.random() < 0.25 else None
        ephemeral = number not in large and rng.random() < 0.05
        sends.append(PlannedSend(number, at_ms, rng.randrange(participants), size, reply_to, ephemeral))
    return tuple(sends)


def _draw_joins(rng: random.Random, participants: int, calm_at_ms: int, late: bool) -> tuple[int, ...]:
    joins_at_ms = [0] * participants
    if late:
        for index in rng.sample(range(participants), rng.randint(1, max(1, participants // 3))):
            joins_at_ms[index] = rng.randint(1_000, calm_at_ms - 1)
    return tuple(joins_at_ms)


def _draw_crashes(rng: random.Random, joins_at_ms: tuple[int, ...], calm_at_ms: int) -> tuple[Crash, ...]:
    crashes = []
    for index in rng.sample(range(len(joins_at_ms)), rng.randint(1, max(1, len(joins_at_ms) // 3))):
        at_ms = joins_at_ms[index]
        for _ in range(rng.randint(1, 3)):
            at_ms = rng.randint(at_ms, calm_at_ms)
            down_ms = rng.choice((1, rng.randint(1, 1_000), rng.randint(1_000, 30_000)))
            back_at_ms = min(at_ms + down_ms, calm_at_ms)
            crashes.append(Crash(index, at_ms, back_at_ms))
            at_ms = back_at_ms
    return tuple(crashes)


def _draw_interval(rng: random.Random, calm_at_ms: int) -> tuple[int, int]:
    at_ms = rng.randint(0, calm_at_ms - 1_000)
    return at_ms, min(calm_at_ms, at_ms + rng.randint(1_000, 60_000))


def _draw_partitions(rng: random.Random, participants: int, calm_at_ms: int) -> tuple[Interval, ...]:
    indices = list(range(participants))
    rng.shuffle(indices)
    cut = rng.randint(1, participants - 1)
    groups = (tuple(sorted(indices[:cut])), tuple(sorted(indices[cut:])))
    return (Interval(*_draw_interval(rng, calm_at_ms), groups, rng.randrange(2)),)


def _draw_outages(rng: random.Random, calm_at_ms: int) -> tuple[Interval, ...]:
    return (Interval(*_draw_interval(rng, calm_at_ms)),)


def _draw_clock_steps(
    rng: random.Random, participants: int, calm_at_ms: int, step_max_ms: int
) -> tuple[ClockStep, ...]:
    return tuple(
        ClockStep(
            rng.randrange(participants),
            rng.randint(0, calm_at_ms - 1),
            rng.choice((-1, 1)) * rng.choice((rng.randint(1, 2_000), rng.randint(2_000, step_max_ms))),
        )
        for _ in range(rng.randint(1, 3))
    )


def _draw_callbacks(rng: random.Random, participants: int, slow: bool) -> tuple[int, ...]:
    callback_ms = [0] * participants
    if slow:
        for index in rng.sample(range(participants), rng.randint(1, max(1, participants // 3))):
            callback_ms[index] = rng.choice((rng.randint(1, 50), rng.randint(50, 2_000)))
    return tuple(callback_ms)


def _draw_hostile(rng: random.Random, calm_at_ms: int) -> tuple[int, ...]:
    return tuple(sorted(rng.randint(0, calm_at_ms - 1) for _ in range(rng.randint(20, 80))))


def _draw_rate_limit(
    rng: random.Random, sends: tuple[PlannedSend, ...], calm_at_ms: int, segment_size_bytes: int
) -> RateLimit:
    """Tight enough that sends wait, wide enough that everything has left well before the world ends."""
    choices: tuple[RateCounts, ...] = ("message", "segment")
    counts = rng.choice(choices)
    epoch_size_ms = rng.randint(2_000, 10_000)
    by_sender: dict[int, int] = {}
    for send in sends:
        # Every parity segment too, and some for retransmissions.
        segments = 4 * -(-send.size_bytes // segment_size_bytes) if counts == "segment" else 1
        by_sender[send.sender] = by_sender.get(send.sender, 0) + segments
    epochs = max(1, calm_at_ms // epoch_size_ms)
    quota = max(4, -(-2 * max(by_sender.values()) // epochs)) + rng.randint(0, 10)
    return RateLimit(epoch_size_ms, quota, counts)
