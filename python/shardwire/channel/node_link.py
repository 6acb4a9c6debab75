"""What runs between a channel and its node while the channel is started."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

from shardwire.channel.arguments import ChannelArguments
from shardwire.channel.hooks import end_tasks, finish_call, is_ours
from shardwire.channel.outflow import Outflow
from shardwire.channel.receiving.reception import EventsError, Reception
from shardwire.channel.receiving.retrieval import Retrieval
from shardwire.channel.topics import acquire_topic, release_topic
from shardwire.errors import ConfigError, NodeError, ShardwireError
from shardwire.node.event_stream import EventStream
from shardwire.node.protocol import ConnectionState, NodeEvent
from shardwire.quoting import one_line, quoted

logger = logging.getLogger(__name__)

# After an events() iterator that raised, the node is asked for another one after this long, doubled with each that
# raises before it gives anything.
EVENTS_PAUSE_MS_MIN = 1_000
EVENTS_PAUSE_MS_MAX = 60_000


class NodeLink:
    """The subscription of one channel, its iterator of events, and the tasks that send, receive and retrieve.

    Args:
        arguments: Of the channel: its content topic is subscribed while it is started.
        outflow: Sends.
        reception: Receives.
        retrieval: Asks the store.
        on_connection: Told when the events of the node fail, and when they come again.
        on_task_done: Told of every task that ends.
        count: Counts what failed, by name.
    """

    def __init__(
        self,
        arguments: ChannelArguments,
        outflow: Outflow,
        reception: Reception,
        retrieval: Retrieval,
        on_connection: Callable[[ConnectionState], None],
        on_task_done: Callable[[asyncio.Task[None]], None],
        count: Callable[[str], None],
    ) -> None:
        self._node = arguments.node
        self._channel_id = arguments.channel_id
        self._content_topic = arguments.content_topic
        self._outflow = outflow
        self._reception = reception
        self._retrieval = retrieval
        self._on_connection = on_connection
        self._on_task_done = on_task_done
        self._count = count
        self._events: AsyncIterator[NodeEvent] | None = None
        self._giving_up: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        # Whoever waits for them may be cancelled: the event loop itself refers to a task weakly.
        self._releasing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Subscribes, then sends, receives and retrieves.

        Raises:
            ConfigError: The node's `events()` gives no async iterator.
            NodeError: It raised, or the node could not subscribe.
        """
        try:
            self._events = self._open_events()
        except BaseException as error:
            if isinstance(error, ShardwireError) or is_ours(error):
                raise
            raise NodeError(f"events of the node raised {type(error).__name__}: {one_line(error)}") from error
        try:
            await self._subscribe()
        except BaseException:
            await self._close_events()
            raise
        self._tasks = [
            asyncio.create_task(work, name=f"shardwire {self._channel_id} {name}")
            for name, work in (
                *self._outflow.tasks(),
                ("reception", self._receive()),
                ("retrieval", self._retrieval.run()),
            )
        ]
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)

    def runs(self, task: asyncio.Task[None]) -> bool:
        """Whether a task is one of those that send, receive and retrieve, and was not told to end."""
        return task in self._tasks

    def give_up_starting(self) -> None:
        """Ends a `start` that waits for the node."""
        if self._giving_up is not None and not self._giving_up.done():
            self._giving_up.set_result(None)

    async def stop(self) -> None:
        """Ends all of that, whatever the node raises and however long it takes."""
        tasks, self._tasks = self._tasks, []
        await end_tasks(tasks)
        self._outflow.clear()
        await self._close_events()
        await self._release_topic()

    async def _subscribe(self) -> None:
        self._giving_up = giving_up = asyncio.get_running_loop().create_future()
        acquiring = asyncio.create_task(acquire_topic(self._node, self._content_topic))
        try:
            await asyncio.wait({acquiring, giving_up}, return_when=asyncio.FIRST_COMPLETED)
            if not acquiring.done():
                raise NodeError("subscribe of the node had not returned when the channel was closed")
            await acquiring
        except BaseException as error:
            await self._abandon(acquiring)
            if isinstance(error, ShardwireError) or is_ours(error):
                raise
            raise NodeError(f"subscribe of the node raised {type(error).__name__}: {error}") from error
        finally:
            self._giving_up = None

    async def _abandon(self, acquiring: asyncio.Task[None]) -> None:
        """Gives back the topic that nobody wants any longer, where the node has answered and if it does so yet."""
        answered = acquiring.done()
        acquiring.cancel()
        releasing = asyncio.create_task(self._release_acquired(acquiring))
        self._releasing.add(releasing)
        releasing.add_done_callback(self._releasing.discard)
        if answered:
            await asyncio.wait({releasing})

    async def _release_acquired(self, acquiring: asyncio.Task[None]) -> None:
        await asyncio.wait({acquiring})
        if not acquiring.cancelled() and acquiring.exception() is None:
            await self._release_topic()

    async def _release_topic(self) -> None:
        node, topic = self._node, self._content_topic
        await finish_call("unsubscribe of the node", lambda: release_topic(node, topic))

    def _open_events(self) -> AsyncIterator[NodeEvent]:
        events: Any = self._node.events()
        if not hasattr(events, "__aiter__"):
            if asyncio.iscoroutine(events):
                events.close()
            raise ConfigError(f"events() of the node gave a {type(events).__name__}: it must be an async iterator")
        if isinstance(events, EventStream):
            events.content_topic = self._content_topic
        return events  # type: ignore[no-any-return]

    async def _close_events(self) -> None:
        events, self._events = self._events, None
        aclose = getattr(events, "aclose", None)
        if aclose is not None:
            await finish_call("aclose of the node's events", aclose)

    async def _receive(self) -> None:
        """Reads what the node brings; an iterator that raises is replaced, and what it missed comes from a store."""
        pause_ms = EVENTS_PAUSE_MS_MIN
        while True:
            if self._events is not None:
                try:
                    if not await self._reception.run(self._events):
                        logger.warning(
                            "events() of the node ended and had given none: it must go on until the node stops; "
                            "channel %s sends and receives nothing before it is started again",
                            quoted(self._channel_id),
                        )
                    return
                except EventsError as error:
                    if error.events_read:
                        pause_ms = EVENTS_PAUSE_MS_MIN
                    self._note_failure(error.__cause__, pause_ms)
                await self._close_events()
            self._on_connection(ConnectionState.DISCONNECTED)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, EVENTS_PAUSE_MS_MAX)
            try:
                self._events = self._open_events()
            except BaseException as error:
                if is_ours(error):
                    raise
                self._note_failure(error, pause_ms)
            else:
                self._on_connection(ConnectionState.CONNECTED)

    def _note_failure(self, error: BaseException | None, pause_ms: int) -> None:
        self._count("node_events_failed")
        logger.error("events of the node raised %s: asked for again in %d ms", type(error).__name__, pause_ms)
