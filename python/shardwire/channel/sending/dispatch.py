"""Hands sealed messages to the node, each in a place of the quota (003, Outgoing message processing, steps 4 and 5)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from shardwire._native import PROPAGATION_TIMEOUT_MS
from shardwire.channel.hooks import CANCEL_AGAIN_S, Begun, awaitable_of, heed_cancellation, is_non_negative_int, is_ours
from shardwire.channel.limits.quota import Place, Quota
from shardwire.channel.sending.outcomes import DispatchFailed, DispatchOutcome, Late
from shardwire.channel.sending.requests import Requests
from shardwire.channel.sending.sealing import Sealed
from shardwire.errors import ConfigError, NodeError, PayloadTooLargeError
from shardwire.node.protocol import MessageEnvelope, Node
from shardwire.node.wake import Wake
from shardwire.sds import Transmit, TransmitKind

logger = logging.getLogger(__name__)


class Dispatcher:
    """One task that sends in order.

    Args:
        node: Where messages go.
        content_topic: Topic of every envelope.
        meta: Marker of every envelope; empty for none.
        quota: Gives places.
        requests: Follows what the node was handed.
        may_try: Whether the node is worth a try; while it is not, what is queued stays where it is.
        may_leave: Asked at the last moment whether anybody still wants a transmit to leave.
        report: Told what the node refused, and what has no place.
    """

    def __init__(
        self,
        node: Node,
        content_topic: str,
        meta: bytes,
        quota: Quota,
        requests: Requests,
        may_try: Callable[[], bool],
        may_leave: Callable[[Transmit], bool],
        report: Callable[[DispatchOutcome], None],
    ) -> None:
        self._node = node
        self._content_topic = content_topic
        self._meta = meta
        self._quota = quota
        self._requests = requests
        self._may_try = may_try
        self._may_leave = may_leave
        self._report = report
        self._queue: deque[Sealed] = deque()
        self._wake = Wake()

    def submit(self, sealed: Sealed) -> None:
        """Queues a message."""
        self._queue.append(sealed)
        self._wake.set()

    def resume(self) -> None:
        """Looks again whether what is queued may be tried."""
        if self._queue:
            self._wake.set()

    def clear(self) -> None:
        """Forgets what was not sent; nobody waits for it any longer."""
        self._queue.clear()

    async def run(self) -> None:
        """Sends what is queued, until cancelled."""
        while True:
            while self._queue and self._may_try():
                if self._quota.enabled:
                    await self._send_in_places()
                else:
                    await self._send(self._queue.popleft())
            self._wake.clear()
            await self._wake.wait()

    async def _send_in_places(self) -> None:
        """All that is queued asks for its places at once, so that one count is stored for all of it."""
        batch = list(self._queue)
        self._queue.clear()
        places = await self._quota.take([sealed.transmit.kind for sealed in batch])
        waiting = deque(zip(batch, places, strict=True))
        try:
            while waiting and self._may_try():
                sealed, place = waiting[0]
                if place is not None and not self._quota.is_current(place):
                    # The others took so long that it is counted anew.
                    break
                waiting.popleft()
                if place is None:
                    self._report(Late(sealed.transmit))
                else:
                    await self._send(sealed, place)
        finally:
            self._queue.extendleft(sealed for sealed, _ in reversed(waiting))
            for _, place in waiting:
                if place is not None:
                    self._quota.give_back(place)

    async def _send(self, sealed: Sealed, place: Place | None = None) -> None:
        transmit = sealed.transmit
        if not self._may_leave(transmit):
            if place is not None:
                self._quota.give_back(place)
            self._report(Late(transmit))
            return
        ephemeral = transmit.kind is TransmitKind.EPHEMERAL
        envelope = MessageEnvelope(self._content_topic, sealed.payload, ephemeral, self._meta)
        self._requests.begin()
        limit: asyncio.Timeout | None = None
        try:
            sending: Begun[object] = Begun(awaitable_of("send", self._node.send(envelope)))
            if sending.is_done:
                request_id = sending.result
            else:
                limit = asyncio.timeout(PROPAGATION_TIMEOUT_MS / 1000)
                request_id = await _within(limit, sending)
            if isinstance(request_id, str):
                self._requests.add(request_id, transmit)
            else:
                text = f"send() of the node returned a {type(request_id).__name__}: it must be a str"
                logger.error("%s", text)
                self._report(DispatchFailed(transmit, text, unanswered=True))
        except (PayloadTooLargeError, ConfigError) as error:
            self._report(DispatchFailed(transmit, str(error), permanent=True))
        except NodeError as error:
            self._report(_refusal(transmit, error))
        except BaseException as error:
            if is_ours(error):
                raise
            if limit is not None and limit.expired():
                text = f"the node's send did not return within {PROPAGATION_TIMEOUT_MS} ms"
                logger.error("%s", text)
            else:
                text = f"the node raised {type(error).__name__}"
                logger.exception("%s for a message", text)
            self._report(DispatchFailed(transmit, text, unanswered=True))
        finally:
            self._requests.end()
        if limit is not None:
            heed_cancellation()


async def _within(limit: asyncio.Timeout, sending: Begun[object]) -> object:
    """What `send` returns, until the limit; the log tells of one that goes on after its cancellation."""
    told = asyncio.get_running_loop().call_later(
        PROPAGATION_TIMEOUT_MS / 1000 + CANCEL_AGAIN_S,
        logger.error,
        "the node's send goes on after its cancellation: nothing leaves until it returns, let it raise CancelledError",
    )
    try:
        async with limit:
            return await sending
    finally:
        told.cancel()


def _refusal(transmit: Transmit, error: NodeError) -> DispatchFailed:
    """What a node says by raising; attributes of a wrong type say nothing."""
    hold_ms = error.retry_after_ms if is_non_negative_int(error.retry_after_ms) else None
    return DispatchFailed(transmit, str(error), error.permanent is True, retry_after_ms=hold_ms)
