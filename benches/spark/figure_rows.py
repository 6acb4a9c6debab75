"""The rows of the pipeline's results, as text and as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def line_of(row: Row) -> str:
    """A row as text."""
    values = [f"{row['section']:<13} {row['case']:<34}"]
    for name, form in (
        ("seconds", "{:7.2f} s"),
        ("processor", "{:7.2f} s processor"),
        ("ratio", "{:5.2f} x"),
        ("processor_ratio", "{:5.2f} x processor"),
        ("share", "{:6.2%}"),
        ("peak_mib", "{:,} MiB"),
    ):
        if name in row:
            values.append(form.format(row[name]))
    if "of" in row:
        values.append(row["of"])
    if "target" in row:
        values.append(f"(at most {row['target']})")
    return " ".join(values)


def save(path: Path, rows: list[Row], context: Row) -> None:
    """Writes `path`.json and `path`.md; sections that were measured before and not now stay."""
    stored = path.with_suffix(".json")
    before = json.loads(stored.read_text())["rows"] if stored.exists() else []
    measured = {row["section"] for row in rows}
    rows = sorted([row for row in before if row["section"] not in measured] + rows, key=lambda row: row["section"])
    path.parent.mkdir(parents=True, exist_ok=True)
    stored.write_text(json.dumps({**context, "rows": rows}, indent=1) + "\n")
    title = "# The Spark pipeline beside Spark's own plans\n"
    lines = [title, ", ".join(f"{name}: {value}" for name, value in context.items()) + ".\n"]
    lines += [
        "A ratio is the median over the rounds of one run to another in the same round; *processor* is the time of the"
    ]
    lines += ["processor in all processes of a run.\n"]
    lines += ["| section | case | seconds | ratio | processor | its ratio | target | rounds | load |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        share = f"{row['share']:.2%}" if "share" in row else ""
        peak = f", {row['peak_mib']:,} MiB" if "peak_mib" in row else ""
        ratio_of = f"{row['ratio']:.2f} x {row.get('of', '')}".strip() if "ratio" in row else share
        seconds = f"{row['seconds']:.2f}{peak}" if "seconds" in row else peak.removeprefix(", ")
        lines.append(
            f"| {row['section']} | {row['case']} | {seconds} | {ratio_of} | {row.get('processor', '')} "
            f"| {row.get('processor_ratio', '')} | {row.get('target', '')} "
            f"| {row['rounds']} | {row.get('load_1m', '')} |"
        )
    path.with_suffix(".md").write_text("\n".join(lines) + "\n")
