#!/usr/bin/env python3
"""Keeps every crate as it was tested: `crates.lock` is Cargo.lock without the names of hosts, and is committed.

`lock` makes Cargo.lock from it, with the source that this cargo knows for its crates; `update` takes over what cargo
resolved for changed manifests, with --all its newest crates as well; `check` fails where both disagree.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The benchmarks are a workspace of their own.
WORKSPACES = (ROOT, ROOT / "benches" / "rust")
_SOURCE = re.compile(r'^source = "(.*)"\n', re.MULTILINE)


def cargo(workspace: Path, *arguments: str) -> str:
    """What cargo prints; its errors are its own."""
    command = ["cargo", *arguments, "--manifest-path", str(workspace / "Cargo.toml")]
    done = subprocess.run(command, cwd=workspace, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"crates: {' '.join(command)} failed; where manifests changed, 'make crates' takes that over")
    return done.stdout


def source_of_crates() -> str:
    """How this cargo names the place of crates, which nothing has to be asked for."""
    told = json.loads(cargo(ROOT, "metadata", "--no-deps", "--format-version", "1"))
    sources = {one["source"] for package in told["packages"] for one in package["dependencies"]} - {None}
    if len(sources) != 1:
        sys.exit(f"crates: dependencies come from {len(sources)} sources: crates.lock can name crates of one")
    return str(sources.pop())


def without_sources(lock: str) -> str:
    """What is committed of a Cargo.lock."""
    if len(set(_SOURCE.findall(lock))) > 1:
        sys.exit("crates: Cargo.lock has crates of several sources: crates.lock can name crates of one")
    return _SOURCE.sub("", lock)


def lock() -> None:
    """Makes each Cargo.lock what crates.lock says; one that is so already stays untouched."""
    source = None
    for workspace in WORKSPACES:
        pinned, made = (workspace / "crates.lock").read_text(), workspace / "Cargo.lock"
        if made.exists() and without_sources(made.read_text()) == pinned:
            continue
        source = source or source_of_crates()
        # Crates have a checksum, and our own packages have none.
        made.write_text(re.sub("^checksum = ", f'source = "{source}"\nchecksum = ', pinned, flags=re.MULTILINE))


def update(*, everything: bool) -> None:
    """Takes over what cargo resolves."""
    for workspace in WORKSPACES:
        if everything:
            cargo(workspace, "update", "--quiet")
        else:
            cargo(workspace, "update", "--quiet", "--workspace")
        (workspace / "crates.lock").write_text(without_sources((workspace / "Cargo.lock").read_text()))


def check() -> None:
    """Fails where a manifest asks for what crates.lock has not, or no longer for what it has."""
    lock()
    for workspace in WORKSPACES:
        cargo(workspace, "update", "--quiet", "--workspace", "--locked")


def main() -> None:
    parser = argparse.ArgumentParser(description="Keeps every crate as it was tested.")
    parser.add_argument("command", choices=("lock", "update", "check"))
    parser.add_argument("--all", action="store_true", help="with update: the newest crates that the manifests allow")
    asked = parser.parse_args()
    if asked.command == "lock":
        lock()
    elif asked.command == "update":
        update(everything=asked.all)
    else:
        check()


if __name__ == "__main__":
    main()
