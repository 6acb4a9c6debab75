"""The command `shardwire`. This module alone works without the extra `cli`: it says what to install."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line and exits: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    try:
        from shardwire.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"typer", "rich"}:
            raise
        print(f"shardwire: the command line needs {error.name}: pip install 'shardwire[cli]'", file=sys.stderr)
        raise SystemExit(1) from None
    raise SystemExit(run(sys.argv[1:]))
