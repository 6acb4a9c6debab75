"""The guide's page of figures, out of the committed results: `python benches/figures.py`.

Writes `docs/guide/performance.md`; a test holds the page to the results. Where a kind of result was measured on several
days, the latest counts.
"""

from __future__ import annotations

import json
import statistics
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches" / "results"
PAGE = ROOT / "docs" / "guide" / "performance.md"

# Case, our candidate, peer: the rows of a table of rates.
CORE = [
    ("keccak256, one message of 1048576 B", "shardwire", "tiny-keccak"),
    ("keccak256, one message of 1048576 B", "shardwire", "keccak-asm"),
    ("keccak256_many, 64 messages of 100 KiB", "shardwire", "tiny-keccak"),
    ("keccak256_many, 64 messages of 100 KiB", "shardwire", "keccak-asm"),
    ("encode (10, 2)", "shardwire vandermonde", "reed-solomon-erasure simd-accel"),
    ("encode (64, 8)", "shardwire leopard", "reed-solomon-erasure simd-accel"),
    ("encode (64, 8)", "shardwire leopard", "reed-solomon-simd"),
    ("encode (128, 128)", "shardwire leopard", "reed-solomon-erasure simd-accel"),
    ("encode (128, 128)", "shardwire leopard", "reed-solomon-simd"),
    ("decode (64, 8), 8 lost", "shardwire leopard", "reed-solomon-erasure simd-accel"),
    ("decode (64, 8), 8 lost", "shardwire leopard", "reed-solomon-simd"),
]
PYTHON = [
    ("keccak256 of 102400 B", "shardwire", "safe-pysha3"),
    ("keccak256 of 102400 B", "shardwire", "pycryptodome"),
    ("keccak256_many, 64 messages of 102400 B", "shardwire", "safe-pysha3"),
    ("encode (10, 2), 200 sets", "shardwire vandermonde", "pyeclib isa_l_rs_vand"),
    ("encode (10, 2), 200 sets", "shardwire vandermonde", "zfec"),
    ("encode (10, 2), 200 sets", "shardwire leopard", "reed-solomon-leopard"),
    ("decode (10, 2), 2 lost, 200 sets", "shardwire vandermonde", "pyeclib isa_l_rs_vand"),
    ("decode (10, 2), 2 lost, 200 sets", "shardwire leopard", "reed-solomon-leopard"),
]
SEGMENTATION = ["segment, outputs dropped", "segment, outputs kept", "64 payloads, segment_many"]
REASSEMBLY = [
    "receive in order",
    "receive shuffled",
    "receive, 12 lost",
    "receive in order, 4 poisoned",
    "receive shuffled, 4 poisoned",
]

# What machines were measured, by the instructions that tell them apart, and how the results of each end.
MACHINES = {"With AVX-512 and GFNI": "avx512", "With AVX2 alone": "avx2"}

Run = dict[str, Any]


def latest(pattern: str) -> Path:
    """The last of the results with such a name: names begin with the day."""
    return max(RESULTS.glob(pattern))


def read(pattern: str) -> Run:
    run: Run = json.loads(latest(pattern).read_text())
    return run


def source(pattern: str, commit: str, machine: str) -> str:
    path = latest(pattern).with_suffix(".md")
    if not path.exists():
        path = path.parent / "README.md"
    has = machine.removesuffix("; without: ").replace("; ", ", ")
    return f"[All of them](../../{path.relative_to(ROOT)}); commit {commit}, {has}."


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)] + [""]


def rates(pattern: str, wanted: list[tuple[str, str, str]]) -> list[str]:
    """GB/s of ours and of peers in one run."""
    run = read(pattern)
    found = {(row["case"], row["candidate"]): row["gb_per_s"] for row in run["results"]}
    rows = [
        [case, ours, f"{found[case, ours]:.2f}", peer, f"{found[case, peer]:.2f}", f"{ratio:.2f}"]
        for case, ours, peer in wanted
        if (case, ours) in found and (case, peer) in found
        for ratio in [found[case, ours] / found[case, peer]]
    ]
    context = run["context"]
    head = ["case", "ours", "GB/s", "peer", "GB/s", "ratio"]
    return [*table(head, rows), source(pattern, context["commit"], context["machine"]), ""]


