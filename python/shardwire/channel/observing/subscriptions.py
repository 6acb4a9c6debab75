"""Who listens to a channel, and how events reach them.

Two lanes. Received messages are handed over one at a time, each only when every callback has returned and every
iterator has asked for the next. All other events are announced in order and wait for nobody but callbacks. So a
callback for a received message may wait for the outcome of a message it sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from shardwire.channel.hooks import (
    callable_name,
    frames,
    heed_cancellation,
    is_ours,
    outlive_cancellation,
    running_task,
)
from shardwire.channel.observing.event_iterator import (
    E,
    EventIterator,
    Waiting,
    concerns,
    make_room,
    without,
)
from shardwire.channel.own_loop import OwnLoop
from shardwire.errors import ConfigError
from shardwire.event_names import EVENT_TYPES, EVENT_TYPES_BY_NAME
from shardwire.events import (
    SEND_EVENTS,
    CallbackErrorEvent,
    ChannelEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
)
from shardwire.node.wake import Wake

logger = logging.getLogger(__name__)

# What it returns is awaited where that can be, and not looked at otherwise.
Callback = Callable[[Any], object]
Unsubscribe = Callable[[], None]
# Whether who runs a lane is cancelling it. While it is not, a callback did that to the task it runs in, and is reported
# like one that raises.
IsEnding = Callable[[], bool]

_DELIVERY_ERROR = "reliable:message:delivery-error"
# Received messages wait for the reader of an iterator; after this long the log says so, once a channel.
UNREAD_S = 60.0
UNREAD = "channel %s: messages wait for events() or messages(), not asked for the next for %d s: read on, or aclose()"

# What follows an event waits for its callbacks; after this long the log says so, once for each that takes it.
CALLBACK_S = 30.0
SLOW_CALLBACK = (
    "channel %s: callback %s for %s has not returned for %d s: further ones wait for it; put what takes long into a "
    "task or a queue"
)


def check_callable(name: str, value: object) -> None:
    """Refuses what cannot be called with one argument.

    Raises:
        ConfigError: `value` is none, as far as its signature tells.
    """
    if not callable(value):
        raise ConfigError(f"{name} is a {type(value).__name__}: it must be callable")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # of some functions of C there is none
        return
    try:
        signature.bind(None)
    except TypeError as error:
        said = f"{name} {callable_name(value)} cannot be called with one argument: {error}"
        raise ConfigError(f"{said}; it is given one, what it is told") from None


def check_observer(observer: object) -> None:
    """Refuses what cannot observe.

    Raises:
        ConfigError: `observer` cannot be called with one argument, or is `async`.
    """
    check_callable("observer", observer)
    if inspect.iscoroutinefunction(observer):
        raise ConfigError(f"observer {callable_name(observer)} is async: it must be plain; what waits goes into a task")


class _Subscription:
    __slots__ = ("callback", "has_ended", "kind", "stage")

    def __init__(self, kind: type[ChannelEvent], stage: str | None, callback: Callback) -> None:
        # The class of events that it gives.
        self.kind = kind
        self.stage = stage
        self.callback = callback
        self.has_ended = False

    @property
    def name(self) -> str:
        return callable_name(self.callback)

    def concerns(self, event: ChannelEvent) -> bool:
        if not isinstance(event, self.kind):
            return False
        return self.stage is None or (isinstance(event, MessageSendErrorEvent) and event.stage == self.stage)


class Subscriptions:
    """The callbacks and iterators of one channel.

    Args:
        name: Names the channel in the log.
        listen_for: Told, whenever that changes, the names of those of `SEND_EVENTS` to which somebody listens.

    Attributes:
        require_loop: Raises where the caller is not on the channel's event loop.
        require_thread: Raises where the caller is not in that loop's thread.
    """

    def __init__(self, name: str = "", listen_for: Callable[[list[str]], None] = lambda names: None) -> None:
        self._name = name
        self._told_unread = False
        loop = OwnLoop(name)
        self.require_loop, self.require_thread = loop.require, loop.require_thread
        self._subscriptions: list[_Subscription] = []
        self._iterators: list[weakref.ref[EventIterator[Any]]] = []
        # Whether anybody listens to a class of events, as far as that was asked since somebody began or ended to. It is
        # replaced then, not cleared: an answer that is being found meanwhile is for the old one.
        self._wanted: dict[type[ChannelEvent], bool] = {}
        self._listen_for = listen_for
        self._telling = threading.RLock()
        self._announcements: Waiting[Callable[[], None] | None] = deque()
        # What the callbacks are being told, and what of that was dropped before all of them were.
        self._announced: ChannelEvent | None = None
        self._dropped: ChannelEvent | None = None
        self._wake = Wake()
        self._idle = asyncio.Event()
        self._somebody = asyncio.Event()
        self._ended = False
        self._held = False

    def on(self, event: str | type[ChannelEvent], callback: Callback) -> Unsubscribe:
        """Subscribes `callback`, plain or `async`, to an event class or one of its names.

        Returns:
            A function that unsubscribes; calling it again does nothing.

        Raises:
            ConfigError: There is no such event, the callback cannot be called with one argument, or the
                caller runs in another thread.
        """
        self.require_thread()
        check_callable("callback", callback)
        kind = EVENT_TYPES_BY_NAME.get(event) if isinstance(event, str) else event
        if kind is not ChannelEvent and kind not in EVENT_TYPES:
            names = ", ".join(sorted(EVENT_TYPES_BY_NAME))
            raise ConfigError(f"event is {event!r}: it must be an event class or one of {names}")
        assert kind is not None
        subscription = _Subscription(kind, "delivery" if event == _DELIVERY_ERROR else None, callback)
        self._subscriptions.append(subscription)
        self._listeners_changed()
        self._somebody.set()

        def unsubscribe() -> None:
            if not subscription.has_ended:
                subscription.has_ended = True
                self._subscriptions.remove(subscription)
                self._listeners_changed()

        return unsubscribe

    def iterate(self, kind: type[E]) -> EventIterator[E]:
        """An iterator over the events of `kind` from now on.

        Raises:
            ConfigError: The caller runs in another thread.
        """
        self.require_thread()
        iterator = EventIterator(self, kind)
        if self._ended:
            iterator.end()
        else:
            self._iterators.append(weakref.ref(iterator, self._forget_reference))
            self._listeners_changed()
            self._somebody.set()
        return iterator

    def forget(self, iterator: EventIterator[Any]) -> None:
        self._iterators = [entry for entry in self._iterators if entry() not in (None, iterator)]
        self._listeners_changed()

    def _forget_reference(self, reference: weakref.ref[EventIterator[Any]]) -> None:
        # What is made for it all the same nobody is told. Which thread this is nobody knows.
        self._iterators = [entry for entry in self._iterators if entry is not reference]
        self._wanted = {}

    def _listeners_changed(self) -> None:
        self._wanted = {}
        # Whoever is last tells of all that there are.
        with self._telling:
            self._listen_for([kind.names[0] for kind in SEND_EVENTS if self.wants(kind)])

    def wants(self, kind: type[ChannelEvent]) -> bool:
        """Whether anybody listens to events of `kind`."""
        known = self._wanted
        wanted = known.get(kind)
        if wanted is None:
            kinds = [listener.kind for listener in self._subscriptions]
            kinds += [iterator.kind for iterator in self._living_iterators()]
            wanted = known[kind] = issubclass(kind, tuple(kinds))
        return wanted

    def announce(self, event: ChannelEvent, done: Callable[[], None] | None = None) -> None:
        """Queues an event for every listener; `done` is called when the callbacks have returned."""
        if not self.wants(type(event)):
            if done is not None:
                done()
            return
        self._announcements = make_room(self._announcements)
        self._announcements.append((event, done))
        self._wake.set()

    def drop(self, request_id: str) -> None:
        """Takes back the events of a request that were not announced yet; a callback that runs finishes."""
        self._announcements = without(self._announcements, request_id)
        for iterator in self._living_iterators():
            iterator.drop(request_id)
        if concerns(self._announced, request_id):
            self._dropped = self._announced

    async def run_announcements(self, is_ending: IsEnding) -> None:
        """Announces what is queued, for as long as the channel lives."""
        while True:
            while self._announcements and not self._held:
                event, done = self._announcements.popleft()
                self._announced = event
                self._put_to_iterators(event, None)
                await self._call_back(event, is_ending)
                self._announced = self._dropped = None
                if done is not None:
                    done()
            self._wake.clear()
            self._idle.set()
            if self._ended:
                return
            await self._wake.wait()

    async def await_announced(self, timeout_s: float) -> None:
        """Waits until everything announced so far was announced to every callback, for at most `timeout_s`."""
        self._idle.clear()
        self._wake.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)

    def hold(self) -> None:
        """Announces nothing more, so that what is left counts as untold; a callback that runs finishes."""
        self._held = True

    async def hand_over(self, event: MessageReceivedEvent, is_ending: IsEnding) -> None:
        """Gives a received message to every listener; returns when all of them are done with it.

        Waits where the last listener has just left, also where it left without having taken the message.
        """
        loop = asyncio.get_running_loop()
        while True:
            while not self.wants(type(event)):
                self._somebody.clear()
                await self._somebody.wait()
            taken = self._put_to_iterators(event, loop)
            was_called = await self._call_back(event, is_ending)
            if await self._was_taken(taken) or was_called:
                return
            # Whatever is wrong with who listens, others run meanwhile.
            await asyncio.sleep(0)

    async def _was_taken(self, taken: list[asyncio.Future[bool]]) -> bool:
        """Whether a reader took what was given to all of these, once they are done with it or have left."""
        if not taken:
            return False
        unread = asyncio.get_running_loop().call_later(UNREAD_S, self._tell_unread)
        try:
            return any([await future for future in taken])
        finally:
            unread.cancel()

    def _tell_unread(self) -> None:
        if self._told_unread:
            return
        self._told_unread = True
        logger.warning(UNREAD, self._name, UNREAD_S)

    def _put_to_iterators(
        self, event: ChannelEvent, loop: asyncio.AbstractEventLoop | None
    ) -> list[asyncio.Future[bool]]:
        """Queues an event for every iterator; with a loop, gives a future each that says when it is dealt with, and
        whether the reader took it.

        A function of its own, so that no frame that waits keeps an iterator alive which its reader has left.
        """
        taken: list[asyncio.Future[bool]] = []
        for iterator in self._living_iterators():
            if not isinstance(event, iterator.kind):
                continue
            if loop is None:
                iterator.put(event, None)
            else:
                taken.append(loop.create_future())
                iterator.put(event, partial(_resolve, taken[-1]))
        return taken

    def end(self) -> None:
        """Ends every iterator once it has given what it holds, and the announcements once they are made."""
        self._ended = True
        for iterator in self._living_iterators():
            iterator.end()
        self._wanted = {}
        self._wake.set()

    def _living_iterators(self) -> list[EventIterator[Any]]:
        return [iterator for entry in self._iterators if (iterator := entry()) is not None and not iterator.has_ended]

    async def _call_back(self, event: ChannelEvent, is_ending: IsEnding) -> bool:
        """Calls every callback that an event concerns; whether there was one."""
        was_called = False
        own = running_task()
        for subscription in list(self._subscriptions):
            if event is self._dropped:
                return was_called
            # One before it may have unsubscribed it, or have waited while somebody did.
            if subscription.has_ended or not subscription.concerns(event):
                continue
            was_called = True
            try:
                result = subscription.callback(event)
                # Looked at first: `isawaitable` takes longer than most callbacks.
                if result is not None and inspect.isawaitable(result):
                    await self._with_warning(result, subscription, event)
                heed_cancellation()
            except BaseException as error:
                if is_ours(error, own) and (is_ending() or not isinstance(error, asyncio.CancelledError)):
                    raise
                await outlive_cancellation()
                self._report(event, subscription, error)
        return was_called

    async def _with_warning(self, result: Awaitable[object], subscription: _Subscription, event: ChannelEvent) -> None:
        loop, told = asyncio.get_running_loop(), (self._name, subscription.name, event.name, CALLBACK_S)
        slow = loop.call_later(CALLBACK_S, logger.warning, SLOW_CALLBACK, *told)
        try:
            await result
        finally:
            slow.cancel()

    def _report(self, event: ChannelEvent, subscription: _Subscription, error: BaseException) -> None:
        # The text of the error is the application's and may quote the message: its type is logged, and where it was.
        what = f"{type(error).__name__}{frames(error, __file__)}"
        logger.error("channel %s: callback %s for %s raised %s", self._name, subscription.name, event.name, what)
        if not isinstance(event, CallbackErrorEvent):
            self.announce(CallbackErrorEvent(event=event, error=error))


def _resolve(future: asyncio.Future[bool], was_taken: bool) -> None:
    loop = future.get_loop()
    if asyncio._get_running_loop() is loop:
        if not future.done():
            future.set_result(was_taken)
        return
    # An iterator may be collected in any thread, and after its loop has ended.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_resolve, future, was_taken)
