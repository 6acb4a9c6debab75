"""Channels over NATS and MQTT beside their clients alone: `PYTHONPATH=tests python benches/python/brokers.py`.

First messages of 100 KB from one participant to another, both in this process and on its event loop, through a real
server; the library alone does the same between two of its clients: as many as it takes at once, and one after the
other, each confirmed by the server before the next. Rounds are interleaved, and what counts is the median of their
ratios. Then, on networks without a store, how soon a participant that was away for a minute has what it missed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import os
import platform
import statistics
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
from interop.live.networks import LiveNetwork, MqttNetwork, NatsNetwork, ServerNetwork, UdpNetwork
from interop.live.processes import Process
from interop.live.scenarios import World
from live_servers import LiveServer, Mosquitto, NatsServer
from nats.aio.client import Client as NatsClient
from tcp_relay import TcpRelay

from shardwire import ChannelConfig, MemoryPersistence, SdsConfig, close_channel, create_reliable_channel, keccak256
from shardwire.node import MqttNode, NatsNode
from shardwire.node.transport import TransportNode

MESSAGE_BYTES = 100_000
MESSAGES = 200
ROUNDS = 11
RETURNS = 5
TOPIC = "/shardwire/1/bench/proto"
ABSENT_S = 60.0
MISSED_MESSAGES = 20
MISSED_BYTES = 10_000
RESULTS = Path(__file__).resolve().parent.parent / "results"


class Side(ABC):
    """One way of carrying the messages of a round."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def carry(self, payloads: list[bytes]) -> None:
        """Sends them, and returns when the other end has all of them."""

    @abstractmethod
    async def close(self) -> None: ...


