"""A JetStream stream as the store of a node."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from nats import errors as nats_errors
from nats.js import JetStreamContext, api
from nats.js import errors as js_errors

from shardwire._native import WakuMessage, message_hash
from shardwire.errors import NodeError
from shardwire.node.nats.session import NatsSession
from shardwire.node.nats.status import NatsStreamStatus
from shardwire.node.nats.stream import StreamLimits
from shardwire.node.nats.subjects import Subjects, hash_of
from shardwire.node.protocol import MessageEnvelope, StoredMessage, StorePage, StoreQuery
from shardwire.node.transport.kept_connection import ConnectionLost
from shardwire.node.waku_message import PubsubTopics

logger = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 5.0
PAGE_SIZE_MAX = 100
# A stream files by the time at which it took a message, a query asks by that of its sender: Waku's nodes allow 20 s.
CLOCK_MARGIN_NS = 20_000_000_000
REQUESTS_AT_ONCE = 16
# Messages under the subject of one hash that are read before the search for an honest one ends.
RIVALS_MAX = 4
# Messages looked at, going back, for a page that begins at the newest.
LOOK_BACK_MIN = 200
LOOK_BACK_MAX = 20_000
# How long the server keeps what a page was read through, should it not be ended.
READER_IDLE_S = 30.0
DUPLICATE_WINDOW_S = 120.0
CURSOR_BYTES = 8


@dataclass(frozen=True, slots=True)
class _Filed:
    """A message as a stream has it."""

    sequence: int
    stored_ns: int
    subject: str
    data: bytes


class NatsStore:
    """Answers queries out of one stream, over one session.

    Args:
        session: An open session.
        stream: Name of the stream.
        subjects: Names of what is in it.
        pubsub_topics: Where content topics lie, for hashes.
    """

    def __init__(self, session: NatsSession, stream: str, subjects: Subjects, pubsub_topics: PubsubTopics) -> None:
        self._session = session
        self._stream = stream
        self._subjects = subjects
        self._pubsub_topics = pubsub_topics
        self._jetstream: JetStreamContext = session.client.jetstream(timeout=REQUEST_TIMEOUT_S)
        self._reads_directly = False

    @property
    def jetstream(self) -> JetStreamContext:
        return self._jetstream

    async def open(self, limits: StreamLimits) -> str | None:
        """Finds the stream, or makes it.

        Returns:
            None where it can be used, else why not.
        """
        try:
            return await self._session.unless_broken(self._find_or_make(limits))
        except (js_errors.Error, nats_errors.Error) as error:
            return _told(error)

    async def status(self, epoch_ms: Callable[[], int]) -> NatsStreamStatus:
        """Asks for the stream's state, and the server's time beside `epoch_ms`.

        Raises:
            NodeError: The stream did not answer.
        """
        asked_ms = epoch_ms()
        # The library drops the time that stands in the answer.
        request = self._session.client.request(f"$JS.API.STREAM.INFO.{self._stream}", timeout=REQUEST_TIMEOUT_S)
        try:
            answer = await self._session.unless_broken(request)
            said: Any = json.loads(answer.data)
            config, state = said["config"], said["state"]
            size_bytes_max, age_ns = int(config["max_bytes"]), int(config["max_age"])
            return NatsStreamStatus(
                self._stream,
                int(state["messages"]),
                int(state["bytes"]),
                size_bytes_max if size_bytes_max > 0 else None,
                age_ns // 1_000_000 or None,
                int(config["num_replicas"]),
                _clock_ahead_ms(said.get("ts"), (asked_ms + epoch_ms()) // 2),
            )
        except (ConnectionLost, nats_errors.Error, ValueError, TypeError, KeyError) as error:
            raise NodeError(f"stream {self._stream} tells nothing of itself: {type(error).__name__}") from None

    async def query(self, query: StoreQuery, subscribed: Iterable[str]) -> StorePage:
        """Answers one page.

        Raises:
            NodeError: The stream did not answer.
        """
        try:
            if query.message_hashes:
                page = self._by_hash(query, tuple(query.content_topics or subscribed))
            else:
                page = self._by_topic(query, tuple(query.content_topics or subscribed))
            return await self._session.unless_broken(page)
        except (ConnectionLost, js_errors.Error, nats_errors.Error) as error:
            raise NodeError(f"stream {self._stream}: {_told(error)}") from None

    # --- the stream ---

    async def _find_or_make(self, limits: StreamLimits) -> str | None:
        try:
            info = await self._jetstream.stream_info(self._stream)
        except js_errors.NotFoundError:
            config = api.StreamConfig(
                name=self._stream,
                subjects=[self._subjects.all],
                max_bytes=limits.bytes_max,
                max_age=limits.age_max_ms / 1000,
                num_replicas=limits.replicas,
                duplicate_window=min(DUPLICATE_WINDOW_S, limits.age_max_ms / 1000),
                discard=api.DiscardPolicy.OLD,
                storage=api.StorageType.FILE,
                allow_direct=True,
            )
            try:
                info = await self._jetstream.add_stream(config)
            except js_errors.BadRequestError:
                # Made by another participant meanwhile, with limits of its own.
                info = await self._jetstream.stream_info(self._stream)
        subjects = info.config.subjects or []
        if not {self._subjects.all, ">"} & set(subjects):
            return f"stream {self._stream} holds {', '.join(subjects)} and not {self._subjects.all}"
        self._reads_directly = bool(info.config.allow_direct)
        return None

    # --- by hash ---

    async def _by_hash(self, query: StoreQuery, topics: tuple[str, ...]) -> StorePage:
        start = 0 if query.cursor is None else _read_cursor(query.cursor)
        wanted = tuple(dict.fromkeys(query.message_hashes))[start:]
        size = min(query.page_size, PAGE_SIZE_MAX)
        at_once = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def find(name: bytes) -> StoredMessage | None:
            async with at_once:
                for topic in topics:
                    found = await self._find(topic, name, include_data=query.include_data)
                    if found is not None:
                        return found
            return None

        found = await asyncio.gather(*map(find, wanted[:size]))
        messages = sorted((message for message in found if message is not None), key=lambda each: each.timestamp_ns)
        more = len(wanted) > size
        return StorePage(tuple(messages), _write_cursor(start + size) if more else None)

    async def _find(self, content_topic: str, name: bytes, *, include_data: bool) -> StoredMessage | None:
        """The message of a hash; whatever else somebody filed under its subject is passed over."""
        subject = self._subjects.of_message(content_topic, name)
        sequence = 1
        for _ in range(RIVALS_MAX):
            try:
                raw = await self._jetstream.get_msg(
                    self._stream, seq=sequence, subject=subject, next=True, direct=self._reads_directly
                )
            except js_errors.NotFoundError:
                return None
            message = self._read(content_topic, raw.data or b"", include_data=include_data)
            if message is not None and message.message_hash == name:
                return message
            sequence = (raw.seq or sequence) + 1
        return None

    def _read(self, content_topic: str, data: bytes, *, include_data: bool) -> StoredMessage | None:
        message = WakuMessage.decode(data)
        if message is None or message.content_topic != content_topic:
            return None
        timestamp_ns, meta = message.timestamp_ns or 0, message.meta or b""
        name = message_hash(
            pubsub_topic=self._pubsub_topics.of(content_topic),
            payload=message.payload,
            content_topic=content_topic,
            meta=meta or None,
            timestamp_ns=timestamp_ns,
        )
        if not include_data:
            return StoredMessage(name, timestamp_ns)
        return StoredMessage(
            name, timestamp_ns, MessageEnvelope(content_topic, message.payload, bool(message.ephemeral), meta)
        )

    # --- by topic and time ---

    async def _by_topic(self, query: StoreQuery, topics: tuple[str, ...]) -> StorePage:
        """One page of one topic after the other: a cursor names the topic and the place in the stream."""
        if not topics:
            return StorePage(())
        index, sequence = 0, None
        if query.cursor is not None:
            place = _read_cursor(query.cursor)
            index, sequence = place >> 48, place & ((1 << 48) - 1)
        if index >= len(topics):
            raise NodeError("StoreQuery.cursor is none of this store: begin again without a cursor")
        topic = topics[index]
        start_ns = None if query.start_time_ns is None else query.start_time_ns - CLOCK_MARGIN_NS
        end_ns = None if query.end_time_ns is None else query.end_time_ns + CLOCK_MARGIN_NS
        size = min(query.page_size, PAGE_SIZE_MAX)
        if query.forward:
            filed, goes_on_at = await self._forward(topic, size, sequence, start_ns, end_ns, query.include_data)
        else:
            filed, goes_on_at = await self._backward(topic, size, sequence, start_ns, end_ns, query.include_data)
        messages = [message for each in filed if (message := self._message_of(topic, each, query.include_data))]
        if goes_on_at is None:
            index, goes_on_at = index + 1, 0
        more = index < len(topics)
        return StorePage(tuple(messages), _write_cursor(index << 48 | goes_on_at) if more else None)

    def _message_of(self, content_topic: str, filed: _Filed, include_data: bool) -> StoredMessage | None:
        if include_data:
            return self._read(content_topic, filed.data, include_data=True)
        # As its subject claims; whoever fetches it sees whether that is so.
        name = hash_of(filed.subject)
        return None if name is None else StoredMessage(name, filed.stored_ns)

    async def _forward(
        self,
        topic: str,
        size: int,
        sequence: int | None,
        start_ns: int | None,
        end_ns: int | None,
        include_data: bool,
    ) -> tuple[list[_Filed], int | None]:
        """Messages from a place on, and where the next page begins; None after the last one."""
        filed, pending = await self._scan(topic, size, include_data, sequence or None, start_ns)
        inside = [each for each in filed if end_ns is None or each.stored_ns <= end_ns]
        if not filed or len(inside) < len(filed) or not pending:
            return inside, None
        return inside, filed[-1].sequence + 1

    async def _backward(
        self,
        topic: str,
        size: int,
        sequence: int | None,
        start_ns: int | None,
        end_ns: int | None,
        include_data: bool,
    ) -> tuple[list[_Filed], int | None]:
        """The newest messages before a place, oldest first, and the place before which the next page ends."""
        state = (await self._jetstream.stream_info(self._stream)).state
        if not state.messages:
            return [], None
        before = sequence or state.last_seq + 1
        found: list[_Filed] = []
        span = LOOK_BACK_MIN
        while before > state.first_seq and len(found) < size:
            begin = max(state.first_seq, before - span)
            filed, _ = await self._scan(topic, before - begin, False, begin, None, before)
            reached = bool(filed) and start_ns is not None and filed[0].stored_ns < start_ns
            found[:0] = [
                each
                for each in filed
                if (start_ns is None or each.stored_ns >= start_ns) and (end_ns is None or each.stored_ns <= end_ns)
            ]
            before = begin
            if reached:
                before = state.first_seq
            span = min(2 * span, LOOK_BACK_MAX)
        if len(found) > size:
            del found[: len(found) - size]
            before = found[0].sequence
        if include_data and found:
            filed, _ = await self._scan(topic, len(found), True, found[0].sequence, None)
            found = filed
        return found, before if before > state.first_seq else None

    async def _scan(
        self,
        topic: str,
        count: int,
        include_data: bool,
        sequence: int | None,
        start_ns: int | None,
        before: int | None = None,
    ) -> tuple[list[_Filed], int]:
        """At most `count` messages of a topic from a sequence or a time on, and how many follow them."""
        config = api.ConsumerConfig(
            ack_policy=api.AckPolicy.NONE,
            deliver_policy=api.DeliverPolicy.ALL,
            headers_only=None if include_data else True,
            inactive_threshold=READER_IDLE_S,
            mem_storage=True,
            num_replicas=1,
        )
        if sequence is not None:
            config.deliver_policy, config.opt_start_seq = api.DeliverPolicy.BY_START_SEQUENCE, sequence
        elif start_ns is not None:
            config.deliver_policy = api.DeliverPolicy.BY_START_TIME
            config.opt_start_time = _iso_time(max(0, start_ns))  # type: ignore[assignment]
        subscription = await self._jetstream.pull_subscribe(
            self._subjects.of_topic(topic), durable=None, stream=self._stream, config=config
        )
        filed: list[_Filed] = []
        name = None
        try:
            info = await subscription.consumer_info()
            name, left = info.name, info.num_pending or 0
            while left and len(filed) < count:
                try:
                    wanted = min(left, count - len(filed), PAGE_SIZE_MAX)
                    messages = await subscription.fetch(wanted, REQUEST_TIMEOUT_S)
                except nats_errors.TimeoutError:
                    # What was pending went meanwhile, by age or by size; else the server hangs, and says so next.
                    left = (await subscription.consumer_info()).num_pending or 0
                    continue
                for message in messages:
                    metadata = message.metadata
                    sequence, left = metadata.sequence.stream, metadata.num_pending
                    if before is not None and sequence >= before:
                        return filed, 0
                    filed.append(_Filed(sequence, _time_ns(metadata.timestamp), message.subject, message.data or b""))
            return filed, left
        finally:
            await self._end_reader(subscription, name)

    async def _end_reader(self, subscription: Any, name: str | None) -> None:
        try:
            await subscription.unsubscribe()
            if name is not None:
                await self._jetstream.delete_consumer(self._stream, name)
        except (js_errors.Error, nats_errors.Error) as error:
            # The server ends it by itself.
            logger.debug("a reader of stream %s was not ended: %s", self._stream, type(error).__name__)


def _told(error: Exception) -> str:
    if isinstance(error, js_errors.ServiceUnavailableError):
        return error.description or "the server has no JetStream, or it is not ready"
    if isinstance(error, js_errors.APIError):
        return error.description or type(error).__name__
    if isinstance(error, nats_errors.NoRespondersError):
        return "the server has no JetStream, or this user may not use it"
    return str(error) or type(error).__name__


def _clock_ahead_ms(told: object, epoch_ms: int) -> int | None:
    """How far a server is ahead that told this time; None where it is none."""
    try:
        return _time_ns(datetime.fromisoformat(str(told))) // 1_000_000 - epoch_ms
    except (ValueError, TypeError):
        return None


def _time_ns(time: datetime) -> int:
    since = time - datetime.fromtimestamp(0, UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000


def _iso_time(time_ns: int) -> str:
    time = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_ns // 1_000)
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _write_cursor(place: int) -> bytes:
    return place.to_bytes(CURSOR_BYTES, "big")


def _read_cursor(cursor: bytes) -> int:
    if len(cursor) != CURSOR_BYTES:
        raise NodeError("StoreQuery.cursor is none of this store: begin again without a cursor")
    return int.from_bytes(cursor, "big")
