"""The command `shardwire`. This module alone works without the extra `cli`: it says what to install."""

from __future__ import annotations

import sys
from importlib import import_module

REQUIRED = ("typer", "rich")
EXIT_INTERRUPTED = 130


def main() -> None:
    """Runs the command line and exits: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    try:
        code = _run()
    except KeyboardInterrupt:
        # While modules are being loaded.
        print("shardwire: interrupted", file=sys.stderr)
        code = EXIT_INTERRUPTED
    raise SystemExit(code)


def _run() -> int:
    for library in REQUIRED:
        try:
            import_module(library)
        except ModuleNotFoundError:
            print(f"shardwire: the command line needs {library}: pip install 'shardwire[cli]'", file=sys.stderr)
            return 1
    from shardwire.cli.app import run

    return run(sys.argv[1:])