def passes(pattern: str, wanted: list[str]) -> list[str]:
    """How much of the speed of one hash pass over the same bytes is reached."""
    run = read(pattern)
    found = {row["case"]: row["ours_to_peer"] for row in run["results"]}
    rows = [[case, f"{found[case]:.2f}"] for case in wanted if case in found]
    context = run["context"]
    return [
        *table(["case", "speed, as a part of one pass"], rows),
        source(pattern, context["commit"], context["machine"]),
        "",
    ]


def sds() -> list[str]:
    run = read("*-sds.json")
    rows = [
        [row["figure"], row["unit"], plain(row["ours"]), plain(row["waku_sds"])]
        for row in run["rows"]
        if row["waku_sds"] is not None
    ]
    said = source("*-sds.json", run["commit"], run["machine"])
    return [*table(["figure", "unit", "ours", "@waku/sds 0.0.8"], rows), said, ""]


def channel(machine: str) -> list[str]:
    pattern = f"*-channel-goodput-{machine}"
    run = read(f"{pattern}.json")
    names = ["mb_per_s_of_processor_time", "floor_mb_per_s"]
    rows = [
        [
            row["persistence"],
            row["encryption"],
            *(f"{row[name]:.0f}" for name in names),
            f"{row['wire_per_payload']:.3f}",
        ]
        for row in run["one_process"]
    ]
    head = ["persistence", "encryption", "MB/s", "the hashes alone, MB/s", "wire bytes / payload bytes"]
    said = f"[All of them](../../{latest(f'{pattern}.md').relative_to(ROOT)}); {run['machine']}."
    return [*table(head, rows), said, ""]


def small_messages() -> list[str]:
    pattern = "*-small-messages"
    run = read(f"{pattern}.json")
    rows, at_once = [], []
    for case, rounds in run["ours"].items():
        medians = {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}
        rates = plain(medians["messages a second"]), plain(medians["processor time, us"])
        where, receivers, *several = case.split(", ")
        if several:
            at_once.append([where, receivers, *rates])
        else:
            rows.append([where, receivers, *rates, f"{medians['lone message, ms']:.1f}"])
    head = ["persistence", "to", "messages a second", "processor time a message, us", "a lone message, ms"]
    peer = []
    for case, figures in run["peer"].items():
        ours, theirs = figures["ours"], figures["theirs"]
        rates = [plain(theirs[name]) for name in ("messages a second", "processor time, us")]
        ratio = f"{ours['messages a second'] / theirs['messages a second']:.0f}"
        peer.append([*case.split(", "), *rates, f"{theirs['lone message, ms']:.1f}", ratio])
    return [
        *table(head, rows),
        *paragraph(
            """A hundred sent at once share a commit, and so do those that wait to be handed over. On the slow disk
            every commit takes 5 ms."""
        ),
        *table(head[:-1], at_once),
        *paragraph(
            """`ReliableChannel` of @waku/sdk keeps no state and hands every message to its node at once. What it takes
            for one grows with those before it."""
        ),
        *table(["to", "of", *head[2:], "messages a second, ours / its"], peer),
        f"[All of them](../../{latest(f'{pattern}.md').relative_to(ROOT)}).",
        "",
    ]


def catching_up() -> list[str]:
    run = read("*-catch-up.json")
    rows = []
    for case, figures in run.items():
        where, missed, *beside = case.split(", ")
        if not beside:
            found = plain(figures["came"]), f"{figures['last, s']:.1f}", plain(figures["queries"])
            rows.append([where, missed.removesuffix(" missed"), *found])
    head = ["persistence", "missed", "came", "after, s", "store queries"]
    return [
        *table(head, rows),
        f"[All of them](../../{latest('*-catch-up.md').relative_to(ROOT)}).",
        "",
    ]


