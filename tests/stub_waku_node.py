"""Waku nodes that answer as go-waku and logos-delivery do, with faults: in virtual time, or behind a real socket."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from shardwire._native import message_hash, shard_of
from shardwire.node.rest.http import HttpError
from shardwire.node.store_v3 import WakuDialect

# Nobody listens; no answer ever; 500; the answer is lost after it took effect; not JSON; an answer without an end.
Fault = Literal["refuse", "hang", "error", "drop", "malformed", "endless"]

STORE_PEER = "/ip4/127.0.0.1/tcp/1/p2p/16Uiu2HAmStore"
_RELAY = ["/vac/waku/relay/2.0.0", "/vac/waku/filter-subscribe/2.0.0-beta1", "/vac/waku/lightpush/2.0.0-beta1"]
_STORE = "/vac/waku/store-query/3.0.0"
LATENCY_S = 0.001


@dataclass
class StubNetwork:
    """Nodes that hear one another, and a store."""

    nodes: list[StubNode] = field(default_factory=list)
    # Pubsub topic, JSON message, hash; in the order of publishing.
    stored: list[tuple[str, dict[str, Any], bytes]] = field(default_factory=list)
    has_store: bool = True
    seen: set[bytes] = field(default_factory=set)

    def publish(self, cluster_id: int, message: dict[str, Any]) -> bytes:
        topic = f"/waku/2/rs/{cluster_id}/{shard_of(message['contentTopic'], 8)}"
        name = hash_of(topic, message)
        # Gossip passes the same bytes on once.
        if name not in self.seen:
            self.seen.add(name)
            for node in self.nodes:
                node.receive(message)
            if self.has_store and not message.get("ephemeral"):
                self.stored.append((topic, message, name))
        return name


def hash_of(pubsub_topic: str, message: Mapping[str, Any]) -> bytes:
    return message_hash(
        pubsub_topic=pubsub_topic,
        payload=base64.b64decode(message.get("payload") or ""),
        content_topic=message["contentTopic"],
        meta=base64.b64decode(message.get("meta") or "") or None,
        timestamp_ns=message.get("timestamp", 0),
    )


@dataclass
class StubNode:
    """One node: an HTTP server without sockets.

    Attributes:
        fault: What is wrong with it now.
        fault_paths: Beginnings of paths that the fault hits; all where empty.
        publish_answers: Status and text that the next publishes get, without effect.
        lie: Changes what a store entry or a queue element says, before it is sent.
    """

    network: StubNetwork
    dialect: WakuDialect = "go-waku"
    cluster_id: int = 1
    light: bool = False
    relay_peers: int = 1
    admin: bool = True
    rln: str = "NOT_MOUNTED"
    # Most messages in an answer, and how many queues were given up that held some: go-waku's relay hangs for ever then.
    answer_messages_max: int = 1_001
    given_up_full: int = 0
    password: str | None = None
    fault: Fault | None = None
    fault_paths: tuple[str, ...] = ()
    publish_answers: deque[tuple[int, str]] = field(default_factory=deque)
    lie: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    store_status: int = 200
    queues: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    filters: set[str] = field(default_factory=set)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.network.nodes.append(self)

    def restart(self) -> None:
        """Forgets what a process forgets."""
        self.queues.clear()
        self.filters.clear()

    def receive(self, message: dict[str, Any]) -> None:
        queue = self.queues.get(message["contentTopic"])
        if queue is not None and self.fault != "refuse":
            queue.append(message)

    def count(self, method: str, path: str) -> int:
        return sum(1 for made in self.requests if made[0] == method and made[1].startswith(path))

    def hit_by_fault(self, path: str) -> Fault | None:
        if self.fault_paths and not path.startswith(self.fault_paths):
            return None
        return self.fault

    def answer(self, method: str, target: str, body: bytes, authorization: str | None) -> tuple[int, bytes]:
        """Status and body of one request."""
        parts = urlsplit(target)
        path, query = parts.path, dict(parse_qsl(parts.query))
        if self.password is not None:
            expected = "Basic " + base64.b64encode(f"user:{self.password}".encode()).decode()
            if authorization != expected:
                return 401, b"Unauthorized"
        go = self.dialect == "go-waku"
        if path == "/version":
            return (404, b"404 page not found\n") if go else (200, b"v0.38.0")
        if path == "/debug/v1/version":
            return 200, b'"v0.10.0-"' if go else b"v0.38.0"
        if path == "/debug/v1/info":
            return 200, json.dumps({"enrUri": enr(self.cluster_id), "listenAddresses": []}).encode()
        if path == "/health":
            return self._health(go)
        if path == "/admin/v1/peers":
            return self._peers(method, go)
        if path == "/store/v3/messages":
            return self._store(query, go)
        if path.startswith("/filter/v2/"):
            return self._filter(method, path, body)
        if path.startswith("/lightpush/"):
            if path.startswith("/lightpush/v3") and go:
                return 404, b"404 page not found\n"
            return self._publish(json.loads(body)["message"], b"true")
        if not path.startswith("/relay/v1/auto/"):
            return 404, b"404 page not found\n"
        if self.light and not go:
            return 404, b""
        if path == "/relay/v1/auto/subscriptions":
            for topic in json.loads(body):
                if method == "POST":
                    self.queues.setdefault(topic, [])
                else:
                    self.given_up_full += bool(self.queues.pop(topic, None))
            return 200, b"true" if go else b"OK"
        if method == "POST":
            if self.light:
                return 400, b"PubSub hasn't been set"
            message = json.loads(body)
            if not message:
                return 400, b"missing Payload field"
            return self._publish(message, b"" if go else b"OK")
        return self._drain(unquote(path.rpartition("/")[2]), go)

    def _drain(self, topic: str, go: bool) -> tuple[int, bytes]:
        if topic not in self.queues:
            return 404, b"no subscription found for content topic" if go else topic.encode()
        queue, most = self.queues[topic], self.answer_messages_max
        drained, self.queues[topic] = queue[:most], queue[most:]
        said = [self._write(message, go) for message in drained]
        return 200, json.dumps(said or (None if go else [])).encode()

    def _write(self, message: dict[str, Any], go: bool) -> dict[str, Any]:
        said = dict(message)
        said["ephemeral"] = (said.get("ephemeral") or None) if go else bool(said.get("ephemeral"))
        if not go:
            said |= {"version": 0, "proof": ""}
        return self.lie(said) if self.lie is not None else said

    def _publish(self, message: dict[str, Any], fine: bytes) -> tuple[int, bytes]:
        if self.publish_answers:
            status, text = self.publish_answers.popleft()
            return status, text.encode()
        if not self.relay_peers:
            if self.light:
                return 503, b"no suitable remote peers"
            return 400, b"not enough peers to publish"
        if self.dialect == "logos-delivery":
            topic = f"/waku/2/rs/{self.cluster_id}/{shard_of(message['contentTopic'], 8)}"
            if hash_of(topic, message) in self.network.seen:
                return 400, b"Failed to publish: publish failed in relay: NoPeersToPublish"
        self.network.publish(self.cluster_id, message)
        return 200, fine

    def _filter(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        said = json.loads(body) if body else {}
        if path.startswith("/filter/v2/messages/"):
            topic = unquote(path.rpartition("/")[2])
            return self._drain(topic, False)
        if method == "GET":
            known = path.rpartition("/")[2] in self.filters
            return (200, b'{"statusDesc":"OK"}') if known else (404, b'{"statusDesc":"peer has no subscription"}')
        for topic in said["contentFilters"]:
            if method == "POST":
                self.filters.add(said["requestId"])
                self.queues.setdefault(topic, [])
            else:
                self.filters.discard(said["requestId"])
                self.queues.pop(topic, None)
        return 200, b'{"statusDesc":"OK"}'

    def _health(self, go: bool) -> tuple[int, bytes]:
        if go:
            return 501, b'"Non RLN healthcheck is not implemented"'
        said = {
            "nodeHealth": "READY",
            "connectionStatus": "Connected" if self.relay_peers else "Disconnected",
            "protocolsHealth": [
                {"Relay": "READY"},
                {"Rln Relay": self.rln},
                {"Store": "READY" if self.network.has_store else "NOT_MOUNTED"},
            ],
        }
        return 200, json.dumps(said).encode()

    def _peers(self, method: str, go: bool) -> tuple[int, bytes]:
        if not self.admin:
            return 404, b"404 page not found\n"
        if method == "POST":
            return 200, b"null"
        peers: list[dict[str, Any]] = []
        for number in range(self.relay_peers):
            protocols = _RELAY + ([_STORE] if self.network.has_store and not number else [])
            if go:
                peers.append({"multiaddrs": [STORE_PEER], "protocols": protocols, "connected": True})
            else:
                peers.append({"multiaddr": STORE_PEER, "protocols": protocols, "connected": "Connected"})
        return 200, json.dumps(peers).encode()

    def _store(self, query: Mapping[str, str], go: bool) -> tuple[int, bytes]:
        if self.store_status != 200:
            return self.store_status, b"out of order"
        if go and "peerAddr" not in query:
            return 500, b'{"messages":null,"error_message":"a peer ID or multiaddress is required"}'
        found = sorted(self.network.stored, key=lambda entry: entry[1]["timestamp"])
        if "hashes" in query:
            wanted = {_read_hash(text, go) for text in query["hashes"].split(",")}
            found = [entry for entry in found if entry[2] in wanted]
        else:
            topics = query["contentTopics"].split(",")
            begin, end = int(query.get("startTime", 0)), int(query.get("endTime", 1 << 62))
            found = [
                entry for entry in found if entry[1]["contentTopic"] in topics and begin <= entry[1]["timestamp"] <= end
            ]
        size, ascending = int(query.get("pageSize", 20)), query.get("ascending", "true") == "true"
        if "cursor" in query:
            at = [entry[2] for entry in found].index(_read_hash(query["cursor"], go))
            found = found[at + 1 :] if ascending else found[:at]
        page = found[:size] if ascending else found[-size:]
        names = ("message_hash", "pubsub_topic") if go else ("messageHash", "pubsubTopic")
        messages = []
        for pubsub_topic, message, name in page:
            entry: dict[str, Any] = {names[0]: _write_hash(name, go)}
            if query.get("includeData") == "true":
                said = dict(message)
                said["timestamp"] = str(said["timestamp"]) if go else said["timestamp"]
                entry |= {names[1]: pubsub_topic, "message": said}
            messages.append(self.lie(entry) if self.lie is not None else entry)
        answer: dict[str, Any] = {"status_code" if go else "statusCode": 200, "messages": messages}
        if len(found) > len(page):
            name = page[-1][2] if ascending else page[0][2]
            answer["pagination_cursor" if go else "paginationCursor"] = _write_hash(name, go)
        return 200, json.dumps(answer).encode()


class StubHttp:
    """`Http` to a stub node, without sockets: for virtual time."""

    def __init__(self, node: StubNode) -> None:
        self._node = node
        self.headers: dict[str, str] = {}
        self.closed = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_ms: int,
        on_body: Callable[[bytes], None] | None = None,
        body_bytes_max: int,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        await asyncio.sleep(LATENCY_S)
        self._node.requests.append((method, path))
        fault = self._node.hit_by_fault(path)
        if fault == "refuse":
            raise HttpError("no connection: Connection refused", sent=False)
        if fault == "hang":
            await asyncio.sleep(timeout_ms / 1000)
            raise HttpError(f"no answer within {timeout_ms} ms", sent=True)
        target = path + ("" if not query else "?" + "&".join(f"{name}={value}" for name, value in query.items()))
        if fault == "error":
            status, said = 500, b"out of order"
        else:
            status, said = self._node.answer(method, target.replace("+", "%2B"), body or b"", None)
        if fault == "drop":
            raise HttpError("no whole answer: ClientPayloadError", sent=True)
        if fault == "malformed":
            status, said = 200, b"<html>" + said
        if fault == "endless":
            status, said = 200, b"[" + b'{"contentTopic":"/other/1/x/proto"},' * 1_000
            for _ in range(1 + body_bytes_max // len(said)):
                if on_body is not None:
                    on_body(said if _ == 0 else said[1:])
                if _ > 50:
                    break
            raise HttpError(f"the answer is longer than {body_bytes_max} bytes", sent=True)
        if status == 200 and on_body is not None:
            # In two pieces, as a socket gives them.
            on_body(said[: len(said) // 2])
            on_body(said[len(said) // 2 :])
            said = b""
        return status, said, self.headers

    async def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def served(node: StubNode, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The node behind a real socket on loopback; its address as host:port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                node.requests.append((method, target))
                fault = node.hit_by_fault(target)
                if fault == "hang":
                    await asyncio.sleep(3_600)
                status, said = node.answer(method, target, body, headers.get("authorization"))
                if fault == "error":
                    status, said = 500, b"out of order"
                if fault == "drop":
                    break
                if fault == "malformed":
                    said = b"<html>" + said
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(said)) + said)
                if fault == "endless":
                    break
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()


def enr(cluster_id: int, shards: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)) -> str:
    """A record with nothing but what a node serves, unsigned."""
    listed = cluster_id.to_bytes(2, "big") + bytes([len(shards)]) + b"".join(s.to_bytes(2, "big") for s in shards)
    items = [b"\x01" * 64, b"\x05", b"id", b"v4", b"rs", listed]
    body = b"".join(_rlp(item) for item in items)
    head = bytes([0xF8, len(body)]) if len(body) > 55 else bytes([0xC0 + len(body)])
    return "enr:" + base64.urlsafe_b64encode(head + body).decode().rstrip("=")


def _rlp(item: bytes) -> bytes:
    if len(item) == 1 and item[0] < 0x80:
        return item
    return (bytes([0x80 + len(item)]) if len(item) < 56 else bytes([0xB8, len(item)])) + item


def _read_hash(text: str, go: bool) -> bytes:
    return base64.urlsafe_b64decode(text) if go else bytes.fromhex(text.removeprefix("0x"))


def _write_hash(name: bytes, go: bool) -> str:
    return base64.b64encode(name).decode() if go else "0x" + name.hex()
