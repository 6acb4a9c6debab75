"""Commands over a real network: those that take part in a channel, and those that only look."""

from __future__ import annotations

from shardwire.cli.network.commands import add_commands

__all__ = ["add_commands"]
