"""What commands tell of troubles and of outcomes that no network brings about on demand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from shardwire import HistoryEntry
from shardwire.channel.sending.pending import PendingSend
from shardwire.cli.network import participation, send
from shardwire.cli.network.interruption import InterruptedByUserError, Interruption
from shardwire.cli.network.output import Output
from shardwire.events import (
    ChannelEvent,
    IrretrievableMessageEvent,
    MessageDeliveredEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    NodeFailingEvent,
    SenderIdConflictEvent,
    WithinReachEvent,
)

KEPT = "it went with this process, as nothing is kept without --state"


class Channel:
    """A channel that a test tells what happens."""

    def __init__(self) -> None:
        self._callbacks: dict[type, Callable[[Any], None]] = {}
        self.waiting: list[PendingSend] = []
        self.happens: Callable[[], None] = lambda: None

    def on(self, kind: type, callback: Callable[[Any], None]) -> None:
        self._callbacks[kind] = callback

    def pending(self) -> list[PendingSend]:
        return self.waiting

    def tell(self, *events: ChannelEvent) -> None:
        for event in events:
            self._callbacks[type(event)](event)

    async def send(self, message: bytes) -> str:
        self.happens()
        return "ours"


@pytest.mark.parametrize(
    ("event", "told", "said"),
    [
        (
            WithinReachEvent(within_reach=False, in_store=3),
            [{"event": "within-reach", "within_reach": False, "in_store": 3}],
            "nobody is within reach: a store has 3 messages for them\n",
        ),
        (
            WithinReachEvent(within_reach=True, in_store=0),
            [{"event": "within-reach", "within_reach": True, "in_store": 0}],
            "",
        ),
        (
            NodeFailingEvent(failing=True, failures=2, error="no\x1broute"),
            [{"event": "node-failing", "failing": True, "error": "no\x1broute"}],
            "the network takes nothing: no\\x1broute; what waits is tried again\n",
        ),
        (
            NodeFailingEvent(failing=False, failures=0, error=""),
            [{"event": "node-failing", "failing": False, "error": ""}],
            "",
        ),
        (
            SenderIdConflictEvent("al\x1bice"),
            [{"event": "sender-id-conflict", "sender_id": "al\x1bice"}],
            "another participant calls itself al\\x1bice, too: choose another --sender\n",
        ),
        (
            IrretrievableMessageEvent(HistoryEntry("a")),
            [{"event": "irretrievable", "message_id": "a"}],
            "a message is missing, and nobody has given it so far; it is asked for again\n",
        ),
        (
            IrretrievableMessageEvent(HistoryEntry("a"), (HistoryEntry("b"),)),
            [{"event": "irretrievable", "message_id": name} for name in "ab"],
            "2 messages are missing, and nobody has given them so far; they are asked for again\n",
        ),
    ],
)
def test_troubles_are_told_to_scripts_and_to_people(
    event: ChannelEvent, told: list[dict[str, object]], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for as_json in (True, False):
        channel: Any = Channel()
        participation._tell_troubles(channel, Output(as_json=as_json))
        channel.tell(event)
    captured = capsys.readouterr()
    assert [json.loads(line) for line in captured.out.splitlines()] == told
    assert captured.err == said


def pending(request_id: str, *delivered_to: str, stored: bool = False) -> PendingSend:
    return PendingSend(request_id, "id", 3, 3, frozenset(delivered_to), True, stored)


def delivered(request_id: str) -> MessageDeliveredEvent:
    return MessageDeliveredEvent(request_id, "id", frozenset({"bob", "al\x1bice"}))


def failed(request_id: str) -> MessageSendErrorEvent:
    return MessageSendErrorEvent(request_id, "id", "too late", "delivery")


def sent(channel: Channel, monkeypatch: pytest.MonkeyPatch, interruption: Interruption) -> None:
    """Sends a message through it."""
    told_of: Any = SimpleNamespace(kept=KEPT)
    member = SimpleNamespace(
        channel=channel, output=Output(as_json=False), interruption=interruption, participation=told_of
    )

    @contextlib.asynccontextmanager
    async def taking_part(*_: object) -> AsyncIterator[SimpleNamespace]:
        yield member

    monkeypatch.setattr(send, "taking_part", taking_part)
    assert asyncio.run(send.send(told_of, interruption, b"x", until="delivered", timeout_s=1)) == 0


@pytest.mark.parametrize(
    ("events", "left", "reason"),
    [
        ((), [], "the message was not accepted within 1 s"),
        ((), [pending("ours", "bob")], f"only bob acknowledged the message within 1 s; {KEPT}"),
        (
            (),
            [pending("ours", stored=True)],
            f"nobody acknowledged the message within 1 s; a store has it for whoever is away; {KEPT}",
        ),
        ((failed("ours"),), [], "the message failed: too late"),
        # That it was sent is no receipt where one of the delivery is waited for, and neither is another's.
        (
            (MessageSentEvent("ours", "id"), delivered("other"), failed("other")),
            [pending("ours")],
            f"nobody acknowledged the message within 1 s; {KEPT}",
        ),
    ],
)
def test_a_message_without_a_receipt_is_told_of(
    events: tuple[ChannelEvent, ...], left: list[PendingSend], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = Channel()
    channel.happens = lambda: channel.tell(*events)
    channel.waiting = left
    with pytest.raises(send.NotDeliveredError) as raised:
        sent(channel, monkeypatch, Interruption())
    assert str(raised.value) == reason


def test_what_becomes_of_earlier_messages_is_told_beside_the_receipt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    channel = Channel()
    channel.waiting = [pending("earlier")]
    channel.happens = lambda: channel.tell(delivered("earlier"), failed("earlier"), delivered("ours"))
    sent(channel, monkeypatch, Interruption())
    captured = capsys.readouterr()
    assert captured.out.startswith("1 bytes delivered to al\\x1bice, bob in ")
    assert captured.err.splitlines() == [
        "an earlier message was delivered to al\\x1bice, bob",
        "an earlier message failed: too late",
    ]


def test_an_interruption_tells_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    channel, interruption = Channel(), Interruption()
    channel.happens = interruption.want
    channel.waiting = [pending("ours")]
    with pytest.raises(InterruptedByUserError):
        sent(channel, monkeypatch, interruption)
    assert capsys.readouterr().err == f"shardwire: nobody acknowledged the message before the interruption; {KEPT}\n"
