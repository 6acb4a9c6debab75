"""A node of a `MemoryNetwork`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shardwire._native import message_hash
from shardwire.config.checks import check_kind
from shardwire.errors import NodeError
from shardwire.node.clock import Clock
from shardwire.node.conditions import NetworkConditions
from shardwire.node.event_stream import EventStream
from shardwire.node.event_streams import EventStreams
from shardwire.node.inbox import Inbox, Transit
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
    NodeEvent,
    RequestId,
    StorePage,
    StoreQuery,
)
from shardwire.node.trace import Outcome
from shardwire.node.waku_message import (
    META_BYTES_MAX,
    PubsubTopics,
    check_envelope,
    check_topics,
    encoded_size_bytes,
)

# Envelopes that wait until a neighbour is in reach, and how long they do (P2P-RELIABILITY as deployed).
OUTBOX_ENVELOPES_MAX = 1_024
PROPAGATION_TIMEOUT_MS = 60_000


@dataclass(slots=True)
class Outgoing:
    """An accepted envelope with everything that the network needs to carry it. Not frozen, as one is made for each."""

    request_id: RequestId
    envelope: MessageEnvelope
    pubsub_topic: str
    timestamp_ns: int
    message_hash: bytes
    size_bytes: int
    # As those who get it do.
    message: MessageReceived


class Surroundings(Protocol):
    """The part of `MemoryNetwork` that its nodes use."""

    transit: Transit

    @property
    def clock(self) -> Clock:
        """What stamps envelopes of nodes without a clock of their own."""

    @property
    def has_store(self) -> bool:
        """Whether it was made with a store."""

    def connections_changed(self) -> None:
        """Lets every node look at whom it reaches."""

    def reaches_store(self, node: MemoryNode, /) -> bool:
        """Whether the store is online and on the side of `node`."""

    def reaches_neighbour(self, node: MemoryNode, /) -> bool:
        """Whether any other connected node is on the side of `node`."""

    def next_request_id(self, node: MemoryNode, /) -> str:
        """A request id that no other request of this network has."""

    def next_timestamp_ns(self, clock: Clock, /) -> int:
        """The time, made unique in this network."""

    def transmit(self, sender: MemoryNode, outgoing: Outgoing, /) -> bool:
        """Carries an envelope to everyone in reach; whether the store took it."""

    def query_store(self, node: MemoryNode, query: StoreQuery, /) -> StorePage:
        """Answers a page of the store to `node`."""

    def draw_store_delay_ms(self) -> int:
        """How long the next answer of the store takes."""


class MemoryNode(Lifetime):
    """A `Node` in this process; made by `MemoryNetwork.create_node`, used on one event loop.

    `send` reports `MessagePropagated` once a connected node or the store is in reach, whether or not the network then
    loses the message, and `MessageSent` when the store took it. While nobody is in reach the envelope waits, for
    `PROPAGATION_TIMEOUT_MS` at most; then `MessageSendError`. A node hears its own messages where it is subscribed.

    Attributes:
        name: Its name in the network.
        config: Its configuration.
        max_message_size_bytes: Largest encoded WakuMessage it sends.
        send_fault: Called with every envelope; a text that it returns makes the send fail with that error, which
            passes, a `NodeError` one that is `permanent` or says when to try again, as it tells. None for no fault.
    """

    def __init__(self, network: Surroundings, name: str, config: NodeConfig, clock: Clock | None) -> None:
        self.name = name
        self.config = config
        self.max_message_size_bytes = config.max_message_size_bytes
        self._conditions: NetworkConditions | None = None
        self.send_fault: Callable[[MessageEnvelope], str | NodeError | None] | None = None
        self.inbox = Inbox(network.transit, self._deliver)
        self._network = network
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = False
        self._stopped = False
        self._online = True
        self._state = ConnectionState.DISCONNECTED
        # Content topic -> pubsub topic.
        self._subscriptions: dict[str, str] = {}
        self._pubsub_topics = PubsubTopics(config.cluster_id, config.num_shards_in_cluster)
        self._streams = EventStreams(f"node {name}")
        self._outbox: dict[RequestId, tuple[Outgoing, asyncio.TimerHandle]] = {}

    # --- Node ---

    @property
    def has_store(self) -> bool:
        """Whether the network was made with a store."""
        return self._network.has_store

    async def start(self) -> None:
        """Connects; does nothing on a started node.

        Raises:
            NodeError: The node was stopped, or was started on another event loop.
        """
        if self._stopped:
            raise NodeError(f"node {self.name!r} was stopped: create a new one under this name")
        self._require_own_loop("start")
        if not self._started:
            self._loop = asyncio.get_running_loop()
            self._started = True
            self._network.connections_changed()

    async def stop(self) -> None:
        """Disconnects for good: what is in flight or waits is lost, and `events()` end.

        Raises:
            NodeError: The node was started on another event loop, as in another thread.
        """
        if self._stopped:
            return
        self._require_own_loop("stop")
        self._stopped = True
        self._started = False
        self.inbox.clear()
        for _, timeout in self._outbox.values():
            timeout.cancel()
        self._outbox.clear()
        self._subscriptions.clear()
        self._network.connections_changed()
        # After the events that are already on their way to the readers.
        asyncio.get_running_loop().call_soon(self._streams.end)

    async def subscribe(self, content_topics: Sequence[str]) -> None:
        """Receives messages of these topics from now on.

        Raises:
            NodeError: The node is not started.
            ConfigError: A topic is not /[generation/]application/version/name/encoding.
        """
        check_topics(content_topics)
        self._require_started("subscribe")
        topics = {topic: self._pubsub_topics.of(topic) for topic in content_topics}
        self._subscriptions.update(topics)

    async def unsubscribe(self, content_topics: Sequence[str]) -> None:
        """Receives none of these topics any more.

        Raises:
            NodeError: The node is not started.
        """
        check_topics(content_topics)
        self._require_started("unsubscribe")
        for topic in content_topics:
            self._subscriptions.pop(topic, None)

    async def send(self, envelope: MessageEnvelope) -> RequestId:
        """Accepts an envelope; returns without waiting.

        Raises:
            NodeError: The node is not started, the encoded message or its meta is too large, too many envelopes wait
                for a connection, or nobody reads the events of earlier sends.
            ConfigError: It is no envelope, or its content topic is malformed.
        """
        self._require_started("send")
        outgoing = self._accept(envelope)
        fault = self.send_fault(envelope) if self.send_fault is not None else None
        if fault is not None:
            error = fault if isinstance(fault, NodeError) else NodeError(fault)
            self._streams.put_soon(
                MessageSendError(
                    outgoing.request_id, str(error), outgoing.message_hash, error.permanent, error.retry_after_ms
                ),
                content_topic=envelope.content_topic,
            )
        elif self._state is not ConnectionState.DISCONNECTED:
            self._transmit(outgoing)
        else:
            self._wait_for_connection(outgoing)
        return outgoing.request_id

    async def query_store(self, query: StoreQuery) -> StorePage:
        """Answers one page of at most 100 messages.

        Raises:
            NodeError: The node is not started or offline, no store is in reach, or the cursor is unknown.
            ConfigError: The query is malformed.
        """
        self._require_started("query_store")
        delay_ms = self._network.draw_store_delay_ms()
        if delay_ms:
            await asyncio.sleep(delay_ms / 1000)
        if not self.connected:
            raise NodeError(f"node {self.name!r} is offline: no store answered")
        return self._network.query_store(self, query)

    def events(self) -> EventStream:
        """Every event from this call on; each call gives a stream of its own, bounded as `EventStream` says."""
        stream = self._streams.open()
        if self._stopped:
            stream.end()
        return stream

    # --- faults ---

    @property
    def conditions(self) -> NetworkConditions | None:
        """Faults on the way to this node; None for the network's."""
        return self._conditions

    @conditions.setter
    def conditions(self, conditions: NetworkConditions | None) -> None:
        check_kind("conditions", conditions, NetworkConditions)
        self._conditions = conditions

    def go_offline(self) -> None:
        """Cuts the connection: nothing arrives, what is sent waits. Subscriptions stay."""
        self._set_online(False)

    def go_online(self) -> None:
        """Restores the connection that `go_offline` cut; what waited is sent."""
        self._set_online(True)

    # --- views ---

    @property
    def connected(self) -> bool:
        """Started and online, whether or not anyone else is."""
        return self._started and self._online

    @property
    def stopped(self) -> bool:
        """Whether the node was stopped: it does not start again, its name may be used again."""
        return self._stopped

    @property
    def connection_state(self) -> ConnectionState:
        """What the last `ConnectionStatus` said: `CONNECTED` with a neighbour and the store (where the network has
        one) in reach, `PARTIALLY_CONNECTED` with one of them."""
        return self._state

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The content topics that the node is subscribed to now."""
        return tuple(self._subscriptions)

    # --- called by the network ---

    def hears(self, pubsub_topic: str, content_topic: str) -> bool:
        """Whether a message with these topics is for this node."""
        return self._subscriptions.get(content_topic) == pubsub_topic

    def handle_connections_changed(self) -> None:
        """Called by the network: reports a changed connection, and sends what waited for one."""
        state = self._reachable_state()
        if state is not self._state:
            self._state = state
            self._streams.put_soon(ConnectionStatus(state))
        if state is not ConnectionState.DISCONNECTED and self._outbox:
            waiting = list(self._outbox.values())
            self._outbox.clear()
            for outgoing, timeout in waiting:
                timeout.cancel()
                self._transmit(outgoing)

    # --- details ---

    def _require_started(self, call: str) -> None:
        if not self._started:
            again = "was stopped: create a new one under this name"
            state = again if self._stopped else "is not started: await node.start() first"
            raise NodeError(f"{call}: node {self.name!r} {state}")
        self._require_own_loop(call)

    def _require_own_loop(self, call: str) -> None:
        if self._loop is not None and asyncio.get_running_loop() is not self._loop and not self._loop.is_closed():
            raise NodeError(
                f"{call}: node {self.name!r} was started on another event loop than this one: hand the call over with "
                "asyncio.run_coroutine_threadsafe"
            )

    def _accept(self, envelope: MessageEnvelope) -> Outgoing:
        check_envelope(envelope)
        if len(envelope.meta) > META_BYTES_MAX:
            raise NodeError(
                f"send: meta is {len(envelope.meta)} bytes, 14/WAKU2-MESSAGE allows {META_BYTES_MAX}", permanent=True
            )
        if self._streams.outcomes_full():
            raise NodeError(f"send: nobody reads the events of node {self.name!r}: read them or close the stream")
        pubsub_topic = self._pubsub_topics.of(envelope.content_topic)
        timestamp_ns = self._network.next_timestamp_ns(self._clock or self._network.clock)
        size_bytes = encoded_size_bytes(envelope, timestamp_ns)
        if size_bytes > self.max_message_size_bytes:
            raise NodeError(
                f"send: the encoded message is {size_bytes} bytes, node {self.name!r} carries "
                f"{self.max_message_size_bytes}: send less in one message",
                permanent=True,
            )
        name = message_hash(
            pubsub_topic=pubsub_topic,
            payload=envelope.payload,
            content_topic=envelope.content_topic,
            meta=envelope.meta or None,
            timestamp_ns=timestamp_ns,
        )
        request_id = self._network.next_request_id(self)
        message = MessageReceived(envelope, name, timestamp_ns)
        return Outgoing(request_id, envelope, pubsub_topic, timestamp_ns, name, size_bytes, message)

    def _transmit(self, outgoing: Outgoing) -> None:
        stored = self._network.transmit(self, outgoing)
        events: list[NodeEvent] = [MessagePropagated(outgoing.request_id, outgoing.message_hash)]
        if stored:
            events.append(MessageSent(outgoing.request_id, outgoing.message_hash))
        content_topic = outgoing.envelope.content_topic
        if self.hears(outgoing.pubsub_topic, content_topic):
            events.append(outgoing.message)
        self._streams.put_soon(*events, content_topic=content_topic)

    def _wait_for_connection(self, outgoing: Outgoing) -> None:
        if len(self._outbox) >= OUTBOX_ENVELOPES_MAX:
            raise NodeError(
                f"send: {OUTBOX_ENVELOPES_MAX} envelopes of node {self.name!r} wait for a connection already: "
                "send again when it is back"
            )
        loop = asyncio.get_running_loop()
        timeout = loop.call_later(PROPAGATION_TIMEOUT_MS / 1000, self._give_up, outgoing)
        self._outbox[outgoing.request_id] = (outgoing, timeout)

    def _give_up(self, outgoing: Outgoing) -> None:
        del self._outbox[outgoing.request_id]
        error = f"nobody was in reach for {PROPAGATION_TIMEOUT_MS} ms"
        failed = MessageSendError(outgoing.request_id, error, outgoing.message_hash)
        self._streams.put_soon(failed, content_topic=outgoing.envelope.content_topic)

    def _set_online(self, online: bool) -> None:
        if self._online == online:
            return
        self._online = online
        if not online:
            self.inbox.clear()
        self._network.connections_changed()

    def _reachable_state(self) -> ConnectionState:
        if not self.connected:
            return ConnectionState.DISCONNECTED
        neighbour = self._network.reaches_neighbour(self)
        store = self._network.reaches_store(self)
        if neighbour and (store or not self._network.has_store):
            return ConnectionState.CONNECTED
        return ConnectionState.PARTIALLY_CONNECTED if neighbour or store else ConnectionState.DISCONNECTED

    def _deliver(self, message: MessageReceived) -> Outcome | None:
        if not (self._started and self._online):
            return "offline"
        taken, refusing = self._streams.put_received(message)
        return "overflow" if refusing and not taken else None
