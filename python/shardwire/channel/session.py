"""The tasks behind one channel: what runs from creation to close, and what runs while it is started."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from shardwire.channel.announcements import Announcements
from shardwire.channel.arguments import ChannelArguments
from shardwire.channel.arrivals import Arrivals
from shardwire.channel.collected import Collected, Outcome
from shardwire.channel.commits import Commits
from shardwire.channel.driver import Driver, Input
from shardwire.channel.engine import Engine
from shardwire.channel.hand_over import HandOver
from shardwire.channel.hooks import end_tasks
from shardwire.channel.limits.quota import RateLimitStatus
from shardwire.channel.node_link import NodeLink
from shardwire.channel.observing.metric_names import MEASUREMENTS, METRICS
from shardwire.channel.observing.subscriptions import Subscriptions
from shardwire.channel.outflow import Outflow
from shardwire.channel.receiving.reception import Reception
from shardwire.channel.receiving.retrieval import Retrieval
from shardwire.channel.sending.message_sizes import MessageSizes
from shardwire.channel.sending.outcomes import DispatchFailed, DispatchOutcome, Late, Propagated, Stored
from shardwire.channel.sending.request_ids import new_request_id
from shardwire.channel.sending.segment_size import MessageBudget
from shardwire.channel.sending.segmenter import ChannelSegmenter
from shardwire.channel.storing.writer import Writer
from shardwire.channel.undelivered import what_is_left
from shardwire.channel.waiters import Callers, DeliveryWaiters
from shardwire.config import ChannelConfig
from shardwire.errors import ChannelClosedError, NodeError
from shardwire.node.protocol import ConnectionState
from shardwire.quoting import quoted
from shardwire.sds import Now

logger = logging.getLogger(__name__)

# Every counter and what is held now, before anything happened.
_NOTHING = {name: 0 for name in METRICS if name not in MEASUREMENTS}

# On closing, callbacks that are being told outcomes get this long.
CLOSING_ANNOUNCEMENTS_S = 1.0
# An event loop whose tasks are all cancelled ends before this, with what they clean up and its threads, or goes on.
ENDING_S = 5.0


class Session:
    """One channel from creation to close: connects its parts, and runs their tasks.

    Out: `segmenter`, `driver` (which calls `engine`), outflow, node. In: reception, or retrieval where a store has the
    message, arrivals, `driver`, hand-over, application.

    Args:
        arguments: Of the channel.
        sizes: How large messages may be.
        engine: The channel without I/O.
        segmenter: Divides messages.
        subscriptions: Who listens.
        writer: Where changes are stored.
    """

    def __init__(
        self,
        arguments: ChannelArguments,
        sizes: MessageSizes,
        engine: Engine,
        segmenter: ChannelSegmenter,
        subscriptions: Subscriptions,
        writer: Writer,
    ) -> None:
        config, clock = arguments.config, arguments.clock
        self.channel_id = arguments.channel_id
        self.content_topic = arguments.content_topic
        self.sender_id = arguments.sender_id
        self.sizes = sizes
        self.engine = engine
        self.segmenter = segmenter
        self.subscriptions = subscriptions
        self._config = config
        self._clock = clock
        self._rng = arguments.rng
        self._writer = writer

        self._life_tasks: dict[str, asyncio.Task[None]] = {}
        self._started = False
        self._draining = False
        self._close_task: asyncio.Task[None] | None = None
        self._life_lock = asyncio.Lock()
        self._progress = asyncio.Event()
        self.waiters = DeliveryWaiters()
        self.callers = Callers()
        # What the node said and the engine was not told yet.
        self._outcomes: list[DispatchOutcome | Stored] = []

        # Each part is given those that were made before it. All post to the driver: it stands first, and is told last
        # which of them it calls.
        commits = Commits(engine, writer, clock, self._carry_out)
        self.driver = Driver(engine, commits, clock, config.sync.process_task_min_elapse_ms)
        self._outflow = Outflow(arguments, sizes, engine, self._on_outcome)
        self._reception = Reception(
            arguments.content_topic,
            arguments.envelope_meta,
            arguments.encryption,
            self._outflow.requests,
            self.driver.post_received,
            self._on_connection,
            self._on_missed,
            engine.peer_log,
        )
        self._arrivals = Arrivals(self.driver, engine, self._reception.forget)
        self._retrieval = Retrieval(arguments, engine.machine.store_questions(), self._reception, self._arrivals)
        stores, is_closed = writer.stores, lambda: self.is_closed
        self._hand_over = HandOver(self.driver, engine, subscriptions, clock, stores, is_closed, self._is_ending)
        self._announcements = Announcements(subscriptions, self.waiters, self._on_announced)
        self._link = NodeLink(
            arguments,
            self._outflow,
            self._reception,
            self._retrieval,
            self._on_connection,
            self._on_task_done,
            engine.count,
        )
        sizes.connect(self._use_sizes)
        self.driver.connect(
            take_in=self._arrivals.receive,
            may_transmit=sizes.look,
            may_hand_over=self._hand_over.may_begin,
        )

    # --- what it is ---

    @property
    def config(self) -> ChannelConfig:
        """With the segment size that the node's messages leave at present."""
        return replace(self._config, segmentation=self.sizes.budget.segmentation)

    @property
    def is_started(self) -> bool:
        return self._started

    @property
    def is_closed(self) -> bool:
        return self._close_task is not None

    def closed_error(self) -> ChannelClosedError:
        return ChannelClosedError(f"channel {self.channel_id!r} is closed: create it again")

    def require_started(self) -> None:
        if self.is_closed or self._draining:
            raise self.closed_error()
        if not self._started:
            raise ChannelClosedError(f"channel {self.channel_id!r} is not started: await channel.start() first")

    def new_request_id(self) -> str:
        return new_request_id(self._rng, self.engine.machine.knows_send)

    def send_id_for(self, request_id: str, message_id: str) -> str:
        """Under the "send" rule each request is a send; ids made of contents cannot tell equal messages apart."""
        return request_id if self._config.sds.message_id == "send" else message_id

    def refuse(self, request_id: str, message_id: str, error: str, *, ephemeral: bool = False) -> None:
        self.waiters.give_up(request_id, f"message {request_id} was not sent: {error}")
        tell = self.engine.machine.refuse_ephemeral if ephemeral else self.engine.refuse
        self.driver.post(lambda now: tell(request_id, message_id, error))

    def rate_limit_status(self) -> RateLimitStatus:
        return self.engine.quota.status(self._clock.epoch_ms(), *self.engine.machine.queued())

    def stats(self) -> dict[str, int]:
        return {**_NOTHING, **self.engine.stats(), "store_queries": self._retrieval.queries}

    # --- life ---

    def open(self) -> None:
        """Starts what runs until close; events of an earlier life wait until somebody listens."""
        self._announcements.hold(self.engine.own_sends.poll_events())
        self._life_tasks = {
            "driver": asyncio.create_task(self.driver.run(), name=f"shardwire {self.channel_id} driver"),
            "announcements": asyncio.create_task(
                self.subscriptions.run_announcements(self._is_ending), name=f"shardwire {self.channel_id} announcements"
            ),
            "hand-over": asyncio.create_task(self._hand_over.run(), name=f"shardwire {self.channel_id} hand-over"),
        }
        for task in self._life_tasks.values():
            task.add_done_callback(self._on_task_done)

    async def start(self) -> None:
        async with self._life_lock:
            if self.is_closed:
                raise self.closed_error()
            if self._started:
                return
            try:
                await self._link.start()
            except NodeError:
                if self.is_closed:
                    raise self.closed_error() from None
                raise
            self._started = True
            self._tell_link(self._activate)

    def _activate(self, now: Now) -> None:
        self.engine.active = True
        self.engine.machine.handle_started(now)

    async def stop(self) -> None:
        # Whoever is cancelled meanwhile leaves a stopped channel behind all the same.
        await asyncio.shield(asyncio.create_task(self._stop()))

    async def _stop(self) -> None:
        async with self._life_lock:
            if not self._started:
                return
            self._started = False
            await self._link.stop()
            self.driver.post(self.engine.on_stopped)
            await self.driver.flush()

    async def close(self, drain_timeout_ms: int) -> None:
        try:
            if drain_timeout_ms and self._started and self._close_task is None:
                self._draining = True
                await self._drain(drain_timeout_ms)
                if left := what_is_left(self.engine, self.config, self._started, self.driver.now()):
                    logger.warning("channel %s closes after %d ms: %s", quoted(self.channel_id), drain_timeout_ms, left)
        finally:
            # Whoever is cancelled while it drains leaves a closed channel behind all the same.
            closing = self._begin_closing(asyncio.current_task())
            # A callback closes its own channel: what closes it must not wait for that callback.
            if asyncio.current_task() not in self._life_tasks.values():
                await asyncio.shield(closing)

    def _begin_closing(self, closer: asyncio.Task[Any] | None) -> asyncio.Task[None]:
        if self._close_task is None:
            self._close_task = asyncio.get_running_loop().create_task(self._close(closer))
            self._progress.set()
        return self._close_task

    async def _drain(self, timeout_ms: int) -> None:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while self._started and self.engine.machine.is_busy():
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return
            self._progress.clear()
            try:
                await asyncio.wait_for(self._progress.wait(), left_ms / 1000)
            except TimeoutError:
                return

    async def _close(self, closer: asyncio.Task[Any] | None) -> None:
        hand_over, announcements = self._life_tasks["hand-over"], self._life_tasks["announcements"]
        try:
            self._link.give_up_starting()
            await self._stop()
            if hand_over is not closer:
                await end_tasks([hand_over])
            self.driver.post(self._hand_over.end)
            if announcements is not closer:
                await self.subscriptions.await_announced(CLOSING_ANNOUNCEMENTS_S)
            self._refuse_callers()
            if announcements is not closer:
                # What is told from here on nobody would note: the next life tells it.
                await self.driver.flush()
                await self.subscriptions.await_announced(CLOSING_ANNOUNCEMENTS_S)
                self.subscriptions.hold()
            self.driver.close()
            await asyncio.wait({self._life_tasks["driver"]})
            self.subscriptions.end()
            if announcements is not closer:
                await asyncio.wait({announcements}, timeout=CLOSING_ANNOUNCEMENTS_S)
                await end_tasks([announcements])
        finally:
            self._refuse_callers()
            self.subscriptions.end()
            await self.sizes.close()
            await self.engine.quota.leave()
            await self._writer.close()

    def _refuse_callers(self) -> None:
        error = self.closed_error()
        self.engine.refuse_waiting(error)
        self.waiters.fail_all(error)
        if self._life_tasks["driver"].done():
            self.callers.fail_all(error)

    def _is_ending(self) -> bool:
        """Whether cancellations are meant: the channel closes, or the event loop ends, which cancels every task."""
        return self.is_closed or all(task.done() or task.cancelling() for task in self._life_tasks.values())

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            if (error := task.exception()) is not None:
                # A broken invariant: going on would risk what the channel promises.
                logger.critical("%s failed, the channel closes", task.get_name(), exc_info=error)
                self._end()
        elif task not in self._life_tasks.values() and not self._link.runs(task):
            return
        elif self._is_ending():
            # A loop that ends runs nothing later; in one that goes on somebody cancelled all tasks of the channel.
            task.get_loop().call_later(ENDING_S, self._on_cancelled, task)
        else:
            self._on_cancelled(task)

    def _on_cancelled(self, task: asyncio.Task[None]) -> None:
        if not self.is_closed:
            # By what it called: a node, a cipher or a callback that cancels the task it runs in, or has it cancelled.
            logger.critical("%s was cancelled from outside, the channel closes", task.get_name())
            self._end()

    def _end(self) -> None:
        self.engine.active = False
        self._begin_closing(None)
        self._refuse_callers()

    async def make_durable(self) -> None:
        """Returns when everything that happened so far is stored.

        Raises:
            PersistenceError: It could not be.
            ChannelClosedError: The channel closed meanwhile.
        """
        answer = self.callers.ask()
        self.driver.post_for_caller(lambda now: self.engine.settle_durably(answer))
        await answer.wait()

    # --- what the driver carries out ---

    def _carry_out(self, collected: Collected) -> None:
        for submission in collected.submissions:
            submission.settled(None)
        for event, outcome in collected.events:
            self._announcements.announce(event, outcome)
        for settled in collected.settlements:
            settled(None)
        for transmit in collected.transmits:
            if self.engine.timeline:
                self.engine.note("dispatched", transmit, self.driver.now())
            self._outflow.submit(transmit)
        self._outflow.resume()
        if collected.missing:
            self._retrieval.wake()
        self._hand_over.take(collected.deliveries)
        if self._draining:
            self._progress.set()

    def _on_announced(self, outcome: Outcome) -> None:
        if self.engine.own_sends.is_unannounced(*outcome):
            self.driver.post(lambda now: self.engine.own_sends.on_announced(*outcome))

    def on_listeners_changed(self) -> None:
        """Somebody began to listen."""
        self._announcements.on_listened()
        self.driver.post(lambda now: None)

    # --- what the network brings ---

    def _tell_link(self, told: Input) -> None:
        """Queues what is said of the connection to the network, and has the store asked where that makes it due."""

        def tell(now: Now) -> None:
            told(now)
            self._retrieval.wake()

        self.driver.post(tell)

    def _on_missed(self, since_ns: int) -> None:
        self._tell_link(lambda now: self.engine.machine.handle_missed(since_ns, now))

    def _use_sizes(self, budget: MessageBudget) -> None:
        """The node's messages have another size: whatever is made of them from now on is divided so."""
        self.segmenter.use(budget.segmentation)
        self.driver.post(lambda now: self.engine.on_sizes_changed(budget, now))

    def _on_outcome(self, outcome: DispatchOutcome | Stored) -> None:
        if isinstance(outcome, Propagated):
            # Its echo is ours; what other channels of the node propagate may be meant for this one.
            self._reception.remember(outcome.message_hash)
        elif isinstance(outcome, DispatchFailed):
            self.engine.machine.announce_failure()
        elif isinstance(outcome, Late):
            self.engine.machine.announce_late(outcome.transmit.transmit_id)
        if not self._outcomes:
            self.driver.post(self._apply_outcomes)
        self._outcomes.append(outcome)

    def _apply_outcomes(self, now: Now) -> None:
        outcomes, self._outcomes = self._outcomes, []
        self.engine.on_outcomes(outcomes, now)

    def _on_connection(self, state: ConnectionState) -> None:
        online, is_full = state is not ConnectionState.DISCONNECTED, state is ConnectionState.CONNECTED
        self._tell_link(lambda now: self.engine.machine.handle_connection(online, is_full, now))
