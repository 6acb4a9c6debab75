"""Channels under attack: what is sent still arrives, and the attackers' bytes bring about bounded work and traffic.

`python -m tests.simulation.hostile --seed 7` runs one world, `--from 0 --to 1000` a range. An insider has the key, or
there is none, and forges messages; a keyless attacker publishes again what it recorded. Both presets, with a store and
without, with their own times and limits. Each world runs twice, with its attacks and without, so that what they cost is
the difference.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from shardwire import ChannelConfig, ReliableChannel, close_channel, create_reliable_channel
from shardwire._native import HistoryEntry, SdsMessage
from shardwire.channel.driver import Driver
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.events import IrretrievableMessageEvent
from shardwire.node import MemoryNetwork, MessageEnvelope, MessageReceived, NetworkConditions, run_virtual
from shardwire.segmentation import SegmentationConfig, segment
from tests.simulation import processes

CHANNEL = "room"
TOPIC = "/hostile/1/room/proto"
MALLORY = "mallory"
KEY = bytes(range(32))
SEGMENT_BYTES = 1_024
ENDS_AT_MS = 2_400_000
# Of the end of a world: by then nothing that an attacker named is worth a message any more.
LATE_MS = 600_000

# What attacks may cost, beside the same world without them. Bytes that leave in answer, for each byte that came and
# each member that hears it; cycles of the members' drivers, for each message that came and each member; envelopes in
# the last ten minutes. Where a network loses, what is asked for and answered is so again.
BYTES_OUT_PER_BYTE_MAX = 250.0
BYTES_OUT_PER_BYTE_MAX_UNDER_LOSS = 300.0
BYTES_OUT_FREE = 400_000
CYCLES_PER_MESSAGE_MAX = 150.0
CYCLES_PER_MESSAGE_MAX_UNDER_LOSS = 200.0
CYCLES_FREE = 1_500
LATE_ENVELOPES_MAX = 20


@dataclass(frozen=True, slots=True)
class HostileWorld:
    """What a seed decides.

    Attributes:
        seed: The seed.
        preset: "logos" or "waku".
        members: How many honest participants there are.
        store: Whether the network has a store.
        encrypted: Whether the channel is encrypted.
        insider: Whether the attacker can forge, or only repeat.
        loss: Share of deliveries that do not happen, as long as the world lasts.
        sends: (ms, sender, size in bytes) of each honest message.
        attacks: (ms, name, how many messages) of each attack.
    """

    seed: int
    preset: str
    members: int
    store: bool
    encrypted: bool
    insider: bool
    loss: float
    sends: tuple[tuple[int, int, int], ...]
    attacks: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True, slots=True)
class Course:
    """What became of a world, with its attacks or without.

    Attributes:
        missing: (receiver, number of the send) of deliveries that did not happen.
        repeated: Deliveries of one message to one member beyond the first.
        bytes_in: That the attacker published.
        messages_in: How many messages those were.
        bytes_out: That members published.
        cycles: Of the drivers of all members.
        late_envelopes: That members published in the last `LATE_MS`.
        irretrievable_events: That members were told.
    """

    missing: tuple[tuple[int, int], ...]
    repeated: int
    bytes_in: int
    messages_in: int
    bytes_out: int
    cycles: int
    late_envelopes: int
    irretrievable_events: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both courses of a world."""

    world: HostileWorld
    attacked: Course
    quiet: Course

    @property
    def bytes_out_per_byte(self) -> float:
        """Beyond `BYTES_OUT_FREE`, for each byte that a member heard of the attacker."""
        extra = self.attacked.bytes_out - self.quiet.bytes_out - BYTES_OUT_FREE
        return max(0, extra) / max(1, self.attacked.bytes_in * self.world.members)

    @property
    def cycles_per_message(self) -> float:
        extra = self.attacked.cycles - self.quiet.cycles - CYCLES_FREE
        return max(0, extra) / max(1, self.attacked.messages_in * self.world.members)

    def faults(self) -> list[str]:
        """What the attacker achieved."""
        attacked, quiet = self.attacked, self.quiet
        bytes_max, cycles_max = BYTES_OUT_PER_BYTE_MAX, CYCLES_PER_MESSAGE_MAX
        if self.world.loss:
            bytes_max, cycles_max = BYTES_OUT_PER_BYTE_MAX_UNDER_LOSS, CYCLES_PER_MESSAGE_MAX_UNDER_LOSS
        found = []
        if set(attacked.missing) - set(quiet.missing):
            found.append(f"lost: {attacked.missing}")
        if attacked.repeated > quiet.repeated:
            found.append(f"delivered again: {attacked.repeated}")
        if self.bytes_out_per_byte > bytes_max:
            found.append(f"{self.bytes_out_per_byte:.0f} bytes out for each byte of {attacked.bytes_in}")
        if self.cycles_per_message > cycles_max:
            found.append(f"{self.cycles_per_message:.0f} cycles for each message of {attacked.messages_in}")
        if attacked.late_envelopes - quiet.late_envelopes > LATE_ENVELOPES_MAX:
            found.append(f"{attacked.late_envelopes - quiet.late_envelopes} envelopes long after the attack")
        # One for each message and member that heard it.
        if attacked.irretrievable_events > quiet.irretrievable_events + self.world.members * attacked.messages_in:
            found.append(f"{attacked.irretrievable_events} events of irretrievable messages")
        return found


