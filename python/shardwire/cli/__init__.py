"""The command `shardwire`. This module alone works without the extra `cli`: it says what to install."""

from __future__ import annotations

import sys
from importlib import import_module

REQUIRED = ("typer", "rich")


def main() -> None:
    """Runs the command line and exits: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    for library in REQUIRED:
        try:
            import_module(library)
        except ModuleNotFoundError:
            print(f"shardwire: the command line needs {library}: pip install 'shardwire[cli]'", file=sys.stderr)
            raise SystemExit(1) from None
    from shardwire.cli.app import run

    raise SystemExit(run(sys.argv[1:]))
