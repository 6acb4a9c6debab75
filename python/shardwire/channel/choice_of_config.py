"""The configuration of a channel: the given one, or the defaults with the parts that its node sets."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from shardwire.config import ChannelChanges, ChannelConfig, RateLimitConfig, ReliableChannelOptions
from shardwire.errors import ConfigError
from shardwire.node.protocol import NodeConfig


def resolve_config(
    node_config: NodeConfig, config: ChannelConfig | ReliableChannelOptions | None, *, has_store: bool
) -> ChannelConfig:
    """`config` itself, or the defaults of Logos 003 with what the node's configuration sets."""
    if config is not None:
        if isinstance(config, ReliableChannelOptions):
            return config.to_config()
        if not isinstance(config, ChannelConfig):
            raise ConfigError(
                f"config is a {type(config).__name__}: it must be a ChannelConfig, ReliableChannelOptions or None"
            )
        return config
    parts: ChannelChanges = {}
    if node_config.segmentation_config is not None:
        parts["segmentation"] = node_config.segmentation_config
    if node_config.sds_config is not None:
        parts["sds"] = node_config.sds_config
    if node_config.rate_limit_config is not None:
        parts["rate_limit"] = _beneath(node_config.rate_limit_config)
    resolved = ChannelConfig.logos(**parts)
    return resolved if has_store else resolved.without_store()


def without_sender(config: ChannelConfig, sender_id: str) -> ChannelConfig:
    """Takes our own id out of `delivered_when`, so that all members of a group may share one configuration.

    A set that names nobody else stays as it is: this participant may only receive.
    """
    wanted = config.delivered_when
    others = frozenset(wanted) - {sender_id} if isinstance(wanted, Set) else frozenset()
    return replace(config, delivered_when=others) if others else config


def _beneath(node_limit: RateLimitConfig) -> RateLimitConfig:
    """The channel's part of its node's limit: the size of its queue, without the quota, which channels share."""
    return RateLimitConfig(queue_bytes_max=node_limit.queue_bytes_max)
