"""The store of a Waku node: which one is asked, whether it is in reach, and its answers, verified."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from shardwire.errors import ConfigError, NodeError
from shardwire.node.protocol import StorePage, StoreQuery
from shardwire.node.rest.http import Http
from shardwire.node.rest.waku_api import STORE, WakuApi, WakuPeer
from shardwire.node.store_v3 import STORE_PATH, parse_verified_page, query_parameters
from shardwire.node.transport import TransportLink
from shardwire.quoting import one_line

logger = logging.getLogger(__name__)

# How long a store that failed counts as out of reach.
FAILED_MS = 30_000
ANSWER_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where the store is asked.

    Attributes:
        use: Whether it is at all.
        http: Of another node that is asked; None for the same one.
        peer: Multiaddress of the store that the node asks; None for one among its peers.
        timeout_ms: For one answer: nodes wait longer for a store than they say.
    """

    use: bool = True
    http: Http | None = None
    peer: str | None = None
    timeout_ms: int = 20_000


class RestStore:
    """Asks a store through a node.

    Args:
        name: Names the node in errors.
        settings: Where it is asked.
        node_api: The node that carries the messages.
        is_light: Whether that node takes part by filter and lightpush.
        on_change: Called when the store may have come into reach, or left it.
    """

    def __init__(
        self,
        name: str,
        settings: StoreSettings,
        node_api: WakuApi,
        is_light: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        self._name = name
        self._settings = settings
        self._node_api = node_api
        self._api = node_api if settings.http is None else WakuApi(settings.http, f"{name} (store)")
        self._identified = settings.http is None
        self._is_light = is_light
        self._on_change = on_change
        self._link: TransportLink | None = None
        # A store was found, by us or by the node; a store peer is connected now.
        self._seen = False
        self._connected = False
        self._peers_known = False
        self._peers: list[WakuPeer] = []
        self._discovered_peer: str | None = None
        self._failed_ms: int | None = None
        # Lightpush of go-waku finds no peer while a query by hash goes on: see `_restore_shards`.
        self.service_lock = asyncio.Lock()

    def start(self, link: TransportLink) -> None:
        self._link = link

    async def close(self) -> None:
        if self._settings.http is not None:
            await self._settings.http.close()

    @property
    def is_used(self) -> bool:
        return self._settings.use

    @property
    def exists(self) -> bool:
        """Whether one is configured, or was ever seen."""
        configured = self._settings.http is not None or self._settings.peer is not None
        return self._settings.use and (configured or self._seen)

    def in_reach(self, now_ms: int) -> bool:
        """Whether it would answer, as far as is known."""
        if self._failed_ms is not None and now_ms - self._failed_ms < FAILED_MS:
            return False
        return self._settings.http is not None or self._connected or (self._is_named and not self._peers_known)

    @property
    def _is_named(self) -> bool:
        return self._settings.peer is not None

    def peer(self) -> str | None:
        """The store that is asked; None where the node chooses, or there is none."""
        if self._settings.peer is not None:
            return self._settings.peer
        # logos-delivery chooses, and may be the store itself.
        by_node = self._api is self._node_api and self._api.dialect == "go-waku"
        return self._discovered_peer if by_node else None

    def judge_peers(self, peers: list[WakuPeer] | None) -> None:
        """Looks for a store among the node's peers; None where they are not shown."""
        self._peers_known = peers is not None
        if peers is None:
            return
        self._peers = peers
        stores = [peer.address for peer in peers if peer.connected and peer.speaks(STORE)]
        self._connected = bool(stores)
        if stores and self._discovered_peer not in stores:
            self._discovered_peer = stores[0] or None
        self._seen = self._seen or self._discovered_peer is not None

    def on_mounted(self) -> None:
        """The node is a store itself."""
        self._seen = self._connected = True

    async def has(self, message_hash: bytes) -> bool:
        """Whether the store is known to have a message."""
        if not self.exists:
            return False
        try:
            page = await self.query(StoreQuery(message_hashes=(message_hash,), page_size=1, include_data=False))
        except NodeError:
            return False
        return any(found.message_hash == message_hash for found in page.messages)

    async def query(self, query: StoreQuery) -> StorePage:
        """One page, without what was not asked for or has another hash than the store says.

        Raises:
            NodeError: No store answered.
            ConfigError: The query asks for what the node cannot ask a store.
        """
        if not self._settings.use or self._link is None:
            raise NodeError(f"{self._name}: the store is switched off")
        link = self._link
        try:
            if not self._identified:
                await self._api.identify()
                self._identified = True
            parameters = query_parameters(
                query,
                self._api.dialect,
                peer_addr=self.peer(),
                pubsub_topic=_pubsub_topic(query, link),
                cluster_id=link.config.cluster_id,
                num_shards_in_cluster=link.config.num_shards_in_cluster,
            )
            page = parse_verified_page(await self._ask(parameters, link, by_hash=bool(query.message_hashes)))
        except ConfigError as error:
            if query.message_hashes and self.peer() is None:
                raise NodeError(f"{self._name} knows no store: name one by store_peer") from error
            raise
        except NodeError:
            self._failed_ms = link.clock.monotonic_ms()
            self._on_change()
            raise
        self._failed_ms = None
        self._seen = True
        return _as_asked(page, query)

    async def _ask(self, parameters: dict[str, str], link: TransportLink, *, by_hash: bool) -> bytes:
        timeout_ms, api = self._settings.timeout_ms, self._api
        if not (by_hash and self._is_light() and api is self._node_api and api.dialect == "go-waku"):
            return await api.store_page(STORE_PATH, parameters, timeout_ms, ANSWER_BYTES_MAX)
        async with self.service_lock:
            try:
                return await api.store_page(STORE_PATH, parameters, timeout_ms, ANSWER_BYTES_MAX)
            finally:
                await self._restore_shards(parameters["peerAddr"], link)

    async def _restore_shards(self, address: str, link: TransportLink) -> None:
        """go-waku forgets what shards a peer serves when it asks it by hash, and then finds it for no service."""
        shards = list(range(link.config.num_shards_in_cluster))
        protocols = [name for peer in self._peers if peer.address == address for name in peer.protocols]
        try:
            if await self._api.set_shards(address, shards, protocols) or not link.topics:
                return
            # A query of a topic sets the shard of that topic.
            topic, pubsub_topic = next(iter(link.topics.items()))
            now_ns = str(link.clock.epoch_ns())
            parameters = {"peerAddr": address, "pubsubTopic": pubsub_topic, "contentTopics": topic, "pageSize": "1"}
            parameters |= {"startTime": now_ns, "endTime": now_ns}
            await self._api.store_page(STORE_PATH, parameters, self._settings.timeout_ms, ANSWER_BYTES_MAX)
        except NodeError as error:
            logger.debug("%s: the shards of the store were not restored: %s", self._name, one_line(error))


def _pubsub_topic(query: StoreQuery, link: TransportLink) -> str | None:
    topics = {link.topics[topic] for topic in query.content_topics if topic in link.topics}
    return topics.pop() if len(topics) == 1 else None


def _as_asked(page: StorePage, query: StoreQuery) -> StorePage:
    """Without what was not asked for."""
    if query.message_hashes:
        wanted = set(query.message_hashes)
        messages = tuple(message for message in page.messages if message.message_hash in wanted)
    elif query.content_topics:
        topics = set(query.content_topics)
        messages = tuple(
            message for message in page.messages if message.envelope is None or message.envelope.content_topic in topics
        )
    else:
        return page
    return StorePage(messages, page.cursor)
