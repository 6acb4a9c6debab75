"""Sends of which something was received and acknowledged, and that were given up before they were whole.

Acknowledgements cannot be taken back: a sender adds up what it was told. So whoever gave up a send says nothing more of
it, in histories or filters, until it holds again all that it ever said it holds, or the message itself.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from shardwire._native import HistoryEntry, IncomingSend, LogEntry, Now
from shardwire.config import SdsConfig
from shardwire.sds.incoming import claimed_key

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel


class GivenUp:
    """Knows these sends, withholds what must not be said of them, and asks for their contents when more of them comes.

    Attributes:
        sends: By send and sender; with the contents that may have been acknowledged, none where those are not known
            (any more), which withholds until the message is whole.
        changed: For poll_persist.
    """

    __slots__ = ("_by_send", "_former_count", "_machine", "_max", "_reopened", "changed", "sends")

    def __init__(self, machine: MessageChannel, config: SdsConfig) -> None:
        self._machine = machine
        self._by_send = config.message_id == "send"
        self._max = config.missing_messages_max
        self.sends: OrderedDict[str, tuple[HistoryEntry, ...]] = OrderedDict()
        self._former_count = 0
        self._reopened: list[tuple[bytes, bytes]] = []
        self.changed: dict[str, None] = {}

    # --- giving up ------------------------------------------------------------------------------

    def give_up(self, send: IncomingSend, keep_messages: bool, monotonic_ms: int) -> bool:
        """Forgets the contents of `send`; whether it is given up for the first time.

        With `keep_messages` those that are kept for repair stay, so that the send can be taken up again from them, and
        what it lacks is still asked for.
        """
        machine = self._machine
        gaps, originals = machine.incoming.gaps, machine.repair.originals
        contents = list(send.contents)
        known = self._by_send and send.key in gaps.lost
        known = known or any(entry.message_id in gaps.lost for entry in contents)
        lacking = gaps.lacking(send) if keep_messages else []
        machine.incoming.abandon(send)
        name = claimed_key(send.send_id, send.sender_id)
        former = {entry.message_id: entry for entry in self.sends.get(name, ())}
        for entry in contents:
            message_id = entry.message_id
            former[message_id] = HistoryEntry(message_id, entry.retrieval_hint, entry.sender_id)
            self._unsay(entry)
            machine.log.withdraw(message_id)
            if not keep_messages:
                originals.forget(message_id)
            if not self._by_send:
                gaps.remember_lost(message_id, True)
        if self._by_send:
            gaps.remember_lost(send.key, True)
        self._put(name, tuple(former.values()))
        gaps.go_on_asking(lacking, monotonic_ms)
        return not known

    def doubt(self, message_id: str, sender_id: str, send_id: str) -> None:
        """There is enough of the content's send, and its message is not whole: it must not be said."""
        send = self._machine.incoming.find(sender_id, send_id)
        if send is None or not send.contents or send.reconstructed:
            return
        name = claimed_key(send.send_id, send.sender_id)
        if name not in self.sends:
            self._put(name, ())
        # Of a rival: the content that has its id.
        entry = self._machine.log.entries.get(message_id.partition("\0")[0])
        if entry is not None and entry.send is send:
            self._unsay(entry)

    def refuse(self, message_id: str, data: bytes, invalid: bool) -> None:
        """Forgets a content whose message `data` was received last; nothing waits for one that is `invalid`."""
        machine = self._machine
        entry = machine.log.entries.get(message_id)
        original = machine.repair.originals.get(message_id)
        if entry is None or entry.send is None or (original is not None and original != data):
            # A rival of a content that is held is not that content.
            return
        send = entry.send
        machine.incoming.refuse(entry)
        self._unsay(entry)
        machine.repair.originals.forget(message_id)
        machine.log.refuse(entry)
        if invalid and not send.contents:
            machine.incoming.drop_refused(send)

    def deliver_alone(self, message_id: str) -> None:
        """The content is no message of its own, and its message is here. With siblings it stays held."""
        machine = self._machine
        entry = machine.log.entries.get(message_id)
        if entry is None or entry.send is None or len(entry.send.contents) > 1 or entry.send.reconstructed:
            return
        machine.incoming.abandon(entry.send)
        machine.acknowledgements.send_delivered([entry])

    def _unsay(self, entry: LogEntry) -> None:
        machine = self._machine
        machine.acknowledgements.forget(entry.message_id)
        machine.anti_entropy.forget(entry.message_id)
        machine.bloom.refuse(entry.message_id)

    def _put(self, name: str, former: tuple[HistoryEntry, ...]) -> None:
        self._former_count += len(former) - len(self.sends.pop(name, ()))
        self.sends[name] = former
        self.changed[name] = None
        if len(self.sends) > self._max:
            self._forget(next(iter(self.sends)))
        if self._former_count > self._max:
            for oldest, entries in self.sends.items():
                if entries and oldest != name:
                    self._former_count -= len(entries)
                    self._forget_messages(entries)
                    self.sends[oldest] = ()
                    break

    def _forget(self, name: str) -> None:
        former = self.sends.pop(name)
        self.changed[name] = None
        self._former_count -= len(former)
        self._forget_messages(former)

    def _forget_messages(self, former: tuple[HistoryEntry, ...]) -> None:
        machine = self._machine
        for entry in former:
            if entry.message_id not in machine.log.entries:
                machine.repair.originals.forget(entry.message_id)

    # --- what comes again -----------------------------------------------------------------------

    def knows(self, sender_id: str, send_id: str) -> bool:
        """Whether the send that the channel calls so is withheld."""
        return bool(self.sends) and claimed_key(send_id, sender_id) in self.sends

    def withholds(self, entry: LogEntry) -> bool:
        """Whether `entry` must not be said."""
        send = entry.send
        return send is not None and self.knows(send.sender_id, send.send_id)

    def on_placed(self, entry: LogEntry, now: Now) -> None:
        """A content came and its send is known."""
        send = entry.send
        if send is None or send.reconstructed or not self.knows(send.sender_id, send.send_id):
            return
        former = self.sends[claimed_key(send.send_id, send.sender_id)]
        held = {content.message_id for content in send.contents}
        absent = [known for known in former if known.message_id not in held]
        if former and not absent:
            self.on_whole(send, now)
            return
        self._unsay(entry)
        if former and len(send.contents) == 1:
            self._reopen(send, absent, now)

    def _reopen(self, send: IncomingSend, absent: list[HistoryEntry], now: Now) -> None:
        """The first content came again: the others are taken from what is kept here, or asked for."""
        machine = self._machine
        # What follows it went on without it before.
        machine.incoming.go_on_without(send)
        wanted: list[HistoryEntry] = []
        for entry in absent:
            data = machine.repair.originals.get(entry.message_id)
            if data is None:
                wanted.append(entry)
            else:
                self._reopened.append((data, entry.retrieval_hint or b""))
        machine.incoming.gaps.ask_for(send, wanted, now.monotonic_ms)

    def on_whole(self, send: IncomingSend, now: Now) -> None:
        """All that was said of `send` is true again: the rest is said."""
        if self.knows(send.sender_id, send.send_id):
            self._forget(claimed_key(send.send_id, send.sender_id))
            for entry in send.contents:
                self._machine.bloom.insert(entry.message_id)
                self._machine.acknowledgements.received(entry, now)

    def poll_reopened(self) -> list[tuple[bytes, bytes]]:
        """Messages to be taken in again, with their hints, since the last call."""
        if not self._reopened:
            return []
        reopened, self._reopened = self._reopened, []
        return reopened

    # --- restore --------------------------------------------------------------------------------

    def take_back(self, name: str) -> None:
        """Restores a stored name."""
        self.sends[name] = ()
        self._machine.bloom.stale = True
