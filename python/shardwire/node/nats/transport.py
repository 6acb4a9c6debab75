"""How messages travel over a NATS server."""

from __future__ import annotations

import asyncio
import logging

from nats import errors as nats_errors
from nats.js import errors as js_errors

from shardwire.errors import NodeError
from shardwire.node.nats.session import NatsLogin, NatsSession
from shardwire.node.nats.status import NatsNodeStatus
from shardwire.node.nats.store import NatsStore
from shardwire.node.nats.stream import StreamLimits
from shardwire.node.nats.subjects import Subjects
from shardwire.node.protocol import StorePage, StoreQuery
from shardwire.node.transport.answers import Ambiguous, Answer, Passing, Permanent, Published
from shardwire.node.transport.kept_connection import ConnectionLost, KeptConnection
from shardwire.node.transport.message import OutgoingMessage
from shardwire.node.transport.transport import Transport, TransportLink
from shardwire.node.waku_message import PubsubTopics
from shardwire.quoting import one_line

logger = logging.getLogger(__name__)

PUBLISHES_AT_ONCE = 32
# `NATS/1.0`, one header with the message hash, and the line ends between them.
HEADER_BYTES = 100
# How often a stream that is gone is looked for.
STORE_LOOK_MS = 5_000
# What a client throws away came within this.
LOST_WITHIN_NS = 5_000_000_000
# How often that is told.
LOST_TOLD_MS = 1_000
NAME_SHOWN_MAX = 100
_MESSAGE_ID_HEADER = "Nats-Msg-Id"


