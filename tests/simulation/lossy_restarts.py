"""Participants that are killed every few seconds and started again over their state, on a network that loses a quarter.

`python -m tests.simulation.lossy_restarts --from 0 --to 120` runs a range of worlds, and tells how long after the last
message everything was made good. There is no store: participants get from each other what they missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from shardwire import ChannelConfig
from shardwire.errors import ShardwireError
from shardwire.node import MemoryNetwork, NetworkConditions, run_virtual
from tests.channel_world import World
from tests.simulation import processes

CONDITIONS = NetworkConditions(loss=0.24, duplicate=0.1, delay_ms=(1, 40), reorder=0.1)
PARTICIPANTS = ("p0", "p1", "p2")
SENDS = 150
PAUSE_S = (0.05, 0.4)
TRY_AGAIN_S = 0.2
KILLS_FOR_S = 25.0
KILL_EVERY_S = (1.0, 4.0)
AWAY_S = (1.0, 2.0)
ENDS_AFTER_S = 3_600


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a world.

    Attributes:
        seed: Of the world.
        kills: Participants that were killed.
        missing: Deliveries that did not happen.
        settled_s: Virtual time from the last message until everything was delivered, in whole seconds.
        envelopes: That left a node.
    """

    seed: int
    kills: int
    missing: int
    settled_s: int
    envelopes: int


@dataclass
class Life:
    """What happens in a world, drawn from its seed."""

    world: World
    rng: random.Random
    kills: int = 0
    sent: set[tuple[str, bytes]] = field(default_factory=set)

    async def join(self, name: str) -> None:
        config = ChannelConfig.logos().without_store(members=len(PARTICIPANTS))
        await self.world.join(name, config, on_disk=True)

    async def talk(self, name: str) -> None:
        for number in range(SENDS):
            payload = f"{name} {number}".encode()
            while not await self.try_to_send(name, payload):
                pass
            self.sent.add((name, payload))
            await asyncio.sleep(self.rng.uniform(*PAUSE_S))

    async def try_to_send(self, name: str, payload: bytes) -> bool:
        """Whether it was sent; where not, after a while."""
        channel = self.world.channels.get(name)
        try:
            if channel is not None:
                await channel.send(payload)
                return True
        except ShardwireError:
            pass
        await asyncio.sleep(TRY_AGAIN_S)
        return False

    async def kill_now_and_then(self) -> None:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + KILLS_FOR_S
        async with asyncio.TaskGroup() as tasks:
            while loop.time() < ends_s:
                await asyncio.sleep(self.rng.uniform(*KILL_EVERY_S))
                name = self.rng.choice(PARTICIPANTS)
                if name in self.world.channels:
                    self.kills += 1
                    await self.world.crash(name)
                    tasks.create_task(self.come_back(name))

    async def come_back(self, name: str) -> None:
        await asyncio.sleep(self.rng.uniform(*AWAY_S))
        await self.join(name)

    def missing(self) -> int:
        heard = {name: set(self.world.messages(name)) for name in PARTICIPANTS}
        others = ((payload, name) for sender, payload in self.sent for name in PARTICIPANTS if name != sender)
        return sum(payload not in heard[name] for payload, name in others)


async def _simulate(seed: int) -> Outcome:
    world = World(CONDITIONS, seed)
    world.network = MemoryNetwork(CONDITIONS, seed=seed, store=False)
    life = Life(world, random.Random(f"lossy restarts/{seed}"))
    try:
        for name in PARTICIPANTS:
            await life.join(name)
        await asyncio.gather(life.kill_now_and_then(), *map(life.talk, PARTICIPANTS))
        settled_s = 0
        while life.missing() and settled_s < ENDS_AFTER_S:
            await asyncio.sleep(1)
            settled_s += 1
        return Outcome(seed, life.kills, life.missing(), settled_s, len(world.network.trace))
    finally:
        await world.close()


def run_restarts(seed: int) -> Outcome:
    """Runs a world until everything is delivered, or to its end."""
    return run_virtual(_simulate(seed), limit_ms=3 * ENDS_AFTER_S * 1000)


def run_many(seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """Runs worlds in `jobs` processes; their outcomes in the order of the seeds."""
    return processes.run_many(run_restarts, seeds, jobs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.lossy_restarts", description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--to", dest="end", type=int, default=20, help="the seed to stop before (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    arguments = parser.parse_args()
    outcomes = list(run_many(range(arguments.first, arguments.end), arguments.jobs))
    settled_s = sorted(outcome.settled_s for outcome in outcomes)
    envelopes = statistics.fmean(outcome.envelopes for outcome in outcomes)
    for outcome in outcomes:
        if outcome.missing:
            print(outcome, flush=True)
    print(f"made good after {statistics.median(settled_s):.0f} s at the median, {settled_s[-1]} s at most")
    print(f"{sum(outcome.kills for outcome in outcomes)} kills, {envelopes:.0f} messages a world")
    return any(outcome.missing for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
