"""What one cycle of a channel gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardwire._native import ChangedRecords, Delivery, HistoryEntry
from shardwire.channel.sending.submissions import Settled, Submission
from shardwire.errors import PersistenceError
from shardwire.events import ChannelEvent
from shardwire.sds.outputs import Transmit

# A send, one of its outcomes, "sent", "delivered" or "error", and one of its requests: unannounced until the
# application was told.
Outcome = tuple[str, str, str]


@dataclass(slots=True)
class Collected:
    """What a cycle gives: commit `changes`, then carry out the rest, in this order."""

    changes: ChangedRecords
    submissions: list[Submission] = field(default_factory=list)
    events: list[tuple[ChannelEvent, Outcome | None]] = field(default_factory=list)
    settlements: list[Settled] = field(default_factory=list)
    transmits: list[Transmit] = field(default_factory=list)
    missing: list[HistoryEntry] = field(default_factory=list)
    delivery: Delivery | None = None

    def on_commit_failed(self, error: PersistenceError) -> None:
        """Tells everybody who waits, and keeps what the commit that stores the changes makes true all the same.

        What else waits for it is kept: it is settled once more, behind events that are told of only then.
        """
        for settled in (*(submission.settled for submission in self.submissions), *self.settlements):
            settled(error)
        refused = {submission.request_id for submission in self.submissions}
        self.events = [entry for entry in self.events if getattr(entry[0], "request_id", None) not in refused]
        self.submissions, self.transmits = [], []