class NatsTransport(Transport):
    """Publishes to a subject of each message's own and subscribes to those of a topic.

    Args:
        login: Where, and with which credentials.
        subject_prefix: First token of every subject.
        stream: Name of the stream; None for no store.
        stream_limits: Of one that is made.
        size_bytes_max: Largest encoded message; None for what the server carries.
    """

    publishes_at_once = PUBLISHES_AT_ONCE

    def __init__(
        self,
        login: NatsLogin,
        subject_prefix: str,
        stream: str | None,
        stream_limits: StreamLimits,
        *,
        size_bytes_max: int | None,
    ) -> None:
        self.name = str(login.address)
        self._login = login
        self._subjects = Subjects(subject_prefix)
        self._stream = stream
        self._stream_limits = stream_limits
        self._size_bytes_max = size_bytes_max
        self._store: NatsStore | None = None
        self._no_store_told = ""
        self._lost_since_ns: int | None = None
        self._connection: KeptConnection[NatsSession] | None = None

    @property
    def has_store(self) -> bool:  # type: ignore[override]
        return self._store is not None

    async def connect(self, link: TransportLink) -> None:
        self._link = link
        self._pubsub_topics = PubsubTopics(link.config.cluster_id, link.config.num_shards_in_cluster)
        self._connection = KeptConnection(self.name, self._open, link)
        await self._connection.start()

    async def disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.stop()

    async def subscribe(self, content_topic: str, pubsub_topic: str) -> None:
        assert self._connection is not None
        await self._connection.subscribe(content_topic)

    async def unsubscribe(self, content_topic: str, pubsub_topic: str) -> None:
        assert self._connection is not None
        await self._connection.unsubscribe(content_topic)

    async def publish(self, message: OutgoingMessage) -> Answer:
        session = self._session
        if session is None:
            return Passing("the server is out of reach")
        envelope = message.envelope
        subject = self._subjects.of_message(envelope.content_topic, message.message_hash, ephemeral=envelope.ephemeral)
        data = message.encode()
        try:
            if self._store is not None and not envelope.ephemeral:
                return await self._publish_stored(session, self._store, subject, data, message.message_hash)
            await session.client.publish(subject, data)
            await session.flushed()
        except nats_errors.MaxPayloadError:
            return Permanent(f"the message has {len(data)} bytes, the server carries {session.message_bytes_max}")
        except (nats_errors.ConnectionClosedError, nats_errors.OutboundBufferLimitError):
            return Passing("the server is out of reach")
        except ConnectionLost as lost:
            return Ambiguous(str(lost))
        except nats_errors.Error as error:
            return Ambiguous(f"the connection failed: {type(error).__name__}")
        return Published() if not session.is_refused(subject) else _not_permitted(subject)

    async def query_store(self, query: StoreQuery) -> StorePage:
        store = self._store
        if store is None or self._session is None:
            raise NodeError(f"{self.name}: {self._no_store_told or 'no stream is in reach'}")
        return await store.query(query, self._link.topics)

    async def status(self) -> NatsNodeStatus:
        """How the connection, the stream and the server are.

        Raises:
            NodeError: The server does not answer.
        """
        session, store = self._session, self._store
        if session is None:
            raise NodeError(f"{self.name} is out of reach")
        begun_s = asyncio.get_running_loop().time()
        try:
            await session.flushed()
        except ConnectionLost as lost:
            raise NodeError(f"{self.name}: {lost}") from None
        round_trip_ms = (asyncio.get_running_loop().time() - begun_s) * 1000
        info = session.info
        return NatsNodeStatus(
            self._link.state,
            _shown(info.get("server_name")),
            _shown(info.get("version")),
            _shown(info["cluster"]) if info.get("cluster") else None,
            info.get("tls_required") is True or self._login.wants_tls,
            round_trip_ms,
            session.message_bytes_max,
            info.get("jetstream") is True,
            None if store is None else await store.status(self._link.clock.epoch_ms),
            self._no_store_told,
        )

    # --- details ---

    @property
    def _session(self) -> NatsSession | None:
        return None if self._connection is None else self._connection.session

    async def _open(self) -> NatsSession:
        session = NatsSession(
            self._link.clock,
            self._on_data,
            self._on_lost,
            self._on_max_payload,
            self._subjects.all_of_topic,
        )
        await session.open(self._login)
        self._on_max_payload(session.message_bytes_max)
        try:
            await self._open_store(session)
        except ConnectionLost as lost:
            await session.close()
            raise NodeError(f"{self.name}: {lost}") from None
        return session

    async def _open_store(self, session: NatsSession) -> None:
        if self._stream is None:
            return
        store = NatsStore(session, self._stream, self._subjects, self._pubsub_topics)
        reason = await store.open(self._stream_limits)
        # Until that is known the one of the session before counts: a store does not go while a server starts again.
        self._store = store if reason is None else None
        if (told := reason or "") != self._no_store_told:
            self._no_store_told = told
            found = f"no store: {one_line(reason)}" if reason else f"stream {self._stream} is the store"
            logger.info("%s: %s", self.name, found)

    async def _publish_stored(
        self, session: NatsSession, store: NatsStore, subject: str, data: bytes, message_hash: bytes
    ) -> Answer:
        """Publishes and waits for the stream; the same message twice is kept once."""
        request = store.jetstream.publish(
            subject,
            data,
            timeout=self.publish_timeout_ms / 1000,
            headers={_MESSAGE_ID_HEADER: message_hash.hex()},
        )
        try:
            await session.unless_broken(request)
        except js_errors.NoStreamResponseError:
            # Whoever is subscribed has it; nothing keeps it.
            self._on_store_gone(store, "the stream is gone")
            return Published()
        except js_errors.APIError as error:
            self._link.count("stream_refused")
            if error.code == 503:
                self._on_store_gone(store, error.description or "the stream is not ready")
            return Published()
        except nats_errors.TimeoutError:
            return _not_permitted(subject) if session.is_refused(subject) else Ambiguous("the stream did not answer")
        self._link.count("stored")
        return Published(stored=True)

    def _on_store_gone(self, store: NatsStore, reason: str) -> None:
        if self._store is not store:
            return
        self._store = None
        self._no_store_told = reason
        logger.warning("%s: no store: %s", self.name, one_line(reason))
        self._link.run("store", self._find_store)

    async def _find_store(self) -> None:
        """Looks for the stream until it is there again, or the next session looks."""
        session = self._session
        if session is None:
            return
        while self._store is None and not session.is_broken:
            await asyncio.sleep(STORE_LOOK_MS / 1000)
            try:
                await self._open_store(session)
            except ConnectionLost:
                return

    def _on_data(self, content_topic: str, data: bytes) -> None:
        self._link.received_encoded(data, content_topic=content_topic)

    def _on_lost(self) -> None:
        """The client threw away what came faster than it was taken: mostly not one message alone."""
        self._link.count("slow_consumer")
        if self._lost_since_ns is None:
            self._lost_since_ns = self._link.clock.epoch_ns() - LOST_WITHIN_NS
            asyncio.get_running_loop().call_later(LOST_TOLD_MS / 1000, self._tell_lost)

    def _tell_lost(self) -> None:
        since_ns, self._lost_since_ns = self._lost_since_ns, None
        if since_ns is not None:
            self._link.missed(since_ns)

    def _on_max_payload(self, size_bytes: int) -> None:
        carried = size_bytes - (HEADER_BYTES if self._stream is not None else 0)
        if self._size_bytes_max is not None:
            carried = min(carried, self._size_bytes_max)
        self._link.max_message_size_bytes = carried


def _not_permitted(subject: str) -> Permanent:
    return Permanent(f"the server lets this user not publish to {subject}: give it the permission")


def _shown(said: object) -> str:
    """A server's word in one line, cut to a length for people."""
    return one_line(said, NAME_SHOWN_MAX) if isinstance(said, str) else "unknown"
