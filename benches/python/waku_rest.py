"""Channels through two go-waku nodes, beside what the nodes carry by themselves.

    PYTHONPATH=.:python:tests python -m benches.python.waku_rest --output benches/results/NAME [--rounds 7]

The cases take turns within a round, in one process with one event loop. A ratio is the median over rounds of a round's
two figures. `raw` publishes and polls with the channel's HTTP library and the standard library's JSON and base64, four
posts at a time and a poll every 5 ms, and empties the publisher's queue of its own messages as the channel does.
`raw, our codec` does the same with the native reader and writer of this package. `httpx` is httpx alone, and leaves the
echo out.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import aiohttp
import httpx
from waku_servers import WakuServer
from yarl import URL

from shardwire import ChannelConfig, ReliableChannel, close_channel, create_reliable_channel
from shardwire._native import WakuJsonReader, encode_waku_json
from shardwire.config import SdsConfig
from shardwire.node import WakuRestNode
from shardwire.persistence import MemoryPersistence

SEGMENT_BYTES = 102_400
# What a channel adds to a segment: SDS header and segment header.
WIRE_BYTES = SEGMENT_BYTES + 400
SEGMENTS = 100
SMALL_BYTES = 100
SMALL_MESSAGES = 500
PINGS = 100
POLL_S = 0.005
POSTS_AT_ONCE = 4
IDLE_S = 30.0
CASE_TIMEOUT_S = 120.0
# Work of others at the beginning, above which a figure says so.
QUIET_LOAD = 1.0
MESSAGES, SUBSCRIPTIONS = "/relay/v1/auto/messages", "/relay/v1/auto/subscriptions"


class Client(Protocol):
    """Publishes to the first node, polls both."""

    async def publish(self, topic: str, payload: bytes) -> None: ...

    async def poll(self, which: int, topic: str) -> int: ...


class PlainClient:
    """aiohttp, and the standard library for the rest."""

    def __init__(self, session: aiohttp.ClientSession, urls: list[str]) -> None:
        self._session = session
        self._urls = urls

    async def publish(self, topic: str, payload: bytes) -> None:
        said = {"payload": base64.b64encode(payload).decode(), "contentTopic": topic, "timestamp": time.time_ns()}
        async with self._session.post(self._urls[0] + MESSAGES, data=json.dumps(said).encode()) as answer:
            assert answer.status == 200, await answer.text()

    async def poll(self, which: int, topic: str) -> int:
        url = URL(f"{self._urls[which]}{MESSAGES}/{quote(topic, safe='')}", encoded=True)
        async with self._session.get(url) as answer:
            found = json.loads(await answer.read()) or []
        # Its own messages a publisher need not decode.
        return sum(1 for message in found if not which or base64.b64decode(message["payload"]))


class NativeClient(PlainClient):
    """aiohttp, and this package's reader and writer."""

    async def publish(self, topic: str, payload: bytes) -> None:
        body = encode_waku_json(
            payload=payload, content_topic=topic, timestamp_ns=time.time_ns(), meta=b"", ephemeral=False
        )
        async with self._session.post(self._urls[0] + MESSAGES, data=body) as answer:
            assert answer.status == 200, await answer.text()

    async def poll(self, which: int, topic: str) -> int:
        url = URL(f"{self._urls[which]}{MESSAGES}/{quote(topic, safe='')}", encoded=True)
        reader, found = WakuJsonReader(element_bytes_max=1 << 20), 0
        async with self._session.get(url) as answer:
            async for piece in answer.content.iter_any():
                found += len(reader.feed(piece, ()))
        return found


class HttpxClient:
    """httpx, and the standard library for the rest."""

    def __init__(self, client: httpx.AsyncClient, urls: list[str]) -> None:
        self._client = client
        self._urls = urls

    async def publish(self, topic: str, payload: bytes) -> None:
        said = {"payload": base64.b64encode(payload).decode(), "contentTopic": topic, "timestamp": time.time_ns()}
        (await self._client.post(self._urls[0] + MESSAGES, json=said)).raise_for_status()

    async def poll(self, which: int, topic: str) -> int:
        answer = await self._client.get(f"{self._urls[which]}{MESSAGES}/{quote(topic, safe='')}")
        return sum(1 for message in answer.json() or [] if base64.b64decode(message["payload"]))


