"""Every exception shardwire raises. A message names the value, the limit and the remedy, never a payload or a key."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "ChannelClosedError",
    "ConfigError",
    "DecryptionError",
    "FileChangedError",
    "FileRefusedError",
    "InvalidSegmentError",
    "MissingLibraryError",
    "NodeError",
    "NotEnoughShardsError",
    "PayloadTooLargeError",
    "PersistenceError",
    "QueueFullError",
    "ShardwireError",
]


class ShardwireError(Exception):
    """Base of all errors raised by shardwire."""


class ConfigError(ShardwireError, ValueError):
    """A configuration or argument is out of its limits: names the field, the value and the limit."""


class MissingLibraryError(ConfigError):
    """An optional library is not installed: names the extra that brings it."""


class InvalidSegmentError(ShardwireError):
    """Bytes are not a valid segment on the wire they were read as."""


class PayloadTooLargeError(ShardwireError):
    """A payload exceeds what one message can hold under the configuration.

    Attributes:
        payload_bytes: Length of the payload.
        limit_bytes: The largest payload the configuration allows.
    """

    def __init__(self, message: str, payload_bytes: int = 0, limit_bytes: int = 0) -> None:
        super().__init__(message)
        self.payload_bytes = payload_bytes
        self.limit_bytes = limit_bytes


class NotEnoughShardsError(ShardwireError):
    """Fewer shards than data shards are present, so the data cannot be reconstructed.

    Attributes:
        shards_present: Shards that were given.
        shards_needed: Shards that reconstruction needs.
    """

    def __init__(self, message: str, shards_present: int = 0, shards_needed: int = 0) -> None:
        super().__init__(message)
        self.shards_present = shards_present
        self.shards_needed = shards_needed


class ChannelClosedError(ShardwireError):
    """The channel is closed or was never started."""


class FileRefusedError(ShardwireError):
    """Whoever should have a file does not take it.

    Attributes:
        refused_by: The reason that each of them gave, by participant.
    """

    def __init__(self, message: str, refused_by: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.refused_by: dict[str, str] = dict(refused_by or {})


class FileChangedError(ShardwireError):
    """A file changed while it was sent."""


class QueueFullError(ShardwireError):
    """What waits for the rate limit would exceed `queue_bytes_max` or 100,000 segments, or one message exceeds
    `queue_bytes_max`, under a limit or not."""


class NodeError(ShardwireError):
    """A node could not start, subscribe, send or answer a store query.

    Attributes:
        permanent: Where `send` raised it: whether this node can never send the message, which the channel then fails.
        retry_after_ms: Where `send` raised it: how long the node will refuse everything, where it knows; the channel
            holds what waits for so long and counts no failure.
    """

    # For classes that inherit and have a constructor of their own.
    permanent: bool = False
    retry_after_ms: int | None = None

    def __init__(self, message: str = "", *, permanent: bool = False, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.retry_after_ms = retry_after_ms


class PersistenceError(ShardwireError):
    """Stored state cannot be read or written: locked, corrupt, or of a newer schema."""


class DecryptionError(ShardwireError):
    """A payload cannot be decrypted with any of the keys.

    Attributes:
        reason: Why, in one of few sentences that name nothing the payload holds: what is counted is counted by it.
    """

    def __init__(self, message: str = "", *, reason: str = "altered, or for another key or channel") -> None:
        super().__init__(message)
        self.reason = reason
