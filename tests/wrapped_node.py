"""A node behind a plain object, for tests that need one of somebody else's, or one with faults of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from shardwire.node import MemoryNode, MessageEnvelope, NodeEvent, StorePage, StoreQuery


class WrappedNode:
    """A node of somebody else's: nothing of a memory node but the members of the protocol."""

    def __init__(self, inner: MemoryNode) -> None:
        self._inner = inner
        self.config = inner.config
        self.max_message_size_bytes = inner.max_message_size_bytes
        self.has_store = inner.has_store

    async def start(self) -> None:
        await self._inner.start()

    async def stop(self) -> None:
        await self._inner.stop()

    async def subscribe(self, content_topics: Sequence[str]) -> None:
        await self._inner.subscribe(content_topics)

    async def unsubscribe(self, content_topics: Sequence[str]) -> None:
        await self._inner.unsubscribe(content_topics)

    async def send(self, envelope: MessageEnvelope) -> str:
        return await self._inner.send(envelope)

    async def query_store(self, query: StoreQuery) -> StorePage:
        return await self._inner.query_store(query)

    def events(self) -> AsyncIterator[NodeEvent]:
        return self._inner.events()
