"""What a channel is created from: its arguments, checked, and its configuration out of the given one and its node's."""

from __future__ import annotations

import inspect
import logging
import random
import re
from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any, cast

from shardwire.channel.awake_clock import AwakeClock
from shardwire.channel.limits.node_limits import COUNT_NAME_PREFIX
from shardwire.channel.node_members import NodeMembers
from shardwire.config import ChannelChanges, ChannelConfig, RateLimitConfig, ReliableChannelOptions
from shardwire.config.channel import ID_BYTES_MAX
from shardwire.config.checks import check_kind
from shardwire.config.without_store import waits_for_store
from shardwire.encryption.protocol import Encryption
from shardwire.errors import ConfigError
from shardwire.node.clock import Clock, check_clock, running_clock
from shardwire.node.protocol import Node, NodeConfig
from shardwire.persistence.protocol import Persistence

logger = logging.getLogger(__name__)

# 23/WAKU2-TOPICS: /application/version/name/encoding, after a generation where there is one.
_CONTENT_TOPIC = re.compile(r"(/[^/]+){4,5}")

_warned: set[str] = set()


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
    clock: AwakeClock
    rng: random.Random

    @property
    def envelope_meta(self) -> bytes:
        """The marker that the channel's envelopes bear; empty for none."""
        return self.config.envelope_meta or b""


def check_arguments(
    node: Node,
    channel_id: str,
    content_topic: str,
    sender_id: str,
    encryption: Encryption | None,
    config: ChannelConfig | ReliableChannelOptions | None,
    clock: Clock | None,
    rng: random.Random | None,
) -> ChannelArguments:
    """Checks the arguments of `create_reliable_channel`, and warns of a configuration that does less than it looks.

    Raises:
        ConfigError: An argument is out of its limits.
    """
    members = NodeMembers.of(node)
    _check_ids(channel_id, content_topic, sender_id)
    config = without_sender(_resolve_config(members.config, config, has_store=members.has_store), sender_id)
    _warn_of_idle_limits(config, members.config)
    if not members.has_store:
        _warn_of_late_syncs(config)
    check_clock(clock)
    check_kind("rng", rng, random.Random)
    return ChannelArguments(
        node=node,
        members=members,
        channel_id=channel_id,
        content_topic=content_topic,
        sender_id=sender_id,
        encryption=_bind_encryption(encryption, channel_id),
        config=config,
        clock=AwakeClock(clock if clock is not None else running_clock()),
        rng=rng if rng is not None else random.SystemRandom(),
    )


def persistence_of(config: ChannelConfig) -> Persistence | None:
    """Where the state of the channel is kept; None, with a warning, where it ends with the process."""
    if config.sds.persistence is None:
        _warn_once(
            "SdsConfig.persistence is not set: channel state is kept in memory and lost with the process; "
            "use SqlitePersistence(path) to keep it"
        )
    return config.sds.persistence


def _resolve_config(
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


def _check_ids(channel_id: str, content_topic: str, sender_id: str) -> None:
    for name, value in (("channel_id", channel_id), ("content_topic", content_topic), ("sender_id", sender_id)):
        if not isinstance(value, str) or not 1 <= len(value.encode("utf-8", "replace")) <= ID_BYTES_MAX:
            shown = repr(value)
            shown = shown if len(shown) <= ID_BYTES_MAX else f"{shown[:32]}... ({len(shown)} characters)"
            raise ConfigError(f"{name} is {shown}: it must be a text of 1 to {ID_BYTES_MAX} bytes")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{name} is {value!r}: it must be encodable as UTF-8") from None
    if _CONTENT_TOPIC.fullmatch(sender_id) and not _CONTENT_TOPIC.fullmatch(content_topic):
        raise ConfigError(
            f"content_topic is {content_topic!r} and sender_id is {sender_id!r}: they stand in each other's place; the "
            "content topic, which looks like /application/version/name/encoding, comes before the sender id"
        )
    if channel_id.startswith(COUNT_NAME_PREFIX):
        raise ConfigError(
            f"channel_id is {channel_id!r}: names that begin with {COUNT_NAME_PREFIX!r} are not for channels; choose "
            "another one"
        )


def _bind_encryption(encryption: Encryption | None, channel_id: str) -> Encryption | None:
    if encryption is None:
        return None
    if isinstance(encryption, type):
        raise ConfigError(f"encryption is the class {encryption.__name__}: it must be an instance of it")
    bind = getattr(encryption, "bind", None)
    bound: Any = bind(channel_id) if bind is not None else encryption
    given = "encryption is" if bind is None else "bind of the encryption gave"
    if inspect.iscoroutine(bound):
        bound.close()
    for name in ("encrypt", "decrypt"):
        if not callable(getattr(bound, name, None)):
            raise ConfigError(f"{given} a {type(bound).__name__} without {name}(): it must have both operations")
    return cast(Encryption, bound)


def _warn_of_idle_limits(config: ChannelConfig, node_config: NodeConfig) -> None:
    """A quota that nobody enforces looks like one until the network refuses what is beyond it."""
    limits = {
        "ChannelConfig.rate_limit": config.rate_limit,
        "NodeConfig.rate_limit_config": node_config.rate_limit_config,
    }
    for name, limit in limits.items():
        if limit is not None and not limit.enabled and limit.messages_per_epoch is not None:
            logger.warning(
                "%s.messages_per_epoch is %d and enabled is False: nothing is limited; set enabled=True to have it "
                "enforced, or messages_per_epoch=None",
                name,
                limit.messages_per_epoch,
            )


def _warn_of_late_syncs(config: ChannelConfig) -> None:
    """A configuration that is given counts alone, whatever the node has."""
    if config.sds.enable_repair and waits_for_store(config.sds):
        _warn_once(
            "the node has no store, and this configuration is for networks with one: who heard nothing of the latest "
            f"messages learns of them up to {config.sync.sync_min_interval_ms // 1_000} s later; "
            "without_store(members=...) of it tells within seconds"
        )


def _warn_once(text: str) -> None:
    """What is true of a whole program is told once, however many channels it has."""
    if text not in _warned:
        _warned.add(text)
        logger.warning(text)
