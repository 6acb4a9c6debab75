"""Segments that a node may have taken and of which it has not said what became of them."""

from __future__ import annotations

from collections import OrderedDict

from shardwire.channel.dispatch import DISPATCHES_MAX, DispatchFailed, DispatchOutcome
from shardwire.channel.outgoing import OutgoingSends
from shardwire.sds.outputs import Transmit


class Unanswered:
    """Transmits that nobody waits for any longer, until the node answers all the same.

    Args:
        outgoing: Told how many a send has: while there are any, it is not known that nothing of it left.
    """

    def __init__(self, outgoing: OutgoingSends) -> None:
        self._outgoing = outgoing
        self._send_ids: OrderedDict[int, str] = OrderedDict()

    def add(self, transmit: Transmit) -> None:
        """It was handed to the node."""
        if transmit.send_id is None:
            return
        self._outgoing.on_unanswered(transmit.send_id)
        self._send_ids[transmit.transmit_id] = transmit.send_id
        if len(self._send_ids) > DISPATCHES_MAX:
            # The oldest counts as unanswered for good.
            self._send_ids.popitem(last=False)

    def on_outcome(self, outcome: DispatchOutcome) -> None:
        """What the node says late."""
        send_id = self._send_ids.pop(outcome.transmit.transmit_id, None)
        if send_id is not None and isinstance(outcome, DispatchFailed) and not outcome.unanswered:
            self._outgoing.on_answered(send_id)
