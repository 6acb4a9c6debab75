"""Where the count of a node's quota is kept: in one of the persistences of its channels, once.

The others hold a mark that it is counted elsewhere, so that a later life which has only them knows that it does not
know the count of the epoch, and waits for the next.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from shardwire._native import ChangedRecords
from shardwire.channel.storing.records import NODE_RATE, NodeRateRecord, RateRecord
from shardwire.channel.storing.writer import Writer
from shardwire.errors import PersistenceError
from shardwire.persistence import MemoryPersistence
from shardwire.persistence.protocol import Persistence

logger = logging.getLogger(__name__)

# Rooms that channels left: their marks are remembered, since the count has all that was counted there.
LEFT_MAX = 1_000

Count = Callable[[], RateRecord]


@dataclass(slots=True, eq=False)
class _Room:
    """A place in which channels of the node keep their states.

    Attributes:
        place: Identifies it, as far as persistences say where they are.
        mark: Identifies it by what is written in it.
        users: The persistence of each channel that uses it, the writer's first.
        writer: Writes the record in it.
    """

    place: object
    mark: str
    users: list[Persistence]
    writer: Writer


class CountStore:
    """Keeps the count where a channel keeps its state, and moves it on when the last channel that does is closed.

    Args:
        name: Under which it is stored, as a channel's state is.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        # The first holds the count: one that outlives the process, where there is any.
        self._rooms: list[_Room] = []
        # Marks of rooms that are no longer used, oldest first: the count has all that was counted there.
        self._left: dict[str, None] = {}
        # One change at a time.
        self._lock = asyncio.Lock()

    async def join(self, persistence: Persistence, on_found: Callable[[NodeRateRecord], None], count: Count) -> None:
        """A channel that keeps its state in `persistence` uses the node.

        Args:
            persistence: Its persistence.
            on_found: Told what an earlier life left there.
            count: Tells the count as it stands.

        Raises:
            PersistenceError: It cannot be read or written, or another node of the same name counts there.
        """
        async with self._lock:
            place = _place_of(persistence)
            known = next((room for room in self._rooms if room.place == place), None)
            if known is not None:
                known.users.append(persistence)
                return
            writer = Writer(persistence, self._name)
            try:
                state = await writer.load()
                stored = None if state is None else state.records.get((NODE_RATE, b""))
                record = None if stored is None else NodeRateRecord.decode(stored)
                known = (
                    None if record is None else next((room for room in self._rooms if room.mark == record.mark), None)
                )
                if known is None:
                    await self._take_in(
                        _Room(place, secrets.token_hex(8), [persistence], writer), record, on_found, count
                    )
                    return
            except BaseException:
                self._rooms = [room for room in self._rooms if room.writer is not writer]
                await writer.close()
                raise
            await writer.close()
            known.users.append(persistence)

    async def _take_in(
        self, room: _Room, found: NodeRateRecord | None, on_found: Callable[[NodeRateRecord], None], count: Count
    ) -> None:
        """Adds a room. In whatever step a crash comes, one room at least has what was counted."""
        if found is not None and found.mark not in self._left:
            on_found(found)
            if self._rooms and found.is_counted_here:
                await self._commit(self._rooms[0], count(), is_counted_here=True)
        is_first = not self._rooms or (_is_volatile(self._rooms[0]) and not _is_volatile(room))
        await self._commit(room, count(), is_counted_here=is_first)
        self._rooms.insert(0 if is_first else len(self._rooms), room)
        if is_first and len(self._rooms) > 1:
            await self._commit(self._rooms[1], count(), is_counted_here=False)

    async def leave(self, persistence: Persistence, count: Count) -> None:
        """The channel is closed."""
        async with self._lock:
            room = next(room for room in self._rooms if any(user is persistence for user in room.users))
            was_written = room.users[0] is persistence
            del room.users[next(number for number, user in enumerate(room.users) if user is persistence)]
            if not room.users:
                await self._give_up(room, count)
            elif was_written and room.users[0] is not persistence:
                # It may be closed from now on.
                await room.writer.close()
                room.writer = Writer(room.users[0], self._name)
                await room.writer.load()

    async def _give_up(self, room: _Room, count: Count) -> None:
        was_first = self._rooms[0] is room
        self._rooms.remove(room)
        self._left[room.mark] = None
        if len(self._left) > LEFT_MAX:
            # Should it come back it is taken for what an earlier life left: that errs safely.
            del self._left[next(iter(self._left))]
        try:
            if was_first and self._rooms:
                # First there, then no longer here: a crash between the two leaves both, which errs safely.
                await self._commit(self._rooms[0], count(), is_counted_here=True)
                await self._commit(room, count(), is_counted_here=False)
        finally:
            await room.writer.close()

    async def store(self, count: Count) -> None:
        """Makes the count durable, where any channel of the node keeps its state beyond its own life.

        Raises:
            PersistenceError: It could not be stored.
        """
        async with self._lock:
            if self._rooms:
                await self._commit(self._rooms[0], count(), is_counted_here=True)

    async def _commit(self, room: _Room, count: RateRecord, *, is_counted_here: bool) -> None:
        record = NodeRateRecord(count.epoch, count.epoch_size_ms, count.used, is_counted_here, room.mark)
        try:
            await room.writer.commit(ChangedRecords({(NODE_RATE, b""): record.encode()}))
        except PersistenceError:
            raise
        except Exception as error:
            raise PersistenceError(f"the persistence raised {type(error).__name__}: nothing was stored") from error


def _place_of(persistence: Persistence) -> object:
    """Where a persistence keeps its state: equal for persistences that keep the same."""
    path = getattr(persistence, "path", None)
    if not isinstance(path, str | os.PathLike):
        return id(persistence)
    return type(persistence), os.path.realpath(path)


def _is_volatile(room: _Room) -> bool:
    return isinstance(room.users[0], MemoryPersistence)
