"""What became of a message that was cancelled."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What `ReliableChannel.cancel` did, and what it cannot take back. True where it stopped anything.

    Attributes:
        stopped: Whether nothing more of the message leaves; False where it was delivered, had failed, or is not known.
        segments_withdrawn: Segments that never left.
        segments_sent: Segments that had left: who got enough of them, now or later, has the message all the same.
        delivered_to: Participants that said they can reconstruct it.
    """

    stopped: bool
    segments_withdrawn: int = 0
    segments_sent: int = 0
    delivered_to: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self.stopped


NOTHING_STOPPED = Cancellation(False)