class Raw:
    """Publishing and polling by themselves.

    Args:
        client: How.
        urls: Of publisher and receiver.
        with_echo: Whether the publisher polls too.
    """

    def __init__(self, client: Client, urls: list[str], *, with_echo: bool) -> None:
        self._client = client
        self._urls = urls
        self._polled = (0, 1) if with_echo else (1,)

    async def _subscribe(self, method: str, topic: str) -> None:
        async with httpx.AsyncClient() as client:
            for which in self._polled:
                answer = await client.request(method, self._urls[which] + SUBSCRIPTIONS, json=[topic])
                answer.raise_for_status()

    async def carry(self, topic: str, payloads: list[bytes]) -> float:
        """Seconds until the receiver has all of them."""
        await self._subscribe("POST", topic)
        waiting, received = iter(payloads), asyncio.Event()

        async def post() -> None:
            for payload in waiting:
                await self._client.publish(topic, payload)

        async def receive(which: int) -> None:
            left = len(payloads)
            while left > 0:
                left -= await self._client.poll(which, topic)
                await asyncio.sleep(POLL_S)
            if which:
                received.set()

        begun = time.perf_counter()
        tasks = [asyncio.create_task(post()) for _ in range(POSTS_AT_ONCE)]
        tasks += [asyncio.create_task(receive(which)) for which in self._polled]
        await received.wait()
        seconds = time.perf_counter() - begun
        await asyncio.gather(*tasks)
        await self._subscribe("DELETE", topic)
        return seconds

    async def ping(self, topic: str) -> float:
        """Median of the seconds from a post to its arrival, with both queues polled all the time."""
        await self._subscribe("POST", topic)
        arrived = asyncio.Event()

        async def receive(which: int) -> None:
            while True:
                if await self._client.poll(which, topic) and which:
                    arrived.set()
                await asyncio.sleep(POLL_S)

        polling = [asyncio.create_task(receive(which)) for which in self._polled]
        seconds = []
        for number in range(PINGS):
            arrived.clear()
            begun = time.perf_counter()
            await self._client.publish(topic, b"%d" % number + bytes(SMALL_BYTES - 4))
            await arrived.wait()
            seconds.append(time.perf_counter() - begun)
        for task in polling:
            task.cancel()
        await asyncio.gather(*polling, return_exceptions=True)
        await self._subscribe("DELETE", topic)
        return statistics.median(seconds)


class Channels:
    """A channel on each of the two nodes."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = urls
        self._nodes: list[WakuRestNode] = []
        self._channels: list[ReliableChannel] = []
        self._received: asyncio.Queue[bytes] = asyncio.Queue()

    async def open(self, topic: str) -> None:
        for name, url in zip(("publisher", "receiver"), self._urls, strict=True):
            node = WakuRestNode(url, use_store=False)
            await node.start()
            self._nodes.append(node)
            config = ChannelConfig.logos(sds=SdsConfig(persistence=MemoryPersistence()))
            self._channels.append(await create_reliable_channel(node, "bench", topic, name, config=config))
        self._channels[1].on_message_received(lambda event: self._received.put_nowait(event.message))
        # Both have spoken, as in a channel that has been in use.
        await self.carry([b"first"])
        await asyncio.sleep(1.5)

    async def close(self) -> None:
        for channel in self._channels:
            await close_channel(channel, drain_timeout_ms=5_000)
        for node in self._nodes:
            await node.stop()

    async def carry(self, messages: list[bytes]) -> float:
        """Seconds until the receiver has all of them."""
        begun = time.perf_counter()
        for message in messages:
            await self._channels[0].send(message)
        for _ in messages:
            await self._received.get()
        return time.perf_counter() - begun

    async def ping(self) -> float:
        """Median of the seconds from `send` to received."""
        seconds = []
        for number in range(PINGS):
            begun = time.perf_counter()
            await self._channels[0].send(b"%d" % number + bytes(SMALL_BYTES - 4))
            await self._received.get()
            seconds.append(time.perf_counter() - begun)
        return statistics.median(seconds)


async def idle_share(url: str) -> float:
    """Processor time of an idle channel, as a share of one core."""
    node = WakuRestNode(url, use_store=False)
    await node.start()
    channel = await create_reliable_channel(node, "idle", "/bench/1/idle/proto", "idle")
    await asyncio.sleep(3)
    begun, used = time.perf_counter(), time.process_time()
    await asyncio.sleep(IDLE_S)
    share = (time.process_time() - used) / (time.perf_counter() - begun)
    await close_channel(channel, drain_timeout_ms=0)
    await node.stop()
    return share


class Figures:
    """Seconds of every case, round by round."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    async def play(self, round_number: int, cases: dict[str, Callable[[], Awaitable[float]]]) -> None:
        """Runs each case once; nobody always goes first."""
        names = list(cases)
        turn = round_number % len(names)
        for name in names[turn:] + names[:turn]:
            try:
                async with asyncio.timeout(CASE_TIMEOUT_S):
                    self.seconds.setdefault(name, []).append(await cases[name]())
            except TimeoutError:
                raise AssertionError(f"{name!r} did not end within {CASE_TIMEOUT_S:.0f} s") from None

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self, ours: str, theirs: str) -> float:
        """How much faster ours is."""
        pairs = zip(self.seconds[ours], self.seconds[theirs], strict=True)
        return statistics.median(their / our for our, their in pairs)


