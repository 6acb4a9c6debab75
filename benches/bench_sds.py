"""The SDS machine beside @waku/sds on the same messages: `python benches/bench_sds.py`, or with pytest-benchmark.

Whole machine: decode, log, filter, causal order, events, and records for a persistence in memory, committed in groups
of 20. Processor time of one core. The peer runs where `tests/interop/install_peers.py` was run.
"""

from __future__ import annotations

import base64
import gc
import json
import random
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from shardwire._native import BloomFilter, HistoryEntry, SdsMessage
from shardwire.config import ChannelConfig
from shardwire.sds import ContentReceived, MessageChannel, Now, SendReleased, TransmitKind

ROOT = Path(__file__).parents[1]
EPOCH_MS = 1_760_000_000_000
LOGOS = ChannelConfig.logos()
GROUP = 20


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


def receive(wires: list[bytes]) -> MessageChannel:
    """A participant that hears `wires` at 100 a second and keeps its records in memory."""
    receiver = machine("bobby")
    stored: dict[tuple[str, bytes], bytes | None] = {}
    released = 0
    for number, wire in enumerate(wires):
        now = at(number * 10)
        receiver.handle_message(wire, now)
        released += drain(receiver, now)
        if number % GROUP == GROUP - 1:
            while receiver.poll_transmit(now) is not None:
                pass
            stored.update(receiver.poll_persist())
    assert released == len(wires)
    return receiver


def send(count: int) -> None:
    """A participant that sends `count` messages; whenever its outgoing buffer is full, one sync acknowledges it."""
    sender = machine("alice")
    now = at(0)
    content = b"x" * 100
    sent = 0
    waiting: list[str] = []
    while sent < count:
        while sent < count and sender.has_room():
            waiting.append(sender.send(f"{sent + 1:032x}", [content], now, contents_needed=1)[0])
            transmit = sender.poll_transmit(now, {TransmitKind.FIRST})
            assert transmit is not None
            sender.handle_transmitted(transmit.transmit_id, bytes(32), now)
            sent += 1
            if sent % GROUP == 0:
                sender.poll_persist()
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


CASES = {
    "received in order": lambda count: (lambda wires: lambda: receive(wires))(messages(count)),
    "received in order, filter on every message": lambda count: (lambda wires: lambda: receive(wires))(
        messages(count, bloom_filter=BloomFilter().to_bytes())
    ),
    "received shuffled in windows of 20": lambda count: (lambda wires: lambda: receive(wires))(
        shuffled(messages(count))
    ),
    "sent, buffer at its limit": lambda count: lambda: send(count),
}


@pytest.mark.parametrize("case", CASES)
def test_sds(benchmark, case: str) -> None:  # type: ignore[no-untyped-def]
    count = 2_000
    benchmark.extra_info["messages"] = count
    benchmark.pedantic(CASES[case](count), rounds=3)


def per_second(case: str, count: int) -> float:
    run = CASES[case](count)
    best = 0.0
    for _ in range(3 if count <= 20_000 else 1):
        gc.collect()
        begin = time.process_time()
        run()
        best = max(best, count / (time.process_time() - begin))
    return best


def memory_per_message(count: int) -> float:
    """Bytes that the machine keeps for a message beyond its content."""
    wires = messages(count)
    gc.collect()
    tracemalloc.start()
    receiver = machine("bobby")
    for number, wire in enumerate(wires):
        receiver.handle_message(bytes(bytearray(wire)), at(number * 10))
        drain(receiver, at(number * 10))
        if number % GROUP == GROUP - 1:
            while receiver.poll_transmit(at(number * 10)) is not None:
                pass
            receiver.poll_persist()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return used / receiver.stats()["log"] - 100


def wire_overhead(participants: int, seconds: int = 120) -> tuple[float, int]:
    """(bytes beyond the content for a message, retransmissions): 100 messages a second over all, no loss."""
    sys.path.insert(0, str(ROOT / "tests"))
    from sds_exchange import Exchange, Party

    names = [f"user{number}" for number in range(participants)]
    group = [Party(name) for name in names]
    exchange = Exchange(group, delay_ms=(5, 40))
    rng = random.Random(3)
    count = seconds * 100
    for number in range(count):
        rng.choice(group).send(f"{number}".ljust(94), at(number * 10))
        exchange.run(number * 10 + 9)
    exchange.run(count * 10 + 10_000)
    resent = sum(party.count(TransmitKind.RETRANSMISSION) for party in group)
    return exchange.bytes_sent / count - 100, resent


def peer(wires: list[bytes], history_size: int) -> dict[str, float] | None:
    sys.path.insert(0, str(ROOT / "tests"))
    from interop.install_peers import installed, node_command

    if not installed():
        return None
    script = str(ROOT / "benches" / "sds_peer.mjs")
    lines = "\n".join(base64.b64encode(wire).decode() for wire in wires)
    done = subprocess.run(
        [*node_command(), script, str(history_size)], input=lines, capture_output=True, text=True, check=True
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    rates = {case: per_second(case, count) for case in CASES}
    for case, rate in rates.items():
        print(f"{case:45} {rate:>10,.0f}/s")
    few, many = per_second("received in order", 2_000), per_second("received in order", 200_000)
    print(f"{'rate at 200,000 over that at 2,000':45} {many / few:>10.2f}")
    print(f"{'memory a message beyond its content':45} {memory_per_message(20_000):>10,.0f} B")
    for participants in (3, 5):
        overhead, resent = wire_overhead(participants)
        print(f"{f'on the wire a message, {participants} participants':45} {overhead:>10,.0f} B, {resent} resent")
    theirs = peer(messages(2_000), 2)
    if theirs is None:
        print("@waku/sds is not installed: python tests/interop/install_peers.py")
        return
    received = theirs["receivePerSecond"]
    sent = theirs["sendPerSecond"]
    print(f"{'@waku/sds 0.0.8, received in order, 2,000':45} {received:>10,.0f}/s  (ours {few / received:,.0f}x)")
    ours = rates["sent, buffer at its limit"]
    print(f"{'@waku/sds 0.0.8, sent, 2,000':45} {sent:>10,.0f}/s  (ours {ours / sent:,.0f}x)")


if __name__ == "__main__":
    main()
