"""The picture of a channel report: traffic, overhead, acknowledgement and gaps on one page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardwire.errors import ConfigError, MissingLibraryError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]

_NANOSECONDS = 1_000_000_000
# Senders that a reader can still tell apart: by colour, and by a line of their own.
SENDERS_COLOURED_MAX = 7
SENDERS_LISTED_MAX = 16
_NAME_LENGTH_MAX = 18
_CONTENT, _OVERHEAD, _LATE, _LOST = "#2a6f97", "#c9d6df", "#e9a03b", "#b23a48"
_SENDERS = ("#2a6f97", "#e9a03b", "#4f8f6b", "#b23a48", "#7d6b9e", "#8c6d4f", "#5aa9c4", "#b8b8b8")
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))


def require_matplotlib() -> None:
    """Says what to install where a picture is wanted.

    Raises:
        MissingLibraryError: The library matplotlib is missing.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingLibraryError("a picture needs the library 'matplotlib': pip install matplotlib") from None


def check_picture(path: str | Path) -> None:
    """Refuses a file that could not be drawn, before the work for it.

    Raises:
        ConfigError: Its ending names no kind of picture.
        MissingLibraryError: The library matplotlib is missing.
        OSError: It cannot be written.
    """
    require_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    if Path(path).suffix[1:].lower() not in FigureCanvasBase.get_supported_filetypes():
        raise ConfigError(
            f"the picture {str(path)!r} has no ending that names a kind of picture: end it in .png or .svg"
        )
    is_new = not Path(path).exists()
    with Path(path).open("ab"):
        pass
    if is_new:
        Path(path).unlink()


