"""What leaves: composes causal history, filter and requests within the header limit, and encodes at the last moment."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from shardwire._native import LogEntry, Now, OutgoingContent, OutgoingSend, TransmitCounts, compose_history
from shardwire.config import SdsConfig
from shardwire.errors import ConfigError
from shardwire.sds.identity import ENTRY_FRAME_BYTES, MESSAGE_ID_LENGTH_MAX, encoded_length, entry_bytes
from shardwire.sds.outputs import Transmit, TransmitKind

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel

# Tags, lengths and scalars of one message, at most.
_MESSAGE_FRAME_BYTES = 48


# A transmission that has no answer yet, with what its failure must undo: a content of ours, or what a sync said.
InFlight = tuple[TransmitKind, OutgoingContent | None, Sequence[LogEntry]]

# Looked up once: members of an enumeration are slow to reach.
_SYNC, _REPAIR, _EPHEMERAL = TransmitKind.SYNC, TransmitKind.REPAIR, TransmitKind.EPHEMERAL
_UNKNOWN: InFlight = (_SYNC, None, ())
_FIRST, _FURTHER, _RETRANSMISSION = TransmitKind.FIRST, TransmitKind.FURTHER, TransmitKind.RETRANSMISSION


# A causal history: its ids, its fields as encoded, what it acknowledges, and the bytes left of the budget.
History = tuple[tuple[str, ...], bytes, list[LogEntry], int]


class Transmission(TransmitCounts):
    """Encodes and counts what leaves one machine."""

    def __init__(self, machine: MessageChannel, config: SdsConfig, rng: random.Random, header_bytes_max: int) -> None:
        self._machine = machine
        self._config = config
        self._base_bytes = (
            _MESSAGE_FRAME_BYTES
            + encoded_length(machine.sender_id)
            + encoded_length(machine.channel_id)
            + (64 if config.message_id == "content-sha256" else 38)
        )
        self.header_budget = 0
        self.limit_headers(header_bytes_max)
        self.ephemerals: deque[tuple[str, str, bytes]] = deque()
        self.in_flight: dict[int, InFlight] = {}
        # Counted on over a restart: ids of our syncs begin with the nonce, so that an echo is known as ours.
        self.nonce = f"{rng.getrandbits(64):016x}"
        self.sync_count = 0

    def limit_headers(self, header_bytes_max: int) -> None:
        needed = self._base_bytes + ENTRY_FRAME_BYTES + 4 * MESSAGE_ID_LENGTH_MAX
        if header_bytes_max < needed:
            raise ConfigError(f"header_bytes_max is {header_bytes_max}: these ids need at least {needed}")
        self.header_budget = header_bytes_max - self._base_bytes

    def next_send_number(self) -> int:
        self.send_count += 1
        return self.send_count

    def is_own_sync(self, message_id: str) -> bool:
        return message_id.startswith(f"sync-{self.nonce}-")

    def waiting(self) -> dict[TransmitKind, int]:
        outgoing = self._machine.outgoing
        fresh = sum(1 for send in outgoing.queue.fresh if send.waits)
        return {
            TransmitKind.EPHEMERAL: len(self.ephemerals),
            TransmitKind.REPAIR: len(self._machine.repair.answers.by_id),
            TransmitKind.RETRANSMISSION: len(outgoing.due),
            TransmitKind.FIRST: fresh,
            TransmitKind.FURTHER: outgoing.queue.contents - fresh,
        }

    # --- polling --------------------------------------------------------------------------------

    def poll(self, now: Now, kinds: Container[TransmitKind]) -> Transmit | None:
        machine = self._machine
        if _SYNC in kinds and (sync := self._poll_sync(now)) is not None:
            return sync
        if _REPAIR in kinds and machine.repair.answers.by_id:
            answer = machine.repair.take_answer(now.monotonic_ms)
            if answer is not None:
                return self._leave(_REPAIR, answer[0], answer[1])
        if _EPHEMERAL in kinds and self.ephemerals:
            return self._ephemeral()
        outgoing = machine.outgoing
        if _RETRANSMISSION in kinds and outgoing.due:
            content = outgoing.next_due(now.monotonic_ms)
            if content is not None and content.wire is not None:
                outgoing.on_dispatched(content, now.monotonic_ms)
                return self._leave_content(_RETRANSMISSION, content, content.wire)
        first = _FIRST in kinds
        further = _FURTHER in kinds
        if first and (transmit := machine.outlet.dispatch(now)) is not None:
            return transmit
        if not (first or further) or not outgoing.queue.contents:
            return None
        content = outgoing.queue.next(first and outgoing.may_begin(), further, now.monotonic_ms)
        if content is None:
            return None
        kind = _FURTHER if content.send.dispatched else _FIRST
        wire = content.wire if content.wire is not None else self._encode_content(content, now)
        outgoing.on_dispatched(content, now.monotonic_ms)
        return self._leave_content(kind, content, wire)

    def _leave(self, kind: TransmitKind, message_id: str, payload: bytes, said: Sequence[LogEntry] = ()) -> Transmit:
        self.transmit_count += 1
        self.in_flight[self.transmit_count] = (kind, None, said)
        return Transmit(self.transmit_count, kind, message_id, payload)

    def _leave_content(self, kind: TransmitKind, content: OutgoingContent, wire: bytes) -> Transmit:
        self.transmit_count += 1
        content.in_flight = self.transmit_count
        self.in_flight[self.transmit_count] = (kind, content, ())
        return Transmit(
            self.transmit_count,
            kind,
            content.message_id,
            wire,
            content.send.send_id,
            content.ordinal,
            content.attempts,
        )

    # --- answers --------------------------------------------------------------------------------

    def on_transmitted(self, transmit_id: int, retrieval_hint: bytes | None, now: Now) -> None:
        _, content, _ = self.in_flight.pop(transmit_id, _UNKNOWN)
        if content is None:
            return
        machine = self._machine
        if content.in_flight == transmit_id:
            content.in_flight = 0
        machine.outgoing.on_propagated(content, now.monotonic_ms)
        if content.send.finished:
            machine.repair.on_send_finished(content)
        if retrieval_hint is not None:
            # The hint is the newest propagated hash: a store has that one last.
            entry = machine.log.entries.get(content.message_id)
            if entry is not None:
                entry.retrieval_hint = retrieval_hint
                machine.log.touch(entry)

    def on_failed(self, transmit_id: int, now: Now) -> None:
        flight = self.in_flight.pop(transmit_id, None)
        if flight is None:
            return
        kind, content, said = flight
        machine = self._machine
        if kind is TransmitKind.SYNC:
            machine.sync_timer.on_sync_failed(now)
            for entry in said:
                if machine.log.entries.get(entry.message_id) is entry:
                    machine.acknowledgements.received(entry, now)
        elif content is not None:
            content.in_flight = 0
            if kind is TransmitKind.RETRANSMISSION:
                machine.outgoing.not_sent_again(content)
            else:
                machine.outgoing.put_back(content)

    # --- composing ------------------------------------------------------------------------------

    def _compose_history(self, budget: int, sync: bool, now: Now) -> History:
        """The causal history of a message with at most `budget` bytes for it.

        The configured causal history comes first in claim and last in place. Then, as ids alone, the heads, which
        make a content follow all that was delivered here before it, and what was received since we last spoke.
        """
        machine = self._machine
        acknowledgements = machine.acknowledgements
        sources: list[dict[str, LogEntry] | list[LogEntry]]
        owed: list[LogEntry] = []
        if sync:
            sources = [acknowledgements.delivered, acknowledgements.incomplete]
            if acknowledgements.said_before:
                sources.append(acknowledgements.repeated(now))
            if machine.anti_entropy.owed:
                # What others lack: with hints, so that they can fetch it.
                owed = list(machine.anti_entropy.owed.values())
        else:
            sources = [machine.heads.by_key, acknowledgements.delivered]
        return compose_history(
            machine.codec, machine.log, self._config.causal_history_size, sources, owed, max(0, budget)
        )

    def _bloom_filter(self, budget: int, now: Now) -> bytes | None:
        bloom = self._machine.bloom
        if not bloom.due(now) or bloom.size_bytes + 8 > budget:
            return None
        return bloom.take(now)

    def _encode_content(self, content: OutgoingContent, now: Now) -> bytes:
        machine = self._machine
        send = content.send
        message_id = content.message_id
        if send.history_ids is None:
            self._fix_history(send, now)
        every = self._config.bloom_interval_ms == 0
        bloom_filter = send.bloom_filter if every or not send.waits else None
        content.lamport = lamport = machine.lamport.tick(now)
        requests = machine.repair.take_requests(now.monotonic_ms, send.header_left)
        wire = machine.codec.encode(message_id, lamport, send.history_fields, bloom_filter, requests, content.content)
        content.wire = wire
        content.content = None
        # From here on the wire is what is stored.
        machine.outgoing.new_wires[message_id] = wire
        entry = machine.log.add(message_id, machine.sender_id, lamport, None, content.ordinal)
        machine.bloom.insert(message_id)
        send.dispatched += 1
        if send.dispatched == len(send.contents):
            # Named from now on: what is under way for long would hold up what follows it at every receiver.
            machine.log.deliver(entry)
            machine.heads.deliver(entry, send.history_ids or ())
            send.bloom_filter = None
            send.history_fields = b""
        machine.sync_timer.on_content_sent(now)
        return wire

    def _fix_history(self, send: OutgoingSend, now: Now) -> None:
        """All contents of a send carry the same history and filter, so that none depends on a sibling."""
        send.history_ids, send.history_fields, said, left = self._compose_history(self.header_budget, False, now)
        send.bloom_filter = self._bloom_filter(left, now)
        if send.bloom_filter is not None:
            left -= len(send.bloom_filter) + 8
        send.header_left = left
        self._machine.acknowledgements.said(said, now, False)
        if len(send.contents) > 1:
            self._machine.outgoing.changed_sends[send.send_id] = None

    def _poll_sync(self, now: Now) -> Transmit | None:
        machine = self._machine
        acknowledgements = machine.acknowledgements
        at_ms = now.monotonic_ms
        anti_entropy = machine.anti_entropy
        if at_ms >= anti_entropy.sample_ms:
            anti_entropy.sample(at_ms)
        wish = machine.filter_wish
        asked = wish.due_ms is not None and wish.due_ms <= at_ms and wish.take(at_ms)
        wanted = asked
        for due_ms in (acknowledgements.due_ms, machine.sync_timer.due_ms, anti_entropy.due_ms):
            if due_ms is not None and due_ms <= at_ms:
                wanted = True
        requests_ms = machine.repair.next_request_ms()
        if not wanted and (requests_ms is None or requests_ms > at_ms):
            return None
        requests = machine.repair.take_requests(at_ms, self.header_budget)
        if not wanted:
            if not requests:
                return None
            machine.repair.on_sync_for_requests(at_ms)
        left = self.header_budget - sum(map(entry_bytes, requests))
        ids, fields, said, left = self._compose_history(left, True, now)
        if not ids and not requests:
            machine.sync_timer.on_nothing_to_say(now)
            return None
        machine.bloom.asked |= asked
        message_id = self.new_sync_id()
        payload = machine.codec.encode(
            message_id,
            machine.lamport.tick(now),
            fields,
            self._bloom_filter(left, now),
            requests,
            b"" if self._config.wire_format == "nim" else None,
        )
        newly = acknowledgements.said(said, now, True)
        anti_entropy.named(ids, at_ms)
        anti_entropy.put_off(at_ms)
        machine.sync_timer.on_sync_sent(now)
        return self._leave(TransmitKind.SYNC, message_id, payload, newly)

    def new_sync_id(self) -> str:
        self.sync_count += 1
        return f"sync-{self.nonce}-{self.sync_count:x}"

    def cancel_ephemeral(self, send_id: str) -> bool:
        for entry in self.ephemerals:
            if entry[0] == send_id:
                self.ephemerals.remove(entry)
                return True
        return False

    def _ephemeral(self) -> Transmit:
        send_id, message_id, content = self.ephemerals.popleft()
        machine = self._machine
        payload = machine.codec.encode(message_id, None, b"", None, (), content)
        self.transmit_count += 1
        self.in_flight[self.transmit_count] = (TransmitKind.EPHEMERAL, None, ())
        return Transmit(self.transmit_count, TransmitKind.EPHEMERAL, message_id, payload, send_id, 0)
