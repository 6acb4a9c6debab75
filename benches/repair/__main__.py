"""What repair costs beside what it must: `python -m benches.repair`.

One message of k segments to n receivers, each of which loses its own share of them, through whole channels in virtual
time: everything follows from the seeds, and another machine has the same figures. Segments sent are divided by B, what
any code must send (`bound.py`); beside them stand an ideal selective repeat and the rule of the peers, to repeat what
is unacknowledged. A small grid runs by default, `--full` takes the whole one (some minutes). `--output NAME` also
writes benches/results/NAME.json and NAME.md, and docs/images/repair.png of the whole grid.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benches.repair.bound import Loss, Outcome, bound, ideal_selective_repeat, selective_repeat
from benches.repair.channels import EARLIER, MEASURED, Case, Cost, measure

ROOT = Path(__file__).resolve().parents[2]
BURST = 8
MODES = ("parity", "parity-steady", "arq", "arq-0")
SEEDS = 5
# Draws of the rules; of the ideal in bursts, which nothing computes, more: its error counts in every ratio.
MODEL_SEEDS = 20
IDEAL_SEEDS = 400


@dataclass(frozen=True)
class Row:
    """One case and what it cost, means over the seeds.

    `over_ideal_of_20` divides by the first 20 draws of the ideal, as earlier results did, or by what is computed.
    """

    repair: str
    data_count: int
    receivers: int
    loss: str
    bound: float
    segments: float
    over_bound: float
    over_ideal: float
    over_bound_error: float
    over_ideal_error: float
    over_ideal_of_20: float
    needless: float
    peers_over_bound: float
    rounds: float
    in_one_round: float
    peers_rounds: float
    whole_ms: float
    control_share: float
    undelivered: int


def grid(full: bool) -> list[tuple[int, int, Loss]]:
    if full:
        losses = [Loss(share) for share in (0.01, 0.05, 0.10, 0.20, 0.30)]
        losses += [Loss(share, BURST) for share in (0.01, 0.05, 0.10, 0.20, 0.30)]
        return list(product((16, 64, 128), (1, 5, 20, 50), losses))
    return [
        *product((64,), (1, 5, 20), [Loss(0.05), Loss(0.20)]),
        (16, 5, Loss(0.20)),
        (64, 5, Loss(0.20, BURST)),
    ]


def is_steady(_: int, receivers: int, loss: Loss) -> bool:
    """Whether messages of a steady channel are measured, each of which takes as long as many others."""
    return receivers <= 20 and loss.burst is None


def rounded(row: Row) -> dict[str, Any]:
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(row).items()}


def mean(values: list[float]) -> float:
    return statistics.fmean(values)


@cache
def drawn(data_count: int, receivers: int, loss: Loss, acknowledgements_lost: bool) -> list[Outcome]:
    """What a rule takes, from each of its seeds."""
    seeds = MODEL_SEEDS if acknowledgements_lost else IDEAL_SEEDS
    rngs = [random.Random(f"{seed}/{data_count}/{receivers}/{loss}") for seed in range(seeds)]
    return [
        selective_repeat(data_count, receivers, loss, rng, acknowledgements_lost=acknowledgements_lost) for rng in rngs
    ]


def row_of(case: Case, costs: list[Cost]) -> Row:
    """The figures of a case beside those of the bound and of the rules."""
    k, n, loss = case.data_count, case.receivers, case.loss
    least = bound(k, n, loss)
    peers = drawn(k, n, loss, True)
    of_20 = ideal = ideal_selective_repeat(k, n, loss) if loss.burst is None else 0.0
    if loss.burst is not None:
        outcomes = [float(out.segments) for out in drawn(k, n, loss, False)]
        of_20, ideal = mean(outcomes[:MODEL_SEEDS]), mean(outcomes)
    each = [cost.segments for cost in costs]
    segments = mean(each)
    error = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0.0
    return Row(
        case.repair,
        k,
        n,
        str(loss),
        least,
        segments,
        segments / least,
        segments / ideal,
        error / least,
        error / ideal,
        segments / of_20,
        mean([cost.needless for cost in costs]) / segments,
        mean([out.segments for out in peers]) / least,
        mean([cost.rounds for cost in costs]),
        mean([cost.in_one_round for cost in costs]),
        mean([out.rounds for out in peers]),
        mean([cost.whole_ms for cost in costs]),
        sum(cost.control_bytes for cost in costs) / sum(cost.bytes for cost in costs),
        sum(not cost.delivered for cost in costs),
    )


def markdown(rows: list[Row], segment_bytes: int, seeds: int) -> str:
    head = [
        "k",
        "n",
        "loss",
        "repair",
        "sent / B",
        "sent / ideal",
        "of 20 draws",
        "needless",
        "peers' rule / B",
        "rounds",
        "in one",
        "peers' rounds",
        "seconds",
        "control",
    ]
    lines = [
        "# What repair costs",
        "",
        f"`python -m benches.repair`: one message of k segments of {segment_bytes} B to n receivers, no store, means",
        f"over {seeds} seeds. B is what any code must send on average until each receiver has k of them; *ideal* is a",
        "selective repeat whose sender always knows what each lacks: computed, and in bursts drawn 400 times (*of 20",
        "draws*: the ratio to the mean of its first 20, as earlier results had it). Behind each ratio stands its",
        "standard error over the seeds. *Needless* is the part of the segments that nobody lacked when they left.",
        "Bursts count messages, so who hears few, as a sender its one receiver, is long in one. `parity` is the first",
        "message of a channel;",
        f"`parity-steady` one of {MEASURED} after {EARLIER} others that it learnt its first parity from.",
        "`arq-0` is `arq` without parity. The peers' rule is modelled: each round repeats what somebody did not",
        "acknowledge, and acknowledgements are lost as segments are. *In one* is the part of the messages that took",
        "one round; the seconds are those until the last receiver has the message. Control is what carries no segment,",
        "and filters that ride on segments, as a part of all bytes.",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    for row in rows:
        note = f" ({row.undelivered} of {seeds} not acknowledged)" if row.undelivered else ""
        cells = [row.data_count, row.receivers, row.loss, row.repair + note]
        figures = [
            f"{row.over_bound:.2f} ± {row.over_bound_error:.2f}",
            f"{row.over_ideal:.2f} ± {row.over_ideal_error:.2f}",
            f"{row.over_ideal_of_20:.2f}",
            f"{row.needless:.0%}",
            f"{row.peers_over_bound:.2f}",
        ]
        figures += [
            f"{row.rounds:.1f}",
            f"{row.in_one_round:.0%}",
            f"{row.peers_rounds:.1f}",
            f"{row.whole_ms / 1_000:.1f}",
        ]
        lines.append("| " + " | ".join([*map(str, cells), *figures, f"{row.control_share:.0%}"]) + " |")
    return "\n".join([*lines, ""])


def plot(rows: list[Row], path: Path) -> None:
    """Segments over B by loss, for k = 64 and each number of receivers."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    shown = [row for row in rows if row.data_count == 64 and "bursts" not in row.loss]
    counts = sorted({row.receivers for row in shown})
    figure, axes = pyplot.subplots(1, len(counts), figsize=(3.2 * len(counts), 3.2), sharey=True, squeeze=False)
    for axis, count in zip(axes[0], counts, strict=True):
        for mode in sorted({row.repair for row in shown}):
            points = [row for row in shown if row.receivers == count and row.repair == mode]
            axis.plot([row.loss for row in points], [row.over_bound for row in points], marker="o", label=mode)
        points = [row for row in shown if row.receivers == count and row.repair == shown[0].repair]
        axis.plot([row.loss for row in points], [row.peers_over_bound for row in points], "x--", label="peers' rule")
        axis.axhline(1, color="black", linewidth=0.8)
        axis.set(title=f"{count} receiver{'s' * (count > 1)}", xlabel="loss")
    # The axes share it, so it is set once all is drawn.
    axes[0][0].set_ylim(bottom=0.9)
    axes[0][0].set_ylabel("segments sent over B")
    axes[0][-1].legend()
    figure.suptitle("Segments that one message of 64 takes")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the whole grid")
    parser.add_argument("--modes", default=",".join(MODES), help="of repair, separated by commas")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--segment-bytes", type=int, default=1_024)
    parser.add_argument("--output", help="name of the results to write")
    parser.add_argument("--beside", help="name of results that the plot shows as well")
    options = parser.parse_args()
    places = list(product(grid(options.full), options.modes.split(",")))
    cases = [
        Case(mode, *place, options.segment_bytes)
        for place, mode in places
        if mode != "parity-steady" or is_steady(*place)
    ]
    jobs = [case for case in cases for _ in range(options.seeds)]
    seeded = [seed for _ in cases for seed in range(options.seeds)]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        costs = list(pool.map(measure, jobs, seeded))
    seeds = options.seeds
    rows = [row_of(case, costs[at * seeds : (at + 1) * seeds]) for at, case in enumerate(cases)]
    text = markdown(rows, options.segment_bytes, seeds)
    print(text)
    if options.output:
        results = ROOT / "benches" / "results"
        run = {"segment_bytes": options.segment_bytes, "seeds": seeds, "rows": [rounded(row) for row in rows]}
        (results / f"{options.output}.json").write_text(json.dumps(run) + "\n")
        (results / f"{options.output}.md").write_text(text)
        if options.full:
            beside = json.loads((results / f"{options.beside}.json").read_text())["rows"] if options.beside else []
            # Results of earlier runs may lack what is measured since; the plot takes none of it.
            lacking = ("over_bound_error", "over_ideal_error", "over_ideal_of_20", "needless", "in_one_round")
            earlier = [Row(**{**dict.fromkeys(lacking, 0.0), **row}) for row in beside]
            plot([*rows, *earlier], ROOT / "docs" / "images" / "repair.png")


if __name__ == "__main__":
    main()
