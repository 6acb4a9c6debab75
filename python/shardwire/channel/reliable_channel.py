"""The reliable channel as applications meet it (specifications Logos 003 and Waku 004)."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

from shardwire.channel.file_transfers import FileTransfers
from shardwire.channel.limits.quota import RateLimitStatus
from shardwire.channel.listening import Listening
from shardwire.channel.observed import Observed
from shardwire.channel.sending.cancellation import NOTHING_STOPPED, Cancellation
from shardwire.channel.sending.pending import PendingSend, pending_sends
from shardwire.channel.sending.segmenter import EMPTY_REFUSED
from shardwire.channel.sending.submissions import Submission
from shardwire.channel.undelivered import why_undelivered
from shardwire.config import ChannelConfig
from shardwire.config.checks import check_timeout_ms
from shardwire.errors import ConfigError, NodeError, PayloadTooLargeError
from shardwire.files import TRANSFERS_MAX
from shardwire.names import ChannelId, ReliableSendId, SenderId
from shardwire.quoting import quoted
from shardwire.sds import Now

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from shardwire.channel.session import Session

logger = logging.getLogger(__name__)

# What `async with` allows on leaving.
LEAVING_DRAIN_TIMEOUT_MS = 30_000
DELIVERED_TIMEOUT_MS = 30_000


class ReliableChannel(Listening, FileTransfers, Observed):
    """A handle on one open channel; `create_reliable_channel` makes it.

    Used on the event loop it was made on: elsewhere its coroutines raise `ConfigError`. As an async context manager it
    closes on leaving, after waiting up to `LEAVING_DRAIN_TIMEOUT_MS` for its messages. One that is dropped while it is
    open goes on, and gives a `ResourceWarning`, which `python -X dev` shows.
    """

    def __init__(self, session: Session) -> None:
        self._require_loop = session.subscriptions.require_loop
        self._process = os.getpid()
        self._file_places = asyncio.Semaphore(TRANSFERS_MAX)
        # At last: what has a session is whole, and can be open.
        self._session = session

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ReliableChannel is one open channel, and cannot be copied or pickled: pass it on as it is")

    # --- what it is ---

    def __repr__(self) -> str:
        session = self._session
        state = "closed" if session.is_closed else "started" if session.is_started else "stopped"
        return f"<ReliableChannel {quoted(self.channel_id)} of {quoted(self.sender_id)}, {state}>"

    @property
    def channel_id(self) -> ChannelId:
        """The id of the channel, the same for all its participants."""
        return self._session.channel_id

    @property
    def sender_id(self) -> SenderId:
        """The id under which this participant sends."""
        return self._session.sender_id

    @property
    def content_topic(self) -> str:
        """The content topic on which the channel listens and sends."""
        return self._session.content_topic

    @property
    def config(self) -> ChannelConfig:
        """The configuration in force; `segmentation.segment_size_bytes` is what the node's messages leave."""
        return self._session.config

    # --- sending ---

    async def send(self, message: Buffer) -> ReliableSendId:
        """Sends a message: segments it, registers it with SDS, and returns when it is durable.

        Where nothing is stored it takes a message in without a wait while there is room, and lets others run every so
        often, as `asyncio.StreamWriter.drain` does below its limit.

        One message holds 26,112,000 bytes by default, less with smaller segments; `send_file` takes the rest. Waits for
        room in the outgoing buffer (`SdsConfig.outgoing_buffer_messages_max`), and without a rate limit in the queue
        (`RateLimitConfig.queue_bytes_max`), so that a loop is no faster than the network. A call that is cancelled
        sends nothing more of the message.

        Args:
            message: The payload; any buffer. An empty one is refused by the `draft` segment wire alone, with
                `ChunkErrorEvent` and `MessageSendErrorEvent` (Waku 004, Irrecoverable errors).

        Returns:
            The request id that the events of this message carry; it stays valid across restarts.

        Raises:
            ChannelClosedError: The channel is closed or not started.
            PayloadTooLargeError: The message exceeds what one message can hold; `ChunkErrorEvent` says it too.
            ConfigError: The node's messages have become too small to carry anything.
            QueueFullError: What waits for a rate limit would exceed `RateLimitConfig.queue_bytes_max`, or the message
                alone does, under a limit or not.
            PersistenceError: The message could not be stored; it will not be sent.
            TypeError: The message is no buffer.
        """
        payload = _payload_of(message)
        session = self._session
        request_id = await self._begin_request()
        try:
            prepared = await session.segmenter.prepare(payload)
        except PayloadTooLargeError as error:
            session.refuse(request_id, await session.segmenter.message_id_of(payload), str(error))
            raise
        session.require_started()
        answer = session.callers.ask()
        submission = Submission(session.send_id_for(request_id, prepared.message_id), request_id, prepared, answer)
        session.driver.apply(partial(session.engine.submit, submission))
        try:
            await answer.wait()
        except asyncio.CancelledError:
            # Perhaps while it was being stored. Nothing of it leaves from now on; the engine forgets it in its turn.
            session.engine.machine.announce_withdrawal(request_id, submission.send_id)
            session.driver.post(partial(session.engine.withdraw, request_id))
            raise
        return request_id

    async def send_ephemeral(self, message: Buffer) -> ReliableSendId:
        """Sends a message once: no segments, no acknowledgement, nothing stored (Waku 004, Ephemeral messages).

        Ends with one event: `ChunkSentEvent`, `ChunkErrorEvent`, or `EphemeralDroppedEvent` under the rate limit. On
        the wire "nim", which has no such messages, it is always a `ChunkErrorEvent`.

        Raises:
            ChannelClosedError: The channel is closed or not started.
            PayloadTooLargeError: The message does not fit one segment; `ChunkErrorEvent` says it too.
            ConfigError: The node's messages have become too small to carry anything.
            TypeError: The message is no buffer.
        """
        payload = _payload_of(message)
        session = self._session
        request_id = await self._begin_request()
        try:
            content = session.segmenter.prepare_ephemeral(payload)
        except PayloadTooLargeError as error:
            session.refuse(request_id, await session.segmenter.message_id_of(payload), str(error), ephemeral=True)
            raise
        message_id = await session.segmenter.message_id_of(payload)
        if content is None:
            session.refuse(request_id, message_id, EMPTY_REFUSED, ephemeral=True)
            return request_id
        session.require_started()
        session.driver.post(lambda now: session.engine.send_ephemeral(request_id, message_id, content, now))
        return request_id

    async def _begin_request(self) -> ReliableSendId:
        """The id of a new request, once messages are made for the size that the node's have now."""
        session = self._session
        self._require_loop()
        session.require_started()
        request_id = session.new_request_id()
        if not session.sizes.are_current():
            await session.sizes.refresh()
        return request_id

    async def delivered(
        self, request_id: ReliableSendId, timeout_ms: int = DELIVERED_TIMEOUT_MS
    ) -> frozenset[SenderId]:
        """Waits until a message counts as delivered (`ChannelConfig.delivered_when`).

        Returns:
            The participants that can reconstruct it, so far.

        Raises:
            TimeoutError: It was not delivered in time, and why as far as is known; it may still be.
            NodeError: It can never be sent, or was cancelled.
            ConfigError: `request_id` is not a send of this channel that is still remembered, or `timeout_ms` is no
                integer of at least 0.
            ChannelClosedError: The channel closed meanwhile.
        """
        check_timeout_ms("timeout_ms", timeout_ms)
        session = self._session
        self._require_loop()
        if not _may_be_ours(request_id):
            raise _unknown_request(request_id)
        send = session.engine.own_sends.of_request(request_id)
        if send is None:
            raise session.waiters.failure_of(request_id) or _unknown_request(request_id)
        if send.delivered:
            return frozenset(send.delivered_to)
        if send.error_stage == "dispatch":
            raise NodeError(f"message {request_id} was not sent: {send.error}")
        if session.is_closed:
            raise session.closed_error()
        future = session.waiters.wait_for(request_id)
        try:
            return await asyncio.wait_for(future, timeout_ms / 1000)
        except TimeoutError:
            send = session.engine.own_sends.of_request(request_id) or send
            why = why_undelivered(send, session.engine, session.config, session.is_started, session.driver.now())
            raise TimeoutError(f"message {request_id} was not delivered within {timeout_ms} ms: {why}") from None

    async def cancel(self, request_id: ReliableSendId) -> Cancellation:
        """Takes a message back as far as that can be done, and returns when that is durable.

        What was not dispatched never leaves; what left is not sent again, and given to nobody who asks for it. No
        further event of the message is announced; a callback that is being told one finishes. Where another request
        shares the send, as equal messages do whose ids are made of contents, it goes on for that one alone.

        Returns:
            What it did and could not take back; false where the message is delivered, has failed, or is not known.

        Raises:
            ConfigError: `request_id` is no string.
            PersistenceError: The cancellation could not be stored. Nothing more of the message leaves and no event of
                it follows, but if the process ends before the channel can store again, the next life sends the message.
            ChannelClosedError: The channel is closed or not started, or closes meanwhile.
        """
        if not isinstance(request_id, str):
            raise _unknown_request(request_id)
        session = self._session
        self._require_loop()
        session.require_started()
        if not _may_be_ours(request_id):
            return NOTHING_STOPPED
        answer = session.callers.ask()
        done = NOTHING_STOPPED

        def on_settled(error: Exception | None) -> None:
            session.subscriptions.drop(request_id)
            session.waiters.give_up(request_id, f"message {request_id} was cancelled")
            answer(error)

        def cancel(now: Now) -> None:
            nonlocal done
            done = session.engine.cancel(request_id, on_settled, now)
            if not done:
                answer(None)

        session.driver.post_for_caller(cancel)
        await answer.wait()
        return done

    def pending(self) -> tuple[PendingSend, ...]:
        """Messages that are neither delivered nor failed nor cancelled, oldest first."""
        return tuple(pending_sends(self._session.engine.own_sends))

    # --- life ---

    async def start(self) -> None:
        """Subscribes, and begins to send, receive and retrieve; does nothing on a started channel.

        Raises:
            ChannelClosedError: The channel is closed.
            NodeError: The node could not subscribe.
        """
        self._require_loop()
        await self._session.start()

    async def stop(self) -> None:
        """Stops all of that and unsubscribes; state is kept, `start` continues. Does nothing on a stopped channel."""
        self._require_loop()
        await self._session.stop()

    def is_started(self) -> bool:
        """Whether the channel sends and receives: after `start`, before `stop` and `close`."""
        return self._session.is_started

    def is_closed(self) -> bool:
        """Whether the channel was closed, by `close` or by an error that ended it; it does not open again."""
        return self._session.is_closed

    def rate_limit_status(self) -> RateLimitStatus:
        """The rate limit as it stands: what was used of the quota, what waits for it, and until when."""
        return self._session.rate_limit_status()

    def stats(self) -> dict[str, int]:
        """Counters since the channel was made, and what it holds now (`GAUGES`), by name."""
        return self._session.stats()

    async def close(self, drain_timeout_ms: int = 0) -> None:
        """Closes the channel: unsubscribes, stores its state and releases what it holds; again it does nothing.

        Args:
            drain_timeout_ms: How long to wait until every message is delivered or failed and every received one
                acknowledged; 0 closes at once. What is left continues when the channel is created again with the same
                persistence.

        Raises:
            ConfigError: `drain_timeout_ms` is no integer of at least 0.
        """
        check_timeout_ms("drain_timeout_ms", drain_timeout_ms)
        self._require_loop()
        await self._session.close(drain_timeout_ms)

    async def __aenter__(self) -> Self:
        self._require_loop()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() != self._process:
            # A process forked meanwhile leaves: the channel, and the event loop, are those of the other one.
            return
        self._require_loop()
        # After an error nobody waits for messages to arrive.
        await self._session.close(LEAVING_DRAIN_TIMEOUT_MS if kind is None else 0)

    def __del__(self) -> None:
        # One that could not be made has none.
        session = getattr(self, "_session", None)
        if session is not None and not session.is_closed:
            remedy = "it goes on until its event loop ends; await channel.close(), or use async with"
            warnings.warn(f"unclosed {self!r}: {remedy}", ResourceWarning, stacklevel=2, source=self)


