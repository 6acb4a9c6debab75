"""The commands and their options."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from shardwire import __version__, quoting
from shardwire.cli import segment_files
from shardwire.cli.explanation import EXIT_FAILED, EXIT_USAGE, TRACEBACK_VARIABLE, empty_argument, explain
from shardwire.cli.network import add_commands
from shardwire.cli.network.options import Cipher, JsonOption, QuietOption, VerboseOption, wants_directory
from shardwire.cli.network.output import UNREAD_S, Output, json_line, log_level, told_warnings
from shardwire.config import SegmentationConfig
from shardwire.ending_signals import EXIT_INTERRUPTED, as_ctrl_c

app = typer.Typer(
    name="shardwire",
    help="Reliable messages of many megabytes, and files of any size, over lossy networks.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Wire(StrEnum):
    """Segment wires."""

    raw = "raw"
    draft = "draft"
    lip243 = "lip243"


class Code(StrEnum):
    """Reed-Solomon codes."""

    leopard = "leopard"
    vandermonde = "vandermonde"


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"shardwire {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Show the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Reliable messages of many megabytes, and files of any size, over lossy networks."""


WireOption = Annotated[Wire, typer.Option("--wire-format", "-w", help="Wire of the segments.")]
CodeOption = Annotated[Code, typer.Option("--erasure-code", "-c", help="Reed-Solomon code of the parity segments.")]
# Of the commands that read archives.
PayloadOption = Annotated[str, typer.Option("--payload", help="Column with the messages' bytes.")]
ByOption = Annotated[list[str] | None, typer.Option("--by", help="Column that keeps messages apart; repeatable.")]
UnwrapOption = Annotated[
    list[str] | None,
    typer.Option("--unwrap", "-u", help="What is around, from outside: waku, decrypt, sds, sds-nim; repeatable."),
]
KeyFileOption = Annotated[Path | None, typer.Option("--key-file", help="decrypt: a file with the keys.")]
KeyEnvOption = Annotated[str | None, typer.Option("--key-env", help="decrypt: an environment variable with keys.")]
ChannelIdOption = Annotated[str | None, typer.Option("--channel-id", help="decrypt: the channel of the messages.")]
CipherOption = Annotated[Cipher, typer.Option("--cipher", help="decrypt: the cipher.")]
TimestampOption = Annotated[str | None, typer.Option("--timestamp", help="Column with the times.")]
SenderOption = Annotated[str | None, typer.Option("--sender", help="Column with who sent a message.")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, help="How many read side by side.", show_default="one a core")
]
SegmentSizeOption = Annotated[int, typer.Option("--segment-size", "-s", min=1, help="Payload bytes of a segment.")]


@app.command()
def demo(
    file: Annotated[
        Path | None,
        typer.Argument(help="The file to send, of 4 KB or more.", show_default="a binary of this Python"),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Directory for the archive and the picture demo.png.", callback=wants_directory
        ),
    ] = Path("demo-output"),
    seed: Annotated[int, typer.Option("--seed", help="Of the network's faults.")] = 7,
    as_file: Annotated[
        bool, typer.Option("--as-file", help="Send FILE in chunks, as a file, also where one message holds it.")
    ] = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Send FILE through a network that loses 20 % of everything, live, and reconstruct it again on Spark.

    What one message does not hold, more than 13.1 MB, goes as a file: in chunks of one message each, which the
    receivers join. Spark then reconstructs the chunks and verifies them by their hashes.

    Exits with 0 where both receivers got every byte, the sender was told so, and Spark reconstructed it from the
    archive, or chunks of it where it went as a file; what luck did not show, it names.

    \b
    shardwire demo
    shardwire demo film.mkv -o film-demo
    """
    from shardwire.cli.demo import run_demo

    # It shows above its bars what is logged.
    logger = logging.getLogger("shardwire")
    before = logger.level
    logger.setLevel(log_level(verbose=verbose, quiet=quiet))
    try:
        code = run_demo(file, output, seed, as_file=as_file, aside=as_json or quiet)
    finally:
        logger.setLevel(before)
    told = Output(as_json=as_json, quiet=quiet)
    told.event("demo", proved=code == 0, output=str(output), seed=seed, file=None if file is None else str(file))
    raise typer.Exit(code)


@app.command()
def segment(
    file: Annotated[Path, typer.Argument(help="The file to split; - for the standard input.", show_default=False)],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Directory for the segments, one file each.", callback=wants_directory),
    ],
    wire_format: WireOption = Wire.raw,
    erasure_code: CodeOption = Code.leopard,
    segment_size: Annotated[
        int, typer.Option("--segment-size", "-s", min=1, help="Payload bytes of a segment (lip243: its whole size).")
    ] = 102_400,
    parity_rate: Annotated[
        float, typer.Option("--parity-rate", "-p", min=0, max=1, help="Parity segments per data segment; 0 for none.")
    ] = 0.125,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Split FILE into segments, with parity that makes up for lost ones.

    Any of the segments may be lost, as long as as many are left as FILE has data segments.

    \b
    shardwire segment photo.raw -o segments --parity-rate 0.5
    """
    config = SegmentationConfig(
        segment_size_bytes=segment_size,
        enable_reed_solomon=parity_rate > 0,
        parity_rate=parity_rate,
        erasure_code=erasure_code.value,
        wire_format=wire_format.value,
    )
    with told_warnings(log_level(verbose=verbose, quiet=quiet)):
        _tell("segmented", segment_files.write_segments(file, output, config), as_json=as_json, quiet=quiet)


