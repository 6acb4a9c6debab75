"""The summary of an archive as one HTML page that needs nothing else: no script, font or picture of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from shardwire.archive.arrow import STATUSES
from shardwire.archive.report import ArchiveSummary, Tally
from shardwire.config.checks import check_text
from shardwire.errors import ConfigError

# Tells a page of ours from any other file.
PAGE_BEGIN = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="generator" content="shardwire report">'
_COLOURS = {"complete": "#2a9d8f", "recovered": "#8ab17d", "incomplete": "#e9c46a", "invalid": "#e76f51"}
_WIDTH, _HEIGHT = 960, 160
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; }
th { text-align: left; cursor: pointer; user-select: none; } th[aria-sort]::after { content: " \\2195"; color: #999; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } td { overflow-wrap: anywhere; }
.figures { display: flex; flex-wrap: wrap; gap: 2rem; } .figures b { display: block; font-size: 1.5rem; }
svg { width: 100%; height: auto; } .key span { margin-right: 1rem; } .key i { display: inline-block; width: .8em;
height: .8em; margin-right: .3em; }
@media print { body { max-width: none; margin: 0; } h2 { break-after: avoid; } tr { break-inside: avoid; } }
"""
_SCRIPT = """
for (const head of document.querySelectorAll("th")) head.addEventListener("click", () => {
  const body = head.closest("table").tBodies[0], at = head.cellIndex;
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentNode.cells) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const value = row => row.cells[at].dataset.value ?? row.cells[at].textContent;
  const order = (one, other) => {
    const [a, b] = [value(one), value(other)], [x, y] = [Number(a), Number(b)];
    return (a !== "" && b !== "" && !isNaN(x) && !isNaN(y) ? x - y : a.localeCompare(b)) * (up ? 1 : -1);
  };
  body.append(...[...body.rows].sort(order));
});
"""


def report_page(summary: ArchiveSummary, title: str) -> str:
    """The summary of an archive as one HTML page that loads nothing.

    Args:
        summary: What was found.
        title: What the page is called; any text.

    Raises:
        ConfigError: It is none of these.
    """
    if not isinstance(summary, ArchiveSummary):
        raise ConfigError(f"summary is a {type(summary).__name__}: it must be what summarize gives")
    check_text("title", title)
    total = summary.total
    messages = sum(total.statuses.values())
    figures = [(f"{messages:,}", "messages")]
    figures += [(f"{total.statuses[status]:,}", status) for status in STATUSES]
    lost = f"{total.loss:.2%}" if total.segments else "?"
    figures += [(lost, "of the data segments did not come"), (f"{total.duplicates:,}", "came again")]
    figures += [(f"{total.recovered:,}", "brought back by parity")]
    parts = [
        f"<h1>{escape(title)}</h1>",
        '<div class="figures">' + "".join(f"<div><b>{one}</b>{escape(what)}</div>" for one, what in figures) + "</div>",
        "<h2>Over time</h2>",
        _key(),
        _chart(summary),
        _table(["from", *_TALLY], [[(_time(at), at), *_tally(tally)] for at, tally in sorted(summary.times.items())]),
        "<h2>By sender</h2>",
        _table(["sender", *_TALLY], [[name, *_tally(tally)] for name, tally in sorted(summary.senders.items())]),
    ]
    if summary.kinds:
        kinds: list[list[_Cell]] = [
            [name, one.messages, one.repeats, one.size_bytes, one.content_bytes, (f"{one.overhead:.2%}", one.overhead)]
            for name, one in sorted(summary.kinds.items())
        ]
        names = sorted(summary.latencies.keys() | summary.unacknowledged.keys())
        parts += [
            "<h2>Overhead by kind</h2>",
            _table(["kind", "messages", "again", "bytes", "content bytes", "overhead"], kinds),
            "<h2>Acknowledgement latency</h2>",
            "<p>From the first transmission of an SDS message until the history of another participant names it.</p>",
            _table(
                ["sender", "acknowledged", "not", "median ms", "90 % ms", "99 % ms"],
                [_latencies(name, summary) for name in names],
            ),
        ]
    if summary.unfinished:
        parts += [
            "<h2>Not whole</h2>",
            _table(
                ["message", "status", "sender", "segments", "needed", "why"],
                [
                    [one["hash"][:16], one["status"], one["sender"], one["received"], one["needed"] or "", one["error"]]
                    for one in summary.unfinished
                ],
            ),
        ]
    if summary.unreadable:
        parts += [
            "<h2>No segments</h2>",
            _table(["reason", "rows"], [[*entry] for entry in summary.unreadable.items()]),
        ]
    return (
        f"{PAGE_BEGIN}<title>{escape(title)}</title>"
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style><body>{''.join(parts)}<script>{_SCRIPT}</script></body></html>\n"
    )


_TALLY = [*STATUSES, "data segments", "missing", "loss", "again", "recovered"]
_Cell = str | int | float | tuple[str, float]


def _tally(tally: Tally) -> list[_Cell]:
    counts: list[_Cell] = [tally.statuses[status] for status in STATUSES]
    return [
        *counts,
        tally.segments,
        tally.missing,
        (f"{tally.loss:.2%}", tally.loss),
        tally.duplicates,
        tally.recovered,
    ]


def _latencies(name: str, summary: ArchiveSummary) -> list[_Cell]:
    found = summary.latencies.get(name)
    counts: list[_Cell] = [name, found.acknowledged if found else 0, summary.unacknowledged[name]]
    if found is None:
        return [*counts, "-", "-", "-"]
    shares = (found.p50_ms, found.p90_ms, found.p99_ms)
    return [*counts, *("-" if share is None else round(share, 1) for share in shares)]


def _table(heads: Sequence[str], rows: Iterable[Sequence[_Cell]]) -> str:
    head = "".join(f'<th aria-sort="none">{escape(name)}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(cell: _Cell) -> str:
    if isinstance(cell, tuple):
        return f'<td class="number" data-value="{cell[1]}">{escape(cell[0])}</td>'
    if isinstance(cell, str):
        return f"<td>{escape(cell)}</td>"
    return f'<td class="number" data-value="{cell}">{cell:,}</td>'


def _key() -> str:
    return (
        '<p class="key">'
        + "".join(f'<span><i style="background:{_COLOURS[status]}"></i>{status}</span>' for status in STATUSES)
        + "</p>"
    )


def _chart(summary: ArchiveSummary) -> str:
    """Messages by status, a bar an interval."""
    if not summary.times:
        return "<p>The archive has no times.</p>"
    begin = min(summary.times)
    highest = max(sum(tally.statuses.values()) for tally in summary.times.values())
    slots = (max(summary.times) - begin) // summary.interval_ns + 1
    width = _WIDTH / slots
    bars = []
    for at, tally in sorted(summary.times.items()):
        x, y = (at - begin) // summary.interval_ns * width, float(_HEIGHT)
        for status in STATUSES:
            height = tally.statuses[status] / highest * _HEIGHT
            y -= height
            bars.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.5, width - 1):.1f}" height="{height:.1f}" '
                f'fill="{_COLOURS[status]}"/>'
            )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="messages over time">{"".join(bars)}</svg>'


def _time(at_ns: int) -> str:
    try:
        return datetime.fromtimestamp(at_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(at_ns)
