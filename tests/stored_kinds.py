"""Kinds of records that the machine of a channel stores."""

from __future__ import annotations

# What is kept of received messages.
SEGMENT = "channel.segment"
PARTS = "channel.parts"
PAYLOAD = "channel.payload"
# Of those that wait for the application, and which of them it has.
DELIVERY = "channel.delivery"
HANDOVER = "channel.handover"
# How far a send of ours has come.
SEND = "channel.send"
# SDS messages, contents of ours that wait to leave, and what the wire puts around them.
MESSAGE = "sds.message"
CONTENT = "sds.content"
FRAME = "channel.frame"
