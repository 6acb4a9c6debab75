"""Kills a process in the middle of a conversation, over and over, and checks what its two applications saw.

`python -m tests.faults.kill --count 500` runs lives of one process that holds both participants of a channel, each on
an SQLite database. A life ends by SIGKILL, at a named point of the code or at a random moment. What the applications
and the network see goes into a journal that survives the process. After the last kill one life runs to its end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shardwire._native import SdsMessage
from shardwire.channel import ReliableChannel, close_channel, create_reliable_channel
from shardwire.channel.announcements import Announcements
from shardwire.channel.arrivals import Arrivals
from shardwire.channel.limits.limit import Limit
from shardwire.channel.observing.subscriptions import Subscriptions
from shardwire.channel.sending.dispatch import Dispatcher
from shardwire.channel.session import Session
from shardwire.channel.storing.writer import Writer
from shardwire.config import ChannelConfig, RateLimitConfig, Redelivery, SdsConfig, SegmentationConfig, SyncConfig
from shardwire.events import MessageReceivedEvent
from shardwire.node import MemoryNetwork, MessageEnvelope, NetworkConditions, NodeConfig
from shardwire.persistence import SqlitePersistence
from tests.faults.kill_journal import Journal, check

CHANNEL = "killed"
TOPIC = "/shardwire/1/faults/proto"
EPOCH_MS = 400
QUOTA = 60
LIFE_MS_MAX = 250
# Real time, in which a machine may be busy with something else for minutes.
LAST_LIFE_MS_MAX = 600_000

# Each is a method that every conversation goes through; the process dies before or after its n-th call.
POINTS: dict[str, tuple[type[Any], str]] = {
    "load": (Writer, "load"),
    "commit": (Writer, "commit"),
    "begin": (SqlitePersistence, "begin_commit"),
    "end": (SqlitePersistence, "end_commit"),
    "carry out": (Session, "_carry_out"),
    "count": (Limit, "_store"),
    "dispatch": (Dispatcher, "_send"),
    "take": (Arrivals, "receive"),
    "hand over": (Subscriptions, "hand_over"),
    "announce": (Announcements, "announce"),
}
NAMED_POINTS = (*(f"{moment} {point}" for point in POINTS for moment in ("before", "after")), "in a callback")


def config(persistence: SqlitePersistence, redelivery: Redelivery) -> ChannelConfig:
    return ChannelConfig.logos(
        segmentation=SegmentationConfig(segment_size_bytes=2_048, enable_reed_solomon=True),
        sds=SdsConfig(
            persistence=persistence,
            acknowledgement_timeout_ms=100,
            max_retransmissions=1_000,
            timeout_for_lost_messages_ms=0,
        ),
        sync=SyncConfig(retrieve_frequency_ms=100, store_queries_per_minute_max=10_000),
        rate_limit=RateLimitConfig(enabled=True, epoch_size_ms=EPOCH_MS, messages_per_epoch=QUOTA, counts="segment"),
        redelivery=redelivery,
    )


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, calls: int) -> None:
    """Makes the process die at the n-th passage of a named point."""
    moment, _, name = point.partition(" ")
    if name not in POINTS:
        return
    owner, method = POINTS[name]
    original: Callable[..., Any] = getattr(owner, method)
    left = calls

    def passes() -> bool:
        nonlocal left
        left -= 1
        return left == 0

    if asyncio.iscoroutinefunction(original):

        async def armed_async(*args: Any) -> Any:
            last = passes()
            if last and moment == "before":
                die()
            result = await original(*args)
            if last:
                die()
            return result

        setattr(owner, method, armed_async)
        return

    def armed(*args: Any) -> Any:
        last = passes()
        if last and moment == "before":
            die()
        result = original(*args)
        if last:
            die()
        return result

    setattr(owner, method, armed)


class Life:
    """One life of the process.

    Args:
        directory: Where the databases lie.
        journal: Where everything is noted.
        number: Of this life.
        seed: Of its randomness.
        redelivery: The promise under test.
        callback_kill: The passage of the callback in which the process dies; 0 for none.
    """

    def __init__(
        self, directory: Path, journal: Journal, number: int, seed: int, redelivery: Redelivery, callback_kill: int
    ) -> None:
        self._directory = directory
        self._journal = journal
        self._number = number
        self._rng = random.Random(f"{seed}/{number}")
        self._redelivery: Redelivery = redelivery
        self._callbacks_left = callback_kill
        self._network = MemoryNetwork(NetworkConditions(loss=0.1, delay_ms=(0, 3)), seed=seed + number)

    async def run(self, *, last: bool) -> None:
        channels = {name: await self._join(name) for name in ("alice", "bob")}
        if not last:
            await asyncio.gather(*(self._send(name, channel) for name, channel in channels.items()))
            await asyncio.sleep(LIFE_MS_MAX / 1000)
            return
        waits = [
            channel.delivered(entry.request_id, LAST_LIFE_MS_MAX)
            for channel in channels.values()
            for entry in channel.pending()
        ]
        await asyncio.gather(*waits, return_exceptions=True)
        # What was received is still being handed over, and what waits for its causes comes after them.
        for _ in range(LAST_LIFE_MS_MAX // 100):
            if not any(map(_waits_for_hand_over, channels.values())):
                break
            await asyncio.sleep(0.1)
        for channel in channels.values():
            await close_channel(channel)

    async def _join(self, name: str) -> ReliableChannel:
        node = self._network.create_node(name, NodeConfig())
        await node.start()

        def note_departure(envelope: MessageEnvelope) -> None:
            message = SdsMessage.decode(envelope.payload)
            assert message is not None
            self._journal.note(
                "left", name, int(time.time() * 1000) // EPOCH_MS, message.message_id, message.lamport_timestamp
            )

        node.send_fault = note_departure
        persistence = SqlitePersistence(self._directory / f"{name}.db")
        channel = await create_reliable_channel(
            node, CHANNEL, TOPIC, name, None, config(persistence, self._redelivery), rng=random.SystemRandom()
        )

        async def receive(event: MessageReceivedEvent) -> None:
            number = json.loads(event.message[:64])
            self._journal.note("begin", name, number, event.redelivered, self._number)
            await asyncio.sleep(0.002)
            self._callbacks_left -= 1
            if self._callbacks_left == 0:
                die()
            self._journal.note("end", name, number, self._number)

        channel.on_message_received(receive)
        return channel

    async def _send(self, name: str, channel: ReliableChannel) -> None:
        for place in range(4):
            number = [name, self._number, place]
            payload = json.dumps(number).encode().ljust(64) + bytes(self._rng.choice((0, 100, 9_000)))
            await channel.send(payload)
            self._journal.note("sent", name, number)
            await asyncio.sleep(self._rng.random() * 0.02)


def _waits_for_hand_over(channel: ReliableChannel) -> bool:
    stats = channel.stats()
    return stats["deliveries_waiting"] > 0 or stats["messages_waiting_for_causes"] > 0


def live(directory: Path, journal: Journal, number: int, seed: int, redelivery: Redelivery, point: str | None) -> int:
    """Runs one life in a child process; gives its wait status."""
    child = os.fork()
    if child:
        if point == "at random":
            time.sleep(random.Random(f"moment/{seed}/{number}").random() * LIFE_MS_MAX / 1000)
            os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1]
    status = 1
    try:
        rng = random.Random(f"point/{seed}/{number}")
        calls = 1 if point is not None and point.endswith(" load") else rng.randint(1, 12)
        if point is not None:
            arm(point, calls)
        callback_kill = calls if point == "in a callback" else 0
        asyncio.run(Life(directory, journal, number, seed, redelivery, callback_kill).run(last=point is None))
        status = 0
    except BaseException as error:
        sys.stderr.write(f"life {number} ({point}) failed: {type(error).__name__}: {error}\n")
    finally:
        os._exit(status)


def run(count: int, seed: int, redelivery: Redelivery) -> list[str]:
    """Kills `count` times and gives the violations found."""
    directory = Path(tempfile.mkdtemp(prefix="shardwire-kill-"))
    journal = Journal(directory / "journal")
    points = [*NAMED_POINTS, "at random"]
    killed = dict.fromkeys(points, 0)
    failures: list[str] = []
    for number in range(count):
        point = points[number % len(points)]
        status = live(directory, journal, number, seed, redelivery, point)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            killed[point] += 1
        elif os.WEXITSTATUS(status):
            failures.append(f"life {number} failed before it was killed {point}")
    if os.WEXITSTATUS(live(directory, journal, count, seed, redelivery, None)):
        failures.append("the last life failed")
    failures += check(journal.read(), QUOTA, redelivery, kills=sum(killed.values()))
    sys.stdout.write(f"{redelivery}: {sum(killed.values())} kills of {count} lives: {killed}\n")
    if failures:
        sys.stdout.write(f"kept: {directory}\n")
    else:
        shutil.rmtree(directory)
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="lives to kill (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default: %(default)s)")
    parser.add_argument("--redelivery", choices=("at-least-once", "at-most-once"), default="at-least-once")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    failures = run(arguments.count, arguments.seed, arguments.redelivery)
    for failure in failures[:20]:
        sys.stdout.write(f"VIOLATED: {failure}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
