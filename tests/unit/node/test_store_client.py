"""The store client against a real HTTP server on loopback, in both dialects."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Iterator

import httpx
import pytest
from store_server import StoreServer, serving

from shardwire import ConfigError, NodeError
from shardwire.node import MessageEnvelope
from shardwire.node.protocol import StorePage, StoreQuery
from shardwire.node.store_client import StoreClient, StoreEndpoint
from shardwire.node.store_v3 import parse_page, parse_verified_page

TOPIC, OTHER = "/rc/1/a/proto", "/rc/1/b/proto"
DIALECTS = ["logos-delivery", "go-waku"]


def traffic(count: int) -> list[tuple[MessageEnvelope, int]]:
    return [
        (MessageEnvelope(TOPIC if n % 3 else OTHER, bytes([n]) * n, meta=b"m" if n % 2 else b""), 1_000 + n)
        for n in range(count)
    ]


@pytest.fixture(params=DIALECTS)
def store(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    with serving(StoreServer(request.param, traffic(50))) as server:
        yield server


def client_of(store: StoreServer, **changes: object) -> StoreClient:
    return StoreClient(StoreEndpoint(store.url, **changes), sleep=lambda seconds: None)  # type: ignore[arg-type]


def test_reads_all_pages(store: StoreServer) -> None:
    query = StoreQuery(content_topics=(TOPIC,), start_time_ns=1_004, end_time_ns=1_040, page_size=7)
    with client_of(store) as client:
        pages = list(client.pages(query))
        assert client.dialect() == store.dialect
    wanted = [(e, t) for e, t in store.messages if e.content_topic == TOPIC and 1_004 <= t <= 1_040]
    found = [message for page in pages for message in page.messages]
    assert [(message.envelope, message.timestamp_ns) for message in found] == wanted
    assert [message.message_hash for message in found] == [store.hash_of(e, t) for e, t in wanted]
    assert [len(page.messages) for page in pages] == [7, 7, 7, 4]
    assert [page.cursor is None for page in pages] == [False, False, False, True]


def test_asks_by_hashes_without_data(store: StoreServer) -> None:
    hashes = tuple(store.hash_of(e, t) for e, t in store.messages[3:6])
    with client_of(store, peer_addr="/ip4/127.0.0.1/tcp/1/p2p/x") as client:
        page = client.query(StoreQuery(message_hashes=hashes, include_data=False))
        unknown = client.query(StoreQuery(message_hashes=(bytes(32),)))
    assert [message.message_hash for message in page.messages] == list(hashes)
    assert {message.envelope for message in page.messages} == {None}
    assert (unknown.messages, unknown.cursor) == ((), None)


@pytest.mark.parametrize("failure", [429, 500, 503, "drop"])
def test_tries_again_after_what_passes(store: StoreServer, failure: int | str) -> None:
    store.failures = [failure, failure]
    waits: list[float] = []
    with StoreClient(StoreEndpoint(store.url, retry_delay_ms=100), sleep=waits.append) as client:
        assert client.query(StoreQuery(content_topics=(TOPIC,))).messages
    # A server's refusals are counted one by one; the http client itself may repeat a dropped request.
    assert waits[: len(store.requests) - 1] == [0.1, 0.2][: len(waits)]


def test_gives_up_after_the_last_retry(store: StoreServer) -> None:
    store.failures = [503] * 9
    with client_of(store, retries_max=2) as client, pytest.raises(NodeError, match="answered 503"):
        client.query(StoreQuery(content_topics=(TOPIC,)))
    assert len(store.requests) == 3


def test_a_refusal_is_final(store: StoreServer) -> None:
    store.failures = [400]
    with client_of(store) as client, pytest.raises(NodeError, match="answered 400"):
        client.query(StoreQuery(content_topics=(TOPIC,)))
    assert len(store.requests) == 1


def test_nobody_answers() -> None:
    endpoint = StoreEndpoint("http://127.0.0.1:9", retries_max=1, dialect="go-waku")
    client = StoreClient(endpoint, sleep=lambda seconds: None)
    with client, pytest.raises(NodeError, match="did not answer in 2 attempts: nobody listens there: start the server"):
        client.query(StoreQuery(content_topics=(TOPIC,)))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b'{"messages": 7}',
        b'{"messages": [null]}',
        b'{"messages": [{}]}',
        b'{"messages": [{"messageHash": "0xzz"}]}',
        b'{"messages": [{"messageHash": "0x00"}]}',
        b'{"messages": [{"messageHash": "' + b"00" * 32 + b'", "message": {"payload": "%%", "contentTopic": "x"}}]}',
        b'{"messages": [{"messageHash": "' + b"00" * 32 + b'", "message": {"contentTopic": 5}}]}',
        b'{"messages": [], "paginationCursor": 5}',
        b'{"statusCode": 300, "statusDesc": "no"}',
        b"[" * 200_000,
        b"\xff\xfe",
        b'{"messages": [{"messageHash": "' + b"00" * 32 + b'", "message": {"contentTopic": "x", "timestamp": 1e400}}]}',
    ],
)
def test_answers_that_are_none(store: StoreServer, body: bytes) -> None:
    store.body = body
    with client_of(store) as client, pytest.raises(NodeError):
        client.query(StoreQuery(content_topics=(TOPIC,)))


def test_an_answer_beyond_the_limit_is_not_read(store: StoreServer) -> None:
    store.body = b" " * 100_000
    with client_of(store, answer_bytes_max=99_999) as client, pytest.raises(NodeError, match="more than 99999 bytes"):
        client.query(StoreQuery(content_topics=(TOPIC,)))


def answering(stream: httpx.SyncByteStream, headers: dict[str, str], clock: Callable[[], float]) -> StoreClient:
    """A client of a store that answers this."""
    endpoint = StoreEndpoint("http://store", "logos-delivery", timeout_ms=5_000, retries_max=1)
    client = StoreClient(endpoint, sleep=lambda seconds: None, clock=clock)
    client.close()
    transport = httpx.MockTransport(lambda request: httpx.Response(200, headers=headers, stream=stream))
    client._http = httpx.Client(base_url=endpoint.url, transport=transport)
    return client


def test_an_answer_that_trickles_in_is_left_after_the_timeout() -> None:
    now = 0.0

    class Trickle(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            nonlocal now
            while True:
                now += 1
                yield b" "

    with answering(Trickle(), {}, lambda: now) as client, pytest.raises(NodeError, match="not whole after 5000 ms"):
        client.query(StoreQuery(content_topics=(TOPIC,)))
    assert now == 12


def test_an_answer_that_is_not_in_its_encoding_is_none() -> None:
    class Plain(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b"not gzip"

    headers = {"Content-Encoding": "gzip"}
    with answering(Plain(), headers, lambda: 0.0) as client, pytest.raises(NodeError, match="DecodingError"):
        client.query(StoreQuery(content_topics=(TOPIC,)))


@pytest.mark.parametrize("url", ["http://", "http://[::1"])
def test_a_url_that_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"StoreEndpoint\.url is"):
        StoreClient(StoreEndpoint(url))


def test_a_store_that_repeats_its_cursor_is_left(store: StoreServer) -> None:
    store.body = b'{"messages": [], "paginationCursor": "0x' + b"11" * 32 + b'"}'
    with client_of(store) as client, pytest.raises(NodeError, match="given before"):
        list(client.pages(StoreQuery(content_topics=(TOPIC,))))


def test_a_store_that_gives_empty_pages_without_end_is_left(
    store: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = itertools.count()
    with client_of(store) as client:
        monkeypatch.setattr(client, "query", lambda query: StorePage((), next(asked).to_bytes(32, "big")))
        with pytest.raises(NodeError, match="100 pages in a row without a message"):
            list(client.pages(StoreQuery(content_topics=(TOPIC,))))
    assert next(asked) == 100


def test_a_topic_with_a_comma_is_refused(store: StoreServer) -> None:
    query = StoreQuery(content_topics=(TOPIC, "/rc/1/a,b/proto"))
    with client_of(store) as client, pytest.raises(ConfigError, match="content_topics holds '/rc/1/a,b/proto'"):
        client.query(query)
    assert not store.requests


def test_go_waku_is_asked_by_shard() -> None:
    with serving(StoreServer("go-waku", traffic(5))) as store, client_of(store) as client:
        client.query(StoreQuery(content_topics=(TOPIC, OTHER)))
        # Both topics are of one application and version, hence of one shard.
        assert store.requests[-1]["pubsubTopic"].startswith("/waku/2/rs/1/")
        with pytest.raises(ConfigError, match="lie on 2"):
            client.query(StoreQuery(content_topics=(TOPIC, "/toychat/2/huilong/proto")))
        with pytest.raises(ConfigError, match="a store peer is named"):
            client.query(StoreQuery(message_hashes=(bytes(32),)))
        with pytest.raises(ConfigError, match="11 content topics"):
            client.query(StoreQuery(content_topics=tuple(f"/rc/1/{n}/proto" for n in range(11))))


def test_both_forms_of_a_field_are_read() -> None:
    answer = {"messages": [{"message_hash": "11" * 32}], "pagination_cursor": "0x" + "22" * 32}
    page = parse_page(json.dumps(answer).encode())
    assert page.messages[0].message_hash == b"\x11" * 32
    assert page.cursor == b"\x22" * 32


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="must begin with http"):
        StoreEndpoint("127.0.0.1:8645")
    with pytest.raises(ConfigError, match="dialect is 'nim'"):
        StoreEndpoint("http://x", dialect="nim")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="retries_max is -1"):
        StoreEndpoint("http://x", retries_max=-1)
    with StoreClient(StoreEndpoint("http://127.0.0.1:9", dialect="go-waku")) as client:
        for size in (0, 101):
            with pytest.raises(ConfigError, match="page_size"):
                client.query(StoreQuery(content_topics=(TOPIC,), page_size=size))


def test_a_base64_hash_that_begins_as_hexadecimal_does_is_read() -> None:
    name = base64.b64decode("0x" + "A" * 41 + "=")
    text = base64.b64encode(name).decode()
    assert text.startswith("0x")
    page = parse_page(json.dumps({"messages": [{"message_hash": text}], "pagination_cursor": text}).encode())
    assert (page.messages[0].message_hash, page.cursor) == (name, name)


def test_what_a_store_gives_under_a_wrong_hash_is_left_out() -> None:
    store = StoreServer("go-waku", traffic(4))
    _, answer = store.answer({"includeData": "true", "pubsubTopic": "", "contentTopics": f"{TOPIC},{OTHER}"})
    genuine = json.dumps(answer).encode()
    assert parse_verified_page(genuine) == parse_page(genuine)
    answer["messages"][1]["message"]["payload"] = "bGllcw=="
    answer["messages"][2]["message_hash"] = base64.b64encode(bytes(32)).decode()
    altered = json.dumps(answer).encode()
    assert len(parse_page(altered).messages) == 4
    assert parse_verified_page(altered).messages == parse_page(genuine).messages[::3]
