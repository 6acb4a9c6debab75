"""What an MQTT broker says of itself, for people."""

from __future__ import annotations

from dataclasses import dataclass

from shardwire.node.protocol import ConnectionState


@dataclass(frozen=True, slots=True)
class MqttNodeStatus:
    """What a broker said when it let us in.

    Attributes:
        state: The connection, as told.
        client_id: The name that the broker knows us by.
        tls: Whether the connection is encrypted.
        packet_bytes_max: Its Maximum Packet Size; None where it tells none.
        receive_max: Messages that it takes before it has acknowledged the first of them.
        session_expiry_ms: How long it keeps what comes in while we are away.
    """

    state: ConnectionState
    client_id: str
    tls: bool
    packet_bytes_max: int | None
    receive_max: int
    session_expiry_ms: int
