"""What a memory network does to messages on their way."""

from __future__ import annotations

import random
from dataclasses import dataclass

from shardwire.config.checks import check_integers
from shardwire.errors import ConfigError

# What `draw_arrivals` takes, and how much of a generator one of them is.
_ARRIVAL_VARIATES = 8
_VARIATE_BITS = 64
_AT_ONCE = ((0, False),)


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """Faults of a network, drawn independently for every envelope and receiver.

    Attributes:
        loss: Share of envelopes that a receiver never gets.
        duplicate: Share of the others that it gets twice.
        delay_ms: Least and most time from sender to receiver, uniformly drawn.
        reorder: Share of arrivals that are held back so that later ones overtake them; all others of one sender
            arrive in the order in which they left, whatever their delays.
        reorder_delay_ms: The longest that one is held back.
        store_loss: Share of envelopes that the store never gets.
        store_delay_ms: Least and most time that an answer of the store takes.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    delay_ms: tuple[int, int] = (0, 0)
    reorder: float = 0.0
    reorder_delay_ms: int = 100
    store_loss: float = 0.0
    store_delay_ms: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder", "store_loss"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
                raise ConfigError(f"NetworkConditions.{name} is {share!r}: it must be a share from 0 to 1")
        for name in ("delay_ms", "store_delay_ms"):
            _check_range(name, getattr(self, name))
        check_integers(self, 0, ("reorder_delay_ms",))

    def draw_arrivals(self, rng: random.Random) -> tuple[tuple[int, bool], ...]:
        """How one envelope reaches one receiver: (delay in ms, whether later ones may overtake it) for each copy.

        Takes the same number of variates whatever the outcome, so that a change of one share moves nothing else.
        """
        if not (self.loss or self.duplicate or self.reorder or self.delay_ms[1]):
            # Nothing is left to chance: all variates at once.
            rng.getrandbits(_ARRIVAL_VARIATES * _VARIATE_BITS)
            return _AT_ONCE
        draw = rng.random
        lost = draw() < self.loss
        twice = draw() < self.duplicate
        first = draw(), draw(), draw()
        second = draw(), draw(), draw()
        if lost:
            return ()
        if not twice:
            return (self._arrival(*first),)
        return self._arrival(*first), (self._arrival(*second)[0], True)

    def draw_store_delay_ms(self, rng: random.Random) -> int:
        """How long an answer of the store takes, drawn uniformly from `store_delay_ms`."""
        return _uniform(rng, self.store_delay_ms)

    def _arrival(self, delay: float, held_back: float, extra: float) -> tuple[int, bool]:
        """One copy, from three variates."""
        least, most = self.delay_ms
        delay_ms = least + int(delay * (most - least + 1))
        if held_back < self.reorder:
            return delay_ms + int(extra * (self.reorder_delay_ms + 1)), True
        return delay_ms, False


def _uniform(rng: random.Random, bounds: tuple[int, int]) -> int:
    least, most = bounds
    return least + int(rng.random() * (most - least + 1))


def _check_range(name: str, value: object) -> None:
    valid = (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(bound, int) and not isinstance(bound, bool) for bound in value)
        and 0 <= value[0] <= value[1]
    )
    if not valid:
        raise ConfigError(
            f"NetworkConditions.{name} is {value!r}: it must be (least, most), integers with 0 <= least <= most"
        )
