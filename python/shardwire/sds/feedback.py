"""When one of many who would all say the same should say it (RFC 5401, RandomBackoff)."""

from __future__ import annotations

import math
import random

# Sender ids are free to forge, so what they claim as a group's size counts up to here.
MEMBERS_MAX = 1_000


def feedback_delay_ms(rng: random.Random, window_ms: int, members: int) -> int:
    """A random delay within `window_ms`, the rarer the earlier, the more `members` there are.

    The density grows exponentially by a factor of `members` over the window, so however large the group is, few draw a
    time within one network delay of the earliest, whom the others hear and then keep quiet. One member alone draws
    uniformly.
    """
    return round(late_share(rng.random(), members) * window_ms)


def late_share(share: float, members: int) -> float:
    """What a uniform draw from [0, 1) becomes under that density."""
    if members <= 1:
        return share
    growth = min(members, MEMBERS_MAX)
    return math.log1p(share * (growth - 1)) / math.log(growth)