class Mallory:
    """Hears everything; attacks when told to."""

    def __init__(self, world: HostileWorld, network: MemoryNetwork) -> None:
        self._world = world
        self._rng = random.Random(f"mallory/{world.seed}")
        self._network = network
        self._cipher = ChaCha20Poly1305Encryption([KEY]).bind(CHANNEL) if world.encrypted else None
        self._recorded: list[bytes] = []
        self._own: set[bytes] = set()
        self._node = network.create_node(MALLORY)
        self.bytes_in = self.messages_in = 0
        self._attacks: dict[str, Callable[[], bytes | None]] = {
            "announce": self._announcing,
            "beyond": self._announcing_beyond,
            "name": self._naming,
            "misname": self._misnaming,
            "web": self._web,
            "suppress": self._suppressing,
            "erase": self._erasing,
            "block": self._blocking,
            "acknowledge": self._acknowledging,
            "request": self._requesting,
            "garbage": self._garbage,
            "replay": self._replay,
        }

    async def start(self) -> asyncio.Task[None]:
        await self._node.start()
        await self._node.subscribe([TOPIC])
        return asyncio.create_task(self._listen())

    async def stop(self) -> None:
        await self._node.stop()

    async def attack(self, name: str, count: int) -> None:
        for _ in range(count):
            payload = self._attacks[name]()
            if payload is not None:
                self.bytes_in += len(payload)
                self.messages_in += 1
                self._own.add(payload)
                await self._node.send(MessageEnvelope(TOPIC, payload))

    async def _listen(self) -> None:
        async for event in self._node.events():
            if isinstance(event, MessageReceived) and event.envelope.payload not in self._own:
                self._recorded.append(event.envelope.payload)

    def _heard(self) -> SdsMessage | None:
        """One of the latest messages, decrypted: what was just sent may be on its way to others."""
        if not self._recorded:
            return None
        payload = self._recorded[-min(len(self._recorded), self._rng.randint(1, 6))]
        data = payload if self._cipher is None else bytes(self._cipher.decrypt(payload))
        return SdsMessage.decode(data)

    def _sealed(
        self,
        content: bytes | None,
        *,
        message_id: str | None = None,
        sender_id: str | None = None,
        history: list[HistoryEntry] | None = None,
        repair_request: list[HistoryEntry] | None = None,
    ) -> bytes:
        data = SdsMessage(
            sender_id=sender_id or f"{MALLORY}{self._rng.randrange(5)}",
            message_id=message_id or f"{self._rng.randbytes(16).hex()}.0",
            channel_id=CHANNEL,
            lamport_timestamp=self._network.clock.epoch_ms() + self._rng.randrange(100),
            causal_history=history or [],
            repair_request=repair_request or [],
            content=content,
        ).encode()
        return data if self._cipher is None else bytes(self._cipher.encrypt(data))

    def _invented(self, count: int) -> list[HistoryEntry]:
        return [HistoryEntry(f"{self._rng.randbytes(16).hex()}.0", None, self._member()) for _ in range(count)]

    def _member(self) -> str:
        return f"p{self._rng.randrange(self._world.members)}"

    def _tiny(self) -> bytes:
        return segment(self._rng.randbytes(8), SegmentationConfig(segment_size_bytes=SEGMENT_BYTES))[0]

    def _announced(self) -> bytes:
        config = SegmentationConfig(segment_size_bytes=64, enable_reed_solomon=False)
        return segment(self._rng.randbytes(64 * 200), config)[0]

    def _announcing(self) -> bytes:
        return self._sealed(self._announced())

    def _announcing_beyond(self) -> bytes | None:
        """More of a send that is here: what is asked for has answers, and none is of this one."""
        heard = self._heard()
        if heard is None or not heard.content:
            return None
        return self._sealed(self._announced(), message_id=f"{heard.message_id.partition('.')[0]}.200")

    def _naming(self) -> bytes:
        return self._sealed(None, history=self._invented(40))

    def _misnaming(self) -> bytes | None:
        """What is here is said to be a stranger's: what is asked for has answers, and none is that."""
        heard = [message.message_id for message in (self._heard() for _ in range(20)) if message and message.content]
        return self._sealed(None, history=[HistoryEntry(held, None, MALLORY) for held in heard]) if heard else None

    def _web(self) -> bytes:
        return self._sealed(self._tiny(), history=self._invented(20))

    def _suppressing(self) -> bytes | None:
        heard = self._heard()
        return None if heard is None else self._sealed(None, message_id=heard.message_id)

    def _erasing(self) -> bytes | None:
        """Another message under the id of one that some have lost: invalid, or valid, in anybody's name."""
        heard = self._heard()
        if heard is None or not heard.content:
            return None
        content = self._rng.choice((b"\x00", self._tiny()))
        sender_id = self._rng.choice((None, heard.sender_id, self._member()))
        return self._sealed(content, message_id=heard.message_id, sender_id=sender_id)

    def _blocking(self) -> bytes | None:
        heard = self._heard()
        if heard is None or not heard.content:
            return None
        return self._sealed(self._tiny(), message_id=heard.message_id, history=self._invented(1))

    def _acknowledging(self) -> bytes | None:
        heard = self._heard()
        if heard is None:
            return None
        return self._sealed(
            None, sender_id=f"ghost{self._rng.randrange(100)}", history=[HistoryEntry(heard.message_id, None, None)]
        )

    def _requesting(self) -> bytes | None:
        heard = self._heard()
        if heard is None:
            return None
        return self._sealed(None, repair_request=[HistoryEntry(heard.message_id, None, heard.sender_id)])

    def _garbage(self) -> bytes:
        return self._rng.randbytes(self._rng.randint(0, 2_000))

    def _replay(self) -> bytes | None:
        return self._rng.choice(self._recorded) if self._recorded else None


