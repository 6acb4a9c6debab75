"""The picture of a live run: when each segment was sent, lost, retransmitted, recovered and acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from shardwire.cli.demo.live import LiveResult
from shardwire.cli.demo.settings import CONDITIONS, EPOCH_SIZE_MS, LISTENER, RECEIVERS, SENDER, DemoPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The passive listener and Spark see nothing before the archive is complete.
ARCHIVE_PANEL = "passive listener, then Spark"

ARRIVED_COLOUR = "#3b6fb6"
LOST_COLOUR = "#d1495b"
LOST_AGAIN_COLOUR = "#8c5a00"
RETRANSMITTED_COLOUR = "#ef8a17"
RECOVERED_COLOUR = "#1b998b"
ACKNOWLEDGED_COLOUR = "#6c757d"
WAIT_COLOUR = "#d9dee5"
PARITY_COLOUR = "#f5f1e6"
SPARK_COLOUR = "#e3f3f0"
RECOVERED_PATH_COLOUR = "#bfe3dc"


def draw_picture(live: LiveResult, plan: DemoPlan, payload_bytes: int, output: Path) -> None:
    """Writes the picture as PNG.

    Args:
        live: The run.
        plan: How the file was sent.
        payload_bytes: Size of the file.
        output: The PNG file.
    """
    # No window system, and nothing of this process's other figures.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 8.6), dpi=120, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(RECEIVERS) + 1, sharey=True)
    end_s = max(_seconds(live, (seen.at_ms for seen in live.observations[SENDER])), default=1.0) * 1.04 + 0.2
    for panel, receiver in zip(axes, RECEIVERS, strict=False):
        recovered = len(live.segments(receiver, "recovered"))
        _draw_frame(panel, live, plan, end_s, f"{receiver}: {recovered} data segments recovered through parity")
        _draw_participant(panel, live, receiver)
    missing = plan.missing_data(live.arrived(LISTENER))
    _draw_frame(axes[-1], live, plan, end_s, f"{ARCHIVE_PANEL}: {len(missing)} recovered")
    _draw_archive(axes[-1], live, missing, end_s)
    axes[0].set_ylabel("segment", fontsize=11)
    counts = f"{plan.data_segment_count} data and {plan.parity_segment_count} parity segments"
    title = (
        f"{payload_bytes / 1e6:.1f} MB as {counts}; the network loses {CONDITIONS.loss:.0%} on the way to each receiver"
    )
    figure.suptitle(title, fontsize=15, fontweight="bold", x=0.04, ha="left", y=0.975)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False, fontsize=10.5, markerscale=1.6)
    figure.subplots_adjust(left=0.04, right=0.99, top=0.885, bottom=0.125, wspace=0.04)
    figure.savefig(output, format="png")


def _seconds(live: LiveResult, times_ms: Iterable[int]) -> list[float]:
    return [(at_ms - live.began_at_ms) / 1_000 for at_ms in times_ms]


def _draw_frame(panel: Axes, live: LiveResult, plan: DemoPlan, end_s: float, title: str) -> None:
    panel.set_title(title, fontsize=12, loc="left", pad=18)
    panel.set_xlim(-0.25, end_s)
    panel.set_ylim(plan.segment_count + 0.5, -1.5)
    panel.set_xlabel("seconds since send()", fontsize=11)
    panel.axhspan(plan.data_segment_count - 0.5, plan.segment_count + 0.5, color=PARITY_COLOUR, zorder=0)
    for text, y in (("data", plan.data_segment_count - 1), ("parity", plan.segment_count)):
        panel.text(0.02 * end_s, y, text, ha="left", va="bottom", fontsize=10, color="#8a8372", style="italic")
    boundary_ms = (live.began_at_ms // EPOCH_SIZE_MS + 1) * EPOCH_SIZE_MS
    while (boundary_ms - live.began_at_ms) / 1_000 < end_s:
        [at_s] = _seconds(live, [boundary_ms])
        panel.axvline(at_s, color="#9aa3ad", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        if at_s < 0.94 * end_s:
            panel.text(at_s, -2.2, "new epoch", fontsize=8.5, color="#6c757d", ha="center", va="bottom", clip_on=False)
        boundary_ms += EPOCH_SIZE_MS
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    panel.tick_params(length=3, labelsize=9.5)


def _draw_transmissions(panel: Axes, live: LiveResult, receiver: str) -> None:
    groups = (
        (False, True, "o", 13, ARRIVED_COLOUR, "sent, arrived"),
        (False, False, "x", 20, LOST_COLOUR, "sent, lost"),
        (True, True, ">", 24, RETRANSMITTED_COLOUR, "retransmitted, arrived"),
        (True, False, "x", 20, LOST_AGAIN_COLOUR, "retransmitted, lost"),
    )
    for again, arrived, marker, size, colour, label in groups:
        group = [
            one for one in live.transmissions if (one.attempt > 0) == again and (receiver in one.arrived) == arrived
        ]
        panel.scatter(
            _seconds(live, (one.at_ms for one in group)),
            [one.ordinal for one in group],
            marker=marker,
            s=size,
            color=colour,
            linewidths=1.3 if marker == "x" else 0,
            label=label,
            zorder=4,
        )


def _draw_participant(panel: Axes, live: LiveResult, receiver: str) -> None:
    first_ms = {one.ordinal: one.at_ms for one in live.transmissions if not one.attempt}
    recovered_ms = {one.ordinal: one.at_ms for one in live.observations[receiver] if one.stage == "recovered"}
    acknowledged_ms: dict[int, int] = {}
    for seen in live.observations[SENDER]:
        if seen.stage == "acknowledged" and seen.participant == receiver:
            acknowledged_ms.setdefault(seen.ordinal, seen.at_ms)
    for times_ms, colour, width in ((acknowledged_ms, WAIT_COLOUR, 1.0), (recovered_ms, RECOVERED_PATH_COLOUR, 1.6)):
        ordinals = [ordinal for ordinal in times_ms if ordinal in first_ms]
        panel.hlines(
            ordinals,
            _seconds(live, (first_ms[ordinal] for ordinal in ordinals)),
            _seconds(live, (times_ms[ordinal] for ordinal in ordinals)),
            colors=colour,
            linewidth=width,
            zorder=2,
        )
    _draw_transmissions(panel, live, receiver)
    panel.scatter(
        _seconds(live, recovered_ms.values()),
        list(recovered_ms),
        marker="D",
        s=24,
        color=RECOVERED_COLOUR,
        linewidths=0,
        label="recovered through parity",
        zorder=5,
    )
    panel.scatter(
        _seconds(live, acknowledged_ms.values()),
        list(acknowledged_ms),
        marker="|",
        s=22,
        color=ACKNOWLEDGED_COLOUR,
        linewidths=1.1,
        label="acknowledged",
        zorder=3,
    )


def _draw_archive(panel: Axes, live: LiveResult, missing: list[int], end_s: float) -> None:
    _draw_transmissions(panel, live, LISTENER)
    # Spark begins when the archive is complete: a place of its own, beyond the time axis.
    at_s = end_s * 1.03
    panel.set_xlim(panel.get_xlim()[0], end_s * 1.06)
    panel.axvspan(end_s, end_s * 1.06, color=SPARK_COLOUR, linewidth=0, zorder=1)
    panel.text(at_s, -2.2, "Spark", fontsize=8.5, color=RECOVERED_COLOUR, ha="center", va="bottom", clip_on=False)
    panel.scatter([at_s] * len(missing), missing, marker="D", s=24, color=RECOVERED_COLOUR, linewidths=0, zorder=5)
