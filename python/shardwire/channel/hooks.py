"""What the application supplies (node, encryption, callbacks, observers) may raise anything, and ends no loop by it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from typing import Any, Generic, TypeVar, cast

from shardwire.errors import NodeError, ShardwireError
from shardwire.quoting import one_line

logger = logging.getLogger(__name__)

T = TypeVar("T")

# What a node or a callback may take when a channel stops or closes.
CLOSING_CALL_S = 5.0
CANCEL_AGAIN_S = 2.0
# Frames of a callback's error that the log shows, the innermost ones.
FRAMES_MAX = 8


def running_task() -> asyncio.Task[Any] | None:
    """The one that runs; None outside of an event loop too, as where a coroutine is collected."""
    loop = asyncio._get_running_loop()
    return None if loop is None else asyncio.current_task(loop)


def is_ours(error: BaseException, own: asyncio.Task[Any] | None = None) -> bool:
    """Whether an error caught around an awaited hook must be raised on.

    So must the cancellation of our own task, its coroutine being closed, and the end of the process. A
    `CancelledError` of the hook's own, say of a connection whose reader was cancelled, is an error like any other.

    Args:
        error: What was caught.
        own: The task in which the hook was called, where that is known. While it runs nobody closes its coroutine: a
            `GeneratorExit` is the hook's own too.
    """
    if isinstance(error, GeneratorExit) and own is not None:
        return running_task() is not own
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit) or ends_process(error)


def heed_cancellation() -> None:
    """Ends our task where a hook that was just awaited swallowed its cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def awaitable_of(call: str, given: Awaitable[T]) -> Awaitable[T]:
    """What a method of a node gave.

    Raises:
        NodeError: It is nothing that can be awaited.
    """
    # Looked at first: `isawaitable` takes longer.
    if hasattr(given, "__await__") or inspect.isawaitable(given):
        return given
    raise NodeError(f"{call}() of the node returned a {type(given).__name__} at once: it must be `async def`")


def is_non_negative_int(value: object) -> bool:
    """Whether a value from the application is an integer of at least 0; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class Begun(Generic[T]):
    """What a hook gave to be awaited, run up to its first wait: most have none, and those need no limit of time.

    Attributes:
        is_done: Whether it had none; else it is to be awaited.
        result: What it returned then.
    """

    __slots__ = ("_steps", "_waits_for", "is_done", "result")

    result: T

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._steps = awaited(awaitable)
        self.is_done = False
        try:
            self._waits_for = self._steps.send(None)
        except StopIteration as done:
            self.is_done, self.result = True, done.value

    def __await__(self) -> Generator[Any, Any, T]:
        # As `yield from` does, behind the first step.
        waits_for = self._waits_for
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                self._steps.close()
                raise
            except BaseException as error:
                step = partial(self._steps.throw, error)
            else:
                step = partial(self._steps.send, sent)
            try:
                waits_for = step()
            except StopIteration as done:
                return cast(T, done.value)


async def awaited(awaitable: Awaitable[T]) -> T:
    """A coroutine of anything that can be awaited."""
    return await awaitable


async def outlive_cancellation() -> None:
    """Goes on though our task was cancelled, by what it called and not by who owns it.

    Raises:
        CancelledError: It was cancelled again meanwhile.
    """
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return
    while task.uncancel():
        pass
    # One that was not raised yet would be by whatever the task awaits next.
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    heed_cancellation()


def ends_process(error: BaseException) -> bool:
    """Whether an error caught around a plain hook must be raised on; a cancellation never comes out of one."""
    return isinstance(error, KeyboardInterrupt | SystemExit)


async def finish_call(what: str, call: Callable[[], Awaitable[object]], timeout_s: float = CLOSING_CALL_S) -> None:
    """Makes one call of what the application supplies that ends something, and goes on whatever becomes of it.

    Args:
        what: Names it in the log, where what it raised, or that it took too long, is told.
        call: Makes it.
        timeout_s: How long it may take; then it is cancelled, and left behind if it does not heed that.
    """
    task = asyncio.create_task(_await_call(call))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    finally:
        if not task.done():
            task.cancel()
    if not done:
        logger.error("%s did not return within %g s: it is left behind", what, timeout_s)
    elif task.cancelled():
        logger.error("%s raised CancelledError", what)
    elif (error := task.exception()) is not None and not isinstance(error, ShardwireError):
        logger.error("%s raised %s", what, type(error).__name__, exc_info=error)
    elif error is not None:
        # A node that stopped first has nothing left to end.
        logger.debug("%s: %s", what, one_line(error))


async def _await_call(call: Callable[[], Awaitable[object]]) -> None:
    await call()


def callable_name(value: object) -> str:
    """What a callback or an observer is called in the log and in errors."""
    name: object = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else type(value).__name__


def observe_with(observer: T, observers: list[T]) -> Callable[[], None]:
    """Adds an observer to those there are; the returned function removes it."""
    observers.append(observer)

    def remove() -> None:
        if observer in observers:
            observers.remove(observer)

    return remove


def tell(observers: Iterable[Callable[[T], None]], observation: T, kind: str, log: logging.Logger) -> None:
    """Tells every observer; what one raises is logged, with where it was and without its text, and stops nothing."""
    for observer in list(observers):
        try:
            observer(observation)
        except BaseException as error:
            if ends_process(error):
                raise
            where = frames(error, __file__)
            log.error("%s observer %s raised %s%s", kind, callable_name(observer), type(error).__name__, where)


def frames(error: BaseException, *but: str) -> str:
    """Where an error was raised, innermost frame first and without a value of any variable; none of the files `but`."""
    found = traceback.extract_tb(error.__traceback__, limit=-FRAMES_MAX)
    where = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in found if frame.filename not in but]
    return f" at {', called at '.join(reversed(where))}" if where else ""


async def end_tasks(tasks: Iterable[asyncio.Task[Any]], timeout_s: float = CLOSING_CALL_S) -> None:
    """Cancels tasks and waits until they have ended.

    One whose hook swallows the cancellation is cancelled again, and left behind where it does not end in time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    pending = {task for task in tasks if not task.done()}
    while pending and (left := deadline - loop.time()) > 0:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=min(left, CANCEL_AGAIN_S))
    for task in pending:
        logger.error("%s did not end within %g s of its cancellation: it is left behind", task.get_name(), timeout_s)
