"""Tables and plots of results: `python benches/report.py RESULTS.json ...` writes a .md and a .png beside each."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def table_of(run: dict[str, Any]) -> str:
    """The context and every figure; the ratio is a case's first candidate to each other."""
    lines = ["# Figures", "", *(f"- {name}: {value}" for name, value in run["context"].items()), ""]
    lines += ["| case | candidate | GB/s | ours / peer |", "|---|---|---|---|"]
    ours: dict[str, float] = {}
    for result in run["results"]:
        case, rate = result["case"], result["gb_per_s"]
        ratio = ours.setdefault(case, rate) / rate
        lines.append(f"| {case} | {result['candidate']} | {rate:.3f} | {ratio:.2f} |")
    return "\n".join(lines) + "\n"


def plot(run: dict[str, Any], path: Path) -> None:
    """How many times as fast ours is, a bar for each peer."""
    ours: dict[str, float] = {}
    bars = []
    for result in run["results"]:
        ratio = ours.setdefault(result["case"], result["gb_per_s"]) / result["gb_per_s"]
        if not result["candidate"].startswith("shardwire"):
            bars.append((f"{result['case']}: {result['candidate']}", ratio))
    labels, ratios = zip(*reversed(bars), strict=True)
    figure, axes = pyplot.subplots(figsize=(11, 0.24 * len(bars) + 1.2))
    colours = ["tab:green" if ratio >= 1 else "tab:red" for ratio in ratios]
    axes.barh(labels, ratios, color=colours)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("times as fast as the peer (first candidate of the case; logarithmic)")
    axes.tick_params(axis="y", labelsize=7)
    axes.margins(y=0.005)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(paths: list[str]) -> None:
    for path in map(Path, paths):
        run = json.loads(path.read_text())
        path.with_suffix(".md").write_text(table_of(run))
        plot(run, path.with_suffix(".png"))


if __name__ == "__main__":
    main(sys.argv[1:])
