"""Sends of other participants until they are delivered: the incoming buffer and its dependencies.

A send is a group of contents that make one message. Contents are handed up on receipt; the send is released once it
is reconstructed and every send it follows was released or is lost (SDS, Deliver Message, kept between sends).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

from shardwire._native import HistoryEntry
from shardwire.config import SdsConfig
from shardwire.sds.identity import (
    MESSAGE_ID_LENGTH_MAX,
    RETRIEVAL_HINT_BYTES_MAX,
    SENDER_ID_LENGTH_MAX,
    content_id,
    split_content_id,
)
from shardwire.sds.incoming_send import IncomingSend
from shardwire.sds.local_log import LocalLog, LogEntry
from shardwire.sds.missing import MissingMessage, MissingMessages
from shardwire.sds.outgoing import resend_period_ms
from shardwire.sds.outputs import DependencyLost, MissingDetected, SdsEvent, SendReleased

# Unknown entries of one history that are tracked; the newest stand last, so the last ones count.
UNKNOWN_PER_MESSAGE_MAX = 1_000


def _claimed_key(key: str, sender_id: str) -> str:
    return f"{key}\0{sender_id}"


class IncomingBuffer:
    """All sends that are not delivered, by key, with the table of what is missing."""

    def __init__(
        self,
        config: SdsConfig,
        sender_id: str,
        log: LocalLog,
        emit: Callable[[SdsEvent], None],
        on_released: Callable[[IncomingSend], None],
        on_missing: Callable[[HistoryEntry], None],
        on_found: Callable[[str], None],
    ) -> None:
        self._by_send = config.message_id == "send"
        self._quiet_ms = config.acknowledgement_timeout_ms
        self._lost_ms = config.timeout_for_lost_messages_ms
        # What is named before anything else was heard of its sender may be older than this participant. It is waited
        # for while a sender that lost it lately would send it again, and no longer than a repair takes.
        retries_ms = sum(
            resend_period_ms(config.acknowledgement_timeout_ms, attempts)
            for attempts in range(min(config.max_retransmissions, 100) + 1)
        )
        self._newcomer_lost_ms = min(self._lost_ms or (1 << 62), retries_ms, 2 * config.repair_t_max_ms)
        self._contents_max = config.incoming_buffer_messages_max
        self._lost_max = config.missing_messages_max
        self._me = sender_id
        self._log = log
        self._emit = emit
        self._on_released = on_released
        self._on_missing = on_missing
        self._on_found = on_found
        self.sends: dict[str, IncomingSend] = {}
        # Sends whose message ids do not name them, by the id that the channel read.
        self.by_send_id: dict[str, IncomingSend] = {}
        self.missing = MissingMessages(config.missing_messages_max)
        self.contents_held = 0
        self._blocked: OrderedDict[str, IncomingSend] = OrderedDict()
        self.lost: dict[str, None] = {}
        self._lost_order: deque[str] = deque()
        self._deadlines: list[tuple[int, int, IncomingSend]] = []
        self._deadline_count = 0
        # For poll_persist.
        self.changed: dict[str, None] = {}
        self.lost_changed: dict[str, bool] = {}

    # --- what arrives ---------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Makes room for one more content where it can; False when all that is held is incomplete."""
        if self.contents_held < self._contents_max:
            return True
        if not self._blocked:
            return False
        # Acknowledged contents are never dropped: the send that waits longest goes without its causes.
        _, oldest = next(iter(self._blocked.items()))
        self._let_go(oldest)
        return self.contents_held < self._contents_max

    def place_of(self, message_id: str) -> tuple[str, int] | None:
        return split_content_id(message_id) if self._by_send else None

    def receive(
        self, entry: LogEntry, key: str, history: Sequence[HistoryEntry], monotonic_ms: int, newcomer: bool
    ) -> None:
        """Holds a new content of the send `key` and notes what that send follows."""
        sender_id = entry.sender_id
        send_id = key
        send = self.sends.get(key)
        if send is not None and send.contents and send.sender_id != sender_id:
            # Two senders claim one send id: they are two sends, and the first one keeps the plain key.
            key = _claimed_key(key, sender_id)
            send = self.sends.get(key)
        if send is None:
            send = self.sends[key] = IncomingSend(key, sender_id, monotonic_ms)
            send.send_id = send_id
        elif not send.contents:
            send.sender_id = sender_id
        if self.missing.by_id:
            self._found(send, entry.message_id)
        send.contents.append(entry)
        entry.send = send
        send.news_ms = monotonic_ms
        self.contents_held += 1
        self.changed[key] = None
        if history:
            if len(history) > len(send.history):
                send.history = history
            self.follow(send, history, sender_id, monotonic_ms, newcomer)

    def find(self, sender_id: str, send_id: str) -> IncomingSend | None:
        """The undelivered send that the channel calls so."""
        send = self.by_send_id.get(send_id) or self.sends.get(send_id)
        if send is not None and send.contents and send.sender_id != sender_id:
            send = self.sends.get(_claimed_key(send_id, sender_id))
        return send

    def refuse(self, entry: LogEntry) -> None:
        """Forgets a content that was received last, as if it had not come."""
        send = entry.send
        if send is None or entry not in send.contents:
            return
        send.contents.remove(entry)
        entry.send = None
        self.contents_held -= 1
        self.changed[send.key] = None
        if not send.contents and not send.dependents:
            del self.sends[send.key]
            self._forget(send)

    def follow(
        self,
        send: IncomingSend | None,
        history: Sequence[HistoryEntry],
        named_by: str,
        monotonic_ms: int,
        newcomer: bool = False,
    ) -> None:
        """Reads a causal history: of a content of `send`, or of a sync (None, which waits for nothing)."""
        entries = self._log.entries
        unknown: list[HistoryEntry] = []
        for entry in history:
            message_id = entry.message_id
            held = entries.get(message_id)
            if held is None:
                unknown.append(entry)
            elif held.send is not None and send is not None:
                self._wait(send, held.send)
        if not unknown:
            return
        detected: list[HistoryEntry] = []
        for entry in unknown[-UNKNOWN_PER_MESSAGE_MAX:]:
            self._name_unknown(send, entry, named_by, monotonic_ms, newcomer, detected)
        if detected:
            self._emit(MissingDetected(tuple(detected)))

    def _name_unknown(
        self,
        send: IncomingSend | None,
        entry: HistoryEntry,
        named_by: str,
        monotonic_ms: int,
        newcomer: bool,
        detected: list[HistoryEntry],
    ) -> None:
        message_id = entry.message_id
        sender_id = entry.sender_id
        if sender_id == self._me or not 0 < len(message_id) <= MESSAGE_ID_LENGTH_MAX:
            return
        place = self.place_of(message_id)
        key = place[0] if place else message_id
        if (send is not None and key == send.key) or key in self.lost:
            return
        hint = entry.retrieval_hint
        if (hint is not None and len(hint) > RETRIEVAL_HINT_BYTES_MAX) or len(sender_id or "") > SENDER_ID_LENGTH_MAX:
            entry = HistoryEntry(message_id)
        known = self.missing.by_id.get(message_id)
        if known is not None:
            self.missing.learn(known, entry)
            if send is not None:
                self._wait(send, known.send)
            return
        cause = self.sends.get(key)
        if cause is None:
            if place and content_id(key, 0) in self._log.entries:
                # Any content of a delivered send stands for it, also one that was never received here.
                return
            cause = self.sends[key] = IncomingSend(key, "", monotonic_ms)
            cause.from_before = newcomer
            lost_ms = self._newcomer_lost_ms if newcomer else self._lost_ms
            if lost_ms:
                self._set_deadline(cause, monotonic_ms + lost_ms)
        if cause.contents:
            # Parity may still close the gap: nothing is fetched until the send falls quiet (see on_timeout).
            if cause.content_count is None and cause.deadline_ms is None:
                self._set_deadline(cause, monotonic_ms + self._quiet_ms)
        else:
            self._track(cause, entry, named_by)
            detected.append(entry)
        if send is not None:
            self._wait(send, cause)

    # --- what the channel says ------------------------------------------------------------------

    def place(
        self,
        entry: LogEntry,
        send_id: str,
        ordinal: int | None,
        content_count: int | None,
        contents_needed: int | None,
        monotonic_ms: int,
    ) -> None:
        """The channel read to which send a content belongs."""
        send = entry.send
        if send is None:
            return
        if ordinal is not None:
            entry.ordinal = ordinal
        if send.key != send_id and send.key != _claimed_key(send_id, send.sender_id):
            send = self._merge(send, send_id, monotonic_ms)
        if content_count is not None and content_count <= 65_536:
            send.content_count = content_count
            send.contents_needed = contents_needed
        self.changed[send.key] = None
        if send.deadline_ms is None and not send.reconstructed:
            self._set_deadline(send, monotonic_ms + self._quiet_ms)

    def reconstructed(self, send: IncomingSend) -> None:
        """The channel has the send's message: releases it unless it must wait."""
        send.reconstructed = True
        if send.missing:
            for message_id in list(send.missing):
                self._untrack(message_id)
        self.changed[send.key] = None
        if send.waits_for:
            self._blocked[send.key] = send
            if self._lost_ms:
                # Histories that name each other would wait for ever.
                self._set_deadline(send, send.news_ms + 2 * self._lost_ms)
        else:
            self._release(send)

    def infer(self, send: IncomingSend, entry: LogEntry) -> None:
        """`entry` was recovered with `send` and never received."""
        entry.send = send
        send.contents.append(entry)
        self.contents_held += 1
        if self.missing.by_id or self.sends:
            self._untrack(entry.message_id)
            named = self.sends.get(entry.message_id)
            if named is not None and named is not send and not named.contents:
                self._absorb(send, named)

    def abandon(self, send: IncomingSend) -> None:
        """The send will never be reconstructed: nothing waits for it, and its contents are not asked for again."""
        for entry in send.contents:
            entry.send = None
            self._log.touch(entry)
        del self.sends[send.key]
        self._forget(send)
        self._drop(send)

    def on_irretrievable(self, message_ids: Iterable[str]) -> None:
        """The store does not have these: one from before this participant's first receipt is lost at once."""
        for message_id in message_ids:
            message = self.missing.by_id.get(message_id)
            if message is None or not message.send.from_before or message.send.contents:
                continue
            if len(message.send.missing or ()) == 1:
                self._declare_lost(message.send)
            else:
                self._untrack(message_id)

    # --- time -----------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """The next moment `on_timeout` has work; passes over what is done."""
        deadlines = self._deadlines
        while deadlines:
            at_ms, _, send = deadlines[0]
            if send.deadline_ms == at_ms and self.sends.get(send.key) is send:
                return at_ms
            heappop(deadlines)
        return None

    def on_timeout(self, monotonic_ms: int) -> None:
        """Reports the gaps of sends that fell quiet, and declares lost what stayed away too long."""
        while (at_ms := self.next_deadline()) is not None and at_ms <= monotonic_ms:
            _, _, send = heappop(self._deadlines)
            send.deadline_ms = None
            if not send.contents:
                self._declare_lost(send)
            elif send.reconstructed:
                self._let_go(send)
            else:
                self._check_quiet(send, monotonic_ms)

    def _check_quiet(self, send: IncomingSend, monotonic_ms: int) -> None:
        quiet_at_ms = send.news_ms + self._quiet_ms
        if monotonic_ms < quiet_at_ms:
            self._set_deadline(send, quiet_at_ms)
            return
        if not send.siblings_reported:
            send.siblings_reported = True
            self._report_siblings(send)
        lost_at_ms = send.news_ms + self._lost_ms
        if self._lost_ms == 0 or send.lost:
            return
        if monotonic_ms < lost_at_ms:
            self._set_deadline(send, lost_at_ms)
        else:
            self._declare_lost(send)

    def _report_siblings(self, send: IncomingSend) -> None:
        if send.content_count is None or not self._by_send or send.key != send.send_id:
            return
        held = {entry.ordinal for entry in send.contents}
        detected: list[HistoryEntry] = []
        for ordinal in range(send.content_count):
            message_id = content_id(send.key, ordinal)
            if ordinal not in held and message_id not in self.missing.by_id:
                entry = HistoryEntry(message_id, None, send.sender_id)
                self._track(send, entry, send.sender_id)
                detected.append(entry)
        if detected:
            self._emit(MissingDetected(tuple(detected)))

    # --- restore --------------------------------------------------------------------------------

    def take_back(self, send: IncomingSend) -> None:
        """Restores a stored send with its contents."""
        self.sends[send.key] = send
        self.contents_held += len(send.contents)
        if send.send_id != send.key:
            self.by_send_id[send.send_id] = send

    def take_back_missing(self, entry: HistoryEntry, send: IncomingSend, named_by: str) -> None:
        if entry.message_id not in self.missing.by_id:
            self._track(send, entry, named_by)

    def take_back_lost(self, key: str) -> None:
        self._remember_lost(key)

    def resume(self, causes: dict[str, tuple[str, ...]], monotonic_ms: int) -> None:
        """Ties restored sends to those they wait for, and starts their timers anew."""
        for key, waits_for in causes.items():
            send = self.sends[key]
            reconstructed, send.reconstructed = send.reconstructed, False
            for name in waits_for:
                if name in self.sends:
                    self._wait(send, self.sends[name])
            send.reconstructed = reconstructed
        for send in list(self.sends.values()):
            if send.reconstructed and not send.waits_for:
                self._release(send)
            elif send.reconstructed:
                self._blocked[send.key] = send
                if self._lost_ms:
                    self._set_deadline(send, monotonic_ms + 2 * self._lost_ms)
            elif send.contents:
                self._set_deadline(send, monotonic_ms + self._quiet_ms)
            elif self._lost_ms or send.from_before:
                lost_ms = self._newcomer_lost_ms if send.from_before else self._lost_ms
                self._set_deadline(send, monotonic_ms + lost_ms)

    # --- inside ---------------------------------------------------------------------------------

    def _wait(self, send: IncomingSend, cause: IncomingSend) -> None:
        if cause is send or cause.lost or send.reconstructed:
            return
        if send.waits_for is None:
            send.waits_for = {}
        if cause.key in send.waits_for:
            return
        send.waits_for[cause.key] = cause
        if cause.dependents is None:
            cause.dependents = []
        cause.dependents.append(send)
        self.changed[send.key] = None

    def _release(self, send: IncomingSend) -> None:
        """Delivers `send` and whatever waited for it alone, causes first."""
        ready = deque((send,))
        while ready:
            current = ready.popleft()
            if self.sends.get(current.key) is not current:
                continue
            del self.sends[current.key]
            self._forget(current)
            self._on_released(current)
            self._emit(SendReleased(current.sender_id, current.send_id))
            ready.extend(self._unblock(current))

    def _forget(self, send: IncomingSend) -> None:
        if send.send_id != send.key:
            self.by_send_id.pop(send.send_id, None)
        self._blocked.pop(send.key, None)
        self.contents_held -= len(send.contents)
        self.changed[send.key] = None

    def _unblock(self, cause: IncomingSend) -> list[IncomingSend]:
        """Nobody waits for `cause` any more; returns those that may go now."""
        ready: list[IncomingSend] = []
        for dependent in cause.dependents or ():
            if dependent.waits_for and dependent.waits_for.pop(cause.key, None) is not None:
                self.changed[dependent.key] = None
                if not dependent.waits_for and dependent.reconstructed:
                    ready.append(dependent)
        cause.dependents = None
        return ready

    def _let_go(self, send: IncomingSend) -> None:
        """Releases a reconstructed send without the causes it still waits for."""
        for cause in list((send.waits_for or {}).values()):
            if cause.dependents is not None:
                cause.dependents = [other for other in cause.dependents if other is not send] or None
        send.waits_for = None
        self._release(send)

    def _declare_lost(self, send: IncomingSend) -> None:
        entries = [self.missing.by_id[known].entry for known in send.missing or () if known in self.missing.by_id]
        if not entries:
            entries = [HistoryEntry(send.key, None, send.sender_id or None)]
        for entry in entries:
            self._emit(DependencyLost(entry))
        send.lost = True
        self._drop(send)

    def _drop(self, send: IncomingSend) -> None:
        """Nothing waits for `send`; one that is only named is forgotten, but for its key."""
        for message_id in list(send.missing or ()):
            self._untrack(message_id)
        send.lost = True
        self.changed[send.key] = None
        if self.sends.get(send.key) is send and not send.contents:
            del self.sends[send.key]
            self._remember_lost(send.key)
        for dependent in self._unblock(send):
            self._release(dependent)

    def _remember_lost(self, key: str) -> None:
        self.lost[key] = None
        self.lost_changed[key] = True
        self._lost_order.append(key)
        if len(self._lost_order) > self._lost_max:
            forgotten = self._lost_order.popleft()
            self.lost.pop(forgotten, None)
            self.lost_changed[forgotten] = False

    def _track(self, send: IncomingSend, entry: HistoryEntry, named_by: str) -> None:
        evicted = self.missing.add(entry, send, named_by)
        if send.missing is None:
            send.missing = {}
        send.missing[entry.message_id] = None
        self._on_missing(entry)
        if evicted is not None:
            self._evict(evicted)

    def _evict(self, message: MissingMessage) -> None:
        send = message.send
        message_id = message.entry.message_id
        self._on_found(message_id)
        if send.missing is not None:
            send.missing.pop(message_id, None)
        if not send.missing and not send.contents and self.sends.get(send.key) is send:
            self._emit(DependencyLost(message.entry))
            self._drop(send)

    def _untrack(self, message_id: str) -> None:
        message = self.missing.remove(message_id)
        if message is not None:
            self._on_found(message_id)
            if message.send.missing is not None:
                message.send.missing.pop(message_id, None)

    def _found(self, send: IncomingSend, message_id: str) -> None:
        if message_id in self.missing.by_id:
            self._untrack(message_id)
        if send.missing and not send.contents:
            # The send speaks for itself now: its gaps are its siblings' and wait for the quiet rule.
            for named in list(send.missing):
                self._untrack(named)
            send.deadline_ms = None
            self._set_deadline(send, send.news_ms + self._quiet_ms)

    def _merge(self, send: IncomingSend, send_id: str, monotonic_ms: int) -> IncomingSend:
        """Ids that do not name their send: the content joins the send that the channel read it into."""
        target = self.by_send_id.get(send_id)
        if target is None or target is send:
            self.by_send_id[send_id] = send
            send.send_id = send_id
            return send
        self._absorb(target, send)
        target.news_ms = monotonic_ms
        return target

    def _absorb(self, target: IncomingSend, send: IncomingSend) -> None:
        del self.sends[send.key]
        self.changed[send.key] = None
        for message_id in list(send.missing or ()):
            self._untrack(message_id)
        for entry in send.contents:
            entry.send = target
            target.contents.append(entry)
            self._log.touch(entry)
        for cause in (send.waits_for or {}).values():
            if cause.dependents is not None:
                cause.dependents = [other for other in cause.dependents if other is not send] or None
            self._wait(target, cause)
        for dependent in send.dependents or ():
            if dependent.waits_for is not None and dependent.waits_for.pop(send.key, None) is not None:
                self._wait(dependent, target)
        if target.waits_for is not None:
            target.waits_for.pop(target.key, None)

    def _set_deadline(self, send: IncomingSend, at_ms: int) -> None:
        send.deadline_ms = at_ms
        self._deadline_count += 1
        heappush(self._deadlines, (at_ms, self._deadline_count, send))
