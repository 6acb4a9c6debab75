"""Our own sends: how far each has come, and which events follow (003 MessageEvents, 004 Event lifecycle).

Owns the progress of sends that are not settled and the memory of those that are. It decides nothing about
retransmission: SDS does, and says what happened.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from shardwire.channel.sending.send_events import Outcome, SendEvents, bits, unannounced
from shardwire.channel.storing.records import SEND, Records, SendRecord
from shardwire.config import DeliveredWhen
from shardwire.events import (
    ChannelEvent,
    ChunkPossiblyAcknowledgedEvent,
    ChunkSendingEvent,
    ChunkSentEvent,
    SendErrorStage,
)

# Settled sends remembered, so that `delivered` can answer for one and a late acknowledgement finds it.
SETTLED_REMEMBERED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class PendingSend:
    """A send that is not settled: neither delivered, nor cancelled, nor given up.

    Attributes:
        request_id: What `send` returned.
        message_id: Hex Keccak-256 of the payload.
        segments_total: Data and parity segments.
        segments_propagated: How many of them the network took.
        delivered_to: Participants that can reconstruct it.
        sent: Whether all of them were propagated, but for parity that can never be.
        stored: Whether a store has all of those: who is away finds them there.
    """

    request_id: str
    message_id: str
    segments_total: int
    segments_propagated: int
    delivered_to: frozenset[str]
    sent: bool
    stored: bool = False


class OutgoingSends:
    """The table of sends.

    Args:
        delivered_when: Who must be able to reconstruct a message before it counts as delivered.
        wants: Whether anybody listens to a class of events; chunk events nobody wants are not made.
    """

    def __init__(self, delivered_when: DeliveredWhen, wants: Callable[[type[ChannelEvent]], bool]) -> None:
        self._delivered_when = delivered_when
        self._events = SendEvents(wants)
        self._sends: dict[str, SendRecord] = {}
        self._settled: OrderedDict[str, None] = OrderedDict()
        self._send_ids: dict[str, str] = {}
        # Neither sent nor failed, oldest first.
        self._unsent: dict[str, None] = {}
        self._changed: set[str] = set()

    # --- what is known ---

    def of_request(self, request_id: str) -> SendRecord | None:
        send_id = self._send_ids.get(request_id)
        return None if send_id is None else self._sends.get(send_id)

    def send_id_of(self, request_id: str) -> str | None:
        return self._send_ids.get(request_id)

    def __contains__(self, send_id: object) -> bool:
        return send_id in self._sends

    def record(self, send_id: str) -> SendRecord | None:
        return self._sends.get(send_id)

    def is_parity(self, send_id: str, ordinal: int) -> bool:
        record = self._sends.get(send_id)
        return record is not None and ordinal >= record.data_count

    def pending(self) -> tuple[PendingSend, ...]:
        """What is neither delivered nor failed nor cancelled, oldest first; from any thread."""
        # Taken in one step: the channel's own thread may register a send meanwhile.
        sends = tuple(self._sends.items())
        return tuple(
            PendingSend(
                request_id,
                record.message_id,
                record.content_count,
                record.propagated.bit_count(),
                frozenset(record.delivered_to),
                record.sent,
                record.is_stored,
            )
            for send_id, record in sends
            if send_id not in self._settled
            for request_id in record.request_ids
        )

    def pending_count(self) -> int:
        return len(self._sends) - len(self._settled)

    # --- what happens ---

    def register(
        self, send_id: str, request_id: str, message_id: str, data_count: int, content_count: int, form: str = ""
    ) -> None:
        # One that failed before anything of it left is begun anew.
        self._forget(send_id)
        self._sends[send_id] = SendRecord([request_id], message_id, data_count, content_count, unanswered=0, form=form)
        self._send_ids[request_id] = send_id
        self._unsent[send_id] = None
        self._changed.add(send_id)

    def never_left(self, send_id: str) -> bool:
        """Whether a send failed, was told so, and nothing of it can have reached the network."""
        record = self._sends.get(send_id)
        if record is None or record.unannounced:
            return False
        return record.error_stage == "dispatch" and not record.propagated and not record.unanswered

    def attach(self, send_id: str, request_id: str) -> None:
        """Gives a remembered send another request id, and that request the outcomes the send already has."""
        record = self._sends[send_id]
        record.request_ids.append(request_id)
        self._send_ids[request_id] = send_id
        self._changed.add(send_id)
        if record.sent:
            self._outcome(send_id, "sent", (request_id,))
        if record.delivered:
            self._outcome(send_id, "delivered", (request_id,))
        elif record.error_stage:
            # Under its id the network may hold parts of it, and receivers wait for the rest, or the first request was
            # not told its error yet: it is not begun anew.
            self._outcome(send_id, "error", (request_id,))

    def is_shared(self, request_id: str) -> bool:
        """Whether other requests have the same send."""
        record = self.of_request(request_id)
        return record is not None and len(record.request_ids) > 1

    def withdraw(self, request_id: str) -> None:
        """Forgets a request, and with the last one its send: no event follows."""
        send_id = self._send_ids.pop(request_id)
        record = self._sends[send_id]
        record.request_ids.remove(request_id)
        record.unannounced = [entry for entry in record.unannounced if not entry.endswith(request_id)]
        self._changed.add(send_id)
        if not record.request_ids:
            self._forget(send_id)

    def _forget(self, send_id: str) -> None:
        record = self._sends.pop(send_id, None)
        if record is None:
            return
        self._settled.pop(send_id, None)
        self._unsent.pop(send_id, None)
        for request_id in record.request_ids:
            self._send_ids.pop(request_id, None)
        self._changed.add(send_id)

    def on_dispatched(self, send_id: str, ordinal: int) -> None:
        record = self._sends.get(send_id)
        if record is None or ordinal >= record.content_count:
            # Parity that was asked for later belongs to no stage of the message.
            return
        record.sending |= 1 << ordinal
        if ordinal < record.data_count:
            self._events.add_chunks(ChunkSendingEvent, record, record.sending)

    def on_unanswered(self, send_id: str) -> None:
        """A segment was handed to the node, which may never say what became of it."""
        record = self._sends.get(send_id)
        if record is not None:
            record.unanswered += 1
            self._changed.add(send_id)

    def on_answered(self, send_id: str) -> None:
        """One of those did not leave, says the node after all."""
        record = self._sends.get(send_id)
        if record is not None:
            record.unanswered -= 1
            self._changed.add(send_id)

    def on_propagated(self, send_id: str, ordinal: int) -> None:
        record = self._sends.get(send_id)
        if record is None or ordinal >= record.content_count:
            return
        record.propagated |= 1 << ordinal
        self._changed.add(send_id)
        if ordinal < record.data_count:
            self._events.add_chunks(ChunkSentEvent, record, record.propagated)
        self._review_sent(send_id, record)

    def on_stored(self, send_id: str, ordinal: int) -> None:
        """A store has one of its segments."""
        record = self._sends.get(send_id)
        if record is not None and ordinal < record.content_count and not record.stored >> ordinal & 1:
            record.stored |= 1 << ordinal
            self._changed.add(send_id)

    def is_stored(self, send_id: str) -> bool:
        record = self._sends.get(send_id)
        return record is not None and record.is_stored

    def stored(self) -> Iterator[tuple[str, int]]:
        """Segments of sends that are not settled which a store has."""
        for send_id, record in self._sends.items():
            if send_id not in self._settled:
                yield from ((send_id, ordinal) for ordinal in bits(record.stored))

    def on_left_out(self, send_id: str, ordinal: int) -> None:
        """A parity segment can never be sent: the message does without it, and no event speaks of it."""
        record = self._sends.get(send_id)
        if record is not None and ordinal < record.content_count:
            record.left_out |= 1 << ordinal
            self._changed.add(send_id)
            self._review_sent(send_id, record)

    def unsent_ordinals(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Sends that do not count as sent, and their segments of which the network is not known to have any."""
        for send_id in tuple(self._unsent):
            record = self._sends[send_id]
            yield send_id, bits(((1 << record.content_count) - 1) & ~(record.propagated | record.left_out))

    def on_acknowledged(self, send_id: str, ordinal: int, by: str) -> None:
        record = self._sends.get(send_id)
        if record is None or ordinal >= record.content_count:
            return
        # Whoever holds it got it from the network, though the node may have died before it said so.
        record.propagated |= 1 << ordinal
        self._changed.add(send_id)
        self._review_sent(send_id, record)
        if ordinal < record.data_count:
            record.acknowledged |= 1 << ordinal
            self._events.add_acknowledged(record, by)

    def on_possibly_acknowledged(self, send_id: str, ordinal: int) -> None:
        record = self._sends.get(send_id)
        if record is None or ordinal >= record.data_count or record.acknowledged >> ordinal & 1:
            return
        record.possibly_acknowledged |= 1 << ordinal
        self._changed.add(send_id)
        self._events.add_chunks(ChunkPossiblyAcknowledgedEvent, record, record.possibly_acknowledged)

    def on_reconstructible(self, send_id: str, by: str) -> None:
        """`by` can reconstruct the message, so it holds every chunk, by parity those that never reached it."""
        record = self._sends.get(send_id)
        if record is None or by in record.delivered_to:
            return
        record.delivered_to.append(by)
        self._changed.add(send_id)
        every_chunk = (1 << record.data_count) - 1
        if record.acknowledged != every_chunk:
            record.acknowledged |= every_chunk
            self._events.add_acknowledged(record, by)
        self._review_delivered(send_id, record)

    def on_given_up(self, send_id: str, unacknowledged: Collection[int]) -> None:
        record = self._sends.get(send_id)
        if record is None or record.delivered or record.error_stage:
            return
        stage: SendErrorStage = "delivery" if record.sent else "dispatch"
        missing = record.content_count - record.propagated.bit_count()
        # Parity that was made later is of no stage of the message.
        count = sum(1 for ordinal in unacknowledged if ordinal < record.content_count)
        error = (
            f"{count} of {record.content_count} segments were not acknowledged after the last retransmission"
            + ("; a store has the message" if record.is_stored else "")
            if record.sent
            else f"{missing} of {record.content_count} segments could not be handed to the network"
        )
        self._fail(send_id, record, error, stage)

    def on_irrecoverable(self, send_id: str, ordinal: int, error: str) -> None:
        """A data segment can never be sent, or not once more (004, Irrecoverable errors): nor can the message."""
        self._fail_chunks(send_id, 1 << ordinal, error)

    def on_undispatched(self, send_id: str, error: str) -> None:
        """What the network did not take of a message will not be tried again."""
        record = self._sends.get(send_id)
        if record is not None:
            self._fail_chunks(send_id, ((1 << record.data_count) - 1) & ~record.propagated, error)

    def _fail_chunks(self, send_id: str, failed: int, error: str) -> None:
        record = self._sends.get(send_id)
        if record is None or record.delivered or record.error_stage:
            return
        self._events.add_chunk_error(record, failed, error)
        self._fail(send_id, record, error, "delivery" if record.sent else "dispatch")

    def is_unannounced(self, send_id: str, outcome: str, request_id: str) -> bool:
        """Whether `on_announced` is to be called for an outcome."""
        record = self._sends.get(send_id)
        return record is not None and unannounced(outcome, request_id) in record.unannounced

    def on_announced(self, send_id: str, outcome: str, request_id: str) -> None:
        """The application was told an outcome of a request, or nobody is there to be told it."""
        record = self._sends.get(send_id)
        entry = unannounced(outcome, request_id)
        if record is not None and entry in record.unannounced:
            record.unannounced.remove(entry)
            self._changed.add(send_id)

    # --- outputs ---

    def poll_events(self) -> list[tuple[ChannelEvent, Outcome | None]]:
        """Events since the last call; with the outcome where it stays unannounced until told."""
        return self._events.poll()

    def poll_persist(self) -> Records:
        if not self._changed:
            return {}
        changed, self._changed = self._changed, set()
        records: Records = {}
        for send_id in sorted(changed):
            record = self._sends.get(send_id)
            records[SEND, send_id.encode()] = None if record is None else record.encode()
        return records

    def drop_changes(self) -> None:
        """Where nothing is stored: in place of `poll_persist`."""
        self._changed.clear()

    def restore(self, stored: dict[bytes, bytes]) -> None:
        """Takes back what `poll_persist` gave; outcomes that were never announced become events again."""
        for key, value in stored.items():
            send_id, record = key.decode(), SendRecord.decode(value)
            self._sends[send_id] = record
            for request_id in record.request_ids:
                self._send_ids[request_id] = send_id
            if record.delivered or record.error_stage:
                self._settled[send_id] = None
            elif not record.sent:
                self._unsent[send_id] = None
                # Its node may have taken something just before the end of the earlier life.
                record.unanswered += 1
            untold, record.unannounced = dict.fromkeys(record.unannounced), []
            for entry in untold:
                outcome, _, request_id = entry.partition(" ")
                # What an earlier release stored does not say whose it is.
                waiting = (request_id,) if request_id else record.request_ids
                self._events.add_outcome(send_id, record, outcome, waiting, waits=True)

    def _review_sent(self, send_id: str, record: SendRecord) -> None:
        if not record.sent and (record.propagated | record.left_out).bit_count() == record.content_count:
            record.sent = True
            self._unsent.pop(send_id, None)
            self._outcome(send_id, "sent", record.request_ids)
            self._review_delivered(send_id, record)

    def _review_delivered(self, send_id: str, record: SendRecord) -> None:
        # Delivered never comes before sent, whoever acknowledged meanwhile.
        if record.delivered or not record.sent or not self._quorum(record.delivered_to):
            return
        record.delivered = True
        self._outcome(send_id, "delivered", record.request_ids)
        self._settle(send_id)

    def _quorum(self, delivered_to: list[str]) -> bool:
        wanted = self._delivered_when
        if isinstance(wanted, frozenset):
            return wanted.issubset(delivered_to)
        return len(delivered_to) >= (1 if wanted == "any" else wanted)

    def _fail(self, send_id: str, record: SendRecord, error: str, stage: SendErrorStage) -> None:
        record.error, record.error_stage = error, stage
        self._outcome(send_id, "error", record.request_ids)
        self._settle(send_id)

    def _settle(self, send_id: str) -> None:
        self._settled[send_id] = None
        self._settled.move_to_end(send_id)
        self._unsent.pop(send_id, None)
        while len(self._settled) > SETTLED_REMEMBERED_MAX:
            self._forget(next(iter(self._settled)))

    def _outcome(self, send_id: str, outcome: str, request_ids: list[str] | tuple[str, ...]) -> None:
        self._changed.add(send_id)
        self._events.add_outcome(send_id, self._sends[send_id], outcome, request_ids)