async def play_round(figures: Figures, number: int, urls: list[str], raws: dict[str, Raw]) -> None:
    wire = [os.urandom(WIRE_BYTES) for _ in range(SEGMENTS)]
    small = [os.urandom(SMALL_BYTES) for _ in range(SMALL_MESSAGES)]
    large = os.urandom(SEGMENT_BYTES * SEGMENTS)
    channels = Channels(urls)
    await channels.open(f"/bench/1/channel{number}/proto")

    def carried(name: str, raw: Raw, payloads: list[bytes]) -> Callable[[], Awaitable[float]]:
        return lambda: raw.carry(f"/bench/1/{name.replace(' ', '').replace(',', '')}{number}/proto", payloads)

    cases = {name: carried(name, raw, wire) for name, raw in raws.items()}
    cases["channel"] = lambda: channels.carry([large])
    await figures.play(number, cases)
    await figures.play(
        number,
        {"small raw": carried("small", raws["raw"], small), "small channel": lambda: channels.carry(small)},
    )
    await figures.play(
        number,
        {"ping raw": lambda: raws["raw"].ping(f"/bench/1/ping{number}/proto"), "ping channel": channels.ping},
    )
    await channels.close()


async def measure(rounds: int) -> tuple[Figures, dict[str, Any]]:
    load_before = os.getloadavg()[0]
    figures = Figures()
    with tempfile.TemporaryDirectory() as directory:
        publisher = WakuServer(Path(directory) / "publisher", "publisher")
        with publisher, WakuServer(Path(directory) / "receiver", "receiver", peers=(publisher,)) as receiver:
            urls = [publisher.url, receiver.url]
            await asyncio.sleep(2)
            idle = await idle_share(receiver.url)
            async with aiohttp.ClientSession() as session, httpx.AsyncClient(timeout=10) as client:
                raws = {
                    "raw": Raw(PlainClient(session, urls), urls, with_echo=True),
                    "raw, our codec": Raw(NativeClient(session, urls), urls, with_echo=True),
                    "httpx": Raw(HttpxClient(client, urls), urls, with_echo=False),
                }
                # The first round warms everything up.
                await play_round(Figures(), 0, urls, raws)
                for number in range(1, rounds + 1):
                    await play_round(figures, number, urls, raws)
    return figures, {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}",
        "load": [load_before, os.getloadavg()[0]],
        "rounds": rounds,
        "idle_share": idle,
        "seconds": figures.seconds,
    }


def table(figures: Figures, found: dict[str, Any]) -> str:
    def row(what: str, *cells: str) -> str:
        return f"| {what} | {' | '.join(cells)} |"

    def times(ours: str, theirs: str) -> str:
        return f"{figures.ratio(ours, theirs):.2f} x"

    rows = [
        row("what", "", "channel over it"),
        row("---", "---", "---"),
        row("100 KB segments a second: channel", f"{SEGMENTS / figures.median('channel'):.0f}", ""),
        *(
            row(
                f"100 KB segments a second: {name}",
                f"{SEGMENTS / figures.median(name):.0f}",
                times("channel", name),
            )
            for name in ("raw", "httpx", "raw, our codec")
        ),
        row("100 B messages a second: channel", f"{SMALL_MESSAGES / figures.median('small channel'):.0f}", ""),
        row(
            "100 B messages a second: raw",
            f"{SMALL_MESSAGES / figures.median('small raw'):.0f}",
            times("small channel", "small raw"),
        ),
        row("100 B, p50 from `send` to received, ms: channel", f"{figures.median('ping channel') * 1e3:.1f}", ""),
        row("100 B, p50 from post to polled, ms: raw", f"{figures.median('ping raw') * 1e3:.1f}", ""),
        row("processor time of an idle channel, share of a core", f"{found['idle_share']:.2%}", ""),
    ]
    quiet = "" if found["load"][0] < QUIET_LOAD else " The machine was not quiet: the ratios tell more than the rates."
    return f"""# Channels through two go-waku nodes

{found["machine"]}; load of the machine {found["load"][0]:.1f} before, {found["load"][1]:.1f} after (its own work
included); medians of {found["rounds"]} interleaved rounds. Command: `python -m benches.python.waku_rest`.

Two go-waku v0.10.0 nodes on loopback, without a store. Both nodes, publisher and receiver share the cores. The raw
cases empty the publisher's queue of its own messages too, httpx does not.{quiet}

{chr(10).join(rows)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, required=True, help="without its ending: .json and .md are written")
    options = parser.parse_args()
    figures, found = asyncio.run(measure(options.rounds))
    options.output.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    options.output.with_suffix(".md").write_text(table(figures, found))
    print(table(figures, found))


if __name__ == "__main__":
    main()
