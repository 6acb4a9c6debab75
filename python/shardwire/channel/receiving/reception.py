"""What a node brings: sorted by kind, filtered by topic and marker, decrypted, and handed on."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, field

from shardwire.channel.cipher_calls import as_bytes, as_sender, await_cipher, told_of_cipher
from shardwire.channel.hooks import ends_process, heed_cancellation, is_ours
from shardwire.channel.receiving.node_events import fault_of, is_well_formed, names_request
from shardwire.channel.receiving.peer_faults import UNREADABLE_TOLD
from shardwire.channel.sending.requests import Requests
from shardwire.encryption.protocol import Encryption
from shardwire.errors import ConfigError, DecryptionError
from shardwire.node.protocol import (
    ConnectionState,
    ConnectionStatus,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSendError,
    MessageSent,
    MessagesMissed,
    NodeEvent,
)
from shardwire.peer_log import PeerLog
from shardwire.quoting import one_line

logger = logging.getLogger(__name__)

# Transport hashes of what was sent or taken in, so that an echo, a repetition of the network or a store that answers
# with what is known costs no decryption and is not mistaken for a retransmission.
KNOWN_HASHES_MAX = 50_000
# Received messages that are read before others have the loop, where a node has more at hand. What became of messages of
# ours is as much as we sent, and the next ones name it: it does not wait.
RECEIVED_AT_ONCE_MAX = 64


@dataclass(slots=True)
class Arrival:
    """A decrypted message; not frozen, since one is made for every message and that would take four times as long.

    Attributes:
        data: The SDS message.
        message_hash: Its transport hash.
        timestamp_ns: Its transport time.
        authenticated_sender: Who encrypted it, where the cipher proves that.
        from_store: Whether a store answered with it: that says nothing about what its sender heard.
    """

    data: bytes = field(repr=False)
    message_hash: bytes
    timestamp_ns: int
    authenticated_sender: str | None
    from_store: bool


# What it returns, if anything, is awaited before the next message is read.
Take = Callable[[Arrival], Awaitable[None] | None]


class EventsError(Exception):
    """The iterator of a node raised, after this many events."""

    def __init__(self, events_read: int) -> None:
        super().__init__(events_read)
        self.events_read = events_read


class Reception:
    """Reads the events of a node for one channel.

    Args:
        content_topic: Of the channel; messages of other topics are not its own.
        meta: Marker that received messages must bear; empty for none.
        encryption: How they are decrypted; None for not at all.
        requests: Told what became of what was sent.
        take: Given every decrypted message.
        on_connection: Told when the connection changes.
        on_missed: Told the transport time from which on messages may have passed the node by.
        peer_log: Counts what was dropped, by reason.
    """

    def __init__(
        self,
        content_topic: str,
        meta: bytes,
        encryption: Encryption | None,
        requests: Requests,
        take: Take,
        on_connection: Callable[[ConnectionState], None],
        on_missed: Callable[[int], None],
        peer_log: PeerLog,
    ) -> None:
        self._content_topic = content_topic
        self._meta = meta
        self._encryption = encryption
        self._requests = requests
        self._take = take
        self._on_connection = on_connection
        self._on_missed = on_missed
        self._sender_of = getattr(encryption, "sender_of", None)
        self._peer_log = peer_log
        self._known_hashes: OrderedDict[bytes, None] = OrderedDict()
        self._has_decrypted = False
        self._has_admitted = False

    async def run(self, events: AsyncIterator[NodeEvent]) -> int:
        """Reads until the node stops; drops events whose fields are not what the protocol says, and names the field.

        Returns:
            How many events there were.

        Raises:
            EventsError: The iterator raised.
        """
        read = received = 0
        iterator: AsyncIterator[NodeEvent] | None = None
        while True:
            try:
                if iterator is None:
                    iterator = aiter(events)
                event = await anext(iterator)
            except StopAsyncIteration:
                break
            except BaseException as error:
                if is_ours(error):
                    raise
                raise EventsError(read) from error
            read += 1
            if isinstance(event, MessageReceived):
                received += 1
                if received % RECEIVED_AT_ONCE_MAX == 0:
                    await asyncio.sleep(0)
            match event:
                case MessageReceived() if is_well_formed(event):
                    envelope, message_hash = event.envelope, event.message_hash
                    if self._encryption is not None:
                        if message_hash not in self._known_hashes:
                            await self._take_in(event)
                    elif self._admits(envelope, message_hash):
                        # As `_take_in` does; spares a coroutine.
                        payload = envelope.payload
                        waiting = self.hand_on(payload, payload, message_hash, event.timestamp_ns)
                        if waiting is not None:
                            await waiting
                case MessagePropagated() if names_request(event):
                    self._requests.on_propagated(event.request_id, event.message_hash)
                case MessageSent() if names_request(event):
                    self._requests.on_stored(event.request_id, event.message_hash)
                case _ if (fault := fault_of(event)) is not None:
                    # As if it had not come: what it was about is fetched, or sent again.
                    self._peer_log.count("node_events_malformed")
                    self._peer_log.tell("the node gave %s; it is dropped", one_line(fault))
                case MessageSendError():
                    self._requests.on_send_error(event)
                case ConnectionStatus():
                    self._on_connection(event.state)
                case MessagesMissed():
                    self._on_missed(event.since_ns)
        self._on_connection(ConnectionState.DISCONNECTED)
        return read

    @property
    def known_hashes(self) -> Collection[bytes]:
        """Transport hashes of what was sent or taken in, as far back as that is remembered."""
        return self._known_hashes

    def forget(self, message_hash: bytes) -> None:
        """A message was not kept after all: it may come again, from a store for example."""
        self._known_hashes.pop(message_hash, None)

    async def _take_in(self, event: MessageReceived) -> None:
        data = await self.open(event.envelope, event.message_hash)
        if data is not None:
            waiting = self.hand_on(data, event.envelope.payload, event.message_hash, event.timestamp_ns)
            if waiting is not None:
                await waiting

    async def open(self, envelope: MessageEnvelope, message_hash: bytes) -> bytes | None:
        """The SDS message of an envelope, known from here on; None where it was known, or is not ours."""
        if not self._admits(envelope, message_hash):
            return None
        payload = envelope.payload
        if self._encryption is None:
            return payload
        try:
            data = await self._decrypt(self._encryption, payload)
        except BaseException:
            # The channel stops: nobody took it in.
            self.forget(message_hash)
            raise
        self._has_decrypted |= data is not None
        return data

    def _admits(self, envelope: MessageEnvelope, message_hash: bytes) -> bool:
        """Whether a message is new and meant for this channel; it is known from here on."""
        if envelope.content_topic != self._content_topic or message_hash in self._known_hashes:
            return False
        if self._meta and envelope.meta != self._meta:
            self._peer_log.count("dropped_without_marker")
            if not self._has_admitted and self._peer_log.counts["dropped_without_marker"] == UNREADABLE_TOLD:
                self._peer_log.tell(
                    "none of the first %d messages has the envelope_meta of this channel: do all participants have it?",
                    UNREADABLE_TOLD,
                )
            return False
        self._has_admitted = True
        self.remember(message_hash)
        return True

    def hand_on(
        self, data: bytes, payload: bytes, message_hash: bytes, timestamp_ns: int, *, from_store: bool = False
    ) -> Awaitable[None] | None:
        """Gives a decrypted message to the channel, with the payload that it came in."""
        sender = None if self._sender_of is None else self._authenticated_sender(self._sender_of, payload)
        waiting = self._take(Arrival(data, message_hash, timestamp_ns, sender, from_store))
        return None if waiting is None else self._until_taken(waiting, message_hash)

    async def _until_taken(self, waiting: Awaitable[None], message_hash: bytes) -> None:
        try:
            await waiting
        except BaseException:
            # The channel stops while there is no room for it.
            self.forget(message_hash)
            raise

    async def _decrypt(self, encryption: Encryption, payload: bytes) -> bytes | None:
        try:
            data = encryption.decrypt(payload)
            # Looked at first: `isawaitable` costs as much as decrypting a short message.
            if type(data) is bytes:
                return data
            if inspect.isawaitable(data):
                data = await await_cipher(data)
                heed_cancellation()
            return as_bytes("decrypt", data)
        except BaseException as error:
            if is_ours(error):
                raise
            # Anybody can publish on a topic: what we cannot read is counted, not logged one by one.
            self._peer_log.count("dropped_undecryptable")
            logger.debug("a message could not be decrypted: %s", type(error).__name__)
            if not self._has_decrypted and self._peer_log.counts["dropped_undecryptable"] == UNREADABLE_TOLD:
                # Of channels that share the topic, or of participants with another key; or the cipher is wrong.
                last = "" if isinstance(error, DecryptionError) else f" The last one: {told_of_cipher(error, __file__)}"
                self._peer_log.tell(
                    "none of the first %d messages could be decrypted: do all participants have this key and cipher?%s",
                    UNREADABLE_TOLD,
                    last,
                )
            return None

    def _authenticated_sender(self, sender_of: Callable[[bytes], object], payload: bytes) -> str | None:
        try:
            return as_sender(sender_of(payload))
        except BaseException as error:
            if ends_process(error):
                raise
            self._peer_log.count("sender_of_failed")
            if type(error) is ConfigError:
                self._peer_log.tell("%s", error)
            else:
                self._peer_log.tell("sender_of of the encryption raised %s", type(error).__name__)
            return None

    def remember(self, message_hash: bytes) -> None:
        """A message of this transport hash is taken in, or ours: of another participant on our node it is neither."""
        self._known_hashes[message_hash] = None
        if len(self._known_hashes) > KNOWN_HASHES_MAX:
            self._known_hashes.popitem(last=False)
