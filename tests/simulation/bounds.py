"""How much each live participant holds, against the limit that its configuration or a constant names."""

from __future__ import annotations

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


def held(channel: ReliableChannel) -> tuple[tuple[str, int, int], ...]:
    """(what, how many or how many bytes of it, the limit) of one channel."""
    config = channel.config
    machine = channel._session.engine.machine
    missing_max = config.sds.missing_messages_max
    contents_max = config.sds.incoming_buffer_messages_max
    gaps, repair = machine.incoming.gaps, machine.repair
    finished = sum(len(send.contents) for send in machine.outgoing.sends.values() if send.finished)
    return (
        ("log entries", len(machine.log.entries), config.sds.log_messages_max),
        ("unacknowledged contents", len(machine.outgoing.unacknowledged), config.sds.outgoing_buffer_messages_max),
        ("contents of finished sends", finished, FINISHED_CONTENTS_MAX + CONTENTS_PER_SEND_MAX),
        # Contents recovered through parity come with a message that is held already.
        ("contents waiting", machine.incoming.contents_held, contents_max + CONTENTS_PER_SEND_MAX),
        ("incoming sends", len(machine.incoming.sends), contents_max + missing_max),
        ("missing messages", len(gaps.missing.by_id), missing_max),
        ("lost messages", len(gaps.lost), missing_max),
        ("repair requests", len(repair.requests.by_id), REPAIR_BUFFER_MAX),
        ("missing messages not asked for yet", repair.requests_held - len(repair.requests.by_id), missing_max),
        ("repair answers", len(repair.answers.by_id), REPAIR_BUFFER_MAX),
        ("original bytes", sum(map(len, repair.originals.by_id.values())), ORIGINAL_BYTES_MAX),
        ("participants", len(machine.participants.heard_ms), PARTICIPANTS_MAX),
        ("entries to be named", len(machine.anti_entropy.owed), REVIEWED_MAX),
        ("entries named before", len(machine.anti_entropy._named), 2 * REVIEWED_MAX),
        ("filters remembered", len(machine.filter_wish._seen), FILTERS_REMEMBERED_MAX),
        ("heads", len(machine.heads.by_key), HEADS_MAX),
        ("ids that syncs repeat", len(machine.acknowledgements.said_before), REPEATED_MAX),
        ("transport hashes", len(channel._session._reception._known_hashes), KNOWN_HASHES_MAX),
    )


def exceeded(name: str, channel: ReliableChannel) -> list[str]:
    """What a participant holds more of than it may."""
    return [
        f"{name} holds {count} {what}, {limit} are allowed" for what, count, limit in held(channel) if count > limit
    ]
