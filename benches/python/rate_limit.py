"""What a rate limit leaves for messages and for acknowledgements: `python -m benches.python.rate_limit`.

One participant of a channel has a limit. It sends messages of its own and hears those of others, which it acknowledges;
both take places of one quota. For each case: how late its own messages arrive, how long those of others wait for an
acknowledgement, and how often they are sent again meanwhile. In virtual time and from a seed. `--output NAME` also
writes benches/results/NAME.json and NAME.md, `--beside FILE` shows the rows of another run, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import statistics
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from shardwire import ChannelConfig, RateLimitConfig, ReliableChannel, RequestId, create_reliable_channel
from shardwire.events import MessageDeliveredEvent, MessageReceivedEvent
from shardwire.node import MemoryNetwork, NetworkConditions, run_virtual

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "/shardwire/1/bench/proto"
MESSAGE_BYTES = 60
EPOCH_S = 600
EPOCHS = 3
LIMIT_MS = 10_000_000
SEED = 1


@dataclass(frozen=True)
class Case:
    """A participant under a limit, and those whom it hears.

    Attributes:
        quota: Places of an epoch.
        own: Its own messages in an epoch.
        at_once: Whether those come together, every ten minutes, and not evenly.
        others: Participants without a limit.
        per_s: Their messages a second in all.
        loss: What each receiver loses.
    """

    quota: int
    own: int
    at_once: bool
    others: int
    per_s: float
    loss: float = 0.0


CASES = [
    Case(60, 40, False, 1, 2.5),
    Case(60, 40, False, 1, 0.2),
    Case(60, 40, False, 5, 2.5),
    Case(60, 0, False, 1, 2.5),
    Case(60, 50, True, 1, 0.5),
    Case(600, 300, True, 1, 2.5),
    Case(60, 55, False, 1, 0.5, 0.1),
]


@dataclass
class Waits:
    """Seconds that messages waited."""

    began: dict[bytes | RequestId, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def end(self, of: bytes | RequestId) -> None:
        if of in self.began:
            self.seconds.append(asyncio.get_running_loop().time() - self.began.pop(of))

    def begin(self, of: bytes | RequestId) -> None:
        self.began[of] = asyncio.get_running_loop().time()


async def play(case: Case) -> dict[str, Any]:
    network = MemoryNetwork(NetworkConditions(loss=case.loss, delay_ms=(20, 200)), seed=SEED)
    rng, loop = random.Random(SEED), asyncio.get_running_loop()
    limit = RateLimitConfig(enabled=True, messages_per_epoch=case.quota, epoch_size_ms=EPOCH_S * 1000)
    own, heard = Waits(), Waits()
    channels: list[ReliableChannel] = []
    for number in range(case.others + 1):
        node = network.create_node(f"member {number}")
        await node.start()
        config = ChannelConfig.logos()
        config = config if number else replace(config, rate_limit=limit)
        rng_of = random.Random(f"{SEED}/{number}")
        channels.append(await create_reliable_channel(node, "bench", TOPIC, node.name, config=config, rng=rng_of))
    limited, *others = channels

    def on_received(event: MessageReceivedEvent) -> None:
        own.end(event.message)

    def on_delivered(event: MessageDeliveredEvent) -> None:
        heard.end(event.request_id)

    others[0].on_message_received(on_received)
    for channel in others:
        channel.on(MessageDeliveredEvent, on_delivered)
    end = loop.time() + EPOCHS * EPOCH_S

    async def send_own() -> None:
        number = 0
        while loop.time() < end:
            for _ in range(case.own if case.at_once else 1):
                message = number.to_bytes(8, "big") + bytes(MESSAGE_BYTES - 8)
                own.begin(message)
                await limited.send(message)
                number += 1
            await asyncio.sleep(EPOCH_S if case.at_once else EPOCH_S / case.own)

    async def speak(channel: ReliableChannel) -> None:
        while loop.time() < end:
            await asyncio.sleep(rng.expovariate(case.per_s / case.others))
            heard.begin(await channel.send(rng.randbytes(MESSAGE_BYTES)))

    await asyncio.gather(*map(speak, others), *([send_own()] if case.own else []))
    await asyncio.sleep(2 * EPOCH_S)
    again = sum(channel.stats()["dispatched_retransmission"] for channel in others)
    syncs = limited.stats()["dispatched_sync"]
    for channel in channels:
        await channel.close()
    return {
        **asdict(case),
        "own_late_s": spread(own),
        "acknowledged_after_s": spread(heard),
        "unacknowledged": len(heard.began),
        "sent_again": again,
        "syncs": syncs,
    }


def spread(waits: Waits) -> list[float]:
    """The median, the ninth decile and the longest; none where nothing waited."""
    if not waits.seconds:
        return []
    deciles = statistics.quantiles(waits.seconds, n=10)
    return [round(value, 1) for value in (deciles[4], deciles[8], max(waits.seconds))]


def as_markdown(rows: list[dict[str, Any]], beside: list[dict[str, Any]] | None) -> str:
    lines = [
        "# Messages and acknowledgements under a rate limit",
        "",
        f"`python -m benches.python.rate_limit`: messages of {MESSAGE_BYTES} B, {EPOCHS} epochs of {EPOCH_S} s,",
        "delays of 20 to 200 ms, in virtual time. Seconds: median, ninth decile, longest.",
        "",
        "| quota | own messages | others, messages a second | loss | | own arrive after, s "
        "| others' are acknowledged after, s | sent again by them | syncs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for number, row in enumerate(rows):
        own = f"{row['own']} at once" if row["at_once"] else str(row["own"])
        case = f"{row['quota']} | {own} | {row['others']}, {row['per_s']} | {row['loss']:.0%}"
        runs = [("now", row)] if beside is None else [("before", beside[number]), ("now", row)]
        lines += [f"| {case} | {when} | {told(run)} |" for when, run in runs]
    return "\n".join(lines) + "\n"


def told(row: dict[str, Any]) -> str:
    own, heard = (" / ".join(f"{value:g}" for value in row[name]) for name in ("own_late_s", "acknowledged_after_s"))
    return f"{own or '-'} | {heard} | {row['sent_again']} | {row['syncs']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", metavar="NAME", help="also write benches/results/NAME.json and NAME.md")
    parser.add_argument("--beside", metavar="FILE", type=Path, help="rows of another run, as JSON, that are shown too")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    rows = []
    for case in CASES:
        rows.append(run_virtual(play(case), limit_ms=LIMIT_MS))
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
