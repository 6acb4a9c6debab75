"""What an archive says of its traffic, on one machine: loss and duplication by sender and over time, what waited for an
acknowledgement, what each kind of message cost."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from shardwire import _native
from shardwire.archive.acknowledgements import OTHERS, SENDERS_MAX, UNKNOWN, Acknowledgements, percentiles_ms
from shardwire.archive.arrow import STATUSES
from shardwire.archive.places import named_where_full
from shardwire.archive.reconstruct import count_files
from shardwire.archive.source import checked_columns, files_of, pieces_of, times_of
from shardwire.archive.unwrap import UnwrapStep, around_sds, check_steps, state_of, unwrap_batch
from shardwire.config import SegmentationConfig
from shardwire.config.checks import check_kind

if TYPE_CHECKING:
    from shardwire.archive.source import Paths

# Messages that are listed by themselves, of those that are not whole.
MESSAGES_LISTED_MAX = 1_000
INTERVALS_MAX = 60
# Shares of the latencies that are told, in percent.
PERCENTILES = (50, 90, 99)
SEVERAL = "(several)"
# Statuses of messages that have every byte.
WHOLE = ("complete", "recovered")
_ROWS = ("status", "segments_received", "duplicates", "data_segment_count", "senders")
_COLUMNS = [
    *_ROWS,
    "first_timestamp",
    "last_timestamp",
    "data_segments_recovered",
    "entire_message_hash",
    "error",
    "send_id",
]
# A message that is not whole, behind what decides which are listed.
_Listed = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(slots=True)
class Tally:
    """Messages of one sender, or of one stretch of time.

    Attributes:
        statuses: Messages by status.
        segments: Data segments. Parity is not among them: what is announced of it leaves only where somebody asks for
            it, so nothing tells what did not come of it from what was never sent.
        missing: Data segments that did not come; of a message that is not whole at least so many.
        duplicates: Segments that came again.
        recovered: Data segments that parity brought back.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    segments: int = 0
    missing: int = 0
    duplicates: int = 0
    recovered: int = 0

    @property
    def loss(self) -> float:
        """Share of the data segments that did not come."""
        return self.missing / self.segments if self.segments else 0.0

    def add(self, row: dict[str, Any]) -> None:
        """Counts one message, a row as `reconstruct` gives it."""
        self.statuses[row["status"]] += 1
        self.duplicates += row["duplicates"] or 0
        recovered, expected = row["data_segments_recovered"] or 0, row["data_segment_count"] or 0
        self.recovered += recovered
        self.segments += expected
        # Segments of either kind came, and any k of them are enough.
        self.missing += recovered if row["status"] in WHOLE else max(0, expected - (row["segments_received"] or 0))


@dataclass(slots=True)
class KindTally:
    """SDS messages of one kind.

    Attributes:
        messages: How many there are.
        repeats: How many of them had come before.
        size_bytes: Their bytes.
        content_bytes: The bytes that they carry.
    """

    messages: int = 0
    repeats: int = 0
    size_bytes: int = 0
    content_bytes: int = 0

    @property
    def overhead(self) -> float:
        """Share of the bytes that is not content."""
        return 1 - self.content_bytes / self.size_bytes if self.size_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Latencies:
    """How long messages waited until another participant's history named them: of so many messages, in ms.

    The latencies are None where no message that was named has a time, or none that named it.

    Attributes:
        acknowledged: How many were named.
        p50_ms: The latency that half of them did not exceed.
        p90_ms: That nine of ten did not.
        p99_ms: That 99 of 100 did not.
    """

    acknowledged: int
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None