def waited(figures: dict[str, float]) -> str:
    median = f"{figures['median s']:.2f}, " if "median s" in figures else ""
    return f"{median}{figures['s']:.1f}"


def bursts_and_loss() -> list[str]:
    run = read("*-bursts-and-loss.json")
    rows = [[case, waited(figures), f"{figures['sent']:,.0f}"] for case, figures in run.items() if ";" not in case]
    return [
        *table(["what", "until the last has all, s", "messages of the sender on the network"], rows),
        "Of a conversation, until one member has one message: the median and the 99th percentile.",
        "",
        f"[All of them](../../{latest('*-bursts-and-loss.md').relative_to(ROOT)}).",
        "",
    ]


def brokers() -> list[str]:
    """Empty until somebody measured on a machine at rest."""
    if not list(RESULTS.glob("*-brokers.json")):
        return []
    run = read("*-brokers.json")
    rows = [
        [
            row["network"],
            row["library"],
            *(f"{row[name]:.0f}" for name in ("library_mb_per_s", "channel_mb_per_s")),
            f"{row['channel_over_library']:.2f}",
        ]
        for row in run["throughput"]
    ]
    away = [[row["network"], row["how"], f"{row['median_s']:.1f}", f"{row['longest_s']:.1f}"] for row in run["absence"]]
    said = f"[All of them](../../{latest('*-brokers.md').relative_to(ROOT)}); {run['machine']}."
    return [
        "## Channels over brokers",
        "",
        *paragraph(
            """Messages of 100 KB from one participant to another in the same process, through a real server, beside the
            client library alone: as many as it takes at once, or each confirmed before the next. *Hashes* is what both
            ends have to hash: two passes of Keccak-256 and two of SHA-256."""
        ),
        *table(["network", "beside", "its MB/s", "channel, MB/s", "channel / it"], rows),
        *paragraph(
            """Without a store: a participant was away for a minute, and misses 20 messages of 10 KB. Its connection was
            cut, or its process was killed and started again."""
        ),
        *table(["network", "away by", "until it has all, median s", "longest s"], away),
        said,
        "",
    ]


def waku_rest() -> list[str]:
    pattern = "*-waku-rest"
    # The table of the results, without the lines around it.
    rows = [line for line in latest(f"{pattern}.md").read_text().splitlines() if line.startswith("|")]
    run = read(f"{pattern}.json")
    said = f"[All of it](../../{latest(f'{pattern}.md').relative_to(ROOT)}); {run['machine']}."
    return [*rows, "", said, ""]


def spark() -> list[str]:
    lines = []
    for pattern in ("*-spark-plans.json", "*-spark-versions.json", "*-spark-hash.json", "*-spark-stream.json"):
        run = read(pattern)
        rows = [
            [
                row["section"],
                row["case"],
                f"{row['seconds']:.2f}",
                f"{row['ratio']:.2f} x {row['of']}",
                f"{row['processor_ratio']:.2f} x" if "processor_ratio" in row else "",
            ]
            for row in run["rows"]
            if "ratio" in row and "seconds" in row and row["case"] != row["of"]
        ]
        said = source(pattern, run["commit"], run["machine"])
        if run.get("scale", 1) != 1:
            said = f"{said} {run['scale']} of the messages."
        lines += [*table(["data", "plan", "seconds", "beside", "of the processor"], rows), said, ""]
    return lines


def by_machine(section: Callable[[str], list[str]]) -> list[str]:
    """A section of each kind of machine."""
    return [line for name, machine in MACHINES.items() for line in (f"### {name}", "", *section(machine))]


