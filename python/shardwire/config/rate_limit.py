"""How many messages may leave in an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shardwire.config.checks import check_bools, check_choices, check_integers, check_share, refuse
from shardwire.config.segmentation import MEBIBYTE

RateCounts = Literal["message", "segment"]


@dataclass(frozen=True, slots=True)
class RateLimitConfig:
    """RLN rate limit (Logos 003 RateLimitConfig; Waku 004 Rate limit management).

    Attributes:
        enabled: Whether the limit is enforced.
        epoch_size_ms: Length of an epoch; epochs are floor(unix time / epoch).
        messages_per_epoch: The quota; required when enabled.
        counts: "message" counts a send once, "segment" counts every envelope.
        ephemeral_drop_threshold: Share of the quota from which ephemeral messages are dropped.
        ack_reserve: Share of the quota kept for acknowledgements, evenly over the epoch. Beyond it they have what
            messages did not use of the time that is over.
        queue_bytes_max: Bytes that may wait to leave, in 100,000 segments at most. Beyond it `send` raises
            `QueueFullError` where a limit holds, the channel's or its node's; else it waits until enough has left.
    """

    enabled: bool = False
    epoch_size_ms: int = 600_000
    messages_per_epoch: int | None = None
    counts: RateCounts = "message"
    ephemeral_drop_threshold: float = 0.9
    ack_reserve: float = 0.1
    queue_bytes_max: int = 256 * MEBIBYTE

    def __post_init__(self) -> None:
        check_bools(self, ("enabled",))
        check_integers(self, 1, ("epoch_size_ms", "queue_bytes_max"))
        check_choices(self, "counts", ("message", "segment"))
        check_share(self, "ephemeral_drop_threshold")
        check_share(self, "ack_reserve", one=False)
        if self.messages_per_epoch is not None:
            check_integers(self, 1, ("messages_per_epoch",))
        elif self.enabled:
            raise refuse(self, "messages_per_epoch", None, "an integer of at least 1 when the rate limit is enabled")
