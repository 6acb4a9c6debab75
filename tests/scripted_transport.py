"""A transport that answers as a test says, with nothing behind it."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass, field

from shardwire.errors import NodeError
from shardwire.node import ConnectionState, MessageEnvelope, StoredMessage, StorePage, StoreQuery
from shardwire.node.transport import Answer, OutgoingMessage, Published, Transport, TransportLink


class OnTime(random.Random):
    """Lets stamps be those of the clock."""

    def randrange(self, *limits: int) -> int:  # type: ignore[override]
        return 0


@dataclass(frozen=True)
class Attempt:
    """One call of `publish`: when, and with what."""

    at_ms: int
    payload: bytes
    timestamp_ns: int
    message_hash: bytes
    may_have_left: bool


@dataclass
class ScriptedTransport(Transport):
    """Answers `publish` with the next entry of `answers`, and with `Published()` where none is left.

    An entry may be an exception, which is raised; a number of milliseconds after which it is published; or a number of
    milliseconds and what is answered after them.
    """

    name: str = "scripted"
    answers: deque[Answer | BaseException | int | tuple[int, Answer]] = field(default_factory=deque)
    publishes_at_once: int = 1
    publish_timeout_ms: int = 10_000
    has_store: bool = False
    asks_store_for_presence: bool = False
    connect_errors: deque[BaseException] = field(default_factory=deque)
    subscribe_errors: deque[BaseException] = field(default_factory=deque)
    # What the store has; None for a store that fails.
    stored: set[bytes] | None = field(default_factory=set)
    attempts: list[Attempt] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    queries: list[tuple[int, int]] = field(default_factory=list)
    link: TransportLink = field(init=False)

    async def connect(self, link: TransportLink) -> None:
        self.calls.append("connect")
        self.link = link
        if self.connect_errors:
            raise self.connect_errors.popleft()
        link.connection(ConnectionState.CONNECTED)

    async def disconnect(self) -> None:
        self.calls.append("disconnect")

    async def subscribe(self, content_topic: str, pubsub_topic: str) -> None:
        if self.subscribe_errors:
            raise self.subscribe_errors.popleft()
        self.calls.append(f"subscribe {content_topic} {pubsub_topic}")

    async def unsubscribe(self, content_topic: str, pubsub_topic: str) -> None:
        self.calls.append(f"unsubscribe {content_topic}")

    async def publish(self, message: OutgoingMessage) -> Answer:
        now_ms = self.link.clock.monotonic_ms()
        self.attempts.append(
            Attempt(
                now_ms,
                message.envelope.payload,
                message.timestamp_ns,
                message.message_hash,
                message.may_have_left,
            )
        )
        answer = self.answers.popleft() if self.answers else Published()
        if isinstance(answer, int):
            answer = (answer, Published())
        if isinstance(answer, tuple):
            delay_ms, answer = answer
            await asyncio.sleep(delay_ms / 1000)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def query_store(self, query: StoreQuery) -> StorePage:
        self.queries.append((self.link.clock.monotonic_ms(), len(query.message_hashes)))
        if self.stored is None:
            raise NodeError("the store is out of order")
        return StorePage(tuple(StoredMessage(name) for name in query.message_hashes if name in self.stored))

    def bring(self, content_topic: str, payload: bytes, timestamp_ns: int) -> bool:
        """A message comes in."""
        return self.link.received(MessageEnvelope(content_topic, payload), timestamp_ns)
