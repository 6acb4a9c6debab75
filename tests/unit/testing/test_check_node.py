"""The check of nodes: ours hold every promise, and of broken ones the promise is named."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from live_servers import Mosquitto, NatsServer, free_port
from waku_servers import WakuNodes
from wrapped_node import WrappedNode

from shardwire.errors import ConfigError, NodeError
from shardwire.node import (
    ConnectionState,
    ConnectionStatus,
    MemoryNetwork,
    MemoryNode,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSendError,
    MessageSent,
    MqttNode,
    NatsNode,
    NetworkConditions,
    NodeEvent,
    StorePage,
    StoreQuery,
    UdpNode,
    WakuRestNode,
    run_virtual,
)
from shardwire.testing import NODE_PROMISES, BrokenPromiseError, CheckReport, check_node
from shardwire.testing.node import TOPICS

NAMES = [promise.name for promise in NODE_PROMISES]
OF_STORES = {name for name in NAMES if name.startswith("store-")} | {"sent-is-stored"}


class Altering(WrappedNode):
    """Passes on what each reader's events become."""

    has_network_store = True

    def __init__(self, inner: MemoryNode) -> None:
        super().__init__(inner)
        self.requests: dict[str, MessageEnvelope] = {}

    async def send(self, envelope: MessageEnvelope) -> Any:
        request_id = await super().send(envelope)
        self.requests[request_id] = envelope
        return request_id

    def events(self) -> Any:
        return self.altered_all(super().events())

    async def altered_all(self, events: AsyncIterator[NodeEvent]) -> AsyncIterator[Any]:
        async for event in events:
            for one in self.altered(event):
                yield one

    def altered(self, event: NodeEvent) -> Sequence[Any]:
        return [event]


class SizeAsText(Altering):
    def __init__(self, inner: MemoryNode) -> None:
        super().__init__(inner)
        self.max_message_size_bytes = "150000"  # type: ignore[assignment]


class Unasked(Altering):
    query_store = None  # type: ignore[assignment]


class StartsOnce(Altering):
    started = False

    async def start(self) -> None:
        if self.started:
            raise NodeError("started already")
        self.started = True
        await super().start()


class ForgetsEarlySubscriptions(Altering):
    started = False

    async def start(self) -> None:
        self.started = True
        await super().start()

    async def subscribe(self, content_topics: Sequence[str]) -> None:
        if self.started:
            await super().subscribe(content_topics)


class AsyncEvents(Altering):
    async def events(self) -> Any:
        return super().events()


class ShapelessEvents(Altering):
    def altered(self, event: NodeEvent) -> Sequence[Any]:
        return [replace(event, message_hash=b"")] if isinstance(event, MessageReceived) else [event]


class OtherEvents(Altering):
    def altered(self, event: NodeEvent) -> Sequence[Any]:
        return [event, "an event"]


class RaisingEvents(Altering):
    async def altered_all(self, events: AsyncIterator[NodeEvent]) -> AsyncIterator[Any]:
        async for event in events:
            yield event
            raise OSError("the connection broke")


class EndingEvents(Altering):
    async def altered_all(self, events: AsyncIterator[NodeEvent]) -> AsyncIterator[Any]:
        for _ in range(4):
            yield await anext(events)


class OneQueue(Altering):
    """Whoever asks first gets an event."""

    shared: AsyncIterator[NodeEvent] | None = None

    def events(self) -> Any:
        self.shared = self.shared or self._inner.events()
        return self.in_turn(self.shared)

    async def in_turn(self, shared: AsyncIterator[NodeEvent]) -> AsyncIterator[NodeEvent]:
        async for event in shared:
            yield event


class OnlyTheFirstReads(Altering):
    readers = 0

    def events(self) -> Any:
        self.readers += 1
        return self.silent(super().events()) if self.readers == 2 else super().events()

    async def silent(self, events: AsyncIterator[NodeEvent]) -> AsyncIterator[NodeEvent]:
        async for event in events:
            if not isinstance(event, MessageReceived):
                yield event


