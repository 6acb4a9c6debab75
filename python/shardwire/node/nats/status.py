"""What a NATS server is and has, for people."""

from __future__ import annotations

from dataclasses import dataclass

from shardwire.node.protocol import ConnectionState


@dataclass(frozen=True, slots=True)
class NatsStreamStatus:
    """The stream that is the store.

    Attributes:
        name: Its name.
        messages: How many it holds.
        size_bytes: What they take.
        size_bytes_max: What they may take, before the oldest go; None for no limit.
        age_max_ms: How long one is kept; None for ever.
        replicas: Copies in a cluster.
        clock_ahead_ms: How far the server's clock is ahead of ours; None where it does not tell.
    """

    name: str
    messages: int
    size_bytes: int
    size_bytes_max: int | None
    age_max_ms: int | None
    replicas: int
    clock_ahead_ms: int | None


@dataclass(frozen=True, slots=True)
class NatsNodeStatus:
    """What a server is and has at the moment.

    Attributes:
        state: The connection, as told.
        server_name: Its name.
        server_version: Its version.
        cluster: Name of its cluster; None for a single server.
        tls: Whether the connection is encrypted.
        round_trip_ms: How long a ping takes.
        payload_bytes_max: Its `max_payload`.
        jetstream: Whether it has JetStream.
        stream: The stream; None where there is none to be used.
        no_stream_reason: Why not; empty where there is one, or none is wanted.
    """

    state: ConnectionState
    server_name: str
    server_version: str
    cluster: str | None
    tls: bool
    round_trip_ms: float
    payload_bytes_max: int
    jetstream: bool
    stream: NatsStreamStatus | None
    no_stream_reason: str
