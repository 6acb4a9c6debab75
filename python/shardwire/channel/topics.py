"""Topic subscriptions of a node, counted over the channels that share it."""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter

from shardwire.node.protocol import Node


class TopicSubscriptions:
    """How many channels of one node use each content topic."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        # The node's answer is awaited: another channel must not see a count whose subscription is still on its way.
        self._lock = asyncio.Lock()

    async def acquire(self, node: Node, content_topic: str) -> None:
        """Subscribes the node where this is the first channel on the topic.

        Raises:
            NodeError: The node could not subscribe.
        """
        async with self._lock:
            if not self._counts[content_topic]:
                await node.subscribe([content_topic])
            self._counts[content_topic] += 1

    async def release(self, node: Node, content_topic: str) -> None:
        """Unsubscribes the node where this was the last channel on the topic."""
        async with self._lock:
            self._counts[content_topic] -= 1
            if self._counts[content_topic] > 0:
                return
            del self._counts[content_topic]
            await node.unsubscribe([content_topic])


_BY_NODE: weakref.WeakKeyDictionary[Node, TopicSubscriptions] = weakref.WeakKeyDictionary()


def topic_subscriptions(node: Node) -> TopicSubscriptions:
    """The subscriptions of `node`, shared by all of its channels.

    Raises:
        TypeError: The node is of a class that cannot be referred to weakly (`__slots__` without `__weakref__`).
    """
    subscriptions = _BY_NODE.get(node)
    if subscriptions is None:
        subscriptions = _BY_NODE[node] = TopicSubscriptions()
    return subscriptions
