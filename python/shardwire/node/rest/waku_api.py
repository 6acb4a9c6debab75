"""The routes of a Waku node's REST interface: one call each, in the dialect of the node."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from shardwire._native import WakuJsonReader, encode_waku_json
from shardwire.errors import NodeError
from shardwire.node.rest.enr import RelayShards, relay_shards
from shardwire.node.rest.http import Http, HttpError, topic_in_path
from shardwire.node.rest.publish_errors import shown
from shardwire.node.store_v3 import WakuDialect
from shardwire.node.transport import OutgoingMessage

SHORT_TIMEOUT_MS = 5_000
PUBLISH_TIMEOUT_MS = 9_000
# Without a byte of an answer; a full queue of a node may be 137 MB of JSON, which keeps coming.
POLL_TIMEOUT_MS = 10_000
POLL_BYTES_MAX = 1 << 30
ANSWER_BYTES_MAX = 4 << 20
# A message of 150 KB is 200 KB in base64.
ELEMENT_BYTES_MAX = 8 << 20

RELAY, FILTER, LIGHTPUSH, STORE = (
    "/vac/waku/relay/",
    "/vac/waku/filter-subscribe/",
    "/vac/waku/lightpush/",
    "/vac/waku/store-query/",
)

Received = tuple[bytes, str, int, bytes, bool]


@dataclass(frozen=True, slots=True)
class PollAnswer:
    """What a poll brought: whether the node keeps a queue at all, messages of others, and echoes of our own."""

    has_queue: bool
    received: int = 0
    passed_over: int = 0


@dataclass(frozen=True, slots=True)
class WakuPeer:
    """A peer of the node, as it lists them.

    Attributes:
        address: Its multiaddress.
        protocols: What it speaks.
        connected: Whether the node is connected to it.
    """

    address: str
    protocols: tuple[str, ...]
    connected: bool

    def speaks(self, protocol: str) -> bool:
        """Whether the peer offers a protocol whose name begins with `protocol`."""
        return any(name.startswith(protocol) for name in self.protocols)


@dataclass(frozen=True, slots=True)
class WakuHealth:
    """What `/health` of logos-delivery says.

    Attributes:
        node: Of the node as a whole.
        protocols: By protocol, in lower case: `ready`, `not_mounted` and so on.
        connection: How well it is connected; None where it does not say.
    """

    node: str
    protocols: Mapping[str, str]
    connection: str | None = None

    @property
    def rln(self) -> str | None:
        """State of its rate limiting nullifiers; None where it does not say."""
        return next((state for name, state in self.protocols.items() if name.startswith("rln")), None)


@dataclass(slots=True)
class WakuNodeInfo:
    """What a node says of itself.

    Attributes:
        dialect: Which REST interface it has.
        version: Its version.
        addresses: Where it listens.
        shards: What it serves, if its record says so.
        clock_ahead_ms: How far its clock is ahead of ours, to the second.
        headers: What it answered with beside the version; not in its repr.
    """

    dialect: WakuDialect
    version: str
    addresses: tuple[str, ...] = ()
    shards: RelayShards | None = None
    clock_ahead_ms: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class RouteError(NodeError):
    """A route answered something else than expected.

    Attributes:
        status: HTTP status; None where there was no whole answer.
        sent: Whether the node may have seen the request.
    """

    def __init__(self, message: str, status: int | None = None, *, sent: bool = True) -> None:
        super().__init__(message)
        self.status = status
        self.sent = sent


class WakuApi:
    """Calls the routes of one node.

    Args:
        http: Makes the requests.
        name: Names the node in errors.
    """

    def __init__(self, http: Http, name: str) -> None:
        self._http = http
        self._name = name
        self.dialect: WakuDialect = "go-waku"
        # Lightpush v3 where the node has it; found out with the first message.
        self._lightpush_v3 = True

    # --- what the node is ---

    async def identify(self) -> WakuNodeInfo:
        """Finds out what the node speaks.

        Raises:
            RouteError: Nobody answers, or it is no Waku node.
        """
        status, body, headers = await self._call("GET", "/version")
        if status == 200:
            self.dialect = "logos-delivery"
            version: Any = shown(body)
        else:
            self._check_access(status)
            status, body, headers = await self._call("GET", "/debug/v1/version")
            self._check_access(status)
            version = _json(body) if status == 200 else None
            if not isinstance(version, str):
                raise RouteError(
                    f"{self._name} is no REST interface of a Waku node: GET /debug/v1/version gave {status}", status
                )
            self.dialect = "go-waku"
        info = WakuNodeInfo(self.dialect, version, headers=headers)
        status, body, _ = await self._call("GET", "/debug/v1/info")
        said = _json(body) if status == 200 else None
        if isinstance(said, dict):
            addresses = said.get("listenAddresses")
            if isinstance(addresses, list):
                info.addresses = tuple(address for address in addresses if isinstance(address, str))
            if isinstance(said.get("enrUri"), str):
                info.shards = relay_shards(said["enrUri"])
        return info

    async def has_relay(self) -> bool:
        """Asks by an empty message, which no node publishes."""
        status, body, _ = await self._call("POST", "/relay/v1/auto/messages", b"{}")
        self._check_access(status)
        return status != 404 and b"pubsub hasn't been set" not in body.lower()

    async def peers(self) -> list[WakuPeer] | None:
        """The node's peers; None where its operator shows none."""
        status, body, _ = await self._call("GET", "/admin/v1/peers")
        said = _json(body) if status == 200 else None
        if not isinstance(said, list):
            return None
        peers = []
        for entry in said:
            if isinstance(entry, dict):
                peers.append(_peer(entry))
        return peers

    async def set_shards(self, address: str, shards: list[int], protocols: list[str]) -> bool:
        """Tells go-waku what a peer serves; False where its operator lets nobody."""
        said = {"multiaddr": address, "shards": shards, "protocols": protocols}
        status, _, _ = await self._call("POST", "/admin/v1/peers", json.dumps(said).encode())
        return status == 200

    async def health(self) -> WakuHealth | None:
        """What the node says of its health; None where it does not."""
        status, body, _ = await self._call("GET", "/health")
        said = _json(body) if status in (200, 503) else None
        if not isinstance(said, dict):
            return None
        protocols = {}
        listed = said.get("protocolsHealth")
        for entry in listed if isinstance(listed, list) else []:
            if isinstance(entry, dict):
                protocols.update({str(name).lower(): str(state).lower() for name, state in entry.items()})
        connection = said.get("connectionStatus")
        return WakuHealth(
            str(said.get("nodeHealth")).lower(), protocols, connection if isinstance(connection, str) else None
        )

    # --- relay ---

    async def poll(
        self, path: str, content_topic: str, ours: Container[tuple[int, str]], take: Callable[[Received], None]
    ) -> PollAnswer:
        """Empties the node's queue for a topic.

        Args:
            path: "/relay/v1/auto/messages/" or "/filter/v2/messages/".
            content_topic: The topic.
            ours: (timestamp, topic) of what is passed over undecoded.
            take: Given each message as soon as it is whole.

        Raises:
            RouteError: The answer is not whole: what it held is lost.
        """
        reader = WakuJsonReader(element_bytes_max=ELEMENT_BYTES_MAX)
        taken = 0

        def on_body(piece: bytes) -> None:
            nonlocal taken
            for message in reader.feed(piece, ours):
                taken += 1
                take(message)

        try:
            status, body, _ = await self._http.request(
                "GET",
                path + topic_in_path(content_topic),
                timeout_ms=POLL_TIMEOUT_MS,
                on_body=on_body,
                body_bytes_max=POLL_BYTES_MAX,
            )
            if status == 200:
                reader.finish()
        except HttpError as error:
            raise RouteError(f"poll: {error}", sent=error.sent) from None
        except ValueError as error:
            raise RouteError(f"poll: the answer cannot be read: {error}") from None
        if status == 404:
            return PollAnswer(has_queue=False)
        self._check_access(status)
        if status != 200:
            raise RouteError(f"poll: {status}: {shown(body)}", status)
        return PollAnswer(True, taken, reader.echoes + reader.malformed)

    async def relay_subscribe(self, content_topic: str) -> None:
        await self._change("POST", "/relay/v1/auto/subscriptions", [content_topic])

    async def relay_unsubscribe(self, content_topic: str) -> None:
        await self._change("DELETE", "/relay/v1/auto/subscriptions", [content_topic])

    async def relay_publish(self, message: OutgoingMessage) -> tuple[int, bytes]:
        """Publishes by relay; the status and body of the answer.

        Raises:
            HttpError: There was no whole answer.
        """
        return await self._publish("/relay/v1/auto/messages", message_json(message))

    # --- filter and lightpush ---

    async def filter_subscribe(self, request_id: str, content_topic: str, pubsub_topic: str) -> None:
        await self._change("POST", "/filter/v2/subscriptions", _filter(request_id, content_topic, pubsub_topic))

    async def filter_unsubscribe(self, request_id: str, content_topic: str, pubsub_topic: str) -> None:
        await self._change("DELETE", "/filter/v2/subscriptions", _filter(request_id, content_topic, pubsub_topic))

    async def filter_ping(self, request_id: str) -> bool:
        """Whether the service node still has our subscription."""
        status, _, _ = await self._call("GET", "/filter/v2/subscriptions/" + topic_in_path(request_id))
        return status == 200

    async def lightpush(self, message: OutgoingMessage) -> tuple[int, bytes]:
        """Publishes by lightpush, in the newest version that the node has; the status and body of the answer.

        Raises:
            HttpError: There was no whole answer.
        """
        topic = json.dumps(message.pubsub_topic).encode()
        body = b'{"pubsubTopic":' + topic + b',"message":' + message_json(message) + b"}"
        if self._lightpush_v3:
            status, said = await self._publish("/lightpush/v3/message", body)
            if status != 404:
                return status, said
            self._lightpush_v3 = False
        return await self._publish("/lightpush/v1/message", body)

    # --- store ---

    async def store_page(self, path: str, parameters: Mapping[str, str], timeout_ms: int, bytes_max: int) -> bytes:
        """The body of a page of the store, of at most `bytes_max` bytes.

        Raises:
            RouteError: No store answered.
        """
        try:
            status, body, _ = await self._http.request(
                "GET", path, query=parameters, timeout_ms=timeout_ms, body_bytes_max=bytes_max
            )
        except HttpError as error:
            raise RouteError(f"the store of {self._name}: {error}", sent=error.sent) from None
        self._check_access(status)
        if status != 200:
            raise RouteError(f"the store of {self._name} answered {status}: {shown(body)}", status)
        return body

    # --- details ---

    async def _call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes, Mapping[str, str]]:
        try:
            return await self._http.request(
                method, path, body=body, timeout_ms=SHORT_TIMEOUT_MS, body_bytes_max=ANSWER_BYTES_MAX
            )
        except HttpError as error:
            raise RouteError(f"{self._name}: {method} {path}: {error}", sent=error.sent) from None

    async def _change(self, method: str, path: str, said: object) -> None:
        status, body, _ = await self._call(method, path, json.dumps(said).encode())
        self._check_access(status)
        if status != 200:
            raise RouteError(f"{method} {path}: {status}: {shown(body)}", status)

    async def _publish(self, path: str, body: bytes) -> tuple[int, bytes]:
        status, said, _ = await self._http.request(
            "POST", path, body=body, timeout_ms=PUBLISH_TIMEOUT_MS, body_bytes_max=ANSWER_BYTES_MAX
        )
        return status, said

    def _check_access(self, status: int) -> None:
        if status in (401, 403):
            raise RouteError(f"{self._name} answers {status}: name and password are missing or wrong", status)


def message_json(message: OutgoingMessage) -> bytes:
    """A message as every route takes it."""
    envelope = message.envelope
    return encode_waku_json(
        payload=envelope.payload,
        content_topic=envelope.content_topic,
        timestamp_ns=message.timestamp_ns,
        meta=envelope.meta,
        ephemeral=envelope.ephemeral,
    )


def _filter(request_id: str, content_topic: str, pubsub_topic: str) -> dict[str, object]:
    return {"requestId": request_id, "contentFilters": [content_topic], "pubsubTopic": pubsub_topic}


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _peer(entry: Mapping[str, Any]) -> WakuPeer:
    """Of either dialect: go-waku lists addresses and says whether; nwaku has one, and a word."""
    addresses = entry.get("multiaddrs")
    address = entry.get("multiaddr") or (addresses[0] if isinstance(addresses, list) and addresses else "")
    connected = entry.get("connected")
    protocols = entry.get("protocols")
    names = []
    for protocol in protocols if isinstance(protocols, list) else []:
        name = protocol.get("protocol") if isinstance(protocol, dict) else protocol
        if isinstance(name, str):
            names.append(name)
    return WakuPeer(str(address), tuple(names), connected is True or str(connected).lower() == "connected")
