"""Events on their way to whoever listens; those of an earlier life wait until somebody does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shardwire.channel.collected import Outcome
from shardwire.channel.observing.subscriptions import Subscriptions
from shardwire.channel.waiters import DeliveryWaiters
from shardwire.events import ChannelEvent


class Announcements:
    """Tells events in the order in which they happened.

    Args:
        subscriptions: Who listens.
        waiters: Who waits for a delivery.
        on_announced: Told every outcome that the application was told.
    """

    def __init__(
        self, subscriptions: Subscriptions, waiters: DeliveryWaiters, on_announced: Callable[[Outcome], None]
    ) -> None:
        self._subscriptions = subscriptions
        self._waiters = waiters
        self._on_announced = on_announced
        self._held: list[tuple[ChannelEvent, Outcome | None]] = []
        self._is_heard = False

    def hold(self, events: list[tuple[ChannelEvent, Outcome | None]]) -> None:
        """Keeps what an earlier life did not tell."""
        self._held = events

    def announce(self, event: ChannelEvent, outcome: Outcome | None) -> None:
        if self._is_heard:
            self._announce_held()
        self._hand_out(event, outcome)

    def on_listened(self) -> None:
        """Somebody began to listen: what waited for that is told."""
        self._is_heard = True
        if self._held:
            # Not before the caller has subscribed to whatever else it wants to hear.
            asyncio.get_running_loop().call_soon(self._announce_held)

    def _announce_held(self) -> None:
        held, self._held = self._held, []
        for event, outcome in held:
            self._hand_out(event, outcome)

    def _hand_out(self, event: ChannelEvent, outcome: Outcome | None) -> None:
        self._waiters.on_event(event)
        if outcome is None:
            self._subscriptions.announce(event)
        elif self._subscriptions.wants(type(event)):
            self._subscriptions.announce(event, lambda: self._on_announced(outcome))
        else:
            self._on_announced(outcome)
