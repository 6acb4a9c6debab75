"""One reader of a node's events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from shardwire.channel.hooks import is_ours
from shardwire.channel.receiving.node_events import fault_of
from shardwire.node.protocol import (
    ConnectionState,
    ConnectionStatus,
    MessagePropagated,
    MessageReceived,
    MessageSendError,
    NodeEvent,
)
from shardwire.testing.promises import Trial, raised

E = TypeVar("E", bound=NodeEvent)


class Reader:
    """Reads one iterator of a node in a task, and looks at each event as it comes.

    Args:
        trial: Told what an event breaks.
        node: Whose events.

    Attributes:
        events: What came so far.
        ended: Whether the iterator has ended.
        may_end: Whether the node was told to stop.
    """

    def __init__(self, trial: Trial, node: Any) -> None:
        self.events: list[NodeEvent] = []
        self.ended = False
        self.may_end = False
        self._trial = trial
        # What was broken: the promise, what was expected, and what came.
        self._broken: tuple[str, str, str] | None = None
        self._news = asyncio.Event()
        self._outcomes: dict[str, type[NodeEvent]] = {}
        self._state: ConnectionState | None = None
        iterator: Any = node.events()
        if not hasattr(iterator, "__aiter__"):
            if asyncio.iscoroutine(iterator):
                iterator.close()
            raise trial.breaks("events", "an async iterator of events()", f"a {type(iterator).__name__}")
        self._task = asyncio.create_task(self._read(iterator))

    def all_of(self, kind: type[E]) -> list[E]:
        """What came so far of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def happened(self) -> list[NodeEvent]:
        """What came so far, but for how the node is connected: a new iterator may begin with that."""
        return [event for event in self.events if not isinstance(event, ConnectionStatus)]

    def outcomes(self, request_id: str) -> list[MessagePropagated | MessageSendError]:
        """What was told so far of whether a request left."""
        told: list[MessagePropagated | MessageSendError] = [
            *self.all_of(MessagePropagated),
            *self.all_of(MessageSendError),
        ]
        return [event for event in told if event.request_id == request_id]

    def received(self, payload: bytes) -> list[MessageReceived]:
        """The arrivals of a payload so far."""
        return [event for event in self.all_of(MessageReceived) if event.envelope.payload == payload]

    @property
    def state(self) -> ConnectionState | None:
        """What the last `ConnectionStatus` told; None where there was none."""
        return self._state

    def require_sound(self) -> None:
        """Reports what an event has broken so far.

        Raises:
            BrokenPromiseError: An event broke a promise, or the iterator has ended.
        """
        if self._broken is not None:
            raise self._trial.breaks(*self._broken)

    async def until(self, condition: Callable[[], bool], timeout_ms: int) -> bool:
        """Waits for something that an event brings; whether it came in time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not condition():
                    self.require_sound()
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return condition()
        self.require_sound()
        return True

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _read(self, iterator: AsyncIterator[NodeEvent]) -> None:
        try:
            async for event in iterator:
                self._look_at(event)
                self.events.append(event)
                self._news.set()
            if not self.may_end:
                self._breaks("events-go-on", "that an iterator goes on until the node stops", "its end")
        except BaseException as error:
            if is_ours(error):
                raise
            self._breaks("events", "an event", raised(error))
        finally:
            self.ended = True
            self._news.set()

    def _look_at(self, event: object) -> None:
        if not isinstance(event, NodeEvent):
            self._breaks("events", "an event of shardwire.node", f"a {type(event).__name__}")
        elif (fault := fault_of(event)) is not None:
            self._breaks("events", "a well-formed event", fault)
        elif isinstance(event, MessagePropagated):
            before = self._outcomes.setdefault(event.request_id, MessagePropagated)
            if before is MessageSendError:
                self._breaks("failed-for-good", "nothing further", "MessagePropagated after MessageSendError")
            elif self.outcomes(event.request_id):
                self._breaks("propagated-once", "MessagePropagated once", "another one for the same request")
        elif isinstance(event, MessageSendError):
            self._outcomes[event.request_id] = MessageSendError
        elif isinstance(event, ConnectionStatus):
            if event.state is self._state:
                self._breaks("connection-status", "a change", f"{event.state.value} twice")
            self._state = event.state

    def _breaks(self, promise: str, expected: str, came: str) -> None:
        if self._broken is None:
            self._broken = promise, expected, came
