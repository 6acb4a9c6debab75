"""Content topics as names of a broker, whatever is in them."""

from __future__ import annotations

from urllib.parse import quote, unquote

# What stands for itself at every broker: no separator, no wildcard, no white space, nothing outside of ASCII.
_PLAIN = "-_~"


def topic_name(prefix: str, content_topic: str, separator: str) -> str:
    """The broker's name of a content topic: the prefix and its parts, in percent-encoding but for [A-Za-z0-9-_~].

    Different topics have different names, and none holds a wildcard, a further level, or a `$` at its beginning.
    """
    parts = content_topic.removeprefix("/").split("/")
    return separator.join((prefix, *(encode_part(part) for part in parts)))


def encode_part(part: str) -> str:
    # `quote` leaves the full stop, which is a separator of NATS.
    return quote(part, safe=_PLAIN).replace(".", "%2E")


def content_topic_of(parts: list[str]) -> str:
    """The content topic of the parts of a broker's name after the prefix."""
    return "/" + "/".join(unquote(part) for part in parts)
