"""`python -m shardwire`: the command line."""

from __future__ import annotations

from shardwire.cli import main

main()