def draw_report(traffic: Rows, overhead: Rows, acknowledgements: Rows, gaps: Rows, interval_ns: int) -> Figure:
    """Draws rows of the answers of a `ChannelReport`.

    Args:
        traffic: interval_start, bytes and sender_id, which is None but for `SENDERS_COLOURED_MAX` senders.
        overhead: As the answer has it.
        acknowledgements: As the answer has it, of at most `SENDERS_LISTED_MAX` senders.
        gaps: interval_start, state and messages.
        interval_ns: Width of an interval.

    Raises:
        MissingLibraryError: The library matplotlib is missing.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 8), layout="constrained")
    ((top_left, top_right), (bottom_left, bottom_right)) = figure.subplots(2, 2)
    _draw_traffic(top_left, traffic, interval_ns)
    _draw_overhead(top_right, overhead)
    _draw_acknowledgements(bottom_left, acknowledgements)
    _draw_gaps(bottom_right, gaps, interval_ns)
    for axes in (top_left, top_right, bottom_left, bottom_right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
    return figure


def _draw_traffic(axes: Axes, traffic: Rows, interval_ns: int) -> None:
    sizes: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row in traffic:
        if row["interval_start"] is not None:
            sizes[row["sender_id"] or ""][row["interval_start"]] += row["bytes"]
    axes.set_title("Traffic by sender", loc="left")
    if not sizes:
        _say_nothing(axes)
        return
    ordered = sorted(sizes, key=lambda name: (name == "", -sum(sizes[name].values())))
    starts = sorted({start for by_time in sizes.values() for start in by_time})
    # An interval without traffic has no row: between two that have some it counts as 0.
    grid = range(starts[0], starts[-1] + 1, interval_ns) if starts[-1] - starts[0] < 5_000 * interval_ns else starts
    rates = [[sizes[name][start] * _NANOSECONDS / interval_ns for start in grid] for name in ordered]
    unit, label = _unit(max(map(max, rates)))
    times = [_time(start) for start in (*grid, grid[-1] + interval_ns)]
    floor = [0.0] * len(times)
    for name, rate, colour in zip(ordered, rates, _SENDERS, strict=False):
        heights = [value / unit for value in (*rate, rate[-1])]
        roof = [below + height for below, height in zip(floor, heights, strict=True)]
        label_of = _short(name) if name else "all others"
        axes.fill_between(times, floor, roof, step="post", label=label_of, color=colour, linewidth=0)  # type: ignore[arg-type]
        floor = roof
    axes.set_ylabel(f"{label}/s")
    axes.set_ylim(bottom=0)
    _tidy_times(axes)
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _draw_overhead(axes: Axes, overhead: Rows) -> None:
    axes.set_title("Bytes by kind: content and what carries it", loc="left")
    if not overhead:
        _say_nothing(axes)
        return
    rows = sorted(overhead, key=lambda row: row["bytes"])
    unit, label = _unit(rows[-1]["bytes"])
    kinds = [row["kind"] for row in rows]
    content = [row["content_bytes"] / unit for row in rows]
    carried = [(row["bytes"] - row["content_bytes"]) / unit for row in rows]
    axes.barh(kinds, content, color=_CONTENT, label="content", height=0.6)
    bars = axes.barh(kinds, carried, left=content, color=_OVERHEAD, label="overhead", height=0.6)
    texts = [f" {row['overhead_share']:.1%} overhead, {row['messages']:,} messages" for row in rows]
    axes.bar_label(bars, texts, fontsize="small")
    axes.set_xlabel(label)
    axes.margins(x=0.5)
    axes.legend(frameon=False, fontsize="small", loc="lower right")


def _draw_acknowledgements(axes: Axes, acknowledgements: Rows) -> None:
    axes.set_title("Time until acknowledged: median, 90 %, 99 %", loc="left")
    timed = [row for row in acknowledgements if row["latency_p50_ms"] is not None]
    if not timed:
        _say_nothing(axes)
        return
    timed = sorted(timed, key=lambda row: row["latency_p50_ms"], reverse=True)
    for place, row in enumerate(timed):
        low, middle, high = (row[f"latency_p{share}_ms"] for share in (50, 90, 99))
        axes.plot([low, high], [place, place], color=_OVERHEAD, linewidth=4, solid_capstyle="round", zorder=1)
        axes.plot(low, place, "o", color=_CONTENT, markersize=8)
        axes.plot(middle, place, "o", color=_LATE, markersize=6)
        axes.plot(high, place, "o", color=_LOST, markersize=6)
        share = row["acknowledged"] / row["messages"]
        axes.annotate(
            f"{share:.0%} of {row['messages']:,} acknowledged",
            (high, place),
            (8, -4),
            textcoords="offset points",
            size=9,
        )
    axes.set_yticks(range(len(timed)), [_short(str(row["sender_id"])) for row in timed])
    axes.set_ylim(-0.7, len(timed) - 0.3)
    axes.set_xlim(0, 1.6 * max(row["latency_p99_ms"] for row in timed) or 1)
    axes.set_xlabel("ms")
    axes.grid(axis="x", color="#e6e6e6")


def _draw_gaps(axes: Axes, gaps: Rows, interval_ns: int) -> None:
    counted: dict[str, dict[int, int]] = {"late": defaultdict(int), "lost": defaultdict(int)}
    for row in gaps:
        if row["interval_start"] is not None:
            counted[row["state"]][row["interval_start"]] += row["messages"]
    axes.set_title("Messages named before they were there", loc="left")
    starts = sorted({start for by_time in counted.values() for start in by_time})
    if not starts:
        _say_nothing(axes)
        return
    from matplotlib.ticker import MaxNLocator

    floor = [0] * len(starts)
    for state, colour in (("late", _LATE), ("lost", _LOST)):
        heights = [counted[state][start] for start in starts]
        label = f"{sum(heights):,} came late" if state == "late" else f"{sum(heights):,} never came"
        width = interval_ns / _NANOSECONDS / 86_400
        axes.bar(
            [_time(start) for start in starts],  # type: ignore[arg-type]
            heights,
            width,
            bottom=floor,
            align="edge",
            color=colour,
            label=label,
        )
        floor = [below + height for below, height in zip(floor, heights, strict=True)]
    axes.set_ylabel("messages an interval")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    _tidy_times(axes)
    axes.legend(frameon=False, fontsize="small")


def _tidy_times(axes: Axes) -> None:
    from matplotlib import dates

    locator = dates.AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.set_xlabel("UTC")
    axes.grid(axis="y", color="#e6e6e6")


def _say_nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "nothing to show", ha="center", va="center", transform=axes.transAxes, color="grey")
    axes.set_xticks([])
    axes.set_yticks([])


def _unit(largest: float) -> tuple[int, str]:
    return next(((size, name) for size, name in _SIZES if largest >= size), _SIZES[-1])


def _time(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / _NANOSECONDS, UTC)


def _short(name: str) -> str:
    # A name that begins with an underscore would be left out of a legend.
    name = name.replace("_", "\N{MODIFIER LETTER LOW MACRON}", 1) if name.startswith("_") else name
    # Names are peers' own: a lone $ begins a formula.
    name = name.replace("$", r"\$")
    return name if len(name) <= _NAME_LENGTH_MAX else name[: _NAME_LENGTH_MAX - 1] + "\N{HORIZONTAL ELLIPSIS}"
