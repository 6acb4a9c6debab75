"""Contents that come under a message id which another content has.

SDS wants ids unique, but nothing binds one to its sender or its content: whoever repeats an id first would make the
message that it belongs to a duplicate, acknowledged and never delivered. So every content under an id is taken, the
later ones beside the log: they are handed up, and released as soon as their message is whole.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from shardwire._native import LogEntry
from shardwire.config import SdsConfig
from shardwire.sds.identity import rival_name
from shardwire.sds.outputs import ContentReceived, SdsEvent

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel


class Rivals:
    """Tells rivals from repetitions, and hands each up once.

    Attributes:
        taken: Names of those that were handed up and not refused, the longest known first.
        changed: For poll_persist.
    """

    __slots__ = ("_by_send", "_decode", "_emit", "_incoming", "_max", "_originals", "changed", "taken")

    def __init__(self, machine: MessageChannel, config: SdsConfig) -> None:
        self._by_send = config.message_id == "send"
        self._max = config.missing_messages_max
        self._decode = machine.codec.decode
        self._emit: Callable[[SdsEvent], None] = machine.emit
        self._incoming = machine.incoming
        self._originals = machine.repair.originals
        self.taken: OrderedDict[str, None] = OrderedDict()
        self.changed: dict[str, None] = {}

    def take(self, known: LogEntry, sender_id: str, content: bytes, data: bytes) -> bool:
        """Whether `data` brought another content than `known`; it is handed up then, unless it was before."""
        other = known.sender_id != sender_id
        is_open = known.send is not None and not known.send.reconstructed
        # Under ids made of contents two senders of one content share its id, and the first whole message is delivered.
        if not (other and (self._by_send or is_open)) and not self._differs(known, content, data):
            return False
        place = self._incoming.place_of(known.message_id)
        send_id, ordinal = place or (None, None)
        name = known.message_id
        if other or not is_open or place is None:
            # Also where ids name no send: a content belongs to one message, and this is of another.
            name = rival_name(known.message_id, sender_id, content)
            if name in self.taken:
                return False
            self.taken[name] = self.changed[name] = None
            if len(self.taken) > self._max:
                self.refuse(next(iter(self.taken)))
        # Else one of two in one message is forged, and only the whole can tell which.
        self._emit(ContentReceived(name, sender_id, content, send_id, ordinal))
        return True

    def refuse(self, name: str) -> None:
        """There was no room for a rival, or it was of no use: it may come again."""
        if name in self.taken:
            del self.taken[name]
            self.changed[name] = None

    def _differs(self, known: LogEntry, content: bytes, data: bytes) -> bool:
        original = self._originals.get(known.message_id)
        if original is None or original == data:
            return False
        fields = self._decode(original)
        if not fields:
            return True
        *_, kept = fields
        return kept != content
