"""The ids under which messages are sent."""

from __future__ import annotations

import random
from collections.abc import Callable

from shardwire.errors import ConfigError

# A log remembers a tenth of that by default.
IDS_DRAWN_MAX = 1_000_000


def new_request_id(rng: random.Random, is_known: Callable[[str], bool]) -> str:
    """One that no message of ours has: a seed that was used before draws again what receivers know already.

    Raises:
        ConfigError: The source draws nothing else.
    """
    for _ in range(IDS_DRAWN_MAX):
        request_id = f"{rng.getrandbits(128):032x}"
        if not is_known(request_id):
            return request_id
    raise ConfigError("rng draws ids of earlier messages alone: give it a seed of its own in each life")
