from __future__ import annotations

import random
import re

import pytest

from shardwire.errors import ConfigError, NodeError
from shardwire.node import MessageEnvelope, MessageStore, StoredMessage, StoreQuery

TOPICS = ("/test/1/a/proto", "/test/1/b/proto", "/test/1/c/proto")


def name_of(number: int) -> bytes:
    return number.to_bytes(32, "big")


def filled(count: int, seed: int = 1) -> tuple[MessageStore, list[StoredMessage]]:
    """A store of messages that came in no order, several to an instant; and the messages in the store's order."""
    rng = random.Random(seed)
    messages = [
        StoredMessage(
            rng.randbytes(32), rng.randrange(count), MessageEnvelope(rng.choice(TOPICS), number.to_bytes(4, "big"))
        )
        for number in range(count)
    ]
    store = MessageStore()
    for message in messages:
        assert message.envelope is not None
        store.add(message.message_hash, message.timestamp_ns, message.envelope)
    return store, sorted(messages, key=lambda message: (message.timestamp_ns, message.message_hash))


def all_pages(store: MessageStore, **criteria: object) -> list[list[StoredMessage]]:
    pages = []
    cursor = None
    while True:
        page = store.query(StoreQuery(cursor=cursor, **criteria))  # type: ignore[arg-type]
        pages.append(list(page.messages))
        cursor = page.cursor
        if cursor is None:
            return pages


@pytest.mark.parametrize("page_size", [1, 7, 100, 1_000])
@pytest.mark.parametrize("forward", [True, False])
def test_pages_hold_everything_asked_for_once_in_order(page_size: int, forward: bool) -> None:
    store, messages = filled(250)
    criteria = {"content_topics": TOPICS[:2], "start_time_ns": 50, "end_time_ns": 200}
    expected = [
        message
        for message in messages
        if 50 <= message.timestamp_ns <= 200 and message.envelope and message.envelope.content_topic in TOPICS[:2]
    ]
    pages = all_pages(store, page_size=page_size, forward=forward, **criteria)
    if not forward:
        pages.reverse()
    assert [message for page in pages for message in page] == expected
    assert all(1 <= len(page) <= min(page_size, 100) for page in pages)


@pytest.mark.parametrize("forward", [True, False])
def test_queries_by_hash_are_paginated_and_ignore_topics_and_times(forward: bool) -> None:
    store, messages = filled(250)
    wanted = [messages[position] for position in range(0, 250, 2)]
    hashes = (*(message.message_hash for message in reversed(wanted)), name_of(5), wanted[0].message_hash)
    pages = all_pages(
        store, message_hashes=hashes, content_topics=("/none",), start_time_ns=10**9, page_size=20, forward=forward
    )
    if not forward:
        pages.reverse()
    assert [message for page in pages for message in page] == wanted
    assert len(pages) == 7


def test_no_criteria_mean_everything_and_an_empty_store_answers_with_nothing() -> None:
    store, messages = filled(30)
    assert list(store.query(StoreQuery()).messages) == messages
    assert store.query(StoreQuery(content_topics=("/unknown",))).messages == ()
    assert MessageStore().query(StoreQuery()).messages == ()
    assert store.query(StoreQuery(start_time_ns=100, end_time_ns=5)).messages == ()


def test_time_bounds_are_inclusive() -> None:
    store = MessageStore()
    for number in range(5):
        store.add(name_of(number), number, MessageEnvelope(TOPICS[0], b""))
    page = store.query(StoreQuery(content_topics=TOPICS[:1], start_time_ns=1, end_time_ns=3))
    assert [message.timestamp_ns for message in page.messages] == [1, 2, 3]


def test_hashes_alone_where_no_data_is_asked_for() -> None:
    store, messages = filled(3)
    page = store.query(StoreQuery(include_data=False))
    assert [message.message_hash for message in page.messages] == [message.message_hash for message in messages]
    assert all(message.envelope is None for message in page.messages)


def test_a_message_is_stored_once() -> None:
    store = MessageStore()
    for _ in range(2):
        store.add(name_of(1), 5, MessageEnvelope(TOPICS[0], b"payload"))
    assert len(store) == 1
    assert name_of(1) in store
    assert [message.message_hash for message in store] == [name_of(1)]


def test_what_was_stored_first_goes_first_at_a_limit() -> None:
    by_count, by_bytes = MessageStore(messages_max=3), MessageStore(bytes_max=30)
    for store in (by_count, by_bytes):
        for number in range(5):
            store.add(name_of(number), 100 - number, MessageEnvelope(TOPICS[number % 2], bytes(10)))
        kept = store.query(StoreQuery()).messages
        assert [message.message_hash for message in kept] == [name_of(4), name_of(3), name_of(2)]
        assert len(store) == 3


def test_wrong_queries_are_refused() -> None:
    store, _ = filled(3)
    with pytest.raises(NodeError, match="cursor names no message"):
        store.query(StoreQuery(cursor=name_of(99)))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"page_size": 0}, "page_size is 0"),
        ({"page_size": 1.5}, "page_size is 1.5"),
        ({"page_size": True}, "page_size is True"),
        ({"content_topics": TOPICS[0]}, "content_topics is '/"),
        ({"content_topics": (b"topic",)}, "content_topics is (b'topic',)"),
        ({"message_hashes": name_of(1)}, "message_hashes is b"),
        ({"message_hashes": ("hash",)}, "message_hashes is ('hash',)"),
        ({"start_time_ns": "now"}, "start_time_ns is 'now'"),
        ({"end_time_ns": 1 << 63}, f"end_time_ns is {1 << 63}"),
        ({"forward": None}, "forward is None"),
        ({"include_data": 1}, "include_data is 1"),
    ],
    ids=str,
)
def test_a_query_with_a_field_of_a_wrong_type_is_refused_by_its_name(wrong: dict[str, object], said: str) -> None:
    """A topic given as a text would be taken letter by letter, and a store has nothing of those."""
    with pytest.raises(ConfigError, match=re.escape(f"StoreQuery.{said}")):
        StoreQuery(**wrong)  # type: ignore[arg-type]
