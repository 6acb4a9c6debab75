"""What of a channel can be watched closer than by its events: segments, SDS messages, measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardwire.channel.observing.metrics import MeasurementObserver
from shardwire.channel.observing.subscriptions import Unsubscribe, check_observer
from shardwire.channel.observing.timeline import Observer, SdsObserver

if TYPE_CHECKING:
    from shardwire.channel.session import Session


class Observed:
    """The part of `ReliableChannel` that tells observers."""

    _session: Session

    def _check(self, observer: object) -> None:
        self._session.subscriptions.require_thread()
        check_observer(observer)

    def observe(self, observer: Observer) -> Unsubscribe:
        """Tells `observer` what happens to single segments, at once and in the channel's own task: it must be quick.

        Returns:
            A function that ends it.

        Raises:
            ConfigError: `observer` cannot be called with one argument or is `async`, or the caller runs in another
                thread.
        """
        self._check(observer)
        return self._session.engine.timeline.observe(observer)

    def observe_sds(self, observer: SdsObserver) -> Unsubscribe:
        """Tells `observer` of every SDS message that leaves and arrives: its kind, sender, place and causal history.

        Called at once and in the channel's own task: it must be quick. A message is told before its segment.

        Returns:
            A function that ends it.

        Raises:
            ConfigError: `observer` cannot be called with one argument or is `async`, or the caller runs in another
                thread.
        """
        self._check(observer)
        return self._session.engine.timeline.observe_sds(observer)

    def measure(self, observer: MeasurementObserver) -> Unsubscribe:
        """Tells `observer` how long things take and how large they are (`METRICS` names what), for histograms.

        Called at once and in the channel's own task: it must be quick. Sends made before are not followed. Counters
        come from `stats()`.

        Returns:
            A function that ends it.

        Raises:
            ConfigError: `observer` cannot be called with one argument or is `async`, or the caller runs in another
                thread.
        """
        self._check(observer)
        return self._session.engine.meter.observe(observer)
