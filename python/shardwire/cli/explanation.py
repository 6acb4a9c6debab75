"""What is wrong, as one line and an exit code."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from shardwire import quoting
from shardwire.ending_signals import EXIT_INTERRUPTED
from shardwire.errors import ConfigError, ShardwireError
from shardwire.option_words import in_words_of_the_line

EXIT_FAILED = 1
EXIT_USAGE = 2
# Set to anything, it shows where an error came from.
TRACEBACK_VARIABLE = "SHARDWIRE_TRACEBACK"


def one_line(error: BaseException) -> str:
    """An error as one line: an `OSError` by its file and reason, anything else by its message."""
    if isinstance(error, OSError) and error.strerror:
        # A line that ends within a name is part of it.
        name = quoting.printable(f"{error.filename}: ") if error.filename else ""
        return name + " ".join(error.strerror.split())
    return " ".join((str(error) or type(error).__name__).split())


def explain(error: BaseException) -> tuple[int, str]:
    """The exit code of an error and the line that tells it; an empty line where it has been told."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return EXIT_INTERRUPTED, "interrupted"
    if isinstance(error, ConfigError) and (line := in_words_of_the_line(one_line(error))).startswith("--"):
        return EXIT_USAGE, line
    if isinstance(error, ShardwireError):
        return getattr(error, "exit_code", EXIT_FAILED), in_words_of_the_line(one_line(error))
    if isinstance(error, OSError):
        return EXIT_FAILED, one_line(error)
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("shardwire"):
        return EXIT_FAILED, f"this command needs {error.name.partition('.')[0]}: pip install 'shardwire[cli,spark]'"
    # Wrong usage: the class comes from the click that typer brings along, so it is told by its members.
    tell_usage = getattr(error, "format_message", None)
    if tell_usage is not None:
        message = _with_value(" ".join(tell_usage().split()), error)
        path = getattr(getattr(error, "ctx", None), "command_path", None) or "shardwire"
        return getattr(error, "exit_code", EXIT_USAGE), f"{message} (see '{path} --help')" if message else ""
    defect = f"a defect of shardwire, please report it: {type(error).__name__}: {one_line(error)}"
    return EXIT_FAILED, f"{defect} ({TRACEBACK_VARIABLE}=1 shows where)"


def _with_value(message: str, error: BaseException) -> str:
    """With the refused value, which typer leaves out but for a choice, of which it says whose error it is instead."""
    told = getattr(error.__cause__, "errors", None)
    if told is None:
        return message
    message, value = message.replace("Value error, ", "").removesuffix("."), told()[0]["input"]
    return message if repr(value) in message else f"{message}, got {value}"


def empty_argument(arguments: Sequence[str]) -> str | None:
    """What is wrong where an argument, or the value of an option, is empty: an empty path would be this directory.

    What follows `--` is the command of `serve`, whose arguments are its own.
    """
    before = "shardwire"
    for argument in arguments:
        if argument == "--":
            return None
        option, is_assigned, value = argument.partition("=")
        if option.startswith("--") and is_assigned and not value:
            return f"{option} is empty: leave it out, or give it a value"
        if not argument:
            return f"what follows {before} is empty: leave it out, or give it a value"
        before = argument
    return None
