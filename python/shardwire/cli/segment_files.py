"""Segments as files: what `shardwire segment`, `reassemble` and `inspect` do."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from shardwire import keccak256
from shardwire.config import ErasureCode, ReassemblyLimits, SegmentationConfig, SegmentWireFormat
from shardwire.errors import InvalidSegmentError, NotEnoughShardsError, PayloadTooLargeError, ShardwireError
from shardwire.segmentation import (
    PayloadReconstructed,
    Reassembler,
    ReceiveOutcome,
    SegmentDiscarded,
    SegmentStored,
    SetDropped,
)
from shardwire.segmentation import inspect as inspect_segment
from shardwire.segmentation import segment as segment_payload

SEGMENT_SUFFIX = ".segment"
# What `SegmentationConfig.segment_size_bytes` takes at most.
SEGMENT_SIZE_BYTES_MAX = 1 << 30
# As the name of a file: the standard input, or the standard output.
STANDARD_STREAM = "-"
STANDARD_OUTPUT = "standard output"
# Of an input, at once.
_PIECE_BYTES = 1 << 24
# Leopard works on multiples of this.
LEOPARD_ALIGNMENT_BYTES = 64


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did: a line for people, and fields for scripts."""

    line: str
    fields: dict[str, Any]


def write_segments(file: Path, directory: Path, config: SegmentationConfig) -> Outcome:
    """Splits `file` into segment files in `directory`, which is made where it does not exist.

    Args:
        file: The payload; "-" is the standard input.
        directory: Gets `data-NNN.segment` and `parity-NNN.segment`; under `draft` a payload that fits one segment
            becomes `whole.segment`, its own bytes. Where one cannot be written none is left.
        config: How the payload becomes segments.

    Raises:
        PayloadTooLargeError: The file does not fit one message.
        ShardwireError: The directory holds segments already.
        OSError: A file cannot be read or written.
    """
    # Before anything is read: an input may take long, or have no end.
    if any(directory.glob(f"*{SEGMENT_SUFFIX}")):
        raise ShardwireError(f"{directory} holds {SEGMENT_SUFFIX} files already: name another directory")
    # More than any message holds, and no more of an input without an end.
    beyond = config.segment_size_bytes * config.max_total_segments
    payload = _read_at_most(file, beyond)
    try:
        segments = segment_payload(payload, config)
    except PayloadTooLargeError as error:
        if len(payload) < beyond:
            raise
        is_known = str(file) != STANDARD_STREAM and file.is_file()
        size = f"{file.stat().st_size:,} bytes, more" if is_known else "more bytes"
        raise PayloadTooLargeError(
            f"{_name_of(file)} has {size} than the {error.limit_bytes:,} that one message holds: enlarge "
            "segment_size_bytes, lower parity_rate or split it",
            len(payload),
            error.limit_bytes,
        ) from None
    is_new = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    data_count = parity_count = 0
    written: list[Path] = []
    try:
        for one in segments:
            header = inspect_segment(one, wire_format=config.wire_format)
            if header is None:
                name = "whole"
            elif header.is_parity:
                name, parity_count = f"parity-{parity_count:03}", parity_count + 1
            else:
                name, data_count = f"data-{data_count:03}", data_count + 1
            written.append(directory / f"{name}{SEGMENT_SUFFIX}")
            written[-1].write_bytes(one)
    except BaseException as error:
        for path in written:
            path.unlink(missing_ok=True)
        if is_new:
            directory.rmdir()
        if isinstance(error, OSError):
            # That of a full disk does not name the file.
            raise OSError(error.errno, error.strerror, str(written[-1])) from None
        raise
    made = f"{data_count} data and {parity_count} parity segments" if data_count else "one segment, the file itself"
    digest = keccak256(payload).hex()
    return Outcome(
        f"{_name_of(file)}: {len(payload):,} bytes as {made} in {directory}, Keccak-256 {digest}",
        {
            "file": str(file),
            "size_bytes": len(payload),
            "directory": str(directory),
            "data_segments": data_count,
            "parity_segments": parity_count,
            "keccak256": digest,
        },
    )


