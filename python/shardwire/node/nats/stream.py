"""How much a stream keeps that a node makes."""

from __future__ import annotations

from dataclasses import dataclass

from shardwire.config.checks import check_integers


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits of a stream that is made because the server has none of its name; the oldest messages go first.

    Attributes:
        bytes_max: What it holds.
        age_max_ms: How long.
        replicas: Copies in a cluster.
    """

    bytes_max: int = 1 << 30
    age_max_ms: int = 7 * 86_400_000
    replicas: int = 1

    def __post_init__(self) -> None:
        for name, minimum in (("bytes_max", 1), ("age_max_ms", 1_000), ("replicas", 1)):
            check_integers(self, minimum, (name,))
