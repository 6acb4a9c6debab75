"""What the library says of fields and arguments, in the words of a command line whose options set them."""

from __future__ import annotations

import re

# Fields whose names are words of no sentence. An option is called as they are, but for the one.
_FIELDS = "segment_size_bytes|parity_rate|erasure_code|wire_format|interval_ms|watermark_delay_ms|remember_ms"
_FIELD = re.compile(rf"(?:SegmentationConfig\.)?\b({_FIELDS})\b(=)?|ReassemblyLimits\.(timeout_ms)")
# Arguments are such words, too: they are told by what is said of them.
_ARGUMENT = re.compile(
    r"(?<!-)\b(?:payload|by|key|timestamp|sender)(?= names (?:a|the) column)"
    r"|^(?:by|key|sds)(?= is )|(?<=' and )unwrap(?= (?:has|names) )"
)


def in_words_of_the_line(text: str) -> str:
    """A message of the library that names fields and arguments, with the options that set them."""
    text = _FIELD.sub(lambda found: _option(found[1] or found[3]) + (" " if found[2] else ""), text)
    return _ARGUMENT.sub(r"--\g<0>", text).replace("pass replace=True", "pass --overwrite")


def _option(field: str) -> str:
    return "--segment-size" if field == "segment_size_bytes" else f"--{field.replace('_', '-')}"
