"""What the node was handed, until it has said what became of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from shardwire._native import DISPATCHES_MAX
from shardwire.channel.sending.outcomes import DispatchFailed, DispatchOutcome, Propagated, Stored
from shardwire.node.protocol import MessageSendError
from shardwire.sds import Transmit, TransmitKind

# Outcomes that may arrive before the node's `send` has returned the id they are for. On a shared node most of those
# unknown to us belong to other channels.
EARLY_OUTCOMES_MAX = 1_000
# Messages in the network of which a node may yet say that a store has them.
UNSTORED_MAX = 10_000
# Kinds that carry a content of a send.
CONTENTS = (TransmitKind.FIRST, TransmitKind.FURTHER, TransmitKind.RETRANSMISSION)


class Requests:
    """The node's requests of one channel.

    Args:
        report: Told the outcome of every transmit, once, and of every content that a store has.
    """

    def __init__(self, report: Callable[[DispatchOutcome | Stored], None]) -> None:
        self._report = report
        # What the node has yet to answer for, oldest first.
        self._transmits: OrderedDict[str, Transmit] = OrderedDict()
        # Contents that reached the network, until a store has them, oldest first.
        self._unstored: OrderedDict[str, Stored] = OrderedDict()
        self._sending = False
        self._early: OrderedDict[str, list[Callable[[], None]]] = OrderedDict()

    def begin(self) -> None:
        """`send` of the node is called: an outcome of an unknown request may be about this one."""
        self._sending = True

    def add(self, request_id: str, transmit: Transmit) -> None:
        """`send` has returned the id under which the node answers."""
        self._transmits[request_id] = transmit
        if len(self._transmits) > DISPATCHES_MAX:
            # No more are awaited at once, and those that are given up are older than those that are awaited.
            self._transmits.popitem(last=False)
        for handle in self._early.pop(request_id, ()):
            handle()

    def end(self) -> None:
        """`send` has returned or raised."""
        self._sending = False
        self._early.clear()

    def clear(self) -> None:
        """Nobody waits for an answer any longer."""
        self._transmits.clear()
        self._unstored.clear()

    def on_propagated(self, request_id: str, message_hash: bytes) -> None:
        """The node says that a request reached the network."""
        transmit = self._transmits.pop(request_id, None)
        if transmit is not None:
            if transmit.kind in CONTENTS and transmit.send_id is not None and transmit.ordinal is not None:
                self._unstored[request_id] = Stored(transmit.send_id, transmit.ordinal)
                if len(self._unstored) > UNSTORED_MAX:
                    self._unstored.popitem(last=False)
            self._report(Propagated(transmit, message_hash))
        elif self._sending:
            self._remember_early(request_id, lambda: self.on_propagated(request_id, message_hash))

    def on_stored(self, request_id: str, message_hash: bytes) -> None:
        """The node says that a store has what was sent under a request, so that it reached the network too."""
        if request_id in self._transmits:
            self.on_propagated(request_id, message_hash)
        stored = self._unstored.pop(request_id, None)
        if stored is not None:
            self._report(stored)
        elif self._sending:
            self._remember_early(request_id, lambda: self.on_stored(request_id, message_hash))

    def on_send_error(self, error: MessageSendError) -> None:
        """The node says that it does not try a request again."""
        transmit = self._transmits.pop(error.request_id, None)
        if transmit is not None:
            self._report(DispatchFailed(transmit, error.error, error.permanent, retry_after_ms=error.retry_after_ms))
        elif self._sending:
            self._remember_early(error.request_id, lambda: self.on_send_error(error))

    def _remember_early(self, request_id: str, handle: Callable[[], None]) -> None:
        self._early.setdefault(request_id, []).append(handle)
        if len(self._early) > EARLY_OUTCOMES_MAX:
            self._early.popitem(last=False)
