"""The page over HTTP: read only, for this machine unless told otherwise, a stream of snapshots to each browser."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from importlib.resources import files
from types import TracebackType
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from shardwire.channel import ReliableChannel
from shardwire.config.checks import check_list, check_text
from shardwire.errors import ConfigError
from shardwire.monitor.view import ChannelView

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
# Browsers that are told at the same time, and connections of all kinds that are answered; each takes a descriptor of
# the process, so of twice as many the latest is cut off, and one that asks for nothing in time.
VIEWERS_MAX = 16
CONNECTIONS_MAX = 64
REQUEST_S = 10.0
# Between two snapshots, and how long nothing is sent where nothing happens.
INTERVAL_S = 0.5
SILENCE_S = 5.0
_STOPPING_S = 1
_PAGE = {
    "/": ("index.html", "text/html"),
    "/monitor.js": ("monitor.js", "text/javascript"),
    "/monitor.css": ("monitor.css", "text/css"),
}
# Nothing but what this server gives; no frame around it, no form, no other origin.
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class Monitor:
    """A page that shows what a channel does, live; an async context manager that serves it meanwhile.

    It watches and changes nothing: received messages are left to the application, no content is shown, and a browser
    that reads slowly is told less often and holds up nobody. There is no password: whoever reaches the port reads who
    takes part and how much is sent, so it listens on this machine alone unless told otherwise.

    Args:
        channel: The channel.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        allow_hosts: Names under which browsers reach it beside `localhost` and addresses. Others are refused: a page
            of a stranger could have its own name resolve to this machine (DNS rebinding).

    Attributes:
        url: Where the page is, once it is served; empty before.

    Raises:
        ConfigError: An argument is of a wrong kind, or the port is none.
    """

    def __init__(
        self, channel: ReliableChannel, host: str = LOOPBACK, port: int = 0, *, allow_hosts: Collection[str] = ()
    ) -> None:
        if not isinstance(channel, ReliableChannel):
            raise ConfigError(f"channel is a {type(channel).__name__}: it must be a ReliableChannel")
        check_text("host", host)
        check_list("allow_hosts", allow_hosts, "names of hosts")
        for name in allow_hosts:
            check_text("a name in allow_hosts", name)
        if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65_535:
            raise ConfigError(f"port is {port!r}: it must be 0 to 65535")
        self._channel = channel
        self._host, self._port = host, port
        self._names = frozenset(name.lower() for name in allow_hosts) | {"localhost"}
        self.url = ""
        self._view: ChannelView | None = None
        self._frame: tuple[tuple[int, int], bytes] = ((-1, 0), b"")
        self._viewers = 0
        self._stopping = asyncio.Event()
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Listens, and watches the channel from here on.

        Raises:
            OSError: The address cannot be listened on.
        """
        listening = await _listen(self._host, self._port)
        host, port = listening.getsockname()[:2]
        self._view = ChannelView(self._channel)
        self._stopping.clear()
        config = uvicorn.Config(
            _Guard(self._application(), self._names),
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=_STOPPING_S,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve([listening]), name="shardwire monitor")
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._view is not None
        assert self._server is not None
        assert self._serving is not None
        self._view.close()
        self._stopping.set()
        self._server.should_exit = True
        await asyncio.wait((self._serving,))
        self.url = ""

    def _application(self) -> Starlette:
        return Starlette(
            routes=[
                *(Route(path, _asset(name, kind)) for path, (name, kind) in _PAGE.items()),
                Route("/events", self._events),
                Route("/snapshot", self._snapshot),
            ]
        )

    async def _snapshot(self, request: Request) -> Response:
        return Response(self._encoded(), media_type="application/json")

    async def _events(self, request: Request) -> Response:
        if self._viewers >= VIEWERS_MAX:
            return PlainTextResponse(f"{VIEWERS_MAX} browsers are looking: close one\n", 503)
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[bytes]:
        """Snapshots for one browser. Nothing is queued: the next is made when the last one was taken."""
        assert self._view is not None
        self._viewers += 1
        try:
            silent_s, told = 0.0, -1
            while not self._stopping.is_set():
                if self._view.version != told or silent_s >= SILENCE_S:
                    silent_s, told = 0.0, self._view.version
                    yield b"data: " + self._encoded() + b"\n\n"
                silent_s += INTERVAL_S
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), INTERVAL_S)
        finally:
            self._viewers -= 1

    def _encoded(self) -> bytes:
        """The snapshot as it stands, made once for all who look within the same moment."""
        assert self._view is not None
        now = self._view.version, int(asyncio.get_running_loop().time() / INTERVAL_S)
        if self._frame[0] != now:
            self._frame = now, json.dumps(self._view.snapshot(), ensure_ascii=True).encode()
        return self._frame[1]


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Ctrl-C belongs to the application.
        yield


class _Connection(H11Protocol):
    """Cut off where it has no whole request in time: the first, and after each answer the next."""

    _unasked: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > 2 * CONNECTIONS_MAX:
            transport.abort()
        else:
            self._expect_request()

    def on_response_complete(self) -> None:
        self._expect_request()
        # Takes up the next request where that is here.
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        # Another answer beside the one to a request would raise.
        if self.cycle:
            self.transport.abort()
        else:
            super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._unasked is not None:
            self._unasked.cancel()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        if self._unasked is not None:
            self._unasked.cancel()
        self._unasked = self.loop.call_later(REQUEST_S, self._end_unasked)

    def _end_unasked(self) -> None:
        # None before the first request, and the last one's until there is another.
        if not self.cycle or self.cycle.response_complete:
            self.transport.abort()


class _Guard:
    """Answers what may be asked, and refuses the rest before anything else sees it."""

    def __init__(self, application: ASGIApp, names: Collection[str]) -> None:
        self._application = application
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *given]}
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._application)(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("this page is read only\n", 405, {"allow": "GET, HEAD"})
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not _is_ours(hosts[0], self._names):
            return PlainTextResponse("unknown host: name it with allow_hosts, or --allow-host\n", 421)
        # A browser says where a request comes from; other sites may link to the page, not read it or hold its places.
        if request.url.path != "/" and request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return PlainTextResponse("asked for by another site\n", 403)
        return None


def _is_ours(host: str, names: Collection[str]) -> bool:
    """Whether a Host header names this machine: by an address, or by a name that was told."""
    name = host.lower()
    if name.startswith("["):
        name, closed, port = name[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            return False
        port = port[1:]
    else:
        name, _, port = name.partition(":")
    if port and not (port.isascii() and port.isdigit()):
        return False
    if name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _asset(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    content = files("shardwire.monitor").joinpath("page", name).read_bytes()

    async def give(request: Request) -> Response:
        return Response(content, media_type=kind)

    return give


async def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        OSError: It cannot.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError:
        # What no name of a host can be, as one with an empty part.
        raise _refusal(errno.EADDRNOTAVAIL, host, port, "it is no host") from None
    except socket.gaierror as error:
        # What the resolver says names nothing.
        raise _refusal(errno.EADDRNOTAVAIL, host, port, error.strerror) from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(CONNECTIONS_MAX)
    except OSError as error:
        listening.close()
        raise _refusal(error.errno, host, port, error.strerror) from None
    listening.setblocking(False)
    return listening


def _refusal(number: int | None, host: str, port: int, reason: str | None) -> OSError:
    is_host = number == errno.EADDRNOTAVAIL
    remedy = "name an address of this machine" if is_host else "name another port, or 0 for a free one"
    return OSError(number, f"{host}:{port} cannot be listened on: {reason}: {remedy}")
