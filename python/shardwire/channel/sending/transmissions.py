"""What leaves: polled from SDS as far as the rate limit and the node allow, followed until the node has answered."""

from __future__ import annotations

import logging
from collections import deque

from shardwire._native import ChannelMachine, OwnSends
from shardwire.channel.limits.quota import Quota
from shardwire.channel.limits.rate_limit import ALL_KINDS
from shardwire.channel.observing.timeline import SegmentStage, Timeline
from shardwire.channel.sending.dispatch import PROPAGATION_TIMEOUT_MS
from shardwire.channel.sending.ephemerals import Ephemerals
from shardwire.channel.sending.flights import Flights
from shardwire.channel.sending.limit_notices import LimitNotices
from shardwire.channel.sending.message_sizes import too_large_text
from shardwire.channel.sending.outcomes import DispatchFailed, DispatchOutcome, Late, Propagated
from shardwire.channel.sending.readiness import Readiness
from shardwire.channel.sending.requests import DISPATCHES_MAX
from shardwire.channel.sending.unanswered import Unanswered
from shardwire.config import SdsConfig
from shardwire.events import ChannelEvent, EphemeralDropReason
from shardwire.peer_log import PeerLog
from shardwire.quoting import one_line, quoted
from shardwire.sds import Now
from shardwire.sds.outputs import Transmit, TransmitKind

logger = logging.getLogger(__name__)

# How soon to look again at what is overdue but held back by something that sends no signal.
OVERDUE_RECHECK_MS = 1_000
# Names of counters.
_DISPATCHED = {kind: f"dispatched_{kind.value}" for kind in TransmitKind}
# Kinds that carry a content of a send.
_CONTENTS = (TransmitKind.FIRST, TransmitKind.FURTHER, TransmitKind.RETRANSMISSION)


