"""A simulated participant: an application on a reliable channel that joins, sends, listens, dies and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from shardwire import ChannelConfig, ReliableChannel, close_channel, create_reliable_channel, keccak256
from shardwire.config import ReassemblyLimits
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.errors import ChannelClosedError, PersistenceError, QueueFullError
from shardwire.events import (
    CallbackErrorEvent,
    ChannelEvent,
    IrretrievableMessageEvent,
    MessageDeliveredEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from shardwire.node import MemoryNetwork, MemoryNode, NodeConfig
from tests.simulation.disk import Disk, MountedDisk
from tests.simulation.standing_still import SleepingClock
from tests.simulation.worlds import REPLY_PATIENCE_MS, PlannedSend, World

CHANNEL_ID = "simulated"
# A second channel of the same nodes, where a world has one.
ASIDE = "aside"
CONTENT_TOPIC = "/simulation/1/channel/proto"


@dataclass(frozen=True, slots=True)
class Received:
    """A message handed to the application.

    Attributes:
        at_ms: Virtual time.
        life: Number of the participant's life: 0 until the first crash.
        payload: The message.
        sender_id: Its sender.
        redelivered: The flag of the event.
        completed: Whether the callback had returned when the life ended.
    """

    at_ms: int
    life: int
    payload: bytes = field(repr=False)
    sender_id: str
    redelivered: bool
    completed: list[bool] = field(default_factory=list)


@dataclass(slots=True)
class Sent:
    """A call of `send` and what the events said of it."""

    plan: PlannedSend
    payload: bytes = field(repr=False)
    at_ms: int
    life: int
    request_id: str | None = None
    refused: str | None = None
    # Whether it was taken back while it was not delivered: whoever got it has it.
    cancelled: bool = False
    # (virtual ms, life) of each event.
    sent: list[tuple[int, int]] = field(default_factory=list)
    delivered: list[tuple[int, int, frozenset[str]]] = field(default_factory=list)
    errors: list[tuple[int, int, str]] = field(default_factory=list)


class Participant:
    """One participant through all of its lives.

    Args:
        world: The world.
        index: Its index there.
        network: The network.
        config: Makes the channel's configuration for a mounted disk and the number of a life.
        key: Key of the channel; None where it is not encrypted.
        on_delivered: Called with every delivered event, at once.
    """

    def __init__(
        self,
        world: World,
        index: int,
        network: MemoryNetwork,
        config: Callable[[MountedDisk, int], ChannelConfig],
        key: bytes | None,
        on_delivered: Callable[[Participant, MessageDeliveredEvent], None],
    ) -> None:
        self.world = world
        self.index = index
        self.name = world.names[index]
        self.disk = Disk()
        self.clock = SleepingClock()
        self.received: list[Received] = []
        self.sent: list[Sent] = []
        self.callback_errors: list[str] = []
        # Ids of what it was told is lost while its table of missing messages was full, and when.
        self.let_go: dict[str, int] = {}
        # The same of one that holds little of what is not whole.
        self.given_up: dict[str, int] = {}
        # Why a life could not begin with what the one before it left on the disk.
        self.unable_to_return: list[str] = []
        # Of the second channel: what was sent, and who was handed what.
        self.sent_aside: list[bytes] = []
        self.received_aside: list[tuple[str, bytes, bool]] = []
        self.channel: ReliableChannel | None = None
        self._aside: ReliableChannel | None = None
        self.life = -1
        self._network = network
        self._config = config
        self._key = key
        self._on_delivered = on_delivered
        self._by_request: dict[str, Sent] = {}
        self._arrivals: dict[bytes, asyncio.Event] = {}
        self._node: MemoryNode | None = None
        self._leaving = False
        self._mount: MountedDisk | None = None
        self._loop = asyncio.get_running_loop()

    # --- life ---

    async def join(self) -> None:
        """Begins a life: a new node, the channel as the disk remembers it."""
        self.life += 1
        life = self.life
        self._mount = self.disk.mount()
        node_config = NodeConfig()
        if self.world.max_message_size_bytes is not None:
            node_config = NodeConfig(max_message_size_bytes=self.world.max_message_size_bytes)
        self._node = self._network.create_node(self.name, node_config, clock=self.clock)
        await self._node.start()
        try:
            if self.world.aside:
                self._aside = await self._create(ASIDE, life)
                self._aside.on_message_received(partial(self._receive_aside, life))
                if not self._aside.is_started():
                    await self._aside.start()
            channel = await self._create(CHANNEL_ID, life)
        except PersistenceError as error:
            self.unable_to_return.append(str(error))
            return
        if life != self.life:
            return
        self.channel = channel

        async def receive(event: MessageReceivedEvent) -> None:
            await self._receive(life, event)

        def note(event: ChannelEvent) -> None:
            if life == self.life:
                self._note(life, event)

        channel.on_message_received(receive)
        channel.on_message_sent(note)
        channel.on_message_delivered(note)
        channel.on_message_send_error(note)
        channel.on(CallbackErrorEvent, note)
        channel.on(IrretrievableMessageEvent, note)
        if not channel.is_started():
            await channel.start()

    async def _create(self, channel_id: str, life: int) -> ReliableChannel:
        assert self._mount is not None
        assert self._node is not None
        aside = "" if channel_id == CHANNEL_ID else f"/{channel_id}"
        return await create_reliable_channel(
            self._node,
            channel_id,
            CONTENT_TOPIC,
            self.name,
            None if self._key is None else ChaCha20Poly1305Encryption(self._key),
            self._config(self._mount, life),
            clock=self.clock,
            rng=random.Random(f"{self.world.seed}/{self.name}/{life}{aside}"),
        )

    async def crash(self, *, orderly: bool) -> None:
        """Ends a life as a power cut does: nothing more is written, sent, or heard by the application.

        Where it is `orderly` the channel is closed before.
        """
        channel, node = self.channel, self._node
        if self._mount is None or node is None:
            return
        aside, self._aside = self._aside, None
        if orderly and channel is not None:
            self._leaving = True
            await close_channel(channel)
            self._leaving = False
        self._mount.cut_power()
        self.life += 1
        self.channel = None
        await node.stop()
        for ended in (channel, aside):
            if ended is not None:
                await close_channel(ended)
        self.life -= 1

    async def leave(self) -> None:
        """Closes the channel at the end of the world."""
        for channel in (self.channel, self._aside):
            if channel is not None:
                await close_channel(channel)
        if self._node is not None:
            await self._node.stop()

    # --- application ---

    async def send(self, plan: PlannedSend, payload: bytes, reply_to: bytes | None) -> None:
        """Sends when it is time, where this participant lives then."""
        await asyncio.sleep(max(0, plan.at_ms - self.now_ms()) / 1000)
        if reply_to is not None:
            arrival = self._arrivals.setdefault(reply_to, asyncio.Event())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(arrival.wait(), REPLY_PATIENCE_MS / 1000)
        channel, life = self.channel, self.life
        if channel is None:
            return
        record = Sent(plan, payload, self.now_ms(), life)
        self.sent.append(record)
        try:
            # Whoever gives up waiting does not know whether it leaves.
            async with asyncio.timeout(None if plan.abandoned_ms is None else plan.abandoned_ms / 1000):
                if plan.ephemeral:
                    request_id = await channel.send_ephemeral(payload)
                else:
                    request_id = await channel.send(payload)
        except TimeoutError:
            return
        except (ChannelClosedError, QueueFullError) as error:
            # A crash may come after the message was durable and before the call returned: then nobody knows.
            if channel is self.channel and not self._leaving:
                record.refused = type(error).__name__
            return
        if life == self.life and channel is self.channel:
            record.request_id = request_id
            self._by_request[request_id] = record
        if plan.cancelled_ms is not None:
            await asyncio.sleep(plan.cancelled_ms / 1000)
            await self._take_back(record)

    async def _take_back(self, record: Sent) -> None:
        channel, life = self.channel, self.life
        if channel is None or record.request_id is None:
            return
        # From here on it may be taken back, also where a crash comes before the answer.
        record.cancelled = not record.delivered
        with contextlib.suppress(ChannelClosedError, PersistenceError):
            stopped = await channel.cancel(record.request_id)
            record.cancelled = bool(stopped) or life != self.life

    async def send_aside(self, plan: PlannedSend, payload: bytes) -> None:
        """Sends on the second channel when it is time, where this participant lives then."""
        await asyncio.sleep(max(0, plan.at_ms - self.now_ms()) / 1000)
        channel = self._aside
        if channel is not None:
            with contextlib.suppress(ChannelClosedError):
                await channel.send(payload)
                self.sent_aside.append(payload)

    def _receive_aside(self, life: int, event: MessageReceivedEvent) -> None:
        if life == self.life:
            self.received_aside.append((event.sender_id, event.message, event.redelivered))

    def payload_of_request(self, request_id: str) -> bytes | None:
        """What was sent under a request id; None before `send` returned it."""
        record = self._by_request.get(request_id)
        return None if record is None else record.payload

    def holds(self, sender_id: str, payload: bytes) -> bool:
        """Whether a message was handed to the application, or is stored whole.

        At-most-once, it leaves the disk before it is handed over, and a crash between the two may cost it.
        """
        if any(entry.payload == payload and entry.sender_id == sender_id for entry in self.received):
            return True
        if self.world.at_most_once:
            return keccak256(payload).hex() in self.disk.written()
        return payload in self.disk.payloads(CHANNEL_ID)

    def now_ms(self) -> int:
        return round(self._loop.time() * 1000)

    async def _receive(self, life: int, event: MessageReceivedEvent) -> None:
        if life != self.life or self.channel is None:
            return
        record = Received(self.now_ms(), life, event.message, event.sender_id, event.redelivered)
        self.received.append(record)
        self._arrivals.setdefault(event.message, asyncio.Event()).set()
        delay_ms = self.world.callback_ms[self.index]
        if delay_ms:
            await asyncio.sleep(delay_ms / 1000)
        if life == self.life and self.channel is not None:
            record.completed.append(True)

    def _note(self, life: int, event: ChannelEvent) -> None:
        if isinstance(event, CallbackErrorEvent):
            self.callback_errors.append(repr(event.error))
            return
        if isinstance(event, IrretrievableMessageEvent):
            channel = self.channel
            if channel and channel.stats()["missing"] == channel.config.sds.missing_messages_max:
                for entry in event.history_entries:
                    self.let_go.setdefault(entry.message_id, self.now_ms())
            if channel and channel.config.segmentation.limits != ReassemblyLimits():
                for entry in event.history_entries:
                    self.given_up.setdefault(entry.message_id, self.now_ms())
            return
        assert isinstance(event, MessageSentEvent | MessageDeliveredEvent | MessageSendErrorEvent)
        record = self._by_request.get(event.request_id)
        if isinstance(event, MessageDeliveredEvent):
            self._on_delivered(self, event)
        if record is None:
            # The call of `send` has not returned to the application yet, or never did before a crash.
            return
        at = (self.now_ms(), life)
        if isinstance(event, MessageSentEvent):
            record.sent.append(at)
        elif isinstance(event, MessageDeliveredEvent):
            record.delivered.append((*at, event.delivered_to))
        else:
            record.errors.append((*at, f"{event.stage}: {event.error}"))
