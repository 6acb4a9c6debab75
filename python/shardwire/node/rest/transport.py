"""Carries messages by the REST interface of a Waku node."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from shardwire.errors import NodeError
from shardwire.node.protocol import ConnectionState, StorePage, StoreQuery
from shardwire.node.rest.http import Http, HttpError
from shardwire.node.rest.publish_errors import refusal_of
from shardwire.node.rest.rest_store import RestStore, StoreSettings
from shardwire.node.rest.topic_poll import TopicPoll
from shardwire.node.rest.waku_api import (
    FILTER,
    LIGHTPUSH,
    RELAY,
    RouteError,
    WakuApi,
    WakuHealth,
    WakuNodeInfo,
    WakuPeer,
)
from shardwire.node.transport import Ambiguous, Answer, OutgoingMessage, Passing, Published, Transport, TransportLink
from shardwire.node.wake import Wake
from shardwire.quoting import quoted

logger = logging.getLogger(__name__)

HEALTH_INTERVAL_MS = 10_000
# While something is missing, and while nobody is in reach.
HEALTH_INTERVAL_MS_PARTIAL = 3_000
HEALTH_INTERVAL_MS_DISCONNECTED = 1_000
# A node that has just been started finds its peers within a second.
FIRST_LOOKS = 4
FIRST_LOOK_INTERVAL_MS = 300
# Without anybody who tells of peers, one that refused for want of them is tried again after this long.
ALONE_ASSUMED_MS = 5_000
# Epoch of The Waku Network, where the configuration of the node sets none.
RLN_EPOCH_MS = 600_000


@dataclass(frozen=True, slots=True)
class WakuNodeStatus:
    """What a node is and has at the moment, for people.

    Attributes:
        info: What it says of itself.
        light: Whether it takes part by filter and lightpush.
        peers: Its peers; None where its operator shows none.
        health: What it says of its health; None where it does not.
        store_peer: The store that is asked; None where the node chooses, or there is none.
        state: The connection, as told.
    """

    info: WakuNodeInfo
    light: bool
    peers: tuple[WakuPeer, ...] | None
    health: WakuHealth | None
    store_peer: str | None
    state: ConnectionState


class RestTransport(Transport):
    """Polls, publishes and asks the store of one node.

    Args:
        name: For the log.
        http: Makes requests of the node.
        store: Where the store is asked.
        light: Whether the node has no relay; None to find out.
    """

    publishes_at_once = 4
    asks_store_for_presence = True

    def __init__(self, name: str, http: Http, store: StoreSettings, light: bool | None) -> None:
        self.name = name
        self._http = http
        self._api = WakuApi(http, name)
        self._light_wanted = light
        self._light = bool(light)
        self._store = RestStore(name, store, self._api, lambda: self._light, self._tell)
        self._polls: dict[str, tuple[TopicPoll, asyncio.Task[None]]] = {}
        self._look_wake = Wake()
        self._info: WakuNodeInfo | None = None
        # What the connection is made of.
        self._wrong: str | None = None
        self._no_answers = 0
        self._no_answer_error = ""
        self._alone: str | None = None
        # Whether what the configuration says of the quota was held against what the node has.
        self._limit_reviewed = False
        self._alone_since_ms = 0

    @property
    def has_store(self) -> bool:  # type: ignore[override]
        """Whether one is configured, or was ever seen."""
        return self._store.exists

    # --- connection ---

    async def connect(self, link: TransportLink) -> None:
        """Reaches the node: takes its identity, and its routes, for what follows.

        Raises:
            NodeError: Nobody answers there, it is no Waku node, it wants other credentials, or serves another cluster.
        """
        self._link = link
        self._store.start(link)
        await self._identify()
        if self._wrong is not None:
            raise NodeError(self._wrong)
        if self._light_wanted is None:
            self._light = not await self._api.has_relay()
        for look in range(FIRST_LOOKS):
            if look:
                await asyncio.sleep(FIRST_LOOK_INTERVAL_MS / 1000)
            await self._look_at_peers()
            if self._alone is None and (self._store_in_reach() or not self._store.is_used):
                break
        self._tell()
        link.run("health", self._watch)

    async def disconnect(self) -> None:
        for _, task in self._polls.values():
            task.cancel()
        self._polls.clear()
        await self._http.close()
        await self._store.close()

    async def status(self) -> WakuNodeStatus:
        """Asks the node what it is and has.

        Raises:
            NodeError: It does not answer.
        """
        info = self._info or await self._identify()
        peers = await self._api.peers()
        return WakuNodeStatus(
            info,
            self._light,
            None if peers is None else tuple(peers),
            await self._api.health(),
            self._store.peer(),
            self._link.state,
        )

    # --- topics ---

    async def subscribe(self, content_topic: str, pubsub_topic: str) -> None:
        """Polls a topic from now on.

        Raises:
            NodeError: The node refuses the topic, or its store could not be asked for it.
        """
        if "," in content_topic and self._store.is_used:
            # What was missed would be missed for good, and nobody told.
            raise NodeError(
                f"{self.name} cannot be asked what is stored of {quoted(content_topic)}: a store takes a comma for the "
                "end of a topic; use a topic without one, or use_store=False"
            )
        poll = TopicPoll(self._api, self._link, content_topic, pubsub_topic, lambda: self._light, self)
        try:
            await poll.open()
        except RouteError as error:
            if error.status == 400 and not self._light:
                raise NodeError(f"{self.name} refuses {content_topic}: {error}") from None
            self.on_no_answer(error)
        self._polls[content_topic] = (poll, self._link.run(f"poll of {content_topic}", poll.run))

    async def unsubscribe(self, content_topic: str, pubsub_topic: str) -> None:
        poll, task = self._polls.pop(content_topic)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # logos-delivery would leave the shard, and with it every other topic there.
        shared = self._api.dialect == "logos-delivery" and any(
            other.pubsub_topic == pubsub_topic for other, _ in self._polls.values()
        )
        await poll.close(unsubscribe=not shared or self._light)

    # --- publishing ---

    async def publish(self, message: OutgoingMessage) -> Answer:
        if (
            message.may_have_left
            and self._api.dialect == "logos-delivery"
            and (await self._store.has(message.message_hash))
        ):
            # It would refuse bytes that it has seen as if it had no peers.
            return Published(stored=True)
        try:
            if self._light:
                async with self._store.service_lock:
                    status, body = await self._api.lightpush(message)
            else:
                status, body = await self._api.relay_publish(message)
        except HttpError as error:
            self.on_no_answer(RouteError(str(error), sent=error.sent))
            return Ambiguous(str(error)) if error.sent else Passing(str(error))
        if status == 200:
            self._set_alone(None)
            entry = self._polls.get(message.envelope.content_topic)
            if entry is not None:
                entry[0].on_sent()
            return Published()
        if status in (401, 403):
            self._set_wrong(f"{self.name} answers {status}: name and password are missing or wrong")
        refusal = refusal_of(status, body, self._epoch_left_ms())
        if refusal.disconnected and isinstance(refusal.answer, Passing):
            self._set_alone(refusal.answer.error)
        if refusal.no_relay and self._light_wanted is None and not self._light:
            logger.info("%s has no relay: messages go by lightpush and come by filter", self.name)
            self._light = True
        if refusal.not_subscribed:
            await self._api.relay_subscribe(message.envelope.content_topic)
        return refusal.answer

    def _epoch_left_ms(self) -> int:
        limit = self._link.config.rate_limit_config
        epoch_ms = RLN_EPOCH_MS if limit is None else limit.epoch_size_ms
        return epoch_ms - self._link.clock.epoch_ms() % epoch_ms

    # --- store ---

    async def query_store(self, query: StoreQuery) -> StorePage:
        """Asks the store for one page.

        Raises:
            NodeError: No store answered.
            ConfigError: The query asks for what the node cannot ask a store.
        """
        return await self._store.query(query)

    # --- how the node is ---

    def on_answer(self) -> None:
        """The node answered a poll."""
        if self._no_answers:
            self._no_answers = 0
            # It may be another node by now, or have other peers.
            self._look_wake.set()

    def on_no_answer(self, error: RouteError) -> None:
        """The node did not answer as it should."""
        if error.status in (401, 403):
            self._set_wrong(str(error))
        self._no_answers += 1
        self._no_answer_error = str(error)
        # A connection that broke once, or one answer 500, says little; nobody there, or no answer in time, says all.
        if self._no_answers >= 2 or (error.status is None and (not error.sent or "no answer within" in str(error))):
            self._no_answers = max(2, self._no_answers)
            self._tell()

    async def _watch(self) -> None:
        while True:
            state = self._link.state
            interval_ms = HEALTH_INTERVAL_MS
            if state is ConnectionState.DISCONNECTED:
                interval_ms = HEALTH_INTERVAL_MS_DISCONNECTED
            elif state is ConnectionState.PARTIALLY_CONNECTED and self._store.is_used:
                interval_ms = HEALTH_INTERVAL_MS_PARTIAL
            timer = asyncio.get_running_loop().call_later(interval_ms / 1000, self._look_wake.set)
            try:
                await self._look_wake.wait()
            finally:
                timer.cancel()
            self._look_wake.clear()
            try:
                if self._link.state is ConnectionState.DISCONNECTED:
                    await self._identify()
                await self._look_at_peers()
            except RouteError as error:
                self.on_no_answer(error)
                continue
            if not self._polls:
                self._no_answers = 0
            self._tell()

    async def _identify(self) -> WakuNodeInfo:
        info = self._info = await self._api.identify()
        self._wrong = None
        cluster_id = self._link.config.cluster_id
        if info.shards is not None and info.shards.cluster_id != cluster_id:
            self._wrong = (
                f"{self.name} serves cluster {info.shards.cluster_id}, not {cluster_id}: set cluster_id, or use a node "
                "of that cluster"
            )
        date = info.headers.get("Date")
        if date is not None:
            # Imports much, which nobody else needs.
            from email.utils import parsedate_to_datetime

            try:
                seconds = parsedate_to_datetime(date).timestamp()
            except (ValueError, OverflowError):
                pass
            else:
                info.clock_ahead_ms = round(seconds * 1000) - self._link.clock.epoch_ms()
        return info

    async def _look_at_peers(self) -> None:
        peers = await self._api.peers()
        health = await self._api.health() if self._api.dialect == "logos-delivery" else None
        self._store.judge_peers(peers)
        if peers is not None:
            self._judge_peers(peers)
        elif health is not None:
            self._judge_health(health)
        elif self._link.clock.monotonic_ms() - self._alone_since_ms >= ALONE_ASSUMED_MS:
            self._alone = None
        if health is None:
            return
        if health.protocols.get("store") == "ready":
            self._store.on_mounted()
        rln = health.rln
        if rln == "ready":
            self._review_limit()
        elif rln is not None and rln != "not_mounted":
            # It would refuse every message.
            self._alone = f"the RLN of the node is {rln}"

    def _review_limit(self) -> None:
        """The node has a quota: the configuration says which, or the user is told, once (003 RateLimitConfig)."""
        if self._limit_reviewed:
            return
        self._limit_reviewed = True
        config = self._link.config
        # Where the configuration says itself that there is RLN, it has told.
        if not config.rln and (doubt := config.rln_doubt()) is not None:
            logger.warning("%s has RLN and %s", self.name, doubt)

    def _judge_peers(self, peers: list[WakuPeer]) -> None:
        connected = [peer for peer in peers if peer.connected]
        needed = {"lightpush": LIGHTPUSH, "filter": FILTER} if self._light else {"relay": RELAY}
        lacking = [name for name, protocol in needed.items() if not any(peer.speaks(protocol) for peer in connected)]
        self._alone = f"no {' and no '.join(lacking)} peer" if lacking else None

    def _judge_health(self, health: WakuHealth) -> None:
        self._alone = "the node says that it is disconnected" if health.connection == "Disconnected" else None

    def _set_alone(self, error: str | None) -> None:
        if (self._alone is None) == (error is None):
            return
        self._alone = error
        self._alone_since_ms = self._link.clock.monotonic_ms()
        self._tell()

    def _set_wrong(self, error: str) -> None:
        self._wrong = error
        self._tell()

    def _tell(self) -> None:
        """Says how the connection is, out of everything that is known."""
        if self._wrong is not None:
            self._link.connection(ConnectionState.DISCONNECTED, self._wrong)
        elif self._no_answers >= 2:
            self._link.connection(ConnectionState.DISCONNECTED, self._no_answer_error)
        elif self._alone is not None:
            self._link.connection(ConnectionState.DISCONNECTED, self._alone)
        elif self._store.is_used and not self._store_in_reach():
            self._link.connection(ConnectionState.PARTIALLY_CONNECTED, "no store in reach")
        else:
            self._link.connection(ConnectionState.CONNECTED)

    def _store_in_reach(self) -> bool:
        return self._store.in_reach(self._link.clock.monotonic_ms())