class Transmissions:
    """Messages between SDS and the node.

    Args:
        machine: Where they come from.
        quota: How many may leave.
        flights: What was handed out.
        own_sends: Told how far each send has come.
        ephemerals: Told what became of each ephemeral message.
        timeline: Told about single segments.
        peer_log: Told of messages of others that did not leave.
        sender_id: Ours.
        sds: Bounds failures of the node in a row, and ephemeral messages that it may owe an answer for.

    Attributes:
        readiness: Whether the node is worth a try; nothing leaves while it is not.
    """

    def __init__(
        self,
        machine: ChannelMachine,
        quota: Quota,
        flights: Flights,
        own_sends: OwnSends,
        ephemerals: Ephemerals,
        timeline: Timeline,
        peer_log: PeerLog,
        sender_id: str,
        sds: SdsConfig,
    ) -> None:
        self._machine = machine
        self._quota = quota
        self._own_sends = own_sends
        self._ephemerals = ephemerals
        self._timeline = timeline
        self._peer_log = peer_log
        self._sender_id = sender_id
        self._failures_max, self._failure_interval_ms = sds.max_retransmissions, sds.acknowledgement_timeout_ms
        self._ephemerals_max = sds.outgoing_buffer_messages_max
        self.readiness = Readiness()
        self._flights = flights
        self._unanswered = Unanswered(own_sends)
        # For which there was no place in the epoch: first in the next.
        self._late: deque[Transmit] = deque()
        self._announced_failures = 0
        # Failures of the node since a send that waits for it last propagated, and when the last of them was counted.
        self._failures_by_send: dict[str, tuple[int, int]] = {}
        self._notices = LimitNotices(machine, quota, flights)
        self.counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._flights) + len(self._late)

    def holds(self, send_id: str) -> bool:
        """Whether the node has yet to answer for something of a send."""
        return bool(self._flights.of_send(send_id)) or any(transmit.send_id == send_id for transmit in self._late)

    def submit_ephemeral(self, send_id: str, content: bytes, now: Now) -> None:
        """Lets a registered ephemeral message leave now, or says why it never will."""
        reason = self._quota.ephemeral_drop_reason(now.epoch_ms, self._flights.unplaced)
        if reason is not None:
            self._ephemerals.on_dropped(send_id, reason)
        elif len(self._ephemerals) > self._ephemerals_max:
            self._ephemerals.on_failed(send_id, f"{self._ephemerals_max} ephemeral messages wait for the node already")
        else:
            self._machine.send_ephemeral(send_id, content, now)

    def _fail_ephemerals(self, error: str, now: Now) -> None:
        for send_id in self._ephemerals.waiting():
            if self._machine.cancel(send_id, now):
                self._ephemerals.on_failed(send_id, error)

    def poll(self, now: Now) -> list[Transmit]:
        """Everything that may be prepared to leave now, as far as there are places left."""
        transmits: list[Transmit] = []
        readiness = self.readiness
        if not readiness.online:
            self._fail_ephemerals("the node is offline, and an ephemeral message does not wait", now)
        elif readiness.is_held(now.monotonic_ms):
            self._drop_ephemerals("rate_limit_reached", now)
        if not readiness.may_try(now.monotonic_ms):
            return transmits
        while len(self._flights) < DISPATCHES_MAX:
            kinds = self._allowed_kinds(now)
            late = self._take_late(kinds)
            if late is not None:
                transmits.append(late)
                self._hand_out(late, now)
                continue
            # To read six kinds out of a container takes as long as to make a transmit.
            transmit = self._machine.poll_transmit(now, None if kinds is ALL_KINDS else kinds)
            if transmit is None:
                if kinds != ALL_KINDS:
                    self._on_limited(now)
                break
            self._count(_DISPATCHED[transmit.kind])
            if self._late and transmit.kind is TransmitKind.FURTHER and self._is_first_late(transmit.send_id):
                self._late.append(transmit)
                continue
            self._hand_out(transmit, now)
            transmits.append(transmit)
        return transmits

    def _hand_out(self, transmit: Transmit, now: Now) -> None:
        self._flights.add(transmit, self._quota.counts(transmit.kind), now.monotonic_ms)

    def _allowed_kinds(self, now: Now) -> frozenset[TransmitKind]:
        return self._quota.allowed_kinds(now.epoch_ms, self._flights.unplaced)

    def _is_first_late(self, send_id: str | None) -> bool:
        """Whether the first content of a send has yet to leave: nothing of it leaves before."""
        return any(late.kind is TransmitKind.FIRST and late.send_id == send_id for late in self._late)

    def _take_late(self, kinds: frozenset[TransmitKind]) -> Transmit | None:
        """The first that may leave now; not a further content before the first of its send."""
        held: set[str | None] = set()
        for transmit in self._late:
            if transmit.kind in kinds and not (transmit.kind is TransmitKind.FURTHER and transmit.send_id in held):
                self._late.remove(transmit)
                return transmit
            if transmit.kind is TransmitKind.FIRST:
                held.add(transmit.send_id)
        return None

    def may_try(self, monotonic_ms: int) -> bool:
        """Whether the node is online and did not fail just now."""
        return not self._announced_failures and self.readiness.may_try(monotonic_ms)

    def announce(self) -> None:
        """Says at once that `on_outcome` will come with a failure: nothing is tried before it has."""
        self._announced_failures += 1

    def may_leave(self, transmit: Transmit, monotonic_ms: int) -> bool:
        """Whether a transmit is still to leave. If so it does: the time in which the node has to answer begins."""
        return self._flights.leave(transmit.transmit_id, monotonic_ms)

    def on_outcome(self, outcome: DispatchOutcome, now: Now) -> None:
        """What became of a transmit, as announced; one that nobody waits for any longer is passed over."""
        self._announced_failures -= isinstance(outcome, DispatchFailed)
        self._apply(outcome, now)

    def _apply(self, outcome: DispatchOutcome, now: Now) -> None:
        flight = self._flights.pop(outcome.transmit.transmit_id)
        if flight is None:
            self._unanswered.on_outcome(outcome)
            return
        if isinstance(outcome, Propagated):
            self._flights.on_answered(flight, now.monotonic_ms)
            self._on_propagated(outcome, flight.left_ms, now)
        elif isinstance(outcome, Late):
            self._on_late(outcome.transmit, now)
        else:
            self._on_failed(outcome, self.readiness.is_known(flight.left_ms), now)

    def _on_late(self, transmit: Transmit, now: Now) -> None:
        """Not a failure: it leaves as it is when there is a place. An ephemeral message has one try and is dropped."""
        if transmit.kind is TransmitKind.EPHEMERAL and transmit.send_id is not None:
            self._machine.handle_transmit_failed(transmit.transmit_id, now)
            self._ephemerals.on_dropped(transmit.send_id, "rate_limit_approached")
        else:
            self._late.append(transmit)

    def _on_propagated(self, outcome: Propagated, left_ms: int | None, now: Now) -> None:
        transmit = outcome.transmit
        if self.readiness.failures:
            logger.info("the node takes messages again, after %d failures", self.readiness.failures)
            self._notices.on_taken(self.readiness.failures)
        self.readiness.on_taken(left_ms, now.monotonic_ms)
        self._machine.handle_transmitted(transmit.transmit_id, outcome.message_hash, now)
        if transmit.send_id is None:
            return
        self._failures_by_send.pop(transmit.send_id, None)
        if transmit.kind is TransmitKind.EPHEMERAL:
            self._ephemerals.on_propagated(transmit.send_id)
        elif transmit.ordinal is not None:
            self._own_sends.on_propagated(transmit.send_id, transmit.ordinal)
            self.note("propagated", transmit, now)

    def _on_failed(self, outcome: DispatchFailed, known: bool, now: Now) -> None:
        transmit = outcome.transmit
        if outcome.retry_after_ms is not None and not outcome.permanent:
            self._on_held(outcome, outcome.retry_after_ms, now)
            return
        self._count("dispatch_failures")
        is_of_node = not outcome.permanent and (known or self.readiness.failures > 0)
        # A repair is somebody else's message, for somebody else who asked for it. That the node fails is told once.
        tell = self._peer_log.tell if transmit.kind is TransmitKind.REPAIR else logger.warning
        (logger.debug if is_of_node else tell)(
            "message %s was not sent: %s", quoted(transmit.message_id), one_line(outcome.error)
        )
        send_id, ordinal = transmit.send_id, transmit.ordinal or 0
        if outcome.unanswered:
            self._unanswered.add(transmit)
        if outcome.permanent and send_id is not None and self._own_sends.is_parity(send_id, ordinal):
            self._leave_out(send_id, ordinal, transmit, now)
            return
        self._machine.handle_transmit_failed(transmit.transmit_id, now)
        if transmit.kind is TransmitKind.EPHEMERAL and send_id is not None:
            self._ephemerals.on_failed(send_id, outcome.error)
        elif outcome.permanent and send_id is not None:
            self._give_up(send_id, outcome.error, now, irrecoverable=ordinal)
        elif not known and not (outcome.permanent and transmit.kind is TransmitKind.REPAIR):
            self.readiness.on_failed(now.monotonic_ms)
            self._notices.on_failed(self.readiness.failures, outcome.error)
            if send_id is not None:
                self._on_node_failed(send_id, outcome.error, now)

    def _on_held(self, outcome: DispatchFailed, retry_after_ms: int, now: Now) -> None:
        """The node refuses everything until a time that it names, say the next epoch: no failure of any message."""
        transmit = outcome.transmit
        self._count("dispatches_held")
        self._machine.handle_transmit_failed(transmit.transmit_id, now)
        if transmit.kind is TransmitKind.EPHEMERAL and transmit.send_id is not None:
            self._ephemerals.on_dropped(transmit.send_id, "rate_limit_reached")
        if self.readiness.on_held(retry_after_ms, now.monotonic_ms):
            hold_ms = self.readiness.held_until_ms - now.monotonic_ms
            logger.warning("the node takes nothing for %d ms, everything waits: %s", hold_ms, one_line(outcome.error))
            self._notices.tell(now.epoch_ms + hold_ms, now)

    def _on_node_failed(self, send_id: str, error: str, now: Now) -> None:
        """However many messages a failure of the node hits, it is one failure of each send that waits for the node."""
        known = self._failures_by_send.items()
        self._failures_by_send = {known_id: count for known_id, count in known if known_id in self._own_sends}
        waiting = {flight.transmit.send_id for flight in self._flights if flight.transmit.kind in _CONTENTS}
        for hit in dict.fromkeys((send_id, *sorted(filter(None, waiting)))):
            if self._own_sends.is_stored(hit):
                # Nothing of it waits for the node.
                continue
            failures, counted_ms = self._failures_by_send.get(hit, (0, 0))
            if failures and now.monotonic_ms - counted_ms < self._failure_interval_ms:
                continue
            if failures >= self._failures_max:
                self._give_up(hit, error, now)
            else:
                self._failures_by_send[hit] = (failures + 1, now.monotonic_ms)

    def fail_oversized(self, content_bytes_max: int, now: Now) -> None:
        """Gives up what was segmented for larger messages and not encoded yet: nothing may follow what never leaves."""
        for send_id, ordinal, size_bytes in self._machine.oversized(content_bytes_max):
            if self._machine.is_queued(send_id) and not self._own_sends.is_parity(send_id, ordinal):
                self._give_up(send_id, too_large_text(size_bytes, content_bytes_max), now, irrecoverable=ordinal)

    def _leave_out(self, send_id: str, ordinal: int, transmit: Transmit, now: Now) -> None:
        self._count("parity_left_out")
        self._machine.handle_transmitted(transmit.transmit_id, None, now)
        self._machine.leave_out(transmit.message_id)
        self._own_sends.on_left_out(send_id, ordinal)

    def _give_up(self, send_id: str, error: str, now: Now, irrecoverable: int | None = None) -> None:
        """Ends a send; `irrecoverable` is the ordinal of the segment that can never be sent, if it is one."""
        self._failures_by_send.pop(send_id, None)
        self.take_back(self._flights.of_send(send_id), error, now)
        if self.holds(send_id):
            # It waits for a place, and leaves all the same.
            self._own_sends.on_unanswered(send_id)
        left = not self._machine.cancel(send_id, now)
        if left:
            # SDS says so in its turn: what is in the network may yet be acknowledged.
            self._machine.stop(send_id)
        if irrecoverable is not None:
            self._own_sends.on_irrecoverable(send_id, irrecoverable, error)
        elif not left:
            self._own_sends.on_undispatched(send_id, error)

    def handle_time(self, now: Now) -> None:
        """Gives up waiting for a node that does not answer; one that refuses everything may keep what it has."""
        held_until_ms = self.readiness.held_until_ms
        error = f"the node said nothing of it for {PROPAGATION_TIMEOUT_MS} ms"
        for flight in self._flights.overdue(now.monotonic_ms, held_until_ms):
            self._apply(DispatchFailed(flight.transmit, error, unanswered=True), now)
        self._flights.look_again(now.monotonic_ms, held_until_ms)

    def take_back(self, transmits: list[Transmit], error: str, now: Now) -> None:
        """These never reached the node, or will not be answered for: they wait, and ephemeral ones end with `error`."""
        for transmit in transmits:
            flight = self._flights.pop(transmit.transmit_id)
            if flight is not None:
                if flight.left_ms is not None:
                    self._unanswered.add(transmit)
                self._machine.handle_transmit_failed(transmit.transmit_id, now)
                if transmit.kind is TransmitKind.EPHEMERAL and transmit.send_id is not None:
                    self._ephemerals.on_failed(transmit.send_id, error)

    def on_commit_failed(self, transmits: list[Transmit], error: str, now: Now) -> None:
        """What these speak of is not stored: they leave after a commit that succeeds, and nothing ephemeral does."""
        self.take_back(transmits, error, now)
        self._fail_ephemerals(error, now)

    def on_stopped(self, now: Now) -> None:
        """The channel stops: what the node did not answer for is tried again after the next start."""
        in_flight = [flight.transmit for flight in self._flights]
        self.take_back(in_flight, "the channel was stopped before the node answered", now)
        self._fail_ephemerals("the channel was stopped", now)
        while self._late:
            self._machine.handle_transmit_failed(self._late.popleft().transmit_id, now)

    def next_wake_ms(self, now: Now, machine_ms: int | None, looked_ms: int) -> int | None:
        """Monotonic time at which something may leave, or is given up, without any input.

        Args:
            now: The time.
            machine_ms: When SDS has work next.
            looked_ms: When `poll` was last called: a commit may have taken long since.
        """
        due: list[int] = []
        if self._flights.look_ms is not None:
            due.append(self._flights.look_ms)
        resumes_ms = self.readiness.resumes_ms(now.monotonic_ms)
        if resumes_ms is not None:
            due.append(resumes_ms)
        if self._quota.enabled and self._held_kinds(now):
            due.append(now.monotonic_ms + max(1, self._quota.reopens_at_ms(now.epoch_ms) - now.epoch_ms))
        if machine_ms is not None:
            # What was overdue then waits for the rate limit, the node or a free place, not for the clock.
            due.append(machine_ms if machine_ms > looked_ms else now.monotonic_ms + OVERDUE_RECHECK_MS)
        return min(due, default=None)

    def _held_kinds(self, now: Now) -> frozenset[TransmitKind]:
        """Kinds of which something waits for nothing but the rate limit."""
        allowed = self._allowed_kinds(now)
        if allowed == ALL_KINDS:
            return frozenset()
        # Answers to repair requests wait for their time first.
        held: set[TransmitKind] = {
            kind for kind, count in self._machine.waiting().items() if count and kind is not TransmitKind.REPAIR
        }
        if not self._machine.has_room():
            held.discard(TransmitKind.FIRST)
        held.update(transmit.kind for transmit in self._late)
        return frozenset(held) - allowed

    def _on_limited(self, now: Now) -> None:
        held = self._held_kinds(now)
        if TransmitKind.EPHEMERAL in held:
            reason = self._quota.ephemeral_drop_reason(now.epoch_ms, self._flights.unplaced)
            self._drop_ephemerals(reason or "rate_limit_reached", now)
        if held - {TransmitKind.EPHEMERAL}:
            self._notices.on_limited(now)

    def _drop_ephemerals(self, reason: EphemeralDropReason, now: Now) -> None:
        for send_id in self._ephemerals.waiting():
            if self._machine.cancel(send_id, now):
                self._ephemerals.on_dropped(send_id, reason)

    def poll_events(self) -> list[ChannelEvent]:
        """What holds messages back: the rate limit, and the node."""
        return self._notices.poll()

    def note(self, stage: SegmentStage, transmit: Transmit, now: Now) -> None:
        """Tells observers about one of our messages."""
        if self._timeline:
            send = None if transmit.send_id is None else self._own_sends.get(transmit.send_id)
            self._timeline.note_transmit(stage, transmit, send, self._sender_id, now.epoch_ms)

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
