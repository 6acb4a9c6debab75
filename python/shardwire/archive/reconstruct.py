"""Messages from an archive on one machine, without Spark: every core, bounded memory, the same native passes.

The archive is cut into as many stretches as there are threads. Each thread reconstructs in a bounded window what its
stretch holds whole, as a task of `reconstruct_archive` does; what is left meets, sorted, in a second pass, which also
says which rows of the first are wrong.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from shardwire import _native
from shardwire.archive.arrow import HASH, MESSAGE_SCHEMA, SEGMENT_COLUMNS, WINDOW_BYTES, limits_of, parameters
from shardwire.archive.leftovers import Leftovers, batches_of
from shardwire.archive.places import Output, named_where_full
from shardwire.archive.sink import Corrections, Sink, Totals, identity_of
from shardwire.archive.source import (
    Columns,
    Piece,
    checked_columns,
    checked_pieces,
    files_of,
    paths_of,
    pieces_of,
    segments_of,
)
from shardwire.archive.unread import Unread
from shardwire.archive.unwrap import TOPIC, UnwrapStep, check_steps
from shardwire.config import SegmentationConfig
from shardwire.config.checks import check_bool, check_integer, check_kind

if TYPE_CHECKING:
    from shardwire.archive.source import Paths, Source

# A stretch is worth a thread of its own from this many bytes on.
_STRETCH_BYTES_MIN = 8 << 20
_LEFTOVERS_BYTES = 256 << 20
# Where all segments meet there they are written and sorted all the time, which takes some copies of what is held.
_COUNTED_BYTES = 64 << 20
_SEGMENT_TYPES = (pa.binary(), pa.string(), pa.binary(), pa.int64(), pa.string(), pa.string())
_SEGMENT_FIELDS: list[pa.Field[Any]] = [
    pa.field(name, kind) for name, kind in zip(SEGMENT_COLUMNS, _SEGMENT_TYPES, strict=True)
]


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in an archive.

    Attributes:
        messages: Messages by status.
        unreadable: Rows of the archive that are no segment, by reason.
        payload_bytes: Bytes of the payloads that were reconstructed.
        seconds: Wall time.
    """

    messages: dict[str, int]
    unreadable: dict[str, int]
    payload_bytes: int
    seconds: float


def reconstruct(
    source: Source,
    config: SegmentationConfig | None = None,
    *,
    payload: str = "payload",
    by: Sequence[str] = (),
    key: str | None = None,
    include_payload: bool = True,
    unwrap: Sequence[UnwrapStep] = (),
    timestamp: str | None = None,
    sender: str | None = None,
    threads: int | None = None,
) -> pa.Table:
    """Reconstructs messages; columns, statuses and options are those of `shardwire.spark.reconstruct_archive`.

    As there, the counts of a message that is whole within a thread's stretch (segments_received, duplicates, conflicts,
    copies, times and senders) are those of the stretch, within a window of 64 MB. `summarize` counts every segment.
    The result is held in memory: `reconstruct_files` writes it instead.

    Args:
        source: Parquet files, directories or patterns of them, or an Arrow table; in about the order of arrival.
        config: How the payloads were segmented.
        payload: The column with the message's bytes; rows where it is null are left out.
        by: Columns that keep messages apart beside their hash. "content_topic" where there is no such column and
            `unwrap` names "waku": the one that the Waku messages name.
        key: A binary column that holds `entire_message_hash` already.
        include_payload: Whether the payloads themselves are wanted.
        unwrap: What is around the segments, outermost first: "waku", `decrypt(...)`, "sds" or "sds-nim".
        timestamp: A column of nanoseconds or timestamps, of UTC where they have no zone. None: `timestamp` where there
            is one. A Waku message's own timestamp goes before it.
        sender: A column with who sent the row; an SDS message's own sender goes before it.
        threads: How many read side by side. None: one a core.

    Returns:
        A row a message.

    Raises:
        ConfigError: A path or a column is missing, has another type or clashes with one of ours; an unknown step.
        ShardwireError: A file is no Parquet file, or is damaged.
    """
    run = _Run.of(source, config, payload, by, key, include_payload, unwrap, timestamp, sender, threads)
    with tempfile.TemporaryDirectory(prefix="shardwire-") as aside, named_where_full(Path(aside).parent):
        run.reconstruct(None, Path(aside))
    return pa.Table.from_batches(chain.from_iterable(sink.batches() for sink in run.sinks), run.schema)


