"""What an archive is read from: Parquet files or Arrow tables, in order, in pieces that tasks read side by side."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from shardwire.archive.arrow import (
    ERROR,
    HASH,
    MESSAGE_SCHEMA,
    PAYLOAD,
    SEGMENT_COLUMNS,
    SEND_ID,
    SENDER,
    TIMESTAMP,
    batch_of,
    nanoseconds_of,
    remedy_of,
)
from shardwire.archive.places import require_utf_8
from shardwire.archive.unwrap import TOPIC, UnwrapSegments, UnwrapStep
from shardwire.config import SegmentationConfig
from shardwire.config.checks import check_list, check_path, check_text
from shardwire.errors import ConfigError, ShardwireError
from shardwire.quoting import listed

if TYPE_CHECKING:
    from shardwire.archive.arrow import Array

    Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    Source = Paths | pa.Table

# Bytes of rows that are handed to the native core at once, about.
BATCH_BYTES = 4 << 20
_WILD = "*?["


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a row has what, by the columns' names.

    Attributes:
        by: Columns that keep messages apart.
        key: A column with the hash, or None.
        topic_from_waku: Whether `content_topic` among `by` is what the Waku messages name.
    """

    payload: str
    by: tuple[str, ...]
    key: str | None
    timestamp: str | None
    sender: str | None
    topic_from_waku: bool

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        own = [name for name in self.by if not (self.topic_from_waku and name == TOPIC)]
        rest = (self.key, self.payload, self.timestamp, self.sender)
        return list(dict.fromkeys([*own, *(name for name in rest if name is not None)]))


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that lie next to each other: some row groups of a file, or rows of a table."""

    path: str | None
    table: pa.Table | None
    # Row groups, or rows where there is a table.
    start: int
    stop: int
    size_bytes: int
    # Of the file or the table: files may have other columns beside those that are read.
    schema: pa.Schema

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows, some MB at a time, in plain types; without the columns that the file lacks."""
        kinds: dict[str, Any] = {name: self.schema.field(name).type for name in names if name in self.schema.names}
        for batch in self._batches(list(kinds)):
            yield batch_of({name: _in_plain(batch.column(name), kind) for name, kind in kinds.items()})

    def _batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self.table is not None:
            rows = self.table.select(list(names)).slice(self.start, self.stop - self.start)
            yield from rows.to_batches(max_chunksize=_rows_of(rows.nbytes, rows.num_rows))
            return
        path = str(self.path)
        try:
            with pa.parquet.ParquetFile(path) as file:
                groups = [file.metadata.row_group(number) for number in range(self.start, self.stop)]
                size = sum(group.total_byte_size for group in groups)
                count = _rows_of(size, sum(group.num_rows for group in groups))
                yield from file.iter_batches(count, row_groups=list(range(self.start, self.stop)), columns=list(names))
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from None


