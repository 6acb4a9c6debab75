"""Subjects of messages: `<prefix>.<parts of the content topic>.<message hash>`, ephemeral ones beside the stream's."""

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
        # A stream keeps whatever is published to its subjects, so what nobody shall keep has others.
        self._ephemeral_prefix = f"{prefix}-ephemeral"

    @property
    def all(self) -> str:
        """Every subject of what a stream keeps."""
        return f"{self._prefix}.>"

    def of_topic(self, content_topic: str) -> str:
        """Every message of a topic that a stream keeps."""
        return f"{topic_name(self._prefix, content_topic, '.')}.*"

    def all_of_topic(self, content_topic: str) -> tuple[str, str]:
        """Every message of a topic."""
        return self.of_topic(content_topic), f"{topic_name(self._ephemeral_prefix, content_topic, '.')}.*"

    def of_message(self, content_topic: str, message_hash: bytes, *, ephemeral: bool = False) -> str:
        """One message."""
        prefix = self._ephemeral_prefix if ephemeral else self._prefix
        return f"{topic_name(prefix, content_topic, '.')}.{message_hash.hex()}"


def hash_of(subject: str) -> bytes | None:
    """The hash that a subject claims; None where it claims none."""
    text = subject.rpartition(".")[2]
    try:
        claimed = bytes.fromhex(text)
    except ValueError:
        return None
    return claimed if len(claimed) == HASH_BYTES and text == claimed.hex() else None
