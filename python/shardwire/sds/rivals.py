"""Contents that come under a message id which another content has.

SDS wants ids unique, but nothing binds one to its sender or its content: whoever repeats an id first would make the
message that it belongs to a duplicate, acknowledged and never delivered. So every content under an id is taken, the
later ones beside the log: they are handed up, and released as soon as their message is whole.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from shardwire._native import IncomingSend, LogEntry
from shardwire.config import SdsConfig
from shardwire.sds.identity import rival_name
from shardwire.sds.outputs import ContentReceived, SdsEvent, SendReleased

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel


class Rivals:
    """Tells rivals from repetitions, and hands each up once.

    Attributes:
        taken: Names of those that were handed up and not refused, the longest known first.
        changed: For poll_persist.
    """

    __slots__ = (
        "_by_id",
        "_by_send",
        "_decode",
        "_emit",
        "_incoming",
        "_max",
        "_originals",
        "_repairs",
        "changed",
        "taken",
    )

    def __init__(self, machine: MessageChannel, config: SdsConfig) -> None:
        self._by_send = config.message_id == "send"
        self._max = config.missing_messages_max
        self._repairs = config.enable_repair
        self._decode = machine.codec.decode
        self._emit: Callable[[SdsEvent], None] = machine.emit
        self._incoming = machine.incoming
        self._originals = machine.repair.originals
        self.taken: OrderedDict[str, None] = OrderedDict()
        # How many of them each id has, so that nothing is hashed for the sake of another id.
        self._by_id: Counter[str] = Counter()
        self.changed: dict[str, None] = {}

    def take(self, known: LogEntry, sender_id: str, content: bytes, data: bytes) -> bool:
        """Whether `data` brought another content than `known`; what may be one is handed up, unless it was before."""
        other = known.sender_id != sender_id
        is_open = known.send is not None and not known.send.reconstructed
        # Nobody saw the content of one that was recovered: the channel knows whether this one belongs to its message.
        recovered = self._repairs and not known.lamport and known.message_id not in self._originals
        # Under ids made of contents two senders of one content share its id, and the first whole message is delivered.
        different = recovered or (other and (self._by_send or is_open)) or self._differs(known, content, data)
        if not different:
            return False
        send_id, ordinal = self._incoming.place_of(known.message_id) or (None, None)
        name = rival_name(known.message_id, sender_id, content)
        if name in self.taken:
            return False
        self._remember(name)
        self._emit(ContentReceived(name, sender_id, content, send_id, ordinal))
        return not recovered

    def has_taken(self, message_id: str, sender_id: str, content: bytes) -> bool:
        """Whether a content that comes first under its id now was a rival of another one that was given up since."""
        return message_id in self._by_id and rival_name(message_id, sender_id, content) in self.taken

    def on_whole(self, message_id: str, sender_id: str, content: bytes, data: bytes) -> None:
        """A message in one content came, by `data`: where the message kept under its id is another, it is a rival."""
        original = self._originals.get(message_id)
        if original is not None and original != data:
            self._remember(rival_name(message_id, sender_id, content))

    def release(self, sender_id: str, send_id: str, send: IncomingSend | None) -> None:
        """A message is whole of which nothing but rivals came: it goes at once, since nothing is known that it follows.

        `send` is what waits for it by that name.
        """
        self._emit(SendReleased(sender_id, send_id))
        if send is not None:
            self._incoming.drop(send)

    def take_back(self, name: str) -> None:
        """Restores a stored name."""
        self.taken[name] = None
        self._by_id[_id_of(name)] += 1

    def _remember(self, name: str) -> None:
        if name not in self.taken:
            self.take_back(name)
            self.changed[name] = None
        if len(self.taken) > self._max:
            self.refuse(next(iter(self.taken)))

    def refuse(self, name: str) -> None:
        """There was no room for a rival, or it was of no use: it may come again."""
        if name in self.taken:
            del self.taken[name]
            self.changed[name] = None
            message_id = _id_of(name)
            self._by_id[message_id] -= 1
            if not self._by_id[message_id]:
                del self._by_id[message_id]

    def _differs(self, known: LogEntry, content: bytes, data: bytes) -> bool:
        original = self._originals.get(known.message_id)
        if original is None or original == data:
            return False
        fields = self._decode(original)
        if not fields:
            return True
        *_, kept = fields
        return kept != content


def _id_of(name: str) -> str:
    return name.rpartition("\0")[0]
