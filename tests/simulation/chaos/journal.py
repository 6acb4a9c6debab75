"""What the application of one participant did and was told, in order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from shardwire.events import ChannelEvent

_REQUEST_BITS = 128

# "unknown": nobody can say whether it took effect, since the channel closed or the power failed before it returned.
Outcome = Literal["unknown", "returned", "cancelled", "not stored", "refused"]


@dataclass(slots=True)
class Call:
    """A call of `send` or `send_ephemeral`.

    Attributes:
        number: Its place in the journal.
        life: In which it was made.
        payload: What was sent.
        ephemeral: Whether it was by `send_ephemeral`.
        request_id: Drawn for it, whether or not it ever returned that.
        outcome: How it ended.
    """

    number: int
    life: int
    payload: bytes = field(repr=False)
    ephemeral: bool = False
    request_id: str | None = None
    outcome: Outcome = "unknown"


@dataclass(slots=True)
class Cancellation:
    """A call of `cancel`.

    Attributes:
        request_id: Of what.
        life: In which it was made.
        at: Place in the journal of its return.
        outcome: "returned" where it cancelled, "refused" where nothing was left to.
    """

    request_id: str
    life: int
    at: int = 0
    outcome: Outcome = "unknown"


@dataclass(slots=True)
class Told:
    """An event of a request.

    Attributes:
        at: Place in the journal of when it was told.
        life: In which it was.
        event: The event.
        request_id: Of what.
        done_s: When the callback had returned, in seconds of the loop; None while it has not.
    """

    at: int
    life: int
    event: ChannelEvent
    request_id: str
    done_s: float | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """A message that was handed over."""

    life: int
    sender_id: str
    payload: bytes = field(repr=False)
    redelivered: bool


@dataclass(slots=True)
class Ended:
    """The end of a life.

    Attributes:
        cut_off: Whether it could not store how it ended, as in a crash.
        stored_s: When it stored something last, in seconds of the loop.
    """

    cut_off: bool
    stored_s: float


class RequestIds(random.Random):
    """The randomness of one life, which tells the call that a request id is drawn for."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.call: Call | None = None

    def getrandbits(self, k: int) -> int:
        bits = super().getrandbits(k)
        if k == _REQUEST_BITS and self.call is not None:
            self.call.request_id = f"{bits:032x}"
            self.call = None
        return bits


@dataclass(slots=True)
class Journal:
    """Everything that one application did and was told.

    Attributes:
        pending: Request ids that the channel says are pending in the end.
        trouble: What no application should meet.
    """

    name: str
    calls: list[Call] = field(default_factory=list)
    cancellations: list[Cancellation] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    ends: dict[int, Ended] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    trouble: list[str] = field(default_factory=list)
    _places: count[int] = field(default_factory=count)

    def place(self) -> int:
        """The next place in it."""
        return next(self._places)
