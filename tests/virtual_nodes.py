"""Memory nodes in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from shardwire.node import MemoryNetwork, MemoryNode, NodeConfig, NodeEvent, run_virtual
from shardwire.node.event_stream import EventStream

TOPIC = "/test/1/room/proto"
OTHER_TOPIC = "/test/1/other/proto"


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Runs a coroutine function as a plain test in virtual time."""

    def run() -> None:
        run_virtual(test(), limit_ms=3_600_000)

    run.__name__ = test.__name__
    return run


async def start(network: MemoryNetwork, name: str, *topics: str, config: NodeConfig | None = None) -> MemoryNode:
    node = network.create_node(name, config)
    await node.start()
    await node.subscribe(topics)
    return node


async def drain(stream: EventStream) -> list[NodeEvent]:
    """Everything that is in the stream once a second passed."""
    await asyncio.sleep(1)
    events = []
    while True:
        try:
            events.append(await asyncio.wait_for(stream.__anext__(), 0.001))
        except TimeoutError:
            return events
