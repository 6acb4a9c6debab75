"""What a channel tells its application: by callbacks, and by iterators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, overload

from shardwire.channel.observing.event_iterator import E, EventIterator
from shardwire.channel.observing.subscriptions import Callback, Unsubscribe
from shardwire.event_names import EventName
from shardwire.events import (
    CallbackErrorEvent,
    ChannelEvent,
    ChunkAcknowledgedEvent,
    ChunkErrorEvent,
    ChunkPossiblyAcknowledgedEvent,
    ChunkSendingEvent,
    ChunkSentEvent,
    EphemeralDroppedEvent,
    FileFailedEvent,
    FileProgressEvent,
    FileReceivedEvent,
    IrretrievableMessageEvent,
    MessageDeliveredEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    NodeFailingEvent,
    RateLimitEvent,
    SenderIdConflictEvent,
    WithinReachEvent,
)

if TYPE_CHECKING:
    from shardwire.channel.session import Session


class Listening:
    """The part of `ReliableChannel` that tells of events."""

    _session: Session

    @overload
    def on(self, event: type[E], callback: Callable[[E], object]) -> Unsubscribe: ...

    @overload
    def on(
        self,
        event: Literal["reliable:message:received", "message-received"],
        callback: Callable[[MessageReceivedEvent], object],
    ) -> Unsubscribe: ...

    @overload
    def on(
        self, event: Literal["reliable:message:sent"], callback: Callable[[MessageSentEvent], object]
    ) -> Unsubscribe: ...

    @overload
    def on(
        self, event: Literal["reliable:message:delivered"], callback: Callable[[MessageDeliveredEvent], object]
    ) -> Unsubscribe: ...

    @overload
    def on(
        self,
        event: Literal["reliable:message:send-error", "reliable:message:delivery-error"],
        callback: Callable[[MessageSendErrorEvent], object],
    ) -> Unsubscribe: ...

    @overload
    def on(self, event: Literal["sending-message"], callback: Callable[[ChunkSendingEvent], object]) -> Unsubscribe: ...

    @overload
    def on(self, event: Literal["message-sent"], callback: Callable[[ChunkSentEvent], object]) -> Unsubscribe: ...

    @overload
    def on(
        self,
        event: Literal["message-possibly-acknowledged"],
        callback: Callable[[ChunkPossiblyAcknowledgedEvent], object],
    ) -> Unsubscribe: ...

    @overload
    def on(
        self, event: Literal["message-acknowledged"], callback: Callable[[ChunkAcknowledgedEvent], object]
    ) -> Unsubscribe: ...

    @overload
    def on(
        self, event: Literal["sending-message-irrecoverable-error"], callback: Callable[[ChunkErrorEvent], object]
    ) -> Unsubscribe: ...

    @overload
    def on(
        self, event: Literal["irretrievable-message"], callback: Callable[[IrretrievableMessageEvent], object]
    ) -> Unsubscribe: ...

    @overload
    def on(
        self, event: Literal["ephemeral-message-dropped"], callback: Callable[[EphemeralDroppedEvent], object]
    ) -> Unsubscribe: ...

    @overload
    def on(self, event: Literal["rate-limit"], callback: Callable[[RateLimitEvent], object]) -> Unsubscribe: ...

    @overload
    def on(self, event: Literal["node-failing"], callback: Callable[[NodeFailingEvent], object]) -> Unsubscribe: ...

    @overload
    def on(
        self, event: Literal["sender-id-conflict"], callback: Callable[[SenderIdConflictEvent], object]
    ) -> Unsubscribe: ...

    @overload
    def on(self, event: Literal["within-reach"], callback: Callable[[WithinReachEvent], object]) -> Unsubscribe: ...

    @overload
    def on(self, event: Literal["file:progress"], callback: Callable[[FileProgressEvent], object]) -> Unsubscribe: ...

    @overload
    def on(self, event: Literal["file:received"], callback: Callable[[FileReceivedEvent], object]) -> Unsubscribe: ...

    @overload
    def on(self, event: Literal["file:failed"], callback: Callable[[FileFailedEvent], object]) -> Unsubscribe: ...

    @overload
    def on(self, event: Literal["callback-error"], callback: Callable[[CallbackErrorEvent], object]) -> Unsubscribe: ...

    @overload
    def on(self, event: EventName, callback: Callable[[ChannelEvent], object]) -> Unsubscribe: ...

    def on(self, event: str | type[ChannelEvent], callback: Callback) -> Unsubscribe:
        """Calls `callback`, plain or `async`, with every event of a class or of one of its names.

        Received messages are handed over one at a time, each when every callback has returned and every iterator has
        asked for the next; they wait while nobody listens. A callback that raises is reported by
        `CallbackErrorEvent` and stops nothing.

        Returns:
            A function that unsubscribes.

        Raises:
            ConfigError: There is no such event, the callback cannot be called with one argument, or the
                caller runs in another thread.
            ChannelClosedError: The channel is closed: nothing would be told.
        """
        if self._session.is_closed:
            raise self._session.closed_error()
        unsubscribe = self._session.subscriptions.on(event, callback)
        self._session.on_listeners_changed()
        return unsubscribe

    def on_message_received(self, callback: Callable[[MessageReceivedEvent], object]) -> Unsubscribe:
        """Calls `callback` with every received message: `on(MessageReceivedEvent, ...)` (Logos 003)."""
        return self.on(MessageReceivedEvent, callback)

    def on_message_sent(self, callback: Callable[[MessageSentEvent], object]) -> Unsubscribe:
        """Calls `callback` when all segments of a message were sent: `on(MessageSentEvent, ...)` (Logos 003)."""
        return self.on(MessageSentEvent, callback)

    def on_message_delivered(self, callback: Callable[[MessageDeliveredEvent], object]) -> Unsubscribe:
        """Calls `callback` when a message is delivered: `on(MessageDeliveredEvent, ...)` (Logos 003)."""
        return self.on(MessageDeliveredEvent, callback)

    def on_message_send_error(self, callback: Callable[[MessageSendErrorEvent], object]) -> Unsubscribe:
        """Calls `callback` when a message fails: `on(MessageSendErrorEvent, ...)` (Logos 003)."""
        return self.on(MessageSendErrorEvent, callback)

    def events(self) -> EventIterator[ChannelEvent]:
        """Every event from now on, as an async iterator that ends with the channel; unread it holds up messages.

        That of a closed channel is at its end.
        """
        return self._iterate(ChannelEvent)

    def messages(self) -> EventIterator[MessageReceivedEvent]:
        """Received messages, those first that arrived before anybody listened; ends when the channel closes.

        One is done when the next is asked for: when the body of `async for event in channel.messages(): ...` has run.
        """
        return self._iterate(MessageReceivedEvent)

    def _iterate(self, kind: type[E]) -> EventIterator[E]:
        iterator = self._session.subscriptions.iterate(kind)
        self._session.on_listeners_changed()
        return iterator
