"""What the application supplies to a channel, and fails: its node, its persistence and its cipher."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence

from shardwire.errors import NodeError, PayloadTooLargeError, PersistenceError
from shardwire.node import MemoryNode, MessageEnvelope, NodeConfig, NodeEvent, RequestId, StorePage, StoreQuery
from shardwire.node.event_stream import EventStream
from shardwire.persistence import Changes, ChannelState, MemoryPersistence

_MARK = b"\x5a"
# What a cipher that grows adds: more than a node carries.
_GROWTH_BYTES = 200_000
_TOPIC_HANGS_S = 3
# How long a node whose quota is spent refuses everything: longer than it has to answer for a message.
_EPOCH_MS = 90_000


class Fault:
    """A fault that comes and goes, and hits a share of what it could hit."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._modes: dict[object, tuple[str, float]] = {}

    def begin(self, mode: str, share: float) -> object:
        """Gives what `end` is told; of several that are on the latest counts."""
        token = object()
        self._modes[token] = (mode, share)
        return token

    def end(self, token: object) -> None:
        self._modes.pop(token, None)

    def clear(self) -> None:
        self._modes.clear()

    @property
    def is_on(self) -> bool:
        return bool(self._modes)

    def draw(self) -> str:
        """The mode of the fault that hits now, or ""."""
        if not self._modes:
            return ""
        mode, share = next(reversed(self._modes.values()))
        return mode if self._rng.random() < share else ""


class FaultyNode:
    """A memory node whose `send` fails in every way that one can."""

    def __init__(self, inner: MemoryNode, fault: Fault) -> None:
        self.inner = inner
        self._fault = fault
        self._answers = 0

    @property
    def config(self) -> NodeConfig:
        return self.inner.config

    @property
    def max_message_size_bytes(self) -> int:
        return self.inner.max_message_size_bytes

    @property
    def has_store(self) -> bool:
        return self.inner.has_store

    async def start(self) -> None:
        await self.inner.start()

    async def stop(self) -> None:
        await self.inner.stop()

    async def subscribe(self, content_topics: Sequence[str]) -> None:
        await self._fail_on_topics()
        await self.inner.subscribe(content_topics)

    async def unsubscribe(self, content_topics: Sequence[str]) -> None:
        await self._fail_on_topics()
        await self.inner.unsubscribe(content_topics)

    async def _fail_on_topics(self) -> None:
        match self._fault.draw():
            case "busy":
                raise _error("busy")
            case "raises":
                raise RuntimeError("the node broke")
            case "hangs":
                await asyncio.sleep(_TOPIC_HANGS_S)

    async def query_store(self, query: StoreQuery) -> StorePage:
        return await self.inner.query_store(query)

    def events(self) -> FaultyEvents:
        return FaultyEvents(self.inner.events(), self._fault)

    async def send(self, envelope: MessageEnvelope) -> RequestId:
        mode = self._fault.draw()
        if mode.endswith(" later"):
            return await self._send_in_vain(envelope, mode.removesuffix(" later"))
        if mode.startswith("sends"):
            await self.inner.send(envelope)
        match mode:
            case "busy" | "no membership" | "next epoch":
                raise _error(mode)
            case "too large":
                raise PayloadTooLargeError("the message is too large")
            case "raises" | "sends and raises":
                raise RuntimeError("the node broke")
            case "cancelled":
                raise asyncio.CancelledError
            case "hangs" | "sends and hangs":
                await asyncio.Event().wait()
            case "silent" | "sends in silence":
                self._answers += 1
                return f"of which nothing is heard {self._answers}"
        return await self.inner.send(envelope)

    async def _send_in_vain(self, envelope: MessageEnvelope, mode: str) -> RequestId:
        self.inner.send_fault = lambda envelope: _error(mode)
        try:
            return await self.inner.send(envelope)
        finally:
            self.inner.send_fault = None


def _error(mode: str) -> NodeError:
    match mode:
        case "no membership":
            return NodeError("RLN membership index is not set", permanent=True)
        case "next epoch":
            return NodeError("NonceLimitReached: please wait for the next epoch", retry_after_ms=_EPOCH_MS)
        case _:
            return NodeError("the node is busy")


class FaultyEvents:
    """The events of a node, which break off, and lose one in breaking."""

    def __init__(self, inner: EventStream, fault: Fault) -> None:
        self._inner = inner
        self._fault = fault

    def __aiter__(self) -> FaultyEvents:
        return self

    async def __anext__(self) -> NodeEvent:
        event = await anext(self._inner)
        if self._fault.draw() == "deaf":
            raise RuntimeError("the events broke off")
        return event

    async def aclose(self) -> None:
        await self._inner.aclose()


class Disk:
    """What survives a crash: what was committed before it."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.content = MemoryPersistence()

    def mount(self, *, inline: bool) -> Mount:
        """A persistence for one life, whose commits take no time where they are `inline`."""
        return InlineMount(self) if inline else Mount(self)


class Mount:
    """A disk as one life sees it, until its power is cut: then nothing reaches the disk any more."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._powered = True
        # When it stored something last, in seconds of the loop.
        self.stored_s = 0.0

    def cut_power(self) -> None:
        self._powered = False

    def load(self, channel_id: str) -> ChannelState | None:
        return self._disk.content.load(channel_id)

    def commit(self, channel_id: str, changes: Changes) -> None:
        if not self._powered:
            return
        match self._disk.fault.draw():
            case "persistence error":
                raise PersistenceError("the disk is full")
            case "other error":
                raise OSError("the disk broke")
            case "stop iteration":
                raise StopIteration
        self._disk.content.commit(channel_id, changes)
        self.stored_s = asyncio.get_running_loop().time()

    def close(self) -> None:
        """Nothing to release."""


class InlineMount(Mount, MemoryPersistence):
    """One to which a channel commits without a thread, as to any `MemoryPersistence`."""

    def __init__(self, disk: Disk) -> None:
        MemoryPersistence.__init__(self)
        Mount.__init__(self, disk)


class FaultyCipher:
    """Marks what it encrypts, plainly or asynchronously."""

    overhead_bytes = len(_MARK)

    def __init__(self, fault: Fault, *, is_async: bool) -> None:
        self._fault = fault
        self._is_async = is_async

    def encrypt(self, content: bytes) -> bytes | Awaitable[bytes]:
        return self._encrypt_later(content) if self._is_async else self._encrypt(content)

    async def _encrypt_later(self, content: bytes) -> bytes:
        await asyncio.sleep(0.003)
        return self._encrypt(content)

    def _encrypt(self, content: bytes) -> bytes:
        mode = self._fault.draw()
        if mode == "raises":
            raise ValueError("no key")
        return _MARK + content + bytes(_GROWTH_BYTES if mode == "grows" else 0)

    def decrypt(self, payload: bytes) -> bytes:
        if payload[:1] != _MARK:
            raise ValueError("not marked")
        return payload[1:]