def reassemble_directory(
    directory: Path, output: Path, wire_format: SegmentWireFormat, erasure_code: ErasureCode
) -> Outcome:
    """Rebuilds the one payload whose segments are the files of `directory` and writes it to `output`.

    Args:
        directory: Files that are no segment are passed over.
        output: A regular file is replaced as a whole and keeps its mode; through a symbolic link the file behind it;
            what else is there (a pipe, a device) is written to. "-" is the standard output.
        wire_format: Wire of the segments.
        erasure_code: The code to try first.

    Raises:
        NotEnoughShardsError: Too many segments are missing.
        ShardwireError: There are no segments, or they belong to more than one payload.
        OSError: A file cannot be read or written.
    """
    files = sorted(path for path in directory.iterdir() if path.is_file())
    if not files:
        raise ShardwireError(f"{directory} holds no files: name a directory of segments")
    if any(os.path.realpath(path) == os.path.realpath(output) for path in files):
        raise ShardwireError(f"--output {str(output)!r} is one of the segments: give another one")
    found = _Found()
    usable = [path for path in files if path.stat().st_size <= SEGMENT_SIZE_BYTES_MAX]
    found.unusable += [f"{path.name} (too large for a segment)" for path in files if path not in usable]
    reassembler = Reassembler(_receiving_config(usable, wire_format, erasure_code))
    for path in usable:
        data = path.read_bytes()
        outcome = reassembler.receive(data, now_ms=0, sender="files", authenticated=True)
        found.add(path, outcome)
        if isinstance(outcome, PayloadReconstructed) and inspect_segment(data, wire_format=wire_format) is None:
            found.whole[outcome.entire_message_hash] = path
    found.pass_over_whole_messages()
    if len(found.rebuilt) > 1 and not found.missing and found.whole.keys() >= found.rebuilt.keys():
        raise ShardwireError(
            f"{directory} holds {len(found.rebuilt)} files that are no segments on the wire {wire_format}, each "
            "a whole message as it is: is --wire-format the one they were made with?"
        )
    if len(found.rebuilt) + len(found.missing) > 1:
        named = ", ".join(key.hex()[:16] for key in [*found.rebuilt, *found.missing])
        raise ShardwireError(f"{directory} holds segments of several payloads ({named}): give each its own directory")
    if not found.rebuilt:
        raise found.error(directory)
    [(message_hash, done)] = found.rebuilt.items()
    write_output(output, done.payload)
    recovered = len(done.data_segments_recovered)
    how = f"{recovered} recovered through parity ({done.erasure_code})" if recovered else "no parity needed"
    place = STANDARD_OUTPUT if str(output) == STANDARD_STREAM else output
    return Outcome(
        f"{place}: {len(done.payload):,} bytes from {max(done.data_segment_count, 1)} data segments, {how}, "
        f"Keccak-256 {message_hash.hex()}{found.ignored()}",
        {
            "file": str(output),
            "size_bytes": len(done.payload),
            "data_segments": max(done.data_segment_count, 1),
            "recovered": recovered,
            "erasure_code": done.erasure_code if recovered else None,
            "ignored": found.unusable,
            "keccak256": message_hash.hex(),
        },
    )


def describe_segment(path: Path, wire_format: SegmentWireFormat) -> dict[str, str | int]:
    """The fields of one segment by name; what its wire does not say is left out. "-" is the standard input.

    Raises:
        InvalidSegmentError: The file holds no segment of that wire.
        OSError: It cannot be read.
    """
    data = _read(path)
    try:
        header = inspect_segment(data, wire_format=wire_format)
    except InvalidSegmentError as error:
        raise InvalidSegmentError(f"{_name_of(path)} is no segment on the wire {wire_format}: {error}") from None
    if header is None:
        kind = "whole message (no segment: under draft, bytes as they are)"
        return {"kind": kind, "payload_length": len(data)}
    numbers = {
        name: getattr(header, name)
        for name in (
            "data_segment_index",
            "data_segment_count",
            "parity_segment_index",
            "parity_segment_count",
            "payload_length",
            "segment_payload_length",
        )
    }
    return {
        "kind": "parity segment" if header.is_parity else "data segment",
        "wire_format": header.wire_format,
        "entire_message_hash": header.entire_message_hash.hex(),
        **{name: number for name, number in numbers.items() if number is not None},
    }


