"""What a node asks its store."""

from __future__ import annotations

from collections.abc import Callable

from shardwire.errors import NodeError
from shardwire.node import MemoryNode, StorePage, StoreQuery


def spy(node: MemoryNode, fails: Callable[[], bool] = lambda: False) -> list[StoreQuery]:
    """Records the queries of a node, and lets them fail."""
    queries: list[StoreQuery] = []
    answer = node.query_store

    async def query_store(query: StoreQuery) -> StorePage:
        queries.append(query)
        if fails():
            raise NodeError("the store is busy")
        return await answer(query)

    node.query_store = query_store  # type: ignore[method-assign]
    return queries
