"""How ids are formed and read, and how long what a peer names may be."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from shardwire._native import HistoryEntry
from shardwire.config import MessageIdRule
from shardwire.errors import ConfigError

# Longer ids and hints are no ids of any known peer (hex of 32 bytes, or 32 hex characters and a place): what carries
# them is dropped, so that no peer decides how much memory an entry takes.
MESSAGE_ID_LENGTH_MAX = 256
SENDER_ID_LENGTH_MAX = 256
RETRIEVAL_HINT_BYTES_MAX = 256

SEND_ID_LENGTH = 32
CONTENTS_PER_SEND_MAX = 65_536
_PLACE_DIGITS_MAX = 4
_is_send_id = re.compile(r"[0-9a-f]{32}").fullmatch
_RIVAL_DIGEST_BYTES = 16
_ends_as_rival = re.compile(r"\0[0-9a-f]{32}\Z").search
# Tags and lengths around the strings of one history entry, at most.
ENTRY_FRAME_BYTES = 14


def content_id(send_id: str, ordinal: int) -> str:
    """The message id of one content of a send under the rule "send"."""
    return f"{send_id}.{ordinal}"


def rival_name(message_id: str, sender_id: str, content: bytes) -> str:
    """What a content is called whose message id another content has: no two of one id are called alike."""
    sender = sender_id.encode("utf-8", "replace")
    digest = hashlib.sha256(len(sender).to_bytes(4, "big") + sender + content).digest()
    return f"{message_id}\0{digest[:_RIVAL_DIGEST_BYTES].hex()}"


def is_rival(name: str) -> bool:
    """Whether `name` is that of a content whose message id another content has, and no message id."""
    return "\0" in name and _ends_as_rival(name) is not None


def message_ids_of(rule: MessageIdRule, send_id: str, contents: Sequence[bytes]) -> tuple[str, ...]:
    """The message ids of a send's contents under the configured rule.

    Raises:
        ConfigError: The send id has not the form that the rule wants, or two contents would share an id.
    """
    if rule == "content-sha256":
        ids = tuple(hashlib.sha256(content).hexdigest() for content in contents)
        if len(set(ids)) != len(ids):
            raise ConfigError("two contents of one send are equal: under 'content-sha256' they would share an id")
        return ids
    if _is_send_id(send_id) is None:
        raise ConfigError(f"send_id {send_id!r}: it must be {SEND_ID_LENGTH} lower-case hex characters")
    if len(contents) == 1:
        return (f"{send_id}.0",)
    return tuple([f"{send_id}.{ordinal}" for ordinal in range(len(contents))])


def split_content_id(message_id: str) -> tuple[str, int] | None:
    """(send id, ordinal) where `message_id` has the form of the rule "send", else None."""
    place = message_id[SEND_ID_LENGTH:]
    if place == ".0":
        return message_id[:SEND_ID_LENGTH], 0
    if len(place) < 2 or place[0] != ".":
        return None
    place = place[1:]
    if len(place) > _PLACE_DIGITS_MAX or not (place.isascii() and place.isdecimal()):
        return None
    if place[0] == "0" and place != "0":
        return None
    return message_id[:SEND_ID_LENGTH], int(place)


def check_name(field: str, value: str) -> None:
    """Refuses a channel or sender id that the wire cannot carry.

    Raises:
        ConfigError: It is empty, too long, or holds a lone surrogate.
    """
    if not 0 < len(value) <= SENDER_ID_LENGTH_MAX:
        raise ConfigError(f"{field} has {len(value)} characters: it must have 1 to {SENDER_ID_LENGTH_MAX}")
    if not value.isascii() and value != value.encode("utf-8", "replace").decode():
        raise ConfigError(f"{field} {value!r} is no Unicode text: it holds a lone surrogate")


def check_contents(contents: Sequence[bytes], contents_needed: int) -> None:
    """Refuses what is no send.

    Raises:
        ConfigError: There are too many contents or none, one is empty, or more are needed than there are.
    """
    count = len(contents)
    if not 0 < count <= CONTENTS_PER_SEND_MAX or not 0 < contents_needed <= count:
        raise ConfigError(
            f"a send of {count} contents that needs {contents_needed}: "
            f"give 1 to {CONTENTS_PER_SEND_MAX} contents and need no more than there are"
        )
    if not all(contents):
        raise ConfigError("a content is empty: on the wire it would be a sync, so give at least one byte")


def encoded_length(text: str) -> int:
    """Bytes of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def entry_size(message_id: str, retrieval_hint: bytes | None, sender_id: str | None) -> int:
    """An upper bound of what a history entry adds to a message."""
    size = ENTRY_FRAME_BYTES + encoded_length(message_id)
    if retrieval_hint:
        size += len(retrieval_hint)
    if sender_id:
        size += encoded_length(sender_id)
    return size


def entry_bytes(entry: HistoryEntry) -> int:
    """An upper bound of what `entry` adds to a message."""
    return entry_size(entry.message_id, entry.retrieval_hint, entry.sender_id)
