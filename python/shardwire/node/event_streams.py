"""The readers of one node's events."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Sequence

from shardwire.node.event_stream import EventStream
from shardwire.node.protocol import MessageReceived, NodeEvent

logger = logging.getLogger(__name__)


class EventStreams:
    """Gives every event to every reader that wants it. A stream that nobody holds any longer is forgotten.

    Args:
        name: Names the node in the log.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._streams: list[weakref.ref[EventStream]] = []
        # What is given in the loop's next step, and to whom.
        self._soon: list[tuple[list[EventStream], Sequence[NodeEvent]]] = []

    def open(self) -> EventStream:
        """A further reader: it gets every event from now on."""
        stream = EventStream()
        self._streams.append(weakref.ref(stream))
        return stream

    def put(self, *events: NodeEvent, content_topic: str | None = None) -> None:
        """Gives these events to every reader, or only to those who want a content topic: it was sent to."""
        _put(self._wanting(content_topic), events)

    def put_soon(self, *events: NodeEvent, content_topic: str | None = None) -> None:
        """Gives these events to the present readers, likewise, in the loop's next step.

        By then whoever called `send` holds the request id.
        """
        if not self._soon:
            asyncio.get_running_loop().call_soon(self._put_soon)
        self._soon.append((self._wanting(content_topic), events))

    def _put_soon(self) -> None:
        soon, self._soon = self._soon, []
        for streams, events in soon:
            _put(streams, events)

    def put_received(self, message: MessageReceived) -> tuple[int, list[EventStream]]:
        """Gives a received message to every reader that wants its content topic.

        Returns:
            How many took it, and those without room for it.
        """
        taken = 0
        refusing: list[EventStream] = []
        for stream in self._wanting(message.envelope.content_topic):
            if stream.put(message):
                taken += 1
            else:
                refusing.append(stream)
                if stream.refused == 1:
                    logger.warning("%s: events are read too slowly, received messages are being lost", self._name)
        return taken, refusing

    def outcomes_full(self) -> bool:
        """Whether a reader left so many outcomes unread that no further send should be accepted."""
        return any(stream.outcomes_full() for stream in self.live())

    def backlog_bytes(self) -> int:
        """Payload bytes that wait for the slowest reader."""
        return max((stream.received_bytes for stream in self.live()), default=0)

    def end(self) -> None:
        """Lets every reader take what is queued, then stops its iteration."""
        for stream in self.live():
            stream.end()

    def live(self) -> list[EventStream]:
        """The readers that still exist."""
        if len(self._streams) == 1 and (only := self._streams[0]()) is not None:
            # By far the most; this runs for every copy of every message.
            return [only]
        streams = [stream for reference in self._streams if (stream := reference()) is not None]
        if len(streams) < len(self._streams):
            self._streams = [weakref.ref(stream) for stream in streams]
        return streams

    def _wanting(self, content_topic: str | None) -> list[EventStream]:
        if content_topic is None:
            return self.live()
        return [stream for stream in self.live() if stream.content_topic in (None, content_topic)]


def _put(streams: list[EventStream], events: Sequence[NodeEvent]) -> None:
    for stream in streams:
        for event in events:
            stream.put(event)
