"""A store node's REST interface on loopback, in both dialects, with failures on demand."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from shardwire._native import message_hash
from shardwire.node import MessageEnvelope


@dataclass
class StoreServer:
    """What the server holds, how it answers, and what it was asked."""

    dialect: str
    messages: list[tuple[MessageEnvelope, int]]
    pubsub_topic: str = "/waku/2/rs/1/5"
    # Statuses (or "drop") that the next requests for messages get instead of an answer.
    failures: list[int | str] = field(default_factory=list)
    body: bytes | None = None
    requests: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def hash_of(self, envelope: MessageEnvelope, timestamp_ns: int) -> bytes:
        return message_hash(
            pubsub_topic=self.pubsub_topic,
            payload=envelope.payload,
            content_topic=envelope.content_topic,
            meta=envelope.meta,
            timestamp_ns=timestamp_ns,
        )

    def answer(self, asked: dict[str, str]) -> tuple[int, Any]:
        """Status and JSON for one query, by the rules of the dialect."""
        go = self.dialect == "go-waku"
        if go and "hashes" in asked and "peerAddr" not in asked:
            return 500, {"messages": None, "error_message": "a peer ID or multiaddress is required"}
        if go and "hashes" not in asked and not ("pubsubTopic" in asked and "contentTopics" in asked):
            return 400, {"status_code": 400, "status_desc": "pubsubTopic and contentTopics are required"}
        found = sorted(((t, self.hash_of(e, t), e) for e, t in self.messages), key=lambda row: row[:2])
        if "hashes" in asked:
            wanted = {self._read_hash(text) for text in asked["hashes"].split(",")}
            found = [row for row in found if row[1] in wanted]
        else:
            topics = asked["contentTopics"].split(",") if "contentTopics" in asked else None
            start, end = int(asked.get("startTime", 0)), int(asked.get("endTime", 1 << 62))
            found = [
                row for row in found if (topics is None or row[2].content_topic in topics) and start <= row[0] <= end
            ]
        if "cursor" in asked:
            cursor = self._read_hash(asked["cursor"])
            found = found[[row[1] for row in found].index(cursor) + 1 :]
        size = int(asked.get("pageSize", 20))
        page, more = found[:size], len(found) > size
        names = ("message_hash", "pubsub_topic") if go else ("messageHash", "pubsubTopic")
        messages = []
        for timestamp_ns, digest, envelope in page:
            entry: dict[str, Any] = {names[0]: self._write_hash(digest), names[1]: self.pubsub_topic}
            if asked.get("includeData") == "true":
                entry["message"] = {
                    "payload": base64.b64encode(envelope.payload).decode(),
                    "contentTopic": envelope.content_topic,
                    "timestamp": str(timestamp_ns) if go else timestamp_ns,
                }
                if envelope.meta:
                    entry["message"]["meta"] = base64.b64encode(envelope.meta).decode()
            messages.append(entry)
        body: dict[str, Any] = {"status_code" if go else "statusCode": 200}
        if messages or not go:
            body["messages"] = messages
        if more:
            body["pagination_cursor" if go else "paginationCursor"] = self._write_hash(page[-1][1])
        return 200, body

    def _read_hash(self, text: str) -> bytes:
        return base64.urlsafe_b64decode(text) if self.dialect == "go-waku" else bytes.fromhex(text.removeprefix("0x"))

    def _write_hash(self, digest: bytes) -> str:
        return base64.b64encode(digest).decode() if self.dialect == "go-waku" else "0x" + digest.hex()


@contextmanager
def serving(store: StoreServer) -> Iterator[StoreServer]:
    """Runs the server while the block runs; `store.url` is its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path != "/store/v3/messages":
                known = parts.path == "/version" and store.dialect == "logos-delivery"
                self._send(200 if known else 404, b"v0.36.0")
                return
            store.requests.append({name: values[0] for name, values in parse_qs(parts.query).items()})
            failure = store.failures.pop(0) if store.failures else None
            if failure == "drop":
                self.close_connection = True
                self.connection.close()
            elif isinstance(failure, int):
                self._send(failure, b"out of order")
            elif store.body is not None:
                self._send(200, store.body)
            else:
                status, body = store.answer(store.requests[-1])
                self._send(status, json.dumps(body).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    store.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
