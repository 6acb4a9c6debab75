"""The invariants of a reliable channel, checked against what a world left behind.

Each checker gives the violations it finds, as texts; an empty list means that the invariant held.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable

from shardwire import keccak256
from shardwire.segmentation import inspect
from tests.simulation.participants import Participant, Received, Sent
from tests.simulation.run import LOST_TIMEOUT_MS, Evidence, channel_config, named_receiver
from tests.simulation.wire import WireMessage, wire_messages
from tests.simulation.worlds import IDLE_MS

# Sends planned for the first moments, before anybody's channel is there.
UNSENT_MAX = 3
# Violations of one kind that are spelled out.
NAMED_MAX = 5
# Two participants whose timers fire within one network delay both send.
IDLE_SLACK = 2
# The ordinal of a request which says that no segment of a message is lacking.
NOTHING_LACKING = 9_999
# Where several must acknowledge, these faults may keep one of them away until the last retransmission. The sender is
# told that delivery failed; what reaches the others later, and their acknowledgement, nobody sends again.
MAY_GIVE_UP = frozenset({"loss", "partition", "restart"})
# By then the first acknowledgements are on their way, late callbacks and networks included.
FIRST_ANSWERS_MS = 5_000
# A new member resends as long as an honest sender does for what came before it; what it still lacks then is lost.
NEWCOMER_MS = 30_000


def check_converged(evidence: Evidence) -> list[str]:
    """Everyone holds every message: those whose `send` returned, and those that anybody was handed.

    That includes what was sent before a participant's time, whether a store or only another participant has it. Left
    out is what was taken back.
    """
    handed = {
        (entry.sender_id, entry.payload)
        for participant in evidence.participants
        for entry in participant.received
        if entry.sender_id in evidence.world.names
    }
    violations = []
    for participant in evidence.participants:
        has: dict[tuple[str, bytes], int] = {}
        for entry in participant.received:
            has.setdefault((entry.sender_id, entry.payload), entry.at_ms)
        missing = []
        for sent in _all_sent(evidence):
            key = (_sender_name(evidence, sent), sent.payload)
            if sent.plan.ephemeral or key[0] == participant.name or has.get(key, math.inf) <= evidence.settled_ms:
                continue
            if sent.cancelled:
                continue
            if sent.request_id is None and key not in handed:
                continue
            missing.append(_describe(sent))
        crashes = sum(crash.participant == participant.index for crash in evidence.world.crashes)
        if evidence.world.at_most_once and len(missing) <= crashes:
            continue
        if missing:
            violations.append(f"{participant.name} never received {len(missing)}: {', '.join(missing[:NAMED_MAX])}")
    return violations


def check_aside(evidence: Evidence) -> list[str]:
    """On the second channel too everyone holds every message, once, and nobody anything else."""
    sent = {(participant.name, payload) for participant in evidence.participants for payload in participant.sent_aside}
    violations = []
    for participant in evidence.participants:
        counts = Counter((sender, payload) for sender, payload, _ in participant.received_aside)
        again = Counter((sender, payload) for sender, payload, redelivered in participant.received_aside if redelivered)
        missing = {key for key in sent - counts.keys() if key[0] != participant.name}
        crashes = sum(crash.participant == participant.index for crash in evidence.world.crashes)
        if len(missing) > (crashes if evidence.world.at_most_once else 0):
            violations.append(f"{participant.name} never received {len(missing)} messages on the second channel")
        if any(count - again[key] > 1 for key, count in counts.items()):
            violations.append(f"{participant.name} was handed messages of the second channel twice")
    return violations


def check_intact(evidence: Evidence) -> list[str]:
    """Nobody was handed anything that its sender did not send."""
    sent = {(_sender_name(evidence, entry), entry.payload) for entry in _all_sent(evidence)}
    return [
        f"{participant.name} was handed {len(entry.payload)} bytes that {entry.sender_id} never sent"
        for participant in evidence.participants
        for entry in participant.received
        if entry.sender_id in evidence.world.names and (entry.sender_id, entry.payload) not in sent
    ]


def check_nothing_twice(evidence: Evidence) -> list[str]:
    """A message comes again only in a later life, flagged and before what is new, and never under at-most-once."""
    violations = []
    ephemeral = {entry.payload for entry in _all_sent(evidence) if entry.plan.ephemeral}
    for participant in evidence.participants:
        first: dict[tuple[str, bytes], Received] = {}
        new_in_life: set[int] = set()
        for entry in participant.received:
            key = (entry.sender_id, entry.payload)
            if entry.payload in ephemeral or entry.sender_id not in evidence.world.names:
                continue
            again = first.get(key)
            if again is None:
                first[key] = entry
                if entry.redelivered and entry.life == 0:
                    violations.append(f"{participant.name} was handed a first message flagged as redelivered")
            else:
                in_time = again.life < entry.life and entry.life not in new_in_life
                if evidence.world.at_most_once or not in_time or not entry.redelivered:
                    violations.append(
                        f"{participant.name} was handed a message of {entry.sender_id} at {again.at_ms} ms (life "
                        f"{again.life}) and again at {entry.at_ms} ms (life {entry.life}, "
                        f"{'' if entry.redelivered else 'not '}flagged)"
                    )
            if not entry.redelivered:
                new_in_life.add(entry.life)
    return violations


def check_causal_order(evidence: Evidence) -> list[str]:
    """Whatever a message's history names was handed over before it.

    Left out are causes that were first named to a member while it was new: it cannot tell those from what was sent
    before its time, which counts as lost to it. Where nobody is hostile, left out are causes too that a full table of
    missing messages had let go, which it was told. So are those that limits on what is not whole had, which it was told
    too, and what was taken back. While others stand still, one may count as lost that only they have.
    """
    causes: dict[str, set[str]] = defaultdict(set)
    for wire in wire_messages(evidence):
        if wire.send_id is not None:
            causes[wire.send_id] |= wire.named - {wire.send_id}
    first_named_ms = _first_named_ms(evidence)
    by_request = {evidence.key_of(entry): entry for entry in _all_sent(evidence) if entry.request_id is not None}
    # What is given up in part is called by the hash of its message.
    by_hash = {keccak256(entry.payload).hex(): key for key, entry in by_request.items()}
    newness = _newness(evidence)
    violations = []
    for participant in evidence.participants:
        place: dict[tuple[str, bytes], int] = {}
        for number, received in enumerate(participant.received):
            place.setdefault((received.sender_id, received.payload), number)
        first_ms, named_while_new = newness[participant.name]
        let_go_ms: dict[str | None, int] = {}
        for message_id, at_ms in participant.given_up.items():
            let_go_ms.setdefault(by_hash.get(message_id) or evidence.send_of(message_id), at_ms)
        # Inventions must displace nothing.
        if not evidence.world.hostile_at_ms:
            for message_id, at_ms in participant.let_go.items():
                let_go_ms.setdefault(evidence.send_of(message_id), at_ms)
        for effect_id, effect in by_request.items():
            effect_place = place.get((_sender_name(evidence, effect), effect.payload))
            if effect_place is None or effect_id is None:
                continue
            for cause_id in causes[effect_id]:
                cause = by_request.get(cause_id)
                if cause is None or cause.at_ms < first_ms or cause_id in named_while_new or cause.cancelled:
                    continue
                cause_place = place.get((_sender_name(evidence, cause), cause.payload))
                handed_ms = participant.received[effect_place].at_ms
                let_go = let_go_ms.get(cause_id, math.inf) <= handed_ms
                named_ms = first_named_ms.get((participant.name, cause_id), handed_ms)
                if evidence.world.standstills:
                    let_go |= _awake_ms(evidence, participant, named_ms, handed_ms) >= LOST_TIMEOUT_MS
                if cause_place is not None and cause_place > effect_place and not let_go:
                    violations.append(
                        f"{participant.name} was handed {_describe(effect)} before its cause {_describe(cause)}"
                    )
    return violations


def _first_named_ms(evidence: Evidence) -> dict[tuple[str, str], int]:
    """When a history that names a send first reached a participant."""
    first_ms: dict[tuple[str, str], int] = {}
    for wire in wire_messages(evidence):
        for outcome in wire.record.outcomes:
            if outcome.delays_ms:
                at_ms = wire.at_ms + min(outcome.delays_ms)
                for send_id in wire.named:
                    key = outcome.receiver, send_id
                    first_ms[key] = min(at_ms, first_ms.get(key, at_ms))
    return first_ms


def _awake_ms(evidence: Evidence, participant: Participant, from_ms: int, until_ms: int) -> int:
    """For how much of a time a participant did not stand still."""
    stood = [
        min(until_ms, standstill.until_ms) - max(from_ms, standstill.at_ms)
        for standstill in evidence.world.standstills
        if standstill.participant == participant.index
    ]
    return until_ms - from_ms - sum(max(0, ms) for ms in stood)


def _newness(evidence: Evidence) -> dict[str, tuple[int, set[str]]]:
    """By participant, the time of its first receipt, and the sends named to it in `NEWCOMER_MS` from there."""
    arrivals: dict[str, list[tuple[int, WireMessage]]] = defaultdict(list)
    for wire in wire_messages(evidence):
        for outcome in wire.record.outcomes:
            if outcome.outcome in ("delivered", "duplicated"):
                arrivals[outcome.receiver].append((wire.at_ms + min(outcome.delays_ms), wire))
    found: dict[str, tuple[int, set[str]]] = {}
    for participant in evidence.participants:
        heard = arrivals[participant.name]
        first_ms = min((at_ms for at_ms, _ in heard), default=evidence.ended_ms)
        early = [
            wire.named for at_ms, wire in heard if _awake_ms(evidence, participant, first_ms, at_ms) <= NEWCOMER_MS
        ]
        found[participant.name] = (first_ms, set().union(*early))
    return found


def check_outcomes(evidence: Evidence) -> list[str]:
    """Sent before delivered, each once; delivered is true; in the end nothing is pending."""
    violations = list(evidence.false_deliveries)
    for participant in evidence.participants:
        violations += [f"{participant.name}: callback error {error}" for error in participant.callback_errors]
        if evidence.pending.get(participant.name):
            violations.append(f"{participant.name} has {evidence.pending[participant.name]} sends pending in the end")
        for sent in participant.sent:
            if not (sent.plan.ephemeral or sent.cancelled) and sent.request_id is not None:
                violations += [f"{participant.name}: {text}" for text in _check_outcome(evidence, sent, participant)]
    return violations


def _check_outcome(evidence: Evidence, sent: Sent, participant: Participant) -> list[str]:
    violations = []
    crashed_after = participant.life > sent.life
    lives = 1 + participant.life - sent.life
    if len(sent.sent) > lives or len(sent.delivered) > lives:
        violations.append(f"{_describe(sent)}: {len(sent.sent)} sent and {len(sent.delivered)} delivered events")
    if not crashed_after:
        if len(sent.sent) != 1:
            violations.append(f"{_describe(sent)}: {len(sent.sent)} sent events")
        if sent.delivered and (not sent.sent or sent.delivered[0][0] < sent.sent[0][0]):
            violations.append(f"{_describe(sent)}: delivered before sent")
        given_up = any(text.startswith("delivery:") for _, _, text in sent.errors)
        may_be_away = MAY_GIVE_UP & evidence.world.faults or evidence.world.standstills
        several = evidence.world.delivered_when != "any" and may_be_away
        excused = given_up and (
            several or _cut_off_throughout(evidence, sent, participant) or _lost_throughout(evidence, sent, participant)
        )
        # What came in one heap, before the application took what had come before, was not heard.
        is_deaf = evidence.stats.get(participant.name, {}).get("dropped_by_backpressure", 0) > 0
        if not sent.delivered and excused and not is_deaf and _quorum_heard(evidence, sent, participant):
            violations.append(f"{_describe(sent)}: acknowledged after it was given up, and never delivered")
        if not sent.delivered and not excused and sent.at_ms >= _awaited_joins_ms(evidence, participant):
            violations.append(f"{_describe(sent)}: never delivered; errors: {sent.errors}")
    return violations


def _cut_off_throughout(evidence: Evidence, sent: Sent, participant: Participant) -> bool:
    """Whether a partition left the sender alone, from the first acknowledgements until it gave up."""
    world = evidence.world
    absent = {crash.participant for crash in world.crashes} | {
        index for index, join_ms in enumerate(world.joins_at_ms) if join_ms > sent.at_ms
    }
    return any(
        interval.at_ms <= sent.at_ms + FIRST_ANSWERS_MS
        and error_ms <= interval.until_ms
        and any(
            participant.index in group and not set(group) - absent - {participant.index} for group in interval.groups
        )
        for interval in world.partitions
        for error_ms, _, _ in sent.errors
    )


def _lost_throughout(evidence: Evidence, sent: Sent, participant: Participant) -> bool:
    """Whether the network lost all that could have acknowledged a send, from everybody who could have.

    That is, for each content that somebody's histories did not name to the sender: every one of as many copies as are
    sent at most, or, once a copy had arrived, every message in which the receiver named it.
    """
    key, name = evidence.key_of(sent), participant.name
    copies: dict[str, list[WireMessage]] = defaultdict(list)
    for wire in wire_messages(evidence):
        if wire.send_id == key and wire.message.content:
            copies[wire.message.message_id].append(wire)
    copies_max = 1 + channel_config(evidence.world, participant.index, None, sent.life).sds.max_retransmissions

    def lost(receiver: str, message_id: str) -> bool:
        arrivals = [at_ms for wire in copies[message_id] if (at_ms := _arrival_ms(wire, receiver)) is not None]
        if not arrivals:
            return sum(wire.record.sender == name for wire in copies[message_id]) >= copies_max
        return any(wire.at_ms >= max(arrivals) for wire in _naming(evidence, receiver, message_id))

    for receiver in evidence.world.names:
        if receiver == name:
            continue
        unnamed = [
            message_id
            for message_id in copies
            if all(_arrival_ms(wire, name) is None for wire in _naming(evidence, receiver, message_id))
        ]
        if not unnamed or not all(lost(receiver, message_id) for message_id in unnamed):
            return False
    return True


def _arrival_ms(wire: WireMessage, receiver: str) -> int | None:
    """When an envelope reached a participant; None where it did not."""
    for outcome in wire.record.outcomes:
        if outcome.receiver == receiver and outcome.outcome in ("delivered", "duplicated"):
            return wire.at_ms + min(outcome.delays_ms)
    return None


def _naming(evidence: Evidence, receiver: str, message_id: str) -> list[WireMessage]:
    """The envelopes in which a participant names a content."""
    return [
        wire
        for wire in wire_messages(evidence)
        if wire.message.sender_id == receiver
        and any(entry.message_id == message_id for entry in wire.message.causal_history)
    ]


def _quorum_heard(evidence: Evidence, sent: Sent, participant: Participant) -> bool:
    """Whether histories that reached the sender name enough of a send, by as many as `delivered_when` waits for."""
    key = evidence.key_of(sent)
    needed = 0
    named: dict[str, set[str]] = defaultdict(set)
    # Who says that nothing of it is lacking.
    stated: set[str] = set()
    for wire in wire_messages(evidence):
        if wire.send_id == key and wire.message.content:
            header = inspect(
                wire.message.content, wire_format=channel_config(evidence.world, 0, None).segmentation.wire_format
            )
            needed = max(needed, 1 if header is None else header.data_segment_count or 1)
        if _arrival_ms(wire, participant.name) is not None and wire.message.sender_id != participant.name:
            ids = [entry.message_id for entry in wire.message.causal_history]
            named[wire.message.sender_id].update(name for name in ids if evidence.send_of(name) == key)
            # Parity that is made for others names its send in the same form.
            if wire.message.kind != "ephemeral" and any(
                entry.message_id == f"{key}.{NOTHING_LACKING}" for entry in wire.message.repair_request
            ):
                stated.add(wire.message.sender_id)
    holders = stated | {name for name, ids in named.items() if needed and len(ids) >= needed}
    if evidence.world.delivered_when == "all":
        return len(holders) >= evidence.world.participants - 1
    if evidence.world.delivered_when == "one named":
        return named_receiver(evidence.world, participant.index) in holders
    return bool(holders)


def _awaited_joins_ms(evidence: Evidence, participant: Participant) -> int:
    """When everyone had joined whom `delivered_when` waits for: what was sent before may never reach a late joiner."""
    world = evidence.world
    if world.delivered_when == "all":
        return max(world.joins_at_ms)
    if world.delivered_when == "one named":
        return world.joins_at_ms[world.names.index(named_receiver(world, participant.index))]
    return min(join_ms for index, join_ms in enumerate(world.joins_at_ms) if index != participant.index)


def check_rate(evidence: Evidence) -> list[str]:
    """No epoch of any participant carries more than the quota, counted from the trace.

    An envelope belongs to the newest epoch that its sender's timestamps had reached: none is reopened.
    """
    limit = evidence.world.rate_limit
    if limit is None:
        return []
    used: Counter[tuple[str, int]] = Counter()
    newest: dict[str, int] = {}
    first_dispatches: set[str] = set()
    for wire in sorted(wire_messages(evidence), key=lambda wire: wire.accepted):
        sender = wire.record.sender
        epoch = max(wire.record.timestamp_ns // 1_000_000 // limit.epoch_size_ms, newest.get(sender, 0))
        newest[sender] = epoch
        if limit.counts == "message" and wire.send_id is not None and not wire.is_repair:
            if wire.send_id in first_dispatches:
                continue
            first_dispatches.add(wire.send_id)
        used[sender, epoch] += 1
    return [
        f"{sender} sent {count} in epoch {epoch}, the quota is {limit.messages_per_epoch}"
        for (sender, epoch), count in used.items()
        if count > limit.messages_per_epoch
    ]


def check_idle(evidence: Evidence) -> list[str]:
    """Once everything has settled, at most the configured syncs."""
    idle = [wire for wire in wire_messages(evidence) if wire.at_ms >= evidence.ended_ms - IDLE_MS]
    violations = []
    kinds = Counter(wire.message.kind for wire in idle)
    if set(kinds) - {"sync"}:
        violations.append(f"while idle: {dict(kinds)}")
    # Each has its own where some are new to a network without a store.
    configs = [channel_config(evidence.world, one.index, None, one.life) for one in evidence.participants]
    allowed = IDLE_MS // min(config.sync.sync_min_interval_ms for config in configs) + IDLE_SLACK
    if len(idle) > allowed:
        violations.append(f"{len(idle)} messages in {IDLE_MS} ms of idleness, {allowed} are allowed")
    return violations


def check_bounded(evidence: Evidence) -> list[str]:
    """Nobody ever held more of anything than the limit it has."""
    return list(evidence.exceeded)


def check_alive(evidence: Evidence) -> list[str]:
    """Every channel still runs in the end, and took what the application sent while it lived."""
    violations = [f"the channel of {name} has closed by itself" for name in evidence.dead]
    for participant in evidence.participants:
        violations += [f"{participant.name} could not come back: {reason}" for reason in participant.unable_to_return]
    sent = sum(len(participant.sent) for participant in evidence.participants)
    # Who had not joined, or was down, could not send; and in the first moments nobody has joined.
    least = 1 if {"late joiner", "restart"} & evidence.world.faults else len(evidence.world.sends) - UNSENT_MAX
    if sent < least:
        violations.append(f"{sent} of {len(evidence.world.sends)} messages were sent")
    refused = [entry for participant in evidence.participants for entry in participant.sent if entry.refused]
    return violations + [f"{_describe(entry)} was refused: {entry.refused}" for entry in refused]


CHECKERS: dict[str, Callable[[Evidence], list[str]]] = {
    "converged": check_converged,
    "intact": check_intact,
    "nothing twice": check_nothing_twice,
    "causal order": check_causal_order,
    "outcomes": check_outcomes,
    "rate": check_rate,
    "idle": check_idle,
    "bounded": check_bounded,
    "alive": check_alive,
    "aside": check_aside,
}


def check(evidence: Evidence) -> dict[str, list[str]]:
    """The violations of every checker that found any."""
    found = {name: checker(evidence) for name, checker in CHECKERS.items()}
    return {name: violations for name, violations in found.items() if violations}


def _all_sent(evidence: Evidence) -> list[Sent]:
    return [entry for participant in evidence.participants for entry in participant.sent if entry.refused is None]


def _sender_name(evidence: Evidence, sent: Sent) -> str:
    return evidence.world.names[sent.plan.sender]


def _describe(sent: Sent) -> str:
    return f"#{sent.plan.number} (p{sent.plan.sender:02}, {sent.plan.size_bytes} B, sent at {sent.at_ms} ms)"
