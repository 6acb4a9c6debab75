"""What the specifications call the texts that name things: each is a `str`, and the name says which one."""

from __future__ import annotations

from typing import TypeAlias

# One `send` of a channel (Logos 003): what `send` returns, what its events carry, across restarts.
ReliableSendId: TypeAlias = str
# One message of any number of segments (Waku 004): the hex Keccak-256 of its payload; equal payloads share it.
MessageId: TypeAlias = str
# A channel, the same for all participants (Waku 004).
ChannelId: TypeAlias = str
# A participant, the same in every session (Waku 004).
SenderId: TypeAlias = str
