"""The live part: three participants and a passive listener on a network that loses messages, in real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from shardwire.archive import Recorder
from shardwire.channel import ReliableChannel, SegmentObservation, close_channel, create_reliable_channel
from shardwire.channel.observing.timeline import SegmentStage
from shardwire.cli.demo.network import DemoNetwork, lost_segment
from shardwire.cli.demo.progress import LiveBars
from shardwire.cli.demo.settings import (
    CHANNEL_ID,
    CONTENT_TOPIC,
    EPOCH_SIZE_MS,
    LISTENER,
    RECEIVERS,
    SENDER,
    DemoPlan,
)
from shardwire.cli.demo.transmissions import Transmission, segment_transmissions
from shardwire.config import ChannelConfig
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.errors import ShardwireError
from shardwire.events import MessageDeliveredEvent, MessageReceivedEvent, MessageSendErrorEvent, MessageSentEvent
from shardwire.node import MemoryNetwork, MessageReceived
from shardwire.persistence import SqlitePersistence

DELIVERY_TIMEOUT_MS = 55_000
# Longer than any delay of the network: what is still under way reaches the listener.
DRAIN_MS = 300
# Some files, so that executors share the reading.
ROWS_PER_FILE = 32


@dataclass(slots=True)
class LiveResult:
    """What happened.

    Attributes:
        request_id: The send.
        transmissions: Every time that a segment left the sender, and who got it.
        observations: By participant, what its channel saw, in order.
        received: By receiver, the payload that its application was given.
        sent_at_ms: Unix time of the event `sent`; None where it did not come.
        delivered_at_ms: Unix time of the event `delivered`; None where it did not come.
        delivered_to: Who the event `delivered` names.
        began_at_ms: Unix time at which the send began.
        archived_rows: Messages that the passive listener archived.
        seconds: Wall time.
    """

    request_id: str = ""
    transmissions: tuple[Transmission, ...] = ()
    observations: dict[str, list[SegmentObservation]] = field(default_factory=dict)
    received: dict[str, bytes] = field(default_factory=dict)
    sent_at_ms: int | None = None
    delivered_at_ms: int | None = None
    delivered_to: frozenset[str] = frozenset()
    began_at_ms: int = 0
    archived_rows: int = 0
    seconds: float = 0.0

    def segments(self, participant: str, stage: SegmentStage) -> set[int]:
        """Segments of the send that `participant`'s channel saw at a stage."""
        return {seen.ordinal for seen in self.observations.get(participant, []) if seen.stage == stage}

    def arrived(self, name: str) -> set[int]:
        """Segments of the send that the network brought to a node."""
        return {one.ordinal for one in self.transmissions if name in one.arrived}

    def lost(self, name: str) -> int:
        """Transmissions of segments that the network lost on the way to a node."""
        return sum(name not in one.arrived for one in self.transmissions)

    @property
    def retransmissions(self) -> int:
        return sum(one.attempt > 0 for one in self.transmissions)

    @property
    def epochs_crossed(self) -> int:
        """Boundaries of rate-limit epochs between the first and the last segment that left."""
        epochs = [one.at_ms // EPOCH_SIZE_MS for one in self.transmissions]
        return max(epochs) - min(epochs) if epochs else 0


async def run_live(
    payload: bytes,
    plan: DemoPlan,
    encryption: ChaCha20Poly1305Encryption,
    *,
    archive: Path,
    state: Path,
    seed: int,
    bars: LiveBars,
) -> LiveResult:
    """Sends `payload` from one participant to the two others while a listener archives what it hears.

    Args:
        payload: The file.
        plan: How it is sent.
        encryption: Of the channel.
        archive: Directory that gets the Parquet files.
        state: Directory for the participants' databases.
        seed: Of the network's faults.
        bars: Told of every segment.

    Raises:
        ShardwireError: The message was not delivered in time.
    """
    result = LiveResult()
    started = time.monotonic()
    network = DemoNetwork(encryption, seed, lost_segment(plan, seed))
    async with (
        listening(network, archive, lambda message: bars.heard()) as recorder,
        participants(network, plan.config, encryption, state) as channels,
    ):
        for name, channel in channels.items():
            channel.observe(result.observations.setdefault(name, []).append)
            channel.observe(partial(bars.observe, name))
        await _send(channels, payload, result)
        await asyncio.sleep(DRAIN_MS / 1_000)
    result.archived_rows = recorder.rows_written
    result.transmissions = segment_transmissions(network.trace, encryption, result.request_id)
    result.seconds = time.monotonic() - started
    return result


@asynccontextmanager
async def participants(
    network: MemoryNetwork, config: ChannelConfig, encryption: ChaCha20Poly1305Encryption, state: Path
) -> AsyncIterator[dict[str, ReliableChannel]]:
    """A started node, a database and a channel for each participant."""
    async with AsyncExitStack() as stack:
        channels = {}
        for name in (SENDER, *RECEIVERS):
            persistence = SqlitePersistence(state / f"{name}.sqlite")
            stack.callback(persistence.close)
            node = network.create_node(name)
            stack.push_async_callback(node.stop)
            await node.start()
            stored = replace(config, sds=replace(config.sds, persistence=persistence))
            channels[name] = await create_reliable_channel(node, CHANNEL_ID, CONTENT_TOPIC, name, encryption, stored)
            stack.push_async_callback(close_channel, channels[name])
        yield channels


async def _send(channels: dict[str, ReliableChannel], payload: bytes, result: LiveResult) -> None:
    arrived = {name: asyncio.Event() for name in RECEIVERS}
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_received(name: str, event: MessageReceivedEvent) -> None:
        result.received[name] = event.message
        arrived[name].set()

    def on_sent(event: MessageSentEvent) -> None:
        result.sent_at_ms = _unix_ms()

    def on_delivered(event: MessageDeliveredEvent) -> None:
        result.delivered_at_ms, result.delivered_to = _unix_ms(), event.delivered_to

    def on_send_error(event: MessageSendErrorEvent) -> None:
        if not failed.done():
            failed.set_exception(ShardwireError(f"the send failed at {event.stage}: {event.error}"))

    for name in RECEIVERS:
        channels[name].on_message_received(partial(on_received, name))
    sender = channels[SENDER]
    sender.on_message_sent(on_sent)
    sender.on_message_delivered(on_delivered)
    sender.on_message_send_error(on_send_error)

    result.began_at_ms = _unix_ms()
    result.request_id = await sender.send(payload)

    async def everybody() -> None:
        await sender.delivered(result.request_id, timeout_ms=DELIVERY_TIMEOUT_MS)
        for one in arrived.values():
            await one.wait()

    waiting = asyncio.create_task(everybody())
    try:
        async with asyncio.timeout(DELIVERY_TIMEOUT_MS / 1_000):
            await asyncio.wait({waiting, failed}, return_when=asyncio.FIRST_COMPLETED)
        await (failed if failed.done() else waiting)
    except TimeoutError:
        receivers = ", ".join(sorted(result.received)) or "nobody"
        raise ShardwireError(
            f"not delivered within {DELIVERY_TIMEOUT_MS // 1_000} s: received by {receivers}"
        ) from None
    finally:
        waiting.cancel()


@asynccontextmanager
async def listening(
    network: MemoryNetwork, directory: Path, heard: Callable[[MessageReceived], None]
) -> AsyncIterator[Recorder]:
    """A node that only listens, and archives everything it hears of the topic."""
    node = network.create_node(LISTENER)
    await node.start()
    async with Recorder(node, [CONTENT_TOPIC], directory, rows_per_file=ROWS_PER_FILE) as recorder:
        events = node.events()

        async def listen() -> None:
            async for event in events:
                if isinstance(event, MessageReceived):
                    heard(event)

        listening = asyncio.create_task(listen())
        try:
            yield recorder
        finally:
            # Stopping the node ends its events once the queued ones were read.
            await node.stop()
            await listening


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000
