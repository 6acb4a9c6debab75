"""What the channel itself keeps in its persistence, beside the records of its machine.

They are JSON objects with a version, so that a later schema can read what an earlier one wrote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, cast

from shardwire.errors import ConfigError, PersistenceError
from shardwire.persistence.protocol import RecordName

Records = dict[RecordName, bytes | None]

SCHEMA_VERSION = 1

IDENTITY = "channel.identity"
RATE = "channel.rate"
NODE_RATE = "node.rate"
# The machine's, which whoever lists a state reads: up to when nothing was missed, sends of ours, and messages that wait
# for the application.
LAST_SEEN = "channel.last-seen"
SEND = "channel.send"
DELIVERY = "channel.delivery"


class _JsonRecord:
    """A dataclass with slots that inherits from it is encoded by its fields."""

    __slots__: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """What `decode` reads; fields that hold their defaults stay out."""
        stated = {
            part.name: value for part in fields(cast(Any, self)) if (value := getattr(self, part.name)) != part.default
        }
        return json.dumps({"version": SCHEMA_VERSION, **stated}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Reads what `encode` wrote; fields that are left out have their defaults.

        Raises:
            PersistenceError: The record is damaged or of a newer schema.
        """
        try:
            values: dict[str, Any] = json.loads(data)
            version = values.pop("version")
            if version > SCHEMA_VERSION:
                raise PersistenceError(
                    f"a {cls.__name__} has schema version {version}, this release reads up to {SCHEMA_VERSION}: "
                    "open the channel with the release that wrote it, or a newer one"
                )
            return cls(**{name: value for name, value in values.items() if name in cls.__slots__})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise PersistenceError(
                f"a stored {cls.__name__} is damaged ({type(error).__name__}): restore the database from a copy"
            ) from error


@dataclass(frozen=True, slots=True)
class IdentityRecord(_JsonRecord):
    """Whose channel state this is, and in which wire the SDS messages of it are; earlier releases did not say that."""

    sender_id: str
    sds_wire_format: str | None = None


@dataclass(frozen=True, slots=True)
class RateRecord(_JsonRecord):
    """The rate count of the newest epoch."""

    epoch: int
    epoch_size_ms: int
    used: int


@dataclass(frozen=True, slots=True)
class NodeRateRecord(_JsonRecord):
    """The count of the newest epoch of a node, in one of the persistences of its channels.

    Attributes:
        epoch: The epoch.
        epoch_size_ms: Its length.
        used: The count.
        is_counted_here: Whether this is kept up to date; else another persistence has the count.
        mark: Of the place while it is used: who finds another than is in use looks at what an earlier life left.
    """

    epoch: int
    epoch_size_ms: int
    used: int
    is_counted_here: bool
    mark: str


@dataclass(slots=True)
class StoredState:
    """What the channel itself stored."""

    is_new: bool
    rate: RateRecord | None

    @classmethod
    def read(
        cls, records: Mapping[RecordName, bytes], channel_id: str, sender_id: str, sds_wire_format: str
    ) -> StoredState:
        """Reads what the channel itself stored.

        Raises:
            ConfigError: The state is another sender's, or its messages are of another wire.
            PersistenceError: A record is damaged or of a newer schema.
        """
        identity = records.get((IDENTITY, b""))
        if identity is not None:
            stored = IdentityRecord.decode(identity)
            if stored.sender_id != sender_id:
                raise ConfigError(
                    f"sender_id is {sender_id!r}: the stored state of channel {channel_id!r} belongs to "
                    f"{stored.sender_id!r}; use that sender id or another persistence"
                )
            if stored.sds_wire_format not in (None, sds_wire_format):
                raise ConfigError(
                    f"SdsConfig.wire_format is {sds_wire_format!r}: the stored messages of channel {channel_id!r} are "
                    f"in {stored.sds_wire_format!r}, which nobody there would read; use that or another persistence"
                )
        rate = records.get((RATE, b""))
        return cls(
            is_new=identity is None,
            rate=RateRecord.decode(rate) if rate is not None else None,
        )
