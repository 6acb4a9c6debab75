"""The calls of one channel to its persistence."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from shardwire._native import ChangedRecords
from shardwire.channel.hooks import CLOSING_CALL_S, ends_process, is_ours
from shardwire.channel.storing.begun_commits import BegunCommits
from shardwire.errors import PersistenceError, ShardwireError
from shardwire.persistence import MemoryPersistence
from shardwire.persistence.protocol import Changes, ChannelState, Persistence

logger = logging.getLogger(__name__)

# Whose state is in use: by identity of the persistence and id of the channel. A loop that is closed uses nothing.
_IN_USE: dict[tuple[int, str], tuple[Writer, asyncio.AbstractEventLoop]] = {}

# Whoever puts another `commit` in its place sees all of them.
_MEMORY_COMMIT = MemoryPersistence.commit

# No future holds a `StopIteration`: who awaits it would wait for ever. The others would pass for the end of the
# coroutine that awaits it, or for its cancellation.
_UNCARRIED = (StopIteration, GeneratorExit, asyncio.CancelledError)


class Writer:
    """Runs the calls of one persistence, in a thread of its own where they may wait for a disk.

    Args:
        persistence: What is called; None for a channel whose state ends with it.
        channel_id: The channel.

    Attributes:
        stores: Whether there is a persistence.
        is_immediate: Whether changes are durable without waiting: kept in this process, or nowhere.
    """

    def __init__(self, persistence: Persistence | None, channel_id: str) -> None:
        self.stores = persistence is not None
        self._persistence = persistence
        self._channel_id = channel_id
        self._executor: ThreadPoolExecutor | None = None
        self._loaded = False
        self._outlived_loop = False
        self._released: Future[None] | None = None
        if persistence is not None and not isinstance(persistence, MemoryPersistence):
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="shardwire-writer")
        self.is_immediate = self._executor is None
        self._begun: BegunCommits | None = None
        self._memory = _as_it_came(persistence)

    async def load(self) -> ChannelState | None:
        """Claims the channel's state and loads it; None where nothing is stored.

        Raises:
            PersistenceError: Another channel of this process uses this state, the persistence raises, or what it gives
                is no state.
        """
        if self._persistence is None:
            return None
        loop = asyncio.get_running_loop()
        releases = _release_ended()
        self._claim(self._persistence, loop)
        if self._executor is None:
            return self._load(self._persistence)
        state = await loop.run_in_executor(self._executor, self._load, self._persistence, releases)
        self._begun = BegunCommits.of(self._persistence, self._channel_id, loop)
        return state

    async def commit_first(self, changes: ChangedRecords) -> None:
        """Waits until the first changes of a channel are durable.

        Raises:
            PersistenceError: As `Persistence.commit`, and for whatever else the persistence raises.
        """
        try:
            await self.commit(changes)
        except ShardwireError:
            raise
        except BaseException as error:
            if is_ours(error):
                raise
            raise _carried("commit", error) from error

    def commit_at_once(self, changes: ChangedRecords) -> None:
        """For a writer that is immediate.

        Raises:
            PersistenceError: As `Persistence.commit`; what else a persistence raises goes through.
        """
        if self._memory is not None:
            # Nobody needs them afterwards, and copying each costs more than storing it.
            self._memory.apply(self._channel_id, changes, taking=True)
        elif self._persistence is not None:
            self._commit(self._persistence, changes)

    async def commit(self, changes: ChangedRecords) -> None:
        """Waits until the changes are durable.

        Raises:
            PersistenceError: As `Persistence.commit`; what else a persistence raises goes through.
        """
        if self._persistence is None or self._executor is None:
            self.commit_at_once(changes)
            return
        if self._begun is not None and (committed := self._begun.begin(changes)) is not None:
            await committed
            return
        await asyncio.get_running_loop().run_in_executor(self._executor, self._commit, self._persistence, changes)

    async def close(self) -> None:
        """Gives the channel's state free and ends the thread.

        What the thread is still busy with comes first; nobody waits longer for that than `CLOSING_CALL_S`.
        """
        if self._executor is None:
            self._release()
            return
        if self._outlived_loop:
            return
        if self._begun is not None:
            self._begun.close()
        releasing = asyncio.get_running_loop().run_in_executor(self._executor, self._release)
        self._executor.shutdown(wait=False)
        await asyncio.wait({releasing}, timeout=CLOSING_CALL_S)

    def release_without_loop(self) -> Future[None] | None:
        """As `close`, where the event loop is closed, and from any thread.

        Returns:
            What is done when the state is free; None where it is already, or `close` was called before.
        """
        self._outlived_loop = True
        self._begun = None
        if self._executor is None:
            self._release()
            return None
        # It is shut down where the thread is told to end already.
        with contextlib.suppress(RuntimeError):
            self._released = self._executor.submit(self._release)
        self._executor.shutdown(wait=False)
        return self._released

    def _load(self, persistence: Persistence, before: Sequence[Future[None]] = ()) -> ChannelState | None:
        # One of them may have this very state.
        wait(before, CLOSING_CALL_S)
        try:
            given: object = persistence.load(self._channel_id)
        except ShardwireError:
            raise
        except BaseException as error:
            if ends_process(error):
                raise
            raise _carried("load", error) from error
        self._loaded = True
        return _checked(given)

    def _commit(self, persistence: Persistence, changed: ChangedRecords) -> None:
        changes = Changes(changed.to_dict())
        try:
            # What an `async` method gives would pass for something that was stored.
            given: object = persistence.commit(self._channel_id, changes)  # type: ignore[func-returns-value]
        except _UNCARRIED as error:
            raise _carried("commit", error) from error
        if given is not None:
            _refuse_awaitable("commit", given)

    def _claim(self, persistence: Persistence, loop: asyncio.AbstractEventLoop) -> None:
        name = (id(persistence), self._channel_id)
        user = _IN_USE.get(name)
        if user is not None and not user[1].is_closed():
            raise PersistenceError(
                f"the state of channel {self._channel_id!r} in this {type(persistence).__name__} is in use by "
                "this process already: close the other channel first, or use another persistence"
            )
        _IN_USE[name] = (self, loop)

    def _release(self) -> None:
        loaded, self._loaded = self._loaded, False
        release = getattr(self._persistence, "release", None)
        try:
            if loaded and release is not None:
                release(self._channel_id)
        except BaseException as error:
            if ends_process(error):
                raise
            logger.exception("release of the persistence raised %s", type(error).__name__)
        finally:
            name = (id(self._persistence), self._channel_id)
            # Another channel may have it since the loop of this one is closed, and one that was refused has it not.
            if (user := _IN_USE.get(name)) is not None and user[0] is self:
                _IN_USE.pop(name, None)


def _release_ended() -> list[Future[None]]:
    """Gives free what channels have that were open when their event loop was closed: nobody can close them any more.

    Other event loops run in other threads and do the same: each gets what to wait for.
    """
    ended = [writer for writer, loop in list(_IN_USE.values()) if loop.is_closed()]
    return [released for writer in ended if (released := writer.release_without_loop()) is not None]


# What a process uses, one that is forked from it does not.
os.register_at_fork(after_in_child=_IN_USE.clear)


def _as_it_came(persistence: Persistence | None) -> MemoryPersistence | None:
    """One that takes changes in the form in which the core gives them."""
    if isinstance(persistence, MemoryPersistence):
        commit = getattr(persistence.commit, "__func__", None)
        return persistence if commit is _MEMORY_COMMIT else None
    return None


def _refuse_awaitable(call: str, given: object) -> None:
    if not inspect.isawaitable(given):
        return
    if inspect.iscoroutine(given):
        given.close()
    raise PersistenceError(f"{call} of the persistence is async: it must be a plain method, done when it returns")


def _checked(given: object) -> ChannelState | None:
    if given is None:
        return None
    _refuse_awaitable("load", given)
    if not isinstance(given, ChannelState):
        raise PersistenceError(
            f"load of the persistence gave {type(given).__name__}: it must give a ChannelState, or None for a channel "
            "that was never stored"
        )
    for name, value in given.records.items():
        match name:
            case (str(), bytes()) if isinstance(value, bytes):
                continue
        raise PersistenceError(
            f"load of the persistence gave a record of {_type_of(name)} with {type(value).__name__}: it must give what "
            "was committed, (str, bytes) with bytes"
        )
    return given


def _type_of(name: object) -> str:
    if isinstance(name, tuple):
        return f"({', '.join(type(part).__name__ for part in name)})"
    return type(name).__name__


def _carried(call: str, error: BaseException) -> PersistenceError:
    return PersistenceError(f"{call} of the persistence raised {type(error).__name__}")
