"""What changes on a network without a store (docs/decisions/2026-11-22-without-a-store.md)."""

from __future__ import annotations

from dataclasses import replace

from shardwire._native import repair_times_without_store
from shardwire.config.checks import check_integer
from shardwire.config.sds import SdsConfig, SyncConfig

# How large a group is taken to be where nobody says it.
MEMBERS_ASSUMED = 20
# One sync of the whole group in about this time tells who came back unnoticed what it lacks.
SYNC_INTERVAL_MS_MIN = 5_000
SYNC_INTERVAL_MS_PER_MEMBER = 250
# Who comes back says its filter at once where it was away for four of these (see `BloomSchedule.due`).
BLOOM_INTERVAL_MS = 10_000
# The newest messages are named by the histories of those that follow alone: so many at a time.
CAUSAL_HISTORY_SIZE = 5

# What a field holds that nobody set.
_SDS = SdsConfig()
_SYNC = SyncConfig()


def waits_for_store(sds: SdsConfig) -> bool:
    """Whether others are asked for what is missing at the times of a network whose store comes first."""
    times = sds.repair_t_min_ms, sds.repair_t_max_ms
    return times == (_SDS.repair_t_min_ms, _SDS.repair_t_max_ms)


def without_store(sds: SdsConfig, sync: SyncConfig, members: int) -> tuple[SdsConfig, SyncConfig]:
    """Both with other values where they hold their defaults.

    Raises:
        ConfigError: `members` is no integer of at least 2.
    """
    check_integer("members", members, 2)
    t_min_ms, t_max_ms = sds.repair_t_min_ms, sds.repair_t_max_ms
    if waits_for_store(sds):
        t_min_ms, t_max_ms = repair_times_without_store(members)
    history_size = sds.causal_history_size
    bloom_interval_ms = sds.bloom_interval_ms
    sync_interval_ms = sync.sync_min_interval_ms
    if sync_interval_ms == _SYNC.sync_min_interval_ms:
        sync_interval_ms = min(max(SYNC_INTERVAL_MS_MIN, SYNC_INTERVAL_MS_PER_MEMBER * members), sync_interval_ms)
    changed = replace(
        sds,
        repair_t_min_ms=t_min_ms,
        repair_t_max_ms=t_max_ms,
        causal_history_size=CAUSAL_HISTORY_SIZE if history_size == _SDS.causal_history_size else history_size,
        bloom_interval_ms=BLOOM_INTERVAL_MS if bloom_interval_ms == _SDS.bloom_interval_ms else bloom_interval_ms,
    )
    return changed, replace(sync, sync_min_interval_ms=sync_interval_ms)
