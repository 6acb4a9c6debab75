"""The check of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from shardwire.channel.sending.segment_size import payload_bytes_max
from shardwire.errors import ConfigError, NodeError, PayloadTooLargeError
from shardwire.node.clock import running_clock
from shardwire.node.protocol import (
    ConnectionState,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    Node,
    NodeConfig,
)
from shardwire.testing.node_exchange import Exchange, Exchanged, Side
from shardwire.testing.node_promises import NODE_PROMISES
from shardwire.testing.node_reader import Reader
from shardwire.testing.node_store import check_no_store, check_store
from shardwire.testing.promises import CheckReport, Trial, raised, require_factory

TOPICS = ("/check/1/first/proto", "/check/1/second/proto")
# A clock that is wrong by more is one that counts something else.
CLOCK_OFF_NS_MAX = 86_400 * 10**9
# Sends of one payload, until two of its messages have arrived.
RETRIES = 5
METHODS = ("start", "stop", "subscribe", "unsubscribe", "send", "query_store", "events")
_STORE = ("store-page", "store-by-hash", "store-by-time", "store-pages", "store-ephemeral", "sent-is-stored")


async def check_node(
    create_node: Callable[[], Node],
    *,
    content_topics: Sequence[str] = TOPICS,
    patience_ms: int = 60_000,
    quiet_ms: int = 500,
) -> CheckReport:
    """Tries every promise that a channel needs of a node (MESSAGING-API), with two nodes of one network.

    It runs in real time or, under `run_virtual`, in virtual time. What a network loses is sent again.

    Args:
        create_node: Makes a node that is not started, each time another one of the same network, on which nobody else
            uses the topics.
        content_topics: Two topics that it can carry.
        patience_ms: How long what must come may take: a channel waits 60 s.
        quiet_ms: How long is waited for what must not come, a few times.

    Returns:
        What was tried.

    Raises:
        BrokenPromiseError: A promise is broken.
        ConfigError: `create_node` makes nothing, or there are not two topics.
    """
    if isinstance(content_topics, str) or len(set(content_topics)) != 2:
        raise ConfigError(f"content_topics is {content_topics!r}: it must be two topics")
    require_factory("create_node", create_node)
    trial = Trial(NODE_PROMISES)
    check = _Check(trial, create_node, content_topics, Exchange(trial, patience_ms, quiet_ms))
    try:
        await check.run()
    finally:
        await check.close()
    return trial.report()


class _Check:
    def __init__(
        self, trial: Trial, create_node: Callable[[], Node], content_topics: Sequence[str], exchange: Exchange
    ) -> None:
        self._trial = trial
        self._create_node = create_node
        self._first, self._second = content_topics
        self._exchange = exchange
        self._sides: list[Side] = []

    async def run(self) -> None:
        alice, bob = await self._start()
        await self._messages(alice, bob)
        await self._topics(alice, bob)
        await self._sizes(alice, bob)
        if alice.node.has_store:
            self._trial.pass_over("no-store", "it has a store")
            await check_store(self._exchange, alice, bob, self._first)
        else:
            for name in _STORE:
                self._trial.pass_over(name, "has_store is False")
            await check_no_store(self._exchange, alice)
        await self._watched(alice, bob)
        await self._stop(alice, bob)

    async def close(self) -> None:
        """Ends what a broken one left open."""
        for side in self._sides:
            for reader in side.readers:
                await reader.close()
            try:
                async with asyncio.timeout(5):
                    await side.node.stop()
            except Exception:
                continue

    # --- promises ---

    async def _start(self) -> tuple[Side, Side]:
        trial, within = self._trial, self._exchange.within
        with trial.of("members"):
            for name in ("the first node", "the second node"):
                trial.did("create_node()")
                node: Any = self._create_node()
                trial.made(node)
                self._require_members(node)
                self._sides.append(Side(node, name))
            alice, bob = self._sides
            trial.require(alice.node is not bob.node, "another node each time", "the same one")
        with trial.of("start"):
            await within("start", alice.node.start())
            await within("start, a second time", alice.node.start())
        with trial.of("subscribe-before-start"):
            is_subscribed = True
            try:
                await within("subscribe before start", bob.node.subscribe([self._first]))
            except NodeError:
                is_subscribed = False
        with trial.of("start"):
            await within("start", bob.node.start())
        with trial.of("events"):
            trial.did("events()")
            for side in (alice, bob):
                side.readers += [Reader(trial, side.node) for _ in range(2)]
        if is_subscribed:
            with trial.of("subscribe-before-start"):
                await self._exchange.deliver(alice, bob, self._first)
        with trial.of("delivery"):
            await within("subscribe", alice.node.subscribe([self._first]))
            if not is_subscribed:
                await within("subscribe", bob.node.subscribe([self._first]))
        return alice, bob

    async def _messages(self, alice: Side, bob: Side) -> None:
        trial, exchange = self._trial, self._exchange
        with trial.of("delivery"):
            for sender, receiver in ((alice, bob), (bob, alice)):
                for settings in ({}, {"meta": b"\0meta\xff"}):
                    message = await exchange.deliver(sender, receiver, self._first, **settings)
                    for name in ("content_topic", "payload", "meta"):
                        sent, came = getattr(message.envelope, name), getattr(message.arrived.envelope, name)
                        trial.did("a send")
                        trial.require(sent == came, f"{name} {sent!r}", came)
        with trial.of("ephemeral"):
            await exchange.deliver(alice, bob, self._first, ephemeral=True)
        with trial.of("every-reader"):
            message = await exchange.deliver(alice, bob, self._first)
            await self._every_reader(message, alice, bob)
        with trial.of("own-messages"):
            payload, reader = message.envelope.payload, alice.readers[0]
            trial.did("a send by a node that is subscribed")
            told = await reader.until(lambda: bool(reader.received(payload)), exchange.patience_ms)
            trial.require(told, "MessageReceived from itself", "none")
        with trial.of("message-hash"):
            await self._hashes(alice, bob, message)
        with trial.of("timestamp"):
            off_ns = message.arrived.timestamp_ns - running_clock().epoch_ns()
            trial.did("a send")
            trial.require(
                abs(off_ns) <= CLOCK_OFF_NS_MAX,
                "a timestamp_ns of about now, in nanoseconds since the Unix epoch",
                message.arrived.timestamp_ns,
            )
        with trial.of("events-from-now-on"):
            await asyncio.sleep(exchange.quiet_ms / 1000)
            known = len(bob.readers[0].happened())
            later = Reader(trial, bob.node)
            bob.readers.append(later)
            await exchange.deliver(alice, bob, self._first)
            await asyncio.sleep(exchange.quiet_ms / 1000)
            # What an iterator from before gives since then: a network may bring an earlier message once more.
            most = len(bob.readers[0].happened()) - known
            trial.did(f"events() after {known} events, and another message")
            trial.require(
                len(later.happened()) <= most,
                f"the events since then, of which another iterator gave {most}",
                f"{len(later.happened())} events",
            )

    async def _every_reader(self, message: Exchanged, alice: Side, bob: Side) -> None:
        exchange, trial = self._exchange, self._trial
        for reader in bob.readers:
            told = await reader.until(
                lambda reader=reader: bool(reader.received(message.envelope.payload)),  # type: ignore[misc]
                exchange.patience_ms,
            )
            trial.did("a message to a node with two iterators of events()")
            trial.require(told, "MessageReceived from both", "from one alone")
        for reader in alice.readers:
            told = await reader.until(
                lambda reader=reader: bool(reader.outcomes(message.request_ids[-1])),  # type: ignore[misc]
                exchange.patience_ms,
            )
            trial.did("a send by a node with two iterators of events()")
            trial.require(told, "the outcome from both", "from one alone")

    async def _hashes(self, alice: Side, bob: Side, message: Exchanged) -> None:
        trial, payload = self._trial, message.envelope.payload
        request_ids = message.request_ids
        hashes = _hashes_of(bob.readers[0].received(payload))
        for _ in range(RETRIES):
            # One network may bring a message twice, another lose it.
            if len(hashes) < 2:
                again = await self._exchange.deliver(alice, bob, self._first, payload)
                request_ids += again.request_ids
                hashes = _hashes_of(bob.readers[0].received(payload))
        trial.did("one payload sent twice")
        trial.require(len(hashes) >= 2, "a hash for each of both messages", "one hash for both")
        propagated = [event for event in alice.readers[0].all_of(MessagePropagated) if event.request_id in request_ids]
        for told, where in (
            (propagated, "MessagePropagated"),
            (alice.readers[0].received(payload), "MessageReceived at the sender"),
        ):
            trial.did("a send")
            trial.require(
                not told or bool(_hashes_of(told) & hashes),
                f"the hash of {where} in MessageReceived at the receiver",
                "another one",
            )
        others = [event for event in bob.readers[0].all_of(MessageReceived) if event.envelope.payload != payload]
        trial.did("sends of several payloads")
        trial.require(not hashes & _hashes_of(others), "a hash for each", "one hash for two of them")

    async def _topics(self, alice: Side, bob: Side) -> None:
        trial, exchange, within = self._trial, self._exchange, self._exchange.within
        with trial.of("topics-apart"):
            await self._is_unheard(alice, bob, "a message of a topic that is not subscribed")
        with trial.of("subscribe"):
            await within("subscribe", bob.node.subscribe([self._second]))
            for topic in (self._second, self._first):
                await exchange.deliver(alice, bob, topic)
        with trial.of("unsubscribe"):
            await within("unsubscribe", bob.node.unsubscribe([self._second]))
            await within("unsubscribe of what is not subscribed", bob.node.unsubscribe([self._second]))
            await self._is_unheard(alice, bob, "a message of a topic that was unsubscribed")
        with trial.of("subscribe-again"):
            await within("subscribe of what was unsubscribed", bob.node.subscribe([self._second]))
            await exchange.deliver(alice, bob, self._second)

    async def _is_unheard(self, alice: Side, bob: Side, done: str) -> None:
        exchange = self._exchange
        payload = exchange.payload()
        await exchange.outcome(alice, await exchange.send(alice, MessageEnvelope(self._second, payload)))
        # What is subscribed comes all the same, and behind it most likely.
        await exchange.deliver(alice, bob, self._first)
        await exchange.is_not_told(bob.readers[0], payload, self._second, done)

    async def _sizes(self, alice: Side, bob: Side) -> None:
        trial, exchange = self._trial, self._exchange
        size_bytes = alice.node.max_message_size_bytes
        with trial.of("largest-message"):
            room = payload_bytes_max(size_bytes, self._first, b"")
            trial.did(f"a look at max_message_size_bytes, {size_bytes}")
            trial.require(room > 0, "room for a payload beside topic and time", f"room for {room} bytes")
            await exchange.deliver(alice, bob, self._first, exchange.payload(room))
        with trial.of("too-large"):
            envelope = MessageEnvelope(self._first, exchange.payload(size_bytes + 1))
            try:
                outcome = await exchange.outcome(alice, await exchange.send(alice, envelope))
            except (PayloadTooLargeError, ConfigError):
                return
            except NodeError as error:
                trial.require(error.permanent, "a NodeError that is permanent", f"one that is not: {raised(error)}")
                return
            is_right = isinstance(outcome, MessagePropagated) or outcome.permanent
            trial.require(is_right, "a MessageSendError that is permanent", outcome)

    async def _watched(self, alice: Side, bob: Side) -> None:
        """What was looked at all the time."""
        for name in ("send", "outcome", "events-go-on", "propagated-once", "failed-for-good"):
            with self._trial.of(name):
                for side in (alice, bob):
                    for reader in side.readers:
                        reader.require_sound()
        with self._trial.of("connection-status"):
            for side in (alice, bob):
                self._trial.did(f"messages to and from {side.name}")
                is_connected = side.readers[0].state is not ConnectionState.DISCONNECTED
                self._trial.require(is_connected, "another ConnectionStatus", ConnectionState.DISCONNECTED.value)

    async def _stop(self, alice: Side, bob: Side) -> None:
        trial = self._trial
        with trial.of("stop"):
            for side in (bob, alice):
                for reader in side.readers:
                    reader.require_sound()
                    reader.may_end = True
                await self._exchange.within("stop", side.node.stop())
                for reader in side.readers:
                    ended = await reader.until(lambda reader=reader: reader.ended, self._exchange.patience_ms)  # type: ignore[misc]
                    trial.did("stop")
                    trial.require(ended, "the end of every iterator of events()", "one that goes on")
                await self._exchange.within("stop, a second time", side.node.stop())

    def _require_members(self, node: Any) -> None:
        trial = self._trial
        for name in METHODS:
            trial.require(callable(getattr(node, name, None)), f"that it has {name}()", f"no {name}()")
        for name, kind in (("config", NodeConfig), ("max_message_size_bytes", int), ("has_store", bool)):
            value = getattr(node, name, None)
            trial.require(isinstance(value, kind), f"that its {name} is a {kind.__name__}", value)
        trial.require(node.max_message_size_bytes > 0, "a max_message_size_bytes above 0", node.max_message_size_bytes)


def _hashes_of(events: Sequence[MessagePropagated | MessageReceived]) -> set[bytes]:
    return {event.message_hash for event in events}
