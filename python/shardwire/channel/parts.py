"""What a session is made of."""

from __future__ import annotations

from dataclasses import dataclass

from shardwire.channel.arguments import ChannelArguments
from shardwire.channel.engine import Engine
from shardwire.channel.limits.quota import Quota
from shardwire.channel.observing.subscriptions import Subscriptions
from shardwire.channel.observing.timeline import Timeline
from shardwire.channel.sending.message_sizes import MessageSizes
from shardwire.channel.sending.segmenter import ChannelSegmenter
from shardwire.channel.storing.writer import Writer


@dataclass(slots=True)
class Parts:
    """Put together when a channel is created, for its `Session`."""

    arguments: ChannelArguments
    sizes: MessageSizes
    engine: Engine
    quota: Quota
    segmenter: ChannelSegmenter
    subscriptions: Subscriptions
    timeline: Timeline
    writer: Writer
    last_seen_ns: int
