"""Subjects of messages: `<prefix>.<parts of the content topic>.<message hash>`."""

from __future__ import annotations

from shardwire.node.transport.topic_names import topic_name

HASH_BYTES = 32


class Subjects:
    """Names what is published and subscribed.

    The hash at the end is how a store finds a message by it, and how a reader knows a message before it reads it.

    Args:
        prefix: The first token.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    @property
    def all(self) -> str:
        """Every subject."""
        return f"{self._prefix}.>"

    def of_topic(self, content_topic: str) -> str:
        """Every message of a topic."""
        return f"{topic_name(self._prefix, content_topic, '.')}.*"

    def of_message(self, content_topic: str, message_hash: bytes) -> str:
        """One message."""
        return f"{topic_name(self._prefix, content_topic, '.')}.{message_hash.hex()}"


def hash_of(subject: str) -> bytes | None:
    """The hash that a subject claims; None where it claims none."""
    text = subject.rpartition(".")[2]
    try:
        claimed = bytes.fromhex(text)
    except ValueError:
        return None
    return claimed if len(claimed) == HASH_BYTES and text == claimed.hex() else None
