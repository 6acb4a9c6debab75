"""The channel without I/O: every input goes to the parts it concerns, and what follows is collected.

One owner calls it, never from two places at once: apply inputs, then `collect`, commit what that gives, then carry out
what the commit made true. So whatever leaves a channel speaks only of what is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from shardwire._native import (
    ChangedRecords,
    ChannelMachine,
    Delivery,
    HistoryEntry,
    MessageFault,
    MessageGivenUp,
    NodeFailing,
    NodeHolds,
    NodeRecovered,
    OwnSends,
    SegmentSeen,
    TransmitFailed,
)
from shardwire.channel.collected import Collected, Outcome
from shardwire.channel.limits.quota import Quota
from shardwire.channel.observing.metrics import Meter
from shardwire.channel.observing.notices import Notices
from shardwire.channel.observing.timeline import SegmentObservation, SegmentStage, Timeline
from shardwire.channel.receiving.peer_faults import count_dropped, tell_fault
from shardwire.channel.receiving.reception import Arrival
from shardwire.channel.sending.cancellation import NOTHING_STOPPED, Cancellation
from shardwire.channel.sending.limit_notices import LimitNotices
from shardwire.channel.sending.outcomes import DispatchOutcome, Late, Propagated, Stored
from shardwire.channel.sending.requests import CONTENTS
from shardwire.channel.sending.segment_size import MessageBudget
from shardwire.channel.sending.segmenter import EMPTY_REFUSED
from shardwire.channel.sending.submissions import Settled, Submission
from shardwire.errors import PersistenceError
from shardwire.events import ChannelEvent, ChunkErrorEvent, ChunkInfo, IrretrievableMessageEvent, MessageSendErrorEvent
from shardwire.peer_log import PeerLog
from shardwire.sds import (
    ContentAcknowledged,
    DependencyLost,
    MessageDropped,
    MissingDetected,
    Now,
    SdsEvent,
    SenderIdConflict,
    Transmit,
    TransmitKind,
)

_NOTHING = ChangedRecords()


class Engine:
    """The parts of one channel and what passes between them.

    Args:
        machine: Scalable Data Sync joined with reassembly, our sends, what the node has of them, and messages for the
            application.
        quota: The rate limits.
        timeline: Told about single segments and messages.
        peer_log: Told what is wrong with what peers send.
        sender_id: Ours.
        now: The moment of creation.
        is_stored: Whether changes are committed; where they are not, `collect` gives none.

    Attributes:
        active: Whether the channel is started; nothing is dispatched and no time runs while it is not.
        meter: Told how long things take and how large they are.
        own_sends: How far our sends have come.
    """

    def __init__(
        self,
        machine: ChannelMachine,
        quota: Quota,
        timeline: Timeline,
        peer_log: PeerLog,
        sender_id: str,
        now: Now,
        is_stored: bool,
    ) -> None:
        self._is_stored = is_stored
        self.machine = machine
        self.peer_log = peer_log
        self.own_sends: OwnSends = machine.own_sends()
        self.quota = quota
        # What is told of the channel as a whole, behind the events of its sends.
        self._told: list[ChannelEvent] = []
        self._limit_notices = LimitNotices(machine, quota, peer_log, self._told.append)
        self.timeline = timeline
        self._sender_id = sender_id
        self._notices = Notices(sender_id, now, self._told.append)
        self.active = False
        self.meter = Meter()
        # Messages that wait for room, by request; and those that wait no longer since the last cycle.
        self._waiting: dict[str, Submission] = {}
        self._accepted: list[Submission] = []
        # Events of the machine that are not handled yet.
        self._machine_events: deque[SdsEvent] = deque()
        self._events: list[tuple[ChannelEvent, Outcome | None]] = []
        self._settlements: list[Settled] = []
        # Whether a history named what is not here.
        self._missing = False
        self._irretrievable: list[HistoryEntry] = []
        self.counts: dict[str, int] = {}

    # --- inputs ---

    def submit(self, submission: Submission, now: Now) -> None:
        """Registers a message, now or when there is room for it."""
        submission.submitted_ms = now.monotonic_ms
        machine, prepared, request_id = self.machine, submission.prepared, submission.request_id
        if not prepared.contents:
            machine.refuse(request_id, prepared.message_id, prepared.data_count, EMPTY_REFUSED)
            self._accept(submission)
            return
        self._waiting[request_id] = submission
        registered = machine.submit(
            submission.send_id,
            request_id,
            prepared.message_id,
            prepared.contents,
            data_count=prepared.data_count,
            reserve=prepared.reserve,
        )
        self._on_registered(registered)

    def _on_registered(self, registered: list[tuple[str, Exception | None]]) -> None:
        for request_id, error in registered:
            submission = self._waiting.pop(request_id)
            if error is None:
                self._accept(submission)
            else:
                submission.settled(error)

    def _accept(self, submission: Submission) -> None:
        """It is durable with the next commit, or needs none."""
        self._accepted.append(submission)
        if not self._is_stored:
            submission.settled(None)

    def refuse_waiting(self, error: Exception) -> None:
        """Refuses what still waits for room."""
        waiting, self._waiting = self._waiting, {}
        for request_id, submission in waiting.items():
            self.machine.withdraw_request(request_id)
            submission.settled(error)

    def withdraw(self, request_id: str, now: Now) -> None:
        """The caller of `send` was cancelled, or hears that it failed: nothing more of the message leaves."""
        self._waiting.pop(request_id, None)
        self.machine.withdraw_request(request_id)
        self._settle(now)

    def cancel(self, request_id: str, settled: Settled, now: Now) -> Cancellation:
        """Lets nothing more of a send leave; if so, `settled` is called when that is durable, or cannot be stored."""
        self._waiting.pop(request_id, None)
        cancelled = self.machine.cancel_request(request_id)
        self._settle(now)
        if cancelled is None:
            return NOTHING_STOPPED
        stopped, send = cancelled
        if stopped:
            self.settle_durably(settled)
        left = send.dispatched_count
        return Cancellation(stopped, send.content_count - left, left, frozenset(send.delivered_to))

    def settle_durably(self, settled: Settled) -> None:
        """Calls `settled` when everything so far is durable, and whenever it could not be stored."""
        self._settlements.append(settled)

    def send_ephemeral(self, request_id: str, message_id: str, content: bytes, now: Now) -> None:
        """Lets an ephemeral message leave now, or says why it never will; a send of its own under any rule of ids."""
        allowances = self.quota.allowances(now.epoch_ms)
        self.machine.submit_ephemeral(request_id, request_id, message_id, content, allowances)

    def receive(self, arrivals: Sequence[Arrival], now: Now) -> Sequence[bool]:
        """Takes decrypted messages; False for each that was not kept and may come again."""
        if not self.machine.has_delivery_room():
            # As if lost on the way: not acknowledged, so it comes again when the application has caught up.
            self.count("dropped_by_backpressure", len(arrivals))
            return [False] * len(arrivals)
        if self.timeline:
            for arrival in arrivals:
                self.timeline.note_arrival(arrival.data, now.epoch_ms)
        kept = self.machine.handle_messages(arrivals, now, observed=bool(self.timeline or self.meter.observers))
        self._settle(now)
        return kept

    def on_sizes_changed(self, budget: MessageBudget, now: Now) -> None:
        """The node's messages have another size: what is encoded from now on is divided so."""
        self.machine.limit_messages(budget.header_bytes_max, budget.content_bytes_max, now)
        self._settle(now)

    def on_outcomes(self, outcomes: Sequence[DispatchOutcome | Stored], now: Now) -> None:
        """What became of transmits, in order; what SDS says to a failure comes before what follows."""
        machine = self.machine
        for outcome in outcomes:
            if isinstance(outcome, Propagated):
                transmit = outcome.transmit
                is_awaited = machine.handle_propagated(transmit.transmit_id, outcome.message_hash, now)
                if is_awaited and transmit.kind in CONTENTS:
                    self.note("propagated", transmit, now)
            elif isinstance(outcome, Stored):
                machine.handle_stored(outcome.send_id, outcome.ordinal, now)
            elif isinstance(outcome, Late):
                machine.handle_late(outcome.transmit.transmit_id, now)
                self._settle(now)
            else:
                machine.handle_failed(
                    outcome.transmit.transmit_id,
                    outcome.error,
                    now,
                    permanent=outcome.permanent,
                    unanswered=outcome.unanswered,
                    retry_after_ms=outcome.retry_after_ms,
                )
                self._settle(now)
        self._settle(now)

    def handle_time(self, now: Now) -> None:
        """Runs what is due."""
        self.machine.handle_time(now, self.active)
        self._settle(now)

    # --- outputs ---

    def collect(self, now: Now, *, may_transmit: bool, may_hand_over: Callable[[], bool]) -> Collected:
        """Polls transmits as far as the rate limit and the node allow, then everything that must become durable.

        No further message begins to be handed over unless `may_hand_over` says that the application takes some now.
        """
        if self._waiting:
            self._on_registered(self.machine.register_waiting())
        transmits = self.poll_transmits(now) if self.active and may_transmit else []
        begun = self.begin_deliveries(may_hand_over, now)
        self._settle(now)
        self._gather_events()
        collected = Collected(
            self.collect_changes(), self._accepted, self._events, self._settlements, transmits, self._missing, begun
        )
        self._accepted, self._events, self._settlements, self._missing = [], [], [], False
        if self.meter.observers:
            self.meter.on_collected(collected, now)
        return collected

    def poll_transmits(self, now: Now) -> list[Transmit]:
        """Everything that may be prepared to leave now, as far as there are places left."""
        allowances = self.quota.allowances(now.epoch_ms)
        transmits, is_limited, holds_contents = self.machine.poll_transmits(allowances, now)
        if is_limited:
            self._limit_notices.on_limited(holds_contents, now)
        if holds_contents:
            self.quota.pass_over(now.epoch_ms)
        return transmits

    def begin_deliveries(self, may_hand_over: Callable[[], bool], now: Now) -> list[Delivery]:
        """The next messages for the application, where it takes some now: to be handed over once that is durable."""
        deliveries = self.machine.begin_deliveries() if may_hand_over() else []
        if self.meter.observers:
            for delivery in deliveries:
                self.meter.on_delivery(delivery, now)
        return deliveries

    def _gather_events(self) -> None:
        self._notices.review_reach(self.machine)
        self._events += self.own_sends.poll_events()
        self._events += [(event, None) for event in self._told]
        self._told.clear()
        if self._irretrievable:
            (first, *others), self._irretrievable = self._irretrievable, []
            self._events.append((IrretrievableMessageEvent(first, tuple(others)), None))

    def collect_changes(self) -> ChangedRecords:
        """Everything that must become durable, and nothing else."""
        beside = self.quota.poll_persist()
        if not self._is_stored:
            self.machine.drop_changes()
            return _NOTHING
        return self.machine.poll_persist(beside or None)

    def on_commit_failed(self, collected: Collected, error: PersistenceError, now: Now) -> None:
        """Takes back what a commit that failed was to make true: new sends are refused, transmits wait."""
        transmit_ids = [transmit.transmit_id for transmit in collected.transmits]
        self.machine.handle_commit_failed(transmit_ids, str(error), now)
        for submission in collected.submissions:
            self.withdraw(submission.request_id, now)
        collected.on_commit_failed(error)

    def on_stopped(self, now: Now) -> None:
        """The channel stops."""
        self.active = False
        self.machine.handle_stopped(now)

    def refuse(self, request_id: str, message_id: str, error: str) -> None:
        """A message that can never be sent (004, Irrecoverable errors), said by events."""
        self._events.append((ChunkErrorEvent(message_id, request_id, ChunkInfo((0,), 1), error), None))
        self._events.append((MessageSendErrorEvent(request_id, message_id, error, "dispatch"), None))

    def next_wake_ms(self, now: Now) -> int | None:
        """Monotonic time at which something falls due without any input."""
        if not self.active:
            return None
        quota, at_ms = self.quota, now.epoch_ms
        allowances = quota.allowances(at_ms)
        # An acknowledgement and what is no acknowledgement have times of their own.
        kinds = (TransmitKind.FIRST, TransmitKind.SYNC) if allowances else ()
        reopens = [quota.reopens_at_ms(kind, allowances, at_ms) for kind in kinds]
        reopens_in_ms = min((reopens_ms for reopens_ms in reopens if reopens_ms > at_ms), default=at_ms) - at_ms
        return self.machine.next_wake_ms(allowances, now.monotonic_ms + reopens_in_ms, now)

    # --- what the machine says ---

    def _settle(self, now: Now) -> None:
        poll_events, events = self.machine.poll_events, self._machine_events
        events.extend(poll_events(now))
        while events:
            while events:
                # One that raises leaves the others in the queue.
                self._on_event(events.popleft(), now)
            # Handling an event may cause further ones.
            events.extend(poll_events(now))

    def _on_event(self, event: SdsEvent, now: Now) -> None:
        match event:
            case MessageDropped():
                count_dropped(event.reason, self.peer_log)
            case SegmentSeen():
                self.timeline.note(SegmentObservation.of(event, now.epoch_ms))
            case MessageFault():
                tell_fault(event, self.peer_log)
            case ContentAcknowledged():
                self.meter.on_acknowledged(event.send_id, now)
                if self.timeline:
                    self.timeline.note_acknowledged(event, self.own_sends.get(event.send_id), now.epoch_ms)
            case MissingDetected():
                self._missing = True
            case MessageGivenUp() | DependencyLost():
                self._irretrievable.append(event.entry)
            case SenderIdConflict():
                self._notices.on_conflict(now)
            case TransmitFailed():
                self._limit_notices.on_transmit_failed(event)
            case NodeFailing() | NodeRecovered():
                self._limit_notices.on_node(event)
            case NodeHolds():
                self._limit_notices.on_held(event, now)

    # --- views ---

    def stats(self) -> dict[str, int]:
        return {
            **self.counts,
            **self.peer_log.counts,
            **self.machine.receiving_stats(),
            **self.machine.stats(),
            **self.machine.dispatch_stats(),
        }

    def note(self, stage: SegmentStage, transmit: Transmit, now: Now) -> None:
        """Tells observers about one of our messages."""
        if self.timeline:
            send = None if transmit.send_id is None else self.own_sends.get(transmit.send_id)
            self.timeline.note_transmit(stage, transmit, send, self._sender_id, now.epoch_ms)

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by
