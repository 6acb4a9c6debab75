"""A node over any transport: the Messaging API, of which a transport does only what is its own."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Sequence
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from shardwire.config.checks import check_kind
from shardwire.errors import ConfigError, NodeError, PayloadTooLargeError, ShardwireError
from shardwire.node.clock import Clock, check_clock, running_clock
from shardwire.node.event_stream import EventStream
from shardwire.node.event_streams import EventStreams
from shardwire.node.lifetime import Lifetime
from shardwire.node.protocol import (
    ConnectionState,
    ConnectionStatus,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSendError,
    MessageSent,
    NodeConfig,
    RequestId,
    StorePage,
    StoreQuery,
)
from shardwire.node.transport.message import OutgoingMessage
from shardwire.node.transport.outbox import Outbox
from shardwire.node.transport.presence import StorePresence
from shardwire.node.transport.stamps import STAMP_OFFSET_NS_MAX, Stamps
from shardwire.node.transport.transport import Transport, TransportLink
from shardwire.node.waku_message import (
    META_BYTES_MAX,
    PubsubTopics,
    check_envelope,
    check_topics,
    encoded_size_bytes,
)
from shardwire.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

DRAIN_TIMEOUT_MS = 5_000
# What a transport may take to end a subscription or itself.
ENDING_CALL_S = 5.0


class TransportNode(Lifetime):
    """A `Node` over a `Transport`, used on one event loop.

    It accepts envelopes, stamps and hashes them, publishes them in order with retries, and tells each outcome once:
    `MessagePropagated`, or `MessageSendError` within 55 s of a message's turn. What it published it also hands to its
    own readers where they are subscribed, so that several channels may share it.

    Args:
        transport: How messages travel.
        config: Configuration of the node.
        clock: Both times; None for those of the running event loop.
        rng: Source of the part of a millisecond that all stamps of this node are late; None for an unpredictable one.
    """

    def __init__(
        self,
        transport: Transport,
        config: NodeConfig | None = None,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        given: object = transport
        if not isinstance(given, Transport):
            what = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
            raise ConfigError(f"transport is {what}: it must be an instance of a Transport")
        check_kind("config", config, NodeConfig)
        check_clock(clock)
        check_kind("rng", rng, random.Random)
        self.config = config or NodeConfig()
        self._transport = transport
        self._clock = clock
        self._stamp_offset_ns = (rng or random.SystemRandom()).randrange(STAMP_OFFSET_NS_MAX)
        self._streams = EventStreams(transport.name)
        # Content topic -> pubsub topic.
        self._subscriptions: dict[str, str] = {}
        self._pubsub_topics = PubsubTopics(self.config.cluster_id, self.config.num_shards_in_cluster)
        self._request_numbers = count(1)
        # Starting, stopping, subscribing and unsubscribing go one after the other.
        self._lock = asyncio.Lock()
        self._running: _Running | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._transport.name}>"

    # --- Node ---

    @property
    def max_message_size_bytes(self) -> int:
        """Largest encoded WakuMessage; the transport may change it, as its server says."""
        running = self._running
        return self.config.max_message_size_bytes if running is None else running.link.max_message_size_bytes

    @property
    def has_store(self) -> bool:
        """Whether `query_store` can ever be answered."""
        return self._transport.has_store

    async def start(self) -> None:
        """Connects; does nothing on a started node.

        Raises:
            NodeError: The network cannot be used, the node was stopped, or is started on another event loop. After the
                first it may be tried again.
        """
        async with self._lock:
            if self._stopped:
                raise NodeError(f"{self._transport.name} was stopped: create a new node")
            if self._running is not None:
                self._require_running("start")
                return
            running = _Running(self)
            try:
                await self._transport.connect(running.link)
            except BaseException as error:
                await self._end_call("disconnect", self._transport.disconnect())
                await running.link.end_tasks()
                if isinstance(error, ShardwireError) or not isinstance(error, Exception):
                    raise
                raise NodeError(f"{self._transport.name}: connect raised {type(error).__name__}: {error}") from error
            self._running = running
            running.start()

    async def stop(self, drain_timeout_ms: int = DRAIN_TIMEOUT_MS) -> None:
        """Publishes what waits, for `drain_timeout_ms` at most, unsubscribes, disconnects for good; `events()` end.

        What is left fails. It goes on though its caller is cancelled.

        Raises:
            NodeError: The node was started on another event loop, as in another thread.
        """
        if self._running is not None and not self._running.loop.is_closed():
            self._require_own_loop("stop", self._running)
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(drain_timeout_ms), name=f"{self._transport.name} stop")
        await asyncio.shield(self._stopping)

    async def subscribe(self, content_topics: Sequence[str]) -> None:
        """Receives messages of these topics from now on.

        Raises:
            NodeError: The node is not started, or on another event loop, or can never subscribe to a topic.
            ConfigError: A topic is not /[generation/]application/version/name/encoding.
        """
        check_topics(content_topics)
        topics = {topic: self._pubsub_topics.of(topic) for topic in content_topics}
        async with self._lock:
            self._require_running("subscribe")
            for topic, pubsub_topic in topics.items():
                if topic in self._subscriptions:
                    continue
                # First, so that what comes at once is not dropped.
                self._subscriptions[topic] = pubsub_topic
                try:
                    await self._transport.subscribe(topic, pubsub_topic)
                except BaseException:
                    del self._subscriptions[topic]
                    raise

    async def unsubscribe(self, content_topics: Sequence[str]) -> None:
        """Receives none of these topics any more.

        Raises:
            NodeError: The node is not started.
        """
        check_topics(content_topics)
        async with self._lock:
            self._require_running("unsubscribe")
            await self._unsubscribe(content_topics)

    async def send(self, envelope: MessageEnvelope) -> RequestId:
        """Accepts an envelope; waits, 30 s at most, while as much as may waits to be published already.

        Raises:
            NodeError: The node is not started or stops meanwhile, its outbox stays full, or nobody reads the events of
                earlier sends.
            PayloadTooLargeError: The encoded message is larger than `max_message_size_bytes`.
            ConfigError: It is no envelope, or its content topic or meta is malformed.
        """
        running = self._require_running("send")
        check_envelope(envelope)
        if len(envelope.meta) > META_BYTES_MAX:
            raise ConfigError(f"send: meta is {len(envelope.meta)} bytes, 14/WAKU2-MESSAGE allows {META_BYTES_MAX}")
        pubsub_topic = self._pubsub_topics.of(envelope.content_topic)
        size_bytes = encoded_size_bytes(envelope, running.clock.epoch_ns())
        if size_bytes > self.max_message_size_bytes:
            raise PayloadTooLargeError(
                f"send: the encoded message is {size_bytes} bytes, {self._transport.name} carries "
                f"{self.max_message_size_bytes}: send less in one message",
                size_bytes,
                self.max_message_size_bytes,
            )
        if self._streams.outcomes_full():
            raise NodeError(f"send: nobody reads the events of {self._transport.name}: read them or close the stream")
        await running.outbox.wait_for_room(len(envelope.payload))
        running = self._require_running("send")
        request_id = f"{self._transport.name} {next(self._request_numbers)}"
        running.outbox.add(
            OutgoingMessage(
                request_id, envelope, pubsub_topic, running.clock.monotonic_ms(), running.outbox.next_number()
            )
        )
        return request_id

    async def query_store(self, query: StoreQuery) -> StorePage:
        """Answers one page of what a store holds.

        Raises:
            NodeError: The node is not started, or no store answered.
            ConfigError: The query is malformed.
        """
        self._require_running("query_store")
        try:
            return await self._transport.query_store(query)
        except (ShardwireError, asyncio.CancelledError):
            raise
        except Exception as error:
            raise NodeError(f"{self._transport.name}: the store query raised {type(error).__name__}") from error

    def events(self) -> EventStream:
        """Every event from this call on; each call gives a stream of its own, bounded as `EventStream` says.

        The first event of a stream that begins while the node is not fully connected tells how it is.
        """
        stream = self._streams.open()
        if self._stopped:
            stream.end()
        elif self._running is not None and self._running.link.state is not ConnectionState.CONNECTED:
            stream.put(ConnectionStatus(self._running.link.state))
        return stream

    # --- views ---

    @property
    def name(self) -> str:
        """What it is called in logs and errors: where its server is, without credentials."""
        return self._transport.name

    @property
    def connection_state(self) -> ConnectionState:
        """How well the node is connected: what the last `ConnectionStatus` said."""
        return ConnectionState.DISCONNECTED if self._running is None else self._running.link.state

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The content topics that the node is subscribed to now."""
        return tuple(self._subscriptions)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often something happened since the start, by name."""
        if self._running is None:
            return MappingProxyType({})
        running = self._running
        return MappingProxyType({**running.link.counts, "publish_retries": running.outbox.retries})

    # --- details ---

    def _require_running(self, call: str) -> _Running:
        if self._running is None or self._stopping is not None:
            state = "is not started: await node.start() first" if self._stopping is None else "was stopped"
            raise NodeError(f"{call}: {self._transport.name} {state}")
        self._require_own_loop(call, self._running)
        return self._running

    def _require_own_loop(self, call: str, running: _Running) -> None:
        if asyncio.get_running_loop() is not running.loop:
            # What it runs waits on its own loop, which may have ended.
            raise NodeError(
                f"{call}: {self._transport.name} was started on another event loop than this one: start it where its "
                "channels are made, in one asyncio.run()"
            )

    async def _unsubscribe(self, content_topics: Sequence[str]) -> None:
        for topic in content_topics:
            pubsub_topic = self._subscriptions.pop(topic, None)
            if pubsub_topic is not None:
                await self._end_call("unsubscribe", self._transport.unsubscribe(topic, pubsub_topic))

    async def _stop(self, drain_timeout_ms: int) -> None:
        if self._running is not None:
            await self._running.outbox.drain(drain_timeout_ms)
        async with self._lock:
            running, self._stopped = self._running, True
            if running is not None:
                await running.outbox.stop(f"{self._transport.name} was stopped")
                await self._unsubscribe(tuple(self._subscriptions))
                await self._end_call("disconnect", self._transport.disconnect())
                await running.link.end_tasks()
                running.link.connection(ConnectionState.DISCONNECTED, "stopped", wanted=True)
                self._running = None
        # After the events that are already on their way to the readers.
        asyncio.get_running_loop().call_soon(self._streams.end)

    async def _end_call(self, what: str, call: Coroutine[Any, Any, None]) -> None:
        """Makes a call of the transport that ends something, and goes on whatever becomes of it."""
        try:
            async with asyncio.timeout(ENDING_CALL_S):
                await call
        except TimeoutError:
            logger.warning("%s: %s did not return within %g s", self._transport.name, what, ENDING_CALL_S)
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            told = one_line(error)
            logger.warning("%s: %s raised %s: %s", self._transport.name, what, type(error).__name__, told)


class _Running:
    """What a node has while it is started."""

    def __init__(self, node: TransportNode) -> None:
        transport = node._transport
        self.loop = asyncio.get_running_loop()
        self.clock = node._clock or running_clock()
        self._streams = node._streams
        self._transport = transport
        self._stamps = Stamps(self.clock, node._stamp_offset_ns)
        self.outbox = Outbox(
            transport.name,
            transport.publish,
            self.clock,
            self._stamps,
            lambda: self.link.max_message_size_bytes,
            self,
            publishes_at_once=transport.publishes_at_once,
            publish_timeout_ms=transport.publish_timeout_ms,
        )
        self._presence = StorePresence(transport.name, transport.query_store, self.clock, self._on_stored)
        self.link = TransportLink(
            transport.name,
            node.config,
            self.clock,
            node._streams,
            self._stamps,
            MappingProxyType(node._subscriptions),
            self.outbox.resume,
            self.outbox.hold,
        )

    def start(self) -> None:
        self.outbox.start()
        if self._transport.asks_store_for_presence:
            self.link.run("presence", self._presence.run)

    # --- OutcomeReport ---

    def on_published(self, message: OutgoingMessage, stored: bool) -> None:
        self.link.count("published")
        request_id, name, envelope = message.request_id, message.message_hash, message.envelope
        self._streams.put(MessagePropagated(request_id, name), content_topic=envelope.content_topic)
        if stored:
            self._on_stored(request_id, name, envelope.content_topic)
        elif self._transport.asks_store_for_presence and self._transport.has_store and not envelope.ephemeral:
            self._presence.add(request_id, name, envelope.content_topic)
        if self.link.topics.get(envelope.content_topic) == message.pubsub_topic:
            # Transports pass over what is ours; another channel of this node may wait for it.
            self.link.deliver(MessageReceived(envelope, name, message.timestamp_ns))

    def on_failed(
        self, message: OutgoingMessage, error: str, *, permanent: bool = False, retry_after_ms: int | None = None
    ) -> None:
        self.link.count("publish_failed")
        self._streams.put_soon(
            MessageSendError(message.request_id, error, message.message_hash or None, permanent, retry_after_ms),
            content_topic=message.envelope.content_topic,
        )

    def _on_stored(self, request_id: RequestId, message_hash: bytes, content_topic: str) -> None:
        self.link.count("stored")
        self._streams.put(MessageSent(request_id, message_hash), content_topic=content_topic)
