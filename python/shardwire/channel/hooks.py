"""What the application supplies (node, encryption, callbacks, observers) may raise anything, and ends no loop by it."""

from __future__ import annotations

import asyncio


def is_ours(error: BaseException) -> bool:
    """Whether an error caught around an awaited hook must be raised on.

    So must the cancellation of our own task, its coroutine being closed, and the end of the process. A
    `CancelledError` of the hook's own, say of a connection whose reader was cancelled, is an error like any other.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit) or ends_process(error)


def ends_process(error: BaseException) -> bool:
    """Whether an error caught around a plain hook must be raised on; a cancellation never comes out of one."""
    return isinstance(error, KeyboardInterrupt | SystemExit)
