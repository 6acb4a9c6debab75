"""What becomes of messages on their way to the network."""

from __future__ import annotations

from dataclasses import dataclass

from shardwire.sds import Transmit


@dataclass(slots=True)
class Propagated:
    """A transmit reached the network under this message hash; not frozen, as one is made for each."""

    transmit: Transmit
    message_hash: bytes


@dataclass(frozen=True, slots=True)
class DispatchFailed:
    """A transmit did not leave, as far as anybody knows.

    Attributes:
        transmit: The transmit.
        error: What happened.
        permanent: Whether trying again cannot help (004, Irrecoverable errors), as the node or the cipher says.
        unanswered: Whether the node took it and did not say what became of it, so that it may have left after all.
        retry_after_ms: How long the node refuses everything; None where it does not say so.
    """

    transmit: Transmit
    error: str
    permanent: bool = False
    unanswered: bool = False
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """A transmit was not handed to the node, since the rate limit had no place left for it."""

    transmit: Transmit


DispatchOutcome = Propagated | DispatchFailed | Late


@dataclass(slots=True)
class Stored:
    """A store has a content of ours that reached the network; not frozen, as one is made for each.

    Attributes:
        send_id: Its send.
        ordinal: Its place in that.
    """

    send_id: str
    ordinal: int
