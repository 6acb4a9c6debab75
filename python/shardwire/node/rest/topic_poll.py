"""Brings in the messages of one content topic by polling: nothing else is offered by any node's REST interface."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Protocol

from shardwire.node.protocol import MessageEnvelope
from shardwire.node.rest.waku_api import PollAnswer, Received, RouteError, WakuApi
from shardwire.node.transport import TransportLink
from shardwire.node.wake import Wake

POLL_INTERVAL_MS_MIN = 5
POLL_INTERVAL_MS_MAX = 250
# While we send: an answer may come soon, and the echoes must not fill the queue (nwaku's holds 50).
POLL_INTERVAL_MS_SENDING = 25
# By how much an empty poll makes the pause before the next one longer: it is short for a second after each message.
POLL_INTERVAL_GROWTH = 1.3
FAILURE_PAUSE_MS_MIN = 250
FAILURE_PAUSE_MS_MAX = 2_000
# A light node loses its subscription with its service node, and only a ping tells.
PING_INTERVAL_MS = 15_000
# Readers that are so far behind get no more from the node's queue for a while.
BACKLOG_BYTES_MAX = 64 << 20
BACKLOG_WAIT_MS = 5_000
BACKLOG_RECHECK_MS = 20

_RELAY_MESSAGES = "/relay/v1/auto/messages/"
_FILTER_MESSAGES = "/filter/v2/messages/"


class PollReport(Protocol):
    """Told how the node answers."""

    def on_answer(self) -> None: ...

    def on_no_answer(self, error: RouteError) -> None: ...


class TopicPoll:
    """The queue that the node keeps for one content topic.

    A GET empties that queue, so what a failed one held is lost: the store is asked as soon as one succeeds again.

    Args:
        api: The node.
        link: Given what comes.
        content_topic: The topic.
        pubsub_topic: Where it lies.
        is_light: Whether the node takes part by filter and lightpush.
        report: Told how the node answers.
    """

    def __init__(
        self,
        api: WakuApi,
        link: TransportLink,
        content_topic: str,
        pubsub_topic: str,
        is_light: Callable[[], bool],
        report: PollReport,
    ) -> None:
        self.content_topic = content_topic
        self.pubsub_topic = pubsub_topic
        self._api = api
        self._link = link
        self._is_light = is_light
        self._report = report
        self._request_id = secrets.token_hex(8)
        self._wake = Wake()
        self._interval_ms = float(POLL_INTERVAL_MS_MIN)
        self._failures_in_row = 0
        # When the last poll began that brought everything; None before the first.
        self._good_ns: int | None = None
        # Since when messages may have passed by; None where none did.
        self._lost_since_ns: int | None = None
        self._pinged_ms = link.clock.monotonic_ms()
        self._pinged_ns = link.clock.epoch_ns()

    def on_sent(self) -> None:
        """A message of ours left: an answer may come soon."""
        if self._interval_ms > POLL_INTERVAL_MS_SENDING:
            self._interval_ms = POLL_INTERVAL_MS_SENDING
            self._wake.set()

    async def open(self) -> int:
        """Makes sure that the node keeps a queue, and empties it.

        It asks for one first: that takes over the queue of a client that died, of which go-waku would otherwise keep
        a second one that nobody empties.

        Returns:
            How many messages of others came.

        Raises:
            RouteError: The node did not answer as it should.
        """
        begun_ns = self._link.clock.epoch_ns()
        light = self._is_light()
        if light and self._link.clock.monotonic_ms() - self._pinged_ms >= PING_INTERVAL_MS:
            await self._ping()
        answer = await self._poll(light)
        if not answer.has_queue:
            await self._subscribe(light)
            if self._good_ns is not None:
                self._lose_since(self._good_ns)
            answer = await self._poll(light)
            if not answer.has_queue:
                raise RouteError(f"the node keeps no queue for {self.content_topic} although it was subscribed", 404)
        self._good_ns = begun_ns
        return answer.received

    async def run(self) -> None:
        """Polls until cancelled."""
        while True:
            try:
                received = await self.open()
            except RouteError as error:
                self._on_failure(error)
                await self._pause(min(FAILURE_PAUSE_MS_MAX, FAILURE_PAUSE_MS_MIN << min(self._failures_in_row, 8)))
                continue
            except asyncio.CancelledError:
                if self._good_ns is not None:
                    self._lose_since(self._good_ns)
                raise
            self._on_success()
            if received:
                self._interval_ms = POLL_INTERVAL_MS_MIN
            else:
                self._interval_ms = min(POLL_INTERVAL_MS_MAX, self._interval_ms * POLL_INTERVAL_GROWTH)
            await self._pause(self._interval_ms)
            await self._await_room()

    async def close(self, unsubscribe: bool) -> None:
        """Empties the queue, then gives it up where that harms nobody else.

        A queue that is full cannot be given up: go-waku's relay hangs for ever.

        Raises:
            RouteError: The node did not answer as it should.
        """
        light = self._is_light()
        answer = await self._poll(light)
        while answer.received or answer.passed_over:
            answer = await self._poll(light)
        if not (answer.has_queue and unsubscribe):
            return
        if light:
            await self._api.filter_unsubscribe(self._request_id, self.content_topic, self.pubsub_topic)
        else:
            await self._api.relay_unsubscribe(self.content_topic)

    async def _poll(self, light: bool) -> PollAnswer:
        path = _FILTER_MESSAGES if light else _RELAY_MESSAGES
        return await self._api.poll(path, self.content_topic, self._link.ours, self._take)

    def _take(self, received: Received) -> None:
        payload, content_topic, timestamp_ns, meta, ephemeral = received
        self._link.received(MessageEnvelope(content_topic, payload, ephemeral, meta), timestamp_ns)

    async def _subscribe(self, light: bool) -> None:
        if light:
            await self._api.filter_subscribe(self._request_id, self.content_topic, self.pubsub_topic)
            self._pinged_ms = self._link.clock.monotonic_ms()
            self._pinged_ns = self._link.clock.epoch_ns()
            return
        try:
            await self._api.relay_subscribe(self.content_topic)
        except RouteError as error:
            if error.status == 500:
                # logos-delivery has noted the topic before it failed, and would take it for subscribed.
                await self._api.relay_unsubscribe(self.content_topic)
            raise

    async def _ping(self) -> None:
        last_ns = self._pinged_ns
        self._pinged_ms, pinged_ns = self._link.clock.monotonic_ms(), self._link.clock.epoch_ns()
        if not await self._api.filter_ping(self._request_id):
            await self._api.filter_subscribe(self._request_id, self.content_topic, self.pubsub_topic)
            self._lose_since(last_ns)
        self._pinged_ns = pinged_ns

    def _lose_since(self, since_ns: int) -> None:
        self._lost_since_ns = since_ns if self._lost_since_ns is None else min(since_ns, self._lost_since_ns)

    def _on_failure(self, error: RouteError) -> None:
        self._failures_in_row += 1
        self._link.count("polls_failed")
        if error.sent and self._good_ns is not None:
            self._lose_since(self._good_ns)
        self._report.on_no_answer(error)

    def _on_success(self) -> None:
        self._failures_in_row = 0
        self._report.on_answer()
        if self._lost_since_ns is not None:
            since_ns, self._lost_since_ns = self._lost_since_ns, None
            self._link.missed(since_ns)

    async def _pause(self, pause_ms: float) -> None:
        """Waits so long, or until there is a reason to look."""
        if not self._wake.is_set():
            timer = asyncio.get_running_loop().call_later(pause_ms / 1000, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()
        else:
            # Others run in between all the same.
            await asyncio.sleep(POLL_INTERVAL_MS_MIN / 1000)
        self._wake.clear()

    async def _await_room(self) -> None:
        for _ in range(BACKLOG_WAIT_MS // BACKLOG_RECHECK_MS):
            if self._link.backlog_bytes < BACKLOG_BYTES_MAX:
                return
            await asyncio.sleep(BACKLOG_RECHECK_MS / 1000)
