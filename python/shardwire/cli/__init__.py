"""The command `shardwire`. This module alone works without the extra `cli`: it says what to install."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from shardwire.ending_signals import EXIT_INTERRUPTED

REQUIRED = ("typer", "rich")


def main() -> None:
    """Runs the command line and exits: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    _keep_places_of_closed_streams()
    try:
        code = _run()
    except KeyboardInterrupt:
        # While modules are being loaded.
        print("shardwire: interrupted", file=sys.stderr)
        code = EXIT_INTERRUPTED
    raise SystemExit(code)


def _keep_places_of_closed_streams() -> None:
    """Nothing that is opened later is taken for a standard stream that was closed."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest that is free; for commands that are started as well.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        # Where there is none, `print` takes the standard output.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _run() -> int:
    for library in REQUIRED:
        try:
            import_module(library)
        except ModuleNotFoundError:
            print(f"shardwire: the command line needs {library}: pip install 'shardwire[cli]'", file=sys.stderr)
            return 1
    from shardwire.cli.app import run

    return run(sys.argv[1:])
