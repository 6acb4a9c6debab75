"""The options that commands share: who takes part, where, with which secrets and state."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from shardwire.cli.network.participation import Participation, check_names, make_node, participant_name
from shardwire.cli.segment_files import STANDARD_STREAM
from shardwire.config import ChannelConfig
from shardwire.encryption import (
    AesGcmEncryption,
    ChaCha20Poly1305Encryption,
    Encryption,
    read_key_file,
    read_key_variable,
)
from shardwire.errors import ConfigError

NODE_VARIABLE = "SHARDWIRE_NODE"
CREDENTIALS_VARIABLE = "SHARDWIRE_CREDENTIALS"
_WHO = "Who and where"
_KEPT = "Secrets and state"
_HOW = "How"


def wants_directory(place: Path | None) -> Path | None:
    """The directory that an option names, which need not exist yet.

    Raises:
        typer.BadParameter: It is "-", or there is a file in its place, or in that of a directory above it.
    """
    if place is not None:
        if str(place) == STANDARD_STREAM:
            raise typer.BadParameter("it wants a directory, and '-' is the standard output: name one")
        there = next((str(path) for path in (place, *place.parents) if os.path.lexists(path)), None)
        if there is not None and not os.path.isdir(there):
            raise typer.BadParameter(f"it wants a directory, and {there!r} is a file")
    return place


NodeOption = Annotated[
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
]
StateKeyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--state-key-file",
        help="The state is encrypted with the key in a file: 64 hexadecimal digits.",
        rich_help_panel=_KEPT,
    ),
]
StateKeyVariableOption = Annotated[
    str | None,
    typer.Option(
        "--state-key-env",
        metavar="NAME",
        help="The state is encrypted with the key in an environment variable.",
        rich_help_panel=_KEPT,
    ),
]
CredentialsOption = Annotated[
    Path | None,
    typer.Option(
        "--credentials-file",
        help=f"File with user:password, or a NATS token, for the node; else {CREDENTIALS_VARIABLE} is read.",
        rich_help_panel=_KEPT,
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Tell what happens as lines of JSON, for scripts.", rich_help_panel=_HOW)
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show what the library logs, too.", rich_help_panel=_HOW)
]
QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Tell what was asked for and errors, nothing beside.", rich_help_panel=_HOW),
]


class Cipher(StrEnum):
    """Ciphers."""

    chacha = "chacha20-poly1305"
    aes = "aes-256-gcm"


class Preset(StrEnum):
    """Presets of the channel's configuration."""

    logos = "logos"
    waku = "waku"


def _participation(
    *,
    node: NodeOption,
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
    state_key_file: StateKeyFileOption = None,
    state_key_env: StateKeyVariableOption = None,
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
    cipher: Annotated[
        Cipher | None,
        typer.Option("--cipher", help="The cipher.", show_default=Cipher.chacha.value, rich_help_panel=_KEPT),
    ] = None,
    credentials_file: CredentialsOption = None,
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
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> Participation:
    check_names(channel, topic, sender)
    encryption = _encryption(key_file, key_env, cipher)
    if state is None and (state_key_file is not None or state_key_env is not None):
        option = "--state-key-env" if state_key_file is None else "--state-key-file"
        raise typer.BadParameter("there is no --state to encrypt: give one", param_hint=option)
    state_key = read_state_key(state_key_file, state_key_env)
    kept_name = None if state is None else participant_name(channel, sender)
    made = make_node(node, read_credentials(credentials_file), kept_name)
    config = _config(preset, parity_rate)
    secrets = tuple(name for name in (key_env, state_key_env) if name is not None)
    return Participation(
        made, channel, topic, sender, encryption, state, state_key, config, as_json, verbose, quiet, secrets
    )


def _config(preset: Preset, parity_rate: float) -> ChannelConfig:
    if preset is Preset.waku:
        config = ChannelConfig.waku()
        # A command that ends must have acknowledged what it got: the schedule of specification 004 alone is too late.
        config = replace(config, sync=replace(config.sync, acknowledgement_sync=True))
    else:
        config = ChannelConfig.logos()
    if not parity_rate:
        return config
    segmentation = replace(config.segmentation, enable_reed_solomon=True, parity_rate=parity_rate)
    return replace(config, segmentation=segmentation)


def _encryption(key_file: Path | None, key_env: str | None, cipher: Cipher | None) -> Encryption | None:
    if key_file is not None and key_env is not None:
        raise typer.BadParameter("--key-file is given, too: keep one of them", param_hint="--key-env")
    if cipher is not None and key_file is None and key_env is None:
        # Who names a cipher does not expect plaintext.
        raise typer.BadParameter(
            "there is no key, and nothing would be encrypted: give --key-file or --key-env", param_hint="--cipher"
        )
    kind = AesGcmEncryption if cipher is Cipher.aes else ChaCha20Poly1305Encryption
    if key_file is not None:
        return kind.from_key_file(key_file)
    return None if key_env is None else kind.from_environment(key_env)


def read_state_key(file: Path | None, variable: str | None) -> bytes | None:
    """The key of a state; None where there is none.

    Raises:
        typer.BadParameter: Both are given.
        ConfigError: There is no key, or more than one.
    """
    if file is not None and variable is not None:
        raise typer.BadParameter("--state-key-file is given, too: keep one of them", param_hint="--state-key-env")
    if file is not None:
        keys, place = read_key_file(file), f"key file {os.fspath(file)!r}"
    elif variable is not None:
        keys, place = read_key_variable(variable), f"the environment variable {variable}"
    else:
        return None
    if len(keys) != 1:
        raise ConfigError(f"{place} holds {len(keys)} keys: a state has one")
    return keys[0]


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


def of_a_participant(command: Callable[..., int]) -> Callable[..., None]:
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
