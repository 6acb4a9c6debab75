"""Progress bars of a live run: what was sent, received and acknowledged, by each participant."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from shardwire.channel import SegmentObservation
from shardwire.cli.demo.settings import LISTENER, RECEIVERS, SENDER


class LiveBars:
    """Turns the observations of the channels into bars; a context manager around the run."""

    def __init__(self, console: Console, segment_count: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self._bars: dict[tuple[str, str], TaskID] = {}
        self._ordinals: dict[tuple[str, str], set[int]] = {}
        self._extras: dict[tuple[str, str], int] = {}
        self._add((SENDER, "sent"), f"{SENDER:8} sent", segment_count)
        for name in RECEIVERS:
            self._add((name, "received"), f"{name:8} received", segment_count)
        for name in RECEIVERS:
            self._add((name, "acknowledged"), f"{name:8} acknowledged", segment_count)
        self._add((LISTENER, "heard"), f"{LISTENER:8} archived", None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def observe(self, participant: str, seen: SegmentObservation) -> None:
        """Takes one observation of `participant`'s channel."""
        if participant == SENDER:
            if seen.stage == "dispatched":
                self._advance((SENDER, "sent"), seen.ordinal, extra=seen.attempt > 0, note="retransmitted")
            elif seen.stage == "acknowledged":
                self._advance((seen.participant, "acknowledged"), seen.ordinal)
        elif seen.stage in ("received", "recovered"):
            extra = seen.stage == "recovered"
            self._advance((participant, "received"), seen.ordinal, extra=extra, note="recovered through parity")

    def heard(self) -> None:
        """The passive listener archived one more message."""
        self._progress.advance(self._bars[LISTENER, "heard"])

    def _add(self, key: tuple[str, str], description: str, total: int | None) -> None:
        self._bars[key] = self._progress.add_task(description, total=total, note="")
        self._ordinals[key] = set()
        self._extras[key] = 0

    def _advance(self, key: tuple[str, str], ordinal: int, *, extra: bool = False, note: str = "") -> None:
        bar = self._bars.get(key)
        if bar is None:
            return
        ordinals = self._ordinals[key]
        ordinals.add(ordinal)
        self._progress.update(bar, completed=len(ordinals))
        if extra:
            self._extras[key] += 1
            self._progress.update(bar, note=f"{self._extras[key]} {note}")
