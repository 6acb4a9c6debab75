"""Callbacks and iterators: who hears what, in which order, and what a slow or broken listener does to the others."""

from __future__ import annotations

import asyncio
import gc
import re
import weakref
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from shardwire._native import HistoryEntry
from shardwire.channel.observing.event_iterator import EventIterator
from shardwire.channel.observing.subscriptions import Subscriptions
from shardwire.errors import ConfigError
from shardwire.event_names import EVENT_TYPES
from shardwire.events import (
    CallbackErrorEvent,
    ChannelEvent,
    ChunkInfo,
    ChunkSentEvent,
    IrretrievableMessageEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)

RECEIVED = MessageReceivedEvent(b"payload", "alice", "ab")
SENT = MessageSentEvent("request", "ab")


def is_ending() -> bool:
    return True


def run(scenario: Callable[[Subscriptions], Awaitable[None]]) -> None:
    async def main() -> None:
        subscriptions = Subscriptions("'notes'")
        task = asyncio.create_task(subscriptions.run_announcements(is_ending))
        await scenario(subscriptions)
        subscriptions.end()
        await asyncio.wait_for(task, 5)

    asyncio.run(main())


def test_no_payload_appears_where_an_event_is_printed() -> None:
    assert repr(RECEIVED) == (
        "MessageReceivedEvent(message=<7 bytes>, sender_id='alice', message_id='ab', redelivered=False)"
    )


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_every_name_and_class_subscribes(kind: type[ChannelEvent]) -> None:
    async def scenario(subscriptions: Subscriptions) -> None:
        for name in (*kind.names, kind, ChannelEvent):
            unsubscribe = subscriptions.on(name, lambda event: None)
            assert subscriptions.wants(kind)
            unsubscribe()
            unsubscribe()
            assert not subscriptions.wants(kind)

    run(scenario)


@pytest.mark.parametrize("event", ["message:received", "", MessageReceivedEvent(b"x", "a", "b"), int, None])
def test_unknown_events_are_refused(event: object) -> None:
    async def scenario(subscriptions: Subscriptions) -> None:
        with pytest.raises(ConfigError, match="must be an event class or one of"):
            subscriptions.on(event, lambda event: None)  # type: ignore[arg-type]

    run(scenario)


def test_a_callback_must_be_callable() -> None:
    async def scenario(subscriptions: Subscriptions) -> None:
        with pytest.raises(ConfigError, match="must be callable"):
            subscriptions.on(MessageSentEvent, "not callable")  # type: ignore[arg-type]

    run(scenario)


def test_a_callback_that_cannot_take_the_event_is_refused_at_once() -> None:
    """Else it raises at each event, and only the log tells."""
    key = b"a key"

    def two(event: ChannelEvent, other: int) -> None: ...

    def none(*, key: bytes = key) -> None: ...

    async def scenario(subscriptions: Subscriptions) -> None:
        for callback in (none, two, asyncio.Event().set):
            with pytest.raises(ConfigError, match=f"{callback.__name__} cannot be called with one argument") as refused:
                subscriptions.on(MessageSentEvent, callback)  # type: ignore[arg-type]
            assert "a key" not in str(refused.value)
        # What takes one, or tells nothing of what it takes.
        for callback in (print, [].append, dict, partial(two, other=1), lambda event, other=2: None, type):
            subscriptions.on(MessageSentEvent, callback)

    run(scenario)


def test_delivery_error_name_hears_only_that_stage() -> None:
    heard: list[str] = []
    every: list[str] = []

    async def scenario(subscriptions: Subscriptions) -> None:
        subscriptions.on("reliable:message:delivery-error", lambda event: heard.append(event.stage))
        subscriptions.on("reliable:message:send-error", lambda event: every.append(event.stage))
        subscriptions.announce(MessageSendErrorEvent("r", "m", "text", "dispatch"))
        subscriptions.announce(MessageSendErrorEvent("r", "m", "text", "delivery"))
        await subscriptions.await_announced(5)

    run(scenario)
    assert heard == ["delivery"]
    assert every == ["dispatch", "delivery"]


def test_a_callback_that_raises_is_reported_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[ChannelEvent] = []

    def broken(event: ChannelEvent) -> None:
        raise ValueError("secret payload")

    async def broken_async(event: ChannelEvent) -> None:
        raise asyncio.CancelledError

    async def scenario(subscriptions: Subscriptions) -> None:
        subscriptions.on(MessageSentEvent, broken)
        subscriptions.on(MessageSentEvent, broken_async)
        subscriptions.on(MessageSentEvent, heard.append)
        subscriptions.on(CallbackErrorEvent, heard.append)
        subscriptions.on(CallbackErrorEvent, broken)
        subscriptions.announce(SENT)
        await subscriptions.await_announced(5)

    run(scenario)
    assert heard[0] == SENT
    assert [type(event.error) for event in heard[1:] if isinstance(event, CallbackErrorEvent)] == [
        ValueError,
        asyncio.CancelledError,
    ]
    assert "secret" not in caplog.text
    assert "ValueError" in caplog.text
    # The frame, by file, line and function.
    assert re.search(r"raised ValueError at \S+test_subscriptions\.py:\d+ in broken$", caplog.text, re.MULTILINE)
    assert re.search(r"channel 'notes': callback \S+broken for reliable:message:sent raised", caplog.text)


