"""Checks of fields and arguments; each failure is a `ConfigError` naming the field or argument."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Iterator

from shardwire.errors import ConfigError

# Integers cross into SQLite and Arrow as signed 64-bit values.
INTEGER_MIN, INTEGER_MAX = -1 << 63, (1 << 63) - 1
TIMEOUT_MS_MAX = 10**12


def refuse(owner: object, name: str, value: object, limit: str) -> ConfigError:
    return ConfigError(f"{type(owner).__name__}.{name} is {value!r}: it must be {limit}")


def check_integers(owner: object, minimum: int, names: Iterable[str], maximum: int = INTEGER_MAX) -> None:
    for name in names:
        check_integer(f"{type(owner).__name__}.{name}", getattr(owner, name), minimum, maximum)


def check_bools(owner: object, names: Iterable[str]) -> None:
    for name in names:
        check_bool(f"{type(owner).__name__}.{name}", getattr(owner, name))


def check_choices(owner: object, name: str, choices: tuple[str, ...]) -> None:
    value = getattr(owner, name)
    if value not in choices:
        raise refuse(owner, name, value, "one of " + ", ".join(repr(choice) for choice in choices))


def check_share(owner: object, name: str, *, zero: bool = True, one: bool = True) -> None:
    value = getattr(owner, name)
    in_range = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and not (isinstance(value, float) and math.isnan(value))
        and (0 <= value if zero else 0 < value)
        and (value <= 1 if one else value < 1)
    )
    if not in_range:
        bounds = f"{'0 <=' if zero else '0 <'} share {'<= 1' if one else '< 1'}"
        raise refuse(owner, name, value, f"a number with {bounds}")


def check_methods(owner: object, name: str, methods: Collection[str], limit: str) -> None:
    value = getattr(owner, name)
    if value is None:
        return
    missing = [method for method in methods if not callable(getattr(value, method, None))]
    if isinstance(value, type) or missing:
        # What has some of them is meant to have all.
        hint = f"; it has no {missing[0]}()" if 0 < len(missing) < len(methods) else ""
        raise refuse(owner, name, value, f"None or {limit}{hint}")


def check_kind(name: str, value: object, kind: type) -> None:
    """An argument that is None, or of a class."""
    if value is not None and not isinstance(value, kind):
        raise ConfigError(f"{name} is a {type(value).__name__}: it must be a {kind.__name__} or None")


def check_bool(name: str, value: object, *, or_none: bool = False) -> None:
    """An argument that is True or False."""
    if not isinstance(value, bool) and not (or_none and value is None):
        raise ConfigError(f"{name} is {value!r}: it must be {'True, False or None' if or_none else 'True or False'}")


def check_integer(name: str, value: object, minimum: int, maximum: int = INTEGER_MAX) -> int:
    """An argument that is an integer, which is returned."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        is_too_large = isinstance(value, int) and value > maximum
        bound = (
            f"of at least {minimum}" if maximum == INTEGER_MAX and not is_too_large else f"from {minimum} to {maximum}"
        )
        raise ConfigError(f"{name} is {value!r}: it must be an integer {bound}")
    return value


def check_text(name: str, value: object, *, or_none: bool = False) -> None:
    """An argument that is a text which UTF-8 can encode; the error does not show it, since it may be a secret."""
    if or_none and value is None:
        return
    if not isinstance(value, str):
        raise ConfigError(f"{name} is a {type(value).__name__}: it must be a text{' or None' if or_none else ''}")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ConfigError(f"{name} holds half a character: it must be a text that UTF-8 can encode")


def check_path(name: str, value: object, what: str = "a file") -> None:
    """An argument that names a file or a directory."""
    if not isinstance(value, str | os.PathLike):
        raise ConfigError(f"{name} is a {type(value).__name__}: it must name {what}")
    try:
        is_possible = b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        is_possible = False
    if not is_possible:
        raise ConfigError(f"{name} is {os.fspath(value)!r}: it must name {what}, and no path holds such a character")


def check_timeout_ms(name: str, value: object, or_none: str = "", *, minimum: int = 0) -> None:
    """An argument that says how long to wait, in ms."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigError(f"{name} is {value!r}: it must be {or_none}an integer of at least {minimum}")
    if value > TIMEOUT_MS_MAX:
        raise ConfigError(f"{name} is too large: it must be at most {TIMEOUT_MS_MAX}, which is 31 years")


def check_list(name: str, value: object, what: str, *, read_once: bool = False) -> None:
    """An argument that lists things: a text would be taken letter by letter, and of an iterator nothing would be left
    for the second who reads it, unless it is `read_once`."""
    if isinstance(value, str | bytes):
        raise ConfigError(f"{name} is {value!r}: it must be a list of {what}, for example [{value!r}]")
    if not isinstance(value, Iterable) or (isinstance(value, Iterator) and not read_once):
        raise ConfigError(f"{name} is a {type(value).__name__}: it must be a list of {what}")
