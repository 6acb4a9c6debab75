"""What benchmarks of whole channels share: a case in its own process, on this checkout or another one; results."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
Figures = dict[str, float]


def add_tree_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what `run_cases` and `keep` heed."""
    parser.add_argument("--beside", type=Path, help="another checkout of the project", metavar="TREE")
    parser.add_argument("--beside-name", default="another checkout", help="what the report calls it")
    parser.add_argument("--output", help="also write benches/results/NAME.json and NAME.md", metavar="NAME")


def run_case(script: str, tree: Path, *arguments: str) -> Figures:
    """What `script` prints of a case, in a new process on the sources of `tree`."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'python'}{os.pathsep}{tree}"}
    command = [sys.executable, script, *arguments]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def run_cases(
    script: str, cases: Mapping[str, tuple[str, ...]], arguments: argparse.Namespace, separator: str
) -> dict[str, Figures]:
    """The figures of all cases, each of both checkouts before the next; those of the other one under its name, too."""
    trees = {"": ROOT}
    if arguments.beside:
        trees[f"{separator}{arguments.beside_name}"] = arguments.beside.resolve()
    runs: dict[str, Figures] = {}
    for case, given in cases.items():
        for name, tree in trees.items():
            runs[f"{case}{name}"] = run_case(script, tree, "--case", *given)
            print(f"{case}{name}: {runs[f'{case}{name}']}", file=sys.stderr)
    return runs


def keep(name: str | None, text: str, found: object) -> None:
    """Prints a report; under a name it is written beside its figures."""
    print(text)
    if name:
        results = ROOT / "benches" / "results"
        (results / f"{name}.md").write_text(text)
        (results / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
