"""The short way of a send of one content: natively, on the containers of the machine's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardwire._native import SdsOutlet
from shardwire.config import SdsConfig
from shardwire.sds.heads import HEADS_MAX
from shardwire.sds.lamport import LAMPORT_MAX
from shardwire.sds.outgoing import PARTICIPANTS_PER_SEND_MAX
from shardwire.sds.outputs import TransmitKind
from shardwire.sds.sync_timer import AFTER_CONTENT_SENT

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel


def outlet_of(machine: MessageChannel, config: SdsConfig) -> SdsOutlet:
    """The native outlet of `machine`, whose parts are made and keep their containers from now on."""
    outgoing = machine.outgoing
    return SdsOutlet(
        machine.codec,
        machine.log,
        {
            "causal_history_size": config.causal_history_size,
            "heads_max": HEADS_MAX,
            "header_budget": machine.transmission.header_budget,
            "first_period_ms": outgoing.first_period_ms,
            "unacknowledged_max": config.outgoing_buffer_messages_max,
            "by_send": config.message_id == "send",
            "participants_max": PARTICIPANTS_PER_SEND_MAX,
            "quorum": outgoing.quorum if isinstance(outgoing.quorum, int) else None,
            "repairs": config.enable_repair,
        },
        outgoing,
        {"fresh": outgoing.queue.fresh, "started": outgoing.queue.started, "counts": outgoing.queue},
        {
            "sender_id": machine.sender_id,
            "heads": machine.heads.by_key,
            "delivered": machine.acknowledgements.delivered,
            "incomplete": machine.acknowledgements.incomplete,
            "bloom": machine.bloom.waiting,
            "upcoming": machine.repair.upcoming,
            "requests": machine.repair.requests.by_id,
        },
        machine.repair.originals,
        {
            "on_said": machine.acknowledgements.said,
            "on_acknowledged": outgoing.acknowledge,
            "events": machine.events,
        },
        _leaving(machine, config),
    )


def _leaving(machine: MessageChannel, config: SdsConfig) -> dict[str, Any]:
    """What a content moves when it leaves."""
    return {
        "counts": machine.transmission,
        "in_flight": machine.transmission.in_flight,
        "first": TransmitKind.FIRST,
        "lamport": machine.lamport,
        "lamport_unit_ms": machine.lamport.unit_ms,
        "lamport_max": LAMPORT_MAX,
        "filter": machine.bloom,
        "filter_interval_ms": config.bloom_interval_ms,
        "filter_due": machine.bloom.due,
        "acknowledgements": machine.acknowledgements,
        "sync_timer": machine.sync_timer,
        "sync_within_ms": machine.sync_timer.interval_ms * AFTER_CONTENT_SENT,
        "random": machine.sync_timer.random,
    }
