"""Spark actions of which no task runs on after them."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark import InheritableThread

if TYPE_CHECKING:
    from pyspark import SparkContext

_POLL_S = 0.1
# Tasks that are cancelled stop at their next row; on an executor that was lost they never say so.
_TASKS_END_S = 30.0


def run_whole(context: SparkContext, action: Callable[[], object]) -> None:
    """Runs an action; where it fails or is interrupted, its tasks have ended too, within 30 s.

    Spark tells a failure while other tasks of the job still write, and Ctrl-C ends the wait for a job and not the job.

    Raises:
        Exception: What the action raises.
        KeyboardInterrupt: The caller was interrupted; the action's jobs are cancelled.
    """
    tag = f"shardwire-{uuid.uuid4().hex}"
    failures: list[BaseException] = []
    # `Thread.join` that was interrupted takes the thread for ended.
    ended = threading.Event()

    def act() -> None:
        context.addJobTag(tag)
        try:
            action()
        except BaseException as error:
            failures.append(error)
        finally:
            ended.set()

    # Java's side of a call that is interrupted goes on, and nothing tells its end to who was interrupted.
    InheritableThread(target=act, name="shardwire-action").start()
    try:
        # In short waits: a signal that another thread is given is seen between them.
        while not ended.wait(_POLL_S):
            pass
    except BaseException:
        while not ended.is_set():
            # Anew each time: a job that is still planned cannot be cancelled.
            context.cancelJobsWithTag(tag)
            ended.wait(_POLL_S)
        _await_tasks(context, tag)
        raise
    if failures:
        _await_tasks(context, tag)
        raise failures[0]


def _await_tasks(context: SparkContext, tag: str) -> None:
    deadline = time.monotonic() + _TASKS_END_S
    while _has_tasks(context, tag) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _has_tasks(context: SparkContext, tag: str) -> bool:
    java: Any = context._jsc
    jobs = java.sc().statusTracker().getJobIdsForTag(tag)
    tracker = context.statusTracker()
    found = [tracker.getJobInfo(job) for job in jobs]
    stages = [tracker.getStageInfo(stage) for info in found if info is not None for stage in info.stageIds]
    return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)
