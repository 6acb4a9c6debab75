"""Arguments of a machine: what is of a wrong kind, or out of its limits, is a `ConfigError` that names it."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from shardwire import ConfigError, SdsConfig, SyncConfig
from shardwire.sds import MessageChannel, Now

NOW = Now(0, 0)
GIVEN: dict[str, Any] = {
    "channel_id": "room",
    "config": SdsConfig(),
    "content": b"x",
    "content_bytes_max": 10,
    "content_count": 1,
    "contents": [b"x"],
    "contents_needed": 1,
    "count": 1,
    "data": b"x",
    "delivered_when": None,
    "erasure_code": "leopard",
    "from_store": False,
    "header_bytes_max": 24_000,
    "inferred_message_ids": None,
    "invalid": False,
    "keep_messages": False,
    "kinds": None,
    "message_id": "m",
    "message_ids": ["m"],
    "name": "m",
    "now": NOW,
    "ordinal": 0,
    "ordinals": [0],
    "records": {},
    "reserve": 0,
    "retrieval_hint": None,
    "rng": random.Random(1),
    "send_id": "0" * 32,
    "sender_id": "alice",
    "sync": SyncConfig(),
    "transmit_id": 1,
    "wire_format": "raw",
}
TEXTS = {"channel_id", "message_id", "name", "send_id", "sender_id"}
COUNTS = {
    "content_bytes_max",
    "content_count",
    "contents_needed",
    "count",
    "header_bytes_max",
    "ordinal",
    "reserve",
    "transmit_id",
}
FLAGS = {"from_store", "invalid", "keep_messages"}
OPTIONAL = {("handle_content_placed", name) for name in COUNTS}


def made(**given: Any) -> MessageChannel:
    names = ("channel_id", "sender_id", "config", "sync", "now", "rng")
    return MessageChannel(**{**{name: GIVEN[name] for name in names}, **given})


def called(method: str, /, **given: Any) -> Any:
    return getattr(made(), method)(**given)


def calls() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {"MessageChannel": made}
    for name, method in inspect.getmembers(MessageChannel, callable):
        if name == "restore":
            found[name] = method
        elif not name.startswith("_"):
            found[name] = partial(called, name)
    return found


CALLS = calls()


def arguments_of(name: str) -> list[str]:
    target = MessageChannel if name == "MessageChannel" else getattr(MessageChannel, name)
    return [argument for argument in inspect.signature(target).parameters if argument != "self"]


PAIRS = [(name, argument) for name in CALLS for argument in arguments_of(name)]


def refused(name: str, argument: str, value: object) -> str:
    given = {other: GIVEN[other] for other in arguments_of(name)}
    with pytest.raises(ConfigError, match=rf"^{argument} is ") as raised:
        CALLS[name](**{**given, argument: value})
    return str(raised.value)


def test_every_argument_is_known_here() -> None:
    assert {argument for _, argument in PAIRS} == set(GIVEN)


@pytest.mark.parametrize(("name", "argument"), [pair for pair in PAIRS if pair[1] in TEXTS])
@pytest.mark.parametrize("value", [None, 5, b"bytes", "\ud800"], ids=["None", "5", "bytes", "half a character"])
def test_what_is_no_text(name: str, argument: str, value: object) -> None:
    assert "must be a text" in (told := refused(name, argument, value)) or "encodable as UTF-8" in told


@pytest.mark.parametrize(("name", "argument"), [pair for pair in PAIRS if pair[1] in COUNTS])
@pytest.mark.parametrize("value", [-1, 1.5, "5", True, 10**30, None], ids=repr)
def test_what_is_no_count(name: str, argument: str, value: object) -> None:
    if value is None and (name, argument) in OPTIONAL:
        return
    assert "it must be an integer from 0 to " in refused(name, argument, value)


@pytest.mark.parametrize(("name", "argument"), [pair for pair in PAIRS if pair[1] in FLAGS])
@pytest.mark.parametrize("value", [1, None, "no"], ids=repr)
def test_what_is_neither_true_nor_false(name: str, argument: str, value: object) -> None:
    assert refused(name, argument, value).endswith("it must be True or False")


@pytest.mark.parametrize(("name", "argument"), [pair for pair in PAIRS if pair[1] == "now"])
@pytest.mark.parametrize("value", [None, 5, (0, 0)], ids=repr)
def test_what_is_no_moment(name: str, argument: str, value: object) -> None:
    assert refused(name, argument, value).endswith("it must be a Now")


@pytest.mark.parametrize("name", ["MessageChannel", "restore"])
def test_what_is_no_source_of_randomness(name: str) -> None:
    for value in (None, random, 7):
        assert refused(name, "rng", value).endswith("it must be a random.Random")


@pytest.mark.parametrize("name", ["MessageChannel", "restore"])
@pytest.mark.parametrize("value", [-1, 0, 10**30, "all", frozenset(), [5], 1.5], ids=repr)
def test_who_must_hold_a_send(name: str, value: object) -> None:
    assert "it must be 'any', an integer of at least 1 or a non-empty set" in refused(name, "delivered_when", value)


def test_other_arguments() -> None:
    assert "a list of integers of at least 0" in refused("resume", "ordinals", [-1])
    assert "a container of TransmitKind, or None" in refused("poll_transmit", "kinds", 5)
    assert "a mapping of (kind, key) to bytes" in refused("restore", "records", 5)


def test_a_long_value_is_not_shown() -> None:
    assert refused("cancel", "send_id", b"x" * 1_000) == "send_id is a bytes: it must be a text"
