"""What a channel finds of an earlier life, beside what SDS stores itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardwire.channel.storing.records import (
    IDENTITY,
    LAST_SEEN,
    RATE,
    IdentityRecord,
    LastSeenRecord,
    RateRecord,
)
from shardwire.errors import ConfigError
from shardwire.persistence.protocol import RecordName


@dataclass(slots=True)
class StoredState:
    """What the channel itself stored."""

    is_new: bool
    rate: RateRecord | None
    last_seen_ns: int

    @classmethod
    def read(cls, records: Mapping[RecordName, bytes], channel_id: str, sender_id: str) -> StoredState:
        """Reads what the channel itself stored.

        Raises:
            ConfigError: The state is another sender's.
            PersistenceError: A record is damaged or of a newer schema.
        """
        identity = records.get((IDENTITY, b""))
        if identity is not None:
            stored_sender = IdentityRecord.decode(identity).sender_id
            if stored_sender != sender_id:
                raise ConfigError(
                    f"sender_id is {sender_id!r}: the stored state of channel {channel_id!r} belongs to "
                    f"{stored_sender!r}; use that sender id or another persistence"
                )
        rate = records.get((RATE, b""))
        last_seen = records.get((LAST_SEEN, b""))
        return cls(
            is_new=identity is None,
            rate=RateRecord.decode(rate) if rate is not None else None,
            last_seen_ns=LastSeenRecord.decode(last_seen).timestamp_ns if last_seen is not None else 0,
        )
