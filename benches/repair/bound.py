"""What repair must cost at least, and what simple rules cost: computed, or drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

# A sum of probabilities ends where what is left of it is below this.
NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class Loss:
    """How a receiver loses segments, independently of the others.

    Attributes:
        share: Share of the segments that it loses.
        burst: How many it loses in a row on average, as Gilbert and Elliott have it; None: each by itself.
    """

    share: float
    burst: float | None = None

    def __str__(self) -> str:
        return f"{self.share:.0%}" + (f" in bursts of {self.burst:g}" if self.burst else "")

    @property
    def begins(self) -> float:
        """The chance that the next segment is lost after one that came."""
        return self.share if self.burst is None else self.share / ((1 - self.share) * self.burst)

    @property
    def goes_on(self) -> float:
        """The chance that the next segment is lost after a lost one."""
        return self.share if self.burst is None else 1 - 1 / self.burst

    def draw(self, lost_before: bool | None, rng: random.Random) -> bool:
        """Whether a segment is lost after one of which that is known."""
        chance = self.share if lost_before is None else self.goes_on if lost_before else self.begins
        return rng.random() < chance


def bound(data_count: int, receivers: int, loss: Loss) -> float:
    """B = E[max over the receivers of NegBin(k, 1 - p)]: what any code sends on average until each has k segments."""
    # By what became of the last segment, how likely each number of received ones below k is.
    came, lost = np.zeros(data_count), np.zeros(data_count)
    done, segments = 0.0, 1.0
    lost[0] = loss.share
    if data_count == 1:
        done = 1 - loss.share
    else:
        came[1] = 1 - loss.share
    while (more := 1 - done**receivers) > NEGLIGIBLE:
        segments += more
        comes = came * (1 - loss.begins) + lost * (1 - loss.goes_on)
        lost = came * loss.begins + lost * loss.goes_on
        done += float(comes[-1])
        came = np.concatenate(([0.0], comes[:-1]))
    return segments


def ideal_selective_repeat(data_count: int, receivers: int, loss: Loss) -> float:
    """Segments sent on average where a sender knows what each receiver lacks, and repeats that; single losses only."""
    if loss.burst is not None:
        raise ValueError("bursts: draw rounds with selective_repeat")
    times, lost = 0.0, 1.0
    while (more := 1 - (1 - lost) ** receivers) > NEGLIGIBLE:
        times += more
        lost *= loss.share
    return data_count * times


@dataclass(frozen=True)
class Outcome:
    """Segments sent in all, and in how many rounds."""

    segments: int
    rounds: int


def selective_repeat(
    data_count: int, receivers: int, loss: Loss, rng: random.Random, *, acknowledgements_lost: bool
) -> Outcome:
    """A sender that repeats, round by round, what somebody did not acknowledge.

    Args:
        data_count: Segments of the message.
        receivers: All of whom are to have it.
        loss: Of segments.
        rng: The source of losses.
        acknowledgements_lost: The rule of the peers: after each round each receiver says once what it has, which is
            lost as often as a segment. Without it the ideal: the sender always knows.
    """
    held = [0] * receivers
    known = [0] * receivers
    lost: list[bool | None] = [None] * receivers
    everything = (1 << data_count) - 1
    segments = rounds = 0
    while True:
        unacknowledged = everything
        for acknowledged in known:
            unacknowledged &= acknowledged
        unacknowledged = everything & ~unacknowledged
        if not unacknowledged:
            return Outcome(segments, rounds)
        rounds += 1
        for index in range(data_count):
            if not unacknowledged >> index & 1:
                continue
            segments += 1
            for receiver in range(receivers):
                now_lost = loss.draw(lost[receiver], rng)
                lost[receiver] = now_lost
                if not now_lost:
                    held[receiver] |= 1 << index
        for receiver in range(receivers):
            if not acknowledgements_lost or rng.random() >= loss.share:
                known[receiver] = held[receiver]
