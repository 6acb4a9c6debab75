"""How a transport node publishes: order, retries, the minute it has to answer in, and what each answer means."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest
from scripted_transport import OnTime, ScriptedTransport
from virtual_nodes import TOPIC, virtual

from shardwire import NodeError
from shardwire.node import (
    ConnectionState,
    MessageEnvelope,
    MessagePropagated,
    MessageSendError,
    NodeEvent,
    VirtualClock,
)
from shardwire.node.clock import NANOSECONDS_PER_MS
from shardwire.node.event_stream import EventStream
from shardwire.node.transport import (
    Ambiguous,
    Answer,
    Passing,
    PassingUntil,
    Permanent,
    Restamp,
    TransportNode,
)
from shardwire.node.transport.outbox import ANSWER_TIMEOUT_MS, BYTES_MAX, MESSAGES_MAX, ROOM_TIMEOUT_S

Outcome = tuple[int, NodeEvent]


class Sending:
    """A node that sends, and what it tells, each with the time."""

    def __init__(self, transport: ScriptedTransport, node: TransportNode) -> None:
        self.transport, self.node = transport, node
        self.outcomes: list[Outcome] = []
        self._events = node.events()
        self._reader = asyncio.create_task(self._read(self._events))

    async def _read(self, events: EventStream) -> None:
        async for event in events:
            self.outcomes.append((self.transport.link.clock.monotonic_ms(), event))

    async def send(self, *payloads: bytes) -> list[str]:
        return [await self.node.send(MessageEnvelope(TOPIC, payload)) for payload in payloads]

    def attempts(self) -> list[tuple[int, bytes]]:
        return [(attempt.at_ms, attempt.payload) for attempt in self.transport.attempts]

    def errors(self) -> list[tuple[int, MessageSendError]]:
        return [(at_ms, event) for at_ms, event in self.outcomes if isinstance(event, MessageSendError)]

    def propagated(self) -> list[str]:
        return [event.request_id for _, event in self.outcomes if isinstance(event, MessagePropagated)]


async def sending(*answers: Answer | BaseException | int | tuple[int, Answer], publishes_at_once: int = 1) -> Sending:
    transport = ScriptedTransport(publishes_at_once=publishes_at_once)
    transport.answers.extend(answers)
    node = TransportNode(transport, rng=OnTime())
    await node.start()
    return Sending(transport, node)


@virtual
async def test_messages_leave_in_order() -> None:
    it = await sending(10, 10)
    ids = await it.send(b"1", b"2", b"3")
    await asyncio.sleep(1)
    assert it.attempts() == [(0, b"1"), (10, b"2"), (20, b"3")]
    assert it.propagated() == ids


@virtual
async def test_several_may_be_under_way_at_once() -> None:
    it = await sending(50, 50, publishes_at_once=2)
    await it.send(b"1", b"2", b"3")
    await asyncio.sleep(1)
    assert it.attempts() == [(0, b"1"), (0, b"2"), (50, b"3")]


def test_a_failure_is_tried_again_with_growing_back_off(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def run() -> None:
        it = await sending(*[Passing("no peers")] * 7)
        ids = await it.send(b"1", b"2", b"3")
        await asyncio.sleep(55)
        times = [at_ms for at_ms, _ in it.attempts()]
        assert times == [0, 500, 1_500, 3_500, 7_500, 15_500, 25_500, 35_500, 35_500, 35_500]
        # One that fails again lets the others try: it may be the message.
        tried = [payload for _, payload in it.attempts()]
        assert tried == [b"1", b"1", b"2", b"2", b"3", b"1", b"2", b"3", b"1", b"2"]
        assert sorted(it.propagated()) == sorted(ids)
        assert it.node.counts["publish_retries"] == 7
        # The next failure is a new one.
        it.transport.answers.extend([Passing("no peers")])
        await it.send(b"3")
        await asyncio.sleep(1)
        assert it.attempts()[-1] == (55_500, b"3")

    with caplog.at_level(logging.INFO, "shardwire.node.transport"):
        run()
    told = [record.getMessage() for record in caplog.records if "publishing" in record.getMessage()]
    assert told == [
        "scripted: publishing fails and is tried again: no peers",
        "scripted: publishing works again after 35500 ms",
        "scripted: publishing fails and is tried again: no peers",
        "scripted: publishing works again after 500 ms",
    ]


def test_what_is_early_is_told_and_nobody_is_warned_before_it_is_late(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def run() -> None:
        early = Passing("nobody is in reach", is_early=True)
        it = await sending(early, early, Passing("nobody is in reach"), Passing("nobody is in reach"))
        await it.send(b"1")
        await asyncio.sleep(30)
        # The next failure is told anew.
        it.transport.answers.extend([early])
        await it.send(b"2")
        await asyncio.sleep(1)

    with caplog.at_level(logging.INFO, "shardwire.node.transport"):
        run()
    levels = [record.levelname for record in caplog.records if "publishing fails" in record.getMessage()]
    assert levels == ["INFO", "WARNING", "INFO"]


@virtual
async def test_a_connection_that_comes_back_ends_the_pause() -> None:
    it = await sending(*[Passing("refused")] * 6)
    await it.send(b"1")
    await asyncio.sleep(10)
    assert it.attempts()[-1][0] == 7_500
    it.transport.answers.clear()
    it.transport.link.connection(ConnectionState.DISCONNECTED)
    it.transport.link.connection(ConnectionState.PARTIALLY_CONNECTED)
    await asyncio.sleep(1)
    assert it.attempts()[-1][0] == 10_000


@virtual
async def test_failures_of_attempts_under_way_together_count_once() -> None:
    it = await sending(*[(10, Passing("no peers"))] * 4, publishes_at_once=4)
    await it.send(*[bytes([n]) for n in range(6)])
    await asyncio.sleep(2)
    assert [at_ms for at_ms, _ in it.attempts()] == [0] * 4 + [510] * 6
    # Back in their order.
    assert [payload[0] for _, payload in it.attempts()[4:]] == [0, 1, 2, 3, 4, 5]


def test_an_attempt_that_began_before_another_succeeded_tells_nothing_new(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def run() -> None:
        it = await sending((5_000, Passing("no peers")), 100, publishes_at_once=2)
        ids = await it.send(b"1", b"2")
        await asyncio.sleep(5.01)
        assert it.attempts() == [(0, b"1"), (0, b"2"), (5_000, b"1")]
        assert it.propagated() == ids[::-1]

    with caplog.at_level(logging.WARNING, "shardwire.node.transport.outbox"):
        run()
    assert [record for record in caplog.records if "publishing" in record.getMessage()] == []


@virtual
async def test_what_is_not_published_in_its_minute_fails() -> None:
    it = await sending(*[Passing("no peers")] * 99)
    first, second = await it.send(b"1", b"2")
    await asyncio.sleep(60)
    (first_ms, first_error), (second_ms, second_error) = it.errors()
    assert (first_ms, second_ms) == (ANSWER_TIMEOUT_MS, ANSWER_TIMEOUT_MS)
    assert (first_error.request_id, second_error.request_id) == (first, second)
    assert (first_error.permanent, first_error.retry_after_ms) == (False, None)
    assert first_error.error == "not published within 55000 ms: no peers"
    attempts = len(it.attempts())
    await asyncio.sleep(60)
    assert len(it.attempts()) == attempts


@virtual
async def test_a_slow_network_that_takes_them_in_turn_fails_none() -> None:
    # Each takes 9 s: the last leaves after three minutes.
    it = await sending(*[9_000] * 20)
    ids = await it.send(*[bytes([n]) for n in range(20)])
    await asyncio.sleep(200)
    assert it.propagated() == ids
    assert it.errors() == []


@virtual
async def test_a_message_that_fails_while_later_ones_leave_has_one_minute() -> None:
    class Picky(ScriptedTransport):
        async def publish(self, message):  # type: ignore[no-untyped-def]
            answer = await super().publish(message)
            return Passing("not this one") if message.envelope.payload == b"bad" else answer

    transport = Picky()
    node = TransportNode(transport, rng=OnTime())
    await node.start()
    it = Sending(transport, node)
    (bad,) = await it.send(b"bad")
    for _ in range(80):
        await it.send(b"good")
        await asyncio.sleep(1)
    ((at_ms, error),) = it.errors()
    assert (error.request_id, error.error) == (bad, "not published within 55000 ms: not this one")
    assert at_ms == ANSWER_TIMEOUT_MS
    assert len(it.propagated()) == 80


@virtual
async def test_a_permanent_error_is_told_at_once_and_holds_up_nobody() -> None:
    it = await sending(Permanent("too large"))
    first, second = await it.send(b"1", b"2")
    await asyncio.sleep(1)
    ((at_ms, error),) = it.errors()
    assert (at_ms, error.request_id, error.error, error.permanent) == (0, first, "too large", True)
    assert it.attempts() == [(0, b"1"), (0, b"2")]
    assert it.propagated() == [second]


@virtual
async def test_a_short_quota_is_waited_for() -> None:
    it = await sending(PassingUntil("nonce limit reached", 20_000))
    ids = await it.send(b"1", b"2")
    await asyncio.sleep(30)
    assert it.attempts() == [(0, b"1"), (20_000, b"1"), (20_000, b"2")]
    assert it.propagated() == ids
    assert it.errors() == []


@virtual
async def test_a_long_quota_is_told_with_its_end() -> None:
    it = await sending(PassingUntil("nonce limit reached", 600_000))
    early = await it.send(b"1", b"2")
    await asyncio.sleep(100)
    (late,) = await it.send(b"3")
    await asyncio.sleep(460)
    # From here on the end of the quota is within a message's minute.
    (soon,) = await it.send(b"4")
    await asyncio.sleep(60)
    told = [(at_ms, error.request_id, error.retry_after_ms) for at_ms, error in it.errors()]
    assert told == [(0, early[0], 600_000), (0, early[1], 600_000), (100_000, late, 500_000)]
    assert it.propagated() == [soon]
    assert it.attempts() == [(0, b"1"), (600_000, b"4")]


@virtual
async def test_a_quota_of_no_time_is_no_loop() -> None:
    it = await sending(*[PassingUntil("odd", 0)] * 3)
    await it.send(b"1")
    await asyncio.sleep(10)
    assert [at_ms for at_ms, _ in it.attempts()] == [0, 500, 1_000, 1_500]


def test_a_quota_that_the_server_tells_by_itself_holds_everything(caplog: pytest.LogCaptureFixture) -> None:
    @virtual
    async def run() -> None:
        it = await sending()
        it.transport.link.hold(10_000, "quota used up")
        it.transport.link.connection(ConnectionState.DISCONNECTED)
        it.transport.link.connection(ConnectionState.CONNECTED)
        await it.send(b"1", b"2")
        await asyncio.sleep(30)
        assert it.attempts() == [(10_000, b"1"), (10_000, b"2")]

    with caplog.at_level(logging.WARNING, "shardwire.node.transport.outbox"):
        run()
    told = [record.getMessage() for record in caplog.records if record.name.endswith("outbox")]
    assert told == ["scripted: nothing is published for 10000 ms: quota used up"]


def stamps(it: Sending) -> list[tuple[int, int]]:
    """When each attempt was made, and how old its stamp was."""
    clock = it.transport.link.clock
    origin_ms = clock.epoch_ms() - clock.monotonic_ms()
    return [
        (attempt.at_ms, attempt.at_ms + origin_ms - attempt.timestamp_ns // NANOSECONDS_PER_MS)
        for attempt in it.transport.attempts
    ]


@virtual
async def test_an_ambiguous_attempt_is_repeated_with_the_same_bytes_while_they_are_fresh() -> None:
    it = await sending(*[Ambiguous("connection reset")] * 5)
    await it.send(b"1")
    await asyncio.sleep(60)
    assert stamps(it) == [(0, 0), (500, 500), (1_500, 1_500), (3_500, 3_500), (7_500, 0), (15_500, 0)]
    assert [attempt.may_have_left for attempt in it.transport.attempts] == [False, True, True, True, False, False]
    assert len({attempt.message_hash for attempt in it.transport.attempts}) == 3


@virtual
async def test_an_attempt_that_hangs_is_ambiguous() -> None:
    it = await sending(3_600_000)
    ids = await it.send(b"1", b"2")
    await asyncio.sleep(60)
    # After 10 s the stamp is no longer fresh.
    assert stamps(it)[:2] == [(0, 0), (10_500, 0)]
    assert it.propagated() == ids


@pytest.mark.parametrize("raised", [ValueError("bug"), TimeoutError(), asyncio.CancelledError()])
def test_a_transport_that_raises_is_tried_again(raised: BaseException) -> None:
    @virtual
    async def run() -> None:
        it = await sending(raised)
        ids = await it.send(b"1")
        await asyncio.sleep(1)
        assert it.propagated() == ids
        assert [attempt.may_have_left for attempt in it.transport.attempts] == [False, True]

    run()


@virtual
async def test_a_stamp_that_is_refused_is_renewed() -> None:
    it = await sending(Restamp("stale proof"), Restamp("stale proof"))
    await it.send(b"1")
    await asyncio.sleep(10)
    assert stamps(it) == [(0, 0), (500, 0), (1_500, 0)]


@virtual
async def test_a_stamp_that_is_refused_too_often_is_permanent() -> None:
    it = await sending(*[Restamp("RLN: node clock or membership", 5)] * 5)
    (first,) = await it.send(b"1")
    await asyncio.sleep(30)
    (second,) = await it.send(b"2")
    await asyncio.sleep(1)
    ((_, error),) = it.errors()
    assert (error.request_id, error.permanent, error.error) == (first, True, "RLN: node clock or membership")
    assert [payload for _, payload in it.attempts()] == [b"1"] * 5 + [b"2"]
    assert it.propagated() == [second]


@virtual
async def test_stamps_never_repeat_and_follow_a_clock_that_is_set_back() -> None:
    it = await sending()
    clock = it.transport.link.clock
    assert isinstance(clock, VirtualClock)
    start_ns = clock.epoch_ns()
    await it.send(b"same", b"same", b"same")
    await asyncio.sleep(1)
    clock.step(-4_000)
    await it.send(b"same")
    await asyncio.sleep(0.001)
    clock.step(-60_000)
    await it.send(b"same")
    await asyncio.sleep(1)
    told = [attempt.timestamp_ns - start_ns for attempt in it.transport.attempts]
    assert told == [0, 1, 2, 3, -62_999 * NANOSECONDS_PER_MS]
    assert len({attempt.message_hash for attempt in it.transport.attempts}) == 5


@virtual
async def test_an_outbox_has_limits() -> None:
    it = await sending(*[Passing("no peers")] * 50)
    await it.send(*[b""] * MESSAGES_MAX)
    await asyncio.sleep(35)
    waiting = [asyncio.create_task(it.send(payload)) for payload in (b"first", b"second")]
    await asyncio.sleep(15)
    assert not any(task.done() for task in waiting)
    await asyncio.sleep(10)
    # As soon as some are answered for, and in order.
    assert len(it.errors()) == MESSAGES_MAX
    assert [int(task.result()[0].rpartition(" ")[2]) for task in waiting] == [MESSAGES_MAX + 1, MESSAGES_MAX + 2]
    it.transport.answers.extend([Passing("no peers")] * 50)
    large: Sequence[bytes] = [bytes(149_000)] * (BYTES_MAX // 149_000)
    outbox = it.node._running.outbox  # type: ignore[union-attr]
    await it.send(*large[: MESSAGES_MAX - 3])
    outbox._bytes = BYTES_MAX - 10
    too_much = asyncio.create_task(it.send(bytes(11)))
    await asyncio.sleep(ROOM_TIMEOUT_S - 1)
    assert not too_much.done()
    await asyncio.sleep(2)
    with pytest.raises(NodeError, match="268435446 bytes wait in scripted already"):
        await too_much
    too_much = asyncio.create_task(it.send(bytes(11)))
    await asyncio.sleep(1)
    await it.node.stop()
    with pytest.raises(NodeError, match="was stopped"):
        await too_much


@virtual
async def test_a_message_that_became_too_large_is_not_tried() -> None:
    it = await sending(Passing("busy"))
    (request_id,) = await it.send(bytes(500))
    await asyncio.sleep(0.1)
    it.transport.link.max_message_size_bytes = 400
    await asyncio.sleep(1)
    ((_, error),) = it.errors()
    assert (error.request_id, error.permanent) == (request_id, True)
    assert "the node carries 400" in error.error
    assert len(it.attempts()) == 1
