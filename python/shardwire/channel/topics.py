"""Topic subscriptions of a node, counted over the channels that share it."""

from __future__ import annotations

import asyncio
from collections import Counter

from shardwire.channel.hooks import awaitable_of
from shardwire.errors import NodeError
from shardwire.node.protocol import Node


class TopicSubscriptions:
    """How many channels of one node use each content topic."""

    def __init__(self, node: Node) -> None:
        self.loop = asyncio.get_running_loop()
        self._node = node
        self._counts: Counter[str] = Counter()
        # Channels that use it, or are about to.
        self._users = 0
        # The node's answer is awaited: another channel must not see a count whose subscription is still on its way.
        self._lock = asyncio.Lock()

    async def acquire(self, content_topic: str) -> None:
        self._users += 1
        try:
            async with self._lock:
                if not self._counts[content_topic]:
                    await awaitable_of("subscribe", self._node.subscribe([content_topic]))
                self._counts[content_topic] += 1
        except BaseException:
            self._leave()
            raise

    async def release(self, content_topic: str) -> None:
        try:
            async with self._lock:
                self._counts[content_topic] -= 1
                if self._counts[content_topic] <= 0:
                    del self._counts[content_topic]
                    await self._node.unsubscribe([content_topic])
        finally:
            self._leave()

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            _BY_NODE.pop(id(self._node), None)


# By identity: nodes may compare equal, or have neither a hash nor room for a weak reference. Those that no channel uses
# are forgotten.
_BY_NODE: dict[int, TopicSubscriptions] = {}


async def acquire_topic(node: Node, content_topic: str) -> None:
    """Subscribes `node` where no other channel of it has.

    Raises:
        NodeError: The node could not subscribe, or is used by channels of another event loop.
    """
    # Channels of a loop that has ended use nothing, and nobody releases what they have acquired.
    for key in [key for key, known in list(_BY_NODE.items()) if known.loop.is_closed()]:
        _BY_NODE.pop(key, None)
    subscriptions = _BY_NODE.get(id(node))
    if subscriptions is None:
        subscriptions = _BY_NODE[id(node)] = TopicSubscriptions(node)
    elif subscriptions.loop is not asyncio.get_running_loop():
        # A topic that it has the node would not be asked for, and what the node brings would wake nobody here.
        raise NodeError(
            "the node is used by channels on another event loop than this one: make all channels of a node on the same "
            "one, or start a node of its own here"
        )
    await subscriptions.acquire(content_topic)


async def release_topic(node: Node, content_topic: str) -> None:
    """Takes back one `acquire_topic`, and unsubscribes with the last one.

    Raises:
        NodeError: The node could not unsubscribe; it counts as unsubscribed.
    """
    await _BY_NODE[id(node)].release(content_topic)
