"""What the engine tells of outcomes that the node said together: as if they had come one by one."""

from __future__ import annotations

import logging
from dataclasses import replace

from channel_machines import channel_machine
from sds_exchange import at

from shardwire.channel.engine import Engine
from shardwire.channel.limits.quota import Quota
from shardwire.channel.observing.timeline import Timeline
from shardwire.channel.sending.outcomes import DispatchFailed, DispatchOutcome, Propagated
from shardwire.config import ChannelConfig
from shardwire.events import ChannelEvent, MessageSendErrorEvent, MessageSentEvent
from shardwire.peer_log import PeerLog
from shardwire.sds import Now, Transmit
from shardwire.segmentation import segment

LOGOS = ChannelConfig.logos(repair="arq")
# The second failure of a node that a send waits for is its last.
CONFIG = replace(LOGOS, sds=replace(LOGOS.sds, max_retransmissions=1))
TIMEOUT_MS = CONFIG.sds.acknowledgement_timeout_ms
FIRST, SECOND = "a" * 32, "b" * 32


def new_engine() -> Engine:
    engine = Engine(
        channel_machine("alice", CONFIG),
        Quota(),
        Timeline("room", "alice", CONFIG.sds.wire_format),
        PeerLog(logging.getLogger("shardwire.test"), lambda: 0, ""),
        "alice",
        at(0),
        is_stored=False,
    )
    engine.active = True
    return engine


def send(engine: Engine, send_id: str) -> None:
    contents = segment(send_id.encode(), CONFIG.segmentation)
    engine.machine.submit(send_id, f"request {send_id}", "m", contents, data_count=1)


def transmits(engine: Engine, now: Now) -> dict[str | None, Transmit]:
    """What the node is handed, by send."""
    engine.handle_time(now)
    left = engine.poll_transmits(now)
    assert all(engine.machine.leave(transmit.transmit_id, now.monotonic_ms) for transmit in left)
    return {transmit.send_id: transmit for transmit in left}


def outcomes_of_two(engine: Engine) -> tuple[list[DispatchOutcome], Now]:
    """The first message left and goes again in vain; the second left just now."""
    send(engine, FIRST)
    engine.on_outcomes([Propagated(transmits(engine, at(0))[FIRST], b"hash")], at(0))
    now_ms = 0
    for _ in range(2):
        now_ms += 2 * TIMEOUT_MS
        again = transmits(engine, at(now_ms))[FIRST]
        if now_ms == 2 * TIMEOUT_MS:
            engine.machine.announce_failure()
            engine.on_outcomes([DispatchFailed(again, "down")], at(now_ms))
    send(engine, SECOND)
    second = transmits(engine, at(now_ms))[SECOND]
    engine.own_sends.poll_events()
    engine.machine.announce_failure()
    return [DispatchFailed(again, "down"), Propagated(second, b"hash")], at(now_ms)


def told(engine: Engine) -> list[ChannelEvent]:
    return [event for event, _ in engine.own_sends.poll_events()]


def test_what_a_failure_ends_is_told_before_what_became_of_the_next_message() -> None:
    one_by_one, together = new_engine(), new_engine()
    outcomes, now = outcomes_of_two(one_by_one)
    for outcome in outcomes:
        one_by_one.on_outcomes([outcome], now)
    together.on_outcomes(*outcomes_of_two(together))
    events = told(together)
    assert events == told(one_by_one)
    # Of each message its own stages are in order, and so are the two messages.
    ends = [event for event in events if isinstance(event, MessageSendErrorEvent | MessageSentEvent)]
    assert [(type(event), event.request_id) for event in ends] == [
        (MessageSendErrorEvent, f"request {FIRST}"),
        (MessageSentEvent, f"request {SECOND}"),
    ]
