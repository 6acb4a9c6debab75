"""The store of a memory network: answers the queries of 13/WAKU2-STORE v3."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterator
from heapq import merge
from itertools import islice

from shardwire.errors import NodeError
from shardwire.node.protocol import MessageEnvelope, StoredMessage, StorePage, StoreQuery

PAGE_SIZE_MAX = 100
HASH_BYTES = 32

# A message that is stored. Orders them as 13/WAKU2-STORE does: by timestamp, then by hash.
_Stored = tuple[int, bytes, MessageEnvelope]
_AFTER_EVERY_HASH = b"\xff" * (HASH_BYTES + 1)


class MessageStore:
    """Keeps messages in the order of their timestamps and forgets those stored first when a limit is reached.

    Args:
        messages_max: Most messages kept.
        bytes_max: Most bytes of payload kept.
    """

    def __init__(self, messages_max: int = 1_000_000, bytes_max: int = 1 << 30) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._by_hash: dict[bytes, _Stored] = {}
        self._by_topic: dict[str, list[_Stored]] = {}
        self._arrivals: deque[bytes] = deque()

    def add(self, message_hash: bytes, timestamp_ns: int, envelope: MessageEnvelope) -> None:
        """Stores a message; one that is here already changes nothing."""
        if message_hash in self._by_hash:
            return
        stored = self._by_hash[message_hash] = (timestamp_ns, message_hash, envelope)
        insort(self._by_topic.setdefault(envelope.content_topic, []), stored)
        self._arrivals.append(message_hash)
        self._bytes += len(envelope.payload)
        while len(self._by_hash) > self._messages_max or self._bytes > self._bytes_max:
            self._forget(self._arrivals.popleft())

    def query(self, query: StoreQuery) -> StorePage:
        """Answers one page: going back in time page by page where `forward` is False, each page oldest first.

        Raises:
            NodeError: The cursor names no message of this store.
        """
        page_size = min(query.page_size, PAGE_SIZE_MAX)
        found = self._find_by_hash(query) if query.message_hashes else self._find_by_topic(query)
        page = list(islice(found, page_size + 1))
        more = len(page) > page_size
        del page[page_size:]
        cursor = page[-1][1] if more else None
        if not query.forward:
            page.reverse()
        messages = [
            StoredMessage(message_hash, timestamp_ns, envelope if query.include_data else None)
            for timestamp_ns, message_hash, envelope in page
        ]
        return StorePage(tuple(messages), cursor)

    def __len__(self) -> int:
        return len(self._by_hash)

    def __contains__(self, message_hash: bytes) -> bool:
        return message_hash in self._by_hash

    def __iter__(self) -> Iterator[StoredMessage]:
        stored = [
            StoredMessage(name, timestamp_ns, envelope) for timestamp_ns, name, envelope in self._by_hash.values()
        ]
        return iter(stored)

    def _find_by_hash(self, query: StoreQuery) -> Iterator[_Stored]:
        names = dict.fromkeys(query.message_hashes)
        return self._from_cursor([sorted([self._by_hash[name] for name in names if name in self._by_hash])], query)

    def _find_by_topic(self, query: StoreQuery) -> Iterator[_Stored]:
        topics = query.content_topics or tuple(self._by_topic)
        runs = []
        for topic in dict.fromkeys(topics):
            run = self._by_topic.get(topic, [])
            start = 0 if query.start_time_ns is None else bisect_left(run, (query.start_time_ns, b""))
            end = len(run)
            if query.end_time_ns is not None:
                end = bisect_right(run, (query.end_time_ns, _AFTER_EVERY_HASH))
            runs.append(run[start:end] if start or end < len(run) else run)
        return self._from_cursor(runs, query)

    def _from_cursor(self, runs: list[list[_Stored]], query: StoreQuery) -> Iterator[_Stored]:
        if query.cursor is not None:
            if query.cursor not in self._by_hash:
                raise NodeError("StoreQuery.cursor names no message of this store: begin again without a cursor")
            place = self._by_hash[query.cursor]
            if query.forward:
                runs = [run[bisect_right(run, place) :] for run in runs]
            else:
                runs = [run[: bisect_left(run, place)] for run in runs]
        if len(runs) == 1:
            # Of one topic, as most are.
            return iter(runs[0]) if query.forward else reversed(runs[0])
        if query.forward:
            return merge(*runs)
        return merge(*(reversed(run) for run in runs), reverse=True)

    def _forget(self, message_hash: bytes) -> None:
        stored = self._by_hash.pop(message_hash)
        envelope = stored[2]
        run = self._by_topic[envelope.content_topic]
        del run[bisect_left(run, stored)]
        self._bytes -= len(envelope.payload)
