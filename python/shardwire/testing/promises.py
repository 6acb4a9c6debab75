"""What a check finds: promises that were held, or the first that was not."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from shardwire.channel.hooks import is_ours
from shardwire.errors import ConfigError, ShardwireError
from shardwire.quoting import one_line

# Values are shown up to this length; what is longer by its size and its beginning.
SHOWN_BYTES_MAX = 40
SHOWN_ITEMS_MAX = 6
SHOWN_LETTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class Promise:
    """One thing that a channel relies on.

    Attributes:
        name: What it is called, in errors and reports.
        says: The promise, in a sentence.
        where: The page and the section that say it.
    """

    name: str
    says: str
    where: str


class BrokenPromiseError(ShardwireError, AssertionError):
    """A part does not do what a channel needs of it; test runners count it as a failure.

    Attributes:
        promise: The promise.
        done: What was done.
        expected: What should have come of it.
        came: What came.
    """

    def __init__(self, checked: str, promise: Promise, done: str, expected: str, came: str) -> None:
        self._arguments = (checked, promise, done, expected, came)
        self.promise = promise
        self.done = done
        self.expected = expected
        self.came = came
        super().__init__(
            f"{checked} breaks {promise.name} ({promise.says}): after {done}, expected was {expected}, and what came "
            f"is {came}; see {promise.where}"
        )

    def __reduce__(self) -> tuple[type[BrokenPromiseError], tuple[str, Promise, str, str, str]]:
        # Test runners carry failures between processes.
        return type(self), self._arguments


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found where nothing was broken; as text, a line for each promise.

    Attributes:
        checked: The class of what was checked.
        held: The promises that were tried and held.
        passed_over: Those that were not tried, each with the reason.
    """

    checked: str
    held: tuple[Promise, ...]
    passed_over: tuple[tuple[Promise, str], ...] = ()

    def __str__(self) -> str:
        width = max(len(promise.name) for promise in (*self.held, *(promise for promise, _ in self.passed_over)))
        lines = [f"{self.checked}: {len(self.held)} promises held"]
        lines += [f"  {promise.name:{width}}  {promise.says}" for promise in self.held]
        lines += [f"  {promise.name:{width}}  not tried: {reason}" for promise, reason in self.passed_over]
        return "\n".join(lines)


class Trial:
    """One check on its way.

    Args:
        promises: All that there are, by which a report is sorted.
    """

    def __init__(self, promises: tuple[Promise, ...]) -> None:
        self._promises = {promise.name: promise for promise in promises}
        self._held: dict[str, Promise] = {}
        self._passed_over: dict[str, str] = {}
        self._checked = "the factory"
        self._promise: Promise | None = None
        self._done = "nothing"

    @property
    def done(self) -> str:
        """What was done last."""
        return self._done

    def made(self, part: object) -> None:
        """What is checked."""
        self._checked = type(part).__name__

    def pass_over(self, name: str, reason: str) -> None:
        """Leaves a promise out."""
        self._passed_over[self._promises[name].name] = reason

    def did(self, done: str) -> None:
        """Says what is done next; what it raises breaks the promise that is tried."""
        self._done = done

    def require(self, holds: bool, expected: str, came: object) -> None:
        """Reports the promise that is tried as broken unless it `holds`.

        Raises:
            BrokenPromiseError: It does not hold.
        """
        if not holds:
            raise self._broken(expected, came if isinstance(came, str) else shown(came))

    def breaks(self, name: str, expected: str, came: object) -> BrokenPromiseError:
        """The error about another promise than the one that is tried, as what came in passing shows it."""
        self._promise = self._promises[name]
        return self._broken(expected, came if isinstance(came, str) else shown(came))

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Tries one promise: whatever is raised inside breaks it."""
        before, self._promise = self._promise, self._promises[name]
        try:
            yield
        except BrokenPromiseError:
            raise
        except BaseException as error:
            if _ends_check(error):
                raise
            raise self._broken("that it returns", raised(error)) from error
        self._held[name] = self._promise
        self._promise = before

    def report(self) -> CheckReport:
        return CheckReport(
            self._checked,
            tuple(promise for name, promise in self._promises.items() if name in self._held),
            tuple(
                (promise, self._passed_over[name])
                for name, promise in self._promises.items()
                if name in self._passed_over and name not in self._held
            ),
        )

    def _broken(self, expected: str, came: str) -> BrokenPromiseError:
        assert self._promise is not None
        return BrokenPromiseError(self._checked, self._promise, self._done, expected, one_line(came))


def require_factory(name: str, given: object) -> None:
    """Refuses a part itself, which cannot be made anew, in place of what makes one.

    Raises:
        ConfigError: `given` cannot be called.
    """
    if not callable(given):
        raise ConfigError(
            f"{name} is a {type(given).__name__}: it must be a function that makes the part, or its class"
        )


def _ends_check(error: BaseException) -> bool:
    """Whether an error is none of what is checked: the check was cancelled, or the process ends."""
    try:
        return is_ours(error)
    except RuntimeError:
        # A cancellation where no loop runs is one like any other.
        return False


def raised(error: BaseException) -> str:
    """An error as what came."""
    text = one_line(error)
    return f"{type(error).__name__} was raised{f': {text}' if text else ''}"


def shown(value: object) -> str:
    """A value as errors show it."""
    if isinstance(value, bytes) and len(value) > SHOWN_BYTES_MAX:
        return f"{len(value)} bytes that begin with {value[:8]!r}"
    if isinstance(value, dict):
        parts = [f"{shown(key)}: {shown(item)}" for key, item in islice(value.items(), SHOWN_ITEMS_MAX)]
        text = f"{{{', '.join(parts)}{', ...' if len(value) > SHOWN_ITEMS_MAX else ''}}}"
    elif isinstance(value, tuple):
        text = f"({', '.join(shown(item) for item in value)})"
    else:
        text = repr(value)
    return text if len(text) <= SHOWN_LETTERS_MAX else f"{text[:SHOWN_LETTERS_MAX]}..."


def is_awaitable(value: object) -> bool:
    """Whether a method that should be plain is async; what it gave is closed, so that nobody is warned of it."""
    if inspect.iscoroutine(value):
        value.close()
        return True
    return inspect.isawaitable(value)
