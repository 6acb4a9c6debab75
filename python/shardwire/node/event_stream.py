"""A node's events, one bounded queue for each reader."""

from __future__ import annotations

from collections import deque

from shardwire.node.protocol import MessageReceived, MessagesMissed, NodeEvent
from shardwire.node.wake import Wake

RECEIVED_MESSAGES_MAX = 10_000
RECEIVED_BYTES_MAX = 256 << 20
OUTCOMES_MAX = 100_000


class EventStream:
    """An async iterator over the events since it was made; it ends when its node stops.

    Received messages and everything else count apart, so that a flood of messages cannot displace the outcome of a
    send. What does not fit is refused: for a message that is a loss, which a reliable channel repairs.

    Attributes:
        refused: Events that did not fit so far.
        missed_told: Whether the reader will find a `MessagesMissed` for received messages that did not fit.
        content_topic: The only topic whose messages its reader wants, and what became of those sent to it; None for
            all. Others would wake it for nothing.
    """

    def __init__(self) -> None:
        self.refused = 0
        self.missed_told = False
        self.content_topic: str | None = None
        self._events: deque[NodeEvent] = deque()
        self._received_messages = 0
        self._received_bytes = 0
        self._ended = False
        self._wake = Wake()

    def put(self, event: NodeEvent) -> bool:
        """Queues an event for the reader; False where a limit or the end of the stream refuses it."""
        if self._ended:
            return False
        if isinstance(event, MessageReceived):
            received_bytes = self._received_bytes + len(event.envelope.payload)
            if self._received_messages >= RECEIVED_MESSAGES_MAX or received_bytes > RECEIVED_BYTES_MAX:
                self.refused += 1
                return False
            self._received_messages += 1
            self._received_bytes = received_bytes
        elif len(self._events) - self._received_messages >= OUTCOMES_MAX:
            self.refused += 1
            return False
        if not self._events:
            self._wake.set()
        self._events.append(event)
        return True

    @property
    def received_bytes(self) -> int:
        """Payload bytes of received messages that are queued."""
        return self._received_bytes

    def outcomes_full(self) -> bool:
        return len(self._events) - self._received_messages >= OUTCOMES_MAX

    def end(self) -> None:
        """Lets the reader take what is queued, then stops the iteration."""
        self._ended = True
        self._wake.set()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> NodeEvent:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        event = self._events.popleft()
        if isinstance(event, MessageReceived):
            self._received_messages -= 1
            self._received_bytes -= len(event.envelope.payload)
        elif isinstance(event, MessagesMissed):
            self.missed_told = False
        return event

    async def aclose(self) -> None:
        """Drops what is queued and ends the stream."""
        self._events.clear()
        self._received_messages = self._received_bytes = 0
        self.end()
