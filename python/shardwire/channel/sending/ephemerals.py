"""Ephemeral messages of ours (004, Ephemeral messages): tried once, never stored, never acknowledged."""

from __future__ import annotations

from dataclasses import dataclass

from shardwire.events import (
    ChannelEvent,
    ChunkErrorEvent,
    ChunkInfo,
    ChunkSentEvent,
    EphemeralDroppedEvent,
    EphemeralDropReason,
)

_ONE_CHUNK = ChunkInfo((0,), 1)


@dataclass(frozen=True, slots=True)
class _Ephemeral:
    request_id: str
    message_id: str


class Ephemerals:
    """Ephemeral messages on their way out, and the one event that each ends with."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Ephemeral] = {}
        self._events: list[ChannelEvent] = []

    def __len__(self) -> int:
        """How many still wait for their event."""
        return len(self._waiting)

    def register(self, send_id: str, request_id: str, message_id: str) -> None:
        self._waiting[send_id] = _Ephemeral(request_id, message_id)

    def refuse(self, request_id: str, message_id: str, error: str) -> None:
        """One that can never be sent (004, Irrecoverable errors) ends before it was registered."""
        self._events.append(ChunkErrorEvent(message_id, request_id, _ONE_CHUNK, error))

    def waiting(self) -> tuple[str, ...]:
        return tuple(self._waiting)

    def on_propagated(self, send_id: str) -> None:
        entry = self._waiting.pop(send_id, None)
        if entry is not None:
            self._events.append(ChunkSentEvent(entry.message_id, entry.request_id, _ONE_CHUNK))

    def on_failed(self, send_id: str, error: str) -> None:
        entry = self._waiting.pop(send_id, None)
        if entry is not None:
            self._events.append(ChunkErrorEvent(entry.message_id, entry.request_id, _ONE_CHUNK, error))

    def on_dropped(self, send_id: str, reason: EphemeralDropReason) -> None:
        entry = self._waiting.pop(send_id, None)
        if entry is not None:
            self._events.append(EphemeralDroppedEvent(entry.message_id, entry.request_id, reason))

    def poll_events(self) -> list[ChannelEvent]:
        events, self._events = self._events, []
        return events
