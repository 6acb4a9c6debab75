"""What a store has of our messages: noted with each send, and told to SDS, over restarts too."""

from __future__ import annotations

from shardwire._native import ChannelMachine
from shardwire.channel.sending.outcomes import Stored
from shardwire.channel.sending.outgoing import OutgoingSends
from shardwire.sds import Now


class InStore:
    """Between the node's word, the sends and SDS.

    Args:
        machine: Sends nothing again that is safe there while nobody is heard who lacks it.
        outgoing: Remembers it.
    """

    def __init__(self, machine: ChannelMachine, outgoing: OutgoingSends) -> None:
        self._machine = machine
        self._outgoing = outgoing

    def on_stored(self, stored: Stored, now: Now) -> None:
        """A store has a content of ours."""
        self._outgoing.on_stored(stored.send_id, stored.ordinal)
        self._machine.handle_stored(stored.send_id, stored.ordinal, now)

    def resume(self, now: Now) -> None:
        """What it had in an earlier life it has still."""
        for send_id, ordinal in self._outgoing.stored():
            self._machine.handle_stored(send_id, ordinal, now)
