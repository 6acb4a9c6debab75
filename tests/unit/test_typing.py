"""What type checkers and libraries that read annotations see of the API."""

from __future__ import annotations

import typing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from mypy import api
from pydantic import TypeAdapter, ValidationError

import shardwire
from shardwire import config, node
from shardwire.event_names import EVENT_TYPES_BY_NAME, EventName

CONFIGS = [
    value
    for module in (config, node)
    for value in (getattr(module, name) for name in module.__all__)
    if isinstance(value, type) and is_dataclass(value) and value.__module__.startswith("shardwire")
]
PROLOGUE = """
import asyncio
from typing import assert_type
from shardwire import (
    ChannelConfig, MessageDeliveredEvent, MessageReceivedEvent, Node, ReliableChannel, SdsConfig,
    create_reliable_channel, keccak256_many,
)
from shardwire.archive import UnwrapStep, decrypt, reconstruct
import pyarrow as pa
async def use(channel: ReliableChannel, node: Node) -> None:
"""
RIGHT = """
    channel.on(MessageReceivedEvent, lambda event: print(event.message, event.sender_id))
    def delivered(event: MessageDeliveredEvent) -> None: ...
    async def received(event: MessageReceivedEvent) -> None: ...
    channel.on(MessageDeliveredEvent, delivered)
    channel.on(MessageReceivedEvent, received)
    channel.on("reliable:message:delivered", delivered)
    channel.on("message-received", lambda event: print(event.message, event.sender_id))
    channel.on_message_received(received)
    ChannelConfig.logos(sds=SdsConfig(), auto_start=False, delivered_when={"bob"})
    async with create_reliable_channel(node, "id", "/a/1/b/proto", "alice") as entered:
        await entered.send(b"x")
    awaited = await create_reliable_channel(node, "id", "/a/1/b/proto", "alice")
    await awaited.send(b"x")
    creating = asyncio.create_task(create_reliable_channel(node, "id", "/a/1/b/proto", "alice"))
    assert_type(await creating, ReliableChannel)
    async for event in channel.messages():
        print(len(event.message))
    print(b"".join(keccak256_many([b"x", bytearray(b"y")])), keccak256_many(pa.array([b"x"])).type.byte_width)
    print(keccak256_many(pa.chunked_array([[b"x"]])).num_chunks)
    layers: list[UnwrapStep] = ["waku", decrypt(key_file="channel.key", channel_id="id"), "sds"]
    reconstruct(pa.table({"payload": [b"x"]}), unwrap=layers)
"""
WRONG = {
    "channel.on(MessageReceivedEvent, lambda event: event.delivered_to)": 'no attribute "delivered_to"',
    "channel.on('message-recieved', print)": 'No overload variant of "on"',
    "channel.on('message-received', lambda event: event.delivered_to)": 'No overload variant of "on"',
    "channel.on(MessageReceivedEvent, 3)": 'No overload variant of "on"',
    "ChannelConfig.logos(sdss=SdsConfig())": 'Unexpected keyword argument "sdss"',
    "ChannelConfig.waku(auto_start='no')": 'Argument "auto_start"',
    "keccak256_many(b'x')": 'Argument 1 to "keccak256_many"',
    "keccak256_many([b'x'])[0].type": 'no attribute "type"',
    "create_reliable_channel(node, 'id', '/a/1/b/proto').send(b'x')": "Missing positional argument",
    # The await is forgotten.
    "create_reliable_channel(node, 'id', '/a/1/b/proto', 'alice').messages()": 'no attribute "messages"',
}


def check(code: str, directory: Path) -> str:
    """What mypy --strict says of a program."""
    program = directory / "program.py"
    program.write_text(code)
    cache = directory.parent / "mypy_cache"
    said, errors, _ = api.run(["--strict", f"--cache-dir={cache}", "--no-error-summary", str(program)])
    assert not errors, errors
    return said


def test_right_programs_pass_mypy_strict(tmp_path: Path) -> None:
    assert check(PROLOGUE + RIGHT, tmp_path) == ""


def test_wrong_programs_do_not(tmp_path: Path) -> None:
    said = check(PROLOGUE + "".join(f"    {line}\n" for line in WRONG), tmp_path).splitlines()
    first = PROLOGUE.count("\n") + 1
    for number, (line, expected) in enumerate(WRONG.items(), first):
        about = [entry for entry in said if f"program.py:{number}:" in entry]
        assert any(expected in entry for entry in about), f"{line}: {about}"


def test_names_that_are_not_there_are_refused(tmp_path: Path) -> None:
    lines = ["import shardwire", "from shardwire import ReliableChanel", "from shardwire.node import NatsNodee"]
    said = check("\n".join([*lines, "print(shardwire.create_channel)", ""]), tmp_path)
    refused = [line for line in said.splitlines() if "has no attribute" in line]
    assert len(refused) == 3, said


def test_a_name_gives_its_callback_the_class_that_it_stands_for(tmp_path: Path) -> None:
    lines = ["from shardwire import ReliableChannel, events", "from shardwire.event_names import EventName"]
    lines += ["def use(channel: ReliableChannel, name: EventName) -> None:"]
    lines += ["    def anything(event: events.ChannelEvent) -> None: ...", "    channel.on(name, anything)"]
    kinds = set(EVENT_TYPES_BY_NAME.values())
    lines += [f"    def of_{kind.__name__}(event: events.{kind.__name__}) -> None: ..." for kind in kinds]
    right, wrong = [], []
    for name, kind in EVENT_TYPES_BY_NAME.items():
        right.append(f"    channel.on({name!r}, of_{kind.__name__})")
        other = "RateLimitEvent" if kind is not shardwire.events.RateLimitEvent else "MessageSentEvent"
        wrong.append(f"    channel.on({name!r}, of_{other})")
    said = check("\n".join([*lines, *right, *wrong, ""]), tmp_path)
    refused = {int(line.split(":")[1]) for line in said.splitlines() if ": error:" in line}
    first_wrong = len(lines) + len(right) + 1
    assert refused == set(range(first_wrong, first_wrong + len(wrong))), said


def test_the_names_of_events_are_literals() -> None:
    assert set(typing.get_args(EventName)) == set(EVENT_TYPES_BY_NAME)


@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)
def test_type_hints_of_every_config_resolve(kind: type[Any]) -> None:
    assert typing.get_type_hints(kind).keys() >= {field.name for field in fields(kind)}


def test_presets_take_the_fields_of_a_config() -> None:
    changes = typing.get_type_hints(config.ChannelChanges)
    assert changes == {
        name: hint for name, hint in typing.get_type_hints(config.ChannelConfig).items() if not name.startswith("__")
    }


@pytest.mark.parametrize(
    "kind",
    [value for value in CONFIGS if value.__module__.startswith("shardwire.config") or value is node.NodeConfig],
    ids=lambda kind: kind.__name__,
)
def test_pydantic_takes_every_config(kind: type[Any]) -> None:
    assert TypeAdapter(kind).validate_python({}) == kind()


def test_pydantic_reads_settings_into_a_config() -> None:
    settings = {"sds": {"max_retransmissions": "7"}, "rate_limit": {"enabled": True, "messages_per_epoch": 10}}
    read = TypeAdapter(shardwire.ChannelConfig).validate_python(settings)
    assert read.sds.max_retransmissions == 7
    assert read.rate_limit.messages_per_epoch == 10
    with pytest.raises(ValidationError, match=r"SdsConfig.max_retransmissions is -1: it must be an integer from 0"):
        TypeAdapter(shardwire.ChannelConfig).validate_python({"sds": {"max_retransmissions": -1}})
