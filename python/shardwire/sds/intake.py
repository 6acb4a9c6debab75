"""The short way of the common message: natively, on the containers of the machine's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardwire._native import HistoryEntry, IncomingSend, LogEntry, OutgoingContent, SdsIntake
from shardwire.config import SdsConfig
from shardwire.sds.heads import HEADS_MAX
from shardwire.sds.identity import MESSAGE_ID_LENGTH_MAX, RETRIEVAL_HINT_BYTES_MAX, SENDER_ID_LENGTH_MAX
from shardwire.sds.lamport import LAMPORT_MAX
from shardwire.sds.participants import HEARD_EXACTLY_MS

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel

# Of a longer history a waiting send keeps both ends: the heads stand first, the causal history last.
HISTORY_KEPT_MAX = 2 * HEADS_MAX

# Ids of the history, contents of ours that it acknowledges, entries that its sender acknowledges too, sends to wait
# for, and entries that are unknown.
Rare = tuple[tuple[str, ...], list[OutgoingContent], list[LogEntry], list[IncomingSend], list[HistoryEntry]]
# The entry, the key of its send, the send unless something of it was here before, where the filter lies in the message,
# and whether something is missing anew.
Taken = tuple[LogEntry, str, IncomingSend | None, tuple[int, int] | None, bool, Rare | None]


def intake_of(machine: MessageChannel, config: SdsConfig, at_once: bool) -> SdsIntake:
    """The native intake of `machine`, whose parts are made and keep their containers from now on."""
    incoming, repair = machine.incoming, machine.repair
    return SdsIntake(
        machine.channel_id,
        machine.sender_id,
        config.wire_format,
        {
            "id_length_max": MESSAGE_ID_LENGTH_MAX,
            "history_max": HISTORY_KEPT_MAX,
            "heard_ms_max": HEARD_EXACTLY_MS,
            "lamport_unit_ms": machine.lamport.unit_ms,
            "lamport_skew_max": machine.lamport.skew_max,
            "lamport_max": LAMPORT_MAX,
            "at_once": at_once,
            "by_send": config.message_id == "send",
        },
        log=machine.log,
        originals=repair.originals if config.enable_repair else None,
        answers=repair.answers.by_id,
        heard_ms=machine.participants.heard_ms,
        sent=machine.outgoing.by_id,
        unacknowledged=machine.outgoing.unacknowledged,
        sends=incoming.sends,
        by_send_id=incoming.by_send_id,
        changed=incoming.changed,
        bloom=machine.bloom.waiting,
        waiting=_waiting(machine, config),
        releasing=_releasing(machine),
        receiving=_receiving(machine),
        events=machine.events,
    )


def _waiting(machine: MessageChannel, config: SdsConfig) -> dict[str, Any]:
    """What the native intake needs of the incoming buffer's gaps."""
    incoming, repair = machine.incoming, machine.repair
    gaps = incoming.gaps
    return {
        "id_length_max": min(RETRIEVAL_HINT_BYTES_MAX, SENDER_ID_LENGTH_MAX),
        "lost_ms": config.timeout_for_lost_messages_ms,
        "missing_max": config.missing_messages_max,
        "repairs": config.enable_repair,
        "sender_id": machine.sender_id,
        "sends": incoming.sends,
        "changed": incoming.changed,
        "missing": gaps.missing.by_id,
        "missing_changed": gaps.missing.changed,
        "shares": gaps.missing.by_participant,
        "named": gaps.named.always,
        "lost": gaps.lost,
        "upcoming": repair.upcoming,
        "requests": repair.requests.by_id,
        "watch": gaps.watch,
        "remove_request": repair.requests.remove,
        "events": machine.events,
    }


def _releasing(machine: MessageChannel) -> dict[str, Any]:
    """What the native intake needs to deliver."""
    incoming = machine.incoming
    return {
        "heads_max": HEADS_MAX,
        "blocked_ms": incoming.blocked_ms,
        "sends": incoming.sends,
        "changed": incoming.changed,
        "stored": incoming.stored,
        "blocked": incoming.blocked,
        "incomplete": machine.acknowledgements.incomplete,
        "delivered": machine.acknowledgements.delivered,
        "heads": machine.heads.by_key,
        "events": machine.events,
    }


def _receiving(machine: MessageChannel) -> dict[str, Any]:
    """What a content moves when it is taken in."""
    acknowledgements, sync_timer = machine.acknowledgements, machine.sync_timer
    return {
        "held": machine.incoming,
        "contents_max": machine.incoming.contents_max,
        "sync_timer": sync_timer,
        "sooner_ms": sync_timer.sooner_ms,
        "on_content_received": sync_timer.on_content_received,
        "acknowledgements": acknowledgements,
        "prompt": acknowledgements.prompt,
        "draw": acknowledgements.draw,
        "lamport": machine.lamport,
        "on_missing": machine.filter_wish.on_missing,
    }
