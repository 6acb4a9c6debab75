"""A blocking client of the store v3 REST interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from shardwire.errors import ConfigError, MissingLibraryError, NodeError
from shardwire.node.protocol import StorePage, StoreQuery
from shardwire.node.store_v3 import STORE_PATH, TEXT_SHOWN_MAX, WakuDialect, parse_page, query_parameters
from shardwire.node.transport.address import unreachable

if TYPE_CHECKING:
    import httpx

StoreDialect = Literal["auto", "logos-delivery", "go-waku"]

# A store leaves a page empty where all that it would hold is deleted meanwhile; not so many in a row.
EMPTY_PAGES_MAX = 100
_RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})


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
            raise MissingLibraryError("StoreClient needs the library 'httpx': pip install 'shardwire[rest]'") from None
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
        self._dialect: WakuDialect | None = None if endpoint.dialect == "auto" else endpoint.dialect

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
        endpoint = self._endpoint
        parameters = query_parameters(
            query,
            self.dialect(),
            peer_addr=endpoint.peer_addr,
            pubsub_topic=endpoint.pubsub_topic,
            cluster_id=endpoint.cluster_id,
            num_shards_in_cluster=endpoint.num_shards_in_cluster,
        )
        return parse_page(self._get(STORE_PATH, parameters))

    def pages(self, query: StoreQuery) -> Iterator[StorePage]:
        """All pages from `query` on.

        Raises:
            NodeError: As `query`, or the store gave the same cursor twice, or 100 pages in a row without a message.
        """
        seen = {query.cursor}
        empty_pages = 0
        while True:
            page = self.query(query)
            yield page
            if page.cursor is None:
                return
            # A store that repeats itself would be asked for ever.
            if page.cursor in seen:
                raise NodeError(f"the store at {self._endpoint.url} gave a cursor that it had given before")
            seen.add(page.cursor)
            empty_pages = 0 if page.messages else empty_pages + 1
            if empty_pages == EMPTY_PAGES_MAX:
                raise NodeError(
                    f"the store at {self._endpoint.url} gave {empty_pages} pages in a row without a message: "
                    "ask another one"
                )
            query = replace(query, cursor=page.cursor)

    def dialect(self) -> WakuDialect:
        """What the node speaks; asked of it once where the endpoint does not say."""
        if self._dialect is None:
            status, _ = self._attempt("/version", {})
            self._dialect = "logos-delivery" if status == 200 else "go-waku"
        return self._dialect

    def _get(self, path: str, parameters: Mapping[str, str]) -> bytes:
        status, body = self._attempt(path, parameters)
        if status != 200:
            text = body[:TEXT_SHOWN_MAX].decode(errors="replace")
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
                    f"the store at {self._endpoint.url} did not answer in {retry + 1} attempts: {_reason(error)}"
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
        """One request: the status and body of the answer.

        Raises:
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


def _reason(error: BaseException) -> str:
    """Why there was no answer: what the system said, which httpx tells under names of its own."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__ if cause is None else unreachable(cause)