@app.command()
def reassemble(
    directory: Annotated[Path, typer.Argument(help="Directory of segment files.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write; - for the standard output.")],
    wire_format: WireOption = Wire.raw,
    erasure_code: CodeOption = Code.leopard,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Rebuild a file from the segments in DIRECTORY, in any order and with some of them lost.

    What is written has the Keccak-256 that every segment names; nothing is written otherwise.

    \b
    shardwire reassemble segments -o rebuilt.raw
    """
    # What is printed names what was passed over and how many: a log line a file only where it is asked for.
    with told_warnings(logging.INFO if verbose else logging.ERROR):
        done = segment_files.reassemble_directory(directory, output, wire_format.value, erasure_code.value)
    aside = str(output) == segment_files.STANDARD_STREAM
    _tell("reassembled", done, as_json=as_json, quiet=quiet, aside=aside)


@app.command()
def reconstruct(
    archive: Annotated[list[Path], typer.Argument(help="Parquet files or directories of them.", show_default=False)],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Directory for the messages, as Parquet.", callback=wants_directory)
    ],
    payload: PayloadOption = "payload",
    by: ByOption = None,
    key: Annotated[str | None, typer.Option("--key", help="Column with entire_message_hash, if there is one.")] = None,
    unwrap: UnwrapOption = None,
    key_file: KeyFileOption = None,
    key_env: KeyEnvOption = None,
    channel_id: ChannelIdOption = None,
    cipher: CipherOption = Cipher.chacha,
    timestamp: TimestampOption = None,
    sender: SenderOption = None,
    lengths_only: Annotated[bool, typer.Option("--lengths-only", help="Write no payloads.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output, once all is written.")] = False,
    threads: ThreadsOption = None,
    wire_format: WireOption = Wire.raw,
    erasure_code: CodeOption = Code.leopard,
    segment_size: SegmentSizeOption = 102_400,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Reconstruct the messages of an ARCHIVE of network traffic, a row a message, whatever became of it.

    Exits with 1 where a message is incomplete or invalid, or a row is no segment; the output is written all the same.

    \b
    shardwire reconstruct archive -o messages --unwrap sds
    shardwire reconstruct monday tuesday -o messages --by sender --by channel
    """
    from shardwire.cli import archives

    config = SegmentationConfig(
        segment_size_bytes=segment_size, erasure_code=erasure_code.value, wire_format=wire_format.value
    )
    asked = archives.Question(
        config,
        payload=payload,
        by=by or (),
        key=key,
        unwrap=unwrap or (),
        secret=archives.Key(key_file, key_env, channel_id, cipher.value),
        timestamp=timestamp,
        sender=sender,
        include_payload=not lengths_only,
        threads=threads,
        replace=overwrite,
    )
    with told_warnings(log_level(verbose=verbose, quiet=quiet)):
        is_whole, lines, found = archives.reconstruct_archive(archive, output, asked)
    told = Output(as_json=as_json)
    told.event("reconstructed", **found)
    if not quiet:
        for line in lines:
            told.result(line)
    raise typer.Exit(0 if is_whole else EXIT_FAILED)


@app.command()
def report(
    archive: Annotated[
        list[str],
        typer.Argument(help="Parquet files or directories of them; with --spark also URIs.", show_default=False),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write; - for the standard output.")],
    payload: PayloadOption = "payload",
    by: ByOption = None,
    unwrap: UnwrapOption = None,
    key_file: KeyFileOption = None,
    key_env: KeyEnvOption = None,
    channel_id: ChannelIdOption = None,
    cipher: CipherOption = Cipher.chacha,
    timestamp: TimestampOption = None,
    sender: SenderOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the page, once it is made.")] = False,
    threads: ThreadsOption = None,
    spark: Annotated[
        str | None,
        typer.Option("--spark", metavar="MASTER", help="Count on Spark: local[*], spark://HOST:PORT, yarn, k8s://URL."),
    ] = None,
    wire_format: WireOption = Wire.raw,
    erasure_code: CodeOption = Code.leopard,
    segment_size: SegmentSizeOption = 102_400,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write a page about an ARCHIVE: what is complete, recovered, incomplete; loss by sender and over time.

    With sds or sds-nim in --unwrap it tells acknowledgement latency and the overhead of each kind of message, too. The
    page needs nothing else: no network, no server; its tables sort, and it prints. An archive that does not fit this
    machine is counted by --spark, with the same page.

    \b
    shardwire report archive -o report.html --unwrap sds
    """
    from shardwire.cli import archives

    config = SegmentationConfig(
        segment_size_bytes=segment_size, erasure_code=erasure_code.value, wire_format=wire_format.value
    )
    asked = archives.Question(
        config,
        payload=payload,
        by=by or (),
        unwrap=unwrap or (),
        secret=archives.Key(key_file, key_env, channel_id, cipher.value),
        timestamp=timestamp,
        sender=sender,
        threads=threads,
        replace=overwrite,
        spark=spark,
    )
    with told_warnings(log_level(verbose=verbose, quiet=quiet)):
        done = archives.write_report(archive, output, asked)
    _tell("reported", done, as_json=as_json, quiet=quiet, aside=str(output) == segment_files.STANDARD_STREAM)


@app.command()
def inspect(
    segment: Annotated[
        Path, typer.Argument(help="A file that holds one segment; - for the standard input.", show_default=False)
    ],
    wire_format: WireOption = Wire.raw,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show what one SEGMENT says of itself.

    \b
    shardwire inspect segments/parity-003.segment
    """
    with told_warnings(log_level(verbose=verbose, quiet=quiet)):
        fields = segment_files.describe_segment(segment, wire_format.value)
    output = Output(as_json=as_json)
    output.event("segment", **fields)
    for name, value in fields.items():
        output.result(f"{name:22} {value:,}" if isinstance(value, int) else f"{name:22} {value}")


add_commands(app)


def _tell(event: str, outcome: segment_files.Outcome, *, as_json: bool, quiet: bool, aside: bool = False) -> None:
    """Tells what was done, on the standard error stream where the standard output holds a file."""
    if aside:
        if as_json or not quiet:
            typer.echo(json_line(event, outcome.fields) if as_json else quoting.printable(outcome.line), err=True)
        return
    output = Output(as_json=as_json)
    output.event(event, **outcome.fields)
    if not quiet:
        output.result(outcome.line)


def _complain(line: str, code: int) -> None:
    told = f"shardwire: {quoting.printable(line)}\n"
    if code != EXIT_INTERRUPTED:
        sys.stderr.write(told)
        return
    # Whoever interrupts a command does not wait for who reads its errors.
    raw = getattr(sys.stderr.buffer, "raw", sys.stderr.buffer)
    telling = threading.Thread(target=raw.write, args=(told.encode(),), daemon=True)
    telling.start()
    telling.join(UNREAD_S)


def run(arguments: Sequence[str]) -> int:
    """Runs one command line. Whatever goes wrong becomes one line on the standard error stream.

    Args:
        arguments: What follows the program's name.

    Returns:
        The exit code.
    """
    if (fault := empty_argument(arguments)) is not None:
        print(f"shardwire: {quoting.printable(fault)}", file=sys.stderr)
        return EXIT_USAGE
    try:
        # What a command has half done it takes back, whatever ends it.
        with as_ctrl_c():
            outcome: Any = app(args=list(arguments), prog_name="shardwire", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            traceback.print_exception(error)
        code, line = explain(error)
        if line:
            _complain(line, code)
        return code
    if outcome == EXIT_INTERRUPTED:
        # typer itself turns an interruption into this code.
        _complain("interrupted", EXIT_INTERRUPTED)
    return outcome if isinstance(outcome, int) else 0
