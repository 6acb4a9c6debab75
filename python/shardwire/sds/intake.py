"""The short way of the common message: natively, on the containers of the machine's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardwire._native import HistoryEntry, IncomingSend, LogEntry, OutgoingContent, SdsIntake
from shardwire.config import SdsConfig
from shardwire.sds.heads import HEADS_MAX
from shardwire.sds.identity import MESSAGE_ID_LENGTH_MAX
from shardwire.sds.lamport import LAMPORT_MAX
from shardwire.sds.participants import HEARD_EXACTLY_MS

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel

# Of a longer history a waiting send keeps both ends: the heads stand first, the causal history last.
HISTORY_KEPT_MAX = 2 * HEADS_MAX

# Ids of the history, contents of ours that it acknowledges, entries that its sender acknowledges too, sends to wait
# for, and entries that are unknown.
Rare = tuple[tuple[str, ...], list[OutgoingContent], list[LogEntry], list[IncomingSend], list[HistoryEntry]]
# The entry, its content, the key of its send, the send where it is new, where the filter lies in the message.
Taken = tuple[LogEntry, bytes, str, IncomingSend | None, tuple[int, int] | None, Rare | None]


def intake_of(machine: MessageChannel, config: SdsConfig) -> SdsIntake:
    """The native intake of `machine`, whose parts are made and keep their containers from now on."""
    return SdsIntake(
        machine.channel_id,
        machine.sender_id,
        config.wire_format,
        {
            "id_length_max": MESSAGE_ID_LENGTH_MAX,
            "history_max": HISTORY_KEPT_MAX,
            "heads_max": HEADS_MAX,
            "heard_ms_max": HEARD_EXACTLY_MS,
            "lamport_unit_ms": machine.lamport.unit_ms,
            "lamport_skew_max": machine.lamport.skew_max,
            "lamport_max": LAMPORT_MAX,
        },
        log=machine.log,
        heads=machine.heads.by_key,
        originals=machine.repair.originals if config.enable_repair else None,
        answers=machine.repair.answers.by_id,
        heard_ms=machine.participants.heard_ms,
        sent=machine.outgoing.by_id,
        sends=machine.incoming.sends,
        changed=machine.incoming.changed,
        stored=machine.incoming.stored,
        incomplete=machine.acknowledgements.incomplete,
        delivered=machine.acknowledgements.delivered,
        bloom=machine.bloom.waiting,
    )
