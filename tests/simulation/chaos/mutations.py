"""Bugs, planted in the channel one at a time, that the checks must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from shardwire._native import ChangedRecords, ChannelMachine, OwnSends, SendProgress
from shardwire.channel.announcements import Announcements
from shardwire.channel.collected import Collected
from shardwire.channel.engine import Engine
from shardwire.channel.observing.subscriptions import Subscriptions
from shardwire.channel.storing.records import Records
from shardwire.errors import PersistenceError
from shardwire.events import ChunkErrorEvent, MessageSendErrorEvent
from tests.simulation.chaos.faults import Mount


@contextmanager
def commit_skipped() -> Iterator[None]:
    """A commit in four says that it stored, and did not."""
    commit = Mount.commit
    calls = 0

    def skip(self: Mount, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 4:
            commit(self, *arguments)

    with patch.object(Mount, "commit", skip):
        yield


@contextmanager
def withdrawn_for_all() -> Iterator[None]:
    """Whoever withdraws from a send that is shared takes it away from the others."""

    cancel, withdraw = ChannelMachine.cancel_request, ChannelMachine.withdraw_request

    def others(self: ChannelMachine, request_id: str) -> list[str]:
        progress = self.own_sends().of_request(request_id)
        return [] if progress is None else [shared for shared in progress.request_ids if shared != request_id]

    def cancel_all(self: ChannelMachine, request_id: str) -> Any:
        for shared_id in others(self, request_id):
            cancel(self, shared_id)
        return cancel(self, request_id)

    def withdraw_all(self: ChannelMachine, request_id: str) -> None:
        for shared_id in (*others(self, request_id), request_id):
            withdraw(self, shared_id)

    with (
        patch.object(ChannelMachine, "cancel_request", cancel_all),
        patch.object(ChannelMachine, "withdraw_request", withdraw_all),
    ):
        yield


@contextmanager
def attached_in_vain() -> Iterator[None]:
    """A request that shares a send is forgotten."""
    submit = ChannelMachine.submit

    def submit_new(
        self: ChannelMachine, send_id: str, request_id: str, *arguments: Any, **named: Any
    ) -> list[tuple[str, Exception | None]]:
        if send_id in self.own_sends():
            return [(request_id, None)]
        return submit(self, send_id, request_id, *arguments, **named)

    with patch.object(ChannelMachine, "submit", submit_new):
        yield


@contextmanager
def refused_and_kept() -> Iterator[None]:
    """A message that could not be stored is refused, and sent all the same."""

    def tell(self: Engine, collected: Collected, error: PersistenceError, now: Any) -> None:
        transmit_ids = [transmit.transmit_id for transmit in collected.transmits]
        self.machine.handle_commit_failed(transmit_ids, str(error), now)
        collected.on_commit_failed(error)

    with patch.object(Engine, "on_commit_failed", tell):
        yield


@contextmanager
def transmits_left_in_flight() -> Iterator[None]:
    """What a commit that failed or a stop holds back is never tried again."""
    with (
        patch.object(ChannelMachine, "handle_commit_failed", lambda self, transmit_ids, error, now: None),
        patch.object(ChannelMachine, "handle_stopped", lambda self, now: None),
    ):
        yield


@contextmanager
def told_forgotten() -> Iterator[None]:
    """That an outcome was told is not noted: the next life tells it again."""
    with patch.object(OwnSends, "on_announced", lambda self, send_id, outcome, request_id: None):
        yield


@contextmanager
def outcomes_not_kept() -> Iterator[None]:
    """What was not told before the end of a life is told never."""
    with patch.object(Announcements, "hold", lambda self, events: None):
        yield


@contextmanager
def cancelled_and_told() -> Iterator[None]:
    """What happened before a cancellation is told after it."""
    with patch.object(Subscriptions, "drop", lambda self, request_id: None):
        yield


@contextmanager
def cancelled_and_sent() -> Iterator[None]:
    """A cancelled message leaves all the same."""

    cancel = ChannelMachine.cancel_request

    def cancelled(self: ChannelMachine, request_id: str) -> tuple[bool, SendProgress] | None:
        send = self.own_sends().of_request(request_id)
        if send is None or send.sent or send.delivered or send.error_stage:
            return cancel(self, request_id)
        return True, send

    with patch.object(ChannelMachine, "cancel_request", cancelled):
        yield


@contextmanager
def handed_over_again() -> Iterator[None]:
    """A message that was handed over stays in the queue of the next life."""
    poll_persist = ChannelMachine.poll_persist
    kept = ("channel.delivery", "channel.payload", "channel.parts", "sds.message")

    def keep(self: ChannelMachine, beside: Records | None = None) -> ChangedRecords:
        changes = poll_persist(self, beside).to_dict()
        return ChangedRecords(
            {name: value for name, value in changes.items() if value is not None or name[0] not in kept}
        )

    with patch.object(ChannelMachine, "poll_persist", keep):
        yield


@contextmanager
def failure_untold() -> Iterator[None]:
    """A message that can never be sent ends without a word."""
    poll_events = OwnSends.poll_events

    def drop(self: OwnSends) -> list[Any]:
        return [
            (event, outcome)
            for event, outcome in poll_events(self)
            if not isinstance(event, MessageSendErrorEvent) or event.stage != "dispatch"
        ]

    with patch.object(OwnSends, "poll_events", drop):
        yield


@contextmanager
def ephemeral_untold() -> Iterator[None]:
    """An ephemeral message that failed ends without a word."""
    submit, poll_events = ChannelMachine.submit_ephemeral, OwnSends.poll_events
    ephemeral: set[str] = set()

    def remember(self: ChannelMachine, send_id: str, request_id: str, *arguments: Any) -> None:
        ephemeral.add(request_id)
        submit(self, send_id, request_id, *arguments)

    def drop(self: OwnSends) -> list[Any]:
        return [
            (event, outcome)
            for event, outcome in poll_events(self)
            if not isinstance(event, ChunkErrorEvent) or event.request_id not in ephemeral
        ]

    with patch.object(ChannelMachine, "submit_ephemeral", remember), patch.object(OwnSends, "poll_events", drop):
        yield


MUTATIONS: dict[str, tuple[Callable[[], AbstractContextManager[None]], frozenset[str]]] = {
    "commit skipped": (commit_skipped, frozenset({"none lost", "arrivals", "redelivered", "trouble"})),
    "withdrawn for all": (withdrawn_for_all, frozenset({"none lost"})),
    "attached in vain": (attached_in_vain, frozenset({"none lost"})),
    "refused and kept": (refused_and_kept, frozenset({"arrivals", "events"})),
    "transmits left in flight": (transmits_left_in_flight, frozenset({"none lost"})),
    "told forgotten": (told_forgotten, frozenset({"events"})),
    "outcomes not kept": (outcomes_not_kept, frozenset({"none lost"})),
    "cancelled and told": (cancelled_and_told, frozenset({"cancelled"})),
    "cancelled and sent": (cancelled_and_sent, frozenset({"cancelled", "arrivals"})),
    "handed over again": (handed_over_again, frozenset({"arrivals", "redelivered"})),
    "failure untold": (failure_untold, frozenset({"none lost"})),
    "ephemeral untold": (ephemeral_untold, frozenset({"ephemerals"})),
}