def test_the_log_shows_where_a_callback_raised_innermost_frame_first(caplog: pytest.LogCaptureFixture) -> None:
    secret = "secret payload"

    def inner(value: str) -> None:
        raise ValueError(value)

    def outer(event: ChannelEvent) -> None:
        inner(secret)

    async def scenario(subscriptions: Subscriptions) -> None:
        subscriptions.on(MessageSentEvent, outer)
        subscriptions.announce(SENT)
        await subscriptions.await_announced(5)

    run(scenario)
    assert re.search(r" in inner, called at \S+ in outer$", caplog.text, re.MULTILINE)
    assert "secret" not in caplog.text
    assert "subscriptions.py:" not in caplog.text.replace("test_subscriptions.py:", "").split("raised")[1]


def test_done_follows_the_callbacks_and_comes_at_once_without_listeners() -> None:
    order: list[str] = []

    async def slow(event: ChannelEvent) -> None:
        await asyncio.sleep(0)
        order.append("callback")

    async def scenario(subscriptions: Subscriptions) -> None:
        subscriptions.announce(SENT, lambda: order.append("nobody"))
        subscriptions.on(MessageSentEvent, slow)
        subscriptions.announce(SENT, lambda: order.append("done"))
        await subscriptions.await_announced(5)

    run(scenario)
    assert order == ["nobody", "callback", "done"]


def test_hand_over_waits_for_every_callback_and_iterator() -> None:
    order: list[str] = []

    async def slow(event: ChannelEvent) -> None:
        await asyncio.sleep(0.01)
        order.append("callback")

    async def scenario(subscriptions: Subscriptions) -> None:
        subscriptions.on(MessageReceivedEvent, slow)
        iterator = subscriptions.iterate(ChannelEvent)

        async def read() -> None:
            async for _ in iterator:
                order.append("taken")
                await asyncio.sleep(0.05)
                order.append("asks for the next")

        reader = asyncio.create_task(read())
        await subscriptions.hand_over(RECEIVED, is_ending)
        order.append("done")
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)

    run(scenario)
    assert order == ["taken", "callback", "asks for the next", "done"]


def test_hand_over_waits_for_somebody_to_listen() -> None:
    heard: list[ChannelEvent] = []

    async def scenario(subscriptions: Subscriptions) -> None:
        task = asyncio.create_task(subscriptions.hand_over(RECEIVED, is_ending))
        await asyncio.sleep(0.01)
        assert not task.done()
        subscriptions.on("message-received", heard.append)
        await asyncio.wait_for(task, 5)

    run(scenario)
    assert heard == [RECEIVED]


@pytest.mark.parametrize("how", ["break", "aclose"])
def test_an_iterator_that_leaves_holds_nothing_up(how: str) -> None:
    async def scenario(subscriptions: Subscriptions) -> None:
        async def read() -> None:
            iterator = subscriptions.iterate(ChannelEvent)
            async for _ in iterator:
                if how == "aclose":
                    await iterator.aclose()
                break

        reader = asyncio.create_task(read())
        await asyncio.sleep(0)
        task = asyncio.create_task(subscriptions.hand_over(RECEIVED, is_ending))
        await reader
        gc.collect()
        await asyncio.wait_for(task, 5)
        assert not subscriptions.wants(MessageReceivedEvent)

    run(scenario)


def test_iterators_end_with_the_channel_after_what_they_hold() -> None:
    async def main() -> list[ChannelEvent]:
        subscriptions = Subscriptions()
        task = asyncio.create_task(subscriptions.run_announcements(is_ending))
        iterator = subscriptions.iterate(ChannelEvent)
        subscriptions.announce(SENT)
        await subscriptions.await_announced(5)
        subscriptions.end()
        await task
        events = [event async for event in iterator]
        assert [event async for event in subscriptions.iterate(ChannelEvent)] == []
        return events

    assert asyncio.run(main()) == [SENT]


def test_a_slow_iterator_loses_cumulative_chunk_events_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwire.channel.observing.event_iterator.ANNOUNCEMENTS_MAX", 10)

    async def main() -> list[ChannelEvent]:
        subscriptions = Subscriptions()
        task = asyncio.create_task(subscriptions.run_announcements(is_ending))
        iterator = subscriptions.iterate(ChannelEvent)
        for number in range(40):
            subscriptions.announce(ChunkSentEvent("m", "r", ChunkInfo((number,), 40)))
            if number % 10 == 0:
                subscriptions.announce(MessageSentEvent(str(number), "m"))
        await subscriptions.await_announced(5)
        subscriptions.end()
        await task
        return [event async for event in iterator]

    events = asyncio.run(main())
    assert [event.request_id for event in events if isinstance(event, MessageSentEvent)] == ["0", "10", "20", "30"]
    chunks = [event for event in events if isinstance(event, ChunkSentEvent)]
    assert len(chunks) <= 11
    assert chunks[-1].chunk_info.chunks == (39,)


