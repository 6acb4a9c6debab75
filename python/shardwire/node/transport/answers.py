"""What became of an attempt to publish: a transport classifies, the outbox acts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """The network has the message.

    Attributes:
        stored: Whether a store has it too, as the acknowledgement of a stream says: no presence check is needed then.
    """

    stored: bool = False


@dataclass(frozen=True, slots=True)
class Passing:
    """The message did not leave, and may on another try: it is tried again with growing back-off.

    Attributes:
        error: What happened, for people.
        is_early: Whether it is no failure so far, as while nobody can have come yet: it is told, and nobody is warned.
    """

    error: str
    is_early: bool = False


@dataclass(frozen=True, slots=True)
class PassingUntil:
    """Nothing will leave for a known time, as when a rate limit is used up: everything waits, and no failure counts.

    Attributes:
        error: What happened.
        wait_ms: How long; after that it is tried again at once.
    """

    error: str
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Permanent:
    """This node will never publish the message: it is too large, invalid, or the node has no membership.

    Attributes:
        error: What happened, for people.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Nobody knows whether the message left, as when a request was written and its answer never came.

    It is tried again with the same bytes while its stamp is fresh, so that a network which has seen it drops it.

    Attributes:
        error: What happened, for people.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Restamp:
    """The message did not leave because of its stamp or of a proof made with it: it is stamped anew and tried again.

    Attributes:
        error: What happened.
        attempts_max: Such answers in a row after which it is permanent; None for no limit.
    """

    error: str
    attempts_max: int | None = None


Answer = Published | Passing | PassingUntil | Permanent | Ambiguous | Restamp


def fault_of_answer(answer: object) -> str | None:
    """What is wrong with what a transport's `publish` returned, for people; None where nothing is."""
    if isinstance(answer, Published):
        return None
    if not isinstance(answer, Passing | PassingUntil | Permanent | Ambiguous | Restamp):
        what = f"the class {answer.__name__}" if isinstance(answer, type) else type(answer).__name__
        return f"publish of the transport returned {what}: it must return an answer, as Published()"
    limits: dict[str, type] = {"error": str}
    if isinstance(answer, PassingUntil):
        limits["wait_ms"] = int
    elif isinstance(answer, Restamp) and answer.attempts_max is not None:
        limits["attempts_max"] = int
    for name, kind in limits.items():
        if not isinstance(value := getattr(answer, name), kind):
            return (
                f"publish of the transport returned {type(answer).__name__} with {name} of {type(value).__name__}: "
                f"it must be {kind.__name__}"
            )
    return None
