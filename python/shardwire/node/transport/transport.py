"""What a transport has to do for a `TransportNode`, and what it may tell it meanwhile."""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Container, Mapping

from shardwire._native import WakuMessage, message_hash
from shardwire.errors import ConfigError, NodeError
from shardwire.node.clock import Clock
from shardwire.node.event_streams import EventStreams
from shardwire.node.protocol import (
    ConnectionState,
    ConnectionStatus,
    MessageEnvelope,
    MessageReceived,
    MessagesMissed,
    NodeConfig,
    StorePage,
    StoreQuery,
)
from shardwire.node.transport.answers import Answer
from shardwire.node.transport.message import OutgoingMessage
from shardwire.node.transport.stamps import Stamps
from shardwire.quoting import one_line

logger = logging.getLogger(__name__)

# A background task that raised runs again after this long, doubled with each that raises soon again.
WORK_PAUSE_MS_MIN = 1_000
WORK_PAUSE_MS_MAX = 30_000
_TIMESTAMP_NS_LIMIT = 1 << 63


class TransportLink:
    """A transport's side of its node: what it tells, and what it may ask.

    Made by the node and given to `Transport.connect`. All of it is called on the event loop that runs the node: from
    another thread, such as one that reads a serial line, by its `call_soon_threadsafe`. What tells something raises
    `NodeError` in another thread.

    Attributes:
        config: Configuration of the node.
        clock: Both times; a transport reads no other.
        counts: How often something happened, by name; shown by `TransportNode.counts`.
    """

    def __init__(
        self,
        name: str,
        config: NodeConfig,
        clock: Clock,
        streams: EventStreams,
        stamps: Stamps,
        topics: Mapping[str, str],
        resume: Callable[[], None],
        hold: Callable[[int, str], None],
    ) -> None:
        self.config = config
        self.clock = clock
        self.counts: dict[str, int] = {}
        self._name = name
        self._streams = streams
        self._stamps = stamps
        self._topics = topics
        self._resume = resume
        self._hold = hold
        self._state = ConnectionState.DISCONNECTED
        self._max_message_size_bytes = config.max_message_size_bytes
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.get_ident()

    @property
    def topics(self) -> Mapping[str, str]:
        """Subscribed content topics and their pubsub topics, as they are now."""
        return self._topics

    @property
    def state(self) -> ConnectionState:
        """How well the transport is connected: what its last call of `connection` said."""
        return self._state

    @property
    def max_message_size_bytes(self) -> int:
        """Largest encoded WakuMessage that the transport carries now."""
        return self._max_message_size_bytes

    @max_message_size_bytes.setter
    def max_message_size_bytes(self, size_bytes: int) -> None:
        self._require_thread("max_message_size_bytes")
        if size_bytes < 1:
            raise NodeError(f"max_message_size_bytes is {size_bytes}: the server must carry messages of some size")
        self._max_message_size_bytes = size_bytes

    def connection(self, state: ConnectionState, reason: str = "", *, wanted: bool = False) -> None:
        """Says how the connection is. Only a change is told to readers, and logged once with its reason.

        Args:
            state: How it is now.
            reason: Why.
            wanted: Whether a user ended it, here or at the other end: nobody is warned of that.

        Raises:
            ConfigError: `state` is none.
        """
        if not isinstance(state, ConnectionState):
            raise ConfigError(f"state is a {type(state).__name__}: it must be a ConnectionState")
        self._require_thread("connection")
        previous, self._state = self._state, state
        if previous is state:
            return
        told = f": {one_line(reason)}" if reason else ""
        if state is ConnectionState.DISCONNECTED:
            logger.log(logging.INFO if wanted else logging.WARNING, "%s: disconnected%s", self._name, told)
        else:
            logger.info("%s: %s%s", self._name, state.value, told)
        self._streams.put(ConnectionStatus(state))
        if previous is ConnectionState.DISCONNECTED:
            self._resume()

    def hold(self, wait_ms: int, error: str) -> None:
        """Says that nothing will be published for so long, as when the server tells that a rate limit is used up."""
        self._require_thread("hold")
        self._hold(wait_ms, error)

    def missed(self, since_ns: int) -> None:
        """Says that messages since then may have passed by. Call it once they can be asked for again."""
        self._require_thread("missed")
        self.count("missed")
        self._streams.put(MessagesMissed(since_ns))

    @property
    def ours(self) -> Container[tuple[int, str]]:
        """(timestamp, content topic) of what this node sent, for readers of many messages; see `is_ours`."""
        return self._stamps.ours

    @property
    def backlog_bytes(self) -> int:
        """Payload bytes that wait for the slowest reader: a transport that fetches may fetch later."""
        return self._streams.backlog_bytes()

    def is_ours(self, content_topic: str, timestamp_ns: int) -> bool:
        """Whether a message with this topic and stamp was sent by this node: it need not even be decoded.

        The node itself hands what it published to its readers.
        """
        return self._stamps.is_ours(content_topic, timestamp_ns)

    def received(self, envelope: MessageEnvelope, timestamp_ns: int, pubsub_topic: str | None = None) -> bool:
        """Hands a message to the readers.

        Args:
            envelope: The message; types are the transport's to check, values are anybody's.
            timestamp_ns: Its stamp.
            pubsub_topic: Where it came from; None for where its content topic lies.

        Returns:
            False where it is ours, not subscribed, or its stamp is none; it is counted.
        """
        topic = envelope.content_topic
        subscribed = self._topics.get(topic)
        if subscribed is None:
            self.count("received_not_subscribed")
            return False
        if not -_TIMESTAMP_NS_LIMIT <= timestamp_ns < _TIMESTAMP_NS_LIMIT:
            self.count("received_malformed")
            return False
        if self._stamps.is_ours(topic, timestamp_ns):
            self.count("received_echoes")
            return False
        name = message_hash(
            pubsub_topic=subscribed if pubsub_topic is None else pubsub_topic,
            payload=envelope.payload,
            content_topic=topic,
            meta=envelope.meta or None,
            timestamp_ns=timestamp_ns,
        )
        self.count("received")
        self.deliver(MessageReceived(envelope, name, timestamp_ns))
        return True

    def received_encoded(
        self, data: bytes, pubsub_topic: str | None = None, *, content_topic: str | None = None
    ) -> bool:
        """Hands an encoded WakuMessage to the readers; one that is none is counted and dropped.

        So is one of another content topic than the given one: a server that lets its users publish to some topics only
        must not be got round by what a message says of itself.
        """
        message = WakuMessage.decode(data)
        if message is None:
            self.count("received_malformed")
            return False
        if content_topic is not None and message.content_topic != content_topic:
            self.count("received_misplaced")
            return False
        envelope = MessageEnvelope(message.content_topic, message.payload, bool(message.ephemeral), message.meta or b"")
        return self.received(envelope, message.timestamp_ns or 0, pubsub_topic)

    def deliver(self, message: MessageReceived) -> None:
        """Gives a message whose hash is known to the readers; one without room for it is told that it missed some."""
        self._require_thread("received")
        _, refusing = self._streams.put_received(message)
        for stream in refusing:
            self.count("received_refused")
            if not stream.missed_told:
                # By our clock: a stranger's stamp may be of any year.
                stream.missed_told = stream.put(MessagesMissed(self.clock.epoch_ns()))

    def count(self, name: str, number: int = 1) -> None:
        """Adds `number` to the counter called `name`, which `TransportNode.counts` shows."""
        self.counts[name] = self.counts.get(name, 0) + number

    def run(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Runs a background task until the node stops; one that raises is logged and begins again after a pause."""
        self._require_thread("run")
        task = asyncio.create_task(self._supervise(name, work), name=f"{self._name} {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def end_tasks(self) -> None:
        """Called by the node when it stops."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _require_thread(self, call: str) -> None:
        if threading.get_ident() != self._thread:
            # Readers on the loop would wake up late, or never, and find what is half done.
            raise NodeError(
                f"{call} of the link of {self._name} was called in another thread than that of its event loop: hand "
                "the call over with call_soon_threadsafe of the loop that runs in connect()"
            )

    async def _supervise(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        pause_ms = WORK_PAUSE_MS_MIN
        while True:
            begun_ms = self.clock.monotonic_ms()
            try:
                await work()
                return
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                error: BaseException | None = None
            except Exception as caught:
                error = caught
            if self.clock.monotonic_ms() - begun_ms > WORK_PAUSE_MS_MAX:
                pause_ms = WORK_PAUSE_MS_MIN
            raised = type(error).__name__ if error is not None else "CancelledError"
            logger.error("%s: %s raised %s, again in %d ms", self._name, name, raised, pause_ms, exc_info=error)
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, WORK_PAUSE_MS_MAX)


class Transport(ABC):
    """One way of carrying messages. A `TransportNode` does the rest: see "Write your own Node" in the guide.

    Attributes:
        name: For the log and for errors; holds no credentials.
        publishes_at_once: Calls of `publish` that may be under way at the same time.
        publish_timeout_ms: After which one is cancelled and counts as `Ambiguous`.
        has_store: Whether `query_store` can ever be answered; may change.
        asks_store_for_presence: Whether the node should ask that store, by hash, for what it published, since
            `Published.stored` does not tell.
    """

    name: str
    publishes_at_once: int = 1
    publish_timeout_ms: int = 10_000
    has_store: bool = False
    asks_store_for_presence: bool = False

    @abstractmethod
    async def connect(self, link: TransportLink) -> None:
        """Connects, and from then on keeps the connection by itself, telling `link` how it is.

        Raises:
            NodeError: The network cannot be used: the address is wrong, the server refuses us. What was begun is
                ended by `disconnect`, and it may be called again.
        """

    @abstractmethod
    async def disconnect(self) -> None:
        """Ends everything at once; called after `unsubscribe` of every topic, and after a `connect` that raised."""

    @abstractmethod
    async def subscribe(self, content_topic: str, pubsub_topic: str) -> None:
        """Lets messages of a topic come in. A network out of reach is no error: it subscribes once it can.

        Raises:
            NodeError: It can never be subscribed.
        """

    @abstractmethod
    async def unsubscribe(self, content_topic: str, pubsub_topic: str) -> None:
        """Ends that; within seconds, also where the network is out of reach."""

    @abstractmethod
    async def publish(self, message: OutgoingMessage) -> Answer:
        """Makes one attempt to publish, and says what its outcome means."""

    async def query_store(self, query: StoreQuery) -> StorePage:
        """Answers one page of what a store holds.

        Raises:
            NodeError: No store answered.
        """
        raise NodeError(f"{self.name} has no store")
