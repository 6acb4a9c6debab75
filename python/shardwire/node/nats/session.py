"""One connection to a NATS server."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats import errors as nats_errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from shardwire.errors import NodeError
from shardwire.node.clock import Clock
from shardwire.node.transport.address import ServerAddress, unreachable
from shardwire.node.transport.kept_connection import ConnectionLost, Session

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5
# A server that answers nothing for two of these is gone, though its connection stands.
HEARTBEAT_MS = 4_000
CLOSE_TIMEOUT_S = 2.0
# How long what waits in the client's buffer may take until it is looked at again.
WRITE_LOOK_S = 0.001
PENDING_MESSAGES_MAX = 10_000
PENDING_BYTES_MAX = 256 << 20
_PERMISSION_ERROR = "permissions violation"


@dataclass(frozen=True, slots=True)
class NatsLogin:
    """Where the server is, and what it is shown."""

    address: ServerAddress
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    credentials: Path | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def wants_tls(self) -> bool:
        return self.tls is not None or self.address.scheme == "tls"


class _Client(Client):
    """The library's client, which tells what a server says of itself and of its limits.

    By itself it goes on without TLS at a server that offers none, whatever the URL asks for, overlooks a limit that
    changes while it is connected, and does not say that a connection broke to which it had something to write.
    """

    wants_tls = False

    def __init__(self, on_max_payload: Callable[[int], None]) -> None:
        super().__init__()
        self._on_max_payload = on_max_payload
        # What the server said of itself last.
        self.info: dict[str, Any] = {}

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self.wants_tls and not info.get("tls_required"):
            raise nats_errors.Error("TLS is asked for, and the server offers none")
        size_bytes = info.get("max_payload")
        if isinstance(size_bytes, int) and size_bytes > 0:
            self._max_payload = size_bytes
            if not initial_connection:
                self._on_max_payload(size_bytes)
        self.info = {**self.info, **info}
        await super()._process_info(info, initial_connection)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # What counts was flushed before. What is left cannot be written to a connection that broke: the library would
        # raise over it, and leave its tasks running.
        self._pending = []
        self._pending_data_size = 0
        await super()._close(status, do_cbs)


class NatsSession(Session):
    """A connection that is open, until it breaks. `open` makes one.

    Args:
        clock: Unix time.
        on_data: Given each message of a subscription: what was subscribed, the data.
        on_lost: Told that the client threw messages away, because they came faster than they were taken.
        on_max_payload: Told the server's limit when it changes.
        subjects_of: What is subscribed for a content topic.
    """

    def __init__(
        self,
        clock: Clock,
        on_data: Callable[[str, bytes], None],
        on_lost: Callable[[], None],
        on_max_payload: Callable[[int], None],
        subjects_of: Callable[[str], tuple[str, ...]],
    ) -> None:
        super().__init__()
        self.client = _Client(on_max_payload)
        self.heard_ns = clock.epoch_ns()
        self._clock = clock
        self._on_data = on_data
        self._on_lost = on_lost
        self._subjects_of = subjects_of
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._last_error: Exception | None = None
        # Subjects that the server lets us not use, in lower case, as the library hands them on.
        self._refused: set[str] = set()
        self._flush_now: asyncio.Task[None] | None = None
        self._flush_next: asyncio.Task[None] | None = None
        self._heartbeat: asyncio.Task[None] | None = None

    async def open(self, login: NatsLogin) -> None:
        """Connects.

        Raises:
            NodeError: The server is out of reach, or refuses us.
        """
        client = self.client
        client.wants_tls = login.wants_tls
        address = login.address
        try:
            # The library tries each server again and again: this is for one that accepts and says nothing.
            async with asyncio.timeout(3 * CONNECT_TIMEOUT_S):
                await client.connect(
                    f"{address.scheme}://{address.authority}",
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnected,
                    closed_cb=self._on_disconnected,
                    name="shardwire",
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_TIMEOUT_S,
                    # The session has a heartbeat of its own.
                    ping_interval=3_600,
                    no_echo=True,
                    tls=login.tls,
                    user=login.user,
                    password=login.password,
                    token=login.token,
                    user_credentials=login.credentials,
                    # Nothing that is published after the connection broke waits for another one.
                    pending_size=0,
                )
        except (OSError, nats_errors.Error, TimeoutError, ValueError) as error:
            await self.close()
            raise NodeError(f"{address} cannot be used: {self._describe(error)}") from None
        except BaseException:
            await self.close()
            raise
        self._heartbeat = asyncio.create_task(self._keep_listening(), name=f"{address} heartbeat")

    @property
    def message_bytes_max(self) -> int:
        return self.client.max_payload

    @property
    def info(self) -> Mapping[str, Any]:
        """What the server says of itself: of any type and length."""
        return self.client.info

    def is_refused(self, subject: str) -> bool:
        """Whether the server said that we may not use this subject."""
        return subject.lower() in self._refused

    async def subscribe(self, content_topic: str) -> None:
        if content_topic in self._subscriptions:
            return
        subjects = self._subjects_of(content_topic)

        async def on_message(message: Msg) -> None:
            self.heard_ns = self._clock.epoch_ns()
            self._on_data(content_topic, message.data)

        # At once, so that no second call subscribes as well.
        subscriptions = self._subscriptions[content_topic] = []
        try:
            for subject in subjects:
                subscriptions.append(
                    await self.client.subscribe(
                        subject,
                        cb=on_message,
                        pending_msgs_limit=PENDING_MESSAGES_MAX,
                        pending_bytes_limit=PENDING_BYTES_MAX,
                    )
                )
        except nats_errors.Error as error:
            self._subscriptions.pop(content_topic, None)
            raise ConnectionLost(str(error)) from None
        await self.flushed()
        for subject in subjects:
            if self.is_refused(subject):
                await self.unsubscribe(content_topic)
                raise NodeError(f"the server lets this user not subscribe to {subject}: give it the permission")

    async def unsubscribe(self, content_topic: str) -> None:
        subscriptions = self._subscriptions.pop(content_topic, [])
        try:
            for subscription in subscriptions:
                await subscription.unsubscribe()
        except nats_errors.Error as error:
            raise ConnectionLost(str(error)) from None
        if subscriptions:
            await self.flushed()

    async def flushed(self) -> None:
        """Returns once the server has read all that was written before; one question answers for many callers.

        Raises:
            ConnectionLost: The session broke first.
        """
        if self._flush_next is None:
            self._flush_next = asyncio.create_task(self._flush(self._flush_now))
        await self.unless_broken(asyncio.shield(self._flush_next))

    async def close(self) -> None:
        self.break_("closed")
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        for task in (self._flush_now, self._flush_next):
            if task is not None:
                task.cancel()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.client.close()
        except Exception as error:
            # A stopped server takes nothing any more; closing would wait for it.
            logger.debug("closing a connection raised %s", type(error).__name__)
            _abort(self.client)

    # --- details ---

    async def _flush(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        self._flush_now, self._flush_next = self._flush_next, None
        # The client writes its question before what it has not written yet.
        looks = 0
        while self.client.pending_data_size and not self.is_broken:
            looks += 1
            await asyncio.sleep(0 if looks < 3 else WRITE_LOOK_S)
        try:
            await self.client.flush(timeout=3_600)
        except nats_errors.Error as error:
            raise ConnectionLost(type(error).__name__) from None
        self.heard_ns = self._clock.epoch_ns()

    async def _keep_listening(self) -> None:
        messages = self.client.stats["in_msgs"]
        while not self.is_broken:
            answer = asyncio.ensure_future(self.flushed())
            # Nobody asks for its outcome where the session is closed meanwhile.
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())
            done, _ = await asyncio.wait((answer,), timeout=2 * HEARTBEAT_MS / 1000)
            if not done:
                answer.cancel()
                if self.client.stats["in_msgs"] == messages:
                    self.break_(f"the server answered nothing for {2 * HEARTBEAT_MS} ms")
                    return
            elif answer.exception() is not None:
                self.break_("the connection was closed")
                return
            messages = self.client.stats["in_msgs"]
            await asyncio.sleep(HEARTBEAT_MS / 1000)

    async def _on_disconnected(self) -> None:
        self.break_("the server closed the connection" if self._last_error is None else self._describe(None))

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, nats_errors.SlowConsumerError):
            self._on_lost()
            return
        text = str(error)
        if _PERMISSION_ERROR in text.lower():
            self._refused.add(text.lower().partition('"')[2].partition('"')[0])
            return
        self._last_error = error

    def _describe(self, error: Exception | None) -> str:
        """What happened, without anything that we sent."""
        shown = error
        if shown is None or isinstance(shown, nats_errors.NoServersError | TimeoutError):
            shown = self._last_error or error
        if isinstance(shown, nats_errors.TimeoutError | TimeoutError):
            return "no answer in time"
        if isinstance(shown, OSError):
            return unreachable(shown)
        if isinstance(shown, nats_errors.Error):
            return str(shown).removeprefix("nats: ").strip("'\"") or type(shown).__name__
        return type(shown).__name__


def _abort(client: Client) -> None:
    """Closes the socket of a client whose `close` waits for a server that does not read."""
    writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
    transport = getattr(writer, "transport", None)
    if transport is not None:
        transport.abort()
