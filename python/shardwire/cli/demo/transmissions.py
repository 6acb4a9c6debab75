"""What became of every segment on the network, read from its trace with the channel's key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shardwire._native import SdsMessage
from shardwire.cli.demo.settings import CHANNEL_ID
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.node import TraceRecord


@dataclass(frozen=True, slots=True)
class Transmission:
    """One time that a segment left.

    Attributes:
        ordinal: Index of a data segment, or the number of data segments plus the index of a parity segment.
        at_ms: Unix time at which it left.
        attempt: 0 the first time, then the number of the retransmission.
        arrived: Who got it.
    """

    ordinal: int
    at_ms: int
    attempt: int
    arrived: frozenset[str]


def segment_transmissions(
    trace: Iterable[TraceRecord], encryption: ChaCha20Poly1305Encryption, send_id: str
) -> tuple[Transmission, ...]:
    """The transmissions of one send's segments, oldest first.

    Args:
        trace: Of a network that keeps payloads.
        encryption: The channel's, not bound to it yet.
        send_id: The request id of the send, as its message ids name it.
    """
    bound = encryption.bind(CHANNEL_ID)
    attempts: dict[int, int] = {}
    found = []
    for record in trace:
        named = None if record.payload is None else segment_of(record.payload, bound)
        if named is not None and named[0] == send_id:
            segment = named[1]
            attempt = attempts[segment] = attempts.get(segment, -1) + 1
            arrived = frozenset(
                outcome.receiver for outcome in record.outcomes if outcome.outcome in ("delivered", "duplicated")
            )
            found.append(Transmission(segment, record.time_ns // 1_000_000, attempt, arrived))
    return tuple(found)


def segment_of(payload: bytes, encryption: ChaCha20Poly1305Encryption) -> tuple[str, int] | None:
    """The send and the ordinal of the segment in an envelope; None where it holds none.

    Args:
        payload: Of an envelope.
        encryption: Bound to the channel.
    """
    message = SdsMessage.decode(encryption.decrypt(payload))
    if message is None:
        return None
    # The default rule of message ids: the send and the place in it.
    send_id, _, ordinal = message.message_id.partition(".")
    return (send_id, int(ordinal)) if ordinal.isdigit() else None
