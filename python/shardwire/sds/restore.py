"""Builds a machine's parts from its stored records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardwire._native import HistoryEntry
from shardwire.sds.incoming_send import IncomingSend
from shardwire.sds.local_log import LogEntry
from shardwire.sds.now import Now
from shardwire.sds.outgoing_send import OutgoingContent, OutgoingSend
from shardwire.sds.records import Records, decode_log, read_fields

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel

Kinds = dict[str, list[tuple[str, bytes]]]


def restore(machine: MessageChannel, records: Records, kinds: Kinds, now: Now) -> None:
    """Fills `machine`, which is new, from records grouped by kind."""
    waits = _restore_log(machine, records, kinds)
    _restore_state(machine, records, kinds, now)
    _restore_incoming(machine, records, kinds, waits, now)
    _restore_unsaid(machine, records, kinds, now)
    _restore_outgoing(machine, records, kinds, now)
    for name, data in sorted(kinds.get("sds.participant", ())):
        fields = records.attempt(read_fields, data, 1)
        if fields is not None:
            machine.participants.hear(name, now.monotonic_ms, fields[0])
    machine.participants.changed.clear()
    _restore_repair(machine, records, kinds, now)


def _restore_log(machine: MessageChannel, records: Records, kinds: Kinds) -> dict[str, list[LogEntry]]:
    entries: list[LogEntry] = []
    waits: dict[str, list[LogEntry]] = {}
    for message_id, data in kinds.get("sds.log", ()):
        read = records.attempt(decode_log, message_id, data)
        if read is not None:
            entry, key = read
            entries.append(entry)
            if key:
                waits.setdefault(key, []).append(entry)
    entries.sort(key=lambda entry: entry.sequence)
    machine.log.take_back(entries)
    originals = dict(kinds.get("sds.message", ()))
    for entry in entries:
        if entry.message_id in originals:
            machine.repair.originals.keep(entry.message_id, originals[entry.message_id])
    machine.repair.originals.changed.clear()
    return waits


def _restore_state(machine: MessageChannel, records: Records, kinds: Kinds, now: Now) -> None:
    base = 0
    for _, data in kinds.get("sds.state", ()):
        state = records.attempt(records.read_state, data)
        if state is not None:
            lamport, base, syncs, sends, first, nonce, heads = state
            transmission = machine.transmission
            machine.lamport.timestamp = max(machine.lamport.timestamp if lamport == 0 else 0, lamport)
            transmission.sync_count = syncs
            transmission.send_count = sends
            transmission.nonce = nonce
            machine.participants.first_epoch_ms = first or None
            machine.heads.restore(machine.log.entries[name] for name in heads if name in machine.log.entries)
    machine.bloom.rebuild(base, now.monotonic_ms)


def _restore_incoming(
    machine: MessageChannel, records: Records, kinds: Kinds, waits: dict[str, list[LogEntry]], now: Now
) -> None:
    incoming = machine.incoming
    causes: dict[str, Any] = {}
    stored = dict(kinds.get("sds.incoming", ()))
    for key in dict.fromkeys((*stored, *waits)):
        fields = records.attempt(read_fields, stored[key], 7) if key in stored else None
        contents = sorted(waits.get(key, ()), key=lambda entry: entry.sequence)
        send = IncomingSend(key, key, contents[0].sender_id if contents else "", now.monotonic_ms)
        if fields is not None:
            send.send_id, send.sender_id, send.content_count, send.contents_needed, flags, causes[key], names = fields
            send.history = names
            send.reconstructed, send.lost = bool(flags & 1), bool(flags & 2)
            send.from_before, send.siblings_reported = bool(flags & 4), bool(flags & 8)
        if send.reconstructed and not contents:
            continue
        send.contents = contents
        for entry in contents:
            entry.send = send
        incoming.take_back(send)
    for message_id, data in sorted(kinds.get("sds.missing", ())):
        fields = records.attempt(read_fields, data, 5)
        if fields is not None:
            named = incoming.sends.get(fields[3])
            if named is None:
                named = IncomingSend(fields[3], fields[3], "", now.monotonic_ms)
                incoming.take_back(named)
            missing = HistoryEntry(message_id, fields[1], fields[2])
            incoming.gaps.take_back_missing(missing, named, fields[4], now.monotonic_ms)
    for key, _ in kinds.get("sds.lost", ()):
        incoming.gaps.remember_lost(key)
    incoming.changed.clear()
    incoming.gaps.lost_changed.clear()
    incoming.gaps.missing.changed.clear()
    # Last, since a send that need not wait goes at once, and its record with it.
    incoming.resume(causes, now.monotonic_ms)


def _restore_unsaid(machine: MessageChannel, records: Records, kinds: Kinds, now: Now) -> None:
    unsaid: list[tuple[int, str]] = []
    for message_id, data in kinds.get("sds.unsaid", ()):
        order = records.attempt(records.read_unsaid, data)
        if order is not None and message_id in machine.log.entries:
            unsaid.append((order, message_id))
    for _, message_id in sorted(unsaid):
        machine.acknowledgements.restore(machine.log.entries[message_id], now)


def _restore_outgoing(machine: MessageChannel, records: Records, kinds: Kinds, now: Now) -> None:
    sends: dict[str, tuple[OutgoingSend, int]] = {}
    for send_id, data in kinds.get("sds.send", ()):
        fields = records.attempt(read_fields, data, 11)
        if fields is not None:
            sends[send_id] = (_send_of(send_id, fields), fields[1])
    bodies = dict(kinds.get("sds.content", ()))
    for message_id, data in kinds.get("sds.outgoing", ()):
        fields = records.attempt(read_fields, data, 9)
        if fields is not None and fields[0] in sends:
            send = sends[fields[0]][0]
            send.contents.append(_content_of(send, message_id, fields, bodies.get(message_id)))
    for send, content_count in sorted(sends.values(), key=lambda pair: pair[0].number):
        send.contents.sort(key=lambda content: content.ordinal)
        whole = [content.ordinal for content in send.contents] == list(range(content_count))
        kept = all(content.content is not None for content in send.contents if content.queued or not send.finished)
        if not whole or not kept:
            records.unreadable += 1
            continue
        for content in send.contents:
            if content.lamport and content.content is not None:
                content.wire = machine.transmission.encode(
                    content, send.bloom_filter if content.carries_bloom else None
                )
                content.content = None
        machine.outgoing.take_back(send, now.monotonic_ms)


def _send_of(send_id: str, fields: list[Any]) -> OutgoingSend:
    send = OutgoingSend(send_id, fields[0], fields[2])
    send.dispatched, send.finished, send.given_up = fields[3], bool(fields[4]), bool(fields[5])
    if fields[6] is not None:
        send.history = tuple(HistoryEntry(*entry) for entry in fields[6])
    send.bloom_filter = fields[7]
    send.header_left = fields[8]
    send.acknowledged = dict(fields[9])
    send.complete = dict.fromkeys(fields[10])
    return send


def _content_of(send: OutgoingSend, message_id: str, fields: list[Any], body: bytes | None) -> OutgoingContent:
    content = OutgoingContent(send, fields[1], message_id, b"")
    content.content = body
    content.lamport, content.attempts = fields[2], fields[3]
    content.queued, content.carries_bloom = bool(fields[4]), bool(fields[5])
    content.retrieval_hint = fields[6]
    content.requests = [HistoryEntry(*entry) for entry in fields[7]]
    content.possible = set(fields[8]) or None
    return content


def _restore_repair(machine: MessageChannel, records: Records, kinds: Kinds, now: Now) -> None:
    for _, data in sorted(kinds.get("sds.answer", ())):
        fields = records.attempt(read_fields, data, 3)
        if fields is not None:
            machine.repair.on_request(HistoryEntry(*fields), now.monotonic_ms)
    machine.repair.answers.changed.clear()
