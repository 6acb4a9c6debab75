"""What the demo says at its end: a table, what did not hold, and what luck did not show."""

from __future__ import annotations

from rich.table import Table

from shardwire import keccak256
from shardwire.cli.demo.live import LiveResult
from shardwire.cli.demo.settings import LISTENER, RECEIVERS, SENDER, DemoPlan
from shardwire.cli.demo.spark_check import SparkMessage, SparkResult


def summary_table(live: LiveResult, spark: SparkResult, plan: DemoPlan, payload_hash: bytes) -> Table:
    """One row for each place that rebuilt the message."""
    table = Table(title="What came out", title_justify="left", title_style="bold")
    table.add_column("where", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for heading in ("data", "parity", "arrived", "recovered"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("Keccak-256", no_wrap=True)
    for name in RECEIVERS:
        received = live.received.get(name)
        table.add_row(
            name,
            "missing" if received is None else "received",
            str(plan.data_segment_count),
            str(plan.parity_segment_count),
            str(len(live.arrived(name))),
            str(len(live.segments(name, "recovered"))),
            _compared(None if received is None else keccak256(received), payload_hash),
        )
    for message in spark.messages:
        table.add_row(
            "Spark",
            message.status,
            str(message.data_segment_count),
            str(message.parity_segment_count),
            str(message.segments_received),
            str(message.data_segments_recovered),
            _compared(message.keccak256, payload_hash),
        )
    return table


def broken_promises(live: LiveResult, spark: SparkResult, plan: DemoPlan, payload: bytes) -> list[str]:
    """What did not hold, one phrase each; empty where everybody has every byte and says so."""
    broken = [
        f"{name} did not receive the file byte for byte" for name in RECEIVERS if live.received.get(name) != payload
    ]
    if live.sent_at_ms is None:
        broken.append("the event sent did not come")
    if live.delivered_at_ms is None or not live.delivered_to.issuperset(RECEIVERS):
        broken.append("the event delivered did not name both receivers")
    acknowledged = live.segments(SENDER, "acknowledged")
    if not acknowledged.issuperset(range(plan.data_segment_count)):
        broken.append("not every data segment was acknowledged")
    return broken + _broken_on_spark(spark, live, plan, payload)


def not_shown(live: LiveResult, spark: SparkResult) -> list[str]:
    """What this run did not happen to show, one phrase each: no fault, everybody has the file all the same."""
    missed = [f"{name} needed no parity" for name in RECEIVERS if not live.segments(name, "recovered")]
    if not any(message.data_segments_recovered for message in spark.messages):
        missed.append("Spark needed no parity")
    if live.epochs_crossed < 1:
        missed.append("the send fitted one epoch of the rate limit")
    return missed


def _broken_on_spark(spark: SparkResult, live: LiveResult, plan: DemoPlan, payload: bytes) -> list[str]:
    if len(spark.messages) != 1:
        return [f"Spark found {len(spark.messages)} messages in the archive, not 1"]
    [message] = spark.messages
    broken = []
    if not _is_whole(message, payload):
        broken.append(f"Spark did not reconstruct the file: {message.status}")
    elif message.data_segments_recovered != len(plan.missing_data(live.arrived(LISTENER))):
        broken.append("Spark recovered other data segments than the archive lacks")
    return broken


def _is_whole(message: SparkMessage, payload: bytes) -> bool:
    return message.keccak256 == keccak256(payload) and message.payload_length == len(payload)


def _compared(found: bytes | None, expected: bytes) -> str:
    if found is None:
        return "[red]none"
    return f"[green]{found.hex()[:8]}… equal" if found == expected else f"[red]{found.hex()[:8]}… differs"