class TellsThePast(Altering):
    def __init__(self, inner: MemoryNode) -> None:
        super().__init__(inner)
        self.past: list[NodeEvent] = []

    def altered(self, event: NodeEvent) -> Sequence[Any]:
        if event not in self.past:
            self.past.append(event)
        return [event]

    def events(self) -> Any:
        return self.after(list(self.past), super().events())

    async def after(self, past: list[NodeEvent], events: AsyncIterator[NodeEvent]) -> AsyncIterator[Any]:
        for event in past:
            yield event
        async for event in events:
            yield event


class SendsNothing(Altering):
    async def send(self, envelope: MessageEnvelope) -> Any:
        await super().send(envelope)


class OneId(Altering):
    async def send(self, envelope: MessageEnvelope) -> Any:
        await super().send(envelope)
        return "request"

    def altered(self, event: NodeEvent) -> Sequence[Any]:
        return [replace(event, request_id="request")] if isinstance(event, MessagePropagated) else [event]


class RaisesAnything(Altering):
    async def send(self, envelope: MessageEnvelope) -> Any:
        raise OSError("broken")


class NeverReturns(Altering):
    async def send(self, envelope: MessageEnvelope) -> Any:
        await asyncio.Event().wait()


class NoOutcome(Altering):
    def altered(self, event: NodeEvent) -> Sequence[Any]:
        return [] if isinstance(event, MessagePropagated) else [event]


class Twice(Altering):
    def altered(self, event: NodeEvent) -> Sequence[Any]:
        return [event, event] if isinstance(event, MessagePropagated) else [event]


class FailsAndGoesOn(Altering):
    def altered(self, event: NodeEvent) -> Sequence[Any]:
        if isinstance(event, MessagePropagated):
            return [MessageSendError(event.request_id, "it took long"), event]
        return [event]


class Received(Altering):
    """Changes what arrives, at its receiver alone."""

    def arrived(self, event: MessageReceived) -> MessageReceived | None:
        return event

    def altered(self, event: NodeEvent) -> Sequence[Any]:
        if not isinstance(event, MessageReceived) or event.envelope in self.requests.values():
            return [event]
        arrived = self.arrived(event)
        return [] if arrived is None else [arrived]


class Lost(Received):
    def arrived(self, event: MessageReceived) -> MessageReceived | None:
        return None


class CutsPayloads(Received):
    def arrived(self, event: MessageReceived) -> MessageReceived | None:
        return replace(event, envelope=replace(event.envelope, payload=event.envelope.payload.rstrip(b"\xff")[:200]))


class DropsMeta(Received):
    def arrived(self, event: MessageReceived) -> MessageReceived | None:
        return replace(event, envelope=replace(event.envelope, meta=b""))


class DropsEphemeral(Received):
    def arrived(self, event: MessageReceived) -> MessageReceived | None:
        return None if event.envelope.ephemeral else event


class TellsOthersOnly(Altering):
    def altered(self, event: NodeEvent) -> Sequence[Any]:
        is_ours = isinstance(event, MessageReceived) and event.envelope in self.requests.values()
        return [] if is_ours else [event]


class HashOfThePayload(Altering):
    """The same for whatever is sent again."""

    def altered(self, event: NodeEvent) -> Sequence[Any]:
        if isinstance(event, MessageReceived):
            return [replace(event, message_hash=hashlib.sha256(event.envelope.payload).digest())]
        if isinstance(event, MessagePropagated):
            digest = hashlib.sha256(self.requests[event.request_id].payload).digest()
            return [replace(event, message_hash=digest)]
        return [event]


class HashOfItsOwn(Received):
    def arrived(self, event: MessageReceived) -> MessageReceived | None:
        return replace(event, message_hash=event.message_hash[::-1])


