"""The commands of a channel over a real network, with their options."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from shardwire.cli.network import chat as chatting
from shardwire.cli.network import files as transfers
from shardwire.cli.network import listen as listening
from shardwire.cli.network import send as sending
from shardwire.cli.network import serve as serving
from shardwire.cli.network.handlers import MessageCommand
from shardwire.cli.network.interruption import Interruption, run_until_done
from shardwire.cli.network.looks import doctor, record, state
from shardwire.cli.network.options import (
    CREDENTIALS_VARIABLE,
    NODE_VARIABLE,
    of_a_participant,
    wants_directory,
)
from shardwire.cli.network.output import log_level, told_warnings
from shardwire.cli.network.participation import Participation
from shardwire.cli.network.spool import FAILED_DIRECTORY, Spool
from shardwire.ending_signals import EXIT_INTERRUPTED
from shardwire.files.names import fault_of

FilesOption = Annotated[
    Path | None,
    typer.Option(
        "--files",
        metavar="DIR",
        help="Take the files that others offer with send --as-file, into DIR.",
        callback=wants_directory,
    ),
]
# Of a command that handles messages.
_ATTEMPTS, _COMMAND_TIMEOUT_S = 3, 600


class Until(StrEnum):
    """What a sender waits for."""

    sent = "sent"
    delivered = "delivered"


def _run(
    participation: Participation,
    command: Callable[[Interruption], Awaitable[int]],
    *,
    interrupted: int = EXIT_INTERRUPTED,
) -> int:

    with told_warnings(log_level(verbose=participation.verbose, quiet=participation.quiet)):
        return run_until_done(command, interrupted=interrupted)


def send(
    participation: Participation,
    file: Annotated[Path, typer.Argument(help="The file to send; - for the standard input.", show_default=False)],
    until: Annotated[
        Until, typer.Option("--until", help="Wait until a participant has it (delivered), or the network (sent).")
    ] = Until.delivered,
    to: Annotated[
        list[str] | None, typer.Option("--to", metavar="SENDER", help="Wait until this one has it; repeatable.")
    ] = None,
    receivers: Annotated[
        int | None, typer.Option("--receivers", min=1, help="Wait until so many have it.", show_default="any one")
    ] = None,
    as_file: Annotated[
        bool, typer.Option("--as-file", help="Offer FILE, of any size, to those that listen or serve with --files.")
    ] = False,
    name: Annotated[
        str | None,
        typer.Option("--name", help="What it is offered as, with --as-file.", show_default="that of FILE"),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait.")] = 120,
) -> int:
    """Send FILE as one message, and wait for its receipt.

    Exits with 0 where it was delivered, with 1 where it was not in time: with
    --state it goes on with the next command that has the same one. One message
    holds 26,112,000 bytes at most, over UDP about half; a file sent with --as-file
    has any size, and the same command goes on where one stopped.

    \b
    shardwire send a.jpg -n nats://host -c notes -t /app/1/notes/proto -s alice
    date | shardwire send - -n udp://239.255.70.1 -c a -t /a/1/b/proto -s alice
    """
    if to and receivers is not None:
        raise typer.BadParameter("--to is given, too: keep one of them", param_hint="--receivers")
    if to and set(to) == {participation.sender}:
        raise typer.BadParameter("it is who sends: name another participant", param_hint="--to")
    if until is Until.sent and (to or receivers is not None):
        raise typer.BadParameter(
            "--to and --receivers name who must have it: leave them out, or wait until delivered",
            param_hint="--until",
        )
    delivered_when: Any = frozenset(to) if to else receivers or "any"
    config = replace(participation.config, delivered_when=delivered_when)
    participation = replace(participation, config=config)
    if as_file:
        if str(file) == sending.STANDARD_INPUT or until is Until.sent:
            raise typer.BadParameter(
                "it offers a file, and waits until it was received: name one, without --until", param_hint="--as-file"
            )
        size_bytes = file.stat().st_size
        offered = file.name if name is None else name
        if (fault := fault_of(offered)) is not None:
            raise typer.BadParameter(f"{offered!r} is offered as no file: {fault}", param_hint="--name")
        return _run(
            participation,
            lambda interruption: transfers.send_file(
                participation, interruption, file, name=offered, size_bytes=size_bytes, timeout_s=timeout
            ),
        )
    if name is not None:
        raise typer.BadParameter("a message has none: give --as-file, too", param_hint="--name")
    message = sending.read_message(file, participation)
    return _run(
        participation,
        lambda interruption: sending.send(participation, interruption, message, until=until.value, timeout_s=timeout),
    )


def listen(
    participation: Participation,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many messages.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="End after this.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Write each message to a file in DIR, its sender beside it.",
            callback=wants_directory,
        ),
    ] = None,
    files: FilesOption = None,
) -> int:
    """Show the messages of a channel as they come: text as it is, anything else by its size.

    Ctrl-C ends it, with 0 where no --count was asked for. Exits with 1 where
    fewer than --count came within --timeout.

    It ends as well where nobody reads its output any more (| head -1), which
    shows with the next message. With --state that message is shown by the next
    command; without, nothing is kept: unless a store brings it again it is
    lost, as is said on standard error. --count N takes N and no more.

    \b
    shardwire listen -n nats://host -c notes -t /app/1/notes/proto -s bob
    shardwire listen -n mqtt://host -c a -t /a/1/b/proto -s bob --count 1 --json
    """

    return _run(
        participation,
        lambda interruption: listening.listen(
            participation, interruption, count=count, timeout_s=timeout, directory=output, files=files
        ),
        # Without a number of messages it has no other end.
        interrupted=0 if count is None else EXIT_INTERRUPTED,
    )


def chat(
    participation: Participation,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait for receipts at the end.")
    ] = 30,
) -> int:
    """Send each line that is typed, and show what others send.

    Ends with the input (Ctrl-D) or with Ctrl-C. Exits with 1 where a line was
    not delivered.

    \b
    shardwire chat -n nats://host -c lobby -t /app/1/lobby/proto -s alice
    shardwire chat -n 'udp://0.0.0.0?peers=host' -c a -t /a/1/b/proto -s bob
    """

    return _run(
        participation, lambda interruption: chatting.chat(participation, interruption, timeout_s=timeout), interrupted=0
    )


def serve(
    participation: Participation,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND", help="Run for each message, which is its standard input.", show_default=False
        ),
    ] = None,
    spool: Annotated[
        Path | None,
        typer.Option(
            "--spool",
            metavar="DIR",
            help="Write each message to a file in DIR, its sender beside it.",
            callback=wants_directory,
        ),
    ] = None,
    files: FilesOption = None,
    attempts: Annotated[
        int | None,
        typer.Option("--attempts", min=1, help="How often the command is tried.", show_default=str(_ATTEMPTS)),
    ] = None,
    command_timeout: Annotated[
        float | None,
        typer.Option(
            "--command-timeout",
            min=0.001,
            metavar="SECONDS",
            help="How long the command may take.",
            show_default=str(_COMMAND_TIMEOUT_S),
        ),
    ] = None,
    failed: Annotated[
        Path | None,
        typer.Option(
            "--failed",
            metavar="DIR",
            help="Directory of messages that the command failed on.",
            show_default="'failed' in --state, else 'shardwire-failed'",
            callback=wants_directory,
        ),
    ] = None,
) -> int:
    """Take part for long, and hand each message to COMMAND, to a spool directory, or to both.

    Messages come one at a time and in order; with --state each at least once,
    whatever crashes. COMMAND finds SHARDWIRE_SENDER_ID, SHARDWIRE_MESSAGE_ID,
    SHARDWIRE_SIZE_BYTES, SHARDWIRE_REDELIVERED and SHARDWIRE_CHANNEL in its
    environment. One that fails is tried again after 1, 2, 4 ... s; then the
    message is set aside, and the next one comes. Ctrl-C and SIGTERM end it
    once the message in hand is done.

    \b
    shardwire serve -n nats://host -c jobs -t /a/1/b/proto -s w --spool incoming
    shardwire serve -n nats://host -c jobs -t /a/1/b/proto -s w -- ./handle -q
    """

    if not command and spool is None and files is None:
        raise typer.BadParameter(
            "nobody gets the messages: give -- COMMAND, --spool DIR or --files DIR", param_hint="COMMAND"
        )
    options = {"--attempts": attempts, "--command-timeout": command_timeout, "--failed": failed}
    for option, value in options.items():
        if value is not None and not command:
            raise typer.BadParameter("there is no COMMAND that it is about: give -- COMMAND", param_hint=option)
    handler = None
    if command:
        hidden = frozenset((NODE_VARIABLE, CREDENTIALS_VARIABLE, *participation.secret_variables))
        handler = MessageCommand(
            command,
            participation.channel,
            command_timeout or _COMMAND_TIMEOUT_S,
            hidden,
            output_to_errors=participation.as_json,
        )
    if failed is None:
        state = participation.state
        failed = Path(f"shardwire-{FAILED_DIRECTORY}") if state is None else state / FAILED_DIRECTORY
    set_aside = failed
    directory = None if spool is None else Spool(spool)
    return _run(
        participation,
        lambda interruption: serving.serve(
            participation,
            interruption,
            command=handler,
            spool=directory,
            files=files,
            failed=set_aside,
            attempts=attempts or _ATTEMPTS,
        ),
        interrupted=0,
    )


def monitor(
    participation: Participation,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where the page is served; this machine alone by default.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Of the page; 0 for a free one.")] = 8086,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name under which browsers reach it; repeatable."),
    ] = None,
) -> int:
    """Serve a live page about a channel: who takes part, messages, quota, what follows what.

    It takes part as a listener, shows no contents, and changes nothing: the
    page is read only. There is no password: with another --host whoever
    reaches the port sees it. Ctrl-C ends it.

    \b
    shardwire monitor -n nats://host -c notes -t /app/1/notes/proto -s watcher
    """
    # Before anything of the network is used: it says what to install.
    from shardwire.cli.network import monitor as monitoring

    return _run(
        participation,
        lambda interruption: monitoring.monitor(
            participation, interruption, host=host, port=port, allow_hosts=allow_host or ()
        ),
        interrupted=0,
    )


def add_commands(app: typer.Typer) -> None:
    """Adds the commands to those of `shardwire`."""
    panel = "Channels over a network"
    for command in (send, listen, chat, serve, monitor):
        app.command(rich_help_panel=panel)(of_a_participant(command))
    for look in (record, doctor, state):
        app.command(rich_help_panel=panel)(look)
