"""The SDS machine beside @waku/sds on the same messages, in one run: `python benches/bench_sds.py`.

Whole machine: decode, log, filter, causal order, events, and records for a persistence in memory, committed in groups
of 20. Processor time of one core. The peer runs where `tests/interop/install_peers.py` was run. `--save NAME` writes
benches/results/NAME.json and .md; `--quick` takes a tenth of the messages. Cases also run with pytest-benchmark.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from shardwire._native import BloomFilter, HistoryEntry, SdsMessage
from shardwire.config import ChannelConfig
from shardwire.persistence import MemoryPersistence
from shardwire.sds import ContentReceived, MessageChannel, Now, SendReleased, TransmitKind

ROOT = Path(__file__).parents[1]
EPOCH_MS = 1_760_000_000_000
LOGOS = ChannelConfig.logos()
GROUP = 20
ROUNDS = 9


def at(monotonic_ms: int) -> Now:
    return Now(monotonic_ms, EPOCH_MS + monotonic_ms)


def machine(name: str) -> MessageChannel:
    return MessageChannel("rooms", name, LOGOS.sds, LOGOS.sync, now=at(0), rng=random.Random(1))


def messages(count: int, history_size: int = 2, bloom_filter: bytes | None = None) -> list[bytes]:
    """`count` messages of 100 bytes in order."""
    history: list[HistoryEntry] = []
    wires = []
    for number in range(count):
        message_id = f"{number + 1:032x}.0"
        message = SdsMessage(
            sender_id="alice",
            message_id=message_id,
            channel_id="rooms",
            lamport_timestamp=EPOCH_MS + number,
            causal_history=history,
            bloom_filter=bloom_filter,
            content=b"x" * 100,
        )
        wires.append(message.encode())
        history = [*history, HistoryEntry(message_id, bytes(32), "alice")][-history_size:]
    return wires


def shuffled(wires: list[bytes], window: int = 20) -> list[bytes]:
    rng = random.Random(7)
    out = []
    for start in range(0, len(wires), window):
        part = wires[start : start + window]
        rng.shuffle(part)
        out += part
    return out


def drain(receiver: MessageChannel, now: Now) -> int:
    released = 0
    while (event := receiver.poll_event()) is not None:
        if type(event) is ContentReceived:
            receiver.handle_send_reconstructed(event.sender_id, event.send_id or event.message_id, 1, now)
        elif type(event) is SendReleased:
            released += 1
    return released


def transmit(machine: MessageChannel, now: Now) -> None:
    """Sends what is due: the network takes it at once."""
    while (transmit := machine.poll_transmit(now)) is not None:
        machine.handle_transmitted(transmit.transmit_id, None, now)


def receive(wires: list[bytes]) -> MessageChannel:
    """A participant that hears `wires` at 100 a second and keeps its records in memory."""
    receiver = machine("bobby")
    store = MemoryPersistence()
    released = 0
    for number, wire in enumerate(wires):
        now = at(number * 10)
        receiver.handle_message(wire, now)
        released += drain(receiver, now)
        if number % GROUP == GROUP - 1:
            transmit(receiver, now)
            store.apply("rooms", receiver.poll_persist())
    assert released == len(wires)
    return receiver


def send(count: int) -> None:
    """A participant that sends `count` messages; whenever its outgoing buffer is full, one sync acknowledges it."""
    sender = machine("alice")
    now = at(0)
    content = b"x" * 100
    store = MemoryPersistence()
    sent = 0
    waiting: list[str] = []
    while sent < count:
        while sent < count and sender.has_room():
            waiting.append(sender.send(f"{sent + 1:032x}", [content], contents_needed=1)[0])
            transmit = sender.poll_transmit(now, {TransmitKind.FIRST})
            assert transmit is not None
            sender.handle_transmitted(transmit.transmit_id, bytes(32), now)
            sent += 1
            if sent % GROUP == 0:
                store.apply("rooms", sender.poll_persist())
        sync = SdsMessage(
            sender_id="bobby",
            message_id=f"sync-{sent}",
            channel_id="rooms",
            lamport_timestamp=EPOCH_MS,
            causal_history=[HistoryEntry(message_id) for message_id in waiting],
        )
        sender.handle_message(sync.encode(), now)
        waiting.clear()
        while sender.poll_event() is not None:
            pass
    assert sender.stats()["outgoing_unacknowledged"] == 0


IN_ORDER = "received in order"
SENT = "sent, buffer at its limit"
FEW, MANY = "received in order, 2,000", "received in order, 200,000 (the peer: 10,000)"

# What is received in each case.
WIRES: dict[str, Callable[[int], list[bytes]]] = {
    IN_ORDER: messages,
    "received in order, filter on every message": lambda count: messages(count, bloom_filter=BloomFilter().to_bytes()),
    "received shuffled in windows of 20": lambda count: shuffled(messages(count)),
}


def prepared(case: str, count: int) -> Callable[[], object]:
    """What is timed of a case."""
    if case == SENT:
        return lambda: send(count)
    wires = WIRES[case](count)
    return lambda: receive(wires)


@pytest.mark.parametrize("case", [*WIRES, SENT])
def test_sds(benchmark, case: str) -> None:  # type: ignore[no-untyped-def]
    count = 2_000
    benchmark.extra_info["messages"] = count
    benchmark.pedantic(prepared(case, count), rounds=3)


def per_second(case: str, count: int) -> float:
    run = prepared(case, count)
    gc.collect()
    begin = time.process_time()
    run()
    return count / (time.process_time() - begin)


def best_rates(inputs: dict[str, list[bytes]], scale: int) -> tuple[dict[str, float], dict[str, float]]:
    """Our rates and the peer's, by figure: of each the best of all rounds, which go through every case, ours and the
    peer's in turn. Whatever else ran on the machine can only slow one down."""
    ours: dict[str, float] = {}
    theirs: dict[str, float] = {}

    def keep(rates: dict[str, float], figure: str, rate: float | None) -> None:
        if rate is not None:
            rates[figure] = max(rates.get(figure, 0.0), rate)

    for number in range(ROUNDS):
        for case, wires in inputs.items():
            answer = peer(wires, 2_000 // scale) or {}
            keep(theirs, case, answer.get("receivePerSecond"))
            keep(theirs, SENT, answer.get("sendPerSecond"))
            keep(theirs, "bytes on the wire", answer.get("wireBytesPerMessage"))
            keep(ours, case, per_second(case, 20_000 // scale))
        keep(ours, SENT, per_second(SENT, 20_000 // scale))
        for figure, count in ((FEW, 2_000), (MANY, 200_000)):
            keep(ours, figure, per_second(IN_ORDER, count // scale))
        if number % 4 == 0:
            # Longer than all the others together.
            answer = peer(messages(10_000 // scale), 0) or {}
            keep(theirs, MANY, answer.get("receivePerSecond"))
            keep(theirs, "bytes of memory", answer.get("bytesPerMessage"))
    return ours, theirs


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def hold(wires: list[bytes]) -> MessageChannel:
    """A participant that hears `wires`, each in an object of its own, and stores nothing."""
    receiver = machine("bobby")
    for number, wire in enumerate(wires):
        receiver.handle_message(bytes(bytearray(wire)), at(number * 10))
        drain(receiver, at(number * 10))
        if number % GROUP == GROUP - 1:
            transmit(receiver, at(number * 10))
            receiver.poll_persist()
    return receiver


def memory_per_message(count: int) -> float:
    """Bytes that a process has more for a message beyond its content, in Rust and in Python, after `count` of them."""
    wires = messages(count)
    # The pages of a module's code come into memory as they run first: they are no message's.
    hold(wires[: 25 * GROUP])
    gc.collect()
    before_bytes = resident_bytes()
    receiver = hold(wires)
    gc.collect()
    return (resident_bytes() - before_bytes) / receiver.stats()["log"] - 100


def memory_in_a_new_process(count: int) -> float:
    """In this one there may be room that earlier cases left."""
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        return processes.submit(memory_per_message, count).result()


def wire_overhead(participants: int, one_speaker: bool, seconds: int) -> tuple[float, int]:
    """(bytes beyond the content for a message, retransmissions): 100 messages a second over all, no loss."""
    sys.path.insert(0, str(ROOT / "tests"))
    from sds_exchange import Exchange, Party

    names = [f"user{number}" for number in range(participants)]
    group = [Party(name) for name in names]
    exchange = Exchange(group, delay_ms=(5, 40))
    rng = random.Random(3)
    count = seconds * 100
    for number in range(count):
        (group[0] if one_speaker else rng.choice(group)).send(f"{number}".ljust(94), at(number * 10))
        exchange.run(number * 10 + 9)
    exchange.run(count * 10 + 10_000)
    resent = sum(party.count(TransmitKind.RETRANSMISSION) for party in group)
    return exchange.bytes_sent / count - 100, resent


def peer(wires: list[bytes], sends: int) -> dict[str, float] | None:
    """What @waku/sds 0.0.8 makes of `wires`; None where it is not installed."""
    sys.path.insert(0, str(ROOT / "tests"))
    from interop.install_peers import answer_of

    framed = b"".join(struct.pack(">I", len(wire)) + wire for wire in wires)
    script = ROOT / "benches" / "sds_peer.mjs"
    answer: dict[str, float] | None = answer_of(script, "2", str(sends), node_options=["--expose-gc"], given=framed)
    return answer


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


class Report:
    """Rows of (figure, ours, target, the peer's, ours over theirs)."""

    def __init__(self) -> None:
        self.rows: list[dict[str, str | float | None]] = []

    def add(self, figure: str, unit: str, ours: float, target: str, theirs: float | None = None) -> None:
        self.rows.append({"figure": figure, "unit": unit, "ours": ours, "target": target, "waku_sds": theirs})
        print(self.line(self.rows[-1]), flush=True)

    @staticmethod
    def line(row: dict[str, str | float | None]) -> str:
        def shown(value: str | float | None) -> str:
            if not isinstance(value, float):
                return str(value or "")
            return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"

        ours, theirs = row["ours"], row["waku_sds"]
        ratio = f"{ours / theirs:,.3g}" if isinstance(ours, float) and isinstance(theirs, float) else ""
        cells = (row["figure"], row["unit"], shown(ours), row["target"], shown(theirs), ratio)
        return "| " + " | ".join(map(str, cells)) + " |"

    def save(self, name: str) -> None:
        run = {
            "commit": commit(),
            "machine": machine_name(),
            "load_average": round(os.getloadavg()[2], 1),
            "python": platform.python_version(),
            "rows": self.rows,
        }
        base = ROOT / "benches" / "results" / name
        base.with_suffix(".json").write_text(json.dumps(run, indent=1) + "\n")
        head = [
            "# Scalable Data Sync beside @waku/sds 0.0.8",
            "",
            f"Machine: {run['machine']}, {os.cpu_count()} virtual cores; load average over the last 15 minutes:",
            f"{run['load_average']}. Python {run['python']}. Commit {run['commit']}.",
            "Command: `python benches/bench_sds.py --save NAME`. Messages of 100 bytes, history 2; processor time of",
            f"one core, the best of {ROUNDS} rounds. The peer is given the same bytes in every round.",
            "",
            "| figure | unit | ours | target | @waku/sds | ours / theirs |",
            "|---|---|---|---|---|---|",
        ]
        base.with_suffix(".md").write_text("\n".join([*head, *map(self.line, self.rows)]) + "\n")


def machine_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", metavar="NAME")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    scale = 10 if arguments.quick else 1
    report = Report()
    ours, theirs = best_rates({case: wires(2_000) for case, wires in WIRES.items()}, scale)
    for case, target in zip([*WIRES, SENT], ("100,000", "60,000", "60,000", "60,000"), strict=True):
        report.add(case, "messages/s", ours[case], target, theirs.get(case))
    slowdown = theirs[MANY] / theirs[IN_ORDER] if theirs else None
    report.add("rate at 200,000 / rate at 2,000 (the peer: 10,000)", "ratio", ours[MANY] / ours[FEW], "0.75", slowdown)
    memory = memory_in_a_new_process(20_000)
    report.add("memory a message beyond its content", "bytes", memory, "1,024", theirs.get("bytes of memory"))
    for participants, target in ((3, "400"), (5, "600")):
        for one_speaker in (False, True):
            overhead, resent = wire_overhead(participants, one_speaker, 120 // scale)
            who = "one speaks" if one_speaker else "all speak"
            wire = theirs.get("bytes on the wire")
            report.add(f"on the wire beyond the content, {participants}, {who}", "bytes", overhead, target, wire)
            report.add(f"retransmissions, {participants}, {who}", "messages", float(resent), "0")
    if not theirs:
        print("@waku/sds is not installed: python tests/interop/install_peers.py")
    if arguments.save:
        report.save(arguments.save)


if __name__ == "__main__":
    main()
