"""The commands that take part in no channel: they look at a node, at its traffic, or at a state."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from shardwire.cli.network.interruption import run_until_done
from shardwire.cli.network.options import (
    NODE_VARIABLE,
    CredentialsOption,
    JsonOption,
    NodeOption,
    QuietOption,
    StateKeyFileOption,
    StateKeyVariableOption,
    VerboseOption,
    read_credentials,
    read_state_key,
    wants_directory,
)
from shardwire.cli.network.output import Output, log_level, told_warnings
from shardwire.cli.network.participation import check_names, make_node
from shardwire.cli.network.spool import FAILED_DIRECTORY
from shardwire.ending_signals import EXIT_INTERRUPTED


def record(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Gets the files; more where it has some.", callback=wants_directory, show_default=False
        ),
    ],
    node: NodeOption,
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", help="What is recorded, as /app/1/notes/proto; repeatable.")
    ],
    seconds: Annotated[
        float | None, typer.Option("--for", min=0, metavar="SECONDS", help="How long.", show_default="until Ctrl-C")
    ] = None,
    rows_per_file: Annotated[
        int, typer.Option("--rows-per-file", min=1, help="A file is written when so many messages wait for it.")
    ] = 10_000,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            min=0.001,
            max=86_400,
            metavar="SECONDS",
            help="Or when the first of them waited so long; a crash loses no more.",
        ),
    ] = 60,
    credentials_file: CredentialsOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Record what a node hears of topics, a row a message, as Parquet.

    `report`, `reconstruct` and Spark read the directory, and decrypt what is
    encrypted: no key is needed here. It takes part in nothing, and hears no
    earlier messages. Ctrl-C ends it, and writes the rest.

    \b
    shardwire record archive -n nats://host -t /app/1/notes/proto
    shardwire report archive --unwrap sds -o report.html
    """
    # Before anything of the network is used: it says what to install.
    from shardwire.cli.network import record as recording

    for name in topic:
        check_names("a", name, "a")
    output = Output(as_json=as_json, quiet=quiet)
    made = make_node(node, read_credentials(credentials_file), None)
    with told_warnings(log_level(verbose=verbose, quiet=quiet)):
        code = run_until_done(
            lambda interruption: recording.record(
                made,
                interruption,
                output,
                topics=tuple(dict.fromkeys(topic)),
                directory=directory,
                rows_per_file=rows_per_file,
                interval_ms=max(1, round(interval * 1_000)),
                for_s=seconds,
            ),
            interrupted=0,
        )
    raise typer.Exit(code)


def doctor(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", envvar=NODE_VARIABLE, help="The node, as --node names it.", show_default=False),
    ],
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Whether a Waku node serves the shard of this topic.")
    ] = None,
    credentials_file: CredentialsOption = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait.")] = 30,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for neighbours over UDP.")
    ] = 5,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say what a node is: its peers, store, shards, clock, RLN; and what to do.

    Exits with 0 where channels can use it, with 1 where not: each problem
    comes with its remedy. Notes tell what may be meant so.

    \b
    shardwire doctor waku+http://127.0.0.1:8645 -t /app/1/notes/proto
    shardwire doctor nats://localhost --json
    """
    from shardwire.cli.network.doctor import examine

    if topic is not None:
        check_names("a", topic, "a")
    node = make_node(url, read_credentials(credentials_file), None, option="URL")
    output = Output(as_json=as_json, quiet=quiet)
    # What it finds it says itself.
    with told_warnings(logging.INFO if verbose else logging.CRITICAL):
        code = run_until_done(
            lambda interruption: examine(
                node, interruption, output, topic=topic, timeout_s=timeout, neighbours_wait_s=wait
            ),
            interrupted=EXIT_INTERRUPTED,
        )
    raise typer.Exit(code)


def state(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="What a command had as --state, or a database.", show_default=False),
    ],
    state_key_file: StateKeyFileOption = None,
    state_key_env: StateKeyVariableOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """List what a state holds: its channels, what is on its way, what waits.

    It may be in use meanwhile: nothing is locked or changed. Exits with 1
    where there is none, or one that was found corrupt lies there.

    \b
    shardwire state state --json
    """
    from shardwire.cli.network.state import describe_state

    output = Output(as_json=as_json, quiet=quiet)
    with told_warnings(log_level(verbose=verbose, quiet=quiet)):
        code = describe_state(directory, FAILED_DIRECTORY, output, read_state_key(state_key_file, state_key_env))
    raise typer.Exit(code)
