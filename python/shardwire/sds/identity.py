"""How ids are formed and read, and how long what a peer names may be."""

from __future__ import annotations

from shardwire._native import HistoryEntry

# Longer ids and hints are no ids of any known peer (hex of 32 bytes, or 32 hex characters and a place): what carries
# them is dropped, so that no peer decides how much memory an entry takes.
MESSAGE_ID_LENGTH_MAX = 256
SENDER_ID_LENGTH_MAX = 256
RETRIEVAL_HINT_BYTES_MAX = 256

SEND_ID_LENGTH = 32
_PLACE_DIGITS_MAX = 4
# Tags and lengths around the strings of one history entry, at most.
ENTRY_FRAME_BYTES = 14


def content_id(send_id: str, ordinal: int) -> str:
    """The message id of one content of a send under the rule "send"."""
    return f"{send_id}.{ordinal}"


def split_content_id(message_id: str) -> tuple[str, int] | None:
    """(send id, ordinal) where `message_id` has the form of the rule "send", else None."""
    if len(message_id) <= SEND_ID_LENGTH + 1 or message_id[SEND_ID_LENGTH] != ".":
        return None
    place = message_id[SEND_ID_LENGTH + 1 :]
    if len(place) > _PLACE_DIGITS_MAX or not (place.isascii() and place.isdecimal()):
        return None
    if place[0] == "0" and place != "0":
        return None
    return message_id[:SEND_ID_LENGTH], int(place)


def encoded_length(text: str) -> int:
    """Bytes of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def entry_bytes(entry: HistoryEntry) -> int:
    """An upper bound of what `entry` adds to a message."""
    hint = entry.retrieval_hint
    sender = entry.sender_id
    return (
        ENTRY_FRAME_BYTES
        + encoded_length(entry.message_id)
        + (len(hint) if hint else 0)
        + (encoded_length(sender) if sender else 0)
    )
