"""The limit of each node, shared by its channels however they come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from shardwire.channel.limits.count_store import CountStore
from shardwire.channel.limits.limit import Limit, Member
from shardwire.channel.storing.records import NodeRateRecord, RateRecord
from shardwire.config import RateLimitConfig
from shardwire.errors import ShardwireError
from shardwire.node.protocol import Node
from shardwire.persistence.protocol import Persistence

logger = logging.getLogger(__name__)

# What the count of a node is called in a persistence; no channel may have a name that begins so.
COUNT_NAME_PREFIX = "shardwire rate limit of "


@dataclass(slots=True, eq=False)
class _NodeLimit:
    """The limit of one node, and where its count is stored.

    Attributes:
        node: Kept for as long as the count of an epoch matters: a channel may come back within it.
        loop: The event loop of its channels.
        limit: Counts.
        store: Stores the count.
    """

    node: Node
    loop: asyncio.AbstractEventLoop
    limit: Limit
    store: CountStore

    def is_over(self, epoch_ms: int) -> bool:
        """Whether nobody counts, and the epoch in which somebody did is over."""
        return self.loop.is_closed() or self.limit.is_over(epoch_ms)


# By identity: nodes may compare equal, or have neither a hash nor room for a weak reference.
_BY_NODE: dict[int, _NodeLimit] = {}


class NodeMembership:
    """One channel's part in the limit of its node; `join` makes it."""

    def __init__(self, shared: _NodeLimit, member: Member, persistence: Persistence | None) -> None:
        self._shared = shared
        self._persistence = persistence
        self.limit = shared.limit
        self.member = member

    async def leave(self) -> None:
        """The channel is closed: what it has used stays counted. Never raises for what a persistence raises."""
        self.limit.leave(self.member)
        if self._persistence is None:
            return
        try:
            await self._shared.store.leave(self._persistence, self.limit.record)
        except Exception as error:
            # Whoever counts next finds that it does not know the count, and waits for the next epoch.
            text = str(error) if isinstance(error, ShardwireError) else type(error).__name__
            logger.error("the count of the node's rate limit could not be handed on: %s", text)


async def join(
    node: Node,
    config: RateLimitConfig,
    persistence: Persistence | None,
    in_flight: Callable[[], int],
    epoch_ms: Callable[[], int],
) -> NodeMembership:
    """Makes a channel a member of its node's limit.

    Args:
        node: The node.
        config: Its limit.
        persistence: Where the channel keeps its state; None where that is lost with the process.
        in_flight: How many of its counted messages the node holds.
        epoch_ms: The channel's clock.

    Raises:
        PersistenceError: The count cannot be read or written, or another process counts there for the same node.
    """
    loop = asyncio.get_running_loop()
    # A channel of another thread may come or go meanwhile.
    for key in [key for key, known in list(_BY_NODE.items()) if known.is_over(epoch_ms())]:
        _BY_NODE.pop(key, None)
    shared = _BY_NODE.get(id(node))
    if shared is None:
        store = CountStore(COUNT_NAME_PREFIX + _name_of(node))
        shared = _BY_NODE[id(node)] = _NodeLimit(node, loop, Limit(config, store.store), store)
    limit = shared.limit
    member = limit.join(in_flight, epoch_ms)

    def take_back(record: NodeRateRecord) -> None:
        """What an earlier life counted is added to what this one has."""
        if record.is_counted_here:
            limit.add(RateRecord(record.epoch, record.epoch_size_ms, record.used))
        else:
            limit.close(epoch_ms())

    try:
        if persistence is not None:
            await shared.store.join(persistence, take_back, limit.record)
    except BaseException:
        limit.leave(member)
        raise
    return NodeMembership(shared, member, persistence)


def _name_of(node: Node) -> str:
    """Tells nodes apart that keep their counts in one persistence, the same after a restart."""
    name = getattr(node, "name", "")
    return name if isinstance(name, str) else ""
