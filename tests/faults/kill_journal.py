"""What killed processes leave behind, and what must be true of it."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

Entry = list[Any]


class Journal:
    """Lines appended by processes that may die at any moment; what is written survives them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(self, *entry: Any) -> None:
        # One write, so that a killed process leaves whole lines.
        os.write(self._descriptor, json.dumps(entry).encode() + b"\n")

    def read(self) -> list[Entry]:
        return [json.loads(line) for line in self._path.read_bytes().splitlines()]


def check(entries: list[Entry], quota: int, redelivery: str, *, kills: int) -> list[str]:
    """What the journal violates; empty where every promise held."""
    return [
        *_check_rate(entries, quota),
        *_check_clocks(entries),
        *_check_hand_overs(entries, redelivery),
        *_check_arrivals(entries, redelivery, kills),
    ]


def _check_rate(entries: list[Entry], quota: int) -> list[str]:
    left = Counter((entry[1], entry[2]) for entry in entries if entry[0] == "left")
    return [f"{name} sent {count} in epoch {epoch}" for (name, epoch), count in left.items() if count > quota]


def _check_clocks(entries: list[Entry]) -> list[str]:
    """A sender's clock goes on: no timestamp of it names two messages, no message has two timestamps.

    Order is no sign: a message that was encoded before a kill leaves, as it is, after what a later life says.
    """
    message_of: dict[tuple[str, int], str] = {}
    lamport_of: dict[str, int] = {}
    violations = []
    for kind, name, *rest in entries:
        if kind != "left" or rest[2] is None:
            continue
        _, message_id, lamport = rest
        if message_of.setdefault((name, lamport), message_id) != message_id:
            violations.append(f"{name} said {message_id} and {message_of[name, lamport]} at {lamport}")
        if lamport_of.setdefault(message_id, lamport) != lamport:
            violations.append(f"{name} said {message_id} at {lamport_of[message_id]} and at {lamport}")
    return violations


def _check_hand_overs(entries: list[Entry], redelivery: str) -> list[str]:
    """Only events in progress at a kill come again, flagged, before any other; at most once: none does."""
    seen: dict[str, set[str]] = defaultdict(set)
    new_in_life: set[tuple[str, int]] = set()
    violations = []
    for entry in entries:
        if entry[0] != "begin":
            continue
        _, name, number, redelivered, life = entry
        key = json.dumps(number)
        if key in seen[name] and (redelivery == "at-most-once" or not redelivered):
            violations.append(f"{name} was handed {key} again, redelivered={redelivered}")
        if redelivered and (name, life) in new_in_life:
            violations.append(f"{name} was handed {key} again in life {life} after a new message")
        seen[name].add(key)
        if not redelivered:
            new_in_life.add((name, life))
    return violations


def _check_arrivals(entries: list[Entry], redelivery: str, kills: int) -> list[str]:
    sent = {json.dumps(entry[2]) for entry in entries if entry[0] == "sent"}
    begun = {json.dumps(entry[2]) for entry in entries if entry[0] == "begin"}
    ended = {json.dumps(entry[2]) for entry in entries if entry[0] == "end"}
    if redelivery == "at-least-once":
        return [f"{key} was never handed over to the end" for key in sorted(sent - ended)]
    lost = sent - begun
    # Two receivers, and each kill may cost each of them the message in progress.
    return [f"{len(lost)} messages were lost in {kills} kills"] if len(lost) > 2 * kills else []
