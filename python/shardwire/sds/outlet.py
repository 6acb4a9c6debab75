"""The short way of a send of one content: natively, on the containers of the machine's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardwire._native import SdsOutlet
from shardwire.config import SdsConfig
from shardwire.sds.heads import HEADS_MAX
from shardwire.sds.outgoing import PARTICIPANTS_PER_SEND_MAX
from shardwire.sds.outputs import ContentAcknowledged, SendAcknowledged

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
            "participants_max": PARTICIPANTS_PER_SEND_MAX,
            "quorum": outgoing.quorum if isinstance(outgoing.quorum, int) else None,
            "repairs": config.enable_repair,
        },
        outgoing,
        outgoing.queue,
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
            "emit": machine.emit,
            "content_acknowledged": ContentAcknowledged,
            "send_acknowledged": SendAcknowledged,
        },
    )