def test_strangers_crowd_out_no_outcome_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwire.channel.observing.event_iterator.ANNOUNCEMENTS_MAX", 10)

    async def main() -> list[ChannelEvent]:
        subscriptions = Subscriptions()
        task = asyncio.create_task(subscriptions.run_announcements(is_ending))
        iterator = subscriptions.iterate(ChannelEvent)
        for number in range(500):
            if number % 100 == 0:
                subscriptions.announce(MessageSentEvent(str(number), "m"))
            subscriptions.announce(IrretrievableMessageEvent(HistoryEntry(str(number))))
        await subscriptions.await_announced(5)
        subscriptions.end()
        await task
        return [event async for event in iterator]

    events = asyncio.run(main())
    assert len(events) <= 11
    assert [event.request_id for event in events if isinstance(event, MessageSentEvent)] == [
        "0",
        "100",
        "200",
        "300",
        "400",
    ]


def test_a_callback_that_hangs_holds_a_bounded_number_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunk events go first, then the oldest others: those count as not told."""
    monkeypatch.setattr("shardwire.channel.observing.event_iterator.ANNOUNCEMENTS_MAX", 10)
    heard: list[str] = []
    told: list[str] = []

    async def scenario(subscriptions: Subscriptions) -> None:
        go_on = asyncio.Event()

        async def hang(event: MessageSentEvent | ChunkSentEvent) -> None:
            await go_on.wait()
            heard.append(event.request_id)

        subscriptions.on(MessageSentEvent, hang)
        subscriptions.on(ChunkSentEvent, hang)
        for number in range(1_000):
            await asyncio.sleep(0)
            subscriptions.announce(ChunkSentEvent("ab", f"chunk {number}", ChunkInfo((0,), 1)))
            if number % 100 == 0:
                subscriptions.announce(MessageSentEvent(f"{number}", "ab"), partial(told.append, f"{number}"))
        go_on.set()
        await subscriptions.await_announced(5)
        assert (
            [name for name in heard if "chunk" not in name]
            == told
            == [f"{number}" for number in range(100, 1_000, 100)]
        )
        assert len(heard) <= 11
        go_on.clear()
        heard.clear()
        told.clear()
        for number in range(1_000):
            await asyncio.sleep(0)
            subscriptions.announce(MessageSentEvent(f"{number}", "ab"), partial(told.append, f"{number}"))
        go_on.set()
        await subscriptions.await_announced(5)
        assert heard == told
        assert heard[0] == "0"
        assert heard[-1] == "999"
        assert len(heard) <= 11

    run(scenario)


def test_a_listener_that_ends_while_it_is_asked_who_listens_is_not_remembered() -> None:
    """A garbage collection ends an iterator that nobody holds at any moment: here while a class is compared."""

    async def scenario(subscriptions: Subscriptions) -> None:
        class Ends(type):
            def __subclasscheck__(cls, subclass: type) -> bool:
                if subclass is MessageReceivedEvent:
                    iterators.clear()
                return True

        class Kind(metaclass=Ends):
            pass

        iterators = [subscriptions.iterate(Kind)]  # type: ignore[type-var]
        subscriptions.wants(MessageReceivedEvent)
        assert not subscriptions.wants(MessageReceivedEvent)

    run(scenario)


def test_who_begins_or_ends_to_listen_is_known_at_once() -> None:
    async def scenario(subscriptions: Subscriptions) -> None:
        assert not subscriptions.wants(MessageSentEvent)
        unsubscribe = subscriptions.on(MessageSentEvent, lambda event: None)
        assert subscriptions.wants(MessageSentEvent)
        assert not subscriptions.wants(MessageReceivedEvent)
        unsubscribe()
        assert not subscriptions.wants(MessageSentEvent)
        iterator = subscriptions.iterate(ChannelEvent)
        assert subscriptions.wants(MessageSentEvent)
        await iterator.aclose()
        assert not subscriptions.wants(MessageSentEvent)

    run(scenario)


def test_an_iterator_that_another_thread_collects_holds_nothing_up() -> None:
    class Circular(EventIterator[MessageReceivedEvent]):
        itself: object = None

    async def main() -> None:
        subscriptions = Subscriptions()
        iterator = Circular(subscriptions, MessageReceivedEvent)
        iterator.itself = iterator
        subscriptions._iterators.append(weakref.ref(iterator))
        handing = asyncio.create_task(subscriptions.hand_over(RECEIVED, is_ending))
        assert await anext(iterator) == RECEIVED
        del iterator
        await asyncio.to_thread(gc.collect)
        await asyncio.wait_for(handing, 5)

    gc.disable()
    try:
        # In debug mode a loop refuses what comes from another thread.
        asyncio.run(main(), debug=True)
    finally:
        gc.enable()
