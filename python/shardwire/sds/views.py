"""What may be asked of a machine; nothing here changes it."""

from __future__ import annotations

from shardwire._native import HistoryEntry, Now
from shardwire.config import SyncConfig
from shardwire.sds.incoming import IncomingBuffer
from shardwire.sds.lamport import LamportClock
from shardwire.sds.outgoing import OutgoingBuffer
from shardwire.sds.outputs import TransmitKind
from shardwire.sds.participants import Participants
from shardwire.sds.transmission import Transmission


class Views:
    """The views of a `MessageChannel`, on its parts."""

    transmission: Transmission
    outgoing: OutgoingBuffer
    incoming: IncomingBuffer
    participants: Participants
    lamport: LamportClock
    _sync: SyncConfig

    def waiting(self) -> dict[TransmitKind, int]:
        """How many messages of each kind could leave, leaving aside syncs."""
        return self.transmission.waiting()

    @property
    def queued_bytes(self) -> int:
        """Content bytes that wait for their first dispatch."""
        return self.outgoing.queue.bytes

    def has_room(self) -> bool:
        """Whether the outgoing buffer is below `outgoing_buffer_messages_max`, so that sends may be registered."""
        return self.outgoing.has_room()

    def sends_in_store(self) -> int:
        """Sends that wait in a store, where nobody who lacks them is heard or answers."""
        if not self.outgoing.is_silent():
            return 0
        return len({content.send.send_id for content in self.outgoing.waiting_in_store.values()})

    def missing(self) -> tuple[HistoryEntry, ...]:
        """What histories name and is not here, the longest known first."""
        return self.incoming.gaps.missing.entries()

    def participants_heard(self, now: Now) -> tuple[str, ...]:
        """Members: senders heard within `participant_ttl_ms`."""
        return self.participants.within(now.monotonic_ms, self._sync.participant_ttl_ms)

    def pending_sends(self) -> tuple[str, ...]:
        """Sends of ours that are neither delivered nor given up."""
        return tuple([send.send_id for send in self.outgoing.sends.values() if not send.finished])

    @property
    def lamport_timestamp(self) -> int:
        return self.lamport.timestamp
