"""Why a message is not delivered yet, for whoever waited for it in vain."""

from __future__ import annotations

from collections.abc import Set

from shardwire._native import SendProgress
from shardwire.channel.engine import Engine
from shardwire.channel.sending.pending import pending_sends
from shardwire.config import ChannelConfig
from shardwire.quoting import quoted
from shardwire.sds import Now, TransmitKind

# Of those who must have a message, so many are named.
NAMED_MAX = 3
# What of the messages of others nobody here could read.
_UNREAD = ("dropped_undecryptable", "dropped_undecodable", "dropped_without_marker")


def what_is_left(engine: Engine, config: ChannelConfig, is_started: bool, now: Now) -> str | None:
    """What a channel that closes now leaves undelivered, and what becomes of it; None where that is nothing.

    What a store has for whoever is away is safe there.
    """
    left = [entry for entry in pending_sends(engine.own_sends) if not entry.stored]
    first = engine.own_sends.of_request(left[0].request_id) if left else None
    if first is None:
        return None
    count = "a message is" if len(left) == 1 else f"{len(left)} messages are"
    kept = "lost: SdsConfig.persistence is not set" if config.sds.persistence is None else "sent on by its next life"
    return f"{count} not delivered, and {kept}; {why_undelivered(first, engine, config, is_started, now)}"


def why_undelivered(send: SendProgress, engine: Engine, config: ChannelConfig, is_started: bool, now: Now) -> str:
    """What stands in the way of a message, by the first that holds of: its error, us, the node, the others."""
    if send.error:
        # Segments count as acknowledged by anybody: it says nothing of those who must have them.
        is_about_others = send.error_stage == "delivery" and config.delivered_when != "any"
        return f"{send.error}; {_of_others(send, engine, config, now)}" if is_about_others else send.error
    if send.is_stored:
        return f"a store has it, for whoever is away; {_of_others(send, engine, config, now)}"
    if not is_started:
        return "the channel is not started"
    online, held_ms, failures = engine.machine.node_state(now)
    if not online:
        return "the node is not connected"
    taken = f"the network took {send.propagated_count} of its {send.content_count} segments"
    if held_ms:
        return f"the node refuses everything for another {held_ms} ms; {taken}"
    if failures:
        return f"the node failed {failures} times in a row to send a message; {taken}"
    if send.sent:
        return f"it was sent; {_of_others(send, engine, config, now)}"
    if engine.quota.allows(TransmitKind.FIRST, now.epoch_ms):
        return f"it is still being sent: {taken}"
    status, allowances = engine.quota.status(now.epoch_ms), engine.quota.allowances(now.epoch_ms)
    wait_ms = max(0, engine.quota.reopens_at_ms(TransmitKind.FIRST, allowances, now.epoch_ms) - now.epoch_ms)
    kept = "" if status.used >= status.total else ", the rest is kept for acknowledgements"
    return f"the rate limit holds it for another {wait_ms} ms: {status.used} of {status.total} used{kept}; {taken}"


def _of_others(send: SendProgress, engine: Engine, config: ChannelConfig, now: Now) -> str:
    """Who is to acknowledge it, and did not."""
    wanted = config.delivered_when
    if not engine.machine.participants_heard(now):
        text = "nobody else is heard on this channel"
    elif isinstance(wanted, Set):
        lacking = sorted(set(wanted) - set(send.delivered_to))
        more = f" and {len(lacking) - NAMED_MAX} more" if len(lacking) > NAMED_MAX else ""
        text = f"{', '.join(map(quoted, lacking[:NAMED_MAX]))}{more} did not acknowledge it (delivered_when)"
    elif send.delivered_to:
        text = f"only {len(send.delivered_to)} of those who must have it acknowledged it (delivered_when)"
    else:
        acknowledged = send.acknowledged_count
        text = f"{acknowledged} of its {send.content_count} segments are acknowledged so far"
    counts = engine.peer_log.counts
    unread = sum(counts.get(name, 0) for name in _UNREAD)
    if not unread:
        return text
    return (
        f"{text}; {unread} messages here could not be read: do all have the same key, cipher, wire and envelope_meta?"
    )
