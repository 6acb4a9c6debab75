"""The commands of a channel over a real network, with their options."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from shardwire.cli.network import chat as chatting
from shardwire.cli.network import listen as listening
from shardwire.cli.network import send as sending
from shardwire.cli.network import serve as serving
from shardwire.cli.network.handlers import MessageCommand
from shardwire.cli.network.interruption import Interruption, run_until_done
from shardwire.cli.network.output import told_warnings
from shardwire.cli.network.participation import Participation, check_names, make_node, participant_name
from shardwire.cli.network.spool import Spool
from shardwire.config import ChannelConfig
from shardwire.encryption import AesGcmEncryption, ChaCha20Poly1305Encryption, Encryption

NODE_VARIABLE = "SHARDWIRE_NODE"
CREDENTIALS_VARIABLE = "SHARDWIRE_CREDENTIALS"
FAILED_DIRECTORY = "failed"
_WHO = "Who and where"
_KEPT = "Secrets and state"
_HOW = "How"


class Cipher(StrEnum):
    """Ciphers."""

    chacha = "chacha20-poly1305"
    aes = "aes-256-gcm"


class Preset(StrEnum):
    """Presets of the channel's configuration."""

    logos = "logos"
    waku = "waku"


class Until(StrEnum):
    """What a sender waits for."""

    sent = "sent"
    delivered = "delivered"


def _participation(
    *,
    node: Annotated[
        str,
        typer.Option(
            "--node",
            "-n",
            metavar="URL",
            envvar=NODE_VARIABLE,
            show_envvar=True,
            help="The network: waku+http://, nats://, mqtt:// (with TLS: waku+https://, tls://, mqtts://) or udp://.",
            rich_help_panel=_WHO,
        ),
    ],
    channel: Annotated[
        str, typer.Option("--channel", "-c", help="The channel: the same for all participants.", rich_help_panel=_WHO)
    ],
    topic: Annotated[
        str,
        typer.Option("--topic", "-t", help="Its content topic, as /app/1/notes/proto.", rich_help_panel=_WHO),
    ],
    sender: Annotated[
        str, typer.Option("--sender", "-s", help="Who takes part: a name of your own.", rich_help_panel=_WHO)
    ],
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            metavar="DIR",
            help="Keep the channel in DIR, in SQLite, over restarts and crashes. One process at a time for a channel.",
            rich_help_panel=_KEPT,
        ),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            help="Encrypt with the keys in a file: 64 hexadecimal digits a line, the first encrypts.",
            rich_help_panel=_KEPT,
        ),
    ] = None,
    key_env: Annotated[
        str | None,
        typer.Option(
            "--key-env",
            metavar="NAME",
            help="Encrypt with the keys in an environment variable.",
            rich_help_panel=_KEPT,
        ),
    ] = None,
    cipher: Annotated[Cipher, typer.Option("--cipher", help="The cipher.", rich_help_panel=_KEPT)] = Cipher.chacha,
    credentials_file: Annotated[
        Path | None,
        typer.Option(
            "--credentials-file",
            help=f"File with user:password, or a NATS token, for the node; else {CREDENTIALS_VARIABLE} is read.",
            rich_help_panel=_KEPT,
        ),
    ] = None,
    preset: Annotated[
        Preset,
        typer.Option("--preset", help="Timings and wires: waku for peers that use @waku/sdk.", rich_help_panel=_HOW),
    ] = Preset.logos,
    parity_rate: Annotated[
        float,
        typer.Option(
            "--parity-rate",
            min=0,
            max=1,
            help="Parity segments per data segment, which make up for lost ones; 0 for none.",
            rich_help_panel=_HOW,
        ),
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Tell what happens as lines of JSON, for scripts.", rich_help_panel=_HOW)
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what the library logs, too.", rich_help_panel=_HOW)
    ] = False,
) -> Participation:
    check_names(channel, topic, sender)
    encryption = _encryption(key_file, key_env, cipher)
    kept_name = None if state is None else participant_name(channel, sender)
    made = make_node(node, read_credentials(credentials_file), kept_name)
    config = _config(preset, parity_rate)
    secrets = () if key_env is None else (key_env,)
    return Participation(made, channel, topic, sender, encryption, state, config, as_json, verbose, secrets)


def _config(preset: Preset, parity_rate: float) -> ChannelConfig:

    config = ChannelConfig.waku() if preset is Preset.waku else ChannelConfig.logos()
    if not parity_rate:
        return config
    segmentation = replace(config.segmentation, enable_reed_solomon=True, parity_rate=parity_rate)
    return replace(config, segmentation=segmentation)


def _encryption(key_file: Path | None, key_env: str | None, cipher: Cipher) -> Encryption | None:
    if key_file is not None and key_env is not None:
        raise typer.BadParameter("--key-file is given, too: keep one of them", param_hint="--key-env")
    kind = ChaCha20Poly1305Encryption if cipher is Cipher.chacha else AesGcmEncryption
    if key_file is not None:
        return kind.from_key_file(key_file)
    return None if key_env is None else kind.from_environment(key_env)


def read_credentials(file: Path | None) -> str | None:
    """What a node is shown: a file's only line, or what the environment holds; None where there is neither."""

    if file is None:
        return os.environ.get(CREDENTIALS_VARIABLE) or None
    lines = file.read_text(errors="replace").split()
    if len(lines) != 1:
        raise typer.BadParameter(
            f"{file} must hold one line without spaces, user:password or a token", param_hint="--credentials-file"
        )
    return lines[0]


