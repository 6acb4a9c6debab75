"""What the demo concludes from a run: the fates in the picture, and every broken promise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shardwire import ChannelConfig, keccak256
from shardwire.channel import SegmentObservation
from shardwire.cli.demo.live import LiveResult
from shardwire.cli.demo.picture import Attempt, attempts, draw_picture
from shardwire.cli.demo.report import broken_promises, summary_table
from shardwire.cli.demo.settings import DemoPlan
from shardwire.cli.demo.spark_check import SparkMessage, SparkResult

PAYLOAD = b"payload"
PLAN = DemoPlan(ChannelConfig.logos(), data_segment_count=3, parity_segment_count=2)
START_MS = 1_800_000_000_000


def seen(stage: str, ordinal: int, at_ms: int, participant: str = "alice", attempt: int = 0) -> SegmentObservation:
    return SegmentObservation(stage, "send", ordinal, participant, START_MS + at_ms, attempt)  # type: ignore[arg-type]


def a_run() -> LiveResult:
    """Segment 0 arrives everywhere; 1 is lost and comes again; 2 comes back through parity; 3 and 4 are parity."""
    sent = [seen("dispatched", ordinal, 10 * ordinal) for ordinal in range(4)]
    sent += [seen("dispatched", 4, 5_100), seen("dispatched", 1, 5_200, attempt=1)]
    sent += [seen("acknowledged", ordinal, 6_000, name) for ordinal in range(3) for name in ("bob", "carol")]
    got = [seen("received", 0, 30), seen("received", 3, 60), seen("received", 1, 5_230)]
    got.append(seen("recovered", 2, 5_231))
    return LiveResult(
        request_id="send",
        observations={"alice": sent, "bob": list(got), "carol": list(got)},
        received={"bob": PAYLOAD, "carol": PAYLOAD},
        sent_at_ms=START_MS + 5_300,
        delivered_at_ms=START_MS + 6_000,
        delivered_to=frozenset({"bob", "carol"}),
        began_at_ms=START_MS,
        network_losses={"bob": 2, "carol": 2, "listener": 1},
        archived_rows=5,
        seconds=6.5,
    )


def spark_answer(**changes: object) -> SparkResult:
    message = SparkMessage(keccak256(PAYLOAD), "recovered", 3, 2, 4, 1, len(PAYLOAD), keccak256(PAYLOAD))
    return SparkResult((replace(message, **changes),), 20.0, 8.0)  # type: ignore[arg-type]


HEARD = {0: [START_MS], 1: [START_MS + 10], 3: [START_MS + 30], 4: [START_MS + 5_100]}


def test_a_run_that_kept_every_promise() -> None:
    assert broken_promises(a_run(), spark_answer(), PLAN, HEARD, PAYLOAD) == []


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda live: live.received.update(bob=b"other"), "bob did not receive"),
        (lambda live: live.received.pop("carol"), "carol did not receive"),
        (lambda live: setattr(live, "sent_at_ms", None), "event sent"),
        (lambda live: setattr(live, "delivered_at_ms", None), "event delivered"),
        (lambda live: setattr(live, "delivered_to", frozenset({"bob"})), "event delivered"),
        (lambda live: [live.observations[name].pop() for name in ("bob", "carol")], "parity in the channel"),
        (lambda live: setattr(live, "observations", {**live.observations, "alice": []}), "no epoch"),
    ],
)
def test_what_breaks_in_the_channel_is_told(spoil: Callable[[LiveResult], object], complaint: str) -> None:
    live = a_run()
    spoil(live)
    assert any(complaint in phrase for phrase in broken_promises(live, spark_answer(), PLAN, HEARD, PAYLOAD))


@pytest.mark.parametrize(
    ("spark", "heard", "complaint"),
    [
        (SparkResult((), 1.0, 1.0), HEARD, "Spark found 0 messages"),
        (spark_answer(status="incomplete", keccak256=None, payload_length=None), HEARD, "did not reconstruct"),
        (spark_answer(keccak256=bytes(32)), HEARD, "did not reconstruct"),
        (spark_answer(status="complete"), HEARD, "no data segment came back through parity in Spark"),
        (spark_answer(data_segments_recovered=0), HEARD, "no data segment came back through parity in Spark"),
        (spark_answer(), {0: [], 1: [], 2: []}, "other data segments than the archive lacks"),
    ],
)
def test_what_breaks_on_spark_is_told(spark: SparkResult, heard: dict[int, list[int]], complaint: str) -> None:
    assert any(complaint in phrase for phrase in broken_promises(a_run(), spark, PLAN, heard, PAYLOAD))


def test_attempts_before_the_one_that_arrived_were_lost() -> None:
    fates = attempts(a_run(), "bob")
    assert {(one.ordinal, one.attempt): one.arrived for one in fates} == {
        (0, 0): True,
        (1, 0): False,
        (1, 1): True,
        (2, 0): False,
        (3, 0): True,
        (4, 0): False,
    }
    assert Attempt(1, START_MS + 5_200, 1, True) in fates


def test_a_run_is_measured() -> None:
    live = a_run()
    assert live.retransmissions == 1
    assert live.epochs_crossed == 1
    assert live.ordinals("bob", "recovered") == {2}


def test_table_has_a_row_for_each_place() -> None:
    table = summary_table(a_run(), spark_answer(), PLAN, keccak256(PAYLOAD))
    assert table.row_count == 3


def test_picture_is_a_png(tmp_path: Path) -> None:
    picture = tmp_path / "demo.png"
    draw_picture(a_run(), PLAN, HEARD, 8_000_000, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
