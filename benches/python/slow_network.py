"""How late small messages are beside much else on a slow network: `python -m benches.python.slow_network`.

Members talk by `UdpNode` over real sockets, through relays that lose a twentieth of the datagrams. One sends a message
of 20 bytes every quarter of a second, and another notes when it comes: while nothing else is said, while a third comes
back who missed much, and while a file is sent. `--output NAME` also writes benches/results/NAME.json and NAME.md,
`--beside FILE` shows the rows of another run, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from shardwire import ChannelConfig, ReliableChannel, create_reliable_channel
from shardwire.events import MessageReceivedEvent
from shardwire.node import UdpNode
from tests.live_servers import free_port
from tests.udp_relay import UdpRelay

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "/shardwire/1/bench/proto"
LOSS = 0.05
INTERVAL_S = 0.25
# In messages of half a megabyte: what the third member misses.
MISSED = 16
MISSED_BYTES = 500_000
FILE_BYTES = 16 << 20
MESSAGE_BYTES = 12 << 20
QUIET_S = 5.0


class Group:
    """Three members, each of whom reaches each of the others through a relay."""

    def __init__(self) -> None:
        self.channels: dict[str, ReliableChannel] = {}
        self._nodes: list[UdpNode] = []
        self._relays: dict[frozenset[str], UdpRelay] = {}
        self._on_their_way: dict[bytes, asyncio.Future[None]] = {}
        self._numbered = 0

    async def start(self) -> None:
        names = ("alice", "bob", "carol")
        ports = {name: free_port() for name in names}
        peers: dict[str, list[str]] = {name: [] for name in names}
        for one, other in (("alice", "bob"), ("alice", "carol"), ("bob", "carol")):
            relay = UdpRelay((ports[one], ports[other]), loss=LOSS, seed=len(self._relays))
            self._relays[frozenset((one, other))] = relay
            peers[one].append(f"127.0.0.1:{relay.fronts[1]}")
            peers[other].append(f"127.0.0.1:{relay.fronts[0]}")
        for name in names:
            node = UdpNode(f"udp://127.0.0.1:{ports[name]}", peers=peers[name])
            await node.start()
            self._nodes.append(node)
            config = ChannelConfig.logos().without_store(members=3)
            self.channels[name] = await create_reliable_channel(node, "bench", TOPIC, name, config=config)
        self.channels["bob"].on_message_received(self._on_received)
        await self.channels["alice"].delivered(await self.channels["alice"].send(b"begin"), timeout_ms=60_000)

    async def stop(self) -> None:
        for channel in self.channels.values():
            await channel.close()
        for node in self._nodes:
            await node.stop()
        for relay in self._relays.values():
            relay.close()

    def cut_off(self, name: str, is_away: bool) -> None:
        for names, relay in self._relays.items():
            if name in names:
                relay.cut = is_away

    async def reaches_bob(self, message: bytes) -> float:
        """Alice sends it; how many seconds later bob has it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._on_their_way[message] = came = loop.create_future()
        await self.channels["alice"].send(message)
        await came
        return loop.time() - began

    async def late_beside(self, work: Awaitable[object]) -> list[float]:
        """Sends small messages until `work` is done; after how many seconds each of them came."""
        task = asyncio.ensure_future(work)
        begun = []
        while not task.done():
            self._numbered += 1
            begun.append(asyncio.create_task(self.reaches_bob(self._numbered.to_bytes(20, "big"))))
            await asyncio.sleep(INTERVAL_S)
        await task
        return await asyncio.gather(*begun)

    def _on_received(self, event: MessageReceivedEvent) -> None:
        if (came := self._on_their_way.pop(event.message, None)) is not None:
            came.set_result(None)


async def nothing(group: Group, directory: Path) -> list[float]:
    return await group.late_beside(asyncio.sleep(QUIET_S))


async def come_back(group: Group, directory: Path) -> list[float]:
    heard = asyncio.Semaphore(0)
    group.channels["carol"].on_message_received(lambda event: heard.release())
    group.cut_off("carol", True)
    for number in range(MISSED):
        await group.reaches_bob(random.Random(number).randbytes(MISSED_BYTES))
    group.cut_off("carol", False)

    async def has_all() -> None:
        for _ in range(MISSED):
            await heard.acquire()

    return await group.late_beside(has_all())


async def send_file(group: Group, directory: Path) -> list[float]:
    (directory / "inbox").mkdir()
    (directory / "photo.raw").write_bytes(random.Random(1).randbytes(FILE_BYTES))
    group.channels["bob"].receive_files(directory / "inbox")
    return await group.late_beside(group.channels["alice"].send_file(directory / "photo.raw", delivered_when={"bob"}))


async def send_message(group: Group, directory: Path) -> list[float]:
    alice = group.channels["alice"]

    async def deliver() -> None:
        await alice.delivered(await alice.send(random.Random(1).randbytes(MESSAGE_BYTES)), timeout_ms=120_000)

    return await group.late_beside(deliver())


CASES: dict[str, Callable[[Group, Path], Awaitable[list[float]]]] = {
    "nothing": nothing,
    f"a member comes back who missed {MISSED * MISSED_BYTES // 1_000_000} MB": come_back,
    f"a file of {FILE_BYTES >> 20} MiB": send_file,
    f"a message of {MESSAGE_BYTES >> 20} MiB": send_message,
}


async def play(case: str) -> dict[str, Any]:
    group = Group()
    await group.start()
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as directory:
        began = loop.time()
        late_s = await CASES[case](group, Path(directory))
        ended = loop.time()
        await group.stop()
    return {
        "beside": case,
        "messages": len(late_s),
        "median_s": round(statistics.median(late_s), 2),
        "longest_s": round(max(late_s), 2),
        "took_s": round(ended - began, 1),
    }


def as_markdown(rows: list[dict[str, Any]], beside: list[dict[str, Any]] | None) -> str:
    lines = [
        "# Small messages beside much else on a slow network",
        "",
        f"`python -m benches.python.slow_network`: three members over UDP, {LOSS:.0%} of the datagrams lost, 20 bytes",
        f"every {INTERVAL_S:g} s from one to another.",
        "",
        "| beside | | messages | came after, median, s | longest, s | all of it took, s |",
        "|---|---|---|---|---|---|",
    ]
    for number, row in enumerate(rows):
        runs = [("now", row)] if beside is None else [("before", beside[number]), ("now", row)]
        for when, run in runs:
            seconds = f"{run['median_s']:g} | {run['longest_s']:g} | {run['took_s']:g}"
            lines.append(f"| {row['beside']} | {when} | {run['messages']} | {seconds} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="NAME", help="also write benches/results/NAME.json and NAME.md")
    parser.add_argument("--beside", metavar="FILE", type=Path, help="rows of another run, as JSON, that are shown too")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    rows = []
    for case in CASES:
        rows.append(asyncio.run(play(case)))
        print(rows[-1], flush=True)
    beside = json.loads(arguments.beside.read_text()) if arguments.beside else None
    page = as_markdown(rows, beside)
    print(page)
    if arguments.output:
        results = ROOT / "benches" / "results"
        (results / f"{arguments.output}.json").write_text(json.dumps(rows, indent=2) + "\n")
        (results / f"{arguments.output}.md").write_text(page)


if __name__ == "__main__":
    main()
