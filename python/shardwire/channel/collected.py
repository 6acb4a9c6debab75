"""What one cycle of a channel gives."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardwire._native import HistoryEntry
from shardwire.channel.deliveries import Delivery
from shardwire.channel.send_events import Outcome
from shardwire.channel.submissions import Settled, Submission
from shardwire.errors import PersistenceError
from shardwire.events import ChannelEvent
from shardwire.persistence.protocol import Changes
from shardwire.sds.outputs import Transmit


@dataclass(slots=True)
class Collected:
    """What a cycle gives: commit `changes`, then carry out the rest, in this order."""

    changes: Changes
    submissions: list[Submission] = field(default_factory=list)
    events: list[tuple[ChannelEvent, Outcome | None]] = field(default_factory=list)
    cancellations: list[Settled] = field(default_factory=list)
    transmits: list[Transmit] = field(default_factory=list)
    missing: list[HistoryEntry] = field(default_factory=list)
    delivery: Delivery | None = None

    def on_commit_failed(self, error: PersistenceError) -> list[Outcome]:
        """Tells everybody who waits, and keeps what the commit that stores the changes makes true all the same.

        A cancellation is kept: it is settled once more, behind events that are told of only then.

        Returns:
            Outcomes that requests which are refused would have been told, one for each event.
        """
        for settled in (*(submission.settled for submission in self.submissions), *self.cancellations):
            settled(error)
        refused = {submission.request_id for submission in self.submissions}
        events, self.events = self.events, []
        untold: list[Outcome] = []
        for event, outcome in events:
            if getattr(event, "request_id", None) not in refused:
                self.events.append((event, outcome))
            elif outcome is not None:
                untold.append(outcome)
        self.submissions, self.transmits = [], []
        return untold
