"""What two participants go through, on whatever network; whatever happens, nothing is lost and nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from interop.live.networks import LiveNetwork
from interop.live.processes import Process

SMALL_BYTES = 200
LARGE_BYTES = 5_000_000
# Fast networks carry one while its sender is being killed.
LARGE_COUNT = 3
AWAY_S = 45.0
PAUSE_S = 20.0

MakeProcess = Callable[..., Process]


class World:
    """A network and its participants, for one scenario.

    Args:
        network: Started here, and stopped.
        directory: For the participants.
        large_bytes: How large a large message is on this network.
    """

    def __init__(self, network: LiveNetwork, directory: Path, large_bytes: int) -> None:
        self.network = network
        self.large_bytes = large_bytes
        self._directory = directory
        self._processes: list[Process] = []

    async def __aenter__(self) -> World:
        await self.network.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            await process.kill()
        await self.network.stop()

    async def join(self, name: str, *, parity: bool = False, kept: bool = False) -> Process:
        """A participant, with a database where `kept`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {
            **self.network.node(name),
            "sender_id": name,
            "parity": parity,
            "state": str(self._directory / f"{name}.sqlite") if kept else None,
        }
        process = Process(self._directory, settings)
        self._processes.append(process)
        await process.start()
        return process

    async def both(self, **settings: bool) -> tuple[Process, Process]:
        return await self.join("alice", **settings), await self.join("bob", **settings)


async def _delivered(sender: Process, receiver: Process, numbers: set[int]) -> None:
    """The receiver has the messages, and the sender knows."""
    await receiver.until(lambda: numbers <= receiver.numbers("received"), f"it received {len(numbers)} messages")
    await sender.until(lambda: numbers <= sender.numbers("delivered"), f"its {len(numbers)} messages were delivered")
    receiver.check_received(numbers)


async def _begin_large(world: World, sender: Process, receiver: Process) -> set[int]:
    """Large messages are on their way, and the last of them has not arrived; their numbers."""
    numbers = set(range(LARGE_COUNT))
    await sender.send(0, LARGE_COUNT, world.large_bytes)
    await sender.until(lambda: sender.chunks(0) >= 5, "some of a large message left")
    assert not numbers <= receiver.numbers("received"), "all of it arrived before anything could go wrong"
    return numbers


async def small_messages(world: World) -> None:
    """100 small messages each way."""
    alice, bob = await world.both()
    await asyncio.gather(alice.send(0, 100, SMALL_BYTES), bob.send(0, 100, SMALL_BYTES))
    await asyncio.gather(_delivered(alice, bob, set(range(100))), _delivered(bob, alice, set(range(100))))


async def large_message(world: World) -> None:
    """5 MB with parity."""
    alice, bob = await world.both(parity=True)
    await alice.send(0, 1, world.large_bytes)
    await _delivered(alice, bob, {0})


async def away_and_back(world: World) -> None:
    """One stands still for 45 s while the other one sends."""
    alice, bob = await world.both()
    await alice.send(0, 5, SMALL_BYTES)
    await _delivered(alice, bob, set(range(5)))
    bob.pause()
    try:
        await alice.send(5, 20, SMALL_BYTES)
        await asyncio.sleep(AWAY_S)
    finally:
        bob.go_on()
    await bob.send(0, 5, SMALL_BYTES)
    await asyncio.gather(_delivered(alice, bob, set(range(25))), _delivered(bob, alice, set(range(5))))


async def server_killed(world: World) -> None:
    """The server between them is killed in the middle of 5 MB, and comes back."""
    alice, bob = await world.both(parity=True)
    large = await _begin_large(world, alice, bob)
    await world.network.crash()
    await bob.send(0, 10, SMALL_BYTES)
    await asyncio.sleep(2)
    await world.network.start_again()
    await asyncio.gather(_delivered(alice, bob, large), _delivered(bob, alice, set(range(10))))
    await alice.send(LARGE_COUNT, 10, SMALL_BYTES)
    await _delivered(alice, bob, set(range(LARGE_COUNT + 10)))


async def server_paused(world: World) -> None:
    """The server stands still for 20 s in the middle of 5 MB."""
    alice, bob = await world.both(parity=True)
    large = await _begin_large(world, alice, bob)
    world.network.pause()
    try:
        await bob.send(0, 10, SMALL_BYTES)
        await asyncio.sleep(PAUSE_S)
    finally:
        world.network.go_on()
    await asyncio.gather(_delivered(alice, bob, large), _delivered(bob, alice, set(range(10))))


async def sender_killed(world: World) -> None:
    """A sender is killed in the middle of 5 MB, and comes back with its database."""
    alice, bob = await world.both(kept=True, parity=True)
    large = await _begin_large(world, alice, bob)
    await alice.kill()
    await asyncio.sleep(1)
    await alice.start()
    await _delivered(alice, bob, large)
    await alice.send(LARGE_COUNT, 5, SMALL_BYTES)
    await _delivered(alice, bob, set(range(LARGE_COUNT + 5)))


async def receiver_killed(world: World) -> None:
    """A receiver is killed in the middle of 5 MB, and comes back with its database."""
    alice, bob = await world.both(kept=True, parity=True)
    large = await _begin_large(world, alice, bob)
    await bob.kill()
    await asyncio.sleep(1)
    await bob.start()
    await _delivered(alice, bob, large)
    await bob.send(0, 5, SMALL_BYTES)
    await _delivered(bob, alice, set(range(5)))


async def _until_subscribed(network: LiveNetwork, holds: Callable[[int], bool]) -> None:
    """Returns when the server counts so many subscriptions: it may tell its count from time to time."""
    for _ in range(120):
        count = await network.subscriptions()
        if holds(count):
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"the server still counts {count} subscriptions")


async def closed(world: World) -> None:
    """After the end of a channel and its node nothing of them is left at the server."""
    alice, bob = await world.both()
    await alice.send(0, 5, SMALL_BYTES)
    await _delivered(alice, bob, set(range(5)))
    await _until_subscribed(world.network, lambda count: count >= 2)
    await bob.close()
    await alice.close()
    await _until_subscribed(world.network, lambda count: count == 0)


# Those that wait longest first.
SCENARIOS: tuple[Callable[[World], Awaitable[None]], ...] = (
    away_and_back,
    server_paused,
    server_killed,
    sender_killed,
    receiver_killed,
    large_message,
    small_messages,
    closed,
)