def reconstruct_files(
    source: Paths,
    output: str | os.PathLike[str],
    config: SegmentationConfig | None = None,
    *,
    payload: str = "payload",
    by: Sequence[str] = (),
    key: str | None = None,
    include_payload: bool = True,
    unwrap: Sequence[UnwrapStep] = (),
    timestamp: str | None = None,
    sender: str | None = None,
    threads: int | None = None,
    replace: bool = False,
    compression: str = "snappy",
) -> Report:
    """Reconstructs messages into a directory of Parquet files, in bounded memory.

    The directory comes into being as a whole: a run that fails leaves nothing.

    Args:
        source: As in `reconstruct`, like the arguments that are not named here.
        output: The directory.
        config: How the payloads were segmented.
        replace: Whether an output that exists is replaced, once everything is written.
        compression: Of the files, as pyarrow names it.

    Returns:
        What was found.

    Raises:
        ConfigError: As `reconstruct` raises it; the output exists, or overlaps the source.
        ShardwireError: As `reconstruct` raises it.
        OSError: A file cannot be written; where the disk is full it names the output.
    """
    # Before anything is read: one that is within the other would be destroyed.
    place = Output(output, [*paths_of(source), *files_of(source)], replace=replace)
    run = _Run.of(source, config, payload, by, key, include_payload, unwrap, timestamp, sender, threads)
    with (
        named_where_full(place.path),
        place,
        tempfile.TemporaryDirectory(prefix="shardwire-leftovers-", dir=place.path.parent) as aside,
    ):
        run.reconstruct(place.staging, Path(aside), compression)
        if not any(place.staging.iterdir()):
            # A directory without a file has no columns to read.
            pa.parquet.write_table(run.schema.empty_table(), place.staging / "part-00000.parquet")
    return run.report()


def count_files(
    source: Paths,
    output: Path,
    config: SegmentationConfig,
    *,
    payload: str,
    by: Sequence[str],
    unwrap: Sequence[UnwrapStep],
    timestamp: str | None,
    sender: str | None,
    threads: int | None,
) -> Report:
    """Writes messages without payloads, each counted over the whole archive as `shardwire.spark.reconstruct` counts it.

    No window lets go of a message before its last segment came: all segments are sorted, in memory up to 64 MB and in
    files beside `output` beyond that, which take as much room as the segments do.

    Args:
        source: As in `reconstruct`, like the arguments that are not named here.
        output: A directory, which is made.
    """
    run = _Run.of(source, config, payload, by, None, False, unwrap, timestamp, sender, threads)
    run.is_counted = True
    output.mkdir()
    with tempfile.TemporaryDirectory(prefix="shardwire-leftovers-", dir=output.parent) as aside:
        run.reconstruct(output, Path(aside))
    return run.report()


