"""Tells what holds messages back: the rate limit once an epoch, a hold of the node once for each time that it names, a
failing node when it begins to fail and when it takes messages again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from shardwire._native import ChannelMachine, NodeFailing, NodeHolds, NodeRecovered, TransmitFailed
from shardwire.channel.limits.quota import Quota
from shardwire.events import ChannelEvent, NodeFailingEvent, RateLimitEvent
from shardwire.peer_log import PeerLog
from shardwire.quoting import one_line, quoted
from shardwire.sds import Now, TransmitKind

logger = logging.getLogger(__name__)


class LimitNotices:
    """Turns what holds messages back into `RateLimitEvent`, `NodeFailingEvent` and lines of the log.

    Args:
        machine: Says how much waits, and how much is prepared to leave.
        quota: The rate limits.
        peer_log: Told of messages of others that did not leave.
        tell: Given each event.
    """

    def __init__(
        self, machine: ChannelMachine, quota: Quota, peer_log: PeerLog, tell: Callable[[ChannelEvent], None]
    ) -> None:
        self._machine = machine
        self._quota = quota
        self._peer_log = peer_log
        # The latest announcement: when more may leave, and whether the clock stood before an epoch that was counted.
        self._announced = -1, False
        self._tell = tell

    def on_limited(self, holds_contents: bool, now: Now) -> None:
        """Something waits for the rate limit; acknowledgements that alone wait for their turn are not told of."""
        if not self._quota.enabled or (not holds_contents and self._quota.allows(TransmitKind.FIRST, now.epoch_ms)):
            return
        behind_ms = self._quota.behind_ms(now.epoch_ms)
        status = self._quota.status(now.epoch_ms)
        resets_at_ms = status.resets_at_ms
        if behind_ms:
            allowances = self._quota.allowances(now.epoch_ms)
            resets_at_ms = self._quota.reopens_at_ms(TransmitKind.FIRST, allowances, now.epoch_ms)
        if (resets_at_ms, behind_ms > 0) == self._announced:
            return
        self._announced = resets_at_ms, behind_ms > 0
        self._tell_limit(resets_at_ms, now, behind_ms)
        if behind_ms:
            logger.warning(
                "the clock stands %d ms before an epoch of the rate limit that was counted already: only "
                "acknowledgements leave until it is there; set it right",
                behind_ms,
            )

    def _tell_limit(self, resets_at_ms: int, now: Now, behind_ms: int = 0) -> None:
        """Everything waits until a time."""
        waiting = self._machine.waiting()
        queued = waiting[TransmitKind.FIRST] + waiting[TransmitKind.FURTHER]
        status = self._quota.status(now.epoch_ms)
        # What is prepared to leave has its place, but for what others take before it.
        used = min(status.total, status.used + self._machine.unplaced)
        self._tell(RateLimitEvent(used, status.total, resets_at_ms, queued, behind_ms))

    def on_held(self, event: NodeHolds, now: Now) -> None:
        """The node refuses everything until a time that it named."""
        logger.warning("the node takes nothing for %d ms, everything waits: %s", event.hold_ms, one_line(event.error))
        self._tell_limit(now.epoch_ms + event.hold_ms, now)

    def on_transmit_failed(self, event: TransmitFailed) -> None:
        """A message did not leave. While the node fails, that is logged at level debug: its failing is told once."""
        # A repair is somebody else's message, for somebody else who asked for it.
        tell = self._peer_log.tell if event.kind is TransmitKind.REPAIR else logger.warning
        (logger.debug if event.of_node else tell)(
            "message %s was not sent: %s", quoted(event.message_id), one_line(event.error)
        )

    def on_node(self, event: NodeFailing | NodeRecovered) -> None:
        """The node failed several times in a row, or takes messages again."""
        if isinstance(event, NodeFailing):
            self._tell(NodeFailingEvent(True, event.failures, event.error))
            return
        logger.info("the node takes messages again, after %d failures", event.failures)
        if event.told:
            self._tell(NodeFailingEvent(False, 0, ""))
