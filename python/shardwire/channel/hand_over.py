"""The last step of a received message: it is handed to the application, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shardwire._native import Delivery
from shardwire.channel.driver import Driver
from shardwire.channel.engine import Engine
from shardwire.channel.observing.subscriptions import IsEnding, Subscriptions
from shardwire.events import MessageReceivedEvent
from shardwire.node.clock import Clock
from shardwire.sds import Now


class HandOver:
    """One task that hands over messages in their order.

    Args:
        driver: Told when a message is done.
        engine: Says which is next.
        subscriptions: Who takes them.
        clock: Measures how long that takes.
        is_stored: Whether what is done has to become durable before the next one begins.
        is_closed: Whether the channel closes: then none begins.
        is_ending: Whether cancellations are meant.
    """

    def __init__(
        self,
        driver: Driver,
        engine: Engine,
        subscriptions: Subscriptions,
        clock: Clock,
        is_stored: bool,
        is_closed: Callable[[], bool],
        is_ending: IsEnding,
    ) -> None:
        self._driver = driver
        self._engine = engine
        self._subscriptions = subscriptions
        self._clock = clock
        self._is_stored = is_stored
        self._is_closed = is_closed
        self._is_ending = is_ending
        # Waits for the next message; None while one is being handed over.
        self._next: asyncio.Future[Delivery] | None = None

    async def run(self) -> None:
        """Hands over what there is, until the channel is closed."""
        loop, meter = asyncio.get_running_loop(), self._engine.meter
        while not self._is_closed():
            self._next = following = loop.create_future()
            self._driver.apply(self._go_on)
            delivery = await following
            since_ms = self._clock.monotonic_ms() if meter.observers else None
            event = MessageReceivedEvent(
                delivery.payload, delivery.sender_id, delivery.message_id, delivery.redelivered
            )
            await self._subscriptions.hand_over(event, self._is_ending)
            if since_ms is not None:
                meter.record("hand_over_ms", self._clock.monotonic_ms() - since_ms)
        # Done while the channel closes: the next life does not hand it over again.
        self._driver.post(lambda now: self._engine.machine.finish_delivery())

    def _go_on(self, now: Now) -> None:
        """The last message is done; the next begins with the commit that records that, or at once without a store."""
        self._engine.machine.finish_delivery()
        if not self._is_stored:
            self.take(self._engine.begin_delivery(self.may_begin, now))

    def take(self, delivery: Delivery | None) -> None:
        """Takes the next message, where one has begun."""
        if delivery is None or self._next is None:
            return
        # The channel may have closed while commits failed: then the next life hands this message over.
        if not self._next.done():
            self._next.set_result(delivery)
        self._next = None

    def may_begin(self) -> bool:
        """Whether somebody listens and the last message is done."""
        return self._next is not None and self._subscriptions.wants(MessageReceivedEvent) and not self._is_closed()
