"""How long a content of ours waits for its acknowledgement."""

from __future__ import annotations

from shardwire.config import SdsConfig

# Back-off ends at this many times the first period.
_BACK_OFF_LIMIT = 8


def resend_period_ms(config: SdsConfig, attempts: int) -> int:
    """How long a content that was sent again `attempts` times waits for its acknowledgement.

    Equal intervals unless the configuration asks for back-off (specification 004, Message retries).
    """
    period_ms = config.acknowledgement_timeout_ms
    if config.back_off_percent == 0:
        return period_ms
    limit_ms = _BACK_OFF_LIMIT * period_ms
    for _ in range(attempts):
        if period_ms >= limit_ms:
            break
        period_ms += max(1, period_ms * config.back_off_percent // 100)
    return min(period_ms, limit_ms)
