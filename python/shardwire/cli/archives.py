"""Archives of network traffic: what `shardwire reconstruct` does."""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardwire.cli.explanation import one_line
from shardwire.cli.segment_files import STANDARD_STREAM, Outcome, write_output
from shardwire.config import SegmentationConfig
from shardwire.errors import ConfigError, ShardwireError

if TYPE_CHECKING:
    from shardwire.archive.unwrap import UnwrapStep

# The masters that Spark knows.
MASTERS = re.compile(
    r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?|local-cluster\[\d+, *\d+, *\d+\]|spark://.+|yarn|k8s://.+"
)
# What a job of one's own can tell Spark, and this command cannot.
_LEAVES_OUT = re.compile(r"; \S+ leaves such files out")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class RefusedQuestionError(ConfigError):
    """An archive gave no answer. As in the Spark jobs its exit code is not that of an archive with losses."""

    exit_code = 2


class NothingReadError(ShardwireError):
    """An archive's answer is that none of its rows can be read."""


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except (NothingReadError, BrokenPipeError):
        raise
    except (ShardwireError, OSError) as error:
        raise RefusedQuestionError(_LEAVES_OUT.sub("", one_line(error))) from error


@dataclass(frozen=True, slots=True)
class Key:
    """Where the key of the layer "decrypt" is found; never the key itself."""

    file: Path | None = None
    env: str | None = None
    channel_id: str | None = None
    cipher: str = "chacha20-poly1305"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of an archive."""

    config: SegmentationConfig
    payload: str = "payload"
    by: Sequence[str] = ()
    key: str | None = None
    unwrap: Sequence[str] = ()
    secret: Key = field(default_factory=Key)
    timestamp: str | None = None
    sender: str | None = None
    include_payload: bool = True
    threads: int | None = None
    replace: bool = False
    spark: str | None = None


def _refuse_stray(sources: Iterable[str], asked: Question) -> None:
    """Refuses an archive that is not there, and is meant for an option, in words that say how to give it."""
    from shardwire.archive.unwrap import LAYERS

    for source in sources:
        option, given = ("--unwrap", asked.unwrap) if source in LAYERS else ("--by", asked.by)
        if given and not _URI.match(source) and not glob.glob(source):
            raise ConfigError(
                f"there is no file or directory {source!r}: correct it; where it is meant for {option}, give that for "
                f"each: {option} {given[-1]} {option} {source}"
            )


@_refusing()
def reconstruct_archive(
    sources: Sequence[Path], output: Path, asked: Question
) -> tuple[bool, Iterator[str], Mapping[str, Any]]:
    """Writes the messages of an archive; whether none is missing, and what was found, as lines and as fields.

    Raises:
        RefusedQuestionError: What `shardwire.archive.reconstruct_files` raises; or a file cannot be written.
    """
    from shardwire.archive import reconstruct_files
    from shardwire.archive.arrow import STATUSES

    _refuse_stray(map(str, sources), asked)
    report = reconstruct_files(
        list(sources),
        output,
        asked.config,
        payload=asked.payload,
        by=list(asked.by),
        key=asked.key,
        include_payload=asked.include_payload,
        unwrap=_steps_of(asked),
        timestamp=asked.timestamp,
        sender=asked.sender,
        threads=asked.threads,
        replace=asked.replace,
    )
    counts = {**dict.fromkeys(STATUSES, 0), **report.messages}

    def lines() -> Iterator[str]:
        for status, count in counts.items():
            yield f"{status:12} {count:>15,}"
        for reason, rows in report.unreadable.items():
            yield f"{'no segment':12} {rows:>15,}  {reason}"
        yield f"{report.payload_bytes:,} bytes of payloads in {output}, {report.seconds:.1f} s"

    found = {
        "messages": counts,
        "no_segments": dict(report.unreadable),
        "payload_bytes": report.payload_bytes,
        "output": str(output),
        "seconds": round(report.seconds, 3),
    }
    return not (counts["incomplete"] or counts["invalid"] or report.unreadable), lines(), found


def _refuse_input(output: Path, sources: Iterable[str]) -> None:
    own = os.path.realpath(output)
    for source in sources:
        given = os.path.realpath(source)
        if own == given or given in map(str, Path(own).parents):
            raise ConfigError(f"--output {str(output)!r} and the archive {source!r} overlap: give a page outside it")


def _refuse_existing(output: Path, *, replace: bool) -> None:
    from shardwire.archive.html_page import PAGE_BEGIN

    # A device or a pipe holds nothing that could be lost.
    if str(output) == STANDARD_STREAM or not output.is_file():
        return
    if not replace:
        raise ConfigError(f"the output {str(output)!r} exists: give another one, or --overwrite")
    with output.open("rb") as stream:
        begin = stream.read(len(PAGE_BEGIN))
    if begin not in (b"", PAGE_BEGIN.encode()):
        raise ConfigError(
            f"the output {str(output)!r} is not replaced, since it is no page of shardwire report: give another one, "
            "or remove it yourself"
        )


def _workplace(output: Path) -> Path | None:
    """Where there is room for what is as large as the archive: beside the page, since the system's directory may lie in
    memory. None for the latter, where the page goes to a stream, a device or a pipe.

    Raises:
        ConfigError: The output is a directory, or there is none for it.
        OSError: Nothing can be written beside it; the error names the output.
    """
    if str(output) == STANDARD_STREAM:
        return None
    if output.is_dir():
        raise ConfigError(f"--output is {str(output)!r}, a directory: give a file")
    if output.exists() and not output.is_file():
        return None
    if not output.parent.is_dir():
        raise ConfigError(f"--output is {str(output)!r}: there is no directory {str(output.parent)!r}; make it before")
    place = output.resolve().parent
    try:
        tempfile.TemporaryDirectory(prefix="shardwire-", dir=place).cleanup()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(output)) from None
    return place


@_refusing()
def write_report(sources: Sequence[str], output: Path, asked: Question) -> Outcome:
    """Writes what an archive says of its traffic, as one page.

    Args:
        sources: Parquet files or directories; with Spark also URIs that it reads.
        output: The page; "-" is the standard output.
        asked: What is asked.

    Raises:
        RefusedQuestionError: What `shardwire.archive.summarize` raises; or the page cannot be written, or exists, and
            is not to be replaced, or is another file.
        NothingReadError: The page is written, and no row of the archive could be read.
    """
    from shardwire.archive import report_page, summarize
    from shardwire.archive.arrow import STATUSES

    _refuse_stray(sources, asked)
    columns: dict[str, Any] = {
        "payload": asked.payload,
        "by": list(asked.by),
        "unwrap": _steps_of(asked),
        "timestamp": asked.timestamp,
        "sender": asked.sender,
    }
    if asked.spark is None:
        if uri := next(filter(_URI.match, sources), None):
            raise ConfigError(f"--spark is missing: only Spark reads {uri!r}; give --spark MASTER, or a path")
        _refuse_input(output, sources)
        _refuse_existing(output, replace=asked.replace)
        directory = _workplace(output)
        summary = summarize(list(sources), asked.config, threads=asked.threads, directory=directory, **columns)
    else:
        if not MASTERS.fullmatch(asked.spark):
            raise ConfigError(f"--spark is {asked.spark!r}: it must be local[*], spark://HOST:PORT, yarn or k8s://URL")
        from shardwire.archive.source import files_of
        from shardwire.spark import summarize_archive
        from shardwire.spark.failures import failures_told
        from shardwire.spark.reading import read_parquet, unreadable_told
        from shardwire.spark.session import job_session

        # What is not there is told at once, and not by Spark.
        files = [file for source in sources for file in ([source] if _URI.match(source) else files_of(source))]
        _refuse_input(output, files)
        _refuse_existing(output, replace=asked.replace)
        _workplace(output)
        archive = ", ".join(sources)
        with failures_told(), job_session("shardwire report", asked.spark) as spark, unreadable_told(archive):
            summary = summarize_archive(read_parquet(spark, *files), asked.config, **columns)
    page = report_page(summary, f"Traffic of {', '.join(Path(source).name or source for source in sources)}")
    write_output(output, page.encode("utf-8", "backslashreplace"))
    counts = {status: summary.total.statuses[status] for status in STATUSES}
    told = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    fields = {
        "output": str(output),
        "messages": counts,
        "loss": summary.total.loss,
        "duplicates": summary.total.duplicates,
        "recovered": summary.total.recovered,
        "senders": len(summary.senders),
        "no_segments": summary.unreadable,
    }
    rows = sum(summary.unreadable.values())
    if rows and not (summary.total.segments or summary.kinds):
        reason, count = max(summary.unreadable.items(), key=itemgetter(1))
        raise NothingReadError(
            f"none of {rows:,} rows is a segment, which is all that {str(output)!r} says; {count:,} of them: {reason}; "
            "--wire-format names the wire, --unwrap what lies around it, --channel-id the channel of a key"
        )
    lost = f"; {summary.total.loss:.2%} of the data segments did not come" if summary.total.segments else ""
    no_segments = f"; {rows:,} rows are no segments" if rows else ""
    return Outcome(f"{output}: {told}{lost}{no_segments}", fields)


def _steps_of(asked: Question) -> list[UnwrapStep]:
    from shardwire.archive.unwrap import steps_of

    secret = asked.secret
    return steps_of(
        asked.unwrap, key_file=secret.file, key_env=secret.env, channel_id=secret.channel_id, cipher=secret.cipher
    )
