"""What the channel itself keeps in its persistence, beside the records of its machine.

Small records are JSON objects with a version, so that a later schema can read what an earlier one wrote; payloads are
kept as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from json.encoder import encode_basestring_ascii
from operator import attrgetter
from typing import Any, Self

from shardwire.errors import PersistenceError
from shardwire.persistence.protocol import RecordName

Records = dict[RecordName, bytes | None]

SCHEMA_VERSION = 1

IDENTITY = "channel.identity"
RATE = "channel.rate"
NODE_RATE = "node.rate"
SEND = "channel.send"
DELIVERY = "channel.delivery"
HANDOVER = "channel.handover"
LAST_SEEN = "channel.last-seen"


# As `json.dumps` does, which takes several times as long for values as small as these.
_JSON_OF: dict[type, Callable[[Any], str]] = {
    str: encode_basestring_ascii,
    int: int.__repr__,
    bool: lambda value: "true" if value else "false",
}


def _json_of(value: object) -> str:
    """Of a value whose class is one of those, or derived from one, as a member of a `StrEnum` is."""
    return next(_JSON_OF[kind] for kind in type(value).__mro__ if kind in _JSON_OF)(value)


class _JsonRecord:
    """Encodes the fields of a dataclass with slots that inherits from it."""

    __slots__: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """What `decode` reads; fields that hold their defaults stay out."""
        # Not `asdict`, which takes several times as long: this runs with every message that is handed over.
        read, forms = _FORMS.get(type(self)) or _form_of(type(self))
        values = [
            start + (_JSON_OF.get(type(value)) or _json_of)(value)
            for (start, default), value in zip(forms, read(self), strict=True)
            if value != default
        ]
        return f'{{"version":{SCHEMA_VERSION}{"".join(values)}}}'.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises:
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


# What reads the values of all fields of a class, and for each how it begins in JSON, and its default.
_Form = tuple[Callable[[object], tuple[Any, ...]], list[tuple[str, object]]]
_FORMS: dict[type, _Form] = {}


def _form_of(kind: type[Any]) -> _Form:
    stated = fields(kind)
    names = [part.name for part in stated]
    # Of one name alone the getter gives no tuple.
    read = attrgetter(*names) if len(names) > 1 else lambda record: (getattr(record, names[0]),)
    form = _FORMS[kind] = read, [(f',"{part.name}":', part.default) for part in stated]
    return form


@dataclass(frozen=True, slots=True)
class IdentityRecord(_JsonRecord):
    """Whose channel state this is."""

    sender_id: str


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


@dataclass(frozen=True, slots=True)
class LastSeenRecord(_JsonRecord):
    """The newest transport timestamp received, from which a reconnecting participant asks the store."""

    timestamp_ns: int


@dataclass(frozen=True, slots=True)
class DeliveryRecord(_JsonRecord):
    """A message that waits to be handed to the application; the machine has its bytes."""

    sender_id: str
    send_id: str
    message_id: str


def sequence_key(sequence: int) -> bytes:
    """Key of the `sequence`-th delivery; keys sort as the numbers do."""
    return sequence.to_bytes(8, "big")


def of_kind(records: Mapping[RecordName, bytes], kind: str) -> dict[bytes, bytes]:
    """Keys and values of one kind, in ascending order of keys."""
    return dict(sorted((key, value) for (name, key), value in records.items() if name == kind))
