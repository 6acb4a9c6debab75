"""Text of others in lines of ours: whatever they wrote, it stays on the line and moves no cursor."""

from __future__ import annotations

import os
from collections.abc import Sequence

# Characters of a name that are shown, and of a sentence.
QUOTED_CHARACTERS_MAX = 64
LINE_CHARACTERS_MAX = 300
# Names that a list shows, as those of the columns of a table.
NAMES_MAX = 50


def quoted(name: object) -> str:
    """A name that somebody else chose, as `repr` shows it, cut; what is no text by the name of its type."""
    if not isinstance(name, str):
        return "None" if name is None else f"a {type(name).__name__}"
    if len(name) <= QUOTED_CHARACTERS_MAX:
        return repr(name)
    return f"{name[:QUOTED_CHARACTERS_MAX]!r}... ({len(name)} characters)"


def one_line(text: object, characters_max: int = LINE_CHARACTERS_MAX) -> str:
    """A sentence that may quote others, in one line without control characters, cut."""
    # What lies far beyond the cut costs nothing; most of what is dropped here is white space.
    line = " ".join(str(text)[: 4 * characters_max].split())
    return line[:characters_max] if line.isprintable() else printable(line)[:characters_max]


def printable(line: str) -> str:
    """With every character escaped that moves a cursor, changes colours, ends a line or runs backwards."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape", "replace").decode()
        for character in line
    )


def listed(names: Sequence[str]) -> str:
    """Names that somebody else chose, such as those of columns, in one line; of many the first and their number."""
    shown = ", ".join(printable(name) for name in names[:NAMES_MAX])
    return shown if len(names) <= NAMES_MAX else f"{shown} ... ({len(names):,} in all)"


def os_reason(error: OSError) -> str:
    """What the system says of an error, and of which file; without the number, which says nothing to a reader."""
    reason = error.strerror or type(error).__name__
    return f"{reason}: {os.fspath(error.filename)!r}" if isinstance(error.filename, str | os.PathLike) else reason
