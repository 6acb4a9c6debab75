"""A JetStream stream as the store of NatsNode: what it keeps, how it is asked, and a stream of another kind."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from live_nodes import OTHER_TOPIC, TOPIC, drained, next_of, real_time, until
from live_servers import NatsServer
from nats.aio.client import Client
from nats.js import api

from shardwire.errors import ConfigError, NodeError
from shardwire.node import (
    ConnectionState,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSent,
    NatsNode,
    StoredMessage,
    StoreQuery,
    StreamLimits,
)
from shardwire.node.nats import transport as nats_transport
from shardwire.node.nats.store import NatsStore


async def started(server: NatsServer, *topics: str) -> NatsNode:
    node = NatsNode(server.url)
    await node.start()
    await node.subscribe(topics or (TOPIC,))
    return node


async def published(node: NatsNode, payloads: list[bytes], topic: str = TOPIC) -> list[bytes]:
    """Publishes one after the other, so that the stream has them in this order; their hashes."""
    hashes = []
    stream = node.events()
    for payload in payloads:
        await node.send(MessageEnvelope(topic, payload))
        hashes.append((await next_of(stream, MessageSent)).message_hash)
    return hashes


async def all_pages(node: NatsNode, query: StoreQuery) -> list[tuple[StoredMessage, ...]]:
    pages = []
    while True:
        page = await node.query_store(query)
        pages.append(page.messages)
        if page.cursor is None:
            return pages
        assert len(pages) < 100
        query = replace(query, cursor=page.cursor)


async def readers_of(server: NatsServer) -> int:
    """How many consumers the streams of a server have: each costs it memory until its time is over."""
    client = Client()
    await client.connect(server.url)
    manager = client.jsm()
    streams = await manager.streams_info()
    consumers = [await manager.consumers_info(str(stream.config.name)) for stream in streams]
    await client.close()
    return sum(map(len, consumers))


@real_time
async def test_the_stream_answers_by_hash_by_topic_and_by_time(tmp_path: Path) -> None:
    with NatsServer(tmp_path, jetstream=True) as server:
        alice = await started(server, TOPIC, OTHER_TOPIC)
        assert alice.has_store
        for forward in (True, False):
            assert (await alice.query_store(StoreQuery(content_topics=(TOPIC,), forward=forward))).messages == ()
        begin_ns = asyncio.get_running_loop().time()
        payloads = [number.to_bytes(2, "big") for number in range(25)]
        hashes = await published(alice, payloads)
        others = await published(alice, [b"other"], OTHER_TOPIC)
        assert begin_ns < asyncio.get_running_loop().time()
        bob = await started(server, TOPIC, OTHER_TOPIC)

        for include_data in (True, False):
            query = StoreQuery(content_topics=(TOPIC,), page_size=10, include_data=include_data)
            pages = await all_pages(bob, query)
            assert [len(page) for page in pages] == [10, 10, 5]
            assert [message.message_hash for page in pages for message in page] == hashes
            back = await all_pages(bob, replace(query, forward=False))
            assert [len(page) for page in back] == [10, 10, 5]
            assert [message.message_hash for page in reversed(back) for message in page] == hashes
        envelopes = [message.envelope for message in pages[0]]
        assert envelopes == [None] * 10
        both = await all_pages(bob, StoreQuery(content_topics=(TOPIC, OTHER_TOPIC)))
        assert [message.message_hash for page in both for message in page] == hashes + others

        wanted = (hashes[7], bytes(32), hashes[3], others[0])
        page = await bob.query_store(StoreQuery(message_hashes=wanted))
        assert {message.message_hash for message in page.messages} == {hashes[3], hashes[7], others[0]}
        found = {message.message_hash: message.envelope for message in page.messages}
        assert found[hashes[3]] == MessageEnvelope(TOPIC, payloads[3])
        by_two = await all_pages(bob, StoreQuery(message_hashes=tuple(hashes), page_size=10, include_data=False))
        assert sorted(message.message_hash for page in by_two for message in page) == sorted(hashes)

        first_ns = (await bob.query_store(StoreQuery(message_hashes=(hashes[0],)))).messages[0].timestamp_ns
        minute_ns = 60_000_000_000
        for start_ns, end_ns, count in (
            (first_ns - 1, None, 25),
            (first_ns, first_ns + minute_ns, 25),
            # Clocks of participants differ from the server's.
            (first_ns + minute_ns // 6, None, 25),
            (None, first_ns - minute_ns // 6, 25),
            (first_ns + minute_ns, None, 0),
            (None, first_ns - minute_ns, 0),
        ):
            for forward in (True, False):
                query = StoreQuery(
                    content_topics=(TOPIC,), start_time_ns=start_ns, end_time_ns=end_ns, forward=forward, page_size=50
                )
                assert len((await bob.query_store(query)).messages) == count, (start_ns, end_ns, forward)
        assert (await bob.query_store(StoreQuery(content_topics=("/a/1/empty/proto",)))).messages == ()
        for cursor in (b"", b"\xff" * 8, bytes(32)):
            with pytest.raises(NodeError, match="cursor"):
                await bob.query_store(StoreQuery(content_topics=(TOPIC,), cursor=cursor))
        with pytest.raises(ConfigError):
            await bob.query_store(StoreQuery(page_size=0))
        strange = tuple(bytes([number]) * 32 for number in range(101))
        assert (await bob.query_store(StoreQuery(message_hashes=strange, page_size=1_000))).cursor is not None
        assert await readers_of(server) == 0
        await alice.stop()
        await bob.stop()


@real_time
async def test_a_message_that_is_tried_again_is_kept_once(tmp_path: Path) -> None:
    with NatsServer(tmp_path, jetstream=True) as server:
        node = await started(server)
        (name,) = await published(node, [b"once"])
        client = Client()
        await client.connect(server.url)
        jetstream = client.jetstream()
        state = (await jetstream.stream_info("shardwire")).state
        assert (state.messages, state.last_seq) == (1, 1)
        subject = f"shardwire.test.1.room.proto.{name.hex()}"
        again = await jetstream.publish(subject, b"once", headers={"Nats-Msg-Id": name.hex()})
        assert again.duplicate
        await client.close()
        await node.stop()


@real_time
async def test_what_is_ephemeral_is_kept_by_nobody(tmp_path: Path) -> None:
    with NatsServer(tmp_path, jetstream=True) as server:
        alice, bob = await started(server), await started(server)
        stream, outcomes = bob.events(), alice.events()
        await alice.send(MessageEnvelope(TOPIC, b"now or never", ephemeral=True))
        received = await next_of(stream, MessageReceived)
        assert received.envelope == MessageEnvelope(TOPIC, b"now or never", ephemeral=True)
        told = [type(event) for event in await drained(outcomes)]
        assert (MessagePropagated in told, MessageSent in told) == (True, False)
        assert (await bob.query_store(StoreQuery(content_topics=(TOPIC,)))).messages == ()
        assert (await bob.query_store(StoreQuery(message_hashes=(received.message_hash,)))).messages == ()
        await bob.unsubscribe([TOPIC])
        await alice.send(MessageEnvelope(TOPIC, b"unheard", ephemeral=True))
        assert await drained(stream) == []
        await alice.stop()
        await bob.stop()


@real_time
async def test_what_others_file_under_the_subject_of_a_hash_is_passed_over(tmp_path: Path) -> None:
    with NatsServer(tmp_path, jetstream=True) as server:
        node = await started(server)
        client = Client()
        await client.connect(server.url)
        hashes = await published(node, [b"genuine", b"second"])
        for name in hashes:
            subject = f"shardwire.test.1.room.proto.{name.hex()}"
            for garbage in (b"garbage", b""):
                await client.jetstream().publish(subject, garbage)
        # A message of another hash is no more the one that is looked for.
        other = await client.jetstream().get_last_msg("shardwire", f"shardwire.test.1.room.proto.{hashes[0].hex()}")
        nobodys = bytes(range(32))
        genuine = await client.jetstream().get_msg("shardwire", 1)
        assert genuine.data != other.data
        await client.jetstream().publish(f"shardwire.test.1.room.proto.{nobodys.hex()}", genuine.data or b"")
        assert (await node.query_store(StoreQuery(message_hashes=(nobodys,)))).messages == ()
        # Names no hash at all.
        await client.jetstream().publish("shardwire.test.1.room.proto.nothing", b"garbage")
        page = await node.query_store(StoreQuery(message_hashes=tuple(hashes)))
        assert [message.envelope.payload for message in page.messages if message.envelope] == [b"genuine", b"second"]
        listed = await all_pages(node, StoreQuery(content_topics=(TOPIC,), include_data=False))
        assert {message.message_hash for page in listed for message in page} == {*hashes, nobodys}
        read = await all_pages(node, StoreQuery(content_topics=(TOPIC,)))
        assert {message.message_hash for page in read for message in page} == set(hashes)
        await client.close()
        await node.stop()


@real_time
async def test_a_long_way_back_is_gone_in_steps(tmp_path: Path) -> None:
    with NatsServer(tmp_path, jetstream=True) as server:
        node = await started(server, TOPIC, OTHER_TOPIC)
        old = await published(node, [b"a", b"b"])
        stream = node.events()
        for number in range(900):
            await node.send(MessageEnvelope(OTHER_TOPIC, number.to_bytes(2, "big")))
        for _ in range(900):
            await next_of(stream, MessageSent)
        pages = await all_pages(node, StoreQuery(content_topics=(TOPIC,), forward=False, include_data=False))
        assert [message.message_hash for page in pages for message in page] == old
        await node.stop()


@real_time
async def test_limits_of_a_stream_that_is_made(tmp_path: Path) -> None:
    with NatsServer(tmp_path, jetstream=True) as server:
        limits = StreamLimits(bytes_max=10_000_000, age_max_ms=60_000)
        nodes = [NatsNode(server.url, stream="kept", subject_prefix="app", stream_limits=limits) for _ in range(3)]
        # All of them find none and make it.
        await asyncio.gather(*(node.start() for node in nodes))
        assert all(node.has_store for node in nodes)
        client = Client()
        await client.connect(server.url)
        config = (await client.jetstream().stream_info("kept")).config
        assert (config.max_bytes, config.max_age, config.subjects) == (10_000_000, 60, ["app.>"])
        await client.close()
        for node in nodes:
            await node.stop()
    for wrong in ({"bytes_max": 0}, {"age_max_ms": 999}, {"replicas": True}):
        with pytest.raises(ConfigError, match=r"StreamLimits\."):
            StreamLimits(**wrong)


@real_time
async def test_a_stream_of_other_subjects_is_no_store(tmp_path: Path) -> None:
    with NatsServer(tmp_path, jetstream=True) as server:
        client = Client()
        await client.connect(server.url)
        await client.jetstream().add_stream(api.StreamConfig(name="shardwire", subjects=["orders.>"]))
        alice, bob = await started(server), await started(server)
        assert not alice.has_store
        outcomes, stream = alice.events(), bob.events()
        await alice.send(MessageEnvelope(TOPIC, b"carried all the same"))
        await next_of(stream, MessageReceived)
        assert not [event for event in await drained(outcomes) if isinstance(event, MessageSent)]
        with pytest.raises(NodeError, match=r"orders\.>"):
            await alice.query_store(StoreQuery())
        # Made for us, and somebody gives it away meanwhile.
        without = NatsNode(server.url, stream=None)
        await without.start()
        assert not without.has_store
        for node in (alice, bob, without):
            await node.stop()
        await client.close()


@real_time
async def test_a_stream_that_goes_away_stops_being_the_store_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_transport, "STORE_LOOK_MS", 100)
    # It is not ready when it is looked for first.
    reasons: list[str] = []
    open_store = NatsStore.open

    async def open_later(store: NatsStore, limits: StreamLimits) -> str | None:
        return reasons.pop() if reasons else await open_store(store, limits)

    monkeypatch.setattr(NatsStore, "open", open_later)
    with NatsServer(tmp_path, jetstream=True) as server:
        node = await started(server)
        reasons += ["not ready"] * 2
        client = Client()
        await client.connect(server.url)
        await client.jetstream().delete_stream("shardwire")
        stream = node.events()
        await node.send(MessageEnvelope(TOPIC, b"kept by nobody"))
        await next_of(stream, MessagePropagated)
        await until(lambda: node.has_store)
        hashes = await published(node, [b"kept"])
        assert len((await node.query_store(StoreQuery(message_hashes=tuple(hashes)))).messages) == 1
        # A server that comes back without JetStream.
        await client.close()
        server.jetstream = False
        server.restart()
        await until(lambda: not node.has_store and node.connection_state is ConnectionState.CONNECTED)
        server.jetstream = True
        server.restart()
        await until(lambda: node.has_store and node.connection_state is ConnectionState.CONNECTED)
        assert len((await node.query_store(StoreQuery(message_hashes=tuple(hashes)))).messages) == 1
        await node.stop()


@real_time
async def test_a_store_that_hangs_is_an_error_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shardwire.node.nats import store as nats_store

    monkeypatch.setattr(nats_store, "REQUEST_TIMEOUT_S", 0.3)
    with NatsServer(tmp_path, jetstream=True) as server:
        node = await started(server)
        (name,) = await published(node, [b"kept"])
        server.pause()
        try:
            for query in (StoreQuery(message_hashes=(name,)), StoreQuery(content_topics=(TOPIC,))):
                with pytest.raises(NodeError, match="stream shardwire"):
                    await node.query_store(query)
        finally:
            server.go_on()
        assert len((await node.query_store(StoreQuery(message_hashes=(name,)))).messages) == 1
        await node.stop()
