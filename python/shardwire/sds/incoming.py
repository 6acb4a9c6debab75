"""The incoming buffer: sends of other participants until they are released in causal order.

A send is a group of contents that make one message. Contents are handed up on receipt; the send is released once it
is reconstructed and every send it follows was released or is lost (SDS, Deliver Message, kept between sends).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from shardwire._native import HeldCount, IncomingSend, LocalLog, LogEntry
from shardwire.config import SdsConfig, SyncConfig
from shardwire.sds.gaps import Gaps
from shardwire.sds.identity import split_content_id
from shardwire.sds.outputs import SdsEvent, SendReleased
from shardwire.sds.repair import Repair
from shardwire.sds.sweep import Sweep

_CONTENT_COUNT_MAX = 65_536


def claimed_key(key: str, sender_id: str) -> str:
    """The key of a send whose id another sender claimed first."""
    return f"{key}\0{sender_id}"


class IncomingBuffer(HeldCount):
    """All sends that are not delivered: who waits for whom, and what goes when."""

    __slots__ = (
        "_by_send",
        "_eldest",
        "_emit",
        "_entries",
        "_log",
        "_on_released",
        "_sweep",
        "blocked",
        "blocked_ms",
        "by_send_id",
        "changed",
        "contents_max",
        "gaps",
        "sends",
        "stored",
    )

    def __init__(
        self,
        config: SdsConfig,
        sync: SyncConfig,
        sender_id: str,
        log: LocalLog,
        emit: Callable[[SdsEvent], None],
        on_released: Callable[[IncomingSend], None],
        repair: Repair,
    ) -> None:
        self._by_send = config.message_id == "send"
        # Histories that name each other would wait for ever.
        lost_ms = config.timeout_for_lost_messages_ms
        self.blocked_ms = 2 * lost_ms if lost_ms else None
        self.contents_max = config.incoming_buffer_messages_max
        self._log = log
        self._entries = log.entries
        self._emit = emit
        self._on_released = on_released
        self.sends: dict[str, IncomingSend] = {}
        # Sends whose message ids do not name them, by the id that the channel read.
        self.by_send_id: dict[str, IncomingSend] = {}
        self._eldest = ""
        self._sweep = Sweep(sync.sweep_in_buf_interval_ms)
        # Reconstructed sends that wait, the longest waiting first.
        self.blocked: OrderedDict[str, IncomingSend] = OrderedDict()
        self.gaps = Gaps(config, sender_id, self, log, emit, repair)
        # For poll_persist: keys whose records changed, and those that have one.
        self.changed: dict[str, None] = {}
        self.stored: set[str] = set()

    # --- what arrives ---------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        return self.contents_held >= self.contents_max

    def make_room(self, message_id: str) -> bool:
        """Makes room for one more content; False when all that is held is incomplete.

        The send that is incomplete for longest may have more: refused, it would never give its room to others.
        """
        if not self.blocked:
            place = self.place_of(message_id)
            return place is not None and place[0] == self._eldest_partial()
        # Acknowledged contents are never dropped: the send that waits longest goes without its causes.
        self.let_go(next(iter(self.blocked.values())))
        return not self.full

    def _eldest_partial(self) -> str:
        eldest = self.sends.get(self._eldest)
        if eldest is None or not eldest.contents or eldest.reconstructed:
            partial = (send.key for send in self.sends.values() if send.contents and not send.reconstructed)
            self._eldest = next(partial, "")
        return self._eldest

    def receive(self, entry: LogEntry, send_id: str, monotonic_ms: int) -> IncomingSend:
        """Holds a new content; returns its send."""
        sender_id = entry.sender_id
        key = send_id
        send = self.sends.get(key)
        if send is not None and send.contents and send.sender_id != sender_id:
            # Two senders claim one send id: they are two sends, and the first one keeps the plain key.
            key = claimed_key(key, sender_id)
            send = self.sends.get(key)
        if send is None:
            send = self.sends[key] = IncomingSend(key, send_id, sender_id, monotonic_ms)
        else:
            if send.missing or not send.contents:
                send.sender_id = sender_id
                self.gaps.on_received(send, entry.message_id)
            send.news_ms = monotonic_ms
        send.contents.append(entry)
        entry.send = send
        self.contents_held += 1
        self.changed[key] = None
        return send

    def find(self, sender_id: str, send_id: str) -> IncomingSend | None:
        """The undelivered send that the channel calls so."""
        send = (self.by_send_id.get(send_id) if self.by_send_id else None) or self.sends.get(send_id)
        if send is not None and send.contents and send.sender_id != sender_id:
            send = self.sends.get(claimed_key(send_id, sender_id))
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
        if send.send_id != send_id:
            send = self._join(send, send_id, monotonic_ms)
        if content_count is not None and 0 < content_count <= _CONTENT_COUNT_MAX:
            send.content_count = content_count
            send.contents_needed = contents_needed
        self.changed[send.key] = None
        if send.lost:
            # Given up once, and it goes on: its gaps are told again.
            send.siblings_reported = False
        if content_count != 1 and send.deadline_ms is None and not send.reconstructed:
            self.gaps.watch(send, monotonic_ms)

    def reconstructed(self, send: IncomingSend, monotonic_ms: int) -> None:
        """The channel has the send's message: releases it unless it must wait."""
        send.reconstructed = True
        if send.missing:
            self.gaps.forget_missing(send)
        if send.waits_for:
            self.changed[send.key] = None
            self._block(send, monotonic_ms)
        else:
            self.release(send)

    def _block(self, send: IncomingSend, monotonic_ms: int) -> None:
        self.blocked[send.key] = send
        send.deadline_ms = monotonic_ms + self.blocked_ms if self.blocked_ms else None

    def infer(self, send: IncomingSend, entry: LogEntry) -> None:
        """`entry` was recovered with `send` and never received."""
        entry.send = send
        send.contents.append(entry)
        self.contents_held += 1
        named = self.sends.get(entry.message_id)
        if named is not None and named is not send and not named.contents:
            self._absorb(send, named)

    def abandon(self, send: IncomingSend) -> None:
        """The send is not reconstructed: nothing waits for it, and its contents are not asked for."""
        for entry in send.contents:
            entry.send = None
            self._log.touch(entry)
        del self.sends[send.key]
        self._forget(send)
        self.drop(send)

    # --- time -----------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """The next moment `on_timeout` has work."""
        due_ms = self.gaps.next_deadline()
        blocked_ms = next(iter(self.blocked.values())).deadline_ms if self.blocked else None
        for at_ms in (blocked_ms, self._sweep.next_ms()):
            if at_ms is not None and (due_ms is None or at_ms < due_ms):
                due_ms = at_ms
        return due_ms

    def on_timeout(self, monotonic_ms: int) -> None:
        """Reports the gaps of sends that fell quiet, and goes on without what stayed away too long."""
        self.gaps.on_timeout(monotonic_ms)
        while self.blocked:
            oldest = next(iter(self.blocked.values()))
            if oldest.deadline_ms is None or oldest.deadline_ms > monotonic_ms:
                break
            self.let_go(oldest)
        # Last, since what was let go frees others.
        self._release_ready(self._sweep.take(monotonic_ms))

    # --- waiting and going ----------------------------------------------------------------------

    def wait(self, send: IncomingSend, cause: IncomingSend) -> None:
        """`send` follows `cause`."""
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

    def release(self, send: IncomingSend) -> None:
        """Delivers `send` and whatever waited for it alone, causes first."""
        self._release_one(send)
        if send.dependents is not None:
            self._go(self._unblock(send))

    def _go(self, free: list[IncomingSend]) -> None:
        """Nothing holds these any more."""
        if not self._sweep.at_once:
            self._sweep.ready.extend(free)
        elif free:
            self._release_ready(deque(free))

    def _release_ready(self, ready: deque[IncomingSend]) -> None:
        while ready:
            current = ready.popleft()
            if self.sends.get(current.key) is current:
                self._release_one(current)
                ready.extend(self._unblock(current))

    def _release_one(self, send: IncomingSend) -> None:
        key = send.key
        del self.sends[key]
        if self.by_send_id and send.send_id != key:
            self.by_send_id.pop(send.send_id, None)
        if self.blocked:
            self.blocked.pop(key, None)
        self.contents_held -= len(send.contents)
        if key in self.stored:
            self.changed[key] = None
        else:
            # Most come and go between two polls.
            self.changed.pop(key, None)
        self._on_released(send)
        self._emit(SendReleased(send.sender_id, send.send_id))

    def _forget(self, send: IncomingSend) -> None:
        key = send.key
        if self.by_send_id and send.send_id != key:
            self.by_send_id.pop(send.send_id, None)
        if self.blocked:
            self.blocked.pop(key, None)
        self.contents_held -= len(send.contents)
        self.changed[key] = None

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

    def let_go(self, send: IncomingSend) -> None:
        """Releases a reconstructed send without the causes it still waits for."""
        self._stop_waiting(send)
        self.release(send)

    def _stop_waiting(self, send: IncomingSend) -> None:
        for cause in (send.waits_for or {}).values():
            if cause.dependents is not None:
                cause.dependents = [other for other in cause.dependents if other is not send] or None
        send.waits_for = None

    def drop_refused(self, send: IncomingSend) -> None:
        """Nothing of `send` was of use: nothing waits for it."""
        if self.sends.get(send.key) is send:
            self.drop(send)
        else:
            self.gaps.remember_lost(send.key, False)

    def drop(self, send: IncomingSend, *, remember: bool = True) -> None:
        """`send` is neither waited for nor asked for; one that was only named is forgotten, but for its key if so
        wished."""
        if send.missing:
            self.gaps.forget_missing(send)
        if not send.contents and self.sends.get(send.key) is send:
            del self.sends[send.key]
            self.gaps.forget_named(send, remember)
        self.go_on_without(send)

    def go_on_without(self, send: IncomingSend) -> None:
        """Nothing waits for `send` any longer."""
        send.lost = True
        self.changed[send.key] = None
        self._go(self._unblock(send))

    def _join(self, send: IncomingSend, send_id: str, monotonic_ms: int) -> IncomingSend:
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
        if send.missing:
            self.gaps.forget_missing(send)
        if not send.contents:
            self.gaps.forget_named(send, remember=False)
        for entry in send.contents:
            entry.send = target
            target.contents.append(entry)
            self._log.touch(entry)
        causes = list((send.waits_for or {}).values())
        self._stop_waiting(send)
        for cause in causes:
            self.wait(target, cause)
        free: list[IncomingSend] = []
        for dependent in send.dependents or ():
            if dependent.waits_for is not None and dependent.waits_for.pop(send.key, None) is not None:
                reconstructed, dependent.reconstructed = dependent.reconstructed, False
                self.wait(dependent, target)
                dependent.reconstructed = reconstructed
                if reconstructed and not dependent.waits_for:
                    # Nobody waits for a target that was given up.
                    free.append(dependent)
        if target.waits_for is not None:
            target.waits_for.pop(target.key, None)
        self._go(free)

    # --- restore --------------------------------------------------------------------------------

    def take_back(self, send: IncomingSend) -> None:
        """Restores a stored send with its contents."""
        self.sends[send.key] = send
        self.contents_held += len(send.contents)
        if send.send_id != send.key and send.key != claimed_key(send.send_id, send.sender_id):
            self.by_send_id[send.send_id] = send

    def resume(self, causes: dict[str, tuple[str, ...]], monotonic_ms: int) -> None:
        """Ties restored sends to those they wait for, and starts their timers anew."""
        for key, waits_for in causes.items():
            send = self.sends.get(key)
            if send is None:
                continue
            reconstructed, send.reconstructed = send.reconstructed, False
            for name in waits_for:
                if name in self.sends:
                    self.wait(send, self.sends[name])
            send.reconstructed = reconstructed
        for send in list(self.sends.values()):
            if not send.reconstructed:
                self.gaps.resume(send, monotonic_ms)
            elif send.waits_for:
                self._block(send, monotonic_ms)
            elif self.sends.get(send.key) is send:
                self.release(send)

    def place_of(self, message_id: str) -> tuple[str, int] | None:
        return split_content_id(message_id) if self._by_send else None
