"""The way out of a channel: encrypted, counted, handed to the node, and followed until the node has answered."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from shardwire.channel.arguments import ChannelArguments
from shardwire.channel.engine import Engine
from shardwire.channel.sending.dispatch import Dispatcher
from shardwire.channel.sending.message_sizes import MessageSizes
from shardwire.channel.sending.outcomes import DispatchOutcome, Stored
from shardwire.channel.sending.requests import Requests
from shardwire.channel.sending.sealing import Sealer
from shardwire.sds import Transmit


class Outflow:
    """Steps 3 to 5 of 003, Outgoing message processing.

    Args:
        arguments: Of the channel.
        sizes: How large messages may be.
        engine: Says whether the node is worth a try, and whether anybody waits for a transmit still.
        report: Told the outcome of every transmit, once, and of every content that a store has.

    Attributes:
        requests: Told what the node says.
    """

    def __init__(
        self,
        arguments: ChannelArguments,
        sizes: MessageSizes,
        engine: Engine,
        report: Callable[[DispatchOutcome | Stored], None],
    ) -> None:
        machine, monotonic_ms = engine.machine, arguments.clock.monotonic_ms

        def may_try() -> bool:
            return machine.may_try(monotonic_ms())

        def may_leave(transmit: Transmit) -> bool:
            return machine.leave(transmit.transmit_id, monotonic_ms())

        def is_wanted(transmit: Transmit) -> bool:
            return machine.is_handed_out(transmit.transmit_id)

        self.requests = Requests(report)
        self._dispatcher = Dispatcher(
            arguments.node,
            arguments.content_topic,
            arguments.envelope_meta,
            engine.quota,
            self.requests,
            may_try,
            may_leave,
            report,
        )
        self._sealer = Sealer(
            arguments.encryption, sizes, may_try, is_wanted, self._dispatcher.submit, report, engine.peer_log
        )

    def submit(self, transmit: Transmit) -> None:
        """Takes a transmit; everything it speaks of must be durable."""
        self._sealer.submit(transmit)

    def resume(self) -> None:
        """Looks again whether what is queued may be tried."""
        self._sealer.resume()
        self._dispatcher.resume()

    def clear(self) -> None:
        """Forgets what did not leave and what was not answered for; nobody waits for it any longer."""
        for part in (self._sealer, self._dispatcher, self.requests):
            part.clear()

    def tasks(self) -> tuple[tuple[str, Coroutine[Any, Any, None]], ...]:
        """What runs while the channel is started, by name."""
        return ("sealer", self._sealer.run()), ("dispatcher", self._dispatcher.run())
