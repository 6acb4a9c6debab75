"""Tables and a plot of a directory of results: `python benches/report.py benches/results/local`.

Writes `README.md`, with every figure and the targets beside what was measured of them, and `ratios.png`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

TINY, NATIVE, PASS = "tiny-keccak", "keccak-asm", "one Keccak pass"
SIMD = "reed-solomon-erasure simd-accel"
VANDERMONDE, LEOPARD = "shardwire vandermonde", "shardwire leopard"


@dataclass(frozen=True)
class Ratio:
    """How many times as fast ours is as a peer in one case, or as another case in the same file."""

    file: str
    case: str
    peer: str
    target: float
    ours: str = ""
    other_case: str = ""


def _coding() -> list[Ratio]:
    encoding = {"(8, 1)": 2.1, "(10, 2)": 3.3, "(64, 8)": 4, "(100, 13)": 3.3, "(200, 25)": 3.2, "(128, 128)": 3.3}
    leopard = {"(64, 8)": 3.7, "(100, 13)": 4.9, "(200, 25)": 6.4, "(128, 128)": 19}
    decoding = {"(10, 2), 2": 2.5, "(64, 8), 8": 3.4, "(100, 13), 13": 3.5, "(200, 25), 25": 3.3}
    rows = [Ratio("core", f"encode {name}", SIMD, target, VANDERMONDE) for name, target in encoding.items()]
    rows += [Ratio("core", f"encode {name}", SIMD, target, LEOPARD) for name, target in leopard.items()]
    for ours in (VANDERMONDE, LEOPARD):
        rows += [Ratio("core", f"decode {name} lost", SIMD, target, ours) for name, target in decoding.items()]
        one, eight = "decode (64, 8), 1 lost", "decode (64, 8), 8 lost"
        rows.append(Ratio("core", one, ours, 2.5, ours, other_case=eight))
    return rows


MANY_100_KIB = "keccak256_many, 64 messages of 100 KiB"
TARGETS = [
    Ratio("core-native", "keccak256, one message of 1048576 B", NATIVE, 1.05),
    Ratio("core", MANY_100_KIB, TINY, 5.7),
    Ratio("core", "keccak256_many, 1,000 messages of 32 B to 100 KiB", TINY, 5.0),
    Ratio("python", "keccak256 of 102400 B", "safe-pysha3", 1.1),
    Ratio("python", "keccak256_many, 64 messages of 102400 B", "safe-pysha3", 4.0),
    *_coding(),
    *(
        Ratio("python", f"{what}, 200 sets", peer, 1.0, ours)
        for what in ("encode (10, 2)", "decode (10, 2), 2 lost")
        for peer, ours in (("pyeclib isa_l_rs_vand", VANDERMONDE), ("reed-solomon-leopard", LEOPARD))
    ),
    Ratio("segmentation", "segment, outputs dropped", PASS, 0.88),
    Ratio("segmentation", "segment, outputs kept", PASS, 0.68),
    Ratio("segmentation", "receive in order", PASS, 0.88),
    Ratio("segmentation", "receive, 12 lost", PASS, 0.80),
    Ratio(
        "segmentation",
        "64 payloads, segment_many",
        PASS,
        3.0,
        other_case="64 payloads, segment in a loop",
    ),
]
"""The rows of the project's table, which are for a machine with AVX-512 and GFNI."""

Run = dict[str, Any]


def _ratio(run: Run, first: Run, result: Run) -> float:
    """Ours to the peer, as it was measured round by round, or else of the medians."""
    given = result.get("ours_to_peer")
    return float(given if given is not None else first["gb_per_s"] / result["gb_per_s"])


def _of(run: Run, case: str, candidate: str) -> Run | None:
    results = [result for result in run["results"] if result["case"] == case]
    return next((one for one in results if not candidate or one["candidate"] == candidate), None)


def measured(row: Ratio, runs: dict[str, Run]) -> float | None:
    """The ratio that a row asks for; None where the peer or the case was left out."""
    run = runs.get(row.file)
    ours = run and _of(run, row.case, row.ours)
    peer = run and _of(run, row.other_case or row.case, row.peer)
    if not run or not ours or not peer:
        return None
    if "ours_to_peer" in peer:
        return float(ours["ours_to_peer"] / (peer["ours_to_peer"] if row.other_case else 1.0))
    return float(ours["gb_per_s"] / peer["gb_per_s"])


def targets_table(runs: dict[str, Run]) -> list[str]:
    lines = [
        "## Targets",
        "",
        "The targets are for a machine with AVX-512 and GFNI; the context below says what this one has.",
        "",
        "| case | ours | beside | target | measured |",
        "|---|---|---|---|---|",
    ]
    for row in TARGETS:
        ratio = measured(row, runs)
        beside = row.other_case or (f"{row.peer} built for the machine" if row.file == "core-native" else row.peer)
        ours = row.ours.removeprefix("shardwire ") or "shardwire"
        found = "not measured" if ratio is None else f"{ratio:.2f}"
        lines.append(f"| {row.case} | {ours} | {beside} | {row.target:g} | {found} |")
    return [*lines, ""]


def table_of(name: str, run: Run) -> list[str]:
    """The context and every figure; the ratio is a case's first candidate to each other."""
    lines = [f"## {name}", "", *(f"- {key}: {value}" for key, value in run["context"].items()), ""]
    lines += ["| case | candidate | GB/s | ours / candidate |", "|---|---|---|---|"]
    first: dict[str, Run] = {}
    for result in run["results"]:
        ours = first.setdefault(result["case"], result)
        rate = f"{result['gb_per_s']:.3f}" if "gb_per_s" in result else ""
        lines.append(f"| {result['case']} | {result['candidate']} | {rate} | {_ratio(run, ours, result):.2f} |")
    return [*lines, ""]


def plot(runs: dict[str, Run], path: Path) -> None:
    """How many times as fast ours is: a bar for each peer."""
    bars = []
    for name, run in runs.items():
        first: dict[str, Run] = {}
        for result in run["results"]:
            ours = first.setdefault(result["case"], result)
            if not result["candidate"].startswith("shardwire"):
                label = f"{name}: {result['case']}: {result['candidate']}"
                bars.append((label, _ratio(run, ours, result)))
    if not bars:
        return
    labels, ratios = zip(*reversed(bars), strict=True)
    figure, axes = pyplot.subplots(figsize=(11, 0.2 * len(bars) + 1.2))
    axes.barh(labels, ratios, color=["tab:green" if ratio >= 1 else "tab:red" for ratio in ratios])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("times as fast as the peer, first candidate of the case (logarithmic)")
    axes.tick_params(axis="y", labelsize=6)
    axes.margins(y=0.005)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def main(directory: Path) -> None:
    order = ["core", "core-native", "python", "segmentation"]
    files = sorted(directory.glob("*.json"), key=lambda file: order.index(file.stem) if file.stem in order else 9)
    runs: dict[str, Run] = {file.stem: json.loads(file.read_text()) for file in files}
    lines = ["# Figures", "", "![Ratios to the peers](ratios.png)", "", *targets_table(runs)]
    for name, run in runs.items():
        lines += table_of(name, run)
    (directory / "README.md").write_text("\n".join(lines).rstrip() + "\n")
    plot(runs, directory / "ratios.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
