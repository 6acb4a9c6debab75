"""HTTP as the transport needs it: one answer to one request, and whether a failed one may have had an effect."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, unquote, urlsplit

from shardwire.errors import ConfigError, MissingLibraryError
from shardwire.node.transport.address import check_host, check_port, unreachable

if TYPE_CHECKING:
    import ssl

# Idle connections are left before a server may close them, since a request on a closed one is ambiguous.
KEEPALIVE_S = 10
CONNECTIONS_MAX = 8
# What an answer that trickles has from its first byte on: so many times its timeout, and a second for so many bytes.
TRICKLE_TIMEOUTS = 3
TRICKLE_BYTES_PER_S = 1_024


class HttpError(Exception):
    """A request got no whole answer.

    Attributes:
        sent: Whether the server may have seen the request.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Http(Protocol):
    """What makes requests; tests put a scripted node in its place."""

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
        """Status, body and headers of the answer.

        Args:
            method: GET, POST or DELETE.
            path: From the root, percent-encoded.
            query: Parameters, not encoded.
            body: JSON.
            timeout_ms: Without a byte from the server for so long it fails. One whose answer trickles fails after
                three times as long, and a second more for each thousand bytes.
            on_body: Given the body of an answer 200 piece by piece, which is then not returned; what it raises ends
                the request.
            body_bytes_max: A longer body fails.

        Raises:
            HttpError: There was no whole answer.
        """

    async def close(self) -> None: ...


@dataclass(frozen=True)
class RestAddress:
    """Where a REST interface is, and what it wants to see.

    Attributes:
        url: Without credentials.
        username: For basic authentication; None for none.
        password: Likewise.
        tls: How the server's certificate is checked; None for the system's authorities.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, name: str, url: str, tls: ssl.SSLContext | None = None) -> RestAddress:
        """Takes the credentials out of a URL.

        Raises:
            ConfigError: `url`, called `name`, names no server by http or https.
        """
        if not isinstance(url, str):
            raise ConfigError(f"{name} is a {type(url).__name__}: it must be a text such as http://127.0.0.1:8645")
        shown = url.rpartition("@")[2]
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ConfigError(f"{name} is {shown!r}: it is no URL, or its port is none") from None
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigError(f"{name} is {shown!r}: it must begin with http:// or https:// and name a host")
        if parts.query or parts.fragment:
            raise ConfigError(f"{name} is {shown!r}: it must end with a path")
        check_host(name, host)
        check_port(f"{name} is {shown!r}", port)
        host = f"[{host}]" if ":" in host else host
        base = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
        username = None if parts.username is None else unquote(parts.username)
        password = None if parts.password is None else unquote(parts.password)
        return cls(base, username, password, tls)


def topic_in_path(content_topic: str) -> str:
    """A topic as one part of a path: its slashes are encoded too."""
    return quote(content_topic, safe="")


class AiohttpClient:
    """`Http` over aiohttp.

    Raises:
        ConfigError: The library is missing.
    """

    def __init__(self, address: RestAddress) -> None:
        try:
            import aiohttp
        except ImportError:
            raise MissingLibraryError(
                "WakuRestNode needs the library 'aiohttp': pip install 'shardwire[rest]'"
            ) from None
        self._aiohttp = aiohttp
        self._address = address
        self._session: Any = None

    def _open(self) -> Any:
        # Inside of the event loop that uses it.
        aiohttp, address = self._aiohttp, self._address
        headers = {"Accept-Encoding": "identity", "User-Agent": "shardwire"}
        if address.username is not None:
            credentials = f"{address.username}:{address.password or ''}".encode()
            headers["Authorization"] = "Basic " + base64.b64encode(credentials).decode("ascii")
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=CONNECTIONS_MAX,
                keepalive_timeout=KEEPALIVE_S,
                **({} if address.tls is None else {"ssl": address.tls}),
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            # A short answer could unpack to anything.
            auto_decompress=False,
            headers=headers,
            middlewares=(self._never_again,),
            read_bufsize=1 << 20,
        )

    async def _never_again(self, request: Any, handler: Any) -> Any:
        """Keeps aiohttp from repeating a GET by itself: one that drained a queue is gone, and we must know."""
        aiohttp = self._aiohttp
        try:
            return await handler(request)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise aiohttp.ClientPayloadError(f"the connection broke: {type(error).__name__}") from error

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
        from yarl import URL

        if self._session is None:
            self._session = self._open()
        aiohttp = self._aiohttp
        url = URL(self._address.url + path, encoded=True)
        if query:
            url = url.update_query(query)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        timeout_s = timeout_ms / 1000
        sent = trickles = False
        received_bytes = 0
        try:
            async with asyncio.timeout(timeout_s) as limit:
                context = self._session.request(
                    method,
                    url,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, connect=timeout_s, sock_connect=timeout_s),
                )
                async with context as response:
                    sent = True
                    loop = asyncio.get_running_loop()
                    patient_until_s = loop.time() + TRICKLE_TIMEOUTS * timeout_s
                    pieces: list[bytes] = []
                    take = on_body if response.status == 200 else None
                    async for piece in response.content.iter_any():
                        received_bytes += len(piece)
                        next_s = loop.time() + timeout_s
                        whole_s = patient_until_s + received_bytes / TRICKLE_BYTES_PER_S
                        trickles = whole_s < next_s
                        limit.reschedule(min(next_s, whole_s))
                        if received_bytes > body_bytes_max:
                            raise HttpError(f"the answer is longer than {body_bytes_max} bytes", sent=True)
                        if take is None:
                            pieces.append(piece)
                        else:
                            take(piece)
                    return response.status, b"".join(pieces), response.headers
        except aiohttp.ClientConnectorError as error:
            raise HttpError(f"no connection: {unreachable(error.os_error)}", sent=False) from None
        except (aiohttp.ClientConnectionError, aiohttp.ServerTimeoutError) as error:
            raise HttpError(f"no connection: {type(error).__name__}", sent=sent) from None
        except TimeoutError:
            if trickles:
                raise HttpError(f"the answer trickles: {received_bytes} bytes came", sent=True) from None
            raise HttpError(f"no answer within {timeout_ms} ms", sent=True) from None
        except aiohttp.ClientResponseError:
            raise HttpError("what answers there is no HTTP: correct host and port", sent=True) from None
        except aiohttp.ClientError as error:
            raise HttpError(f"no whole answer: {type(error).__name__}", sent=True) from None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