class OneHash(Altering):
    """Counts instants, of which each has many messages."""

    def altered(self, event: NodeEvent) -> Sequence[Any]:
        return [replace(event, message_hash=b"x")] if hasattr(event, "message_hash") else [event]  # type: ignore[call-arg]


class Milliseconds(Altering):
    def altered(self, event: NodeEvent) -> Sequence[Any]:
        if isinstance(event, MessageReceived):
            return [replace(event, timestamp_ns=event.timestamp_ns // 1_000_000)]
        return [event]


class HearsEverything(Altering):
    async def start(self) -> None:
        await super().start()
        await super().subscribe(TOPICS)


class SubscribesToOne(Altering):
    async def subscribe(self, content_topics: Sequence[str]) -> None:
        await super().unsubscribe(TOPICS)
        await super().subscribe(content_topics)


class StaysSubscribed(Altering):
    async def unsubscribe(self, content_topics: Sequence[str]) -> None:
        pass


class UnsubscribesWhatIsThere(Altering):
    async def unsubscribe(self, content_topics: Sequence[str]) -> None:
        if not set(content_topics) <= set(self._inner.subscriptions):
            raise NodeError("not subscribed")
        await super().unsubscribe(content_topics)


class UnsubscribesForGood(Altering):
    def __init__(self, inner: MemoryNode) -> None:
        super().__init__(inner)
        self.gone: set[str] = set()

    async def unsubscribe(self, content_topics: Sequence[str]) -> None:
        self.gone.update(content_topics)
        await super().unsubscribe(content_topics)

    async def subscribe(self, content_topics: Sequence[str]) -> None:
        await super().subscribe([topic for topic in content_topics if topic not in self.gone])


class Overstates(Altering):
    def __init__(self, inner: MemoryNode) -> None:
        super().__init__(inner)
        self.max_message_size_bytes = 2 * inner.max_message_size_bytes


class RefusesForNow(Altering):
    async def send(self, envelope: MessageEnvelope) -> Any:
        try:
            return await super().send(envelope)
        except NodeError as error:
            raise NodeError(str(error)) from None


class TellsStatesAgain(Altering):
    def altered(self, event: NodeEvent) -> Sequence[Any]:
        return [event, ConnectionStatus(ConnectionState.CONNECTED)]


class SaysDisconnected(Altering):
    def altered(self, event: NodeEvent) -> Sequence[Any]:
        if isinstance(event, ConnectionStatus):
            return [ConnectionStatus(ConnectionState.DISCONNECTED)]
        return [event]


class AnswersWithoutStore(Altering):
    has_network_store = False

    async def query_store(self, query: StoreQuery) -> Any:
        return StorePage(())


class GivesList(Altering):
    async def query_store(self, query: StoreQuery) -> Any:
        return list((await super().query_store(query)).messages)


class RaisesInQuery(Altering):
    async def query_store(self, query: StoreQuery) -> Any:
        raise OSError("broken")


class NamesNoHashes(Altering):
    async def query_store(self, query: StoreQuery) -> Any:
        return await super().query_store(replace(query, message_hashes=(), content_topics=TOPICS))


class GivesNoData(Altering):
    async def query_store(self, query: StoreQuery) -> Any:
        return await super().query_store(replace(query, include_data=False))


class EndsBefore(Altering):
    async def query_store(self, query: StoreQuery) -> Any:
        end_ns = None if query.end_time_ns is None else query.end_time_ns - 1
        return await super().query_store(replace(query, end_time_ns=end_ns))


class OfAnyTime(Altering):
    async def query_store(self, query: StoreQuery) -> Any:
        return await super().query_store(replace(query, start_time_ns=None, end_time_ns=None))


class OfAnyTopic(Altering):
    async def query_store(self, query: StoreQuery) -> Any:
        return await super().query_store(replace(query, content_topics=()))


class FirstPageAlways(Altering):
    async def query_store(self, query: StoreQuery) -> Any:
        return await super().query_store(replace(query, cursor=None))


class LargePages(Altering):
    async def query_store(self, query: StoreQuery) -> Any:
        return await super().query_store(replace(query, page_size=100))


class FirstPageAlone(Altering):
    async def query_store(self, query: StoreQuery) -> Any:
        return replace(await super().query_store(query), cursor=None)


class NewestFirst(Altering):
    async def query_store(self, query: StoreQuery) -> Any:
        page = await super().query_store(query)
        return replace(page, messages=page.messages[::-1])


class StoresEverything(Altering):
    async def send(self, envelope: MessageEnvelope) -> Any:
        return await super().send(replace(envelope, ephemeral=False))


class ClaimsToStore(Altering):
    def altered(self, event: NodeEvent) -> Sequence[Any]:
        if isinstance(event, MessagePropagated) and self.requests[event.request_id].ephemeral:
            return [event, MessageSent(event.request_id, event.message_hash)]
        return [event]


class EventsOutliveIt(Altering):
    async def altered_all(self, events: AsyncIterator[NodeEvent]) -> AsyncIterator[Any]:
        async for event in events:
            yield event
        await asyncio.Event().wait()


class StopsOnce(Altering):
    stopped = False

    async def stop(self) -> None:
        if self.stopped:
            raise NodeError("stopped already")
        self.stopped = True
        await super().stop()


BROKEN: list[tuple[str, type[Altering]]] = [
    ("members", SizeAsText),
    ("members", Unasked),
    ("start", StartsOnce),
    ("subscribe-before-start", ForgetsEarlySubscriptions),
    ("events", AsyncEvents),
    ("events", ShapelessEvents),
    ("events", OtherEvents),
    ("events", RaisingEvents),
    ("events-go-on", EndingEvents),
    ("every-reader", OneQueue),
    ("every-reader", OnlyTheFirstReads),
    ("events-from-now-on", TellsThePast),
    ("send", SendsNothing),
    ("send", OneId),
    ("send", RaisesAnything),
    ("send", NeverReturns),
    ("outcome", NoOutcome),
    ("propagated-once", Twice),
    ("failed-for-good", FailsAndGoesOn),
    ("delivery", Lost),
    ("delivery", CutsPayloads),
    ("delivery", DropsMeta),
    ("ephemeral", DropsEphemeral),
    ("own-messages", TellsOthersOnly),
    ("message-hash", HashOfThePayload),
    ("message-hash", HashOfItsOwn),
    ("message-hash", OneHash),
    ("timestamp", Milliseconds),
    ("topics-apart", HearsEverything),
    ("subscribe", SubscribesToOne),
    ("unsubscribe", StaysSubscribed),
    ("unsubscribe", UnsubscribesWhatIsThere),
    ("subscribe-again", UnsubscribesForGood),
    ("largest-message", Overstates),
    ("too-large", RefusesForNow),
    ("connection-status", TellsStatesAgain),
    ("connection-status", SaysDisconnected),
    ("no-store", AnswersWithoutStore),
    ("store-page", GivesList),
    ("store-page", RaisesInQuery),
    ("store-by-hash", NamesNoHashes),
    ("store-by-hash", GivesNoData),
    ("store-by-time", EndsBefore),
    ("store-by-time", OfAnyTime),
    ("store-by-time", OfAnyTopic),
    ("store-pages", FirstPageAlways),
    ("store-pages", LargePages),
    ("store-pages", FirstPageAlone),
    ("store-pages", NewestFirst),
    ("store-ephemeral", StoresEverything),
    ("sent-is-stored", ClaimsToStore),
    ("stop", EventsOutliveIt),
    ("stop", StopsOnce),
]


def on_network(kind: Callable[[MemoryNode], Any], network: MemoryNetwork) -> Callable[[], Any]:
    names = itertools.count()
    return lambda: kind(network.create_node(f"node {next(names)}"))


def check_virtually(kind: Callable[[MemoryNode], Any], network: MemoryNetwork) -> CheckReport:
    return run_virtual(check_node(on_network(kind, network)), limit_ms=3_600_000)


def in_real_time(check: Coroutine[Any, Any, CheckReport]) -> CheckReport:
    return asyncio.run(check)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("promise", "kind"), BROKEN, ids=[kind.__name__ for _, kind in BROKEN])
def test_a_broken_promise_of_a_node_is_named(promise: str, kind: type[Altering]) -> None:
    network = MemoryNetwork(store=kind.has_network_store)
    with pytest.raises(BrokenPromiseError, match=f"^{kind.__name__} breaks ") as caught:
        check_virtually(kind, network)
    assert caught.value.promise.name == promise, str(caught.value)


def test_every_promise_of_a_node_has_one_that_breaks_it() -> None:
    assert {promise for promise, _ in BROKEN} == set(NAMES)


@pytest.mark.parametrize("kind", [Altering, WrappedNode, lambda node: node], ids=["altering", "wrapped", "memory"])
@pytest.mark.parametrize(
    "conditions",
    [
        NetworkConditions(),
        NetworkConditions(loss=0.6, delay_ms=(0, 2_000), reorder=0.5),
        NetworkConditions(duplicate=0.9, delay_ms=(100, 3_000), reorder=0.9),
    ],
    ids=["clean", "lossy", "repeating"],
)
@pytest.mark.parametrize("store", [True, False])
def test_memory_nodes_hold_every_promise(
    kind: Callable[[MemoryNode], Any], conditions: NetworkConditions, store: bool
) -> None:
    report = check_virtually(kind, MemoryNetwork(conditions, seed=3, store=store))
    not_tried = {"no-store"} if store else OF_STORES
    assert [promise.name for promise in report.held] == [name for name in NAMES if name not in not_tried]
    assert {promise.name for promise, _ in report.passed_over} == not_tried


def test_udp_nodes_hold_every_promise() -> None:
    url = f"udp://239.255.70.9:{free_port()}"
    report = in_real_time(check_node(lambda: UdpNode(url, interface="127.0.0.1")))
    assert {promise.name for promise, _ in report.passed_over} == OF_STORES


@pytest.mark.parametrize("jetstream", [True, False])
def test_nats_nodes_hold_every_promise(jetstream: bool, tmp_path: Path) -> None:
    with NatsServer(tmp_path, jetstream=jetstream) as server:
        report = in_real_time(check_node(lambda: NatsNode(server.url)))
    assert {promise.name for promise, _ in report.passed_over} == ({"no-store"} if jetstream else OF_STORES)


def test_mqtt_nodes_hold_every_promise(tmp_path: Path) -> None:
    with Mosquitto(tmp_path) as server:
        report = in_real_time(check_node(lambda: MqttNode(server.url)))
    assert {promise.name for promise, _ in report.passed_over} == OF_STORES


def test_waku_nodes_hold_every_promise(tmp_path: Path) -> None:
    with WakuNodes(tmp_path) as servers:
        urls = itertools.cycle(servers.url.split(","))
        report = in_real_time(check_node(lambda: WakuRestNode(next(urls))))
    assert {promise.name for promise, _ in report.passed_over} == {"no-store"}


def test_nodes_of_one_that_is_broken_are_stopped() -> None:
    network = MemoryNetwork()
    made: list[MemoryNode] = []

    def watched(node: MemoryNode) -> Any:
        made.append(node)
        return Lost(node)

    with pytest.raises(BrokenPromiseError):
        check_virtually(watched, network)
    assert [node.stopped for node in made] == [True, True]


@pytest.mark.parametrize("topics", ["/a/1/b/proto", ("/a/1/b/proto",), ("/a/1/b/proto",) * 2])
def test_two_topics_are_needed(topics: Any) -> None:
    with pytest.raises(ConfigError, match="it must be two topics"):
        run_virtual(check_node(on_network(WrappedNode, MemoryNetwork()), content_topics=topics))
