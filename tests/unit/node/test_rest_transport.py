"""`WakuRestNode`'s transport on stub nodes in virtual time: polling, subscriptions, health, store, both dialects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from stub_waku_node import STORE_PEER, StubHttp, StubNetwork, StubNode
from virtual_nodes import OTHER_TOPIC, TOPIC, virtual

from shardwire import NodeError
from shardwire.config import RateLimitConfig
from shardwire.node import (
    ConnectionState,
    ConnectionStatus,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSent,
    MessagesMissed,
    NodeConfig,
    NodeEvent,
    StoreQuery,
    VirtualClock,
)
from shardwire.node.rest.http import HttpError
from shardwire.node.rest.rest_store import StoreSettings
from shardwire.node.rest.topic_poll import POLL_INTERVAL_MS_MAX
from shardwire.node.rest.transport import RestTransport
from shardwire.node.transport import TransportNode

DIALECTS = ["go-waku", "logos-delivery"]
ALICE, BOB = b"from alice", b"from bob"


class Participant:
    """A started node on a stub, and what it told."""

    def __init__(self, stub: StubNode, settings: StoreSettings, light: bool | None, config: NodeConfig | None) -> None:
        self.stub = stub
        self.http = StubHttp(stub)
        self.node = TransportNode(RestTransport("stub", self.http, settings, light), config)
        self.told: list[NodeEvent] = []

    async def start(self, *topics: str) -> Participant:
        await self.node.start()
        stream = self.node.events()
        await self.node.subscribe(topics)

        async def read() -> None:
            async for event in stream:
                self.told.append(event)

        self._reader = asyncio.create_task(read())
        return self

    def of(self, kind: type[NodeEvent]) -> list[Any]:
        return [event for event in self.told if isinstance(event, kind)]

    def payloads(self) -> list[bytes]:
        return [event.envelope.payload for event in self.of(MessageReceived)]

    def states(self) -> list[ConnectionState]:
        return [event.state for event in self.of(ConnectionStatus)]


async def participant(
    stub: StubNode,
    *topics: str,
    settings: StoreSettings | None = None,
    light: bool | None = None,
    config: NodeConfig | None = None,
) -> Participant:
    return await Participant(stub, settings or StoreSettings(), light, config).start(*topics or (TOPIC,))


def in_both_dialects(test: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[str], None]:
    @pytest.mark.parametrize("dialect", DIALECTS)
    def run(dialect: str) -> None:
        virtual(lambda: test(dialect))()

    run.__name__ = test.__name__
    return run


@in_both_dialects
async def test_messages_go_from_node_to_node(dialect: Any) -> None:
    network = StubNetwork()
    alice = await participant(StubNode(network, dialect))
    bob = await participant(StubNode(network, dialect))
    request_id = await alice.node.send(MessageEnvelope(TOPIC, ALICE, meta=b"mark"))
    await bob.node.send(MessageEnvelope(TOPIC, BOB, ephemeral=True))
    await asyncio.sleep(3)
    ((_, message, name),) = network.stored
    assert alice.of(MessagePropagated) == [MessagePropagated(request_id, name)]
    assert alice.of(MessageSent) == [MessageSent(request_id, name)]
    received = next(event for event in bob.of(MessageReceived) if event.envelope.payload == ALICE)
    assert received == MessageReceived(MessageEnvelope(TOPIC, ALICE, False, b"mark"), name, message["timestamp"])
    assert next(event for event in alice.of(MessageReceived) if event.envelope.payload == BOB).envelope.ephemeral
    # Each has its own message once: from the node itself, not from the echo.
    assert sorted(alice.payloads()) == sorted(bob.payloads()) == [ALICE, BOB]
    assert (alice.node.connection_state, alice.node.has_store) == (ConnectionState.CONNECTED, True)
    await alice.node.stop()
    await bob.node.stop()
    assert (alice.stub.queues, bob.stub.queues, alice.http.closed) == ({}, {}, True)


@in_both_dialects
async def test_a_light_node_uses_filter_and_lightpush(dialect: Any) -> None:
    network = StubNetwork()
    alice = await participant(StubNode(network, dialect, light=True))
    bob = await participant(StubNode(network, dialect))
    await alice.node.send(MessageEnvelope(TOPIC, ALICE))
    await bob.node.send(MessageEnvelope(TOPIC, BOB))
    await asyncio.sleep(3)
    assert sorted(alice.payloads()) == sorted(bob.payloads()) == [ALICE, BOB]
    assert alice.stub.count("POST", "/lightpush/v3" if dialect == "logos-delivery" else "/lightpush/v1") == 1
    assert len(alice.of(MessageSent)) == 1
    # go-waku forgets what shards its peer serves when it is asked by hash.
    assert alice.stub.count("POST", "/admin/v1/peers") == (dialect == "go-waku")
    await alice.node.stop()
    assert (alice.stub.queues, alice.stub.filters) == ({}, set())


@virtual
async def test_a_light_node_whose_service_node_forgot_it_subscribes_again() -> None:
    network = StubNetwork()
    alice = await participant(StubNode(network, light=True))
    await asyncio.sleep(20)
    last_ping_ns = VirtualClock().epoch_ns()
    alice.stub.filters.clear()
    await asyncio.sleep(20)
    assert len(alice.stub.filters) == 1
    (missed,) = alice.of(MessagesMissed)
    assert 0 < last_ping_ns - missed.since_ns < 16_000_000_000


@virtual
async def test_polling_slows_down_and_is_woken_by_sends() -> None:
    stub = StubNode(StubNetwork())
    alice = await participant(stub)
    await asyncio.sleep(10)
    polls = stub.count("GET", "/relay")
    await asyncio.sleep(10)
    idle = stub.count("GET", "/relay") - polls
    assert 38 <= idle <= 1 + 10_000 / POLL_INTERVAL_MS_MAX
    polls = stub.count("GET", "/relay")
    await alice.node.send(MessageEnvelope(TOPIC, ALICE))
    await asyncio.sleep(0.1)
    assert 3 <= stub.count("GET", "/relay") - polls <= 5
    # Faster while others speak.
    bob = await participant(StubNode(stub.network))
    polls = stub.count("GET", "/relay")
    for _ in range(100):
        await bob.node.send(MessageEnvelope(TOPIC, BOB))
        await asyncio.sleep(0.01)
    assert stub.count("GET", "/relay") - polls >= 100


@virtual
async def test_the_queue_of_a_client_that_died_is_taken_over() -> None:
    stub = StubNode(StubNetwork())
    stub.queues[TOPIC] = []
    await (await participant(StubNode(stub.network))).node.send(MessageEnvelope(TOPIC, BOB))
    await asyncio.sleep(1)
    alice = await participant(stub)
    await asyncio.sleep(1)
    assert alice.payloads() == [BOB]
    assert stub.count("POST", "/relay/v1/auto/subscriptions") == 0


@virtual
async def test_a_node_that_lost_its_subscriptions_is_subscribed_again() -> None:
    stub = StubNode(StubNetwork())
    alice = await participant(stub)
    await asyncio.sleep(30)
    before_ns = VirtualClock().epoch_ns()
    stub.restart()
    await asyncio.sleep(3)
    assert TOPIC in stub.queues
    (missed,) = alice.of(MessagesMissed)
    assert 0 <= before_ns - missed.since_ns < 1_000_000_000
    assert alice.states() == []


@pytest.mark.parametrize("fault", ["refuse", "hang", "error", "drop", "malformed", "endless"])
def test_a_node_that_fails_is_told_once_and_missed_messages_when_it_is_back(
    fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @virtual
    async def run() -> None:
        stub = StubNode(StubNetwork())
        alice = await participant(stub)
        bob = await participant(StubNode(stub.network))
        await asyncio.sleep(10)
        begun_ns = VirtualClock().epoch_ns()
        stub.fault = fault
        await asyncio.sleep(1)
        await bob.node.send(MessageEnvelope(TOPIC, BOB))
        await asyncio.sleep(60)
        assert alice.states() == [ConnectionState.DISCONNECTED]
        assert alice.of(MessagesMissed) == []
        stub.fault = None
        await asyncio.sleep(15)
        assert alice.states() == [ConnectionState.DISCONNECTED, ConnectionState.CONNECTED]
        if fault in ("hang", "drop", "malformed", "error", "endless"):
            (missed,) = alice.of(MessagesMissed)
            assert -250_000_000 <= begun_ns - missed.since_ns < 11_000_000_000
        else:
            # What nobody took is in the queue still.
            assert alice.of(MessagesMissed) == []
        page = await alice.node.query_store(StoreQuery(content_topics=(TOPIC,)))
        assert [message.envelope.payload for message in page.messages if message.envelope] == [BOB]

    with caplog.at_level(logging.INFO):
        run()
    disconnected = [record for record in caplog.records if "stub: disconnected" in record.getMessage()]
    assert len(disconnected) == 1


@virtual
async def test_one_failure_of_a_poll_is_no_disconnection_but_something_missed() -> None:
    stub = StubNode(StubNetwork())
    alice = await participant(stub)
    await asyncio.sleep(10)
    request, polls = alice.http.request, list[tuple[int, bool]]()

    async def noted(method: str, path: str, **given: Any) -> Any:
        begun_ns = VirtualClock().epoch_ns()
        try:
            answer = await request(method, path, **given)
        except HttpError:
            polls.append((begun_ns, False))
            raise
        polls.append((begun_ns, True))
        return answer

    alice.http.request = noted  # type: ignore[method-assign]
    await asyncio.sleep(1)
    stub.fault, stub.fault_paths = "drop", ("/relay/v1/auto/messages/",)
    await asyncio.sleep(0.3)
    stub.fault = None
    await asyncio.sleep(5)
    (missed,) = alice.of(MessagesMissed)
    # What came while the last good poll was on its way may have been too late for it.
    failed = [is_good for _, is_good in polls].index(False)
    assert missed.since_ns == polls[failed - 1][0]
    assert alice.states() == []


@virtual
async def test_a_message_whose_answer_was_lost_is_published_once_more_with_the_same_bytes() -> None:
    stub = StubNode(StubNetwork(), "go-waku")
    alice = await participant(stub)
    stub.fault, stub.fault_paths = "drop", ("/relay/v1/auto/messages",)
    await alice.node.send(MessageEnvelope(TOPIC, ALICE))
    await asyncio.sleep(0.2)
    stub.fault = None
    await asyncio.sleep(5)
    assert len(alice.of(MessagePropagated)) == 1
    assert len(stub.network.stored) == 1


@virtual
async def test_logos_delivery_is_asked_for_a_message_whose_answer_was_lost() -> None:
    stub = StubNode(StubNetwork(), "logos-delivery")
    alice = await participant(stub)
    stub.fault, stub.fault_paths = "drop", ("/relay/v1/auto/messages",)
    await alice.node.send(MessageEnvelope(TOPIC, ALICE))
    await asyncio.sleep(0.2)
    stub.fault = None
    published = stub.count("POST", "/relay/v1/auto/messages")
    await asyncio.sleep(5)
    assert len(alice.of(MessagePropagated)) == len(alice.of(MessageSent)) == len(stub.network.stored) == 1
    # It would have answered that it has no peers.
    assert stub.count("POST", "/relay/v1/auto/messages") == published


@virtual
async def test_logos_delivery_keeps_a_shard_that_another_topic_needs() -> None:
    stub = StubNode(StubNetwork(), "logos-delivery")
    alice = await participant(stub, TOPIC, OTHER_TOPIC)
    await alice.node.unsubscribe([TOPIC])
    assert set(stub.queues) == {TOPIC, OTHER_TOPIC}
    await alice.node.unsubscribe([OTHER_TOPIC])
    assert OTHER_TOPIC not in stub.queues


@virtual
async def test_logos_delivery_that_failed_to_subscribe_is_unsubscribed_first() -> None:
    stub = StubNode(StubNetwork(), "logos-delivery")
    stub.fault, stub.fault_paths = "error", ("/relay/v1/auto/subscriptions",)
    alice = await participant(stub)
    await asyncio.sleep(1)
    assert stub.count("DELETE", "/relay/v1/auto/subscriptions") >= 1
    stub.fault = None
    await asyncio.sleep(5)
    assert TOPIC in stub.queues
    assert alice.node.subscriptions == (TOPIC,)


@virtual
async def test_a_queue_is_emptied_before_it_is_given_up() -> None:
    stub = StubNode(StubNetwork(), answer_messages_max=2)
    alice = await participant(stub)
    bob = await participant(StubNode(stub.network))
    await asyncio.sleep(10)
    for number in range(9):
        await bob.node.send(MessageEnvelope(TOPIC, b"%d" % number))
    await asyncio.sleep(0.02)
    assert len(stub.queues[TOPIC]) > 2
    await alice.node.stop()
    assert (stub.queues, stub.given_up_full) == ({}, 0)


@virtual
async def test_what_came_before_the_end_is_handed_over() -> None:
    stub = StubNode(StubNetwork())
    alice = await participant(stub)
    bob = await participant(StubNode(stub.network))
    await asyncio.sleep(10)
    await bob.node.send(MessageEnvelope(TOPIC, BOB))
    await asyncio.sleep(0.01)
    await alice.node.unsubscribe([TOPIC])
    await asyncio.sleep(0)
    assert TOPIC not in stub.queues
    assert alice.node.counts.get("received", 0) + alice.node.counts.get("received_not_subscribed", 0) == 1


@virtual
async def test_a_node_that_failed_is_back_for_who_listens_to_nothing() -> None:
    stub = StubNode(StubNetwork())
    alice = await participant(stub)
    await alice.node.unsubscribe((TOPIC,))
    await asyncio.sleep(10)
    stub.fault = "refuse"
    await asyncio.sleep(60)
    stub.fault = None
    await asyncio.sleep(15)
    assert alice.states() == [ConnectionState.DISCONNECTED, ConnectionState.CONNECTED]


@in_both_dialects
async def test_a_node_without_peers_is_disconnected(dialect: Any) -> None:
    stub = StubNode(StubNetwork(), dialect, relay_peers=0)
    alice = await participant(stub)
    await asyncio.sleep(5)
    assert alice.node.connection_state is ConnectionState.DISCONNECTED
    stub.relay_peers = 1
    await asyncio.sleep(5)
    assert alice.states() == [ConnectionState.DISCONNECTED, ConnectionState.CONNECTED]
    stub.relay_peers = 0
    await asyncio.sleep(15)
    assert alice.states()[2:] == [ConnectionState.DISCONNECTED]


@virtual
async def test_a_node_whose_rln_is_not_ready_is_disconnected() -> None:
    stub = StubNode(StubNetwork(), "logos-delivery", rln="NOT_READY")
    alice = await participant(stub)
    assert alice.node.connection_state is ConnectionState.DISCONNECTED
    stub.rln = "READY"
    await asyncio.sleep(3)
    assert alice.states() == [ConnectionState.DISCONNECTED, ConnectionState.CONNECTED]


NO_LIMIT = "stub has RLN and NodeConfig.rate_limit_config sets no limit"
COUNTS_MESSAGES = "stub has RLN and NodeConfig.rate_limit_config counts messages"


@pytest.mark.parametrize(
    ("rln", "limit", "told"),
    [
        ("READY", None, NO_LIMIT),
        ("READY", RateLimitConfig(), NO_LIMIT),
        ("READY", RateLimitConfig(enabled=True, messages_per_epoch=20), COUNTS_MESSAGES),
        ("READY", RateLimitConfig(enabled=True, messages_per_epoch=20, counts="segment"), None),
        ("NOT_MOUNTED", None, None),
    ],
)
def test_where_the_node_has_rln_its_limit_is_on_or_the_user_is_warned_once(
    rln: str, limit: RateLimitConfig | None, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    @virtual
    async def scenario() -> None:
        stub = StubNode(StubNetwork(), "logos-delivery", rln=rln)
        alice = await participant(stub, config=NodeConfig(rate_limit_config=limit))
        await asyncio.sleep(60)
        assert alice.node.connection_state is ConnectionState.CONNECTED

    with caplog.at_level(logging.WARNING, "shardwire.node.rest.transport"):
        scenario()
    warnings = [record.getMessage() for record in caplog.records if "RLN" in record.getMessage()]
    assert [told is not None and text.startswith(told) for text in warnings] == [True] * (told is not None)


@virtual
async def test_without_a_store_it_is_partially_connected() -> None:
    network = StubNetwork(has_store=False)
    alice = await participant(StubNode(network))
    assert (alice.node.connection_state, alice.node.has_store) == (ConnectionState.PARTIALLY_CONNECTED, False)
    with pytest.raises(NodeError, match="knows no store"):
        await alice.node.query_store(StoreQuery(message_hashes=(bytes(32),)))
    network.has_store = True
    await asyncio.sleep(5)
    assert (alice.node.connection_state, alice.node.has_store) == (ConnectionState.CONNECTED, True)
    unused = await participant(StubNode(network), settings=StoreSettings(use=False))
    assert (unused.node.connection_state, unused.node.has_store) == (ConnectionState.CONNECTED, False)
    with pytest.raises(NodeError, match="switched off"):
        await unused.node.query_store(StoreQuery(content_topics=(TOPIC,)))


@virtual
async def test_a_node_that_does_not_show_its_peers_is_taken_at_its_word() -> None:
    stub = StubNode(StubNetwork(), admin=False)
    alice = await participant(stub, settings=StoreSettings(peer=STORE_PEER))
    assert alice.node.connection_state is ConnectionState.CONNECTED
    stub.publish_answers.extend([(400, "not enough peers to publish")] * 3)
    await alice.node.send(MessageEnvelope(TOPIC, ALICE))
    await asyncio.sleep(0.1)
    assert alice.node.connection_state is ConnectionState.DISCONNECTED
    await asyncio.sleep(15)
    assert alice.node.connection_state is ConnectionState.CONNECTED
    assert len(alice.of(MessagePropagated)) == 1


@virtual
async def test_a_topic_that_a_store_would_take_for_two_is_refused_where_one_is_asked() -> None:
    topic = "/app/1/a,b/proto"
    with pytest.raises(NodeError, match="'/app/1/a,b/proto': a store takes a comma for the end of a topic"):
        await participant(StubNode(StubNetwork()), topic)
    network = StubNetwork()
    alice, bob = [await participant(StubNode(network), topic, settings=StoreSettings(use=False)) for _ in range(2)]
    await alice.node.send(MessageEnvelope(topic, b"x"))
    await asyncio.sleep(1)
    assert bob.payloads() == [b"x"]


@virtual
async def test_a_node_of_another_cluster_is_refused() -> None:
    stub = StubNode(StubNetwork(), "logos-delivery", cluster_id=2)
    with pytest.raises(NodeError, match="serves cluster 2, not 1: set cluster_id"):
        await participant(stub)
    assert (await participant(stub, config=NodeConfig(cluster_id=2))).states() == []
    # One that comes back as another is not used.
    stub = StubNode(StubNetwork())
    alice = await participant(stub)
    stub.fault = "refuse"
    await asyncio.sleep(5)
    stub.fault, stub.cluster_id = None, 3
    stub.restart()
    await asyncio.sleep(10)
    assert alice.states() == [ConnectionState.DISCONNECTED]
    stub.cluster_id = 1
    await asyncio.sleep(10)
    assert alice.states() == [ConnectionState.DISCONNECTED, ConnectionState.CONNECTED]


@virtual
async def test_what_is_no_waku_node_is_refused() -> None:
    class Other(StubNode):
        def answer(self, method: str, target: str, body: bytes, authorization: str | None) -> tuple[int, bytes]:
            return 404, b"nginx"

    with pytest.raises(NodeError, match="is no REST interface of a Waku node: GET /debug/v1/version gave 404"):
        await participant(Other(StubNetwork()))
    with pytest.raises(NodeError, match="name and password are missing or wrong"):
        await participant(StubNode(StubNetwork(), password="secret"))
    with pytest.raises(NodeError, match="no connection: Connection refused"):
        await participant(StubNode(StubNetwork(), fault="refuse"))


@in_both_dialects
async def test_a_store_that_lies_is_not_believed(dialect: Any) -> None:
    stub = StubNode(StubNetwork(), dialect)
    alice = await participant(stub)
    for number in range(4):
        await alice.node.send(MessageEnvelope(TOPIC, b"%d" % number))
    await asyncio.sleep(1)
    names = [name for _, _, name in stub.network.stored]

    def lie(entry: dict[str, Any]) -> dict[str, Any]:
        if "message" in entry and entry["message"]["payload"] == "MQ==":
            entry["message"]["payload"] = "bGllcw=="
        if "message" in entry and entry["message"]["payload"] == "Mg==":
            entry["message"]["timestamp"] = str(int(entry["message"]["timestamp"]) + 1)
        return entry

    stub.lie = lie
    page = await alice.node.query_store(StoreQuery(message_hashes=tuple(names)))
    assert [message.message_hash for message in page.messages] == [names[0], names[3]]
    # What it gives without being asked is left out.
    stub.lie = None
    stub._store = lambda query, go: StubNode._store(
        stub,
        {"contentTopics": TOPIC, "peerAddr": "x"}
        | {  # type: ignore[method-assign]
            "includeData": query["includeData"]
        },
        go,
    )
    page = await alice.node.query_store(StoreQuery(message_hashes=(names[2],)))
    assert [message.message_hash for message in page.messages] == [names[2]]
    for include_data, count in ((True, 0), (False, 4)):
        # Without its content nothing shows of which topic one is.
        query = StoreQuery(content_topics=(OTHER_TOPIC,), include_data=include_data)
        assert len((await alice.node.query_store(query)).messages) == count


@virtual
async def test_a_queue_that_lies_harms_nobody() -> None:
    stub = StubNode(StubNetwork())
    alice = await participant(stub)
    bob = await participant(StubNode(stub.network))
    lies: list[dict[str, Any]] = [
        {"timestamp": 1e300},
        {"timestamp": 1 << 63},
        {"timestamp": "soon"},
        {"payload": "%%"},
        {"payload": 5},
        {"contentTopic": None},
        {"contentTopic": OTHER_TOPIC},
        {"meta": "A" * 1_000},
        {"ephemeral": "yes"},
        {},
    ]
    for said in lies:
        stub.lie = lambda message, said=said: message | said  # type: ignore[misc]
        await bob.node.send(MessageEnvelope(TOPIC, BOB))
        await asyncio.sleep(1)
    await asyncio.sleep(1)
    assert alice.payloads() == [BOB, BOB]
    assert (alice.states(), alice.of(MessagesMissed)) == ([], [])


@virtual
async def test_a_store_that_fails_makes_it_partially_connected_for_a_while() -> None:
    stub = StubNode(StubNetwork())
    alice = await participant(stub)
    stub.store_status = 500
    with pytest.raises(NodeError, match="answered 500: out of order"):
        await alice.node.query_store(StoreQuery(content_topics=(TOPIC,)))
    await asyncio.sleep(1)
    assert alice.states() == [ConnectionState.PARTIALLY_CONNECTED]
    stub.store_status = 200
    await asyncio.sleep(40)
    assert alice.states() == [ConnectionState.PARTIALLY_CONNECTED, ConnectionState.CONNECTED]
    # Or until it answers again.
    stub.store_status = 500
    with pytest.raises(NodeError, match="answered 500: out of order"):
        await alice.node.query_store(StoreQuery(content_topics=(TOPIC,)))
    await asyncio.sleep(1)
    stub.store_status = 200
    await alice.node.query_store(StoreQuery(content_topics=(TOPIC,)))
    await asyncio.sleep(10)
    assert alice.states() == [ConnectionState.PARTIALLY_CONNECTED, ConnectionState.CONNECTED] * 2


@in_both_dialects
async def test_pages_follow_one_another(dialect: Any) -> None:
    stub = StubNode(StubNetwork(), dialect)
    alice = await participant(stub)
    for number in range(7):
        await alice.node.send(MessageEnvelope(TOPIC, b"%d" % number))
    await asyncio.sleep(1)
    for forward in (True, False):
        query, found = StoreQuery(content_topics=(TOPIC,), page_size=3, forward=forward), []
        while True:
            page = await alice.node.query_store(query)
            found.append([message.envelope.payload for message in page.messages if message.envelope])
            if page.cursor is None:
                break
            query = StoreQuery(content_topics=(TOPIC,), page_size=3, forward=forward, cursor=page.cursor)
        expected = [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]]
        assert found == (expected if forward else [[b"4", b"5", b"6"], [b"1", b"2", b"3"], [b"0"]])


@virtual
async def test_another_node_may_be_asked_for_what_is_stored() -> None:
    network = StubNetwork()
    store = StubNode(network, "logos-delivery")
    alice = await participant(StubNode(network), settings=StoreSettings(http=StubHttp(store)))
    await alice.node.send(MessageEnvelope(TOPIC, ALICE))
    await asyncio.sleep(1)
    assert alice.node.has_store
    page = await alice.node.query_store(StoreQuery(content_topics=(TOPIC,)))
    assert len(page.messages) == 1
    assert (alice.stub.count("GET", "/store"), store.count("GET", "/store") > 0) == (0, True)


@virtual
async def test_a_date_that_is_none_says_nothing_of_the_clock_of_a_node() -> None:
    for date, is_read in (
        ("Sun, 29 Nov 2026 09:00:00 GMT", True),
        ("yesterday", False),
        ("Sun, 29 Nov 99999999999999999999 09:00:00 GMT", False),
        ("Sun, 29 Nov 2026 09:00:00 +99999999999999999999", False),
    ):
        http = StubHttp(StubNode(StubNetwork()))
        http.headers["Date"] = date
        transport = RestTransport("stub", http, StoreSettings(), None)
        node = TransportNode(transport)
        await node.start()
        status = await transport.status()
        assert (status.info.clock_ahead_ms is not None) is is_read, date
        await node.stop()
