"""What really went over the wire, read from the network's own trace and not from anybody's counters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from shardwire._native import SdsMessage
from shardwire.encryption import ChaCha20Poly1305Encryption, Encryption
from shardwire.errors import DecryptionError
from shardwire.node import TraceRecord
from shardwire.node.virtual_time import START_EPOCH_MS
from tests.simulation.participants import ASIDE, CHANNEL_ID
from tests.simulation.run import KEY, Evidence


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One envelope of a participant, decrypted and decoded.

    Attributes:
        record: The envelope.
        at_ms: Virtual time at which it left.
        accepted: Its place among the envelopes that the nodes accepted.
        message: The SDS message.
        send_id: Key of the send that a content message belongs to.
        named: Keys of the sends that its causal history names.
    """

    record: TraceRecord
    at_ms: int
    accepted: int
    message: SdsMessage
    send_id: str | None
    named: frozenset[str]

    @property
    def is_repair(self) -> bool:
        """Whether it repeats another participant's message (SDS-R)."""
        return self.message.sender_id != self.record.sender


@cache
def _encryption() -> Encryption:
    return ChaCha20Poly1305Encryption(KEY).bind(CHANNEL_ID)


def read_payload(evidence: Evidence, payload: bytes) -> SdsMessage | None:
    """The SDS message in a transport payload; None where it is none of the channel's."""
    if evidence.world.encrypted:
        try:
            payload = _encryption().decrypt(payload)
        except DecryptionError:
            return None
    return SdsMessage.decode(payload, evidence.world.sds_wire_format)


def wire_messages(evidence: Evidence) -> list[WireMessage]:
    """Everything that honest participants sent, oldest first.

    Raises:
        AssertionError: A participant sent something that is no SDS message of the channel.
    """
    if evidence.wire is None:
        evidence.wire = list(_read(evidence))
    return evidence.wire


def _read(evidence: Evidence) -> Iterator[WireMessage]:
    honest = set(evidence.world.names)
    for record in evidence.trace:
        if record.sender not in honest:
            continue
        assert record.payload is not None
        message = read_payload(evidence, record.payload)
        if evidence.world.aside and (message is None or message.channel_id == ASIDE):
            continue
        assert message is not None, f"{record.sender} sent {record.size_bytes} bytes that are no SDS message"
        assert message.channel_id == CHANNEL_ID, f"{record.sender} sent for channel {message.channel_id!r}"
        at_ms = record.time_ns // 1_000_000 - START_EPOCH_MS
        send_id = evidence.send_of(message.message_id) if message.kind == "content" else None
        named = frozenset(key for entry in message.causal_history if (key := evidence.send_of(entry.message_id)))
        yield WireMessage(record, at_ms, int(record.request_id.rpartition("-")[2]), message, send_id, named)
