"""Hands encoded SDS messages to the node: encrypts, sends, and follows each until the node says what became of it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from shardwire.channel.hooks import await_cipher, heed_cancellation, is_ours
from shardwire.channel.message_sizes import MessageSizes, too_large_text
from shardwire.encryption.protocol import Encryption
from shardwire.errors import ConfigError, NodeError, PayloadTooLargeError
from shardwire.node.protocol import MessageEnvelope, MessageSendError, Node
from shardwire.node.wake import Wake
from shardwire.sds.outputs import Transmit, TransmitKind

logger = logging.getLogger(__name__)

# Outcomes that may arrive before the node's `send` has returned the id they are for. On a shared node most of those
# unknown to us belong to other channels.
EARLY_OUTCOMES_MAX = 1_000
# Messages handed to the node whose propagation is awaited: enough to keep a node busy over a network round trip, few
# enough that what leaves carries a fresh history.
DISPATCHES_MAX = 64
# Messages in the network of which a node may yet say that a store has them.
UNSTORED_MAX = 10_000
# Kinds that carry a content of a send.
_CONTENTS = (TransmitKind.FIRST, TransmitKind.FURTHER, TransmitKind.RETRANSMISSION)
# A node that never says what became of a message does not hold its place for ever (logos-delivery gives up likewise),
# and one whose `send` never returns does not hold up the others.
PROPAGATION_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Propagated:
    """A transmit reached the network under this message hash."""

    transmit: Transmit
    message_hash: bytes


@dataclass(frozen=True, slots=True)
class DispatchFailed:
    """A transmit did not leave, as far as anybody knows.

    Attributes:
        transmit: The transmit.
        error: What happened.
        permanent: Whether trying again cannot help (004, Irrecoverable errors), as the node or the cipher says.
        unanswered: Whether the node took it and did not say what became of it, so that it may have left after all.
        retry_after_ms: How long the node refuses everything; None where it does not say so.
    """

    transmit: Transmit
    error: str
    permanent: bool = False
    unanswered: bool = False
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """A transmit was not handed to the node, since the epoch that it counts in was over."""

    transmit: Transmit


@dataclass(frozen=True, slots=True)
class Stored:
    """A store has a content of ours that reached the network.

    Attributes:
        message_id: The content.
        send_id: Its send.
        ordinal: Its place in that.
    """

    message_id: str
    send_id: str
    ordinal: int


DispatchOutcome = Propagated | DispatchFailed | Late


def is_duration_ms(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class Dispatcher:
    """One task that sends in order.

    Args:
        node: Where messages go.
        content_topic: Topic of every envelope.
        meta: Marker of every envelope; empty for none.
        encryption: Applied to everything that leaves; None for none.
        sizes: How large messages may be.
        may_try: Whether the node is worth a try; while it is not, what is queued stays where it is.
        may_leave: Asked at the last moment; a transmit that may not is reported as `Late`.
        report: Told the outcome of every transmit, once.
        report_stored: Told of every content that a store has.
    """

    def __init__(
        self,
        node: Node,
        content_topic: str,
        meta: bytes,
        encryption: Encryption | None,
        sizes: MessageSizes,
        may_try: Callable[[], bool],
        may_leave: Callable[[Transmit], bool],
        report: Callable[[DispatchOutcome], None],
        report_stored: Callable[[Stored], None],
    ) -> None:
        self._node = node
        self._content_topic = content_topic
        self._meta = meta
        self._encryption = encryption
        self._sizes = sizes
        self._may_try = may_try
        self._may_leave = may_leave
        self._report = report
        self._report_stored = report_stored
        self._queue: deque[Transmit] = deque()
        self._wake = Wake()
        self._sending = False
        # What the node has yet to answer for, oldest first.
        self._by_request: OrderedDict[str, Transmit] = OrderedDict()
        # Contents that reached the network, until a store has them, oldest first.
        self._unstored: OrderedDict[str, Stored] = OrderedDict()
        self._early: OrderedDict[str, list[Callable[[], None]]] = OrderedDict()

    def submit(self, transmit: Transmit) -> None:
        """Queues a transmit; everything it speaks of must be durable."""
        self._queue.append(transmit)
        self._wake.set()

    def resume(self) -> None:
        """Looks again whether what is queued may be tried."""
        if self._queue:
            self._wake.set()

    def clear(self) -> None:
        """Forgets what was not sent and what was not answered for; nobody waits for it any longer."""
        self._queue.clear()
        self._by_request.clear()
        self._unstored.clear()

    async def run(self) -> None:
        """Sends what is queued, until cancelled."""
        while True:
            while self._queue and self._may_try():
                await self._dispatch(self._queue.popleft())
                heed_cancellation()
            self._wake.clear()
            await self._wake.wait()

    def on_propagated(self, request_id: str, message_hash: bytes) -> None:
        """The node says that a request reached the network."""
        transmit = self._by_request.pop(request_id, None)
        if transmit is not None:
            self._await_store(request_id, transmit)
            self._report(Propagated(transmit, message_hash))
        elif self._sending:
            self._remember_early(request_id, lambda: self.on_propagated(request_id, message_hash))

    def on_stored(self, request_id: str, message_hash: bytes) -> None:
        """The node says that a store has what was sent under a request, so that it reached the network too."""
        if request_id in self._by_request:
            self.on_propagated(request_id, message_hash)
        stored = self._unstored.pop(request_id, None)
        if stored is not None:
            self._report_stored(stored)
        elif self._sending:
            self._remember_early(request_id, lambda: self.on_stored(request_id, message_hash))

    def _await_store(self, request_id: str, transmit: Transmit) -> None:
        if transmit.kind in _CONTENTS and transmit.send_id is not None and transmit.ordinal is not None:
            self._unstored[request_id] = Stored(transmit.message_id, transmit.send_id, transmit.ordinal)
            if len(self._unstored) > UNSTORED_MAX:
                self._unstored.popitem(last=False)

    def on_send_error(self, error: MessageSendError) -> None:
        """The node says that it does not try a request again."""
        transmit = self._by_request.pop(error.request_id, None)
        if transmit is not None:
            self._report(DispatchFailed(transmit, error.error, error.permanent, retry_after_ms=error.retry_after_ms))
        elif self._sending:
            self._remember_early(error.request_id, lambda: self.on_send_error(error))

    def _remember_early(self, request_id: str, handle: Callable[[], None]) -> None:
        self._early.setdefault(request_id, []).append(handle)
        if len(self._early) > EARLY_OUTCOMES_MAX:
            self._early.popitem(last=False)

    async def _dispatch(self, transmit: Transmit) -> None:
        try:
            payload = await self._encrypt(transmit.payload)
        except BaseException as error:
            if is_ours(error):
                raise
            # Nothing leaves in the clear. The error may quote what it could not encrypt: only its type is told.
            logger.error("encryption of message %s failed: %s", transmit.message_id, type(error).__name__)
            self._report(DispatchFailed(transmit, f"encryption failed: {type(error).__name__}", permanent=True))
            return
        payload_bytes_max = self._sizes.payload_bytes_max
        if len(payload) > payload_bytes_max:
            # A cipher may add more than it says, or than it added when it was measured, and the node may carry less
            # than when this was encoded.
            text = too_large_text(len(payload), payload_bytes_max)
            logger.error("message %s cannot leave: %s", transmit.message_id, text)
            self._report(DispatchFailed(transmit, text, permanent=True))
            return
        if not self._may_try():
            # The node failed or went offline while this was encrypted.
            self._queue.appendleft(transmit)
            return
        if not self._may_leave(transmit):
            self._report(Late(transmit))
            return
        ephemeral = transmit.kind is TransmitKind.EPHEMERAL
        envelope = MessageEnvelope(self._content_topic, payload, ephemeral, self._meta)
        self._sending = True
        try:
            async with asyncio.timeout(PROPAGATION_TIMEOUT_MS / 1000) as limit:
                request_id = await self._node.send(envelope)
            self._by_request[request_id] = transmit
        except (PayloadTooLargeError, ConfigError) as error:
            self._report(DispatchFailed(transmit, str(error), permanent=True))
        except NodeError as error:
            self._report(_refusal(transmit, error))
        except BaseException as error:
            if is_ours(error):
                raise
            if limit.expired():
                text = f"the node's send did not return within {PROPAGATION_TIMEOUT_MS} ms"
                logger.error("%s", text)
            else:
                text = f"the node raised {type(error).__name__}"
                logger.exception("%s for a message", text)
            self._report(DispatchFailed(transmit, text, unanswered=True))
        else:
            if len(self._by_request) > DISPATCHES_MAX:
                # No more are awaited at once, and those that are given up are older than those that are awaited.
                self._by_request.popitem(last=False)
            for handle in self._early.pop(request_id, ()):
                handle()
        finally:
            self._sending = False
            self._early.clear()

    async def _encrypt(self, content: bytes) -> bytes:
        if self._encryption is None:
            return content
        ciphertext = self._encryption.encrypt(content)
        if inspect.isawaitable(ciphertext):
            ciphertext = await await_cipher(ciphertext)
        # Checked by `memoryview`: `bytes` would make some of a list or a number.
        return ciphertext if type(ciphertext) is bytes else bytes(memoryview(ciphertext))


def _refusal(transmit: Transmit, error: NodeError) -> DispatchFailed:
    """What a node says by raising; attributes of a wrong type say nothing."""
    hold_ms = error.retry_after_ms if is_duration_ms(error.retry_after_ms) else None
    return DispatchFailed(transmit, str(error), error.permanent is True, retry_after_ms=hold_ms)
