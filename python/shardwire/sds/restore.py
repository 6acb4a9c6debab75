"""Builds a machine's parts from its stored records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardwire._native import HistoryEntry, IncomingSend, LogEntry, Now, OutgoingContent, OutgoingSend
from shardwire.sds.records import Records, decode_log, read_content, read_fields, read_lost, read_send

if TYPE_CHECKING:
    from shardwire.sds.message_channel import MessageChannel

Kinds = dict[str, list[tuple[str, bytes]]]


def restore(machine: MessageChannel, records: Records, kinds: Kinds, now: Now) -> None:
    """Fills `machine`, which is new, from records grouped by kind."""
    waits = _restore_log(machine, records, kinds)
    said_order = _restore_state(machine, records, kinds, now)
    _restore_incoming(machine, records, kinds, waits, now)
    machine.acknowledgements.restore(machine.log.entries.values(), said_order, now)
    _restore_outgoing(machine, records, kinds, now)
    for name, _ in sorted(kinds.get("sds.participant", ())):
        machine.participants.hear(name, now.monotonic_ms)
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


def _restore_state(machine: MessageChannel, records: Records, kinds: Kinds, now: Now) -> int:
    """Returns up to which number all was acknowledged."""
    base = said = 0
    for _, data in kinds.get("sds.state", ()):
        state = records.attempt(records.read_state, data)
        if state is not None:
            lamport, base, syncs, sends, first, said, nonce, heads = state
            transmission = machine.transmission
            machine.lamport.timestamp = max(machine.lamport.timestamp if lamport == 0 else 0, lamport)
            transmission.sync_count = syncs
            transmission.send_count = sends
            transmission.nonce = nonce
            machine.participants.first_epoch_ms = first or None
            machine.incoming.gaps.named.returned = first > 0
            machine.heads.restore(machine.log.entries[name] for name in heads if name in machine.log.entries)
    machine.bloom.rebuild(base, now.monotonic_ms)
    return said


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
    for key, data in kinds.get("sds.lost", ()):
        incoming.gaps.remember_lost(key, read_lost(data))
    for name, _ in sorted(kinds.get("sds.given_up", ())):
        machine.given_up.take_back(name)
    for name, _ in sorted(kinds.get("sds.rival", ())):
        machine.rivals.take_back(name)
    incoming.changed.clear()
    incoming.gaps.lost_changed.clear()
    incoming.gaps.missing.changed.clear()
    # Last, since a send that need not wait goes at once, and its record with it.
    incoming.resume(causes, now.monotonic_ms)


def _restore_outgoing(machine: MessageChannel, records: Records, kinds: Kinds, now: Now) -> None:
    sends: dict[str, OutgoingSend] = {}
    counts: dict[str, int] = {}
    bodies, wires = dict(kinds.get("sds.content", ())), dict(kinds.get("sds.message", ()))
    for send_id, data in kinds.get("sds.send", ()):
        read = records.attempt(read_send, send_id, data)
        if read is not None:
            sends[send_id], counts[send_id], content = read
            if content is not None:
                _restore_content(content, bodies, wires)
    for message_id, data in kinds.get("sds.outgoing", ()):
        content = records.attempt(read_content, message_id, data, sends)
        if content is not None and len(content.send.contents) < counts[content.send.send_id]:
            _restore_content(content, bodies, wires)
    for send in sorted(sends.values(), key=lambda send: send.number):
        send.contents.sort(key=lambda content: content.ordinal)
        whole = [content.ordinal for content in send.contents] == list(range(counts[send.send_id]))
        if not whole or not all(map(_kept, send.contents)):
            records.unreadable += 1
            send.contents.clear()
            continue
        machine.outgoing.take_back(send, now.monotonic_ms)
        for content in send.contents:
            if content.wire is not None:
                # It keeps its bytes itself until its send is finished.
                machine.repair.originals.forget(content.message_id)
    machine.repair.originals.changed.clear()


def _restore_content(content: OutgoingContent, bodies: dict[str, bytes], wires: dict[str, bytes]) -> None:
    """Gives a content its bytes, and puts it into its send."""
    send = content.send
    content.content = None
    if not content.lamport:
        content.content = bodies.get(content.message_id)
    else:
        send.dispatched += 1
        if not send.finished:
            content.wire = wires.get(content.message_id)
    content.size_bytes = len(content.content or content.wire or b"")
    send.contents.append(content)


def _kept(content: OutgoingContent) -> bool:
    """Whether what a content still needs was stored."""
    if content.send.finished and not content.queued:
        return True
    return content.wire is not None or content.content is not None


def _restore_repair(machine: MessageChannel, records: Records, kinds: Kinds, now: Now) -> None:
    for _, data in sorted(kinds.get("sds.answer", ())):
        fields = records.attempt(read_fields, data, 3)
        if fields is not None:
            machine.repair.on_request(HistoryEntry(*fields), now.monotonic_ms)
    machine.repair.answers.changed.clear()
