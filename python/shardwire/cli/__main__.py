"""`python -m shardwire.cli`."""

from __future__ import annotations

from shardwire.cli import main

main()
