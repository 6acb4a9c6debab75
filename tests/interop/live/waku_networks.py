"""Three go-waku nodes: a store, which everybody is connected to, and one for each participant."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from interop.live.networks import LiveNetwork
from interop.live.participant import CONTENT_TOPIC
from waku_servers import WakuServer


class WakuNetwork(LiveNetwork):
    """Both participants on relay nodes. The receiver's node crashes, the sender's stands still.

    Args:
        directory: For what the nodes keep.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.store = WakuServer(directory / "store", "store", store=True)
        self.nodes = {
            "alice": WakuServer(directory / "alice", "alice", peers=(self.store,)),
            "bob": self.make_second(directory / "bob"),
        }
        self.crashing: WakuServer = self.nodes["bob"]
        self.pausing: WakuServer = self.nodes["alice"]

    def make_second(self, directory: Path) -> WakuServer:
        return WakuServer(directory, "bob", peers=(self.store,))

    async def start(self) -> None:
        for server in (self.store, *self.nodes.values()):
            await asyncio.to_thread(server.start)

    async def stop(self) -> None:
        for server in (self.store, *self.nodes.values()):
            await asyncio.to_thread(server.kill)

    def node(self, name: str) -> dict[str, Any]:
        return {"node": "WakuRestNode", "arguments": {"url": self.nodes[name].url}}

    async def crash(self) -> None:
        await asyncio.to_thread(self.crashing.kill)

    async def start_again(self) -> None:
        await asyncio.to_thread(self.crashing.start)

    def pause(self) -> None:
        self.pausing.pause()

    def go_on(self) -> None:
        self.pausing.go_on()

    async def subscriptions(self) -> int:
        def count() -> int:
            return sum(server.has_queue(CONTENT_TOPIC) for server in self.nodes.values())

        return await asyncio.to_thread(count)


class LightWakuNetwork(WakuNetwork):
    """The second participant on a node without relay. The store, which serves it, crashes; its node stands still."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.crashing = self.store
        self.pausing = self.nodes["bob"]

    def make_second(self, directory: Path) -> WakuServer:
        return WakuServer(directory, "bob", peers=(self.store,), light=True)