@dataclass(slots=True)
class _Run:
    """One run: what is asked for, and what was found so far."""

    config: SegmentationConfig
    columns: Columns
    steps: tuple[UnwrapStep, ...]
    include_payload: bool
    stretches: list[list[Piece]]
    schema: pa.Schema
    started: float
    # Whether every segment counts, wherever in the archive it is.
    is_counted: bool = False
    totals: Totals = field(default_factory=Totals)
    sinks: list[Sink] = field(default_factory=list)
    unread: Unread = field(init=False)

    @classmethod
    def of(
        cls,
        source: Source,
        config: SegmentationConfig | None,
        payload: str,
        by: Sequence[str],
        key: str | None,
        include_payload: bool,
        unwrap: Sequence[UnwrapStep],
        timestamp: str | None,
        sender: str | None,
        threads: int | None,
    ) -> _Run:
        """A run with its arguments checked."""
        started = time.monotonic()
        check_kind("config", config, SegmentationConfig)
        check_bool("include_payload", include_payload)
        if threads is not None:
            check_integer("threads", threads, 1)
        steps = check_steps(unwrap, key)
        schema, pieces = pieces_of(source)
        columns = checked_columns(schema, payload, by, key, timestamp, sender, steps)
        checked_pieces(columns, schema, pieces, steps)
        wanted = len(os.sched_getaffinity(0)) if threads is None and hasattr(os, "sched_getaffinity") else threads
        if columns.topic_from_waku:
            schema = schema.append(pa.field(TOPIC, pa.string()))
        fields = [schema.field(name).with_nullable(True) for name in columns.by]
        run = cls(
            config=config or SegmentationConfig(),
            columns=columns,
            steps=steps,
            include_payload=include_payload,
            stretches=_stretches(pieces, wanted or os.cpu_count() or 1),
            schema=pa.schema([*fields, *MESSAGE_SCHEMA]),
            started=started,
        )
        run.unread = Unread(columns.by)
        return run

    def reconstruct(self, directory: Path | None, aside: Path, compression: str = "snappy") -> None:
        """Both passes; messages go to files in `directory`, or stay in memory."""
        count = len(self.stretches)
        self.sinks = [
            Sink(
                self.schema,
                self.columns.by,
                self.totals,
                directory and directory / f"part-{number:05}.parquet",
                compression,
            )
            for number in range(count + 1)
        ]
        leftovers = Leftovers(self.columns.by, aside, _COUNTED_BYTES if self.is_counted else _LEFTOVERS_BYTES)
        try:
            with ThreadPoolExecutor(max(1, count), thread_name_prefix="shardwire-archive") as pool:
                for unread in pool.map(lambda number: self._read(number, leftovers), range(count)):
                    self.unread.merge(unread)
            corrections = self._meet(leftovers, self.sinks[count])
        finally:
            leftovers.close()
        self.sinks[count].write(self.unread.batch(self.schema), is_messages=False)
        for sink in self.sinks:
            sink.close()
        for number, wrong in corrections.items():
            self.sinks[number].correct(wrong)

    def report(self) -> Report:
        """What was found."""
        return Report(
            messages=self.totals.by_status(),
            unreadable=self.unread.by_reason(),
            payload_bytes=self.totals.payload_bytes,
            seconds=time.monotonic() - self.started,
        )

    def _read(self, number: int, leftovers: Leftovers) -> Unread:
        """Reconstructs what one stretch holds whole; returns what is no segment."""
        machine = _native.ArrowLocalReconstructor(
            parameters(self.config),
            by_count=len(self.columns.by),
            include_payload=self.include_payload,
            window_bytes=WINDOW_BYTES,
            partition=number,
            **limits_of(self.config),
        )
        unread = Unread(self.columns.by)

        def emit(batches: Iterable[pa.RecordBatch]) -> None:
            for batch in batches:
                self.sinks[number].write(unread.taken_from(batch))
            left = machine.poll_leftovers()
            if left is not None:
                leftovers.add(left)

        rows = chain.from_iterable(piece.batches(self.columns.names) for piece in self.stretches[number])
        for segments in segments_of(rows, self.columns, self.config, self.steps):
            emit(machine.push(self._unread_of(segments, leftovers) if self.is_counted else segments))
        emit(machine.finish())
        return unread

    def _unread_of(self, segments: pa.RecordBatch, leftovers: Leftovers) -> pa.RecordBatch:
        """Hands all segments to the second pass; returns the rows that are none."""
        fields = [*(self.schema.field(name) for name in self.columns.by), *_SEGMENT_FIELDS]
        columns = [column.cast(field.type) for column, field in zip(segments.columns, fields, strict=True)]
        segments = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        is_read: Any = segments.column(HASH).is_valid()
        leftovers.add(segments.filter(is_read))
        return segments.filter(pa.compute.invert(is_read))

    def _meet(self, leftovers: Leftovers, sink: Sink) -> dict[int, Corrections]:
        """Reconstructs what several stretches hold together; returns what is wrong in each of them."""
        wrong: defaultdict[int, dict[str, tuple[bytes, int | None]]] = defaultdict(dict)
        for tables in leftovers.groups():
            machine = _native.ArrowReconstructor(
                parameters(self.config),
                by_count=len(self.columns.by),
                include_payload=self.include_payload,
                **limits_of(self.config),
            )
            for batch in chain.from_iterable(map(batches_of, tables)):
                for messages in machine.push(batch):
                    sink.write(messages)
            for messages in machine.finish():
                sink.write(messages)
            told = machine.poll_corrections()
            for row in () if told is None else told.to_pylist():
                identity = identity_of(row["hash"], row["send_id"], [row[name] for name in self.columns.by])
                recovered = None if row["error"] is None else int(row["error"])
                wrong[row["timestamp"]][identity] = (row["hash"], recovered)
        return dict(wrong)


def _stretches(pieces: list[Piece], threads: int) -> list[list[Piece]]:
    """The pieces in as many runs of neighbours as there are threads, about as many bytes in each."""
    total = sum(piece.size_bytes for piece in pieces)
    count = max(1, min(threads, total // _STRETCH_BYTES_MIN))
    stretches: list[list[Piece]] = [[]]
    held = 0
    for piece in pieces:
        if held * count >= total * len(stretches) and len(stretches) < count:
            stretches.append([])
        stretches[-1].append(piece)
        held += piece.size_bytes
    return stretches
