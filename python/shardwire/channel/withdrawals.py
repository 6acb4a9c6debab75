"""Messages whose `send` was cancelled."""

from __future__ import annotations

from shardwire.channel.driver import Driver
from shardwire.channel.engine import Engine
from shardwire.node.clock import Clock
from shardwire.sds import Now, Transmit, TransmitKind

_NEW = (TransmitKind.FIRST, TransmitKind.FURTHER)


class Withdrawals:
    """Stops a withdrawn message at once, although the engine hears of it only in the next cycle.

    Args:
        driver: Tells the engine.
        engine: Forgets the message.
        clock: When messages leave.
    """

    def __init__(self, driver: Driver, engine: Engine, clock: Clock) -> None:
        self._driver = driver
        self._engine = engine
        self._clock = clock
        # Requests that the engine was not told of yet, and their sends.
        self._send_ids: dict[str, str] = {}

    def add(self, request_id: str, send_id: str) -> None:
        """The caller of `send` was cancelled, perhaps while the message was being stored."""

        def withdraw(now: Now) -> None:
            self._send_ids.pop(request_id, None)
            self._engine.withdraw(request_id, now)

        self._send_ids[request_id] = send_id
        self._driver.post(withdraw)

    def may_leave(self, transmit: Transmit) -> bool:
        """Whether a transmit may leave now. If so, the machine takes it for left."""
        if self._send_ids and (transmit.kind in _NEW or transmit.send_id in self._send_ids.values()):
            # A new content may name one of these in its history; it is encoded again once the engine knows.
            return False
        return self._engine.machine.leave(transmit.transmit_id, self._clock.monotonic_ms())
