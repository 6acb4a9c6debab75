"""One connection to a server, opened again whenever it breaks."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from shardwire.errors import NodeError
from shardwire.node.clock import NANOSECONDS_PER_MS
from shardwire.node.protocol import ConnectionState
from shardwire.node.transport.transport import TransportLink
from shardwire.quoting import one_line

logger = logging.getLogger(__name__)

REOPEN_PAUSE_MS_MIN = 250
REOPEN_PAUSE_MS_MAX = 5_000
# A session that held so long was a good one.
SETTLED_MS = 10_000
# Clocks of participants differ, and what was on its way when the connection broke was stamped before.
MISSED_MARGIN_MS = 5_000

T = TypeVar("T")


class ConnectionLost(Exception):
    """The connection broke while something waited for an answer; nobody knows whether it was carried out."""


class Session(ABC):
    """One connection from its opening to its end. It is not used again.

    Attributes:
        heard_ns: Unix time at which the server was last heard, in nanoseconds.
    """

    heard_ns: int

    def __init__(self) -> None:
        self._broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def is_broken(self) -> bool:
        return self._broken.done()

    def break_(self, reason: str) -> None:
        """Says that the connection is of no more use; the first reason counts."""
        if not self._broken.done():
            self._broken.set_result(reason)

    async def broken(self) -> str:
        """Waits for that, and gives the reason."""
        return await asyncio.shield(self._broken)

    async def unless_broken(self, call: Awaitable[T]) -> T:
        """The result of a call that would wait for ever once the connection broke.

        Raises:
            ConnectionLost: It broke first.
        """
        task = asyncio.ensure_future(call)
        try:
            await asyncio.wait((task, self._broken), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise ConnectionLost(self._broken.result())
        finally:
            if not task.done():
                # Nobody asks what it raises now, as it may where a library takes the cancellation for an error.
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
                task.cancel()

    @abstractmethod
    async def subscribe(self, content_topic: str) -> None:
        """Subscribes to a topic, once a session.

        Raises:
            NodeError: The server refuses it.
            ConnectionLost: The session is broken.
        """

    @abstractmethod
    async def unsubscribe(self, content_topic: str) -> None:
        """Ends a subscription of the session.

        Raises:
            ConnectionLost: The session is broken.
        """

    async def say_goodbye(self) -> None:
        """Tells the server that this end is meant; within seconds."""
        return

    @abstractmethod
    async def close(self) -> None:
        """Ends the connection, broken or not; within seconds."""


S = TypeVar("S", bound=Session)


class KeptConnection(Generic[S]):
    """Opens a session, waits until it breaks, and opens the next one, with growing pauses.

    Every topic of the node is subscribed again before the node counts as connected.

    Args:
        name: Names the server in the log.
        open_session: Connects.
        link: Told how the connection is, and what may have passed by.
    """

    def __init__(self, name: str, open_session: Callable[[], Awaitable[S]], link: TransportLink) -> None:
        self._name = name
        self._open_session = open_session
        self._link = link
        self._session: S | None = None
        self._opened_ms = 0
        self._pause_ms = REOPEN_PAUSE_MS_MIN

    @property
    def session(self) -> S | None:
        """The session; None while there is none."""
        session = self._session
        return None if session is None or session.is_broken else session

    async def start(self) -> None:
        """Opens the first session.

        Raises:
            NodeError: The server is out of reach or refuses us.
        """
        self._session = await self._open_session()
        self._opened_ms = self._link.clock.monotonic_ms() - SETTLED_MS
        self._link.connection(ConnectionState.CONNECTED)
        self._link.run("connection", self._keep)

    async def stop(self) -> None:
        """Closes the session."""
        session, self._session = self._session, None
        if session is not None:
            if not session.is_broken:
                await session.say_goodbye()
            session.break_("stopped")
            await session.close()

    async def subscribe(self, content_topic: str) -> None:
        """Subscribes where there is a session; the next one subscribes to every topic of the node.

        Raises:
            NodeError: The server refuses it.
        """
        session = self.session
        if session is not None:
            with suppress(ConnectionLost):
                await session.subscribe(content_topic)

    async def unsubscribe(self, content_topic: str) -> None:
        """Ends a subscription where there is a session; the next one has the topics that the node has then."""
        session = self.session
        if session is not None:
            with suppress(ConnectionLost):
                await session.unsubscribe(content_topic)

    async def _keep(self) -> None:
        away_since_ns = 0
        while True:
            session = self._session
            if session is not None:
                reason = await session.broken()
                if self._session is None:
                    return
                away_since_ns = min(session.heard_ns, self._link.clock.epoch_ns())
                self._session = None
                self._link.connection(ConnectionState.DISCONNECTED, reason)
                await session.close()
            self._session = session = await self._reopen()
            self._link.connection(ConnectionState.CONNECTED)
            # A broker may keep what comes in for a client that is away, as much of it as it likes.
            self._link.missed(max(0, away_since_ns - MISSED_MARGIN_MS * NANOSECONDS_PER_MS))

    async def _reopen(self) -> S:
        # A server that lets us in and throws us out again is not asked faster than one that is away.
        if self._link.clock.monotonic_ms() - self._opened_ms > SETTLED_MS:
            self._pause_ms = REOPEN_PAUSE_MS_MIN
        told = ""
        while True:
            await asyncio.sleep(self._pause_ms / 1000)
            self._pause_ms = min(2 * self._pause_ms, REOPEN_PAUSE_MS_MAX)
            session = None
            try:
                session = await self._open_session()
                # A topic that comes or goes meanwhile is left to this session.
                subscribed: set[str] = set()
                while (wanted := set(self._link.topics)) != subscribed:
                    for topic in sorted(wanted - subscribed):
                        await session.subscribe(topic)
                    for topic in sorted(subscribed - wanted):
                        await session.unsubscribe(topic)
                    subscribed = wanted
                self._opened_ms = self._link.clock.monotonic_ms()
                return session
            except (NodeError, ConnectionLost) as error:
                if session is not None:
                    await session.close()
                if str(error) != told:
                    told = str(error)
                    logger.info("%s: cannot be reached, tried again: %s", self._name, one_line(told))
            except BaseException:
                if session is not None:
                    await session.close()
                raise
