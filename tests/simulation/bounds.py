"""How much each live participant holds, against the limit that its configuration or a constant names."""

from __future__ import annotations

from functools import cache
from operator import gt

from shardwire import ReliableChannel, SdsConfig
from shardwire._native import sds_limits
from shardwire.channel.receiving.reception import KNOWN_HASHES_MAX

SDS = sds_limits()
# Of each message that waits, once there are `WAITING_PAIRS_MAX` pairs.
CAUSES_OF_MANY_MAX = 32
# Of a message, parity included.
SEGMENTS_MAX = 256


@cache
def limits(log_max: int, outgoing_max: int, contents_max: int, missing_max: int) -> dict[str, int]:
    """How many, or how many bytes, of each thing a participant may hold: the fields of its `SdsConfig` are given."""
    contents_per_send_max = SDS["CONTENTS_PER_SEND_MAX"]
    return {
        # Nothing that waits is forgotten.
        "log": log_max + contents_max + contents_per_send_max,
        # A larger message leaves alone.
        "outgoing_unacknowledged": max(outgoing_max, SEGMENTS_MAX),
        "outgoing_finished_contents": SDS["FINISHED_CONTENTS_MAX"] + contents_per_send_max,
        # Contents recovered through parity come with a message that is held already.
        "incoming_contents": contents_max + contents_per_send_max,
        "incoming_sends": contents_max + missing_max,
        "incoming_pairs": SDS["WAITING_PAIRS_MAX"] + CAUSES_OF_MANY_MAX * contents_max,
        "missing": missing_max,
        "lost": missing_max,
        "repair_requests": missing_max,
        "repair_answers": SDS["REPAIR_BUFFER_MAX"],
        "original_bytes": SdsConfig().log_bytes_max,
        "participants": SDS["PARTICIPANTS_MAX"],
        "entries_to_name": SDS["REVIEWED_MAX"],
        "entries_named": 2 * SDS["REVIEWED_MAX"],
        "filters_remembered": SDS["FILTERS_REMEMBERED_MAX"],
        "heads": SDS["HEADS_MAX"],
        "acknowledgements_repeated": SDS["REPEATED_MAX"],
        "given_up_sends": missing_max,
        "rivals": missing_max,
        "transport_hashes": KNOWN_HASHES_MAX,
    }


def held(channel: ReliableChannel) -> tuple[int, ...]:
    """What a participant holds of each thing that `limits` names, in that order."""
    sizes = channel._session.engine.machine.stats()
    sizes["transport_hashes"] = len(channel._session._reception._known_hashes)
    return tuple([sizes[what] for what in limits(0, 0, 0, 0)])


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
