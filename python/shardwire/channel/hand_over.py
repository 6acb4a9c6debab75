"""The last step of a received message: it is handed to the application, one at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from shardwire._native import Delivery
from shardwire.channel.driver import AT_ONCE_MAX, STEP_MS_MAX, Driver
from shardwire.channel.engine import Engine
from shardwire.channel.observing.subscriptions import IsEnding, Subscriptions
from shardwire.events import MessageReceivedEvent
from shardwire.node.clock import Clock
from shardwire.node.wake import Wake
from shardwire.sds import Now


class HandOver:
    """One task that hands over messages in their order.

    Args:
        driver: Told when a message is done.
        engine: Says which are next.
        subscriptions: Who takes them.
        clock: Measures how long that takes.
        is_stored: Whether that a message has begun has to become durable before it is handed over.
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
        # What has begun, for good, and waits for its turn; oldest first.
        self._begun: deque[Delivery] = deque()
        self._wake = Wake()
        # How many the application has at present.
        self._given = 0

    async def run(self) -> None:
        """Hands over what there is, until the channel is closed."""
        clock, meter = self._clock, self._engine.meter
        in_step, step_ms = 0, clock.monotonic_ms()
        while not self._is_closed():
            if not self._begun or in_step >= AT_ONCE_MAX or clock.monotonic_ms() - step_ms >= STEP_MS_MAX:
                await self._await_turn()
                in_step, step_ms = 0, clock.monotonic_ms()
                continue
            delivery = self._begun.popleft()
            event = MessageReceivedEvent(
                delivery.payload, delivery.sender_id, delivery.message_id, delivery.redelivered
            )
            since_ms = clock.monotonic_ms() if meter.observers else None
            self._given = 1
            await self._subscriptions.hand_over(event, self._is_ending)
            self._given = 0
            in_step += 1
            if since_ms is not None:
                meter.record("hand_over_ms", clock.monotonic_ms() - since_ms)
            self._driver.apply(self._go_on)

    async def _await_turn(self) -> None:
        """Waits for what comes next; where there is some, other tasks have the loop."""
        if self._begun:
            await asyncio.sleep(0)
        else:
            self._wake.clear()
            await self._wake.wait()

    def _go_on(self, now: Now) -> None:
        """The oldest message is done; further ones begin with the commit that records that, or at once without a store.

        Those that have begun wait for no commit.
        """
        self._engine.machine.finish_delivery()
        if not self._is_stored:
            self.take(self._engine.begin_deliveries(self.may_begin, now))

    def end(self, now: Now) -> None:
        """The channel ends: what was not given to the application comes in its next life as if it had not begun."""
        self._engine.machine.end_deliveries(self._given)

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """Takes the next messages, which have begun for good."""
        if deliveries:
            self._begun.extend(deliveries)
            self._wake.set()

    def may_begin(self) -> bool:
        """Whether somebody listens."""
        return self._subscriptions.wants(MessageReceivedEvent) and not self._is_closed()
