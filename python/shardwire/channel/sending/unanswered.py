"""Segments that a node may have taken and of which it has not said what became of them."""

from __future__ import annotations

from collections import OrderedDict

from shardwire.channel.sending.outcomes import DispatchFailed, DispatchOutcome
from shardwire.channel.sending.outgoing import OutgoingSends
from shardwire.channel.sending.requests import DISPATCHES_MAX
from shardwire.channel.storing.records import SendRecord
from shardwire.sds.outputs import Transmit


class Unanswered:
    """Transmits that nobody waits for any longer, until the node answers all the same.

    Args:
        outgoing: Told how many a send has: while there are any, it is not known that nothing of it left.
    """

    def __init__(self, outgoing: OutgoingSends) -> None:
        self._outgoing = outgoing
        # The record tells a send from another under the same id, begun after it was cancelled.
        self._records: OrderedDict[int, SendRecord | None] = OrderedDict()

    def add(self, transmit: Transmit) -> None:
        """It was handed to the node."""
        if transmit.send_id is None:
            return
        self._outgoing.on_unanswered(transmit.send_id)
        self._records[transmit.transmit_id] = self._outgoing.record(transmit.send_id)
        if len(self._records) > DISPATCHES_MAX:
            # The oldest counts as unanswered for good.
            self._records.popitem(last=False)

    def on_outcome(self, outcome: DispatchOutcome) -> None:
        """What the node says late."""
        record = self._records.pop(outcome.transmit.transmit_id, None)
        send_id = outcome.transmit.send_id
        if record is None or send_id is None or self._outgoing.record(send_id) is not record:
            return
        if isinstance(outcome, DispatchFailed) and not outcome.unanswered:
            self._outgoing.on_answered(send_id)