class Channels(Side):
    """Two channels on two nodes."""

    def __init__(self, nodes: list[TransportNode]) -> None:
        self._nodes = nodes

    async def open(self) -> None:
        self._channels = []
        for name, node in zip(("alice", "bob"), self._nodes, strict=True):
            await node.start()
            config = ChannelConfig.logos(sds=SdsConfig(persistence=MemoryPersistence()))
            if not node.has_store:
                config = config.without_store(members=2)
            self._channels.append(await create_reliable_channel(node, "bench", TOPIC, name, config=config))
        self._arrived = asyncio.Semaphore(0)
        self._channels[1].on_message_received(lambda event: self._arrived.release())

    async def carry(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            await self._channels[0].send(payload)
        for _ in payloads:
            await self._arrived.acquire()

    async def close(self) -> None:
        for channel, node in zip(self._channels, self._nodes, strict=True):
            await close_channel(channel)
            await node.stop()


class RawNats(Side):
    """Two clients of nats-py."""

    subject = "raw"
    confirmed = False

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        self._publisher, self._subscriber = NatsClient(), NatsClient()
        await self._publisher.connect(self._url)
        await self._subscriber.connect(self._url)
        self._arrived = asyncio.Semaphore(0)

        async def arrived(message: Any) -> None:
            self._arrived.release()

        await self._subscriber.subscribe(self.subject, cb=arrived, pending_bytes_limit=1 << 30)
        await self._subscriber.flush()

    async def carry(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            await self._publisher.publish(self.subject, payload)
            if self.confirmed:
                await self._publisher.flush()
        await self._publisher.flush()
        for _ in payloads:
            await self._arrived.acquire()

    async def close(self) -> None:
        await self._publisher.close()
        await self._subscriber.close()


class ConfirmedNats(RawNats):
    """The same, each confirmed before the next."""

    subject = "confirmed"
    confirmed = True


class RawJetStream(RawNats):
    """The same, where a stream keeps each message and says so."""

    async def open(self) -> None:
        await super().open()
        self._jetstream = self._publisher.jetstream()
        await self._jetstream.add_stream(name=self.subject, subjects=[self.subject], max_bytes=1 << 30)

    async def carry(self, payloads: list[bytes]) -> None:
        if self.confirmed:
            for payload in payloads:
                await self._jetstream.publish(self.subject, payload)
        else:
            acknowledgements = [await self._jetstream.publish_async(self.subject, payload) for payload in payloads]
            await asyncio.gather(*acknowledgements)
        for _ in payloads:
            await self._arrived.acquire()


class ConfirmedJetStream(RawJetStream):
    """The same, each confirmed before the next."""

    subject = "confirmed"
    confirmed = True


class RawPaho(Side):
    """Two clients of paho-mqtt with QoS 1, each on a thread of its own, as the library is meant to be used."""

    topic = "paho"

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        self._arrived = threading.Semaphore(0)
        self._clients = []
        for _ in range(2):
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
            client.connect("127.0.0.1", self._port)
            client.loop_start()
            self._clients.append(client)
        self._clients[1].on_message = lambda *_: self._arrived.release()
        self._clients[1].subscribe(self.topic, qos=1)
        await asyncio.sleep(0.5)

    async def carry(self, payloads: list[bytes]) -> None:
        def run() -> None:
            for payload in payloads:
                self._clients[0].publish(self.topic, payload, qos=1)
            for _ in payloads:
                self._arrived.acquire()

        await asyncio.to_thread(run)

    async def close(self) -> None:
        for client in self._clients:
            client.disconnect()
            client.loop_stop()


class RawAiomqtt(Side):
    """Two clients of aiomqtt with QoS 1."""

    topic = "aiomqtt"
    confirmed = False

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        self._clients = [aiomqtt.Client("127.0.0.1", self._port, protocol=aiomqtt.ProtocolVersion.V5) for _ in range(2)]
        for client in self._clients:
            client.pending_calls_threshold = MESSAGES
            await client.__aenter__()
        await self._clients[1].subscribe(self.topic, qos=1)
        self._arrived = asyncio.Semaphore(0)
        self._reading = asyncio.create_task(self._read())

    async def carry(self, payloads: list[bytes]) -> None:
        if self.confirmed:
            for payload in payloads:
                await self._clients[0].publish(self.topic, payload, qos=1)
        else:
            await asyncio.gather(*(self._clients[0].publish(self.topic, payload, qos=1) for payload in payloads))
        for _ in payloads:
            await self._arrived.acquire()

    async def close(self) -> None:
        self._reading.cancel()
        for client in self._clients:
            await client.__aexit__(None, None, None)

    async def _read(self) -> None:
        async for _ in self._clients[1].messages:
            self._arrived.release()


class ConfirmedAiomqtt(RawAiomqtt):
    """The same, each confirmed before the next."""

    topic = "confirmed"
    confirmed = True


class Hashes(Side):
    """What sender and receiver have to hash: each the message with Keccak-256 and its envelope with SHA-256."""

    async def open(self) -> None:
        pass

    async def carry(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            for _ in range(2):
                keccak256(payload)
                hashlib.sha256(payload).digest()

    async def close(self) -> None:
        pass


async def compare(server: LiveServer, sides: dict[str, Side], rounds: int) -> dict[str, list[float]]:
    """Seconds of each round, by side."""
    with server:
        for side in sides.values():
            await side.open()
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        # The first round warms up.
        for number in range(rounds + 1):
            payloads = [os.urandom(MESSAGE_BYTES) for _ in range(MESSAGES)]
            # Each goes first as often as the others.
            names = list(sides)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                start = time.perf_counter()
                await sides[name].carry(payloads)
                if number:
                    seconds[name].append(time.perf_counter() - start)
                # What is acknowledged afterwards is not the next one's to carry.
                await asyncio.sleep(0.5)
        for side in sides.values():
            await side.close()
    return seconds


def measure_throughput(directory: Path, rounds: int) -> list[dict[str, Any]]:
    nats, jetstream, mqtt = (
        NatsServer(directory / "nats"),
        NatsServer(directory / "jetstream", jetstream=True),
        Mosquitto(directory / "mqtt", settings="max_queued_messages 0"),
    )

    def nats_nodes(server: NatsServer) -> list[TransportNode]:
        return [NatsNode(server.url), NatsNode(server.url)]

    cases: list[tuple[str, LiveServer, Any]] = [
        (
            "NATS",
            nats,
            lambda: {
                "nats-py": RawNats(nats.url),
                "nats-py, confirmed": ConfirmedNats(nats.url),
                "hashes": Hashes(),
                "channel": Channels(nats_nodes(nats)),
            },
        ),
        (
            "NATS with JetStream",
            jetstream,
            lambda: {
                "nats-py": RawJetStream(jetstream.url),
                "nats-py, confirmed": ConfirmedJetStream(jetstream.url),
                "channel": Channels(nats_nodes(jetstream)),
            },
        ),
        (
            "MQTT",
            mqtt,
            lambda: {
                "paho-mqtt": RawPaho(mqtt.port),
                "aiomqtt": RawAiomqtt(mqtt.port),
                "aiomqtt, confirmed": ConfirmedAiomqtt(mqtt.port),
                "channel": Channels([MqttNode(mqtt.url), MqttNode(mqtt.url)]),
            },
        ),
    ]
    rows = []
    for network, server, make_sides in cases:

        async def run(server: LiveServer = server, make_sides: Any = make_sides) -> dict[str, list[float]]:
            return await compare(server, make_sides(), rounds)

        seconds = asyncio.run(run())
        for library in (name for name in seconds if name != "channel"):
            ratios = [alone / ours for alone, ours in zip(seconds[library], seconds["channel"], strict=True)]
            rows.append(
                {
                    "network": network,
                    "library": library,
                    "library_mb_per_s": _mb_per_s(seconds[library]),
                    "channel_mb_per_s": _mb_per_s(seconds["channel"]),
                    "channel_over_library": round(statistics.median(ratios), 3),
                    "least_ratio": round(min(ratios), 3),
                    "greatest_ratio": round(max(ratios), 3),
                }
            )
    return rows


def _mb_per_s(seconds: list[float]) -> float:
    return round(MESSAGES * MESSAGE_BYTES / statistics.median(seconds) / 1e6, 1)


class Away(ABC):
    """A network without a store of which one participant, bob, is away for a while."""

    def __init__(self, network: LiveNetwork) -> None:
        self.network = network

    @abstractmethod
    async def go(self, bob: Process) -> None: ...

    @abstractmethod
    async def come_back(self, bob: Process) -> None:
        """Returns when its node is connected again."""


class Killed(Away):
    """Its process ends, and starts again with its database."""

    async def go(self, bob: Process) -> None:
        await bob.kill()

    async def come_back(self, bob: Process) -> None:
        await bob.start()


class CutOff(Away):
    """Its connection is cut: process and channel go on. The broker keeps nothing for it."""

    def __init__(self, network: ServerNetwork) -> None:
        super().__init__(network)
        self._relay = TcpRelay(network.server.port)
        node = network.node

        def relayed(name: str) -> dict[str, Any]:
            settings = node(name)
            if name == "bob":
                url = settings["arguments"]["url"]
                settings["arguments"]["url"] = url.replace(str(network.server.port), str(self._relay.port))
                if settings["node"] == "MqttNode":
                    settings["arguments"]["session_expiry_ms"] = 0
            return settings

        network.node = relayed  # type: ignore[method-assign]
        start = network.start

        async def start_both() -> None:
            await start()
            await self._relay.start()

        network.start = start_both  # type: ignore[method-assign]

    async def go(self, bob: Process) -> None:
        self._relay.cut()
        await bob.until(lambda: _last_state(bob) == "Disconnected", "it is disconnected")

    async def come_back(self, bob: Process) -> None:
        self._relay.restore()
        await bob.until(lambda: _last_state(bob) == "Connected", "it is connected")


class PathCut(Away):
    """The path between the two is cut."""

    async def go(self, bob: Process) -> None:
        await self.network.crash()
        await bob.until(lambda: _last_state(bob) == "Disconnected", "it is disconnected")

    async def come_back(self, bob: Process) -> None:
        await self.network.start_again()
        await bob.until(lambda: _last_state(bob) == "Connected", "it is connected")


def _last_state(process: Process) -> str:
    states = [line["state"] for line in process.told if line["event"] == "connection"]
    return states[-1] if states else "Connected"


async def absent(away: Away, directory: Path) -> float:
    """Seconds from the return of a participant until it has all that it missed."""
    async with World(away.network, directory, 0) as world:
        alice, bob = await world.both(kept=True)
        await alice.send(0, 5, MISSED_BYTES)
        await bob.until(lambda: bob.numbers("received") >= set(range(5)), "it received the first messages")
        await asyncio.sleep(5)
        await away.go(bob)
        gone_s = time.monotonic()
        for number in range(5, 5 + MISSED_MESSAGES):
            await alice.send(number, 1, MISSED_BYTES)
            await asyncio.sleep(1)
        await asyncio.sleep(max(0.0, ABSENT_S - (time.monotonic() - gone_s)))
        await away.come_back(bob)
        back_s = time.monotonic()
        wanted = set(range(5 + MISSED_MESSAGES))
        await bob.until(lambda: bob.numbers("received") >= wanted, "it received what it missed", within_s=300)
        seconds = time.monotonic() - back_s
        bob.check_received(wanted)
        return seconds


def measure_absence(directory: Path, returns: int) -> list[dict[str, Any]]:
    # MQTT under a new client id in each process, so that the broker keeps nothing for it.
    ways: dict[tuple[str, str], Any] = {
        ("NATS", "cut off"): lambda place: CutOff(NatsNetwork(place, jetstream=False)),
        ("NATS", "killed"): lambda place: Killed(NatsNetwork(place, jetstream=False)),
        ("MQTT", "cut off"): lambda place: CutOff(MqttNetwork(place, named=False)),
        ("MQTT", "killed"): lambda place: Killed(MqttNetwork(place, named=False)),
        ("UDP", "cut off"): lambda place: PathCut(UdpNetwork(place, loss=0.0)),
        ("UDP", "killed"): lambda place: Killed(UdpNetwork(place, loss=0.0)),
    }
    seconds: dict[tuple[str, str], list[float]] = {way: [] for way in ways}

    async def one(way: tuple[str, str], number: int) -> None:
        place = directory / f"{'-'.join(way).replace(' ', '-')}-{number}"
        seconds[way].append(await absent(ways[way](place), place))

    async def all_ways() -> None:
        for number in range(returns):
            await asyncio.gather(*(one(way, number) for way in ways))

    asyncio.run(all_ways())
    return [
        {
            "network": network,
            "how": how,
            "median_s": round(statistics.median(seconds[network, how]), 2),
            "longest_s": round(max(seconds[network, how]), 2),
            "returns": returns,
        }
        for network, how in ways
    ]


def as_markdown(result: dict[str, Any]) -> str:
    lines = [
        "# Channels over brokers",
        "",
        f"{result['machine']}. Command: `PYTHONPATH=tests python benches/python/brokers.py --output NAME`.",
        "",
        f"{MESSAGES} messages of {MESSAGE_BYTES // 1_000} KB a round, from one participant to another in the same",
        "process, through a real server on the same machine, beside two clients of the library that do the same: as",
        "many as they take at once, or each confirmed before the next; QoS 1 on MQTT. The ratio is the",
        'median over interleaved rounds. "hashes" is what both ends of a channel have to hash, and nothing else.',
        "",
        "| network | beside | its MB/s | channel MB/s | channel / it | least | greatest |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["throughput"]:
        lines.append(
            f"| {row['network']} | {row['library']} | {row['library_mb_per_s']:.0f} | {row['channel_mb_per_s']:.0f} | "
            f"{row['channel_over_library']:.2f} | {row['least_ratio']:.2f} | {row['greatest_ratio']:.2f} |"
        )
    lines += [
        "",
        f"A participant is away for {ABSENT_S:.0f} s, without a store, and misses {MISSED_MESSAGES}",
        f"messages of {MISSED_BYTES // 1_000} KB: its connection is cut, or its process is killed and starts again",
        "with its database. How long from its return until it has all of them.",
        "",
        "| network | away by | median s | longest s | returns |",
        "|---|---|---|---|---|",
    ]
    for row in result["absence"]:
        lines.append(
            f"| {row['network']} | {row['how']} | {row['median_s']:.1f} | {row['longest_s']:.1f} | {row['returns']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", help="also write benches/results/NAME.json and NAME.md", metavar="NAME")
    parser.add_argument("--note", default="", help="what else to say of the machine, in the results")
    parser.add_argument("--part", choices=("throughput", "absence"), help="measure this part alone")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--returns", type=int, default=RETURNS)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        result = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}"
            + (f", {arguments.note}" if arguments.note else ""),
            "throughput": measure_throughput(place, arguments.rounds) if arguments.part != "absence" else [],
            "absence": measure_absence(place, arguments.returns) if arguments.part != "throughput" else [],
        }
    print(as_markdown(result))
    if arguments.output:
        path = RESULTS / arguments.output
        path.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
        path.with_suffix(".md").write_text(as_markdown(result))


if __name__ == "__main__":
    main()