def _rows_of(size_bytes: int, rows: int) -> int:
    return max(1, min(65_536, BATCH_BYTES * rows // max(1, size_bytes)))


def paths_of(source: Paths) -> list[str]:
    """The paths that are given.

    Raises:
        ConfigError: Something else is.
    """
    # Of what hands over Arrow data, such as a DataFrame, a relation or a reader, a table is soon made.
    has_rows = any(hasattr(type(source), name) for name in ("__arrow_c_stream__", "__arrow_c_array__"))
    # Bytes would be taken one by one, and a DataFrame or a dict by the names of its columns.
    is_none = has_rows or isinstance(source, bytes | Mapping) or hasattr(type(source), "columns")
    if is_none or not isinstance(source, Iterable | os.PathLike):
        made = ", which pyarrow.table() makes of it" if has_rows else ""
        raise ConfigError(f"the archive is a {type(source).__name__}: give paths or an Arrow table{made}")
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not given:
        raise ConfigError("the archive is an empty list: give at least one file or directory")
    for one in given:
        check_path("a path of the archive", one, "a file or directory")
    return [os.fspath(one) for one in given]


def files_of(source: Paths) -> list[str]:
    """The files that are meant, in the order of their names within each path.

    Raises:
        ConfigError: There is no such file or directory, or no Parquet file in it; a path is a URI; a directory is a
            table of Delta or Iceberg; a path is not UTF-8.
    """
    found: list[str] = []
    for path in paths_of(source):
        if any(mark in path for mark in _WILD) and not os.path.exists(path):
            files = [name for name in sorted(glob.glob(path)) if os.path.isfile(name)]
        elif os.path.isdir(path):
            _refuse_table(Path(path))
            files = sorted(str(file) for file in Path(path).rglob("*") if file.is_file() and _is_data(file, Path(path)))
        elif os.path.isfile(path):
            files = [path]
        elif "://" in path:
            raise ConfigError(
                f"{path!r} is no path of this machine: read it as an Arrow table, for example with pyarrow.dataset, "
                "and give that, or use shardwire.spark"
            )
        else:
            raise ConfigError(f"there is no file or directory {path!r}")
        if not files:
            raise ConfigError(f"{path!r} has no Parquet files")
        for file in files:
            require_utf_8(file)
        found += files
    return found


def _is_data(file: Path, directory: Path) -> bool:
    return not any(part.startswith(("_", ".")) for part in file.relative_to(directory).parts)


def _refuse_table(directory: Path) -> None:
    for pattern, kind in (("_delta_log/*.json", "Delta"), ("metadata/*.metadata.json", "Iceberg")):
        if next(directory.glob(pattern), None) is not None:
            raise ConfigError(
                f"{os.fspath(directory)!r} is a table of {kind}, whose files are not all its rows: read it with a "
                "library for such tables and give the Arrow table, or a list of its current files"
            )


def pieces_of(source: Source) -> tuple[pa.Schema, list[Piece]]:
    """The columns of a source, of which a file may lack some, and its rows in order, a row group a piece.

    Raises:
        ConfigError: As `files_of` raises it.
        ShardwireError: A file is no Parquet file, or is damaged.
    """
    if isinstance(source, pa.Table):
        step = max(1, source.num_rows // 64)
        edges = [*range(0, source.num_rows, step), source.num_rows]
        size = source.nbytes // max(1, len(edges) - 1)
        schema = _plain(source.schema)
        return schema, [Piece(None, source, start, stop, size, schema) for start, stop in pairwise(edges)]
    read: list[tuple[str, pa.Schema, list[int]]] = []
    for path in files_of(source):
        try:
            with pa.parquet.ParquetFile(path) as file:
                metadata = file.metadata
                sizes = [metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)]
                read.append((path, _plain(file.schema_arrow), sizes))
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(path, error) from None
    columns = _of_all([own for _, own, _ in read])
    alike = [(path, _as_in(own, columns), sizes) for path, own, sizes in read]
    return columns, [
        Piece(path, None, number, number + 1, size, own)
        for path, own, sizes in alike
        for number, size in enumerate(sizes)
    ]


def _of_all(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of all files, each as the first file has it in which it is not null in every row: of such a column
    pyarrow and pandas write no type."""
    fields = [field for schema in schemas for field in schema]
    typed = {field.name for field in fields if not pa.types.is_null(field.type)}
    found: list[pa.Field[Any]] = []
    for schema in schemas:
        known = {field.name for field in found}
        new = [field for field in schema if field.name not in known]
        found += (field for field in new if field.name not in typed or not pa.types.is_null(field.type))
    return pa.schema(found)


def _plain(schema: pa.Schema) -> pa.Schema:
    """The columns without the ways to store values that the core does not read: dictionaries, as of what pandas has as
    categories, views, and types that give another one a name, as UUIDs are bytes."""
    fields = []
    for field in schema:
        kind: Any = field.type
        kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        # pyarrow before 16 has no views.
        kind = {"string_view": pa.string(), "binary_view": pa.binary()}.get(str(kind), kind)
        fields.append(field.with_type(kind))
    return pa.schema(fields)


def _in_plain(column: Array, kind: pa.DataType) -> Array:
    """A column in its plain type."""
    if isinstance(column, pa.DictionaryArray):
        # pyarrow does not look up views, as which Polars has the names of its categories.
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(kind))
    return column.cast(kind)


def _as_in(schema: pa.Schema, first: pa.Schema) -> pa.Schema:
    """A file's columns with the types of the others where they say the same: texts and bytes have offsets of 32 or 64
    bits, by their writer, and what is null in every row has no type."""
    for place, field in enumerate(schema):
        wanted: Any = first.field(field.name).type if first.names.count(field.name) == 1 else None
        alike = any({str(field.type), str(wanted)} == {kind, f"large_{kind}"} for kind in ("string", "binary"))
        if alike or (wanted is not None and pa.types.is_null(field.type)):
            schema = schema.set(place, field.with_type(wanted))
    return schema


def _unreadable(path: str, error: Exception) -> ShardwireError:
    said = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
    among = (
        "" if path.endswith(".parquet") else "; where it lies among Parquet files, name those: 'DIRECTORY/*.parquet'"
    )
    return ShardwireError(f"{path} cannot be read as Parquet: {said}{among}")


def checked_columns(
    schema: pa.Schema,
    payload: str,
    by: Sequence[str],
    key: str | None,
    timestamp: str | None,
    sender: str | None,
    steps: Sequence[UnwrapStep],
) -> Columns:
    """The columns that are read, checked.

    Raises:
        ConfigError: A column is missing, has another type or clashes with one of ours.
    """
    check_text("payload", payload)
    for role, name in (("key", key), ("timestamp", timestamp), ("sender", sender)):
        check_text(role, name, or_none=True)
    check_list("by", by, "columns")
    for name in by:
        check_text("a column of by", name)
    if len(set(by)) < len(by):
        raise ConfigError(f"by names a column twice: {listed(by)}")
    topic_from_waku = TOPIC in by and TOPIC not in schema.names and "waku" in steps
    for name in by:
        if name in (*MESSAGE_SCHEMA.names, *SEGMENT_COLUMNS):
            raise ConfigError(f"by names the column {name!r}, which the result needs: rename it before")
        if not (topic_from_waku and name == TOPIC):
            kind = _field(schema, name, "by").type
            if pa.types.is_nested(kind) or pa.types.is_interval(kind):
                raise ConfigError(
                    f"by names the column {name!r} of type {kind}: it must hold single values, no lists, structs, maps "
                    "or intervals; make a text of each before"
                )
    if timestamp is None and "timestamp" in schema.names:
        timestamp = "timestamp"
    wanted_columns: tuple[tuple[str | None, str, Callable[[Any], bool], str], ...] = (
        (payload, "payload", _is_binary, "binary"),
        (key, "key", _is_binary, "binary"),
        (timestamp, "timestamp", _is_time, "int64 (ns) or a timestamp"),
        (sender, "sender", _is_text, "a string"),
    )
    for column, role, is_right, wanted in wanted_columns:
        if column is not None and not is_right(_field(schema, column, role).type):
            found = _field(schema, column, role).type
            remedy = remedy_of(_is_text(found), wanted)
            raise ConfigError(f"{role} names the column {column!r} of type {found}: it must be {wanted}; {remedy}")
    return Columns(payload, tuple(by), key, timestamp, sender, topic_from_waku)


def checked_pieces(columns: Columns, schema: pa.Schema, pieces: Sequence[Piece], steps: Sequence[UnwrapStep]) -> None:
    """Holds that every file has the columns that are read; without times or senders these are unknown, as on Spark.

    Raises:
        ConfigError: A file lacks one, or has it with another type.
    """
    others = {str(piece.path): piece.schema for piece in pieces if not piece.schema.equals(schema)}
    for path, own in others.items():
        # To Spark a name in another case is the same one.
        names = [name.lower() for name in own.names]
        optional = [name for name in (columns.timestamp, columns.sender) if name is not None]
        lacking = [schema.field(name) for name in optional if name.lower() not in names]
        whole = pa.schema([*own, *lacking])
        try:
            checked_columns(whole, columns.payload, columns.by, columns.key, columns.timestamp, columns.sender, steps)
            for name in columns.by:
                # A topic may stand in the Waku messages of every file, or in a column of every file.
                kind = _field(own, name, "by").type if name in schema.names else None
                if kind is not None and kind != schema.field(name).type:
                    raise ConfigError(
                        f"by names the column {name!r} of type {kind}: it must be {schema.field(name).type}"
                    )
        except ConfigError as error:
            raise ConfigError(f"{path} is not like the other files: {error}") from None


def _field(schema: pa.Schema, name: str, role: str) -> Any:
    if name not in schema.names:
        raise ConfigError(f"{role} names the column {name!r}: the archive has {listed(schema.names)}")
    if schema.names.count(name) > 1:
        raise ConfigError(f"{role} names the column {name!r}, of which the archive has several: rename all but one")
    return schema.field(name)


def _is_binary(kind: Any) -> bool:
    return any(check(kind) for check in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_time(kind: Any) -> bool:
    return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))


def segments_of(
    batches: Iterator[pa.RecordBatch], columns: Columns, config: SegmentationConfig, steps: tuple[UnwrapStep, ...]
) -> Iterator[pa.RecordBatch]:
    """Rows of an archive as the state machines take them in."""
    wire = (_wire_of(batch, columns) for batch in batches)
    if columns.key is not None:
        return wire
    unwrap = UnwrapSegments(
        columns.by, steps, config.wire_format, config.max_total_segments, topic_from_waku=columns.topic_from_waku
    )
    return unwrap(wire)


def _wire_of(batch: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
    """The columns of `by`, then payload, timestamp and sender; with a key those of a segment."""
    payload = batch.column(columns.payload)
    if payload.null_count:
        batch = batch.filter(payload.is_valid())
        payload = batch.column(columns.payload)
    nothing = pa.nulls(batch.num_rows)
    timestamp = times_of(batch, columns)
    sender = batch.column(columns.sender) if columns.sender in batch.schema.names else nothing
    given = {name: batch.column(name) for name in columns.by if not (columns.topic_from_waku and name == TOPIC)}
    if columns.key is None:
        return batch_of({**given, PAYLOAD: payload, TIMESTAMP: timestamp, SENDER: sender})
    text = pa.nulls(batch.num_rows, pa.string())
    return batch_of(
        {
            **given,
            HASH: batch.column(columns.key),
            SEND_ID: text,
            PAYLOAD: payload,
            TIMESTAMP: timestamp,
            SENDER: sender,
            ERROR: text,
        }
    )


def times_of(batch: pa.RecordBatch, columns: Columns) -> Array:
    """The times of rows as `nanoseconds_of` gives them; nulls of a file that has none."""
    if columns.timestamp is None or columns.timestamp not in batch.schema.names:
        return pa.nulls(batch.num_rows)
    return nanoseconds_of(batch.column(columns.timestamp))
