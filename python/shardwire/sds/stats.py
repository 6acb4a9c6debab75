"""Sizes of what a machine holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel


def stats_of(machine: MessageChannel) -> dict[str, int]:
    """How many of each kind `machine` holds."""
    outgoing, incoming = machine.outgoing, machine.incoming
    return {
        "log": len(machine.log.entries),
        "outgoing_queued": outgoing.queue.contents,
        "outgoing_queued_bytes": outgoing.queue.bytes,
        "outgoing_unacknowledged": len(outgoing.unacknowledged),
        "outgoing_in_store": len(outgoing.waiting_in_store),
        "incoming_sends": len(incoming.sends),
        "incoming_contents": incoming.contents_held,
        "missing": len(incoming.gaps.missing.by_id),
        "lost": len(incoming.gaps.lost),
        "unsaid_acknowledgements": len(machine.acknowledgements),
        "repair_requests": machine.repair.requests_held,
        "repair_answers": len(machine.repair.answers.by_id),
        "participants": len(machine.participants.heard_ms),
    }
