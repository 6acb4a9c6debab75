"""A client of the store v3 REST interface (13/STORE) in both dialects: logos-delivery (nwaku) and go-waku.

The dialects differ in how hashes are written, in the names of the answer's fields and in what a query must name. An
answer is read by the fields it has, so either server may give either form. What a server sends is checked first.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from shardwire._native import shard_of
from shardwire.errors import ConfigError, NodeError
from shardwire.node.protocol import MessageEnvelope, StoredMessage, StorePage, StoreQuery

if TYPE_CHECKING:
    import httpx

StoreDialect = Literal["auto", "logos-delivery", "go-waku"]

PAGE_SIZE_MAX = 100
CONTENT_TOPICS_MAX = 10
HASH_BYTES = 32
_PATH = "/store/v3/messages"
_RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
_TEXT_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class StoreEndpoint:
    """Where a store is asked, and how.

    Attributes:
        url: Base address of the node's REST interface.
        dialect: "auto" asks the node once what it is.
        peer_addr: The store peer that the node forwards to; go-waku needs one, except where it knows a store itself.
        pubsub_topic: The pubsub topic; None derives it by autosharding where go-waku requires one.
        cluster_id: Cluster, for autosharding.
        num_shards_in_cluster: Shards, for autosharding.
        timeout_ms: For one request: to be connected, and until its answer is whole.
        retries_max: Further attempts after a server's error, a lost connection or a timeout.
        retry_delay_ms: Before the first of them; doubled each time.
        answer_bytes_max: What one answer may hold; a page of 100 messages has up to 20 MB.
    """

    url: str
    dialect: StoreDialect = "auto"
    peer_addr: str | None = None
    pubsub_topic: str | None = None
    cluster_id: int = 1
    num_shards_in_cluster: int = 8
    timeout_ms: int = 30_000
    retries_max: int = 5
    retry_delay_ms: int = 1_000
    answer_bytes_max: int = 64 << 20

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"StoreEndpoint.url is {self.url!r}: it must begin with http:// or https://")
        if self.dialect not in ("auto", "logos-delivery", "go-waku"):
            raise ConfigError(
                f"StoreEndpoint.dialect is {self.dialect!r}: it must be 'auto', 'logos-delivery' or 'go-waku'"
            )
        for name, minimum in (("timeout_ms", 1), ("retries_max", 0), ("retry_delay_ms", 0), ("answer_bytes_max", 1)):
            if getattr(self, name) < minimum:
                raise ConfigError(f"StoreEndpoint.{name} is {getattr(self, name)}: it must be at least {minimum}")


class StoreClient:
    """Asks one store. Blocking; close it, or use it as a context manager.

    Args:
        endpoint: Where and how.
        sleep: Waits a number of seconds before a retry.
        clock: Tells seconds, for the timeout.

    Raises:
        ConfigError: The library httpx is missing, or the URL names no host.
    """

    def __init__(
        self,
        endpoint: StoreEndpoint,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise ConfigError("StoreClient needs the library 'httpx': pip install 'shardwire[rest]'") from None
        self._passing_errors = (httpx.TransportError,)
        # Among these a body in an encoding that it is not in.
        self._errors = (httpx.RequestError, httpx.InvalidURL)
        self._endpoint = endpoint
        self._sleep = sleep
        self._clock = clock
        try:
            self._http: httpx.Client = httpx.Client(base_url=endpoint.url, timeout=endpoint.timeout_ms / 1000)
        except httpx.InvalidURL as error:
            raise ConfigError(f"StoreEndpoint.url is {endpoint.url!r}: {error}") from None
        if not self._http.base_url.host:
            raise ConfigError(f"StoreEndpoint.url is {endpoint.url!r}: it must name a host")
        self._dialect: StoreDialect = endpoint.dialect

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def query(self, query: StoreQuery) -> StorePage:
        """One page of a store's answer.

        Raises:
            ConfigError: The query asks for what this dialect cannot answer.
            NodeError: The store refused, did not answer after all retries, or answered something unreadable.
        """
        body = self._get(_PATH, query_parameters(query, self._endpoint, self.dialect()))
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise NodeError(f"the store at {self._endpoint.url} answered something that is not JSON") from None
        return parse_page(answer)

    def pages(self, query: StoreQuery) -> Iterator[StorePage]:
        """All pages from `query` on.

        Raises:
            NodeError: As `query`, or the store gave the same cursor twice.
        """
        seen = {query.cursor}
        while True:
            page = self.query(query)
            yield page
            if page.cursor is None:
                return
            # A store that repeats itself would be asked for ever.
            if page.cursor in seen:
                raise NodeError(f"the store at {self._endpoint.url} gave a cursor that it had given before")
            seen.add(page.cursor)
            query = replace(query, cursor=page.cursor)

    def dialect(self) -> StoreDialect:
        """What the node speaks; asked of it once where the endpoint does not say."""
        if self._dialect == "auto":
            status, _ = self._attempt("/version", {})
            self._dialect = "logos-delivery" if status == 200 else "go-waku"
        return self._dialect

    def _get(self, path: str, parameters: Mapping[str, str]) -> bytes:
        status, body = self._attempt(path, parameters)
        if status != 200:
            text = body[:_TEXT_SHOWN_MAX].decode(errors="replace")
            raise NodeError(f"the store at {self._endpoint.url} answered {status}: {text!r}")
        return body

    def _attempt(self, path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body of the first answer that is not a passing failure, or of the last one."""
        delay_ms = self._endpoint.retry_delay_ms
        for retry in range(self._endpoint.retries_max + 1):
            if retry:
                self._sleep(delay_ms / 1000)
                delay_ms *= 2
            is_last = retry == self._endpoint.retries_max
            try:
                status, body = self._ask(path, parameters)
            except self._errors as error:
                if not is_last and isinstance(error, self._passing_errors):
                    continue
                raise NodeError(
                    f"the store at {self._endpoint.url} did not answer in {retry + 1} attempts: {type(error).__name__}"
                ) from error
            except TimeoutError:
                if not is_last:
                    continue
                raise NodeError(
                    f"the store at {self._endpoint.url} did not answer in {retry + 1} attempts: an answer was not "
                    f"whole after {self._endpoint.timeout_ms} ms"
                ) from None
            if is_last or status not in _RETRIED_STATUSES:
                return status, body
        raise AssertionError("the last attempt returns or raises")

    def _ask(self, path: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        """Raises:
        TimeoutError: The answer comes too slowly.
        NodeError: It is too long.
        """
        limit = self._endpoint.answer_bytes_max
        deadline = self._clock() + self._endpoint.timeout_ms / 1000
        body = bytearray()
        with self._http.stream("GET", path, params=parameters) as response:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > limit:
                    raise NodeError(
                        f"the store at {self._endpoint.url} answered more than {limit} bytes: ask for smaller pages, "
                        "or raise StoreEndpoint.answer_bytes_max"
                    )
                if self._clock() > deadline:
                    raise TimeoutError
            return response.status_code, bytes(body)


def query_parameters(query: StoreQuery, endpoint: StoreEndpoint, dialect: StoreDialect) -> dict[str, str]:
    """The query string of one request.

    Raises:
        ConfigError: The query asks for what this dialect cannot answer.
    """
    if not 1 <= query.page_size <= PAGE_SIZE_MAX:
        raise ConfigError(f"StoreQuery.page_size is {query.page_size}: it must be from 1 to {PAGE_SIZE_MAX}")
    write_hash = _base64_hash if dialect == "go-waku" else _hex_hash
    parameters = {
        "includeData": _word(query.include_data),
        "pageSize": str(query.page_size),
        "ascending": _word(query.forward),
    }
    if endpoint.peer_addr is not None:
        parameters["peerAddr"] = endpoint.peer_addr
    if query.cursor is not None:
        parameters["cursor"] = write_hash(query.cursor)
    if query.message_hashes:
        if dialect == "go-waku" and endpoint.peer_addr is None:
            raise ConfigError("go-waku answers a query by hashes only with StoreEndpoint.peer_addr: set it")
        return parameters | {"hashes": ",".join(map(write_hash, query.message_hashes))}
    if query.content_topics:
        parameters["contentTopics"] = ",".join(query.content_topics)
    pubsub_topic = endpoint.pubsub_topic
    if dialect == "go-waku":
        pubsub_topic = pubsub_topic or _autosharded(query.content_topics, endpoint)
        if len(query.content_topics) > CONTENT_TOPICS_MAX:
            raise ConfigError(
                f"a query of go-waku names {len(query.content_topics)} content topics: at most {CONTENT_TOPICS_MAX}"
            )
    if pubsub_topic is not None:
        parameters["pubsubTopic"] = pubsub_topic
    if query.start_time_ns is not None:
        parameters["startTime"] = str(query.start_time_ns)
    if query.end_time_ns is not None:
        parameters["endTime"] = str(query.end_time_ns)
    return parameters


def parse_page(answer: Any) -> StorePage:
    """A page out of either dialect's JSON.

    Raises:
        NodeError: The answer reports a failure or is not a store's.
    """
    if not isinstance(answer, dict):
        raise NodeError(f"a store answered a JSON {type(answer).__name__}: an object is expected")
    status = _either(answer, "statusCode", "status_code")
    if status not in (None, 200):
        described = str(_either(answer, "statusDesc", "status_desc"))[:_TEXT_SHOWN_MAX]
        raise NodeError(f"the store reports {status}: {described!r}")
    messages = answer.get("messages") or []
    cursor = _either(answer, "paginationCursor", "pagination_cursor")
    try:
        return StorePage(tuple(map(_parse_message, messages)), None if not cursor else _parse_hash(cursor))
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise NodeError(f"a store's answer cannot be read: {type(error).__name__}") from None


def _parse_message(entry: Mapping[str, Any]) -> StoredMessage:
    message_hash = _parse_hash(_either(entry, "messageHash", "message_hash"))
    message = entry.get("message")
    if message is None:
        return StoredMessage(message_hash)
    topic = _either(message, "contentTopic", "content_topic")
    if not isinstance(topic, str):
        raise TypeError("contentTopic")
    envelope = MessageEnvelope(
        content_topic=topic,
        payload=_parse_base64(message.get("payload") or ""),
        ephemeral=bool(message.get("ephemeral")),
        meta=_parse_base64(message.get("meta") or ""),
    )
    # protojson writes 64-bit integers as strings.
    return StoredMessage(message_hash, int(message.get("timestamp") or 0), envelope)


def _parse_hash(text: Any) -> bytes:
    if not isinstance(text, str):
        raise TypeError("hash")
    is_hex = text.startswith("0x") or len(text) == 2 * HASH_BYTES
    value = bytes.fromhex(text.removeprefix("0x")) if is_hex else _parse_base64(text)
    if len(value) != HASH_BYTES:
        raise ValueError("hash")
    return value


def _parse_base64(text: str) -> bytes:
    standard = text.replace("-", "+").replace("_", "/")
    return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)


def _hex_hash(value: bytes) -> str:
    return "0x" + value.hex()


def _base64_hash(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode("ascii")


def _autosharded(content_topics: tuple[str, ...], endpoint: StoreEndpoint) -> str:
    shards = {shard_of(topic, endpoint.num_shards_in_cluster) for topic in content_topics}
    if len(shards) != 1:
        raise ConfigError(
            f"a query of go-waku must name content topics of one shard, and {len(content_topics)} topics lie on "
            f"{len(shards)}: ask for them apart, or set StoreEndpoint.pubsub_topic"
        )
    return f"/waku/2/rs/{endpoint.cluster_id}/{shards.pop()}"


def _either(values: Mapping[str, Any], camel: str, snake: str) -> Any:
    return values[camel] if camel in values else values.get(snake)


def _word(value: bool) -> str:
    return "true" if value else "false"
