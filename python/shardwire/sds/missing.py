"""Dependencies that are named and not here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from itertools import islice

from shardwire._native import HistoryEntry, IncomingSend, MissingMessage

# How many of the oldest entries of a full table are looked at for one that may go at little loss.
OLDEST_MAX = 100
# How many participants are looked at for the one that named most.
SHARES_MAX = 100


class MissingMessages:
    """A bounded table. When it is full, the participant that named most of it loses its oldest entry, so that nobody's
    inventions displace what the others name. Among the oldest, one of a send that nothing waits for goes first, then
    one of a send of which something is held: what waits for a send that is only named would go on without it.
    """

    __slots__ = ("_messages_max", "by_id", "by_participant", "changed")

    def __init__(self, messages_max: int) -> None:
        self._messages_max = messages_max
        self.by_id: OrderedDict[str, MissingMessage] = OrderedDict()
        self.by_participant: dict[str, OrderedDict[str, None]] = {}
        # For poll_persist: ids whose stored form changed.
        self.changed: dict[str, None] = {}

    def add(self, entry: HistoryEntry, send: IncomingSend, named_by: str) -> MissingMessage | None:
        """Tracks `entry`; returns the message that had to go for it, if any."""
        evicted = self._make_room(named_by) if len(self.by_id) >= self._messages_max else None
        message = MissingMessage(entry, send, named_by)
        self.by_id[entry.message_id] = message
        share = self.by_participant.get(named_by)
        if share is None:
            share = self.by_participant[named_by] = OrderedDict()
        share[entry.message_id] = None
        self.changed[entry.message_id] = None
        return evicted

    def learn(self, message: MissingMessage, entry: HistoryEntry) -> None:
        """Another history names it too: the newest hint stands, and a sender once known."""
        known = message.entry
        hint = entry.retrieval_hint or known.retrieval_hint
        sender = known.sender_id or entry.sender_id
        if hint != known.retrieval_hint or sender != known.sender_id:
            message.entry = HistoryEntry(known.message_id, hint, sender)
            self.changed[known.message_id] = None

    def remove(self, message_id: str) -> MissingMessage | None:
        """It came, or is no longer waited for."""
        message = self.by_id.pop(message_id, None)
        if message is None:
            return None
        share = self.by_participant[message.named_by]
        del share[message_id]
        if not share:
            del self.by_participant[message.named_by]
        self.changed[message_id] = None
        return message

    def entries(self) -> tuple[HistoryEntry, ...]:
        return tuple(message.entry for message in self.by_id.values())

    def _make_room(self, named_by: str) -> MissingMessage | None:
        shares = self.by_participant
        # Where several named as much, whoever names more now loses.
        own: Collection[str] = shares.get(named_by, ())
        return self.remove(self._first_to_go(max((own, *islice(shares.values(), SHARES_MAX)), key=len)))

    def _first_to_go(self, ids: Collection[str]) -> str:
        # Looked for no further than to the first: a flood has this called for each of what it names.
        by_id = self.by_id
        free = (message_id for message_id in islice(ids, OLDEST_MAX) if not by_id[message_id].send.dependents)
        partial = (message_id for message_id in islice(ids, OLDEST_MAX) if by_id[message_id].send.contents)
        return next(free, None) or next(partial, None) or next(iter(ids))