KEYLESS = ("garbage", "replay")
FORGING = ("announce", "beyond", "name", "misname", "web", "suppress", "erase", "block", "acknowledge", "request")
INSIDER = (*FORGING, *KEYLESS)
COUNTS = {"announce": 60, "beyond": 60, "name": 20, "misname": 20, "web": 60}


def make_hostile_world(seed: int) -> HostileWorld:
    """The world of a seed."""
    rng = random.Random(f"hostile world/{seed}")
    members = rng.choice((3, 3, 4, 6))
    insider = rng.random() < 0.75
    encrypted = rng.random() < 0.3 or not insider
    until_ms = rng.randint(30_000, 180_000)
    sends = tuple(
        (at_ms, rng.randrange(members), rng.choice((40, 200, 900, 5_000)))
        for at_ms in sorted(rng.randrange(until_ms) for _ in range(8))
    )
    names = INSIDER if insider else KEYLESS
    attacks = []
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(names)
        most = COUNTS.get(name, 30)
        # Right behind an honest message: it may not be everywhere yet.
        for at_ms in rng.sample([at_ms for at_ms, _, _ in sends], 3):
            attacks.append((at_ms + rng.choice((200, 1_000, 20_000)), name, rng.randint(1, max(1, most // 4))))
    return HostileWorld(
        seed=seed,
        preset=rng.choice(("logos", "waku")),
        members=members,
        store=rng.random() < 0.4,
        encrypted=encrypted,
        insider=insider,
        loss=rng.choice((0.0, 0.1, 0.2)),
        sends=sends,
        attacks=tuple(sorted(attacks)),
    )


def run_hostile_world(world: HostileWorld) -> Outcome:
    """Runs a world with its attacks and without."""
    courses = []
    for attacks in (world.attacks, ()):
        with CountedCycles() as cycles:
            courses.append(run_virtual(_simulate(replace(world, attacks=attacks), cycles), limit_ms=2 * ENDS_AT_MS))
    return Outcome(world, *courses)


class CountedCycles:
    """Counts the cycles of every driver while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> CountedCycles:
        self._collect = collect = Driver._collect

        def counted(driver: Driver, *arguments: object, **named: object) -> object:
            self.count += 1
            return collect(driver, *arguments, **named)  # type: ignore[arg-type]

        Driver._collect = counted  # type: ignore[assignment, method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Driver._collect = self._collect  # type: ignore[method-assign]


async def _simulate(world: HostileWorld, cycles: CountedCycles) -> Course:
    conditions = NetworkConditions(loss=world.loss, delay_ms=(5, 150))
    network = MemoryNetwork(conditions, seed=world.seed, store=world.store)
    mallory = Mallory(world, network)
    listening = await mallory.start()
    preset = getattr(ChannelConfig, world.preset)()
    config = replace(preset, segmentation=replace(preset.segmentation, segment_size_bytes=SEGMENT_BYTES))
    loop = asyncio.get_running_loop()
    received: list[Counter[bytes]] = [Counter() for _ in range(world.members)]
    irretrievable = [0]
    channels: list[ReliableChannel] = []
    for index in range(world.members):
        node = network.create_node(f"p{index}")
        await node.start()
        cipher = ChaCha20Poly1305Encryption([KEY]) if world.encrypted else None
        rng = random.Random(f"{world.seed}/{index}")
        channel = await create_reliable_channel(node, CHANNEL, TOPIC, f"p{index}", cipher, config, rng=rng)
        channel.on_message_received(lambda event, counts=received[index]: counts.update((event.message,)))
        channel.on(IrretrievableMessageEvent, lambda event: irretrievable.__setitem__(0, irretrievable[0] + 1))
        channels.append(channel)
    steps = [(at_ms, 0, number) for number, (at_ms, _, _) in enumerate(world.sends)]
    steps += [(at_ms, 1, number) for number, (at_ms, _, _) in enumerate(world.attacks)]
    for at_ms, kind, number in sorted(steps):
        await asyncio.sleep(max(0.0, at_ms / 1000 - loop.time()))
        if kind:
            await mallory.attack(*world.attacks[number][1:])
        else:
            await channels[world.sends[number][1]].send(_payload(world, number))
    await asyncio.sleep((ENDS_AT_MS - LATE_MS) / 1000 - loop.time())
    before_late = _left(network)[0]
    await asyncio.sleep(LATE_MS / 1000)
    envelopes, bytes_out = _left(network)
    for channel in channels:
        await close_channel(channel)
    listening.cancel()
    await mallory.stop()
    missing = tuple(
        (receiver, number)
        for number, (_, sender, _) in enumerate(world.sends)
        for receiver in range(world.members)
        if receiver != sender and _payload(world, number) not in received[receiver]
    )
    ours = [_payload(world, number) for number in range(len(world.sends))]
    return Course(
        missing,
        sum(max(0, counts[payload] - 1) for counts in received for payload in ours),
        mallory.bytes_in,
        mallory.messages_in,
        bytes_out,
        cycles.count,
        envelopes - before_late,
        irretrievable[0],
    )


def _left(network: MemoryNetwork) -> tuple[int, int]:
    """Envelopes and bytes that left honest members so far."""
    ours = [record.size_bytes for record in network.trace if record.sender != MALLORY]
    return len(ours), sum(ours)


def _payload(world: HostileWorld, number: int) -> bytes:
    head = hashlib.sha256(f"{world.seed}/{number}".encode()).digest()
    return head + random.Random(number).randbytes(world.sends[number][2] - len(head))


def _judge(seed: int) -> Outcome:
    return run_hostile_world(make_hostile_world(seed))


def run_many(seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """Runs worlds in `jobs` processes; their outcomes in the order of the seeds."""
    return processes.run_many(_judge, seeds, jobs, worlds_at_once=4)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.hostile", description=__doc__)
    parser.add_argument("--seed", type=int, help="the only seed")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument(
        "--to", dest="end", type=int, default=200, help="the seed to stop before (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.end) if arguments.seed is None else [arguments.seed]
    began, worlds, failed = time.perf_counter(), 0, 0
    most = {"bytes out for a byte": 0.0, "cycles for a message": 0.0, "late envelopes": 0.0}
    for outcome in run_many(seeds, arguments.jobs):
        worlds += 1
        late = outcome.attacked.late_envelopes - outcome.quiet.late_envelopes
        figures = (outcome.bytes_out_per_byte, outcome.cycles_per_message, float(late))
        most = {name: max(known, figure) for (name, known), figure in zip(most.items(), figures, strict=True)}
        if faults := outcome.faults():
            failed += 1
            print(f"seed {outcome.world.seed}: {'; '.join(faults)}; {outcome.world}", flush=True)
    print(f"{worlds} worlds in {time.perf_counter() - began:.1f} s; at most {most}")
    print(f"failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