@dataclass(slots=True)
class ArchiveSummary:
    """What was found; times are in ns, latencies in ms.

    Attributes:
        total: All messages.
        unreadable: Rows that are no segment, by reason.
        senders: By sender.
        times: By the beginning of an interval.
        interval_ns: Its length.
        unfinished: Messages that are incomplete or invalid, each with its hash, status, sender, segments and error.
        kinds: By kind; empty where the archive holds no SDS messages.
        latencies: By sender: how long its messages waited until another participant's history named them.
        unacknowledged: By sender: messages that no other participant's history names.
        seconds: How long the reconstruction took.
    """

    total: Tally = field(default_factory=Tally)
    unreadable: dict[str, int] = field(default_factory=dict)
    senders: dict[str, Tally] = field(default_factory=dict)
    times: dict[int, Tally] = field(default_factory=dict)
    interval_ns: int = 0
    unfinished: list[dict[str, Any]] = field(default_factory=list)
    kinds: dict[str, KindTally] = field(default_factory=dict)
    latencies: dict[str, Latencies] = field(default_factory=dict)
    unacknowledged: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def summarize(
    source: Paths,
    config: SegmentationConfig | None = None,
    *,
    payload: str = "payload",
    by: Sequence[str] = (),
    unwrap: Sequence[UnwrapStep] = (),
    timestamp: str | None = None,
    sender: str | None = None,
    threads: int | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> ArchiveSummary:
    """Reads an archive of network traffic and says what became of its messages.

    Every segment and every SDS message counts, wherever in the archive it is: both are sorted 64 MB at a time, beyond
    that in files, which take as much room as the segments do, and 56 bytes for each SDS message and each entry of its
    causal history. Of senders 1,000 have rows of their own; the others, those that come last, share one.

    Args:
        source: As `reconstruct_files` takes it, like the options that are not named here.
        config: How the payloads were segmented.
        payload: The column with the message's bytes.
        by: Columns that keep messages apart.
        unwrap: What is around the segments; with "sds" or "sds-nim" in it acknowledgements and overhead are told too.
        timestamp: A column of times.
        sender: A column with who sent the row.
        threads: How many read side by side; None for one a core.
        directory: Where the files are meanwhile, which are removed; None for the system's.

    Raises:
        ConfigError: As `reconstruct_files` raises it.
        ShardwireError: A file is no Parquet file, or is damaged.
        OSError: A file cannot be written; where the disk is full it names the directory.
    """
    check_kind("config", config, SegmentationConfig)
    config = config or SegmentationConfig()
    found = ArchiveSummary()
    where = Path(directory or tempfile.gettempdir())
    with named_where_full(where), tempfile.TemporaryDirectory(prefix="shardwire-", dir=where) as aside:
        messages = Path(aside) / "messages"
        report = count_files(
            source,
            messages,
            config,
            payload=payload,
            by=by,
            unwrap=unwrap,
            timestamp=timestamp,
            sender=sender,
            threads=threads,
        )
        found.unreadable, found.seconds = report.unreadable, report.seconds
        files = files_of(messages) if any(messages.rglob("*.parquet")) else []
        begin_ns, end_ns = _span(files)
        found.interval_ns = max(1, -(-(end_ns - begin_ns + 1) // INTERVALS_MAX))
        unfinished: list[_Listed] = []
        for row in _rows(files):
            if row["status"] in STATUSES and row["entire_message_hash"] is not None:
                _count(found, row, begin_ns, unfinished)
        _keep_first(unfinished)
    found.unfinished = [one for _, one in unfinished]
    if sds := around_sds(check_steps(unwrap)):
        steps, wire = sds
        with named_where_full(where), tempfile.TemporaryDirectory(prefix="shardwire-", dir=where) as aside:
            _read_sds(found, source, payload, timestamp, steps, wire, Acknowledgements(Path(aside)))
    return found


def _rows(files: Sequence[str]) -> Any:
    for path in files:
        with pa.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(columns=_COLUMNS):
                yield from batch.to_pylist()


def _span(files: Sequence[str]) -> tuple[int, int]:
    begin_ns = end_ns = None
    for row in _rows(files):
        time, is_message = row["first_timestamp"], row["entire_message_hash"] is not None
        if time is not None and is_message:
            begin_ns = time if begin_ns is None else min(begin_ns, time)
            end_ns = time if end_ns is None else max(end_ns, time)
    return begin_ns or 0, end_ns or 0


def _count(found: ArchiveSummary, row: dict[str, Any], begin_ns: int, unfinished: list[_Listed]) -> None:
    names = row["senders"] or []
    sender = names[0] if len(names) == 1 else SEVERAL if names else UNKNOWN
    found.total.add(row)
    _of(found.senders, sender).add(row)
    if row["first_timestamp"] is not None:
        at = (row["first_timestamp"] - begin_ns) // found.interval_ns * found.interval_ns + begin_ns
        found.times.setdefault(at, Tally()).add(row)
    if row["status"] in ("incomplete", "invalid"):
        listed = {
            "hash": row["entire_message_hash"].hex(),
            "status": row["status"],
            "sender": sender,
            "received": row["segments_received"],
            "needed": row["data_segment_count"],
            "error": row["error"] or "",
        }
        order = (listed["hash"], row["send_id"] or "", row["status"], listed["received"] or 0, sender)
        unfinished.append((order, listed))
        if len(unfinished) >= 2 * MESSAGES_LISTED_MAX:
            _keep_first(unfinished)


def _keep_first(unfinished: list[_Listed]) -> None:
    """Keeps those that are listed, whatever the order in which they came."""
    unfinished.sort(key=lambda one: one[0])
    del unfinished[MESSAGES_LISTED_MAX:]


def _of(senders: dict[str, Tally], sender: str) -> Tally:
    if sender not in senders and len(senders) >= SENDERS_MAX:
        sender = OTHERS
    return senders.setdefault(sender, Tally())


def _read_sds(
    found: ArchiveSummary,
    source: Paths,
    payload: str,
    timestamp: str | None,
    steps: tuple[UnwrapStep, ...],
    wire: Any,
    acknowledgements: Acknowledgements,
) -> None:
    """Counts the SDS messages by kind, and times how long each waited until the history of another one named it."""
    for messages, sizes, times in _sds_messages(source, payload, timestamp, steps, wire):
        content: Any = messages.field("content")
        contents = pa.compute.binary_length(content)
        kinds = pa.table({"kind": messages.field("kind"), "size": sizes, "content": contents})
        for row in (
            kinds.group_by("kind").aggregate([("kind", "count"), ("size", "sum"), ("content", "sum")]).to_pylist()
        ):
            kind = found.kinds.setdefault(row["kind"], KindTally())
            kind.messages += row["kind_count"]
            kind.size_bytes += row["size_sum"] or 0
            kind.content_bytes += row["content_sum"] or 0
        acknowledgements.add(messages, times)
    acknowledgements.finish()
    if "content" in found.kinds:
        found.kinds["content"].repeats = acknowledgements.repeats
    for sender, waited in acknowledgements.senders.items():
        if waited.unacknowledged:
            found.unacknowledged[sender] = waited.unacknowledged
        if waited.acknowledged:
            found.latencies[sender] = Latencies(waited.acknowledged, *percentiles_ms(waited, PERCENTILES))


def _sds_messages(
    source: Paths, payload: str, timestamp: str | None, steps: tuple[UnwrapStep, ...], wire: Any
) -> Iterator[tuple[pa.StructArray, pa.Array[Any], pa.Array[Any]]]:
    """SDS messages, with their bytes and times."""
    schema, pieces = pieces_of(source)
    columns = checked_columns(schema, payload, (), None, timestamp, None, steps)
    for piece in pieces:
        for batch in piece.batches(columns.names):
            data = batch.column(columns.payload)
            nothing: Any = pa.nulls(batch.num_rows)
            times: Any = times_of(batch, columns)
            state, _ = unwrap_batch(state_of(data, times, nothing), steps)
            contents: Any = state.column("payload")
            decoded: Any = _native.arrow_decode_sds(contents, wire)
            is_read = pa.compute.and_(decoded.field("error").is_null(), decoded.field("kind").is_valid())
            is_read = pa.compute.and_(decoded.is_valid(), is_read)
            sizes, told = pa.compute.binary_length(contents), state.column("timestamp").cast(pa.int64())
            yield decoded.filter(is_read), sizes.filter(is_read), told.filter(is_read)
