"""Checks what a node brings against the node protocol, field by field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from shardwire.channel.hooks import is_non_negative_int
from shardwire.node.protocol import (
    ConnectionState,
    ConnectionStatus,
    MessageEnvelope,
    MessagePropagated,
    MessageReceived,
    MessageSendError,
    MessageSent,
    MessagesMissed,
    NodeEvent,
    StorePage,
)

# A hash that is the same for several messages, as an empty one is, would make the first the only one. Those of Waku
# have 32 bytes; a node for another network may have others.
HASH_BYTES_MAX = 64
_HASH_EXPECTED = f"1 to {HASH_BYTES_MAX} bytes"

_Check = tuple[str, Callable[[object], bool], str]


def _is_hash(value: object) -> bool:
    return isinstance(value, bytes) and 0 < len(value) <= HASH_BYTES_MAX


def _is(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


_REQUEST: tuple[_Check, ...] = (
    ("request_id", _is(str), "a str"),
    ("message_hash", _is_hash, _HASH_EXPECTED),
)
_STORED: tuple[_Check, ...] = (
    ("message_hash", _is_hash, _HASH_EXPECTED),
    ("timestamp_ns", _is(int), "an int"),
    (
        "envelope",
        lambda value: value is None or (isinstance(value, MessageEnvelope) and isinstance(value.payload, bytes)),
        "None or a MessageEnvelope with a payload of bytes",
    ),
)
# By kind of event: each field that is used, and what it must be.
_CHECKS: Mapping[type[NodeEvent], tuple[_Check, ...]] = {
    MessageReceived: (
        ("envelope", _is(MessageEnvelope), "a MessageEnvelope"),
        ("envelope.payload", _is(bytes), "bytes"),
        ("message_hash", _is_hash, _HASH_EXPECTED),
        ("timestamp_ns", _is(int), "an int"),
    ),
    MessagePropagated: _REQUEST,
    MessageSent: _REQUEST,
    MessageSendError: (
        ("request_id", _is(str), "a str"),
        ("error", _is(str), "a str"),
        ("permanent", _is(bool), "a bool"),
        ("retry_after_ms", lambda value: value is None or is_non_negative_int(value), "None or an int of at least 0"),
    ),
    MessagesMissed: (("since_ns", is_non_negative_int, "an int of at least 0"),),
    ConnectionStatus: (("state", _is(ConnectionState), "a ConnectionState"),),
}


def fault_of_page(page: object) -> str | None:
    """What is wrong with a store's answer, for the log and without values; None where nothing is."""
    if not isinstance(page, StorePage):
        return f"a {type(page).__name__}: it must be a StorePage"
    for stored in page.messages:
        for name, is_right, expected in _STORED:
            if not is_right(value := getattr(stored, name, None)):
                return _fault("StoredMessage", name, value, expected)
    return None


def is_well_formed(event: MessageReceived) -> bool:
    """Whether `fault_of` finds nothing; for the kind that most events are of, without looking fields up by name."""
    envelope, message_hash = event.envelope, event.message_hash
    return (
        isinstance(envelope, MessageEnvelope)
        and isinstance(envelope.payload, bytes)
        and isinstance(message_hash, bytes)
        and 0 < len(message_hash) <= HASH_BYTES_MAX
        and isinstance(event.timestamp_ns, int)
    )


def names_request(event: MessagePropagated | MessageSent) -> bool:
    """Whether `fault_of` finds nothing, likewise."""
    return isinstance(event.request_id, str) and _is_hash(event.message_hash)


def fault_of(event: object) -> str | None:
    """What is wrong with an event, for the log and without values; None where nothing is, or its kind is unused."""
    kind: type[Any] = type(event)
    if kind not in _CHECKS:
        kind = next((known for known in _CHECKS if isinstance(event, known)), kind)
    for path, is_right, expected in _CHECKS.get(kind, ()):
        value = getattr(event, path, None) if "." not in path else reduce(_part, path.split("."), event)
        if not is_right(value):
            return _fault(kind.__name__, path, value, expected)
    return None


def _part(value: object, name: str) -> object:
    return getattr(value, name, None)


def _fault(kind: str, path: str, value: object, expected: str) -> str:
    found = f"of type {type(value).__name__}"
    if isinstance(value, bytes):
        found = f"{len(value)} bytes"
    elif isinstance(value, int) and value < 0:
        found = "negative"
    return f"a {kind} whose {path} is {found}: it must be {expected}"
