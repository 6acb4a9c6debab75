"""What the demo concludes from a run: the fates in the picture, and every broken promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shardwire import ChannelConfig, keccak256
from shardwire._native import SdsMessage
from shardwire.channel import SegmentObservation
from shardwire.cli.demo.live import LiveResult
from shardwire.cli.demo.picture import draw_picture
from shardwire.cli.demo.report import broken_promises, not_shown, summary_table
from shardwire.cli.demo.settings import CHANNEL_ID, DemoPlan
from shardwire.cli.demo.spark_check import SparkMessage, SparkResult
from shardwire.cli.demo.transmissions import Transmission, segment_transmissions
from shardwire.encryption import ChaCha20Poly1305Encryption
from shardwire.node import TraceRecord
from shardwire.node.trace import Outcome, ReceiverOutcome

PAYLOAD = b"payload"
PLAN = DemoPlan(ChannelConfig.logos(), data_segment_count=3, parity_segment_count=2)
START_MS = 1_800_000_000_000


def seen(stage: str, ordinal: int, at_ms: int, participant: str = "alice", attempt: int = 0) -> SegmentObservation:
    return SegmentObservation(stage, "send", ordinal, participant, START_MS + at_ms, attempt)  # type: ignore[arg-type]


BOTH = frozenset({"bob", "carol"})


def a_run() -> LiveResult:
    """Segment 0 arrives everywhere; 1 is lost and comes again; 2 comes back through parity; 3 and 4 are parity."""
    sent = [seen("dispatched", ordinal, 10 * ordinal) for ordinal in range(4)]
    sent += [seen("acknowledged", ordinal, 6_000, name) for ordinal in range(3) for name in ("bob", "carol")]
    got = [seen("received", 0, 30), seen("received", 3, 60), seen("received", 1, 5_230)]
    got.append(seen("recovered", 2, 5_231))
    return LiveResult(
        request_id="send",
        transmissions=(
            Transmission(0, START_MS, 0, BOTH | {"listener"}),
            Transmission(1, START_MS + 10, 0, frozenset({"listener"})),
            Transmission(2, START_MS + 20, 0, frozenset()),
            Transmission(3, START_MS + 30, 0, BOTH | {"listener"}),
            Transmission(4, START_MS + 5_100, 0, frozenset({"listener"})),
            Transmission(1, START_MS + 5_200, 1, BOTH),
        ),
        observations={"alice": sent, "bob": list(got), "carol": list(got)},
        received={"bob": PAYLOAD, "carol": PAYLOAD},
        sent_at_ms=START_MS + 5_300,
        delivered_at_ms=START_MS + 6_000,
        delivered_to=BOTH,
        began_at_ms=START_MS,
        archived_rows=5,
        seconds=6.5,
    )


def spark_answer(**changes: object) -> SparkResult:
    message = SparkMessage(keccak256(PAYLOAD), "recovered", 3, 2, 4, 1, len(PAYLOAD), keccak256(PAYLOAD))
    return SparkResult((replace(message, **changes),), 20.0, 8.0)  # type: ignore[arg-type]


def test_a_run_that_kept_every_promise() -> None:
    assert broken_promises(a_run(), spark_answer(), PLAN, PAYLOAD) == []


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda live: live.received.update(bob=b"other"), "bob did not receive"),
        (lambda live: live.received.pop("carol"), "carol did not receive"),
        (lambda live: setattr(live, "sent_at_ms", None), "event sent"),
        (lambda live: setattr(live, "delivered_at_ms", None), "event delivered"),
        (lambda live: setattr(live, "delivered_to", frozenset({"bob"})), "event delivered"),
        (lambda live: setattr(live, "observations", {**live.observations, "alice": []}), "was acknowledged"),
    ],
)
def test_what_breaks_in_the_channel_is_told(spoil: Callable[[LiveResult], object], complaint: str) -> None:
    live = a_run()
    spoil(live)
    assert any(complaint in phrase for phrase in broken_promises(live, spark_answer(), PLAN, PAYLOAD))


@pytest.mark.parametrize(
    ("spark", "complaint"),
    [
        (SparkResult((), 1.0, 1.0), "Spark found 0 messages"),
        (spark_answer(status="incomplete", keccak256=None, payload_length=None), "did not reconstruct"),
        (spark_answer(keccak256=bytes(32)), "did not reconstruct"),
        (spark_answer(status="complete", data_segments_recovered=0), "other data segments than the archive lacks"),
        (spark_answer(data_segments_recovered=2), "other data segments than the archive lacks"),
    ],
)
def test_what_breaks_on_spark_is_told(spark: SparkResult, complaint: str) -> None:
    assert any(complaint in phrase for phrase in broken_promises(a_run(), spark, PLAN, PAYLOAD))


@pytest.mark.parametrize(
    ("spoil", "remark"),
    [
        (lambda live: live.observations["bob"].pop(), "bob needed no parity"),
        (lambda live: live.observations["carol"].pop(), "carol needed no parity"),
        (lambda live: setattr(live, "transmissions", live.transmissions[:4]), "one epoch"),
    ],
)
def test_what_luck_did_not_show_is_no_failure(spoil: Callable[[LiveResult], object], remark: str) -> None:
    live = a_run()
    assert not_shown(live, spark_answer()) == []
    spoil(live)
    assert broken_promises(live, spark_answer(), PLAN, PAYLOAD) == []
    [phrase] = not_shown(live, spark_answer())
    assert remark in phrase


def test_an_archive_that_lacks_nothing_is_no_failure() -> None:
    live = a_run()
    everywhere = tuple(replace(one, arrived=BOTH | {"listener"}) for one in live.transmissions)
    live = replace(live, transmissions=everywhere)
    spark = spark_answer(status="complete", data_segments_recovered=0)
    assert broken_promises(live, spark, PLAN, PAYLOAD) == []
    assert not_shown(live, spark) == ["Spark needed no parity"]


def test_transmissions_are_read_from_the_trace_of_the_network() -> None:
    encryption = ChaCha20Poly1305Encryption(bytes(32))
    bound = encryption.bind(CHANNEL_ID)

    def record(message_id: str, at_ms: int, **outcomes: Outcome) -> TraceRecord:
        message = SdsMessage(sender_id="alice", message_id=message_id, channel_id=CHANNEL_ID, content=b"segment")
        fates = tuple(ReceiverOutcome(name, outcome) for name, outcome in outcomes.items())
        payload = bound.encrypt(message.encode())
        return TraceRecord(at_ms * 1_000_000, "alice", "1", bytes(32), 0, "", 0, False, False, fates, payload)

    trace = [
        record("send.0", 10, bob="delivered", carol="lost"),
        record("send.12", 20, bob="duplicated", carol="offline"),
        record("other.0", 30, bob="delivered"),
        record("acknowledgement", 40, bob="delivered"),
        record("send.0", 50, bob="lost", carol="delivered"),
    ]
    assert segment_transmissions(trace, encryption, "send") == (
        Transmission(0, 10, 0, frozenset({"bob"})),
        Transmission(12, 20, 0, frozenset({"bob"})),
        Transmission(0, 50, 1, frozenset({"carol"})),
    )


def test_a_run_is_measured() -> None:
    live = a_run()
    assert live.retransmissions == 1
    assert live.epochs_crossed == 1
    assert live.segments("bob", "recovered") == {2}
    assert live.arrived("bob") == {0, 1, 3}
    assert live.lost("bob") == 3
    assert LiveResult().epochs_crossed == 0


def test_table_has_a_row_for_each_place() -> None:
    table = summary_table(a_run(), spark_answer(), PLAN, keccak256(PAYLOAD))
    assert table.row_count == 3


def test_picture_is_a_png(tmp_path: Path) -> None:
    picture = tmp_path / "demo.png"
    draw_picture(a_run(), PLAN, 8_000_000, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
