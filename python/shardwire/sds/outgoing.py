"""The outgoing buffer: dispatched contents until they are acknowledged, their timers, and who acknowledged what."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from shardwire._native import FinishedSends, OutgoingContent, OutgoingSend, ResendTimers
from shardwire.config import DeliveredWhen, SdsConfig
from shardwire.sds.dispatch_queue import DispatchQueue
from shardwire.sds.outputs import (
    ContentAcknowledged,
    ContentPossiblyAcknowledged,
    SdsEvent,
    SendAcknowledged,
    SendGivenUp,
)
from shardwire.sds.resend_period import resend_period_ms
from shardwire.sds.stored import StoredContents

# Contents of finished sends that still collect acknowledgements, so that `delivered_to` keeps growing.
FINISHED_CONTENTS_MAX = 4_096
# Participants whose acknowledgements one send keeps.
PARTICIPANTS_PER_SEND_MAX = 1_000


class OutgoingBuffer:
    """Sends of this participant by id, the queue before dispatch, and what is unacknowledged after it."""

    def __init__(
        self,
        config: SdsConfig,
        delivered_when: DeliveredWhen,
        emit: Callable[[SdsEvent], None],
        on_finished: Callable[[OutgoingContent], None],
        live_ms: OrderedDict[str, int],
    ) -> None:
        self._config = config
        self.first_period_ms = resend_period_ms(config, 0)
        self._attempts_max = config.max_retransmissions
        self._messages_max = config.outgoing_buffer_messages_max
        self._threshold = config.possible_acks_threshold
        self._delivered_when = delivered_when
        self.quorum = 1 if delivered_when == "any" else delivered_when
        self._emit = emit
        self._on_finished = on_finished
        self.sends: dict[str, OutgoingSend] = {}
        self.by_id: dict[str, OutgoingContent] = {}
        self.unacknowledged: dict[str, OutgoingContent] = {}
        names = delivered_when if isinstance(delivered_when, frozenset) else None
        self._stored = StoredContents(live_ms, _lacks, names, config.max_retransmissions)
        # Held back while a store has them and nobody is heard who lacks them; not in `unacknowledged`.
        self.waiting_in_store = self._stored.waiting
        self.queue = DispatchQueue(config.acknowledgement_timeout_ms)
        self.finished = FinishedSends(FINISHED_CONTENTS_MAX)
        self.timers = ResendTimers()
        self.due: deque[OutgoingContent] = deque()
        # For poll_persist; of a content that is forgotten, whether it never left.
        self.changed_sends: dict[str, None] = {}
        self.changed_contents: dict[str, bool | None] = {}
        self.new_contents: dict[str, bytes] = {}
        self.new_wires: dict[str, bytes] = {}

    # --- queue ----------------------------------------------------------------------------------

    def add(self, send: OutgoingSend, message_ids: Sequence[str], contents: Sequence[bytes]) -> None:
        """Queues a send; its message ids are new."""
        held = send.contents
        for ordinal, message_id in enumerate(message_ids):
            data = bytes(contents[ordinal])
            content = OutgoingContent(send, ordinal, message_id, data)
            held.append(content)
            self.by_id[message_id] = content
            self.changed_contents[message_id] = None
            self.new_contents[message_id] = data
        self.sends[send.send_id] = send
        self.changed_sends[send.send_id] = None
        self.queue.add(send)

    def has_room(self) -> bool:
        return len(self.unacknowledged) < self._messages_max

    def may_begin(self) -> bool:
        """Whether the next send that has not begun may: there is room for all of it, so that none stops halfway.

        One that is larger than the buffer goes while that is empty.
        """
        send = self.queue.next_fresh()
        if send is None:
            return False
        taken = len(self.unacknowledged) + sum(len(begun.queue) for begun in self.queue.started)
        return not taken or taken + len(send.contents) <= self._messages_max

    def put_back(self, content: OutgoingContent) -> None:
        """The first transmission of `content` failed."""
        send = content.send
        if self.sends.get(send.send_id) is send and not content.queued:
            self._untrack(content)
            self.queue.put_back(content)
            self.changed_contents[content.message_id] = None

    def cancel(self, send: OutgoingSend) -> bool:
        """Drops what was not dispatched and stops resending the rest; False when all of it had left."""
        if not send.queue:
            return False
        self.queue.clear(send)
        send.finished = True
        self._forget(send)
        return True

    # --- dispatch -------------------------------------------------------------------------------

    def on_dispatched(self, content: OutgoingContent, monotonic_ms: int) -> None:
        """`content` leaves now: it stands in the outgoing buffer until it is acknowledged."""
        if not content.send.finished:
            self.unacknowledged[content.message_id] = content
            self._set_timer(content, monotonic_ms)
        self.changed_contents[content.message_id] = None

    def on_propagated(self, content: OutgoingContent, monotonic_ms: int) -> None:
        """`content` is in the network since now: its acknowledgement is waited for from here on."""
        if content.message_id in self.unacknowledged:
            self._set_timer(content, monotonic_ms)

    def _set_timer(self, content: OutgoingContent, monotonic_ms: int) -> None:
        period = resend_period_ms(self._config, content.attempts) if content.attempts else self.first_period_ms
        if content.possible:
            # SDS: possibly acknowledged messages are rebroadcast at a longer period.
            period *= 2
        held = len(self.unacknowledged) + len(self.waiting_in_store)
        self.timers.set(content, monotonic_ms + period, held)

    def is_silent(self) -> bool:
        """Whether something waits in a store for somebody who is not heard and answers no probe."""
        return bool(self.waiting_in_store) and self._stored.is_silent

    def on_stored(self, message_id: str, monotonic_ms: int) -> None:
        """A store has what was sent under this id."""
        content = self.by_id.get(message_id)
        if content is not None and not content.queued and not content.send.finished:
            self._stored.add(message_id, monotonic_ms, self.unacknowledged)

    def next_deadline(self) -> int | None:
        return self.timers.next_ms()

    def on_timeout(self, monotonic_ms: int) -> None:
        while (content := self.timers.take(monotonic_ms)) is not None:
            if content.in_flight or content.send.finished:
                # What the node has yet to answer for is timed anew by the answer.
                continue
            if not self._wanted(content):
                # Not now: those who hold it may fall behind others who lack it.
                self._set_timer(content, monotonic_ms)
            elif self._stored.holds_back(content, monotonic_ms, self.first_period_ms):
                self._wait_in_store(content, monotonic_ms)
            elif content.attempts < self._attempts_max:
                self.unacknowledged[content.message_id] = content
                self.due.append(content)
            elif content.send.queue:
                # Its receivers may say nothing of a part, however long the rest takes to leave.
                self._set_timer(content, monotonic_ms)
            else:
                self._give_up(content.send)
        probe = self._stored.take_probe(monotonic_ms, self.first_period_ms)
        if probe is not None:
            self.due.append(probe)

    def _wait_in_store(self, content: OutgoingContent, monotonic_ms: int) -> None:
        """`content` is looked at again in a period."""
        self._set_timer(content, monotonic_ms)
        self.unacknowledged.pop(content.message_id, None)
        oldest = self._stored.overflow()
        if oldest is not None:
            self._give_up(oldest.send)

    def next_due(self, monotonic_ms: int) -> OutgoingContent | None:
        """The content to send again, counted as an attempt unless it goes as a probe."""
        while self.due:
            content = self.due.popleft()
            if content.message_id not in self.unacknowledged and content.message_id not in self.waiting_in_store:
                continue
            if self._wanted(content):
                if content.message_id not in self.waiting_in_store:
                    content.attempts += 1
                return content
            self._set_timer(content, monotonic_ms)
        return None

    def _wanted(self, content: OutgoingContent) -> bool:
        """Whether one of those the send must reach still lacks `content`."""
        send = content.send
        bit = 1 << content.ordinal
        quorum = self.quorum
        if isinstance(quorum, frozenset):
            return any(not send.acknowledged.get(name, 0) & bit for name in quorum)
        if len(send.acknowledged) < quorum:
            return True
        nearest = sorted(send.acknowledged.values(), key=int.bit_count, reverse=True)[:quorum]
        return any(not held & bit for held in nearest)

    def not_sent_again(self, content: OutgoingContent) -> None:
        """A retransmission failed: it was no attempt, and is due as soon as anything may leave."""
        if content.message_id in self.unacknowledged:
            if content.message_id not in self.waiting_in_store:
                content.attempts -= 1
            self.due.append(content)
            self.changed_contents[content.message_id] = None

    def leave_out(self, message_id: str) -> None:
        """Sends a content that its send can do without no more."""
        content = self.by_id.get(message_id)
        if content is not None:
            self._untrack(content)

    def stop(self, send_id: str) -> None:
        """Gives up a send all of which has left, as after the last retransmission."""
        send = self.sends.get(send_id)
        if send is not None and not send.finished:
            self._give_up(send)

    def _give_up(self, send: OutgoingSend) -> None:
        if send.given_up:
            return
        send.given_up = True
        held = 0
        for bits in send.acknowledged.values():
            held |= bits
        missing = tuple(content.ordinal for content in send.contents if not held >> content.ordinal & 1)
        self._finish(send)
        self._emit(SendGivenUp(send.send_id, missing))

    # --- acknowledgement ------------------------------------------------------------------------

    def acknowledge(self, content: OutgoingContent, by: str) -> None:
        """`by` named `content` in a causal history (SDS, Review ACK Status)."""
        send = content.send
        held = send.acknowledged.get(by, 0)
        bit = 1 << content.ordinal
        if held & bit or (not held and len(send.acknowledged) >= PARTICIPANTS_PER_SEND_MAX):
            return
        held |= bit
        self._emit(ContentAcknowledged(send.send_id, content.ordinal, content.message_id, by))
        complete = held.bit_count() >= send.contents_needed
        if complete:
            # Enough to reconstruct: `by` holds the others too, without having received them.
            for other in send.contents:
                if not held >> other.ordinal & 1:
                    self._emit(ContentAcknowledged(send.send_id, other.ordinal, other.message_id, by))
            held = (1 << len(send.contents)) - 1
        send.acknowledged[by] = held
        self.changed_sends[send.send_id] = None
        if complete:
            send.complete[by] = None
            self._emit(SendAcknowledged(send.send_id, by))
            if not send.finished and self._delivered(send):
                self._finish(send)

    def _delivered(self, send: OutgoingSend) -> bool:
        if isinstance(self.quorum, frozenset):
            return self.quorum <= send.complete.keys()
        return len(send.complete) >= self.quorum

    def possibly_acknowledge(self, message_id: str, by: str) -> bool:
        """`by`'s filter holds the content; whether enough filters do to count it as acknowledged."""
        content = self.unacknowledged.get(message_id)
        if content is None:
            return False
        send = content.send
        if send.acknowledged.get(by, 0) >> content.ordinal & 1:
            return False
        if content.possible is None:
            content.possible = set()
        if by in content.possible or len(content.possible) >= PARTICIPANTS_PER_SEND_MAX:
            return False
        content.possible.add(by)
        self.changed_contents[message_id] = None
        count = len(content.possible)
        self._emit(ContentPossiblyAcknowledged(send.send_id, content.ordinal, message_id, by, count))
        return count >= self._threshold

    def acknowledge_possible(self, message_id: str) -> None:
        """Enough filters hold the content (004, `possible_acks_threshold`), and not by accident."""
        content = self.by_id.get(message_id)
        if content is not None:
            for name in sorted(content.possible or ()):
                self.acknowledge(content, name)

    # --- the end of a send ----------------------------------------------------------------------

    def _finish(self, send: OutgoingSend) -> None:
        """Resending stops; acknowledgements are still collected, for a bounded number of sends."""
        send.finished = True
        for content in send.contents:
            self._untrack(content)
            if content.wire is not None:
                self._on_finished(content)
        self.changed_sends[send.send_id] = None
        for oldest in self.finished.push(send):
            self._forget(oldest)

    def take_back(self, send: OutgoingSend, monotonic_ms: int) -> None:
        """Restores a stored send; sends come in the order of their numbers."""
        self.sends[send.send_id] = send
        for content in send.contents:
            self.by_id[content.message_id] = content
            if not content.queued and not send.finished:
                self.on_dispatched(content, monotonic_ms)
        self.queue.take_back(send, monotonic_ms)
        if send.finished:
            self.finished.take_back(send)
        self.changed_contents.clear()

    def _untrack(self, content: OutgoingContent) -> None:
        self.unacknowledged.pop(content.message_id, None)
        self._stored.discard(content.message_id)
        content.resend_ms = None

    def _forget(self, send: OutgoingSend) -> None:
        self.sends.pop(send.send_id, None)
        self.changed_sends[send.send_id] = None
        for content in send.contents:
            self._untrack(content)
            if self.by_id.get(content.message_id) is content:
                del self.by_id[content.message_id]
            self.changed_contents[content.message_id] = content.lamport == 0
        # Contents and send hold each other, unseen by the garbage collector.
        send.contents.clear()


def _lacks(name: str, content: OutgoingContent) -> bool:
    return not content.send.acknowledged.get(name, 0) >> content.ordinal & 1
