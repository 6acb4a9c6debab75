"""What a seed decides: how the channels of a small world are configured, what their applications do, and what fails.

Everything fails until `calm_ms`. From then on nothing does, every channel is open and started, and nobody sends.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

from shardwire.config import MessageIdRule, Redelivery

NAMES = ("alice", "bob", "carol")
# How long the chaos lasts: in some worlds all of it falls together.
CHAOS_MS = ((2_000, 10_000), (10_000, 40_000), (40_000, 180_000))
ACTIONS = (40, 110)
# What is under way when it gets calm has ended by then: every retransmission, pause and lost dependency.
SETTLE_MS = {"logos": 1_500_000, "waku": 2_700_000}
SEGMENT_SIZE_BYTES = 1_024

Preset = Literal["logos", "waku"]
Cipher = Literal["none", "plain", "async"]
Kind = Literal[
    "send",
    "send cancelled",
    "burst",
    "ephemeral",
    "cancel",
    "cancel and send again",
    "await delivered",
    "stop",
    "restart",
    "crash",
    "node fails",
    "offline",
    "disk fails",
    "cipher fails",
    "callbacks fail",
]

# How often each is drawn.
_WEIGHTS: dict[Kind, int] = {
    "send": 32,
    "send cancelled": 8,
    "burst": 4,
    "ephemeral": 4,
    "cancel": 10,
    "cancel and send again": 4,
    "await delivered": 3,
    "stop": 4,
    "restart": 4,
    "crash": 6,
    "node fails": 8,
    "offline": 3,
    "disk fails": 6,
    "cipher fails": 3,
    "callbacks fail": 4,
}
NODE_FAULTS = (
    "busy",
    "no membership",
    "next epoch",
    "busy later",
    "no membership later",
    "next epoch later",
    "too large",
    "raises",
    "cancelled",
    "hangs",
    "sends and hangs",
    "sends and raises",
    "silent",
    "sends in silence",
    "deaf",
)
DISK_FAULTS = ("persistence error", "other error", "stop iteration")
CIPHER_FAULTS = ("raises", "grows")
CALLBACK_FAULTS = ("raises", "slow", "hangs")
_PAUSES_MS = ((0, 0), (1, 20), (20, 500), (500, 6_000))


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that happens.

    Attributes:
        number: Its place in the plan.
        at_ms: When.
        name: To whom.
        kind: What.
        payload: What is sent, if anything.
        lasts_ms: How long it lasts, or how long after it the next step of it comes.
        mode: Which fault.
        share: How much of what the fault may hit it does hit.
        choice: Chooses among what there is then, as of requests to cancel.
    """

    number: int
    at_ms: int
    name: str
    kind: Kind
    payload: bytes = field(default=b"", repr=False)
    lasts_ms: int = 0
    mode: str = ""
    share: float = 1.0
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a seed decides."""

    seed: int
    names: tuple[str, ...]
    preset: Preset
    message_id: MessageIdRule
    parity: bool
    repair: bool
    store: bool
    cipher: Cipher
    redelivery: Redelivery
    delivered_by_all: bool
    messages_per_epoch: int | None
    outgoing_buffer_messages_max: int
    process_ms: int
    loss: float
    commit_ms: tuple[int, int]
    inline_commits: bool
    actions: tuple[Action, ...]
    calm_ms: int

    @property
    def ends_ms(self) -> int:
        return self.calm_ms + SETTLE_MS[self.preset]


def make_plan(seed: int) -> Plan:
    """The plan of one seed."""
    rng = random.Random(f"chaos/{seed}")
    names = NAMES[: rng.choice((2, 2, 3))]
    presets: tuple[Preset, ...] = ("logos", "logos", "logos", "waku")
    ciphers: tuple[Cipher, ...] = ("none", "none", "plain", "async")
    plan = Plan(
        seed,
        names,
        preset=rng.choice(presets),
        message_id=rng.choice(("send", "content-sha256")),
        parity=rng.random() < 0.5,
        repair=rng.random() < 0.75,
        store=rng.random() < 0.75,
        cipher=rng.choice(ciphers),
        redelivery=rng.choice(("at-least-once", "at-least-once", "at-most-once")),
        delivered_by_all=rng.random() < 0.3,
        messages_per_epoch=rng.choice((None, None, None, 40, 120)),
        outgoing_buffer_messages_max=rng.choice((1_024, 1_024, 4, 12)),
        process_ms=rng.choice((0, 0, 100)),
        loss=rng.choice((0.0, 0.1, 0.3)),
        commit_ms=rng.choice(((0, 0), (0, 5), (1, 60), (50, 400))),
        inline_commits=rng.random() < 0.2,
        actions=(),
        calm_ms=0,
    )
    actions = _draw_actions(rng, plan)
    calm_ms = max(action.at_ms for action in actions) + 2_000
    return Plan(**{**{name: getattr(plan, name) for name in plan.__slots__}, "actions": actions, "calm_ms": calm_ms})


def _draw_actions(rng: random.Random, plan: Plan) -> tuple[Action, ...]:
    kinds: list[Kind] = [kind for kind in _WEIGHTS if kind != "cipher fails" or plan.cipher != "none"]
    weights = [_WEIGHTS[kind] for kind in kinds]
    # Some act in time with each other, some at leisure.
    count = rng.randint(*ACTIONS)
    scale = rng.randint(*rng.choice(CHAOS_MS)) / count / 900
    again_share = rng.choice((0.1, 0.4, 0.8))
    pools = {name: [_payload(rng, plan, f"{name} again {number}") for number in range(4)] for name in plan.names}
    actions = []
    at_ms = 100
    for number in range(count):
        at_ms += int(rng.randint(*rng.choice(_PAUSES_MS)) * scale)
        name = rng.choice(plan.names)
        (kind,) = rng.choices(kinds, weights)
        payload = rng.choice(pools[name]) if rng.random() < again_share else _payload(rng, plan, f"{name} {number}")
        actions.append(
            Action(number, at_ms, name, kind, payload, _duration_ms(rng, kind), *_fault(rng, kind), rng.getrandbits(30))
        )
    return tuple(actions)


def _payload(rng: random.Random, plan: Plan, label: str) -> bytes:
    """One segment mostly, several at times; no other participant sends the same."""
    if rng.random() < 0.02:
        # The draft wire refuses it by events.
        return b"" if plan.preset == "waku" else label.encode()
    head = f"{label}|".encode()
    size = rng.choice((0, 20, 300, 700, 700, 2_500, 6_000))
    return head + rng.randbytes(size)


def _duration_ms(rng: random.Random, kind: Kind) -> int:
    match kind:
        case "send cancelled":
            return rng.choice((0, 0, 1, 5, 30, 200))
        case "crash" | "restart" | "stop":
            return rng.choice((0, 0, 10, 1_000, 15_000))
        case _:
            return rng.choice((5, 200, 2_000, 12_000, 30_000))


def _fault(rng: random.Random, kind: Kind) -> tuple[str, float]:
    share = rng.choice((1.0, 1.0, 0.5, 0.2))
    match kind:
        case "node fails":
            return rng.choice(NODE_FAULTS), share
        case "disk fails":
            return rng.choice(DISK_FAULTS), share
        case "cipher fails":
            return rng.choice(CIPHER_FAULTS), share
        case "callbacks fail":
            return rng.choice(CALLBACK_FAULTS), share
        case _:
            return "", share
