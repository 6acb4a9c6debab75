"""Pages of a store: how far they are followed, and how often a store is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from virtual_nodes import TOPIC, virtual

from shardwire.channel.receiving.store_queries import (
    PAGES_PER_QUERY_MAX,
    PAGES_WITHOUT_NEWS_MAX,
    PATIENCE_S,
    QUERY_TIMEOUT_MS,
    StoreQueries,
    Walk,
)
from shardwire.errors import NodeError
from shardwire.node import StoredMessage, StorePage, StoreQuery
from shardwire.node.virtual_time import VirtualClock

QUERY = StoreQuery(content_topics=(TOPIC,))
UNLIMITED = 1 << 30
Answer = Callable[[StoreQuery], StorePage]


class Store:
    """A node whose store gives what it is told to.

    Args:
        answer: The page for a query.
        takes_s: How long it takes.
    """

    def __init__(self, answer: Answer, takes_s: float = 0) -> None:
        self.answer = answer
        self.takes_s = takes_s
        self.cursors: list[bytes | None] = []

    async def query_store(self, query: StoreQuery) -> StorePage:
        self.cursors.append(query.cursor)
        assert query.content_topics == QUERY.content_topics
        await asyncio.sleep(self.takes_s)
        return self.answer(query)


def page(cursor: bytes | None, *numbers: int) -> StorePage:
    return StorePage(tuple(StoredMessage(number.to_bytes(32, "big")) for number in numbers), cursor)


def queries(answer: Answer, per_minute_max: int = UNLIMITED) -> tuple[StoreQueries, Store]:
    node: Any = Store(answer)
    return StoreQueries(node, VirtualClock(), per_minute_max, lambda: None), node


def in_turn(pages: Sequence[StorePage]) -> Answer:
    given = iter(pages)
    return lambda query: next(given)


async def all_pages(store: StoreQueries) -> int:
    walk, count = Walk(QUERY), 0
    while await store.next_page(walk) is not None:
        count += 1
    assert await store.next_page(walk) is None
    return count


@virtual
async def test_pages_are_followed_to_the_last_one() -> None:
    store, node = queries(in_turn([page(b"a", 1), page(b"b", 2), page(None, 3)]))
    assert await all_pages(store) == 3
    assert node.cursors == [None, b"a", b"b"]
    assert store.count == 3


async def told_of(takes_s: float) -> list[float]:
    """When it is told that a page of five takes long, in seconds."""
    loop, told = asyncio.get_running_loop(), list[float]()
    node: Any = Store(in_turn([page(b"%d" % number, number) for number in range(4)] + [page(None, 4)]), takes_s)
    store = StoreQueries(node, VirtualClock(), UNLIMITED, lambda: told.append(loop.time() - began_s))
    began_s = loop.time()
    assert await all_pages(store) == 5
    await asyncio.sleep(2 * PATIENCE_S)
    return told


@virtual
async def test_each_page_that_takes_long_is_told_of() -> None:
    assert await told_of(PATIENCE_S / 2) == []
    assert await told_of(PATIENCE_S + 1) == [PATIENCE_S + turn * (PATIENCE_S + 1) for turn in range(5)]


@virtual
async def test_a_cursor_that_repeats_ends_them() -> None:
    store, node = queries(in_turn([page(b"a", 1), page(b"b", 2), page(b"b", 3), page(b"c", 4)]))
    assert await all_pages(store) == 3
    assert node.cursors == [None, b"a", b"b"]


@virtual
async def test_pages_that_bring_no_news_end_them() -> None:
    """Not those with news between them, however many there are."""
    pages = [page(b"%d" % number, number // PAGES_WITHOUT_NEWS_MAX) for number in range(20)]
    pages += [page(b"-%d" % number, 0, 1, 2) for number in range(20)]
    store, node = queries(in_turn(pages))
    # The first of them is the last one of three that are alike.
    assert await all_pages(store) == 20 + PAGES_WITHOUT_NEWS_MAX - 1
    assert len(node.cursors) == store.count


@virtual
async def test_no_store_is_followed_for_ever() -> None:
    numbers = iter(range(1 << 20))

    def answer(query: StoreQuery) -> StorePage:
        number = next(numbers)
        return page(b"%d" % number, number)

    store, _ = queries(answer)
    assert await all_pages(store) == PAGES_PER_QUERY_MAX


@virtual
async def test_so_many_queries_leave_in_any_minute() -> None:
    store, node = queries(lambda query: page(None, 1), per_minute_max=2)
    loop = asyncio.get_running_loop()
    times = []
    for pause_s in (0, 10, 0, 0, 200, 0, 0):
        await asyncio.sleep(pause_s)
        await store.next_page(Walk(QUERY))
        times.append(round(loop.time() * 1000) / 1000)
    first = times[0]
    assert [at - first for at in times] == [0, 10, 60, 70, 270, 270, 330]
    assert store.count == len(node.cursors) == 7


@virtual
async def test_a_store_that_does_not_answer_is_given_up() -> None:
    def answer(query: StoreQuery) -> StorePage:
        raise TimeoutError("of its own")

    store, node = queries(answer)
    with pytest.raises(TimeoutError, match="of its own"):
        await store.next_page(Walk(QUERY))

    async def never(query: StoreQuery) -> StorePage:
        await asyncio.Event().wait()
        raise AssertionError

    node.query_store = never  # type: ignore[method-assign]
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(NodeError, match=f"did not return within {QUERY_TIMEOUT_MS} ms"):
        await store.next_page(Walk(QUERY))
    assert asyncio.get_running_loop().time() - began_s == QUERY_TIMEOUT_MS / 1000


@virtual
async def test_what_is_no_page_is_refused() -> None:
    odd: Any = lambda query: [1]  # noqa: E731
    store, _ = queries(odd)
    with pytest.raises(NodeError, match="a list: it must be a StorePage"):
        await store.next_page(Walk(QUERY))
