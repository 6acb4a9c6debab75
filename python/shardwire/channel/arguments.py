"""What a channel is created from."""

from __future__ import annotations

import random
from dataclasses import dataclass

from shardwire.channel.node_members import NodeMembers
from shardwire.config import ChannelConfig
from shardwire.encryption.protocol import Encryption
from shardwire.node.clock import Clock
from shardwire.node.protocol import Node


@dataclass(frozen=True, slots=True)
class ChannelArguments:
    """The arguments of `create_reliable_channel`, checked, with every default in its place.

    Attributes:
        node: The node.
        members: What the node said of itself when it was asked.
        channel_id: Id of the channel.
        content_topic: Topic on which it listens and sends.
        sender_id: Our id in it.
        encryption: The cipher, bound to the channel; None sends in the clear.
        config: The configuration in force.
        clock: Both times.
        rng: Source of ids and of random delays.
    """

    node: Node
    members: NodeMembers
    channel_id: str
    content_topic: str
    sender_id: str
    encryption: Encryption | None
    config: ChannelConfig
    clock: Clock
    rng: random.Random

    @property
    def envelope_meta(self) -> bytes:
        """The marker that the channel's envelopes bear; empty for none."""
        return self.config.envelope_meta or b""
