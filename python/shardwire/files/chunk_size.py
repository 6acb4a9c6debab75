"""How large the chunks of a file are."""

from __future__ import annotations

from shardwire.errors import ConfigError

CHUNK_SIZE_BYTES = 1 << 20
CHUNK_SIZE_BYTES_MIN, CHUNK_SIZE_BYTES_MAX = 4 << 10, 16 << 20
# What a message has beside a chunk, at most.
CHUNK_OVERHEAD_BYTES = 128


def checked_chunk_size(chosen: int | None, message_bytes_max: int) -> int:
    """Bytes of a chunk: those that were chosen, or 1 MiB as far as a message holds that.

    Raises:
        ConfigError: No message holds so much, or a chunk is never so small.
    """
    limit = min(message_bytes_max - CHUNK_OVERHEAD_BYTES, CHUNK_SIZE_BYTES_MAX)
    if limit < CHUNK_SIZE_BYTES_MIN:
        needed = CHUNK_SIZE_BYTES_MIN + CHUNK_OVERHEAD_BYTES
        raise ConfigError(
            f"a message of this channel holds {message_bytes_max:,} bytes: files need {needed:,}; "
            "raise SegmentationConfig.segment_size_bytes or the node's max_message_size_bytes"
        )
    if chosen is None:
        return min(CHUNK_SIZE_BYTES, limit)
    if isinstance(chosen, bool) or not isinstance(chosen, int) or not CHUNK_SIZE_BYTES_MIN <= chosen <= limit:
        raise ConfigError(
            f"chunk_size_bytes is {chosen!r}: it must be an integer from {CHUNK_SIZE_BYTES_MIN:,} to {limit:,}, "
            "which is what a message holds"
        )
    return chosen