def reassembly(machine: str) -> list[str]:
    """Of a machine without results of reassembly alone, those that `make bench` gave."""
    alone = f"*-reassembly-{machine}.json"
    return passes(alone if list(RESULTS.glob(alone)) else f"*-{machine}/segmentation.json", REASSEMBLY)


def plain(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


def paragraph(text: str) -> list[str]:
    return [*textwrap.wrap(" ".join(text.split()), 118, break_on_hyphens=False), ""]


def page() -> str:
    """The whole page."""
    lines = [
        "# Performance",
        "",
        *paragraph(
            """What was measured, each figure beside a peer or a floor in the same run. Machines differ and are noisy:
            the ratios tell more than the rates. `make bench` measures the core and segmentation anew and says of
            every target what it found; `benches/bench_sds.py`, `benches/python/channel_goodput.py`,
            `benches/python/small_messages.py`, `benches/python/catch_up.py`, `benches/python/bursts_and_loss.py`,
            `benches/python/brokers.py` and `benches/spark/bench_pipeline.py` measure the rest. This page is made by
            `benches/figures.py`."""
        ),
        "## The Rust core",
        "",
        *paragraph("One thread, processor time. (k, m): k data and m parity shards."),
        *by_machine(lambda machine: rates(f"*-{machine}/core.json", CORE)),
        "## From Python",
        "",
        *by_machine(lambda machine: rates(f"*-{machine}/python.json", PYTHON)),
        "## Segmentation and reassembly",
        "",
        *paragraph(
            """A payload of 10 MiB beside one Keccak-256 pass over it, which nothing that checks the hash can do
            without."""
        ),
        *by_machine(lambda machine: passes(f"*-{machine}/segmentation.json", SEGMENTATION) + reassembly(machine)),
        "## Scalable Data Sync",
        "",
        *paragraph("Messages of 100 bytes; the same bytes to both."),
        *sds(),
        "## The channel",
        "",
        *paragraph(
            """Payloads of 16 MB from one sender to one receiver in one process, no loss, on one core. The floor is two
            passes of Keccak-256 and one of SHA-256."""
        ),
        *by_machine(channel),
        "### Small messages",
        "",
        *paragraph(
            """Messages of 100 bytes, each sent when `send` has returned for the one before: when that is durable. All
            participants run in one process on two cores, and the processor time is that of all. A lone message is timed
            until the last receiver has it; the network takes none."""
        ),
        *small_messages(),
        "### Catching up from a store",
        "",
        *paragraph(
            """Messages of 100 bytes that were sent while their receiver was offline, from its coming back on. A store
            is asked 120 times in any minute at most."""
        ),
        *catching_up(),
        "### Bursts and losses",
        "",
        *paragraph(
            """In virtual time, so that a fast machine changes nothing: messages of 100 bytes, if no other size is told,
            take 5 to 40 ms on a network with a store."""
        ),
        *bursts_and_loss(),
        *brokers(),
        "## A Waku node",
        "",
        *paragraph(
            """A channel over two go-waku nodes on loopback, beside publishing and polling by hand; both nodes and both
            participants share two cores. Raw cases use the channel's HTTP library and the standard library's JSON and
            base64, or the native reader and writer of this package, and poll the publisher's echo too, as the channel
            does; httpx does not. `benches/python/waku_rest.py` measures it."""
        ),
        *waku_rest(),
        "## Spark",
        "",
        *paragraph(
            """Two cores. *big* is 1 GB in segments of 100 KB, *small* 300 MB in segments of 1 KB; *archive c=n* is 1 GB
            in messages of 0.5 MB in the order of arrival, n of them at once; below stands which part of that was
            measured. `i2` moves every row across the network and into Python, and does nothing there. Each floor is a
            plan with nothing of ours in it but the hash: what `reconstruct` takes beyond it is its own. *stream* is
            100,000 messages of one segment in one micro-batch. *Of the
            processor* is the ratio of its time in all processes, which other work on the machine moves less."""
        ),
        *spark(),
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