def _receiving_config(
    files: list[Path], wire_format: SegmentWireFormat, erasure_code: ErasureCode
) -> SegmentationConfig:
    """A configuration that takes these files: the sender's segment size is not on the wire, but none is larger."""
    sizes = [path.stat().st_size for path in files]
    largest = max(*sizes, 192, 1)
    aligned = -(-largest // LEOPARD_ALIGNMENT_BYTES) * LEOPARD_ALIGNMENT_BYTES
    total = sum(sizes) + 1
    limits = ReassemblyLimits(buffered_bytes_max=4 * total, buffered_bytes_per_sender_max=4 * total)
    return SegmentationConfig(
        segment_size_bytes=aligned,
        enable_reed_solomon=True,
        erasure_code=erasure_code,
        wire_format=wire_format,
        limits=limits,
    )


def _read_at_most(file: Path, size_bytes: int) -> bytes:
    pieces = []
    with nullcontext(standard_input()) if str(file) == STANDARD_STREAM else file.open("rb") as stream:
        while size_bytes and (piece := stream.read(min(size_bytes, _PIECE_BYTES))):
            pieces.append(piece)
            size_bytes -= len(piece)
    return b"".join(pieces)


def _read(path: Path) -> bytes:
    return standard_input().read() if str(path) == STANDARD_STREAM else path.read_bytes()


def standard_input() -> BinaryIO:
    """What the standard input gives.

    Raises:
        OSError: It was closed before the command began.
    """
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed", "standard input")
    return sys.stdin.buffer


def _name_of(path: Path) -> str:
    return "standard input" if str(path) == STANDARD_STREAM else str(path)


@dataclass(slots=True)
class _Found:
    """What the files of a directory turned out to be."""

    rebuilt: dict[bytes, PayloadReconstructed] = field(default_factory=dict)
    whole: dict[bytes, Path] = field(default_factory=dict)
    missing: dict[bytes, int | None] = field(default_factory=dict)
    unusable: list[str] = field(default_factory=list)

    def add(self, path: Path, outcome: ReceiveOutcome) -> None:
        match outcome:
            case PayloadReconstructed():
                self.rebuilt[outcome.entire_message_hash] = outcome
                self.missing.pop(outcome.entire_message_hash, None)
            case SegmentStored():
                self.missing[outcome.entire_message_hash] = outcome.segments_needed
            case SetDropped():
                self.unusable.append(f"{path.name} ({outcome.reason})")
            case SegmentDiscarded():
                # A late segment of a complete payload, or the same one twice, is as it should be.
                if outcome.reason not in ("AlreadyCompleted", "Duplicate"):
                    self.unusable.append(f"{path.name} ({outcome.reason}: {outcome.detail})")

    def pass_over_whole_messages(self) -> None:
        """Under draft any file is a whole message: beside segments it is a file that is none."""
        if len(self.whole) < len(self.rebuilt) or self.missing:
            for key, path in self.whole.items():
                del self.rebuilt[key]
                self.unusable.append(f"{path.name} (a whole message)")

    def ignored(self) -> str:
        return f"; ignored {len(self.unusable)}: {self.unusable[0]}" if self.unusable else ""

    def error(self, directory: Path) -> ShardwireError:
        if not self.missing:
            return ShardwireError(
                f"{directory} holds no usable segment{self.ignored()}: is --wire-format the one they were made with?"
            )
        [(message_hash, needed)] = self.missing.items()
        more = "at least one data segment" if needed is None else f"{needed} more segments"
        return NotEnoughShardsError(f"{directory}: payload {message_hash.hex()[:16]} needs {more}{self.ignored()}")


def write_output(output: Path, payload: bytes) -> None:
    """Writes a file as a whole, or leaves the old one; "-" is the standard output.

    Raises:
        OSError: It cannot be written; it names `output`, or the standard output.
    """
    try:
        if str(output) == STANDARD_STREAM:
            if sys.stdout is None:
                raise OSError(errno.EBADF, "it is closed")
            sys.stdout.buffer.write(payload)
            sys.stdout.buffer.flush()
        elif output.exists() and not output.is_file():
            with output.open("wb") as stream:
                stream.write(payload)
        else:
            _write_atomically(output.resolve(), payload)
    except OSError as error:
        # A temporary file's name would say nothing to the user.
        name = STANDARD_OUTPUT if str(output) == STANDARD_STREAM else str(output)
        raise OSError(error.errno, error.strerror, name) from None


def _write_atomically(output: Path, payload: bytes) -> None:
    # A reader of `output` sees the old file or the whole new one.
    descriptor, written = tempfile.mkstemp(dir=output.parent, prefix=".shardwire-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(payload)
        os.chmod(written, _mode_of(output))
        os.replace(written, output)
    except BaseException:
        Path(written).unlink(missing_ok=True)
        raise


def _mode_of(output: Path) -> int:
    """The mode that writing to `output` would leave it with."""
    if output.exists():
        return stat.S_IMODE(output.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
