"""What a node says of itself when a channel is made of it, each of it asked once: it may say something else later."""

from __future__ import annotations

from dataclasses import dataclass

from shardwire.channel.hooks import is_ours
from shardwire.config.checks import check_integer
from shardwire.errors import ConfigError
from shardwire.node.protocol import NodeConfig
from shardwire.quoting import one_line

# The largest message that a node may say it carries: what the core counts bytes in.
NODE_MESSAGE_BYTES_MAX = (1 << 64) - 1

_METHODS = ("subscribe", "unsubscribe", "send", "query_store", "events")


@dataclass(frozen=True, slots=True)
class NodeMembers:
    """The members of a node that are values."""

    config: NodeConfig
    max_message_size_bytes: int
    has_store: bool

    @classmethod
    def of(cls, node: object) -> NodeMembers:
        """Asks a node for each of its values, once.

        Raises:
            ConfigError: `node` is no node, or a member of it is missing, raises or is not what it must be.
        """
        if isinstance(node, str):
            raise ConfigError("node is a text: make a node of an address with shardwire.node.create_node, and start it")
        if isinstance(node, type):
            raise ConfigError(f"node is the class {node.__name__}: give an object of it, started")
        config = _member(node, "config", "a shardwire.node.NodeConfig")
        size = _member(node, "max_message_size_bytes", f"an integer from 1 to {NODE_MESSAGE_BYTES_MAX}")
        has_store = _member(node, "has_store", "True or False")
        for name in _METHODS:
            method = _member(node, name, "a method")
            if not callable(method):
                raise ConfigError(f"{name} of the node is a {type(method).__name__}: it must be a method")
        if not isinstance(config, NodeConfig):
            raise ConfigError(
                f"config of the node is a {type(config).__name__}: it must be a shardwire.node.NodeConfig"
            )
        if not isinstance(has_store, bool):
            raise ConfigError(f"has_store of the node is {has_store!r}: it must be True or False")
        size_bytes = check_integer("max_message_size_bytes of the node", size, 1, NODE_MESSAGE_BYTES_MAX)
        return cls(config, size_bytes, has_store)


def _member(node: object, name: str, limit: str) -> object:
    try:
        return getattr(node, name)
    except AttributeError:
        raise ConfigError(f"node is a {type(node).__name__} without {name}: it must be a shardwire.node.Node") from None
    except BaseException as error:
        if is_ours(error):
            raise
        raise ConfigError(
            f"{name} of the node raised {type(error).__name__}: {one_line(error)}: it must be {limit} while a channel "
            "is made"
        ) from error
