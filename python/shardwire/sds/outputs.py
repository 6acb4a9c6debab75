"""What the SDS machine is asked for and tells in plain Python: kinds of messages, and a view of what it holds."""

from __future__ import annotations

from enum import Enum
from typing import TypedDict


class TransmitKind(Enum):
    """Why a message leaves; the rate limit treats each kind in its own way."""

    FIRST = "first"  # the first content of a send to be dispatched
    FURTHER = "further"  # any other content of a send, for the first time
    RETRANSMISSION = "retransmission"
    SYNC = "sync"
    EPHEMERAL = "ephemeral"
    REPAIR = "repair"

    # Members are singletons: hashing them by identity spares a call for every `in`.
    __hash__ = object.__hash__


class SdsInspection(TypedDict):
    """What a machine holds, at one moment.

    Attributes:
        log: Message ids of what is held, or can be reconstructed, in the order in which it came.
        heads: Message ids that the next message names, so that it follows everything delivered here.
        incoming: Message ids of others' contents that wait for the rest of their send, or for causes.
        unacknowledged: Message ids of contents of ours, with how many peers' filters hold each.
        acknowledged: By send of ours that is not finished: who acknowledged how many contents of it.
        repair_requests: Message ids that are asked for, with the monotonic ms of the next request.
        repair_answers: Message ids that will be answered, with the monotonic ms of the answer.
        originals: Message ids of messages that are kept to repair others with.
        unsaid: Message ids that were not acknowledged so far.
        bloom_filter: The filter that the next sync would carry.
        sync_due_ms: Monotonic ms of the next periodic sync.
    """

    log: tuple[str, ...]
    heads: tuple[str, ...]
    incoming: tuple[str, ...]
    unacknowledged: dict[str, int]
    acknowledged: dict[str, dict[str, int]]
    repair_requests: dict[str, int]
    repair_answers: dict[str, int]
    originals: tuple[str, ...]
    unsaid: tuple[str, ...]
    bloom_filter: bytes
    sync_due_ms: int | None
