"""What histories name and is not here: detected, waited for, and at last declared lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from shardwire._native import HistoryEntry, IncomingSend, LocalLog, MissingMessage
from shardwire.config import SdsConfig
from shardwire.sds.identity import (
    MESSAGE_ID_LENGTH_MAX,
    RETRIEVAL_HINT_BYTES_MAX,
    SENDER_ID_LENGTH_MAX,
    content_id,
)
from shardwire.sds.missing import MissingMessages
from shardwire.sds.named import NamedSends
from shardwire.sds.outputs import DependencyLost, MissingDetected, SdsEvent
from shardwire.sds.repair import Repair

if TYPE_CHECKING:
    from shardwire.sds.incoming import IncomingBuffer

# Unknown entries of one history that are tracked; the newest stand last, so the last ones count.
UNKNOWN_PER_MESSAGE_MAX = 1_000


class Gaps:
    """The missing messages of the incoming buffer and their timers.

    A send that is only named is missing at once. The gaps of a send of which something is held are not: parity may
    close them. They are told once the send has been quiet for the acknowledgement timeout.
    """

    __slots__ = (
        "_buffer",
        "_by_send",
        "_deadline_count",
        "_deadlines",
        "_emit",
        "_log",
        "_lost_max",
        "_lost_ms",
        "_lost_order",
        "_me",
        "_on_found",
        "_on_missing",
        "_on_named_again",
        "_others_answer",
        "_quiet_ms",
        "_without_haste",
        "askable",
        "lost",
        "lost_changed",
        "missing",
        "named",
    )

    def __init__(
        self,
        config: SdsConfig,
        sender_id: str,
        buffer: IncomingBuffer,
        log: LocalLog,
        emit: Callable[[SdsEvent], None],
        repair: Repair,
    ) -> None:
        self._buffer = buffer
        self._log = log
        self._me = sender_id
        self._others_answer = config.enable_repair
        self._emit = emit
        self._on_missing = repair.on_missing
        self._on_found = repair.on_found
        self._on_named_again = repair.on_named_again
        self._without_haste = repair.without_haste
        repair.on_silence = self._forget_silent
        self._by_send = config.message_id == "send"
        self._quiet_ms = config.acknowledgement_timeout_ms
        self._lost_ms = config.timeout_for_lost_messages_ms
        self._lost_max = config.missing_messages_max
        self.missing = MissingMessages(config.missing_messages_max)
        # Keys of sends that nothing waits for, though something names them.
        self.lost: dict[str, None] = {}
        self._lost_order: deque[str] = deque()
        # Those of them that are asked for all the same: others may hold them.
        self.askable: dict[str, None] = {}
        self.named = NamedSends(config)
        self._deadlines: list[tuple[int, int, IncomingSend]] = []
        self._deadline_count = 0
        # For poll_persist.
        self.lost_changed: dict[str, bool] = {}

    # --- named ----------------------------------------------------------------------------------

    def on_unknown(
        self,
        send: IncomingSend | None,
        unknown: list[HistoryEntry],
        named_by: str,
        monotonic_ms: int,
        since_first_ms: int | None,
    ) -> None:
        """A history names these and the log has none of them.

        `since_first_ms` tells of one of a sender who may speak of what is older than this participant's first receipt
        how long ago that was.
        """
        detected: list[HistoryEntry] = []
        for entry in unknown[-UNKNOWN_PER_MESSAGE_MAX:]:
            cause = self._cause(send, entry, named_by, monotonic_ms, since_first_ms, detected)
            if cause is not None and send is not None:
                self._buffer.wait(send, cause)
        if detected:
            self._emit(MissingDetected(tuple(detected)))

    def _cause(
        self,
        send: IncomingSend | None,
        entry: HistoryEntry,
        named_by: str,
        monotonic_ms: int,
        since_first_ms: int | None,
        detected: list[HistoryEntry],
    ) -> IncomingSend | None:
        """The undelivered send that `entry` stands for; None where nothing must wait for it."""
        message_id = entry.message_id
        known = self.missing.by_id.get(message_id)
        if known is not None:
            self.missing.learn(known, _bounded(entry))
            self._on_named_again(message_id, monotonic_ms)
            return known.send
        if entry.sender_id == self._me or not 0 < len(message_id) <= MESSAGE_ID_LENGTH_MAX:
            return None
        place = self._buffer.place_of(message_id)
        key = place[0] if place else message_id
        if (send is not None and key == send.key) or (key in self.lost and key not in self.askable):
            return None
        cause = self._buffer.sends.get(key)
        if cause is None:
            if place and content_id(key, 0) in self._log.entries:
                # Any content of a delivered send stands for it, also one that was never received here.
                return None
            cause = self._buffer.sends[key] = IncomingSend(key, key, "", monotonic_ms)
            cause.lost = key in self.lost
            self._buffer.changed[key] = None
            cause.from_before = since_first_ms is not None
            if not cause.lost:
                self.named.add(cause, monotonic_ms, since_first_ms or 0)
        elif cause.contents:
            if cause.deadline_ms is None and not cause.reconstructed:
                self.watch(cause, monotonic_ms)
            if cause.content_count is not None or cause.reconstructed:
                return cause
            # Its wire does not say how many there are, so the quiet rule would never ask for this one.
        entry = _bounded(entry)
        self._track(cause, entry, named_by, monotonic_ms)
        detected.append(entry)
        return cause

    def on_received(self, send: IncomingSend, message_id: str) -> None:
        """A content came of a send that has missing messages."""
        self._untrack(message_id)
        if send.contents:
            return
        # The send speaks for itself now: what nobody named of it waits for the quiet rule. What somebody did is asked
        # for when its time comes, if it has not come by then.
        self.named.discard(send.key)
        send.deadline_ms = None

    def on_own(self, message_id: str) -> None:
        """A content came under our own name that this life has not sent: it is never taken in, so nothing waits for
        it, though others name it."""
        place = self._buffer.place_of(message_id)
        key = place[0] if place else message_id
        send = self._buffer.sends.get(key)
        if send is None:
            self.remember_lost(key, False)
        elif not send.contents:
            self._buffer.drop(send)

    def watch(self, send: IncomingSend, monotonic_ms: int) -> None:
        """Looks at an incomplete send again once it has been quiet for long."""
        self._set_deadline(send, monotonic_ms + self._quiet_ms)

    def on_irretrievable(self, message_ids: Iterable[str]) -> None:
        """The store does not have these: one that is most likely older than this participant is lost at once."""
        for message_id in message_ids:
            message = self.missing.by_id.get(message_id)
            if message is not None and self.named.is_store_believed(message.send) and not message.send.contents:
                self._declare_lost(message.send)

    # --- time -----------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """The next moment `on_timeout` has work; passes over what is done."""
        deadlines = self._deadlines
        sends = self._buffer.sends
        while deadlines:
            at_ms, _, send = deadlines[0]
            if send.deadline_ms == at_ms and not send.reconstructed and sends.get(send.key) is send:
                break
            heappop(deadlines)
        due_ms = deadlines[0][0] if deadlines else None
        named_ms = self.named.next_ms()
        if named_ms is not None and (due_ms is None or named_ms < due_ms):
            return named_ms
        return due_ms

    def on_timeout(self, monotonic_ms: int) -> None:
        for send in self.named.take_lost(monotonic_ms):
            if self._buffer.sends.get(send.key) is send:
                self._declare_lost(send)
        while (at_ms := self.next_deadline()) is not None and at_ms <= monotonic_ms:
            _, _, send = heappop(self._deadlines)
            send.deadline_ms = None
            self._check_quiet(send, monotonic_ms)

    def _check_quiet(self, send: IncomingSend, monotonic_ms: int) -> None:
        quiet_at_ms = send.news_ms + self._quiet_ms
        if monotonic_ms < quiet_at_ms:
            self._set_deadline(send, quiet_at_ms)
            return
        if not send.siblings_reported:
            send.siblings_reported = True
            self._report_siblings(send, monotonic_ms)
        due_ms = None if send.siblings_reported else monotonic_ms + self._quiet_ms
        if self._lost_ms and not send.lost:
            lost_at_ms = send.news_ms + self._lost_ms
            if monotonic_ms >= lost_at_ms:
                self._declare_lost(send)
                return
            due_ms = lost_at_ms if due_ms is None else min(due_ms, lost_at_ms)
        if due_ms is not None:
            self._set_deadline(send, due_ms)

    def _report_siblings(self, send: IncomingSend, monotonic_ms: int) -> None:
        self.ask_for(send, self._siblings(send), monotonic_ms)

    def _siblings(self, send: IncomingSend) -> list[HistoryEntry]:
        """What is announced of `send` and not here."""
        if send.content_count is None or not self._by_send or send.key != send.send_id:
            return []
        held = {entry.ordinal for entry in send.contents}
        return [
            HistoryEntry(content_id(send.key, ordinal), None, send.sender_id)
            for ordinal in range(send.content_count)
            if ordinal not in held
        ]

    def lacking(self, send: IncomingSend) -> list[tuple[HistoryEntry, str]]:
        """What is announced or named of `send` and not here, and who named it."""
        named = [self.missing.by_id[message_id] for message_id in send.missing or ()]
        known = set(send.missing or ())
        siblings = [entry for entry in self._siblings(send) if entry.message_id not in known]
        return [(one.entry, one.named_by) for one in named] + [(entry, send.sender_id) for entry in siblings]

    def go_on_asking(self, lacking: list[tuple[HistoryEntry, str]], monotonic_ms: int) -> None:
        """Of a send that was given up: nothing waits for these, and somebody may hold them."""
        for entry, named_by in lacking:
            place = self._buffer.place_of(entry.message_id)
            key = place[0] if place else entry.message_id
            send = self._buffer.sends.get(key)
            if send is None:
                send = self._buffer.sends[key] = IncomingSend(key, key, "", monotonic_ms)
                send.lost = True
                self._buffer.changed[key] = None
            if entry.message_id not in self.missing.by_id:
                self._track(send, entry, named_by, monotonic_ms)
                # It was asked for while the send was waited for.
                self._without_haste(entry.message_id)

    def _set_deadline(self, send: IncomingSend, at_ms: int) -> None:
        send.deadline_ms = at_ms
        self._deadline_count += 1
        heappush(self._deadlines, (at_ms, self._deadline_count, send))
        sends = self._buffer.sends
        if len(self._deadlines) > 4 * len(sends) + 64:
            self._deadlines = [
                timer
                for timer in self._deadlines
                if timer[2].deadline_ms == timer[0] and sends.get(timer[2].key) is timer[2]
            ]
            heapify(self._deadlines)

    # --- lost -----------------------------------------------------------------------------------

    def _declare_lost(self, send: IncomingSend) -> None:
        """What follows `send` goes on; it is asked for all the same, since whoever named it may hold it."""
        # Told once a message: of one that is partly here the channel tells when it gives it up.
        if not send.contents and send.key not in self.lost:
            message = self.missing.by_id.get(next(iter(send.missing or ()), ""))
            self._emit(DependencyLost(message.entry if message else HistoryEntry(send.key, None, None)))
        if not send.contents:
            self.named.discard(send.key)
            send.deadline_ms = None
            self.remember_lost(send.key, True)
        self._buffer.go_on_without(send)
        if not self._others_answer:
            for message_id in list(send.missing or ()):
                self._forget_silent(message_id)

    def _forget_silent(self, message_id: str) -> None:
        """Nobody answered for so long that it is asked for no more, unless somebody names it again."""
        message = self.missing.by_id.get(message_id)
        if message is None:
            return
        self._untrack(message_id)
        send = message.send
        if not send.missing and not send.contents and self._buffer.sends.get(send.key) is send:
            self._buffer.drop(send)
            self.remember_lost(send.key, True)

    def forget_named(self, send: IncomingSend, remember: bool) -> None:
        """`send`, of which nothing came, is waited for no longer."""
        self.named.discard(send.key)
        if remember:
            self.remember_lost(send.key, False)

    def remember_lost(self, key: str, askable: bool) -> None:
        """Nothing waits for `key` again; with `askable` it is asked for when it is named."""
        if key not in self.lost:
            self.lost[key] = None
            self._lost_order.append(key)
        if askable:
            self.askable[key] = None
        self.lost_changed[key] = True
        if len(self._lost_order) > self._lost_max:
            forgotten = self._lost_order.popleft()
            self.lost.pop(forgotten, None)
            self.askable.pop(forgotten, None)
            self.lost_changed[forgotten] = False

    def ask_for(self, send: IncomingSend, entries: Iterable[HistoryEntry], monotonic_ms: int) -> None:
        """These contents of `send` were here once, and are missing now."""
        detected = tuple(entry for entry in entries if entry.message_id not in self.missing.by_id)
        for entry in detected:
            self._track(send, entry, send.sender_id, monotonic_ms)
        if detected:
            self._emit(MissingDetected(detected))

    # --- the table ------------------------------------------------------------------------------

    def _track(self, send: IncomingSend, entry: HistoryEntry, named_by: str, monotonic_ms: int) -> None:
        evicted = self.missing.add(entry, send, named_by)
        if send.missing is None:
            send.missing = {}
        send.missing[entry.message_id] = None
        self._on_missing(entry, monotonic_ms)
        if evicted is not None:
            self._evict(evicted, monotonic_ms)

    def _evict(self, message: MissingMessage, monotonic_ms: int) -> None:
        send = message.send
        message_id = message.entry.message_id
        self._on_found(message_id)
        if send.missing is not None:
            send.missing.pop(message_id, None)
        if not send.missing and not send.contents and self._buffer.sends.get(send.key) is send:
            self._emit(DependencyLost(message.entry))
            # For want of room here, which says nothing of whether others hold it: who names it again is believed.
            self._buffer.drop(send, remember=False)
            if send.key in self.lost:
                self.remember_lost(send.key, True)
        elif send.contents and send.siblings_reported:
            # Told again while the rest is waited for: there may be room then.
            send.siblings_reported = False
            self._buffer.changed[send.key] = None
            self.watch(send, monotonic_ms)

    def _untrack(self, message_id: str) -> None:
        message = self.missing.remove(message_id)
        if message is not None:
            self._on_found(message_id)
            if message.send.missing is not None:
                message.send.missing.pop(message_id, None)

    def forget_missing(self, send: IncomingSend) -> None:
        """Nothing of `send` is asked for any more."""
        for message_id in send.missing or ():
            if self.missing.remove(message_id) is not None:
                self._on_found(message_id)
        send.missing = None

    # --- restore --------------------------------------------------------------------------------

    def take_back_missing(self, entry: HistoryEntry, send: IncomingSend, named_by: str, monotonic_ms: int) -> None:
        if entry.message_id not in self.missing.by_id:
            self._track(send, entry, named_by, monotonic_ms)

    def resume(self, send: IncomingSend, monotonic_ms: int) -> None:
        """Starts the timer of a restored send that is not reconstructed."""
        if send.contents:
            self.watch(send, monotonic_ms)
        else:
            self.named.add(send, monotonic_ms)


def _bounded(entry: HistoryEntry) -> HistoryEntry:
    """`entry` without a hint or sender that is too long to be one."""
    hint, sender_id = entry.retrieval_hint, entry.sender_id
    if (hint is not None and len(hint) > RETRIEVAL_HINT_BYTES_MAX) or len(sender_id or "") > SENDER_ID_LENGTH_MAX:
        return HistoryEntry(entry.message_id)
    return entry
