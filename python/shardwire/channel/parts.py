"""What a session is made of."""

from __future__ import annotations

import random
from dataclasses import dataclass

from shardwire.channel.engine import Engine
from shardwire.channel.limits.quota import Quota
from shardwire.channel.observing.subscriptions import Subscriptions
from shardwire.channel.observing.timeline import Timeline
from shardwire.channel.sending.message_sizes import MessageSizes
from shardwire.channel.sending.segmenter import ChannelSegmenter
from shardwire.channel.storing.writer import Writer
from shardwire.config import ChannelConfig
from shardwire.encryption.protocol import Encryption
from shardwire.node.clock import Clock
from shardwire.node.protocol import Node


@dataclass(slots=True)
class Parts:
    """Put together when a channel is created, for its `Session`."""

    node: Node
    channel_id: str
    content_topic: str
    sender_id: str
    encryption: Encryption | None
    config: ChannelConfig
    sizes: MessageSizes
    clock: Clock
    rng: random.Random
    engine: Engine
    quota: Quota
    segmenter: ChannelSegmenter
    subscriptions: Subscriptions
    timeline: Timeline
    writer: Writer
    last_seen_ns: int
