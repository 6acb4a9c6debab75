"""Why a message is not delivered yet, for whoever waited for it in vain."""

from __future__ import annotations

from shardwire.channel.engine import Engine
from shardwire.channel.storing.records import SendRecord
from shardwire.sds import Now


def why_undelivered(record: SendRecord, engine: Engine, is_started: bool, now: Now) -> str:
    """What stands in the way of a message, by the first that holds of: its error, a store, us, the node, the others."""
    if record.error:
        return record.error
    if record.is_stored:
        return "a store has it, for whoever is away"
    if not is_started:
        return "the channel is not started"
    readiness = engine.transmissions.readiness
    if not readiness.online:
        return "the node is not connected"
    taken = f"the network took {record.propagated.bit_count()} of its {record.content_count} segments"
    if readiness.is_held(now.monotonic_ms):
        wait_ms = readiness.held_until_ms - now.monotonic_ms
        return f"the node refuses everything for another {wait_ms} ms; {taken}"
    if readiness.failures:
        return f"the node failed {readiness.failures} times in a row to send a message; {taken}"
    if not record.sent:
        status = engine.quota.status(now.epoch_ms, 0, 0)
        if status.enabled and status.used >= status.total:
            wait_ms = max(0, status.resets_at_ms - now.epoch_ms)
            return f"the rate limit holds it for another {wait_ms} ms: {status.used} of {status.total} used; {taken}"
        return f"it is still being sent: {taken}"
    if not engine.machine.participants_heard(now):
        return "it was sent, and nobody else is heard on this channel"
    if record.delivered_to:
        return f"only {len(record.delivered_to)} of those who must have it acknowledged it (delivered_when)"
    acknowledged = record.acknowledged.bit_count()
    return f"it was sent, and {acknowledged} of its {record.content_count} segments are acknowledged so far"
