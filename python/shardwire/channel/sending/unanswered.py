"""Segments that a node may have taken and of which it has not said what became of them."""

from __future__ import annotations

from collections import OrderedDict

from shardwire._native import OwnSends
from shardwire.channel.sending.outcomes import DispatchFailed, DispatchOutcome
from shardwire.channel.sending.requests import DISPATCHES_MAX
from shardwire.sds.outputs import Transmit


class Unanswered:
    """Transmits that nobody waits for any longer, until the node answers all the same.

    Args:
        own_sends: Told how many a send has: while there are any, it is not known that nothing of it left.
    """

    def __init__(self, own_sends: OwnSends) -> None:
        self._own_sends = own_sends
        # By transmit. The number of its registration tells a send from another under the same id, begun after it was
        # cancelled.
        self._serials: OrderedDict[int, int | None] = OrderedDict()

    def add(self, transmit: Transmit) -> None:
        """It was handed to the node."""
        if transmit.send_id is None:
            return
        self._own_sends.on_unanswered(transmit.send_id)
        self._serials[transmit.transmit_id] = self._own_sends.serial_of(transmit.send_id)
        if len(self._serials) > DISPATCHES_MAX:
            # The oldest counts as unanswered for good.
            self._serials.popitem(last=False)

    def on_outcome(self, outcome: DispatchOutcome) -> None:
        """What the node says late."""
        serial = self._serials.pop(outcome.transmit.transmit_id, None)
        send_id = outcome.transmit.send_id
        if serial is None or send_id is None or self._own_sends.serial_of(send_id) != serial:
            return
        if isinstance(outcome, DispatchFailed) and not outcome.unanswered:
            self._own_sends.on_answered(send_id)
