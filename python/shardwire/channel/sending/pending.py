"""Our sends that are not settled, as the application sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardwire._native import OwnSends


@dataclass(frozen=True, slots=True)
class PendingSend:
    """A send that is not settled: neither delivered, nor cancelled, nor given up.

    Attributes:
        request_id: What `send` returned.
        message_id: Hex Keccak-256 of the payload.
        segments_total: Data and parity segments.
        segments_propagated: How many of them the network took.
        delivered_to: Participants that can reconstruct it.
        sent: Whether all of them were propagated, but for parity that can never be.
        stored: Whether a store has all of those: who is away finds them there.
    """

    request_id: str
    message_id: str
    segments_total: int
    segments_propagated: int
    delivered_to: frozenset[str]
    sent: bool
    stored: bool = False


def pending_sends(own_sends: OwnSends) -> Iterator[PendingSend]:
    """One for each request, the oldest send first; from any thread."""
    for send in own_sends.pending():
        for request_id in send.request_ids:
            yield PendingSend(
                request_id,
                send.message_id,
                send.content_count,
                send.propagated_count,
                frozenset(send.delivered_to),
                send.sent,
                send.is_stored,
            )
