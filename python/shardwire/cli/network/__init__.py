"""Commands that take part in a channel over a real network: send, listen, chat, serve; and doctor and state."""

from __future__ import annotations

from shardwire.cli.network.commands import add_commands

__all__ = ["add_commands"]