def _of_a_participant(command: Callable[..., int]) -> Callable[..., None]:
    """Gives a command the options of a participant: it is called with the participation they describe."""
    shared = inspect.signature(_participation, eval_str=True).parameters
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

    @wraps(command)
    def run(**options: Any) -> None:
        described = {name: options.pop(name) for name in shared}
        raise typer.Exit(command(_participation(**described), **options))

    parameters = [
        *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
        *shared.values(),
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # typer would look at the original.
    del run.__wrapped__
    return run


def _run(
    participation: Participation, command: Callable[[Interruption], Awaitable[int]], *, interrupted: int = 130
) -> int:

    with told_warnings(verbose=participation.verbose):
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
    timeout: Annotated[float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait.")] = 120,
) -> int:
    """Send FILE as one message, and wait for its receipt.

    Exits with 0 where it was delivered, with 1 where it was not in time: with --state it goes on with the next
    command that has the same one. One message holds 26,112,000 bytes at most, less with parity.

    \b
    shardwire send photo.jpg -n nats://localhost -c notes -t /app/1/notes/proto -s alice
    date | shardwire send - -n udp://239.255.70.1 -c notes -t /app/1/notes/proto -s alice --to bob
    """
    if to and receivers is not None:
        raise typer.BadParameter("--to is given, too: keep one of them", param_hint="--receivers")
    delivered_when: Any = frozenset(to) if to else receivers or "any"
    config = replace(participation.config, delivered_when=delivered_when)
    participation = replace(participation, config=config)
    message = sending.read_message(file, config.segmentation)
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
            "--output", "-o", metavar="DIR", help="Write each message to a file in DIR, its sender beside it."
        ),
    ] = None,
) -> int:
    """Show the messages of a channel as they come: text as it is, anything else by its size.

    Ctrl-C ends it. Exits with 1 where fewer than --count came within --timeout.

    \b
    shardwire listen -n nats://localhost -c notes -t /app/1/notes/proto -s bob
    shardwire listen -n mqtt://broker.example -c notes -t /app/1/notes/proto -s bob --count 1 --json
    """

    return _run(
        participation,
        lambda interruption: listening.listen(
            participation, interruption, count=count, timeout_s=timeout, directory=output
        ),
    )


def chat(
    participation: Participation,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait for receipts at the end.")
    ] = 30,
) -> int:
    """Send each line that is typed, and show what others send.

    Ends with the input (Ctrl-D) or with Ctrl-C. Exits with 1 where a line was not delivered.

    \b
    shardwire chat -n nats://localhost -c lobby -t /app/1/lobby/proto -s alice
    shardwire chat -n udp://0.0.0.0?peers=first.example -c lobby -t /app/1/lobby/proto -s bob
    """

    return _run(
        participation, lambda interruption: chatting.chat(participation, interruption, timeout_s=timeout), interrupted=0
    )


def serve(
    participation: Participation,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND]", help="Run for each message, which is its standard input.", show_default=False
        ),
    ] = None,
    spool: Annotated[
        Path | None,
        typer.Option("--spool", metavar="DIR", help="Write each message to a file in DIR, its sender beside it."),
    ] = None,
    attempts: Annotated[int, typer.Option("--attempts", min=1, help="How often the command is tried.")] = 3,
    command_timeout: Annotated[
        float, typer.Option("--command-timeout", min=0.001, metavar="SECONDS", help="How long the command may take.")
    ] = 600,
    failed: Annotated[
        Path | None,
        typer.Option(
            "--failed",
            metavar="DIR",
            help="Directory of messages that the command failed on.",
            show_default="'failed' in --state, else 'shardwire-failed'",
        ),
    ] = None,
) -> int:
    """Take part for long, and hand each message to COMMAND, to a spool directory, or to both.

    Messages come one at a time and in order; with --state each at least once, whatever crashes. COMMAND finds
    SHARDWIRE_SENDER_ID, SHARDWIRE_MESSAGE_ID, SHARDWIRE_SIZE_BYTES, SHARDWIRE_REDELIVERED and SHARDWIRE_CHANNEL in its
    environment. One that fails is tried again after 1, 2, 4 ... s; then the message is set aside, and the next one
    comes. Ctrl-C and SIGTERM end it once the message in hand is done.

    \b
    shardwire serve -n nats://localhost -c jobs -t /app/1/jobs/proto -s worker --state state -- ./handle --quiet
    shardwire serve -n nats://localhost -c jobs -t /app/1/jobs/proto -s worker --state state --spool incoming
    """

    if not command and spool is None:
        raise typer.BadParameter("nobody gets the messages: give --spool DIR, or -- COMMAND", param_hint="COMMAND")
    handler = None
    if command:
        hidden = frozenset((NODE_VARIABLE, CREDENTIALS_VARIABLE, *participation.secret_variables))
        handler = MessageCommand(
            command, participation.channel, command_timeout, hidden, output_to_errors=participation.as_json
        )
    if failed is None:
        state = participation.state
        failed = Path(f"shardwire-{FAILED_DIRECTORY}") if state is None else state / FAILED_DIRECTORY
    set_aside = failed
    directory = None if spool is None else Spool(spool)
    return _run(
        participation,
        lambda interruption: serving.serve(
            participation, interruption, command=handler, spool=directory, failed=set_aside, attempts=attempts
        ),
        interrupted=0,
    )


def add_commands(app: typer.Typer) -> None:
    """Adds the commands to those of `shardwire`."""
    for command in (send, listen, chat, serve):
        app.command(rich_help_panel="Channels over a network")(_of_a_participant(command))
