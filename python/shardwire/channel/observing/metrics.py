"""How long things take and how large they are, one measurement at a time, for histograms.

Counters and what is held now come from `ReliableChannel.stats()`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardwire.channel.hooks import observe_with, tell
from shardwire.channel.observing.metric_names import MetricName
from shardwire.sds import Now, Transmit, TransmitKind

if TYPE_CHECKING:
    from shardwire._native import Delivery
    from shardwire.channel.collected import Collected

logger = logging.getLogger(__name__)

# Sends that are followed until their outcome at most; of the oldest no more is measured.
FOLLOWED_SENDS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Measurement:
    """One observation of one metric.

    Attributes:
        name: A name of `MEASUREMENTS`.
        value: In the unit that the name ends with.
    """

    name: MetricName
    value: int


MeasurementObserver = Callable[[Measurement], None]


class Meter:
    """The observers of one channel's measurements; while there are none, nothing is measured.

    Attributes:
        observers: Those there are.
    """

    def __init__(self) -> None:
        self.observers: list[MeasurementObserver] = []
        # Send id -> when `send` was called, and whether an acknowledgement came.
        self._sends: OrderedDict[str, tuple[int, bool]] = OrderedDict()

    def observe(self, observer: MeasurementObserver) -> Callable[[], None]:
        """Adds an observer; the returned function removes it."""
        return observe_with(observer, self.observers)

    def record(self, name: MetricName, value: int) -> None:
        measurement = Measurement(name, value)
        tell(self.observers, measurement, "metrics", logger)

    def on_commit(self, value_bytes: int, elapsed_ms: int) -> None:
        self.record("commit_ms", elapsed_ms)
        self.record("commit_size_bytes", value_bytes)

    def on_collected(self, collected: Collected, now: Now) -> None:
        """One cycle is about to be committed."""
        for submission in collected.submissions:
            self.on_registered(submission.send_id, submission.size_bytes, submission.submitted_ms)
        for transmit in collected.transmits:
            self.on_dispatched(transmit, now)
        for _, outcome in collected.events:
            if outcome is not None:
                self.on_outcome(outcome[0], outcome[1], now)

    # --- what is received ---

    def on_delivery(self, delivery: Delivery, now: Now) -> None:
        """A received message is about to be handed over."""
        self.record("received_message_size_bytes", len(delivery.payload))
        if delivery.released_ms is not None:
            self.record("delivery_wait_ms", now.monotonic_ms - delivery.released_ms)

    # --- our sends ---

    def on_registered(self, send_id: str, size_bytes: int, submitted_ms: int) -> None:
        """A message is on its way; `send` was called at this monotonic time."""
        self.record("message_size_bytes", size_bytes)
        self._sends[send_id] = (submitted_ms, False)
        if len(self._sends) > FOLLOWED_SENDS_MAX:
            self._sends.popitem(last=False)

    def on_dispatched(self, transmit: Transmit, now: Now) -> None:
        """A message was handed to the node."""
        if transmit.ordinal is None or transmit.kind is TransmitKind.EPHEMERAL:
            return
        self.record("segment_size_bytes", len(transmit.payload))
        since = self._sends.get(transmit.send_id or "")
        if since is not None and not transmit.attempt:
            self.record("queue_wait_ms", now.monotonic_ms - since[0])

    def on_acknowledged(self, send_id: str, now: Now) -> None:
        since = self._sends.get(send_id)
        if since is not None and not since[1]:
            self._sends[send_id] = (since[0], True)
            self.record("acknowledged_ms", now.monotonic_ms - since[0])

    def on_outcome(self, send_id: str, outcome: str, now: Now) -> None:
        """A send is "sent", "delivered" or has ended with "error"."""
        since = self._sends.get(send_id)
        if since is None:
            return
        if outcome == "sent":
            self.record("sent_ms", now.monotonic_ms - since[0])
            return
        del self._sends[send_id]
        if outcome == "delivered":
            self.record("delivered_ms", now.monotonic_ms - since[0])
