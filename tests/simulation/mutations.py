"""Bugs, planted one at a time, that the checkers must find: a checker that finds nothing proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from shardwire._native import OwnSends
from shardwire.channel import creation
from shardwire.channel.arguments import ChannelArguments
from shardwire.channel.limits import limit
from shardwire.channel.observing.subscriptions import IsEnding, Subscriptions
from shardwire.events import MessageDeliveredEvent, MessageReceivedEvent, MessageSentEvent
from shardwire.persistence import Changes
from tests.simulation.disk import MountedDisk


@contextmanager
def persist_skipped() -> Iterator[None]:
    """A commit in three says that it wrote, and did not."""
    commit = MountedDisk.commit
    calls = 0

    def skip(self: MountedDisk, channel_id: str, changes: Changes) -> None:
        nonlocal calls
        calls += 1
        if calls % 3:
            commit(self, channel_id, changes)

    with patch.object(MountedDisk, "commit", skip):
        yield


@contextmanager
def acknowledgement_dropped() -> Iterator[None]:
    """Two messages in three that are delivered count as such for nobody."""
    poll_events = OwnSends.poll_events
    calls = 0

    def drop(self: OwnSends) -> list[Any]:
        nonlocal calls
        told = []
        for event, outcome in poll_events(self):
            calls += isinstance(event, MessageDeliveredEvent)
            if not isinstance(event, MessageDeliveredEvent) or calls % 3 == 0:
                told.append((event, outcome))
        return told

    with patch.object(OwnSends, "poll_events", drop):
        yield


@contextmanager
def count_doubled() -> Iterator[None]:
    """The rate limit takes the quota for twice what it is."""
    make = limit.SharedQuota

    def double(*, quota: int, **terms: Any) -> Any:
        return make(quota=2 * quota, **terms)

    with patch.object(limit, "SharedQuota", double):
        yield


@contextmanager
def delivered_early() -> Iterator[None]:
    """A message counts as delivered as soon as the network took it."""
    poll_events = OwnSends.poll_events

    def add(self: OwnSends) -> list[Any]:
        told: list[Any] = []
        for event, outcome in poll_events(self):
            told.append((event, outcome))
            if isinstance(event, MessageSentEvent):
                delivered = MessageDeliveredEvent(event.request_id, event.message_id, frozenset({"nobody"}))
                told.append((delivered, None))
        return told

    with patch.object(OwnSends, "poll_events", add):
        yield


@contextmanager
def order_swapped() -> Iterator[None]:
    """A message is handed over after the one that waits behind it."""
    hand_over = Subscriptions.hand_over
    held: dict[int, MessageReceivedEvent] = {}

    async def swap(self: Subscriptions, event: MessageReceivedEvent, is_ending: IsEnding) -> None:
        first = held.pop(id(self), None)
        if first is None:
            held[id(self)] = event
            return
        await hand_over(self, event, is_ending)
        await hand_over(self, first, is_ending)

    with patch.object(Subscriptions, "hand_over", swap):
        yield


@contextmanager
def table_unbounded() -> Iterator[None]:
    """The table of missing messages makes no room: what anybody names is tracked."""
    restore = creation._restore_machine

    def restore_large(arguments: ChannelArguments, *more: Any) -> Any:
        sds = replace(arguments.config.sds, missing_messages_max=1_000_000)
        return restore(replace(arguments, config=replace(arguments.config, sds=sds)), *more)

    with patch.object(creation, "_restore_machine", restore_large):
        yield


@contextmanager
def content_garbled() -> Iterator[None]:
    """One message in four is handed over with its last byte changed."""
    hand_over = Subscriptions.hand_over
    calls = 0

    async def garble(self: Subscriptions, event: MessageReceivedEvent, is_ending: IsEnding) -> None:
        nonlocal calls
        calls += 1
        if calls % 4 == 0:
            event = replace(event, message=event.message[:-1] + bytes((event.message[-1] ^ 1,)))
        await hand_over(self, event, is_ending)

    with patch.object(Subscriptions, "hand_over", garble):
        yield


# Each with the checkers of which one at least must find it.
MUTATIONS: dict[str, tuple[Callable[[], AbstractContextManager[None]], frozenset[str]]] = {
    "persist skipped": (
        persist_skipped,
        frozenset({"converged", "nothing twice", "outcomes", "intact", "rate", "alive"}),
    ),
    "acknowledgement dropped": (acknowledgement_dropped, frozenset({"outcomes", "idle"})),
    "count doubled": (count_doubled, frozenset({"rate"})),
    "delivered early": (delivered_early, frozenset({"outcomes"})),
    "order swapped": (order_swapped, frozenset({"causal order"})),
    "table unbounded": (table_unbounded, frozenset({"bounded"})),
    "content garbled": (content_garbled, frozenset({"intact"})),
}
