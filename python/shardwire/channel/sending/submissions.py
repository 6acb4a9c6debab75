"""A message on its way into the channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardwire.channel.sending.segmenter import Prepared

Settled = Callable[[Exception | None], None]


@dataclass(slots=True)
class Submission:
    """A segmented message on its way into the channel.

    Attributes:
        send_id: Its send.
        request_id: What `send` returns.
        prepared: Its segments; none of a message that can never be sent.
        settled: Called once: with None when the message is durable, with an error where it is refused.
        submitted_ms: Monotonic time at which it came.
    """

    send_id: str
    request_id: str
    prepared: Prepared
    settled: Settled
    submitted_ms: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.prepared.contents))
