"""Names that a file may have in any directory, on any system: what a peer suggests is never more than that."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from shardwire.errors import ConfigError

NAME_BYTES_MAX = 255
# Separators, what shells and Windows read as something else, and what forbids itself on some system.
_FORBIDDEN = frozenset('/\\:*?"<>|')
# Control characters, surrogates, line and paragraph separators.
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
# They turn the order of what is shown: "gpj.exe" reads as "exe.jpg".
_DIRECTION_MARKS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$"]
    + [f"{device}{number}" for device in ("com", "lpt") for number in (*"0123456789", "\u00b9", "\u00b2", "\u00b3")]
)


def fault_of(name: str) -> str | None:
    """What keeps `name` from being the name of a file anywhere; None where nothing does.

    A name that passes is one component of a path, is not hidden, and means the same on every system.
    """
    if not 1 <= len(name.encode("utf-8", "replace")) <= NAME_BYTES_MAX:
        return f"it must be 1 to {NAME_BYTES_MAX} bytes long"
    if name[0] in ". " or name[-1] in ". ":
        return "it must not begin or end with a dot or a space"
    for character in name:
        if (
            character in _FORBIDDEN
            or character in _DIRECTION_MARKS
            or unicodedata.category(character) in _FORBIDDEN_CATEGORIES
        ):
            return f"it must not contain {character!r}"
    if name.partition(".")[0].rstrip(" ").lower() in _DEVICES:
        return "it must not be the name of a device on Windows"
    return None


def checked_name(path: Path, name: str | None) -> str:
    """What receivers are told that a file is called: `name`, or its own.

    Raises:
        ConfigError: No file may have it everywhere.
    """
    chosen = path.name if name is None else name
    if not isinstance(chosen, str):
        raise ConfigError(f"name is {chosen!r}: it must be a text")
    if (fault := fault_of(chosen)) is not None:
        raise ConfigError(f"name is {chosen!r}: {fault}; give another one with name=")
    return chosen
