"""The state of a rate limit, as applications see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """The rate limit as it stands.

    Attributes:
        enabled: Whether it is enforced; the other fields are 0 where not.
        used: Messages counted in this epoch.
        total: The quota.
        resets_at_ms: Unix time in ms at which the next epoch begins.
        queued: Messages that wait to be dispatched for the first time.
        queued_bytes: Their bytes.
    """

    enabled: bool
    used: int
    total: int
    resets_at_ms: int
    queued: int
    queued_bytes: int
