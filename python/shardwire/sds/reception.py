"""What comes from the network: decoded, judged, and spread over the parts of the machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from shardwire._native import IncomingSend, LogEntry, Now, SdsMessage
from shardwire.config import SdsConfig
from shardwire.sds.gaps import UNKNOWN_PER_MESSAGE_MAX
from shardwire.sds.heads import HEADS_MAX
from shardwire.sds.identity import (
    CONTENTS_PER_SEND_MAX,
    MESSAGE_ID_LENGTH_MAX,
    RETRIEVAL_HINT_BYTES_MAX,
    SEND_ID_LENGTH,
    SENDER_ID_LENGTH_MAX,
    content_id,
)
from shardwire.sds.intake import HISTORY_KEPT_MAX, Taken
from shardwire.sds.outputs import ContentReceived, EphemeralReceived, MessageDropped, SenderIdConflict, SyncReceived
from shardwire.sds.participants import HEARD_EXACTLY_MS

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel


# SDS-R: a message carries at most three requests. What a peer asks beyond this is not looked at.
REQUESTS_HEARD_MAX = 100


class Reception:
    """Handles received messages; everything a peer can say ends as state or as an event, never as an exception."""

    __slots__ = (
        "_acknowledge",
        "_acknowledgements",
        "_answers",
        "_anti_entropy",
        "_begun",
        "_bloom",
        "_by_id",
        "_by_send",
        "_decode",
        "_emit",
        "_entries",
        "_ephemeral_order",
        "_filter_wish",
        "_heard_ms",
        "_incoming",
        "_insert_bloom",
        "_lamport",
        "_lamport_unit_ms",
        "_log",
        "_machine",
        "_new_ms",
        "_originals",
        "_outgoing",
        "_participants",
        "_recent_ephemerals",
        "_recent_max",
        "_repair",
        "_repairs",
        "_said_lately_ms",
        "_sender_id",
        "_sync_timer",
        "_wire_format",
    )

    def __init__(self, machine: MessageChannel, config: SdsConfig, now: Now) -> None:
        self._machine = machine
        self._lamport_unit_ms = 1_000 if config.wire_format == "nim" else 1
        self._decode = machine.codec.decode
        self._sender_id = machine.sender_id
        self._by_send = config.message_id == "send"
        self._wire_format = config.wire_format
        self._repairs = config.enable_repair
        self._begun = now.epoch_ms // self._lamport_unit_ms
        self._said_lately_ms = config.acknowledgement_timeout_ms // 2
        self._recent_max = config.outgoing_buffer_messages_max
        self._emit = machine.emit
        self._log = machine.log
        self._entries = machine.log.entries
        self._lamport = machine.lamport
        self._bloom = machine.bloom
        self._insert_bloom = machine.bloom.insert
        self._originals = machine.repair.originals
        self._participants = machine.participants
        self._acknowledgements = machine.acknowledgements
        self._sync_timer = machine.sync_timer
        self._repair = machine.repair
        self._answers = machine.repair.answers.by_id
        self._anti_entropy = machine.anti_entropy
        self._filter_wish = machine.filter_wish
        self._new_ms = config.acknowledgement_timeout_ms * (1 + config.max_retransmissions)
        self._heard_ms = machine.participants.heard_ms
        self._outgoing = machine.outgoing
        self._acknowledge = machine.outlet.acknowledge
        self._by_id = machine.outgoing.by_id
        self._incoming = machine.incoming
        self._recent_ephemerals: dict[str, None] = {}
        self._ephemeral_order: deque[str] = deque()

    def handle(self, data: bytes, now: Now, retrieval_hint: bytes | None, from_store: bool) -> None:
        """Takes what the machine's intake did not."""
        incoming = self._incoming
        fields = self._decode(data)
        if not fields:
            return self._drop("undecodable" if fields is None else "other-channel")
        message_id, sender_id, lamport, history_ids, bloom_range, requests, content = fields
        if not 0 < len(message_id) <= MESSAGE_ID_LENGTH_MAX or len(sender_id) > SENDER_ID_LENGTH_MAX:
            return self._drop("over-limit")
        if "\0" in message_id:
            # No implementation makes such ids: names that are made here have it, and must not come from outside.
            return self._drop("undecodable")
        if sender_id == self._sender_id:
            if self._answers and not from_store:
                self._repair.on_message(message_id)
            return self._on_own(message_id, lamport, bool(content), from_store)
        if lamport is None:
            return self._on_ephemeral(message_id, sender_id, content)
        if content:
            known = self._entries.get(message_id)
            if known is not None:
                return self._on_duplicate(known, sender_id, content, data, now, from_store)
            if incoming.contents_held >= incoming.contents_max and not incoming.make_room(message_id):
                return self._drop("over-limit")
        monotonic_ms = now.monotonic_ms
        since_first_ms: int | None = None
        send: IncomingSend | None = None
        entry: LogEntry | None = None
        heard_ms = self._heard_ms.get(sender_id)
        heard_lately = heard_ms is not None and monotonic_ms - heard_ms < HEARD_EXACTLY_MS
        if not heard_lately and self._participants.hear(sender_id, monotonic_ms, live=not from_store):
            since_first_ms = self._newness_ms(now)
        if self._answers:
            self._repair.on_message(message_id)
        # What a store repeats was asked long ago; whoever lacks it still asks again.
        if requests and self._repairs and not from_store:
            for request in requests[:REQUESTS_HEARD_MAX]:
                self._repair.on_request(request, monotonic_ms)
        if content:
            send, entry = self._on_content(message_id, sender_id, lamport, content, data, retrieval_hint, now)
        else:
            self._emit(SyncReceived(sender_id))
            self._sync_timer.on_sync_received(now)
            self._anti_entropy.named(history_ids, monotonic_ms)
        if self._by_id:
            self._review(history_ids, bloom_range, data, sender_id)
        if bloom_range is not None and not content and not from_store:
            bloom_filter = data[slice(*bloom_range)]
            self._anti_entropy.review(bloom_filter, sender_id, monotonic_ms)
            self._filter_wish.on_filter(bloom_filter, sender_id, monotonic_ms)
        if history_ids:
            unknown = self._follow(send, history_ids, sender_id)
            if unknown:
                self._on_unknown(send, unknown, data, sender_id, monotonic_ms, since_first_ms)
        if entry is not None:
            self._acknowledgements.received(entry, now)
        return None

    def finish(self, taken: Taken, data: bytes, now: Now) -> None:
        """What is left to do for a content that was taken in natively: as `handle` does for any message."""
        entry, key, send, filter_range, news, rare = taken
        sender_id = entry.sender_id
        self._sync_timer.on_content_received(now)
        incoming = self._incoming
        if send is None:
            send = incoming.receive(entry, key, now.monotonic_ms)
        else:
            incoming.contents_held += 1
        if rare is not None:
            for acknowledged in rare[1]:
                self._outgoing.acknowledge(acknowledged, sender_id)
        if filter_range is not None and self._outgoing.unacknowledged:
            self._review_filter(data[slice(*filter_range)], sender_id)
        if rare is not None:
            ids, _, heard, waits, unknown = rare
            for cause in waits:
                incoming.wait(send, cause)
            for held in heard:
                self._acknowledgements.heard(held)
            if len(ids) > len(send.history):
                send.history = ids
            if unknown:
                # Its sender was heard before, so it is no newcomer's.
                incoming.gaps.on_unknown(send, unknown, sender_id, now.monotonic_ms, None)
        if news:
            self._repair.on_news(now.monotonic_ms)
        self._acknowledgements.received(entry, now)

    def _on_content(
        self,
        message_id: str,
        sender_id: str,
        lamport: int,
        content: bytes,
        data: bytes,
        retrieval_hint: bytes | None,
        now: Now,
    ) -> tuple[IncomingSend, LogEntry]:
        """Holds a new content; returns its send and its entry."""
        incoming = self._incoming
        send_id: str | None
        ordinal: int | None
        if self._by_send and message_id[SEND_ID_LENGTH:] == ".0":
            # By far the most: spares the calls.
            send_id, ordinal = message_id[:SEND_ID_LENGTH], 0
        else:
            send_id, ordinal = incoming.place_of(message_id) or (None, None)
        # Of a send that is delivered already the channel tells that it is surplus.
        self._emit(ContentReceived(message_id, sender_id, content, send_id, ordinal))
        if retrieval_hint is not None and len(retrieval_hint) > RETRIEVAL_HINT_BYTES_MAX:
            retrieval_hint = None
        if lamport * self._lamport_unit_ms > now.epoch_ms:
            lamport = self._lamport.capped(lamport, now)
        entry = self._log.add(message_id, sender_id, lamport, retrieval_hint, ordinal or 0)
        self._insert_bloom(message_id)
        if self._repairs:
            self._originals.keep(message_id, data)
        self._sync_timer.on_content_received(now)
        return incoming.receive(entry, send_id or message_id, now.monotonic_ms), entry

    def _follow(self, send: IncomingSend | None, history_ids: tuple[str, ...], named_by: str) -> list[int]:
        """Reads a causal history: of a content of `send`, or of a sync (None, which waits for nothing).

        What another participant names of what we have not said yet, it acknowledged. Returns where unknown ids stand.
        """
        unknown, causes, unsaid = self._log.follow(history_ids, named_by)
        if send is not None:
            for cause in causes:
                self._incoming.wait(send, cause)
        for held in unsaid:
            self._acknowledgements.heard(held)
        if send is not None and len(history_ids) > len(send.history):
            send.history = history_ids if len(history_ids) <= HISTORY_KEPT_MAX else _ends(history_ids)
        return unknown

    def _on_unknown(
        self,
        send: IncomingSend | None,
        unknown: list[int],
        data: bytes,
        named_by: str,
        monotonic_ms: int,
        since_first_ms: int | None,
    ) -> None:
        # Only now are hints and senders wanted.
        message = SdsMessage.decode(data, self._wire_format)
        if message is not None:
            history = message.causal_history
            named = [history[position] for position in unknown[-UNKNOWN_PER_MESSAGE_MAX:]]
            self._incoming.gaps.on_unknown(send, named, named_by, monotonic_ms, since_first_ms)

    def _review(
        self, history_ids: tuple[str, ...], bloom_range: tuple[int, int] | None, data: bytes, sender_id: str
    ) -> None:
        """SDS, Review ACK Status: definitive by causal history, possible by bloom filter."""
        self._acknowledge(history_ids, sender_id)
        if bloom_range is not None and self._outgoing.unacknowledged:
            self._review_filter(data[slice(*bloom_range)], sender_id)

    def _review_filter(self, bloom_filter: bytes, sender_id: str) -> None:
        outgoing = self._outgoing
        ids = list(outgoing.unacknowledged)
        # A filter of another size has parameters that we do not know: it says nothing.
        held = [ids[position] for position in self._bloom.filter.review(bloom_filter, ids) or ()]
        enough = [message_id for message_id in held if outgoing.possibly_acknowledge(message_id, sender_id)]
        if enough:
            # Participants hold much the same, so an accident in one filter is one in all of them.
            for position in self._bloom.filter.conclusive(enough, self._log):
                outgoing.acknowledge_possible(enough[position])

    def _newness_ms(self, now: Now) -> int | None:
        """How long ago this participant's own first receipt was; None once nobody sends again what is older."""
        first_ms = self._participants.first_epoch_ms
        if first_ms is None:
            first_ms = self._participants.first_epoch_ms = now.epoch_ms
        since_first_ms = max(0, now.epoch_ms - first_ms)
        return since_first_ms if since_first_ms <= self._new_ms else None

    def infer(self, send: IncomingSend, content_count: int, inferred: Sequence[str], now: Now) -> None:
        """The contents of a reconstructed send that never came count as received all the same."""
        ids: Iterable[tuple[int, str]] = enumerate(inferred)
        if self._by_send and send.key == send.send_id:
            ids = ((ordinal, content_id(send.key, ordinal)) for ordinal in range(content_count))
        for ordinal, message_id in ids:
            if message_id not in self._entries:
                entry = self._log.add(message_id, send.sender_id, 0, None, ordinal)
                self._insert_bloom(message_id)
                self._incoming.infer(send, entry)
                self._acknowledgements.received(entry, now)

    def _on_duplicate(
        self, known: LogEntry, sender_id: str, content: bytes, data: bytes, now: Now, from_store: bool
    ) -> None:
        # Another participant answered a request first. What a store answers nobody else heard.
        answer = not from_store and self._repair.heard_again(known.message_id, now.monotonic_ms)
        if self._machine.rivals.take(known, sender_id, content, data):
            return
        # Its sender heard no acknowledgement of it, unless the network or a store merely repeats itself, or somebody
        # was answered who lacks it: a large group that acknowledged every repair again would talk of little else.
        said_lately = known.spoken_ms and now.monotonic_ms - known.spoken_ms < self._said_lately_ms
        quiet = from_store or answer or said_lately or self._machine.given_up.withholds(known)
        if not quiet and known.sender_id != self._sender_id and known.message_id not in self._acknowledgements:
            for entry in self._siblings(known):
                self._acknowledgements.received(entry, now)
        self._drop("duplicate")

    def _siblings(self, known: LogEntry) -> list[LogEntry]:
        """All that is held of the send: the message that acknowledged `known` and got lost named them too."""
        if known.send is not None:
            return known.send.contents
        place = self._incoming.place_of(known.message_id)
        if place is None:
            return [known]
        held = {known.message_id: known}
        for ordinal in range(CONTENTS_PER_SEND_MAX):
            entry = self._entries.get(content_id(place[0], ordinal))
            if entry is None:
                break
            held[entry.message_id] = entry
        return list(held.values())

    def _on_ephemeral(self, message_id: str, sender_id: str, content: bytes | None) -> None:
        if not content:
            return self._drop("undecodable")
        if message_id in self._recent_ephemerals:
            return self._drop("duplicate")
        self.remember_ephemeral(message_id)
        self._emit(EphemeralReceived(message_id, sender_id, content))
        return None

    def remember_ephemeral(self, message_id: str) -> None:
        """An ephemeral message was heard or sent: its echo is not news. Not kept over a restart."""
        self._recent_ephemerals[message_id] = None
        self._ephemeral_order.append(message_id)
        if len(self._ephemeral_order) > self._recent_max:
            self._recent_ephemerals.pop(self._ephemeral_order.popleft(), None)

    def _on_own(self, message_id: str, lamport: int | None, is_content: bool, from_store: bool) -> None:
        """SDS: own messages are ignored, except that one we never sent shows a second user of our id.

        What a store has, or others repeat, of the time before this life began is our past: its state was not kept.
        """
        if (
            message_id in self._outgoing.by_id
            or message_id in self._entries
            or message_id in self._recent_ephemerals
            or self._machine.transmission.is_own_sync(message_id)
        ):
            return self._drop("own")
        if is_content:
            self._incoming.gaps.on_own(message_id)
        if from_store or (lamport is not None and lamport < self._begun):
            return self._drop("own")
        self._emit(SenderIdConflict(message_id))
        return None

    def _drop(self, reason: str) -> None:
        self._emit(MessageDropped(reason))


def _ends(history_ids: tuple[str, ...]) -> tuple[str, ...]:
    return history_ids[:HEADS_MAX] + history_ids[-HEADS_MAX:]
