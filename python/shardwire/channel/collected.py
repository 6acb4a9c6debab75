"""The outputs of one cycle of a channel."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardwire._native import ChangedRecords, Delivery
from shardwire.channel.sending.submissions import Settled, Submission
from shardwire.errors import PersistenceError
from shardwire.events import ChannelEvent
from shardwire.sds import Transmit

# The id of a send, its outcome ("sent", "delivered" or "error") and one of its request ids. It counts as unannounced
# until the application was told.
Outcome = tuple[str, str, str]


@dataclass(slots=True)
class Collected:
    """What a cycle gives: commit `changes`, then carry out the rest, in this order."""

    changes: ChangedRecords
    submissions: list[Submission] = field(default_factory=list)
    events: list[tuple[ChannelEvent, Outcome | None]] = field(default_factory=list)
    settlements: list[Settled] = field(default_factory=list)
    transmits: list[Transmit] = field(default_factory=list)
    missing: bool = False
    deliveries: list[Delivery] = field(default_factory=list)

    def on_commit_failed(self, error: PersistenceError) -> None:
        """Tells everybody who waits that the commit failed, and takes back its submissions and transmits.

        Settlements stay: a later commit stores the changes all the same, and settles them once more behind its events.
        """
        for settled in (*(submission.settled for submission in self.submissions), *self.settlements):
            settled(error)
        refused = {submission.request_id for submission in self.submissions}
        self.events = [entry for entry in self.events if getattr(entry[0], "request_id", None) not in refused]
        self.submissions, self.transmits = [], []
