"""Kinds of records that the machine of a channel stores."""

from __future__ import annotations

# What is kept of received messages.
SEGMENT = "channel.segment"
PARTS = "channel.parts"
PAYLOAD = "channel.payload"
# SDS messages, contents of ours that wait to leave, and what the wire puts around them.
MESSAGE = "sds.message"
CONTENT = "sds.content"
FRAME = "channel.frame"
