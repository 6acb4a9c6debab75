"""What a commit to SQLite costs: `python benches/python/commits.py`.

Commits as those of small messages are: seven records put, the two oldest of them deleted with the next commit. For
each: processor time, time, bytes written to the disk and system calls that write. Every round runs in a process of its
own; medians count. `--beside TREE` runs the same on another checkout of the project, interleaved. `--output NAME` also
writes benches/results/NAME.json and NAME.md. Linux alone tells bytes and calls.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from shardwire import SqlitePersistence
from shardwire.persistence import Changes

ROOT = Path(__file__).resolve().parents[2]
COMMITS = 3_000
ROUNDS = 5
# Kind, and bytes of a value.
RECORDS = (
    ("channel.send", 400),
    ("sds.log", 70),
    ("sds.message", 300),
    ("segmentation.completed", 8),
    ("channel.payload", 100),
    ("channel.delivery", 160),
)
PASSING = ("channel.payload", "channel.delivery")
Figures = dict[str, float]


def changes_of(number: int, rng: random.Random) -> Changes:
    key, last = number.to_bytes(8, "big"), (number - 1).to_bytes(8, "big", signed=True)
    records: dict[tuple[str, bytes], bytes | None] = {(kind, key): rng.randbytes(size) for kind, size in RECORDS}
    records["sds.state", b""] = rng.randbytes(100)
    records.update({(kind, last): None for kind in PASSING if number})
    return Changes(records)


def written() -> tuple[int, int]:
    """Bytes and system calls of this process."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["write_bytes"]), int(counts["syscw"])


def measure(commits: int) -> Figures:
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as directory:
        persistence = SqlitePersistence(Path(directory) / "state.db")
        persistence.load("bench")
        changes = [changes_of(number, rng) for number in range(commits)]
        before_bytes, before_calls = written()
        before_s, before_cpu_s = time.perf_counter(), time.process_time()
        for each in changes:
            persistence.commit("bench", each)
        seconds, cpu_s = time.perf_counter() - before_s, time.process_time() - before_cpu_s
        after_bytes, after_calls = written()
        persistence.close()
    return {
        "processor time, us": cpu_s / commits * 1e6,
        "time, us": seconds / commits * 1e6,
        "written, KB": (after_bytes - before_bytes) / commits / 1000,
        "calls that write": (after_calls - before_calls) / commits,
    }


def run(tree: Path, commits: int) -> Figures:
    """In a new process on the sources of `tree`."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'python'}{os.pathsep}{tree}"}
    command = [sys.executable, __file__, "--once", "--commits", str(commits)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def report(ours: list[Figures], beside: list[Figures], name: str) -> str:
    lines = [
        "# What a commit to SQLite costs",
        "",
        f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}. Command:",
        "`python benches/python/commits.py --output NAME`.",
        "",
        f"Commits of seven small records, two of which the next one deletes. Medians of {len(ours)} rounds.",
        "Linux counts all of a folio of the page cache as written of which a part is: where they are large, more than",
        "reaches the disk.",
        "",
        "| a commit | ours |" + (f" {name} | ratio |" if beside else ""),
        "|---|---|" + ("---|---|" if beside else ""),
    ]
    for figure in ours[0]:
        mine = statistics.median(each[figure] for each in ours)
        row = f"| {figure} | {mine:,.1f} |"
        if beside:
            theirs = statistics.median(each[figure] for each in beside)
            row += f" {theirs:,.1f} | {mine / theirs:.2f} |"
        lines.append(row)
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--once", action="store_true", help="run one round here and print its figures")
    parser.add_argument("--commits", type=int, default=COMMITS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--beside", type=Path, help="another checkout of the project", metavar="TREE")
    parser.add_argument("--beside-name", default="another checkout", help="what the report calls it")
    parser.add_argument("--output", help="also write benches/results/NAME.json and NAME.md", metavar="NAME")
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(measure(arguments.commits)))
        return
    ours: list[Figures] = []
    beside: list[Figures] = []
    for _ in range(arguments.rounds):
        ours.append(run(ROOT, arguments.commits))
        if arguments.beside:
            beside.append(run(arguments.beside.resolve(), arguments.commits))
    text = report(ours, beside, arguments.beside_name)
    print(text)
    if arguments.output:
        results = ROOT / "benches" / "results"
        (results / f"{arguments.output}.md").write_text(text)
        (results / f"{arguments.output}.json").write_text(json.dumps({"ours": ours, "beside": beside}, indent=1) + "\n")


if __name__ == "__main__":
    main()
