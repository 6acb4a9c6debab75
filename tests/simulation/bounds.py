"""How much each live participant holds, against the limit that its configuration or a constant names."""

from __future__ import annotations

from functools import cache
from operator import gt

from shardwire import ReliableChannel
from shardwire.channel.reception import KNOWN_HASHES_MAX
from shardwire.sds.acknowledgement import REPEATED_MAX
from shardwire.sds.anti_entropy import REVIEWED_MAX
from shardwire.sds.filter_wish import FILTERS_REMEMBERED_MAX
from shardwire.sds.heads import HEADS_MAX
from shardwire.sds.identity import CONTENTS_PER_SEND_MAX
from shardwire.sds.outgoing import FINISHED_CONTENTS_MAX
from shardwire.sds.participants import PARTICIPANTS_MAX
from shardwire.sds.repair import ORIGINAL_BYTES_MAX, REPAIR_BUFFER_MAX


@cache
def limits(log_max: int, outgoing_max: int, contents_max: int, missing_max: int) -> dict[str, int]:
    """How many, or how many bytes, of each thing a participant may hold: the fields of its `SdsConfig` are given."""
    return {
        # Nothing that waits is forgotten.
        "log entries": log_max + contents_max + CONTENTS_PER_SEND_MAX,
        "unacknowledged contents": outgoing_max,
        "contents of finished sends": FINISHED_CONTENTS_MAX + CONTENTS_PER_SEND_MAX,
        # Contents recovered through parity come with a message that is held already.
        "contents waiting": contents_max + CONTENTS_PER_SEND_MAX,
        "incoming sends": contents_max + missing_max,
        "missing messages": missing_max,
        "lost messages": missing_max,
        "repair requests": REPAIR_BUFFER_MAX,
        "missing messages not asked for yet": missing_max,
        "repair answers": REPAIR_BUFFER_MAX,
        "original bytes": ORIGINAL_BYTES_MAX,
        "participants": PARTICIPANTS_MAX,
        "entries to be named": REVIEWED_MAX,
        "entries named before": 2 * REVIEWED_MAX,
        "filters remembered": FILTERS_REMEMBERED_MAX,
        "heads": HEADS_MAX,
        "ids that syncs repeat": REPEATED_MAX,
        "transport hashes": KNOWN_HASHES_MAX,
    }


def held(channel: ReliableChannel) -> tuple[int, ...]:
    """What a participant holds of each thing that `limits` names, in that order."""
    machine = channel._session.engine.machine
    outgoing, incoming, repair = machine.outgoing, machine.incoming, machine.repair
    gaps, asked = incoming.gaps, len(repair.requests.by_id)
    return (
        len(machine.log.entries),
        len(outgoing.unacknowledged),
        sum([len(send.contents) for send in outgoing.sends.values() if send.finished]),
        incoming.contents_held,
        len(incoming.sends),
        len(gaps.missing.by_id),
        len(gaps.lost),
        asked,
        repair.requests_held - asked,
        len(repair.answers.by_id),
        repair.originals.size_bytes,
        len(machine.participants.heard_ms),
        len(machine.anti_entropy.owed),
        len(machine.anti_entropy._named),
        len(machine.filter_wish._seen),
        len(machine.heads.by_key),
        len(machine.acknowledgements.said_before),
        len(channel._session._reception._known_hashes),
    )


def exceeded(name: str, channel: ReliableChannel) -> list[str]:
    """What a participant holds more of than it may."""
    config = channel.config.sds
    allowed = limits(
        config.log_messages_max,
        config.outgoing_buffer_messages_max,
        config.incoming_buffer_messages_max,
        config.missing_messages_max,
    )
    counts = held(channel)
    if not any(map(gt, counts, allowed.values())):
        return []
    return [
        f"{name} holds {count} {what}, {limit} are allowed"
        for count, (what, limit) in zip(counts, allowed.items(), strict=True)
        if count > limit
    ]