async def close_channel(channel: ReliableChannel, drain_timeout_ms: int = 0) -> None:
    """Closes a channel and releases what it holds, as `ReliableChannel.close` does (Logos 003 closeChannel).

    Args:
        channel: The channel.
        drain_timeout_ms: How long to wait for its messages first; 0 closes at once.

    Raises:
        ConfigError: `channel` is none, or `drain_timeout_ms` is no integer of at least 0.
    """
    if not isinstance(channel, ReliableChannel):
        raise ConfigError(f"channel is a {type(channel).__name__}: give what `await create_reliable_channel(...)` made")
    await channel.close(drain_timeout_ms)


def _may_be_ours(request_id: object) -> bool:
    """Half of a surrogate pair, as JSON may have it, is no text to the core."""
    return isinstance(request_id, str) and request_id.isascii()


def _unknown_request(request_id: object) -> ConfigError:
    return ConfigError(f"request_id is {quoted(request_id)}: it must be what send() of this channel returned")


def _payload_of(message: Buffer) -> bytes:
    if type(message) is bytes:
        return message
    try:
        view = memoryview(message)
        # The bytes of an array of Python objects are addresses in this process.
        if "O" not in (view.format or ""):
            return bytes(view)
    except (TypeError, ValueError, BufferError):
        pass
    remedy = "send message.encode()" if isinstance(message, str) else "it must be bytes or another buffer of bytes"
    raise TypeError(f"message is a {type(message).__name__}: {remedy}")
