"""What must hold of every run, whatever failed: no send is lost, none arrives twice, and events tell the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from shardwire.events import (
    ChunkErrorEvent,
    ChunkSentEvent,
    EphemeralDroppedEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from tests.simulation.chaos.journal import Call, Cancellation, Journal, Received, Told
from tests.simulation.chaos.run import Evidence

FINAL = (MessageSentEvent, MessageDeliveredEvent, MessageSendErrorEvent)
_OF_EPHEMERALS = (ChunkSentEvent, ChunkErrorEvent, EphemeralDroppedEvent)


def check_trouble(evidence: Evidence) -> list[str]:
    """Nothing raised, hung, stayed behind or was critical."""
    return evidence.trouble + [f"{journal.name}: {text}" for journal in evidence.journals for text in journal.trouble]


def check_none_lost(evidence: Evidence) -> list[str]:
    """Every send that returned was delivered, or failed, or was cancelled, and it says which."""
    violations = []
    for journal in evidence.journals:
        ended = {told.request_id for told in journal.told if isinstance(told.event, FINAL[1:])}
        cancelled = {entry.request_id for entry in journal.cancellations if entry.outcome != "refused"}
        for call in _sends(journal):
            if call.outcome != "returned" or call.request_id in ended | cancelled:
                continue
            fate = "still pending" if call.request_id in journal.pending else "lost"
            violations.append(f"{_describe(journal, call)}: {fate}")
    return violations


def check_arrivals(evidence: Evidence) -> list[str]:
    """What was delivered is there, as often as it was sent; what was refused is not."""
    by_content = evidence.plan.message_id == "content-sha256"
    violations = []
    for sender in evidence.journals:
        delivered_to = _delivered_to(sender)
        sends = [call for call in _sends(sender) if call.outcome != "refused"]
        for payload in dict.fromkeys(call.payload for call in sends):
            calls = [call for call in sends if call.payload == payload]
            most = sum(call.outcome != "not stored" for call in calls)
            for receiver in evidence.journals:
                if receiver is sender:
                    continue
                least = sum(
                    receiver.name in (names := delivered_to.get(call.request_id or "", frozenset()))
                    or (evidence.plan.store and bool(names))
                    for call in calls
                )
                if by_content:
                    least, most = min(least, 1), min(most, 1)
                if evidence.plan.redelivery == "at-most-once":
                    least -= len(receiver.ends)
                count, repeated = _arrivals(receiver, sender.name, payload)
                if count > most or count + repeated < least:
                    told = ", ".join(_describe(sender, call) for call in calls)
                    violations.append(f"{receiver.name} has {count} of {least} to {most} of {told}")
    return violations


def check_nothing_forged(evidence: Evidence) -> list[str]:
    """Nobody was handed what was not sent."""
    sent = {(journal.name, call.payload) for journal in evidence.journals for call in journal.calls}
    return [
        f"{journal.name} was handed {len(entry.payload)} bytes that {entry.sender_id} never sent"
        for journal in evidence.journals
        for entry in journal.received
        if (entry.sender_id, entry.payload) not in sent
    ]


def check_redelivered(evidence: Evidence) -> list[str]:
    """Only the first of a later life comes flagged, and that never at-most-once."""
    violations = []
    for journal in evidence.journals:
        last_life = 0
        for entry in journal.received:
            wrong = evidence.plan.redelivery == "at-most-once" or entry.life == 1 or entry.life == last_life
            if entry.redelivered and wrong:
                violations.append(f"{journal.name} was handed a message flagged as redelivered in life {entry.life}")
            last_life = entry.life
    return violations


def check_events(evidence: Evidence) -> list[str]:
    """Events are of known requests, in order, and each final one comes once."""
    violations = []
    for journal in evidence.journals:
        calls = {call.request_id: call for call in journal.calls}
        by_request: dict[str, list[Told]] = {}
        for told in journal.told:
            by_request.setdefault(told.request_id, []).append(told)
        for request_id, told_of in by_request.items():
            call = calls.get(request_id)
            if call is None:
                violations.append(f"{journal.name}: {_names(told_of)} of the unknown request {request_id}")
            elif call.outcome in ("not stored", "refused") and not call.ephemeral:
                violations.append(f"{_describe(journal, call)}: {_names(told_of)}")
            else:
                texts = _check_order(evidence, journal, [told for told in told_of if isinstance(told.event, FINAL)])
                violations += [f"{_describe(journal, call)}: {text} ({_names(told_of)})" for text in texts]
    return violations


def _check_order(evidence: Evidence, journal: Journal, told_of: list[Told]) -> list[str]:
    texts = []
    seen: dict[type[object], Told] = {}
    for told in told_of:
        kind = type(told.event)
        before = seen.get(kind)
        if before is not None and not _may_come_again(evidence, journal, before, told):
            texts.append(f"{told.event.name} twice")
        if kind is MessageDeliveredEvent and MessageSentEvent not in seen:
            texts.append("delivered before sent")
        if isinstance(told.event, MessageSendErrorEvent):
            if MessageDeliveredEvent in seen:
                texts.append("failed after it was delivered")
            if MessageSentEvent in seen and told.event.stage == "dispatch":
                texts.append("not dispatched after it was sent")
        seen.setdefault(kind, told)
    return texts


def _may_come_again(evidence: Evidence, journal: Journal, before: Told, told: Told) -> bool:
    """Whether the life in which it was told ended before it had stored that."""
    end = journal.ends.get(before.life)
    if before.life == told.life or end is None:
        return False
    # What a commit stores was gathered before it began.
    return before.done_s is None or before.done_s >= end.stored_s - evidence.plan.commit_ms[1] / 1_000


def check_told_again(evidence: Evidence) -> list[str]:
    """A life that ended by a close leaves no more to be told again than the event that a callback was being told."""
    violations = []
    for journal in evidence.journals:
        lives: dict[tuple[str, type[object]], int] = {}
        again: Counter[int] = Counter()
        for told in journal.told:
            if isinstance(told.event, FINAL):
                key = told.request_id, type(told.event)
                again[lives.get(key, told.life)] += lives.get(key, told.life) != told.life
                lives[key] = told.life
        for life, count in again.items():
            if count > 1 and not journal.ends[life].cut_off:
                violations.append(f"{journal.name}: {count} events of life {life} were told again after it was closed")
    return violations


def check_cancelled(evidence: Evidence) -> list[str]:
    """Once `cancel` has returned True nothing is told of the message any more."""
    violations = []
    for journal in evidence.journals:
        for entry in journal.cancellations:
            later = [told for told in journal.told if told.request_id == entry.request_id and _is_after(told, entry)]
            if later:
                violations.append(f"{journal.name}: {_names(later)} after {entry.request_id[:6]} was cancelled")
    return violations


def _is_after(told: Told, entry: Cancellation) -> bool:
    if told.at < entry.at:
        return False
    # One that could not be stored holds for as long as the life does.
    return entry.outcome == "returned" or (entry.outcome == "not stored" and told.life == entry.life)


def check_ephemerals(evidence: Evidence) -> list[str]:
    """Each ends with one event, unless its life ended first."""
    violations = []
    for journal in evidence.journals:
        ends = Counter(told.request_id for told in journal.told if isinstance(told.event, _OF_EPHEMERALS))
        for call in journal.calls:
            if not call.ephemeral or call.outcome != "returned":
                continue
            count = ends[call.request_id or ""]
            if count > 1 or (not count and call.life not in journal.ends):
                violations.append(f"{_describe(journal, call)}: {count} events")
    return violations


CHECKS: dict[str, Callable[[Evidence], list[str]]] = {
    "trouble": check_trouble,
    "none lost": check_none_lost,
    "arrivals": check_arrivals,
    "nothing forged": check_nothing_forged,
    "redelivered": check_redelivered,
    "events": check_events,
    "told again": check_told_again,
    "cancelled": check_cancelled,
    "ephemerals": check_ephemerals,
}


def check(evidence: Evidence) -> dict[str, list[str]]:
    """The violations of every check that found any."""
    found = {name: look(evidence) for name, look in CHECKS.items()}
    return {name: violations for name, violations in found.items() if violations}


def _sends(journal: Journal) -> list[Call]:
    return [call for call in journal.calls if not call.ephemeral]


def _delivered_to(journal: Journal) -> dict[str, frozenset[str]]:
    """Who has each request, as far as its event said."""
    named: dict[str, frozenset[str]] = {}
    for told in journal.told:
        if isinstance(told.event, MessageDeliveredEvent):
            named[told.request_id] = told.event.delivered_to
    return named


def _arrivals(receiver: Journal, sender: str, payload: bytes) -> tuple[int, int]:
    """How often a message came, and how often what came may be the one before, whose hand-over was interrupted.

    It may be an equal one as well, whose hand-over ended before the application saw it.
    """
    count = repeated = 0
    last: Received | None = None
    for entry in receiver.received:
        if (entry.sender_id, entry.payload) == (sender, payload):
            repeats = entry.redelivered and last is not None and (last.sender_id, last.payload) == (sender, payload)
            repeated += repeats
            count += not repeats
        last = entry
    return count, repeated


def _names(told_of: list[Told]) -> str:
    return ", ".join(f"{told.event.name} in life {told.life}" for told in told_of)


def _describe(journal: Journal, call: Call) -> str:
    return (
        f"#{call.number} {(call.request_id or '')[:6]} ({journal.name}, {len(call.payload)} B, {call.outcome} in life "
        f"{call.life})"
    )
